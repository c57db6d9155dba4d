/** What the server counts at this moment: rates, breakers, locks. */
import { useEffect } from "preact/hooks";

import { useLoad } from "../api";
import { useAnyEvent } from "../events";
import { has } from "../format";
import { t, type Key } from "../i18n";
import { useThrottled } from "../throttled";
import { Facts, Pending, Section } from "../parts/bits";
import { link } from "../router";
import type { Json } from "../types";
import { Value } from "./ledger";

const PARTS: { name: string; title: Key }[] = [
  { name: "rates", title: "live.rates" },
  { name: "breakers", title: "live.breakers" },
  { name: "locks", title: "live.locks" },
  { name: "runs", title: "live.runs" },
];

export function LiveScreen() {
  const loaded = useLoad<{ [name: string]: Json }>("/live");
  const reload = useThrottled(loaded.reload);
  useAnyEvent(reload);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && reload(), 2000);
    return () => clearInterval(timer);
  }, []);
  const live = loaded.data.value;
  if (!live) return <Pending error={loaded.error.value} retry={() => void loaded.reload()} />;
  return (
    <div class="scroll fill">
      <h1 class="unseen-label">{t("app.live")}</h1>
      <Facts of={[[t("live.listeners"), String(live.listeners ?? "")]]} />
      {PARTS.map(({ name, title }) => (
        <Section title={t(title)}>{has(live[name]) ? <Part name={name} of={live[name]!} /> : <p class="quiet">{t("live.empty")}</p>}</Section>
      ))}
    </div>
  );
}

function Part({ name, of }: { name: string; of: Json }) {
  if (name !== "runs") return <Table of={of} />;
  return (
    <ul>
      {(of as string[]).map((id) => (
        <li>
          <a href={link(["runs", id])}>{id}</a>
        </li>
      ))}
    </ul>
  );
}

/** Any list of records as a table: its columns are the names that occur. */
export function Table({ of }: { of: Json }) {
  const rows = rowsOf(of);
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return (
    <div class="wide-table" tabIndex={0} role="region" aria-label={columns.join(", ")}>
      <table>
        <thead>
          <tr>
            {columns.map((name) => (
              <th>{name.replaceAll("_", " ")}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {columns.map((name) => (
                <td class={typeof row[name] === "number" ? "num" : ""}>
                  <Value of={row[name] ?? ""} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function rowsOf(value: Json): { [name: string]: Json }[] {
  const asRow = (item: Json) => (item !== null && typeof item === "object" && !Array.isArray(item) ? item : { value: item });
  if (Array.isArray(value)) return value.map(asRow);
  if (value !== null && typeof value === "object") return Object.entries(value).map(([name, item]) => ({ name, ...asRow(item) }));
  return [{ value }];
}
