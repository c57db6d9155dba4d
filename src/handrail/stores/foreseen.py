"""A group that is decided on what the database is expected to hold, and sent to a server as one message.

A group that looks, decides and writes exchanges five messages with the server. Nearly always it finds what its process
expects: a new key has no row, a write that is settled is as its own process claimed it, a run as its last entry left
it. So the group is decided on that, by the same ledger and the same operations, and the server gets what was
expected and what is to be written. It looks, writes and commits, or finds something else and commits nothing: then the
group is decided again on what is there.

Rule 1: every answer to a caller rests on something that the server has compared, in the transaction that it committed.
Rule 2: what is remembered here may be wrong, and costs another message then; nothing is decided by it alone.
Rule 3: the server decides nothing: it compares, writes, and says whether records of the log are pending.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from handrail.stores.database import (
    RESULT_LIFETIME_S,
    RetryGroup,
    SavedResult,
    Values,
    WriteName,
)
from handrail.stores.ledger import Restored, Row
from handrail.stores.sql_values import row_values, statements
from handrail.surroundings.clock import monotonic

_SQL = statements("runs.sql")
ENTER = _SQL["enter"]

MAX_REMEMBERED = 10_000
"""How many runs, and how many writes under way, are remembered: more than one process carries."""

MAX_RESULT_BYTES = 256 * 1024
"""The size of a long result up to which it travels with its group."""

_BEGUN = 8
"""The position of `begun` among the columns of a row."""

K = TypeVar("K")
V = TypeVar("V")


class Unforeseen(RetryGroup):
    """What a group has to read is not remembered here: it is decided on the rows that are there."""


class NewRecords(Struct, frozen=True):
    """Records for the audit log, with their places behind its expected end, and among its writer's pending ones.

    Attributes:
        checked_seq: Up to where the log has our key.
        end: Number and hash of the record that is expected to be the last.
        pended: Number and hash of the writer's last pending record.
        last_pended: The same once these are pending.
        rows: Of each record run, event and body; number, previous hash and hash as chained; the same as pending.
    """

    writer: str
    checked_seq: int
    end: tuple[int, str]
    pended: tuple[int, str]
    last_pended: tuple[int, str]
    rows: Sequence[tuple[Any, ...]]


class GroupAnswer(Struct, frozen=True):
    """What the server says of a group that it has committed.

    Attributes:
        clock: The server's time before it did anything.
        is_chained: Records were put behind the end of the log; else they are pending. None where there were none.
        has_pending: There were pending records before. None where the log ended with a record of another process.
        seq: The number of the last record in the chain, before.
    """

    clock: float
    is_chained: bool | None
    has_pending: bool | None
    seq: int | None


class Recollection:
    """What a connection remembers of what it has read and written."""

    def __init__(self) -> None:
        self._clock: tuple[float, float] | None = None
        self._writes: OrderedDict[tuple[str, str], Values] = OrderedDict()
        self._runs: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def note_clock(self, now: float) -> None:
        """Remember the server's time, as it was when the answer was sent."""
        self._clock = (now, monotonic())

    def clock(self) -> float | None:
        """Return the server's time, or a little earlier; None before the first answer."""
        if self._clock is None:
            return None
        now, ticks = self._clock
        return now + monotonic() - ticks

    def note_writes(self, rows: Iterable[Row], owner: str) -> None:
        """Remember writes that are under way, as they were written, and forget those that are not."""
        for row in rows:
            if row.state == "claimed":
                values = (*row_values(row), row.owner or owner)
                _remember(self._writes, (row.scope, row.key), values)
            else:
                self._writes.pop((row.scope, row.key), None)

    def write(self, scope: str, key: str) -> Values | None:
        """Return the columns of a write that is under way."""
        return self._writes.get((scope, key))

    def note_entries(
        self, entries: Sequence[Sequence[Any]], entered: Sequence[Sequence[Any]]
    ) -> None:
        """Remember how many steps runs have, from the rows that `enter` took and returned; forget ended runs."""
        counts = {run_id: count for run_id, _, count in entered}
        for run_id, epoch, _, status, *_ in entries:
            if run_id not in counts or status not in (None, "running"):
                self._runs.pop(run_id, None)
            else:
                _remember(self._runs, run_id, (epoch, counts[run_id]))

    def step_count(self, run_id: str, epoch: int) -> int | None:
        """Return how many steps a run of ours has."""
        entry = self._runs.get(run_id)
        return entry[1] if entry is not None and entry[0] == epoch else None


def _remember(remembered: OrderedDict[K, V], key: K, value: V) -> None:
    remembered[key] = value
    remembered.move_to_end(key)
    if len(remembered) > MAX_REMEMBERED:
        remembered.popitem(last=False)


