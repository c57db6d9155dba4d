"""The audit log of a database that many processes write to at once: one chain, for which nobody waits.

The chain has one end, and whoever adds to it holds the end until its commit is on the disk. If all others waited for
that, many processes would commit one after the other, with few records each. So nobody waits: whoever finds the end
taken commits its records *pending*, in the same transaction as whatever they belong to, and they are chained a moment
later, by its own process or another one, many in one transaction.

Pending records are a chain of their own for each writer: they are numbered, and each has the hash of the one before it,
under the log's key. Whoever chains them checks that, and puts a record `AuditPendingBroken` into the log where one was
changed, inserted or taken out; a log with such a record is broken. What was cut off at the end of a writer's pending
records is not found, as at the end of any log.

Rule 1: a record is in the database once, as a whole, from the commit on that it belongs to: pending, or in the chain.
Rule 2: a writer's records come into the chain in the order in which it wrote them.
Rule 3: nothing pending is left under a key that was replaced.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain
from secrets import token_hex
from typing import Any

from msgspec import Struct

from handrail.audit.chain import FIRST, PENDING_BROKEN, canonical_json, count_in, digest
from handrail.errors import StoreUnavailable
from handrail.records import AuditRecord
from handrail.stores.database import Connection, Database, Refused, RetryGroup
from handrail.stores.foreseen import (
    ForeseenGroup,
    GroupAnswer,
    NewRecords,
    Unforeseen,
)
from handrail.stores.sql_runs import DurableRuns
from handrail.stores.sql_values import encode_json, statements
from handrail.workers import fork_safety

_SQL = statements("postgres.sql")
_APPEND = statements("runs.sql")["append"]

CHAIN_S = 0.1
"""How long records stay pending while their writer lives, unless others are quicker."""

SWEEP_S = 0.5
"""How long a writer has the turn to chain what is pending, unless it takes it again; others look that often."""

MAX_CHAINED_ROWS = 2000
"""How many are chained in one transaction: some 20 ms."""

# Long after any run: whoever is alive and has written nothing pending for so long numbers its records from 1.
_FORGET_WRITERS_S = 30 * 24 * 3600.0

_LOCKS = 0x68616E64
"""The space of our advisory locks: 1024 of it is the end of the log, 1025 its key; see `take_log_1`."""


class _LogEnd(Struct, frozen=True):
    """The state of the log, and whether its end is ours until the commit.

    Attributes:
        seq: Of the last record in the chain; None in an empty log.
        key_replaced: The key was replaced behind the record that we asked about.
        number: Of our last pending record; None where we had none.
    """

    is_mine: bool
    has_pending: bool
    seq: int | None
    hash: str | None
    key_replaced: bool
    number: int | None
    pending_hash: str | None


class _Pending(Struct, frozen=True):
    """A record without a place in the chain, and up to where its writer's records have one."""

    id: int
    writer: str
    number: int
    at: float
    run_id: str
    event: str
    body: str
    prev: str
    hash: str
    chained_number: int | None
    chained_hash: str | None
    seal: str | None


