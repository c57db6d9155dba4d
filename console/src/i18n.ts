/** The two languages of the page. Codes, names of tools and what people or models wrote are never translated. */
import { effect, signal } from "@preact/signals";

import en from "./en.json";
import zh from "./zh.json";

export type Key = keyof typeof en;
export type Language = "en" | "zh";

const DICTIONARIES: Record<Language, Record<Key, string>> = { en, zh };

export const language = signal<Language>(firstLanguage());

effect(() => {
  document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
});

function firstLanguage(): Language {
  const chosen = localStorage.getItem("handrail.language");
  if (chosen === "en" || chosen === "zh") return chosen;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

/** Take the server's language, unless the reader has chosen one. */
export function preferLanguage(offered: string): void {
  if (localStorage.getItem("handrail.language") === null && (offered === "en" || offered === "zh")) language.value = offered;
}

export function chooseLanguage(chosen: Language): void {
  localStorage.setItem("handrail.language", chosen);
  language.value = chosen;
}

/** Return a sentence in the page's language, with `{name}` filled in; `one|many` is chosen by the word `n`. */
export function t(key: Key, words: Record<string, string | number> = {}): string {
  const [one = "", many = one] = DICTIONARIES[language.value][key].split("|");
  return (words.n === 1 ? one : many).replace(/\{(\w+)\}/g, (whole, name: string) => String(words[name] ?? whole));
}

/** Return the word for a value of the API, such as a status; one that the dictionary lacks is shown as it is. */
export function word(family: "status" | "risk" | "app.role" | "checklist" | "servers.state", value: string): string {
  const key = `${family}.${value}` as Key;
  return DICTIONARIES[language.value][key] ?? value;
}
