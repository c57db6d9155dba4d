"""What a durable store has beside claims: runs with their steps, people's words on calls, and a look into the ledger.

Each entry is a deed in the transaction of a group (see `durable`): a step is on the disk together with whatever else
was asked at that moment, and nobody waits for a commit of their own.

Rule 1: the statements are those that SQLite and Postgres share, with `?` for what is given.
Rule 2: a deed that is refused has changed nothing by then; the others of its group are committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from handrail.audit.chain import FIRST, digest, refusal
from handrail.audit.chain import spelled as canonical
from handrail.effects import SettledState
from handrail.errors import ConfigError, Fenced, Json, RunNameTaken, StoreUnavailable
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
    WriteRecord,
)
from handrail.stores.durable import (
    LONGEST_NAME,
    Again,
    DurableStore,
    GroupOperation,
    Keeper,
    encoded,
    journaled,
    read_name,
    spelled,
    statements,
)

_SQL = statements("runs.sql")


class DurableRuns(DurableStore):
    """A durable store that keeps runs, questions and an audit log too, and whose ledger can be looked into.

    Attributes:
        audit_key: Makes the audit log's hashes those of somebody who has the key; see `chain`.
    """

    claims_use_approvals = True
    audit_key = b""
    _fitting: bytes | None = None
    """The key with which the end of the log was found to be hashed."""

    # ------------------------------------------------------------------ runs

    def begin_run(self, record: RunRecord, *, new: bool = False) -> Future[StoredRun]:
        """See `ports.RunStore.begin_run`."""
        run_id, given, owner = spelled(record.run_id), journaled(record.input), spelled(record.owner)
        if read_name(run_id) != record.run_id:  # read back, it would name another run
            raise ConfigError(
                f"the run {record.run_id[:40]!r}... cannot be kept: its name has {len(record.run_id):,} characters, "
                f"and {LONGEST_NAME} are possible"
            )

        def deed(base: Keeper, now: float) -> StoredRun | RunNameTaken:
            rows = base.run(_SQL["begin_new" if new else "begin"], (
                run_id, record.toolset, record.journal_v, spelled(record.forked_from), record.forked_at, given, now,
                now, owner,
            ))  # fmt: skip
            if not rows:
                [kept] = base.run(_SQL["run"], (run_id,))
                return _run_record(kept).name_taken()
            [row] = rows
            if row[4] == 1:  # a new one: its input is the one that we have, and it has no steps
                return StoredRun(_run_record(row, record.input))
            was = _run_record(row)
            mine = replace(was, status="running", updated=now, owner=record.owner, takeovers=was.takeovers_at(now))
            base.run(_SQL["take"], (now, owner, mine.takeovers, run_id))
            return StoredRun(mine, _steps(base, run_id))

        return self._do(deed)

    def append_entry(self, entry: JournalEntry) -> Future[bool]:
        """See `ports.RunStore.append_entry`."""
        told = _Entry(
            spelled(entry.run_id), entry.epoch, entry.status, None if entry.result is None else journaled(entry.result),
            [(spelled(step.key), step.kind, journaled(step.body), step.elapsed_s) for step in entry.steps],
        )  # fmt: skip
        return self._writer.ask(GroupOperation(_entered, told))

    def load_run(self, run_id: str) -> Future[StoredRun | None]:
        """See `ports.RunStore.load_run`."""
        run_id = spelled(run_id)

        def read(base: Keeper) -> StoredRun | None:
            found = base.run(_SQL["run"], (run_id,))
            return StoredRun(_run_record(found[0]), _steps(base, run_id)) if found else None

        return self._writer.ask(read)

    def list_runs(self, *, status: str = "", most: int = 100) -> Future[Sequence[RunRecord]]:
        """See `ports.RunStore.list_runs`."""
        return self._writer.ask(
            lambda base: [_run_record(row) for row in base.run(_SQL["runs"], (status, status, most))]
        )

    def request_cancel(self, run_id: str) -> Future[bool]:
        """See `ports.RunStore.request_cancel`."""
        run_id = spelled(run_id)

        def deed(base: Keeper, now: float) -> bool:
            if not base.run(_SQL["cancel"], (now, run_id)):
                return False
            _close_questions(base, run_id, now)
            return True

        return self._do(deed)

    # ------------------------------------------------------------------ questions

    def ask(self, question: ApprovalRequest, *, within_s: float) -> Future[ApprovalRequest]:
        """See `ports.ApprovalStore.ask`."""

        def deed(base: Keeper, now: float) -> ApprovalRequest:
            base.run(_SQL["ask"], (
                spelled(question.id), spelled(question.run_id), spelled(question.call_id), spelled(question.tool),
                spelled(question.digest), encoded(question.arguments), question.risk, encoded(question.reason),
                encoded(question.description), now, now + within_s, question.pin, encoded(dict(question.parameters)),
                spelled(question.place), question.required_approvals, encoded(question.principal),
            ))  # fmt: skip
            known = _known(base, question.id, now)
            assert known is not None
            if (stricter := known.requiring(question.required_approvals)) is known:
                return known
            return _changed(base, known, replace(stricter, expires=now + within_s))

        return self._do(deed)

    def decide(
        self, id: str, *, granted: bool, by: str, reason: str = "", edited: Mapping[str, Json] | None = None
    ) -> Future[ApprovalRequest | None]:
        """See `ports.ApprovalStore.decide`."""

        def deed(base: Keeper, now: float) -> ApprovalRequest | None:
            known = _known(base, id, now)
            heard = known and known.with_decision(granted=granted, by=by, reason=reason, edited=edited)
            return known if known is None or heard is None or heard is known else _changed(base, known, heard)

        return self._do(deed)

    def use(self, id: str) -> Future[bool]:
        """See `ports.ApprovalStore.use`."""
        return self._do(lambda base, now: bool(base.run(_SQL["use"], (spelled(id), now))))

    def list_approvals(self, *, state: str = "open", run_id: str = "") -> Future[Sequence[ApprovalRequest]]:
        """See `ports.ApprovalStore.list_approvals`."""
        run_id = spelled(run_id)

        def read(base: Keeper) -> list[ApprovalRequest]:
            now = base.now()
            aged = (_aged(_question(row), now) for row in base.run(_SQL["questions"], (run_id, run_id)))
            return [each for each in aged if state in ("", each.state)]

        return self._writer.ask(read)

    # ------------------------------------------------------------------ standing approvals

    def grant(self, grant: StandingApproval) -> Future[StandingApproval]:
        """See `ports.StandingApprovalStore.grant`."""
        id, given = spelled(grant.id), (spelled(grant.run_id), spelled(grant.tool), grant.pin, encoded(grant.reason))

        def deed(base: Keeper, now: float) -> StandingApproval:
            base.run(_SQL["grant"], (id, *given, encoded(grant.by), now))
            [row] = base.run(_SQL["granted"], (id,))
            return _standing_approval(row)

        return self._do(deed)

    def list_standing_approvals(self, *, tool: str = "") -> Future[Sequence[StandingApproval]]:
        """See `ports.StandingApprovalStore.list_standing_approvals`."""
        given = (spelled(tool), spelled(tool))
        return self._writer.ask(lambda base: [_standing_approval(row) for row in base.run(_SQL["grants"], given)])

    def revoke(self, id: str, *, by: str) -> Future[bool]:
        """See `ports.StandingApprovalStore.revoke`."""
        return self._do(lambda base, now: bool(base.run(_SQL["revoke"], (encoded(by), now, spelled(id)))))

    # ------------------------------------------------------------------ the ledger, for people

    def list_writes(self, *, state: str = "", run_id: str = "", most: int = 100) -> Future[Sequence[WriteRecord]]:
        """See `ports.LedgerStore.list_writes`."""
        if state in ("claimed", "in_doubt"):
            return self._writer.ask(lambda base: _open_writes(base, state, spelled(run_id))[:most])
        statement, of_run = (_SQL["writes_of"], (spelled(run_id),)) if run_id else (_SQL["writes"], ())
        given = (*of_run, state, state, most)
        return self._writer.ask(lambda base: [_write_record(row) for row in base.run(statement, given)])

    def load_write(self, scope: str, key: str) -> Future[WriteRecord | None]:
        """See `ports.LedgerStore.load_write`."""
        named = spelled(scope), spelled(key)
        return self._writer.ask(lambda base: next((_write_record(row) for row in base.run(_SQL["one"], named)), None))

    def resolve(
        self, scope: str, key: str, *, state: SettledState, by: str, value: Json = None
    ) -> Future[WriteRecord | None]:
        """See `ports.LedgerStore.resolve`."""
        named = spelled(scope), spelled(key)
        given = (state, None if value is None else encoded(value), encoded(by))

        def job(base: Keeper) -> WriteRecord | None:
            # In a transaction of its own: in that of a group, the ledger there would not know of it.
            now, found = base.now(), base.run(_SQL["one"], named)
            if not found:
                return None
            before = _write_record(found[0])
            over = before.lease_until if has_died_here(before.owner) else now
            base.run(_SQL["resolve"], (*given, now, *named, before.fence, max(over, now)))
            return _write_record(base.run(_SQL["one"], named)[0])

        return self._writer.ask(job)

    def release(self, scope: str, key: str, *, fence: int, by: str) -> Future[bool]:
        """See `ports.LedgerStore.release`."""
        named = spelled(scope), spelled(key), fence
        return self._writer.ask(lambda base: bool(base.run(_SQL["release"], (encoded(by), base.now(), *named))))

    # ------------------------------------------------------------------ the audit log

    def append_audit(self, notices: Sequence[AuditEntry]) -> Future[None]:
        """See `ports.AuditStore.append_audit`."""
        told = [(spelled(each.run_id), each.event, encoded(each.body, canonical)) for each in notices]
        return self._writer.share(self._chained, told)

    def log_refuses(self) -> Future[str]:
        """See `ports.KeyedAuditStore.log_refuses`."""
        key = self.audit_key
        return self._writer.ask(lambda base: self._refuses(base, key))

    def _refuses(self, base: Keeper, key: bytes) -> str:
        """Return why nothing is added with this key; empty when the log goes on with it.

        One look is enough, at the end that is there when this store comes to it: whoever comes later has looked too.
        """
        found = base.run(_SQL["end"])
        if not found:
            return ""  # and the next look is at a record
        if why := refusal(_audited(found[0]), key):
            return why
        self._fitting = key
        return ""

    def _chained(
        self, base: Keeper, now: float, groups: Sequence[Sequence[tuple[str, str, str]]]
    ) -> Sequence[StoreUnavailable | None]:
        """Add what was told to the end of the log, in this order; or return why it goes on with another key only.

        Raises:
            Again: Another process has the next number.
        """
        key = self.audit_key
        if key != self._fitting and (why := self._refuses(base, key)):
            return [StoreUnavailable(why) for _ in groups]
        last = base.run(_SQL["last"])
        count, prev = last[0] if last else (0, FIRST)
        rows = []
        for seq, (run_id, event, body) in enumerate(chain.from_iterable(groups), count + 1):
            hash = digest(seq, now, run_id, event, body, prev, key)
            rows.append((seq, now, run_id, event, body, prev, hash))
            prev = hash
        if len(base.run_with(_SQL["append"], rows)) < len(rows):
            raise Again
        return [None] * len(groups)

    def log(self, *, after: int = 0, run_id: str = "", most: int = 1000) -> Future[Sequence[AuditRecord]]:
        """See `ports.AuditStore.log`."""
        given = (after, spelled(run_id), spelled(run_id), most)
        return self._writer.ask(lambda base: [_audited(row) for row in base.run(_SQL["log"], given)])

    def _do(self, deed: Callable[[Any, float], Any]) -> Future[Any]:
        return self._writer.ask(GroupOperation(lambda base, now, _: [deed(base, now)]))


class _Entry(Struct, frozen=True):
    """An entry as its rows hold it; `steps` are (key, kind, body, elapsed_s)."""

    run_id: str
    epoch: int
    status: str | None
    result: str | None
    steps: Sequence[tuple[str, str, str, float]]


def _entered(base: Keeper, now: float, entries: Sequence[_Entry]) -> list[bool | Fenced]:
    """Make entries; return of each whether its run's end was asked for."""
    first = {entry.run_id: entry for entry in reversed(entries)}
    if len(first) < len(entries):  # two of one run, as while it is taken over: one after the other
        return [answer for entry in entries for answer in _entered(base, now, [entry])]
    rows = [(each.run_id, each.epoch, now, each.status, each.result, len(each.steps)) for each in entries]
    found = {run_id: (cancel, entered) for run_id, cancel, entered in base.run_with(_SQL["enter"], rows)}
    base.run_with(_SQL["step"], [
        (each.run_id, key, seq, kind, each.epoch, body, elapsed_s, now)
        for each in entries if each.run_id in found
        for seq, (key, kind, body, elapsed_s) in enumerate(each.steps, found[each.run_id][1] - len(each.steps))
    ])  # fmt: skip
    for each in entries:
        if each.status == "cancelled" and each.run_id in found:
            _close_questions(base, each.run_id, now)
    return [
        bool(found[each.run_id][0]) if each.run_id in found
        else Fenced(f"the run {read_name(each.run_id)!r} has been taken over")
        for each in entries
    ]  # fmt: skip


