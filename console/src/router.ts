/**
 * Deep links: the address after `#` names the screen, and its query the view.
 *
 * A hash needs nothing from the server and survives any path of a reverse proxy. A token that came in the
 * fragment is taken out before the first screen is drawn; see `main.tsx`.
 */
import { computed, signal } from "@preact/signals";

export interface Place {
  /** `["runs", "r_1"]` of `#/runs/r_1?call=c1`. */
  path: string[];
  query: URLSearchParams;
}

const hash = signal(location.hash);
addEventListener("hashchange", () => (hash.value = location.hash));

export const place = computed<Place>(() => parse(hash.value));

function parse(text: string): Place {
  const [path = "", query = ""] = text.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a stray % in an address typed by hand
  }
}

/** Return the address of a screen; empty values leave no trace in it. */
export function link(path: string[], query: Record<string, string | null | undefined> = {}): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) words.set(name, value);
  const tail = words.toString();
  return "#/" + path.map(encodeURIComponent).join("/") + (tail ? "?" + tail : "");
}

/** Go to an address; with `replace`, without a step in the browser's history. */
export function go(address: string, { replace = false } = {}): void {
  if (replace) {
    history.replaceState(null, "", address);
    hash.value = location.hash;
  } else {
    location.hash = address;
  }
}

/** Change words of the present address's query. */
export function amend(change: Record<string, string | null | undefined>): string {
  const { path, query } = place.value;
  return link(path, { ...Object.fromEntries(query), ...change });
}
