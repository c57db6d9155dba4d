/** Acts that events ask for more often than they can be done. */
import { useRef } from "preact/hooks";

/** Return a function that runs `act` at once, and again for calls meanwhile: never twice at a time. */
export function useThrottled(act: () => Promise<void>): () => void {
  const latest = useRef(act);
  latest.current = act;
  const state = useRef({ busy: false, again: false });
  const run = () => {
    const { current } = state;
    if (current.busy) {
      current.again = true;
      return;
    }
    current.busy = true;
    const started = performance.now();
    const rest = () => {
      current.busy = false;
      if (!current.again) return;
      current.again = false;
      run();
    };
    // a page that takes long to read is read less often
    void latest.current().finally(() => setTimeout(rest, Math.max(100, performance.now() - started)));
  };
  return run;
}
