"""Which dispatcher has the segments of a store: procrastinate on Postgres, the file's one worker process on SQLite."""

from __future__ import annotations

from typing import Any

from handrail.dispatch.port import Dispatcher, Timing
from handrail.errors import ConfigError
from handrail.stores.durable import DurableStore


def open_dispatcher(store: Any, *, timing: Timing | None = None) -> Dispatcher:
    """Return the dispatcher for the runs of a store. It blocks for as long as the store takes to answer.

    Args:
        store: A durable store; on Postgres the tables of procrastinate are made in it.
        timing: How soon things are noticed.

    Raises:
        ConfigError: The store can have no workers, procrastinate is not installed, or its tables cannot be made.
        StoreUnavailable: The store does not answer.
    """
    if not isinstance(store, DurableStore):
        raise ConfigError(
            "segments need a durable store: sqlite:///FILE or postgresql://HOST/DATABASE"
        )
    if store.has_own_connections:
        from handrail.dispatch.procrastinate import ProcrastinateDispatcher

        return ProcrastinateDispatcher(store, timing=timing)
    from handrail.dispatch.file_worker import FileDispatcher
    from handrail.stores.sqlite import SqliteStore

    assert isinstance(store, SqliteStore)
    return FileDispatcher(store, timing=timing)


def prepare_queue(store: DurableStore) -> None:
    """Make the tables in which the segments of a store wait, where they are not part of the store.

    Raises:
        ConfigError: procrastinate is not installed, or its tables cannot be made.
        StoreUnavailable: The store does not answer.
    """
    if store.has_own_connections:
        from handrail.dispatch.job_tables import make_tables

        make_tables(store)
