/** A lane per call: what it waited for, each attempt, the word of a person, the cut. */
import { useSignal, type Signal } from "@preact/signals";
import { useMemo } from "preact/hooks";

import { duration, millis, roughly } from "../format";
import { t, type Key } from "../i18n";
import { Empty, Status } from "../parts/bits";
import { Rows } from "../parts/rows";
import { Text } from "../parts/text";
import { amend } from "../router";
import { Scale, type Span } from "../scale";
import type { Call, RunDetail, Segment, Turn } from "../types";
import { nameOf } from "./call";

const ROW = 26;
/** A scale that fits the rows in sight changes every so many rows. */
const STEP = 16;
const BAD = ["failed", "denied", "in_doubt"];

type Row = { kind: "turn"; key: string; index: number; turn: Turn | null } | { kind: "call"; key: string; call: Call };

export function Timeline({ detail, chosen }: { detail: RunDetail; chosen: string | null }) {
  const onlyFailed = useSignal(false);
  const fold = useSignal(true);
  const fit = useSignal(detail.calls.length > 60);
  const rows = useMemo(() => {
    const calls = onlyFailed.value ? detail.calls.filter(({ status }) => BAD.includes(status)) : detail.calls;
    return rowsOf(detail.turns, calls, onlyFailed.value);
  }, [detail, onlyFailed.value]);
  const origin = millis(detail.run.started_at) ?? 0;
  const whole = useMemo(() => (fit.value ? null : scaleOf(rows, origin, fold.value)), [rows, fit.value, fold.value]);
  const fitted = useMemo(() => {
    const scales = new Map<number, Scale>();
    return (first: number, last: number) => {
      const name = first * 1e6 + last;
      const scale = scales.get(name) ?? scaleOf(rows.slice(first, last), origin, fold.value);
      scales.set(name, scale);
      return scale;
    };
  }, [rows, fold.value]);
  return (
    <div class="timeline">
      <div class="bar thin">
        <Check of={onlyFailed} name={t("run.only_failed")} />
        <Check of={fold} name={t("run.scale")} />
        <Check of={fit} name={t("run.fit")} />
        <Legend />
      </div>
      {rows.length === 0 ? (
        <Empty>{t("run.no_calls")}</Empty>
      ) : (
        <Rows
          items={rows}
          height={ROW}
          label={t("run.timeline")}
          testid="timeline"
          keyOf={(row) => row.key}
          chosen={chosen === null ? null : `call ${chosen}`}
          href={(row) => (row.kind === "call" ? amend({ call: nameOf(row.call) }) : null)}
          prepare={(first, last) => whole ?? fitted(Math.floor(first / STEP) * STEP, Math.ceil(last / STEP) * STEP)}
          header={(scale) => <Axis scale={scale} origin={origin} />}
          draw={(row, scale) => (row.kind === "turn" ? <TurnLane index={row.index} turn={row.turn} scale={scale} /> : <CallLane call={row.call} origin={origin} scale={scale} />)}
        />
      )}
    </div>
  );
}

function Check({ of, name }: { of: Signal<boolean>; name: string }) {
  return (
    <label class="check">
      <input type="checkbox" checked={of.value} onChange={(event) => (of.value = event.currentTarget.checked)} /> {name}
    </label>
  );
}

function rowsOf(turns: Turn[], calls: Call[], onlyCalls: boolean): Row[] {
  const byTurn = new Map<number, Call[]>();
  for (const call of calls) byTurn.set(call.turn, [...(byTurn.get(call.turn) ?? []), call]);
  const known = new Map(turns.map((turn) => [turn.index, turn]));
  const indices = [...new Set([...(onlyCalls ? [] : known.keys()), ...byTurn.keys()])].sort((a, b) => a - b);
  return indices.flatMap((index) => [
    { kind: "turn" as const, key: `turn ${index}`, index, turn: known.get(index) ?? null },
    ...(byTurn.get(index) ?? []).map((call) => ({ kind: "call" as const, key: `call ${nameOf(call)}`, call })),
  ]);
}

/** Segments count from the start of the run; one without an end goes on. */
function spansOf(call: Call, origin: number): (Segment & Span)[] {
  return (call.segments ?? []).map((segment) => {
    const start = origin + segment.start_ms;
    return { ...segment, start, end: segment.end_ms === null ? Math.max(start, Date.now()) : origin + segment.end_ms };
  });
}

function scaleOf(rows: Row[], origin: number, fold: boolean): Scale {
  const busy: Span[] = [];
  const idle: Span[] = [];
  const add = (start: number | null, end: number | null) => {
    if (start !== null && end !== null && end >= start) busy.push({ start, end });
  };
  for (const row of rows) {
    if (row.kind === "turn") {
      const ended = millis(row.turn?.ended_at);
      add(millis(row.turn?.started_at) ?? ended, ended); // of a run read from its records only the end is known
      continue;
    }
    const spans = spansOf(row.call, origin);
    if (spans.length === 0) add(millis(row.call.started_at), millis(row.call.ended_at));
    for (const span of spans) (span.kind === "approval" ? idle : busy).push(span);
  }
  const all = [...busy, ...idle];
  if (all.length === 0) return new Scale({ start: origin, end: origin + 1 }, [], false);
  const start = Math.min(...all.map((span) => span.start));
  const end = Math.max(...all.map((span) => span.end), start + 1);
  return new Scale({ start, end }, busy, fold);
}

