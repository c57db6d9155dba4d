"""Who is asked about a call: somebody elsewhere, the command line itself, the person at this terminal.

A word that was given elsewhere counts before all, then `--yes-to`, then the terminal. Where the store keeps questions,
one is kept before anybody is asked here, so that it outlives this process and may be answered in another one meanwhile;
the first word counts. What is said here is kept as if it had been said elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from handrail.approvers.terminal import TerminalApprover
from handrail.effects import Approval, AskHuman, Risk
from handrail.host import Session, later
from handrail.ports import ApprovalStore
from handrail.records import Question
from handrail.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Consent:
    """Calls of some risks are approved because the command line says so; about others the terminal is asked."""

    terminal: TerminalApprover
    risks: frozenset[Risk]

    def unasked(self, asked: AskHuman) -> Approval | None:
        """Approve a call that nobody has to be asked about."""
        return Approval(True, by=f"--yes-to {asked.risk}") if asked.risk in self.risks else None


class Consulting(Runtime):
    """A runtime that asks as said above."""

    def __init__(self, *args: Any, consent: Consent, **how: Any) -> None:
        super().__init__(*args, **how)
        self._consent = consent

    async def ask_later(self, session: Session, asked: AskHuman) -> Approval | None:
        """See `Host.ask_later`; an open question is answered by the command line or at the terminal."""
        said = self._consent.unasked(asked)
        if said is None:
            elsewhere = await super().ask_later(session, asked)
            if elsewhere is not None:
                return elsewhere
            said = await self.services.ask_human(self._consent.terminal, asked)
        known = await self._kept(session, asked)
        if said is None or known is None:
            return said
        # Where somebody was quicker this changes nothing, and their word is what is returned.
        await later(
            cast(ApprovalStore, self.store).decide(
                known.id, granted=said.granted, by=said.by, because=said.reason, edited=said.arguments
            )
        )
        return await super().ask_later(session, asked)

    async def _kept(self, session: Session, asked: AskHuman) -> Question | None:
        """Return the question as it is kept, if it is: a call of the same id in this run, about the very same thing."""
        if not isinstance(self.store, ApprovalStore):
            return None
        kept = await later(self.store.questions(state="", run_id=session.id))
        same = [each for each in kept if (each.digest, each.call_id) == (asked.digest, asked.call.id)]
        return same[-1] if same else None
