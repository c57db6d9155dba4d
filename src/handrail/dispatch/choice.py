"""Which dispatcher has the segments of a store.

The store remembers it: two processes that chose differently, because only one of them has procrastinate installed,
would never perform each other's segments. Whoever opens a dispatcher or enqueues a segment first chooses.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from handrail import plugins
from handrail.dispatch.lease import LeaseRows
from handrail.dispatch.port import Dispatcher, Segment, Timing
from handrail.dispatch.rows import SegmentRows
from handrail.engine.scoped_store import parse_scope
from handrail.errors import ConfigError
from handrail.futures import result_now
from handrail.logs import log
from handrail.stores.database import Database
from handrail.stores.durable import DurableStore
from handrail.stores.sql_values import statements

_SQL = statements("lease.sql", package="handrail.dispatch")

DEFAULT = "chosen"
"""Whichever dispatcher the store has: a name for `segment_rows` (see `plugins`), not for `open_dispatcher`."""


def open_dispatcher(
    store: Any, name: str = "", *, timing: Timing | None = None
) -> Dispatcher:
    """Return a dispatcher for the runs of a store. It blocks for as long as the store takes to answer.

    Args:
        store: A durable store; it stays open when the dispatcher is closed.
        name: `lease`, `procrastinate`, or an entry point of the group `handrail.dispatchers`: a callable that takes the
            store and a keyword `timing`. Empty for the one that the store has; for a store that has none yet
            `procrastinate` on Postgres where it is installed and its tables can be made, else `lease`.
        timing: How soon things are noticed.

    Raises:
        ConfigError: No dispatcher has this name, the store can have none, or the one that it has still holds segments.
        StoreUnavailable: The store does not answer.
    """
    if not isinstance(store, DurableStore):
        raise ConfigError(
            "segments need a durable store: sqlite:///FILE or postgresql://HOST/DATABASE"
        )
    if not name:
        name = store.use_connection(lambda database: _choose(store, database))
    dispatcher: Dispatcher = plugins.load("dispatchers", name)(store, timing=timing)
    chosen = store.use_connection(lambda database: _choose(store, database, name))
    if chosen != name:
        try:
            _change(store, chosen, name)
        except BaseException:
            dispatcher.close()
            raise
    return dispatcher


def enqueue_chosen(
    store: DurableStore,
    database: Database,
    now: float,
    *,
    run_id: str,
    number: int,
    queue: str,
    priority: int,
) -> bool:
    """Enqueue a segment in a transaction of its store, for whichever dispatcher the store has; False where it is there.

    It needs no dispatcher: a person who approves a call may do so from a process without one. The scope of the segment
    is that of the run's name.
    """
    name = _choose(store, database)
    segment = Segment(run_id, number, queue, priority, scope=parse_scope(run_id))
    rows: SegmentRows
    if name == "lease":
        rows = LeaseRows(is_shared=store.has_own_connections)
    elif name == "procrastinate":
        from handrail.dispatch.procrastinate import ProcrastinateRows

        rows = ProcrastinateRows()
    else:
        rows = plugins.load("segment_rows", name)(store)
    return rows.enqueue(database, now, segment)


def _choose(store: DurableStore, database: Database, wanted: str = "") -> str:
    """Return the dispatcher of a store; where it has none yet, the wanted or the default one from now on."""
    chosen = database.run(_SQL["chosen"])
    if not chosen:
        database.run(_SQL["choose"], (wanted or _default(store),))
        chosen = database.run(_SQL["chosen"])
    [[name]] = chosen
    return str(name)


def _default(store: DurableStore) -> str:
    if not store.has_own_connections or find_spec("procrastinate") is None:
        return "lease"
    from handrail.dispatch.procrastinate import make_tables

    try:
        make_tables(store)
    except ConfigError as error:
        log.warning("segments wait in the store's own tables: %s", error)
        return "lease"
    return "procrastinate"


def _change(store: DurableStore, chosen: str, wanted: str) -> None:
    """Let a store have another dispatcher, where the one that it has holds no segment."""
    earlier: Dispatcher = plugins.load("dispatchers", chosen)(store)
    try:
        stats = result_now(earlier.stats())
    finally:
        earlier.close()
    if count := stats.waiting + stats.running:
        raise ConfigError(
            f"the dispatcher {chosen!r} has {count:,} segments of this store; let its workers finish them, "
            f"then stop them and choose {wanted!r}"
        )
    store.use_connection(
        lambda database: database.run(_SQL["choose_another"], (wanted, chosen))
    )
