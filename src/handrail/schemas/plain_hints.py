"""The JSON Schema of plain type hints, without pydantic, which takes ten times as long to describe a function.

Plain are texts, numbers, booleans, nothing, choices among texts or whole numbers, and lists, mappings and unions of
them, with a default that is a text, a number, a boolean or nothing. Most parameters of most tools are.

Rule 1: the schema is the one that pydantic gives, simplified, to the order of its keywords. Whatever is not certain to
        be is pydantic's to describe. Property tests in `tests/schemas/test_plain_hints.py` compare both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from handrail.errors import Json
from handrail.schemas.simplify import allows_null, join_union
from handrail.schemas.walk import Schema

_TYPES: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
    None: "null",
}
_NULL: Schema = {"type": "null"}
_CHOICES = {frozenset((str,)): "string", frozenset((int,)): "integer"}


class NotPlain(Exception):
    """A hint or a default that is pydantic's to describe."""


def describe_plain(
    hints: Mapping[str, Any],
    defaults: Mapping[str, Any],
    descriptions: Mapping[str, str],
) -> Schema | None:
    """Return the schema of an object with these parameters; None where one of them is not plain."""
    properties: dict[str, Json] = {}
    try:
        for name, hint in hints.items():
            described = _describe(hint)
            if text := descriptions.get(name):
                described = _add_description(described, text)
            if name in defaults:
                described = _add_default(described, defaults[name])
            properties[name] = described
    except NotPlain:
        return None
    schema: Schema = {"type": "object", "properties": properties}
    required = [name for name in hints if name not in defaults]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _describe(hint: Any) -> Schema:
    """Return the schema of one hint.

    Raises:
        NotPlain: It is pydantic's to describe.
    """
    # Looked up by identity: the hash of a hint of somebody else's may raise.
    for plain, name in _TYPES.items():
        if hint is plain:
            return {"type": name}
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Literal:
        return _describe_choice(parts)
    if origin is Union or origin is UnionType:
        return _describe_union(parts)
    if origin is list and len(parts) == 1:
        return {"type": "array", "items": _describe(parts[0])}
    if origin is dict and len(parts) == 2 and parts[0] is str:
        return {"type": "object", "additionalProperties": _describe(parts[1])}
    raise NotPlain


def _describe_choice(values: tuple[Any, ...]) -> Schema:
    kind = _CHOICES.get(frozenset(map(type, values)))
    if kind is None:
        raise NotPlain
    if len(values) == 1:
        return {"type": kind, "const": values[0]}
    return {"type": kind, "enum": list(values)}


def _describe_union(parts: tuple[Any, ...]) -> Schema:
    branches = [_describe(part) for part in parts]
    branches.sort(key=lambda branch: branch == _NULL)  # pydantic puts it last
    if any(branch in branches[:number] for number, branch in enumerate(branches)):
        raise NotPlain
    return join_union({"anyOf": branches})


def _add_description(schema: Schema, text: str) -> Schema:
    """Return the schema with a description, which follows the type as in schemas written by hand."""
    if "type" not in schema:
        return {"description": text, **schema}
    return {"type": schema["type"], "description": text, **schema}


def _add_default(schema: Schema, default: Any) -> Schema:
    """Return the schema with a default, unless it is a null that only means an absent value."""
    if default is None and not allows_null(schema):
        return schema
    kind = type(default)
    if kind not in _TYPES and default is not None:
        raise NotPlain
    if kind is float and not math.isfinite(default):
        raise NotPlain
    return {**schema, "default": default}
