"""A store in memory: everything that a store promises, for as long as the process lives."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from threading import Lock
from time import monotonic

from handrail.effects import Claim, Claimed, ClaimState, ReplayClass, Settle
from handrail.errors import Json

# A long conversation's worth of long results; beyond it the oldest go, and `read_result` says that they are gone.
MOST_KEPT_CHARACTERS = 64 * 1024 * 1024

# How long a key is remembered at least, as Stripe does, and how many writes whose key is only their place in a run.
KEPT_S = 24 * 3600.0
MOST_ROWS = 100_000


@dataclass(slots=True)
class _Row:
    """One write: who began it, how it stands. The names are those of the table that durable stores have."""

    fingerprint: bytes
    replay: ReplayClass
    state: str
    fence: int
    lease_until: float
    run_id: str
    begun: float
    value: Json = None

    @property
    def settled(self) -> bool:
        """Whether it is known how the write ended."""
        return self.state in ("done", "failed")


class MemoryStore:
    """Safe for threads. Nothing survives the process: after a crash nothing is known of any write.

    Args:
        now: Monotonic seconds, for leases and for what is old enough to be forgotten.
    """

    def __init__(self, *, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._effects: OrderedDict[tuple[str, str], _Row] = OrderedDict()
        self._by_act: dict[tuple[str, str, bytes], _Row] = {}  # (run, scope, fingerprint): the repeat guard
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._characters = 0
        self._lock = Lock()

    def claim(self, claim: Claim) -> Claimed:
        """See `ports.Store.claim`."""
        with self._lock:
            row = self._effects.get((claim.scope, claim.key))
            if row is None:
                self._forget()
                return self._repeated(claim) or self._fresh(claim, fence=1)
            if row.state == "failed":
                return self._fresh(claim, row.fence + 1)
            if row.fingerprint != claim.fingerprint:
                return Claimed(ClaimState.CONFLICT)
            if row.state == "done":
                return Claimed(ClaimState.DONE, row.fence, row.value)
            return self._unsettled(row, claim)

    def _fresh(self, claim: Claim, fence: int) -> Claimed:
        now = self._now()
        row = _Row(claim.fingerprint, claim.replay, "claimed", fence, now + claim.lease_s, claim.run_id, now)
        self._effects[claim.scope, claim.key] = row
        self._by_act[claim.run_id, claim.scope, claim.fingerprint] = row
        return Claimed(ClaimState.FRESH, fence)

    def _repeated(self, claim: Claim) -> Claimed | None:
        """The same act in the same run under another key: its result, or the news that it is under way or in doubt."""
        row = self._by_act.get((claim.run_id, claim.scope, claim.fingerprint)) if claim.guard and claim.run_id else None
        if row is None or row.state == "failed":
            return None
        if row.state == "done":
            return Claimed(ClaimState.DONE, row.fence, row.value, repeated=True)
        under_way = row.state == "claimed" and row.lease_until >= self._now()
        return Claimed(ClaimState.BUSY if under_way else ClaimState.IN_DOUBT, row.fence, repeated=True)

    def _unsettled(self, row: _Row, claim: Claim) -> Claimed:
        """Nobody has said how it ended: the lease and the replay class decide who may go on with it."""
        now = self._now()
        leased = row.lease_until >= now
        if row.state == "claimed" and leased:
            return Claimed(ClaimState.BUSY)
        # While the old lease lasts an old request may still be under way, and `verify` would miss it.
        if row.replay == "none" or (row.replay == "verify" and leased):
            row.state = "in_doubt"
            return Claimed(ClaimState.IN_DOUBT, row.fence)
        row.state, row.fence, row.lease_until = "claimed", row.fence + 1, now + claim.lease_s
        return Claimed(ClaimState.AGAIN if row.replay == "key" else ClaimState.CHECK, row.fence)

    def _forget(self) -> None:
        """Let old writes go. Two are looked at for each new one, so they are found in time and nobody waits for it.

        What is under way or in doubt stays, and so does a declared key for its time, however many there are.
        """
        for _ in range(min(2, len(self._effects))):
            (scope, key), row = next(iter(self._effects.items()))
            old = row.begun + KEPT_S < self._now()
            if not old and len(self._effects) < MOST_ROWS:
                return
            if row.settled and (old or key.startswith(f"{row.run_id}/")):
                del self._effects[scope, key]
                if self._by_act.get(act := (row.run_id, scope, row.fingerprint)) is row:
                    del self._by_act[act]
            else:
                self._effects.move_to_end((scope, key))

    def settle(self, settle: Settle) -> bool:
        """See `ports.Store.settle`."""
        with self._lock:
            row = self._effects.get((settle.scope, settle.key))
            if row is None or row.fence != settle.fence or row.state not in ("claimed", "in_doubt"):
                return False
            row.state, row.value = settle.state, settle.value
            return True

    def keep(self, run_id: str, text: str) -> str:
        """See `ports.Store.keep`."""
        handle = f"r_{token_hex(6)}"
        with self._lock:
            self._texts[run_id, handle] = text
            self._characters += len(text)
            while self._characters > MOST_KEPT_CHARACTERS and len(self._texts) > 1:
                _, oldest = self._texts.popitem(last=False)
                self._characters -= len(oldest)
        return handle

    def kept(self, run_id: str, handle: str) -> str | None:
        """See `ports.Store.kept`."""
        with self._lock:
            return self._texts.get((run_id, handle))

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._effects)} writes, {len(self._texts)} kept texts>"
