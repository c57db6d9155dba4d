"""The calling thread of a blocking runtime as the scheduler of its batches, and the event loop at its side.

The thread waits for timers and for what other threads report, and handles them one after another. What is async
(tools, models, approvers) runs on one event loop in a daemon thread.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

from handrail.effects import End, Outcome, Raised, Returned, Unfinished
from handrail.engine.attempts import CANCEL_GRACE_S
from handrail.engine.executor import BatchExecutor
from handrail.engine.scheduler import AsyncWork
from handrail.engine.user_code import await_outcome
from handrail.errors import SetupError
from handrail.surroundings.clock import monotonic
from handrail.workers import fork_safety

T = TypeVar("T")


@dataclass(order=True, slots=True)
class TimerHandle:
    """A function to be called at a time, unless it is cancelled before."""

    at: float
    number: int
    then: Callable[[], Any] | None = field(compare=False)

    def cancel(self) -> None:
        """See `Handle.cancel`."""
        self.then = None


class ThreadScheduler:
    """The calling thread as a `Scheduler`: a queue of reports, and timers. Each batch has one of its own."""

    loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, loop_thread: LoopThread) -> None:
        self._loop_thread = loop_thread
        self._posted: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = (
            SimpleQueue()
        )
        self._timers: list[TimerHandle] = []
        self._numbers = count()
        self._guard = Lock()
        self._left = False

    def perform(self, executor: BatchExecutor) -> None:
        """Return when every call has its result. A keyboard interrupt cancels the calls first."""
        active = executor.active
        stop = executor.cancel_soon
        active.add_stop(stop)
        if active.cancelled:
            stop()
        try:
            executor.run_until_blocked()
            self._wait_for(executor, float("inf"))
        except KeyboardInterrupt as interrupt:
            # It may have come in the middle of anything of ours, and then ending the rest may fail.
            with suppress(Exception):
                executor.cancel(hard=True)
                self._wait_for(executor, monotonic() + 2 * CANCEL_GRACE_S)
            raise interrupt from None
        finally:
            active.remove_stop(stop)
            self._leave()

    @property
    def is_left(self) -> bool:
        """See `Scheduler.is_left`."""
        return self._left

    def call_later(
        self, seconds: float, then: Callable[..., Any], *args: Any
    ) -> TimerHandle:
        """See `Scheduler.call_later`."""
        timer = TimerHandle(
            monotonic() + seconds, next(self._numbers), lambda: then(*args)
        )
        heapq.heappush(self._timers, timer)
        return timer

    def call_rarely(
        self, seconds: float, then: Callable[..., Any], *args: Any
    ) -> TimerHandle:
        """See `Scheduler.call_rarely`."""
        return self.call_later(seconds, then, *args)

    def start_eagerly(self, begin: Callable[[], Awaitable[Any]]) -> None:
        """See `Scheduler.start_eagerly`: none is taken in this thread."""

    def continue_in_task(self, work: AsyncWork) -> None:
        """See `Scheduler.continue_in_task`: it runs on the background loop, and its end is reported here."""
        work.task = RemoteTask(
            self._loop_thread.loop(),
            work.begin,
            partial(self.call_soon_threadsafe, work.ended, work),
        )

    def call_soon_threadsafe(self, then: Callable[..., Any], *args: Any) -> None:
        """See `Scheduler.call_soon_threadsafe`."""
        with self._guard:
            if not self._left:
                self._posted.put((then, args))
                return
        then(*args)

    def _leave(self) -> None:
        with self._guard:
            self._left = True
        while not self._posted.empty():
            then, args = self._posted.get()
            then(*args)

    def _wait_for(self, executor: BatchExecutor, deadline: float) -> None:
        while not executor.over and monotonic() < deadline:
            self._call_due_timers()
            if executor.over:
                return
            wake_at = min(deadline, self._timers[0].at) if self._timers else deadline
            wait_s = (
                None if wake_at == float("inf") else max(0.0, wake_at - monotonic())
            )
            try:
                then, args = self._posted.get(timeout=wait_s)
            except Empty:
                continue
            then(*args)

    def _call_due_timers(self) -> None:
        while self._timers and (
            self._timers[0].then is None or self._timers[0].at <= monotonic()
        ):
            then = heapq.heappop(self._timers).then
            if then is not None:
                then()


class RemoteTask:
    """A task on another thread's event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin: Callable[[], Awaitable[Any]],
        ended: Callable[[Outcome], Any],
    ) -> None:
        self._loop = loop
        self._begin = begin
        self._ended = ended
        self._task: asyncio.Task[Returned | Raised] | None = None
        loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        self._task = self._loop.create_task(await_outcome(self._begin))
        self._task.add_done_callback(self._report)

    def _report(self, task: asyncio.Task[Returned | Raised]) -> None:
        ended = self._ended
        self._task = None
        del self._begin, self._ended  # they hold the work, which holds this
        ended(
            Unfinished(End.STOPPED, cancelled=True)
            if task.cancelled()
            else task.result()
        )

    def cancel(self) -> None:
        """See `Handle.cancel`. It comes after `_start`, because the loop keeps the order."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())


class LoopThread:
    """One event loop in a daemon thread, started when it is first needed."""

    def __init__(self) -> None:
        fork_safety.reset_after_fork(self.reset)

    def reset(self) -> None:
        """See `fork_safety.reset_after_fork`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._guard = Lock()

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop.

        Raises:
            SetupError: The caller runs on this very loop, which would wait for itself.
        """
        with self._guard:
            if current_thread() is self._thread:
                raise SetupError(
                    "an async tool calls the SyncRuntime on whose event loop it runs; make it a plain function"
                )
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = Thread(
                    target=loop.run_forever, name="handrail-loop", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    loop.close()
                    raise
                self._loop = loop
                self._thread = thread
            return self._loop

    def result(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return what it returns; a keyboard interrupt cancels it."""
        try:
            loop = self.loop()
        except (SetupError, RuntimeError):
            work.close()  # or it would complain that nobody awaited it
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel the tasks on the loop, wait a moment for them, and end the loop and its thread."""
        with self._guard:
            loop = self._loop
            thread = self._thread
            self._loop = None
            self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_all_tasks(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _cancel_all_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_GRACE_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
