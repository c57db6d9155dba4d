"""Writing a schema with the few keywords that a provider holds: what all providers have in common.

A `Subset` walks a schema once. A keyword that the provider holds stays, a bound that it does not hold moves into the
description, an annotation is left out. Anything else would be lost, and ends the walk with the place and the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NoReturn

from handrail.errors import Json
from handrail.schemas import argument_errors
from handrail.schemas.walk import (
    IN_LIST,
    IN_MAP,
    IN_ONE,
    Schema,
    compile_schema,
    resolve_reference,
    schema_types,
    split_words,
)

ANNOTATIONS = split_words(
    "title description default examples example deprecated readOnly writeOnly $comment $defs definitions"
)
"""Keywords that say nothing about which values are valid, and may stand beside a `$ref` or within any alternative."""

# how the description words them where the provider has no keyword for them
_BOUNDS: Mapping[str, str] = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matches {}",
    "format": "format {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "uniqueItems": "no item twice",
    "minProperties": "at least {} keys",
    "maxProperties": "at most {} keys",
    "default": "default {}",
}
_UNMENTIONED = (
    ("uniqueItems", False),
    ("default", None),
    ("format", "path"),
    ("format", "binary"),
)

_WALKED = split_words(
    "properties items anyOf additionalProperties unevaluatedProperties"
)
_STRUCTURES = (
    (
        IN_ONE
        | IN_LIST
        | IN_MAP
        | split_words("$ref $dynamicRef enum const dependentRequired")
    )
    - ANNOTATIONS
    - _WALKED
)
"""Keywords that no sentence can carry."""

_MOST_SHOWN = (
    100  # characters of one bound; a pattern of a page is of no use to a model
)


class Lossy(Exception):
    """Carries the place and the reason out of the walk."""


class Subset:
    """One provider's subset. A subclass says what is held, and rewrites what it wants in a form of its own."""

    provider: str
    held: frozenset[str]
    formats: frozenset[str]

    def __init__(self, root: Schema) -> None:
        self.root = root

    def rewrite_root(self) -> Schema:
        """Rewrite the schema of a tool's arguments."""
        result = self.rewrite(self.root, ())
        if result.get("type") != "object":
            self.lose((), "they are not plainly one object")
        return result

    def rewrite(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema and those within it."""
        if not isinstance(schema, dict):
            self.lose(path, "any value is allowed" if schema else "no value is allowed")
        plain = self.simplify(schema, path)
        self._refuse_vague(plain, path)
        bounds, result = self.split_keywords(plain, path)
        if "object" in schema_types(plain):
            result.update(self.rewrite_object(plain, path))
        if "array" in schema_types(plain):
            result["items"] = self.rewrite(plain.get("items", True), (*path, 0))
        if "anyOf" in plain:
            result["anyOf"] = [self.rewrite(branch, path) for branch in plain["anyOf"]]
        if bounds:
            description = result.get("description", "")
            result["description"] = _append_bounds(description, bounds)
        return result

    def simplify(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Write one schema with fewer keywords where that says the same."""
        schema = unwrap_all_of(schema)
        if "oneOf" in schema and "anyOf" not in schema:
            if not _are_apart(schema["oneOf"], self.root):
                self.lose(
                    path,
                    "it must fit exactly one of several alternatives that are not clearly apart",
                )
            schema = {
                ("anyOf" if key == "oneOf" else key): value
                for key, value in schema.items()
            }
        if "type" not in schema and (values := list_allowed_values(schema)):
            types = list(
                dict.fromkeys(argument_errors.json_type(value) for value in values)
            )
            schema = {"type": types[0] if len(types) == 1 else types, **schema}
        return schema

    def rewrite_object(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Rewrite the properties of an object. One that takes names of any kind cannot be expressed."""
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        if others not in (None, False) or (others is None and not properties and path):
            self.lose(path, "it takes names of any kind")
        required = schema.get("required", ())
        if not properties.keys() >= set(required):
            self.lose(path, "it requires a name that is not described")
        result: Schema = {
            "properties": {
                name: self.rewrite(part, (*path, name))
                for name, part in properties.items()
            }
        }
        if required:
            result["required"] = list(required)
        return result

    def split_keywords(
        self, schema: Schema, path: tuple[str | int, ...]
    ) -> tuple[list[str], Schema]:
        """Split one schema's keywords into bounds to describe in words and those that the provider accepts."""
        bounds: list[str] = []
        accepted: Schema = {}
        for keyword, value in schema.items():
            if keyword in self.held and self.holds(keyword, value):
                accepted[keyword] = value
            elif keyword in _BOUNDS:
                if (keyword, value) not in _UNMENTIONED:
                    bounds.append(_BOUNDS[keyword].format(_shorten(value)))
            elif keyword in _STRUCTURES:
                self.lose(path, f"it uses `{keyword}`")
        return bounds, accepted

    def holds(self, keyword: str, value: Json) -> bool:
        """Whether a keyword that is held is held with this value."""
        if keyword in ("enum", "const"):
            values = value if keyword == "enum" else [value]
            return not any(isinstance(part, dict | list) for part in values)
        return keyword != "format" or value in self.formats

    def lose(self, path: Sequence[str | int], what: str) -> NoReturn:
        """End the walk: this place would lose something."""
        raise Lossy(
            f"{self.provider} cannot hold {argument_errors.name_path(path)}: {what}."
        )

    def _refuse_vague(self, plain: Schema, path: tuple[str | int, ...]) -> None:
        if not plain.keys() & {"type", "anyOf", "$ref"}:
            self.lose(path, "any value is allowed, without a type")
        if "anyOf" in plain and plain.keys() & split_words(
            "properties items enum const $ref"
        ):
            self.lose(path, "it has conditions beside its alternatives")
        if "$ref" in plain and (
            plain.keys() - ANNOTATIONS - {"$ref"} or not is_local(plain["$ref"])
        ):
            self.lose(path, "it refers to another schema in an unsupported form")


def is_local(reference: Json) -> bool:
    """Whether a `$ref` names a definition at the root."""
    return (
        isinstance(reference, str)
        and reference.startswith(("#/$defs/", "#/definitions/"))
        and reference.count("/") == 2
    )


def list_allowed_values(schema: Schema) -> list[Json]:
    """Return the values that `enum` or `const` allow; empty without either."""
    if "enum" in schema:
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    return []


def follow_references(schema: Json, root: Schema) -> Schema:
    """Return the schema that a chain of `$ref`s leads to; empty where it leads nowhere."""
    for _ in range(100):  # as many as a measured schema may chain
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        schema = resolve_reference(root, schema["$ref"])
    return schema if isinstance(schema, dict) else {}


def fits(value: Json, schema: Json, root: Schema) -> bool:
    """Whether a value is valid by a schema from within `root`."""
    definitions: Schema = {
        word: root[word] for word in ("$defs", "definitions") if word in root
    }
    return compile_schema({**definitions, "allOf": [schema]}).is_valid(value)


def split_types(schema: Schema, types: Sequence[str]) -> Schema:
    """Write a list of types as `anyOf`, each with the keywords and the allowed values that concern it."""
    branches = []
    values = list_allowed_values(schema)
    for name in types:
        concerning = _CONCERNING.get(name, ())
        branch: Schema = {"type": name}
        branch.update({k: v for k, v in schema.items() if k in concerning})
        if values:
            branch["enum"] = [value for value in values if _has_type(value, name)]
            if not branch["enum"]:
                continue
        branches.append({"type": "null"} if name == "null" else branch)
    besides = {k: v for k, v in schema.items() if k not in _OF_BRANCHES}
    return {**besides, "anyOf": branches}


_OF_NUMBERS = split_words(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"
)
_CONCERNING: Mapping[str, frozenset[str]] = {
    "object": split_words(
        "properties required additionalProperties unevaluatedProperties minProperties maxProperties"
    ),
    "array": split_words("items minItems maxItems uniqueItems prefixItems contains"),
    "string": split_words("format pattern minLength maxLength"),
    "integer": _OF_NUMBERS,
    "number": _OF_NUMBERS,
}
_OF_BRANCHES = frozenset().union(*_CONCERNING.values()) | {"type", "enum", "const"}


def _has_type(value: Json, name: str) -> bool:
    kind = argument_errors.json_type(value)
    return kind == name or (kind == "integer" and name == "number")


def unwrap_all_of(schema: Schema) -> Schema:
    """Merge an `allOf` of one schema, by which older generators put a description beside a reference."""
    parts = schema.get("allOf", ())
    if len(parts) != 1 or not isinstance(parts[0], dict):
        return schema
    besides = {key: value for key, value in schema.items() if key != "allOf"}
    shared = besides.keys() - ANNOTATIONS
    if "$ref" not in parts[0]:
        shared &= parts[0].keys()
    return schema if shared else {**parts[0], **besides}


def _are_apart(branches: Sequence[Json], root: Schema) -> bool:
    """Whether no value can fit two of the branches: by their types, or by a required tag with different values."""
    schemas = [follow_references(branch, root) for branch in branches]
    return all(_differ(one, other) for one, other in combinations(schemas, 2))


def _differ(one: Schema, other: Schema) -> bool:
    types = set(schema_types(one))
    other_types = set(schema_types(other))
    if types and other_types and not _overlap(types, other_types):
        return True
    if types != {"object"} or other_types != {"object"}:
        return False
    tags = set(one.get("required", ())) & set(other.get("required", ()))
    return any(_have_different_values(one, other, tag) for tag in tags)


def _overlap(types: set[str], other_types: set[str]) -> bool:
    numbers = {"integer", "number"} <= types | other_types
    return numbers or not types.isdisjoint(other_types)


def _have_different_values(one: Schema, other: Schema, name: str) -> bool:
    texts = _list_allowed_texts(one, name)
    other_texts = _list_allowed_texts(other, name)
    return bool(texts and other_texts) and not texts & other_texts


def _list_allowed_texts(schema: Schema, name: str) -> set[str]:
    part = schema.get("properties", {}).get(name)
    if not isinstance(part, dict):
        return set()
    return {json.dumps(value) for value in list_allowed_values(part)}


def _append_bounds(description: str, bounds: Sequence[str]) -> str:
    text = "; ".join(bounds)
    if description:
        return f"{description} ({text})"
    return f"{text[:1].upper()}{text[1:]}."


def _shorten(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"
