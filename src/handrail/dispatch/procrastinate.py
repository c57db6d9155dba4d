"""The dispatcher on procrastinate: segments are its jobs, in a schema of their own. Needs `handrail[workers]`.

    dispatcher = ProcrastinateDispatcher(PostgresStore("postgresql://..."))

A company that runs procrastinate keeps its shell, its views and its alarms: `app_for(store)` is the application for
them. The jobs are performed by handrail's own loop (`table_dispatcher`), not by procrastinate's worker: that of version
3.10 finishes a job without asking whose it is, ends when its own row was pruned while it was frozen, and cancels a
job's task where a run must settle its writes first. docs/decisions/0016-many-workers.md has the list.

Rule 1: a job is claimed, finished and let go by statements that name the worker and the attempt.
Rule 2: a job has its run as lock, and no `scheduled_at`: one of the future would block the present one.
Rule 3: finished rows are deleted, whoever finished them.
Rule 4: everything lies in the schema `handrail_jobs`, and is named with it; functions look there by their own
        `search_path`, since they are called on the store's connections too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any

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
from handrail.errors import ConfigError, StoreUnavailable, describe_install
from handrail.stores.database import Database
from handrail.stores.durable import DurableStore
from handrail.stores.sql_values import decode_name, encode_name, statements

if TYPE_CHECKING:
    from procrastinate import App

_SQL = statements("procrastinate.sql", package="handrail.dispatch")

SCHEMA = "handrail_jobs"
TASK = "handrail.segment"
_LOCK = 0x68616E646A  # "handj": its holder looks for dead workers, or makes the tables
_CHANNEL = "procrastinate_any_queue_v1"

# procrastinate's trigger makes a channel of the queue's name; a channel has at most 63 bytes, and
# `procrastinate_queue_v1#` takes 23 of them.
_MOST_QUEUE_BYTES = 40


class ProcrastinateDispatcher(TableDispatcher):
    """Stores segments as jobs of procrastinate; see `port.Dispatcher`.

    The schema `handrail_jobs` is made when it is not there, and brought up to the installed procrastinate.

    Args:
        store: A store in Postgres; it stays open when the dispatcher is closed.
        timing: How soon things are noticed.

    Raises:
        ConfigError: The store is not in Postgres, procrastinate is not installed, or the tables cannot be made.
        StoreUnavailable: The server does not answer.
    """

    def __init__(self, store: DurableStore, *, timing: Timing | None = None) -> None:
        if not isinstance(store, DurableStore) or not store.has_own_connections:
            raise ConfigError(
                "procrastinate needs a store in Postgres: postgresql://HOST/DATABASE; "
                "the dispatcher `lease` works with every durable store"
            )
        make_tables(store)
        super().__init__(store, ProcrastinateRows(), timing or Timing())

    def listen(self, hear: Callable[[str], None]) -> Callable[[], None]:
        """See `TableDispatcher.listen`."""

        def hear_payload(payload: str) -> None:
            # {"type": "job_inserted", ...}, or one about a job's end
            hear(ENQUEUED if "job_inserted" in payload else CANCELLED)

        return Listener(self._store.conninfo, _CHANNEL, hear_payload).close


def app_for(store: DurableStore) -> App:
    """Return procrastinate's application for the segments of a store in Postgres, for its shell and its views.

    `procrastinate --app=MODULE.NAME shell` lists jobs and cancels them; a running one stops within a second. Do not
    start procrastinate's worker on it: segments are performed by `handrail worker`.
    """
    from procrastinate import App, PsycopgConnector

    connector = PsycopgConnector(
        conninfo=store.conninfo, kwargs={"options": f"-c search_path={SCHEMA}"}
    )
    app = App(connector=connector)

    @app.task(name=TASK)
    def perform_segment(**_: Any) -> None:
        raise ConfigError("a segment is performed by `handrail worker`")

    return app


class ProcrastinateRows:
    """The statements on procrastinate's tables; see `rows.SegmentRows`."""

    def queue_name(self, queue: str) -> str:
        """See `SegmentRows.queue_name`."""
        name = encode_name(queue)
        if len(name.encode()) > _MOST_QUEUE_BYTES:
            name = (
                f"\x10{sha256(queue.encode('utf-8', 'surrogatepass')).hexdigest()[:39]}"
            )
        return name

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
        return bool(database.run(_SQL["enqueue"], row))

    def cancel(self, database: Database, run_id: str) -> bool:
        """See `SegmentRows.cancel`."""
        name = encode_name(run_id)
        dropped = database.run(_SQL["drop_waiting"], (name,))
        marked = database.run(_SQL["mark_cancelled"], (name,))
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
        given = (worker, queue, json.dumps(list(aside)), most)
        rows = database.run(_SQL["claim"], given)
        taken = [row for row in rows if row[5] is not None]
        return [_held(row) for row in sorted(taken, key=lambda row: row[6])]

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
            database.run(_SQL["wake"])
        return is_ours

    def requeue_dead(
        self, database: Database, now: float, dead_s: float
    ) -> list[Requeued]:
        """See `SegmentRows.requeue_dead`."""
        dead = database.run(_SQL["requeue_dead"], (_LOCK, now - dead_s, now))
        database.run(_SQL["forget_ended"])
        database.run(_SQL["forget_dead"], (now - dead_s,))
        if dead:
            database.run(_SQL["wake"])
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


