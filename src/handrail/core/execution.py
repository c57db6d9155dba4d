"""How a call that was admitted is carried out, up to the result that the model reads. Start reading here.

    admission   the model's text -> a call that may run                                    pure
    execute     look up -> approval -> resources -> claim -> invoke, retry -> settle -> shape
                                                                                           a generator of effects

The order is a security property: nobody is asked about a call that may not run, and nothing is claimed while somebody
sleeps over an approval. It is written once, here, and is not for users to arrange.

Rule 1: nothing here performs anything, reads a clock of its own, or draws a random number of its own.
Rule 2: whatever happens, `execute` returns one `ToolResult`.
Rule 3: a call never changes. An edit by a person gives another one, and each effect carries the call that it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic_core import from_json

from handrail.calls import ToolResult
from handrail.core import materialize, results, retries
from handrail.core.admission import Admitted, ParsedCall, Tell, admit, refuse_call
from handrail.core.policy import Decision, Policy
from handrail.core.redaction import KnownSecrets
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
    Invoke,
    Keep,
    LookUp,
    NotFound,
    Outcome,
    Raised,
    Reserve,
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
from handrail.events import AttemptFailed
from handrail.parsing import strictjson
from handrail.schemas.validation import NULLS_LEFT_OUT
from handrail.tools import keys
from handrail.tools.tool import BaseTool

LEASE_BEYOND_TIMEOUT_S = 30.0
LONGEST_LEASE_S = 90.0
"""The longest lease that is renewed, so that a process that dies in an hour's call keeps its key and locks no longer.

Not for class verify: a request of the dead process may arrive until the hour is over, and `verify` would miss it.
"""
_SHORTEST_ATTEMPT_S = 0.01
_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 1.0
_PASSING = (ClaimState.BUSY, ClaimState.LOCKED)
_LONGEST_EDIT_SHOWN = 500
_MOST_QUESTIONS = 10
"""How often a call asks for another approval because another call has used its own."""
_VERIFIED = "the answer was lost; it was verified that this happened"


class ExecutedCall(NamedTuple):
    """A call as it was carried out, perhaps edited by a person, and its result."""

    call: Admitted
    result: ToolResult


Execution: TypeAlias = Generator[Effect[Admitted], Any, ExecutedCall]


class Deadline(Struct):
    """When a run ends, on its clock; infinite without a time limit."""

    at: float = float("inf")

    def postpone(self, seconds: float) -> None:
        """Put the end off, by what people took to answer."""
        self.at += seconds


class RunSettings(Struct, frozen=True):
    """How the calls of a run are carried out: what is the same for all of them.

    Attributes:
        now: Monotonic seconds.
        jitter: A number from [0, 1], for the wait before a retry.
        deadline: When the run ends, on `now`. The active run alone moves it.
        keeps: Whether results that are cut can be read on; not where no later turn will belong to this run.
        tell: Where events go; None when nobody listens.
        key_prefix: What the keys of writes begin with that declare none; the run's name by default.
        epoch: How often the run was begun or taken over, where it is kept.
        looks_up: Whether the store can report the state of a write without claiming it.
        secrets: What no result may contain; None if there are no known secrets.
        refusal: Why a model may not call a tool at this step of the run; None where no rules are.
    """

    policy: Policy
    now: Callable[[], float]
    jitter: Callable[[], float]
    run_id: str = ""
    scope: str = ""
    deadline: Deadline = field(default_factory=Deadline)
    result_bytes: int = results.DEFAULT_RESULT_BYTES
    backoff: retries.Backoff = field(default_factory=retries.Backoff)
    repair: bool = True
    keeps: bool = True
    tell: Tell | None = None
    key_prefix: str = ""
    epoch: int = 0
    renews: bool = False
    looks_up: bool = False
    secrets: KnownSecrets | None = None
    refusal: Callable[[str], Failure | None] | None = None


class CallOutcome(Struct):
    """How a call ended, before its result is shaped for the model."""

    call: Admitted
    value: Any = None
    failure: Failure | None = None
    attempts: int = 0
    replayed: bool = False
    note: str = ""
    done_under: str = ""
    """The ledger's key of the write, if it is not the key with which the call was admitted."""


