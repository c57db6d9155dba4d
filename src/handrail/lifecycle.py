"""The life of one call, from the model's text to the result that the model reads. Start reading here.

    read      name -> tool, text -> JSON                                          pure
    admit     schema -> business rule -> permission, rules, risk                  pure
    carry_out approval -> resources -> claim -> invoke, retry -> settle -> shape  a generator that yields effects

The order is a security property: nothing is validated before it is JSON, nothing is judged before it is valid, nobody is
asked about a call that may not run, and nothing is claimed while somebody sleeps over an approval. It is written once,
here, and is not for users to arrange.

Rule 1: nothing here performs anything, reads a clock of its own, or draws a random number of its own.
Rule 2: whatever happens, `carry_out` returns one `ToolResult`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from handrail import jsontext, keys, retries, shaping
from handrail.calls import ToolCall, ToolResult
from handrail.effects import (
    Approval,
    AskHuman,
    CallCancelled,
    Claim,
    Claimed,
    ClaimState,
    Effect,
    Found,
    Invoke,
    Keep,
    NotFound,
    Outcome,
    Raised,
    Reserve,
    Resource,
    Returned,
    Settle,
    SettledState,
    Unfinished,
    Verify,
    Wait,
)
from handrail.errors import Code, Failure, Json, StoreUnavailable
from handrail.events import AttemptFailed, Event
from handrail.messages import Finish
from handrail.policy import Decision, Policy, Verdict
from handrail.tools import BaseTool
from handrail.toolset import Toolset

LEASE_BEYOND_TIMEOUT_S = 30.0
_SHORTEST_ATTEMPT_S = 0.01
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 1.0

Life: TypeAlias = Generator[Effect, Any, ToolResult]


@dataclass(slots=True)
class Read:
    """A call whose tool is known and whose arguments are JSON."""

    call: ToolCall
    tool: BaseTool
    arguments: dict[str, Json]
    repairs: Sequence[str] = ()


@dataclass(slots=True)
class Admitted:
    """A call that may run, or may be asked about.

    `arguments` are valid JSON values, as events and keys see them; `bound` are what the tool's function gets.
    """

    call: ToolCall
    tool: BaseTool
    arguments: Mapping[str, Json]
    bound: Mapping[str, Any]
    verdict: Verdict
    repairs: Sequence[str] = ()
    key: str = ""
    resources: Sequence[Resource] = ()


@dataclass(slots=True)
class Conduct:
    """How the calls of a run are carried out: what is the same for all of them.

    Attributes:
        now: Monotonic seconds.
        jitter: A number from [0, 1], for the wait before a retry.
        deadline: When the run ends, on `now`; infinite without a time limit. A driver moves it by what people took.
        tell: Where events go; None when nobody listens.
    """

    policy: Policy
    now: Callable[[], float]
    jitter: Callable[[], float]
    run_id: str = ""
    scope: str = ""
    deadline: float = float("inf")
    result_bytes: int = shaping.DEFAULT_RESULT_BYTES
    backoff: retries.Backoff = field(default_factory=retries.Backoff)
    repair: bool = True
    guard: bool = True
    tell: Callable[[Event], None] | None = None


# ---------------------------------------------------------------------- admission


def read(call: ToolCall, tools: Toolset, finish: Finish, *, repair: bool = True) -> Read | Failure:
    """Find the tool and read the arguments. A cut call is never repaired; a write takes no lossy repair."""
    tool = tools.resolve(call.name)
    if isinstance(tool, Failure):
        return tool
    parsed = jsontext.parse(call.arguments, finish, repair, lossy=not tool.writes)
    return parsed if isinstance(parsed, Failure) else Read(call, tool, parsed.value, parsed.repairs)


def admit(read: Read, policy: Policy, place: str = "") -> Admitted | Failure:
    """Check the arguments, the tool's own rule, and the policy.

    Args:
        place: The call's place in its run; the key of a write whose tool declares none.
    """
    tool = read.tool
    checked = tool.arguments_of(read.arguments)
    if isinstance(checked, Failure):
        return checked
    bound = tool.bind(checked.arguments)
    if isinstance(bound, Failure):
        return bound
    if broken := tool.rule_broken_by(bound):
        return broken
    verdict = policy.judge(tool, checked.arguments)
    if verdict.decision is Decision.DENY:
        return Failure(
            Code.NOT_PERMITTED,
            f"This run may not use `{tool.name}` like this: {verdict.reason}.",
            "Go on without it, or tell the user what would need to be allowed.",
        )
    repairs = (*read.repairs, *checked.repairs) if checked.repairs else read.repairs
    return Admitted(
        read.call,
        tool,
        checked.arguments,
        bound,
        verdict,
        repairs,
        tool.key_of(checked.arguments, place) if tool.writes else "",
        tool.resources_of(checked.arguments) if tool.resource else (),
    )


# ---------------------------------------------------------------------- carrying out


@dataclass(slots=True)
class Ended:
    """How a call ended, before its result is shaped for the model."""

    value: Any = None
    failure: Failure | None = None
    attempts: int = 0
    replayed: bool = False
    note: str = ""


def carry_out(call: Admitted, conduct: Conduct) -> Life:
    """Yield what must happen for this call, in order; return its result."""
    try:
        if call.verdict.decision is Decision.ASK:
            answer = yield AskHuman(
                call.call, call.arguments, call.verdict.risk, call.verdict.reason, call.tool.description
            )
            heeded = _heeded(answer, call, conduct)
            if isinstance(heeded, Failure):
                return refused(call.call, heeded, call.repairs)
            call = heeded
        # After the approval, so that nothing is held while somebody sleeps.
        if call.resources and not (yield Reserve(call.resources)):
            return refused(call.call, retries.not_started(call.tool.name), call.repairs)
        ended = yield from (_write(call, conduct) if call.tool.writes else _read(call, conduct))
    except CallCancelled:
        ended = Ended(failure=Failure(Code.CANCELLED, f"The run was cancelled before `{call.tool.name}` was started."))
    except StoreUnavailable:
        ended = Ended(failure=_store_silent(call.tool.name))
    return (yield from _told(call, ended, conduct))


def refused(call: ToolCall, failure: Failure, repairs: Sequence[str] = ()) -> ToolResult:
    """Return the result of a call that did not run."""
    return ToolResult(call.id, call.name, None, failure, shaping.text_of(failure.as_json()), repairs=repairs)


def _heeded(answer: Approval | None, call: Admitted, conduct: Conduct) -> Admitted | Failure:
    """Return the call as a person approved it, perhaps with edited arguments, or why it does not run."""
    name = call.tool.name
    if answer is None:
        return Failure(
            Code.APPROVAL_PENDING,
            f"`{name}` needs a person's approval, and nobody has answered yet.",
            "Do not call it again meanwhile; tell the user that it waits for approval.",
        )
    if not answer.granted:
        because = f": {answer.reason}" if answer.reason else ""
        return Failure(
            Code.NOT_APPROVED,
            f"A person did not approve `{name}`{because}.",
            "Do not ask for the same again; heed the reason, or ask the user how to go on.",
        )
    if answer.arguments is None:
        return call
    # Edited arguments pass every check again: a person can mistype too.
    edited = admit(Read(call.call, call.tool, dict(answer.arguments), call.repairs), conduct.policy, call.key)
    return edited if isinstance(edited, Failure) else replace(edited, repairs=(*edited.repairs, "edited_by_approver"))


def _read(call: Admitted, conduct: Conduct) -> Generator[Effect, Any, Ended]:
    began = conduct.now()
    deadline = min(began + call.tool.timeout_s, conduct.deadline)
    attempt = 0
    while True:
        attempt += 1
        outcome = yield _invoke(call.tool, attempt, began, conduct)
        if isinstance(outcome, Returned):
            return Ended(outcome.value, attempts=attempt, note=_late(outcome))
        diagnosis = retries.diagnose(outcome, call.tool.name, _allowed_s(call.tool))
        wait_s = _wait_before(attempt + 1, diagnosis, call.tool, deadline, conduct)
        _tell_of(outcome, diagnosis, call, attempt, wait_s, conduct)
        if wait_s is None:
            return Ended(failure=diagnosis.failure, attempts=attempt)
        yield Wait(wait_s)


def _write(call: Admitted, conduct: Conduct) -> Generator[Effect, Any, Ended]:
    tool = call.tool
    claim = Claim(
        f"{conduct.scope}{tool.name}",
        call.key,
        keys.fingerprint(tool.name, tool.version, call.arguments),
        conduct.run_id,
        tool.replay_class,
        tool.timeout_s + LEASE_BEYOND_TIMEOUT_S,
        guard=conduct.guard and not tool.repeatable,
    )
    claimed = yield from _claimed(claim, call.tool, conduct)
    if claimed.state is ClaimState.CHECK:
        ended, state = yield from _check(call, None)
    elif claimed.state in (ClaimState.FRESH, ClaimState.AGAIN):
        ended, state = None, "failed"
    else:
        return _not_mine(claimed, call)
    if ended is None:
        ended, state = yield from _write_attempts(call, conduct)
    value = shaping.plain(ended.value) if state == "done" else None
    try:
        yield Settle(claim.scope, claim.key, claimed.fence, state, value)
    except StoreUnavailable:
        # What happened is still told. The claim stays open, so whoever claims next learns that it is in doubt.
        pass
    return ended


def _claimed(claim: Claim, tool: BaseTool, conduct: Conduct) -> Generator[Effect, Any, Claimed]:
    """Claim; while somebody else is at the same act, wait for its end up to this call's own time."""
    deadline = min(conduct.now() + tool.timeout_s, conduct.deadline)
    wait_s = _FIRST_LOOK_S
    while True:
        claimed: Claimed = yield claim
        if claimed.state is not ClaimState.BUSY or conduct.now() + wait_s >= deadline:
            return claimed
        yield Wait(wait_s)
        wait_s = min(wait_s * 2, _LONGEST_LOOK_S)


