/** MCP servers: what was accepted of each, and what changed since. */
import { useSignal } from "@preact/signals";

import { messageOf, post, useLoad } from "../api";
import { asText, has, settled } from "../format";
import { t } from "../i18n";
import { Empty, Facts, Note, Pending, Section } from "../parts/bits";
import { Block, DiffBlock, Text } from "../parts/text";
import { mayAdminister } from "../session";
import type { Json, Page } from "../types";
import { Value } from "./ledger";

interface Server {
  name: string;
  diff?: Json;
  diffs?: Json;
  changed?: boolean;
  [name: string]: Json | undefined;
}

export function ServersScreen() {
  const loaded = useLoad<Page<Server>>("/servers");
  if (!loaded.data.value) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  const servers = loaded.data.value.items;
  return (
    <div class="screen scroll">
      <h1 class="unseen-label">{t("app.servers")}</h1>
      {servers.length === 0 ? <Empty>{t("servers.empty")}</Empty> : servers.map((server) => <Card server={server} onAccepted={loaded.reload} />)}
    </div>
  );
}

function Card({ server, onAccepted }: { server: Server; onAccepted: () => Promise<void> }) {
  const error = useSignal<string | null>(null);
  const { name, diff, diffs, changed, ...rest } = server;
  const changes = diff ?? diffs ?? null;
  const differs = changed ?? has(changes);
  const accept = async () => {
    error.value = null;
    try {
      await post(`/servers/${encodeURIComponent(name)}/accept`, {});
      await onAccepted();
    } catch (failure) {
      error.value = messageOf(failure);
    }
  };
  return (
    <Section title={name}>
      <Facts of={Object.entries(rest).map(([key, value]) => [key.replaceAll("_", " "), has(value) ? <Value of={value} /> : null])} />
      {differs ? (
        <>
          <Note tone="warn">{t("servers.changed")}</Note>
          {Array.isArray(changes) ? changes.map((change) => <Change of={change} />) : has(changes) && <Block of={settled(changes)} label={name} />}
          {mayAdminister.value && (
            <div class="line">
              <button type="button" class="main" onClick={() => void accept()}>
                {t("servers.accept")}
              </button>
            </div>
          )}
        </>
      ) : (
        <p class="quiet">{t("servers.unchanged")}</p>
      )}
      {error.value && (
        <Note tone="bad">
          <Text of={error.value} />
        </Note>
      )}
    </Section>
  );
}

function Change({ of }: { of: Json }) {
  if (of === null || typeof of !== "object" || Array.isArray(of)) return <Block of={asText(of)} label={t("servers.offered")} />;
  const before = of.before ?? of.pinned ?? of.old ?? null;
  const after = of.after ?? of.offered ?? of.new ?? null;
  const tool = asText(of.tool ?? of.name);
  return (
    <div class="step">
      <h4>
        <Text of={tool} />
      </h4>
      {before === null && after === null ? <Block of={settled(of)} label={tool} /> : <DiffBlock before={before ?? ""} after={after ?? ""} label={tool} />}
    </div>
  );
}
