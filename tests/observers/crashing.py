"""A run whose process is killed in its second call."""

import os
import signal
import sys
import time

import handrail as hr
from handrail import testing

killing = False


@hr.tool(effect="read")
def first() -> str:
    """Be the first."""
    return "one"


@hr.tool(effect="read")
def second() -> str:
    """Be the second."""
    if killing:
        time.sleep(
            0.3
        )  # until the store has what came before: nobody waits for a read's result
        os.kill(os.getpid(), signal.SIGKILL)
    return "two"


TOOLS = [first, second]
MODEL = testing.ScriptedModel(
    [[testing.call("first")], [testing.call("second")], "Done."]
)

if __name__ == "__main__":
    killing = True
    with hr.SyncRuntime(TOOLS, store=sys.argv[1]) as runtime:
        runtime.run("?", model=MODEL, run_id="r_crash")
