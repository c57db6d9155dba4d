"""The dispatcher of our own: segments are rows of the store, in SQLite or Postgres, and need nothing beside it.

    dispatcher = LeaseDispatcher(store)

On SQLite it shares the store's connection and thereby its group commits: a file has one writer at a time, and a second
connection of the same process would only wait for the first. On Postgres it has a connection of its own, so that a
heartbeat never waits behind a group of writes, and one more that listens.

Rule 1: scopes take turns. A segment gets a turn when it is enqueued, one behind the last of its scope; the turn decides
        which scope is next, and priority which of that scope's segments. So neither many waiting segments nor a high
        priority delay another scope.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from handrail.dispatch.listener import Listener
from handrail.dispatch.port import DispatchStats, QueueStats, Segment, Timing
from handrail.dispatch.rows import (
    Held,
    Requeued,
    decode_segment,
    encode_segment,
    requeued_from,
)
from handrail.dispatch.table_dispatcher import CANCELLED, ENQUEUED, TableDispatcher
from handrail.errors import ConfigError
from handrail.stores.database import Database
from handrail.stores.durable import DurableStore
from handrail.stores.sql_values import decode_name, encode_name, statements

_SQL = statements("lease.sql", package="handrail.dispatch")

_LOCK = 0x68616E6473  # "hands": its holder looks for dead workers


class LeaseDispatcher(TableDispatcher):
    """Stores segments in the tables of a durable store; see `port.Dispatcher`.

    Args:
        store: A store in SQLite or Postgres; it stays open when the dispatcher is closed.
        timing: How soon things are noticed.

    Raises:
        ConfigError: The store is not durable.
    """

    def __init__(self, store: DurableStore, *, timing: Timing | None = None) -> None:
        if not isinstance(store, DurableStore):
            raise ConfigError(
                "segments need a durable store: sqlite:///FILE or postgresql://HOST/DATABASE"
            )
        rows = LeaseRows(is_shared=store.has_own_connections)
        super().__init__(store, rows, timing or Timing())

    def listen(self, hear: Callable[[str], None]) -> Callable[[], None]:
        """See `TableDispatcher.listen`."""
        if not self._store.has_own_connections:
            return super().listen(hear)
        return Listener(self._store.conninfo, "handrail_segments", hear).close


class LeaseRows:
    """The statements on `segments` and `workers`; see `rows.SegmentRows`.

    Args:
        is_shared: Whether many connections work at once (Postgres), or each transaction is alone (SQLite).
    """

    def __init__(self, *, is_shared: bool) -> None:
        self._is_shared = is_shared

    def queue_name(self, queue: str) -> str:
        """See `SegmentRows.queue_name`."""
        return encode_name(queue)

    def enqueue(self, database: Database, now: float, segment: Segment) -> bool:
        """See `SegmentRows.enqueue`."""
        row = (
            encode_name(segment.run_id),
            segment.number,
            self.queue_name(segment.queue),
            encode_name(segment.scope),
            segment.priority,
            encode_segment(segment),
            now,
        )
        is_new = bool(database.run(_SQL["enqueue"], row))
        if is_new:
            self._notify(database, ENQUEUED)
        return is_new

    def cancel(self, database: Database, run_id: str) -> bool:
        """See `SegmentRows.cancel`."""
        name = encode_name(run_id)
        dropped = database.run(_SQL["drop_waiting"], (name,))
        marked = database.run(_SQL["mark_cancelled"], (name,))
        if marked:
            self._notify(database, CANCELLED)
        return bool(dropped or marked)

    def beat(
        self, database: Database, now: float, worker: str, *, since: float, gap_s: float
    ) -> float:
        """See `SegmentRows.beat`."""
        [[reached]] = database.run(_SQL["beat"], (worker, now, since, gap_s))
        return float(reached)

    def oldest_beat(self, database: Database) -> float | None:
        """See `SegmentRows.oldest_beat`."""
        [[beat]] = database.run(_SQL["oldest_beat"])
        return None if beat is None else float(beat)

    def leave(self, database: Database, worker: str) -> None:
        """See `SegmentRows.leave`."""
        database.run(_SQL["leave"], (worker,))

    def waiting_queues(self, database: Database) -> Sequence[str]:
        """See `SegmentRows.waiting_queues`."""
        return [queue for (queue,) in database.run(_SQL["waiting_queues"])]

    def claim(
        self,
        database: Database,
        *,
        worker: str,
        queue: str,
        most: int,
        aside: Sequence[int],
    ) -> list[Held]:
        """See `SegmentRows.claim`."""
        passed_over = json.dumps(list(aside))
        rows: list[tuple[Any, ...]] = []
        if self._is_shared:
            given = (worker, queue, passed_over, most)
            rows = database.run(_SQL["claim_postgres"], given)
        else:
            for _ in range(most):
                row = database.run(_SQL["claim_sqlite"], (worker, queue, passed_over))
                if not row:
                    break
                rows += row
        taken = sorted(
            (row for row in rows if row[5] is not None), key=lambda row: row[6]
        )
        return [_held(row) for row in taken]

    def held(self, database: Database, worker: str) -> list[Held]:
        """See `SegmentRows.held`."""
        return [_held(row) for row in database.run(_SQL["held"], (worker,))]

    def finish(self, database: Database, worker: str, held: Held) -> bool:
        """See `SegmentRows.finish`."""
        return bool(database.run(_SQL["finish"], (held.id, worker, held.attempt)))

    def release(self, database: Database, now: float, worker: str, held: Held) -> bool:
        """See `SegmentRows.release`."""
        given = (now, held.id, worker, held.attempt)
        is_ours = bool(database.run(_SQL["release"], given))
        if is_ours:
            self._notify(database, ENQUEUED)
        return is_ours

    def requeue_dead(
        self, database: Database, now: float, dead_s: float
    ) -> list[Requeued]:
        """See `SegmentRows.requeue_dead`."""
        until = now - dead_s
        if self._is_shared:
            given = (_LOCK, until, now)
            dead = database.run(_SQL["requeue_dead_postgres"], given)
            database.run(_SQL["forget_dead_postgres"], (until,))
        else:
            dead = database.run(_SQL["dead"], (until,))
            if dead:
                database.run(_SQL["requeue_dead"], (now, until))
            database.run(_SQL["forget_dead"], (until,))
        if dead:
            self._notify(database, ENQUEUED)
        return [requeued_from(row, now) for row in dead]

    def stats(self, database: Database, now: float, dead_s: float) -> DispatchStats:
        """See `SegmentRows.stats`."""
        queues = {
            decode_name(queue): QueueStats(
                waiting, running, max(0.0, now - (oldest or now))
            )
            for queue, waiting, running, oldest in database.run(_SQL["stats"])
        }
        [[workers]] = database.run(_SQL["alive"], (now - dead_s,))
        return DispatchStats(queues, workers)

    def _notify(self, database: Database, what: str) -> None:
        if self._is_shared:
            database.run(_SQL["notify"], (what,))


def _held(row: Sequence[Any]) -> Held:
    row_id, attempt, text, cancelled, after_death, *_ = row
    return Held(
        row_id, attempt, decode_segment(text), bool(cancelled), bool(after_death)
    )