def _write_attempts(call: Admitted, conduct: Conduct) -> Generator[Effect, Any, tuple[Ended, SettledState]]:
    """Run a claimed write until it is known how it ended, or known that nobody knows."""
    tool, began = call.tool, conduct.now()
    deadline = min(began + tool.timeout_s, conduct.deadline)
    attempt, doubtful = 0, False
    while True:
        attempt += 1
        outcome = yield _invoke(tool, attempt, began, conduct)
        if isinstance(outcome, Returned):
            return Ended(outcome.value, attempts=attempt, note=_late(outcome)), "done"
        diagnosis = retries.diagnose(outcome, tool.name, _allowed_s(tool))
        doubtful = doubtful or not diagnosis.no_effect
        wait_s = None
        if not doubtful or tool.replay_class == "key":
            wait_s = _wait_before(attempt + 1, diagnosis, tool, deadline, conduct)
        _tell_of(outcome, diagnosis, call, attempt, wait_s, conduct)
        if doubtful and wait_s is None:
            ended, state = yield from _check(call, diagnosis)
            if ended is None:  # verified: it did not happen
                return Ended(failure=_did_not_happen(tool.name), attempts=attempt), "failed"
            return replace(ended, attempts=attempt), state
        if wait_s is None:
            return Ended(failure=diagnosis.failure, attempts=attempt), "failed"
        try:
            yield Wait(wait_s)
        except CallCancelled:
            cancelled = Failure(Code.CANCELLED, f"The run was cancelled before `{tool.name}` was tried again.")
            if doubtful:
                return Ended(failure=retries.in_doubt(tool.name), attempts=attempt), "in_doubt"
            return Ended(failure=cancelled, attempts=attempt), "failed"


