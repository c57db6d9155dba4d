/** Writes that were begun, and how they ended; those in doubt can be settled here. */
import { useSignal } from "@preact/signals";

import { messageOf, post, useList } from "../api";
import { useAnyEvent } from "../events";
import { asText, has, inline, settled } from "../format";
import { t, word } from "../i18n";
import { useKeys } from "../keys";
import { useThrottled } from "../throttled";
import { Empty, Facts, Note, Pending, Section, Split, Status, When } from "../parts/bits";
import { Rows } from "../parts/rows";
import { Block, Text } from "../parts/text";
import { amend, go, link, place } from "../router";
import { mayAdminister } from "../session";
import type { Json } from "../types";

interface Write {
  id: string;
  state: string;
  [name: string]: Json | undefined;
}

const STATES = ["in_doubt", "claimed", "waiting", "done", "failed"];

export function LedgerScreen({ chosen }: { chosen: string | null }) {
  const state = place.value.query.get("state") ?? "";
  const writes = useList<Write>("/ledger", { state });
  useAnyEvent(useThrottled(writes.reload));
  const here = link(["ledger"], { state });
  useKeys({ Escape: () => go(here) });
  const items = writes.items.value;
  const write = items?.find(({ id }) => id === chosen) ?? null;
  return (
    <div class="screen">
      <h1 class="unseen-label">{t("app.ledger")}</h1>
      <div class="bar">
        <select data-search aria-label={t("ledger.state")} class={state ? "set" : ""} value={state} onChange={(event) => go(amend({ state: event.currentTarget.value }), { replace: true })}>
          <option value="">
            {t("ledger.state")}: {t("app.all")}
          </option>
          {STATES.map((name) => (
            <option value={name}>{word("status", name)}</option>
          ))}
        </select>
      </div>
      {!items && <Pending error={writes.error.value} retry={() => void writes.reload()} />}
      {items && (
        <Split
          open={chosen !== null}
          back={here}
          list={
            items.length === 0 ? (
              <Empty>{t("ledger.empty")}</Empty>
            ) : (
              <Rows
                items={items}
                height={30}
                label={t("app.ledger")}
                testid="ledger"
                keyOf={({ id }) => id}
                chosen={chosen}
                href={({ id }) => link(["ledger", id], { state })}
                draw={(item) => <Line write={item} />}
                onEnd={() => void writes.more()}
              />
            )
          }
          detail={write ? <Card key={write.id} write={write} onSettled={writes.reload} /> : <Empty>{t("ledger.choose")}</Empty>}
        />
      )}
    </div>
  );
}

function Line({ write }: { write: Write }) {
  return (
    <span class="ledger-row">
      <Status of={write.state} />
      <span class="one-line">
        <Text of={asText(write.tool)} />
      </span>
      <span class="one-line quiet">
        <code>
          <Text of={asText(write.key ?? write.id)} />
        </code>
      </span>
      <span class="num quiet">
        <When at={asText(write.updated_at)} />
      </span>
    </span>
  );
}

function Card({ write, onSettled }: { write: Write; onSettled: () => Promise<void> }) {
  const note = useSignal("");
  const error = useSignal<string | null>(null);
  const { id: _id, state, value, tool, why, ...rest } = write;
  const settle = (outcome: "done" | "not_done") => async () => {
    error.value = null;
    try {
      await post(`/ledger/${encodeURIComponent(write.id)}`, { outcome, note: note.value.trim() });
      await onSettled();
    } catch (failure) {
      error.value = messageOf(failure);
    }
  };
  return (
    <article class="card">
      <header>
        <h2>
          <Text of={asText(tool)} />
        </h2>
        <Status of={state} />
      </header>
      {state === "in_doubt" && (
        <Section title={t("ledger.decide")}>
          {has(why) && (
            <p>
              <Text of={asText(why)} />
            </p>
          )}
          <p>{t("ledger.doubt_hint")}</p>
          {mayAdminister.value && (
            <>
              <label for="settle-note">{t("ledger.note")}</label>
              <input id="settle-note" type="text" autocomplete="off" value={note.value} onInput={(event) => (note.value = event.currentTarget.value)} />
              <div class="line">
                <button type="button" onClick={settle("done")} disabled={!note.value.trim()}>
                  {t("ledger.done")}
                </button>
                <button type="button" onClick={settle("not_done")} disabled={!note.value.trim()}>
                  {t("ledger.not_done")}
                </button>
              </div>
            </>
          )}
          {error.value && (
            <Note tone="bad">
              <Text of={error.value} />
            </Note>
          )}
        </Section>
      )}
      <Facts of={Object.entries(rest).map(([name, value]) => [name.replaceAll("_", " "), name === "run" && value ? <a href={link(["runs", String(value)])}>{String(value)}</a> : has(value) ? <Value of={value} /> : null])} />
      {has(value) && (
        <Section title={t("call.result")}>
          <Block of={settled(value)} label={t("call.result")} />
        </Section>
      )}
    </article>
  );
}

export function Value({ of }: { of: Json | undefined }) {
  if (typeof of === "string" && /^\d{4}-\d\d-\d\dT/.test(of)) return <When at={of} />;
  return <Text of={of === undefined ? "" : inline(of)} />;
}
