/** The frame: where one is, where one can go, and the screen. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { locked, messageOf } from "./api";
import { chooseLanguage, language, t, word, type Key } from "./i18n";
import { useKeys } from "./keys";
import { connected, useEvents } from "./live";
import { Empty, Note } from "./parts/bits";
import { Text } from "./parts/text";
import { go, link, place } from "./router";
import { ApprovalsScreen } from "./screens/approvals";
import { AuditScreen } from "./screens/audit";
import { LedgerScreen } from "./screens/ledger";
import { LiveScreen } from "./screens/live";
import { RunScreen } from "./screens/run";
import { RunsScreen } from "./screens/runs";
import { ServersScreen } from "./screens/servers";
import { ToolsScreen } from "./screens/tools";
import { countBadges, enter, failure, openApprovals, openSession, singleKeys, theme, whoami, writesInDoubt, type Theme } from "./session";
import { useThrottled } from "./throttled";

const SCREENS: { path: string; letter: string; name: Key }[] = [
  { path: "runs", letter: "r", name: "app.runs" },
  { path: "approvals", letter: "a", name: "app.approvals" },
  { path: "ledger", letter: "l", name: "app.ledger" },
  { path: "audit", letter: "u", name: "app.audit" },
  { path: "tools", letter: "t", name: "app.tools" },
  { path: "live", letter: "v", name: "app.live" },
  { path: "servers", letter: "s", name: "app.servers" },
];

export function App() {
  if (locked.value) return <TokenForm />;
  if (!whoami.value) {
    return (
      <main class="alone">
        {failure.value === null ? (
          <Empty>{t("app.loading")}</Empty>
        ) : (
          <Note tone="bad">
            <Text of={failure.value} />{" "}
            <button type="button" onClick={() => void enter()}>
              {t("app.retry")}
            </button>
          </Note>
        )}
      </main>
    );
  }
  return <Frame />;
}

function Frame() {
  const [screen = "runs", id] = place.value.path;
  const helping = useSignal(false);
  const awaiting = useRef(false);
  const recount = useThrottled(countBadges);

  useEffect(() => void countBadges(), []);
  useEvents(null, screen === "runs" && id ? null : (whoami.value?.last_event ?? 0), recountOn);
  function recountOn(event: { type: string }): void {
    recount();
    dispatchEvent(new CustomEvent("handrail:event", { detail: event }));
  }
  useEffect(() => {
    const name = SCREENS.find(({ path }) => path === screen)?.name;
    document.title = `${id ? `${id} · ` : ""}${name ? t(name) : "handrail"} · handrail`;
  }, [screen, id, language.value]);
  useEffect(() => document.querySelector(".screens [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [screen]);

  const goTo = (path: string) => () => {
    if (!awaiting.current) return;
    awaiting.current = false;
    go(link([path]));
  };
  useKeys({
    "?": () => (helping.value = true),
    "/": () => document.querySelector<HTMLElement>("[data-search]")?.focus(),
    g: () => {
      awaiting.current = true;
      setTimeout(() => (awaiting.current = false), 1000);
    },
  });
  useGoKeys(awaiting, goTo);

  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        {t("app.skip")}
      </a>
      <header class="top">
        <a class="brand" href={link(["runs"])}>
          handrail
        </a>
        <nav class="screens" aria-label="handrail">
          {SCREENS.map(({ path, name }) => (
            <a href={link([path])} aria-current={path === screen ? "page" : undefined}>
              {t(name)}
              {path === "approvals" && !!openApprovals.value?.length && (
                <span class="count" data-testid="waiting-count">
                  {openApprovals.value.length}
                </span>
              )}
              {path === "ledger" && writesInDoubt.value > 0 && (
                <span class="count in-doubt" data-testid="doubt-count" title={word("status", "in_doubt")}>
                  {writesInDoubt.value > 99 ? "99+" : writesInDoubt.value}
                </span>
              )}
            </a>
          ))}
        </nav>
        <Corner onHelp={() => (helping.value = true)} />
      </header>
      <main id="main" tabIndex={-1}>
        <Screen screen={screen} id={id} />
      </main>
      {helping.value && <Help onClose={() => (helping.value = false)} />}
    </>
  );
}

/** `g` and then a letter goes to a screen; a plain letter stays free for the screen itself. */
function useGoKeys(awaiting: { current: boolean }, goTo: (path: string) => () => void): void {
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      const screen = SCREENS.find(({ letter }) => letter === event.key);
      if (!awaiting.current || !screen) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      goTo(screen.path)();
    };
    document.addEventListener("keydown", listen, { capture: true });
    return () => document.removeEventListener("keydown", listen, { capture: true });
  }, []);
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Screen({ screen, id }: { screen: string; id: string | undefined }) {
  switch (screen) {
    case "runs":
      return id ? <RunScreen key={id} id={id} /> : <RunsScreen />;
    case "approvals":
      return <ApprovalsScreen chosen={id ?? null} />;
    case "ledger":
      return <LedgerScreen chosen={id ?? null} />;
    case "audit":
      return <AuditScreen chosen={id ?? null} />;
    case "tools":
      return <ToolsScreen chosen={id ?? null} />;
    case "live":
      return <LiveScreen />;
    case "servers":
      return <ServersScreen />;
    default:
      return <Empty>{t("app.no_page")}</Empty>;
  }
}

