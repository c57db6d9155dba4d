"""What a durable store has beside claims: runs with their steps, approvals, the ledger for people, the audit log.

Each entry is an operation in the transaction of a group (see `group_commit`): a step is on the disk together with
whatever else was asked at that moment, and nobody waits for a commit of their own.

Rule 1: the statements are those that SQLite and Postgres share, with `?` for what is given.
Rule 2: an operation that is refused has changed nothing by then; the others of its group are committed.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain
from secrets import token_hex
from typing import Any, TypeAlias, cast

from msgspec import DecodeError, Struct
from msgspec.json import decode
from msgspec.structs import replace

from handrail.audit.chain import (
    FIRST,
    canonical_json,
    digest,
    refusal,
    replacement,
    split_group,
)
from handrail.audit.log_key import key_in
from handrail.effects import SettledState
from handrail.errors import ConfigError, Fenced, Json, RunNameTaken, StoreUnavailable
from handrail.futures import then
from handrail.ports import BrowsedRun
from handrail.process_identity import has_died_here
from handrail.records import (
    RUN_CANCELLED,
    ApprovalRequest,
    AuditEntry,
    AuditRecord,
    JournalEntry,
    JournalStep,
    RunRecord,
    StandingApproval,
    StoredRun,
    UnwrittenEntry,
    WriteRecord,
    name_write,
)
from handrail.stores.database import Connection, Database, Refused, RetryGroup
from handrail.stores.group_commit import GATHER_S
from handrail.stores.requests import GroupOperation
from handrail.stores.sql_values import (
    decode_name,
    decode_optional,
    encode_journal,
    encode_json,
    encode_name,
    encode_optional,
    encode_run_id,
    statements,
)
from handrail.stores.submitted import SubmittedRuns

_SQL = statements("runs.sql")

_quote = json.encoder.encode_basestring_ascii

_STEPS = "steps"
"""The kind of a row that holds several steps, as a list of key, kind, body and time."""

HELD_S = 0.02
"""How long an audit record of a harmless read may be held back."""

_AuditRow: TypeAlias = tuple[str, str, str, int]
"""Run, event and body of a row for the log, and how many records it holds."""

_BEYOND_ALL = 2**62
"""A number that no run has."""


class DurableRuns(SubmittedRuns):
    """A durable store that keeps runs, approvals and an audit log too, and whose ledger can be looked into.

    Attributes:
        audit_key: Makes the audit log's hashes those of somebody who has the key; see `chain`.
        audit_key_file: Where the key is read again once the log has another one; empty for nowhere.
    """

    claims_use_approvals = True
    audit_key = b""
    audit_key_file = ""
    takes_groups = True
    """Whether the log takes several records as one entry; see `chain.group_records`."""
    takes_texts = True
    """Whether steps are taken with their bodies as texts; see `JournalStep.text`."""
    takes_unwritten = True
    """Whether the log takes `UnwrittenEntry`, and writes those of many runs in one loop, in the thread that commits."""
    _last_hash = ""
    """The hash of the newest record that this store has added."""
    _checked_key: bytes | None = None
    """The key with which the end of the log was found to be hashed."""

    def __init__(self, connection: Connection, place: str) -> None:
        self._stored_digest_key = _load_digest_key(connection)
        super().__init__(connection, place)

    @property
    def digest_key(self) -> bytes:
        """The key of the digests of results in the audit log: with a key of the log, nobody can make it without that.

        `hmac.digest(key, text.encode(), "sha256")` of a result's text is its digest. After the log's key was replaced
        it is another one.
        """
        if not self.audit_key:
            return self._stored_digest_key
        return hmac.digest(self.audit_key, self._stored_digest_key, "sha256")

    # ------------------------------------------------------------------ runs

    def begin_run(
        self,
        record: RunRecord,
        *,
        new: bool = False,
        unchanged: bool = False,
        steps: Sequence[JournalStep] = (),
    ) -> Future[StoredRun]:
        """See `ports.RunStore.begin_run`."""
        run_id = encode_run_id(record.run_id, is_new=record.epoch == 0)
        owner = encode_name(record.owner)
        forked_from = encode_name(record.forked_from)
        input_json = encode_journal(record.input)
        described = (
            run_id,
            record.toolset,
            record.journal_v,
            forked_from,
            record.forked_at,
            input_json,
        )
        encoded_steps = _encode_steps(steps)

        beginning = _Beginning(
            run_id=run_id,
            epoch=record.epoch,
            record=record,
            described=described,
            owner=owner,
            steps=steps,
            encoded_steps=encoded_steps,
            is_new=new,
            unchanged=unchanged,
        )
        return self._writer.submit(GroupOperation(_begin_runs, beginning))

    def append_entry(self, entry: JournalEntry) -> Future[bool]:
        """See `ports.RunStore.append_entry`."""
        encoded = _EncodedEntry(
            run_id=encode_name(entry.run_id),
            epoch=entry.epoch,
            status=entry.status,
            result=None if entry.result is None else encode_journal(entry.result),
            steps=_encode_together(entry.steps),
        )
        return self._writer.submit(
            GroupOperation(_append_entries, encoded),
            within_s=GATHER_S if entry.may_wait else 0.0,
        )

    def load_run(self, run_id: str) -> Future[StoredRun | None]:
        """See `ports.RunStore.load_run`."""
        run_id = encode_name(run_id)

        return self._reader.ask(lambda database: self._load_stored(database, run_id))

    def _load_stored(self, database: Database, run_id: str) -> StoredRun | None:
        rows = database.run(_SQL["run"], (run_id,))
        if not rows:
            return None
        return StoredRun(_run_record(rows[0]), _steps(database, run_id))

    def list_runs(
        self, *, status: str = "", most: int = 100
    ) -> Future[Sequence[RunRecord]]:
        """See `ports.RunStore.list_runs`."""

        def load(database: Database) -> list[RunRecord]:
            if status:
                rows = database.run(_naming(_SQL["runs_in"], status), (most,))
            else:
                rows = database.run(_SQL["runs"], (most,))
            return [_listed_run(row) for row in rows]

        return self._reader.ask(load)

    def browse_runs(
        self, *, before: int | None = None, since: float = 0.0, most: int = 100
    ) -> Future[Sequence[BrowsedRun]]:
        """See `ports.BrowsableRunStore.browse_runs`."""

        def load(database: Database) -> list[BrowsedRun]:
            below = _BEYOND_ALL if before is None else before
            rows = database.run(_SQL["browse"], (below, since, most))
            steps: dict[str, list[JournalStep]] = {row[1]: [] for row in rows}
            if rows:
                names = [(row[1],) for row in rows]
                for run_id, *row_of_steps in database.run_with(_SQL["steps_of"], names):
                    with suppress(Refused):  # as in `_listed_run`
                        steps[run_id] += _read_steps(run_id, row_of_steps)
            return [
                BrowsedRun(
                    row[0],
                    StoredRun(
                        _listed_run(row[1:]),
                        _without_repeats(steps[row[1]]),
                    ),
                )
                for row in rows
            ]

        return self._reader.ask(load)

    def step_times(self, run_id: str) -> Future[Mapping[str, float]]:
        """See `ports.BrowsableRunStore.step_times`."""
        run_id = encode_name(run_id)

        def load(database: Database) -> dict[str, float]:
            times: dict[str, float] = {}
            for key, kind, body, at in database.run(_SQL["step_times"], (run_id,)):
                for step in _read_steps(run_id, (key, kind, body, 0.0)):
                    times.setdefault(step.key, at)
            return times

        return self._reader.ask(load)

    def request_cancel(self, run_id: str) -> Future[bool]:
        """See `ports.RunStore.request_cancel`."""
        run_id = encode_name(run_id)

        def cancel(database: Database, now: float) -> bool:
            if not database.run(_SQL["cancel"], (now, run_id)):
                return False
            _close_approvals(database, run_id, now)
            # a run that waits for this one, which its call has started, goes on
            self._note_answer(database, [decode_name(run_id)], now)
            return True

        return self._submit(cancel)

    # ------------------------------------------------------------------ approvals

    def ask(
        self, question: ApprovalRequest, *, within_s: float
    ) -> Future[ApprovalRequest]:
        """See `ports.ApprovalStore.ask`."""

        def insert(database: Database, now: float) -> ApprovalRequest:
            expires = now + within_s
            if question.awaits_write:
                write = _write_values(question)
                waits = database.run(_SQL["await_result"], write)
                if not waits and _load_approval(database, question.id, now) is None:
                    return question.as_undeliverable()
            database.run(_SQL["ask"], _new_approval_values(question, now, expires))
            stored = _load_approval(database, question.id, now)
            assert stored is not None
            required = stored.asked_again(question, expires)
            if required is stored:
                return stored
            return _change_approval(database, stored, required)

        return self._submit(insert)

    def decide(
        self,
        id: str,
        *,
        granted: bool,
        by: str,
        reason: str = "",
        edited: Mapping[str, Json] | None = None,
    ) -> Future[ApprovalRequest | None]:
        """See `ports.ApprovalStore.decide`."""

        def decide(database: Database, now: float) -> ApprovalRequest | None:
            stored = _load_approval(database, id, now)
            if stored is None:
                return None
            decided = stored.with_decision(
                granted=granted, by=by, reason=reason, edited=edited
            )
            if decided is stored:
                return stored
            changed = _answer_question(database, stored, decided, now)
            if changed.state != "open":
                self._note_answer(database, changed.waiting_runs, now)
            return changed

        return self._submit_alone(decide)

    def use(self, id: str) -> Future[bool]:
        """See `ports.ApprovalStore.use`."""
        return self._submit(
            lambda database, now: bool(
                database.run(_SQL["use"], (encode_name(id), now))
            )
        )

    def withdraw(
        self, id: str, *, by: str, reason: str = ""
    ) -> Future[ApprovalRequest | None]:
        """See `ports.ApprovalStore.withdraw`."""

        def withdraw(database: Database, now: float) -> ApprovalRequest | None:
            stored = _load_approval(database, id, now)
            if stored is None:
                return None
            closed = stored.as_cancelled(by, reason)
            if closed is stored:
                return stored
            changed = _answer_question(database, stored, closed, now)
            self._note_answer(database, changed.waiting_runs, now)
            return changed

        return self._submit_alone(withdraw)

    def list_approvals(
        self, *, state: str = "open", run_id: str = "", id: str = "", digest: str = ""
    ) -> Future[Sequence[ApprovalRequest]]:
        """See `ports.ApprovalStore.list_approvals`."""
        run_id = encode_name(run_id)

        def load(database: Database) -> list[ApprovalRequest]:
            now = database.now()
            if id:
                found = database.run(_SQL["question"], (encode_name(id),))
                rows = [row for row in found if run_id in ("", row[1])]
            elif run_id and digest:
                rows = database.run(_SQL["questions_about"], (run_id, digest))
            elif run_id:
                rows = database.run(_SQL["questions_of"], (run_id,))
            elif state == "open":
                rows = database.run(_SQL["open_questions"], (now,))
            else:
                rows = database.run(_SQL["questions"])
            requests = [_approval_request(row).at(now) for row in rows]
            return [
                each
                for each in requests
                if state in ("", each.state) and digest in ("", each.digest)
            ]

        return self._reader.ask(load)

    # ------------------------------------------------------------------ standing approvals

    def grant(self, grant: StandingApproval) -> Future[StandingApproval]:
        """See `ports.StandingApprovalStore.grant`."""
        id = encode_name(grant.id)
        covered = (
            encode_name(grant.run_id),
            encode_name(grant.tool),
            grant.pin,
            encode_json(grant.reason),
        )

        def insert(database: Database, now: float) -> StandingApproval:
            database.run(_SQL["grant"], (id, *covered, encode_json(grant.by), now))
            [row] = database.run(_SQL["granted"], (id,))
            return _standing_approval(row)

        return self._submit(insert)

    def list_standing_approvals(
        self, *, tool: str = ""
    ) -> Future[Sequence[StandingApproval]]:
        """See `ports.StandingApprovalStore.list_standing_approvals`."""
        tool = encode_name(tool)

        def load(database: Database) -> list[StandingApproval]:
            return [
                _standing_approval(row)
                for row in database.run(_SQL["grants"], (tool, tool))
            ]

        return self._reader.ask(load)

    def revoke(self, id: str, *, by: str) -> Future[bool]:
        """See `ports.StandingApprovalStore.revoke`."""

        def revoke(database: Database, now: float) -> bool:
            return bool(
                database.run(_SQL["revoke"], (encode_json(by), now, encode_name(id)))
            )

        return self._submit(revoke)

    # ------------------------------------------------------------------ the ledger, for people

    def list_writes(
        self, *, state: str = "", run_id: str = "", most: int = 100
    ) -> Future[Sequence[WriteRecord]]:
        """See `ports.LedgerStore.list_writes`."""
        run_id = encode_name(run_id)
        if state in ("claimed", "waiting", "in_doubt"):
            return self._reader.ask(
                lambda database: _open_writes(database, state, run_id)[:most]
            )

        def load(database: Database) -> list[WriteRecord]:
            if run_id:
                rows = database.run(_SQL["writes_of"], (run_id, state, state, most))
            elif state:
                rows = database.run(_naming(_SQL["writes_in"], state), (most,))
            else:
                rows = database.run(_SQL["writes"], (most,))
            return [_describe_write(database, row) for row in rows]

        return self._reader.ask(load)

    def load_write(self, scope: str, key: str) -> Future[WriteRecord | None]:
        """See `ports.LedgerStore.load_write`."""
        scope = encode_name(scope)
        key = encode_name(key)
        return self._reader.ask(lambda database: _load_write(database, scope, key))

    def resolve(
        self, scope: str, key: str, *, state: SettledState, by: str, value: Json = None
    ) -> Future[WriteRecord | None]:
        """See `ports.LedgerStore.resolve`."""
        scope = encode_name(scope)
        key = encode_name(key)
        ending = (state, encode_optional(value), encode_json(by))

        def resolve(database: Database) -> WriteRecord | None:
            # In a transaction of its own: in that of a group, the ledger there would not know of it.
            now = database.now()
            earlier = _load_write(database, scope, key)
            if earlier is None:
                return None
            if earlier.is_overdue(now):
                database.run(_SQL["overdue"], (scope, key, earlier.fence))
            lease_over = earlier.lease_until if has_died_here(earlier.owner) else now
            database.run(
                _SQL["resolve"],
                (*ending, now, scope, key, earlier.fence, max(lease_over, now)),
            )
            return _load_write(database, scope, key)

        return self._writer.submit(resolve)

    def release(self, scope: str, key: str, *, fence: int, by: str) -> Future[bool]:
        """See `ports.LedgerStore.release`."""
        write = (encode_name(scope), encode_name(key), fence)

        def release(database: Database) -> bool:
            return bool(
                database.run(_SQL["release"], (encode_json(by), database.now(), *write))
            )

        return self._writer.submit(release)

    # ------------------------------------------------------------------ the audit log

    def append_audit(
        self, entries: Sequence[AuditEntry | UnwrittenEntry]
    ) -> Future[None]:
        """See `ports.AuditStore.append_audit`."""
        rows = [
            _audit_row(each) if isinstance(each, AuditEntry) else each
            for each in entries
        ]
        may_wait = all(each.may_wait for each in entries)
        return self._writer.submit_shared(
            self._write_audit_rows, rows, within_s=HELD_S if may_wait else GATHER_S
        )

    def _write_audit_rows(
        self,
        database: Database,
        now: float,
        groups: Sequence[list[_AuditRow | UnwrittenEntry]],
    ) -> Sequence[StoreUnavailable | None]:
        """Write the unwritten entries, and add all to the log; see `_append_audit_rows`."""
        for rows in groups:
            written = [
                _audit_row(row.written()) if isinstance(row, UnwrittenEntry) else row
                for row in rows
            ]
            # In place, so that a group which is decided again is not written again. An empty entry is left out.
            rows[:] = [row for row in written if row[3]]
        if not any(groups):
            return [None] * len(groups)
        return self._append_audit_rows(
            database, now, cast("Sequence[list[_AuditRow]]", groups)
        )

    def log_refuses(self) -> Future[str]:
        """See `ports.KeyedAuditStore.log_refuses`."""
        key = self.audit_key
        return self._writer.submit(lambda database: self._why_refused(database, key))

    def _why_refused(self, database: Database, key: bytes) -> str:
        """Return why nothing is added with this key; empty when the log goes on with it.

        Looked at where the end of the log is not this store's own record: somebody may have replaced the key.
        """
        rows = database.run(_SQL["end"])
        if not rows:
            return ""  # the key is checked again once there is a record
        why = refusal(_audit_record(rows[0]), key)
        if not why:
            self._checked_key = key
        return why

    def _append_audit_rows(
        self,
        database: Database,
        now: float,
        groups: Sequence[Sequence[_AuditRow]],
    ) -> Sequence[StoreUnavailable | None]:
        """Add rows to the end of the log, in this order; or return why the log refuses the key.

        Args:
            groups: Of each row the run, the event, the body, and how many records it holds.

        Raises:
            RetryGroup: Another process has the next number.
        """
        last = database.run(_SQL["last"])
        count, prev = last[0] if last else (0, FIRST)
        return self._chain_rows(database, now, groups, count=count, prev=prev)

    def _chain_rows(
        self,
        database: Database,
        now: float,
        groups: Sequence[Sequence[_AuditRow]],
        *,
        count: int,
        prev: str,
    ) -> Sequence[StoreUnavailable | None]:
        """Add rows behind the record of this number and hash; see `_append_audit_rows`."""
        key = self.audit_key
        if key != self._checked_key or prev != self._last_hash:
            key, why = self._find_key(database)
            if why:
                return [StoreUnavailable(why) for _ in groups]
        rows = []
        seq = count
        for run_id, event, body, taken in chain.from_iterable(groups):
            seq += taken
            hash = digest(seq, now, run_id, event=event, body=body, prev=prev, key=key)
            rows.append((seq, now, run_id, event, body, prev, hash))
            prev = hash
        self._last_hash = prev
        database.write_rows(_SQL["append"], rows, every=True)
        return [None] * len(groups)

    def _find_key(self, database: Database) -> tuple[bytes, str]:
        """Return the key that the log goes on with, read again if it was replaced; and why it takes none of ours."""
        key = self.audit_key
        why = self._why_refused(database, key)
        if why and self.audit_key_file:
            with suppress(ConfigError):
                key = key_in(self.audit_key_file)
            if key != self.audit_key and not self._why_refused(database, key):
                self.audit_key = key
                why = ""
        return key, why

    def _take_whole_log(self, database: Database, now: float) -> None:
        """Let nobody else add to the log until the commit, and leave nothing outside of its chain."""

    def complete_log(self) -> Future[int]:
        """Chain the records that wait for it, where a store has such; return how many go on waiting."""
        return self._writer.submit(lambda _: 0)

    def replace_audit_key(self, key: bytes, *, by: str) -> Future[None]:
        """See `ports.RotatableAuditStore.replace_audit_key`."""

        def replace_key(database: Database, now: float) -> ConfigError | None:
            self._take_whole_log(database, now)
            old, why = self._find_key(database)
            if why:
                return ConfigError(why)
            last = database.run(_SQL["last"])
            count, prev = last[0] if last else (0, FIRST)
            rows = []
            entries = replacement(old, key, by)
            for seq, entry, used in zip(
                (count + 1, count + 2), entries, (old, key), strict=True
            ):
                body = encode_json(entry.body, canonical_json)
                run_id = encode_name(entry.run_id)
                hash = digest(
                    seq, now, run_id, event=entry.event, body=body, prev=prev, key=used
                )
                rows.append((seq, now, run_id, entry.event, body, prev, hash))
                prev = hash
            database.write_rows(_SQL["append"], rows, every=True)
            return None

        def take_over(refused: ConfigError | None) -> None:
            if refused is not None:
                raise refused
            self.audit_key = key

        replaced: Future[ConfigError | None] = self._submit(replace_key)
        return cast("Future[None]", then(replaced, take_over))

    def log(
        self, *, after: int = 0, run_id: str = "", most: int = 1000
    ) -> Future[Sequence[AuditRecord]]:
        """See `ports.AuditStore.log`."""
        run_id = encode_name(run_id)

        def load(database: Database) -> list[AuditRecord]:
            if run_id:
                rows = database.run(_SQL["log_of"], (run_id, after, most))
            else:
                rows = database.run(_SQL["log"], (after, most))
            records = [
                record
                for row in rows
                for record in split_group(_audit_record(row))
                if record.seq > after
            ]
            return records[:most]

        return self._reader.ask(load)

    def _submit(self, operation: Callable[[Any, float], Any]) -> Future[Any]:
        """Run an operation of one caller in the transaction of a group."""
        return self._writer.submit(
            GroupOperation(lambda database, now, _: [operation(database, now)])
        )

    def _submit_alone(self, operation: Callable[[Any, float], Any]) -> Future[Any]:
        """Run an operation that may settle a write, in a transaction of its own.

        The ledger of a group would not learn of that write.
        """

        def work(connection: Connection) -> Any:
            now = connection.begin()
            try:
                answer = operation(connection, now)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
            return answer

        return self._writer.submit(work)


def _audit_row(entry: AuditEntry) -> _AuditRow:
    text = entry.text or encode_json(entry.body, canonical_json)
    return encode_name(entry.run_id), entry.event, text, entry.count


def _load_digest_key(connection: Connection) -> bytes:
    """Return the key of the store for digests; make one where there is none."""
    rows = connection.run(_SQL["digest_keys"])
    if not rows:
        new = (token_hex(8), token_hex(32), connection.now())
        connection.run(_SQL["add_digest_key"], new)
        rows = connection.run(_SQL["digest_keys"])
    return bytes.fromhex(rows[0][0])


# ---------------------------------------------------------------------- beginning a run


class _Beginning(Struct, frozen=True, gc=False):
    """A run that begins or goes on, and what its row is to hold; see `ports.RunStore.begin_run`."""

    run_id: str
    epoch: int
    record: RunRecord
    described: tuple[Any, ...]
    owner: str
    steps: Sequence[JournalStep]
    encoded_steps: Sequence[tuple[str, str, str, float]]
    is_new: bool
    unchanged: bool


def _begin_runs(
    database: Database, now: float, beginnings: Sequence[_Beginning]
) -> list[StoredRun | RunNameTaken | Fenced | ConfigError]:
    return [_begin_run(database, now, each) for each in beginnings]


def _begin_run(
    database: Database, now: float, beginning: _Beginning
) -> StoredRun | RunNameTaken | Fenced | ConfigError:
    run_id = beginning.run_id
    record = beginning.record
    steps = beginning.steps
    unchanged = beginning.unchanged
    is_stored = record.epoch > 0 and not beginning.is_new
    read = (record.epoch, record.status)
    if is_stored and not unchanged:
        rows = database.run(_SQL["begin_again"], (*read, run_id))
    elif unchanged:
        rows = database.run(_SQL["begin_unchanged"], (run_id, *read))
    else:
        statement = _SQL["begin_new" if beginning.is_new else "begin"]
        values = (*beginning.described, now, now, beginning.owner)
        rows = database.run(statement, values)
    if unchanged and not rows:
        return Fenced(
            f"the run {record.run_id!r} has been taken over, or ended by somebody else"
        )
    if is_stored and not rows:
        # as a new run it would do again what its calls have done
        return ConfigError(f"the run {record.run_id!r} was deleted meanwhile")
    if not rows:
        [row] = database.run(_SQL["run"], (run_id,))
        return _run_record(row).name_taken()
    [row] = rows
    epoch = row[4]
    if beginning.encoded_steps:
        entry = _EncodedEntry(run_id, epoch, None, None, beginning.encoded_steps)
        _append_entries(database, now, [entry])
    # a new run: its input is the one that we have, and it has no steps
    if epoch == 1:
        return StoredRun(_run_record(row, record.input), tuple(steps))
    earlier = _run_record(row)
    takeovers = earlier.takeovers_at(now)
    database.run(_SQL["take"], (now, beginning.owner, takeovers, run_id))
    taken = replace(
        earlier,
        status="running",
        updated=now,
        owner=record.owner,
        takeovers=takeovers,
    )
    has_steps = unchanged and steps
    return StoredRun(taken, () if has_steps else _steps(database, run_id))


# ---------------------------------------------------------------------- journal entries


class _EncodedEntry(Struct, frozen=True, gc=False):
    """An entry as its rows hold it; `steps` are (key, kind, body, elapsed_s)."""

    run_id: str
    epoch: int
    status: str | None
    result: str | None
    steps: Sequence[tuple[str, str, str, float]]


def _encode_steps(
    steps: Sequence[JournalStep],
) -> Sequence[tuple[str, str, str, float]]:
    return [
        (
            encode_name(step.key),
            step.kind,
            step.text or encode_journal(step.body),
            step.elapsed_s,
        )
        for step in steps
    ]


def _encode_together(
    steps: Sequence[JournalStep],
) -> Sequence[tuple[str, str, str, float]]:
    """Return the steps of an entry as one row; a row of several has no key yet, see `_step_rows`."""
    if len(steps) < 2:
        return _encode_steps(steps)
    written = [
        f"[{_quote(step.key)},{_quote(step.kind)},{step.text or encode_journal(step.body)},{step.elapsed_s:.6f}]"
        for step in steps
    ]
    return [("", _STEPS, f"[{','.join(written)}]", steps[-1].elapsed_s)]


def _append_entries(
    database: Database, now: float, entries: Sequence[_EncodedEntry]
) -> list[bool | Fenced]:
    """Add entries; return for each whether its run's cancellation was requested."""
    if len({entry.run_id for entry in entries}) < len(entries):
        # Two of one run, as while it is taken over: one after the other.
        return [
            answer
            for entry in entries
            for answer in _append_entries(database, now, [entry])
        ]
    rows = [
        (each.run_id, each.epoch, now, each.status, each.result, len(each.steps))
        for each in entries
    ]
    updated = {}
    for run_id, cancel_requested, step_count in database.run_with(_SQL["enter"], rows):
        updated[run_id] = (bool(cancel_requested), step_count)
    step_rows: list[Sequence[Any]] = []
    answers: list[bool | Fenced] = []
    for entry in entries:
        if entry.run_id not in updated:
            answers.append(
                Fenced(f"the run {decode_name(entry.run_id)!r} has been taken over")
            )
            continue
        cancel_requested, step_count = updated[entry.run_id]
        step_rows += _step_rows(entry, first_seq=step_count - len(entry.steps), now=now)
        answers.append(cancel_requested)
    database.write_rows(_SQL["step"], step_rows)
    for entry in entries:
        if entry.run_id not in updated:
            continue
        cancel_requested, _ = updated[entry.run_id]
        if entry.status == "cancelled" or (
            entry.status == "waiting" and cancel_requested
        ):
            _close_approvals(database, entry.run_id, now)
    return answers


