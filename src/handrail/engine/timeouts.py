"""How long a run waits for its model: until its time is over, or somebody ends it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

_NEARLY_S = 0.001
"""A timer that rings by so much later serves as well: the same end, counted in two clocks, is never quite the same."""


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
