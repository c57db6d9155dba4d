"""The operations of an OpenAPI document as definitions of tools: what a model would be told of them.

Rule 1: whatever the document holds, reading it does not fail; what is no operation is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.effects import EffectClass
from handrail.errors import Json
from handrail.subschemas import mapped, target

EFFECTS: Mapping[str, EffectClass] = {
    "get": "read",
    "head": "read",
    "post": "write",
    "put": "write",
    "patch": "write",
    "delete": "destructive",
}
"""What a method says of an operation's effect."""

_MOST_EXPANDED = 6
"""Levels that are written out where one schema refers to the next; beyond them it may be anything."""


def is_one(document: Json) -> bool:
    """Whether it is an OpenAPI document."""
    return isinstance(document, dict) and isinstance(document.get("paths"), dict)


def operations(document: dict[str, Any]) -> Iterator[dict[str, Json]]:
    """Yield a definition for each operation, with its `method` beside what other definitions have."""
    for path, item in document["paths"].items():
        for method, operation in _object(item).items():
            if method in EFFECTS and isinstance(operation, dict):
                yield _definition(document, f"{method} {path}", operation, _list(_object(item).get("parameters")))


def _definition(
    document: dict[str, Any], route: str, operation: dict[str, Any], shared: Sequence[Any]
) -> dict[str, Json]:
    properties: dict[str, Json] = {}
    required: list[Json] = []
    for said in (*shared, *_list(operation.get("parameters"))):
        parameter = _object(_followed(said, document))
        if isinstance(name := parameter.get("name"), str):
            text = {"description": parameter["description"]} if "description" in parameter else {}
            properties[name] = {**_schema_in(parameter, document), **text}
            required += [name] if parameter.get("required") is True else []
    body = _schema_in(_object(_followed(operation.get("requestBody"), document)), document)
    answers = [answer for status, answer in _object(operation.get("responses")).items() if str(status)[:1] == "2"]
    told = [_schema_in(_object(_followed(answer, document)), document) for answer in answers]
    needed = [*required, *_list(body.get("required"))]
    return {
        "name": str(operation.get("operationId") or re.sub(r"[^A-Za-z0-9]+", "_", route).strip("_")),
        "description": _description(operation),
        "parameters": {
            "type": "object",
            "properties": {**properties, **_object(body.get("properties"))},
            "required": [name for at, name in enumerate(needed) if name not in needed[:at]],
        },
        "method": route.partition(" ")[0],
        "returns": next(filter(None, told), None),
    }


def _description(operation: Mapping[str, Any]) -> str:
    """Join summary and description, unless one holds the other."""
    summary, text = (str(operation.get(key) or "") for key in ("summary", "description"))
    return text if summary in text else f"{summary}\n{text}".strip()


def _schema_in(said: Mapping[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter, a body or an answer: its own, or that of its JSON content, written out."""
    content = _object(said.get("content"))
    held = next((_object(each) for kind, each in content.items() if "json" in kind), said)
    return _object(_written_out(held.get("schema"), document, 0))


def _written_out(schema: Any, document: dict[str, Any], level: int) -> Any:
    """Put what is referred to in the place of each reference, as far as a reader would follow."""
    schema = _followed(schema, document)
    if not isinstance(schema, dict):
        return schema
    if level > _MOST_EXPANDED:
        return {}
    return mapped(schema, lambda part: _written_out(part, document, level + 1))


def _followed(said: Any, document: dict[str, Any]) -> Any:
    """Return what a reference leads to; a few steps, since one may lead back to itself."""
    for _ in range(_MOST_EXPANDED):
        reference = _object(said).get("$ref")
        if not isinstance(reference, str):
            return said
        said = target(document, reference)
    return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