# ---------------------------------------------------------------------- rows


def _run_record(row: Sequence[Any], input: Json = None) -> RunRecord:
    """Return a run; `input` skips parsing it."""
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
    return RunRecord(
        run_id=read_name(run_id),
        input=json.loads(input_json) if input is None else input,
        status=status,
        toolset=toolset,
        epoch=epoch,
        result=_optional_json(result_json),
        cancel_requested=bool(cancel_requested),
        forked_from=read_name(forked_from),
        forked_at=forked_at,
        created=created,
        updated=updated,
        journal_v=journal_v,
        owner=read_name(owner or ""),
        takeovers=takeovers,
    )


def _optional_json(text: str | None) -> Json:
    return None if text is None else json.loads(text)


def _steps(base: Keeper, run_id: str) -> tuple[JournalStep, ...]:
    rows = base.run(_SQL["steps"], (run_id,))
    return tuple(JournalStep(read_name(key), kind, json.loads(body), elapsed_s) for key, kind, body, elapsed_s in rows)


def _question(row: Sequence[Any]) -> ApprovalRequest:
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
        used_by,
    ) = row
    return ApprovalRequest(
        id=read_name(id),
        run_id=read_name(run_id),
        call_id=read_name(call_id),
        tool=read_name(tool),
        digest=read_name(digest),
        arguments=json.loads(arguments_json),
        risk=risk,
        reason=json.loads(reason_json),
        description=json.loads(description_json),
        state=state,
        by=json.loads(by_json),
        decision_reason=json.loads(decision_reason_json),
        edited=_optional_json(edited_json),
        asked=asked,
        expires=expires,
        pin=pin,
        parameters=json.loads(parameters_json),
        place=read_name(place),
        required_approvals=required_approvals,
        agreed=tuple(json.loads(agreed_json)),
        principal=json.loads(principal_json),
        used_by=used_by,
    )


