"""The life of one call, from the model's text to the result that the model reads. Start reading here.

    read      name -> tool, text -> JSON                                          pure
    admit     schema -> business rule -> permission, rules, risk                  pure
    carry_out look up -> approval -> resources -> claim -> invoke, retry -> settle -> shape  a generator of effects

The order is a security property: nothing is validated before it is JSON, nothing is judged before it is valid, nobody
is asked about a call that may not run, and nothing is claimed while somebody sleeps over an approval. It is written
once, here, and is not for users to arrange.

Rule 1: nothing here performs anything, reads a clock of its own, or draws a random number of its own.
Rule 2: whatever happens, `carry_out` returns one `ToolResult`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic_core import from_json

from handrail import logs
from handrail.calls import ToolCall, ToolResult
from handrail.core import materialize, results, retries
from handrail.core.policy import Decision, Policy, Verdict
from handrail.core.redaction import Known
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
from handrail.errors import Code, Failure, Json, SetupError, StoreUnavailable, TooLarge
from handrail.events import AttemptFailed, Event
from handrail.messages import Finish
from handrail.parsing import jsontext, strictjson
from handrail.sandboxes import levels
from handrail.schemas.validation import NULLS_LEFT_OUT
from handrail.schemas.violations import count_values
from handrail.tools import keys
from handrail.tools.declaration import SettingRaised
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

LEASE_BEYOND_TIMEOUT_S = 30.0
LONGEST_LEASE_S = 90.0
"""The longest lease that is renewed, so that a process that dies in an hour's call keeps its key and locks no longer.

Not for class verify: a request of the dead process may arrive until the hour is over, and `verify` would miss it.
"""
_SHORTEST_ATTEMPT_S = 0.01
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 1.0
_ALLOW = Decision.ALLOW
_PASSING = (ClaimState.BUSY, ClaimState.LOCKED)
_LONGEST_EDIT_TOLD = 500
_MOST_QUESTIONS = 10
"""How often a call asks for another approval because another call has used its own."""
_VERIFIED = "the answer was lost; it was verified that this happened"

Life: TypeAlias = Generator[Effect, Any, ToolResult]
Tell: TypeAlias = Callable[[Event], None]


class ParsedCall(Struct):
    """A call whose tool is known and whose arguments are JSON."""

    call: ToolCall
    tool: BaseTool
    arguments: dict[str, Json]
    repairs: Sequence[str] = ()


class Admitted(Struct):
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
    note: str = ""
    """A sentence for the model beside the result, from before the call ran."""
    place: str = ""
    """Where in its run the call stands; known of those that a person may be asked about."""
    approval: str = ""
    """The id of the kept question whose approval the claim uses; see `effects.Claim`."""
    guarded: bool = True
    """The same write again in one run is answered by the first one's result: a model repeats itself, code means it."""


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
        stem: What the keys of writes begin with that declare none; the run's name unless its turns are counted anew.
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
    stem: str = ""
    epoch: int = 0
    renews: bool = False
    looks_up: bool = False
    secrets: Known | None = None
    refusal: Callable[[str], Failure | None] | None = None


# ---------------------------------------------------------------------- admission


def read(
    call: ToolCall,
    tools: Toolset,
    finish: Finish,
    *,
    repair: bool = True,
    sees: Callable[[BaseTool], bool] | None = None,
) -> ParsedCall | Failure:
    """Find the tool and read the arguments. A cut call is never repaired; a write takes no lossy repair.

    Args:
        sees: Which tools may be named to the model when it asked for one that is not there.
    """
    tool = tools.resolve(call.name, sees)
    if type(tool) is Failure:
        return tool
    text = call.arguments
    if text == "null" and not tool.parameters.get("required"):
        text = ""  # some models write null for no arguments
    if len(text) * 4 > tool.argument_bytes and (failure := _too_long(text, tool)):
        return failure
    parsed = jsontext.parse(text, finish, repair, lossy=not tool.writes)
    if type(parsed) is Failure:
        return parsed
    # A value takes two characters at least, with its comma.
    if len(text) // 2 > tool.argument_values and (failure := _too_many(parsed.value, tool)):
        return failure
    return ParsedCall(call, tool, parsed.value, parsed.repairs)


