"""Whether a call may run: from the model's text to a call that is valid, and that the policy and people allow.

    parse_call       name -> tool, text -> JSON
    admit            schema -> business rule -> permission, rules, risk
    apply_approval   a person's decision -> the call as approved; edited arguments are admitted again

The order is a security property: nothing is validated before it is JSON, and nothing is judged before it is valid.

Rule 1: nothing here performs anything, reads a clock of its own, or draws a random number of its own.
Rule 2: when it is not certain that a call may run, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from threading import current_thread, main_thread
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from handrail import logs
from handrail.calls import ToolCall, ToolResult
from handrail.core import results, retries
from handrail.core.policy import Decision, Policy, Verdict
from handrail.effects import (
    Admit,
    Approval,
    AskHuman,
    Effect,
    Provenance,
    Raised,
    Resource,
)
from handrail.errors import Code, Failure, Json, SetupError
from handrail.events import AttemptFailed, Event
from handrail.messages import Finish
from handrail.parsing import jsontext, strictjson
from handrail.sandboxes.levels import IsolationLevels
from handrail.schemas.violations import count_values
from handrail.tools import keys
from handrail.tools.declaration import SettingError
from handrail.tools.normal_form import normalize_arguments
from handrail.tools.tool import BaseTool, CallTraits
from handrail.tools.toolset import Toolset

_LONGEST_CHARACTER = 4
"""Bytes that a character may take in UTF-8."""
_SHORTEST_VALUE = 2
"""Characters that a value takes at least, with its comma."""
MOST_VALUES = 10_000
"""How many keys and items the arguments of a call may hold."""

_LONGEST_EDIT_SHOWN = 500

LONGEST_ADMISSION_S = 5.0
"""How long the functions of a tool's author may take to decide about a call, where they may block."""

Tell: TypeAlias = Callable[[Event], None]


class ParsedCall(Struct, frozen=True):
    """A call whose tool exists and whose arguments are JSON."""

    call: ToolCall
    tool: BaseTool
    arguments: dict[str, Json]
    repairs: Sequence[str] = ()


class Admitted(Struct, frozen=True):
    """A call that may run, or may be asked about. An edit by a person gives another one.

    `arguments` are valid JSON values, as events and keys see them; `bound` are what the tool's function gets.
    """

    call: ToolCall
    tool: BaseTool
    traits: CallTraits
    """The `call_traits` of the tool: the steps of a call read them so often that looking them up each time counts."""
    arguments: Mapping[str, Json]
    bound: Mapping[str, Any]
    verdict: Verdict
    repairs: Sequence[str] = ()
    key: str = ""
    resources: Sequence[Resource] = ()
    note: str = ""
    """A sentence for the model beside the result, from before the call ran."""
    place: str = ""
    """The call's place in its run; set for calls that a person may be asked about."""
    approval: str = ""
    """The id of the stored approval request that the claim uses; see `effects.Claim`."""
    identity: Sequence[str] = ()
    """Its key and resources where injected values stand in them, which an equal call for another tenant has not."""
    fingerprint: bytes = b""
    """That of the write which an earlier process started for it, where its tool's new defaults give it another."""
    guarded: bool = True
    """The same write again in one run is answered by the first one's result: a model repeats itself, code means it."""
    provenance: Provenance | None = None
    """What text that nobody trusts has to do with it, where a person is asked for that."""


# ---------------------------------------------------------------------- parsing