def _step_rows(
    entry: _EncodedEntry, *, first_seq: int, now: float
) -> list[Sequence[Any]]:
    # A row of several steps is named by its number, which no other row of the run has: none is dropped as a duplicate.
    return [
        (entry.run_id, key or f"+{seq}", seq, kind, entry.epoch, body, elapsed_s, now)
        for seq, (key, kind, body, elapsed_s) in enumerate(entry.steps, first_seq)
    ]


def _parse(text: str) -> Json:
    """Return what `encode_journal` wrote, at a third of what `json.loads` takes where many are read."""
    try:
        parsed: Json = decode(text)
    except DecodeError:  # such as NaN
        parsed = json.loads(text)
    return parsed


def _steps(database: Database, run_id: str) -> tuple[JournalStep, ...]:
    rows = database.run(_SQL["steps"], (run_id,))
    return _without_repeats([step for row in rows for step in _read_steps(run_id, row)])


def _read_steps(run_id: str, row: Sequence[Any]) -> Sequence[JournalStep]:
    """Return the steps of a row of key, kind, body and time.

    Raises:
        Refused: The row is damaged.
    """
    key, kind, body, elapsed_s = row
    try:
        if kind == _STEPS:
            return [JournalStep(*each) for each in _parse(body)]
        return [JournalStep(decode_name(key), kind, _parse(body), elapsed_s)]
    except _UNREADABLE as error:
        raise _unreadable(run_id, f"step {decode_name(key)!r}", error) from error


