/** All runs: search, filters, and a line each. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { messageOf, post, useList, useLoad } from "../api";
import { useAnyEvent } from "../events";
import { between, count, duration } from "../format";
import { t, word } from "../i18n";
import { useThrottled } from "../throttled";
import { Empty, Note, Pending, Status, When } from "../parts/bits";
import { Rows } from "../parts/rows";
import { Text } from "../parts/text";
import { amend, go, link, place } from "../router";
import { mayApprove, whoami } from "../session";
import type { Page, RunSummary, ToolEntry } from "../types";

const STATUSES = ["running", "waiting", "queued", "done", "failed", "cancelled"];
const FAILURES = [
  "UNKNOWN_TOOL", "BAD_JSON", "TRUNCATED_CALL", "INVALID_ARGUMENTS", "RULE_VIOLATED", "NOT_PERMITTED", "NOT_APPROVED",
  "APPROVAL_PENDING", "APPROVAL_EXPIRED", "TIMEOUT", "IN_DOUBT", "REPEATED_CALL", "TOOL_ERROR", "INTERNAL_ERROR",
  "RATE_LIMITED", "UNAVAILABLE", "BUDGET_EXHAUSTED", "CANCELLED", "NOT_ISOLATED", "TOO_LARGE",
]; // prettier-ignore
const FILTERS = ["q", "status", "tool", "failure", "waiting"];

export function RunsScreen() {
  const { query } = place.value;
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const filtered = FILTERS.some((name) => query.get(name));
  const runs = useList<RunSummary>("/runs", { ...filters, limit: "100" });
  useAnyEvent(useThrottled(runs.reload));
  const mayStart = whoami.value?.can_start && mayApprove.value;
  return (
    <div class="screen">
      <h1 class="unseen-label">{t("app.runs")}</h1>
      <Filters />
      {mayStart && <Start />}
      <div class="run-row head" aria-hidden="true">
        <span />
        <span>{t("runs.question")}</span>
        <span class="wide">{t("app.tools")}</span>
        <span class="num">{t("runs.calls")}</span>
        <span />
        <span class="num">{t("runs.started")}</span>
        <span class="num wide">{t("runs.took")}</span>
      </div>
      {runs.error.value && <Pending error={runs.error.value} retry={() => void runs.reload()} />}
      {!runs.items.value && !runs.error.value && <Pending error={null} retry={() => undefined} />}
      {runs.items.value?.length === 0 && <Empty>{t(filtered ? "runs.empty" : mayStart ? "runs.none_start" : "runs.none")}</Empty>}
      {!!runs.items.value?.length && (
        <Rows
          items={runs.items.value}
          height={matchMedia("(max-width: 700px)").matches ? 52 : 30}
          label={t("app.runs")}
          testid="runs"
          keyOf={(run) => run.id}
          href={(run) => link(["runs", run.id])}
          draw={(run) => <Line run={run} />}
          onEnd={() => void runs.more()}
        />
      )}
    </div>
  );
}

function Line({ run }: { run: RunSummary }) {
  const question = run.question || t("runs.no_question");
  return (
    <span class="run-row">
      <Status of={run.status} />
      <span class="one-line" title={question}>
        <Text of={question} />
      </span>
      <span class="one-line quiet wide">
        <Text of={(run.tools ?? []).join(", ")} />
      </span>
      <span class="num">{count(run.calls)}</span>
      <span class="marks">
        {run.note && (
          <span class="warn one-line" title={run.note}>
            <Text of={run.note} />
          </span>
        )}
        {run.failed > 0 && <span class="bad">{t("runs.n_failed", { n: run.failed })}</span>}
        {run.waiting > 0 && <span class="warn">{t("runs.n_waiting", { n: run.waiting })}</span>}
        {run.in_doubt > 0 && <span class="doubt">{t("runs.n_in_doubt", { n: run.in_doubt })}</span>}
      </span>
      <span class="num quiet">
        <When at={run.started_at} />
      </span>
      <span class="num quiet wide">{duration(between(run.started_at, run.ended_at))}</span>
    </span>
  );
}

function Filters() {
  const { query } = place.value;
  const search = useSignal(query.get("q") ?? "");
  const timer = useRef(0);
  const tools = useLoad<Page<ToolEntry>>("/tools");
  const set = (name: string, value: string) => go(amend({ [name]: value }), { replace: true });
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <form
      class="bar"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        set("q", search.value);
      }}
    >
      <input
        type="search"
        data-search
        placeholder={t("runs.search")}
        aria-label={t("runs.search")}
        value={search.value}
        onInput={(event) => {
          search.value = event.currentTarget.value;
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => set("q", search.value), 200);
        }}
      />
      <Choice name="status" label={t("runs.status")} options={STATUSES} draw={(status) => word("status", status)} />
      <Choice name="tool" label={t("runs.tool")} options={(tools.data.value?.items ?? []).map(({ name }) => name)} />
      <Choice name="failure" label={t("runs.failure")} options={FAILURES} />
      <label class="check">
        <input type="checkbox" checked={query.get("waiting") === "1"} onChange={(event) => set("waiting", event.currentTarget.checked ? "1" : "")} /> {t("runs.waiting")}
      </label>
    </form>
  );
}

function Choice({ name, label, options, draw = (value) => value }: { name: string; label: string; options: string[]; draw?: (value: string) => string }) {
  const value = place.value.query.get(name) ?? "";
  const all = value && !options.includes(value) ? [...options, value] : options;
  return (
    <select aria-label={label} class={value ? "set" : ""} value={value} onChange={(event) => go(amend({ [name]: event.currentTarget.value }), { replace: true })}>
      <option value="">
        {label}: {t("app.all")}
      </option>
      {all.map((option) => (
        <option value={option}>{draw(option)}</option>
      ))}
    </select>
  );
}

function Start() {
  const question = useSignal("");
  const model = useSignal(whoami.value?.models[0] ?? "");
  const error = useSignal<string | null>(null);
  const busy = useSignal(false);
  const models = whoami.value?.models ?? [];
  /** Names this question: sent twice, by a second click or over a bad line, it starts one run. */
  const key = useRef(newKey());
  const write = (text: string) => {
    question.value = text;
    key.current = newKey();
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!question.value.trim() || busy.value) return;
    busy.value = true;
    try {
      const body = { question: question.value, ...(model.value ? { model: model.value } : {}) };
      const { id } = await post<{ id: string }>("/runs", body, key.current);
      key.current = newKey();
      go(link(["runs", id]));
    } catch (failure) {
      error.value = messageOf(failure);
    } finally {
      busy.value = false;
    }
  };
  return (
    <form class="bar start" onSubmit={submit}>
      <input type="text" placeholder={t("runs.start")} aria-label={t("runs.start")} value={question.value} onInput={(event) => write(event.currentTarget.value)} />
      {models.length > 1 && (
        <select aria-label={t("runs.model")} value={model.value} onChange={(event) => (model.value = event.currentTarget.value)}>
          {models.map((name) => (
            <option value={name}>{name}</option>
          ))}
        </select>
      )}
      <button disabled={busy.value || !question.value.trim()}>{t("runs.ask")}</button>
      {error.value && (
        <Note tone="bad">
          <Text of={error.value} />
        </Note>
      )}
    </form>
  );
}

function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
