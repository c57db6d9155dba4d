"""How a store enqueues the segments of its submitted runs, in its own transactions, whichever process it is in.

A person who approves a call may do so from a process without a worker. So each kind of dispatcher has a function here
that needs an open transaction and nothing else; `plugins` finds it by the kind that the run was submitted with.
"""

from __future__ import annotations

from typing import Any

from handrail.dispatch.port import Segment
from handrail.dispatch.rows import SegmentRows
from handrail.engine.scoped_store import parse_scope
from handrail.stores.database import Database


def enqueue_lease(store: Any, database: Database, now: float, **segment: Any) -> bool:
    """Enqueue a segment in the tables of the dispatcher `lease`; False where it is there."""
    from handrail.dispatch.lease import LeaseRows

    rows = LeaseRows(is_shared=store.has_own_connections)
    return _enqueue(rows, database, now, **segment)


def enqueue_procrastinate(
    store: Any,  # noqa: ARG001  # one signature for all kinds
    database: Database,
    now: float,
    **segment: Any,
) -> bool:
    """Enqueue a segment in the tables of the dispatcher `procrastinate`; False where it is there."""
    from handrail.dispatch.procrastinate import ProcrastinateRows  # of an extra

    return _enqueue(ProcrastinateRows(), database, now, **segment)


def _enqueue(
    rows: SegmentRows,
    database: Database,
    now: float,
    *,
    run_id: str,
    number: int,
    queue: str,
    priority: int,
) -> bool:
    scope = parse_scope(run_id)
    return rows.enqueue(
        database, now, Segment(run_id, number, queue, priority, scope=scope)
    )