_UNREADABLE = (ValueError, TypeError, RecursionError)
"""What reading a damaged row raises."""


def _unreadable(run_id: str, what: str, error: Exception) -> Refused:
    return Refused(
        f"the run {decode_name(run_id)!r} cannot be read: its {what} is damaged in the store: {error}"
    )


def _without_repeats(steps: Sequence[JournalStep]) -> tuple[JournalStep, ...]:
    """Return steps, the first of each key: an entry whose answer was lost is sent again, perhaps with more."""
    by_key: dict[str, JournalStep] = {}
    for step in steps:
        by_key.setdefault(step.key, step)
    return tuple(by_key.values())


# ---------------------------------------------------------------------- approvals


def _new_approval_values(
    question: ApprovalRequest, now: float, expires: float
) -> Sequence[Any]:
    return (
        encode_name(question.id),
        encode_name(question.run_id),
        encode_name(question.call_id),
        encode_name(question.tool),
        encode_name(question.digest),
        encode_json(question.arguments),
        question.risk,
        encode_json(question.reason),
        encode_json(question.description),
        now,
        expires,
        question.pin,
        encode_json(dict(question.parameters)),
        encode_name(question.place),
        question.required_approvals,
        encode_json(question.principal),
        int(question.own_approval),
        question.used_by,
    )


