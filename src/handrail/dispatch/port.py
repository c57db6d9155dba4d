"""What brings the segments of runs to workers: the port that both dispatchers implement.

A segment is what a run does until it waits for somebody or ends. The store enqueues it, in the transaction that changes
its run; a dispatcher gives it to one worker, and to another one when that worker dies. It decides nothing about the
run: a segment resumes the run from its journal, and the run's epoch fences every earlier owner.

Rule 1: at least once is enough. A segment may run again, after a crash or a freeze; its run notices.
Rule 2: whether a worker is alive says the operating system (SQLite) or the database's clock (Postgres), never the clock
        of a worker.

`tests/dispatch/contract.py` is the suite that both inherit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

_MOST_DOUBLINGS = 5


class Segment(Struct, frozen=True):
    """What a run does until it waits or ends.

    Attributes:
        run_id: The run, by the name that its store knows.
        number: 1, 2, ...
        queue: The queue that it was taken from.
    """

    run_id: str
    number: int = 1
    queue: str = "default"


async def _is_ours() -> bool:
    return True


class Running:
    """A segment that this worker performs, and what it learns meanwhile.

    Attributes:
        segment: The segment.
        attempt: How often the segment was started, this time included. Above 1 an earlier worker did not finish it.
        after_death: Whether the worker that had the segment before has died, and did not hand it over.
        is_ours: Asks the database whether this worker still has the segment. One that was frozen may have lost it.
        cancelled: Set within a second of `cancel` in procrastinate's shell.
        lost: Set once another worker may have the segment: whatever is still done here is refused by the run's epoch.
    """

    __slots__ = ("after_death", "attempt", "cancelled", "is_ours", "lost", "segment")

    def __init__(
        self,
        segment: Segment,
        attempt: int = 1,
        *,
        after_death: bool = False,
        is_ours: Callable[[], Awaitable[bool]] = _is_ours,
    ) -> None:
        self.segment = segment
        self.attempt = attempt
        self.after_death = after_death
        self.is_ours = is_ours
        self.cancelled = asyncio.Event()
        self.lost = asyncio.Event()

    def __repr__(self) -> str:
        events = {"cancelled": self.cancelled, "lost": self.lost}
        state = "".join(f", {name}" for name, event in events.items() if event.is_set())
        return f"<Running {self.segment.run_id!r} segment {self.segment.number}, attempt {self.attempt}{state}>"


class HandBack(Exception):
    """Raised by `perform` when this worker cannot do the segment: it waits again, for another worker.

    It waits for `Timing.again_s` at first, and for twice as long each further time.
    """


Perform: TypeAlias = Callable[[Segment, Running], Awaitable[None]]
"""What a worker does with a segment. Returning finishes it; `HandBack` and any other exception let it wait again."""


class Timing(Struct, frozen=True):
    """How soon a dispatcher notices things, in seconds. The defaults are what production runs.

    Attributes:
        poll_s: How often a worker looks for work, besides being notified.
        beat_s: How often a worker on Postgres says that it is alive.
        dead_s: How long a worker on Postgres must have been silent to count as dead. At least twice `beat_s`.
        sweep_s: How often a worker on Postgres looks for dead ones.
        again_s: How long a segment waits that was handed back for the first time.
    """

    poll_s: float = 0.5
    beat_s: float = 5.0
    dead_s: float = 20.0
    sweep_s: float = 5.0
    again_s: float = 2.0

    def wait_before(self, attempt: int) -> float:
        """Return how long a segment waits that was handed back, before this attempt: 2, 4, ... 64 s by default."""
        return float(self.again_s * 2 ** min(max(attempt - 2, 0), _MOST_DOUBLINGS))


class Dispatcher(Protocol):
    """Gives segments to a worker. It belongs to the loop that awaits `work`."""

    async def work(
        self, perform: Perform, *, concurrency: int, queues: Sequence[str] = ()
    ) -> None:
        """Perform segments until `stop`.

        Args:
            perform: What is done with a segment, on this loop.
            concurrency: How many segments are performed at once.
            queues: The queues to take segments from; none means all.

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

    def why_waiting(self) -> str:
        """Return why this worker stands by while `work` runs, as a sentence; empty where it takes segments."""
        ...
