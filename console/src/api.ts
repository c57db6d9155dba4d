/** Requests to the server, and what a screen holds of an answer. */
import { signal, useSignal, type Signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { t } from "./i18n";
import { parseJson } from "./json";
import type { Page } from "./types";
import { useThrottled } from "./throttled";

const BASE = "api/v1";

/** True once the server has asked who we are; the page then shows a field for the token. */
export const locked = signal(false);

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** Send a request; a browser's own words on a server that is gone are replaced by ours. */
async function send(path: string, request: RequestInit): Promise<Response> {
  try {
    return await fetch(BASE + path, request);
  } catch {
    throw new ApiError(0, "unreachable", t("app.unreachable"));
  }
}

async function answerOf(response: Response): Promise<unknown> {
  const text = await response.text();
  let body: unknown = null;
  try {
    body = text ? parseJson(text) : null;
  } catch {
    body = null;
  }
  if (response.ok) return body;
  if (response.status === 401) locked.value = true;
  const error = (body as { error?: { code?: string; message?: string } } | null)?.error;
  throw new ApiError(response.status, error?.code ?? "", error?.message ?? `HTTP ${response.status}`);
}

export async function get<T>(path: string): Promise<T> {
  return (await answerOf(await send(path, { headers: { accept: "application/json" } }))) as T;
}

/** Send a request that changes something; with a `key`, sending it again does not repeat it. */
export async function post<T>(path: string, body: unknown, key = ""): Promise<T> {
  const response = await send(path, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json", ...(key ? { "idempotency-key": key } : {}) },
    body: JSON.stringify(body),
  });
  return (await answerOf(response)) as T;
}

export function addressOf(path: string): string {
  return BASE + path;
}

/** Return `?name=value&...` of what is set. */
export function queryOf(words: Record<string, string | number | boolean | null | undefined>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(words)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) {
      query.set(name, value === true ? "1" : String(value));
    }
  }
  const text = query.toString();
  return text ? "?" + text : "";
}

export interface Loaded<T> {
  data: Signal<T | null>;
  error: Signal<string | null>;
  reload: () => Promise<void>;
}

/** Load what `path` answers, again whenever the path changes; an old answer never overwrites a newer one. */
export function useLoad<T>(path: string | null): Loaded<T> {
  const data = useSignal<T | null>(null);
  const error = useSignal<string | null>(null);
  const asked = useRef(0);
  const reload = async () => {
    if (path === null) return;
    const number = ++asked.current;
    try {
      const answer = await get<T>(path);
      if (number !== asked.current) return;
      data.value = answer;
      error.value = null;
    } catch (failure) {
      if (number === asked.current) error.value = messageOf(failure);
    }
  };
  // before the first paint: an effect would wait for it
  useLayoutEffect(() => {
    data.value = null;
    error.value = null;
    void reload();
    return () => {
      asked.current++;
    };
  }, [path]);
  return { data, error, reload };
}

/** Load what `path` answers, and read it again whenever `version` is another, such as a newer state of its run. */
export function useFresh<T>(path: string | null, version: unknown): Loaded<T> {
  const loaded = useLoad<T>(path);
  const reload = useThrottled(loaded.reload);
  useEffect(() => {
    if (loaded.data.value) reload();
  }, [version]);
  return loaded;
}

export interface Listed<T> {
  items: Signal<T[] | null>;
  next: Signal<string | null>;
  error: Signal<string | null>;
  more: () => Promise<void>;
  reload: () => Promise<void>;
}

/** Load a list page by page; `reload` reads its first page again and puts what is new before what was there. */
export function useList<T extends { id?: string }>(path: string, words: Record<string, string | boolean> = {}): Listed<T> {
  const items = useSignal<T[] | null>(null);
  const next = useSignal<string | null>(null);
  const error = useSignal<string | null>(null);
  const generation = useRef(0);
  const busy = useRef(false);
  const page = (cursor: string | null) => get<Page<T>>(path + queryOf({ ...words, cursor }));
  const first = async () => {
    const number = generation.current;
    try {
      const answer = await page(null);
      if (number !== generation.current) return;
      const known = items.value;
      error.value = null;
      if (!known || known.length <= answer.items.length) {
        items.value = answer.items;
        next.value = answer.next;
      } else {
        const fresh = new Set(answer.items.map((item) => item.id));
        items.value = [...answer.items, ...known.slice(answer.items.length).filter((item) => !fresh.has(item.id))];
      }
    } catch (failure) {
      if (number === generation.current) error.value = messageOf(failure);
    }
  };
  const more = async () => {
    if (busy.current || !next.value) return;
    busy.current = true;
    const number = generation.current;
    try {
      const answer = await page(next.value);
      if (number !== generation.current) return;
      items.value = [...(items.value ?? []), ...answer.items];
      next.value = answer.next;
    } catch (failure) {
      if (number === generation.current) error.value = messageOf(failure);
    } finally {
      busy.current = false;
    }
  };
  useEffect(() => {
    generation.current++;
    items.value = null;
    next.value = null;
    busy.current = false;
    void first();
  }, [path, JSON.stringify(words)]);
  return { items, next, error, more, reload: first };
}

export function messageOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}