def _load_approval(database: Database, id: str, now: float) -> ApprovalRequest | None:
    """Return an approval request, with its state at this time."""
    rows = database.run(_SQL["question"], (encode_name(id),))
    return _approval_request(rows[0]).at(now) if rows else None


def _change_approval(
    database: Database, before: ApprovalRequest, after: ApprovalRequest
) -> ApprovalRequest:
    """Write an approval request, if it is still as it was read.

    Raises:
        RetryGroup: It has changed since it was read, in a transaction that we could not see.
    """
    new = (
        after.state,
        encode_json(after.by),
        encode_json(after.decision_reason),
        None if after.edited is None else encode_json(dict(after.edited)),
        after.required_approvals,
        int(after.own_approval),
        encode_json(list(after.agreed)),
        after.expires,
        encode_json(list(map(list, after.waiters))),
    )
    old = (
        encode_name(before.id),
        before.state,
        before.required_approvals,
        encode_json(list(before.agreed)),
        encode_json(list(map(list, before.waiters))),
    )
    if not database.run(_SQL["change"], (*new, *old)):
        raise RetryGroup
    return after


def _answer_question(
    database: Database, before: ApprovalRequest, after: ApprovalRequest, now: float
) -> ApprovalRequest:
    """Write an answer to a question, and settle the write that waits for it, by the rules of `Ledger.deliver`."""
    if after.settles_write(before):
        value = encode_journal(after.settled_value)
        state = "done" if after.state == "approved" else "in_doubt"
        write = _write_values(after)
        if not database.run(_SQL["deliver"], (state, value, now, *write)):
            after = before.as_undeliverable()
    return _change_approval(database, before, after)


