"""The requests to a durable store, and how each is answered in the transaction of its group.

Rule 1: what is decided about a claim is decided by the `Ledger`; here its locks, its approval and acts of other runs
        are read before it and written after it.
Rule 2: an answer that another transaction may contradict raises `RetryGroup`, and the group is decided again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from handrail.effects import AGAIN, Claim, Claimed, ClaimState, LookUp, Renew, Settle
from handrail.process_identity import has_died_here, owner, shares_our_clock
from handrail.records import WRITE_ENDED, name_write
from handrail.stores.database import RetryGroup, SavedResult, Statements, WriteName
from handrail.stores.ledger import Ledger, NamedApproval
from handrail.stores.sql_values import (
    decode_name,
    encode_json,
    encode_name,
    row_from,
    statements,
)
from handrail.surroundings.clock import monotonic

_SQL = statements("locks.sql")


class GroupOperation(Struct, frozen=True, gc=False):
    """Something to be done in the transaction of a group: once for all of a group that share `run`.

    Attributes:
        run: Takes the connection, the time and the `argument` of each; returns an answer for each. An error among them
            is raised to its own caller, and means that nothing has changed. May be called twice; the first attempt
            can be rolled back.
    """

    run: Callable[[Any, float, Sequence[Any]], Sequence[Any]]
    argument: Any = None


StoreRequest: TypeAlias = Claim | LookUp | Settle | Renew | SavedResult | GroupOperation


def write_name(request: Claim | LookUp | Settle | Renew) -> WriteName:
    """Return the name of the write that a request is about, and its act where other keys count."""
    named = request.claim if isinstance(request, LookUp) else request
    if type(named) is not Claim or not named.guard or not named.run_id:
        return named.scope, named.key, None, None
    return named.scope, named.key, named.run_id, named.fingerprint.hex()


def takes_locks(request: StoreRequest) -> bool:
    """Whether a request may write to the table of locks."""
    return isinstance(request, Claim | Settle | Renew) and bool(request.locks)


def answer_request(
    request: Claim | LookUp | Settle | Renew | SavedResult,
    ledger: Ledger,
    database: Statements,
    now: float,
) -> Any:
    """Return the answer to a request, having changed the ledger and the other tables accordingly.

    Raises:
        RetryGroup: Another process was quicker, in a transaction that we could not see.
    """
    match request:
        case Claim():
            return _claim(request, ledger, database, now)
        case Settle():
            return _settle(request, ledger, database)
        case Renew():
            return _renew(request, ledger, database, now)
        case LookUp(claim=claim):
            return _look_up(claim, ledger, database, now)
        case SavedResult():
            return request.handle


def _settle(settle: Settle, ledger: Ledger, database: Statements) -> bool:
    row = ledger.rows.get((settle.scope, settle.key))
    has_waited = row is not None and row.state == "waiting"
    is_settled = ledger.settle(settle)
    if is_settled and settle.state == "failed" and has_waited:
        write = name_write(
            decode_name(settle.scope), decode_name(settle.key), settle.fence
        )
        database.run(_SQL["close"], (encode_json(WRITE_ENDED), write))
    # A tool that runs on may still change what it touches.
    lets_go = settle.state != "in_doubt" or settle.has_ended
    if is_settled and settle.locks and lets_go:
        database.run(_SQL["unlock"], (_lock_holder(settle), settle.fence))
    return is_settled


def _renew(renew: Renew, ledger: Ledger, database: Statements, now: float) -> bool:
    is_renewed = ledger.renew(renew, now)
    if is_renewed and renew.locks:
        until = now + renew.lease_s
        ticks = monotonic() + renew.lease_s
        database.run(_SQL["renew"], (until, ticks, _lock_holder(renew), renew.fence))
    return is_renewed


def _look_up(
    claim: Claim, ledger: Ledger, database: Statements, now: float
) -> Claimed | None:
    if _looks_back(claim):
        _recall_act(claim, ledger, database, now)
    answer = ledger.look_up(claim, now)
    if answer is None:
        return None
    ledger.mark_in_doubt(claim, answer)
    return _with_parsed_value(answer)


def _claim(claim: Claim, ledger: Ledger, database: Statements, now: float) -> Claimed:
    row = ledger.rows.get((claim.scope, claim.key))
    is_done = row is not None and row.state == "done"
    foreign_locks: dict[str, _Lock] = {}
    if claim.locks and not is_done:
        foreign_locks = _find_foreign_locks(claim, database)
        held = [lock for lock in foreign_locks.values() if lock.is_held(now)]
        if held:
            return Claimed(ClaimState.LOCKED, left_s=_doubt_s(held, database, now))
    looks_back = _looks_back(claim)
    stale_key = _recall_act(claim, ledger, database, now) if looks_back else ""
    approval = _load_approval(claim, database) if claim.approval else None
    answer = ledger.claim(claim, now, approval)
    if answer.state.is_taken:
        if approval is not None:
            _use_approval(claim, approval, answer.fence, database)
        if claim.locks:
            _take_locks(claim, answer.fence, foreign_locks, database, now)
    if looks_back and answer.state is ClaimState.FRESH:
        _remember_act(claim, stale_key, database, now)
    return _with_parsed_value(answer)


def _with_parsed_value(answer: Claimed) -> Claimed:
    if answer.value is None:
        return answer
    return replace(answer, value=json.loads(answer.value))


# ---------------------------------------------------------------------- locks


class _Lock(Struct, frozen=True):
    """The row of a lock; `ticks` is `until` by the monotonic clock of its owner's machine."""

    holder: str
    fence: int
    until: float
    owner: str
    ticks: float

    def left_s(self, now: float) -> float:
        """Return for how long it is held if nobody renews it."""
        if shares_our_clock(self.owner):
            return self.ticks - monotonic()
        return self.until - now

    def is_held(self, now: float) -> bool:
        """Whether the write may still be under way: its owner has not died, and its lease is not over.

        The lease of a process of this machine is measured by the monotonic clock, which nobody can set.
        """
        if has_died_here(self.owner):
            return False
        return self.left_s(now) >= 0


