"""Asks people about calls: who is asked, where the question is stored, and which answer counts.

If the store can keep questions, a question is stored before anybody is asked: it outlives this process, and another
process may answer it meanwhile.

A standing approval covers more than one call: all calls of its tool that are asked about for the same reason, in this
run or in any. It is bound to the tool as it describes itself, can be listed, and is in force until it is revoked.

The person for whom a run acts does not approve its calls, unless the policy permits it (`own_approval`).

Where several people must agree, a question stays open until they all have; a single denial decides it. No standing
approval counts for several people. If the policy comes to require more people than have agreed, the question is asked
again.

An approval is used once. The claim of a write uses it in the same commit, if one store keeps both. For a read, or
without such a store, it is used right before the call starts.

Rule 1: the first answer counts. The question is withdrawn from an approver that is still asked, and its answer ignored.
Rule 2: an answer given here is stored exactly like one given in another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from handrail import logs
from handrail.audit.trail import person_entry
from handrail.core.policy import Policy
from handrail.core.redaction import Redactor
from handrail.core.writes import WHY_IN_DOUBT
from handrail.effects import Approval, ApprovalScope, AskHuman
from handrail.engine.active_run import ActiveRun
from handrail.engine.scoped_store import make_approval_id, parse_scope, qualify_name
from handrail.engine.shared import SharedResources
from handrail.engine.user_code import NOT_ASKED
from handrail.errors import Failure, Json, StoreUnavailable
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
from handrail.records import (
    ApprovalRequest,
    AuditEntry,
    StandingApproval,
    not_counted,
)
from handrail.schemas.validation import Checker
from handrail.tools.keys import digest
from handrail.tools.toolset import Toolset

_FIRST_LOOK_S = 0.1
_LONGEST_LOOK_S = 2.0
"""How often it is looked whether somebody has answered elsewhere: soon at first, then as a person's patience has it."""

_MOST_LOOKS = 1000
"""Each time an equal call has taken the word, so this is never reached with a store that keeps to its port."""


