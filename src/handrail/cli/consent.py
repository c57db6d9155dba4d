"""Who is asked about a call at the command line: what was said there beforehand, then the person at this terminal."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from handrail.approvers.terminal import TerminalApprover
from handrail.effects import Approval, AskHuman, Risk
from handrail.records import ApprovalRequest

_RISKS = get_args(Risk)
"""From the least to the greatest."""


class Consent(Struct, frozen=True):
    """An approver: the command line approves calls up to a risk beforehand; the terminal is asked about all others.

    Attributes:
        up_to: The highest risk that is approved unasked; None for no call at all.
    """

    terminal: TerminalApprover
    up_to: Risk | None = None

    def __call__(self, asked: AskHuman) -> Approval | None:
        """Approve a call, or ask about it; None when nobody is there. No option stands for several people."""
        if self.covers(asked.risk) and asked.required_approvals == 1:
            return Approval(True, by=f"--yes-to {self.up_to}")
        return self.terminal(asked)

    def covers(self, risk: Risk) -> bool:
        """Whether calls of this risk are approved unasked."""
        return self.up_to is not None and _RISKS.index(risk) <= _RISKS.index(self.up_to)

    def withdraw(self, asked: AskHuman, question: ApprovalRequest) -> None:
        """See `ports.Withdrawing`."""
        self.terminal.withdraw(asked, question)
