"""Tools that are too many to list: two tools that find and call the others.

A client sends the definitions of all listed tools to its model, with every request. Where they take more than a limit,
a gateway lists `find_tools` and `call_tool` in their place. A call through `call_tool` is the same call as one by the
tool's own name, with every check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from mcp import types
from msgspec import Struct

from handrail.core import results
from handrail.errors import Code, Failure
from handrail.selectors.bm25 import Bm25
from handrail_mcp.answers import write_failure

MOST_FOUND = 8
"""Definitions that one search returns at most."""

CHARS_PER_TOKEN = 4


class _Found(Struct, frozen=True):
    """A definition as the index reads tools."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    definition: types.Tool
    tags: Sequence[str] = ()


class Search:
    """Lists tools within a limit.

    Args:
        most_tokens: About how much the definitions may take together; 0 for no limit.
    """

    FIND: Final = "find_tools"
    CALL: Final = "call_tool"
    NAMES: ClassVar = frozenset({FIND, CALL, "read_result"})
    """Names that no server's tool can have."""

    def __init__(self, most_tokens: int) -> None:
        self.most_tokens = most_tokens
        self._listed: Sequence[types.Tool] = ()
        self._index: Bm25 | None = None
        self._is_needed = False

    def select(self, tools: list[types.Tool]) -> list[types.Tool]:
        """Return all tools where they are few enough, else those that search."""
        self._take(tools)
        if not self._is_needed:
            return tools
        own = [tool for tool in tools if tool.name in self.NAMES]
        return [_describe_find(len(tools)), _describe_call(), *own]

    def find(
        self, tools: list[types.Tool], arguments: Mapping[str, Any]
    ) -> types.CallToolResult:
        """Return the definitions that answer a query best."""
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            return _refuse("`query` says what is wanted, in words.")
        self._take(tools)
        if self._index is None:
            self._index = Bm25([_as_found(tool) for tool in tools])
        found = [each.definition for each in self._index.top(query, MOST_FOUND)]
        return _answer(_fit(found, self.most_tokens))

    def unwrap(
        self, arguments: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]] | types.CallToolResult:
        """Return the tool and the arguments of a call through `call_tool`, or the refusal of a malformed one."""
        name = arguments.get("name")
        given = arguments.get("arguments", {})
        if isinstance(given, str):
            # models often write the inner object as text
            with suppress(ValueError, RecursionError):
                given = json.loads(given)
        if not isinstance(name, str) or not isinstance(given, dict):
            return _refuse("`name` is a tool's name, and `arguments` is an object.")
        if name in (self.FIND, self.CALL):
            return _refuse(f"`{name}` is called by itself.")
        return name, given

    def _take(self, tools: Sequence[types.Tool]) -> None:
        if tools == self._listed:
            return
        self._listed = list(tools)
        self._index = None
        tokens = sum(map(_count_tokens, tools))
        self._is_needed = bool(self.most_tokens) and tokens > self.most_tokens


def _as_found(tool: types.Tool) -> _Found:
    words = f"{tool.title or ''} {tool.description or ''}"
    return _Found(tool.name, words, tool.input_schema, tool)


def _count_tokens(tool: types.Tool) -> int:
    text = json.dumps(_describe(tool), ensure_ascii=False)
    return len(text) // CHARS_PER_TOKEN


def _fit(found: Sequence[types.Tool], most_tokens: int) -> list[types.Tool]:
    """Return the first definitions that fit in a half of the limit, at least one."""
    room = most_tokens // 2
    fitting: list[types.Tool] = []
    for tool in found:
        room -= _count_tokens(tool)
        if room < 0 and fitting:
            break
        fitting.append(tool)
    return fitting


def _describe(tool: types.Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description or tool.title or "",
        "arguments": tool.input_schema,
    }


def _answer(found: Sequence[types.Tool]) -> types.CallToolResult:
    document = {"tools": [_describe(tool) for tool in found]}
    text = results.as_text(document)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=document,
    )


def _refuse(message: str) -> types.CallToolResult:
    return write_failure(Failure(Code.INVALID_ARGUMENTS, message))


def _describe_find(count: int) -> types.Tool:
    return types.Tool(
        name=Search.FIND,
        title="Find tools",
        description=f"Find out of {count} tools those that can do something. Returns their names and what arguments "
        f"they take; call them by `{Search.CALL}`.",
        input_schema={
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What is wanted, in a few words, such as `create an issue`.",
                }
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _describe_call() -> types.Tool:
    return types.Tool(
        name=Search.CALL,
        title="Call a tool",
        description=f"Call a tool that `{Search.FIND}` has returned.",
        input_schema={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The tool's name."},
                "arguments": {
                    "type": "object",
                    "description": "The arguments that the tool takes.",
                },
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        },
    )
