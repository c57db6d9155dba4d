"""Tools as the Model Context Protocol has them listed. Descriptions only: no model is asked in it.

https://modelcontextprotocol.io/specification/2025-11-25/server/tools

Rule 1: the hints say no more than the tool declares; of one that declares no effect they say the worst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from handrail.dialects import ToolLike, compute_once
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.writing import as_collection, name_map
from handrail.errors import Json
from handrail.tools.tool import BaseTool

NAMES = NameRule("a-zA-Z0-9_.-", most_chars=128)
"""What tool names should be made of, by the specification."""


class Mcp:
    """The form of `tools/list`."""

    name = "mcp"

    def definitions(
        self, tools: Iterable[ToolLike], *, strict: bool = False
    ) -> list[dict[str, Json]]:
        """Return the tools as a server lists them. There is no strict form: arguments are checked where the tool is."""
        tools = as_collection(tools)
        names = name_map(tools, NAMES)
        definitions: list[dict[str, Json]] = compute_once(
            tools,
            Mcp,
            lambda: [_describe_tool(tool, names) for tool in tools],
        )
        return definitions


MCP = Mcp()


def _describe_tool(tool: ToolLike, names: NameMap) -> dict[str, Json]:
    description: dict[str, Json] = {
        "name": names.to_wire(tool.name),
        "title": _title(tool.name),
        "description": tool.description,
        "inputSchema": {"type": "object", **tool.parameters},
    }
    if isinstance(tool, BaseTool):
        promised = tool.result_schema
        # structured content is an object
        if promised is not None and promised.get("type") == "object":
            description["outputSchema"] = promised
        description["annotations"] = _hints(tool)
    return description


def _hints(tool: BaseTool) -> dict[str, Json]:
    """Return what a tool declares of its effect. That it stays within a closed world no tool declares."""
    is_read = tool.effect == "read"
    is_once = tool.effect == "write" and bool(tool.key)
    return {
        "readOnlyHint": is_read,
        "destructiveHint": tool.effect not in ("read", "write"),
        "idempotentHint": is_read or is_once,
        "openWorldHint": True,
    }


def _title(name: str) -> str:
    """Return a name as people read it.

    >>> _title("user_info.get"), _title("getWeather"), _title("parseHTMLPage"), _title("查询天气")
    ('User info get', 'Get weather', 'Parse HTML page', '查询天气')
    """
    words = _BETWEEN_WORDS.sub(" ", name).split()
    title = " ".join(
        word if word.isupper() and len(word) > 1 else word.lower() for word in words
    )
    return title[:1].upper() + title[1:]


_BETWEEN_WORDS = re.compile(r"[_.-]|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""What parts two words of a name."""
