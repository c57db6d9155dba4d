"""The scheduler of a batch: one thread, in which everything happens, one thing after another.

The two runtimes differ in nothing else: how a timer is set, a coroutine is run, a report is brought to the thread.
`asyncio_scheduler` does it on an event loop, `thread_scheduler` in the calling thread.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Protocol

from msgspec import Struct

from handrail.effects import Outcome


class Handle(Protocol):
    """A timer or a task."""

    def cancel(self) -> Any:
        """Prevent the timer's call, or end the task."""
        ...


class AsyncWork(Struct, eq=False):
    """Something to be awaited.

    Attributes:
        begin: Returns what is to be awaited.
        ended: Called once with this and the outcome, in the scheduler's thread.
        task: The scheduler's, while the work is under way.
    """

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
        """The event loop of this scheduler, if it has one."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether it has ended, so that nothing may start any more."""
        ...

    def call_later(
        self, seconds: float, then: Callable[..., Any], *args: Any
    ) -> Handle:
        """Call when the time has passed."""
        ...

    def call_rarely(
        self, seconds: float, then: Callable[..., Any], *args: Any
    ) -> Handle:
        """As `call_later`, for a timer of one of a few fixed lengths that is nearly always cancelled.

        Call it in the scheduler's thread.
        """
        ...

    def start_eagerly(self, begin: Callable[[], Awaitable[Any]]) -> Outcome | None:
        """Take the first step of something that is awaited; return how it ended, or None while it goes on."""
        ...

    def continue_in_task(self, work: AsyncWork) -> None:
        """Take the steps after the one that `start_eagerly` has just taken, and call `work.ended(work, outcome)`.

        The outcome is `Unfinished` when the work was cancelled.
        """
        ...

    def call_soon_threadsafe(self, then: Callable[..., Any], *args: Any) -> None:
        """Call soon in the scheduler's thread; from any thread. Once that is left, call at once in the caller's."""
        ...


def start(scheduler: Scheduler, work: AsyncWork) -> None:
    """Begin a piece of work, which may end at once."""
    outcome = scheduler.start_eagerly(work.begin)
    if outcome is None:
        scheduler.continue_in_task(work)
    else:
        work.ended(work, outcome)


def call_within(variables: Context, then: Callable[..., Any], *args: Any) -> None:
    """Call a function with these context variables: with a copy, since a context cannot be entered twice at once."""
    variables.copy().run(then, *args)
