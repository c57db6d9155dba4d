/**
 * Calls that wait for a person.
 *
 * A word binds to the digest of what was on the screen: if the call changes meanwhile, the page says so and takes
 * no word until it was read again; the server refuses an old digest in any case. Approving takes two keys (`a`,
 * then Enter), so that no stray key approves, and an answered call never hands its place to the next one.
 */
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { messageOf, post, useLoad } from "../api";
import { useAnyEvent } from "../events";
import { has, inline, settled } from "../format";
import { t, type Key } from "../i18n";
import { useKeys } from "../keys";
import { useThrottled } from "../throttled";
import { Countdown, Empty, Facts, Note, Pending, Risk, Section, Split, When } from "../parts/bits";
import { SchemaForm } from "../parts/form";
import { Rows } from "../parts/rows";
import { Block, DiffBlock, Text } from "../parts/text";
import { go, link, place } from "../router";
import { countApprovals, mayAdminister, mayApprove, openApprovals } from "../session";
import type { Approval, Json, Page } from "../types";

export function ApprovalsScreen({ chosen }: { chosen: string | null }) {
  const loaded = useLoad<Page<Approval>>("/approvals");
  const reload = async () => {
    await loaded.reload();
    openApprovals.value = loaded.data.value?.items ?? null;
  };
  useAnyEvent(useThrottled(reload));
  const run = place.value.query.get("run");
  const all = loaded.data.value?.items ?? [];
  const items = all.filter((item) => !run || item.run === run);
  const here = link(["approvals"], { run });
  const only = items.length === 1 && chosen === null ? items[0]!.id : null;
  useEffect(() => {
    if (only) go(link(["approvals", only], { run }), { replace: true });
  }, [only]);
  useKeys({ Escape: () => go(here) });

  if (!loaded.data.value) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  const approval = items.find(({ id }) => id === chosen) ?? null;
  return (
    <div class="screen">
      <h1 class="unseen-label">{t("app.approvals")}</h1>
      {loaded.error.value && <Pending error={loaded.error.value} retry={() => void loaded.reload()} />}
      {run && (
        <div class="bar thin">
          <span>
            {t("approvals.of_run")} <a href={link(["runs", run])}>{run}</a>
          </span>
          {all.length > items.length && <a href={link(["approvals"])}>{t("approvals.all", { n: all.length })}</a>}
        </div>
      )}
      <Split
        open={chosen !== null}
        back={here}
        list={
          items.length === 0 ? (
            <Empty>{t(run ? "approvals.empty_run" : "approvals.empty")}</Empty>
          ) : (
            <Rows
              items={items}
              height={52}
              label={t("app.approvals")}
              testid="approvals"
              keyOf={({ id }) => id}
              chosen={chosen}
              href={({ id }) => link(["approvals", id], { run })}
              draw={(item) => <Line approval={item} />}
            />
          )
        }
        detail={chosen === null ? <Empty>{t("approvals.choose")}</Empty> : <Question key={chosen} current={approval} onAnswered={reload} />}
      />
    </div>
  );
}

function Line({ approval }: { approval: Approval }) {
  return (
    <span class="two-line">
      <span class="one-line">
        <b>
          <Text of={approval.tool} />
        </b>{" "}
        <Risk of={approval.risk} />
        <span class="push" />
        <span class="quiet">
          <Countdown to={approval.expires_at} />
        </span>
      </span>
      <span class="one-line quiet">
        <Text of={Object.values(approval.arguments ?? {}).map(inline).join(", ")} />
      </span>
    </span>
  );
}

type Mode = "read" | "armed" | "edit" | "deny";
type Scope = "once" | "run" | "rule";
/** A standing rule needs the role to administer. */
const SCOPES: Scope[] = ["once", "run", "rule"];

