"""Decisions of people about what a store keeps: approve, deny, withdraw, resolve, cancel, revoke, keep, wake.

Each is recorded with a name, and refused without one; except `wake`, which decides nothing.

The command line calls these functions, and so does a console or an HTTP service of yours: all refuse the same, and
leave the same record. They block until the store answers; in async code, call them in a thread. `Runtime.approvals` and
`SyncRuntime.approvals` give those about questions with the runtime's own store.

Rule 1: the first decision counts; a later one changes nothing and is refused.
Rule 2: an impossible decision (arguments that do not fit) decides nothing: the question stays open.
Rule 3: nothing is decided unless the audit log can take its record: no decision goes unrecorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from handrail.audit import log_key
from handrail.audit.trail import person_entry
from handrail.core.redaction import Redactor
from handrail.effects import ApprovalScope, SettledState
from handrail.engine.approvals import (
    decision_entry,
    make_standing_approval,
    standing_approval_entry,
)
from handrail.engine.engine import Engine
from handrail.engine.scoped_store import parse_scope
from handrail.errors import ConfigError, Failure, Json
from handrail.futures import result_now
from handrail.invisible import check_person
from handrail.ports import (
    ApprovalStore,
    AuditStore,
    LedgerStore,
    RunStore,
    StandingApprovalStore,
    SubmittedRunStore,
)
from handrail.records import (
    WRITE_ENDED,
    ApprovalRequest,
    ApprovalState,
    AuditEntry,
    RunRecord,
    StandingApproval,
    WriteRecord,
    not_counted,
)
from handrail.schemas.validation import Checker
from handrail.stores.retention import DAY_S as DAY_S
from handrail.stores.retention import Deleted, Retention
from handrail.stores.retention import keep as _delete_old


def question(store: ApprovalStore, id: str) -> ApprovalRequest:
    """Return a question in its present state.

    Raises:
        ConfigError: There is none of that id.
    """
    found = result_now(store.list_approvals(state="", id=id)) if id else ()
    if not found:
        raise ConfigError(
            f"there is no question {id!r} in this store; `handrail approvals list` shows the open ones"
        )
    return found[0]


def approve(
    store: ApprovalStore,
    id: str,
    *,
    by: str,
    edited: Mapping[str, Json] | None = None,
    scope: ApprovalScope = "once",
) -> ApprovalRequest:
    """Approve the call of a question, with the arguments that were shown or others.

    Args:
        scope: `run` and `rule` also keep a standing approval, which answers later questions of this reason.

    Raises:
        ConfigError: There is no such question, it is no longer open, the arguments do not fit the tool, or the store
            keeps no standing approvals; or this person's approval does not count, see `records.not_counted`.
            Nothing was decided.
    """
    check_person("by", by)
    log_key.check(store)
    asked = question(store, id)
    if asked.awaits_result:
        raise ConfigError(
            f"the question {id!r} waits for the result of {asked.tool}, and not for an approval; "
            "`deliver` it, or `handrail approvals answer`"
        )
    if asked.state == "open" and (why := _why_not(asked, by, edited, scope)):
        needed = "somebody else's approval"
        if asked.required_approvals > 1:
            needed = f"{asked.required_approvals} approvals"
        raise ConfigError(f"{why}. Nothing was decided: {asked.tool} needs {needed}")
    if edited is not None and scope != "once":
        raise ConfigError(
            "other arguments are for one call; a standing approval is on calls as they are asked about"
        )
    if scope != "once" and not isinstance(store, StandingApprovalStore):
        raise ConfigError(
            "this store keeps no standing approvals, so an approval is for one call"
        )
    if edited is not None and asked.parameters:
        checked = Checker(dict(asked.parameters)).check(dict(edited))
        if isinstance(checked, Failure):
            raise ConfigError(
                f"{asked.tool} does not take these arguments: {checked.message} The question stays open"
            )
    decided = _decide(store, asked, granted=True, by=by, reason="", edited=edited)
    if isinstance(store, StandingApprovalStore) and scope != "once":
        grant = result_now(store.grant(make_standing_approval(asked, scope, by=by)))
        _record(store, standing_approval_entry(grant, asked))
    return decided


def deny(
    store: ApprovalStore, id: str, *, by: str, reason: str = ""
) -> ApprovalRequest:
    """Deny the call of a question.

    Raises:
        ConfigError: There is no such question, or it is no longer open.
    """
    check_person("by", by)
    log_key.check(store)
    return _decide(
        store, question(store, id), granted=False, by=by, reason=reason, edited=None
    )


def deliver(
    store: ApprovalStore, id: str, value: Json, *, by: str = ""
) -> ApprovalRequest:
    """Deliver the result of a deferred call, which a question waits for. The same value once more changes nothing.

    Raises:
        ConfigError: There is no such question, it waits for an approval, another value was delivered, or it is closed.
    """
    if by:
        check_person("by", by)
    log_key.check(store)
    asked = question(store, id)
    if not asked.awaits_result:
        raise ConfigError(
            f"the question {id!r} waits for an approval, and not for a result; approve or deny it"
        )
    answer = {"value": value}
    if asked.state == "approved" and asked.edited == answer:
        return asked
    return _decide(store, asked, granted=True, by=by, reason="", edited=answer)


def withdraw(
    store: ApprovalStore, id: str, *, by: str, reason: str = ""
) -> ApprovalRequest:
    """Take back an open question, or an approval that no call has used. The same call is asked about again.

    Raises:
        ConfigError: There is no such question, or it is decided for good.
    """
    check_person("by", by)
    log_key.check(store)
    before = question(store, id)
    reason = reason or "the question was withdrawn"
    now = result_now(store.withdraw(id, by=by, reason=reason)) or before
    wanted = ("cancelled", by, reason)
    if before.state == "cancelled" or wanted != (
        now.state,
        now.by,
        now.decision_reason,
    ):
        raise ConfigError(
            f"the question {id!r} cannot be withdrawn: it is {now.state}{describe_decision(now)}"
        )
    _note(
        store,
        "QuestionWithdrawn",
        now.run_id,
        by=by,
        question=now.id,
        call=now.call_id,
        tool=now.tool,
        reason=reason,
    )
    return now


def _decide(
    store: ApprovalStore,
    asked: ApprovalRequest,
    *,
    granted: bool,
    by: str,
    reason: str,
    edited: Mapping[str, Json] | None,
) -> ApprovalRequest:
    if asked.decision_reason == WRITE_ENDED:
        raise _undeliverable(asked)
    if asked.state == "cancelled" and asked.by:
        raise ConfigError(
            f"the question {asked.id!r} was withdrawn{describe_decision(asked)}"
        )
    if asked.state == "cancelled":
        raise ConfigError(
            f"the run {asked.run_id!r} was cancelled, and the question {asked.id!r} is closed with it"
        )
    if asked.state == "approved" and asked.awaits_result:
        by = f" by {asked.by}" if asked.by else ""
        raise ConfigError(
            f"the question {asked.id!r} was answered{by} already, and not with this value"
        )
    if asked.state != "open":
        state = "used, approved" if asked.state == "used" else asked.state
        raise ConfigError(
            f"the question {asked.id!r} cannot be answered again: it is {state}{describe_decision(asked)}"
        )
    now = (
        result_now(
            store.decide(asked.id, granted=granted, by=by, reason=reason, edited=edited)
        )
        or asked
    )
    if now.decision_reason == WRITE_ENDED:
        raise _undeliverable(now)
    wanted = ("approved" if granted else "denied", by, reason, edited)
    if granted and now.required_approvals > 1:
        is_counted = by.strip() in now.agreed
    else:
        is_counted = (now.state, now.by, now.decision_reason, now.edited) == wanted
    if not is_counted:
        raise ConfigError(
            f"somebody was quicker: the question {asked.id!r} is {now.state}{describe_decision(now)}"
        )
    _record(
        store, decision_entry(now, granted=granted, by=by, reason=reason, edited=edited)
    )
    return now


def _undeliverable(asked: ApprovalRequest) -> ConfigError:
    return ConfigError(
        f"nothing waits for the result of {asked.tool} any more: its call failed, or somebody has said how it ended. "
        f"The question {asked.id!r} is closed, and nothing was delivered"
    )


def _why_not(
    asked: ApprovalRequest,
    by: str,
    edited: Mapping[str, Json] | None,
    scope: ApprovalScope,
) -> str:
    """Return why a yes cannot count; empty when it can."""
    several = asked.required_approvals > 1
    if several and edited is not None:
        return "other arguments are not what the others agree to; deny it, so that the model asks again"
    if several and scope != "once":
        return "a standing approval cannot take the place of several people; approve this call only"
    return not_counted(by, asked)


def describe_decision(asked: ApprovalRequest) -> str:
    """Return who has answered a question and how, as text to follow its state."""
    if asked.state == "open" and asked.required_approvals > 1:
        return f", {len(asked.agreed)} of {asked.required_approvals} have agreed"
    by = f" by {asked.by}" if asked.by else ""
    edited = ", with edited arguments" if asked.edited is not None else ""
    return (
        f"{by}{edited}{f' ({asked.decision_reason})' if asked.decision_reason else ''}"
    )


def standing_approvals(store: StandingApprovalStore) -> list[StandingApproval]:
    """Return the standing approvals that are in force, the oldest first."""
    found: Sequence[StandingApproval] = result_now(store.list_standing_approvals())
    return list(found)


def revoke(store: StandingApprovalStore, id: str, *, by: str) -> StandingApproval:
    """Take a standing approval back; questions that it answered until now are asked again.

    Raises:
        ConfigError: None of that id is in force.
    """
    check_person("by", by)
    log_key.check(store)
    found = next((each for each in standing_approvals(store) if each.id == id), None)
    if found is None or not result_now(store.revoke(id, by=by)):
        raise ConfigError(
            f"no standing approval {id!r} is in force; `handrail approvals standing` shows those that are"
        )
    _note(
        store,
        "Revoked",
        found.run_id,
        by=by,
        grant=id,
        tool=found.tool,
        reason=found.reason,
    )
    return found


def write(store: LedgerStore, scope: str, key: str) -> WriteRecord:
    """Return a write of the ledger; the scope is empty without a tenant.

    Raises:
        ConfigError: There is no such write.
    """
    found = result_now(store.load_write(scope, key))
    if found is None:
        of_tenant = f"of the tenant {scope!r} " if scope else ""
        raise ConfigError(
            f"there is no write {key!r} {of_tenant}in this store; `handrail ledger list` shows the newest"
        )
    return found


def resolve(
    store: LedgerStore,
    scope: str,
    key: str,
    *,
    happened: bool,
    by: str,
    value: Json = None,
) -> WriteRecord:
    """Say how a write ended that nobody knows of. Whoever decides has looked.

    Raises:
        ConfigError: There is no such write, or it takes no word: it has ended, is under way, or somebody was quicker.
    """
    check_person("by", by)
    log_key.check(store)
    before = write(store, scope, key)
    state: SettledState = "done" if happened else "failed"
    now = (
        result_now(store.resolve(scope, key, state=state, by=by, value=value)) or before
    )
    if (now.state, now.resolved_by) != (state, by):
        raise ConfigError(
            f"the write {key} takes no word: it is {now.state.replace('_', ' ')}"
        )
    _note(
        store,
        "WriteResolved",
        now.run_id,
        by=by,
        scope=scope,
        key=key,
        tool=now.tool,
        state=state,
        fence=now.fence,
    )
    return now


def cancel(store: RunStore, run_id: str, *, by: str) -> RunRecord:
    """Ask for the end of a run that another process drives, or that waits; return its new state.

    Raises:
        ConfigError: There is no such run, or it is over.
    """
    check_person("by", by)
    log_key.check(store)
    if not result_now(store.request_cancel(run_id)):
        stored = result_now(store.load_run(run_id))
        status = (
            f"the run {run_id!r} is over ({stored.record.status})"
            if stored
            else f"there is no run {run_id!r}"
        )
        raise ConfigError(f"{status}; there is nothing to cancel")
    _note(store, "CancelRequested", run_id, by=by)
    stored = result_now(store.load_run(run_id))
    assert stored is not None
    return stored.record


def wake(store: RunStore, run_id: str) -> None:
    """Let a run of workers that waits in the store for its model ask it now, before its wait is over.

    If the model is away still, the run waits again, for seconds at first.

    Raises:
        ConfigError: It waits for nothing, or for something else: a person, or what an earlier process may still do.
            It was left as it is.
    """
    if isinstance(store, SubmittedRunStore) and result_now(store.wake_run(run_id)):
        return
    stored = result_now(store.load_run(run_id))
    if stored is None:
        raise ConfigError(f"there is no run {run_id!r}; there is nothing to wake")
    raise ConfigError(
        f"the run {run_id!r} does not wait for its model: {_describe_wait(store, stored.record)}"
    )


def _describe_wait(store: RunStore, record: RunRecord) -> str:
    """Return what a run does instead of waiting for its model."""
    if record.status == "waiting":
        return "it waits for a person"
    if record.status == "running":
        return "it is running"
    if record.status != "queued":
        return f"it is over ({record.status})"
    submission = None
    if isinstance(store, SubmittedRunStore):
        submission = result_now(store.list_submitted([record.run_id])).get(
            record.run_id
        )
    if submission is None:
        return "it was not submitted to workers"
    if submission.wake_at:
        return submission.note
    return f"it is queued in {submission.queue} already"


def keep(
    store: object, retention: Retention, *, by: str = "", dry_run: bool = False
) -> Deleted:
    """Delete what is older than its retention, while the store is in use; return how many rows of each table.

        keep(store, Retention(runs_s=30 * DAY_S, results_s=7 * DAY_S, audit_s=400 * DAY_S), by="anna")

    Whatever is under way, waits or is in doubt stays. It takes a while: each transaction has a few milliseconds, and
    others have the store in between.

    Args:
        by: Who shortens the audit log, for its record.
        dry_run: Delete nothing; return what would be deleted.

    Raises:
        ConfigError: The store is in memory or one tenant's view, or its log has another key. Nothing was deleted.
        StoreUnavailable: The store did not answer; it can be done again.
    """
    if by:
        check_person("by", by)
    if retention.audit_s is not None:
        log_key.check(store)
    return _delete_old(store, retention, by=by, dry_run=dry_run)


def _note(
    store: object, event: str, run_id: str, *, by: str, **details: object
) -> None:
    _record(store, person_entry(event, run_id, Redactor(), by=by, **details))


def _record(store: object, notice: AuditEntry) -> None:
    """Record a decision, and wait until it is recorded."""
    if isinstance(store, AuditStore):
        result_now(store.append_audit([notice]))


# ---------------------------------------------------------------------- the questions of a runtime


class SyncApprovalQueue:
    """The questions of a runtime's own scope, and the words on them. Each method waits for the store.

        [question] = runtime.approvals.list()
        runtime.approvals.approve(question.id, by="anna")

    Every method but `list` raises `ConfigError` where there is no such question, or it cannot be decided like this;
    nothing was decided then.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def for_scope(self, scope: str | None) -> SyncApprovalQueue:
        """Return the questions of a tenant; of the runtime's own scope for None, as in a call."""
        return SyncApprovalQueue(self._engine.serve(scope))

    def list(
        self, state: ApprovalState | Literal[""] = "open", *, run: str | None = None
    ) -> list[ApprovalRequest]:
        """Return the questions in a state, the oldest first; those of every state for "".

        Args:
            run: Of this run only.
        """
        found: Sequence[ApprovalRequest] = result_now(
            self._store.list_approvals(state=state, run_id=run or "")
        )
        return [each for each in found if not parse_scope(each.run_id)]

    def get(self, id: str) -> ApprovalRequest:
        """Return a question in its present state."""
        found = question(self._store, id)
        if parse_scope(found.run_id):
            # a tenant's; whoever decides for all of them uses the functions above
            raise ConfigError(f"there is no question {id!r} in this scope")
        return found

    def approve(
        self, id: str, *, by: str, scope: ApprovalScope = "once"
    ) -> ApprovalRequest:
        """Approve the call of a question, with the arguments that it shows.

        Args:
            by: Who approves, for the audit log. Where several must agree, each is another person.
            scope: `run` and `rule` also approve later calls that are asked about for the same reason.
        """
        self.get(id)
        return approve(self._store, id, by=by, scope=scope)

    def edit(
        self, id: str, arguments: Mapping[str, Json], *, by: str
    ) -> ApprovalRequest:
        """Approve the call of a question with these arguments in place of its own."""
        self.get(id)
        return approve(self._store, id, by=by, edited=arguments)

    def deny(self, id: str, *, by: str, reason: str = "") -> ApprovalRequest:
        """Deny the call of a question; the model reads the reason."""
        self.get(id)
        return deny(self._store, id, by=by, reason=reason)

    def answer(self, id: str, value: Json, *, by: str = "") -> ApprovalRequest:
        """Deliver the result of a deferred call, any JSON value. The same value once more changes nothing."""
        self.get(id)
        # as of a result that a tool returns, nobody reads them
        value = self._engine.hide_secrets(value)
        return deliver(self._store, id, value, by=by)

    def _find_call(self, call_id: str, run: str) -> str:
        """Return the id of the question that waits for the result of a call."""
        waiting = [
            each
            for each in self.list("", run=run)
            if each.awaits_result and each.call_id == call_id
        ]
        if not waiting:
            # a call that waits for the result of a write which another run has started
            waiting = [each for each in self.list("") if (run, call_id) in each.waiters]
        if not waiting:
            raise ConfigError(
                f"no call {call_id!r} of the run {run!r} waits for a result"
            )
        return waiting[-1].id

    def withdraw(self, id: str, *, by: str, reason: str = "") -> ApprovalRequest:
        """Take back an open question, or an approval that no call has used. The same call is asked about again."""
        self.get(id)
        return withdraw(self._store, id, by=by, reason=reason)

    @property
    def _store(self) -> ApprovalStore:
        store = self._engine.store
        if not isinstance(store, ApprovalStore):
            raise ConfigError(
                "this store keeps no questions; open the runtime with another, such as "
                '`store="sqlite:///handrail.db"`'
            )
        return store


