"""`python -m tests.dispatch.dying_worker PLACE`: a worker that says so once it is in the middle of a write."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import handrail as hr
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.worker import Worker
from handrail.testing import ScriptedModel, call
from handrail.testing.crashes import opener

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120.0
"""Less than a run's 300 s, so that a run waits for the lease of this write in place of giving up."""
SCRIPT = (call("pay", order="7"), "Done.")


def make_pay(
    pay: Callable[[str], str], verify=lambda arguments, context: hr.NotFound()
) -> hr.FunctionTool:
    """Return a write whose far side can be asked whether it has happened; by default it has not."""
    return hr.FunctionTool(
        pay, name="pay", effect="write", timeout_s=TIMEOUT_S, verify=verify
    )


def die_in_write(place: str) -> None:
    """Have a process begin the write of a submitted run, and kill it there."""
    words = [sys.executable, "-m", "tests.dispatch.dying_worker", place]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        process.kill()


def main() -> None:
    def pay(order: str) -> str:
        print("inside", flush=True)
        threading.Event().wait()
        return f"paid {order}"

    async def work() -> None:
        async with hr.Runtime([make_pay(pay)], store=opener(sys.argv[1])()) as runtime:
            dispatcher = open_dispatcher(runtime.store)
            await Worker(runtime, dispatcher, model=ScriptedModel(SCRIPT)).work()

    asyncio.run(work())


if __name__ == "__main__":
    main()