def _close_questions(base: Keeper, run_id: str, now: float) -> None:
    base.run(_SQL["close"], (encoded(RUN_CANCELLED), run_id, now))


def _known(base: Keeper, id: str, now: float) -> ApprovalRequest | None:
    """Return a question as it stands now."""
    found = base.run(_SQL["question"], (spelled(id),))
    return _aged(_question(found[0]), now) if found else None


def _changed(base: Keeper, before: ApprovalRequest, after: ApprovalRequest) -> ApprovalRequest:
    """Write how a question stands now.

    Raises:
        Again: It has changed since it was read, in a transaction that we could not see.
    """
    edited = None if after.edited is None else encoded(dict(after.edited))
    stands = after.state, encoded(after.by), encoded(after.decision_reason), edited
    rest = after.required_approvals, encoded(list(after.agreed)), after.expires
    was = spelled(before.id), before.state, before.required_approvals, encoded(list(before.agreed))
    if not base.run(_SQL["change"], (*stands, *rest, *was)):
        raise Again
    return after


def _standing_approval(row: Sequence[Any]) -> StandingApproval:
    id, run_id, tool, pin, reason_json, by_json, at = row
    return StandingApproval(
        id=read_name(id),
        run_id=read_name(run_id),
        tool=read_name(tool),
        pin=pin,
        reason=json.loads(reason_json),
        by=json.loads(by_json),
        at=at,
    )


