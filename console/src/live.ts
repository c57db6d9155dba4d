/**
 * Events as they happen, over one connection of this page.
 *
 * A browser allows six connections to a host, over all its tabs: a hidden page gives its own back, and one that
 * shows a run listens to that run alone. What an event says is not drawn from here, but read again from the
 * store: the page then shows what is kept, not what was announced.
 */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { addressOf } from "./api";
import type { Json } from "./types";

export interface LiveEvent {
  type: string;
  data: { [name: string]: Json };
}

export const connected = signal(false);

/** Events of all kinds that the server names. An `EventSource` passes on only those that somebody asks for by name. */
const TYPES = [
  "message", "run_started", "model_asked", "tools_selected", "history_mended", "context_folded", "streamed",
  "model_answered", "answer_taken", "answer_refused", "asked_otherwise", "call_admitted", "approval_asked",
  "approval_given", "attempt_started", "progressed", "attempt_failed", "call_finished", "finished_late",
  "late_result", "http_exchange", "run_ended", "approval_decided", "run_changed", "approvals_changed", "write_resolved", "missed",
]; // prettier-ignore

/** Call `onEvent` for each event after `after`, of one run or of all; `null` listens to nothing. */
export function useEvents(run: string | null, after: number | null, onEvent: (event: LiveEvent) => void): void {
  const latest = useRef(onEvent);
  latest.current = onEvent;
  useEffect(() => {
    if (after === null) return;
    let source: EventSource | null = null;
    let last = after;
    const receive = (message: MessageEvent<string>) => {
      last = Number(message.lastEventId) || last;
      try {
        latest.current({ type: message.type, data: JSON.parse(message.data) as LiveEvent["data"] });
      } catch {
        latest.current({ type: message.type, data: {} });
      }
    };
    const open = () => {
      if (source || document.hidden) return;
      source = new EventSource(addressOf(`${run === null ? "" : `/runs/${encodeURIComponent(run)}`}/events?after=${last}`));
      source.onopen = () => (connected.value = true);
      source.onerror = () => (connected.value = false);
      for (const type of TYPES) source.addEventListener(type, receive as EventListener);
    };
    const close = () => {
      source?.close();
      source = null;
      connected.value = false;
    };
    const turn = () => {
      if (document.hidden) close();
      else {
        open();
        latest.current({ type: "changed", data: {} }); // what happened meanwhile
      }
    };
    open();
    document.addEventListener("visibilitychange", turn);
    return () => {
      document.removeEventListener("visibilitychange", turn);
      close();
    };
  }, [run, after === null]);
}
