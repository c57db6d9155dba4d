"""Timers that are nearly always cancelled: the answer of a model or a store, or the end of a write, comes first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from threading import local
from typing import Any, cast
from weakref import ref

from msgspec import Struct

_NEARLY_S = 0.001
"""A timer that rings by so much later serves as well: the same end, counted in two clocks, is never quite the same."""


MAX_CANCELLED = 1000
"""How many cancelled timers of one length remain, unless more than that wait for their time."""


class ReusableTimeout:
    """How long a task waits for its model: each answer until the run's end, or until somebody ends the run.

    It is `asyncio.timeout` for this one use, at a fifth of the cost: a run asks many times and its end stays where it
    is, or moves away while people are asked, so one timer serves all of its questions.
    """

    __slots__ = (
        "_asking",
        "_cancelling",
        "_ended",
        "_loop",
        "_timer",
        "_until",
        "task",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._timer: asyncio.TimerHandle | None = None
        self._asking = False
        self._ended = False
        self._cancelling = 0
        self._until = 0.0

    def begin(self, seconds: float) -> None:
        """A question is asked now, and may take so long."""
        self._cancelling = self.task.cancelling()
        self._asking = True
        self._ended = False
        self._until = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._until + _NEARLY_S:
            self._set()

    def stop(self) -> None:
        """End the question that is asked, if one is; from any thread."""
        self._loop.call_soon_threadsafe(self._end)

    def ended_here(self) -> bool:
        """Whether the task was cancelled because its time was over or somebody ended the run, and by nobody else."""
        return self._ended and self.task.cancelling() - 1 <= self._cancelling

    def answered(self) -> None:
        """It is answered, or nobody waits for its answer any longer."""
        self._asking = False
        if self._ended:
            self.task.uncancel()

    def close(self) -> None:
        """No more is asked; from any thread."""
        if self._timer is None:
            return
        if asyncio._get_running_loop() is self._loop:
            self._timer.cancel()
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._timer.cancel)

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = (
            self._loop.call_at(self._until, self._ring)
            if self._until != float("inf")
            else None
        )

    def _ring(self) -> None:
        self._timer = None
        if self._asking and self._loop.time() >= self._until:
            self._end()
        elif self._asking:
            self._set()  # the end has moved away since the timer was set

    def _end(self) -> None:
        if self._asking and not self._ended:
            self._ended = True
            self.task.cancel()


class RareTimer(Struct, eq=False):
    """A timer among those of one length; see `RareTimers`."""

    at: float
    then: Callable[..., Any] | None
    args: tuple[Any, ...]

    def cancel(self) -> None:
        """Keep the timer from ringing, and let go of what it would have called."""
        self.then = None
        self.args = ()

    def ring(self) -> None:
        """Call what the timer was set for, unless it was cancelled."""
        if self.then is not None:
            self.then(*self.args)


class RareTimers:
    """Timers of a few fixed lengths on one loop, of which nearly all are cancelled before they ring.

    Timers of one length ring in the order in which they were set, so the loop needs one timer of its own for all of
    them. With a loop timer for each, a durable run with writes spent a thirtieth of its time on the loop's heap.

    Those that are cancelled leave as soon as they come first. Behind one that waits for its time, such as that of a
    write which takes long, they would be as many as a process starts in that time: they are dropped together.
    """

    __slots__ = ("_lines", "_most", "_set", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)
        self._lines: dict[float, deque[RareTimer]] = {}
        self._most = MAX_CANCELLED
        """How many timers a line may have until its cancelled ones are dropped."""
        self._set: set[float] = set()
        """The lengths for which the loop has a timer."""

    def call_later(
        self, seconds: float, then: Callable[..., Any], args: tuple[Any, ...]
    ) -> RareTimer:
        """Call `then` after this many seconds. Use it in the loop's thread."""
        loop = cast(asyncio.AbstractEventLoop, self.loop())
        timer = RareTimer(loop.time() + seconds, then, args)
        line = self._lines.get(seconds)
        if line is None:
            line = self._lines[seconds] = deque()
        while line and line[0].then is None:
            line.popleft()
        if len(line) > self._most:
            self._drop_cancelled(line)
        line.append(timer)
        if seconds not in self._set:
            self._set_timer(loop, seconds, timer.at)
        return timer

    def _drop_cancelled(self, line: deque[RareTimer]) -> None:
        waiting = [timer for timer in line if timer.then is not None]
        line.clear()
        line.extend(waiting)
        # not again before there can be as many cancelled ones
        self._most = max(MAX_CANCELLED, 2 * len(waiting))

    def _set_timer(
        self, loop: asyncio.AbstractEventLoop, seconds: float, at: float
    ) -> None:
        self._set.add(seconds)
        # An empty context: the first caller's would live on, and be passed to the others.
        loop.call_at(at, self._ring, seconds, context=Context())

    def _ring(self, seconds: float) -> None:
        self._set.discard(seconds)
        loop = cast(asyncio.AbstractEventLoop, self.loop())
        line = self._lines[seconds]
        while line and (line[0].then is None or line[0].at <= loop.time() + _NEARLY_S):
            timer = line.popleft()
            if timer.then is not None:
                # Not called here: one that raises would keep the others from ringing.
                loop.call_soon(timer.ring)
        if line:
            self._set_timer(loop, seconds, line[0].at)


class _ThreadState(local):
    """The timers of the loop that ran last in this thread."""

    timers: RareTimers | None = None


_LOCAL = _ThreadState()


def rare_timers(loop: asyncio.AbstractEventLoop) -> RareTimers:
    """Return the timers of the running loop."""
    timers = _LOCAL.timers
    if timers is None or timers.loop() is not loop:
        timers = _LOCAL.timers = RareTimers(loop)
    return timers
