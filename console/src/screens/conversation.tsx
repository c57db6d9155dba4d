/** A run as its user saw it, as the model saw it, and as it went over the wire. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { useFresh, useLoad } from "../api";
import { asText, has, inline, settled } from "../format";
import { t, type Key } from "../i18n";
import { Empty, Pending } from "../parts/bits";
import { Block, Copy, Text } from "../parts/text";
import { amend, go, place } from "../router";
import type { Json, Page, RunDetail, WireExchange } from "../types";
import { AuditTable, type AuditRecord } from "./audit";

export function Chat({ detail, streamed }: { detail: RunDetail; streamed: string }) {
  const { run } = detail;
  const text = run.final_text || streamed;
  return (
    <div class="scroll">
      <div class="chat">
        <div class="message user">
          <h3>{t("run.user")}</h3>
          <p class="prose">
            <Text of={run.question || t("runs.no_question")} />
          </p>
        </div>
        <div class="message assistant" aria-live="polite" aria-busy={!run.final_text && run.status === "running"}>
          <h3>
            {t("run.assistant")} {run.final_text && <Copy text={run.final_text} label={t("run.answer")} />}
          </h3>
          <p class="prose">{text ? <Text of={text} /> : <span class="quiet">{t("run.no_answer")}</span>}</p>
        </div>
      </div>
    </div>
  );
}

type Message = { [name: string]: Json };

export function itemsOf<T>(answer: Page<T> | T[] | null): T[] {
  if (answer === null) return [];
  return Array.isArray(answer) ? answer : answer.items;
}

export function Debug({ id, version }: { id: string; version: unknown }) {
  const loaded = useFresh<Page<Message>>(`/runs/${encodeURIComponent(id)}/messages`, version);
  if (!loaded.data.value) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  const messages = itemsOf(loaded.data.value);
  if (messages.length === 0) return <Empty>{t("run.no_messages")}</Empty>;
  return (
    <div class="scroll" data-testid="messages">
      {messages.map((message) => (
        <MessageCard message={message} />
      ))}
    </div>
  );
}

const ROLES: Record<string, Key> = { user: "run.user", assistant: "run.assistant", system: "run.system", tool: "run.tool_role" };

/** A message as the journal has it: a text, or an object whose calls are lists of id, name and arguments. */
function MessageCard({ message: { role, content } }: { message: Message }) {
  const name = String(role);
  const body: Message = content !== null && typeof content === "object" && !Array.isArray(content) ? content : { text: content ?? null };
  const calls = Array.isArray(body.calls) ? body.calls : [];
  const text = body.text ?? body.value ?? null;
  return (
    <div class={`message ${name}`}>
      <h3>
        {ROLES[name] ? t(ROLES[name]!) : <Text of={name} />} {typeof body.name === "string" && <code>{<Text of={body.name} />}</code>}{" "}
        {has(text) && <Copy text={asText(text)} label={name} />}
      </h3>
      {has(body.reasoning) && (
        <p class="prose quiet">
          <Text of={asText(body.reasoning)} />
        </p>
      )}
      {has(text) && (
        <p class="prose" tabIndex={name === "tool" ? 0 : undefined}>
          <Text of={asText(text)} />
        </p>
      )}
      {has(body.failure) && <Block of={settled(body.failure)} label={t("call.failure")} />}
      {calls.map((call) => (
        <Wanted call={call} />
      ))}
    </div>
  );
}

function Wanted({ call }: { call: Json }) {
  const [, name, given] = Array.isArray(call) ? call : [null, "", call];
  return (
    <div class="wanted">
      <code>
        → <Text of={asText(name)} />
      </code>
      <Block of={inline(given)} label={asText(name)} />
    </div>
  );
}

export function Wire({ id, version }: { id: string; version: unknown }) {
  const loaded = useFresh<Page<WireExchange> | WireExchange[]>(`/runs/${encodeURIComponent(id)}/wire`, version);
  if (!loaded.data.value) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  const exchanges = itemsOf(loaded.data.value);
  if (exchanges.length === 0) return <Empty>{t("run.no_wire")}</Empty>;
  return (
    <div class="scroll" data-testid="wire">
      {exchanges.map((exchange, index) => (
        <Exchange exchange={exchange} first={index === 0} />
      ))}
    </div>
  );
}

function Exchange({ exchange: { request, response, curl }, first }: { exchange: WireExchange; first: boolean }) {
  const open = useSignal(first);
  return (
    <details class="exchange" open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>
        <b>{request.method}</b> <Text of={request.url} /> <span class={response && response.status < 400 ? "good" : "bad"}>{response ? response.status : "–"}</span>
      </summary>
      {open.value && (
        <div class="two">
          <div>
            <h4>
              {t("run.request")} {curl && <Copy text={curl}>{t("run.copy_curl")}</Copy>}
            </h4>
            <Headers of={request.headers} />
            <Block of={settled(request.body)} label={t("run.request")} />
          </div>
          <div>
            <h4>{t("run.response")}</h4>
            <Headers of={response?.headers ?? null} />
            <Block of={settled(response?.body ?? null)} label={t("run.response")} />
          </div>
        </div>
      )}
    </details>
  );
}

function Headers({ of }: { of: { [name: string]: string } | null }) {
  if (!of || Object.keys(of).length === 0) return null;
  const text = Object.entries(of)
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n");
  return <Block of={text} label={t("run.headers")} tone="faint" />;
}

export function Prompt({ id }: { id: string }) {
  const chosen = place.value.query.get("dialect") ?? "openai-chat";
  const names = useSignal([chosen]);
  const loaded = useLoad<{ dialect: string; text: string | null; body: Json; dialects: string[] }>(`/runs/${encodeURIComponent(id)}/prompt?dialect=${encodeURIComponent(chosen)}`);
  const answer = loaded.data.value;
  const text = answer ? (answer.text ?? settled(answer.body)) : "";
  useEffect(() => {
    if (answer) names.value = answer.dialects;
  }, [answer]);
  return (
    <div class="scroll">
      <div class="bar thin">
        <label>
          {t("run.dialect")}{" "}
          <select value={chosen} onChange={(event) => go(amend({ dialect: event.currentTarget.value }), { replace: true })}>
            {names.value.map((name) => (
              <option value={name}>{name}</option>
            ))}
          </select>
        </label>
      </div>
      {!answer && <Pending error={loaded.error.value} retry={() => void loaded.reload()} />}
      {answer && (text ? <Block of={text} label={t("run.prompt")} tone="tall" /> : <Empty>{t("run.no_prompt")}</Empty>)}
    </div>
  );
}

export function RunAudit({ id, version }: { id: string; version: unknown }) {
  const loaded = useFresh<Page<AuditRecord>>(`/runs/${encodeURIComponent(id)}/audit`, version);
  if (!loaded.data.value) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  const records = itemsOf(loaded.data.value);
  if (records.length === 0) return <Empty>{t("audit.empty")}</Empty>;
  return <AuditTable records={records} chosen={place.value.query.get("record")} href={(key) => amend({ record: key })} back={amend({ record: null })} />;
}

