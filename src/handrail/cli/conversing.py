"""One question to a model, from the terminal: what Ctrl-C means while it is answered.

The first Ctrl-C cancels the run: what waits and what reads ends at once, a write under way is waited for, and every
call still has its result. The second leaves at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from handrail.approvers.terminal import TerminalApprover
from handrail.cli.printer import Printer
from handrail.messages import Message
from handrail.runs import Run
from handrail.runtime import Runtime


async def ask(
    runtime: Runtime,
    question: str | Sequence[Message],
    *,
    printer: Printer,
    terminal: TerminalApprover | None = None,
    **how: Any,
) -> Run:
    """Run one question to its end.

    Args:
        printer: Where an interruption is told.
        terminal: Where a question may stand, which the first Ctrl-C takes back.
        how: As `Runtime.run` takes it.

    Raises:
        KeyboardInterrupt: At the second Ctrl-C.
    """
    run_id = f"r_{token_hex(4)}"

    def cancel() -> bool:
        printer.interrupted()
        if terminal:
            terminal.leave()
        return runtime.cancel(run_id)

    with _on_interrupt(cancel):
        return await runtime.run(question, run_id=run_id, **how)


@contextmanager
def _on_interrupt(cancel: Callable[[], bool]) -> Iterator[None]:
    """Call `cancel` at the first SIGINT, and raise at the second or when there was nothing to cancel."""
    loop, times = asyncio.get_running_loop(), 0

    def interrupt() -> None:
        nonlocal times
        times += 1
        if times > 1 or not cancel():
            raise KeyboardInterrupt

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (NotImplementedError, RuntimeError):  # Windows, or not the main thread: asyncio's own handling stays
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
