"""Writing a schema with the few keywords that a provider holds: what all providers have in common.

A `Subset` walks a schema once. A keyword that the provider holds is kept, a bound that it does not hold is told in the
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

# how they are told where the provider has no keyword for them
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
_UNTOLD = (
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

_MOST_TOLD = 100  # characters of one bound; a pattern of a page is of no use to a model


class Lossy(Exception):
    """Carries the place and the reason out of the walk."""


class Subset:
    """One provider's subset. A subclass says what is held, and rewrites what it wants in a form of its own."""

    provider: str
    held: frozenset[str]
    formats: frozenset[str]

    def __init__(self, root: Schema) -> None:
        self.root = root

    def whole(self) -> Schema:
        """Rewrite the schema of a tool's arguments."""
        said = self.rewritten(self.root, ())
        if said.get("type") != "object":
            self.lose((), "they are not plainly one object")
        return said

    def rewritten(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema and those within it."""
        if not isinstance(schema, dict):
            self.lose(path, "any value is allowed" if schema else "no value is allowed")
        plain = self.simplified(schema, path)
        self._refuse_vague(plain, path)
        told, said = self.parted(plain, path)
        if "object" in schema_types(plain):
            said.update(self.object_of(plain, path))
        if "array" in schema_types(plain):
            said["items"] = self.rewritten(plain.get("items", True), (*path, 0))
        if "anyOf" in plain:
            said["anyOf"] = [self.rewritten(branch, path) for branch in plain["anyOf"]]
        if told:
            text = said.get("description", "")
            bounds = "; ".join(told)
            said["description"] = (
                f"{text} ({bounds})" if text else f"{bounds[:1].upper()}{bounds[1:]}."
            )
        return said

    def simplified(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Write one schema with fewer keywords where that says the same."""
        schema = merge_single_all_of(schema)
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
        if "type" not in schema and (values := allowed_values(schema)):
            types = list(
                dict.fromkeys(argument_errors.json_type(value) for value in values)
            )
            schema = {"type": types[0] if len(types) == 1 else types, **schema}
        return schema

    def object_of(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Rewrite the properties of an object. One that takes names of any kind cannot be said."""
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        if others not in (None, False) or (others is None and not properties and path):
            self.lose(path, "it takes names of any kind")
        if not properties.keys() >= set(schema.get("required", ())):
            self.lose(path, "it requires a name that is not described")
        said: Schema = {
            "properties": {
                name: self.rewritten(part, (*path, name))
                for name, part in properties.items()
            }
        }
        return (
            {**said, "required": list(schema["required"])}
            if schema.get("required")
            else said
        )

    def parted(
        self, schema: Schema, path: tuple[str | int, ...]
    ) -> tuple[list[str], Schema]:
        """Part the keywords of one schema into bounds told in words and those kept."""
        told: list[str] = []
        kept: Schema = {}
        for keyword, value in schema.items():
            if keyword in self.held and self.holds(keyword, value):
                kept[keyword] = value
            elif keyword in _BOUNDS:
                told += (
                    [_BOUNDS[keyword].format(_shorten(value))]
                    if (keyword, value) not in _UNTOLD
                    else []
                )
            elif keyword in _STRUCTURES:
                self.lose(path, f"it uses `{keyword}`")
        return told, kept

    def holds(self, keyword: str, value: Json) -> bool:
        """Whether a keyword that is held is held with this value."""
        if keyword in ("enum", "const"):
            return not any(
                isinstance(part, dict | list)
                for part in (value if keyword == "enum" else [value])
            )
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
            self.lose(path, "it refers to another schema in a form that is not known")


def is_local(reference: Json) -> bool:
    """Whether a `$ref` names a definition at the root."""
    return (
        isinstance(reference, str)
        and reference.startswith(("#/$defs/", "#/definitions/"))
        and reference.count("/") == 2
    )


def allowed_values(schema: Schema) -> list[Json]:
    """Return the values that `enum` or `const` allow; empty without either."""
    return (
        list(schema["enum"])
        if "enum" in schema
        else [schema["const"]]
        if "const" in schema
        else []
    )


def follow_references(schema: Json, root: Schema) -> Schema:
    """Return what a schema that refers to another stands for."""
    for _ in range(100):  # as many as a measured schema may chain
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        schema = resolve_reference(root, schema["$ref"])
    return schema if isinstance(schema, dict) else {}


def fits(value: Json, schema: Json, root: Schema) -> bool:
    """Whether a value is valid by a schema that stands somewhere within `root`."""
    definitions: Schema = {
        word: root[word] for word in ("$defs", "definitions") if word in root
    }
    return compile_schema({**definitions, "allOf": [schema]}).is_valid(value)


def split_types(schema: Schema, types: Sequence[str]) -> Schema:
    """Write a list of types as `anyOf`, each with the keywords and the allowed values that concern it."""
    of_branches = frozenset().union(*_CONCERNING.values()) | {"type", "enum", "const"}
    branches = []
    for name in types:
        branch = {
            "type": name,
            **{
                key: value
                for key, value in schema.items()
                if key in _CONCERNING.get(name, ())
            },
        }
        if values := allowed_values(schema):
            branch["enum"] = [value for value in values if _is_of(value, name)]
        if not values or branch["enum"]:
            branches.append({"type": "null"} if name == "null" else branch)
    return {
        **{key: value for key, value in schema.items() if key not in of_branches},
        "anyOf": branches,
    }


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


def _is_of(value: Json, name: str) -> bool:
    kind = argument_errors.json_type(value)
    return kind == name or (kind == "integer" and name == "number")


def merge_single_all_of(schema: Schema) -> Schema:
    """Older generators wrap a reference in `allOf` to put a description beside it."""
    parts = schema.get("allOf", ())
    if len(parts) != 1 or not isinstance(parts[0], dict):
        return schema
    besides = {key: value for key, value in schema.items() if key != "allOf"}
    shared = (
        besides.keys() - ANNOTATIONS
        if "$ref" in parts[0]
        else (besides.keys() & parts[0].keys()) - ANNOTATIONS
    )
    return schema if shared else {**parts[0], **besides}


def _are_apart(branches: Sequence[Json], root: Schema) -> bool:
    """Whether no value can fit two of the branches: by their types, or by a required tag with different values."""
    return all(
        _differ(one, other)
        for one, other in combinations(
            [follow_references(branch, root) for branch in branches], 2
        )
    )


def _differ(one: Schema, other: Schema) -> bool:
    types = set(schema_types(one)), set(schema_types(other))
    if (
        all(types)
        and not types[0] & types[1]
        and not (types[0] | types[1]) >= {"integer", "number"}
    ):
        return True
    tags = set(one.get("required", ())) & set(other.get("required", ()))
    allowed = [[_allowed_texts(part, tag) for part in (one, other)] for tag in tags]
    return types == ({"object"}, {"object"}) and any(
        a and b and not a & b for a, b in allowed
    )


def _allowed_texts(schema: Schema, name: str) -> set[str]:
    part = schema.get("properties", {}).get(name)
    return (
        {json.dumps(value) for value in allowed_values(part)}
        if isinstance(part, dict)
        else set()
    )


def _shorten(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_TOLD else text[:_MOST_TOLD] + "…"
