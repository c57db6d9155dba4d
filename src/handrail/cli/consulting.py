"""Who is asked about a call at the command line: what was said there beforehand, then the person at this terminal."""

from __future__ import annotations

from msgspec import Struct

from handrail.approvers.terminal import TerminalApprover
from handrail.effects import Approval, AskHuman, Risk
from handrail.records import Question


class Consent(Struct, frozen=True):
    """An approver: calls of some risks are approved because the command line says so, others the terminal is asked."""

    terminal: TerminalApprover
    risks: frozenset[Risk]

    def __call__(self, asked: AskHuman) -> Approval | None:
        """Approve a call, or ask about it; None when nobody is there. No option stands for several people."""
        if asked.risk in self.risks and asked.people == 1:
            return Approval(True, by=f"--yes-to {asked.risk}")
        return self.terminal(asked)

    def withdraw(self, asked: AskHuman, question: Question) -> None:
        """See `ports.Withdrawing`."""
        self.terminal.withdraw(asked, question)
