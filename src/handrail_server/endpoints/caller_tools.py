"""The tools of a caller: functions that a request describes and its sender carries out.

The model is shown them beside ours. A call of one is checked as any other, then waits for its result, which the caller
sends with the next request: to the engine it is a deferred tool. They belong to one run, so they come to it by its
selector and are never in the runtime's own set.

Rule 1: a caller's tool never has the name of one of ours, as the tool is called here or as a model reads it.
Rule 2: a tool that somebody waits for is described as it was when its call was stored: the question is bound to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from handrail.dialects.wires.chat_answers import NAMES
from handrail.dialects.writing import name_map
from handrail.engine.tool_visibility import resolve_selector
from handrail.errors import Json, SetupError
from handrail.messages import Message
from handrail.ports import Selection, Selector
from handrail.records import ApprovalRequest
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Write
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset
from handrail_server.endpoints.refusals import Refusal

MOST_TOOLS = 128
"""As many as OpenAI takes in one request."""


class CallerTool(Struct, frozen=True):
    """A function as a request describes it."""

    name: str
    description: str = ""
    parameters: dict[str, Json] | None = None


class CalledFunction(Struct, frozen=True):
    """The function of a call in a history."""

    name: str
    arguments: str = "{}"


class RecordedCall(Struct, frozen=True):
    """A call in a history, as Chat Completions and AG-UI write it."""

    id: str
    function: CalledFunction

    def as_json(self) -> Json:
        """Return the call as the wire of Chat Completions has it."""
        function = {"name": self.function.name, "arguments": self.function.arguments}
        return {"id": self.id, "type": "function", "function": function}


class WithCallerTools:
    """A selector that shows the caller's tools beside what another one shows.

    Args:
        inner: Chooses among the runtime's own tools.
        tools: The caller's.
    """

    def __init__(self, inner: str | Selector, tools: Sequence[BaseTool]) -> None:
        self._inner = resolve_selector(inner)
        self._tools = tuple(tools)
        self._names = tuple(tool.name for tool in tools)

    @property
    def name(self) -> str:
        """The name of the inner selector, for events."""
        return self._inner.name

    @property
    def waits(self) -> bool:
        """Whether the inner selector waits for a server."""
        return self._inner.waits

    def select(self, tools: Toolset, messages: Sequence[Message]) -> Selection:
        """See `Selector.select`."""
        selection = self._inner.select(tools, messages)
        names = selection.names
        if names is None:
            names = [tool.name for tool in tools]
        return Selection(selection.strategy, (*names, *self._names))

    def own_tools(self, tools: Toolset) -> Sequence[BaseTool]:
        """See `Selector.own_tools`: those of the inner selector, and the caller's."""
        return (*self._inner.own_tools(tools), *self._tools)


def make_caller_tools(
    described: Sequence[CallerTool], own: Toolset, selector: str | Selector
) -> list[BaseTool]:
    """Return a caller's tools.

    Args:
        own: The tools that the server offers.

    Raises:
        Refusal: There are too many, one has a name of ours or no usable schema, or two have one name.
    """
    if len(described) > MOST_TOOLS:
        raise Refusal(
            400,
            f"the request has {len(described)} tools; at most {MOST_TOOLS} are taken",
            param="tools",
        )
    taken = _list_taken_names(own, selector)
    made: list[BaseTool] = []
    for each in described:
        if each.name in taken:
            raise Refusal(
                400,
                f"this server has a tool {each.name[:100]!r} of its own, or the request has two: rename yours",
                param="tools",
                code="tool_name_taken",
            )
        taken.add(each.name)
        made.append(_make_tool(each.name, each.description, each.parameters))
    return made


def _list_taken_names(own: Toolset, selector: str | Selector) -> set[str]:
    """Return the names that a caller's tool must not have: ours, and what a model reads in their place."""
    names = {tool.name for tool in own}
    names |= {tool.name for tool in resolve_selector(selector).own_tools(own)}
    wire = name_map(own, NAMES)
    return names | {wire.to_wire(name) for name in names}


def recall_caller_tools(
    questions: Iterable[ApprovalRequest], own: Toolset
) -> list[BaseTool]:
    """Return the tools of calls whose results were asked of the caller, as they were described then."""
    tools = {
        each.tool: _make_tool(each.tool, each.description, dict(each.parameters))
        for each in questions
        if each.awaits_result and each.tool not in own
    }
    return list(tools.values())


def _make_tool(
    name: str, description: str, parameters: dict[str, Json] | None
) -> BaseTool:
    schema = parameters or {"type": "object", "properties": {}}
    try:
        return FunctionTool(
            _leave_to_caller,
            name=name,
            description=description,
            parameters=schema,
            effect="read",
            blocking=False,
            deferred=True,
            write=Write(repeatable=True),
        )
    except SetupError as error:
        raise Refusal(
            400, f"the tool {name[:100]!r} cannot be used: {error}", param="tools"
        ) from error


def _leave_to_caller(**_: Any) -> None:
    """Start nothing: the result comes with the caller's next request."""
