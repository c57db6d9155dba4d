/** What one text has and another has not. */

export interface Piece {
  kind: "same" | "gone" | "new";
  text: string;
}

/** Largest tables that are computed: beyond them a page would stand still, and nobody reads such a diff. */
const MOST_CELLS = { words: 500_000, lines: 4_000_000 };

/** Compare two texts by words, long ones by lines; `null` when even that is too much. */
export function diff(before: string, after: string): Piece[] | null {
  return compared(words(before), words(after), MOST_CELLS.words) ?? compared(lines(before), lines(after), MOST_CELLS.lines);
}

function compared(from: string[], to: string[], most: number): Piece[] | null {
  let head = 0;
  while (head < from.length && head < to.length && from[head] === to[head]) head++;
  let tail = 0;
  while (tail < from.length - head && tail < to.length - head && from.at(-1 - tail) === to.at(-1 - tail)) tail++;
  const a = from.slice(head, from.length - tail);
  const b = to.slice(head, to.length - tail);
  if ((a.length + 1) * (b.length + 1) > most) return null;
  const pieces: Piece[] = [];
  push(pieces, "same", from.slice(0, head));
  compare(pieces, a, b);
  push(pieces, "same", from.slice(from.length - tail));
  return pieces;
}

function words(text: string): string[] {
  return text.match(/\n[ \t]*|[ \t]+|[\p{L}\p{N}_]+|[^\s]/gu) ?? [];
}

function lines(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function push(pieces: Piece[], kind: Piece["kind"], words: string[]): void {
  const text = words.join("");
  if (!text) return;
  const last = pieces.at(-1);
  if (last?.kind === kind) last.text += text;
  else pieces.push({ kind, text });
}

function compare(pieces: Piece[], a: string[], b: string[]): void {
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => lengths[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      push(pieces, "same", [a[i++]!]);
      j++;
    } else if (i < a.length && (j === b.length || at(i + 1, j) >= at(i, j + 1))) {
      push(pieces, "gone", [a[i++]!]);
    } else {
      push(pieces, "new", [b[j++]!]);
    }
  }
}
