"""What a carrier stands on: one thread, in which everything happens, one thing after another.

It is all in which the drivers differ: how a timer is set, a coroutine stepped on, a report brought back. `runtime` has
one on asyncio, `sync` one in the calling thread.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct

from handrail.effects import Outcome


class Handle(Protocol):
    """A timer or a task."""

    def cancel(self) -> Any:
        """Let it not happen, or end it."""
        ...


class AsyncWork(Struct, eq=False):
    """Something to be awaited; `task` is the ground's, while it is under way."""

    begin: Callable[[], Awaitable[Any]]
    ended: Callable[[Any, Outcome], Any]
    task: Handle | None = None

    def cancel(self) -> None:
        """See `Handle.cancel`."""
        if self.task is not None:
            self.task.cancel()


class Scheduler(Protocol):
    """A thread in which everything happens, one thing after another."""

    @property
    def loop(self) -> AbstractEventLoop | None:
        """The event loop of this ground, if it has one."""
        ...

    def later(self, seconds: float, then: Callable[..., Any], *args: Any) -> Handle:
        """Call when the time has passed."""
        ...

    def first_step(self, begin: Callable[[], Awaitable[Any]]) -> Outcome | None:
        """Take the first step of something that is awaited; return how it ended, or None while it goes on."""
        ...

    def go_on(self, work: AsyncWork) -> None:
        """Take the steps that remain after the first, and call `work.ended(work, outcome)`, later.

        It is what `first_step` has just begun; the outcome is `Unfinished` when it was cancelled.
        """
        ...

    def post(self, then: Callable[..., Any], *args: Any) -> None:
        """Call soon in the ground's thread; from any thread. Once the ground is left, call at once in the caller's."""
        ...


def start(ground: Scheduler, work: AsyncWork) -> None:
    """Begin a piece of work, which may end at once."""
    outcome = ground.first_step(work.begin)
    if outcome is None:
        ground.go_on(work)
    else:
        work.ended(work, outcome)
