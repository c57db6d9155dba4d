/**
 * Where a time lies on the timeline, in percent.
 *
 * A run that waits a night for a person would draw its work as one pixel: stretches in which nothing ran, longer
 * than a share of all work, are folded to a fixed width and marked.
 */

export interface Span {
  start: number;
  end: number;
}

export interface Break extends Span {
  /** Left edge and width, in percent. */
  left: number;
  width: number;
}

const FOLD_SHARE = 0.06;
const LEAST_FOLD_MS = 2000;

export class Scale {
  readonly breaks: Break[] = [];
  private readonly pieces: { start: number; end: number; left: number; width: number }[] = [];

  /** `busy` are the stretches in which something ran; `fold` says whether the others are shortened. */
  constructor(readonly all: Span, busy: Span[], fold: boolean) {
    const length = Math.max(1, all.end - all.start);
    const idle = fold ? gaps(all, merge(busy)) : [];
    const worked = length - idle.reduce((sum, gap) => sum + gap.end - gap.start, 0);
    const long = idle.filter((gap) => gap.end - gap.start > Math.max(LEAST_FOLD_MS, worked * 0.25));
    const left = length - long.reduce((sum, gap) => sum + gap.end - gap.start, 0);
    const share = Math.min(FOLD_SHARE, 0.5 / Math.max(1, long.length));
    const perMs = (1 - share * long.length) / Math.max(1, left);
    let at = 0;
    let time = all.start;
    const add = (start: number, end: number, width: number) => {
      this.pieces.push({ start, end, left: at, width });
      at += width;
    };
    for (const gap of long) {
      add(time, gap.start, (gap.start - time) * perMs);
      this.breaks.push({ ...gap, left: at * 100, width: share * 100 });
      add(gap.start, gap.end, share);
      time = gap.end;
    }
    add(time, all.end, (all.end - time) * perMs);
  }

  /** Return the place of a time, in percent of the width. */
  at(time: number): number {
    const piece = this.pieces.find(({ end }) => time <= end) ?? this.pieces.at(-1)!;
    const length = piece.end - piece.start;
    const share = length > 0 ? Math.min(1, Math.max(0, (time - piece.start) / length)) : 0;
    return (piece.left + piece.width * share) * 100;
  }

  /** Return round times since `origin` for an axis, with their places; none inside a break, none too near the end. */
  ticks(origin: number, most: number): { time: number; at: number }[] {
    const worked = this.pieces.filter((piece) => !this.breaks.some((gap) => gap.start === piece.start && gap.end === piece.end));
    const length = worked.reduce((sum, piece) => sum + piece.end - piece.start, 0);
    const step = roundUp(length / most);
    const ticks: { time: number; at: number }[] = [];
    let before = -100;
    for (const piece of worked) {
      const edge = (piece.left + piece.width) * 100;
      const first = Math.ceil((piece.start - origin) / step) * step;
      for (let time = first; origin + time <= piece.end; time += step) {
        const at = this.at(origin + time);
        if (at - before < 60 / most || edge - at < 36 / most) continue;
        ticks.push({ time, at });
        before = at;
      }
    }
    return ticks;
  }
}

function roundUp(length: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, length)));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= length) return factor * power;
  return 10 * power;
}

function merge(spans: Span[]): Span[] {
  const sorted = [...spans].sort((a, b) => a.start - b.start);
  const merged: Span[] = [];
  for (const span of sorted) {
    const last = merged.at(-1);
    if (last && span.start <= last.end) last.end = Math.max(last.end, span.end);
    else merged.push({ ...span });
  }
  return merged;
}

function gaps(all: Span, busy: Span[]): Span[] {
  const found: Span[] = [];
  let time = all.start;
  for (const span of busy) {
    if (span.start > time) found.push({ start: time, end: span.start });
    time = Math.max(time, span.end);
  }
  if (all.end > time) found.push({ start: time, end: all.end });
  return found;
}
