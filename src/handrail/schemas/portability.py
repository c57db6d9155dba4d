"""A tool's schema in the subset that a provider accepts, or the reason why that would lose something.

    for_openai_strict(schema)     -> Schema | NotPortable    and from_openai_strict(schema, arguments) back
    for_anthropic_strict(schema)  -> Schema | NotPortable    arguments come back as they are
    for_gemini(schema)            -> Schema | NotPortable    and from_gemini(schema, arguments) back

Lossless means: whatever a model may send by the tool's own schema it can still say, and it comes back as the same
value. A bound that the provider cannot hold (a smallest number, a longest text) is put into the description instead.
Nothing is lost by that, since arguments are checked against the tool's own schema in any case.

Rule 1: a structure that the subset lacks (an open object, a tuple, `not`) is never approximated: it is `NotPortable`.
Rule 2: the tool's schema is left as it is, and the way back needs nothing but that schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from handrail.errors import Json
from handrail.schemas.provider_subsets import (
    Lossy,
    Subset,
    fits,
    follow_references,
    is_local,
    list_allowed_values,
    split_types,
    unwrap_all_of,
)
from handrail.schemas.walk import (
    Schema,
    resolve_reference,
    schema_types,
    split_words,
    walk,
)


class NotPortable(Struct, frozen=True):
    """Why a schema cannot be put into a provider's subset without loss; a sentence for a person."""

    reason: str


def for_openai_strict(schema: Schema) -> Schema | NotPortable:
    """Return the schema as OpenAI's strict mode wants it: every object closed, every property required.

    An optional property becomes one that may be null. One that may be null already is portable only if its default is
    null: otherwise null and absent mean different things, and the model could no longer say both.
    """
    return _try_rewrite(_OpenAI(schema))


def for_anthropic_strict(schema: Schema) -> Schema | NotPortable:
    """Return the schema as Anthropic's strict tools want it: every object closed, few bounds, no recursion."""
    return _try_rewrite(_Anthropic(schema))


def for_gemini(schema: Schema) -> Schema | NotPortable:
    """Return the schema as `parameters` of a Gemini function declaration: no references, `nullable`, enums of text.

    Without properties, the declaration is best sent without `parameters`; Gemini refuses an empty object.
    """
    return _try_rewrite(_Gemini(schema))


def from_openai_strict(schema: Schema, arguments: Json) -> Json:
    """Return a strict call's arguments as the tool's own `schema` has them: without the nulls that mean absent."""
    return _restore(schema, arguments, schema, _remove_fillers)


def from_gemini(schema: Schema, arguments: Json) -> Json:
    """Return a Gemini call's arguments as the tool's own `schema` has them: values of enums with their own types."""
    return _restore(schema, arguments, schema, _restore_type)


def _try_rewrite(subset: Subset) -> Schema | NotPortable:
    try:
        return subset.rewrite_root()
    except Lossy as loss:
        return NotPortable(str(loss))


# ---------------------------------------------------------------------- OpenAI, strict