def parse_call(
    call: ToolCall,
    tools: Toolset,
    finish: Finish,
    *,
    repair: bool = True,
    sees: Callable[[BaseTool], bool] | None = None,
) -> ParsedCall | Failure:
    """Find the tool and parse the arguments. A cut call is never repaired; a write takes no lossy repair.

    Args:
        sees: Which tools may be named to the model when it asked for one that is not there.
    """
    tool = tools.resolve(call.name, sees)
    if type(tool) is Failure:
        return tool
    text = call.arguments
    if text == "null" and not tool.parameters.get("required"):
        text = ""  # some models write null for no arguments
    if len(text) * _LONGEST_CHARACTER > tool.limits.argument_bytes:
        failure = _refuse_long_text(text, tool)
        if failure is not None:
            return failure
    parsed = jsontext.parse(text, finish, repair, lossy=not tool.writes)
    if type(parsed) is Failure:
        return parsed
    if len(text) // _SHORTEST_VALUE > MOST_VALUES:
        failure = _refuse_many_values(parsed.value, tool)
        if failure is not None:
            return failure
    return ParsedCall(call, tool, parsed.value, parsed.repairs)


def refuse_caller(parsed: ParsedCall) -> Failure | None:
    """Return why the model, or its program, may not make a call; None where it may. See `Limits.callers`."""
    callers = parsed.tool.limits.callers
    name = parsed.tool.name
    if parsed.call.program:
        if "program" not in callers:
            return Failure(
                Code.NOT_PERMITTED,
                f"A program may not call `{name}`; nothing was done.",
                f"Call `{name}` yourself, outside of the program.",
            )
    elif "direct" not in callers:
        return Failure(
            Code.NOT_PERMITTED,
            f"Only a program may call `{name}`; nothing was done.",
            f"Call `{name}` from code that you run.",
        )
    return None


def _refuse_long_text(text: str, tool: BaseTool) -> Failure | None:
    """Return why a text is too long for a tool; None when it is not."""
    size_bytes = len(text)
    if not text.isascii():
        size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes <= tool.limits.argument_bytes:
        return None
    return _refuse_size(
        tool, f"take {size_bytes:,} bytes", f"{tool.limits.argument_bytes:,}"
    )


def _refuse_many_values(arguments: dict[str, Json], tool: BaseTool) -> Failure | None:
    """Return why arguments hold too many values for a tool; None when they do not."""
    # The arguments themselves are counted too.
    if count_values(arguments, MOST_VALUES + 1) <= MOST_VALUES + 1:
        return None
    return _refuse_size(
        tool, f"hold more than {MOST_VALUES:,} keys and items", f"{MOST_VALUES:,}"
    )


def _refuse_size(tool: BaseTool, problem: str, limit: str) -> Failure:
    return Failure(
        Code.INVALID_ARGUMENTS,
        f"The arguments of `{tool.name}` {problem}; at most {limit} are taken.",
        "Call again with less; split the work into several smaller calls.",
    )


# ---------------------------------------------------------------------- admission


def admit(
    parsed: ParsedCall,
    policy: Policy,
    default_key: str = "",
    tell: Tell | None = None,
    *,
    injected: Mapping[str, Any] = MappingProxyType({}),
    isolation: IsolationLevels | None = None,
) -> Admitted | Failure:
    """Check the arguments, the tool's own rule, and the policy.

    An exception of the author's own code (a validator, a key function) refuses the call: when unsure whether
    something may run, it may not.

    Args:
        default_key: The key of a write whose tool declares none: the call's place in its run.
        tell: Receives the event of such an exception.
        injected: What the caller injects, which rules of the tool may look at.
        isolation: What sandboxes this machine offers. While nobody knows, none is refused here: the worker of an
            isolated tool looks for itself, in its own thread, before it starts anything.

    Raises:
        SetupError: The tool cannot be used as it is declared.
    """
    try:
        return _check(parsed, policy, default_key, injected, isolation)
    except SetupError:
        raise
    except KeyboardInterrupt as interrupt:
        # One from the keyboard comes in the main thread only, and ends more than the call.
        if current_thread() is main_thread():
            raise
        return _refuse_after_error(parsed, interrupt, "", None, tell)
    except SettingError as raised:
        error = raised.__cause__ or raised
        return _refuse_after_error(
            parsed,
            error,
            f" because its `{raised.setting}` raised",
            raised.function,
            tell,
        )
    except BaseException as error:
        # a validator that calls `sys.exit` refuses its call; it ends nothing else
        return _refuse_after_error(parsed, error, "", None, tell)


