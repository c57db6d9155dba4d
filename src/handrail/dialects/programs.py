"""Programs of providers: code that a model writes and its provider runs, and that calls our tools.

Such a program waits for the result of each call. Anthropic runs it in a container, which expires; OpenAI replays it
from the items of the answer. A request names the tools that a program may call, and `core` enforces it.

    hr.tool(effect="read", limits=hr.Limits(callers=("direct", "program")))
    hr.Options(provider_tools=[{"type": "code_execution_20260120", "name": "code_execution"}])     # Anthropic
    hr.Options(provider_tools=[{"type": "programmatic_tool_calling"}])                              # OpenAI Responses

Rule 1: these fields are sent only with the provider's tool that runs programs; without it the API refuses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from handrail.dialects import ToolLike
from handrail.dialects.names import NameMap
from handrail.errors import Json

_PROGRAM_IDS = ("tool_id", "caller_id")


def find_program(caller: Json) -> str:
    """Return the id of the program that made a call, from the call's `caller`; empty for a call of the model's own.

    >>> find_program({"type": "program", "caller_id": "call_7"}), find_program({"type": "direct"}), find_program(None)
    ('call_7', '', '')
    """
    if not isinstance(caller, Mapping) or caller.get("type", "direct") == "direct":
        return ""
    for name in _PROGRAM_IDS:
        if isinstance(id := caller.get(name), str) and id:
            return id
    return str(caller["type"])


def find_runner(provider_tools: Iterable[Mapping[str, Json]], type: str) -> str:
    """Return the type of the provider's tool that runs programs; empty if there is none.

    Args:
        type: What that type begins with.
    """
    types = (str(each.get("type", "")) for each in provider_tools)
    return next((each for each in types if each.startswith(type)), "")


def name_callers(
    definitions: Sequence[Mapping[str, Json]],
    tools: Collection[ToolLike],
    names: NameMap,
    *,
    program: str,
) -> list[dict[str, Json]]:
    """Return definitions with `allowed_callers` where a program may call the tool.

    Args:
        program: The provider's word for a program.
    """
    callers = {
        names.to_wire(tool.name): [
            program if each == "program" else each for each in tool_callers(tool)
        ]
        for tool in tools
        if "program" in tool_callers(tool)
    }
    return [
        {**each, "allowed_callers": callers[name]}
        if (name := str(each.get("name", ""))) in callers
        else dict(each)
        for each in definitions
    ]


def tool_callers(tool: ToolLike) -> Sequence[str]:
    """Return who may call a tool; see `Limits.callers`."""
    limits = getattr(tool, "limits", None)
    callers: Sequence[str] = getattr(limits, "callers", ("direct",))
    return callers


def describe_outcome(schema: Mapping[str, Json] | None) -> dict[str, Json] | None:
    """Return the schema of what a program gets from a call: the tool's result or a failure; None where it is unknown.

    A provider may demand an object, so this is one with the fields of both.
    """
    if schema is None or schema.get("type") != "object":
        return None
    fields = schema.get("properties")
    own = dict(fields) if isinstance(fields, Mapping) else {}
    rest = {
        name: value
        for name, value in schema.items()
        if name not in ("properties", "required", "additionalProperties")
    }
    return {**rest, "properties": {**_FAILURE, **own}}


_FAILURE: Mapping[str, Json] = {
    "success": {
        "type": "boolean",
        "description": "False in a failure, which has none of the result's fields.",
    },
    "error_code": {"type": "string"},
    "error_message": {"type": "string"},
}
