"""The approver of the command line: `--yes-to` first, then the person at the terminal."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from handrail.approvers.terminal import TerminalApprover
from handrail.effects import Approval, AskHuman, Risk
from handrail.records import ApprovalRequest

_RISKS = get_args(Risk)
"""From the least to the greatest."""


class Consent(Struct, frozen=True):
    """Approves calls up to a risk by itself; asks at the terminal about all others.

    Attributes:
        up_to: The highest risk that is approved without asking; None asks about every call.
    """

    terminal: TerminalApprover
    up_to: Risk | None = None

    def __call__(self, asked: AskHuman) -> Approval | None:
        """Approve a call, or ask about it; None if nobody is there. No option replaces several people."""
        return self.approve_unasked(asked) or self.terminal(asked)

    def approve_unasked(self, asked: AskHuman) -> Approval | None:
        """Approve a call that the option covers; None where people must be asked."""
        if self.covers(asked.risk) and asked.required_approvals == 1:
            return Approval(True, by=f"--yes-to {self.up_to}")
        return None

    def covers(self, risk: Risk) -> bool:
        """Return whether calls of this risk are approved without asking."""
        return self.up_to is not None and _RISKS.index(risk) <= _RISKS.index(self.up_to)

    def withdraw(self, asked: AskHuman, question: ApprovalRequest) -> None:
        """See `ports.Withdrawing`."""
        self.terminal.withdraw(asked, question)
