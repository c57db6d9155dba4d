"""How long a claim belongs to its owner, and how it is renewed while the write is under way.

A lease counts from the request for it, by this process's own clock, and not from the store's answer: a process may be
frozen between the two. The store counts by its own clock; see `docs/decisions/0004-claims.md`.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial

from handrail import logs
from handrail.core.writes import LEASE_BEYOND_TIMEOUT_S, LONGEST_LEASE_S
from handrail.effects import Claim, Claimed, ClaimState, Renew
from handrail.futures import StoreAnswer, then
from handrail.ports import LeaseStore
from handrail.surroundings.clock import monotonic

# How often leases are checked for renewal: at least three times within the shortest lease.
BEAT_S = LEASE_BEYOND_TIMEOUT_S / 3
_LATE_S = 1.0
"""How much later than its claim a write of class `verify` may start under the lease of the claim."""
_ANSWER_S = 10.0
"""How long a store may take to extend such a lease."""


class Lease:
    """What a store answered to a claim, and until when that holds.

    Args:
        asked: When the store was asked, in monotonic seconds.
        name: The tool's, for the log.
    """

    __slots__ = (
        "_is_confirmed",
        "_renewal_s",
        "_until",
        "attempt",
        "claim",
        "claimed",
        "doubtful",
        "name",
    )

    def __init__(self, claim: Claim, claimed: Claimed, asked: float, name: str) -> None:
        self.claim = claim
        self.claimed = claimed
        self.name = name
        self.attempt = 0
        """Number of the newest attempt that was started under it; 0 before the first."""
        self.doubtful = False
        """Whether an attempt before the newest one may have taken effect."""
        self._until = asked + claim.lease_s
        self._is_confirmed = claimed.state is not ClaimState.CHECK
        if claimed.state is ClaimState.CHECK:
            # it counts from when the requests of its earlier owners can no longer arrive
            self._until += max(0.0, claimed.left_s - LEASE_BEYOND_TIMEOUT_S)
        self._renewal_s = min(claim.lease_s, LONGEST_LEASE_S)

    @property
    def over(self) -> bool:
        """Whether somebody else may have the write by now: this process was frozen, or its store did not answer."""
        return monotonic() > self._until

    def renew(self, store: LeaseStore) -> None:
        """Renew it if it is ours and a third of a renewal is over; from any thread. The frozen and the dead do not."""
        claim = self.claim
        at = monotonic()
        if (
            not self.claimed.state.is_taken
            or self._until - at > self._renewal_s * 2 / 3
        ):
            return
        try:
            answer = store.renew(
                Renew(
                    claim.scope,
                    claim.key,
                    self.claimed.fence,
                    self._renewal_s,
                    claim.locks,
                )
            )
        except Exception as error:
            # it is tried again at the next beat, and the lease may be over until then
            self._failed(error)
            return
        if isinstance(answer, Future):
            answer.add_done_callback(partial(self._answered, at))
        else:
            self._renewed(at, answer)

    def covers(self, timeout_s: float) -> bool:
        """Whether an attempt that starts now ends before whoever finds this process dead may do the write again.

        Only class `verify` relies on that: whoever takes such a write over looks for it once the tool's time is over.
        Nobody waits for an owner who seems to have died before it started anything, so one who has taken a write over
        asks the store once more before it starts.
        """
        if self.claim.replay != "verify":
            return True
        if not self._is_confirmed:
            return False
        ends = monotonic() + timeout_s + LEASE_BEYOND_TIMEOUT_S
        return ends <= self._until + _LATE_S

    def extend(self, store: LeaseStore, timeout_s: float) -> StoreAnswer[bool]:
        """Ask for a lease that covers an attempt which starts once the store has answered."""
        claim = self.claim
        at = monotonic()
        lease_s = timeout_s + LEASE_BEYOND_TIMEOUT_S + _ANSWER_S
        answer = store.renew(
            Renew(claim.scope, claim.key, self.claimed.fence, lease_s, claim.locks)
        )
        return then(answer, partial(self._confirmed, at + lease_s))

    def _confirmed(self, until: float, held: bool) -> bool:
        self._is_confirmed = True
        return self._extended(until, held)

    def _extended(self, until: float, held: bool) -> bool:
        self._until = max(self._until, until) if held else float("-inf")
        return held

    def give_up(self, store: LeaseStore) -> None:
        """End the lease, as if this process had died. Only for a write of which nothing is under way here."""
        claim = self.claim
        if not self.claimed.state.is_taken:
            return
        renew = Renew(claim.scope, claim.key, self.claimed.fence, 0.0, claim.locks)
        try:
            answer = store.renew(renew)
        except Exception as error:
            # The next process waits until the lease ends by itself.
            self._failed(error)
            return
        if isinstance(answer, Future):
            answer.add_done_callback(self._given_up)

    def _given_up(self, done: Future[bool]) -> None:
        if (error := done.exception()) is not None:
            self._failed(error)

    def _answered(self, at: float, done: Future[bool]) -> None:
        """The store has answered, in its own thread. Where it could not, it is asked again at the next beat."""
        if (error := done.exception()) is not None:
            self._failed(error)
        else:
            self._renewed(at, done.result())

    def _renewed(self, at: float, held: bool) -> None:
        """The write is run again; or somebody else has it, and it is not started here."""
        self._extended(at + self._renewal_s, held)

    def _failed(self, error: BaseException) -> None:
        logs.log_exception(
            f"the lease of {self.name!r} in run {self.claim.run_id} could not be changed",
            error,
        )