def _write_values(question: ApprovalRequest) -> tuple[str, str, int]:
    """Return scope, key and fence of the write whose result a question asks for."""
    scope, key, fence = json.loads(question.used_by)
    return encode_name(scope), encode_name(key), fence


def _close_approvals(database: Database, run_id: str, now: float) -> None:
    database.run(_SQL["close"], (encode_json(RUN_CANCELLED), run_id, now))


# ---------------------------------------------------------------------- writes


def _load_write(database: Database, scope: str, key: str) -> WriteRecord | None:
    rows = database.run(_SQL["one"], (scope, key))
    return _describe_write(database, rows[0]) if rows else None


def _describe_write(database: Database, row: Sequence[Any]) -> WriteRecord:
    """Return a write, with the time until which its result may be delivered."""
    write = _write_record(row)
    if write.state != "waiting":
        return write
    name = name_write(write.scope, write.key, write.fence)
    times = database.run(_SQL["awaited"], (name,))
    return replace(write, deliver_until=times[0][0]) if times else write


def _open_writes(database: Database, state: str, run_id: str) -> list[WriteRecord]:
    """Return the writes without an end that are under way, or those that are in doubt; of a run or of all."""
    now = database.now()
    if run_id:
        rows = database.run(_SQL["open_writes_of"], (run_id,))
    else:
        rows = database.run(_SQL["open_writes"])
    writes = [_describe_write(database, row) for row in rows]
    return [write for write in writes if write.state_at(now) == state]