class Approvals:
    """Asks people on behalf of one deployment.

    Args:
        services: Where an approver that is a plain function gets its thread.
        tools: Every tool that a call may name.
        scope: The tenant of its runs.
    """

    def __init__(
        self,
        store: Store,
        policy: Policy,
        services: SharedResources,
        *,
        tools: Callable[[], Toolset],
        scope: str,
    ) -> None:
        self._store = store
        self._policy = policy
        self._services = services
        self._tools = tools
        self._scope = scope
        self._in_claims = (
            isinstance(store, ApprovedClaimStore) and store.claims_use_approvals
        )

    async def decide(
        self, active: ActiveRun, asked: AskHuman
    ) -> Approval | ApprovalRequest | StoreUnavailable | None:
        """Ask about a call. A silent store decides nothing.

        Returns:
            While nobody has answered, the open question; None where it is not stored.
        """
        store = self._store
        asked = replace(
            asked,
            principal=active.principal,
            own_approval=self._policy.own_approval,
        )
        is_kept = bool(asked.write or _home(active, asked))
        if not isinstance(store, ApprovalStore) or not is_kept:
            if asked.is_recall or asked.is_preview or asked.awaits_result:
                return None
            return await self._decide_without_store(active, asked) or _UNASKED
        try:
            if asked.is_recall:
                return await self._recall(store, active, asked)
            if asked.is_preview:
                return await self._preview(store, active, asked)
            answer = await self._decide_stored(store, active, asked)
        except StoreUnavailable as error:
            return error
        if self._services.unnoticed and isinstance(answer, ApprovalRequest):
            await self._notify(answer)
        return answer

    async def _notify(self, question: ApprovalRequest) -> None:
        """Notify people of a question that was stored here, once."""
        if self._services.unnoticed.discard(question.id):
            # as the store has it, so that whoever is notified finds it there
            run_id = qualify_name(self._scope, question.run_id)
            await self._services.notify(replace(question, run_id=run_id))

    async def _recall(
        self, store: ApprovalStore, active: ActiveRun, asked: AskHuman
    ) -> Approval | None:
        """Return the approval that this very call has used, or the result that was delivered for it."""
        wanted = "approved" if asked.awaits_result else "used"
        found = await wait_for(
            store.list_approvals(
                state=wanted, run_id=_home(active, asked), digest=asked.digest
            )
        )
        in_place = active.recording is not None
        for each in reversed(found):
            is_same = _is_same_reason(each, asked)
            is_its_own = (
                each.place == asked.place if in_place else each.call_id == asked.call.id
            )
            if is_same and is_its_own:
                return _granted(each, question=each.id)
        return None

    async def _preview(
        self, store: ApprovalStore, active: ActiveRun, asked: AskHuman
    ) -> Approval | ApprovalRequest | None:
        """Return what is decided about a call so far, and use nothing of it."""
        can_stand = asked.required_approvals == 1 and not asked.awaits_result
        if can_stand and isinstance(store, StandingApprovalStore):
            standing = await _find_standing_approval(store, active, asked)
            if standing is not None:
                return Approval(True, by=f"{standing.by} ({standing.id})")
        request = await self._load_or_store(store, active, asked)
        if asked.awaits_result and request.state == "open":
            return None
        if request.state == "open":
            await self._notify(request)
        return _delivered(request)

    async def _decide_without_store(
        self, active: ActiveRun, asked: AskHuman
    ) -> Approval | None:
        """Ask whoever is here, one after the other where several must agree."""
        question = _question(active.id, asked, asked.place)
        while True:
            answer = await self._services.ask_human(
                active.approver, replace(asked, agreed=question.agreed)
            )
            if answer is None:
                return None
            if answer.granted and _warn_if_not_counted(answer.by, question):
                return None
            if asked.required_approvals == 1:
                return answer
            decided = question.with_decision(
                granted=answer.granted,
                by=answer.by,
                reason=answer.reason,
                edited=answer.arguments,
            )
            if decided.state != "open":
                return Approval(
                    decided.state == "approved", decided.by, decided.decision_reason
                )
            if decided == question:
                return None
            question = decided

    async def _decide_stored(
        self, store: ApprovalStore, active: ActiveRun, asked: AskHuman
    ) -> Approval | ApprovalRequest | None:
        """Return what the answer to the stored question means for the call."""
        for _ in range(_MOST_LOOKS):
            request = await self._load_or_store(store, active, asked)
            if asked.awaits_result:
                return _delivered(request)
            if request.state == "open":
                request = await self._take_word(store, request, active, asked)
            if request.state == "open":
                request = await self._request_decision(store, request, active, asked)
            if request.state in ("denied", "expired"):
                self._services.returned.add(request.id)
            if request.state != "open":
                self._services.unnoticed.discard(request.id)
            match request.state:
                case "open":
                    return request
                case "expired":
                    return Approval(False, expired=True)
                case "denied" | "cancelled":
                    return Approval(False, request.by, request.decision_reason)
                case "approved" | "used" if self._is_for_claim(asked):
                    return _granted(request, question=request.id)
                case "approved" if await wait_for(store.use(request.id)):
                    return _granted(request)
            # Another call has used it: ask again.
        return None

    def _is_for_claim(self, asked: AskHuman) -> bool:
        """Whether the claim of the call uses its approval."""
        return asked.writes and self._in_claims

    async def _load_or_store(
        self, store: ApprovalStore, active: ActiveRun, asked: AskHuman
    ) -> ApprovalRequest:
        """Store the request, or return an earlier one that asks the same.

        A stored run has one request for each place. Of other runs each process counts the turns from 1, and a call is
        handed over again to learn its answer, so there the earlier request is found by what it asks. Each decision is
        for one call.

        The requests of a cancelled run are closed; if the run is resumed, its call gets a new one.
        """
        in_place = active.recording is not None
        if asked.write:
            # named by its write, whichever run has asked it first
            return await self._store_request(store, active, asked, asked.place)
        stored = await wait_for(
            store.list_approvals(
                state="", run_id=_home(active, asked), digest=asked.digest
            )
        )
        earlier = [each for each in stored if _is_about(each, asked, in_place=in_place)]
        for each in earlier:
            if each.state in ("open", "approved") and each.id != asked.refused:
                current = replace(
                    each,
                    required_approvals=asked.required_approvals,
                    own_approval=asked.own_approval,
                )
                within_s = self._policy.approval_s
                return await wait_for(store.ask(current, within_s=within_s))
        if earlier and self._still_decides(earlier[-1], asked, in_place=in_place):
            return earlier[-1]
        place = asked.place if in_place else asked.reason
        if asked.awaits_result and not in_place:
            place = f"{place}/{asked.call.id}"
        if earlier or not in_place:
            place = f"{place}/{len(earlier)}"
        return await self._store_request(store, active, asked, place)

    async def _store_request(
        self, store: ApprovalStore, active: ActiveRun, asked: AskHuman, place: str
    ) -> ApprovalRequest:
        """Store a new request, named by its run, this place and its digest."""
        question = _question(_home(active, asked), asked, place)
        if active.words is not None:
            mark = active.words.mark_on(asked.call.id)
            question = replace(question, place=f"{question.place}{mark}")
        within_s = self._policy.approval_s
        stored = await wait_for(store.ask(question, within_s=within_s))
        if active.words is not None:
            active.words.asked_now.add(stored.id)
        # the preview of a deferred write has notified people already
        is_repeated = asked.write and not asked.is_preview
        if self._services.notifier is not None and not is_repeated:
            self._services.unnoticed.add(stored.id)
        return stored

    def _still_decides(
        self, last: ApprovalRequest, asked: AskHuman, *, in_place: bool
    ) -> bool:
        """Whether the last request of a call, which is closed, decides it.

        A used approval decides a write that may have used it itself; the claim refuses any other write.
        """
        if last.state == "used" and last.used_by and self._is_for_claim(asked):
            return (
                last.id != asked.refused
                and last.required_approvals >= asked.required_approvals
            )
        # Outside a stored run a refusal is returned once: the next equal call asks a new question.
        return last.state in ("denied", "expired") and (
            in_place or last.id not in self._services.returned
        )

    async def _take_word(
        self,
        store: ApprovalStore,
        question: ApprovalRequest,
        active: ActiveRun,
        asked: AskHuman,
    ) -> ApprovalRequest:
        """Answer an open question by the decision that came with its call; return its new state.

        It counts for a question that was open before the decision came: nobody has seen one that is asked only now.
        Edited arguments that do not fit decide nothing.
        """
        word = active.words and active.words.word_on(question, asked.call.id)
        if not word or not _fits(word, question):
            return question
        return await _store_answer(store, question, word)

    async def _request_decision(
        self,
        store: ApprovalStore,
        question: ApprovalRequest,
        active: ActiveRun,
        asked: AskHuman,
    ) -> ApprovalRequest:
        """Answer an open question by a standing approval, or by this process's approver; return its new state."""
        if question.required_approvals == 1 and isinstance(
            store, StandingApprovalStore
        ):
            standing = await _find_standing_approval(store, active, asked)
            if standing is not None:
                by = f"{standing.by} ({standing.id})"
                return (
                    await wait_for(store.decide(question.id, granted=True, by=by))
                    or question
                )
        if active.approver is None:
            return question
        while True:
            # As it was asked first: today's policy may be laxer, and somebody has perhaps agreed elsewhere.
            asked = replace(
                asked,
                required_approvals=question.required_approvals,
                agreed=question.agreed,
                principal=question.principal,
                own_approval=question.own_approval,
            )
            answered = await self._ask_approver(store, question, asked, active.approver)
            if answered.state != "open" or answered.agreed == question.agreed:
                return answered
            question = answered  # somebody has agreed: is there another one?

    async def _ask_approver(
        self,
        store: ApprovalStore,
        question: ApprovalRequest,
        asked: AskHuman,
        approver: Approver,
    ) -> ApprovalRequest:
        """Ask the approver, until it or somebody elsewhere has answered; return the question's new state."""
        here = asyncio.ensure_future(self._services.ask_human(approver, asked))
        elsewhere = asyncio.ensure_future(_wait_for_decision(store, question))
        try:
            await asyncio.wait((here, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            if not here.done():
                decided = elsewhere.result()
                _withdraw(approver, asked, decided)
                return decided
            answer = here.result()
            # no person has answered: somebody elsewhere still may
            if answer is None or answer is NOT_ASKED:
                return question
            return await _store_answer(store, question, answer)
        except asyncio.CancelledError:
            _withdraw(approver, asked, question)
            raise
        finally:
            for task in (here, elsewhere):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


def _delivered(request: ApprovalRequest) -> Approval | ApprovalRequest:
    """Return the answer to a question without using it up; the question while it is open."""
    match request.state:
        case "open":
            return request
        case "expired":
            return Approval(False, expired=True)
        case "denied" | "cancelled":
            return Approval(False, request.by, request.decision_reason)
    return _granted(request)


def _granted(request: ApprovalRequest, question: str = "") -> Approval:
    return Approval(
        True, request.by, request.decision_reason, request.edited, question=question
    )


def _is_about(question: ApprovalRequest, asked: AskHuman, *, in_place: bool) -> bool:
    """Whether a stored question about the same arguments is the one that is asked.

    In a stored run it is found by its place, else by its reason.
    """
    if question.principal != asked.principal:
        return False
    if asked.awaits_result and question.call_id != asked.call.id:
        return False  # the same question once more is another one
    if in_place:
        return question.place == asked.place
    return _is_same_reason(question, asked)


def _is_same_reason(question: ApprovalRequest, asked: AskHuman) -> bool:
    """Whether both questions have the same reason; why a write is in doubt may differ."""
    stored, _, _ = question.reason.partition(WHY_IN_DOUBT)
    return stored == asked.reason.partition(WHY_IN_DOUBT)[0]


def _fits(word: Approval, question: ApprovalRequest) -> bool:
    """Whether a word holds no edited arguments, or such as the tool takes."""
    if word.arguments is None or not question.parameters:
        return True
    checked = Checker(dict(question.parameters)).check(dict(word.arguments))
    if not isinstance(checked, Failure):
        return True
    logs.log.warning(
        "the edited arguments of a word on %s decide nothing: %s",
        question.id,
        checked.message,
    )
    return False


_UNASKED = Approval(
    False, reason="the call is of no run, and its tool declares no key", unasked=True
)
KEY_HOME = "key:"
"""Begins the name that stands for a run in the questions of a key; see `_home`."""
_LONGEST_KEY_SHOWN = 200


def _home(active: ActiveRun, asked: AskHuman) -> str:
    """Return the run that a question belongs to. For a call of no run it is named by the key; empty without a key.

    Whoever makes a call of no run again, in any process, finds its question by the key.
    """
    if active.settings.keeps:
        return active.id
    if not asked.key:
        return ""
    is_short = len(asked.key) <= _LONGEST_KEY_SHOWN
    return f"{KEY_HOME}{asked.key if is_short else digest(asked.key)}"


def _question(run_id: str, asked: AskHuman, place: str) -> ApprovalRequest:
    named: dict[str, Json] = {"write": asked.write}
    if not asked.write:
        named = {"run": run_id, "place": place, "digest": asked.digest}
        if asked.principal:
            named["principal"] = asked.principal
    name = digest(named)[:16]
    return ApprovalRequest(
        id=f"a_{name}",
        run_id=run_id,
        call_id=asked.call.id,
        tool=asked.call.name,
        digest=asked.digest,
        arguments=asked.arguments,
        risk=asked.risk,
        reason=asked.reason,
        description=asked.description,
        pin=asked.pin,
        parameters=asked.parameters,
        place=asked.place,
        required_approvals=asked.required_approvals,
        principal=asked.principal,
        used_by=asked.write,
        own_approval=asked.own_approval,
    )


def load_edits(
    store: object, run_id: str
) -> Generator[StoreAnswer[Any], Any, dict[str, Mapping[str, Json]]]:
    """Yield the store's answers; return the arguments that people edited, by the step of the call."""
    questions = (
        (yield store.list_approvals(state="", run_id=run_id))
        if isinstance(store, ApprovalStore)
        else ()
    )
    return {
        each.step: each.edited
        for each in questions
        if each.edited is not None and not each.awaits_result
    }


def make_standing_approval(
    question: ApprovalRequest, scope: ApprovalScope, *, by: str
) -> StandingApproval:
    """Return the standing approval that a person gives with the answer to a question."""
    run_id = (
        question.run_id
        if scope == "run"
        else qualify_name(parse_scope(question.run_id), "")
    )
    id = make_approval_id(run_id, question.tool, question.pin, question.reason)
    return StandingApproval(
        id, run_id, question.tool, question.pin, question.reason, by
    )


def standing_approval_entry(
    grant: StandingApproval, question: ApprovalRequest
) -> AuditEntry:
    """Return what is recorded of a standing approval: it was given with the answer to this question."""
    return person_entry(
        "Granted",
        question.run_id,
        Redactor(),
        by=grant.by,
        grant=grant.id,
        tool=grant.tool,
        pin=grant.pin,
        reason=grant.reason,
    )


async def _store_answer(
    store: ApprovalStore, question: ApprovalRequest, answer: Approval
) -> ApprovalRequest:
    """Answer a question; return its new state: somebody may have been quicker."""
    if answer.granted:
        _warn_if_not_counted(answer.by, question)
    decision = store.decide(
        question.id,
        granted=answer.granted,
        by=answer.by,
        reason=answer.reason,
        edited=answer.arguments,
    )
    current = await wait_for(decision) or question
    await _record_answer(store, question, current, answer)
    return current


def _warn_if_not_counted(by: str, question: ApprovalRequest) -> bool:
    """Log why a yes to a question does not count; return whether that is so."""
    why = not_counted(by, question)
    if why:
        logs.log.warning(
            "an approval of %s (%s) does not count: %s",
            question.tool,
            question.id,
            why,
        )
    return bool(why)


async def _record_answer(
    store: ApprovalStore,
    question: ApprovalRequest,
    current: ApprovalRequest,
    answer: Approval,
) -> None:
    """Store a standing approval that was given with an answer, and record a yes that does not decide yet."""
    entries: list[AuditEntry] = []
    is_standing = (
        answer.granted and answer.scope != "once" and question.required_approvals == 1
    )
    if (
        is_standing
        and current.state == "approved"
        and isinstance(store, StandingApprovalStore)
    ):
        standing = await wait_for(
            store.grant(make_standing_approval(question, answer.scope, by=answer.by))
        )
        entries = [standing_approval_entry(standing, question)]
    elif current.state == "open" and len(current.agreed) > len(question.agreed):
        entries = [decision_entry(current, granted=True, by=answer.by)]
    if entries and isinstance(store, AuditStore):
        await wait_for(store.append_audit(entries))


def decision_entry(
    question: ApprovalRequest,
    *,
    granted: bool,
    by: str,
    reason: str = "",
    edited: Mapping[str, Json] | None = None,
) -> AuditEntry:
    """Return the record of a person's decision on a question.

    Args:
        question: As the store has it after the decision.
    """
    several: dict[str, Json] = {}
    if question.required_approvals > 1:
        several = {
            "agreed": list(question.agreed),
            "required_approvals": question.required_approvals,
        }
    return person_entry(
        "ApprovalDecided",
        question.run_id,
        Redactor(),
        by=by,
        question=question.id,
        call=question.call_id,
        tool=question.tool,
        granted=granted,
        reason=reason,
        arguments=edited,
        **several,
    )


async def _find_standing_approval(
    store: StandingApprovalStore, active: ActiveRun, asked: AskHuman
) -> StandingApproval | None:
    """Return a standing approval that answers this question."""
    for grant in await wait_for(store.list_standing_approvals(tool=asked.call.name)):
        is_about = (grant.pin, grant.reason) == (asked.pin, asked.reason)
        is_here = grant.run_id in ("", _home(active, asked))
        # nobody approves their own calls beforehand either
        if is_about and is_here and not not_counted(grant.by, asked):
            return grant
    return None


async def _wait_for_decision(
    store: ApprovalStore, question: ApprovalRequest
) -> ApprovalRequest:
    """Return a question once it is open no longer."""
    wait_s = _FIRST_LOOK_S
    while True:
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_LOOK_S)
        try:
            stored = await wait_for(store.list_approvals(state="", id=question.id))
        except StoreUnavailable:
            # it may be back at the next look; whoever is asked here can still answer
            continue
        if stored and stored[0].state != "open":
            return stored[0]


def _withdraw(approver: Approver, asked: AskHuman, question: ApprovalRequest) -> None:
    """Take a question back from whoever is still being asked here."""
    try:
        if isinstance(approver, Withdrawing):
            approver.withdraw(asked, question)
    except Exception as error:
        # somebody else's code, which must not cost the answer that was given
        logs.log_exception("an approver raised when its question was taken back", error)
