"""Which writes have been claimed and how they ended: what a claim answers, and what a settlement changes.

Every store decides here, so that one in memory and one on a server cannot differ. A store in memory holds one ledger
for good; a durable one reads the rows that a group of callers names into a ledger of its own, lets it decide, and
writes back what `changed`, all in one transaction.

Rule 1: whoever calls has the rows to itself: a lock, or a transaction that nobody else can get into.
Rule 2: `now` is the store's clock and no caller's; callers need not agree about the time.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from handrail.core.writes import LEASE_BEYOND_TIMEOUT_S
from handrail.effects import (
    AGAIN,
    Claim,
    Claimed,
    ClaimState,
    Renew,
    ReplayClass,
    Settle,
)
from handrail.process_identity import has_died_here
from handrail.records import ApprovalRequest, describe_time, name_write, run_name_time


class Row(Struct, eq=False, gc=False):
    """One write: who claimed it, and its state.

    Attributes:
        begun: When its owner began the write or may begin it, by the store's clock. Whoever takes one of class
            `verify` over waits first.
        value: The result, as the store keeps it; of a write in doubt, why it is.
        epoch: Of the run, when its present fence began.
        owner: The process that claimed it, where that is recorded; see `process_identity`.
        stored: The row has been read from a database.
        changed: The row differs from what was read.
        resolved_by: The person who resolved it; used in memory only.
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
    tool: str = ""
    place: str = ""
    owner: str = ""
    stored: bool = False
    changed: bool = True
    resolved_by: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the write has ended, in one way or the other."""
        return self.state in ("done", "failed")

    def is_leased(self, now: float) -> bool:
        """Whether its owner may still perform it: not after the lease, nor when the owner is certainly dead."""
        return self.lease_until >= now and not has_died_here(self.owner)

    @property
    def act(self) -> tuple[str, str, bytes]:
        """The key of the repeat guard: run, scope and fingerprint."""
        return self.run_id, self.scope, self.fingerprint


class NamedApproval(Struct, frozen=True):
    """The approval that a claim names: some of the fields of `records.ApprovalRequest`."""

    state: str
    expires: float
    used_by: str


class Restored(Struct, frozen=True):
    """A store was set back to an older copy of it: what it recorded from `since` until `at` is lost."""

    since: float
    at: float


class Ledger:
    """Rows by their key, in the order in which they were claimed, and by their act.

    Args:
        restored: What the store has lost, if it was set back: a key that is not in it may have been used.
    """

    def __init__(
        self, rows: Iterable[Row] = (), restored: Restored | None = None
    ) -> None:
        self._restored = restored
        self.rows: OrderedDict[tuple[str, str], Row] = OrderedDict()
        self._by_act: dict[tuple[str, str, bytes], Row] = {}
        self._recent_acts: dict[tuple[str, bytes], Row] = {}
        for row in rows:
            self.rows[row.scope, row.key] = row
            if row.state != "failed":
                self._by_act[row.act] = row

    def claim(
        self, claim: Claim, now: float, approval: NamedApproval | None = None
    ) -> Claimed:
        """Answer a claim; docs/decisions/0004-claims.md has the table.

        Args:
            approval: The approval that the claim names; None if there is none of that id.
        """
        answer = self._answer(claim, now)
        if answer is not None:
            self.mark_in_doubt(claim, answer)
            return answer
        row = self.rows.get((claim.scope, claim.key))
        if claim.approval and not _is_approved(approval, claim, row, now):
            return Claimed(ClaimState.UNAPPROVED)
        if row is None:
            return self._add_row(claim, now, fence=1, stored=False)
        if row.state == "failed":
            self.forget(row)
            return self._add_row(claim, now, fence=row.fence + 1, stored=row.stored)
        return _take_over(row, claim, now)

    def look_up(self, claim: Claim, now: float) -> Claimed | None:
        """Answer a claim whose write may not start; None if it may. Changes nothing."""
        return self._answer(claim, now)

    def _answer(self, claim: Claim, now: float) -> Claimed | None:
        """Answer a claim from the row of its key, if there is one, or was one that may be lost."""
        row = self.rows.get((claim.scope, claim.key))
        if row is None:
            answer = self._answer_repeat(claim, now)
            restored = self._restored
            if answer is not None or restored is None or is_new(claim, restored):
                return answer
            row = self._add_lost_row(claim, restored)
        is_replaced = row.run_id == claim.run_id and 0 < claim.epoch < row.epoch
        if is_replaced and row.state != "done":
            return Claimed(ClaimState.BUSY)  # only the newer owner of the run goes on
        if row.state == "failed":
            return None
        if row.fingerprint != claim.fingerprint:
            return Claimed(ClaimState.CONFLICT, tool=row.tool)
        if row.state == "done":
            return Claimed(ClaimState.DONE, row.fence, row.value)
        return _answer_open(row, claim, now)

    def mark_in_doubt(self, claim: Claim, answer: Claimed) -> None:
        """Record the answer IN_DOUBT on the row of the claim, if that still says `claimed`.

        Its process is gone, or its lease is over, and the write may not be started again.
        """
        if answer.state is not ClaimState.IN_DOUBT:
            return
        row = self.rows.get((claim.scope, claim.key))
        if row is not None and row.state == "claimed":
            row.state = "in_doubt"
            row.changed = True

    def settle(self, settle: Settle) -> bool:
        """Record how a claimed write ended; False when the claim has a newer owner, or the write is settled."""
        row = self.rows.get((settle.scope, settle.key))
        if row is None or row.fence != settle.fence:
            return False
        if settle.state == "waiting":
            return True  # it waits already, or its result came before the tool had returned
        if row.is_settled:
            return False
        row.state = settle.state
        row.value = settle.value
        row.changed = True
        return True

    def await_result(self, question: ApprovalRequest) -> bool:
        """Let a claimed write wait for the result that a question asks for; False where others have ended its claim.

        The store keeps a new question in the same commit, and only if this returns true.
        """
        scope, key, fence = json.loads(question.used_by)
        row = self.rows.get((scope, key))
        if row is None or row.fence != fence or row.state not in ("claimed", "waiting"):
            return False
        row.state = "waiting"
        row.changed = True
        return True

    def deliver(self, answered: ApprovalRequest) -> bool:
        """Settle the write that a question waits for by its answer; False where the write does not wait for one.

        The store keeps the answer in the same commit, and only if this returns true.
        """
        scope, key, fence = json.loads(answered.used_by)
        row = self.rows.get((scope, key))
        if row is None or row.fence != fence:
            return False
        if row.state not in ("waiting", "in_doubt"):
            return False
        row.state = "done" if answered.state == "approved" else "in_doubt"
        row.value = answered.settled_value
        row.changed = True
        return True

    def renew(self, renew: Renew, now: float) -> bool:
        """Extend the lease of a claim, or end it; False when the write has ended, or the claim has a newer owner."""
        row = self.rows.get((renew.scope, renew.key))
        is_open = row is not None and row.state in ("claimed", "waiting")
        if row is None or row.fence != renew.fence or not is_open:
            return False
        until = now + renew.lease_s
        row.lease_until = max(row.lease_until, until) if renew.lease_s else now
        row.changed = True
        return True

    def note_act(self, row: Row) -> None:
        """Add an act of another run for the repeat guard."""
        self._recent_acts[row.scope, row.fingerprint] = self.rows.setdefault(
            (row.scope, row.key), row
        )

    def recent_act(self, claim: Claim) -> Row | None:
        """Return the last act of any run that is like this one, among those noted here."""
        return self._recent_acts.get((claim.scope, claim.fingerprint))

    def forget(self, row: Row) -> None:
        """Remove a row."""
        del self.rows[row.scope, row.key]
        if self._by_act.get(row.act) is row:
            del self._by_act[row.act]
        if (
            self._recent_acts
            and self._recent_acts.get((row.scope, row.fingerprint)) is row
        ):
            del self._recent_acts[row.scope, row.fingerprint]

    def _add_row(
        self, claim: Claim, now: float, *, fence: int, stored: bool
    ) -> Claimed:
        """Let the caller start the write, in a new row."""
        scope = claim.scope
        key = claim.key
        fingerprint = claim.fingerprint
        run_id = claim.run_id
        row = self.rows[scope, key] = Row(
            scope,
            key,
            fingerprint,
            run_id,
            "claimed",
            claim.replay,
            fence,
            lease_until=now + claim.lease_s,
            begun=now,
            epoch=claim.epoch,
            tool=claim.tool,
            place=claim.place,
            stored=stored,
        )
        self._by_act[run_id, scope, fingerprint] = row
        if claim.guard and claim.repeat_window_s:
            self._recent_acts[scope, fingerprint] = row
        return Claimed(ClaimState.FRESH, fence)

    def _add_lost_row(self, claim: Claim, restored: Restored) -> Row:
        """Add the row that was lost if the write was started before the store was set back, in doubt.

        Its fence is beyond those of before, so that a person's word to do it again is another one than in lost times.
        """
        row = self.rows[claim.scope, claim.key] = Row(
            claim.scope,
            claim.key,
            claim.fingerprint,
            claim.run_id,
            "in_doubt",
            claim.replay,
            fence=int(restored.at),
            # a request of then may be under way for as long as it takes
            lease_until=restored.at + claim.lease_s,
            begun=restored.since,
            value=json.dumps(
                f"the store was set back on {describe_time(restored.at)}, and may have forgotten it"
            ),
            tool=claim.tool,
        )
        self._by_act[row.act] = row
        return row

    def _answer_repeat(self, claim: Claim, now: float) -> Claimed | None:
        """Answer a claim whose act was performed under another key, in this run or recently in any; None if not."""
        row = self._find_repeated(claim, now)
        if row is None:
            return None
        if row.state == "done":
            return Claimed(
                ClaimState.DONE, row.fence, row.value, repeated=True, key=row.key
            )
        if row.state == "waiting":
            return Claimed(ClaimState.STARTED, row.fence, repeated=True, key=row.key)
        if row.state == "claimed" and row.is_leased(now):
            return Claimed(ClaimState.BUSY, row.fence, repeated=True)
        # Who can tell what became of it, or has it asked for again, claims it under its own key.
        key = row.key if row.replay != "none" else ""
        return Claimed(
            ClaimState.IN_DOUBT, row.fence, row.value, repeated=True, key=key
        )

    def _find_repeated(self, claim: Claim, now: float) -> Row | None:
        """Return the last row of the same act that did not fail: of this run, or of any run within the window."""
        if not claim.guard:
            return None
        if claim.run_id:
            row = self._by_act.get((claim.run_id, claim.scope, claim.fingerprint))
            if row is not None and row.state != "failed":
                return row
        if claim.repeat_window_s:
            row = self.recent_act(claim)
            if (
                row is not None
                and row.state != "failed"
                and row.begun >= now - claim.repeat_window_s
            ):
                return row
        return None


_NONCE = r"/[0-9a-f]{8}/\d+"
"""What a process writes behind the name of a run whose turns others may count too."""


def is_new(claim: Claim, restored: Restored) -> bool:
    """Whether no write can have had the key of a claim before the store was set back.

    It names a run that began later, or the memory of one process, or the doubt that a person has looked at since.
    """
    run_id, key = claim.run_id, claim.key
    if run_id.startswith("@"):
        run_id = run_id.partition("/")[2] or run_id  # as stored for a tenant
    is_of_run = run_id and key.startswith(f"{run_id}/")
    if is_of_run and run_name_time(run_id) > restored.at:
        return True
    if is_of_run and re.match(_NONCE, key[len(run_id) :]):
        return True
    _, again, fence = key.rpartition(AGAIN)
    return bool(again) and fence.isdecimal() and int(fence) >= int(restored.at)


def _is_approved(
    approval: NamedApproval | None, claim: Claim, row: Row | None, now: float
) -> bool:
    """Whether a write may start under an approval that is unused, or that this very write has used.

    A stored run may continue its own write, claimed before a crash, even after the approval has expired. Nothing else
    may start then; and once the write has failed without effect, no other call may use the approval.
    """
    if approval is None:
        return False
    in_time = approval.expires >= now
    if approval.state == "approved":
        return in_time
    if (
        row is None
        or approval.state != "used"
        or approval.used_by != name_write(row.scope, row.key, row.fence)
    ):
        return False
    has_started = row.state != "failed"
    is_same_call = claim.epoch > 0
    return (has_started and is_same_call) or (in_time and (has_started or is_same_call))


def _answer_open(row: Row, claim: Claim, now: float) -> Claimed | None:
    """Answer a claim of a write without an end, by its lease and replay class; None if the caller may go on with it."""
    if row.state == "waiting":
        return Claimed(ClaimState.STARTED, row.fence)
    # A process that has taken a run over need not wait for the leases of the earlier owner, which is dead or fenced.
    # Class `verify` waits all the same: an old request may still be under way.
    is_own_run = row.run_id == claim.run_id and row.epoch < claim.epoch
    waits = not is_own_run or row.replay == "verify"
    is_leased = waits and row.is_leased(now)
    # In doubt too: the earlier owner may have handed the run over in the middle of the write.
    if is_leased and (row.state == "claimed" or is_own_run):
        left_s = row.lease_until - now if is_own_run else 0.0
        return Claimed(ClaimState.BUSY, left_s=left_s)
    # After `key_ttl_s` the service has forgotten the key, and would take a second request for a new act.
    is_key_forgotten = row.replay == "key" and now > row.begun + claim.key_ttl_s
    # While the old lease lasts an old request may still be under way, and `verify` would miss it.
    is_verify_early = row.replay == "verify" and is_leased
    if row.replay == "none" or is_key_forgotten or is_verify_early:
        return Claimed(ClaimState.IN_DOUBT, row.fence, row.value)
    return None


def _take_over(row: Row, claim: Claim, now: float) -> Claimed:
    """Let the caller take over a write that another process claimed."""
    left_s = 0.0
    begins = now
    if row.replay == "verify":
        left_s = _left_s(row, now)
        begins += max(0.0, left_s - LEASE_BEYOND_TIMEOUT_S)
        row.begun = begins
    row.state = "claimed"
    row.fence += 1
    row.lease_until = begins + claim.lease_s
    row.epoch = claim.epoch
    row.owner = ""  # alive: another claim in the same group finds the write under way
    row.changed = True
    if row.replay == "key":
        return Claimed(ClaimState.AGAIN, row.fence)
    return Claimed(ClaimState.CHECK, row.fence, left_s=left_s)


def _left_s(row: Row, now: float) -> float:
    """Return how long requests of dead processes for a write may still be under way, as the rest of a lease."""
    if row.begun > now:
        # The last owner died while it waited, and sent nothing: its own time does not count.
        return row.begun - now + LEASE_BEYOND_TIMEOUT_S
    return max(0.0, row.lease_until - now)
