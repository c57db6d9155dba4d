"""The event loop of an asyncio runtime as the scheduler of its batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from handrail.engine.attempts import CANCEL_GRACE_S
from handrail.engine.eager_tasks import EagerTasks
from handrail.engine.executor import BatchExecutor
from handrail.engine.timeouts import RareTimer, rare_timers
from handrail.futures import mailbox


class AsyncioScheduler:
    """The running event loop as a `Scheduler`."""

    __slots__ = ("_mailbox", "continue_in_task", "loop", "start_eagerly")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._mailbox = mailbox()
        tasks = EagerTasks(self.loop)
        self.start_eagerly = tasks.start_eagerly
        self.continue_in_task = tasks.continue_in_task

    @property
    def is_left(self) -> bool:
        """See `Scheduler.is_left`."""
        return self.loop.is_closed()

    def call_later(
        self, seconds: float, then: Callable[..., Any], *args: Any
    ) -> asyncio.TimerHandle:
        """See `Scheduler.call_later`."""
        return self.loop.call_later(seconds, then, *args)

    def call_rarely(
        self, seconds: float, then: Callable[..., Any], *args: Any
    ) -> RareTimer:
        """See `Scheduler.call_rarely`."""
        return rare_timers(self.loop).call_later(seconds, then, args)

    def call_soon_threadsafe(self, then: Callable[..., Any], *args: Any) -> None:
        """See `Scheduler.call_soon_threadsafe`. The scheduler is left when its loop is closed."""
        try:
            self._mailbox.post(then, *args)
        except RuntimeError:
            then(*args)

    async def wait_for(self, executor: BatchExecutor) -> None:
        """Return when every call has its result; if the task is cancelled, the calls are cancelled first.

        Raises:
            Exception: Whatever has stopped the calls from being carried out.
        """
        active = executor.active
        stop = executor.cancel_soon
        active.add_stop(stop)
        if active.cancelled:  # before the stop was there to be called
            executor.cancel()
        try:
            if not executor.over:
                await self._make_end(executor)
        except asyncio.CancelledError:
            executor.cancel(hard=True)
            if not executor.over:
                await asyncio.wait(
                    [self._make_end(executor)], timeout=2 * CANCEL_GRACE_S
                )
            raise
        finally:
            active.remove_stop(stop)
        if executor.error is not None:
            raise executor.error

    def _make_end(self, executor: BatchExecutor) -> asyncio.Future[None]:
        """Return a new future of the batch's end. Not one for all: a waiter that is cancelled cancels its future."""
        end: asyncio.Future[None] = self.loop.create_future()
        executor.when_over = _BatchEnd(end)
        return end


class _BatchEnd(Struct):
    """What is called at the end of a batch: ends the wait for it."""

    end: asyncio.Future[None]

    def __call__(self) -> None:
        # the loop may be closed, and then nobody waits any longer
        with suppress(RuntimeError):
            if not self.end.done():
                self.end.set_result(None)
