"""How long a store keeps what has ended, and the deletion of what is older, while the store is in use.

    from handrail import admin

    admin.keep(store, admin.Retention(runs_s=30 * admin.DAY_S, audit_s=400 * admin.DAY_S))

Rows are looked for without a lock, and deleted on a connection of the keeper's own in transactions of a few
milliseconds, with a rest after each. Several keepers may work at once; one that is killed leaves nothing half deleted.

Rule 1: what is under way, waits, or is in doubt is never deleted, however old it is; nor is a run that another one was
        forked from, or that a run under way has started. A transaction looks at that again before it deletes.
Rule 2: a run goes whole, in one transaction: its steps, its questions, the writes that only it knows the keys of.
Rule 3: the audit log is shortened from its beginning only, after a record that says so (see `audit.chain`), and never
        by a record of a run that is still stored: what a run has read is looked up there.
Rule 4: a write with a key of its own is forgotten only where a period was given for it: after that the same act can be
        performed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from threading import Event
from typing import Any

from msgspec import Struct, field
from msgspec.json import decode
from msgspec.structs import asdict

from handrail.audit.chain import KEY_REPLACED, SHORTENED, shortening
from handrail.errors import ConfigError, StoreUnavailable
from handrail.stores.database import Connection, Refused, RetryGroup
from handrail.stores.sql_runs import DurableRuns
from handrail.stores.sql_values import decode_name
from handrail.surroundings.clock import monotonic, sleep

DAY_S = 24 * 3600.0

MAX_PIECE_ROWS = 200
"""Rows that one transaction deletes at most; fewer where they take longer than `PIECE_S`."""
PIECE_S = 0.003
"""How long a transaction should take: nobody else can write to a SQLite file meanwhile."""
REST_FACTOR = 4.0
"""How much longer the rest after a transaction is: a SQLite file is asked for again and again by whoever waits."""
TRANSACTIONS_A_CHECKPOINT = 8
"""Often enough that no writer finds the log of a SQLite file so long that it has to carry it into the tables itself."""
MAX_PIECE_BYTES = 1024 * 1024
"""Long results that one transaction deletes, unless one of them is longer."""
SERVER_PIECE_S = 0.02
SERVER_REST_FACTOR = 1.0
"""The same on a server, where nobody waits for these rows: a piece of 3 ms would be one run, since each of its
statements costs a round trip."""

_BEYOND_ALL = 2**62
"""A number that no record has."""
_PAGE_ROWS = 500
_WALK_ROWS = 5000
_ENDED = "status IN ('done', 'failed', 'cancelled')"
_FORKS = "AND forked_from <> ''"  # as the index says it
_SETTLED = "state IN ('done', 'failed')"
_OF_LIVE_RUN = f"EXISTS (SELECT 1 FROM runs WHERE runs.run_id = {{table}}.run_id AND NOT runs.{_ENDED})"
_UNITS_S = {"d": DAY_S, "h": 3600.0, "m": 60.0, "s": 1.0}
_AGE = re.compile(r"([1-9]\d{0,8})([dhms])")


class Retention(Struct, frozen=True):
    """How long what has ended is retained, in seconds; None retains it for ever.

    Attributes:
        runs_s: Runs, with all that belongs to them: steps, questions, long results, writes without a key of their own.
            Also questions and such writes that no stored run has.
        results_s: Long results of runs that are not under way; as long as runs by default, and 30 days at most.
        audit_s: Records of the audit log; at least as long as runs.
        writes_s: Writes whose key a tool has made (`key=`), so that the same act is recognized in any run.
        tools_s: The same for single tools, by name.

    Raises:
        ConfigError: The log would be shorter than the runs, or a period is not above 0.
    """

    runs_s: float | None = None
    results_s: float | None = None
    audit_s: float | None = None
    writes_s: float | None = None
    tools_s: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(not 0 < period < float("inf") for period in self.periods()):
            raise ConfigError(
                "a period of retention is a number of seconds above 0; leave one out to keep for ever"
            )
        if self.audit_s is not None and (
            self.runs_s is None or self.audit_s < self.runs_s
        ):
            raise ConfigError(
                "the audit log is kept at least as long as the runs that it is about: "
                "give a period for runs, and none longer than that of the log"
            )

    def periods(self) -> list[float]:
        """Return all periods that were given."""
        single = (self.runs_s, self.results_s, self.audit_s, self.writes_s)
        return [each for each in (*single, *self.tools_s.values()) if each is not None]

    def of_writes(self, tool: str) -> float | None:
        """Return the period of a tool's writes with a key."""
        return self.tools_s.get(tool, self.writes_s)

    def pause_s(self) -> float:
        """Return how often a store is looked through, so that it exceeds its steady size by a twentieth."""
        return min(max(min(self.periods(), default=DAY_S) / 20, 1.0), 3600.0)