class HeldClaim(NamedTuple):
    """A claim of a call, and what the ledger answered."""

    call: Admitted
    claim: Claim
    claimed: Claimed


def execute(
    call: Admitted, settings: RunSettings, began: float | None = None
) -> Execution:
    """Yield what must happen for this call, in order; return its result.

    Args:
        began: When a plain call was begun, if that was before now.
    """
    try:
        claimed: Claimed | None = None
        if call.verdict.decision is Decision.ASK:
            # Before a person is asked: nobody needs to approve a write that is done or under way.
            claimed = yield from _look_up(call, settings)
            if claimed is None:
                approval: Approval | None = yield _question(
                    call, call.verdict.reason, call.place
                )
                approved = _apply_approval(call, approval, settings)
                if isinstance(approved, Failure):
                    return _refuse(call, approved)
                call = approved
        if claimed is None and (call.resources or call.tool.rate_limit):
            # After the approval, so that nothing is held while somebody sleeps.
            failure = yield from _reserve(call)
            if failure is not None:
                return _refuse(call, failure)
        if call.tool.writes:
            outcome = yield from _write(call, settings, claimed)
        else:
            outcome = yield from _read(call, settings, began)
    except CallCancelled:
        outcome = CallOutcome(call, failure=_cancelled_before_start(call))
    except StoreUnavailable:
        outcome = CallOutcome(call, failure=_store_unavailable(call))
    result = yield from _shape_result(outcome, settings)
    return ExecutedCall(outcome.call, result)


def _refuse(call: Admitted, failure: Failure) -> ExecutedCall:
    return ExecutedCall(call, refuse_call(call.call, failure, call.repairs))


def _reserve(call: Admitted) -> Generator[Effect[Admitted], Any, Failure | None]:
    """Wait for the call's turn on its resources; return why it does not come in time, if it does not."""
    reserved: bool | Failure = yield Reserve(call)
    if reserved is True:
        return None
    return reserved or retries.not_started(call.tool.name)


# ---------------------------------------------------------------------- approval


def _question(call: Admitted, reason: str, place: str, refused: str = "") -> AskHuman:
    """Return what a person agrees to: the tool as it describes itself, and exactly these arguments."""
    tool = call.tool
    return AskHuman(
        call.call,
        strictjson.copy(call.arguments),
        call.verdict.risk,
        reason=reason,
        description=tool.description,
        place=place,
        digest=keys.digest({"pin": tool.pin, "arguments": call.arguments}),
        pin=tool.pin,
        parameters=tool.parameters,
        required_approvals=_required_approvals(call),
        writes=tool.writes,
        refused=refused,
    )


def _required_approvals(call: Admitted) -> int:
    return max(call.verdict.required_approvals, call.tool.required_approvals)


def _apply_approval(
    call: Admitted, approval: Approval | None, settings: RunSettings
) -> Admitted | Failure:
    """Return the call as a person approved it, perhaps with edited arguments, or why it does not run."""
    name = call.tool.name
    if approval is None:
        return _pending(call, f"`{name}`")
    if approval.expired:
        return Failure(
            Code.APPROVAL_EXPIRED,
            f"Nobody approved `{name}` in time, so it was not done.",
            "Go on without it, or tell the user that it needs to be asked for again.",
        )
    if not approval.granted:
        reason = f": {approval.reason}" if approval.reason else ""
        return Failure(
            Code.NOT_APPROVED,
            f"A person did not approve `{name}`{reason}.",
            "Do not ask for the same again; heed the reason, or ask the user how to go on.",
        )
    call = replace(call, approval=approval.question)
    if approval.arguments is None:
        return call
    return _apply_edit(call, approval.arguments, settings)


