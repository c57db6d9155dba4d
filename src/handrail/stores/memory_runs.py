"""Runs, questions and standing approvals in memory: what `ports` promises of them, for as long as we live.

`MemoryOffice` keeps writes beside them, and uses an approval in the claim of its write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from time import monotonic, time

from msgspec.structs import replace

from handrail.errors import Fenced, Json
from handrail.records import ApprovalRequest, JournalEntry, JournalStep, RunRecord, StandingApproval, StoredRun
from handrail.stores.ledger import Standing
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
        self._questions: dict[str, ApprovalRequest] = {}
        self._grants: dict[str, StandingApproval] = {}

    # ------------------------------------------------------------------ runs

    def begin_run(self, record: RunRecord, *, new: bool = False) -> StoredRun:
        """See `ports.RunStore.begin_run`."""
        with self._lock:
            now = self._clock()
            if new and (kept := self._runs.get(record.run_id)):
                raise kept.name_taken()
            known = self._runs.get(record.run_id) or replace(record, created=now, epoch=0)
            mine = replace(
                known, epoch=known.epoch + 1, status="running", updated=now, owner=record.owner,
                cancel_requested=known.cancel_requested and known.status in ("running", "queued"),
                takeovers=known.takeovers_at(now),
            )  # fmt: skip
            self._runs[record.run_id] = mine
            return StoredRun(mine, tuple(self._steps.setdefault(record.run_id, {}).values()))

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
                self._close_questions(entry.run_id)
            return record.cancel_requested

    def load_run(self, run_id: str) -> StoredRun | None:
        """See `ports.RunStore.load_run`."""
        with self._lock:
            record = self._runs.get(run_id)
            return None if record is None else StoredRun(record, tuple(self._steps[run_id].values()))

    def list_runs(self, *, status: str = "", most: int = 100) -> Sequence[RunRecord]:
        """See `ports.RunStore.list_runs`."""
        with self._lock:
            found = [record for record in reversed(self._runs.values()) if status in ("", record.status)]
            return found[:most]

    def request_cancel(self, run_id: str) -> bool:
        """See `ports.RunStore.request_cancel`."""
        with self._lock:
            record = self._runs.get(run_id)
            if record is None or record.status not in ("running", "waiting", "queued", "poisoned"):
                return False
            status = record.status if record.status == "running" else "cancelled"  # nobody drives one that waits
            self._runs[run_id] = replace(record, cancel_requested=True, status=status)
            self._close_questions(run_id)
            return True

    # ------------------------------------------------------------------ questions

    def ask(self, question: ApprovalRequest, *, within_s: float) -> ApprovalRequest:
        """See `ports.ApprovalStore.ask`."""
        with self._lock:
            now = self._clock()
            known = self._questions.get(question.id)
            if known is None:
                known = replace(question, state="open", agreed=(), asked=now, expires=now + within_s)
            aged = _aged(known, now)
            known = aged.requiring(question.required_approvals)
            if known is not aged:
                known = replace(known, expires=now + within_s)
            self._questions[question.id] = known
            return known

    def decide(
        self, id: str, *, granted: bool, by: str, reason: str = "", edited: Mapping[str, Json] | None = None
    ) -> ApprovalRequest | None:
        """See `ports.ApprovalStore.decide`."""
        with self._lock:
            known = self._questions.get(id)
            if known is None:
                return None
            known = _aged(known, self._clock()).with_decision(granted=granted, by=by, reason=reason, edited=edited)
            self._questions[id] = known
            return known

    def use(self, id: str) -> bool:
        """See `ports.ApprovalStore.use`."""
        with self._lock:
            known = self._questions.get(id)
            if known is None or _aged(known, self._clock()).state != "approved":
                return False
            self._questions[id] = replace(known, state="used")
            return True

    def list_approvals(self, *, state: str = "open", run_id: str = "") -> Sequence[ApprovalRequest]:
        """See `ports.ApprovalStore.list_approvals`."""
        with self._lock:
            now = self._clock()
            aged = (_aged(each, now) for each in self._questions.values())
            return [each for each in aged if state in ("", each.state) and run_id in ("", each.run_id)]

    def _close_questions(self, run_id: str) -> None:
        for each in list(self._questions.values()):
            if each.run_id == run_id:
                self._questions[each.id] = _aged(each, self._clock()).closed()

    # ------------------------------------------------------------------ standing approvals

    def grant(self, grant: StandingApproval) -> StandingApproval:
        """See `ports.StandingApprovalStore.grant`."""
        with self._lock:
            return self._grants.setdefault(grant.id, replace(grant, at=self._clock()))

    def list_standing_approvals(self, *, tool: str = "") -> Sequence[StandingApproval]:
        """See `ports.StandingApprovalStore.list_standing_approvals`."""
        with self._lock:
            return [each for each in self._grants.values() if tool in ("", each.tool)]

    def revoke(self, id: str, *, by: str) -> bool:  # noqa: ARG002  # who it was is for the audit log
        """See `ports.StandingApprovalStore.revoke`."""
        with self._lock:
            return self._grants.pop(id, None) is not None


def _aged(question: ApprovalRequest, now: float) -> ApprovalRequest:
    """Return a question as it stands now: an open or unused one ends with its time."""
    over = question.state in ("open", "approved") and question.expires < now
    return replace(question, state="expired") if over else question


class MemoryOffice(MemoryRuns, MemoryStore):
    """Everything that a durable store keeps, except the audit log, in memory. Safe for threads.

    Args:
        clock: Unix time in seconds.
        now: Monotonic seconds.
    """

    claims_use_approvals = True

    def __init__(self, *, clock: Callable[[], float] = time, now: Callable[[], float] = monotonic) -> None:
        MemoryStore.__init__(self, now=now)
        MemoryRuns.__init__(self, clock)  # replaces the lock, so that both share one

    def _approval(self, id: str) -> Standing | None:
        known = self._questions.get(id)
        if known is None:
            return None
        left_s = known.expires - self._clock()  # the ledger counts by a clock of its own
        return Standing(known.state, self._now() + left_s, known.used_by)

    def _use(self, id: str, used_by: str) -> None:
        self._questions[id] = replace(self._questions[id], state="used", used_by=used_by)
