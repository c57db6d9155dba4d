"""Drives a run from the terminal and handles Ctrl-C.

The first Ctrl-C cancels the run: waiting calls and reads end at once, a write under way is finished, and every call
still gets its result. The second exits at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from handrail.approvers.terminal import TerminalApprover
from handrail.cli.printer import Printer
from handrail.events import Event, RunStarted
from handrail.runs import Run
from handrail.runtime import Runtime


async def drive(
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
        printer: Reports an interruption.
        terminal: May show a question, which the first Ctrl-C withdraws.
        how: Passed to the verb.

    Raises:
        KeyboardInterrupt: At the second Ctrl-C.
    """
    run_ids: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, RunStarted):
            run_ids.append(event.run_id)

    def cancel() -> bool:
        printer.show_interrupt()
        if terminal:
            terminal.leave()
        return bool(run_ids) and runtime.cancel(run_ids[-1])

    with _on_interrupt(cancel):
        return await verb(*about, observers=[note], **how)


async def wait_for_interrupt() -> None:
    """Wait until Ctrl-C."""
    interrupted = asyncio.Event()

    def note() -> bool:
        interrupted.set()
        return True

    with _on_interrupt(note):
        await interrupted.wait()


@contextmanager
def _on_interrupt(cancel: Callable[[], bool]) -> Iterator[None]:
    """Call `cancel` at the first SIGINT; raise at the second, or if there was nothing to cancel."""
    loop = asyncio.get_running_loop()
    times = 0

    def interrupt() -> None:
        nonlocal times
        times += 1
        if times > 1 or not cancel():
            raise KeyboardInterrupt

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (NotImplementedError, RuntimeError):
        # Windows, or not the main thread: asyncio's own handling stays
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
