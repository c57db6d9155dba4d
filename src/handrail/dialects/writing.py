"""What writing has in common in all dialects: tools gone through twice, arguments and results as they may go back.

Rule 1: what goes back as arguments is a JSON object always: strict servers refuse a whole history for one malformed
        string.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pydantic_core import from_json

from handrail.calls import ToolCall, ToolResult
from handrail.core.history import as_history as as_history
from handrail.core.history import sanitize
from handrail.core.results import as_text
from handrail.dialects import Conversation, ToolLike, compute_once, received
from handrail.dialects.names import NameMap, NameRule, wire_names
from handrail.errors import Json
from handrail.messages import Deferral, Message, ToolMessage, conversation_of
from handrail.schemas.walk import compile_schema


def as_collection(tools: Iterable[ToolLike] | None) -> Collection[ToolLike]:
    """Return tools that can be gone through twice: a toolset as it is, with its memory, an iterator's items."""
    if isinstance(tools, Collection):
        return tools
    return tuple(tools or ())


def name_map(tools: Iterable[ToolLike] | None, rule: NameRule) -> NameMap:
    """Return how the tools are called on a wire with that rule, and back."""
    given = () if tools is None else tools
    names: NameMap = compute_once(
        given, rule, lambda: wire_names([tool.name for tool in given], rule)
    )
    return names


def fit_to_send(
    messages: Conversation, tools: Iterable[ToolLike] | None = None
) -> Sequence[Message]:
    """Return a conversation as every provider takes it; see `history.sanitize`."""

    def reads(name: str) -> bool:
        return any(
            tool.name == name and not getattr(tool, "writes", True)
            for tool in tools or ()
        )

    return sanitize(conversation_of(messages), reads=reads).messages


def as_object(arguments: str) -> Json:
    """Return a call's arguments as the object that they have in a history, for wires that carry no text."""
    text = as_history(arguments)
    # a third of the standard library's time, and every call of a history passes here each turn
    value = from_json(text)
    is_flat = text.count("{") + text.count("[") <= received.MOST_LEVELS
    # A history is strict JSON, so nothing but its depth can be too much for a request.
    if is_flat or received.is_sendable(value):
        return value
    return {"INVALID_JSON": arguments}


def result_text(result: ToolResult) -> str:
    """Return what the model reads of a result."""
    if result.text:
        return result.text
    # A result built by hand may lack the text; one of None has nothing to say.
    if result.failure:
        value = result.failure.as_json()
    else:
        value = result.value
    return "" if value is None else as_text(value)


MOST_EXAMPLES = 3
"""Of a tool, that its description shows where a provider has no field for them."""

MOST_EXAMPLE_CHARS = 300
"""Of an example in a description: it is read in every turn."""


def describe_with_examples(tool: ToolLike) -> str:
    """Return a tool's description with its examples as last lines, for providers that have no field for them."""
    lines = [
        text
        for example in fitting_examples(tool)
        if len(text := as_text(example)) <= MOST_EXAMPLE_CHARS
    ][:MOST_EXAMPLES]
    if not lines:
        return tool.description
    head = "Example of arguments:" if len(lines) == 1 else "Examples of arguments:"
    return "\n".join([*filter(None, [tool.description]), head, *lines])


def fitting_examples(tool: ToolLike) -> list[Json]:
    """Return a tool's examples that fit its schema: a provider refuses the whole request for any other."""
    examples = getattr(tool, "examples", ())
    if not examples:
        return []
    schema = compile_schema(dict(tool.parameters))
    return [dict(each) for each in examples if schema.is_valid(dict(each))]


def found_tools(result: ToolResult, deferral: Deferral | None) -> tuple[str, ...]:
    """Return the names of the tools that a search found and the provider is to load; empty for any other result."""
    if deferral is None or result.name != deferral.search or result.failure:
        return ()
    value = result.value
    if not isinstance(value, Mapping):
        try:
            value = json.loads(result.text)
        except ValueError:  # it was cut, or folded away
            return ()
    found = value.get("tools") if isinstance(value, Mapping) else None
    if not isinstance(found, Mapping):
        return ()
    return tuple(name for name in found if name in deferral.names)


def loaded_tools(
    messages: Iterable[Message], deferral: Deferral | None
) -> frozenset[str]:
    """Return the names of the tools that the searches of a conversation have loaded."""
    if deferral is None:
        return frozenset()
    return frozenset(
        name
        for message in messages
        if isinstance(message, ToolMessage)
        for name in found_tools(message.result, deferral)
    )


def in_call_order(
    calls: Sequence[ToolCall], results: Sequence[ToolResult]
) -> list[ToolResult]:
    """Return one result for each call, in the order of the calls.

    Raises:
        ValueError: The results are not one for each call.
    """
    wanted = [call.id for call in calls]
    given = [result.call_id for result in results]
    if given == wanted:
        return list(results)
    if sorted(given) != sorted(wanted):
        raise ValueError(
            f"{len(calls)} calls have {len(results)} results, or results of other calls"
        )
    # By id, and among equal ids, which some servers send, in order.
    waiting: dict[str, list[ToolResult]] = {}
    for result in reversed(results):
        waiting.setdefault(result.call_id, []).append(result)
    return [waiting[call.id].pop() for call in calls]


def as_user_message(blocks: Iterable[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the one user message that holds the blocks, in a list; an empty list without blocks."""
    content = list(blocks)
    if content:
        return [{"role": "user", "content": content}]
    return []


def pieces(text: str, piece_chars: int) -> Iterator[str]:
    """Return the text in pieces of that many characters."""
    return (
        text[start : start + piece_chars] for start in range(0, len(text), piece_chars)
    )


def event(chunk: Json, type: str = "") -> str:
    """Return a server-sent event with that JSON as its data, of that type if any."""
    if type:
        head = f"event: {type}\n"
    else:
        head = ""
    return f"{head}data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n"