def refuse_call(
    call: ToolCall, failure: Failure, repairs: Sequence[str] = ()
) -> ToolResult:
    """Return the result of a call that does not run."""
    text = results.failure_text(failure)
    return ToolResult(call.id, call.name, failure=failure, text=text, repairs=repairs)


def _refuse_after_error(
    parsed: ParsedCall,
    error: BaseException,
    reason: str,
    function: Any,
    tell: Tell | None,
) -> Failure:
    """Refuse a call because the author's code raised during its admission, and log where."""
    name = parsed.tool.name
    raised = Raised(
        error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
    )
    logs.log_exception(
        f"{name} was not admitted{reason} (reference {raised.reference})",
        error,
        function,
    )
    if tell is not None:
        tell(
            AttemptFailed(parsed.call, 0, f"not admitted{reason}: {raised.words}", None)
        )
    return retries.internal(name, raised.reference)


def _check(
    parsed: ParsedCall,
    policy: Policy,
    default_key: str,
    injected: Mapping[str, Any],
    isolation: IsolationLevels | None,
) -> Admitted | Failure:
    tool = parsed.tool
    deciding = tool.with_injected(injected)
    checked = tool.check_arguments(parsed.arguments)
    if isinstance(checked, Failure):
        return checked
    if checked.repairs:  # a text may now be a list
        failure = _refuse_many_values(checked.arguments, tool)
        if failure is not None:
            return failure
    bound = tool.bind(checked.arguments)
    if isinstance(bound, Failure):
        return bound
    failure = None
    if isolation is not None and tool.isolation != "none":
        failure = isolation.refuse(tool.name, tool.isolation)
    failure = failure or deciding.check_rule(bound)
    if failure is not None:
        return failure
    arguments = _arguments_to_judge(tool, checked.arguments, bound, policy)
    verdict = policy.judge(deciding, arguments)
    if type(verdict) is not Verdict:
        _check_verdict(verdict, policy)
    if verdict.decision is Decision.DENY:
        return _refuse_by_policy(tool, verdict)
    key = deciding.resolve_key(arguments, default_key) if tool.writes else ""
    if isinstance(key, Failure):
        return key
    repairs = parsed.repairs
    if checked.repairs:
        repairs = (*repairs, *checked.repairs)
    resources = _resources_to_hold(deciding, arguments)
    identity: Sequence[str] = ()
    if deciding is not tool and deciding.call_rules.names_injected_act:
        identity = _identify(deciding, key, resources)
    return Admitted(
        parsed.call,
        tool,
        tool.call_traits,
        arguments=arguments,
        bound=bound,
        verdict=verdict,
        repairs=repairs,
        key=key,
        resources=resources,
        identity=identity,
    )


def _identify(tool: BaseTool, key: str, resources: Sequence[Resource]) -> Sequence[str]:
    """Return what tells a call from an equal one with other injected values."""
    names = [each.key for each in resources if not each.seats]
    return [key, *names] if tool.key else names


def _check_verdict(verdict: object, policy: Policy) -> None:
    if not isinstance(verdict, Verdict):
        raise TypeError(
            f"{type(policy).__name__}.judge gave a {type(verdict).__name__}, which is no Verdict"
        )


def _arguments_to_judge(
    tool: BaseTool, arguments: dict[str, Json], bound: Mapping[str, Any], policy: Policy
) -> dict[str, Json]:
    """Return the arguments as what decides sees them, and what the tool gets.

    A type may make one value of several texts: a path, an identifier, a date.
    """
    if (
        tool.writes
        or tool.resource
        or tool.approve
        or policy.rules
        or type(policy) is not Policy
    ):
        return normalize_arguments(arguments, bound)
    return arguments


def _resources_to_hold(
    tool: BaseTool, arguments: dict[str, Json]
) -> Sequence[Resource]:
    resources: Sequence[Resource] = ()
    if tool.resource:
        resources = tool.resolve_resources(arguments)
    if tool.concurrency_slot is not None:
        resources = (*resources, tool.concurrency_slot)
    return resources


