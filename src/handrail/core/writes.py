"""How a write is carried out: claimed in the ledger, attempted, and settled.

    take_claim -> attempt, or verify what an earlier process did -> Settle

A claim is durable before the tool starts, so a write is never started twice by accident: whoever comes later learns
from the ledger what became of it, or that nobody can say.

Rule 1: a write that may have happened is never started again by itself, unless its tool declares that it may be.
Rule 2: once a write has started, an unavailable store or a cancelled run changes nothing in its outcome.
Rule 3: what was once in doubt stays so until the write is found or its tool returns: a later attempt that fails says
        nothing about an earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.core import results, retries
from handrail.core.admission import (
    Admitted,
    apply_approval,
    make_question,
    refuse_call,
    refuse_pending,
)
from handrail.core.attempts import (
    CallOutcome,
    compute,
    make_outcome,
    report_failed_attempt,
    reserve,
    start_attempt,
    time_limit_s,
    wait,
    wait_before,
)
from handrail.core.deferred import ask_for_result, read_delivery, result_pending
from handrail.core.policy import Decision
from handrail.core.run_settings import RunSettings
from handrail.core.trust import UNKNOWN
from handrail.effects import (
    AGAIN,
    Approval,
    AskHuman,
    CallCancelled,
    Claim,
    Claimed,
    ClaimState,
    Effect,
    End,
    Found,
    LookUp,
    NotFound,
    Outcome,
    Raised,
    Resource,
    Returned,
    Settle,
    SettledState,
    Unfinished,
    Unknown,
    Verification,
    Verify,
    Wait,
)
from handrail.errors import Code, Failure, Json, StoreUnavailable, TooLarge
from handrail.parsing import strictjson
from handrail.records import OVERDUE, WriteRecord
from handrail.tools import keys
from handrail.tools.normal_form import normalize_arguments
from handrail.tools.tool import BaseTool, CallTraits

LEASE_BEYOND_TIMEOUT_S = 30.0
LONGEST_LEASE_S = 90.0
"""The longest lease that is renewed, so that a process that dies in an hour's call holds its key and locks no longer.

Not for class verify: a request of the dead process may arrive until the hour is over, and `verify` would miss it.
"""
_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 1.0
_PASSING = (ClaimState.BUSY, ClaimState.LOCKED)
_MOST_QUESTIONS = 10
"""How often a call asks for another approval because another call has used its own."""
WHY_IN_DOUBT = ". Why: "
"""Stands in a question before why its write is in doubt. What follows may differ when the same is asked again."""
_ALREADY_DONE = (
    "this was already done; the earlier result is repeated, nothing was done again"
)
_VERIFIED = "the answer was lost; it was verified that this happened"


class HeldClaim(Struct, frozen=True, gc=False):
    """A claim of a call, and the ledger's answer."""

    call: Admitted
    claim: Claim
    claimed: Claimed


def perform_write(
    call: Admitted,
    settings: RunSettings,
    claimed: Claimed | None = None,
) -> Generator[Effect[Admitted], Any, CallOutcome]:
    """Claim and perform a write; ask a person whether to repeat it if its tool leaves that to a person.

    Args:
        claimed: The ledger's answer, if it was looked up already.
    """
    outcome: CallOutcome | None = None
    doubt: CallOutcome | None = None
    own_key = call.key
    reason = call.verdict.reason
    place = call.place
    while True:
        try:
            held = yield from _take_claim(call, claimed, reason, place, settings)
        except (StoreUnavailable, CallCancelled):
            if outcome is None:
                raise
            # The repetition did not take place; what is certain of the write before is still true.
            return outcome
        if isinstance(held, Failure):
            return outcome or CallOutcome(call, failure=held)
        claimed = None
        latest, state = yield from _perform(held, settings)
        latest.done_under = held.claimed.key
        if not latest.done_under and held.call.key != own_key:
            latest.done_under = held.call.key
        if doubt is not None and latest.failure is not None:
            if state != "in_doubt":
                return doubt
            latest.failure = doubt.failure
        outcome = latest
        if state == "in_doubt":
            doubt = outcome
        question = _question_to_repeat(held, state, outcome.why)
        if question is None:
            return outcome
        reason = question.reason
        place = question.place
        repeated = yield from _ask_to_repeat(held, question, outcome, settings)
        if isinstance(repeated, CallOutcome):
            return repeated
        call = repeated


