"""What a client reads of a call: our result as content, structured content, and whether it failed.

The text is what a model reads here: cut to its size, with its note. A value that is an object is also given as
structured content, unless it was cut: a host may show its model the structured content in place of the text, and then
no limit would hold. So an output schema is listed only for results that are never cut.

Rule 1: a failure is in the structured content as in the text: code, message, suggestion, whether to try again.
Rule 2: half a character is a question mark: no client reads a message with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp import types
from pydantic_core import from_json

from handrail.calls import Media, ToolResult
from handrail.core import results
from handrail.dialects.received import encodable, legible
from handrail.errors import Failure, Json
from handrail.invisible import clean, clean_json, printable
from handrail.records import ApprovalRequest
from handrail_mcp.contents import write_content


def write_answer(result: ToolResult) -> types.CallToolResult:
    """Return a result as the protocol has it."""
    if result.question is not None and result.failure is not None:
        return _write_question(result.failure, result.question)
    if result.failure is not None:
        return write_failure(result.failure, result.text)
    return types.CallToolResult(
        content=_write_contents(result), structured_content=_structure(result)
    )


def write_failure(failure: Failure, text: str = "") -> types.CallToolResult:
    """Return a failure as the protocol has it."""
    text = text or results.failure_text(failure)
    structured: Any = encodable(clean_json(failure.as_json()))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=legible(text))],
        structured_content=structured,
        is_error=True,
    )


def _write_question(
    failure: Failure, question: ApprovalRequest
) -> types.CallToolResult:
    """Return a failure that waits for a person, with the name of the question."""
    # the place itself stays here: it may name a folder or a machine
    command = f"handrail approvals show {question.id} --store PLACE"
    note = f"the question is {question.id}; `{command}` shows it, PLACE being this server's store"
    if question.barred:
        note = f"it must be approved by somebody else than {printable(question.barred)}; {note}"
    answer = write_failure(failure, results.failure_text(failure, note))
    structured = {**(answer.structured_content or {}), "question": question.id}
    return answer.model_copy(update={"structured_content": structured})


def _write_contents(result: ToolResult) -> list[types.ContentBlock]:
    """Return a result's parts in order where they are texts and media; else its text, and its media behind it."""
    value = result.value
    parts: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    if result.media and all(isinstance(each, Media | str) for each in parts):
        contents = [
            write_content(clean(each) if isinstance(each, str) else each)
            for each in parts
        ]
        if result.note:
            contents.append(write_content(f"[note: {result.note}]"))
        return contents
    return [write_content(result.text), *map(write_content, result.media)]


def _structure(result: ToolResult) -> dict[str, Any] | None:
    """Return the value of a result that is an object and was not cut."""
    if result.handle or isinstance(result.value, str):
        return None
    # without a note the text is the value's JSON
    text = clean(results.as_text(result.value)) if result.note else result.text
    was_cut = len(text) > len(result.text)  # and the rest could not be stored
    if was_cut or not text.startswith("{"):
        return None
    try:
        value = from_json(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    # a control character is an escape in the text, and would be itself in the value
    return clean_json(value) if _CONTROL in text else value


_CONTROL = r"\u00"

# ---------------------------------------------------------------------- output schemas


def is_never_cut(schema: Mapping[str, Json], most_bytes: int) -> bool:
    """Whether every value of an object's schema is at most so large, as JSON."""
    size = _largest(schema, schema, depth=0)
    return size is not None and size <= most_bytes


_MOST_DEPTH = 16
_BYTES_OF_SIGN = 6
"""A character of a text as JSON: at most an escape, or four bytes of UTF-8."""
_BYTES_OF_NUMBER = 32


def _largest(schema: Any, root: Mapping[str, Json], *, depth: int) -> int | None:
    """Return the most bytes of JSON that a value of a schema may have; None if the schema sets no limit."""
    if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
        return None
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return max(
            (len(results.as_text([each]).encode()) for each in values), default=0
        )
    if isinstance(schema.get("$ref"), str):
        name = schema["$ref"].removeprefix("#/$defs/")
        target = (root.get("$defs") or {}).get(name)
        return _largest(target, root, depth=depth + 1)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _most(
                [_largest(each, root, depth=depth + 1) for each in schema[word]]
            )
    return _largest_of_type(schema, root, depth=depth)


def _largest_of_type(
    schema: Mapping[str, Any], root: Mapping[str, Json], *, depth: int
) -> int | None:
    match schema.get("type"):
        case "boolean" | "null":
            return 5
        case "integer" | "number":
            return _BYTES_OF_NUMBER
        case "string" if "maxLength" in schema:
            return int(schema["maxLength"]) * _BYTES_OF_SIGN + 2
        case "array" if "maxItems" in schema:
            each = _largest(schema.get("items"), root, depth=depth + 1)
            return None if each is None else int(schema["maxItems"]) * (each + 2) + 2
        case "object" if schema.get("additionalProperties") is False:
            sizes = [
                _largest(each, root, depth=depth + 1)
                for each in schema.get("properties", {}).values()
            ]
            names = sum(len(name.encode()) + 6 for name in schema.get("properties", {}))
            bounds = [size for size in sizes if size is not None]
            return sum(bounds) + names + 2 if len(bounds) == len(sizes) else None
    return None


def _most(sizes: Sequence[int | None]) -> int | None:
    bounds = [size for size in sizes if size is not None]
    return max(bounds, default=0) if len(bounds) == len(sizes) else None
