"""Which writes were begun and how they ended: what a claim answers, and what a settlement changes.

Every store decides here, so that one in memory and one on a server cannot differ. A store in memory holds one ledger
for good; a durable one reads the rows that a group of callers names into a ledger of its own, lets it decide, and
writes back what `changed`, all in one transaction.

Rule 1: whoever calls has the rows to itself: a lock, or a transaction that nobody else can get into.
Rule 2: `now` is the store's clock and no caller's; callers need not agree about the time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from handrail.effects import Claim, Claimed, ClaimState, Renew, ReplayClass, Settle
from handrail.process_identity import has_died_here


class Row(Struct, eq=False):
    """One write: who began it, how it stands.

    Attributes:
        begun: When its present fence began, by the store's clock.
        value: The result, as the store keeps it.
        epoch: Of the run, when its present fence began.
        owner: The process that began it, where that is known; see `owners`.
        stored: It has been read from a database.
        changed: It is not what was read.
        resolved_by: The person who said how it ended; used in memory only.
    """

    scope: str
    key: str
    fingerprint: bytes
    run_id: str
    state: str
    replay: ReplayClass
    fence: int
    lease_until: float
    begun: float
    value: Any = None
    epoch: int = 0
    owner: str = ""
    stored: bool = False
    changed: bool = True
    resolved_by: str = ""

    @property
    def settled(self) -> bool:
        """Whether it is known how the write ended."""
        return self.state in ("done", "failed")

    def is_leased(self, now: float) -> bool:
        """Whether its owner may still be at it: not once the lease is over, nor when the owner is certainly dead."""
        return self.lease_until >= now and not has_died_here(self.owner)

    @property
    def act(self) -> tuple[str, str, bytes]:
        """What the repeat guard knows it by."""
        return self.run_id, self.scope, self.fingerprint


class Standing(Struct, frozen=True):
    """The state of the approval that a claim names: some of the fields of `records.Question`."""

    state: str
    expires: float
    used_by: str


class Ledger:
    """Rows by their key, in the order in which they came, and by their act."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows: OrderedDict[tuple[str, str], Row] = OrderedDict()
        self._by_act: dict[tuple[str, str, bytes], Row] = {}
        self._lately: dict[tuple[str, bytes], Row] = {}
        for row in rows:
            self.rows[row.scope, row.key] = row
            if row.state != "failed":
                self._by_act[row.act] = row

    def claim(self, claim: Claim, now: float, approval: Standing | None = None) -> Claimed:
        """Answer a claim; docs/decisions/0004-claims.md has the table.

        Args:
            approval: The state of the question that the claim names; None if there is no such question.
        """
        if (answer := self.look_up(claim, now)) is not None:
            return answer
        row = self.rows.get((claim.scope, claim.key))
        if claim.approval and not _is_approved(approval, claim, row, now):
            return Claimed(ClaimState.UNAPPROVED)
        if row is None:
            return self._fresh(claim, now, fence=1)
        if row.state == "failed":
            return self._fresh(claim, now, row.fence + 1, row.stored)
        return _taken_over(row, claim, now)

    def look_up(self, claim: Claim, now: float) -> Claimed | None:
        """Answer a claim whose write may not start; None if it may.

        An abandoned write that may not be started again becomes `in_doubt` here.
        """
        row = self.rows.get((claim.scope, claim.key))
        if row is None:
            return self._repeated(claim, now)
        if row.state == "failed":
            return None
        if row.fingerprint != claim.fingerprint:
            return Claimed(ClaimState.CONFLICT)
        if row.state == "done":
            return Claimed(ClaimState.DONE, row.fence, row.value)
        return _unsettled(row, claim, now)

    def settle(self, settle: Settle) -> bool:
        """Record how a claimed write ended; False when the claim has a newer owner, or it is known already."""
        row = self.rows.get((settle.scope, settle.key))
        if row is None or row.fence != settle.fence or row.settled:
            return False
        row.state, row.value, row.changed = settle.state, settle.value, True
        return True

    def renew(self, renew: Renew, now: float) -> bool:
        """Let the lease of a claim run anew; False when the claim is over, or somebody else's."""
        row = self.rows.get((renew.scope, renew.key))
        if row is None or row.fence != renew.fence or row.state != "claimed":
            return False
        row.lease_until, row.changed = max(row.lease_until, now + renew.lease_s), True
        return True

    def note(self, row: Row) -> None:
        """Let the repeat guard know of an act of another run."""
        self._lately[row.scope, row.fingerprint] = self.rows.setdefault((row.scope, row.key), row)

    def lately(self, claim: Claim) -> Row | None:
        """Return the last act of any run that is like this one, where such are known."""
        return self._lately.get((claim.scope, claim.fingerprint))

    def forget(self, row: Row) -> None:
        """Let a row go."""
        del self.rows[row.scope, row.key]
        if self._by_act.get(row.act) is row:
            del self._by_act[row.act]
        if self._lately and self._lately.get((row.scope, row.fingerprint)) is row:
            del self._lately[row.scope, row.fingerprint]

    def _fresh(self, claim: Claim, now: float, fence: int, stored: bool = False) -> Claimed:
        until = now + claim.lease_s
        if earlier := self.rows.get((claim.scope, claim.key)):
            self.forget(earlier)
        row = Row(
            claim.scope, claim.key, claim.fingerprint, claim.run_id, "claimed", claim.replay, fence, until, now,
            stored=stored, epoch=claim.epoch,
        )  # fmt: skip
        self.rows[claim.scope, claim.key] = self._by_act[row.act] = row
        if claim.guard and claim.repeat_window_s:
            self._lately[row.scope, row.fingerprint] = row
        return Claimed(ClaimState.FRESH, fence)

    def _repeated(self, claim: Claim, now: float) -> Claimed | None:
        """The same act under another key, in this run or lately in any: its result, or that it is not known yet."""
        row = self._by_act.get((claim.run_id, claim.scope, claim.fingerprint)) if claim.guard and claim.run_id else None
        if (row is None or row.state == "failed") and claim.guard and claim.repeat_window_s:
            row = self.lately(claim)
            row = row if row is not None and row.begun >= now - claim.repeat_window_s else None
        if row is None or row.state == "failed":
            return None
        if row.state == "done":
            return Claimed(ClaimState.DONE, row.fence, row.value, repeated=True, key=row.key)
        under_way = row.state == "claimed" and row.is_leased(now)
        return Claimed(ClaimState.BUSY if under_way else ClaimState.IN_DOUBT, row.fence, repeated=True)


