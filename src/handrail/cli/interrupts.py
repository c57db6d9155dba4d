"""One question to a model, from the terminal: what Ctrl-C means while it is answered.

The first Ctrl-C cancels the run: what waits and what reads ends at once, a write under way is waited for, and every
call still has its result. The second leaves at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from handrail.approvers.terminal import TerminalApprover
from handrail.cli.printer import Printer
from handrail.events import Event, RunStarted
from handrail.messages import Message
from handrail.runs import Run
from handrail.runtime import Runtime


async def ask(runtime: Runtime, question: str | Sequence[Message], **how: Any) -> Run:
    """Run one question to its end; see `driven`."""
    return await driven(runtime, runtime.run, question, **how)


async def driven(
    runtime: Runtime,
    verb: Callable[..., Awaitable[Run]],
    *about: Any,
    printer: Printer,
    terminal: TerminalApprover | None = None,
    **how: Any,
) -> Run:
    """Drive a run to its end.

    Args:
        verb: One of the runtime's, such as `runtime.resume`.
        printer: Where an interruption is told.
        terminal: Where a question may stand, which the first Ctrl-C takes back.
        how: As the verb takes it.

    Raises:
        KeyboardInterrupt: At the second Ctrl-C.
    """
    begun: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, RunStarted):
            begun.append(event.run_id)

    def cancel() -> bool:
        printer.interrupted()
        if terminal:
            terminal.leave()
        return bool(begun) and runtime.cancel(begun[-1])

    with _on_interrupt(cancel):
        return await verb(*about, observers=[note], **how)


@contextmanager
def _on_interrupt(cancel: Callable[[], bool]) -> Iterator[None]:
    """Call `cancel` at the first SIGINT, and raise at the second or when there was nothing to cancel."""
    loop = asyncio.get_running_loop()
    times = 0

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