# ---------------------------------------------------------------------- repeating a write


def _question_to_repeat(
    held: HeldClaim, state: SettledState | None, why: str
) -> AskHuman | None:
    """Return the question to a person that the ledger's answer raises; None if the tool asks nobody.

    Args:
        why: Why the write is in doubt, if it is and that is known.
    """
    call = held.call
    claim = held.claim
    tool = call.tool
    if (
        held.claimed.repeated
        and held.claimed.state is ClaimState.DONE
        and tool.asks_before_repeating
    ):
        reason = f"the same {tool.name} was already done, with these arguments"
    elif state == "in_doubt" and tool.write.on_doubt == "ask":
        tenant = f" --scope {claim.scope}" if claim.scope else ""
        reason = (
            f"{tool.name} was started and nobody knows whether it happened. Look first: approve to run it again, deny "
            f"to leave it, or say what happened (handrail ledger resolve {claim.key}{tenant})"
        )
        if why:
            reason = f"{reason}{WHY_IN_DOUBT}{why}"
    else:
        return None
    place = f"{call.place}#{_repeat_key(call, held.claimed)}"
    return make_question(call, reason, place)


def _ask_to_repeat(
    held: HeldClaim, question: AskHuman, outcome: CallOutcome, settings: RunSettings
) -> Generator[Effect[Admitted], Any, Admitted | CallOutcome]:
    """Ask whether to repeat a write; return the call to perform, or how the call ends."""
    try:
        return (yield from _repeat_if_approved(held, question, outcome, settings))
    except (StoreUnavailable, CallCancelled):
        # the outcome of the write is still true
        return outcome


def _repeat_if_approved(
    held: HeldClaim, question: AskHuman, outcome: CallOutcome, settings: RunSettings
) -> Generator[Effect[Admitted], Any, Admitted | CallOutcome]:
    call = held.call
    approval: Approval | None = yield question
    if approval is None:
        so_far = f"`{call.tool.name}` was already done."
        if outcome.failure is not None:
            so_far = outcome.failure.message
        return CallOutcome(
            call,
            failure=refuse_pending(call, f"{so_far} To be done again it"),
            attempts=outcome.attempts,
        )
    repeated = yield from apply_approval(
        call,
        approval,
        settings.policy,
        injected=settings.injected,
        tell=settings.tell_all,
    )
    if isinstance(repeated, Failure):
        return outcome
    # Edited arguments with another key name another act, which is done once as ever.
    if repeated.key == call.key:
        # A repetition that a person wants is a new write: under the old key it would be the old one.
        key = call.key
        if not held.claimed.repeated:
            key = _repeat_key(call, held.claimed)
        repeated = replace(repeated, key=key, guarded=False)
    if repeated.resources:
        # Its resources went to others during the question; the edited arguments may name different ones.
        failure = yield from reserve(repeated)
        if failure is not None:
            return outcome
    return repeated


def _repeat_key(call: Admitted, claimed: Claimed) -> str:
    """Return the key under which a person has a write in doubt repeated; another for each doubt."""
    return f"{call.key}{AGAIN}{claimed.fence}"


# ---------------------------------------------------------------------- claims


def claim_for(call: Admitted, settings: RunSettings) -> Claim:
    """Return the claim of a write: its name in the ledger, and how it is guarded there."""
    traits = call.traits
    return Claim(
        scope=settings.scope,
        key=call.key,
        fingerprint=call.fingerprint
        or keys.fingerprint(traits.name, traits.version, call.arguments, call.identity),
        run_id=settings.run_id,
        # Its delivery says how it ended, so nothing else is asked.
        replay="none" if traits.deferred else traits.replay_class,
        lease_s=_lease_s(traits, settings),
        guard=call.guarded and not traits.repeatable,
        epoch=settings.epoch,
        locks=_list_locks(call.resources),
        key_ttl_s=traits.key_ttl_s,
        repeat_window_s=traits.repeat_window_s,
        approval=call.approval,
        tool=traits.name,
        place=call.place,
    )