def _check(
    call: Admitted, diagnosis: retries.Diagnosis | None
) -> Generator[Effect, Any, tuple[Ended | None, SettledState]]:
    """Find out what became of a write that was begun. None means: verified, it did not happen."""
    if call.tool.replay_class == "verify":
        match (yield Verify()):
            case Found(value=value):
                return Ended(value, replayed=True, note="the answer was lost; it was verified that this happened"), "done"
            case NotFound():
                return None, "failed"
    worded = diagnosis is not None and diagnosis.worded
    failure = diagnosis.failure if diagnosis is not None and worded else retries.in_doubt(call.tool.name)
    return Ended(failure=failure), "in_doubt"


def _not_mine(claimed: Claimed, call: Admitted) -> Ended:
    """Return how a write ends that this call may not perform."""
    name = call.tool.name
    if claimed.state is ClaimState.DONE:
        note = "this was already done; the earlier result is repeated, nothing was done again"
        return Ended(claimed.value, replayed=True, note=note)
    failures = {
        ClaimState.IN_DOUBT: retries.in_doubt(name),
        ClaimState.BUSY: Failure(
            Code.IN_PROGRESS,
            f"The same `{name}` is being carried out just now.",
            "Wait a moment, then check whether it happened.",
            retryable=True,
        ),
        ClaimState.CONFLICT: Failure(
            Code.IDEMPOTENCY_KEY_REUSED,
            f"`{name}` was already carried out under this key with other arguments.",
            "Look at what was done before; it is not done a second time with other arguments.",
        ),
    }
    return Ended(failure=failures[claimed.state])


