/** What the HTTP API answers, as `docs/reference/http-api.md` describes it. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export type Role = "see" | "approve" | "administer";

export interface Page<Item> {
  items: Item[];
  next: string | null;
}

export interface Whoami {
  version: string;
  principal: string;
  role: Role;
  store: string;
  lang: string;
  can_start: boolean;
  models: string[];
  last_event: number;
}

export interface RunSummary {
  id: string;
  status: string;
  /** Of a run that is queued for workers: where, and what it waits for in words. */
  queue: string | null;
  note: string | null;
  question: string;
  started_at: string | null;
  ended_at: string | null;
  calls: number;
  failed: number;
  waiting: number;
  in_doubt: number;
  tools: string[];
  parent: string | null;
}

export interface Run extends RunSummary {
  final_text: string | null;
  error: Json;
  labels: Json;
  model?: string | null;
}

export interface Turn {
  index: number;
  text: string | null;
  model: string | null;
  tokens: { input: number | null; output: number | null; cached: number | null } | null;
  started_at: string | null;
  ended_at: string | null;
}

export type SegmentKind = "queued" | "lock" | "attempt" | "backoff" | "approval" | "cut";

/** Times count from the start of the run. */
export interface Segment {
  kind: SegmentKind;
  start_ms: number;
  /** Empty while it goes on. */
  end_ms: number | null;
  n?: number | null;
  ok?: boolean | null;
  error?: string | null;
}

export interface Decision {
  step: string;
  outcome: string;
  rule: string | null;
  note: string | null;
}

export interface Failure {
  error_code?: string;
  error_message?: string;
  suggestion?: string | null;
  retryable?: boolean | null;
  [key: string]: Json | undefined;
}

export interface Call {
  /** As the model named it; a model may give one id twice. */
  id: string;
  /** Names the call within its run. */
  step?: string;
  turn: number;
  tool: string;
  status: string;
  started_at: string | null;
  ended_at: string | null;
  segments: Segment[] | null;
  arguments: {
    raw: Json;
    repaired: Json;
    repairs: string[] | null;
    coerced: Json;
    injected: Json;
    edited?: Json;
    final: Json;
  } | null;
  result: {
    raw: Json;
    screened: Json;
    shown: Json;
    dropped_bytes: number | null;
    dropped_tokens: number | null;
    handle: string | null;
    failure: Failure | null;
    traceback?: string | null;
  } | null;
  decisions: Decision[] | null;
  key: string | null;
  ledger: { state: string; fence: number | null; first_call: string | null } | null;
  locks: Json[] | null;
  risk: string | null;
  label: Json;
  /** The values of its arguments in short, where the call was read in brief. */
  brief?: string;
}

export interface Approval {
  id: string;
  run: string;
  call: string;
  step?: string;
  tool: string;
  description?: string;
  principal?: string | null;
  awaits_result?: boolean;
  state?: string;
  by?: string | null;
  arguments: { [name: string]: Json };
  schema: Schema | null;
  risk: string | null;
  reason: string | null;
  rule: string | null;
  digest: string;
  preview: Json;
  asked_at: string | null;
  expires_at: string | null;
  needs: number | null;
  given: { by: string; at: string }[] | null;
  label: Json;
}

export interface RunDetail {
  run: Run;
  turns: Turn[];
  calls: Call[];
  approvals: Approval[];
  checklist: { key: string; ok: boolean | null; note: string | null }[] | null;
  last_event: number;
}

export interface WireExchange {
  request: { method: string; url: string; headers: { [name: string]: string } | null; body: Json };
  response: { status: number; headers: { [name: string]: string } | null; body: Json } | null;
  curl: string | null;
}

export interface ToolEntry {
  name: string;
  description: string;
  schema: Schema | null;
  effect: string | null;
  risk: string | null;
  findings: { rule: string; severity: string; message: string }[] | null;
  tokens: number | null;
  calls: number | null;
  failures: number | null;
  p50_ms: number | null;
  p95_ms: number | null;
  last_failure: Json;
}

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: { [name: string]: Schema };
  required?: string[];
  enum?: Json[];
  const?: Json;
  default?: Json;
  items?: Schema;
  anyOf?: Schema[];
  minimum?: number;
  maximum?: number;
  format?: string;
}