function Corner({ onHelp }: { onHelp: () => void }) {
  const me = whoami.value!;
  return (
    <div class="corner">
      {!connected.value && <span class="offline">{t("app.disconnected")}</span>}
      <span class="me" title={`${me.store} · ${me.version}`}>
        <span class={connected.value ? "dot on" : "dot"} aria-hidden="true" />
        {connected.value && <span class="unseen-label">{t("app.connected")}</span>}
        {me.principal && (
          <b>
            <Text of={me.principal} />
          </b>
        )}{" "}
        {word("app.role", me.role)}
      </span>
      <select aria-label={t("app.language")} value={language.value} onChange={(event) => chooseLanguage(event.currentTarget.value === "zh" ? "zh" : "en")}>
        <option value="en">English</option>
        <option value="zh">中文</option>
      </select>
      <select aria-label={t("app.theme")} value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
        <option value="auto">{t("app.theme.auto")}</option>
        <option value="light">{t("app.theme.light")}</option>
        <option value="dark">{t("app.theme.dark")}</option>
      </select>
      <button type="button" onClick={onHelp} aria-label={t("app.keys")} title={t("app.keys")}>
        ?
      </button>
    </div>
  );
}

function Help({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const row = (keys: string, what: ComponentChildren) => (
    <tr>
      <td>
        {keys.split(" ").map((key) => (
          <>
            <kbd>{key}</kbd>{" "}
          </>
        ))}
      </td>
      <td>{what}</td>
    </tr>
  );
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="keys-title">
      <h2 id="keys-title">{t("keys.title")}</h2>
      <table class="keys">
        <tbody>
          {row("?", t("keys.help"))}
          {row("/", t("keys.search"))}
          {row("↓ ↑ j k", t("keys.move"))}
          {row("Enter", t("keys.open"))}
          {row("Esc", t("keys.back"))}
          {row("1 … 7", t("keys.tabs"))}
          {SCREENS.map(({ letter, name }) => row(`g ${letter}`, `${t("keys.go")}: ${t(name)}`))}
          {row("a", t("keys.approve"))}
          {row("e", t("keys.edit"))}
          {row("d", t("keys.deny"))}
        </tbody>
      </table>
      <label class="check">
        <input type="checkbox" checked={singleKeys.value} onChange={(event) => (singleKeys.value = event.currentTarget.checked)} /> {t("keys.on")}
      </label>
      <form method="dialog">
        <button>{t("app.close")}</button>
      </form>
    </dialog>
  );
}

function TokenForm() {
  const token = useSignal("");
  const error = useSignal<string | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await openSession(token.value.trim());
    } catch (problem) {
      error.value = messageOf(problem);
    }
  };
  return (
    <main class="alone">
      <form onSubmit={submit}>
        <h1>handrail</h1>
        <p>{t("token.hint")}</p>
        <div class="line">
          <input type="password" aria-label={t("token.title")} autocomplete="off" value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} />
          <button class="main">{t("token.enter")}</button>
        </div>
        {(error.value ?? failure.value) && <Note tone="bad">{error.value ?? failure.value}</Note>}
      </form>
    </main>
  );
}