class ForeseenGroup:
    """The transaction of a group on what is expected; see `database.Transaction`.

    Args:
        send: Carries the parts of the group to the server, as `commit_group_2` takes them, and returns its answer;
            None where it was committed and the answer was lost. Raises `RetryGroup` where it was not committed.
    """

    restored: Restored | None = None

    def __init__(
        self,
        recollection: Recollection,
        owner: str,
        send: Callable[[Sequence[Any]], GroupAnswer | None],
    ) -> None:
        self._recollection = recollection
        self._owner = owner
        self._send = send
        self._now = 0.0
        self._names: Sequence[WriteName] = ()
        self._expected: dict[tuple[str, str], Values] = {}
        self._runs: list[Sequence[Any]] = []
        self._entries: dict[str, Sequence[Any]] = {}
        self._entered: list[tuple[str, int, int]] = []
        self._steps: list[Sequence[Any]] = []
        self._writes: tuple[Sequence[Row], Sequence[Row], Sequence[SavedResult]] = (
            (),
            (),
            (),
        )
        self._records: NewRecords | None = None
        self._answered: Callable[[GroupAnswer | None], None] | None = None

    def __getattr__(self, name: str) -> Any:
        """Refuse whatever else an operation may want of its connection.

        Raises:
            Unforeseen: Always.
        """
        raise Unforeseen

    def begin(self) -> float:
        """See `database.Transaction.begin`: the server's time as we know it, which it compares with its own."""
        now = self._recollection.clock()
        if now is None:
            raise Unforeseen
        self._now = now
        return now

    def now(self) -> float:
        """See `database.Database.now`: whoever asks for it needs a transaction of the server."""
        raise Unforeseen

    def rows(self, names: Sequence[WriteName]) -> Iterable[Values]:
        """See `database.Transaction.rows`: no row for a claim, and our own for what ends or goes on."""
        self._names = names
        for scope, key, run_id, _ in names:
            values = self._recollection.write(scope, key)
            if values is None:
                continue
            if run_id is not None:
                raise Unforeseen  # claimed once more
            self._expected[scope, key] = values
        return sorted(self._expected.values(), key=lambda values: values[_BEGUN])

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `database.Statements.run`: a run that begins is a new one; nothing else is foreseen."""
        if statement not in (_SQL["begin"], _SQL["begin_new"]):
            raise Unforeseen
        run_id, toolset, journal_v, forked_from, forked_at, input, *times, owner = given
        self._runs.append(given)
        self._entered.append((run_id, 1, 0))
        return [
            (
                run_id, input, "running", toolset, 1, None, 0, forked_from, forked_at,
                *times, journal_v, owner, 0,
            )
        ]  # fmt: skip

    def run_with(
        self, statement: str, rows: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...]]:
        """See `database.Statements.run_with`: runs that go on are still ours, and nobody wants them cancelled."""
        if statement != ENTER:
            raise Unforeseen
        return [self._enter(row) for row in rows]

    def _enter(self, row: Sequence[Any]) -> tuple[Any, ...]:
        run_id, epoch, *_, new_steps = row
        counts = [
            count for id, of, count in self._entered if (id, of) == (run_id, epoch)
        ]
        count = counts[-1] if counts else self._recollection.step_count(run_id, epoch)
        if count is None or run_id in self._entries:
            raise Unforeseen
        self._entries[run_id] = (*row, count)
        self._entered.append((run_id, epoch, count + new_steps))
        return run_id, 0, count + new_steps

    def write_rows(
        self, statement: str, rows: Sequence[Sequence[Any]], *, every: bool = False
    ) -> None:
        """See `database.Statements.write_rows`: the steps of entries."""
        if statement != _SQL["step"] or every:
            raise Unforeseen
        self._steps += rows

    def add_records(
        self, records: NewRecords, answered: Callable[[GroupAnswer | None], None]
    ) -> None:
        """Add records to the audit log.

        Args:
            answered: Called once the group was committed, with the server's answer if that came.
        """
        if self._records is not None:
            raise Unforeseen
        self._records = records
        self._answered = answered

    def write(
        self, new: Sequence[Row], old: Sequence[Row], results: Sequence[SavedResult]
    ) -> None:
        """See `database.Transaction.write`."""
        changed = {(row.scope, row.key) for row in old}
        if changed != self._expected.keys():
            raise Unforeseen  # an answer would rest on a row that the server does not compare
        if any(len(each.body) > MAX_RESULT_BYTES for each in results):
            raise Unforeseen
        self._writes = (new, old, results)

    def commit(self) -> None:
        """See `database.Transaction.commit`."""
        answer = self._send(self._parts())
        new, old, _ = self._writes
        self._recollection.note_writes((*new, *old), self._owner)
        started = [(run[0], 1, None, None) for run in self._runs]
        entered = [(run_id, 0, count) for run_id, _, count in self._entered]
        self._recollection.note_entries([*started, *self._entries.values()], entered)
        if self._answered is not None:
            self._answered(answer)

    def _parts(self) -> Sequence[Any]:
        """Return what `commit_group_2` takes behind the writer and its count."""
        new, old, results = self._writes
        new_rows = sorted(map(row_values, new))
        claimed = {values[:2] for values in new_rows}
        acts = [
            (scope, run_id, print)
            for scope, _, run_id, print in self._names
            if run_id is not None
        ]
        absent = [
            name[:2]
            for name in self._names
            if name[:2] not in claimed and name[:2] not in self._expected
        ]
        saved = [
            (each.run_id, each.handle, each.body, RESULT_LIFETIME_S) for each in results
        ]
        return (
            self._now,
            acts,
            absent,
            sorted(map(self._changed_row, old)),
            self._runs,
            sorted(self._entries.values(), key=lambda entry: entry[0]),
            self._steps,
            new_rows,
            saved,
            () if self._records is None else _spell_records(self._records),
        )

    def _changed_row(self, row: Row) -> tuple[Any, ...]:
        """Return a write by its name, its expected row, and its new row."""
        expected = self._expected[row.scope, row.key]
        fence, state, lease_until = expected[6], expected[4], expected[7]
        return (
            row.scope, row.key, fence, state, lease_until,
            row.state, row.lease_until, row.value,
        )  # fmt: skip

    def rollback(self) -> None:
        """See `database.Transaction.rollback`.

        Raises:
            Unforeseen: Nothing was to be written; yet the server has not compared what the answers rest on.
        """
        raise Unforeseen


def _spell_records(records: NewRecords) -> Sequence[Any]:
    return (
        records.writer,
        records.checked_seq,
        *records.end,
        *records.pended,
        *records.last_pended,
        records.rows,
    )