function Question({ current, onAnswered }: { current: Approval | null; onAnswered: () => Promise<void> }) {
  /** What is on the screen, and so what a word is about. */
  const seen = useSignal<Approval | null>(current);
  const mode = useSignal<Mode>("read");
  const scope = useSignal<Scope>("once");
  const outcome = useSignal<{ tone: "good" | "warn" | "bad"; text: string } | null>(null);
  const edited = useSignal<{ [name: string]: Json }>(current?.arguments ?? {});
  const formError = useSignal<string | null>(null);
  const reason = useSignal("");
  const busy = useSignal(false);
  const approve = useRef<HTMLButtonElement>(null);
  const actions = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (!seen.value && current) {
      seen.value = current;
      edited.value = current.arguments;
    }
  }, [current]);

  const shown = seen.value;
  const changed = shown !== null && current !== null && current.digest !== shown.digest;
  const open = current !== null && !changed && outcome.value === null && !current.awaits_result;

  const arm = () => {
    mode.value = "armed";
    approve.current?.focus();
  };
  const turn = (to: Mode) => {
    mode.value = to;
    formError.value = null;
    if (shown) edited.value = shown.arguments;
  };
  // before the next key: what is typed after `d` is the reason, and never a command
  useLayoutEffect(() => {
    if (mode.value === "edit" || mode.value === "deny") {
      actions.current?.querySelector<HTMLElement>("textarea, input:not([type=radio]), select")?.focus();
    }
  }, [mode.value]);
  useKeys(
    open && mayApprove.value
      ? { a: arm, e: () => turn("edit"), d: () => turn("deny"), ...(mode.value === "read" ? {} : { Escape: () => (mode.value = "read") }) }
      : {},
  );

  const send = async (verdict: "approve" | "deny") => {
    if (!shown || busy.value) return;
    busy.value = true;
    try {
      const answer = await post<{ approval?: Approval } | null>(`/approvals/${encodeURIComponent(shown.id)}`, {
        verdict,
        digest: shown.digest,
        scope: verdict === "approve" ? scope.value : "once",
        ...(verdict === "deny" && reason.value.trim() ? { reason: reason.value.trim() } : {}),
        ...(mode.value === "edit" ? { arguments: edited.value } : {}),
      });
      const more = answer?.approval?.state === "open";
      outcome.value = { tone: more ? "warn" : "good", text: t(outcomeOf(verdict, more, mode.value === "edit")) };
    } catch (failure) {
      outcome.value = { tone: "bad", text: messageOf(failure) };
    } finally {
      busy.value = false;
      mode.value = "read";
      await onAnswered();
      void countApprovals();
    }
  };

  if (!shown) return <Note tone="warn">{t("approvals.gone")}</Note>;
  const editing = mode.value === "edit";
  return (
    <article class="card approval" data-testid="approval">
      <header>
        <h2>
          <Text of={shown.tool} /> <Risk of={shown.risk} />
        </h2>
      </header>
      {outcome.value && (
        <Note tone={outcome.value.tone}>
          <Text of={outcome.value.text} /> <a href={link(["runs", shown.run], { call: shown.step ?? shown.call })}>{t("approvals.see_call")}</a>
        </Note>
      )}
      {!outcome.value && current === null && <Note tone="warn">{t("approvals.gone")}</Note>}
      {current?.awaits_result && <Note>{t("approvals.outside")}</Note>}
      {changed && (
        <Note tone="warn">
          {t("approvals.changed")}{" "}
          <button
            type="button"
            class="small"
            onClick={() => {
              seen.value = current;
              edited.value = current.arguments;
              mode.value = "read";
            }}
          >
            {t("app.retry")}
          </button>
        </Note>
      )}
      {shown.description && (
        <p class="quiet prose">
          <Text of={shown.description} />
        </p>
      )}
      <Section title={t("approvals.arguments")}>
        <Arguments of={shown.arguments} />
      </Section>
      {has(shown.preview) && (
        <Section title={t("approvals.preview")}>
          <Block of={settled(shown.preview)} label={t("approvals.preview")} />
        </Section>
      )}
      <Facts
        of={[
          [t("approvals.reason"), shown.reason],
          [t("approvals.rule"), shown.rule === shown.reason ? null : shown.rule],
          [t("approvals.principal"), shown.principal ?? null],
          [t("approvals.label"), has(shown.label) ? inline(shown.label) : null],
          [t("approvals.run"), <a href={link(["runs", shown.run], { call: shown.step ?? shown.call })}>{shown.run}</a>],
          [t("approvals.asked"), <When at={shown.asked_at} />],
          [t("approvals.expires"), <Countdown to={shown.expires_at} />],
          [t("approvals.needs"), shown.needs && shown.needs > 1 ? String(shown.needs) : null],
          [t("approvals.given"), shown.given?.length ? shown.given.map(({ by }) => by).join(", ") : null],
          [t("approvals.digest"), <code title={t("approvals.digest_hint")}>{shown.digest.slice(0, 16)}</code>],
        ]}
      />
      {open && !mayApprove.value && <Note>{t("approvals.see_only")}</Note>}
      {open && mayApprove.value && (
        <div class="actions-box" ref={actions}>
          {editing && (
            <Section title={t("approvals.edited")}>
              <SchemaForm schema={shown.schema} value={edited.value} onChange={(value) => (edited.value = value)} onError={(error) => (formError.value = error)} />
              <h4>{t("approvals.changes")}</h4>
              {settled(edited.value) === settled(shown.arguments) ? (
                <p class="quiet">{t("approvals.same")}</p>
              ) : (
                <DiffBlock before={shown.arguments} after={edited.value} label={t("approvals.changes")} />
              )}
            </Section>
          )}
          {mode.value === "deny" ? (
            <form
              onSubmit={(event) => {
                event.preventDefault();
                void send("deny");
              }}
            >
              <label for="denial">{t("approvals.why_not")}</label>
              <input id="denial" type="text" autocomplete="off" value={reason.value} onInput={(event) => (reason.value = event.currentTarget.value)} onKeyDown={(event) => event.key === "Escape" && (mode.value = "read")} />
              <div class="line">
                <button class="main danger" disabled={busy.value}>
                  {t("approvals.send_denial")}
                </button>
                <button type="button" onClick={() => (mode.value = "read")}>
                  {t("app.cancel")}
                </button>
              </div>
            </form>
          ) : (
            <>
              <fieldset class="line">
                <legend>{t("approvals.scope")}</legend>
                {(mayAdminister.value ? SCOPES : SCOPES.slice(0, 2)).map((name) => (
                  <label class="check">
                    <input type="radio" name="scope" checked={scope.value === name} onChange={() => (scope.value = name)} disabled={editing && name !== "once"} />{" "}
                    {t(name === "once" ? "approvals.once" : name === "run" ? "approvals.scope_run" : "approvals.scope_rule")}
                  </label>
                ))}
              </fieldset>
              <div class="line">
                <button
                  type="button"
                  ref={approve}
                  class="main"
                  disabled={busy.value || formError.value !== null}
                  onBlur={() => mode.value === "armed" && (mode.value = "read")}
                  onClick={() => void send("approve")}
                >
                  {editing ? t("approvals.approve_edit") : mode.value === "armed" ? t("approvals.confirm") : t("approvals.approve")} <kbd>a</kbd>
                </button>
                {editing ? (
                  <button type="button" onClick={() => (mode.value = "read")}>
                    {t("app.cancel")}
                  </button>
                ) : (
                  <button type="button" onClick={() => turn("edit")}>
                    {t("approvals.edit")} <kbd>e</kbd>
                  </button>
                )}
                <button type="button" class="danger" onClick={() => turn("deny")}>
                  {t("approvals.deny")} <kbd>d</kbd>
                </button>
              </div>
            </>
          )}
        </div>
      )}
    </article>
  );
}

function outcomeOf(verdict: "approve" | "deny", more: boolean, edited: boolean): Key {
  if (verdict === "deny") return "approvals.denied";
  if (more) return "approvals.one_more";
  return edited ? "approvals.approved_edit" : "approvals.approved";
}

/** Every argument with its exact value; a string is told from a number by its quotes. */
function Arguments({ of }: { of: { [name: string]: Json } }) {
  const names = Object.keys(of ?? {});
  if (names.length === 0) return <p class="quiet">{t("approvals.no_arguments")}</p>;
  return (
    <table class="arguments">
      <thead class="unseen-label">
        <tr>
          <th>{t("approvals.name")}</th>
          <th>{t("approvals.value")}</th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => (
          <tr>
            <th scope="row">
              <code>
                <Text of={name} />
              </code>
            </th>
            <td>
              <pre>
                <Text of={JSON.stringify(of[name], null, 2)} />
              </pre>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