# ---------------------------------------------------------------------- rows


def _naming(statement: str, state: str) -> str:
    """Return a statement with a state in its text: an index of few states is used where the statement names one."""
    name = state if state.isidentifier() else "none"
    return statement.replace(":state", f"'{name}'")


def _listed_run(row: Sequence[Any]) -> RunRecord:
    """Return a run for a list. One that cannot be read gets an empty input, which no other has, and fails no list."""
    try:
        return _run_record(row)
    except Refused:
        run_id, _, status, toolset, epoch, _, *others = row
        return _run_record([run_id, '""', status, toolset, epoch, None, *others])


def _run_record(row: Sequence[Any], input: Json = None) -> RunRecord:
    """Return a run; `input` skips parsing it.

    Raises:
        Refused: Its input or its result is damaged.
    """
    (
        run_id,
        input_json,
        status,
        toolset,
        epoch,
        result_json,
        cancel_requested,
        forked_from,
        forked_at,
        created,
        updated,
        journal_v,
        owner,
        takeovers,
    ) = row
    try:
        if input is None:
            input = _parse(input_json)
        result = decode_optional(result_json)
    except _UNREADABLE as error:
        raise _unreadable(run_id, "input or its result", error) from error
    return RunRecord(
        run_id=decode_name(run_id),
        input=input,
        status=status,
        toolset=toolset,
        epoch=epoch,
        result=result,
        cancel_requested=bool(cancel_requested),
        forked_from=decode_name(forked_from),
        forked_at=forked_at,
        created=created,
        updated=updated,
        journal_v=journal_v,
        owner=decode_name(owner or ""),
        takeovers=takeovers,
    )