def parse_age(text: object) -> float:
    """Return an age such as `30d` in seconds.

    Raises:
        ConfigError: It is none.
    """
    match = _AGE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(
            f"{text!r} is no age; write a number above 0 and d, h, m or s, such as 30d"
        )
    return int(match[1]) * _UNITS_S[match[2]]


def retention_from(settings: Mapping[str, Any]) -> Retention:
    """Return what the table `[retention]` of the settings says.

        runs = "30d"
        audit = "400d"
        tools = { refund = "90d" }

    Raises:
        ConfigError: It has another key, or a period is no age.
    """
    names = {"runs", "results", "audit", "writes", "tools"}
    if unknown := sorted(settings.keys() - names):
        raise ConfigError(
            f"[retention] has {unknown[0]!r}; it takes {', '.join(sorted(names))}"
        )
    tools = settings.get("tools", {})
    if not isinstance(tools, Mapping):
        raise ConfigError(
            f'`tools` in [retention] is {tools!r}; write {{ refund = "90d" }}'
        )
    periods = {
        f"{name}_s": parse_age(age) for name, age in settings.items() if name != "tools"
    }
    tools_s = {name: parse_age(age) for name, age in tools.items()}
    return Retention(tools_s=tools_s, **periods)


class Deleted(Struct):
    """How many rows of each table were deleted, or would be."""

    runs: int = 0
    steps: int = 0
    approvals: int = 0
    effects: int = 0
    acts: int = 0
    kept: int = 0
    audit: int = 0

    def as_counts(self) -> dict[str, int]:
        """Return the numbers by table."""
        return asdict(self)


def keep(
    store: object,
    retention: Retention,
    *,
    by: str = "",
    dry_run: bool = False,
    rewrite: bool = False,
    rest: Callable[[float], object] = sleep,
) -> Deleted:
    """Delete what is older than its retention; return how many rows.

    Args:
        by: Who shortens the audit log, for its record.
        dry_run: Delete nothing; return what would be deleted.
        rewrite: Also return the space to the disk, which blocks all writers; otherwise the store reuses it.
        rest: Sleeps for a number of seconds, between two transactions.

    Raises:
        ConfigError: The store is none that lasts, or one tenant's view of it.
        StoreUnavailable: The store did not answer, or its log has another key. What was deleted until then is gone.
    """
    if not isinstance(store, DurableRuns):
        raise ConfigError(
            f"{store!r} is kept as a whole or not at all; name the store itself, in a file or in Postgres"
        )
    with closing(store.open_connection()) as connection:
        sweep = _Sweep(store, connection, retention, by, dry_run=dry_run, rest=rest)
        try:
            sweep.run()
            if not dry_run:
                sweep.shrink(rewrite=rewrite)
        except (RetryGroup, Refused) as error:
            why, *_ = str(error.__cause__ or error).splitlines() or [""]
            raise StoreUnavailable(
                f"{store.place} failed while old rows were deleted, which can be done again: {why}"
            ) from error
    return sweep.deleted