function Axis({ scale, origin }: { scale: Scale; origin: number }) {
  return (
    <div class="lane axis" aria-hidden="true">
      <span />
      <span class="track">
        {scale.ticks(origin, 8).map(({ time, at }) => (
          <span class="tick" style={{ left: `${at}%` }}>
            {duration(time)}
          </span>
        ))}
        <Breaks scale={scale} named />
      </span>
    </div>
  );
}

function Breaks({ scale, named = false }: { scale: Scale; named?: boolean }) {
  return (
    <>
      {scale.breaks.map((gap) => (
        <span class="fold" style={{ left: `${gap.left}%`, width: `${gap.width}%` }} title={duration(gap.end - gap.start)}>
          {named ? roughly(gap.end - gap.start) : ""}
        </span>
      ))}
    </>
  );
}

function TurnLane({ index, turn, scale }: { index: number; turn: Turn | null; scale: Scale }) {
  const start = millis(turn?.started_at);
  const end = millis(turn?.ended_at);
  return (
    <span class="lane turn">
      <span class="name one-line">
        <b>{t("run.turn", { n: index })}</b> <span class="quiet">{turn?.model && <Text of={turn.model.split("@")[0]!} />}</span>
      </span>
      <span class="track">
        <Breaks scale={scale} />
        {end !== null && <Bar kind="model" start={start ?? end} end={end} scale={scale} title={t("segment.model")} />}
        {turn?.text && end !== null && <Says text={turn.text} at={scale.at(end)} />}
      </span>
    </span>
  );
}

/** What the model said, beside its bar where there is room. */
function Says({ text, at }: { text: string; at: number }) {
  if (at >= 55) return null;
  return (
    <span class="says one-line" style={{ left: `calc(${at}% + 6px)`, right: "0" }}>
      <Text of={text.slice(0, 200)} />
    </span>
  );
}

function CallLane({ call, origin, scale }: { call: Call; origin: number; scale: Scale }) {
  const spans = spansOf(call, origin);
  const start = millis(call.started_at);
  const end = millis(call.ended_at);
  const took = start !== null && end !== null ? duration(end - start) : "";
  const last = spans.length ? Math.max(...spans.map((span) => span.end)) : (end ?? start);
  const after = last === null ? 0 : scale.at(last);
  return (
    <span class="lane" data-testid={`lane-${nameOf(call)}`}>
      <span class="name one-line">
        <Status of={call.status} bare /> <Text of={call.tool} /> <span class="quiet">{brief(call)}</span>
      </span>
      <span class="track">
        <Breaks scale={scale} />
        {spans.map((span) => (
          <Bar kind={kindOf(span)} start={span.start} end={span.end} scale={scale} title={titleOf(span)} />
        ))}
        {spans.length === 0 && start !== null && end !== null && <Bar kind={call.status === "ok" ? "attempt" : "failed_attempt"} start={start} end={end} scale={scale} title={took} />}
        {took && (
          <span class="took" style={after < (isNarrow() ? 72 : 88) ? { left: `calc(${after}% + 6px)` } : { right: `calc(${100 - (start === null ? 0 : scale.at(start))}% + 6px)` }}>
            {took}
          </span>
        )}
      </span>
    </span>
  );
}

/** Whether the page is so narrow that a label takes a quarter of a track. */
function isNarrow(): boolean {
  return matchMedia("(max-width: 700px)").matches;
}

function brief(call: Call) {
  return call.brief ? <Text of={call.brief} /> : null;
}

function kindOf({ kind, ok }: Segment): string {
  return kind === "attempt" && ok === false ? "failed_attempt" : kind;
}

function titleOf(span: Segment & Span): string {
  const name = t(`segment.${kindOf(span)}` as Key);
  const number = span.n ? ` ${span.n}` : "";
  return `${name}${number}: ${duration(span.end - span.start)}${span.error ? ` · ${span.error}` : ""}`;
}

function Bar({ kind, start, end, scale, title }: { kind: string; start: number; end: number; scale: Scale; title: string }) {
  const left = scale.at(start);
  return <span class={`bar-segment k-${kind}`} title={title} style={{ left: `${left}%`, width: `max(2px, ${scale.at(end) - left}%)` }} />;
}

function Legend() {
  const kinds: Key[] = ["segment.model", "segment.queued", "segment.lock", "segment.attempt", "segment.failed_attempt", "segment.backoff", "segment.approval", "segment.cut"];
  return (
    <span class="legend" aria-hidden="true">
      {kinds.map((key) => (
        <span>
          <span class={`swatch k-${key.slice("segment.".length)}`} /> {t(key)}
        </span>
      ))}
    </span>
  );
}
