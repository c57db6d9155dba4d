"""What a durable store holds, and a copy of it. `retention` says what is deleted when.

Every job is done in small pieces between the groups of callers, so that a store stays in use meanwhile.

Rule 1: a copy never replaces something newer by something older, so it can be interrupted and started again.
Rule 2: a log takes only what follows its end. One record of another log, and neither chain can be verified any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from handrail.audit.chain import count_in
from handrail.errors import ConfigError
from handrail.process_identity import has_died_here
from handrail.stores.database import Connection, Database
from handrail.stores.durable import DurableStore
from handrail.stores.ledger import Restored
from handrail.stores.sql_runs import DurableRuns


class Contents(Struct, frozen=True):
    """How much a store holds.

    Attributes:
        writes: How many there are in each state.
        abandoned: How many of the claimed ones are not under way: their owner has died, or their lease is over.
        kept_bytes: The size of the long results, as text.
        restored: What is lost, while the store is marked as restored.
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
    restored: Restored | None


class Forgotten(Struct, frozen=True):
    """What `mark_restored` has done.

    Attributes:
        since: From when on the store's records are lost: the earliest time that was given since it was last unmarked.
        at: Until when.
        failed_writes: How many writes without effect were forgotten: they may have been tried again, and done.
    """

    since: float
    at: float
    failed_writes: int


class _Table(Struct, frozen=True):
    """How a table is copied: its key, how many rows at once, and when a row replaces the one that is there."""

    name: str
    key: tuple[str, ...]
    at_once: int = 64
    newer: str = ""


# Locks and workers are not copied: they belong to processes that use the old store. Runs are copied after their steps
# and writes: somebody may resume one in the target at once, and would repeat what is not there yet.
_TABLES = (
    _Table("steps", ("run_id", "step_key")),
    _Table(
        "effects", ("scope", "key"),
        newer="excluded.fence > {0}.fence OR excluded.fence = {0}.fence AND ("
        "{0}.state IN ('claimed', 'waiting') AND excluded.state NOT IN ('claimed', 'waiting') "
        "OR {0}.state = 'in_doubt' AND excluded.state IN ('done', 'failed') "
        # taken back
        "OR {0}.state = 'done' AND excluded.state = 'failed' AND excluded.updated > {0}.updated)",
    ),
    _Table(
        "approvals", ("id",),
        newer="excluded.people > {0}.people OR excluded.people = {0}.people AND ("
        "{0}.state = 'open' AND (excluded.state <> 'open' OR length(excluded.agreed) > length({0}.agreed)) "
        "OR excluded.state IN ('used', 'cancelled'))",
    ),
    _Table("acts", ("scope", "fingerprint"), newer="excluded.at > {0}.at"),
    _Table("grants", ("id",), newer="excluded.granted_at > {0}.granted_at OR excluded.revoked_at > {0}.revoked_at"),
    _Table("kept", ("run_id", "handle"), at_once=4),  # of megabytes each
    _Table(
        "runs", ("run_id",),
        newer="excluded.epoch > {0}.epoch OR excluded.epoch = {0}.epoch AND excluded.updated > {0}.updated",
    ),
    _Table("submitted", ("run_id",), newer="excluded.segment > {0}.segment"),
    _Table("audit", ("seq",)),
)  # fmt: skip

_DIGEST_KEYS = _Table("digest_keys", ("name",))
"""What belongs to the records of the log: with it, it can be shown later that a text is the result that came back."""


_RESTORED = _Table("restored", ("one",), newer="excluded.at > {0}.at")