def keep_regularly(
    store: object,
    retention: Retention,
    stop: Event,
    *,
    by: str = "",
    tell: Callable[[Deleted], object] = lambda _: None,
) -> None:
    """Keep a store until `stop` is set: again and again, and so often that it hardly grows in between.

    A store that does not answer is tried again the next time.

    Args:
        tell: Is given what each pass has deleted, where it deleted anything.

    Raises:
        ConfigError: As `keep`.
    """

    def rest(seconds: float) -> None:
        if stop.wait(seconds):
            raise _Stopped

    while not stop.is_set():
        try:
            deleted = keep(store, retention, by=by, rest=rest)
            if deleted != Deleted():
                tell(deleted)
        except _Stopped:
            return
        except StoreUnavailable:
            pass  # whoever writes to it gets the error; here is nothing to lose
        stop.wait(retention.pause_s())


class _Stopped(Exception):
    """The keeper is to stop between two transactions."""


class _Sweep:
    """One look through a store, on a connection of its own."""

    def __init__(
        self,
        store: DurableRuns,
        connection: Connection,
        retention: Retention,
        by: str,
        *,
        dry_run: bool,
        rest: Callable[[float], object],
    ) -> None:
        self._store = store
        self._connection = connection
        self._retention = retention
        self._by = by
        self._dry_run = dry_run
        self._rest = rest
        self._now = connection.now()
        self._piece_rows = 25
        self._piece_s = PIECE_S
        self._rest_factor = REST_FACTOR
        if store.has_own_connections:
            self._piece_s = SERVER_PIECE_S
            self._rest_factor = SERVER_REST_FACTOR
        self._transactions = 0
        self._staying_since: list[float] = []
        """When the ended runs began that are old and stay."""
        self.deleted = Deleted()

    def run(self) -> None:
        """Delete all that is to go."""
        runs_s = self._retention.runs_s
        audit_s = self._retention.audit_s
        self.delete_results()
        # before the runs, so that a dry run and a real one find the same forks and failed writes
        self.delete_writes()
        if runs_s is not None:
            self.delete_runs(runs_s)
            self.delete_lone_questions(runs_s)
        if audit_s is not None:
            self.shorten_log(audit_s)

    def shrink(self, *, rewrite: bool) -> None:
        """Let the space of deleted rows be used again, or return it to the disk."""
        if rewrite or self.deleted != Deleted():
            self._connection.shrink(rewrite=rewrite)
        began = monotonic()
        while self._connection.shrink_some():
            self._rest_after(monotonic() - began)
            began = monotonic()
        self._connection.checkpoint()

    # ------------------------------------------------------------------ runs

    def delete_runs(self, period_s: float) -> None:
        """Delete runs that ended before the period, in the order in which they began.

        That order has an index anyway. An index by the time of the end would be updated by every entry of a run.
        """
        before = self._now - period_s
        last = (0.0, 0)
        while True:
            page = self._connection.run(
                "SELECT created, number, run_id, entered FROM runs WHERE created < ? AND created >= ? "
                f"AND (created > ? OR number > ?) AND {_ENDED} AND updated < ? "
                f"ORDER BY created, number LIMIT {_PAGE_ROWS}",
                (before, last[0], *last, before),
            )
            if not page:
                return
            last = page[-1][:2]
            run_ids = [row[2] for row in page]
            stays = self._runs_that_stay(run_ids)
            going = [row for row in page if row[2] not in stays]
            self._staying_since += [row[0] for row in page if row[2] in stays]
            self._delete_results_of([row[2] for row in going])
            # a run has some rows beside its steps
            for piece in self._pieces(going, weight=lambda row: row[3] + 4):
                numbers = [row[1] for row in piece]
                self._in_transaction(partial(self._delete_whole_runs, numbers, before))

    def _delete_whole_runs(self, numbers: Sequence[int], before: float) -> None:
        rows = self._connection.run(
            f"SELECT run_id FROM runs WHERE number IN ({_marks(numbers)}) AND {_ENDED} AND updated < ?"
            f"{self._held}",
            (*numbers, before),
        )
        run_ids = [run_id for (run_id,) in rows]
        stays = self._runs_that_stay(run_ids)
        going = [run_id for run_id in run_ids if run_id not in stays]
        if not going:
            return
        marks = _marks(going)
        writes = self._connection.run(
            "SELECT number, scope, key, fingerprint, run_id, state, updated, tool FROM effects "
            f"WHERE run_id IN ({marks})",
            going,
        )
        # in a dry run, what is old was counted before: failed writes by `delete_writes`, results by `delete_results`
        failed_since = before if self._dry_run else float("-inf")
        own = [
            row
            for row in writes
            if _is_own(row[2], row[4])
            or (row[5] == "failed" and row[6] >= failed_since)
        ]
        self._delete_write_rows(own)
        newer = f" AND NOT {self._old_results}" if self._dry_run else ""
        self._delete("kept", f"run_id IN ({marks}){newer}", going)
        for table in ("steps", "approvals", "runs"):
            self._delete(table, f"run_id IN ({marks})", going)

    def _runs_that_stay(self, run_ids: Sequence[str]) -> set[str]:
        """Return which of these runs stay whatever their age; see Rule 1."""
        if not run_ids:
            return set()
        stays = set(self._names("forked_from", "runs", _FORKS, run_ids))
        open_writes = "AND state IN ('claimed', 'waiting', 'in_doubt')"
        stays.update(self._names("run_id", "effects", open_writes, run_ids))
        open_question = f"AND state = 'open' AND expires >= {self._now!r}"
        stays.update(self._names("run_id", "approvals", open_question, run_ids))
        stays.update(self._within_live_runs(run_ids))
        return stays

    def _within_live_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Return which runs carry the name of a run under way with more behind a dot: one of its calls started them."""
        outer: dict[str, list[str]] = {}
        for run_id in run_ids:
            parts = run_id.split(".")
            for count in range(1, len(parts)):
                outer.setdefault(".".join(parts[:count]), []).append(run_id)
        live = self._live_runs(list(outer))
        return {run_id for name in live for run_id in outer[name]}

    def _live_runs(self, run_ids: Sequence[str]) -> set[str]:
        return set(self._names("run_id", "runs", f"AND NOT {_ENDED}", run_ids))

    def _names(
        self, column: str, table: str, condition: str, names: Sequence[str]
    ) -> Iterator[str]:
        """Yield which of these names stand in a column, in rows of a condition."""
        for at in range(0, len(names), _PAGE_ROWS):
            part = names[at : at + _PAGE_ROWS]
            rows = self._connection.run(
                f"SELECT DISTINCT {column} FROM {table} WHERE {column} IN ({_marks(part)}) {condition}",
                part,
            )
            yield from (name for (name,) in rows)

    def delete_lone_questions(self, period_s: float) -> None:
        """Delete questions of no stored run that expired before the period."""
        before = self._now - period_s
        lone = "expires < ? AND run_id NOT IN (SELECT run_id FROM runs)"
        last = 0
        while page := self._connection.run(
            "SELECT number FROM approvals WHERE number > ? AND expires < ? AND NOT EXISTS "
            "(SELECT 1 FROM runs WHERE runs.run_id = approvals.run_id) "
            f"ORDER BY number LIMIT {_PAGE_ROWS}",
            (last, before),
        ):
            last = page[-1][0]
            for piece in self._pieces(page):
                numbers = [number for (number,) in piece]
                among = f"number IN ({_marks(numbers)}) AND {lone}"
                given = (*numbers, before)
                self._in_transaction(partial(self._delete, "approvals", among, given))

    # ------------------------------------------------------------------ long results

    def delete_results(self) -> None:
        """Delete long results that are older than their retention, except those of runs under way."""
        old = self._old_results
        last = ("", "")
        while page := self._connection.run(
            f"SELECT run_id, handle, length(body) FROM kept WHERE (run_id, handle) > (?, ?) AND {old} "
            f"ORDER BY run_id, handle LIMIT {_PAGE_ROWS}",
            last,
        ):
            last = page[-1][:2]
            live = self._live_runs(list({row[0] for row in page}))
            going = [row for row in page if row[0] not in live]
            self._delete_result_rows(going, f" AND {old}")

    def _delete_results_of(self, run_ids: Sequence[str]) -> None:
        """Delete the long results of runs that are about to go: in transactions of their own, since they are large."""
        if self._dry_run or not run_ids:
            return
        rows = self._connection.run(
            f"SELECT run_id, handle, length(body) FROM kept WHERE run_id IN ({_marks(run_ids)})",
            run_ids,
        )
        self._delete_result_rows(rows)

    def _delete_result_rows(
        self, rows: Sequence[Sequence[Any]], condition: str = ""
    ) -> None:
        bytes_a_row = MAX_PIECE_BYTES / MAX_PIECE_ROWS
        for piece in self._pieces(rows, weight=lambda row: 1 + row[2] / bytes_a_row):
            marks = ", ".join(["(?, ?)"] * len(piece))
            names = [part for row in piece for part in row[:2]]
            live = _OF_LIVE_RUN.format(table="kept")
            among = f"(run_id, handle) IN (VALUES {marks}){condition} AND NOT {live}"
            self._in_transaction(partial(self._delete, "kept", among, names))

    # ------------------------------------------------------------------ writes

    def delete_writes(self) -> None:
        """Delete writes with a key whose period is over, and those of no stored run that no other run knows."""
        periods = [
            self._retention.runs_s,
            self._retention.writes_s,
            *self._retention.tools_s.values(),
        ]
        given = [period for period in periods if period is not None]
        if not given:
            return
        newest = self._now - min(given)
        for first, last in self._stretches("effects", newest):
            page = self._connection.run(
                "SELECT number, scope, key, fingerprint, run_id, state, updated, tool FROM effects "
                f"WHERE number > ? AND number <= ? AND updated < ? AND {_SETTLED} ORDER BY number",
                (first, last, newest),
            )
            for piece in self._pieces(self._writes_to_delete(page)):
                self._in_transaction(partial(self._delete_write_rows, piece, newest))

    def _writes_to_delete(self, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        run_ids = list({row[4] for row in rows if row[4]})
        stored = set(self._names("run_id", "runs", "", run_ids))
        stays = self._live_runs(run_ids)
        stays.update(self._names("forked_from", "runs", _FORKS, run_ids))
        going = []
        for row in rows:
            _, _, key, _, run_id, state, updated, tool = row
            if _is_own(key, run_id):
                period_s = None if run_id in stored else self._retention.runs_s
            elif state == "failed":
                # its key is free in any case
                period_s = self._retention.runs_s or self._retention.of_writes(tool)
            else:
                period_s = None if run_id in stays else self._retention.of_writes(tool)
            if period_s is not None and updated < self._now - period_s:
                going.append(row)
        return going

    def _delete_write_rows(
        self, rows: Sequence[Sequence[Any]], newest: float = float("inf")
    ) -> None:
        """Delete writes, and what says that other runs know them again."""
        if not rows:
            return
        numbers = [row[0] for row in rows]
        settled = f"number IN ({_marks(numbers)}) AND {_SETTLED}"
        given: list[Any] = list(numbers)
        if newest != float("inf"):
            live = _OF_LIVE_RUN.format(table="effects")
            settled += f" AND updated < ? AND (state = 'failed' OR NOT {live})"
            given.append(newest)
        if self._held:
            settled = (
                f"number IN (SELECT number FROM effects WHERE {settled}{self._held})"
            )
        self._delete("effects", settled, given)
        acts = [part for row in rows for part in (row[1], row[3], row[2])]
        marks = ", ".join(["(?, ?, ?)"] * len(rows))
        gone = " AND NOT EXISTS (SELECT 1 FROM effects AS e WHERE e.scope = acts.scope AND e.key = acts.key)"
        self._delete(
            "acts",
            f"(scope, fingerprint, key) IN (VALUES {marks}){'' if self._dry_run else gone}",
            acts,
        )

    def _stretches(self, table: str, newest: float) -> Iterator[tuple[int, int]]:
        """Yield stretches of a table's numbers, until one holds no row that was changed before a time."""
        first = 0
        while True:
            [[last, oldest]] = self._connection.run(
                f"SELECT max(number), min(updated) FROM (SELECT number, updated FROM {table} "
                f"WHERE number > ? ORDER BY number LIMIT {_WALK_ROWS}) AS stretch",
                (first,),
            )
            if last is None or oldest >= newest:
                return
            yield first, last
            first = last

    # ------------------------------------------------------------------ the audit log

    def shorten_log(self, period_s: float) -> None:
        """Delete the beginning of the log, as far as it is old and about no stored run; see Rule 3."""
        before = self._now - period_s
        before = min([before, *self._oldest_runs()])
        last = self._last_record_before(before)
        if not self._connection.run(
            "SELECT 1 FROM audit WHERE seq <= ? AND event <> ? LIMIT 1",
            (last, SHORTENED),
        ):
            return  # the record of this deletion would only replace that of the last one
        if self._dry_run:
            self._delete("audit", "seq <= ?", (last,))
            return
        if last > self._find_recorded_shortening() and not self._record_shortening(
            last
        ):
            return
        [[first]] = self._connection.run("SELECT min(seq) FROM audit")
        while first <= last:
            until = min(first + self._piece_rows - 1, last)
            self._in_transaction(partial(self._delete, "audit", "seq <= ?", (until,)))
            first = until + 1

    def _oldest_runs(self) -> list[float]:
        """Return when runs began that are stored, the oldest among them."""
        if not self._dry_run:
            rows = self._connection.run("SELECT min(created) FROM runs")
            return [began for (began,) in rows if began is not None]
        assert self._retention.runs_s is not None
        rows = self._connection.run(
            f"SELECT min(created) FROM runs WHERE NOT ({_ENDED} AND updated < ?)",
            (self._now - self._retention.runs_s,),
        )
        return [began for (began,) in rows if began is not None] + self._staying_since

    def _last_record_before(self, before: float) -> int:
        """Return the number of the last record at the beginning that was made before a time; 0 where there is none."""
        last = 0
        page_rows = _WALK_ROWS
        while True:
            [[end, newest]] = self._connection.run(
                "SELECT max(seq), max(at) FROM (SELECT seq, at FROM audit "
                f"WHERE seq > ? ORDER BY seq LIMIT {page_rows}) AS page",
                (last,),
            )
            if end is not None and newest < before:
                last = end
            elif end is None or page_rows == 1:
                return last
            else:
                page_rows = max(1, page_rows // 8)

    def _find_recorded_shortening(self) -> int:
        """Return the number up to which the log says that it was shortened; some of that may still be there."""
        rows = self._log_notes(SHORTENED, _BEYOND_ALL)
        return max((int(body["through"]) for body in rows), default=0)

    def _log_notes(self, event: str, last: int) -> list[dict[str, Any]]:
        """Return the bodies of records of no run."""
        rows = self._connection.run(
            "SELECT body FROM audit WHERE run_id = '' AND seq <= ? AND event = ? ORDER BY seq",
            (last, event),
        )
        return [decode(body) for (body,) in rows]

    def _record_shortening(self, last: int) -> bool:
        """Say in the log that it is shortened; return whether it is still there: another keeper may be quicker."""
        rows = self._connection.run("SELECT hash FROM audit WHERE seq = ?", (last,))
        if not rows:
            return False
        [[hash]] = rows
        ended_keys = [
            str(body["key"])
            for body in self._log_notes(KEY_REPLACED, last)
            if "key" in body
        ]
        # also those that another keeper has just named, behind what goes
        for body in self._log_notes(SHORTENED, _BEYOND_ALL):
            ended_keys += body.get("keys", [])
        entry = shortening(last, hash, by=self._by, keys=sorted(set(ended_keys)))
        self._store.append_audit([entry]).result()
        self._store.complete_log().result()  # so that another keeper sees it
        return True

    # ------------------------------------------------------------------ transactions

    @property
    def _old_results(self) -> str:
        """The condition of long results that go by their own age."""
        period_s = self._retention.results_s or self._retention.runs_s
        before = 0.0 if period_s is None else self._now - period_s
        return f"(created < {before!r} OR expires < {self._now!r})"

    @property
    def _held(self) -> str:
        """How a statement holds the rows that it reads, passing by those that others hold."""
        return "" if self._dry_run else self._connection.holds_rows

    def _delete(self, table: str, condition: str, given: Sequence[Any]) -> None:
        if self._dry_run:
            statement = f"SELECT count(*) FROM {table} WHERE {condition}"
            [[count]] = self._connection.run(statement, given)
        else:
            statement = f"DELETE FROM {table} WHERE {condition} RETURNING 1"
            count = len(self._connection.run(statement, given))
        setattr(self.deleted, table, getattr(self.deleted, table) + count)

    def _in_transaction(self, delete: Callable[[], None]) -> None:
        """Delete in a transaction of its own, then rest. Rows that somebody holds wait for the next pass."""
        if self._dry_run:
            delete()
            return
        counts = asdict(self.deleted)
        began = monotonic()
        try:
            self._connection.begin()
            held_since = monotonic()
            delete()
            self._connection.commit()
        except RetryGroup:
            self._connection.rollback()
            self.deleted = Deleted(**counts)
            held_since = began
        except BaseException:
            self._connection.rollback()
            raise
        took_s = monotonic() - held_since
        self._adapt(took_s)
        self._rest_after(took_s)

    def _rest_after(self, took_s: float) -> None:
        """Let others have the store, for longer than a transaction took."""
        self._transactions += 1
        if self._transactions % TRANSACTIONS_A_CHECKPOINT == 0:
            self._connection.checkpoint()
        self._rest(self._rest_factor * took_s)

    def _adapt(self, took_s: float) -> None:
        if took_s > self._piece_s:
            self._piece_rows = max(self._piece_rows // 2, 1)
        elif took_s < self._piece_s / 3:
            self._piece_rows = min(self._piece_rows * 2, MAX_PIECE_ROWS)

    def _pieces(
        self,
        rows: Iterable[Sequence[Any]],
        weight: Callable[[Sequence[Any]], float] = lambda _: 1,
    ) -> Iterator[list[Sequence[Any]]]:
        """Yield rows in pieces as heavy as one transaction takes; a single row may be heavier."""
        piece: list[Sequence[Any]] = []
        total = 0.0
        for row in rows:
            heavy = weight(row)
            if piece and total + heavy > self._piece_rows:
                yield piece
                piece = []
                total = 0.0
            piece.append(row)
            total += heavy
        if piece:
            yield piece


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


_PLACE = re.compile(r"(?:[0-9a-f]{8}/)?\d+/\d+")
"""What `keys.default_key` writes behind the name of a run; any other key is its author's, whatever it begins with."""


def _is_own(key: str, run_id: str) -> bool:
    """Whether a write's key is its place in its run: only a run of that name can ask for it again."""
    own = decode_name(run_id)
    if own.startswith("@"):
        own = own.partition("/")[2] or own  # as stored for a tenant
    given = decode_name(key)
    return given.startswith(f"{own}/") and bool(
        _PLACE.fullmatch(given.removeprefix(f"{own}/"))
    )
