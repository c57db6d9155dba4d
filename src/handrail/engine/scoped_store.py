"""One store for several tenants: what a runtime with a `scope` sees of it.

A tenant's runs have names of their own in the store: run `ticket-1` of the scope `acme` is stored as `@acme/ticket-1`,
and so is everything that belongs to a run: its steps, writes, questions, approvals, long results, audit records. A
write has the scope beside its key (`effects.Claim.scope`); locks get it here.

`ScopedStore` translates between the two. Commands, and other code that opens the store itself, see the stored names of
all tenants.

Rule 1: `ScopedStore` has only the methods that are translated here; any other would show every tenant's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from handrail.effects import Claim, SettledState
from handrail.errors import ConfigError, Json
from handrail.futures import StoreAnswer, then
from handrail.invisible import check_name
from handrail.records import (
    ApprovalRequest,
    AuditEntry,
    AuditRecord,
    JournalEntry,
    RunRecord,
    StandingApproval,
    StoredRun,
    Submission,
    UnwrittenEntry,
    WriteRecord,
)
from handrail.tools.keys import digest

_MARK = "@"
LONGEST_SCOPE = 100
_MOST_LOOKED_AT = 100_000
"""Rows of all tenants in which those of one are looked for. A tenant with none among so many newer ones sees none."""


def check_scope(scope: str) -> None:
    """Raise ConfigError unless a text can be a scope: it is written into names, before a slash."""
    if scope == "":
        return
    check_name("scope", scope)
    if "/" in scope:
        raise ConfigError(f"scope is {scope!r}; a scope cannot contain a slash")
    if len(scope) > LONGEST_SCOPE:
        raise ConfigError(
            f"scope has {len(scope)} characters; at most {LONGEST_SCOPE} are possible"
        )


def check_run_name(run_id: object, scope: str) -> None:
    """Raise ConfigError for what is no name, and where a runtime without a scope names a run of another one."""
    if not isinstance(run_id, str):
        raise ConfigError(f"run_id is {run_id!r}; it takes a name")
    if not scope and run_id.startswith(_MARK):
        raise ConfigError(
            f"the run {run_id!r} cannot be named: names that begin with {_MARK!r} are those of a scope"
        )


def qualify_name(scope: str, run_id: str) -> str:
    """Return the name of a run as a store has it.

    >>> qualify_name("acme", "ticket-1"), qualify_name("", "ticket-1")
    ('@acme/ticket-1', 'ticket-1')
    """
    return f"{_MARK}{scope}/{run_id}" if scope else run_id


def parse_scope(stored_name: str) -> str:
    """Return the scope in a name as a store has it; empty where there is none.

    >>> parse_scope("@acme/ticket-1"), parse_scope("ticket-1")
    ('acme', '')
    """
    scope, slash, _ = stored_name.removeprefix(_MARK).partition("/")
    return scope if slash and stored_name.startswith(_MARK) else ""


def strip_scope(stored_name: str) -> str:
    """Return a run's own name, without the scope.

    >>> strip_scope("@acme/ticket-1"), strip_scope("ticket-1")
    ('ticket-1', 'ticket-1')
    """
    return stored_name.partition("/")[2] if parse_scope(stored_name) else stored_name


def make_approval_id(run_id: str, tool: str, pin: str, reason: str) -> str:
    """Return the id of a standing approval, the same for the same approval; `run_id` is the stored name."""
    name = digest({"run": run_id, "tool": tool, "pin": pin, "reason": reason})[:16]
    return f"g_{name}{_tag(parse_scope(run_id))}"


def _tag(scope: str) -> str:
    """Return the suffix of the ids of a scope's questions and standing approvals."""
    return (
        f".{sha256(scope.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
        if scope
        else ""
    )


class ScopedStore:
    """One tenant's view of a store. It has the methods that the store has, as far as `_View` translates them.

    Args:
        store: The store of all tenants.
    """

    def __init__(self, store: Any, scope: str) -> None:
        check_scope(scope)
        view = _View(store, scope)
        # As attributes: protocol checks look at the attributes of a store.
        for name in dir(view):
            if not name.startswith("_") and hasattr(store, name):
                setattr(self, name, getattr(view, name))
        for name in _AS_THEY_ARE:
            if hasattr(store, name):
                setattr(self, name, getattr(store, name))
        self._place = f"{store!r} for {scope!r}"

    def __repr__(self) -> str:
        return f"<ScopedStore: {self._place}>"