def count_contents(store: DurableStore) -> Contents:
    """Count what a store holds."""

    def count(database: Database) -> Contents:
        def count_by(column: str, table: str) -> dict[str, int]:
            return dict(
                database.run(
                    f"SELECT {column}, count(*) FROM {table} GROUP BY {column} ORDER BY {column}"
                )
            )

        [[version]] = database.run("SELECT max(version) FROM schema_version")
        [[kept, kept_bytes]] = database.run(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM kept"
        )
        return Contents(
            place=store.place,
            version=version,
            writes=count_by("state", "effects"),
            abandoned=_count_abandoned(database),
            runs=count_by("status", "runs"),
            approvals=count_by("state", "approvals"),
            kept=kept,
            kept_bytes=int(kept_bytes),
            size_bytes=database.size_bytes(),
            restored=find_restored(database),
        )

    return store.use_connection(count)


def find_restored(database: Database) -> Restored | None:
    """Return what a store has lost, while it is marked as restored."""
    rows = database.run("SELECT since, at FROM restored")
    return Restored(*rows[0]) if rows else None


def mark_restored(store: DurableStore, since: float) -> Forgotten:
    """Note that a store was set back to a copy of it from a certain time: what was recorded until now is lost.

    From now on a write whose key the store does not know is in doubt, unless its key cannot have been used before now;
    see `ledger.is_new`.

    Raises:
        ConfigError: The time has not come yet.
    """

    now = store.use_connection(_read_clock)
    if since > now:
        raise ConfigError("a copy cannot have been taken in the future")

    def mark(database: Database) -> Forgotten:
        [(earliest, at)] = database.run(
            "INSERT INTO restored(one, since, at) VALUES (1, ?, ?) ON CONFLICT(one) DO UPDATE SET at = excluded.at, "
            "since = CASE WHEN excluded.since < restored.since THEN excluded.since ELSE restored.since END "
            "RETURNING since, at",
            (since, now),
        )
        failed = database.run("DELETE FROM effects WHERE state = 'failed' RETURNING 1")
        return Forgotten(earliest, at, failed_writes=len(failed))

    return store.use_connection(mark)


def _read_clock(database: Database) -> float:
    return database.now()


def unmark_restored(store: DurableStore) -> bool:
    """Let unknown keys be new again; return whether the store was marked. Writes in doubt stay so."""
    return store.use_connection(
        lambda database: bool(database.run("DELETE FROM restored RETURNING 1"))
    )


def _count_abandoned(database: Database) -> int:
    now = database.now()
    claimed = database.run(
        "SELECT lease_until, owner FROM effects WHERE state = 'claimed'"
    )
    return sum(
        lease_until < now or has_died_here(owner) for lease_until, owner in claimed
    )


def copy_store(source: DurableStore, target: DurableStore) -> dict[str, int]:
    """Copy everything that is not there yet, or not as new; return how many rows of each table were looked at.

    Nothing of the audit log is copied, and it is not in the result, where both logs have grown since they were one.

    Raises:
        ConfigError: The two are one.
    """
    if source.place == target.place:
        raise ConfigError(f"{source.place} cannot be copied into itself")
    if isinstance(source, DurableRuns):
        source.complete_log().result()
    _copy_table(source, target, _DIGEST_KEYS)
    _copy_table(source, target, _RESTORED)
    counts = {table.name: _copy_table(source, target, table) for table in _TABLES}
    return {name: count for name, count in counts.items() if count is not None}


def _copy_table(
    source: DurableStore, target: DurableStore, table: _Table
) -> int | None:
    """Copy a table page by page; return how many rows were looked at, None where the logs have parted."""
    columns = [
        column
        for column in source.use_connection(partial(_columns, table.name))
        if column != "number"
    ]
    add = partial(_add, _insert_statement(table, columns))
    if table.name == "audit":
        add = partial(_add_records, columns)
    elif table.name == "steps":
        add = partial(_add_steps, source, columns.index("run_id"), add)
    names = ", ".join(columns)
    key = ", ".join(table.key)
    first_page = (
        f"SELECT {names} FROM {table.name} ORDER BY {key} LIMIT {table.at_once}"
    )
    next_page = (
        f"SELECT {names} FROM {table.name} WHERE ({key}) > ({_marks(len(table.key))}) "
        f"ORDER BY {key} LIMIT {table.at_once}"
    )
    count = 0
    rows = source.use_connection(partial(_run, first_page, ()))
    while rows:
        if not target.use_connection(partial(add, rows)):
            return None
        count += len(rows)
        last = [rows[-1][columns.index(column)] for column in table.key]
        rows = source.use_connection(partial(_run, next_page, last))
    return count


