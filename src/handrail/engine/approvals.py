"""A person's word on a call: who is asked, where the question is kept, and which answer counts.

Where the store can keep questions, one is kept before anybody is asked here: it outlives this process, and may be
answered in another one meanwhile.

A word may stand for more than one call: for those of its tool that are asked about for the same reason, in this run or
in any. Such a grant is bound to the tool as it describes itself, can be listed, and is in force until it is revoked.

Where several people must agree, a question stays open until they have; one no decides it. No standing approval
counts for several people. What was agreed to by fewer than the policy asks for now is asked anew.

An approval is used once. The claim of a write uses it in the same commit, if one store keeps both. For a read, or
without such a store, it is used right before the call starts.

Rule 1: the first word counts. Whoever is still being asked then is told, and what they say is not heard.
Rule 2: what is said here is kept as if it had been said elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from handrail import logs
from handrail.audit.trail import notice_of_word
from handrail.core.policy import Policy
from handrail.core.redaction import Redactor
from handrail.effects import Approval, ApprovalScope, AskHuman
from handrail.engine.active_run import ActiveRun
from handrail.engine.scoped_store import grant_id, kept_name, scope_of
from handrail.engine.shared import SharedResources
from handrail.engine.user_code import NOT_ASKED
from handrail.errors import Json, StoreUnavailable
from handrail.futures import StoreAnswer, wait_for
from handrail.ports import (
    ApprovalStore,
    ApprovedClaimStore,
    Approver,
    AuditStore,
    StandingApprovalStore,
    Store,
    Withdrawing,
)
from handrail.records import ApprovalRequest, AuditEntry, StandingApproval
from handrail.tools.keys import digest
from handrail.tools.toolset import Toolset

_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.1, 2.0
"""How often it is looked whether somebody has answered elsewhere: soon at first, then as a person's patience has it."""

_MOST_LOOKS = 1000
"""Each time an equal call has taken the word, so this is never reached with a store that keeps to its port."""


