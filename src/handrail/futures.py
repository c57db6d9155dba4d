"""What other threads bring to an event loop: many letters, one wake-up.

Each `call_soon_threadsafe` writes to a socket that the loop reads, which costs more than most answers. A store answers
a group of callers at once, so whatever comes while a loop is still on its way to its mailbox waits there for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import local
from typing import Any, TypeVar
from weakref import ref

T = TypeVar("T")


class Mailbox:
    """What waits for one loop, in the order in which it came."""

    __slots__ = ("_letters", "_woken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)
        self._letters: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._woken = False

    def post(self, then: Callable[..., Any], *args: Any) -> None:
        """Have the loop call this soon; from any thread.

        Raises:
            RuntimeError: The loop is closed, and nothing will be called.
        """
        loop = self.loop()
        if loop is None or loop.is_closed():
            raise RuntimeError("the event loop is closed")
        self._letters.append((then, args))
        if not self._woken:
            self._woken = True
            loop.call_soon_threadsafe(self._read)

    def _read(self) -> None:
        self._woken = False  # first: what comes from now on wakes the loop again, at worst for nothing
        try:
            while self._letters:
                then, args = self._letters.popleft()
                then(*args)
        finally:
            if self._letters:  # one of them raised, which is its own affair
                asyncio.get_running_loop().call_soon(self._read)


class _Here(local):
    """The mailbox of the loop that ran last in this thread."""

    box: Mailbox | None = None


_HERE = _Here()


def mailbox() -> Mailbox:
    """Return the mailbox of the running loop."""
    loop, box = asyncio.get_running_loop(), _HERE.box
    if box is None or box.loop() is not loop:
        box = _HERE.box = Mailbox(loop)
    return box


async def brought(answer: Future[T]) -> T:
    """Wait for another thread's answer as `asyncio.wrap_future` does: who is cancelled cancels it."""
    waiter = asyncio.get_running_loop().create_future()
    answer.add_done_callback(partial(_ring, mailbox(), waiter))
    try:
        await waiter
    except asyncio.CancelledError:
        answer.cancel()
        raise
    return answer.result()


def _ring(box: Mailbox, waiter: asyncio.Future[None], _: Future[Any]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits any longer
        box.post(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
