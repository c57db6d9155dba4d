"""Whether a call may run: from the model's text to a call whose arguments are valid and which the policy allows.

    parse_call   name -> tool, text -> JSON
    admit        schema -> business rule -> permission, rules, risk

The order is a security property: nothing is validated before it is JSON, and nothing is judged before it is valid.

Rule 1: nothing here performs anything, reads a clock of its own, or draws a random number of its own.
Rule 2: when it is not certain that a call may run, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from handrail import logs
from handrail.calls import ToolCall, ToolResult
from handrail.core import results, retries
from handrail.core.policy import Decision, Policy, Verdict
from handrail.effects import Raised, Resource
from handrail.errors import Code, Failure, Json, SetupError
from handrail.events import AttemptFailed, Event
from handrail.messages import Finish
from handrail.parsing import jsontext
from handrail.sandboxes.levels import IsolationLevels
from handrail.schemas.violations import count_values
from handrail.tools.declaration import SettingError
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

_LONGEST_CHARACTER = 4
"""Bytes that a character may take in UTF-8."""
_SHORTEST_VALUE = 2
"""Characters that a value takes at least, with its comma."""

Tell: TypeAlias = Callable[[Event], None]


class ParsedCall(Struct, frozen=True):
    """A call whose tool is known and whose arguments are JSON."""

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
    arguments: Mapping[str, Json]
    bound: Mapping[str, Any]
    verdict: Verdict
    repairs: Sequence[str] = ()
    key: str = ""
    resources: Sequence[Resource] = ()
    note: str = ""
    """A sentence for the model beside the result, from before the call ran."""
    place: str = ""
    """Where in its run the call stands; set for calls that a person may be asked about."""
    approval: str = ""
    """The id of the stored approval request that the claim uses; see `effects.Claim`."""
    guarded: bool = True
    """The same write again in one run is answered by the first one's result: a model repeats itself, code means it."""


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
    if len(text) * _LONGEST_CHARACTER > tool.argument_bytes:
        failure = _refuse_long_text(text, tool)
        if failure is not None:
            return failure
    parsed = jsontext.parse(text, finish, repair, lossy=not tool.writes)
    if type(parsed) is Failure:
        return parsed
    if len(text) // _SHORTEST_VALUE > tool.argument_values:
        failure = _refuse_many_values(parsed.value, tool)
        if failure is not None:
            return failure
    return ParsedCall(call, tool, parsed.value, parsed.repairs)


def _refuse_long_text(text: str, tool: BaseTool) -> Failure | None:
    """Return why a text is too long for a tool; None when it is not."""
    size_bytes = len(text)
    if not text.isascii():
        size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes <= tool.argument_bytes:
        return None
    return _refuse_size(tool, f"take {size_bytes:,} bytes", f"{tool.argument_bytes:,}")


def _refuse_many_values(arguments: dict[str, Json], tool: BaseTool) -> Failure | None:
    """Return why arguments hold too many values for a tool; None when they do not."""
    most = tool.argument_values
    # The arguments themselves are counted too.
    if count_values(arguments, most + 1) <= most + 1:
        return None
    return _refuse_size(tool, f"hold more than {most:,} keys and items", f"{most:,}")


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
    isolation: IsolationLevels | None = None,
) -> Admitted | Failure:
    """Check the arguments, the tool's own rule, and the policy.

    An exception of the author's own code (a validator, a key function) refuses the call: when unsure whether
    something may run, it may not.

    Args:
        default_key: The key of a write whose tool declares none: the call's place in its run.
        tell: Receives the event of such an exception.
        isolation: What sandboxes this machine offers. While nobody knows, none is refused here: the worker of an
            isolated tool looks for itself, in its own thread, before it starts anything.

    Raises:
        SetupError: The tool cannot be used as it is declared.
    """
    try:
        return _check(parsed, policy, default_key, isolation)
    except (SetupError, KeyboardInterrupt):
        raise
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
    isolation: IsolationLevels | None,
) -> Admitted | Failure:
    tool = parsed.tool
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
    if isolation is not None and tool.isolation != "none":
        failure = isolation.refuse(tool.name, tool.isolation)
        if failure is not None:
            return failure
    failure = tool.check_rule(bound)
    if failure is not None:
        return failure
    arguments = _arguments_to_judge(tool, checked.arguments, bound, policy)
    verdict = policy.judge(tool, arguments)
    if not isinstance(verdict, Verdict):
        raise TypeError(
            f"{type(policy).__name__}.judge gave a {type(verdict).__name__}, which is no Verdict"
        )
    if verdict.decision is Decision.DENY:
        return _refuse_by_policy(tool, verdict)
    key = tool.resolve_key(arguments, default_key) if tool.writes else ""
    if isinstance(key, Failure):
        return key
    repairs = parsed.repairs
    if checked.repairs:
        repairs = (*repairs, *checked.repairs)
    resources = _resources_to_hold(tool, arguments)
    return Admitted(
        parsed.call,
        tool,
        arguments,
        bound=bound,
        verdict=verdict,
        repairs=repairs,
        key=key,
        resources=resources,
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
        return tool.normalize_arguments(arguments, bound)
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