def _refuse_by_policy(tool: BaseTool, verdict: Verdict) -> Failure:
    return Failure(
        Code.NOT_PERMITTED,
        f"This run may not use `{tool.name}` like this: {verdict.reason}.",
        "Go on without it, or tell the user what would need to be allowed.",
    )


# ---------------------------------------------------------------------- approval


def make_question(
    call: Admitted, reason: str, place: str, refused: str = ""
) -> AskHuman:
    """Return what a person agrees to: the tool as it describes itself, and exactly these arguments."""
    tool = call.tool
    return AskHuman(
        call.call,
        strictjson.copy(call.arguments),
        call.verdict.risk,
        reason=reason,
        description=tool.description,
        place=place,
        digest=_digest_question(call),
        pin=tool.pin,
        parameters=tool.parameters,
        required_approvals=_count_approvals(call),
        writes=tool.writes,
        key=call.key if tool.writes and tool.key else "",
        refused=refused,
        provenance=call.provenance,
    )


def _digest_question(call: Admitted) -> str:
    """Return the digest of what a person agrees to."""
    asked: dict[str, Json] = {"pin": call.tool.pin, "arguments": call.arguments}
    if call.identity:
        asked["identity"] = list(call.identity)
    return keys.digest(asked)


def _count_approvals(call: Admitted) -> int:
    """Return how many people must agree to a call."""
    return max(call.verdict.required_approvals, call.tool.write.required_approvals)


def apply_approval(
    call: Admitted,
    approval: Approval | None,
    policy: Policy,
    *,
    injected: Mapping[str, Any],
    tell: Tell | None,
) -> Generator[Effect[Admitted], Any, Admitted | Failure]:
    """Return the call as a person approved it, perhaps with edited arguments, or why it does not run."""
    name = call.tool.name
    if approval is None:
        return refuse_pending(call, f"`{name}`")
    if approval.expired:
        return Failure(
            Code.APPROVAL_EXPIRED,
            f"Nobody approved `{name}` in time, so it was not done.",
            "Go on without it, or tell the user that it needs to be asked for again.",
        )
    if approval.unasked:
        return Failure(
            Code.NOT_APPROVED,
            f"`{name}` was not done: it needs a person's approval, nobody who could give it is here, and the question "
            f"cannot be kept for later: {approval.reason}.",
            "Go on without it, or tell the user.",
        )
    if not approval.granted:
        reason = f": {approval.reason}" if approval.reason else ""
        return Failure(
            Code.NOT_APPROVED,
            f"A person did not approve `{name}`{reason}.",
            "Do not ask for the same again; follow the reason, or ask the user how to go on.",
        )
    call = replace(call, approval=approval.question)
    if approval.arguments is None:
        return call
    edited = ParsedCall(call.call, call.tool, dict(approval.arguments))
    if call.tool.admission_may_block:
        admitted = yield Admit(edited, call.key)
    else:
        admitted = admit(edited, policy, call.key, tell, injected=injected)
    return _apply_edit(call, admitted)


def refuse_pending(call: Admitted, subject: str) -> Failure:
    """Return that a call waits for an approval; `subject` begins the sentence."""
    people = _count_approvals(call)
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


def _apply_edit(call: Admitted, edited: Admitted | Failure) -> Admitted | Failure:
    """Return the call with the arguments that a person wrote, or why these are refused: a person can mistype too."""
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
        identity=edited.identity,
        note=_describe_edit(call.arguments, edited.arguments),
    )


def _describe_edit(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    changed = {
        name: value for name, value in after.items() if before.get(name, ...) != value
    }
    dropped = [name for name in before if name not in after]
    note = f"a person changed the arguments before it ran: {keys.canonical(changed)[:_LONGEST_EDIT_SHOWN]}"
    if dropped:
        note += f", without {', '.join(dropped)}"
    return note
