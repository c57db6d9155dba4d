"""What spreads the segments of runs over workers: the port that every dispatcher implements.

A segment is what a run does until it waits for somebody or ends. A dispatcher stores which segments wait, gives each to
one worker, and gives it to another one when that worker dies. It decides nothing about the run: a segment resumes the
run from its journal, and the run's epoch fences every earlier owner.

Rule 1: at least once is enough. A segment may run again, after a crash or a freeze; its run notices.
Rule 2: whether a worker is alive is judged by the database's clock, never by a worker's.

`tests/dispatch/contract.py` is the suite that every dispatcher inherits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from handrail.futures import StoreAnswer


class Segment(Struct, frozen=True):
    """What a run does until it waits or ends.

    Attributes:
        run_id: The run, by the name that its store knows.
        number: 1, 2, ...; while a segment waits or runs, enqueueing it again changes nothing.
        queue: Workers take segments from the queues that they name.
        priority: Larger first, among the waiting segments of one scope.
        scope: Whose run it is. The scopes of a queue take turns, however many segments each has waiting.
    """

    run_id: str
    number: int = 1
    queue: str = "default"
    priority: int = 0
    scope: str = ""


class Running:
    """A segment that this worker performs, and what it learns meanwhile.

    Attributes:
        segment: The segment.
        attempt: How often the segment was started, this time included. Above 1 an earlier worker did not finish it.
        after_death: Whether the worker that had the segment before was found dead, and did not hand it over.
        sure_until: Until when nobody else can have the segment, in monotonic seconds: `dead_s` after the worker's
            last heartbeat. A worker that was frozen finds this time past, and may have lost the segment.
        cancelled: Set within a second of `Dispatcher.cancel`; already set where an earlier worker died of it.
        lost: Set once another worker may have the segment: whatever is still done here is refused by the run's epoch.
    """

    __slots__ = (
        "after_death",
        "attempt",
        "cancelled",
        "lost",
        "segment",
        "sure_until",
    )

    def __init__(
        self, segment: Segment, attempt: int = 1, *, after_death: bool = False
    ) -> None:
        self.segment = segment
        self.attempt = attempt
        self.after_death = after_death
        self.sure_until = float("inf")
        self.cancelled = asyncio.Event()
        self.lost = asyncio.Event()

    def __repr__(self) -> str:
        events = {"cancelled": self.cancelled, "lost": self.lost}
        state = "".join(f", {name}" for name, event in events.items() if event.is_set())
        return f"<Running {self.segment.run_id!r} segment {self.segment.number}, attempt {self.attempt}{state}>"


class HandBack(Exception):
    """Raised by `perform` when this worker cannot do the segment: it waits again, for another worker.

    The worker that hands a segment back leaves it to others for a while (`Timing.aside_s`); if there are none, it gets
    it again then.
    """


Perform: TypeAlias = Callable[[Segment, Running], Awaitable[None]]
"""What a worker does with a segment. Returning finishes it; `HandBack` and any other exception let it wait again."""


class Timing(Struct, frozen=True):
    """How soon a dispatcher notices things, in seconds. The defaults are what production runs.

    Attributes:
        poll_s: How often a worker looks for work and for cancelled segments, besides being notified.
        beat_s: How often a worker says that it is alive.
        dead_s: How long a worker must have been silent to count as dead. At least twice `beat_s`.
        sweep_s: How often, at least, a worker looks for dead ones. It also looks when the most silent one has been
            silent for `dead_s`.
        aside_s: How long a worker leaves a segment to others that it handed back or failed to perform.
    """

    poll_s: float = 0.5
    beat_s: float = 5.0
    dead_s: float = 20.0
    sweep_s: float = 5.0
    aside_s: float = 30.0


class QueueStats(Struct, frozen=True):
    """The state of a queue.

    Attributes:
        waiting: Segments that nobody performs yet.
        running: Segments that a worker performs.
        oldest_wait_s: How long the oldest of the waiting ones has waited; 0 where none waits.
    """

    waiting: int = 0
    running: int = 0
    oldest_wait_s: float = 0.0


class DispatchStats(Struct, frozen=True):
    """The state of a dispatcher.

    Attributes:
        queues: Of each queue with a segment.
        workers: How many workers are alive, of all processes.
    """

    queues: Mapping[str, QueueStats]
    workers: int = 0

    @property
    def waiting(self) -> int:
        """How many segments wait, in all queues."""
        return sum(queue.waiting for queue in self.queues.values())

    @property
    def running(self) -> int:
        """How many segments are performed, of all queues."""
        return sum(queue.running for queue in self.queues.values())

    @property
    def oldest_wait_s(self) -> float:
        """How long the oldest waiting segment has waited, in seconds."""
        return max((queue.oldest_wait_s for queue in self.queues.values()), default=0.0)


class Transaction(Protocol):
    """An open transaction of the store, in which a segment can be enqueued: `stores.database.Database`."""

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement with `?` for each given value; return its rows."""
        ...


class Dispatcher(Protocol):
    """Stores segments and gives each to one worker. Safe for threads; `work` belongs to the loop that awaits it."""

    def enqueue(
        self, segment: Segment, *, connection: Transaction | None = None
    ) -> StoreAnswer[bool]:
        """Let a segment wait for a worker. False when it waits or runs already; nothing is changed then.

        Args:
            segment: The segment; a segment that has finished is forgotten, and can be enqueued again.
            connection: The store's connection, inside a transaction of an operation: the segment is there once that is
                committed, never if it is rolled back. The answer is a bool then, not a future. Without it the segment
                is on the disk when the answer is.

        Raises:
            ConfigError: The segment cannot be stored: a number out of range.
            StoreUnavailable: The store did not answer; nothing was enqueued, as far as can be seen from here.
        """
        ...

    def cancel(self, run_id: str) -> StoreAnswer[bool]:
        """Remove the waiting segments of a run, and tell whoever performs one. False where there is none.

        What the run's record says is the caller's to change, before this.
        """
        ...

    async def work(
        self, perform: Perform, *, concurrency: int, queues: Sequence[str] = ()
    ) -> None:
        """Perform segments until `stop`.

        Args:
            perform: What is done with a segment, on this loop.
            concurrency: How many segments are performed at once.
            queues: The queues to take segments from, in turn; none means all.

        Raises:
            ConfigError: Less than one at once, or this dispatcher works already.
        """
        ...

    async def stop(self, *, grace_s: float) -> None:
        """Take no more segments; return once those that run have ended.

        What still runs after `grace_s` is cancelled and handed over: it waits for another worker. A database that does
        not answer is given up after a while, and the others find this worker dead. Does nothing where `work` does not
        run.
        """
        ...

    def requeue_dead(self) -> StoreAnswer[int]:
        """Let the segments of dead workers wait again; return how many. `work` does so by itself."""
        ...

    def stats(self) -> StoreAnswer[DispatchStats]:
        """Return how the queues stand."""
        ...

    def close(self) -> None:
        """Close what the dispatcher opened; the store stays open. Call `stop` first."""
        ...
