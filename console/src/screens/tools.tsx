/** Tools: what the model reads of each, how each behaves, and a form to call one by hand. */
import { useSignal } from "@preact/signals";

import { messageOf, post, useLoad } from "../api";
import { count, duration, has, settled } from "../format";
import { t } from "../i18n";
import { useKeys } from "../keys";
import { Empty, Facts, Note, Pending, Risk, Section, Split, When } from "../parts/bits";
import { SchemaForm } from "../parts/form";
import { Rows } from "../parts/rows";
import { Block, Text } from "../parts/text";
import { amend, go, link, place } from "../router";
import { mayApprove } from "../session";
import type { Failure, Json, Page, Schema, ToolEntry } from "../types";

export function ToolsScreen({ chosen }: { chosen: string | null }) {
  const loaded = useLoad<Page<ToolEntry>>("/tools");
  const q = place.value.query.get("q") ?? "";
  useKeys({ Escape: () => go(link(["tools"], { q })) });
  if (!loaded.data.value) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  const all = loaded.data.value.items;
  const items = all.filter(({ name, description }) => `${name} ${description}`.toLowerCase().includes(q.toLowerCase()));
  const tool = all.find(({ name }) => name === chosen);
  const slowest = Math.max(1, ...all.map(({ p95_ms }) => p95_ms ?? 0));
  return (
    <div class="screen">
      <h1 class="unseen-label">{t("app.tools")}</h1>
      <div class="bar">
        <input type="search" data-search placeholder={t("tools.filter")} aria-label={t("tools.filter")} value={q} onInput={(event) => go(amend({ q: event.currentTarget.value }), { replace: true })} />
      </div>
      <Split
        open={chosen !== null}
        back={link(["tools"], { q })}
        list={
          all.length === 0 ? (
            <Empty>{t("tools.empty")}</Empty>
          ) : (
            <>
              <div class="tool-row head" aria-hidden="true">
                <span />
                <span class="num">{t("tools.calls")}</span>
                <span class="num">{t("tools.failures")}</span>
                <span>{t("tools.latency")}</span>
              </div>
              <Rows
                items={items}
                height={30}
                label={t("app.tools")}
                testid="tools"
                keyOf={({ name }) => name}
                chosen={chosen}
                href={({ name }) => link(["tools", name], { q })}
                draw={(item) => <Line tool={item} slowest={slowest} />}
              />
            </>
          )
        }
        detail={tool ? <Card key={tool.name} tool={tool} onCalled={loaded.reload} /> : <Empty>{t("tools.choose")}</Empty>}
      />
    </div>
  );
}

function Line({ tool, slowest }: { tool: ToolEntry; slowest: number }) {
  const findings = tool.findings?.length ?? 0;
  return (
    <span class="tool-row">
      <span class="one-line">
        <Text of={tool.name} /> {findings > 0 && <span class="quiet small">{t("tools.n_findings", { n: findings })}</span>}
      </span>
      <span class="num">{count(tool.calls)}</span>
      <span class={tool.failures ? "num bad" : "num"}>{count(tool.failures)}</span>
      <span class="latency">
        <span class="latency-plot" aria-hidden="true">
          <span class="p95" style={{ width: `${((tool.p95_ms ?? 0) / slowest) * 100}%` }} />
          <span class="p50" style={{ width: `${((tool.p50_ms ?? 0) / slowest) * 100}%` }} />
        </span>
        <span class="num quiet">{tool.p50_ms === null ? "–" : `${duration(tool.p50_ms)} / ${duration(tool.p95_ms)}`}</span>
      </span>
    </span>
  );
}

