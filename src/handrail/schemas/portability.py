"""A tool's schema in the subset that a provider accepts, or the reason why that would lose something.

    for_openai_strict(schema)     -> Schema | NotPortable    and from_openai_strict(schema, arguments) back
    for_anthropic_strict(schema)  -> Schema | NotPortable    arguments come back as they are
    for_gemini(schema)            -> Schema | NotPortable    and from_gemini(schema, arguments) back

Lossless means: whatever a model may send by the tool's own schema it can still say, and it comes back as the same
value. A bound that the provider cannot hold (a smallest number, a longest text) is told in the description instead.
Nothing is lost by that, since arguments are checked against the tool's own schema in any case.

Rule 1: a structure that cannot be said (an open object, a tuple, `not`) is never approximated: it is `NotPortable`.
Rule 2: the tool's schema is left as it is, and the way back needs nothing but that schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from handrail.errors import Json
from handrail.schemas.provider_subsets import (
    Lossy,
    Subset,
    allowed_values,
    fits,
    follow_references,
    is_local,
    merge_single_all_of,
    split_types,
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
    """Return a strict call's arguments as the tool's own `schema` has them: without the nulls that stand for absent."""
    return _restore(schema, arguments, schema, _remove_fillers)


def from_gemini(schema: Schema, arguments: Json) -> Json:
    """Return a Gemini call's arguments as the tool's own `schema` has them: values of enums with their own types."""
    return _restore(schema, arguments, schema, _restore_type)


def _try_rewrite(subset: Subset) -> Schema | NotPortable:
    try:
        return subset.whole()
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

    def whole(self) -> Schema:
        """Rewrite arguments and definitions, the latter under `$defs`."""
        said = super().whole()
        bodies = {**self.root.get("definitions", {}), **self.root.get("$defs", {})}
        if bodies:
            said["$defs"] = {
                name: self.rewritten(body, (name,)) for name, body in bodies.items()
            }
        self._check_limits(said)
        return said

    def rewritten(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema. Nothing may stand beside a `$ref`, so a description goes around it."""
        said = super().rewritten(schema, path)
        if "$ref" not in said:
            return said
        reference = {"$ref": said.pop("$ref").replace("#/definitions/", "#/$defs/", 1)}
        return {"anyOf": [reference], **said} if said else reference

    def object_of(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Require every property, and let those that were optional be null."""
        said = super().object_of(schema, path)
        for name in said["properties"].keys() - set(said.get("required", ())):
            part = schema["properties"][name]
            if fits(None, part, self.root) and part.get("default", 0) is not None:
                self.lose(
                    (*path, name),
                    "it may be absent or null, and strict mode has only null",
                )
            said["properties"][name] = _allow_null(said["properties"][name])
        return {
            **said,
            "required": list(said["properties"]),
            "additionalProperties": False,
        }

    def _check_limits(self, said: Schema) -> None:
        parts = list(walk(said))
        enums = [part["enum"] for part in parts if "enum" in part]
        names = [
            name
            for part in parts
            for name in (*part.get("properties", {}), *part.get("$defs", {}))
        ]
        texts = [
            value for values in enums for value in values if isinstance(value, str)
        ]
        for what, count, most in (
            (
                "properties",
                sum(len(part.get("properties", {})) for part in parts),
                5_000,
            ),
            ("levels of objects", _levels(said), 10),
            ("values in enums", sum(map(len, enums)), 1_000),
            ("characters of names and values", sum(map(len, names + texts)), 120_000),
            (
                "characters in one enum of over 250 values",
                max(map(_length_if_long, enums), default=0),
                15_000,
            ),
        ):
            if count > most:
                self.lose(
                    (),
                    f"the schema has {count:,} {what}, and at most {most:,} are taken",
                )


def _allow_null(said: Schema) -> Schema:
    """Let a rewritten schema take null as well."""
    if "type" in said:
        besides = {
            key: value
            for key, value in said.items()
            if key not in ("type", "enum", "const")
        }
        values = [value for value in allowed_values(said) if value is not None]
        allowed = {"enum": [*values, None]} if values else {}
        return {
            "type": [*(name for name in schema_types(said) if name != "null"), "null"],
            **allowed,
            **besides,
        }
    if "anyOf" in said:
        return {
            **said,
            "anyOf": [*(branch for branch in said["anyOf"] if branch != _NULL), _NULL],
        }
    return {"anyOf": [said, _NULL]}


_NULL = {"type": "null"}


def _levels(schema: Json) -> int:
    """Count objects within objects; a reference is not followed."""
    if not isinstance(schema, dict):
        return 0
    inside = [
        *schema.get("properties", {}).values(),
        schema.get("items"),
        *schema.get("anyOf", ()),
    ]
    return ("properties" in schema) + max(map(_levels, inside), default=0)


def _length_if_long(values: Sequence[Json]) -> int:
    return sum(len(str(value)) for value in values) if len(values) > 250 else 0


# ---------------------------------------------------------------------- Anthropic, strict


class _Anthropic(Subset):
    """https://docs.claude.com/en/docs/build-with-claude/structured-outputs, "JSON Schema limitations"."""

    provider = "Anthropic's strict mode"
    held = split_words("type enum const description default format minItems $ref")
    formats = split_words(
        "date-time time date duration email hostname uri ipv4 ipv6 uuid"
    )

    def whole(self) -> Schema:
        """Rewrite arguments and definitions."""
        said = super().whole()
        for word in ("$defs", "definitions"):
            bodies = self.root.get(word, {})
            for name in bodies:
                if _names_itself(f"#/{word}/{name}", self.root):
                    self.lose((name,), "it is defined by itself")
            if bodies:
                said[word] = {
                    name: self.rewritten(body, (name,)) for name, body in bodies.items()
                }
        return said

    def rewritten(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema. Only `anyOf` is documented for unions, so a list of types becomes one."""
        said = super().rewritten(schema, path)
        return (
            split_types(said, schema_types(said))
            if len(schema_types(said)) > 1
            else said
        )

    def object_of(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Close every object."""
        return {**super().object_of(schema, path), "additionalProperties": False}

    def holds(self, keyword: str, value: Json) -> bool:
        """`minItems` is held as 0 and 1 only."""
        return (
            value in (0, 1) if keyword == "minItems" else super().holds(keyword, value)
        )


def _names_itself(reference: str, root: Schema) -> bool:
    seen: set[str] = set()
    waiting = [reference]
    while waiting:
        body = resolve_reference(root, waiting.pop())
        found = (
            {part["$ref"] for part in walk(body) if "$ref" in part}
            if isinstance(body, dict)
            else set()
        )
        if reference in found:
            return True
        waiting.extend(found - seen)
        seen |= found
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

    def rewritten(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        """Rewrite one schema, with what it refers to in place of the reference."""
        schema = merge_single_all_of(schema) if isinstance(schema, dict) else schema
        reference = str(schema.get("$ref")) if isinstance(schema, dict) else ""
        if not is_local(reference):
            return super().rewritten(schema, path)
        if reference in self.within:
            self.lose(path, "it is defined by itself")
        self.within.append(reference)
        said = self.rewritten(_merge_target(schema, self.root), path)
        self.within.pop()
        return said

    def simplified(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        """Leave one type at each place, and write null as `nullable`."""
        plain = super().simplified(schema, path)
        self._refuse_ambiguous_values(plain, path)
        types = schema_types(plain)
        if len([name for name in types if name != "null"]) > 1:
            plain = split_types(plain, types)
        elif len(types) == 2:
            plain = {
                **plain,
                "type": next(name for name in types if name != "null"),
                "nullable": True,
            }
        if "anyOf" in plain and _NULL in plain["anyOf"]:
            plain = _make_nullable(plain)
            # one alternative was left, which may itself be anything
            if "anyOf" not in plain:
                return self.simplified(_merge_target(plain, self.root), path)
        return _include_bounds(plain) if plain.get("type") == "integer" else plain

    def parted(
        self, schema: Schema, path: tuple[str | int, ...]
    ) -> tuple[list[str], Schema]:
        """Spell the values of an enum as text, the only kind that Gemini has; `from_gemini` is the way back."""
        values = allowed_values(schema)
        if not values:
            return super().parted(schema, path)
        told, kept = super().parted(
            {key: schema[key] for key in schema.keys() & _BESIDE_ENUM}, path
        )
        return told, {
            **kept,
            "type": "string",
            "enum": [
                _format_enum_value(value) for value in values if value is not None
            ],
        }

    def _refuse_ambiguous_values(
        self, schema: Schema, path: tuple[str | int, ...]
    ) -> None:
        """Refuse enums whose values could not be told from one another, or from text, once they are spelled as text."""
        branches = [
            follow_references(branch, self.root) for branch in schema.get("anyOf", ())
        ] or [schema]
        values = [
            value
            for branch in branches
            for value in allowed_values(branch)
            if value is not None
        ]
        spelled = [_format_enum_value(value) for value in values]
        free = any(
            "string" in schema_types(branch) and not allowed_values(branch)
            for branch in branches
        )
        foreign = any(not isinstance(value, str) for value in values)
        complex_ = any(isinstance(value, dict | list) for value in values)
        if (
            complex_
            or "" in spelled
            or (foreign and (free or len(set(spelled)) < len(spelled)))
        ):
            self.lose(
                path,
                "its allowed values cannot be told apart once they are written as text",
            )


_BESIDE_ENUM = split_words("type description nullable default")


def _merge_target(schema: Schema, root: Schema) -> Schema:
    """Put the definition in place of a reference; what stands beside the reference wins."""
    if not is_local(schema.get("$ref")):
        return schema
    body = resolve_reference(root, schema["$ref"])
    besides = {key: value for key, value in schema.items() if key != "$ref"}
    return {**body, **besides} if isinstance(body, dict) else schema


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
    said = dict(schema)
    for exclusive, bound, step, tighter in _STEPS:
        if type(limit := said.get(exclusive)) is int:
            del said[exclusive]
            said[bound] = tighter(said.get(bound, limit + step), limit + step)
    return said


def _format_enum_value(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# ---------------------------------------------------------------------- the way back

_Change = Callable[[Schema, Any, Schema], Any]


def _restore(here: Json, value: Json, root: Schema, change: _Change) -> Any:
    """Apply `change` to each value with the schema that it stands under, from the outside in."""
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
    """Take out each null that stands for an absent property: optional, and not allowed to be null."""
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
        for allowed in allowed_values(schema)
        if allowed is not None
    }.get(value, value)
