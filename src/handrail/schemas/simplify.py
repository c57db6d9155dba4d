"""A generated JSON Schema as a person would write it: no titles, and a definition only where it is used twice.

Rule 1: tidying keeps the meaning, but for one thing: an object that lists its properties is closed. Pydantic ignores
        the names that a model does not know, and a misspelt name must not be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from handrail.errors import Json
from handrail.schemas.walk import (
    IN_PLACE,
    Schema,
    map_subschemas,
    resolve_reference,
    schema_types,
    walk,
)


def simplify(raw: Schema) -> Schema:
    """Return pydantic's schema, tidied. `raw` is left as it is."""
    root: Schema = _simplify_part(raw)
    if "$ref" in root:  # a model that names itself: its definition is the schema
        besides = {key: value for key, value in root.items() if key != "$ref"}
        root = {**resolve_reference(root, root["$ref"]), **besides}
    definitions = {
        f"#/$defs/{name}": body for name, body in root.pop("$defs", {}).items()
    }
    uses = Counter(
        here.get("$ref")
        for part in (root, *definitions.values())
        for here in walk(part)
    )
    once = {
        ref: body
        for ref, body in definitions.items()
        if uses[ref] == 1 and not _is_named_by(ref, body, definitions)
    }
    kept = {
        ref.removeprefix("#/$defs/"): _inline(definitions[ref], once)
        for ref in definitions
        if ref not in once
    }
    return _order_keywords({**_inline(root, once), **({"$defs": kept} if kept else {})})


def add_description(schema: Schema, text: str) -> Schema:
    """Return the schema with a description, unless it has one."""
    return (
        schema
        if "description" in schema
        else _order_keywords({**schema, "description": text})
    )


def _is_named_by(reference: str, body: Json, definitions: Mapping[str, Json]) -> bool:
    """Whether a definition names itself, directly or through others."""
    seen: set[str] = set()
    waiting = [body]
    while waiting:
        for here in walk(waiting.pop()):
            found = here.get("$ref", "")
            if found == reference:
                return True
            if found in definitions and found not in seen:
                seen.add(found)
                waiting.append(definitions[found])
    return False


def _inline(schema: Json, definitions: Mapping[str, Json]) -> Any:
    """Put definitions where they are referred to; what stands beside the reference is nearer, and wins."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref") in definitions:
        besides = {key: value for key, value in schema.items() if key != "$ref"}
        return _inline(
            _order_keywords({**definitions[schema["$ref"]], **besides}), definitions
        )
    return _join_union(map_subschemas(schema, lambda part: _inline(part, definitions)))


_NOISE = frozenset({"title", "discriminator"})
"""`title` repeats the name; `discriminator` is OpenAPI's, points into `$defs`, and says what the tags say."""


def _simplify_part(schema: Json) -> Any:
    """Drop noise, close objects, and drop a null default where null is not allowed: there it means "absent"."""
    if not isinstance(schema, dict):
        return schema
    said = map_subschemas(
        {key: value for key, value in schema.items() if key not in _NOISE},
        _simplify_part,
    )
    if "properties" in said and not said.keys() & IN_PLACE:
        said.setdefault("additionalProperties", False)
    said = _join_union(said)
    if said.get("default", 0) is None and not _allows_null(said):
        del said["default"]
    return _order_keywords(said)


_OF_ANY_TYPE = frozenset({"default", "description"})


def _allows_null(schema: Schema) -> bool:
    branches = schema.get("anyOf", [schema])
    return any(
        not branch.keys() - _OF_ANY_TYPE or "null" in schema_types(branch)
        for branch in branches
    )


_CROSSING = frozenset(
    {
        "$ref",
        "enum",
        "const",
        "not",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "description",
        "default",
    }
)
"""Keywords that look at values of every type, or that say something about one branch of a union only."""

_NULL = {"type": "null"}


def _join_union(schema: Schema) -> Schema:
    """Write `anyOf` of plain types as one schema with a list of types, where that says the same.

    It does when each branch has one type of its own and only keywords that concern that type. `enum` concerns any type:
    next to null it takes null in.
    """
    branches = schema.get("anyOf", [])
    if len(branches) < 2 or any(
        not isinstance(branch.get("type"), str) for branch in branches
    ):
        return schema
    besides = {key: value for key, value in schema.items() if key != "anyOf"}
    others = [branch for branch in branches if branch != _NULL]
    if (
        len(others) == 1
        and len(branches) == 2
        and not others[0].keys() & (_CROSSING - {"enum"} - _OF_ANY_TYPE)
    ):
        values = {"enum": [*others[0]["enum"], None]} if "enum" in others[0] else {}
        return _order_keywords(
            {
                **others[0],
                **values,
                "type": [branch["type"] for branch in branches],
                **besides,
            }
        )
    types = [branch["type"] for branch in branches]
    keys = [key for branch in branches for key in branch if key != "type"]
    overlap = (
        len(set(types)) < len(types)
        or {"integer", "number"} <= set(types)
        or len(set(keys)) < len(keys)
    )
    if overlap or set(keys) & (_CROSSING | besides.keys()):
        return schema
    joined = {
        key: value
        for branch in branches
        for key, value in branch.items()
        if key != "type"
    }
    return _order_keywords({"type": types, **joined, **besides})


_RANKS = {
    "$ref": 0,
    "type": 1,
    "description": 2,
    "enum": 3,
    "const": 3,
    "default": 9,
    "$defs": 10,
}


def _order_keywords(schema: Schema) -> Schema:
    """Put the keywords in the order in which a person writes them."""
    return dict(sorted(schema.items(), key=lambda item: _RANKS.get(item[0], 5)))