def _invoke(tool: BaseTool, attempt: int, began: float, conduct: Conduct) -> Invoke:
    # The first attempt gets exactly the declared time, not that less a microsecond: calls that begin together then have
    # one and the same time, and a driver needs one timer for them.
    left_s = min(tool.timeout_s, conduct.deadline - began)
    if attempt > 1:
        left_s -= conduct.now() - began
    return Invoke(attempt, max(0.0, min(left_s, tool.attempt_timeout_s or left_s)))


def _wait_before(
    attempt: int, diagnosis: retries.Diagnosis, tool: BaseTool, deadline: float, conduct: Conduct
) -> float | None:
    """Return how long to wait before `attempt`, or None when there is to be none."""
    if not diagnosis.passing or attempt > tool.attempts:
        return None
    wait_s = conduct.backoff.before(attempt, conduct.jitter())
    if diagnosis.after_s is not None:
        wait_s = max(wait_s, diagnosis.after_s)
    return wait_s if conduct.now() + wait_s + _SHORTEST_ATTEMPT_S < deadline else None


def _allowed_s(tool: BaseTool) -> float:
    return tool.attempt_timeout_s or tool.timeout_s


def _late(outcome: Returned) -> str:
    return "it finished after its deadline" if outcome.late else ""


def _tell_of(
    outcome: Outcome, diagnosis: retries.Diagnosis, call: Admitted, attempt: int, wait_s: float | None, conduct: Conduct
) -> None:
    if conduct.tell is None:
        return
    reason = str(diagnosis.failure.code)
    if isinstance(outcome, Raised):
        reason = f"{type(outcome.error).__name__}: {outcome.error}"
    elif isinstance(outcome, Unfinished):
        reason = f"{'cancelled' if outcome.cancelled else 'deadline'}, {outcome.end.value}"
    conduct.tell(AttemptFailed(call.call, attempt, reason, wait_s))


def _did_not_happen(tool: str) -> Failure:
    return Failure(
        Code.UNAVAILABLE,
        f"`{tool}` failed, and it was verified that it did not happen.",
        "It may be called again.",
        retryable=True,
    )


def _store_silent(tool: str) -> Failure:
    return Failure(
        Code.UNAVAILABLE,
        f"`{tool}` was not started: the record of writes cannot be reached.",
        "Try again later.",
        retryable=True,
    )


# ---------------------------------------------------------------------- what the model reads


def _told(call: Admitted, ended: Ended, conduct: Conduct) -> Life:
    """Shape the result for the model, keeping aside what does not fit."""
    if ended.failure is not None:
        text = shaping.text_of(ended.failure.as_json())
        return ToolResult(call.call.id, call.tool.name, None, ended.failure, text, ended.attempts, repairs=call.repairs)
    shaped = shaping.shape(ended.value, call.tool.result_bytes or conduct.result_bytes)
    note, handle = ended.note, ""
    if call.repairs:
        note = _joined(note, f"your arguments were repaired ({', '.join(call.repairs)}); write them as plain JSON")
    if shaped.cut:
        try:
            handle = yield Keep(shaped.whole)
        except (StoreUnavailable, CallCancelled):
            handle = ""
        rest = f"read the rest with read_result(handle={handle!r})" if handle else "the rest could not be kept"
        note = _joined(note, f"{shaped.cut}; {rest}")
    text = shaping.with_note(shaped.text, note, ended.value) if note else shaped.text
    return ToolResult(
        call.call.id, call.tool.name, ended.value, None, text, ended.attempts, ended.replayed, note, call.repairs, handle
    )


def _joined(first: str, second: str) -> str:
    return f"{first}; {second}" if first else second
