/** Small parts that all screens share. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import { duration, millis, moment } from "../format";
import { t, word } from "../i18n";
import { Text } from "./text";

const GLYPHS: Record<string, string> = {
  ok: "✓", done: "✓", approved: "✓",
  failed: "✗", poisoned: "✗", denied: "⊘", cancelled: "⊘", expired: "⊘",
  waiting: "?", in_doubt: "!", running: "▸", queued: "…", claimed: "▸",
}; // prettier-ignore

/** A status as glyph and word: never by colour alone. */
export function Status({ of, bare = false }: { of: string; bare?: boolean }) {
  return (
    <span class={`status s-${of}`} title={bare ? word("status", of) : undefined}>
      <span class="glyph" aria-hidden="true">
        {GLYPHS[of] ?? "·"}
      </span>
      <span class={bare ? "unseen-label" : ""}>{word("status", of)}</span>
    </span>
  );
}

export function Risk({ of }: { of: string | null }) {
  return of ? <span class={`tag r-${of}`}>{word("risk", of)}</span> : null;
}

export function When({ at }: { at: string | null | undefined }) {
  return at ? (
    <time dateTime={at} title={at}>
      {moment(at)}
    </time>
  ) : (
    <>–</>
  );
}

/** Name and value pairs in two columns; a value of `null` leaves its row out. */
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) =>
        value === null || value === undefined || value === "" ? null : (
          <div>
            <dt>{name}</dt>
            <dd>{typeof value === "string" ? <Text of={value} /> : value}</dd>
          </div>
        ),
      )}
    </dl>
  );
}

export function Section({ title, aside, children }: { title: string; aside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="section">
      <h3>
        {title}
        {aside && <span class="aside">{aside}</span>}
      </h3>
      {children}
    </section>
  );
}

export function Note({ children, tone = "" }: { children: ComponentChildren; tone?: "" | "bad" | "warn" | "good" }) {
  return (
    <div class={`note ${tone}`} role={tone === "bad" ? "alert" : "status"}>
      {children}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** What a screen shows while it has nothing: a failure with a way to try again, or that it loads. */
export function Pending({ error, retry }: { error: string | null; retry: () => void }) {
  if (error === null) return <p class="empty">{t("app.loading")}</p>;
  return (
    <Note tone="bad">
      <Text of={error} />{" "}
      <button type="button" class="small" onClick={retry}>
        {t("app.retry")}
      </button>
    </Note>
  );
}

/** A clock that runs down to a time. */
export function Countdown({ to }: { to: string | null }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const end = millis(to);
  if (end === null) return <>{t("approvals.never")}</>;
  const left = end - Date.now();
  if (left <= 0) return <span class="bad">{t("approvals.expired")}</span>;
  return <time dateTime={to!}>{duration(left < 60_000 ? Math.ceil(left / 1000) * 1000 : left)}</time>;
}

export function Tabs({ label, tabs, chosen }: { label: string; tabs: { key: string; name: string; href: string }[]; chosen: string }) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(({ key, name, href }) => (
        <a href={href} aria-current={key === chosen ? "page" : undefined} data-testid={`tab-${key}`}>
          {name}
        </a>
      ))}
    </nav>
  );
}

/** A list beside what is chosen of it; on a narrow page the one covers the other. */
export function Split({ list, detail, back, open }: { list: ComponentChildren; detail: ComponentChildren; back: string; open: boolean }) {
  return (
    <div class={`split ${open ? "open" : ""}`}>
      <div class="split-list">{list}</div>
      <aside class="split-detail" aria-live="off">
        {open && (
          <a class="back" href={back}>
            ← {t("app.close")}
          </a>
        )}
        {detail}
      </aside>
    </div>
  );
}