class _OpenAI(Subset):
    """https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas"."""

    provider = "OpenAI's strict mode"
    held = split_words(
        "type enum const description pattern format multipleOf minItems maxItems $ref"
    ) | split_words("minimum maximum exclusiveMinimum exclusiveMaximum")
    formats = split_words("date-time time date duration email hostname ipv4 ipv6 uuid")

    def rewrite_root(self) -> Schema:
        """Rewrite arguments and definitions, the latter under `$defs`."""
        result = super().rewrite_root()
        bodies = {**self.root.get("definitions", {}), **self.root.get("$defs", {})}
        if bodies:
            result["$defs"] = {
                name: self.rewrite(body, (name,)) for name, body in bodies.items()
            }
        self._check_limits(result)
        return result

    def rewrite(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema. Nothing may be beside a `$ref`, so a description goes around it."""
        result = super().rewrite(schema, path)
        if "$ref" not in result:
            return result
        target = result.pop("$ref").replace("#/definitions/", "#/$defs/", 1)
        reference = {"$ref": target}
        return {"anyOf": [reference], **result} if result else reference

    def rewrite_object(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Require every property, and let those that were optional be null."""
        result = super().rewrite_object(schema, path)
        properties = result["properties"]
        for name in properties.keys() - set(result.get("required", ())):
            part = schema["properties"][name]
            if fits(None, part, self.root) and part.get("default", 0) is not None:
                self.lose(
                    (*path, name),
                    "it may be absent or null, and strict mode has only null",
                )
            properties[name] = _allow_null(properties[name])
        return {
            **result,
            "required": list(properties),
            "additionalProperties": False,
        }

    def _check_limits(self, schema: Schema) -> None:
        for what, count, most in _count_limited(schema):
            if count > most:
                self.lose(
                    (),
                    f"the schema has {count:,} {what}, and at most {most:,} are taken",
                )


def _count_limited(schema: Schema) -> Iterator[tuple[str, int, int]]:
    """Yield each thing that strict mode limits: what it is, how many there are, and how many are taken."""
    parts = list(walk(schema))
    properties = [name for part in parts for name in part.get("properties", {})]
    definitions = [name for part in parts for name in part.get("$defs", {})]
    enums = [part["enum"] for part in parts if "enum" in part]
    texts = [value for values in enums for value in values if isinstance(value, str)]
    characters = sum(map(len, properties + definitions + texts))
    longest = max(map(_length_if_long, enums), default=0)
    yield "properties", len(properties), 5_000
    yield "levels of objects", _count_levels(schema), 10
    yield "values in enums", sum(map(len, enums)), 1_000
    yield "characters of names and values", characters, 120_000
    yield "characters in one enum of over 250 values", longest, 15_000


def _allow_null(schema: Schema) -> Schema:
    """Let a rewritten schema take null as well."""
    if "type" in schema:
        result: Schema = {"type": [*_other_types(schema), "null"]}
        values = [v for v in list_allowed_values(schema) if v is not None]
        if values:
            result["enum"] = [*values, None]
        replaced = ("type", "enum", "const")
        result.update({k: v for k, v in schema.items() if k not in replaced})
        return result
    if "anyOf" in schema:
        others = [branch for branch in schema["anyOf"] if branch != _NULL]
        return {**schema, "anyOf": [*others, _NULL]}
    return {"anyOf": [schema, _NULL]}


def _other_types(schema: Schema) -> list[str]:
    return [name for name in schema_types(schema) if name != "null"]


_NULL = {"type": "null"}


def _count_levels(schema: Json) -> int:
    """Count objects within objects; a reference is not followed."""
    if not isinstance(schema, dict):
        return 0
    inside = [
        *schema.get("properties", {}).values(),
        schema.get("items"),
        *schema.get("anyOf", ()),
    ]
    return ("properties" in schema) + max(map(_count_levels, inside), default=0)


def _length_if_long(values: Sequence[Json]) -> int:
    if len(values) <= 250:
        return 0
    return sum(len(str(value)) for value in values)


# ---------------------------------------------------------------------- Anthropic, strict


class _Anthropic(Subset):
    """https://docs.claude.com/en/docs/build-with-claude/structured-outputs, "JSON Schema limitations"."""

    provider = "Anthropic's strict mode"
    held = split_words("type enum const description default format minItems $ref")
    formats = split_words(
        "date-time time date duration email hostname uri ipv4 ipv6 uuid"
    )

    def rewrite_root(self) -> Schema:
        """Rewrite arguments and definitions."""
        result = super().rewrite_root()
        for word in ("$defs", "definitions"):
            bodies = self.root.get(word, {})
            for name in bodies:
                if _names_itself(f"#/{word}/{name}", self.root):
                    self.lose((name,), "it is defined by itself")
            if bodies:
                result[word] = {
                    name: self.rewrite(body, (name,)) for name, body in bodies.items()
                }
        return result

    def rewrite(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema. Only `anyOf` is documented for unions, so a list of types becomes one."""
        result = super().rewrite(schema, path)
        types = schema_types(result)
        return split_types(result, types) if len(types) > 1 else result

    def rewrite_object(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Close every object."""
        return {**super().rewrite_object(schema, path), "additionalProperties": False}

    def holds(self, keyword: str, value: Json) -> bool:
        """`minItems` is held as 0 and 1 only."""
        if keyword == "minItems":
            return value in (0, 1)
        return super().holds(keyword, value)


def _names_itself(reference: str, root: Schema) -> bool:
    seen: set[str] = set()
    waiting = [reference]
    while waiting:
        body = resolve_reference(root, waiting.pop())
        if not isinstance(body, dict):
            continue
        named = {part["$ref"] for part in walk(body) if "$ref" in part}
        if reference in named:
            return True
        waiting.extend(named - seen)
        seen |= named
    return False


# ---------------------------------------------------------------------- Gemini


class _Gemini(Subset):
    """`Schema` of https://ai.google.dev/api/caching, a part of OpenAPI 3.0."""

    provider = "Gemini"
    held = split_words(
        "type description format minimum maximum minLength maxLength pattern nullable"
    ) | split_words("minItems maxItems minProperties maxProperties")
    formats = split_words("date-time")

    def __init__(self, root: Schema) -> None:
        super().__init__(root)
        self.within: list[str] = []

    def rewrite(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema, with what it refers to in place of the reference."""
        if isinstance(schema, dict):
            schema = unwrap_all_of(schema)
            reference = schema.get("$ref")
            if is_local(reference):
                return self._rewrite_target(schema, str(reference), path)
        return super().rewrite(schema, path)

    def _rewrite_target(
        self, schema: Schema, reference: str, path: tuple[str | int, ...]
    ) -> Schema:
        if reference in self.within:
            self.lose(path, "it is defined by itself")
        self.within.append(reference)
        result = self.rewrite(_merge_target(schema, self.root), path)
        self.within.pop()
        return result

    def simplify(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Leave one type at each place, and write null as `nullable`."""
        plain = super().simplify(schema, path)
        self._refuse_ambiguous_values(plain, path)
        types = schema_types(plain)
        others = _other_types(plain)
        if len(others) > 1:
            plain = split_types(plain, types)
        elif len(types) == 2:
            plain = {**plain, "type": others[0], "nullable": True}
        if "anyOf" in plain and _NULL in plain["anyOf"]:
            plain = _make_nullable(plain)
            # one alternative was left, which may itself be anything
            if "anyOf" not in plain:
                return self.simplify(_merge_target(plain, self.root), path)
        return _include_bounds(plain) if plain.get("type") == "integer" else plain

    def split_keywords(
        self, schema: Schema, path: tuple[str | int, ...]
    ) -> tuple[list[str], Schema]:
        """Write the values of an enum as text, the only kind that Gemini has; `from_gemini` is the way back."""
        values = list_allowed_values(schema)
        if not values:
            return super().split_keywords(schema, path)
        besides = {key: schema[key] for key in schema.keys() & _BESIDE_ENUM}
        bounds, accepted = super().split_keywords(besides, path)
        accepted["type"] = "string"
        accepted["enum"] = [_format_enum_value(v) for v in values if v is not None]
        return bounds, accepted

    def _refuse_ambiguous_values(
        self, schema: Schema, path: tuple[str | int, ...]
    ) -> None:
        """Refuse enums whose values could not be distinguished from one another, or from text, as text."""
        branches = [
            follow_references(branch, self.root) for branch in schema.get("anyOf", ())
        ]
        if _are_ambiguous_as_text(branches or [schema]):
            self.lose(
                path,
                "its allowed values cannot be distinguished once they are written as text",
            )


_BESIDE_ENUM = split_words("type description nullable default")


def _are_ambiguous_as_text(branches: Sequence[Schema]) -> bool:
    values = [
        value
        for branch in branches
        for value in list_allowed_values(branch)
        if value is not None
    ]
    texts = [_format_enum_value(value) for value in values]
    if "" in texts or any(isinstance(value, dict | list) for value in values):
        return True
    if all(isinstance(value, str) for value in values):
        return False
    takes_any_text = any(
        "string" in schema_types(branch) and not list_allowed_values(branch)
        for branch in branches
    )
    return takes_any_text or len(set(texts)) < len(texts)


def _merge_target(schema: Schema, root: Schema) -> Schema:
    """Put the definition in place of a reference; what is beside the reference wins."""
    if not is_local(schema.get("$ref")):
        return schema
    body = resolve_reference(root, schema["$ref"])
    if not isinstance(body, dict):
        return schema
    return {**body, **{key: schema[key] for key in schema if key != "$ref"}}


def _make_nullable(schema: Schema) -> Schema:
    besides = {key: value for key, value in schema.items() if key != "anyOf"}
    others = [branch for branch in schema["anyOf"] if branch != _NULL]
    if len(others) == 1 and isinstance(others[0], dict):
        return {**others[0], **besides, "nullable": True}
    return {**besides, "anyOf": others, "nullable": True}


_STEPS: Sequence[tuple[str, str, int, Callable[[int, int], int]]] = (
    ("exclusiveMinimum", "minimum", 1, max),
    ("exclusiveMaximum", "maximum", -1, min),
)


def _include_bounds(schema: Schema) -> Schema:
    """For integers, more than 0 is at least 1."""
    result = dict(schema)
    for exclusive, bound, step, tighter in _STEPS:
        if type(limit := result.get(exclusive)) is int:
            del result[exclusive]
            result[bound] = tighter(result.get(bound, limit + step), limit + step)
    return result


def _format_enum_value(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# ---------------------------------------------------------------------- the way back

_Change = Callable[[Schema, Any, Schema], Any]


def _restore(here: Json, value: Json, root: Schema, change: _Change) -> Any:
    """Apply `change` to each value and the schema that describes it, from the outside in."""
    schema = follow_references(here, root)
    value = change(schema, value, root)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        value = {
            name: _restore(properties.get(name, True), part, root, change)
            for name, part in value.items()
        }
    elif isinstance(value, list):
        value = [
            _restore(schema.get("items", True), part, root, change) for part in value
        ]
    for branch in schema.get("allOf", ()):
        value = _restore(branch, value, root, change)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        changed = _restore(branch, value, root, change)
        if fits(changed, branch, root):
            return changed
    return value


def _remove_fillers(schema: Schema, value: Json, root: Schema) -> Json:
    """Remove each null that means an absent property: optional, and not allowed to be null."""
    if not isinstance(value, dict) or None not in value.values():
        return value
    optional: Mapping[str, Json] = {
        name: part
        for name, part in schema.get("properties", {}).items()
        if name not in schema.get("required", ())
    }
    return {
        name: part
        for name, part in value.items()
        if part is not None or name not in optional or fits(None, optional[name], root)
    }


def _restore_type(schema: Schema, value: Json, _root: Schema) -> Json:
    """Give a text its type back where it spells an allowed value that is no text."""
    if not isinstance(value, str):
        return value
    return {
        _format_enum_value(allowed): allowed
        for allowed in list_allowed_values(schema)
        if allowed is not None
    }.get(value, value)
