"""A generated JSON Schema as a person would write it: no titles, and a definition only where it is used twice.

Rule 1: simplifying changes one meaning only: an object that lists its properties is closed. Pydantic ignores the names
        that a model does not have, and a misspelt name must not be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    """Return pydantic's schema, simplified. `raw` is not changed."""
    root: Schema = _simplify_part(raw)
    if "$ref" in root:  # a model that names itself: its definition is the schema
        besides = {key: value for key, value in root.items() if key != "$ref"}
        root = {**resolve_reference(root, root["$ref"]), **besides}
    definitions = {
        f"#/$defs/{name}": body for name, body in root.pop("$defs", {}).items()
    }
    once = _find_used_once(root, definitions)
    shared = {
        reference.removeprefix("#/$defs/"): _inline(body, once)
        for reference, body in definitions.items()
        if reference not in once
    }
    schema: Schema = _inline(root, once)
    if shared:
        schema["$defs"] = shared
    return order_keywords(schema)


def _find_used_once(root: Schema, definitions: Mapping[str, Json]) -> dict[str, Json]:
    """Return the definitions that one reference leads to, and that do not name themselves."""
    uses = Counter(
        here.get("$ref")
        for part in (root, *definitions.values())
        for here in walk(part)
    )
    return {
        reference: body
        for reference, body in definitions.items()
        if uses[reference] == 1 and not _is_named_by(reference, body, definitions)
    }


def add_description(schema: Schema, text: str) -> Schema:
    """Return the schema with a description, unless it has one."""
    if "description" in schema:
        return schema
    return order_keywords({**schema, "description": text})


def _is_named_by(reference: str, body: Json, definitions: Mapping[str, Json]) -> bool:
    """Whether a definition names itself, directly or through others."""
    seen: set[str] = set()
    waiting = [body]
    while waiting:
        for here in walk(waiting.pop()):
            target = here.get("$ref", "")
            if target == reference:
                return True
            if target in definitions and target not in seen:
                seen.add(target)
                waiting.append(definitions[target])
    return False


def _inline(schema: Json, definitions: Mapping[str, Json]) -> Any:
    """Replace references by their definitions; a keyword beside the reference wins."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref") in definitions:
        besides = {key: value for key, value in schema.items() if key != "$ref"}
        merged = order_keywords({**definitions[schema["$ref"]], **besides})
        return _inline(merged, definitions)
    return join_union(map_subschemas(schema, lambda part: _inline(part, definitions)))


_NOISE = frozenset({"title", "discriminator"})
"""`title` repeats the name; `discriminator` is OpenAPI's, points into `$defs`, and says what the tags say."""


def _simplify_part(schema: Json) -> Any:
    """Drop noise, close objects, and drop a null default where null is not allowed: there it means "absent"."""
    if not isinstance(schema, dict):
        return schema
    quiet = {key: value for key, value in schema.items() if key not in _NOISE}
    result = map_subschemas(quiet, _simplify_part)
    if "properties" in result and not result.keys() & IN_PLACE:
        result.setdefault("additionalProperties", False)
    result = join_union(result)
    if result.get("default", 0) is None and not allows_null(result):
        del result["default"]
    return order_keywords(result)


_OF_ANY_TYPE = frozenset({"default", "description"})


def allows_null(schema: Schema) -> bool:
    """Whether null is a value of a schema."""
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

_CROSSING_NULL = _CROSSING - {"enum", "default", "description"}
"""Those that keep a plain type from being joined with null."""

_NULL = {"type": "null"}


def join_union(schema: Schema) -> Schema:
    """Write `anyOf` of plain types as one schema with a list of types, where that says the same.

    It does when each branch has one type of its own and only keywords that concern that type. `enum` concerns any type:
    next to null it takes null in.
    """
    branches = schema.get("anyOf", [])
    if len(branches) < 2:
        return schema
    if not all(isinstance(branch.get("type"), str) for branch in branches):
        return schema
    besides = {key: value for key, value in schema.items() if key != "anyOf"}
    types = [branch["type"] for branch in branches]
    joined = _join_null(branches)
    if joined is None:
        if not _are_independent(branches, besides):
            return schema
        joined = {}
        for branch in branches:
            joined.update(branch)
    return order_keywords({**joined, "type": types, **besides})


def _join_null(branches: Sequence[Schema]) -> Schema | None:
    """Return the keywords of a plain type beside null; None for other unions."""
    others = [branch for branch in branches if branch != _NULL]
    if len(branches) != 2 or len(others) != 1 or others[0].keys() & _CROSSING_NULL:
        return None
    joined = dict(others[0])
    if "enum" in joined:
        joined["enum"] = [*joined["enum"], None]
    return joined


def _are_independent(branches: Sequence[Schema], besides: Schema) -> bool:
    """Whether no branch says anything about a value of another one's type."""
    types = [branch["type"] for branch in branches]
    keys = [key for branch in branches for key in branch if key != "type"]
    if len(set(types)) < len(types) or {"integer", "number"} <= set(types):
        return False
    return len(set(keys)) == len(keys) and not set(keys) & (_CROSSING | besides.keys())


_RANKS = {
    "$ref": 0,
    "type": 1,
    "description": 2,
    "enum": 3,
    "const": 3,
    "default": 9,
    "$defs": 10,
}


def order_keywords(schema: Schema) -> Schema:
    """Put the keywords in the order in which a person writes them."""
    return dict(sorted(schema.items(), key=lambda item: _RANKS.get(item[0], 5)))
