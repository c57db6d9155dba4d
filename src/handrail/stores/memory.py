"""A store in memory: everything that a store promises, for as long as the process lives."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from secrets import token_hex
from threading import Lock
from time import monotonic

from handrail.effects import Claim, Claimed, ClaimState, ReplayClass, Settle
from handrail.errors import Json

# A long conversation's worth of long results; beyond it the oldest go, and `read_result` says that they are gone.
MOST_KEPT_CHARACTERS = 64 * 1024 * 1024


@dataclass(slots=True)
class _Row:
    """One write: who began it, how it stands. The names are those of the table that durable stores have."""

    fingerprint: bytes
    replay: ReplayClass
    state: str
    fence: int
    lease_until: float
    run_id: str
    value: Json = None


class MemoryStore:
    """Safe for threads. Nothing survives the process: after a crash nothing is known of any write."""

    def __init__(self) -> None:
        self._effects: dict[tuple[str, str], _Row] = {}
        self._by_act: dict[tuple[str, str, bytes], _Row] = {}  # (run, scope, fingerprint): the repeat guard
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._characters = 0
        self._lock = Lock()

    def claim(self, claim: Claim) -> Claimed:
        """See `ports.Store.claim`."""
        with self._lock:
            row = self._effects.get((claim.scope, claim.key))
            if row is None:
                return self._repeated(claim) or self._fresh(claim, fence=1)
            if row.fingerprint != claim.fingerprint:
                return Claimed(ClaimState.CONFLICT)
            if row.state == "done":
                return Claimed(ClaimState.DONE, row.fence, row.value)
            if row.state == "failed":
                return self._fresh(claim, row.fence + 1)
            if row.state == "claimed" and row.lease_until >= monotonic():
                return Claimed(ClaimState.BUSY)
            return self._abandoned(row, claim)

    def _fresh(self, claim: Claim, fence: int) -> Claimed:
        until = monotonic() + claim.lease_s
        row = _Row(claim.fingerprint, claim.replay, "claimed", fence, until, claim.run_id)
        self._effects[claim.scope, claim.key] = row
        self._by_act[claim.run_id, claim.scope, claim.fingerprint] = row
        return Claimed(ClaimState.FRESH, fence)

    def _repeated(self, claim: Claim) -> Claimed | None:
        """The same act in the same run under another key: its result, or the news that it is under way or in doubt."""
        row = self._by_act.get((claim.run_id, claim.scope, claim.fingerprint)) if claim.guard and claim.run_id else None
        if row is None or row.state == "failed":
            return None
        states = {"done": ClaimState.DONE, "claimed": ClaimState.BUSY, "in_doubt": ClaimState.IN_DOUBT}
        return Claimed(states[row.state], row.fence, row.value, repeated=True)

    def _abandoned(self, row: _Row, claim: Claim) -> Claimed:
        """Nobody is at it any more, and nobody said how it ended: the replay class decides."""
        if row.replay == "none":
            row.state = "in_doubt"
            return Claimed(ClaimState.IN_DOUBT, row.fence)
        row.state, row.fence, row.lease_until = "claimed", row.fence + 1, monotonic() + claim.lease_s
        return Claimed(ClaimState.AGAIN if row.replay == "key" else ClaimState.CHECK, row.fence)

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
