"""Which dispatcher has the segments of a store.

The store remembers it: two processes that chose differently, because only one of them has procrastinate installed,
would never perform each other's segments.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from handrail import plugins
from handrail.dispatch.port import Dispatcher, Timing
from handrail.errors import ConfigError
from handrail.futures import result_now
from handrail.stores.durable import DurableStore
from handrail.stores.sql_values import statements

_SQL = statements("lease.sql", package="handrail.dispatch")


def open_dispatcher(
    store: Any, name: str = "", *, timing: Timing | None = None
) -> Dispatcher:
    """Return a dispatcher for the runs of a store. It blocks for as long as the store takes to answer.

    Args:
        store: A durable store; it stays open when the dispatcher is closed.
        name: `lease`, `procrastinate`, or an entry point of the group `handrail.dispatchers`: a callable that takes the
            store and a keyword `timing`. Empty for the one that the store has; for a store that has none yet
            `procrastinate` on Postgres where it is installed, else `lease`.
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
        name = find_kind(store)
    dispatcher: Dispatcher = plugins.load("dispatchers", name)(store, timing=timing)
    chosen = _choose(store, name)
    if chosen != name:
        try:
            _change(store, chosen, name)
        except BaseException:
            dispatcher.close()
            raise
    return dispatcher


def find_kind(store: Any) -> str:
    """Return the name of the dispatcher that a store has, once `open_dispatcher` has made its tables."""
    return _choose(store, _default(store))


def _default(store: DurableStore) -> str:
    if store.has_own_connections and find_spec("procrastinate") is not None:
        return "procrastinate"
    return "lease"


def _choose(store: DurableStore, wanted: str) -> str:
    """Return the dispatcher of a store, which is the wanted one where it has none yet."""

    def choose(database: Any) -> str:
        database.run(_SQL["choose"], (wanted,))
        [[name]] = database.run(_SQL["chosen"])
        return str(name)

    return store.use_connection(choose)


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
