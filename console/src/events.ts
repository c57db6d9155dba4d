/** Events that the frame passes on to whatever screen is shown. */
import { useEffect, useRef } from "preact/hooks";

/** Call `act` after each event of the server. */
export function useAnyEvent(act: () => void): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    const listen = () => latest.current();
    addEventListener("handrail:event", listen);
    return () => removeEventListener("handrail:event", listen);
  }, []);
}