def _pending(call: Admitted, subject: str) -> Failure:
    """Return that somebody is still to answer; `subject` needs it."""
    people = _required_approvals(call)
    missing = "a person's approval, and nobody has answered yet"
    if people > 1:
        missing = (
            f"the approval of {people} people, and not all of them have answered yet"
        )
    return Failure(
        Code.APPROVAL_PENDING,
        f"{subject} needs {missing}.",
        "Do not call it again meanwhile; tell the user that it waits for approval.",
    )


def _apply_edit(
    call: Admitted, arguments: Mapping[str, Json], settings: RunSettings
) -> Admitted | Failure:
    """Return the call with the arguments that a person wrote, or why these are refused: a person can mistype too."""
    edited = admit(
        ParsedCall(call.call, call.tool, dict(arguments)),
        settings.policy,
        call.key,
        settings.tell,
    )
    if isinstance(edited, Failure):
        return replace(
            edited,
            message=f"A person changed the arguments, and these were refused: {edited.message}",
        )
    if edited.verdict.required_approvals > call.verdict.required_approvals:
        return Failure(
            Code.NOT_APPROVED,
            f"A person changed the arguments, and like this `{call.tool.name}` needs the approval of "
            f"{edited.verdict.required_approvals} people. They wrote: "
            f"{keys.canonical(edited.arguments)[:_LONGEST_EDIT_SHOWN]}",
            "Call it again with these arguments, so that all of them are asked about the same.",
        )
    return replace(
        call,
        arguments=edited.arguments,
        bound=edited.bound,
        key=edited.key,
        resources=edited.resources,
        note=_edit_note(call.arguments, edited.arguments),
    )