def _list_locks(resources: Sequence[Resource]) -> tuple[str, ...]:
    if not resources:
        return ()
    return tuple([each.key for each in resources if each.exclusive])


def _lease_s(traits: CallTraits, settings: RunSettings) -> float:
    lease_s = traits.timeout_s + LEASE_BEYOND_TIMEOUT_S
    if settings.renews and traits.replay_class != "verify":
        return min(lease_s, LONGEST_LEASE_S)
    # for class verify the tool's whole time: a dead process's request may arrive until then
    return lease_s


def look_up(
    call: Admitted, settings: RunSettings
) -> Generator[Effect[Admitted], Any, Claimed | None]:
    """Return the ledger's answer if the write may not start; None if it may, or if the call is a read."""
    if not (call.traits.writes and settings.looks_up):
        return None
    question = LookUp(claim_for(call, settings))
    began = settings.now()
    claimed: Claimed | None = yield question
    if claimed is not None and claimed.state in _PASSING:
        claimed = yield from _ask_again(
            question, claimed, call.tool, settings, began=began
        )
    if claimed is not None and _can_find_out(claimed):
        return None  # the claim tells what became of it
    return claimed


def _can_find_out(claimed: Claimed) -> bool:
    """Whether an equal write was left in doubt under another key, by which it can be verified or asked for again."""
    return (
        claimed.state is ClaimState.IN_DOUBT and claimed.repeated and bool(claimed.key)
    )


def _take_claim(
    call: Admitted,
    claimed: Claimed | None,
    reason: str,
    place: str,
    settings: RunSettings,
) -> Generator[Effect[Admitted], Any, HeldClaim | Failure]:
    """Claim under the call's approval; if another call has used it, ask for another approval.

    Args:
        claimed: The ledger's answer, if it was looked up already.
        reason: Why a person is asked.
        place: The call's place in its run, for a question.
    """
    if claimed is not None:
        return HeldClaim(call, claim_for(call, settings), claimed)
    for _ in range(_MOST_QUESTIONS):
        claim = claim_for(call, settings)
        began = settings.now()
        answer: Claimed = yield claim
        if answer.state in _PASSING:
            answer = yield from _ask_again(
                claim, answer, call.tool, settings, began=began
            )
        if _can_find_out(answer) and call.key != answer.key:
            call = replace(call, key=answer.key)
            continue
        if answer.state is not ClaimState.UNAPPROVED:
            return HeldClaim(call, claim, answer)
        approval: Approval | None = yield make_question(
            call, reason, place, refused=call.approval
        )
        approved = yield from apply_approval(
            call,
            approval,
            settings.policy,
            injected=settings.injected,
            tell=settings.tell_all,
        )
        if isinstance(approved, Failure):
            return approved
        call = approved
        if call.resources:
            failure = yield from reserve(call)
            if failure is not None:
                return failure
    return Failure(
        Code.NOT_APPROVED,
        f"`{call.tool.name}` was not started: other calls have used each approval that was given.",
        "Tell the user that it needs to be approved once more.",
    )


def _ask_again(
    question: Claim | LookUp,
    claimed: Claimed,
    tool: BaseTool,
    settings: RunSettings,
    *,
    began: float,
) -> Generator[Effect[Admitted], Any, Any]:
    """Claim, or look up, again and again: until the other process has ended the same write, or this call's time is up.

    A resumed run waits longer, because the write is probably its own from before: once the lease is over, the ledger
    gives a final answer.

    Args:
        claimed: The first answer.
        began: When it was asked for.
    """
    wait_s = _FIRST_LOOK_S
    while True:
        most_s = tool.timeout_s
        if settings.epoch > 1 and claimed.state is ClaimState.BUSY:
            most_s = max(most_s, LONGEST_LEASE_S)
        if settings.now() + wait_s >= min(began + most_s, settings.deadline.at):
            return claimed
        is_busy = claimed.state is ClaimState.BUSY
        until = settings.now() + claimed.left_s if is_busy and claimed.left_s else 0.0
        yield Wait(wait_s, until)
        wait_s = min(wait_s * 2, _LONGEST_LOOK_S)
        answer: Claimed | None = yield question
        if answer is None or answer.state not in _PASSING:
            return answer
        claimed = answer


