/**
 * Text of others: models, tools, people. It goes into text nodes only, and what an eye would not see is named.
 *
 * Control, bidirectional, zero-width and tag characters could make the arguments on a screen differ from those
 * that a word binds to; each is drawn as its code point.
 */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";

import { diff, type Piece } from "../diff";
import { inline, settled } from "../format";
import { t } from "../i18n";
import type { Json } from "../types";

const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

export function Text({ of }: { of: string }) {
  if (of.search(UNSEEN) < 0) return <>{of}</>;
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const match of of.matchAll(UNSEEN)) {
    parts.push(of.slice(end, match.index));
    parts.push(<span class="unseen">U+{match[0].codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}</span>);
    end = match.index + match[0].length;
  }
  parts.push(of.slice(end));
  return <>{parts}</>;
}

/** A block of text as it is, with a button that copies it as plain text. */
export function Block({ of, label, tone = "" }: { of: string; label: string; tone?: string }) {
  return (
    <div class={`block ${tone}`}>
      <Copy text={of} label={label} />
      <pre tabIndex={0} role="region" aria-label={label}>
        <Text of={of} />
      </pre>
    </div>
  );
}

/** A block that marks what differs from an earlier text. */
export function DiffBlock({ before, after, label, verbatim = false }: { before: Json; after: Json; label: string; verbatim?: boolean }) {
  const from = verbatim ? inline(before) : settled(before);
  const to = verbatim ? inline(after) : settled(after);
  const whole = useSignal(false);
  if (from === to) return <p class="quiet">{t("call.unchanged")}</p>;
  const pieces = diff(from, to);
  const long = pieces?.some(({ text }) => isLong(text)) ?? false;
  return (
    <div class="block">
      <Copy text={to} label={label} />
      <pre tabIndex={0} role="region" aria-label={label}>
        {pieces === null ? <Text of={to} /> : pieces.map((piece) => <Changed piece={piece} whole={whole.value} />)}
      </pre>
      {long && (
        <button type="button" class="small" onClick={() => (whole.value = !whole.value)}>
          {whole.value ? t("diff.short") : t("diff.whole")}
        </button>
      )}
      {pieces === null && <p class="quiet">{t("diff.too_long")}</p>}
    </div>
  );
}

/** Lines of a long stretch that are drawn at its beginning and at its end, so that what changed is in sight. */
const EDGE = 3;

function isLong(text: string): boolean {
  return text.split("\n").length > 2 * EDGE + 4;
}

function Changed({ piece: { kind, text }, whole }: { piece: Piece; whole: boolean }) {
  const drawn = whole || !isLong(text) ? <Text of={text} /> : <Folded of={text} />;
  if (kind === "same") return drawn;
  return kind === "gone" ? <del>{drawn}</del> : <ins>{drawn}</ins>;
}

function Folded({ of }: { of: string }) {
  const lines = of.split("\n");
  return (
    <>
      <Text of={lines.slice(0, EDGE).join("\n")} />
      <span class="folded">{t("diff.lines", { n: lines.length - 2 * EDGE })}</span>
      <Text of={lines.slice(-EDGE).join("\n")} />
    </>
  );
}

export function Copy({ text, label, children }: { text: string; label?: string; children?: ComponentChildren }) {
  const done = useSignal(false);
  const copy = async () => {
    await writeClipboard(text);
    done.value = true;
    setTimeout(() => (done.value = false), 1200);
  };
  return (
    <button type="button" class="small copy" onClick={copy} aria-label={label ? `${t("app.copy")}: ${label}` : undefined}>
      {done.value ? t("app.copied") : (children ?? t("app.copy"))}
    </button>
  );
}

async function writeClipboard(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // a page over plain HTTP on another machine has no clipboard
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
