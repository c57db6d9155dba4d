/** One run, in seven views that fold the same records. */
import { useSignal } from "@preact/signals";

import { addressOf, messageOf, post, useLoad } from "../api";
import { between, count, duration, has, inline } from "../format";
import { t } from "../i18n";
import { useKeys } from "../keys";
import { useEvents } from "../live";
import { Note, Pending, Split, Status, Tabs, When } from "../parts/bits";
import { Copy, Text } from "../parts/text";
import { amend, go, link, place } from "../router";
import { countBadges, mayAdminister, mayApprove } from "../session";
import type { RunDetail } from "../types";
import { CallCard } from "./call";
import { Chat, Debug, Prompt, RunAudit, Wire } from "./conversation";
import { Cost } from "./cost";
import { Timeline } from "./timeline";
import { useThrottled } from "../throttled";

const VIEWS = ["timeline", "chat", "debug", "wire", "prompt", "cost", "audit"] as const;
type View = (typeof VIEWS)[number];

export function RunScreen({ id }: { id: string }) {
  const path = `/runs/${encodeURIComponent(id)}`;
  const loaded = useLoad<RunDetail>(`${path}?brief=1`);
  const streamed = useSignal("");
  const reload = useThrottled(loaded.reload);
  const detail = loaded.data.value;
  const { query } = place.value;
  const wanted = query.get("view") as View | null;
  const view = wanted && VIEWS.includes(wanted) ? wanted : "timeline";
  const chosen = query.get("call");

  useEvents(id, detail ? detail.last_event : null, (event) => {
    if (event.type === "streamed") {
      streamed.value += textOf(event.data);
      return;
    }
    if (event.type === "model_asked" || event.type === "model_answered") streamed.value = "";
    if (event.type.startsWith("approval") || event.type === "run_ended") void countBadges();
    reload();
  });
  useKeys({
    ...Object.fromEntries(VIEWS.map((name, index) => [String(index + 1), () => go(amend({ view: name, call: null }))])),
    Escape: () => (chosen ? go(amend({ call: null })) : go(link(["runs"]))),
  });

  if (!detail) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  const tabs = VIEWS.map((key) => ({ key, name: t(`run.${key}`), href: amend({ view: key === "timeline" ? null : key, call: null }) }));
  return (
    <div class="screen">
      <Head detail={detail} />
      {loaded.error.value && <Pending error={loaded.error.value} retry={() => void loaded.reload()} />}
      <Tabs label={t("run.views")} tabs={tabs} chosen={view} />
      {view === "timeline" && (
        <Split
          open={chosen !== null}
          back={amend({ call: null })}
          list={<Timeline detail={detail} chosen={chosen} />}
          detail={<CallCard detail={detail} chosen={chosen} />}
        />
      )}
      {view === "chat" && <Chat detail={detail} streamed={streamed.value} />}
      {view === "debug" && <Debug id={id} version={detail} />}
      {view === "wire" && <Wire id={id} version={detail} />}
      {view === "prompt" && <Prompt id={id} />}
      {view === "cost" && <Cost detail={detail} />}
      {view === "audit" && <RunAudit id={id} version={detail} />}
    </div>
  );
}

/** Return the text of a delta, whichever of its fields holds it. */
function textOf(data: { [name: string]: unknown }): string {
  const delta = (data.delta ?? data) as { text?: unknown };
  return typeof delta.text === "string" ? delta.text : "";
}

function Head({ detail }: { detail: RunDetail }) {
  const { run, turns } = detail;
  const tokens = turns.reduce((sum, { tokens }) => sum + (tokens?.input ?? 0) + (tokens?.output ?? 0), 0);
  const asked = detail.approvals.filter(({ state }) => state === "open").length;
  const waiting = Math.max(run.waiting, asked); // a run may ask while it goes on: in a terminal, and here
  const ended = ["done", "failed", "cancelled", "poisoned"].includes(run.status);
  return (
    <div class="head">
      <h1>
        <Text of={run.question || t("runs.no_question")} />
      </h1>
      <div class="line facts-line">
        <Status of={run.status} />
        <code>{run.id}</code>
        <span>
          <When at={run.started_at} />
        </span>
        {ended && <span>{duration(between(run.started_at, run.ended_at))}</span>}
        <span>{t("run.turns", { n: turns.length })}</span>
        <span>{t("run.calls", { n: run.calls })}</span>
        {tokens > 0 && <span>{t("run.tokens", { n: count(tokens) })}</span>}
        {run.failed > 0 && <span class="bad">{t("runs.n_failed", { n: run.failed })}</span>}
        {run.parent && (
          <span>
            {t("run.parent")} <a href={link(["runs", run.parent])}>{run.parent}</a>
          </span>
        )}
        <span class="push" />
        <Actions detail={detail} ended={ended} />
      </div>
      {waiting > 0 && (
        <Note tone="warn">
          {t("run.waits", { n: waiting })} <a href={link(["approvals"], { run: run.id })}>{t("run.look")}</a>
        </Note>
      )}
      {run.queue && (
        <Note tone="warn">
          {t("run.queued")} <Text of={[run.queue, run.note].filter(Boolean).join(": ")} />
        </Note>
      )}
      {run.in_doubt > 0 && (
        <Note tone="warn">
          {t("run.doubt", { n: run.in_doubt })} <a href={link(["ledger"], { state: "in_doubt" })}>{t("run.look")}</a>
        </Note>
      )}
      {["failed", "cancelled", "poisoned"].includes(run.status) && has(run.error) && (
        <Note tone="bad">
          {t("run.error")}: <Text of={inline(run.error)} />
        </Note>
      )}
    </div>
  );
}

function Actions({ detail, ended }: { detail: RunDetail; ended: boolean }) {
  const { id, status } = detail.run;
  const error = useSignal<string | null>(null);
  const act = (verb: string, body: object = {}) => async () => {
    error.value = null;
    try {
      const answer = await post<{ id?: string } | null>(`/runs/${encodeURIComponent(id)}/${verb}`, body);
      if (verb === "fork" && answer?.id) go(link(["runs", answer.id]));
    } catch (failure) {
      error.value = messageOf(failure);
    }
  };
  return (
    <span class="actions">
      {error.value && (
        <span class="bad" role="alert">
          <Text of={error.value} />
        </span>
      )}
      {mayApprove.value && !ended && (
        <button type="button" class="small" onClick={act("cancel")}>
          {t("run.cancel")}
        </button>
      )}
      {mayApprove.value && (status === "queued" || status === "waiting") && (
        <button type="button" class="small" onClick={act("resume")}>
          {t("run.resume")}
        </button>
      )}
      {mayApprove.value && detail.turns.length > 0 && (
        <select class="small" aria-label={t("run.fork")} value="" onChange={(event) => void act("fork", { at: Number(event.currentTarget.value) })()}>
          <option value="">{t("run.fork")} …</option>
          {detail.turns.map(({ index }) => (
            <option value={String(index)}>{t("run.fork_at", { n: index })}</option>
          ))}
        </select>
      )}
      {mayAdminister.value && (
        <a class="button small" href={addressOf(`/runs/${encodeURIComponent(id)}/export`)} download={`${id}.jsonl`}>
          {t("run.export")}
        </a>
      )}
      <Copy text={location.href}>{t("app.copy_link")}</Copy>
    </span>
  );
}