# ---------------------------------------------------------------------- attempts


def _perform(
    held: HeldClaim, settings: RunSettings
) -> Generator[Effect[Admitted], Any, tuple[CallOutcome, SettledState | None]]:
    """Do what a claim's answer allows and settle it; the state is None if this call may do nothing."""
    claimed = held.claimed
    match claimed.state:
        case ClaimState.FRESH | ClaimState.AGAIN:
            if held.call.traits.deferred:
                return (yield from _start_deferred(held, settings))
            outcome, state = yield from _attempt_write(
                held.call,
                settings,
                doubtful=claimed.state is ClaimState.AGAIN,
            )
        case ClaimState.STARTED:
            return (yield from _read_result(held))
        case ClaimState.CHECK:
            early_s = claimed.left_s - LEASE_BEYOND_TIMEOUT_S
            outcome, state = yield from _check_then_write(held.call, settings, early_s)
        case ClaimState.IN_DOUBT:
            return _outcome_in_ledger(held), "in_doubt"
        case _:
            return _outcome_in_ledger(held), None
    value: Json = None
    if state == "in_doubt":
        value = outcome.why
    elif state == "done":
        label = held.call.tool.label
        if outcome.plain and settings.secrets_for(label) is None:
            value, outcome.body = results.copy_plain(outcome.value)
        else:
            value = yield from compute(
                outcome.size,
                lambda: results.plain(settings.redact(outcome.value, label)),
            )
    has_ended = state == "in_doubt" and not outcome.runs_on
    yield from _settle(held, state, value, has_ended=has_ended)
    return outcome, state


def _settle(
    held: HeldClaim,
    state: SettledState,
    value: Any = None,
    *,
    has_ended: bool = False,
) -> Generator[Effect[Admitted], Any, None]:
    """Record how a claimed write ended."""
    claim = held.claim
    try:
        yield Settle(
            claim.scope,
            claim.key,
            held.claimed.fence,
            state=state,
            value=value,
            locks=claim.locks,
            has_ended=has_ended,
        )
    except (StoreUnavailable, CallCancelled):
        # The model still reads what happened. The claim stays open, so whoever claims next learns of the doubt.
        pass


# ---------------------------------------------------------------------- deferred writes


def _start_deferred(
    held: HeldClaim, settings: RunSettings
) -> Generator[Effect[Admitted], Any, tuple[CallOutcome, SettledState | None]]:
    """Ask for the result of a claimed write, start it, and return the result if it is there already."""
    question = ask_for_result(held.call, held.claim, held.claimed.fence)
    try:
        # Stored before the tool runs: what it starts may answer at once.
        answer: Approval | None = yield replace(question, is_preview=True)
        if answer is not None and not answer.granted:
            raise StoreUnavailable("others have given the claim up")
    except (StoreUnavailable, CallCancelled):
        yield from _settle(held, "failed")
        raise
    outcome, state = yield from _attempt_write(held.call, settings)
    if state == "failed":
        yield from _settle(held, state)
        return outcome, state
    if held.claim.locks and not outcome.runs_on:
        yield from _settle(held, "waiting")
    return (yield from _read_result(held))


def _read_result(
    held: HeldClaim,
) -> Generator[Effect[Admitted], Any, tuple[CallOutcome, SettledState | None]]:
    """Return the result of a deferred write that was started; or that it waits for it, or is in doubt."""
    if held.claimed.key:  # the same act, under another key
        held = replace(held, claim=replace(held.claim, key=held.claimed.key))
    answer: Approval | None = None
    try:
        answer = yield ask_for_result(held.call, held.claim, held.claimed.fence)
    except (StoreUnavailable, CallCancelled):
        pass  # it was started, and waits
    outcome = read_delivery(held.call, answer)
    if answer is None or outcome.failure is None:
        return outcome, None
    yield from _settle(held, "in_doubt", OVERDUE, has_ended=True)
    return outcome, "in_doubt"