def _insert_statement(table: _Table, columns: Sequence[str]) -> str:
    """Return the statement that adds a row of a table, or replaces an older one."""
    on_conflict = "NOTHING"
    if table.newer:
        assignments = ", ".join(f"{column} = excluded.{column}" for column in columns)
        on_conflict = f"UPDATE SET {assignments} WHERE {table.newer.format(table.name)}"
    return (
        f"INSERT INTO {table.name}({', '.join(columns)}) VALUES ({_marks(len(columns))}) "
        f"ON CONFLICT({', '.join(table.key)}) DO {on_conflict}"
    )


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _columns(table: str, database: Database) -> list[str]:
    return database.columns(table)


def _run(
    statement: str, given: Sequence[Any], database: Database
) -> list[tuple[Any, ...]]:
    return database.run(statement, given)


def _add(statement: str, rows: Sequence[Sequence[Any]], database: Database) -> bool:
    database.add(statement, rows)
    return True


def _add_steps(
    source: DurableStore,
    place: int,
    add: Callable[[Sequence[Sequence[Any]], Database], bool],
    rows: Sequence[Sequence[Any]],
    database: Database,
) -> bool:
    """Add steps, except to runs that were taken over in the target: their journals continue from there.

    Args:
        place: The position of the run's name in a row.
    """
    names = [(run_id,) for run_id in {row[place] for row in rows}]
    theirs = dict(source.use_connection(partial(_run_epochs, names)))
    ours = dict(_run_epochs(names, database))
    continued = {name for name, epoch in ours.items() if epoch > theirs.get(name, 0)}
    return add([row for row in rows if row[place] not in continued], database)


def _run_epochs(
    names: Sequence[tuple[str]], database: Database
) -> list[tuple[Any, ...]]:
    """Return those of some runs that exist, each with its epoch, which grows when it is taken over."""
    return database.run_with(
        "SELECT r.run_id, r.epoch FROM (VALUES (?)) AS n JOIN runs AS r ON r.run_id = n.column1",
        names,
    )


def _add_records(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], connection: Connection
) -> bool:
    """Add records to the log where they follow its end, in the transaction that has looked; return whether they do.

    Raises:
        RetryGroup: Somebody else has added to the log meanwhile.
    """
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    connection.begin()
    try:
        end = connection.run("SELECT max(seq) FROM audit")[0][0] or 0
        if not _continue_log(records, end, connection):
            return False
        new = [
            row
            for row, record in zip(rows, records, strict=True)
            if record["seq"] > end
        ]
        insert = (
            f"INSERT INTO audit({', '.join(columns)}) VALUES (?)\n"
            "ON CONFLICT(seq) DO NOTHING RETURNING 1"
        )
        connection.write_rows(insert, new, every=True)
        connection.commit()
    finally:
        connection.rollback()
    return True


def _continue_log(
    records: Sequence[Mapping[str, Any]], end: int, database: Database
) -> bool:
    """Whether records of another log are the next ones of this log, or such as it has itself."""
    hashes = dict(
        database.run(
            "SELECT seq, hash FROM audit WHERE seq IN (?, ?)", (end, records[-1]["seq"])
        )
    )
    other_hashes = {record["seq"]: record["hash"] for record in records}
    first = records[0]
    taken = count_in(first["event"], first["body"])
    other_hashes[first["seq"] - taken] = first["prev"]
    return end == 0 or any(
        other_hashes.get(seq) == hash for seq, hash in hashes.items()
    )
