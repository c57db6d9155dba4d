"""What both dispatchers share: the segments that a worker performs, and how they are ended when it stops."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from handrail.dispatch.port import HandBack, Perform, Running, Timing
from handrail.errors import ConfigError
from handrail.logs import log

CANCEL_S = 5.0
"""How many seconds a cancelled segment may take to end before it is handed over as it is: the run's epoch fences it."""
LEAVE_S = 20.0
"""How many seconds a worker that ends waits for its store; after that the others find it dead."""


class Shift:
    """What one worker performs, from `Dispatcher.work` until it has stopped.

    Args:
        perform: What is done with a segment.
        concurrency: How many are performed at once.

    Attributes:
        is_stopping: Whether no more segments are taken.
        left: Done once what still runs is left to itself.
    """

    def __init__(self, perform: Perform, concurrency: int) -> None:
        self._perform = perform
        self.concurrency = concurrency
        self.is_stopping = False
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, running: Running) -> asyncio.Task[None]:
        """Perform a segment in a task of its own, which ends with `HandBack` where the segment waits again."""
        task = asyncio.create_task(
            self._carry_out(running), name=f"segment of {running.segment.run_id}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def until_over(self, task: asyncio.Task[None]) -> None:
        """Wait until a segment has ended, or is left to itself."""
        await asyncio.wait({task, self.left}, return_when=asyncio.FIRST_COMPLETED)

    async def _carry_out(self, running: Running) -> None:
        try:
            await self._perform(running.segment, running)
        except HandBack:
            raise
        except Exception as error:
            log.error(
                "a segment of the run %s failed and waits again: %s",
                running.segment.run_id[:100],
                type(error).__name__,
            )
            log.debug("the failed segment", exc_info=error)
            raise HandBack(type(error).__name__) from error

    async def end(self, grace_s: float) -> None:
        """Wait for what runs, cancel it after the grace, and leave what does not end then."""
        if self._tasks:
            # a NaN would put the loop's timers out of order
            await asyncio.wait([*self._tasks], timeout=max(0.0, grace_s))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait([*self._tasks], timeout=CANCEL_S)
        if not self.left.done():
            self.left.set_result(None)


class ShiftDispatcher(ABC):
    """How a dispatcher begins to work and stops; see `port.Dispatcher`."""

    def __init__(self, timing: Timing | None) -> None:
        self.timing = timing or Timing()
        self._shift: Shift | None = None
        self._working: asyncio.Task[None] | None = None

    async def work(
        self, perform: Perform, *, concurrency: int, queues: Sequence[str] = ()
    ) -> None:
        """See `port.Dispatcher.work`."""
        if concurrency < 1:
            raise ConfigError(
                f"a worker performs at least one segment at once, not {concurrency}"
            )
        if self._shift is not None:
            raise ConfigError("this dispatcher works already; make another one")
        self._shift = shift = Shift(perform, concurrency)
        self._working = asyncio.create_task(self._work(shift, queues))
        try:
            await asyncio.wait([self._working])
        finally:
            await self.stop(grace_s=0.0)
            self._shift = None
        if not self._working.cancelled():
            self._working.result()

    async def stop(self, *, grace_s: float) -> None:
        """See `port.Dispatcher.stop`."""
        shift = self._shift
        working = self._working
        if shift is None or working is None:
            return
        if not shift.is_stopping:
            shift.is_stopping = True
            self._take_no_more()
            await shift.end(grace_s)
        await asyncio.wait([working], timeout=LEAVE_S)
        if not working.done():
            log.warning(
                "the worker ends, and its store does not answer: what it has goes on elsewhere once it is found dead"
            )
            working.cancel()
            await asyncio.wait([working])

    @abstractmethod
    async def _work(self, shift: Shift, queues: Sequence[str]) -> None:
        """Take segments and have them performed until the shift is stopping; return once all are settled."""

    @abstractmethod
    def _take_no_more(self) -> None:
        """Let `_work` see that the shift is stopping."""

    def why_waiting(self) -> str:
        """See `port.Dispatcher.why_waiting`."""
        return ""