class SharedLog(DurableRuns):
    """A durable store whose audit log many processes write to at once."""

    def __init__(self, connection: Connection, place: str) -> None:
        fork_safety.reset_after_fork(self._begin_log)
        super().__init__(connection, place)

    def _begin_log(self) -> None:
        """Begin as a new writer of the log; each process is another one."""
        self._log_writer = token_hex(8)
        self._end: tuple[int, str] | None = None
        """Number and hash of the last record that we have put into the chain: perhaps its end."""
        self._pended: tuple[int, str] | None = None
        """Number and hash of our last pending record; of none, zero and the first hash."""
        self._checked_seq = 0
        """Up to where the log has the key that we checked."""

    # ------------------------------------------------------------------ adding

    def _append_audit_rows(
        self,
        database: Database,
        now: float,
        groups: Sequence[Sequence[tuple[str, str, str, int]]],
    ) -> Sequence[StoreUnavailable | None]:
        """Add rows to the chain where its end is free, else pending; see `DurableRuns._append_audit_rows`."""
        if isinstance(database, ForeseenGroup):
            self._foresee_audit_rows(database, now, groups)
            return [None] * len(groups)
        end = self._take_log(database)
        if end.seq is None and not end.is_mine:
            # the first record decides which key the log has
            end = self._take_log(database, patient=True)
        if end.has_pending:
            self._writer.run_later(self._chain_later, within_s=CHAIN_S)
        if end.is_mine and not end.has_pending:
            count = end.seq or 0
            prev = end.hash or FIRST
            answers = self._chain_rows(database, now, groups, count=count, prev=prev)
            if not any(answers):
                taken = sum(row[3] for row in chain.from_iterable(groups))
                self._checked_seq = count
                self._end = (count + taken, self._last_hash)
            return answers
        if self.audit_key != self._checked_key or end.key_replaced:
            _, why = self._find_key(database)
            if why:
                return [StoreUnavailable(why) for _ in groups]
        self._checked_seq = end.seq or 0
        self._add_pending(database, now, groups, end)
        self._writer.run_later(self._chain_later, within_s=CHAIN_S)
        return [None] * len(groups)

    def _take_log(self, database: Database, *, patient: bool = False) -> _LogEnd:
        """Take the end of the log if it is free; return its state. If `patient`, wait until it is free."""
        given = (_LOCKS, self._log_writer, self._checked_seq, patient)
        [row] = database.run(_SQL["take_log"], given)
        end = _LogEnd(*row)
        self._pended = (end.number or 0, end.pending_hash or FIRST)
        return end

    def _add_pending(
        self,
        database: Database,
        now: float,
        groups: Sequence[Sequence[tuple[str, str, str, int]]],
        end: _LogEnd,
    ) -> None:
        pended = (end.number or 0, end.pending_hash or FIRST)
        places = list(self._pending_places(now, groups, pended))
        rows = [
            (self._log_writer, number, now, run_id, event, body, prev, hash)
            for (run_id, event, body, _), (number, prev, hash) in zip(
                chain.from_iterable(groups), places, strict=True
            )
        ]
        database.write_rows(_SQL["pend"], rows)
        self._pended = (places[-1][0], places[-1][2])
        database.write_rows(_SQL["pended"], [(self._log_writer, *self._pended)])

    def _pending_places(
        self,
        now: float,
        groups: Sequence[Sequence[tuple[str, str, str, int]]],
        pended: tuple[int, str],
    ) -> Iterator[tuple[int, str, str]]:
        """Yield the number, previous hash and hash that each row has while it is pending."""
        number, prev = pended
        for run_id, event, body, _ in chain.from_iterable(groups):
            number += 1
            hash = digest(
                number, now, run_id,
                event=event, body=body, prev=prev, key=self.audit_key,
            )  # fmt: skip
            yield number, prev, hash
            prev = hash

    def _foresee_audit_rows(
        self,
        group: ForeseenGroup,
        now: float,
        groups: Sequence[Sequence[tuple[str, str, str, int]]],
    ) -> None:
        """Add rows with their places in the chain, if its end is still our record, and with those of pending ones.

        Raises:
            Unforeseen: We do not know our last pending record, or whether the log has our key.
        """
        end = self._end or (0, "")  # which is no end of a log
        pended = self._pended
        if pended is None or self.audit_key != self._checked_key:
            raise Unforeseen
        seq, prev = end
        rows = []
        places = self._pending_places(now, groups, pended)
        for (run_id, event, body, taken), place in zip(
            chain.from_iterable(groups), places, strict=True
        ):
            seq += taken
            hash = digest(
                seq, now, run_id,
                event=event, body=body, prev=prev, key=self.audit_key,
            )  # fmt: skip
            rows.append((run_id, event, body, seq, prev, hash, *place))
            prev = hash
        last_end = (seq, prev)
        last_pended = (rows[-1][6], rows[-1][8])

        def learn(answer: GroupAnswer | None) -> None:
            if answer is None:  # committed, in one of the two ways
                self._end = self._pended = None
                self._writer.run_later(self._chain_later, within_s=CHAIN_S)
                return
            self._checked_seq = answer.seq or 0
            if answer.is_chained:
                self._end = last_end
                self._last_hash = last_end[1]
            else:
                self._pended = last_pended
            if answer.has_pending or not answer.is_chained:
                self._writer.run_later(self._chain_later, within_s=CHAIN_S)

        group.add_records(
            NewRecords(
                self._log_writer, self._checked_seq, end, pended, last_pended, rows
            ),
            learn,
        )

    # ------------------------------------------------------------------ chaining

    def _chain_later(self, connection: Connection, is_closing: bool) -> None:
        """Chain what is pending, of whoever it is, until nothing is; where another writer does that, look after it."""
        if is_closing:
            if not self._chain_all(connection, patient=True):
                connection.run(_SQL["forget_writer"], (self._log_writer,))
            return
        again_s = SWEEP_S
        try:
            taken = connection.run(_SQL["take_sweep"], (self._log_writer, SWEEP_S))
            [(is_mine, has_pending)] = taken
            if not has_pending:
                again_s = 0.0
            elif is_mine:
                again_s = CHAIN_S
                self._chain_all(connection, patient=False)
        finally:
            if again_s:
                self._writer.run_later(self._chain_later, within_s=again_s)

    def _chain_all(self, connection: Connection, *, patient: bool) -> bool:
        """Chain what is pending, in one transaction after the other; return whether something may be left."""
        count = MAX_CHAINED_ROWS
        while count == MAX_CHAINED_ROWS:
            now = connection.begin()
            try:
                connection.run(_SQL["lazily"])
                end = self._take_log(connection, patient=patient)
                if not end.has_pending:
                    return False
                if not end.is_mine:
                    return True
                if self._find_key(connection)[1]:
                    return True  # it is left to somebody who has the key
                count = self._chain_pending(connection, now, end)
                connection.run(_SQL["forget_writers"], (now - _FORGET_WRITERS_S,))
                connection.commit()
            finally:
                connection.rollback()
        return False

    def _chain_pending(self, database: Database, now: float, end: _LogEnd) -> int:
        """Give records that are pending their place in the chain, whose end is ours; return how many were looked at.

        Raises:
            RetryGroup: Another process was quicker, which knows nothing of locks.
        """
        rows = [
            _Pending(*row) for row in database.run(_SQL["pending"], (MAX_CHAINED_ROWS,))
        ]
        placing = _Placing(self.audit_key, end.seq or 0, end.hash or FIRST, now)
        for row in rows:
            placing.place(row)
        if placing.findings:
            database.write_rows(_APPEND, placing.findings, every=True)
            database.run(_SQL["refuse"], (placing.refused,))
        database.write_rows(_SQL["chain"], placing.placed, every=True)
        chained = [
            (writer, number, hash, _seal(writer, number, hash, self.audit_key), now)
            for writer, (number, hash) in placing.last.items()
        ]
        database.write_rows(_SQL["chained"], chained)
        self._last_hash = placing.prev
        self._checked_seq = placing.seq
        self._end = (placing.seq, placing.prev)
        return len(rows)

    def _take_whole_log(self, database: Database, now: float) -> None:
        """See `DurableRuns._take_whole_log`."""
        database.run(_SQL["take_key"], (_LOCKS,))
        end = self._take_log(database, patient=True)
        # under a key that is not ours nothing is chained, and the key is not replaced
        while not self._find_key(database)[1]:
            if not end.has_pending:
                self._pended = None
                database.run(_SQL["forget_all_writers"])
                return
            self._chain_pending(database, now, end)
            end = self._take_log(database)

    # ------------------------------------------------------------------ reading

    def complete_log(self) -> Future[int]:
        """See `DurableRuns.complete_log`."""

        def complete(connection: Connection) -> int:
            if not connection.run("SELECT 1 FROM audit_pending ORDER BY id LIMIT 1"):
                return 0
            with suppress(StoreUnavailable, Refused, RetryGroup):
                self._chain_all(connection, patient=True)
            [[count]] = connection.run("SELECT count(*) FROM audit_pending")
            return int(count)

        return self._writer.submit(complete)

    def log(
        self, *, after: int = 0, run_id: str = "", most: int = 1000
    ) -> Future[Sequence[AuditRecord]]:
        """See `ports.AuditStore.log`."""
        records: Future[Sequence[AuditRecord]] = Future()
        records.set_running_or_notify_cancel()

        def answer(loaded: Future[Sequence[AuditRecord]]) -> None:
            if error := loaded.exception():
                records.set_exception(error)
            else:
                records.set_result(loaded.result())

        def load(completed: Future[int]) -> None:
            try:
                completed.result()
                loaded = super(SharedLog, self).log(
                    after=after, run_id=run_id, most=most
                )
            except Exception as error:
                records.set_exception(error)
            else:
                loaded.add_done_callback(answer)

        self.complete_log().add_done_callback(load)
        return records