def _approval_request(row: Sequence[Any]) -> ApprovalRequest:
    (
        id,
        run_id,
        call_id,
        tool,
        digest,
        arguments_json,
        risk,
        reason_json,
        description_json,
        state,
        by_json,
        decision_reason_json,
        edited_json,
        asked,
        expires,
        pin,
        parameters_json,
        place,
        required_approvals,
        agreed_json,
        principal_json,
        own_approval,
        used_by,
        waiters_json,
    ) = row
    return ApprovalRequest(
        id=decode_name(id),
        run_id=decode_name(run_id),
        call_id=decode_name(call_id),
        tool=decode_name(tool),
        digest=decode_name(digest),
        arguments=json.loads(arguments_json),
        risk=risk,
        reason=json.loads(reason_json),
        description=json.loads(description_json),
        state=state,
        by=json.loads(by_json),
        decision_reason=json.loads(decision_reason_json),
        edited=decode_optional(edited_json),
        asked=asked,
        expires=expires,
        pin=pin,
        parameters=json.loads(parameters_json),
        place=decode_name(place),
        required_approvals=required_approvals,
        agreed=tuple(json.loads(agreed_json)),
        principal=json.loads(principal_json),
        own_approval=bool(own_approval),
        used_by=used_by,
        waiters=tuple(
            (run_id, call_id) for run_id, call_id in json.loads(waiters_json)
        ),
    )