class ApprovalQueue:
    """The questions of a runtime, and the words on them; see `SyncApprovalQueue` for what each method does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue = SyncApprovalQueue(engine)

    def for_scope(self, scope: str | None) -> ApprovalQueue:
        """Return the questions of a tenant; of the runtime's own scope for None, as in a call."""
        return ApprovalQueue(self._engine.serve(scope))

    async def list(
        self, state: ApprovalState | Literal[""] = "open", *, run: str | None = None
    ) -> list[ApprovalRequest]:
        """Return the questions in a state, the oldest first; those of every state for ""."""
        return await asyncio.to_thread(self._queue.list, state, run=run)

    async def get(self, id: str) -> ApprovalRequest:
        """Return a question in its present state."""
        return await asyncio.to_thread(self._queue.get, id)

    async def approve(
        self, id: str, *, by: str, scope: ApprovalScope = "once"
    ) -> ApprovalRequest:
        """Approve the call of a question, with the arguments that it shows."""
        return await asyncio.to_thread(self._queue.approve, id, by=by, scope=scope)

    async def edit(
        self, id: str, arguments: Mapping[str, Json], *, by: str
    ) -> ApprovalRequest:
        """Approve the call of a question with these arguments in place of its own."""
        return await asyncio.to_thread(self._queue.edit, id, arguments, by=by)

    async def deny(self, id: str, *, by: str, reason: str = "") -> ApprovalRequest:
        """Deny the call of a question; the model reads the reason."""
        return await asyncio.to_thread(self._queue.deny, id, by=by, reason=reason)

    async def answer(self, id: str, value: Json, *, by: str = "") -> ApprovalRequest:
        """Deliver the result of a deferred call, any JSON value. The same value once more changes nothing."""
        return await asyncio.to_thread(self._queue.answer, id, value, by=by)

    async def _find_call(self, call_id: str, run: str) -> str:
        """Return the id of the question that waits for the result of a call."""
        return await asyncio.to_thread(self._queue._find_call, call_id, run)

    async def withdraw(self, id: str, *, by: str, reason: str = "") -> ApprovalRequest:
        """Take back an open question, or an approval that no call has used."""
        return await asyncio.to_thread(self._queue.withdraw, id, by=by, reason=reason)
