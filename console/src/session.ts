/** Who looks at the page, and what all screens share. */
import { computed, effect, signal } from "@preact/signals";

import { ApiError, get, locked, messageOf, post } from "./api";
import { preferLanguage } from "./i18n";
import type { Approval, Page, Whoami } from "./types";

export const whoami = signal<Whoami | null>(null);
export const failure = signal<string | null>(null);
export const openApprovals = signal<Approval[] | null>(null);
export const writesInDoubt = signal(0);

/** How many writes in doubt are counted: a badge has room for two digits. */
const MOST_COUNTED = 100;

const RANK = { see: 0, approve: 1, administer: 2 };

export const mayApprove = computed(() => RANK[whoami.value?.role ?? "see"] >= RANK.approve);
export const mayAdminister = computed(() => RANK[whoami.value?.role ?? "see"] >= RANK.administer);

/** Ask who we are; a token in the address is traded for a cookie first, and leaves the address and the history. */
export async function enter(): Promise<void> {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  try {
    if (token) {
      history.replaceState(null, "", location.pathname + location.search);
      dispatchEvent(new HashChangeEvent("hashchange"));
      await openSession(decodeURIComponent(token));
    } else {
      await readWhoami();
    }
  } catch (error) {
    const asksForToken = !token && error instanceof ApiError && error.status === 401;
    if (!asksForToken) failure.value = messageOf(error);
  }
}

export async function openSession(token: string): Promise<void> {
  await post("/session", { token });
  locked.value = false;
  await readWhoami();
  failure.value = null;
}

async function readWhoami(): Promise<void> {
  const me = await get<Whoami>("/");
  preferLanguage(me.lang);
  whoami.value = me;
}

export async function countApprovals(): Promise<void> {
  try {
    openApprovals.value = (await get<Page<Approval>>("/approvals")).items;
  } catch {
    openApprovals.value = null; // the approvals screen itself says why
  }
}

async function countDoubts(): Promise<void> {
  try {
    writesInDoubt.value = (await get<Page<unknown>>(`/ledger?state=in_doubt&limit=${MOST_COUNTED}`)).items.length;
  } catch {
    writesInDoubt.value = 0; // the ledger's screen itself says why
  }
}

/** Count what waits for a person: questions, and writes that nobody knows the end of. */
export async function countBadges(): Promise<void> {
  await Promise.all([countApprovals(), countDoubts()]);
}

export type Theme = "auto" | "light" | "dark";

const kept = localStorage.getItem("handrail.theme");
export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "auto");

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  localStorage.setItem("handrail.theme", theme.value);
});

/** Whether single letters act: WCAG 2.1.4 asks for a way to turn them off. */
export const singleKeys = signal(localStorage.getItem("handrail.keys") !== "off");

effect(() => localStorage.setItem("handrail.keys", singleKeys.value ? "on" : "off"));