def _too_long(text: str, tool: BaseTool) -> Failure | None:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return _oversized(tool, f"take {size:,} bytes", f"{tool.argument_bytes:,}") if size > tool.argument_bytes else None


def _too_many(arguments: dict[str, Json], tool: BaseTool) -> Failure | None:
    most = tool.argument_values
    # The arguments themselves are counted too.
    many = count_values(arguments, most + 1) > most + 1
    return _oversized(tool, f"hold more than {most:,} keys and items", f"{most:,}") if many else None


def _oversized(tool: BaseTool, how: str, most: str) -> Failure:
    return Failure(
        Code.INVALID_ARGUMENTS,
        f"The arguments of `{tool.name}` {how}; at most {most} are taken.",
        "Call again with less; split the work into several smaller calls.",
    )


def admitted_at_once(call: ToolCall, tool: BaseTool, policy: Policy) -> Admitted | None:
    """Return what `read` and `admit` would return for a call such as most are; None leaves it to them.

    Such is a call of a plain tool with a flat object that fits as it stands, and that the policy allows. A policy
    class of one's own is not asked here, since it would be asked about what it refuses a second time.
    """
    if (fits := tool.plain) is None or policy.__class__ is not Policy:
        return None
    arguments = strictjson.flat(call.arguments)
    try:
        if arguments is None or not fits(arguments):
            return None
        bound = tool.signature.defaults | arguments if tool.as_written else tool.bind(arguments)
        if type(bound) is Failure:
            return None
        if policy.rules:  # what decides by arguments sees what the tool gets
            arguments = tool.meant(arguments, bound)
        verdict = policy.judge(tool, arguments)
        if verdict.decision is not _ALLOW:
            return None
    except KeyboardInterrupt:
        raise
    except BaseException:  # something that JSON cannot hold, or the author's own validator: `admit` tells what it is
        return None
    return Admitted(call, tool, arguments, bound, verdict)


def admit(read: ParsedCall, policy: Policy, place: str = "", tell: Tell | None = None) -> Admitted | Failure:
    """Check the arguments, the tool's own rule, and the policy.

    What the author's own code raises on the way (a validator, a key function) refuses the call: when unsure whether
    something may run, it may not.

    Args:
        place: The call's place in its run; the key of a write whose tool declares none.
        tell: Learns of such an exception.

    Raises:
        SetupError: The tool cannot be used as it is declared.
    """
    try:
        return _checked(read, policy, place)
    except (SetupError, KeyboardInterrupt):
        raise
    except SettingRaised as failed:
        error = failed.__cause__ or failed
        return _not_admitted(read, error, f" because its `{failed.setting}` raised", failed.function, tell)
    except BaseException as error:  # a validator that calls `sys.exit` refuses its call; it ends nothing else
        return _not_admitted(read, error, "", None, tell)


