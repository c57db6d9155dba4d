/** Keys that act everywhere, and those that a screen adds while it is shown. */
import { useLayoutEffect, useRef } from "preact/hooks";

import { singleKeys } from "./session";

type Actions = Record<string, () => void>;

/** Act on single keys while the component is shown; never while somebody types, and never with Ctrl, Alt or Meta. */
export function useKeys(actions: Actions): void {
  const latest = useRef(actions);
  latest.current = actions;
  // before the screen is painted: whoever sees it may press a key at once
  useLayoutEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
      if (event.key !== "Escape" && !singleKeys.value) return;
      const act = latest.current[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, []);
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}