def use_of(scope: str, key: str, fence: int) -> str:
    """Return the name under which an approval records the claim that used it."""
    return json.dumps([scope, key, fence])


def _is_approved(approval: Standing | None, claim: Claim, row: Row | None, now: float) -> bool:
    """Whether a write may start under an approval that is unused, or that this very write has used.

    A kept run may continue its own write, begun before a crash, even after the approval has expired. Nothing else may
    start then; and once the write has failed without effect, no other call may use the approval.
    """
    if approval is None:
        return False
    in_time = approval.expires >= now
    if approval.state == "approved":
        return in_time
    if row is None or approval.state != "used" or approval.used_by != use_of(row.scope, row.key, row.fence):
        return False
    begun, same_call = row.state != "failed", claim.epoch > 0
    return (begun and same_call) or (in_time and (begun or same_call))


def _unsettled(row: Row, claim: Claim, now: float) -> Claimed | None:
    """Nobody has said how it ended: the lease and the replay class decide whether anybody may go on with it."""
    # Who has taken a run over need not wait for the leases of its earlier owner: that one is dead, or fenced. Only an
    # old request that is still under way makes `verify` wait all the same.
    taken_over = row.run_id == claim.run_id and row.epoch < claim.epoch and row.replay != "verify"
    leased = not taken_over and row.is_leased(now)
    if row.state == "claimed" and leased:
        return Claimed(ClaimState.BUSY)
    # While the old lease lasts an old request may still be under way, and `verify` would miss it.
    forgotten = row.replay == "key" and now > row.begun + claim.key_ttl_s  # it would be taken for a new act there
    if row.replay == "none" or forgotten or (row.replay == "verify" and leased):
        row.changed = row.changed or row.state != "in_doubt"
        row.state = "in_doubt"
        return Claimed(ClaimState.IN_DOUBT, row.fence)
    return None


def _taken_over(row: Row, claim: Claim, now: float) -> Claimed:
    """Let the caller take over a write that another process began."""
    left_s = max(0.0, row.lease_until - now)
    # Class verify waits for the end of the old lease before it starts.
    until = now + claim.lease_s + (left_s if row.replay == "verify" else 0.0)
    row.state, row.fence, row.lease_until, row.changed = "claimed", row.fence + 1, until, True
    row.epoch, row.owner = claim.epoch, ""  # alive: whoever asks for it in the same group finds it under way
    if row.replay == "key":
        return Claimed(ClaimState.AGAIN, row.fence)
    return Claimed(ClaimState.CHECK, row.fence, left_s=left_s)