def _not_admitted(read: ParsedCall, error: BaseException, why: str, function: Any, tell: Tell | None) -> Failure:
    """Refuse a call because the author's code raised during its admission, and log where."""
    raised = Raised(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
    logs.raised(f"{read.tool.name} was not admitted{why} (reference {raised.reference})", error, function)
    if tell is not None:
        tell(AttemptFailed(read.call, 0, f"not admitted{why}: {raised.words}", None))
    return retries.internal(read.tool.name, raised.reference)


def _checked(read: ParsedCall, policy: Policy, place: str) -> Admitted | Failure:
    tool = read.tool
    checked = tool.arguments_of(read.arguments)
    if isinstance(checked, Failure):
        return checked
    if checked.repairs and (failure := _too_many(checked.arguments, tool)):  # a text may now be a list
        return failure
    bound = tool.bind(checked.arguments)
    if isinstance(bound, Failure):
        return bound
    if tool.isolation != "none" and (refused := levels.refusal(tool.name, tool.isolation)):
        return refused
    if broken := tool.rule_broken_by(bound):
        return broken
    # What decides sees what the tool gets: a type may make one value of several texts (a path, an identifier, a date).
    arguments = checked.arguments
    if tool.writes or tool.resource or tool.approve or policy.rules or type(policy) is not Policy:
        arguments = tool.meant(arguments, bound)
    verdict = policy.judge(tool, arguments)
    if not isinstance(verdict, Verdict):
        raise TypeError(f"{type(policy).__name__}.judge gave a {type(verdict).__name__}, which is no Verdict")
    if verdict.decision is Decision.DENY:
        return Failure(
            Code.NOT_PERMITTED,
            f"This run may not use `{tool.name}` like this: {verdict.reason}.",
            "Go on without it, or tell the user what would need to be allowed.",
        )
    key = tool.key_of(arguments, place) if tool.writes else ""
    if isinstance(key, Failure):
        return key
    repairs = (*read.repairs, *checked.repairs) if checked.repairs else read.repairs
    touched = tool.resources_of(arguments) if tool.resource else ()
    if tool.seat is not None:
        touched = (*touched, tool.seat)
    return Admitted(read.call, tool, arguments, bound, verdict, repairs, key, touched)


# ---------------------------------------------------------------------- carrying out


class CallOutcome(Struct):
    """How a call ended, before its result is shaped for the model."""

    value: Any = None
    failure: Failure | None = None
    attempts: int = 0
    replayed: bool = False
    note: str = ""
    done_under: str = ""
    """The ledger's key of the write, if it is not the key with which the call was admitted."""


def is_plain(call: Admitted) -> bool:
    """Whether a call is a read that asks nobody and touches nothing shared: its life begins with Invoke."""
    return not (call.tool.writes or call.resources or call.tool.pace or call.verdict.decision is Decision.ASK)


def result_of(call: Admitted, outcome: Returned, conduct: RunSettings) -> ToolResult | None:
    """Return the result of a plain call whose first attempt returned, or None when its life has more to do.

    It is what `carry_out` would return: most calls are such, and their lives need not be begun.
    """
    if call.repairs or call.note:
        return None
    tool, value = call.tool, outcome.value
    text = results.fitting(value, tool.result_bytes or conduct.result_bytes)
    if type(text) is str and (conduct.secrets is None or conduct.secrets.text(text) == text):
        return ToolResult(call.call.id, tool.name, value, None, text, 1)
    if text is not None and materialize.are_in(value):  # they are at their end by now: what they gave is in the text
        outcome.value = from_json(text)
    return None


def carry_out(call: Admitted, conduct: RunSettings, began: float | None = None) -> Life:
    """Yield what must happen for this call, in order; return its result.

    Args:
        began: When a plain call was begun, if that was before now.
    """
    try:
        known: Claimed | None = None
        if call.verdict.decision is Decision.ASK:
            # Before a person is asked: nobody needs to approve a write that is done or under way.
            known = yield from _looked_up(call, conduct)
            if known is None:
                answer = yield _question(call, call.verdict.reason, call.place)
                if refusal := _heeded(answer, call, conduct):
                    return refused(call.call, refusal, call.repairs)
        # After the approval, so that nothing is held while somebody sleeps.
        if known is None and (call.resources or call.tool.pace) and (failure := (yield from _reserved(call))):
            return refused(call.call, failure, call.repairs)
        ended = yield from (_write(call, conduct, known) if call.tool.writes else _read(call, conduct, began))
    except CallCancelled:
        ended = CallOutcome(
            failure=Failure(Code.CANCELLED, f"The run was cancelled before `{call.tool.name}` was started.")
        )
    except StoreUnavailable:
        ended = CallOutcome(failure=_store_silent(call.tool.name))
    return (yield from _told(call, ended, conduct))


def _reserved(call: Admitted) -> Generator[Effect, Any, Failure | None]:
    """Wait for the call's turn on its resources; return why it does not come in time, if it does not."""
    reserved: bool | Failure = yield Reserve(call.resources)
    return None if reserved is True else reserved or retries.not_started(call.tool.name)


def _question(call: Admitted, reason: str, place: str) -> AskHuman:
    tool = call.tool
    # What a person agrees to is this: the tool as it describes itself, and exactly these arguments.
    return AskHuman(
        call.call, strictjson.copied(call.arguments), call.verdict.risk, reason, tool.description, place,
        keys.digest({"pin": tool.pin, "arguments": call.arguments}), tool.pin, tool.parameters,
        max(call.verdict.people, tool.people), writes=tool.writes,
    )  # fmt: skip


def refused(call: ToolCall, failure: Failure, repairs: Sequence[str] = ()) -> ToolResult:
    """Return the result of a call that did not run."""
    return ToolResult(call.id, call.name, None, failure, results.failure_text(failure), repairs=repairs)


def _heeded(answer: Approval | None, call: Admitted, conduct: RunSettings) -> Failure | None:
    """Take a person's word, perhaps with edited arguments; return why the call does not run, if it does not."""
    name = call.tool.name
    if answer is None:
        return _pending(call, f"`{name}`")
    if answer.expired:
        return Failure(
            Code.APPROVAL_EXPIRED,
            f"Nobody approved `{name}` in time, so it was not done.",
            "Go on without it, or tell the user that it needs to be asked for again.",
        )
    if not answer.granted:
        because = f": {answer.reason}" if answer.reason else ""
        return Failure(
            Code.NOT_APPROVED,
            f"A person did not approve `{name}`{because}.",
            "Do not ask for the same again; heed the reason, or ask the user how to go on.",
        )
    call.approval = answer.question
    return _edited(call, answer.arguments, conduct) if answer.arguments is not None else None


def _pending(call: Admitted, what: str) -> Failure:
    """Return that somebody is still to answer; `what` needs it."""
    needs = "a person's approval, and nobody has answered yet"
    if (people := max(call.verdict.people, call.tool.people)) > 1:
        needs = f"the approval of {people} people, and not all of them have answered yet"
    return Failure(
        Code.APPROVAL_PENDING,
        f"{what} needs {needs}.",
        "Do not call it again meanwhile; tell the user that it waits for approval.",
    )


def _edited(call: Admitted, arguments: Mapping[str, Json], conduct: RunSettings) -> Failure | None:
    """Give the call the arguments that a person wrote, once they have passed every check: a person can mistype too."""
    edited = admit(ParsedCall(call.call, call.tool, dict(arguments)), conduct.policy, call.key, conduct.tell)
    if isinstance(edited, Failure):
        return replace(edited, message=f"A person changed the arguments, and these were refused: {edited.message}")
    if edited.verdict.people > call.verdict.people:
        return Failure(
            Code.NOT_APPROVED,
            f"A person changed the arguments, and like this `{call.tool.name}` needs {edited.verdict.people} people's "
            f"approval. They wrote: {keys.canonical(edited.arguments)[:_LONGEST_EDIT_TOLD]}",
            "Call it again with these arguments, so that all of them are asked about the same.",
        )
    changed = {name: each for name, each in edited.arguments.items() if call.arguments.get(name, ...) != each}
    dropped = [name for name in call.arguments if name not in edited.arguments]
    call.note = f"a person changed the arguments before it ran: {keys.canonical(changed)[:_LONGEST_EDIT_TOLD]}"
    call.note += f", without {', '.join(dropped)}" if dropped else ""
    # In place: the driver looks at the call too, when it starts the tool and when it lets go of its resources.
    call.arguments, call.bound = edited.arguments, edited.bound
    call.key, call.resources = edited.key, edited.resources
    return None


def _read(call: Admitted, conduct: RunSettings, began: float | None) -> Generator[Effect, Any, CallOutcome]:
    began = conduct.now() if began is None else began
    deadline = min(began + call.tool.timeout_s, conduct.deadline.at)
    attempt = 0
    while True:
        attempt += 1
        outcome = yield invoke(call.tool, attempt, began, conduct)
        if isinstance(outcome, Returned):
            return CallOutcome(_at_rest(outcome.value), attempts=attempt, note=_late(outcome))
        diagnosis = retries.diagnose(outcome, call.tool.name, _allowed_s(call.tool, began, conduct))
        wait_s = _wait_before(attempt + 1, diagnosis, call.tool, deadline, conduct)
        _tell_of(outcome, diagnosis, call, attempt, wait_s, conduct)
        failure = diagnosis.failure if wait_s is None else (yield from _waited(wait_s, call.tool.name))
        if failure is not None:
            return CallOutcome(failure=failure, attempts=attempt)


def _at_rest(value: Any) -> Any:
    """Return a value that may be looked at twice, by the ledger and for the model."""
    try:
        if not materialize.are_in(value):
            return value
        read = materialize.read(value)
        # What has fields is its author's, and keeps its iterators: what it would be as JSON stands for it.
        return from_json(results.encoded(read)) if materialize.are_in(read) else read
    except Exception:  # the tool's own, which has returned; or a circle: whoever looks first finds what there is
        return value


def _write(call: Admitted, conduct: RunSettings, known: Claimed | None = None) -> Generator[Effect, Any, CallOutcome]:
    """Claim and perform a write; ask a person whether to do it again if its tool leaves that to a person.

    Args:
        known: What the ledger answers to the claim, if it was looked up already.
    """
    ended: CallOutcome | None = None
    reason, place, own_key = call.verdict.reason, call.place, call.key
    while True:
        try:
            held = (claim_of(call, conduct), known) if known else (yield from _approved(call, conduct, reason, place))
        except (StoreUnavailable, CallCancelled):
            if ended is None:
                raise
            return ended  # it was to be done again, and was not: what was known of it before is still true
        if isinstance(held, Failure):
            return ended or CallOutcome(failure=held)
        claim, claimed = held
        known, act = None, call.key
        again, state = yield from _performed(claim, claimed, call, conduct)
        again.done_under = claimed.key or (act if act != own_key else "")
        if ended is not None and ended.failure is not None and again.failure is not None and again.failure.retryable:
            return ended  # it was in doubt, and was not done again: a word that it may be called anew would hide that
        ended = again
        question = _asks_again(claim, claimed, state, call)
        if question is None:
            return ended
        reason, place = question.reason, question.place
        try:
            answer: Approval | None = yield question
        except (StoreUnavailable, CallCancelled):
            return ended
        if answer is None:
            so_far = f"`{call.tool.name}` was already done." if ended.failure is None else ended.failure.message
            return CallOutcome(failure=_pending(call, f"{so_far} To be done again it"), attempts=ended.attempts)
        if answer.granted and _heeded(answer, call, conduct) is None:
            if call.key == act:  # else the edited arguments name another act, which is done once as ever
                # What a person has done again is a new write: under the old key it would be the old one.
                call.key = act if claimed.repeated else _key_again(call, claimed)
                call.guarded = False
            # Its resources went to others while it was asked about; the edited arguments may name different ones.
            if call.resources and (yield from _reserved(call)):
                return ended
            continue
        return ended


def claim_of(call: Admitted, conduct: RunSettings) -> Claim:
    """Return the claim of a write: what it is called in the ledger, and how it is guarded there."""
    tool = call.tool
    return Claim(
        f"{conduct.scope}{tool.name}",
        call.key,
        keys.fingerprint(tool.name, tool.version, call.arguments),
        conduct.run_id,
        tool.replay_class,
        _lease_s(tool, conduct),
        guard=call.guarded and not tool.repeatable,
        epoch=conduct.epoch,
        locks=tuple(each.key for each in call.resources if each.exclusive),
        key_ttl_s=tool.key_ttl_s,
        repeat_window_s=tool.repeat_window_s,
        approval=call.approval,
    )


def _looked_up(call: Admitted, conduct: RunSettings) -> Generator[Effect, Any, Claimed | None]:
    """Return the ledger's answer if the write may not start; None if it may, or if the call is a read."""
    if not (call.tool.writes and conduct.looks_up):
        return None
    claimed: Claimed | None = yield from _claimed(LookUp(claim_of(call, conduct)), call.tool, conduct)
    return claimed


def _approved(
    call: Admitted, conduct: RunSettings, reason: str, place: str
) -> Generator[Effect, Any, tuple[Claim, Claimed] | Failure]:
    """Claim under the call's approval; if another call has used it, ask for another approval."""
    for _ in range(_MOST_QUESTIONS):
        claim = claim_of(call, conduct)
        claimed: Claimed = yield from _claimed(claim, call.tool, conduct)
        if claimed.state is not ClaimState.UNAPPROVED:
            return claim, claimed
        answer = yield replace(_question(call, reason, place), refused=call.approval)
        if failure := _heeded(answer, call, conduct):
            return failure
        if call.resources and (failure := (yield from _reserved(call))):
            return failure
    return Failure(
        Code.NOT_APPROVED,
        f"`{call.tool.name}` was not started: other calls have used each approval that was given.",
        "Tell the user that it needs to be approved once more.",
    )


def _performed(
    claim: Claim, claimed: Claimed, call: Admitted, conduct: RunSettings
) -> Generator[Effect, Any, tuple[CallOutcome, SettledState | None]]:
    """Do what a claim's answer allows and record how it ended; None where nothing was this call's to do."""
    match claimed.state:
        case ClaimState.FRESH | ClaimState.AGAIN:
            ended, state = yield from _write_attempts(call, conduct)
        case ClaimState.CHECK:
            ended, state = yield from _check_first(call, conduct, claimed.left_s - LEASE_BEYOND_TIMEOUT_S)
        case _:
            return _not_mine(claimed, call), "in_doubt" if claimed.state is ClaimState.IN_DOUBT else None
    value = results.plain(_shown(ended.value, conduct)) if state == "done" else None
    try:
        yield Settle(claim.scope, claim.key, claimed.fence, state, value, claim.locks)
    except (StoreUnavailable, CallCancelled):
        # What happened is still told. The claim stays open, so whoever claims next learns that it is in doubt.
        pass
    return ended, state


def _asks_again(claim: Claim, claimed: Claimed, state: SettledState | None, call: Admitted) -> AskHuman | None:
    """Return what a person is asked once the ledger has spoken, where the tool leaves it to one."""
    tool, place = call.tool, f"{call.place}#{_key_again(call, claimed)}"
    if claimed.repeated and claimed.state is ClaimState.DONE and tool.asks_before_repeating:
        return _question(call, f"the same {tool.name} was already done, with these arguments", place)
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


def _lease_s(tool: BaseTool, conduct: RunSettings) -> float:
    lease_s = tool.timeout_s + LEASE_BEYOND_TIMEOUT_S
    # For class verify it covers the tool's whole time: a dead process's request may arrive until then.
    return min(lease_s, LONGEST_LEASE_S) if conduct.renews and tool.replay_class != "verify" else lease_s


def _claimed(claim: Claim | LookUp, tool: BaseTool, conduct: RunSettings) -> Generator[Effect, Any, Any]:
    """Claim, or look up; while another process performs the same write, wait for its end within this call's own time.

    A resumed run waits longer, because the write is probably its own from before: once the lease is over, the ledger
    gives a final answer.
    """
    began, wait_s = conduct.now(), _FIRST_LOOK_S
    while True:
        claimed: Claimed | None = yield claim
        if claimed is None or claimed.state not in _PASSING:
            return claimed
        own_s = LONGEST_LEASE_S if conduct.epoch > 1 and claimed.state is ClaimState.BUSY else 0.0
        if conduct.now() + wait_s >= min(began + max(tool.timeout_s, own_s), conduct.deadline.at):
            return claimed
        yield Wait(wait_s)
        wait_s = min(wait_s * 2, _LONGEST_LOOK_S)


def _write_attempts(call: Admitted, conduct: RunSettings) -> Generator[Effect, Any, tuple[CallOutcome, SettledState]]:
    """Run a claimed write until it is known how it ended, or known that nobody knows."""
    tool, began = call.tool, conduct.now()
    deadline = min(began + tool.timeout_s, conduct.deadline.at)
    attempt, doubtful = 0, False
    while True:
        attempt += 1
        outcome = yield invoke(call.tool, attempt, began, conduct)
        if isinstance(outcome, Returned):
            return CallOutcome(_at_rest(outcome.value), attempts=attempt, note=_late(outcome)), "done"
        if isinstance(outcome, Raised) and isinstance(outcome.error, TooLarge):
            unshown = retries.done_but_too_large(tool.name, outcome.error)
            return CallOutcome(unshown.as_json(), unshown, attempts=attempt), "done"
        allowed_s, found = _allowed_s(tool, began, conduct), None
        diagnosis = retries.diagnose(outcome, tool.name, allowed_s, one_request=tool.one_request)
        if not diagnosis.no_effect:
            found = yield from _verified(call, outcome)
            if isinstance(found, NotFound):
                diagnosis = retries.without_effect(diagnosis, tool.name)
        doubtful = doubtful or not diagnosis.no_effect
        wait_s = None
        if not isinstance(found, Found) and _may_repeat(tool, doubtful):
            wait_s = _wait_before(attempt + 1, diagnosis, tool, deadline, conduct)
        _tell_of(outcome, diagnosis, call, attempt, wait_s, conduct)
        if isinstance(found, Found):
            return CallOutcome(found.value, attempts=attempt, note=_VERIFIED), "done"
        failure = diagnosis.failure if wait_s is None else (yield from _waited(wait_s, tool.name))
        if failure is not None and doubtful:
            told = diagnosis.failure if diagnosis.worded else retries.in_doubt(tool.name)
            return CallOutcome(failure=told, attempts=attempt), "in_doubt"
        if failure is not None:
            return CallOutcome(failure=failure, attempts=attempt), "failed"


def _may_repeat(tool: BaseTool, doubtful: bool) -> bool:
    """Whether a write may be started again: what cannot be undone, or was not declared, never by itself."""
    return tool.effect == "write" and (not doubtful or tool.replay_class == "key")


def _check_first(
    call: Admitted, conduct: RunSettings, early_s: float
) -> Generator[Effect, Any, tuple[CallOutcome, SettledState]]:
    """Go on with a write that somebody else began: perform it when it has certainly not happened.

    Args:
        early_s: For how long what a dead process has sent may still arrive: what is left of the tool's time. That
            nothing is found says nothing until then, and it is asked once more.
    """
    found = yield from _verified(call)
    if isinstance(found, NotFound) and early_s > 0:
        too_late = conduct.now() + early_s >= conduct.deadline.at
        stopped = too_late or (yield from _waited(early_s, call.tool.name)) is not None
        found = Unknown() if stopped else (yield from _verified(call))
    match found:
        case Found(value=value):
            return CallOutcome(value, replayed=True, note=_VERIFIED), "done"
        case NotFound():
            return (yield from _write_attempts(call, conduct))
        case _:
            return CallOutcome(failure=retries.in_doubt(call.tool.name)), "in_doubt"


def _verified(call: Admitted, outcome: Outcome | None = None) -> Generator[Effect, Any, Verification]:
    """Ask the tool, where it can tell, whether a write that was begun has happened.

    That a write is not there yet says nothing while it is still running.
    """
    if call.tool.replay_class != "verify":
        return Unknown()
    try:
        found: Verification = yield Verify()
    except (StoreUnavailable, CallCancelled):
        return Unknown()
    runs_on = isinstance(outcome, Unfinished) and outcome.end is End.RUNNING_ON
    return Unknown() if runs_on and isinstance(found, NotFound) else found


def _waited(seconds: float, tool: str) -> Generator[Effect, Any, Failure | None]:
    """Let time pass before the next attempt, or return why there is none."""
    try:
        yield Wait(seconds)
    except (StoreUnavailable, CallCancelled):
        return Failure(Code.CANCELLED, f"The run was cancelled before `{tool}` was tried again.")
    return None


def _not_mine(claimed: Claimed, call: Admitted) -> CallOutcome:
    """Return how a write ends that this call may not perform."""
    name = call.tool.name
    if claimed.state is ClaimState.DONE:
        note = "this was already done; the earlier result is repeated, nothing was done again"
        return CallOutcome(claimed.value, retries.too_large_again(claimed.value), replayed=True, note=note)
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
    return CallOutcome(failure=failures[claimed.state])


def invoke(tool: BaseTool, attempt: int, began: float, conduct: RunSettings) -> Invoke:
    """Return the step that starts a tool for the n-th time, with what is left of its time."""
    # The first attempt gets exactly the declared time, not that less a microsecond: calls that begin together then have
    # one and the same time, and a driver needs one timer for them.
    left_s = conduct.deadline.at - began
    if tool.timeout_s < left_s:
        left_s = tool.timeout_s
    if attempt > 1:
        left_s -= conduct.now() - began
    if tool.attempt_timeout_s is not None and tool.attempt_timeout_s < left_s:
        left_s = tool.attempt_timeout_s
    return Invoke(attempt, left_s if left_s > 0 else 0.0)


def _wait_before(
    attempt: int, diagnosis: retries.Diagnosis, tool: BaseTool, deadline: float, conduct: RunSettings
) -> float | None:
    """Return how long to wait before `attempt`, or None when there is to be none."""
    if not diagnosis.passing or attempt > tool.attempts:
        return None
    wait_s = conduct.backoff.before(attempt, conduct.jitter())
    if diagnosis.after_s is not None:
        wait_s = max(wait_s, diagnosis.after_s)
    return wait_s if conduct.now() + wait_s + _SHORTEST_ATTEMPT_S < deadline else None


def _allowed_s(tool: BaseTool, began: float, conduct: RunSettings) -> float:
    """Return how long an attempt may take; of a run that ends before that, what it had left when the call began."""
    declared_s, left_s = tool.attempt_timeout_s or tool.timeout_s, conduct.deadline.at - began
    return declared_s if declared_s <= left_s else float(f"{max(left_s, 0.0):.3g}")


def _late(outcome: Returned) -> str:
    return "it finished after its deadline" if outcome.late else ""


def _tell_of(
    outcome: Outcome,
    diagnosis: retries.Diagnosis,
    call: Admitted,
    attempt: int,
    wait_s: float | None,
    conduct: RunSettings,
) -> None:
    if conduct.tell is None:
        return
    reason = str(diagnosis.failure.code)
    if isinstance(outcome, Raised):
        reason = outcome.words
    elif isinstance(outcome, Unfinished):
        reason = f"{'cancelled' if outcome.cancelled else 'deadline'}, {outcome.end.value}"
    conduct.tell(AttemptFailed(call.call, attempt, reason, wait_s))


def _store_silent(tool: str) -> Failure:
    return Failure(
        Code.UNAVAILABLE,
        f"`{tool}` was not started: the record of writes cannot be reached.",
        "Try again later.",
        retryable=True,
    )


# ---------------------------------------------------------------------- what the model reads


def _told(call: Admitted, ended: CallOutcome, conduct: RunSettings) -> Life:
    """Shape the result for the model, keeping aside what does not fit."""
    if ended.failure is not None:
        failure = ended.failure if conduct.secrets is None else conduct.secrets.failure(ended.failure)
        text = results.failure_text(failure)
        name, attempts, replayed = call.tool.name, ended.attempts, ended.replayed
        return ToolResult(call.call.id, name, None, failure, text, attempts, replayed, repairs=call.repairs)
    value = _shown(ended.value, conduct)
    shaped = results.shape(value, call.tool.result_bytes or conduct.result_bytes)
    note, handle = _joined(call.note, ended.note), ""
    if mended := [name for name in call.repairs if name != NULLS_LEFT_OUT]:
        note = _joined(note, f"your arguments were repaired ({', '.join(mended)}); write them as plain JSON")
    if shaped.cut:
        rest = "the rest is not kept"
        if conduct.keeps:
            try:
                handle = yield Keep(shaped.whole)
                rest = f"read the rest with read_result(handle={handle!r})"
            except (StoreUnavailable, CallCancelled):
                rest = "the rest could not be kept"
        note = _joined(note, f"{shaped.cut}; {rest}")
    text = results.with_note(shaped.text, note, value) if note else shaped.text
    return ToolResult(
        call.call.id, call.tool.name, value, None, text, ended.attempts, ended.replayed, note, call.repairs, handle,
        results.media_in(value), ended.done_under,
    )  # fmt: skip


def _shown(value: Any, conduct: RunSettings) -> Any:
    """Return a value without the secrets that are known."""
    return value if conduct.secrets is None else conduct.secrets.value(value)


def _joined(first: str, second: str) -> str:
    return "; ".join(filter(None, (first, second)))
