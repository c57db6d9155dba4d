/** What a run cost in tokens, where its time went, and what its set-up lacks. */
import { count, duration } from "../format";
import { t, word } from "../i18n";
import { Section } from "../parts/bits";
import { Text } from "../parts/text";
import type { Call, RunDetail } from "../types";

export function Cost({ detail }: { detail: RunDetail }) {
  return (
    <div class="scroll columns">
      <Tokens detail={detail} />
      <ByTool calls={detail.calls} />
      <Checklist detail={detail} />
    </div>
  );
}

function Tokens({ detail: { turns } }: { detail: RunDetail }) {
  const counted = turns.filter(({ tokens }) => tokens);
  const sum = (name: "input" | "output" | "cached") => counted.reduce((total, { tokens }) => total + (tokens?.[name] ?? 0), 0);
  const most = Math.max(1, ...counted.map(({ tokens }) => (tokens?.input ?? 0) + (tokens?.output ?? 0)));
  const input = sum("input");
  return (
    <Section title={t("tools.tokens")}>
      {counted.length === 0 ? (
        <p class="quiet">{t("run.no_tokens")}</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th>{t("run.turn_head")}</th>
              <th class="num">{t("run.input")}</th>
              <th class="num">{t("run.cached")}</th>
              <th class="num">{t("run.output")}</th>
              <th class="plot" aria-hidden="true" />
            </tr>
          </thead>
          <tbody>
            {counted.map(({ index, tokens }) => (
              <tr>
                <td>{index}</td>
                <td class="num">{count(tokens?.input)}</td>
                <td class="num">{count(tokens?.cached)}</td>
                <td class="num">{count(tokens?.output)}</td>
                <td class="plot" aria-hidden="true">
                  <span class="stack">
                    <span class="k-cached" style={{ width: `${((tokens?.cached ?? 0) / most) * 100}%` }} />
                    <span class="k-model" style={{ width: `${(((tokens?.input ?? 0) - (tokens?.cached ?? 0)) / most) * 100}%` }} />
                    <span class="k-attempt" style={{ width: `${((tokens?.output ?? 0) / most) * 100}%` }} />
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th>{t("run.total")}</th>
              <td class="num">{count(input)}</td>
              <td class="num">{count(sum("cached"))}</td>
              <td class="num">{count(sum("output"))}</td>
              <td class="quiet">
                {t("run.share")}: {input ? Math.round((sum("cached") / input) * 100) : 0} %
              </td>
            </tr>
          </tfoot>
        </table>
      )}
    </Section>
  );
}

function ByTool({ calls }: { calls: Call[] }) {
  const tools = new Map<string, { calls: number; failed: number; ms: number }>();
  for (const call of calls) {
    const entry = tools.get(call.tool) ?? { calls: 0, failed: 0, ms: 0 };
    entry.calls++;
    if (call.status === "failed") entry.failed++;
    for (const { kind, start_ms, end_ms } of call.segments ?? []) if (kind === "attempt" && end_ms !== null) entry.ms += end_ms - start_ms;
    tools.set(call.tool, entry);
  }
  const rows = [...tools].sort(([, a], [, b]) => b.ms - a.ms);
  const most = Math.max(1, ...rows.map(([, { ms }]) => ms));
  if (rows.length === 0) return null;
  return (
    <Section title={t("run.by_tool")}>
      <table>
        <thead>
          <tr>
            <th>{t("runs.tool")}</th>
            <th class="num">{t("tools.calls")}</th>
            <th class="num">{t("tools.failures")}</th>
            <th class="num">{t("call.took")}</th>
            <th class="plot" aria-hidden="true" />
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, { calls, failed, ms }]) => (
            <tr>
              <td>
                <Text of={name} />
              </td>
              <td class="num">{count(calls)}</td>
              <td class={failed ? "num bad" : "num"}>{count(failed)}</td>
              <td class="num">{duration(ms)}</td>
              <td class="plot" aria-hidden="true">
                <span class="stack">
                  <span class="k-attempt" style={{ width: `${(ms / most) * 100}%` }} />
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

function Checklist({ detail: { checklist } }: { detail: RunDetail }) {
  return (
    <Section title={t("run.checklist")}>
      {checklist?.length ? (
        <ul class="checklist">
          {checklist.map(({ key, ok, note }) => (
            <li>
              <span class={ok ? "good" : ok === false ? "bad" : "quiet"} aria-label={ok ? t("app.yes") : t("app.no")}>
                {ok ? "✓" : ok === false ? "✗" : "·"}
              </span>{" "}
              <Text of={word("checklist", key)} /> {note && <span class="quiet">{<Text of={note} />}</span>}
            </li>
          ))}
        </ul>
      ) : (
        <p class="quiet">{t("run.no_checklist")}</p>
      )}
    </Section>
  );
}