class _Placing:
    """Gives pending records their place behind the end of the chain, one after the other.

    Attributes:
        placed: Of each the id, and its number, previous hash and hash in the chain.
        findings: Rows of records that say what was found wrong.
        refused: The ids of records that were changed.
        last: Number and hash of each writer's last record, as it was pending.
    """

    def __init__(self, key: bytes, seq: int, prev: str, now: float) -> None:
        self._key = key
        self._now = now
        self.seq = seq
        self.prev = prev
        self.placed: list[tuple[int, int, str, str]] = []
        self.findings: list[tuple[Any, ...]] = []
        self.refused: list[int] = []
        self.last: dict[str, tuple[int, str]] = {}

    def place(self, row: _Pending) -> None:
        """Check a record and place it; for one that was changed, place a record that says so."""
        if row.writer not in self.last:
            self.last[row.writer] = self._chained_until(row)
        number, prev = self.last[row.writer]
        if row.number != number + 1:
            self._add_finding(row, f"after {number} comes {row.number}")
        elif row.prev != prev:
            self._add_finding(row, f"{row.number} does not follow {number}")
        self.last[row.writer] = (row.number, row.hash)
        found = self._digest(
            row.number, row.at, row.run_id, row.event, row.body, row.prev
        )
        if not hmac.compare_digest(found, row.hash):
            shown = {"run_id": row.run_id, "event": row.event, "body": row.body}
            self._add_finding(
                row, f"{row.number} was changed, or hashed with another key", shown
            )
            self.refused.append(row.id)
            return
        self.seq += count_in(row.event, row.body)
        hash = self._digest(
            self.seq, row.at, row.run_id, row.event, row.body, self.prev
        )
        self.placed.append((row.id, self.seq, self.prev, hash))
        self.prev = hash

    def _chained_until(self, row: _Pending) -> tuple[int, str]:
        """Return number and hash of the writer's last record that has a place in the chain."""
        if row.chained_number is None or row.chained_hash is None:
            return 0, FIRST
        seal = _seal(row.writer, row.chained_number, row.chained_hash, self._key)
        if row.seal != seal:
            self._add_finding(
                row, f"the note that {row.chained_number} was chained is forged"
            )
        return row.chained_number, row.chained_hash

    def _add_finding(
        self, row: _Pending, why: str, shown: Mapping[str, str] | None = None
    ) -> None:
        """Add a record that says what is wrong with the pending records of a writer."""
        body = {"writer": row.writer, "why": why, **(shown or {})}
        text = encode_json(body, canonical_json)
        self.seq += 1
        hash = self._digest(self.seq, self._now, "", PENDING_BROKEN, text, self.prev)
        self.findings.append(
            (self.seq, self._now, "", PENDING_BROKEN, text, self.prev, hash)
        )
        self.prev = hash

    def _digest(
        self, seq: int, at: float, run_id: str, event: str, body: str, prev: str
    ) -> str:
        return digest(seq, at, run_id, event=event, body=body, prev=prev, key=self._key)


def _seal(writer: str, number: int, hash: str, key: bytes) -> str:
    """Return what proves, under a key, up to where a writer's records were chained."""
    return digest(number, 0.0, writer, event="chained", body="{}", prev=hash, key=key)
