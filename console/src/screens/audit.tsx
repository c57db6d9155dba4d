/** The audit log, newest first, and whether its chain is whole. */
import { useSignal } from "@preact/signals";

import { get, messageOf, useList } from "../api";
import { asText, has, inline, settled } from "../format";
import { t } from "../i18n";
import { useKeys } from "../keys";
import { Empty, Note, Pending, Split, When } from "../parts/bits";
import { Rows } from "../parts/rows";
import { Block, Text } from "../parts/text";
import { amend, go, link, place } from "../router";
import type { Json } from "../types";

export interface AuditRecord {
  id?: string;
  [name: string]: Json | undefined;
}

export function keyOf(record: AuditRecord): string {
  return String(record.seq ?? record.id ?? record.hash ?? inline(record as Json));
}

export function AuditScreen({ chosen }: { chosen: string | null }) {
  const run = place.value.query.get("run") ?? "";
  const fromStart = place.value.query.get("from") === "start";
  // the log is read forwards; its newest page is shown backwards
  const words: Record<string, string> = { run, newest: run || fromStart ? "" : "1" };
  const records = useList<AuditRecord>("/audit", { ...words, limit: "1000" });
  useKeys({ Escape: () => go(link(["audit"], { run, from: place.value.query.get("from") })) });
  const backwards = !run && !fromStart;
  const items = backwards ? (records.items.value?.toReversed() ?? null) : records.items.value;
  const here = (record?: string) => link(["audit", ...(record ? [record] : [])], { run, from: fromStart ? "start" : null });
  return (
    <div class="screen">
      <h1 class="unseen-label">{t("app.audit")}</h1>
      <div class="bar">
        <input type="search" data-search placeholder={t("audit.run")} aria-label={t("audit.run")} value={run} onChange={(event) => go(amend({ run: event.currentTarget.value }), { replace: true })} />
        {!run && (
          <select aria-label={t("audit.order")} value={fromStart ? "start" : ""} onChange={(event) => go(amend({ from: event.currentTarget.value }), { replace: true })}>
            <option value="">{t("audit.newest")}</option>
            <option value="start">{t("audit.from_start")}</option>
          </select>
        )}
        <Verify />
      </div>
      {!items && <Pending error={records.error.value} retry={() => void records.reload()} />}
      {items?.length === 0 && <Empty>{t("audit.empty")}</Empty>}
      {!!items?.length && <AuditTable records={items} chosen={chosen} href={here} back={here()} onEnd={backwards ? undefined : () => void records.more()} />}
    </div>
  );
}

interface Table {
  records: AuditRecord[];
  chosen: string | null;
  href: (key: string) => string;
  back: string;
  onEnd?: () => void;
}

export function AuditTable({ records, chosen, href, back, onEnd }: Table) {
  const record = records.find((item) => keyOf(item) === chosen) ?? null;
  return (
    <Split
      open={record !== null}
      back={back}
      list={<Rows items={records} height={30} label={t("app.audit")} testid="audit" keyOf={keyOf} chosen={chosen} href={(item) => href(keyOf(item))} draw={(item) => <Line record={item} />} onEnd={onEnd} />}
      detail={record ? <Card record={record} /> : <Empty>{t("audit.choose")}</Empty>}
    />
  );
}

function Line({ record }: { record: AuditRecord }) {
  const body = bodyOf(record);
  return (
    <span class="audit-row">
      <span class="num quiet">{asText(record.seq)}</span>
      <span class="num quiet">
        <When at={asText(record.at)} />
      </span>
      <span class="one-line">
        <Text of={asText(record.event)} />
      </span>
      <span class="one-line">
        <Text of={asText(body.tool)} />
      </span>
      <span class="one-line quiet wide">
        <Text of={asText(body.by ?? body.principal)} />
      </span>
    </span>
  );
}

function bodyOf({ body }: AuditRecord): { [name: string]: Json } {
  return body !== null && typeof body === "object" && !Array.isArray(body) ? body : {};
}

function Card({ record }: { record: AuditRecord }) {
  const run = asText(record.run_id);
  const shown = Object.fromEntries(Object.entries(record).filter(([, value]) => has(value)));
  return (
    <article class="card">
      <h2>
        <Text of={`${keyOf(record)} ${asText(record.event)}`} />
      </h2>
      {run && <a href={link(["runs", run])}>{run}</a>}
      <Block of={settled(shown as Json)} label={t("app.audit")} />
    </article>
  );
}

function Verify() {
  const outcome = useSignal<{ tone: "good" | "bad"; text: string; report: Json } | null>(null);
  const busy = useSignal(false);
  const verify = async () => {
    busy.value = true;
    outcome.value = null;
    try {
      const report = await get<{ ok?: boolean; whole?: boolean; records?: number; [name: string]: Json | undefined }>("/audit/verify");
      const ok = report.ok ?? report.whole ?? false;
      outcome.value = { tone: ok ? "good" : "bad", text: ok ? t("audit.ok", { n: report.records ?? 0 }) : t("audit.broken"), report: ok ? null : (report as Json) };
    } catch (failure) {
      outcome.value = { tone: "bad", text: messageOf(failure), report: null };
    } finally {
      busy.value = false;
    }
  };
  return (
    <>
      <button type="button" onClick={() => void verify()} disabled={busy.value}>
        {busy.value ? t("audit.verifying") : t("audit.verify")}
      </button>
      {outcome.value && (
        <Note tone={outcome.value.tone}>
          <Text of={outcome.value.text} />
          {outcome.value.report !== null && <Block of={settled(outcome.value.report)} label={t("audit.broken")} />}
        </Note>
      )}
    </>
  );
}