def _standing_approval(row: Sequence[Any]) -> StandingApproval:
    id, run_id, tool, pin, reason_json, by_json, at = row
    return StandingApproval(
        id=decode_name(id),
        run_id=decode_name(run_id),
        tool=decode_name(tool),
        pin=pin,
        reason=json.loads(reason_json),
        by=json.loads(by_json),
        at=at,
    )


def _write_record(row: Sequence[Any]) -> WriteRecord:
    (
        scope,
        key,
        tool,
        place,
        run_id,
        state,
        replay,
        fence,
        lease_until,
        begun,
        updated,
        value_json,
        resolved_by_json,
        fingerprint,
        owner,
    ) = row
    value = decode_optional(value_json)
    doubt = ""
    if state in ("claimed", "in_doubt"):
        value, doubt = None, value if isinstance(value, str) else ""
    return WriteRecord(
        scope=decode_name(scope),
        key=decode_name(key),
        tool=decode_name(tool),
        place=decode_name(place),
        run_id=decode_name(run_id),
        state=state,
        replay=replay,
        fence=fence,
        lease_until=lease_until,
        begun=begun,
        updated=updated,
        value=value,
        doubt=doubt,
        resolved_by="" if resolved_by_json is None else json.loads(resolved_by_json),
        fingerprint=fingerprint,
        owner=owner,
    )


def _audit_record(row: Sequence[Any]) -> AuditRecord:
    seq, at, run_id, event, body, prev, hash = row
    try:
        parsed = json.loads(body, object_pairs_hook=_refuse_duplicates)
    except (ValueError, TypeError, RecursionError):
        # changed behind our back; its hash will say so
        parsed = {"unreadable": body}
    return AuditRecord(
        seq=seq, at=at, run_id=run_id, event=event, body=parsed, prev=prev, hash=hash
    )


def _refuse_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Refuse a name that an object has twice: we would read the last value, and hash it, and others the first."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has two members of one name")
    return members