def _write_record(row: Sequence[Any]) -> WriteRecord:
    (
        scope,
        key,
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
    return WriteRecord(
        scope=read_name(scope),
        key=read_name(key),
        run_id=read_name(run_id),
        state=state,
        replay=replay,
        fence=fence,
        lease_until=lease_until,
        begun=begun,
        updated=updated,
        value=_optional_json(value_json),
        resolved_by="" if resolved_by_json is None else json.loads(resolved_by_json),
        fingerprint=fingerprint,
        owner=owner,
    )


def _open_writes(base: Keeper, state: str, run_id: str) -> list[WriteRecord]:
    """Return the writes without an end that are under way, or those that are in doubt; of a run or of all."""
    now, writes = base.now(), map(_write_record, base.run(_SQL["open_writes"], (run_id, run_id)))
    return [write for write in writes if write.stands_at(now) == state]


def _audited(row: Sequence[Any]) -> AuditRecord:
    seq, at, run_id, event, body, prev, digest = row
    try:
        told = json.loads(body, object_pairs_hook=_once)
    except (ValueError, TypeError, RecursionError):  # changed behind our back; its hash will say so
        told = {"unreadable": body}
    return AuditRecord(seq, at, run_id, event, told, prev, digest)


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Refuse a name that stands twice: of two values we would read the last, and hash it, and others the first."""
    if len(members := dict(pairs)) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return members


def _aged(question: ApprovalRequest, now: float) -> ApprovalRequest:
    """Return a question as it stands now: an open or unused one ends with its time."""
    over = question.state in ("open", "approved") and question.expires < now
    return replace(question, state="expired") if over else question
