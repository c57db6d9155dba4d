/** What became of one call, step by step: every arrow is a diff. */
import { useFresh } from "../api";
import { count, duration, has, inline, moment, settled } from "../format";
import { t } from "../i18n";
import { Empty, Facts, Risk, Section, Status } from "../parts/bits";
import { Block, Copy, DiffBlock, Text } from "../parts/text";
import { link } from "../router";
import type { Approval, Call, Json, RunDetail } from "../types";

/** Return what names a call within its run. */
export function nameOf(call: Call): string {
  return call.step ?? call.id;
}

function agreedTo({ state, by, given }: Approval): string[] {
  const names = (given ?? []).map((each) => each.by);
  return by && (state === "approved" || state === "used") && !names.includes(by) ? [...names, by] : names;
}

export function CallCard({ detail, chosen }: { detail: RunDetail; chosen: string | null }) {
  const brief = detail.calls.find((each) => nameOf(each) === chosen);
  const whole = useFresh<Call>(brief ? `/runs/${encodeURIComponent(detail.run.id)}/calls/${encodeURIComponent(nameOf(brief))}` : null, detail);
  if (chosen === null) return <Empty>{t("call.choose")}</Empty>;
  const call = whole.data.value && nameOf(whole.data.value) === chosen ? whole.data.value : brief;
  if (!call) return <Empty>{t("app.no_page")}</Empty>;
  const agreed = detail.approvals.filter((approval) => (approval.step ? approval.step === call.step : approval.call === call.id)).flatMap(agreedTo);
  return (
    <article class="card" data-testid="call-card" key={call.id} aria-label={call.tool}>
      <header>
        <h2>
          <Text of={call.tool} />
        </h2>
        <div class="line facts-line">
          <Status of={call.status} />
          <Risk of={call.risk} />
          <code>{call.id}</code>
          <span>{t("run.turn", { n: call.turn })}</span>
          <Copy text={location.href}>{t("app.copy_link")}</Copy>
        </div>
      </header>
      {call.result?.failure && <FailureCard failure={call.result.failure} traceback={call.result.traceback ?? null} />}
      <Arguments call={call} />
      <Result call={call} />
      <Why call={call} agreed={agreed} />
      <Attempts call={call} />
      <Effect call={call} />
    </article>
  );
}

function Step({ name, note, children }: { name: string; note?: string; children: preact.ComponentChildren }) {
  return (
    <div class="step">
      <h4>
        {name}
        {note && <span class="tag">{note}</span>}
      </h4>
      {children}
    </div>
  );
}

function Arguments({ call }: { call: Call }) {
  const steps = call.arguments;
  if (!steps) return null;
  const repairs = steps.repairs ?? [];
  const repaired = steps.repaired ?? steps.raw;
  const coerced = steps.coerced ?? repaired;
  return (
    <Section title={t("call.arguments")}>
      <Step name={t("call.raw")}>
        <Block of={inlineOf(steps.raw)} label={t("call.raw")} />
      </Step>
      {repairs.length > 0 && (
        <Step name={t("call.repaired")} note={repairs.join(", ")}>
          <DiffBlock before={asWritten(steps.raw)} after={repaired} label={t("call.repaired")} verbatim />
        </Step>
      )}
      {has(steps.coerced) && settled(coerced) !== settled(repaired) && (
        <Step name={t("call.coerced")}>
          <DiffBlock before={repaired} after={coerced} label={t("call.coerced")} />
        </Step>
      )}
      {has(steps.edited) && (
        <Step name={t("call.edited")}>
          <DiffBlock before={coerced} after={steps.edited ?? null} label={t("call.edited")} />
        </Step>
      )}
      {has(steps.injected) && (
        <Step name={t("call.injected")}>
          <Block of={settled(steps.injected)} label={t("call.injected")} />
        </Step>
      )}
      <Step name={t("call.final")}>
        {steps.final === null || steps.final === undefined ? (
          <p class="quiet">{t(call.status === "running" || call.status === "waiting" ? "call.not_yet" : "call.not_reached")}</p>
        ) : (
          <DiffBlock before={has(steps.edited) ? (steps.edited ?? null) : coerced} after={steps.final} label={t("call.final")} />
        )}
      </Step>
    </Section>
  );
}

/** The model's text as it came; a structure came as JSON. */
function inlineOf(value: Json): string {
  return value === null || value === undefined ? t("call.missing") : inline(value);
}

function asWritten(value: Json): Json {
  return value === null ? "" : value;
}

