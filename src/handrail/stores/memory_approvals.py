"""Questions to people and standing approvals in memory: what `ports` promises of them, while the process lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from handrail.errors import Json
from handrail.records import ApprovalRequest, StandingApproval
from handrail.workers import fork_safety

MOST_QUESTIONS = 10_000
"""How many questions are remembered. Beyond it the oldest go: first those that are open no longer."""


class MemoryApprovals:
    """Safe for threads.

    Args:
        clock: Unix time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = fork_safety.new_lock()
        self._approvals: dict[str, ApprovalRequest] = {}
        self._standing_approvals: dict[str, StandingApproval] = {}

    # ------------------------------------------------------------------ approvals

    def ask(self, question: ApprovalRequest, *, within_s: float) -> ApprovalRequest:
        """See `ports.ApprovalStore.ask`."""
        with self._lock:
            now = self._clock()
            expires = now + within_s
            stored = self._approvals.get(question.id)
            if stored is None:
                if question.awaits_write and not self._await_result(question):
                    return question.as_undeliverable()
                stored = replace(
                    question, state="open", agreed=(), asked=now, expires=expires
                )
            stored = stored.at(now)
            required = stored.asked_again(question, expires)
            self._approvals[question.id] = required
            if len(self._approvals) > MOST_QUESTIONS:
                self._forget_question(now)
            return required

    def _forget_question(self, now: float) -> None:
        """Forget the oldest question that is closed, else the oldest but the last. The caller has the lock."""
        questions = self._approvals.values()
        closed = (each.id for each in questions if each.at(now).state != "open")
        del self._approvals[next(closed, next(iter(self._approvals)))]

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
            return self._answer(current, decided)

    def use(self, id: str) -> bool:
        """See `ports.ApprovalStore.use`."""
        with self._lock:
            stored = self._approvals.get(id)
            if stored is None or stored.at(self._clock()).state != "approved":
                return False
            self._approvals[id] = replace(stored, state="used")
            return True

    def withdraw(self, id: str, *, by: str, reason: str = "") -> ApprovalRequest | None:
        """See `ports.ApprovalStore.withdraw`."""
        with self._lock:
            stored = self._approvals.get(id)
            if stored is None:
                return None
            current = stored.at(self._clock())
            return self._answer(current, current.as_cancelled(by, reason))

    def _answer(
        self, before: ApprovalRequest, after: ApprovalRequest
    ) -> ApprovalRequest:
        """Keep an answer to a question, and settle the write that waits for it. The caller has the lock."""
        if after.settles_write(before) and not self._deliver(after):
            after = before.as_undeliverable()
        self._approvals[after.id] = after
        return after

    def _await_result(self, question: ApprovalRequest) -> bool:  # noqa: ARG002  # a ledger is the heir's
        """Let the write of a question wait for its result; return whether it does."""
        return True

    def _deliver(self, answered: ApprovalRequest) -> bool:  # noqa: ARG002  # a ledger is the heir's
        """Settle the write that a question waits for; return whether it still waits."""
        return True

    def list_approvals(
        self, *, state: str = "open", run_id: str = "", id: str = "", digest: str = ""
    ) -> Sequence[ApprovalRequest]:
        """See `ports.ApprovalStore.list_approvals`."""
        with self._lock:
            now = self._clock()
            wanted = [
                each.at(now)
                for each in self._approvals.values()
                if run_id in ("", each.run_id)
                and id in ("", each.id)
                and digest in ("", each.digest)
            ]
            return [each for each in wanted if state in ("", each.state)]

    def _close_approvals(self, run_id: str) -> None:
        for each in list(self._approvals.values()):
            # what a started write waits for is the write's, and not the run's
            if each.run_id == run_id and not each.used_by:
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