def _held(row: Sequence[Any]) -> Held:
    row_id, attempt, text, cancelled, after_death, *_ = row
    return Held(
        row_id, attempt, decode_segment(text), bool(cancelled), bool(after_death)
    )


# ---------------------------------------------------------------------- tables


def make_tables(store: DurableStore) -> None:
    """Make procrastinate's tables, or apply the migrations that came since, one process after the other.

    Each migration is committed by itself: Postgres does not use a new word of an enumeration before that.

    Raises:
        ConfigError: procrastinate is not installed, or the tables cannot be made.
        StoreUnavailable: The server does not answer.
    """
    try:
        import procrastinate  # noqa: F401
    except ImportError as missing:
        raise ConfigError(
            f"procrastinate is not installed; install it: {describe_install('workers')}"
        ) from missing
    import psycopg

    try:
        with psycopg.connect(store.conninfo, autocommit=True) as database:
            if _is_up_to_date(database):
                return
            database.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            database.execute(f"SET search_path = {SCHEMA}")
            _apply_migrations(database)
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"no connection to {store.place}") from error
    except psycopg.Error as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"the tables of procrastinate in {store.place} cannot be made: {what}"
        ) from error


_OURS = "handrail_3"
"""Our own columns and indexes, among the names of migrations."""


def _is_up_to_date(database: Any) -> bool:
    [table] = database.execute(
        f"SELECT to_regclass('{SCHEMA}.handrail_migrations')"
    ).fetchone()
    if table is None:
        return False
    applied = {name for (name,) in database.execute(_SQL["applied"])}
    return {*_migrations(), _OURS} <= applied


def _apply_migrations(database: Any) -> None:
    migrations = _migrations()
    with database.transaction():
        database.execute(_SQL["schema"])
        database.execute(_SQL["applied_table"])
        applied = {name for (name,) in database.execute(_SQL["applied"])}
        if not applied:
            whole = resources.files("procrastinate.sql").joinpath("schema.sql")
            database.execute(whole.read_text(encoding="utf-8"))
            for name in migrations:
                database.execute(_SQL["was_applied"], (name,))
            applied = set(migrations)
    for name, text in migrations.items():
        if name not in applied:
            with database.transaction():
                database.execute(text)
                database.execute(_SQL["was_applied"], (name,))
    with database.transaction():
        database.execute(_SQL["ours"])
        for (function,) in database.execute(_SQL["functions"]).fetchall():
            # the name is quoted by the server where it has to be
            database.execute(f"ALTER FUNCTION {function} SET search_path = {SCHEMA}")
        database.execute(_SQL["was_applied"], (_OURS,))


def _migrations() -> dict[str, str]:
    """Return the migrations of the installed procrastinate, in order."""
    folder = resources.files("procrastinate.sql").joinpath("migrations")
    files = sorted(
        (each for each in folder.iterdir() if each.name.endswith(".sql")),
        key=lambda each: each.name,
    )
    return {each.name: each.read_text(encoding="utf-8") for each in files}