def _edit_note(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    changed = {
        name: value for name, value in after.items() if before.get(name, ...) != value
    }
    dropped = [name for name in before if name not in after]
    note = f"a person changed the arguments before it ran: {keys.canonical(changed)[:_LONGEST_EDIT_SHOWN]}"
    if dropped:
        note += f", without {', '.join(dropped)}"
    return note


# ---------------------------------------------------------------------- reads


def _read(
    call: Admitted, settings: RunSettings, began: float | None
) -> Generator[Effect[Admitted], Any, CallOutcome]:
    if began is None:
        began = settings.now()
    deadline = min(began + call.tool.timeout_s, settings.deadline.at)
    attempt = 0
    while True:
        attempt += 1
        outcome = yield start_attempt(call, attempt, began, settings)
        if isinstance(outcome, Returned):
            return _returned(call, outcome, attempt)
        diagnosis = retries.diagnose(
            outcome, call.tool.name, _allowed_s(call.tool, began, settings)
        )
        wait_s = _wait_before(
            attempt + 1, diagnosis, call.tool, deadline=deadline, settings=settings
        )
        _tell_attempt_failed(call, attempt, outcome, diagnosis, wait_s, settings)
        failure: Failure | None = diagnosis.failure
        if wait_s is not None:
            failure = yield from _wait(wait_s, call)
        if failure is not None:
            return CallOutcome(call, failure=failure, attempts=attempt)


def _returned(call: Admitted, outcome: Returned, attempts: int) -> CallOutcome:
    note = "it finished after its deadline" if outcome.late else ""
    return CallOutcome(call, _materialized(outcome.value), attempts=attempts, note=note)


def _materialized(value: Any) -> Any:
    """Return a value that may be looked at twice, by the ledger and for the model."""
    try:
        if not materialize.has_iterators(value):
            return value
        read = materialize.read(value)
        if not materialize.has_iterators(read):
            return read
        # What has fields is its author's, and keeps its iterators: what it would be as JSON stands for it.
        return from_json(results.encode(read))
    except Exception:
        # the tool's own, which has returned; or a circle: whoever looks first finds what there is
        return value


# ---------------------------------------------------------------------- writes


def _write(
    call: Admitted, settings: RunSettings, claimed: Claimed | None = None
) -> Generator[Effect[Admitted], Any, CallOutcome]:
    """Claim and perform a write; ask a person whether to do it again if its tool leaves that to a person.

    Args:
        claimed: What the ledger answers to the claim, if it was looked up already.
    """
    outcome: CallOutcome | None = None
    own_key = call.key
    reason = call.verdict.reason
    place = call.place
    while True:
        try:
            held = yield from _take_claim(call, claimed, reason, place, settings)
        except (StoreUnavailable, CallCancelled):
            if outcome is None:
                raise
            # it was to be done again, and was not: what was known of it before is still true
            return outcome
        if isinstance(held, Failure):
            return outcome or CallOutcome(call, failure=held)
        claimed = None
        again, state = yield from _perform(held, settings)
        again.done_under = held.claimed.key or (
            held.call.key if held.call.key != own_key else ""
        )
        if outcome is not None and _would_hide(outcome, again):
            return outcome
        outcome = again
        question = _question_to_repeat(held, state)
        if question is None:
            return outcome
        reason = question.reason
        place = question.place
        repeated = yield from _ask_to_repeat(held, question, outcome, settings)
        if isinstance(repeated, CallOutcome):
            return repeated
        call = repeated


def _would_hide(outcome: CallOutcome, again: CallOutcome) -> bool:
    """Whether a write was in doubt and was not done again: a word that it may be called anew would hide the doubt."""
    return (
        outcome.failure is not None
        and again.failure is not None
        and again.failure.retryable
    )


def _ask_to_repeat(
    held: HeldClaim, question: AskHuman, outcome: CallOutcome, settings: RunSettings
) -> Generator[Effect[Admitted], Any, Admitted | CallOutcome]:
    """Ask whether to do a write again; return the call to do, or how the call ends."""
    call = held.call
    try:
        approval: Approval | None = yield question
    except (StoreUnavailable, CallCancelled):
        return outcome
    if approval is None:
        so_far = f"`{call.tool.name}` was already done."
        if outcome.failure is not None:
            so_far = outcome.failure.message
        return CallOutcome(
            call,
            failure=_pending(call, f"{so_far} To be done again it"),
            attempts=outcome.attempts,
        )
    repeated = _apply_approval(call, approval, settings)
    if isinstance(repeated, Failure):
        return outcome
    # else the edited arguments name another act, which is done once as ever
    if repeated.key == call.key:
        # What a person has done again is a new write: under the old key it would be the old one.
        key = call.key if held.claimed.repeated else _key_again(call, held.claimed)
        repeated = replace(repeated, key=key, guarded=False)
    if repeated.resources:
        # Its resources went to others while it was asked about; the edited arguments may name different ones.
        failure = yield from _reserve(repeated)
        if failure is not None:
            return outcome
    return repeated


def claim_for(call: Admitted, settings: RunSettings) -> Claim:
    """Return the claim of a write: what it is called in the ledger, and how it is guarded there."""
    tool = call.tool
    return Claim(
        scope=f"{settings.scope}{tool.name}",
        key=call.key,
        fingerprint=keys.fingerprint(tool.name, tool.version, call.arguments),
        run_id=settings.run_id,
        replay=tool.replay_class,
        lease_s=_lease_s(tool, settings),
        guard=call.guarded and not tool.repeatable,
        epoch=settings.epoch,
        locks=tuple(each.key for each in call.resources if each.exclusive),
        key_ttl_s=tool.key_ttl_s,
        repeat_window_s=tool.repeat_window_s,
        approval=call.approval,
    )


def _look_up(
    call: Admitted, settings: RunSettings
) -> Generator[Effect[Admitted], Any, Claimed | None]:
    """Return the ledger's answer if the write may not start; None if it may, or if the call is a read."""
    if not (call.tool.writes and settings.looks_up):
        return None
    claimed: Claimed | None = yield from _ask_ledger(
        LookUp(claim_for(call, settings)), call.tool, settings
    )
    return claimed


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
        place: Where the call stands, for a question.
    """
    if claimed is not None:
        return HeldClaim(call, claim_for(call, settings), claimed)
    for _ in range(_MOST_QUESTIONS):
        claim = claim_for(call, settings)
        answer: Claimed = yield from _ask_ledger(claim, call.tool, settings)
        if answer.state is not ClaimState.UNAPPROVED:
            return HeldClaim(call, claim, answer)
        approval: Approval | None = yield _question(
            call, reason, place, refused=call.approval
        )
        approved = _apply_approval(call, approval, settings)
        if isinstance(approved, Failure):
            return approved
        call = approved
        if call.resources:
            failure = yield from _reserve(call)
            if failure is not None:
                return failure
    return Failure(
        Code.NOT_APPROVED,
        f"`{call.tool.name}` was not started: other calls have used each approval that was given.",
        "Tell the user that it needs to be approved once more.",
    )


def _perform(
    held: HeldClaim, settings: RunSettings
) -> Generator[Effect[Admitted], Any, tuple[CallOutcome, SettledState | None]]:
    """Do what a claim's answer allows and record how it ended; None where nothing was this call's to do."""
    claim = held.claim
    claimed = held.claimed
    match claimed.state:
        case ClaimState.FRESH | ClaimState.AGAIN:
            outcome, state = yield from _attempt_write(held.call, settings)
        case ClaimState.CHECK:
            early_s = claimed.left_s - LEASE_BEYOND_TIMEOUT_S
            outcome, state = yield from _check_then_write(held.call, settings, early_s)
        case ClaimState.IN_DOUBT:
            return _not_mine(held), "in_doubt"
        case _:
            return _not_mine(held), None
    value = None
    if state == "done":
        value = results.plain(_redact(outcome.value, settings))
    try:
        yield Settle(
            claim.scope,
            claim.key,
            claimed.fence,
            state=state,
            value=value,
            locks=claim.locks,
        )
    except (StoreUnavailable, CallCancelled):
        # The model is still shown what happened. The claim stays open, so whoever claims next learns of the doubt.
        pass
    return outcome, state


def _question_to_repeat(held: HeldClaim, state: SettledState | None) -> AskHuman | None:
    """Return what a person is asked once the ledger has answered, where the tool leaves it to one."""
    call = held.call
    claim = held.claim
    tool = call.tool
    place = f"{call.place}#{_key_again(call, held.claimed)}"
    if (
        held.claimed.repeated
        and held.claimed.state is ClaimState.DONE
        and tool.asks_before_repeating
    ):
        return _question(
            call, f"the same {tool.name} was already done, with these arguments", place
        )
    if state == "in_doubt" and tool.on_doubt == "ask":
        reason = (
            f"{tool.name} was begun and nobody knows whether it happened. Look first: approve to run it again, deny to "
            f"leave it, or say what happened (handrail ledger resolve {claim.scope} {claim.key})"
        )
        return _question(call, reason, place)
    return None


def _key_again(call: Admitted, claimed: Claimed) -> str:
    """Return the key under which a person has a write done again that is in doubt; another for each doubt."""
    return f"{call.key}{AGAIN}{claimed.fence}"


def _lease_s(tool: BaseTool, settings: RunSettings) -> float:
    lease_s = tool.timeout_s + LEASE_BEYOND_TIMEOUT_S
    if settings.renews and tool.replay_class != "verify":
        return min(lease_s, LONGEST_LEASE_S)
    # for class verify the tool's whole time: a dead process's request may arrive until then
    return lease_s


def _ask_ledger(
    question: Claim | LookUp, tool: BaseTool, settings: RunSettings
) -> Generator[Effect[Admitted], Any, Any]:
    """Claim, or look up; while another process performs the same write, wait for its end within this call's own time.

    A resumed run waits longer, because the write is probably its own from before: once the lease is over, the ledger
    gives a final answer.
    """
    began = settings.now()
    wait_s = _FIRST_LOOK_S
    while True:
        claimed: Claimed | None = yield question
        if claimed is None or claimed.state not in _PASSING:
            return claimed
        most_s = tool.timeout_s
        if settings.epoch > 1 and claimed.state is ClaimState.BUSY:
            most_s = max(most_s, LONGEST_LEASE_S)
        if settings.now() + wait_s >= min(began + most_s, settings.deadline.at):
            return claimed
        yield Wait(wait_s)
        wait_s = min(wait_s * 2, _LONGEST_LOOK_S)


def _attempt_write(
    call: Admitted, settings: RunSettings
) -> Generator[Effect[Admitted], Any, tuple[CallOutcome, SettledState]]:
    """Run a claimed write until it is known how it ended, or known that nobody knows."""
    tool = call.tool
    began = settings.now()
    deadline = min(began + tool.timeout_s, settings.deadline.at)
    attempt = 0
    doubtful = False
    while True:
        attempt += 1
        outcome = yield start_attempt(call, attempt, began, settings)
        if isinstance(outcome, Returned):
            return _returned(call, outcome, attempt), "done"
        if isinstance(outcome, Raised) and isinstance(outcome.error, TooLarge):
            failure = retries.done_but_too_large(tool.name, outcome.error)
            return CallOutcome(
                call, failure.as_json(), failure, attempts=attempt
            ), "done"
        allowed_s = _allowed_s(tool, began, settings)
        diagnosis = retries.diagnose(
            outcome, tool.name, allowed_s, one_request=tool.one_request
        )
        happened: Verification | None = None
        if not diagnosis.no_effect:
            happened = yield from _verify(call, outcome)
            if isinstance(happened, NotFound):
                diagnosis = retries.without_effect(diagnosis, tool.name)
        doubtful = doubtful or not diagnosis.no_effect
        wait_s = None
        if not isinstance(happened, Found) and _may_repeat(tool, doubtful):
            wait_s = _wait_before(
                attempt + 1, diagnosis, tool, deadline=deadline, settings=settings
            )
        _tell_attempt_failed(call, attempt, outcome, diagnosis, wait_s, settings)
        if isinstance(happened, Found):
            return CallOutcome(
                call, happened.value, attempts=attempt, note=_VERIFIED
            ), "done"
        if wait_s is None:
            return _failed_write(
                call, attempt, diagnosis, diagnosis.failure, doubtful=doubtful
            )
        cancelled = yield from _wait(wait_s, call)
        if cancelled is not None:
            return _failed_write(call, attempt, diagnosis, cancelled, doubtful=doubtful)


def _failed_write(
    call: Admitted,
    attempts: int,
    diagnosis: retries.Diagnosis,
    failure: Failure,
    *,
    doubtful: bool,
) -> tuple[CallOutcome, SettledState]:
    """Return how a write ends that is not attempted again: with `failure`, or in doubt."""
    if not doubtful:
        return CallOutcome(call, failure=failure, attempts=attempts), "failed"
    doubt = diagnosis.failure if diagnosis.worded else retries.in_doubt(call.tool.name)
    return CallOutcome(call, failure=doubt, attempts=attempts), "in_doubt"


def _may_repeat(tool: BaseTool, doubtful: bool) -> bool:
    """Whether a write may be started again: what cannot be undone, or was not declared, never by itself."""
    return tool.effect == "write" and (not doubtful or tool.replay_class == "key")


def _check_then_write(
    call: Admitted, settings: RunSettings, early_s: float
) -> Generator[Effect[Admitted], Any, tuple[CallOutcome, SettledState]]:
    """Go on with a write that somebody else began: perform it when it has certainly not happened.

    Args:
        early_s: For how long what a dead process has sent may still arrive: what is left of the tool's time. That
            nothing is found says nothing until then, and it is asked once more.
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
            return CallOutcome(
                call, failure=retries.in_doubt(call.tool.name)
            ), "in_doubt"


def _verify_later(
    call: Admitted, settings: RunSettings, early_s: float
) -> Generator[Effect[Admitted], Any, Verification]:
    """Verify once nothing can arrive any more; `Unknown` where the run ends before that."""
    if settings.now() + early_s >= settings.deadline.at:
        return Unknown()
    cancelled = yield from _wait(early_s, call)
    if cancelled is not None:
        return Unknown()
    return (yield from _verify(call))


def _verify(
    call: Admitted, outcome: Outcome | None = None
) -> Generator[Effect[Admitted], Any, Verification]:
    """Ask the tool, where it can tell, whether a write that was begun has happened.

    That a write is not there yet says nothing while it is still running.
    """
    if call.tool.replay_class != "verify":
        return Unknown()
    try:
        happened: Verification = yield Verify(call)
    except (StoreUnavailable, CallCancelled):
        return Unknown()
    runs_on = isinstance(outcome, Unfinished) and outcome.end is End.RUNNING_ON
    if runs_on and isinstance(happened, NotFound):
        return Unknown()
    return happened


def _wait(
    seconds: float, call: Admitted
) -> Generator[Effect[Admitted], Any, Failure | None]:
    """Let time pass before the next attempt, or return why there is none."""
    try:
        yield Wait(seconds)
    except (StoreUnavailable, CallCancelled):
        return Failure(
            Code.CANCELLED,
            f"The run was cancelled before `{call.tool.name}` was tried again.",
        )
    return None


def _not_mine(held: HeldClaim) -> CallOutcome:
    """Return how a write ends that this call may not perform."""
    call = held.call
    claimed = held.claimed
    name = call.tool.name
    if claimed.state is ClaimState.DONE:
        note = "this was already done; the earlier result is repeated, nothing was done again"
        failure = retries.too_large_again(claimed.value)
        return CallOutcome(call, claimed.value, failure, replayed=True, note=note)
    failures = {
        ClaimState.IN_DOUBT: retries.in_doubt(name),
        ClaimState.BUSY: Failure(
            Code.IN_PROGRESS,
            f"The same `{name}` is being carried out just now.",
            "Wait a moment, then check whether it happened.",
            retryable=True,
        ),
        ClaimState.LOCKED: Failure(
            Code.IN_PROGRESS,
            f"`{name}` was not started: something that it touches is being changed by another call.",
            "Wait a moment, then call it again.",
            retryable=True,
        ),
        ClaimState.CONFLICT: Failure(
            Code.IDEMPOTENCY_KEY_REUSED,
            f"`{name}` was already carried out under this key with other arguments.",
            "Look at what was done before; it is not done a second time with other arguments.",
        ),
    }
    return CallOutcome(call, failure=failures[claimed.state])


# ---------------------------------------------------------------------- attempts


def start_attempt(
    call: Admitted, attempt: int, began: float, settings: RunSettings
) -> Invoke[Admitted]:
    """Return the effect that starts a tool for the n-th time, with what is left of its time."""
    # The first attempt gets exactly the declared time, not that less a microsecond: calls that begin together then have
    # one and the same time, and a driver needs one timer for them.
    tool = call.tool
    left_s = settings.deadline.at - began
    if tool.timeout_s < left_s:
        left_s = tool.timeout_s
    if attempt > 1:
        left_s -= settings.now() - began
    if tool.attempt_timeout_s is not None and tool.attempt_timeout_s < left_s:
        left_s = tool.attempt_timeout_s
    return Invoke(call, attempt, left_s if left_s > 0 else 0.0)


def _wait_before(
    attempt: int,
    diagnosis: retries.Diagnosis,
    tool: BaseTool,
    *,
    deadline: float,
    settings: RunSettings,
) -> float | None:
    """Return how long to wait before `attempt`, or None when there is to be none."""
    if not diagnosis.passing or attempt > tool.max_attempts:
        return None
    wait_s = settings.backoff.before(attempt, settings.jitter())
    if diagnosis.after_s is not None:
        wait_s = max(wait_s, diagnosis.after_s)
    if settings.now() + wait_s + _SHORTEST_ATTEMPT_S >= deadline:
        return None
    return wait_s


def _allowed_s(tool: BaseTool, began: float, settings: RunSettings) -> float:
    """Return how long an attempt may take; of a run that ends before that, what it had left when the call began."""
    declared_s = tool.attempt_timeout_s or tool.timeout_s
    left_s = settings.deadline.at - began
    if declared_s <= left_s:
        return declared_s
    return float(f"{max(left_s, 0.0):.3g}")


def _tell_attempt_failed(
    call: Admitted,
    attempt: int,
    outcome: Outcome,
    diagnosis: retries.Diagnosis,
    wait_s: float | None,
    settings: RunSettings,
) -> None:
    if settings.tell is None:
        return
    reason = str(diagnosis.failure.code)
    if isinstance(outcome, Raised):
        reason = outcome.words
    elif isinstance(outcome, Unfinished):
        cause = "cancelled" if outcome.cancelled else "deadline"
        reason = f"{cause}, {outcome.end.value}"
    settings.tell(AttemptFailed(call.call, attempt, reason, wait_s))


def _cancelled_before_start(call: Admitted) -> Failure:
    return Failure(
        Code.CANCELLED, f"The run was cancelled before `{call.tool.name}` was started."
    )


def _store_unavailable(call: Admitted) -> Failure:
    return Failure(
        Code.UNAVAILABLE,
        f"`{call.tool.name}` was not started: the record of writes cannot be reached.",
        "Try again later.",
        retryable=True,
    )


# ---------------------------------------------------------------------- what the model reads


def _shape_result(
    outcome: CallOutcome, settings: RunSettings
) -> Generator[Effect[Admitted], Any, ToolResult]:
    """Shape the result for the model, keeping aside what does not fit."""
    call = outcome.call
    if outcome.failure is not None:
        return _shape_failure(outcome, outcome.failure, settings)
    value = _redact(outcome.value, settings)
    shaped = results.shape(value, call.tool.result_bytes or settings.result_bytes)
    note = _join_notes(call.note, outcome.note)
    repairs = [name for name in call.repairs if name != NULLS_LEFT_OUT]
    if repairs:
        note = _join_notes(
            note,
            f"your arguments were repaired ({', '.join(repairs)}); write them as plain JSON",
        )
    handle = ""
    if shaped.cut:
        rest = "the rest is not kept"
        if settings.keeps:
            try:
                handle = yield Keep(shaped.whole)
                rest = f"read the rest with read_result(handle={handle!r})"
            except (StoreUnavailable, CallCancelled):
                rest = "the rest could not be kept"
        note = _join_notes(note, f"{shaped.cut}; {rest}")
    text = shaped.text
    if note:
        text = results.with_note(text, note, value)
    return ToolResult(
        call.call.id,
        call.tool.name,
        value,
        text=text,
        attempts=outcome.attempts,
        replayed=outcome.replayed,
        note=note,
        repairs=call.repairs,
        handle=handle,
        media=results.media_in(value),
        done_under=outcome.done_under,
    )


def _shape_failure(
    outcome: CallOutcome, failure: Failure, settings: RunSettings
) -> ToolResult:
    call = outcome.call
    if settings.secrets is not None:
        failure = settings.secrets.failure(failure)
    return ToolResult(
        call.call.id,
        call.tool.name,
        failure=failure,
        text=results.failure_text(failure),
        attempts=outcome.attempts,
        replayed=outcome.replayed,
        repairs=call.repairs,
    )


def _redact(value: Any, settings: RunSettings) -> Any:
    """Return a value without the secrets that are known."""
    if settings.secrets is None:
        return value
    return settings.secrets.value(value)


def _join_notes(first: str, second: str) -> str:
    return "; ".join(filter(None, (first, second)))
