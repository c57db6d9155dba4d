/** MCP servers: what a person agreed to of each tool, and what it says of itself now. */
import { useSignal } from "@preact/signals";

import { messageOf, post, useLoad } from "../api";
import { t, word } from "../i18n";
import { Empty, Note, Pending, Section } from "../parts/bits";
import { Copy, Text } from "../parts/text";
import { mayAdminister } from "../session";
import type { Page } from "../types";

interface Pinned {
  name: string;
  state: "agreed" | "changed" | "unknown" | "gone";
  digest: string;
  diff: string;
  description: string | null;
}

interface Server {
  name: string;
  tools: Pinned[];
}

export function ServersScreen() {
  const loaded = useLoad<Page<Server>>("/servers");
  if (!loaded.data.value) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  const servers = loaded.data.value.items;
  return (
    <div class="screen">
      <h1 class="unseen-label">{t("app.servers")}</h1>
      <div class="scroll">{servers.length === 0 ? <Empty>{t("servers.empty")}</Empty> : servers.map((server) => <Card server={server} onAccepted={loaded.reload} />)}</div>
    </div>
  );
}

function Card({ server: { name, tools }, onAccepted }: { server: Server; onAccepted: () => Promise<void> }) {
  const error = useSignal<string | null>(null);
  const open = tools.filter(({ state }) => state === "changed" || state === "unknown");
  const accept = async () => {
    error.value = null;
    try {
      // names what is on this page: a tool that changed since is not agreed to
      await post(`/servers/${encodeURIComponent(name)}/accept`, { digests: Object.fromEntries(open.map((tool) => [tool.name, tool.digest])) });
    } catch (failure) {
      error.value = messageOf(failure);
    }
    await onAccepted();
  };
  return (
    <Section title={name}>
      {open.length > 0 && <Note tone="warn">{t("servers.changed")}</Note>}
      <table class="pins">
        <tbody>
          {tools.map((tool) => (
            <tr>
              <td>
                <code>
                  <Text of={tool.name} />
                </code>
              </td>
              <td class={tool.state === "agreed" ? "quiet" : "warn"}>{word("servers.state", tool.state)}</td>
              <td>{tool.diff ? <UnifiedDiff of={tool.diff} label={tool.name} /> : <Text of={tool.description ?? ""} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {open.length > 0 && mayAdminister.value && (
        <div class="line">
          <button type="button" class="main" onClick={() => void accept()}>
            {t("servers.accept")}
          </button>
        </div>
      )}
      {error.value && (
        <Note tone="bad">
          <Text of={error.value} />
        </Note>
      )}
    </Section>
  );
}

function UnifiedDiff({ of, label }: { of: string; label: string }) {
  return (
    <div class="block">
      <Copy text={of} label={label} />
      <pre tabIndex={0} role="region" aria-label={label}>
        {of.split("\n").map((line) => {
          const text = <Text of={`${line}\n`} />;
          if (line.startsWith("+")) return <ins>{text}</ins>;
          return line.startsWith("-") ? <del>{text}</del> : text;
        })}
      </pre>
    </div>
  );
}
