"""One of the processes of `benchmarks.processes`: `python -m benchmarks.writing_process STORE CALLERS SECONDS`.

It prints `ready` and waits for a line; then its callers run, and it prints how many writes they made,
and in how many CPU seconds. It imports little: sixteen of them start at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import handrail as hr
from handrail.ports import Listener, Request

TURNS = 5
WRITES_A_TURN = 2


class WritingModel:
    """Asks for two writes a turn, each time others."""

    name = "fake"

    async def ask(self, request: Request, listener: Listener | None = None) -> hr.Turn:
        """Answer at once."""
        turn = (len(request.messages) - 1) // (WRITES_A_TURN + 1)
        if turn >= TURNS:
            return hr.Turn("Done.", usage=hr.Usage(100, 20))
        calls = [
            hr.ToolCall(f"call_{turn}_{n}", "pay", f'{{"order": {turn * 10 + n}}}')
            for n in range(WRITES_A_TURN)
        ]
        return hr.Turn(calls=calls, finish="calls", usage=hr.Usage(100, 20))


async def write(place: str, callers: int, seconds: float) -> None:
    """Let callers run until the time is over; print their writes and CPU seconds, and end the process."""
    done = 0
    until = float("inf")

    async def pay(order: int) -> str:
        """Pay an order.

        Args:
            order: Its number.
        """
        nonlocal done
        done += time.monotonic() < until
        return f"paid {order}"

    runtime = hr.Runtime([hr.FunctionTool(pay, effect="write")], store=place)
    model = WritingModel()

    async def call() -> None:
        while time.monotonic() < until:
            run = await runtime.run("Pay.", model=model)
            assert run.ok, run

    await call_once(runtime, model)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    done = 0
    began = time.process_time()
    until = time.monotonic() + seconds
    calls = [asyncio.ensure_future(call()) for _ in range(callers)]
    await asyncio.sleep(seconds)
    for failed in [each for each in calls if each.done()]:
        failed.result()
    cpu = time.process_time() - began
    print(f"[{done}, {cpu}]", flush=True)
    os._exit(0)  # nobody waits for the runs that are under way


async def call_once(runtime: hr.Runtime, model: WritingModel) -> None:
    """Make one run, so that everything is imported and prepared."""
    run = await runtime.run("Pay.", model=model)
    assert run.ok, run


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
