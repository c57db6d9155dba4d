"""Writing a schema in fewer keywords: what the subsets of all providers have in common.

A `Subset` walks a schema once. What the provider holds is kept, a bound that it does not hold is told in the description,
an annotation is left out, and anything else is lost, which ends the walk with the place and the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NoReturn

from handrail import faults
from handrail.errors import Json
from handrail.subschemas import Schema, compiled, target, types_of

_BOUNDS: Mapping[str, str] = {  # what can be told in a sentence where the subset has no keyword for it
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
_STRUCTURES = frozenset(
    {
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "contains",
        "minContains",
        "maxContains",
        "prefixItems",
        "unevaluatedItems",
        "unevaluatedProperties",
        "additionalProperties",
        "$dynamicRef",
        "$anchor",
        "$dynamicAnchor",
        "$id",
        "$ref",
        "items",
        "properties",
        "required",
        "enum",
        "const",
        "type",
    }
)
"""Keywords with a meaning for validation that no sentence can carry. All others are annotations, and left out."""

_SAID_ELSEWHERE = frozenset(
    {"unevaluatedProperties", "additionalProperties", "required", "type", "$defs", "definitions"}
)
_MOST_TOLD = 100  # characters of one bound: a pattern of a page is of no use to a model


class Lossy(Exception):
    """Carries the reason out of the recursion."""


class Subset:
    """Rewrites one schema into one provider's subset; subclasses say what that holds."""

    provider: str
    held: frozenset[str]
    """Keywords that are passed on as they are."""
    formats: frozenset[str]

    def __init__(self, root: Schema) -> None:
        self.root = root

    def whole(self) -> Schema:
        """Rewrite the schema of a tool's arguments."""
        result = self.rewritten(self.root, ())
        if result.get("type") != "object":
            self.lose((), "they are a union and not one object")
        return result

    def lose(self, path: Sequence[str | int], what: str) -> NoReturn:
        raise Lossy(f"{self.provider}: {faults.named(path)} cannot be said: {what}.")

    def rewritten(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema: what every subset needs, then what this one does."""
        if not isinstance(schema, dict):
            self.lose(path, "any value is allowed" if schema else "no value is allowed")
        plain = self.simplified(schema, path)
        if not plain.keys() & {"type", "enum", "const", "anyOf", "$ref"}:
            self.lose(path, "any value is allowed, without a type")
        told, kept = self._parted(plain, path)
        if "properties" in plain or "object" in types_of(plain):
            kept.update(self.object_of(plain, path))
        if "items" in plain or "array" in types_of(plain):
            kept["items"] = self.rewritten(plain.get("items", True), (*path, 0))
        if "anyOf" in plain:
            kept["anyOf"] = [self.rewritten(branch, path) for branch in plain["anyOf"]]
        if told:
            text = kept.get("description", "")
            kept["description"] = f"{text} ({'; '.join(told)})".strip() if text else _capital("; ".join(told)) + "."
        return kept

    def simplified(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Write the schema with fewer keywords where that says the same."""
        if len(schema.get("allOf", ())) == 1 and isinstance(schema["allOf"][0], dict):
            besides = {key: value for key, value in schema.items() if key != "allOf"}
            only = schema["allOf"][0]
            if not besides.keys() & only.keys() - ANNOTATIONS and "$ref" not in only:
                schema = {**only, **besides}
            elif "$ref" in only and not besides.keys() - ANNOTATIONS:
                schema = {**only, **besides}
        if "oneOf" in schema and "anyOf" not in schema:
            if not _are_apart(schema["oneOf"], self.root):
                self.lose(path, "a value must fit exactly one of several alternatives that are not clearly apart")
            schema = {("anyOf" if key == "oneOf" else key): value for key, value in schema.items()}
        values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
        if values and "type" not in schema:
            types = list(dict.fromkeys(faults.type_of(value) for value in values))
            schema = {"type": types[0] if len(types) == 1 else types, **schema}
        return schema

    def object_of(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Return `properties` and what goes with them; an object that takes other names too cannot be said."""
        others = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        if others not in (None, False) or ("properties" not in schema and path and others is None):
            self.lose(path, "it is an object with names of any kind")
        properties = schema.get("properties", {})
        said: Schema = {"properties": {name: self.rewritten(part, (*path, name)) for name, part in properties.items()}}
        if schema.get("required"):
            said["required"] = list(schema["required"])
        return said

    def _parted(self, schema: Schema, path: tuple[str | int, ...]) -> tuple[list[str], Schema]:
        """Part the keywords into those told in words and those kept; what is neither must be an annotation."""
        told: list[str] = []
        kept: Schema = {}
        for keyword, value in schema.items():
            if keyword in self.held and self.holds(keyword, value):
                kept[keyword] = value
            elif keyword in _BOUNDS:
                if value is not False:
                    told.append(_BOUNDS[keyword].format(_told(value)))
            elif keyword in _STRUCTURES - _SAID_ELSEWHERE - {"anyOf", "items", "properties"}:
                self.lose(path, f"it uses `{keyword}`")
        return [text for text in told if text], kept

    def holds(self, keyword: str, value: Json) -> bool:
        """Whether a keyword that is held in principle is held with this value."""
        return keyword != "format" or value in self.formats


ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment"}
)


def _told(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_TOLD else text[:_MOST_TOLD] + "…"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _are_apart(branches: Sequence[Json], root: Schema) -> bool:
    """Whether no value can fit two of the branches: by their types, or by a required tag with different values."""
    bodies = [followed(branch, root) for branch in branches]
    return all(_differ(one, other) for one, other in combinations(bodies, 2))


def _differ(one: Schema, other: Schema) -> bool:
    types = [set(types_of(one)), set(types_of(other))]
    if all(types) and not types[0] & types[1] and not (types[0] | types[1]) >= {"integer", "number"}:
        return True
    tags = set(one.get("required", ())) & set(other.get("required", ()))
    allowed = [[_values(part.get("properties", {}).get(tag)) for part in (one, other)] for tag in tags]
    return types[0] == types[1] == {"object"} and any(a and b and not a & b for a, b in allowed)


def _values(schema: Json) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    return {json.dumps(value) for value in schema.get("enum", [schema["const"]] if "const" in schema else [])}


def followed(schema: Json, root: Schema) -> Schema:
    """Return what a schema that only refers to another stands for."""
    for _ in range(100):
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        schema = target(root, schema["$ref"])
    return schema if isinstance(schema, dict) else {}


def takes_null(schema: Json, root: Schema) -> bool:
    body = {"$defs": root.get("$defs", {}), "definitions": root.get("definitions", {}), "allOf": [schema]}
    return compiled(body).is_valid(None)




_OF_TYPE: Mapping[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"format", "pattern", "minLength", "maxLength"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
}
_OF_SOME_TYPE = frozenset().union(*_OF_TYPE.values())


def as_alternatives(schema: Schema, types: Sequence[str]) -> Schema:
    """Write a list of types as `anyOf`, each with the keywords and enum values that concern it."""
    besides = {k: v for k, v in schema.items() if k not in _OF_SOME_TYPE and k not in ("type", "enum")}
    branches = []
    for name in types:
        branch = {"type": name, **{k: v for k, v in schema.items() if k in _OF_TYPE.get(name, ())}}
        if "enum" in schema and name != "null":
            values = [value for value in schema["enum"] if _is_of(value, name)]
            if not values:
                continue
            branch["enum"] = values
        if name != "null" or "enum" not in schema or None in schema["enum"]:
            branches.append(branch)
    return {**besides, "anyOf": branches}


def _is_of(value: Json, name: str) -> bool:
    kind = faults.type_of(value)
    return kind == name or (kind == "integer" and name == "number")