function Result({ call }: { call: Call }) {
  const result = call.result;
  if (call.brief !== undefined) return null; // still being read
  if (!result) {
    return (
      <Section title={t("call.result")}>
        <p class="quiet">{t("call.no_result")}</p>
      </Section>
    );
  }
  if (result.failure) return null; // its card shows what the model read
  const dropped = (result.dropped_bytes ?? 0) > 0 || (result.dropped_tokens ?? 0) > 0;
  const screened = has(result.screened) && settled(result.screened) !== settled(result.raw);
  const before = has(result.screened) ? result.screened : result.raw;
  return (
    <Section title={t("call.result")}>
      {has(result.raw) && (
        <Step name={t("call.result_raw")}>
          <Block of={settled(result.raw)} label={t("call.result_raw")} />
        </Step>
      )}
      {screened && (
        <Step name={t("call.screened")}>
          <DiffBlock before={result.raw} after={result.screened} label={t("call.screened")} />
        </Step>
      )}
      {has(result.shown) && (
        <Step name={t("call.shown")} note={dropped ? t("call.dropped", { bytes: count(result.dropped_bytes ?? 0), tokens: count(result.dropped_tokens ?? 0) }) : undefined}>
          {has(before) ? <DiffBlock before={before} after={result.shown} label={t("call.shown")} /> : <Block of={settled(result.shown)} label={t("call.shown")} />}
        </Step>
      )}
      {result.handle && <Facts of={[[t("call.handle"), <code>{result.handle}</code>]]} />}
    </Section>
  );
}

function FailureCard({ failure, traceback }: { failure: NonNullable<NonNullable<Call["result"]>["failure"]>; traceback: string | null }) {
  return (
    <Section title={t("call.failure")}>
      <div class="failure">
        <code class="bad">{failure.error_code}</code>
        <p>
          <Text of={failure.error_message ?? inline(failure as Json)} />
        </p>
        {failure.suggestion && (
          <p>
            <Text of={failure.suggestion} />
          </p>
        )}
        {typeof failure.retryable === "boolean" && <p class="quiet">{failure.retryable ? t("call.retryable") : t("call.not_retryable")}</p>}
      </div>
      {traceback && (
        <Step name={t("call.traceback")}>
          <Block of={traceback} label={t("call.traceback")} />
        </Step>
      )}
    </Section>
  );
}

function Why({ call, agreed }: { call: Call; agreed: string[] }) {
  return (
    <Section title={t("call.why")}>
      {agreed.length > 0 && (
        <p>
          <Text of={t("call.agreed", { names: agreed.join(", ") })} />
        </p>
      )}
      {call.decisions?.length ? (
        <table class="why">
          <thead>
            <tr>
              <th>{t("call.step")}</th>
              <th>{t("call.outcome")}</th>
              <th>{t("call.rule")}</th>
              <th>{t("call.note")}</th>
            </tr>
          </thead>
          <tbody>
            {call.decisions.map((decision) => (
              <tr>
                <td>
                  <Text of={decision.step} />
                </td>
                <td>
                  <Text of={decision.outcome} />
                </td>
                <td>
                  <Text of={decision.rule ?? ""} />
                </td>
                <td>
                  <Text of={decision.note ?? ""} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p class="quiet">{t("call.no_decisions")}</p>
      )}
    </Section>
  );
}

function Attempts({ call }: { call: Call }) {
  const attempts = (call.segments ?? []).filter(({ kind }) => kind === "attempt");
  if (attempts.length === 0) return null;
  return (
    <Section title={t("call.attempts")}>
      <table>
        <thead>
          <tr>
            <th class="num">{t("call.attempt")}</th>
            <th class="num">{t("call.at")}</th>
            <th class="num">{t("call.took")}</th>
            <th>{t("call.outcome")}</th>
          </tr>
        </thead>
        <tbody>
          {attempts.map((attempt, index) => (
            <tr>
              <td class="num">{attempt.n ?? index + 1}</td>
              <td class="num">+{duration(attempt.start_ms)}</td>
              <td class="num">{attempt.end_ms === null ? "–" : duration(attempt.end_ms - attempt.start_ms)}</td>
              <td class={attempt.ok === false ? "bad" : ""}>
                <Text of={attempt.error ?? outcomeOf(attempt)} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

function outcomeOf({ ok, end_ms }: { ok?: boolean | null; end_ms: number | null }): string {
  if (end_ms === null) return t("status.running");
  return ok === false ? t("status.failed") : t("call.ok");
}

function Effect({ call }: { call: Call }) {
  const first = call.ledger?.first_call; // a run: the ledger knows no more of it
  const facts: Parameters<typeof Facts>[0]["of"] = [
    [t("call.key"), call.key ? <code><Text of={call.key} /></code> : null], // prettier-ignore
    [t("call.state"), call.ledger ? <Status of={call.ledger.state} /> : null],
    [t("call.fence"), call.ledger?.fence !== null && call.ledger?.fence !== undefined ? String(call.ledger.fence) : null],
    [t("call.first"), first ? <a href={link(["runs", first])}>{first}</a> : null],
    [t("call.locks"), call.locks?.length ? call.locks.map(inline).join(", ") : null],
    [t("call.label"), has(call.label) ? inline(call.label) : null],
    [t("runs.started"), call.started_at ? moment(call.started_at) : null],
  ];
  return (
    <Section title={t("call.effect")}>
      <Facts of={facts} />
    </Section>
  );
}