_AS_THEY_ARE = (
    "claims_use_approvals",
    "audit_key",
    "digest_key",
    "takes_groups",
    "takes_texts",
    "takes_unwritten",
    "log_refuses",
    "settle",
    "renew",
    "hurry",
    "close",
)
"""Names of no run, so they need no translation: settlements and renewals name a claim by scope, key and fence."""


class _View:
    """The methods of every port, in the order of `ports`, translated to one scope."""

    def __init__(self, store: Any, scope: str) -> None:
        self._store = store
        self._scope = scope
        self._tag = _tag(scope)

    # ------------------------------------------------------------------ writes and long results

    def claim(self, claim: Claim) -> Any:
        return self._store.claim(self._qualify_claim(claim))

    def look_up(self, claim: Claim) -> Any:
        return self._store.look_up(self._qualify_claim(claim))

    def save_result(self, run_id: str, text: str) -> StoreAnswer[str]:
        return self._store.save_result(self._qualify(run_id), text)  # type: ignore[no-any-return]  # any store

    def load_result(self, run_id: str, handle: str) -> StoreAnswer[str | None]:
        return self._store.load_result(self._qualify(run_id), handle)  # type: ignore[no-any-return]  # any store

    # ------------------------------------------------------------------ runs

    def begin_run(self, record: RunRecord, **how: Any) -> StoreAnswer[StoredRun]:
        forked_from = self._qualify(record.forked_from) if record.forked_from else ""
        mine = replace(
            record, run_id=self._qualify(record.run_id), forked_from=forked_from
        )
        return then(self._store.begin_run(mine, **how), _strip_stored)

    def append_entry(self, entry: JournalEntry) -> StoreAnswer[bool]:
        qualified = replace(entry, run_id=self._qualify(entry.run_id))
        return self._store.append_entry(qualified)  # type: ignore[no-any-return]  # any store

    def load_run(self, run_id: str) -> StoreAnswer[StoredRun | None]:
        return then(
            self._store.load_run(self._qualify(run_id)),
            lambda stored: stored and _strip_stored(stored),
        )

    def list_runs(
        self, *, most: int = 100, **wanted: Any
    ) -> StoreAnswer[Sequence[RunRecord]]:
        found = self._store.list_runs(most=_MOST_LOOKED_AT, **wanted)
        return then(
            found,
            lambda found: [_strip_record(each) for each in self._mine(found)][:most],
        )

    def request_cancel(self, run_id: str) -> StoreAnswer[bool]:
        return self._store.request_cancel(self._qualify(run_id))  # type: ignore[no-any-return]  # any store

    def submit_run(
        self, record: RunRecord, submission: Submission
    ) -> StoreAnswer[RunRecord]:
        mine = replace(record, run_id=self._qualify(record.run_id))
        return then(self._store.submit_run(mine, submission), _strip_record)

    # ------------------------------------------------------------------ questions

    def ask(
        self, question: ApprovalRequest, *, within_s: float
    ) -> StoreAnswer[ApprovalRequest]:
        id = (
            question.id
            if question.id.endswith(self._tag)
            else f"{question.id}{self._tag}"
        )
        mine = replace(question, id=id, run_id=self._qualify(question.run_id))
        return then(self._store.ask(mine, within_s=within_s), _strip)

    def decide(self, id: str, **word: Any) -> StoreAnswer[ApprovalRequest | None]:
        if not id.endswith(self._tag):
            return None
        return then(
            self._store.decide(id, **word),
            lambda question: question and _strip(question),
        )

    def use(self, id: str) -> StoreAnswer[bool]:
        return id.endswith(self._tag) and self._store.use(id)

    def withdraw(self, id: str, **word: Any) -> StoreAnswer[ApprovalRequest | None]:
        if not id.endswith(self._tag):
            return None
        return then(
            self._store.withdraw(id, **word),
            lambda question: question and _strip(question),
        )

    def list_approvals(
        self, *, run_id: str = "", **wanted: Any
    ) -> StoreAnswer[Sequence[ApprovalRequest]]:
        found = self._store.list_approvals(
            run_id=self._qualify(run_id) if run_id else "", **wanted
        )
        return then(found, lambda found: [_strip(each) for each in self._mine(found)])

    # ------------------------------------------------------------------ standing approvals

    def grant(self, grant: StandingApproval) -> StoreAnswer[StandingApproval]:
        run_id = self._qualify(grant.run_id)
        mine = replace(
            grant,
            id=make_approval_id(run_id, grant.tool, grant.pin, grant.reason),
            run_id=run_id,
        )
        return then(self._store.grant(mine), _strip)

    def list_standing_approvals(
        self, **wanted: Any
    ) -> StoreAnswer[Sequence[StandingApproval]]:
        return then(
            self._store.list_standing_approvals(**wanted),
            lambda found: [_strip(each) for each in self._mine(found)],
        )

    def revoke(self, id: str, *, by: str) -> StoreAnswer[bool]:
        return id.endswith(self._tag) and self._store.revoke(id, by=by)

    # ------------------------------------------------------------------ the ledger

    def list_writes(
        self, *, run_id: str = "", most: int = 100, **wanted: Any
    ) -> StoreAnswer[Sequence[WriteRecord]]:
        found = self._store.list_writes(
            run_id=self._qualify(run_id) if run_id else "",
            most=_MOST_LOOKED_AT,
            **wanted,
        )
        return then(
            found,
            lambda found: [_strip(each) for each in found if each.scope == self._scope][
                :most
            ],
        )

    def load_write(self, scope: str, key: str) -> StoreAnswer[WriteRecord | None]:
        if scope != self._scope:
            return None
        return then(
            self._store.load_write(scope, key), lambda write: write and _strip(write)
        )

    def resolve(
        self, scope: str, key: str, *, state: SettledState, by: str, value: Json = None
    ) -> StoreAnswer[WriteRecord | None]:
        if scope != self._scope:
            return None
        return then(
            self._store.resolve(scope, key, state=state, by=by, value=value),
            lambda write: write and _strip(write),
        )

    def release(
        self, scope: str, key: str, *, fence: int, by: str
    ) -> StoreAnswer[bool]:
        return scope == self._scope and self._store.release(
            scope, key, fence=fence, by=by
        )

    # ------------------------------------------------------------------ the audit log

    def append_audit(
        self, entries: Sequence[AuditEntry | UnwrittenEntry]
    ) -> StoreAnswer[None]:
        mine = [replace(each, run_id=self._qualify(each.run_id)) for each in entries]
        return self._store.append_audit(mine)  # type: ignore[no-any-return]  # any store

    def log(
        self, *, run_id: str = "", most: int = 1000, **wanted: Any
    ) -> StoreAnswer[Sequence[AuditRecord]]:
        looked_at = most if run_id else _MOST_LOOKED_AT
        found = self._store.log(
            run_id=self._qualify(run_id) if run_id else "", most=looked_at, **wanted
        )
        return then(
            found, lambda found: [_strip(each) for each in self._mine(found)][:most]
        )

    # ------------------------------------------------------------------ names

    def _qualify(self, run_id: str) -> str:
        return qualify_name(self._scope, run_id)

    def _qualify_claim(self, claim: Claim) -> Claim:
        return replace(
            claim,
            run_id=self._qualify(claim.run_id) if claim.run_id else "",
            locks=tuple(map(self._qualify, claim.locks)),
        )

    def _mine(self, found: Iterable[Any]) -> list[Any]:
        return [each for each in found if parse_scope(each.run_id) == self._scope]


def _strip(found: Any) -> Any:
    stripped = replace(found, run_id=strip_scope(found.run_id))
    if isinstance(stripped, ApprovalRequest) and stripped.waiters:
        waiters = tuple((strip_scope(run_id), id) for run_id, id in stripped.waiters)
        return replace(stripped, waiters=waiters)
    return stripped


def _strip_record(record: RunRecord) -> RunRecord:
    return replace(
        record,
        run_id=strip_scope(record.run_id),
        forked_from=strip_scope(record.forked_from),
    )


def _strip_stored(stored: StoredRun) -> StoredRun:
    return replace(stored, record=_strip_record(stored.record))