def _attempt_write(
    call: Admitted,
    settings: RunSettings,
    *,
    doubtful: bool = False,
) -> Generator[Effect[Admitted], Any, tuple[CallOutcome, SettledState]]:
    """Attempt a claimed write until its end is certain, or certain to stay unknown.

    Args:
        doubtful: An attempt of another process may have taken effect.
    """
    tool = call.tool
    began = settings.now()
    deadline = min(began + tool.timeout_s, settings.deadline.at)
    attempt = 0
    why = "an earlier process began it, and may have carried it out"
    while True:
        attempt += 1
        was_doubtful = doubtful
        started = began if attempt == 1 else settings.now()
        outcome = yield start_attempt(
            call, attempt, began, settings, doubtful=was_doubtful
        )
        if isinstance(outcome, Returned):
            return make_outcome(call, outcome, attempt), "done"
        if isinstance(outcome, Raised) and isinstance(outcome.error, TooLarge):
            return _make_too_large(call, outcome.error, attempt), "done"
        failed = settings.now()
        diagnosis, happened = yield from _diagnose(
            call, outcome, settings, began=began, started=started
        )
        doubtful = was_doubtful or not diagnosis.no_effect
        if not diagnosis.no_effect:
            why = f"attempt {attempt}: {_describe_end(outcome)}"
        if isinstance(happened, NotFound):
            # finding that out takes nothing of the time that all attempts have together
            began += settings.now() - failed
            deadline = min(began + tool.timeout_s, settings.deadline.at)
        wait_s = None
        if not isinstance(happened, Found) and _may_repeat(tool, doubtful):
            wait_s = wait_before(
                attempt + 1, diagnosis, tool, deadline=deadline, settings=settings
            )
        report_failed_attempt(
            call, attempt, outcome, diagnosis, wait_s=wait_s, settings=settings
        )
        if isinstance(happened, Found):
            return CallOutcome(
                call, happened.value, attempts=attempt, note=_VERIFIED
            ), "done"
        failure = diagnosis.failure
        if wait_s is not None:
            cancellation = yield from wait(wait_s, call)
            if cancellation is None:
                continue
            failure = cancellation
        state: SettledState = "failed"
        if doubtful:
            state = "in_doubt"
            failure = retries.in_doubt(tool.name)
            if diagnosis.worded and not was_doubtful:
                failure = diagnosis.failure
        ended = CallOutcome(call, failure=failure, attempts=attempt)
        ended.runs_on = _runs_on(outcome)
        ended.why = why if doubtful else ""
        return ended, state


def _runs_on(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Unfinished) and outcome.end is End.RUNNING_ON


def _describe_end(outcome: Raised | Unfinished) -> str:
    """Return how an attempt ended, for people: never an exception's text, which may hold secrets."""
    if isinstance(outcome, Raised):
        return type(outcome.error).__name__
    if outcome.cancelled:
        return "it was cancelled while it ran"
    return "it did not end in its time"


def _diagnose(
    call: Admitted,
    outcome: Raised | Unfinished,
    settings: RunSettings,
    *,
    began: float,
    started: float,
) -> Generator[Effect[Admitted], Any, tuple[retries.Diagnosis, Verification | None]]:
    """Return what is certain of a failed attempt, verified with the tool if it may have had an effect.

    Until the tool's whole time has passed since the attempt started, its request may still arrive, so a write that is
    not found is looked for once more then. A request that we cut off was on its way when its time ended, and may arrive
    later still: only that it is found says anything.
    """
    tool = call.tool
    diagnosis = retries.diagnose(
        outcome,
        tool.name,
        time_limit_s(tool, began, settings),
        one_request=tool.write.one_request,
    )
    if diagnosis.no_effect:
        return diagnosis, None
    happened = yield from _verify(call)
    early_s = started + tool.timeout_s - settings.now()
    if isinstance(happened, NotFound) and early_s > 0:
        happened = yield from _verify_later(call, settings, early_s)
    if not isinstance(happened, NotFound):
        return diagnosis, happened
    if isinstance(outcome, Unfinished):
        return diagnosis, Unknown()
    return retries.without_effect(diagnosis, tool.name), happened


