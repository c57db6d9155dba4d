/**
 * A list of links of one height, of which only those in sight exist.
 *
 * Tab reaches the list once; arrows, j and k, Home, End and the page keys move within it, Enter opens. The row
 * that holds the focus is kept even when it is scrolled out of sight, so that the focus is never lost.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const BEYOND = 6;

interface Props<Item, Context> {
  items: Item[];
  height: number;
  label: string;
  testid?: string;
  /** Address of a row; a row without one is a heading that the keys pass over. */
  href: (item: Item) => string | null;
  draw: (item: Item, context: Context) => ComponentChildren;
  keyOf: (item: Item) => string;
  chosen?: string | null;
  /** Called when the end comes near. */
  onEnd?: () => void;
  /** What all rows are drawn with, made from the rows that can be seen, such as a scale that fits them. */
  prepare?: (first: number, last: number) => Context;
  /** What stands above the rows. */
  header?: (context: Context) => ComponentChildren;
}

export function Rows<Item extends object, Context = undefined>({ items, height, label, testid, href, draw, keyOf, chosen = null, onEnd, prepare, header }: Props<Item, Context>) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, size: 800 });
  const [focused, setFocused] = useState<string | null>(null);
  const wanted = useRef<string | null>(null);
  const drawn = useRef(new WeakMap<object, { context: Context; node: ComponentChildren }>());

  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => setView({ top: element.scrollTop, size: element.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const first = Math.max(0, Math.floor(view.top / height) - BEYOND);
  const last = Math.min(items.length, Math.ceil((view.top + view.size) / height) + BEYOND);

  useEffect(() => {
    if (onEnd && items.length && last >= items.length - BEYOND) onEnd();
  }, [last, items.length]);

  const topmost = Math.floor(view.top / height);
  const lowest = Math.min(items.length, Math.ceil((view.top + view.size) / height));
  const context = prepare?.(topmost, lowest) as Context;

  const indexOf = (key: string | null) => (key === null ? -1 : items.findIndex((item) => keyOf(item) === key));
  const focusIndex = indexOf(focused);
  const chosenIndex = indexOf(chosen);
  // exactly one row is in the order of Tab: the focused, else the chosen, else the first that leads anywhere
  let entry = focusIndex >= 0 ? focusIndex : chosenIndex;
  if (entry < 0) entry = items.findIndex((item) => href(item) !== null);

  useEffect(() => {
    if (chosenIndex >= 0) reveal(chosenIndex);
  }, [chosen]);

  useLayoutEffect(() => {
    if (wanted.current === null) return;
    const row = box.current!.querySelector<HTMLElement>(`[data-row="${indexOf(wanted.current)}"] a`);
    if (row) {
      row.focus({ preventScroll: true });
      wanted.current = null;
    }
  });

  function reveal(index: number): void {
    const element = box.current!;
    const top = index * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight) element.scrollTop = top + height - element.clientHeight;
  }

  function move(from: number, step: number): void {
    let index = Math.max(0, Math.min(items.length - 1, from + step));
    const towards = step < 0 ? -1 : 1;
    while (items[index] && href(items[index]!) === null) index += towards;
    const item = items[index];
    if (!item) return;
    wanted.current = keyOf(item);
    setFocused(keyOf(item));
    reveal(index);
  }

  function onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(view.size / height) - 1);
    const steps: Record<string, number> = {
      ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -items.length, End: items.length,
    }; // prettier-ignore
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (step === items.length) move(items.length - 1, -0);
    else if (step === -items.length) move(0, 0);
    else move(entry, step);
  }

  // a node that is handed over again is not compared: rows that stay in sight cost nothing
  const cached = (item: Item) => {
    const before = drawn.current.get(item);
    if (before && before.context === context) return before.node;
    const node = draw(item, context);
    drawn.current.set(item, { context, node });
    return node;
  };

  const indices: number[] = [];
  for (let index = first; index < last; index++) indices.push(index);
  if (entry >= 0 && (entry < first || entry >= last)) indices.push(entry);

  return (
    <>
      {header?.(context)}
      <div class="rows" ref={box} data-testid={testid} onScroll={(event) => setView({ top: event.currentTarget.scrollTop, size: event.currentTarget.clientHeight })} onKeyDown={onKey}>
        <ul aria-label={label} style={{ height: `${items.length * height}px` }}>
          {indices.map((index) => {
            const item = items[index]!;
            const key = keyOf(item);
            const address = href(item);
            return (
              <li key={key} data-row={index} style={{ transform: `translateY(${index * height}px)`, height: `${height}px` }} aria-setsize={items.length} aria-posinset={index + 1}>
                {address === null ? (
                  <div class="row heading">{cached(item)}</div>
                ) : (
                  <a class="row" href={address} tabIndex={index === entry ? 0 : -1} aria-current={key === chosen ? "true" : undefined} onFocus={() => setFocused(key)}>
                    {cached(item)}
                  </a>
                )}
              </li>
            );
          })}
        </ul>
      </div>
    </>
  );
}