class Approvals:
    """Asks people on behalf of one deployment.

    Args:
        approver: Who is asked in this process, if anybody.
        services: Where an approver that is a plain function gets its thread.
        tools: Every tool that a call may name.
        scope: What the scopes of its writes begin with.
        principal: On whose behalf the calls are made; where several must agree, this one does not count.
    """

    def __init__(
        self,
        store: Store,
        policy: Policy,
        approver: Approver | None,
        services: SharedResources,
        *,
        tools: Callable[[], Toolset],
        scope: str,
        principal: str = "",
    ) -> None:
        self._principal = principal
        self._store, self._policy, self._approver, self._services = store, policy, approver, services
        self._tools, self._scope = tools, scope
        self._told: set[str] = set()
        self._in_claims = isinstance(store, ApprovedClaimStore) and store.claims_use_approvals

    async def decide(self, session: ActiveRun, asked: AskHuman) -> Approval | StoreUnavailable | None:
        """Ask about a call; None when nobody has answered, and the call waits. The store's silence is no word."""
        store, asked = self._store, replace(asked, principal=self._principal)
        if not isinstance(store, ApprovalStore) or not session.settings.keeps:
            # Nobody could come back for the answer of a call that belongs to no run.
            return await self._unkept(session, asked)
        try:
            return await self._answer(store, session, asked)
        except StoreUnavailable as error:
            return error

    async def _unkept(self, session: ActiveRun, asked: AskHuman) -> Approval | None:
        """Ask whoever is here, one after the other where several must agree."""
        question = _question(session, asked, asked.place)
        while True:
            said = await self._services.ask_human(self._approver, replace(asked, agreed=question.agreed))
            if said is None or asked.required_approvals == 1:
                return said
            heard = question.with_decision(granted=said.granted, by=said.by, reason=said.reason, edited=said.arguments)
            if heard.state != "open":
                return Approval(heard.state == "approved", heard.by, heard.decision_reason)
            if heard == question:
                return None
            question = heard

    async def _answer(self, store: ApprovalStore, session: ActiveRun, asked: AskHuman) -> Approval | None:
        """Return what the kept question's answer means for the call."""
        for _ in range(_MOST_LOOKS):
            kept = await self._kept(store, session, asked)
            if kept.state == "open":
                kept = await self._asked(store, kept, session, asked)
            if kept.state in ("denied", "expired"):
                self._told.add(kept.id)
            match kept.state:
                case "open":
                    return None
                case "expired":
                    return Approval(False, expired=True)
                case "denied" | "cancelled":
                    return Approval(False, kept.by, kept.decision_reason)
                case "approved" | "used" if self._is_for_claim(asked):
                    return Approval(True, kept.by, kept.decision_reason, kept.edited, question=kept.id)
                case "approved" if await wait_for(store.use(kept.id)):
                    return Approval(True, kept.by, kept.decision_reason, kept.edited)
            # Another call has used it: ask again.
        return None

    def _is_for_claim(self, asked: AskHuman) -> bool:
        """Whether the claim of the call uses its approval."""
        return asked.writes and self._in_claims

    async def _kept(self, store: ApprovalStore, session: ActiveRun, asked: AskHuman) -> ApprovalRequest:
        """Keep the question, or return the one that stands for it.

        In a kept run that is the one of its place. The turns of other runs are counted anew by each process, and a call
        is handed over again to learn its answer, so there it is the one of what is asked: each word is for one call.

        The questions of a cancelled run are closed; if the run is resumed, its call gets a new question.
        A used approval is returned for a write that may have used it itself; the claim refuses any other write.
        """
        within_s, in_place = self._policy.approval_s, session.recording is not None
        known = [
            each
            for each in await wait_for(store.list_approvals(state="", run_id=session.id))
            if each.digest == asked.digest and (each.place == asked.place if in_place else each.reason == asked.reason)
        ]
        for each in known:
            if each.state in ("open", "approved") and each.id != asked.refused:
                stricter = replace(each, required_approvals=asked.required_approvals)
                return await wait_for(store.ask(stricter, within_s=within_s))
        if known:
            last = known[-1]
            was_for_claim = last.state == "used" and last.used_by and self._is_for_claim(asked)
            if was_for_claim and last.id != asked.refused and last.required_approvals >= asked.required_approvals:
                return last
            # Outside a kept run a refusal is returned once: the next equal call asks a new question.
            if last.state in ("denied", "expired") and (in_place or last.id not in self._told):
                return last
        place = asked.place if in_place else asked.reason
        question = _question(session, asked, f"{place}/{len(known)}" if known or not in_place else place)
        return await wait_for(store.ask(question, within_s=within_s))

    async def _asked(
        self, store: ApprovalStore, question: ApprovalRequest, session: ActiveRun, asked: AskHuman
    ) -> ApprovalRequest:
        """Answer an open question by a standing approval, or by whoever is here; return it as it stands then."""
        alone = question.required_approvals == 1
        if (
            alone
            and isinstance(store, StandingApprovalStore)
            and (grant := await _granted(store, session, asked)) is not None
        ):
            by = f"{grant.by} ({grant.id})"
            return await wait_for(store.decide(question.id, granted=True, by=by)) or question
        if self._approver is None:
            return question
        while True:
            # As it was asked first: today's policy may be laxer, and somebody has perhaps agreed elsewhere.
            asked = replace(
                asked,
                required_approvals=question.required_approvals,
                agreed=question.agreed,
                principal=question.principal,
            )
            kept = await self._asked_here(store, question, asked, self._approver)
            if kept.state != "open" or kept.agreed == question.agreed:
                return kept
            question = kept  # somebody has agreed: is there another one?

    async def _asked_here(
        self, store: ApprovalStore, question: ApprovalRequest, asked: AskHuman, approver: Approver
    ) -> ApprovalRequest:
        """Ask the approver, until it or somebody elsewhere has answered; return the question as it stands then."""
        here = asyncio.ensure_future(self._services.ask_human(approver, asked))
        elsewhere = asyncio.ensure_future(_answered(store, question))
        try:
            await asyncio.wait((here, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            if not here.done():
                kept = elsewhere.result()
                _withdraw(approver, asked, kept)
                return kept
            said = here.result()
            if said is None or said is NOT_ASKED:  # no person has spoken: somebody elsewhere still may
                return question
            decided = store.decide(
                question.id, granted=said.granted, by=said.by, reason=said.reason, edited=said.arguments
            )
            known = await wait_for(decided) or question  # as it stands: somebody may have been quicker
            await _noted(store, question, known, said)
            return known
        except asyncio.CancelledError:
            _withdraw(approver, asked, question)
            raise
        finally:
            for each in (here, elsewhere):
                each.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await each


def _question(session: ActiveRun, asked: AskHuman, place: str) -> ApprovalRequest:
    name = digest({"run": session.id, "place": place, "digest": asked.digest})[:16]
    return ApprovalRequest(
        f"a_{name}", session.id, asked.call.id, asked.call.name, asked.digest, asked.arguments, asked.risk,
        asked.reason, asked.description, pin=asked.pin, parameters=asked.parameters, place=asked.place,
        required_approvals=asked.required_approvals, principal=asked.principal,
    )  # fmt: skip


def edits_in(store: object, run_id: str) -> Generator[StoreAnswer[Any], Any, dict[str, Mapping[str, Json]]]:
    """Yield the store's answers; return the arguments that people edited, by the step of the call."""
    questions = (yield store.list_approvals(state="", run_id=run_id)) if isinstance(store, ApprovalStore) else ()
    return {each.step: each.edited for each in questions if each.edited is not None}


def grant_of(question: ApprovalRequest, scope: ApprovalScope, *, by: str) -> StandingApproval:
    """Return the standing approval that a person gives with the answer to a question."""
    run_id = question.run_id if scope == "run" else kept_name(scope_of(question.run_id), "")
    id = grant_id(run_id, question.tool, question.pin, question.reason)
    return StandingApproval(id, run_id, question.tool, question.pin, question.reason, by)


def notice_of_grant(grant: StandingApproval, question: ApprovalRequest) -> AuditEntry:
    """Return what is recorded of a standing approval: it was given with the answer to this question."""
    return notice_of_word(
        "Granted", question.run_id, Redactor(), by=grant.by, grant=grant.id, tool=grant.tool, pin=grant.pin,
        reason=grant.reason,
    )  # fmt: skip


async def _noted(store: ApprovalStore, question: ApprovalRequest, known: ApprovalRequest, said: Approval) -> None:
    """Keep a standing approval that was given with an answer, and record a yes that does not decide yet."""
    told: list[AuditEntry] = []
    once = said.scope == "once" or question.required_approvals > 1
    if said.granted and not once and known.state == "approved" and isinstance(store, StandingApprovalStore):
        told = [notice_of_grant(await wait_for(store.grant(grant_of(question, said.scope, by=said.by))), question)]
    elif known.state == "open" and len(known.agreed) > len(question.agreed):
        told = [notice_of_answer(known, granted=True, by=said.by)]
    if told and isinstance(store, AuditStore):
        await wait_for(store.append_audit(told))


def notice_of_answer(
    known: ApprovalRequest, *, granted: bool, by: str, reason: str = "", edited: Mapping[str, Json] | None = None
) -> AuditEntry:
    """Return what is recorded of a person's word on a question, as the question stands then."""
    several: dict[str, Json] = {}
    if known.required_approvals > 1:
        several = {"agreed": list(known.agreed), "required_approvals": known.required_approvals}
    return notice_of_word(
        "ApprovalDecided", known.run_id, Redactor(), by=by, question=known.id, call=known.call_id, tool=known.tool,
        granted=granted, reason=reason, arguments=edited, **several,
    )  # fmt: skip


async def _granted(store: StandingApprovalStore, session: ActiveRun, asked: AskHuman) -> StandingApproval | None:
    """Return a standing approval that answers this question."""
    for grant in await wait_for(store.list_standing_approvals(tool=asked.call.name)):
        if (grant.pin, grant.reason) == (asked.pin, asked.reason) and grant.run_id in ("", session.id):
            return grant
    return None


async def _answered(store: ApprovalStore, question: ApprovalRequest) -> ApprovalRequest:
    """Return a question once it is open no longer."""
    wait_s = _FIRST_LOOK_S
    while True:
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_LOOK_S)
        try:
            kept = await wait_for(store.list_approvals(state="", run_id=question.run_id))
        except StoreUnavailable:
            continue  # it may be back at the next look; whoever is asked here can still answer
        if found := next((each for each in kept if each.id == question.id and each.state != "open"), None):
            return found


def _withdraw(approver: Approver, asked: AskHuman, kept: ApprovalRequest) -> None:
    """Take a question back from whoever is still being asked here."""
    try:
        if isinstance(approver, Withdrawing):
            approver.withdraw(asked, kept)
    except Exception as error:  # somebody else's code, which must not cost the word that was given
        logs.log_exception("an approver raised when its question was taken back", error)
