"""Runs, approvals and standing approvals in memory: what `ports` promises of them, for as long as the process lives.

`FullMemoryStore` keeps writes beside them, and uses an approval in the claim of its write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from time import monotonic, time

from msgspec.structs import replace

from handrail.errors import Fenced, Json
from handrail.records import (
    ApprovalRequest,
    JournalEntry,
    JournalStep,
    RunRecord,
    StandingApproval,
    StoredRun,
)
from handrail.stores.ledger import NamedApproval
from handrail.stores.memory import MemoryStore


class MemoryRuns:
    """Safe for threads.

    Args:
        clock: Unix time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._runs: dict[str, RunRecord] = {}
        self._steps: dict[str, dict[str, JournalStep]] = {}
        self._approvals: dict[str, ApprovalRequest] = {}
        self._standing_approvals: dict[str, StandingApproval] = {}

    # ------------------------------------------------------------------ runs

    def begin_run(self, record: RunRecord, *, new: bool = False) -> StoredRun:
        """See `ports.RunStore.begin_run`."""
        with self._lock:
            now = self._clock()
            stored = self._runs.get(record.run_id)
            if new and stored is not None:
                raise stored.name_taken()
            earlier = stored or replace(record, created=now, epoch=0)
            taken = replace(
                earlier,
                epoch=earlier.epoch + 1,
                status="running",
                updated=now,
                owner=record.owner,
                cancel_requested=earlier.cancel_requested
                and earlier.status in ("running", "queued"),
                takeovers=earlier.takeovers_at(now),
            )
            self._runs[record.run_id] = taken
            return StoredRun(
                taken, tuple(self._steps.setdefault(record.run_id, {}).values())
            )

    def append_entry(self, entry: JournalEntry) -> bool:
        """See `ports.RunStore.append_entry`."""
        with self._lock:
            record = self._runs.get(entry.run_id)
            if record is None or record.epoch != entry.epoch:
                raise Fenced(f"the run {entry.run_id!r} has been taken over")
            steps = self._steps[entry.run_id]
            for step in entry.steps:
                steps.setdefault(step.key, step)
            self._runs[entry.run_id] = replace(
                record,
                status=entry.status or record.status,
                result=record.result if entry.result is None else entry.result,
                updated=self._clock(),
            )
            if entry.status == "cancelled":
                self._close_approvals(entry.run_id)
            return record.cancel_requested

    def load_run(self, run_id: str) -> StoredRun | None:
        """See `ports.RunStore.load_run`."""
        with self._lock:
            record = self._runs.get(run_id)
            if record is None:
                return None
            return StoredRun(record, tuple(self._steps[run_id].values()))

    def list_runs(self, *, status: str = "", most: int = 100) -> Sequence[RunRecord]:
        """See `ports.RunStore.list_runs`."""
        with self._lock:
            newest_first = reversed(self._runs.values())
            return [record for record in newest_first if status in ("", record.status)][
                :most
            ]

    def request_cancel(self, run_id: str) -> bool:
        """See `ports.RunStore.request_cancel`."""
        with self._lock:
            record = self._runs.get(run_id)
            if record is None or record.status not in (
                "running",
                "waiting",
                "queued",
                "poisoned",
            ):
                return False
            # nobody drives one that waits
            status = record.status if record.status == "running" else "cancelled"
            self._runs[run_id] = replace(record, cancel_requested=True, status=status)
            self._close_approvals(run_id)
            return True

    # ------------------------------------------------------------------ approvals

    def ask(self, question: ApprovalRequest, *, within_s: float) -> ApprovalRequest:
        """See `ports.ApprovalStore.ask`."""
        with self._lock:
            now = self._clock()
            expires = now + within_s
            stored = self._approvals.get(question.id)
            if stored is None:
                stored = replace(
                    question, state="open", agreed=(), asked=now, expires=expires
                )
            stored = stored.at(now)
            required = stored.requiring(question.required_approvals)
            if required is not stored:
                required = replace(required, expires=expires)
            self._approvals[question.id] = required
            return required

    def decide(
        self,
        id: str,
        *,
        granted: bool,
        by: str,
        reason: str = "",
        edited: Mapping[str, Json] | None = None,
    ) -> ApprovalRequest | None:
        """See `ports.ApprovalStore.decide`."""
        with self._lock:
            stored = self._approvals.get(id)
            if stored is None:
                return None
            current = stored.at(self._clock())
            decided = current.with_decision(
                granted=granted, by=by, reason=reason, edited=edited
            )
            self._approvals[id] = decided
            return decided

    def use(self, id: str) -> bool:
        """See `ports.ApprovalStore.use`."""
        with self._lock:
            stored = self._approvals.get(id)
            if stored is None or stored.at(self._clock()).state != "approved":
                return False
            self._approvals[id] = replace(stored, state="used")
            return True

    def list_approvals(
        self, *, state: str = "open", run_id: str = ""
    ) -> Sequence[ApprovalRequest]:
        """See `ports.ApprovalStore.list_approvals`."""
        with self._lock:
            now = self._clock()
            requests = [each.at(now) for each in self._approvals.values()]
            return [
                each
                for each in requests
                if state in ("", each.state) and run_id in ("", each.run_id)
            ]

    def _close_approvals(self, run_id: str) -> None:
        for each in list(self._approvals.values()):
            if each.run_id == run_id:
                self._approvals[each.id] = each.at(self._clock()).as_cancelled()

    # ------------------------------------------------------------------ standing approvals

    def grant(self, grant: StandingApproval) -> StandingApproval:
        """See `ports.StandingApprovalStore.grant`."""
        with self._lock:
            return self._standing_approvals.setdefault(
                grant.id, replace(grant, at=self._clock())
            )

    def list_standing_approvals(self, *, tool: str = "") -> Sequence[StandingApproval]:
        """See `ports.StandingApprovalStore.list_standing_approvals`."""
        with self._lock:
            return [
                each
                for each in self._standing_approvals.values()
                if tool in ("", each.tool)
            ]

    def revoke(self, id: str, *, by: str) -> bool:  # noqa: ARG002  # who it was is for the audit log
        """See `ports.StandingApprovalStore.revoke`."""
        with self._lock:
            return self._standing_approvals.pop(id, None) is not None


class FullMemoryStore(MemoryRuns, MemoryStore):
    """Everything that a durable store keeps, except the audit log, in memory. Safe for threads.

    Args:
        clock: Unix time in seconds.
        now: Monotonic seconds.
    """

    claims_use_approvals = True

    def __init__(
        self, *, clock: Callable[[], float] = time, now: Callable[[], float] = monotonic
    ) -> None:
        MemoryStore.__init__(self, now=now)
        MemoryRuns.__init__(self, clock)  # replaces the lock, so that both share one

    def _load_approval(self, id: str) -> NamedApproval | None:
        stored = self._approvals.get(id)
        if stored is None:
            return None
        # the ledger counts by a clock of its own
        left_s = stored.expires - self._clock()
        return NamedApproval(
            state=stored.state, expires=self._now() + left_s, used_by=stored.used_by
        )

    def _use_approval(self, id: str, used_by: str) -> None:
        self._approvals[id] = replace(
            self._approvals[id], state="used", used_by=used_by
        )
