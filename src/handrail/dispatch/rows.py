"""What a dispatcher whose segments are rows of a database asks of the tables.

Each method is run by the thread of a connection, most of them in a transaction, with the time by the database's clock.

Rule 1: whoever claims a segment gets its next `attempt`. Finishing and releasing name worker and attempt, so that an
        owner who was replaced changes nothing, also where the same worker has claimed the segment again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from handrail.dispatch.port import DispatchStats, Segment
from handrail.stores.database import Database
from handrail.stores.sql_values import decode_name


class Held(Struct, frozen=True):
    """A segment that a worker has claimed.

    Attributes:
        id: Of the row; it is not used for another one.
        attempt: How often the row was claimed, this time included.
        segment: The segment.
        cancelled: Whether its end was asked for.
        after_death: Whether the worker that claimed it before was found dead, and did not hand it over.
    """

    id: int
    attempt: int
    segment: Segment
    cancelled: bool = False
    after_death: bool = False


class Requeued(Struct, frozen=True):
    """A segment that waits again since its worker was found dead.

    Attributes:
        run_id: The run of the segment.
        worker: The worker; empty where the store has no row of it.
        silent_s: How long it had been silent, by the database's clock; None where the store has no row of it.
    """

    run_id: str
    worker: str = ""
    silent_s: float | None = None


def encode_segment(segment: Segment) -> str:
    """Return a segment as ASCII JSON, with its names as they are: columns hold them encoded, or their digest."""
    return json.dumps(
        [
            segment.run_id,
            segment.number,
            segment.queue,
            segment.priority,
            segment.scope,
        ]
    )


def decode_segment(text: str) -> Segment:
    """Return the segment that `encode_segment` encoded."""
    return Segment(*json.loads(text))


def requeued_from(row: Sequence[Any], now: float) -> Requeued:
    """Return what a row says of a dead worker's segment: its run, and the worker's name and last beat, or None."""
    run_id, worker, beat = row
    return Requeued(
        decode_name(run_id), worker or "", None if beat is None else now - beat
    )


class SegmentRows(Protocol):
    """The statements of one kind of tables."""

    def queue_name(self, queue: str) -> str:
        """Return how the tables name a queue."""
        ...

    def enqueue(self, database: Database, now: float, segment: Segment) -> bool:
        """Insert a segment; False where its run and number are there."""
        ...

    def cancel(self, database: Database, run_id: str) -> bool:
        """Delete the waiting segments of a run and mark those that are performed; False where there was none."""
        ...

    def beat(
        self, database: Database, now: float, worker: str, *, since: float, gap_s: float
    ) -> float:
        """Record that a worker is alive; registers it where nobody knows it, or no longer.

        Args:
            since: Since when this worker has reached the database.
            gap_s: A worker whose last beat is at most so much older than `since` vouches for the time before.

        Returns:
            Since when some worker has reached the database at any time, but for gaps of at most `gap_s`.
        """
        ...

    def oldest_beat(self, database: Database) -> float | None:
        """Return when the most silent worker said that it is alive; None where there is no worker."""
        ...

    def leave(self, database: Database, worker: str) -> None:
        """Delete a worker."""
        ...

    def waiting_queues(self, database: Database) -> Sequence[str]:
        """Name the queues with a waiting segment, in a time that does not grow with the segments."""
        ...

    def claim(
        self,
        database: Database,
        *,
        worker: str,
        queue: str,
        most: int,
        aside: Sequence[int],
    ) -> list[Held]:
        """Give a worker the next segments of a queue, except the rows in `aside`."""
        ...

    def held(self, database: Database, worker: str) -> list[Held]:
        """Return what a worker holds."""
        ...

    def finish(self, database: Database, worker: str, held: Held) -> bool:
        """Delete a segment; False where the worker holds it no longer."""
        ...

    def release(self, database: Database, now: float, worker: str, held: Held) -> bool:
        """Let a segment wait again; False where the worker holds it no longer."""
        ...

    def requeue_dead(
        self, database: Database, now: float, dead_s: float
    ) -> list[Requeued]:
        """Let the segments of workers that were silent for so long wait again, and forget these workers."""
        ...

    def stats(self, database: Database, now: float, dead_s: float) -> DispatchStats:
        """Return how the queues stand."""
        ...
