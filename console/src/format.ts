/** Times, sizes and values as text. */
import { language } from "./i18n";
import { parseJson } from "./json";
import type { Json } from "./types";

export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(2) : seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Return a length of time in its largest unit, for narrow places. */
export function roughly(ms: number): string {
  const units: [number, string][] = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]]; // prettier-ignore
  const [size, unit] = units.find(([size]) => ms >= size) ?? [1, "ms"];
  return `${Math.round(ms / size)} ${unit}`;
}

export function millis(time: string | null | undefined): number | null {
  if (!time) return null;
  const value = Date.parse(time);
  return Number.isNaN(value) ? null : value;
}

export function between(start: string | null, end: string | null): number | null {
  const from = millis(start);
  const to = millis(end);
  return from === null || to === null ? null : to - from;
}

/** Return a time of this day as clock, of another with its date. */
export function moment(time: string | null | undefined): string {
  const value = millis(time);
  if (value === null) return "–";
  const date = new Date(value);
  const two = (part: number) => String(part).padStart(2, "0");
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const today = new Date();
  if (date.toDateString() === today.toDateString()) return clock;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : value.toLocaleString(language.value === "zh" ? "zh-CN" : "en-US");
}

/** Return a value as text to read: strings as they are, all else as indented JSON. */
export function asText(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Return a value on one line. */
export function inline(value: Json | undefined): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

/** Return JSON text indented, so that two steps differ only where their values do; other text as it is. */
export function settled(value: Json | undefined): string {
  if (typeof value !== "string") return asText(value);
  const first = value.trimStart()[0];
  if (first !== "{" && first !== "[") return value;
  try {
    return JSON.stringify(parseJson(value), null, 2);
  } catch {
    return value;
  }
}

export function has(value: Json | undefined): boolean {
  if (value === null || value === undefined || value === "") return false;
  if (Array.isArray(value)) return value.length > 0;
  return typeof value !== "object" || Object.keys(value).length > 0;
}
