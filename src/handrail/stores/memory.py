"""A store in memory: everything that a store promises, for as long as the process lives."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from handrail.effects import Claim, Claimed, Renew, Settle, SettledState
from handrail.errors import Json
from handrail.records import ApprovalRequest, WriteRecord, name_write
from handrail.stores.ledger import Ledger, NamedApproval, Row
from handrail.stores.memory_approvals import MemoryApprovals
from handrail.surroundings.chance import token_hex
from handrail.surroundings.clock import monotonic, unix_time

# A long conversation's worth of long results; beyond it the oldest go, and `read_result` says that they are gone.
MAX_SAVED_CHARACTERS = 64 * 1024 * 1024

# How long a key is remembered at least, as Stripe does, and how many writes whose key is only their place in a run.
KEY_LIFETIME_S = 24 * 3600.0
MAX_ROWS = 100_000


class MemoryStore(MemoryApprovals):
    """Safe for threads. Nothing survives the process: a crash loses every claim.

    Args:
        clock: Unix time in seconds, for questions.
        now: Monotonic seconds, for leases and for what is old enough to be forgotten.
    """

    claims_use_approvals = True

    def __init__(
        self,
        *,
        clock: Callable[[], float] = unix_time,
        now: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(clock)
        self._now = now
        self._epoch_s = unix_time() - now()  # the Unix time at which `now` was zero
        self._ledger = Ledger()
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._characters = 0

    def claim(self, claim: Claim) -> Claimed:
        """See `ports.Store.claim`."""
        with self._lock:
            now = self._now()
            if (claim.scope, claim.key) not in self._ledger.rows:
                self._forget(now)
            approval = self._load_approval(claim.approval) if claim.approval else None
            answer = self._ledger.claim(claim, now, approval)
            if claim.approval and answer.state.is_taken:
                self._use_approval(
                    claim.approval, name_write(claim.scope, claim.key, answer.fence)
                )
            return answer

    def look_up(self, claim: Claim) -> Claimed | None:
        """See `ports.LookUpStore.look_up`."""
        with self._lock:
            answer = self._ledger.look_up(claim, self._now())
            if answer is not None:
                self._ledger.mark_in_doubt(claim, answer)
            return answer

    def _load_approval(self, id: str) -> NamedApproval | None:
        """Return the approval that a claim names. The caller has the lock."""
        stored = self._approvals.get(id)
        if stored is None:
            return None
        # the ledger counts by a clock of its own
        left_s = stored.expires - self._clock()
        return NamedApproval(
            state=stored.state, expires=self._now() + left_s, used_by=stored.used_by
        )

    def _use_approval(self, id: str, used_by: str) -> None:
        """Record that a claim has used an approval. The caller has the lock."""
        self._approvals[id] = replace(
            self._approvals[id], state="used", used_by=used_by
        )

    def _forget(self, now: float) -> None:
        """Forget old writes. Two are looked at for each new one, so they are found in time and nobody waits for it.

        What is under way or in doubt stays, and so does a declared key for its time, however many there are.
        """
        rows = self._ledger.rows
        for _ in (1, 2):
            row = next(iter(rows.values()), None)
            if row is None:
                return
            is_old = row.begun + KEY_LIFETIME_S < now
            if not is_old and len(rows) < MAX_ROWS:
                return
            if row.is_settled and (is_old or row.key.startswith(f"{row.run_id}/")):
                self._ledger.forget(row)
            else:
                rows.move_to_end((row.scope, row.key))

    def settle(self, settle: Settle) -> bool:
        """See `ports.Store.settle`."""
        with self._lock:
            row = self._ledger.rows.get((settle.scope, settle.key))
            question = None if row is None else self._awaited(row)
            is_settled = self._ledger.settle(settle)
            if is_settled and settle.state == "failed" and question is not None:
                closed = question.at(self._clock()).as_undeliverable()
                self._approvals[question.id] = closed
            return is_settled

    def _awaited(self, row: Row) -> ApprovalRequest | None:
        """Return the question for the result that a write waits for. The caller has the lock."""
        if row.state != "waiting":
            return None
        name = name_write(row.scope, row.key, row.fence)
        found = (each for each in self._approvals.values() if each.used_by == name)
        return next((each for each in found if each.awaits_result), None)

    def _await_result(self, question: ApprovalRequest) -> bool:
        return self._ledger.await_result(question)

    def _deliver(self, answered: ApprovalRequest) -> bool:
        return self._ledger.deliver(answered)

    def renew(self, renew: Renew) -> bool:
        """See `ports.LeaseStore.renew`."""
        with self._lock:
            return self._ledger.renew(renew, self._now())

    # ------------------------------------------------------------------ the ledger, for people

    def list_writes(
        self, *, state: str = "", run_id: str = "", most: int = 100
    ) -> Sequence[WriteRecord]:
        """See `ports.LedgerStore.list_writes`."""
        with self._lock:
            now = self._now() + self._epoch_s
            rows = reversed(self._ledger.rows.values())
            writes = [
                self._write_record(row)
                for row in rows
                if not run_id or row.run_id == run_id
            ]
            return [write for write in writes if state in ("", write.state_at(now))][
                :most
            ]

    def load_write(self, scope: str, key: str) -> WriteRecord | None:
        """See `ports.LedgerStore.load_write`."""
        with self._lock:
            row = self._ledger.rows.get((scope, key))
            return None if row is None else self._write_record(row)

    def resolve(
        self, scope: str, key: str, *, state: SettledState, by: str, value: Json = None
    ) -> WriteRecord | None:
        """See `ports.LedgerStore.resolve`."""
        with self._lock:
            row = self._ledger.rows.get((scope, key))
            if row is None:
                return None
            is_overdue = self._write_record(row).is_overdue(self._now() + self._epoch_s)
            if (
                row.state == "in_doubt"
                or is_overdue
                or (row.state == "claimed" and not row.is_leased(self._now()))
            ):
                row.state = state
                row.value = value
                row.resolved_by = by
            return self._write_record(row)

    def release(self, scope: str, key: str, *, fence: int, by: str) -> bool:
        """See `ports.LedgerStore.release`."""
        with self._lock:
            row = self._ledger.rows.get((scope, key))
            if row is None or (row.state, row.fence) != ("done", fence):
                return False
            row.state = "failed"
            row.resolved_by = by
            return True

    def _write_record(self, row: Row) -> WriteRecord:
        """Return a row for people, its times by the system's clock."""
        question = self._awaited(row)
        deliver_until = 0.0
        if question is not None:
            left_s = question.expires - self._clock()
            deliver_until = self._now() + self._epoch_s + left_s
        is_open = row.state in ("claimed", "in_doubt")
        return WriteRecord(
            scope=row.scope,
            key=row.key,
            tool=row.tool,
            place=row.place,
            run_id=row.run_id,
            state=cast("Any", row.state),
            replay=row.replay,
            fence=row.fence,
            lease_until=row.lease_until + self._epoch_s,
            begun=row.begun + self._epoch_s,
            updated=row.begun + self._epoch_s,
            value=None if is_open else row.value,
            doubt=row.value if is_open and isinstance(row.value, str) else "",
            resolved_by=row.resolved_by,
            fingerprint=row.fingerprint.hex(),
            owner=row.owner,
            deliver_until=deliver_until,
        )

    # ------------------------------------------------------------------ long results

    def save_result(self, run_id: str, text: str) -> str:
        """See `ports.Store.save_result`."""
        handle = f"r_{token_hex(6)}"
        with self._lock:
            self._texts[run_id, handle] = text
            self._characters += len(text)
            while self._characters > MAX_SAVED_CHARACTERS and len(self._texts) > 1:
                _, oldest = self._texts.popitem(last=False)
                self._characters -= len(oldest)
        return handle

    def load_result(self, run_id: str, handle: str) -> str | None:
        """See `ports.Store.load_result`."""
        with self._lock:
            return self._texts.get((run_id, handle))

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._ledger.rows)} writes, {len(self._texts)} long results>"