def _make_too_large(call: Admitted, error: TooLarge, attempts: int) -> CallOutcome:
    """Return how a write ends that was done and returned more than a result may hold."""
    failure = retries.done_but_too_large(call.tool.name, error)
    return CallOutcome(call, failure.as_json(), failure, attempts=attempts)


def _may_repeat(tool: BaseTool, doubtful: bool) -> bool:
    """Whether a write may be started again: what cannot be undone, or was not declared, never by itself."""
    return tool.effect == "write" and (not doubtful or tool.replay_class == "key")


# ---------------------------------------------------------------------- writes of earlier processes


def _check_then_write(
    call: Admitted, settings: RunSettings, early_s: float
) -> Generator[Effect[Admitted], Any, tuple[CallOutcome, SettledState]]:
    """Go on with a write that somebody else started: perform it when it has certainly not happened.

    Args:
        early_s: For how long a request of a dead process may still arrive: the rest of the tool's time. Until then
            it proves nothing that the write is not found, so the tool is asked once more.
    """
    happened = yield from _verify(call)
    if isinstance(happened, NotFound) and early_s > 0:
        happened = yield from _verify_later(call, settings, early_s)
    match happened:
        case Found(value=value):
            return CallOutcome(call, value, replayed=True, note=_VERIFIED), "done"
        case NotFound():
            return (yield from _attempt_write(call, settings))
        case _:
            doubt = retries.in_doubt(call.tool.name)
            why = "an earlier process began it, and `verify` did not find out how it ended"
            return CallOutcome(call, failure=doubt, why=why), "in_doubt"


def _verify_later(
    call: Admitted, settings: RunSettings, early_s: float
) -> Generator[Effect[Admitted], Any, Verification]:
    """Verify once nothing can arrive any more; `Unknown` where the run ends before that."""
    until = settings.now() + early_s
    if until >= settings.deadline.at:
        return Unknown()
    cancellation = yield from wait(early_s, call, until)
    if cancellation is not None:
        return Unknown()
    return (yield from _verify(call))


def _verify(call: Admitted) -> Generator[Effect[Admitted], Any, Verification]:
    """Ask the tool whether a write that was started has happened; `Unknown` if it cannot tell."""
    if call.tool.replay_class != "verify":
        return Unknown()
    try:
        happened: Verification = yield Verify(call)
    except (StoreUnavailable, CallCancelled):
        return Unknown()
    return happened


def _outcome_in_ledger(held: HeldClaim) -> CallOutcome:
    """Return how a write ends that this call may not perform."""
    call = held.call
    claimed = held.claimed
    name = call.tool.name
    if claimed.state is ClaimState.DONE and call.traits.deferred:
        return CallOutcome(call, claimed.value, attempts=1)
    if claimed.state is ClaimState.CONFLICT:
        return CallOutcome(call, failure=_refuse_key(name, claimed.tool))
    if claimed.state is ClaimState.DONE:
        failure = retries.too_large_again(claimed.value)
        return CallOutcome(
            call, claimed.value, failure, replayed=True, note=_ALREADY_DONE
        )
    if claimed.state is ClaimState.IN_DOUBT:
        why = claimed.value if isinstance(claimed.value, str) else ""
        failure = retries.in_doubt(name)
        if why and call.traits.deferred:
            failure = replace(failure, message=f"{failure.message} Why: {why}.")
        return CallOutcome(call, failure=failure, why=why)
    if claimed.state is ClaimState.LOCKED:
        return CallOutcome(call, failure=_locked(name, claimed.left_s))
    assert claimed.state is ClaimState.BUSY
    return CallOutcome(call, failure=_in_progress(name))


def _in_progress(name: str) -> Failure:
    """Return the failure of a write that another process carries out."""
    return Failure(
        Code.IN_PROGRESS,
        f"The same `{name}` is being carried out just now.",
        "Wait a moment, then check whether it happened.",
        retryable=True,
    )


