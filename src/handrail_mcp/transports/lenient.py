"""Results of servers, made to fit the SDK's schema, which refuses a whole result for one odd member.

Rule 1: what the schema refuses is dropped member by member; an entry of a list that lacks what it needs is dropped
        alone, and somebody is told.
Rule 2: nothing is added that says what a call has done: a result without content stays one that cannot be read.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.types import methods
from pydantic import ValidationError

from handrail_mcp.callers import MODERN

_CALL = "tools/call"
_OPENINGS = ("initialize", "server/discover")
_LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_CONTENT_TYPES = frozenset({"text", "image", "audio", "resource", "resource_link"})
_LEFT_OUT = "is left out"
_MOST_DROPPED = 10
"""Members of one object. One that has more that nobody can read is something else."""


def mend_result(
    server: str, method: str, version: str, result: dict[str, Any]
) -> list[str]:
    """Make a result fit the SDK's schema, in place; return sentences about what was left out.

    Args:
        server: What the sentences call the server.
        version: The revision that is spoken.
    """
    if method in _OPENINGS:
        _complete_opening(result)
    elif method == _CALL:
        _mend_call(version, result)
    elif isinstance(result.get(_LISTS.get(method, "")), list):
        return _mend_list(server, method, version, result)
    return []


def _complete_opening(result: dict[str, Any]) -> None:
    """Add what a server did not say of itself."""
    if "protocolVersion" in result:
        info = result.get("serverInfo")
        info = info if isinstance(info, dict) else {}
        said = {name: str(info.get(name) or "") for name in ("name", "version")}
        result["serverInfo"] = {**info, **said}
    if not isinstance(result.get("capabilities"), dict):
        result["capabilities"] = {"tools": {}}


# ---------------------------------------------------------------------- lists


def _mend_list(
    server: str, method: str, version: str, result: dict[str, Any]
) -> list[str]:
    entries = result[_LISTS[method]]
    for entry in entries:
        _add_types(entry)
    if _find_fault(method, version, result) is None:
        return []
    kept = []
    faults = []
    for entry in entries:
        happened = _mend_entry(method, version, entry)
        if not happened.startswith(_LEFT_OUT):
            kept.append(entry)
        if happened:
            faults.append(f"{_name(entry)} of {server!r} {happened}")
    result[_LISTS[method]] = kept
    _drop_odd(result, [], method, version, result)
    return faults


def _mend_entry(method: str, version: str, entry: Any) -> str:
    """Remove from an entry of a list what nobody can read; return what happened to it, empty if it fits."""
    if not isinstance(entry, dict):
        return f"{_LEFT_OUT}: it is no object"
    dropped: list[str] = []
    alone = {_LISTS[method]: [entry], **_demanded(version)}
    lacking = _drop_odd(entry, dropped, method, version, alone)
    if lacking:
        return f"{_LEFT_OUT}: its `{lacking}` is missing, or cannot be read"
    if dropped:
        members = " and ".join(f"`{member}`" for member in dropped)
        return f"is used without its {members}, which cannot be read"
    return ""


def _name(entry: Any) -> str:
    if isinstance(entry, dict):
        entry = entry.get("name") or entry.get("uri")
    return repr(entry)[:60]


def _drop_odd(
    members: dict[str, Any],
    dropped: list[str],
    method: str,
    version: str,
    result: dict[str, Any],
) -> str:
    """Remove those members of an object in a result that the schema refuses; return the one that it cannot lack."""
    place: tuple[int | str, ...] | None = ()
    for _ in range(_MOST_DROPPED):
        place = _find_fault(method, version, result)
        if place is None:
            return ""
        # behind the name of the list, and a number in it
        step = str(place[0 if members is result else 2])
        if step not in members or step == _LISTS[method]:
            return step
        del members[step]
        dropped.append(step)
    return dropped[-1]


def _find_fault(
    method: str, version: str, result: dict[str, Any]
) -> tuple[int | str, ...] | None:
    """Return the place where a result does not fit; None where it fits, or nobody knows."""
    try:
        methods.parse_server_result(method, version, result)
    except ValidationError as error:
        return error.errors(include_url=False, include_context=False)[0]["loc"]
    except (KeyError, ValueError):  # a method or a revision that the SDK does not know
        return None
    return None


def _demanded(version: str) -> dict[str, Any]:
    """Return what a revision demands of each result."""
    if version < MODERN:
        return {}
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def _add_types(tool: Any) -> None:
    if not isinstance(tool, dict):
        return
    for name in ("inputSchema", "outputSchema"):
        schema = tool.get(name)
        if isinstance(schema, dict):
            schema.setdefault("type", "object")


# ---------------------------------------------------------------------- calls


def _mend_call(version: str, result: dict[str, Any]) -> None:
    """Make the content of a result readable; whether the call failed is left as the server says it."""
    content = result.get("content")
    structured = result.get("structuredContent")
    if content is None and structured is None:
        return  # an empty answer, or one that asks for something first
    if not isinstance(content, list):
        content = [] if content is None else [content]
    if version < MODERN and not isinstance(structured, dict):
        result.pop("structuredContent", None)
        if structured is not None:
            content.append(_quote(structured))
    if not isinstance(result.get("_meta"), dict):
        result.pop("_meta", None)
    result["content"] = [_mend_part(part, version) for part in content]


def _mend_part(part: Any, version: str) -> Any:
    """Return a part of the content, without what cannot be read of it, or a sentence in its place."""
    if isinstance(part, str):
        return _quote(part)
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _CONTENT_TYPES:
        named = "of no type" if kind is None else str(kind)[:40]
        return _quote(f"[unsupported content: {named}]")
    if len(part) == 2 and isinstance(part.get("text"), str):
        return part  # a text alone, which most are
    alone = {"content": [part], **_demanded(version)}
    if _find_fault(_CALL, version, alone) is None:
        return part
    if kind in ("image", "audio"):
        part.setdefault("mimeType", "application/octet-stream")
    for member in ("annotations", "_meta"):
        part.pop(member, None)
    if _find_fault(_CALL, version, alone) is None:
        return part
    return _quote(f"[unreadable content: {kind}]")


def _quote(value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": text}
