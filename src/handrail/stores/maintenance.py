"""Looking after a durable store: what lies in it, a copy of it, and what may go.

Every job is done in small pieces between the groups of callers, so that a store can be looked after while it is in use.

Rule 1: what is under way or in doubt is never let go, however old it is; nor is the audit.
Rule 2: a copy never puts something older in the place of something newer, so it can be broken off and begun again.
Rule 3: a log takes only what follows its end. One record of another log, and neither is in good order any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Any

from msgspec import Struct

from handrail.errors import ConfigError
from handrail.process_identity import has_died_here
from handrail.stores.durable import DurableStore, Keeper

MOST_ROWS_AT_ONCE = 1000
MOST_RUNS_AT_ONCE = 200
"""A piece takes a few milliseconds, during which nobody else can write to a SQLite file."""


class Contents(Struct, frozen=True):
    """What lies in a store.

    Attributes:
        writes: How many there are in each state.
        abandoned: How many of the claimed ones nobody is at: their owner has died, or their lease is over.
        kept_bytes: The size of the long results, as text.
    """

    place: str
    version: int
    writes: Mapping[str, int]
    abandoned: int
    runs: Mapping[str, int]
    approvals: Mapping[str, int]
    kept: int
    kept_bytes: int
    size_bytes: int


class _Table(Struct, frozen=True):
    """How a table is copied: its key, how many rows at once, and when one takes the place of what is there."""

    name: str
    key: tuple[str, ...]
    at_once: int = 64
    newer: str = ""


# Locks and workers are not copied: they belong to processes that use the old store.
_TABLES = (
    _Table("runs", ("run_id",), newer="excluded.epoch > {0}.epoch OR excluded.updated > {0}.updated"),
    _Table("steps", ("run_id", "step_key")),
    _Table(
        "effects", ("scope", "key"),
        newer="excluded.fence > {0}.fence OR excluded.fence = {0}.fence AND ("
        "{0}.state = 'claimed' AND excluded.state <> 'claimed' "
        "OR {0}.state = 'in_doubt' AND excluded.state IN ('done', 'failed'))",
    ),
    _Table(
        "approvals", ("id",),
        newer="excluded.people > {0}.people OR excluded.people = {0}.people AND ("
        "{0}.state = 'open' AND (excluded.state <> 'open' OR length(excluded.agreed) > length({0}.agreed)) "
        "OR excluded.state IN ('used', 'cancelled'))",
    ),
    _Table("acts", ("scope", "fingerprint"), newer="excluded.at > {0}.at"),
    _Table("grants", ("id",), newer="excluded.granted_at > {0}.granted_at OR excluded.revoked_at > {0}.revoked_at"),
    _Table("audit", ("seq",)),
    _Table("kept", ("run_id", "handle"), at_once=4),  # of megabytes each
)  # fmt: skip

_OLD = {
    "effects": ("number", "state IN ('done', 'failed') AND updated < ?"),
    "acts": ("scope, fingerprint", "at < ?"),
    "kept": ("run_id, handle", "created < ?"),
}
"""Tables that are deleted row by row: the key to walk along, and the condition of rows to delete."""

_ENDED = "status IN ('done', 'failed', 'cancelled') AND updated < ?"
_OF_RUNS = ("steps", "approvals", "runs")
"""Tables with the rows of a run; `runs` is last, because it is needed to find the others."""


def contents(store: DurableStore) -> Contents:
    """Count what lies in a store."""

    def count(base: Keeper) -> Contents:
        def by(column: str, table: str) -> dict[str, int]:
            return dict(base.run(f"SELECT {column}, count(*) FROM {table} GROUP BY {column} ORDER BY {column}"))

        [[version]] = base.run("SELECT max(version) FROM schema_version")
        now, claimed = base.now(), base.run("SELECT lease_until, owner FROM effects WHERE state = 'claimed'")
        abandoned = sum(lease_until < now or has_died_here(owner) for lease_until, owner in claimed)
        [[kept, kept_bytes]] = base.run("SELECT count(*), coalesce(sum(length(body)), 0) FROM kept")
        return Contents(
            store.place, version, by("state", "effects"), abandoned, by("status", "runs"), by("state", "approvals"),
            kept, int(kept_bytes), base.size_bytes(),
        )  # fmt: skip

    return store.alone(count)


def copied(source: DurableStore, target: DurableStore) -> dict[str, int]:
    """Copy everything that is not there yet, or not as new; return how many rows of each table were looked at.

    Of the audit log nothing is copied, and it is not among them, where both have gone on since they were one.

    Raises:
        ConfigError: The two are one.
    """
    if source.place == target.place:
        raise ConfigError(f"{source.place} cannot be copied into itself")
    counts = {table.name: _copied(source, target, table) for table in _TABLES}
    return {name: count for name, count in counts.items() if count is not None}


def _copied(source: DurableStore, target: DurableStore, table: _Table) -> int | None:
    columns = [column for column in source.alone(partial(_columns, table.name)) if column != "number"]
    names, marks, key = ", ".join(columns), ", ".join("?" * len(columns)), ", ".join(table.key)
    taken = ", ".join(f"{column} = excluded.{column}" for column in columns)
    done = f"UPDATE SET {taken} WHERE {table.newer.format(table.name)}" if table.newer else "NOTHING"
    add = f"INSERT INTO {table.name}({names}) VALUES ({marks}) ON CONFLICT({key}) DO {done}"
    page = f"SELECT {names} FROM {table.name} {{where}} ORDER BY {key} LIMIT {table.at_once}"
    beyond = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})"
    count, rows = 0, source.alone(partial(_run, page.format(where=""), ()))
    while rows:
        records = [dict(zip(columns, row, strict=True)) for row in rows] if table.name == "audit" else []
        if not target.alone(partial(_add, add, rows, records)):
            return None
        count += len(rows)
        last = [rows[-1][columns.index(column)] for column in table.key]
        rows = source.alone(partial(_run, page.format(where=beyond), last))
    return count


def _columns(table: str, base: Keeper) -> list[str]:
    return base.columns(table)


def _run(statement: str, given: Sequence[Any], base: Keeper) -> list[tuple[Any, ...]]:
    return base.run(statement, given)


def _add(statement: str, rows: Sequence[Sequence[Any]], records: Sequence[Mapping[str, Any]], base: Keeper) -> bool:
    if records and not _follow(records, base):
        return False
    base.add(statement, rows)
    return True


def _follow(records: Sequence[Mapping[str, Any]], base: Keeper) -> bool:
    """Whether records of another log are the next ones of this log, or such as it has itself."""
    end = base.run("SELECT max(seq) FROM audit")[0][0] or 0
    ours = dict(base.run("SELECT seq, hash FROM audit WHERE seq IN (?, ?)", (end, records[-1]["seq"])))
    theirs = {record["seq"]: record["hash"] for record in records} | {records[0]["seq"] - 1: records[0]["prev"]}
    return end == 0 or any(theirs.get(seq) == digest for seq, digest in ours.items())


def vacuumed(
    store: DurableStore, *, older_than_s: float, rewrite: bool = False, rest: Callable[[float], object] = sleep
) -> dict[str, int]:
    """Delete what ended longer ago than `older_than_s`; return how many rows of each table were deleted.

    Each table is walked once along its key, in pieces, with a pause after each piece for as long as it took.

    Args:
        rewrite: Also return the space to the disk, which blocks all writers; otherwise the store reuses it.
        rest: Sleeps for a number of seconds.
    """
    before: float = store.alone(lambda base: base.now()) - older_than_s
    gone = dict.fromkeys([*_OLD, *_OF_RUNS], 0)

    def deleted(statement: str, given: Sequence[Any]) -> int:
        began = monotonic()
        count = len(store.alone(partial(_run, statement, given)))
        rest(monotonic() - began)
        return count

    for table, (key, where) in _OLD.items():
        for part, given in _parts(store, table, key, MOST_ROWS_AT_ONCE):
            delete = f"DELETE FROM {table} WHERE {part} AND {where} RETURNING 1"
            gone[table] += deleted(delete, (*given, before))
    for part, given in _parts(store, "runs", "number", MOST_RUNS_AT_ONCE):
        for table in _OF_RUNS:
            ended = f"SELECT run_id FROM runs WHERE {part} AND {_ENDED}"
            delete = f"DELETE FROM {table} WHERE run_id IN ({ended}) RETURNING 1"
            gone[table] += deleted(delete, (*given, before))
    store.alone(lambda base: base.shrink(rewrite=rewrite))
    return gone


def _parts(store: DurableStore, table: str, key: str, at_once: int) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the pieces of a table along its key: a condition and its parameters."""
    marks = ", ".join("?" * len(key.split(", ")))
    after: Sequence[Any] = ()
    while True:
        beyond = f"({key}) > ({marks})" if after else "1 = 1"
        last = f"SELECT {key} FROM {table} WHERE {beyond} ORDER BY {key} LIMIT 1 OFFSET {at_once - 1}"
        found = store.alone(partial(_run, last, after))
        if not found:
            yield beyond, after
            return
        yield f"{beyond} AND ({key}) <= ({marks})", (*after, *found[0])
        after = found[0]