_NO_LOCK = _Lock(holder="", fence=0, until=0.0, owner="", ticks=0.0)


def _lock_holder(request: Claim | Settle | Renew) -> str:
    """Return who holds the locks of a write: whoever may go on with it, or does it again, inherits them."""
    return f"{request.scope}\x1f{request.key.partition(AGAIN)[0]}"


def _find_foreign_locks(claim: Claim, database: Statements) -> dict[str, _Lock]:
    """Return the locks of other writes on what a claim locks, also those that are over but were not released."""
    locks = {}
    for resource in claim.locks:
        for row in database.run(_SQL["held"], (resource, _lock_holder(claim))):
            locks[resource] = _Lock(*row)
    return locks


def _doubt_s(held: Sequence[_Lock], database: Statements, now: float) -> float:
    """Return how long locks are held if all of their writes are in doubt; 0 if one of them may be renewed."""
    for lock in held:
        scope, _, key = lock.holder.partition("\x1f")
        if database.run(_SQL["state"], (scope, key)) != [("in_doubt",)]:
            return 0.0
    return max(lock.left_s(now) for lock in held)


def _take_locks(
    claim: Claim,
    fence: int,
    foreign_locks: Mapping[str, _Lock],
    database: Statements,
    now: float,
) -> None:
    """Lock what a write touches, in one order for all, so that nobody waits in a circle.

    Args:
        foreign_locks: Locks of others that are over but were not released.

    Raises:
        RetryGroup: Somebody else was quicker, in a transaction that we could not see.
    """
    until = now + claim.lease_s
    ticks = monotonic() + claim.lease_s
    for resource in sorted(claim.locks):
        over = foreign_locks.get(resource, _NO_LOCK)
        lock = (resource, _lock_holder(claim), fence, until, owner(), ticks)
        if not database.run(_SQL["lock"], (*lock, over.holder, over.fence, over.until)):
            raise RetryGroup


# ---------------------------------------------------------------------- approvals


def _load_approval(claim: Claim, database: Statements) -> NamedApproval | None:
    rows = database.run(_SQL["approval"], (encode_name(claim.approval),))
    return NamedApproval(*rows[0]) if rows else None


def _use_approval(
    claim: Claim, approval: NamedApproval, fence: int, database: Statements
) -> None:
    """Record that a claim has used its approval.

    Raises:
        RetryGroup: Somebody else was quicker, in a transaction that we could not see.
    """
    used_by = name_write(claim.scope, claim.key, fence)
    if not database.run(
        _SQL["use"],
        (used_by, encode_name(claim.approval), approval.state, approval.used_by),
    ):
        raise RetryGroup


# ---------------------------------------------------------------------- the same act in other runs


def _looks_back(claim: Claim) -> bool:
    return claim.guard and claim.repeat_window_s > 0


def _recall_act(claim: Claim, ledger: Ledger, database: Statements, now: float) -> str:
    """Add the last act of any run that is like this one to the ledger.

    Returns:
        The key of an act that is recorded but no longer counts, because its write failed or is gone.
    """
    stale_key = ""
    earliest = now - claim.repeat_window_s
    for key, *values in database.run(
        _SQL["recall"], (claim.scope, claim.fingerprint.hex(), earliest)
    ):
        row = None if values[0] is None else row_from(values)
        if row is None or row.state == "failed":
            stale_key = key
        elif ledger.recent_act(claim) is None:
            ledger.note_act(row)
    return stale_key


def _remember_act(
    claim: Claim, stale_key: str, database: Statements, now: float
) -> None:
    """Record the act for other runs.

    Raises:
        RetryGroup: Somebody else was quicker, in a transaction that we could not see.
    """
    earliest = now - claim.repeat_window_s
    act = (claim.scope, claim.fingerprint.hex(), claim.key, now)
    if not database.run(_SQL["remember"], (*act, earliest, stale_key)):
        raise RetryGroup