def _locked(name: str, doubt_s: float) -> Failure:
    """Return the failure of a write that another one keeps from starting.

    Args:
        doubt_s: How long that one holds what it touches, if it is in doubt and its tool has not ended; else 0.
    """
    if not doubt_s:
        return Failure(
            Code.IN_PROGRESS,
            f"`{name}` was not started: something that it touches is being changed by another call.",
            "Wait a moment, then call it again.",
            retryable=True,
        )
    return Failure(
        Code.IN_PROGRESS,
        f"`{name}` was not started: another call that touches the same thing is in doubt, and may still change it "
        f"for {math.ceil(doubt_s)} s.",
        f"Call it again in {math.ceil(doubt_s)} s, or find out first how the other call ended.",
        retryable=True,
    )


def _refuse_key(name: str, owner: str) -> Failure:
    """Return that the key of a write is that of another one, which `owner` made."""
    if owner != name:
        return Failure(
            Code.IDEMPOTENCY_KEY_REUSED,
            f"`{name}` was not started: its key is that of an earlier call of `{owner}`.",
            "Look at what that call did; whatever has one key is done once.",
        )
    return Failure(
        Code.IDEMPOTENCY_KEY_REUSED,
        f"`{name}` was not started: its key was already used with other arguments.",
        "Look at how the earlier call ended; what has one key is done once.",
    )


# ---------------------------------------------------------------------- calls that were started before

# What is known of a call comes before what is allowed now. Between two processes a tool may have got another parameter,
# rule or name, or a policy that denies it; a model that is told so, as if nothing had run, does the same thing twice.


class StartedWrites:
    """The writes of one run that were started and may have had an effect, as the ledger had them.

    Args:
        writes: The newest first.
        by_act: Whether they are found by what was asked for, too: where places are counted anew in each process.
        living: The keys of those that a living process carries out.
        is_unknown: The store did not say which there are.
    """

    def __init__(
        self,
        writes: Sequence[WriteRecord] = (),
        *,
        by_act: bool = False,
        living: Collection[str] = (),
        is_unknown: bool = False,
    ) -> None:
        self.is_unknown = is_unknown
        self.has_open = any(each.is_open for each in writes)
        """Whether one had no end: whoever is asked later may know more."""
        self._living = living
        self._by_place: dict[str, WriteRecord] = {}
        self._by_act: dict[str, WriteRecord] = {}
        for write in writes:
            if write.state != "failed":
                self._by_place.setdefault(write.place or write.key, write)
                if by_act:
                    self._by_act.setdefault(write.fingerprint, write)

    def __bool__(self) -> bool:
        return self.is_unknown or bool(self._by_place)

    def is_under_way(self, write: WriteRecord) -> bool:
        """Whether a living process carries the write out."""
        return write.key in self._living

    def find(
        self,
        call: ToolCall,
        place: str,
        *,
        by_code: bool,
        admitted: Admitted | None = None,
    ) -> WriteRecord | None:
        """Return the write that a call started.

        Args:
            by_code: Code makes the call, and may make another one at this place than it did before.
            admitted: The call as it is admitted now; None where it is refused.
        """
        write = self._by_place.get(place)
        if write is None and self._by_act:
            acts = map(self._by_act.get, _acts_of(call, admitted))
            write = next(filter(None, acts), None)
        if write is not None and by_code and write.tool != call.name:
            return None
        return write


def _acts_of(call: ToolCall, admitted: Admitted | None) -> Iterator[str]:
    """Yield the fingerprints of what a call may have asked for when it was started.

    As it is written, with the values that its tool makes of that, and with the defaults that its tool has now.
    """
    try:
        written = strictjson.loads(call.arguments)
    except strictjson.NotJson:
        written = None
    forms = [written] if isinstance(written, dict) else []
    version = ""
    identity: Sequence[str] = ()
    if admitted is not None:
        version = admitted.traits.version
        identity = admitted.identity
        whole = normalize_arguments(dict(admitted.arguments), admitted.bound)
        given = (
            {name: whole[name] for name in forms[0] if name in whole}
            if forms
            else whole
        )
        forms = [*forms, given, whole]
    for arguments in forms:
        yield keys.fingerprint(call.name, version, arguments, identity).hex()