function Card({ tool, onCalled }: { tool: ToolEntry; onCalled: () => Promise<void> }) {
  return (
    <article class="card" data-testid="tool-card">
      <header>
        <h2>
          <Text of={tool.name} /> {tool.effect && <span class="tag">{tool.effect}</span>} <Risk of={tool.risk} />
        </h2>
      </header>
      <p class="prose">
        <Text of={tool.description} />
      </p>
      <Facts
        of={[
          [t("tools.tokens"), tool.tokens === null ? null : count(tool.tokens)],
          [t("tools.calls"), tool.calls === null ? null : count(tool.calls)],
          [t("tools.rate"), tool.calls ? `${(((tool.failures ?? 0) / tool.calls) * 100).toFixed(1)} %` : null],
          [t("tools.latency"), tool.p50_ms === null ? null : `${duration(tool.p50_ms)} / ${duration(tool.p95_ms)}`],
        ]}
      />
      <Section title={t("tools.findings")}>
        {tool.findings?.length ? (
          <table class="findings">
            <tbody>
              {tool.findings.map(({ rule, severity, message }) => (
                <tr>
                  <td class={{ error: "bad", warning: "warn" }[severity] ?? "quiet"}>{severity}</td>
                  <td>
                    <code>{rule}</code>
                  </td>
                  <td>
                    <Text of={message} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <p class="quiet">{t("tools.no_findings")}</p>
        )}
      </Section>
      {mayApprove.value && <ByHand tool={tool} onCalled={onCalled} />}
      {has(tool.last_failure) && (
        <Section title={t("tools.last_failure")}>
          <LastFailure of={tool.last_failure} />
        </Section>
      )}
      <Section title={t("tools.definition")}>
        <Block of={settled(tool.schema as Json)} label={t("tools.definition")} />
      </Section>
    </article>
  );
}

function LastFailure({ of }: { of: Json }) {
  if (of === null || typeof of !== "object" || Array.isArray(of)) return <Block of={settled(of)} label={t("tools.last_failure")} />;
  const run = typeof of.run === "string" ? of.run : "";
  return (
    <p class="line">
      <code class="bad">
        <Text of={String(of.code ?? "")} />
      </code>
      <When at={typeof of.at === "string" ? of.at : null} />
      {run && <a href={link(["runs", run])}>{run}</a>}
    </p>
  );
}

interface Answer {
  ok: boolean;
  text: string;
  failure?: Failure | null;
  question?: string | null;
}

function ByHand({ tool, onCalled }: { tool: ToolEntry; onCalled: () => Promise<void> }) {
  const value = useSignal(defaultsOf(tool.schema));
  const formError = useSignal<string | null>(null);
  const result = useSignal<Answer | null>(null);
  const busy = useSignal(false);
  const call = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    result.value = null;
    try {
      const answer = await post<Answer>(`/tools/${encodeURIComponent(tool.name)}/call`, { arguments: value.value });
      result.value = answer;
      void onCalled();
    } catch (failure) {
      result.value = { ok: false, text: messageOf(failure) };
    } finally {
      busy.value = false;
    }
  };
  return (
    <Section title={t("tools.call")}>
      {tool.effect && tool.effect !== "read" && <p class="quiet">{t("tools.writes")}</p>}
      <form onSubmit={(event) => void call(event)}>
        <SchemaForm schema={tool.schema} value={value.value} onChange={(changed) => (value.value = changed)} onError={(error) => (formError.value = error)} />
        <div class="line">
          <button class="main" disabled={busy.value || formError.value !== null}>
            {t("tools.run")}
          </button>
        </div>
      </form>
      {result.value?.question && (
        <Note tone="warn">
          {t("tools.asks")} <a href={link(["approvals", result.value.question])}>{t("run.look")}</a>
        </Note>
      )}
      {result.value?.ok && <Block of={settled(result.value.text)} label={t("tools.result")} />}
      {result.value && !result.value.ok && !result.value.question && (
        <Note tone="bad">
          <Text of={result.value.failure?.error_message ?? result.value.text} />
        </Note>
      )}
    </Section>
  );
}

function defaultsOf(schema: Schema | null): { [name: string]: Json } {
  const given = Object.entries(schema?.properties ?? {}).filter(([name, { default: value }]) => value !== undefined && schema?.required?.includes(name));
  return Object.fromEntries(given.map(([name, { default: value }]) => [name, value!]));
}