def take_up(
    call: Admitted, write: WriteRecord, place: str, settings: RunSettings
) -> Admitted | None:
    """Return an admitted call as it reaches the row of the write that it started; None where it does not.

    The same arguments with another default are the same act: the ledger then compares what the call was before.

    Args:
        place: Of the call. A write that was found by its act has another one, and the ledger finds it by its act too.
    """
    if not call.traits.writes:
        return None
    claim = claim_for(call, settings)
    is_here = (write.place or write.key) == place
    row = (write.tool, write.key.partition(AGAIN)[0])
    if is_here and (claim.tool, claim.key) != row:
        return None
    fingerprint = bytes.fromhex(write.fingerprint)
    if claim.fingerprint == fingerprint:
        return call
    if write.fingerprint in _acts_of(call.call, call):
        return replace(call, fingerprint=fingerprint)
    # the arguments that a person wrote are put in once the ledger has been looked at
    return call if is_here and call.verdict.decision is Decision.ASK else None


OUT_OF_REACH = "its call, made again, does not reach it: its tool is declared otherwise"
"""Why a write is in doubt whose call was told so: as the ledger has it, for every process that takes the run up."""


def is_out_of_reach(write: WriteRecord) -> bool:
    """Whether a call of a write without an end was told that today's declarations do not reach it."""
    return write.is_open and write.doubt.endswith(OUT_OF_REACH)


def note_out_of_reach(write: WriteRecord) -> Settle:
    """Return what records that the call of a write was told that it is in doubt, and why."""
    why = f"{write.doubt}; {OUT_OF_REACH}" if write.doubt else OUT_OF_REACH
    return Settle(write.scope, write.key, write.fence, "in_doubt", value=why)


def refuse_second(call: Admitted, doubts: Iterable[WriteRecord]) -> Failure | None:
    """Return why a further write of a run is not started: an earlier one may have done it; None where it may start.

    A model that was told of a doubt, and that the tool takes other arguments now, makes the call once more.

    Args:
        doubts: Of the run: the writes in doubt that today's declarations do not reach.
    """
    if not (call.traits.writes and call.tool.has_default_key):
        return None
    name = call.tool.name
    for write in doubts:
        if write.tool != name and not _has_arguments_of(call, write):
            continue
        scope = f" --scope {write.scope}" if write.scope else ""
        return Failure(
            Code.IN_DOUBT,
            f"`{name}` was not started: an earlier call of `{write.tool}` in this run was started and may have done "
            "the same already.",
            "Check with a reading tool whether it happened. If it did not, tell the user: once a person has said how "
            f"it ended (handrail ledger resolve {write.key}{scope}), call `{name}` again.",
        )
    return None


def _has_arguments_of(call: Admitted, write: WriteRecord) -> bool:
    """Whether a call of whichever tool has the arguments of a write, as they are written or with their defaults."""
    written = strictjson.load_plain_object(call.call.arguments)
    return any(
        keys.fingerprint(write.tool, version, arguments, identity).hex()
        == write.fingerprint
        for version in {"", call.traits.version}
        for arguments in (call.arguments, written)
        if arguments is not None
        for identity in ((), call.identity)
    )


def tell_started(
    call: ToolCall,
    write: WriteRecord,
    tool: BaseTool | None,
    settings: RunSettings,
    *,
    is_under_way: bool = False,
) -> ToolResult:
    """Return the result of a call that was started before and does not go on: what the ledger knows of it.

    Args:
        is_under_way: A living process carries the write out.
    """
    if is_under_way:
        return refuse_call(call, _in_progress(write.tool))
    if write.state == "waiting":
        return refuse_call(call, result_pending(write.tool))
    if write.state != "done":
        return refuse_call(call, retries.in_doubt(write.tool))
    failure = retries.too_large_again(write.value)
    if failure is not None:
        return refuse_call(call, failure)
    label = UNKNOWN if tool is None else tool.label
    value = settings.redact(write.value, label)
    shaped = results.shape(value, settings.result_bytes)
    note = _ALREADY_DONE
    if shaped.cut:
        note = f"{note}; {shaped.cut}; the rest was not stored"
    return ToolResult(
        call.id,
        call.name,
        value,
        text=results.with_note(shaped.text, note, value),
        replayed=True,
        note=note,
        label=label,
    )
