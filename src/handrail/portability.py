"""A tool's schema in the subset that a provider accepts, or the reason why that would lose something.

    for_openai_strict(schema)     -> Schema | NotPortable     and from_openai_strict(schema, arguments) back
    for_anthropic_strict(schema)  -> Schema | NotPortable     arguments come back as they are
    for_gemini(schema)            -> Schema | NotPortable     and from_gemini(schema, arguments) back

Lossless means: whatever a model may send by the tool's own schema it can still say, and it comes back as the same value.
A bound that the provider cannot hold (a smallest number, a longest text) is told in the description instead. Nothing is
lost by that, since the arguments are checked against the tool's own schema in any case.

Rule 1: a structure that cannot be said (an open object, a tuple, `not`) is never approximated: the tool is `NotPortable`.
Rule 2: the tool's schema is left as it is, and the way back needs nothing but that schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from handrail.errors import Json
from handrail.subschemas import Schema, compiled, target, types_of, walk


@dataclass(frozen=True, slots=True)
class NotPortable:
    """Why a schema cannot be put into a provider's subset without loss; a sentence for a person."""

    reason: str


def for_openai_strict(schema: Schema) -> Schema | NotPortable:
    """Return the schema as OpenAI's strict mode wants it: every object closed, every property required.

    An optional property becomes one that may be null. An optional property that may be null already is portable only if
    its default is null: otherwise null and absent mean different things, and the model could no longer say both.
    """
    try:
        strict = _OpenAI(schema).whole()
        _hold_limits(strict)
    except Lossy as loss:
        return NotPortable(str(loss))
    return strict


def for_anthropic_strict(schema: Schema) -> Schema | NotPortable:
    """Return the schema as Anthropic's strict tools want it: every object closed, few keywords, no recursion."""
    try:
        return _Anthropic(schema).whole()
    except Lossy as loss:
        return NotPortable(str(loss))


def for_gemini(schema: Schema) -> Schema | NotPortable:
    """Return the schema as the `parameters` of a Gemini function declaration: no references, `nullable`, enums of text."""
    try:
        return _Gemini(schema).whole()
    except Lossy as loss:
        return NotPortable(str(loss))


def from_openai_strict(schema: Schema, arguments: Json) -> Json:
    """Return the arguments of a strict call as the tool's own `schema` has them: a null that fills a gap is taken out."""
    return _restored(schema, arguments, schema, _without_fillers)


def from_gemini(schema: Schema, arguments: Json) -> Json:
    """Return the arguments of a Gemini call as the tool's own `schema` has them: values of enums get their types back."""
    return _restored(schema, arguments, schema, _with_enum_types)


# ---------------------------------------------------------------------- OpenAI, strict


class _OpenAI(Subset):
    """Structured outputs: https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas"."""

    provider = "OpenAI strict"
    held = frozenset(
        {
            "type",
            "enum",
            "const",
            "description",
            "pattern",
            "format",
            "multipleOf",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "minItems",
            "maxItems",
        }
    )
    formats = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

    def whole(self) -> Schema:
        strict = super().whole()
        for word in ("$defs", "definitions"):
            if self.root.get(word):
                bodies = self.root[word].items()
                strict.setdefault("$defs", {}).update({name: self.rewritten(body, (name,)) for name, body in bodies})
        return strict

    def rewritten(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        if not isinstance(schema, dict) or "$ref" not in schema:
            return super().rewritten(schema, path)
        if schema.keys() - ANNOTATIONS - {"$ref"} or not schema["$ref"].startswith(("#/$defs/", "#/definitions/")):
            if schema["$ref"] != "#":
                self.lose(path, "it refers to a schema in a form that is not known")
        reference = {"$ref": schema["$ref"].replace("#/definitions/", "#/$defs/", 1)}
        if "description" in schema:  # keywords beside a `$ref` are refused, so the text goes one level up
            return {"anyOf": [reference], "description": schema["description"]}
        return reference

    def object_of(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        said = super().object_of(schema, path)
        needed = set(said.get("required", ()))
        for name, part in schema.get("properties", {}).items():
            if name not in needed:
                if takes_null(part, self.root) and not (isinstance(part, dict) and part.get("default", 0) is None):
                    self.lose((*path, name), "it may be absent or null, and strict mode has only null")
                said["properties"][name] = _or_null(said["properties"][name])
        if needed - said["properties"].keys():
            self.lose(path, "it requires a name that it does not describe")
        return {**said, "required": list(said["properties"]), "additionalProperties": False}

    def holds(self, keyword: str, value: Json) -> bool:
        if keyword in ("enum", "const"):
            return True
        return super().holds(keyword, value)


def _or_null(schema: Schema) -> Schema:
    """Let a rewritten schema take null as well."""
    said = dict(schema)
    if "const" in said:
        said["enum"] = [said.pop("const")]
    if "type" in said:
        said["type"] = [*types_of(said), *({"null"} - set(types_of(said)))]
        if "enum" in said and None not in said["enum"]:
            said["enum"] = [*said["enum"], None]
        return said
    if "anyOf" in said:
        nulls = [] if {"type": "null"} in said["anyOf"] else [{"type": "null"}]
        return {**said, "anyOf": [*said["anyOf"], *nulls]}
    return {"anyOf": [said, {"type": "null"}]}


_LIMITS = {"properties": 5_000, "levels of nesting": 10, "values in enums": 1_000, "characters of names": 120_000}


def _hold_limits(strict: Schema) -> None:
    parts = list(walk(strict))
    names = [name for part in parts for name in (*part.get("properties", {}), *part.get("$defs", {}))]
    values = [value for part in parts for value in part.get("enum", ())]
    counted = {
        "properties": sum(len(part.get("properties", {})) for part in parts),
        "levels of nesting": _nesting(strict),
        "values in enums": len(values),
        "characters of names": sum(map(len, names)) + sum(len(value) for value in values if isinstance(value, str)),
    }
    for what, count in counted.items():
        if count > _LIMITS[what]:
            raise Lossy(f"OpenAI strict: the schema has {count:,} {what}, and at most {_LIMITS[what]:,} are taken.")
    if any(len(part.get("enum", ())) > 250 and sum(len(str(v)) for v in part["enum"]) > 15_000 for part in parts):
        raise Lossy("OpenAI strict: an enum of more than 250 values has more than 15,000 characters.")


def _nesting(schema: Json) -> int:
    """Count the objects within objects; a reference counts as one more level and is not followed."""
    if not isinstance(schema, dict):
        return 0
    inside = [*schema.get("properties", {}).values(), schema.get("items"), *schema.get("anyOf", ())]
    return ("properties" in schema) + max(map(_nesting, inside), default=0)


# ---------------------------------------------------------------------- Anthropic, strict


class _Anthropic(Subset):
    """Structured outputs: https://docs.claude.com/en/docs/build-with-claude/structured-outputs, "JSON Schema limitations".

    Null in a union is an `anyOf` of its own, the one form of a union that is documented.
    """

    provider = "Anthropic strict"
    held = frozenset({"type", "enum", "const", "description", "default", "format", "minItems", "$ref"})
    formats = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})

    def whole(self) -> Schema:
        strict = super().whole()
        for word in ("$defs", "definitions"):
            if self.root.get(word):
                for name, body in self.root[word].items():
                    if _is_recursive(f"#/{word}/{name}", body, self.root):
                        self.lose((name,), "it is defined by itself")
                strict[word] = {name: self.rewritten(body, (name,)) for name, body in self.root[word].items()}
        return strict

    def rewritten(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        if isinstance(schema, dict) and schema.get("$ref") == "#":
            self.lose(path, "it is defined by itself")
        said = super().rewritten(schema, path)
        types = types_of(said)
        return said if len(types) < 2 else as_alternatives(said, types)

    def object_of(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        return {**super().object_of(schema, path), "additionalProperties": False}

    def holds(self, keyword: str, value: Json) -> bool:
        if keyword == "minItems":
            return value in (0, 1)
        if keyword == "enum" and any(isinstance(part, dict | list) for part in value):
            return False
        return super().holds(keyword, value)


def _is_recursive(reference: str, body: Json, root: Schema) -> bool:
    seen: set[str] = set()
    waiting: list[Json] = [body]
    while waiting:
        here = waiting.pop()
        for found in (part["$ref"] for part in walk(here) if "$ref" in part) if isinstance(here, dict) else ():
            if found == reference:
                return True
            if found not in seen:
                seen.add(found)
                waiting.append(target(root, found))
    return False


# ---------------------------------------------------------------------- Gemini


class _Gemini(Subset):
    """`Schema` of the Gemini API (https://ai.google.dev/api/caching#Schema), a part of OpenAPI 3.0."""

    provider = "Gemini"
    held = frozenset(
        {
            "type",
            "description",
            "format",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "pattern",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "nullable",
        }
    )
    formats = frozenset({"date-time"})

    def __init__(self, root: Schema) -> None:
        super().__init__(root)
        self.open: list[str] = []

    def rewritten(self, schema: Json, path: tuple[str | int, ...]) -> Schema:
        if isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
            if schema.keys() - ANNOTATIONS - {"$ref"} - {"$defs", "definitions"}:
                self.lose(path, "a reference has conditions beside it")
            if reference in self.open:
                self.lose(path, "it is defined by itself, and references cannot be kept")
            besides = {key: value for key, value in schema.items() if key != "$ref"}
            self.open.append(reference)
            said = self.rewritten({**self._defined(reference, path), **besides}, path)
            self.open.pop()
            return said
        return super().rewritten(schema, path)

    def _defined(self, reference: str, path: tuple[str | int, ...]) -> Schema:
        body = target(self.root, reference)
        if not isinstance(body, dict) or reference == "#":
            self.lose(path, "it refers to a schema in a form that is not known")
        return body

    def simplified(self, schema: Schema, path: tuple[str | int, ...]) -> Schema:
        plain = super().simplified(schema, path)
        values = plain.get("enum") or ([plain["const"]] if "const" in plain else [])
        types = [name for name in types_of(plain) if name != "null"]
        if len(types) > 1:
            plain = as_alternatives({**plain, "enum": values} if values else plain, types_of(plain))
        if "integer" in types and len(types) == 1:
            plain = _with_inclusive_bounds(plain)
        return self._without_null(plain)

    def _without_null(self, schema: Schema) -> Schema:
        """Write null as `nullable`."""
        types = types_of(schema)
        others = [name for name in types if name != "null"]
        branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
        if "anyOf" in schema and len(branches) < len(schema["anyOf"]):
            besides = {key: value for key, value in schema.items() if key != "anyOf"}
            if len(branches) == 1 and isinstance(branches[0], dict) and not branches[0].keys() & besides.keys():
                return self.simplified({**branches[0], **besides, "nullable": True}, ())
            return {**besides, "anyOf": branches, "nullable": True}
        if len(others) == 1:
            return {**schema, "type": others[0], **({"nullable": True} if len(types) == 2 else {})}
        return schema

    def _parted(self, schema: Schema, path: tuple[str | int, ...]) -> tuple[list[str], Schema]:
        values = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
        if values is None:
            return super()._parted(schema, path)
        besides = {key: value for key, value in schema.items() if key not in ("enum", "const", "minimum", "maximum")}
        told, kept = super()._parted(besides, path)
        spelled = [_spelled(value) for value in values if value is not None]
        if any(isinstance(value, dict | list) for value in values) or len(set(spelled)) < len(spelled) or "" in spelled:
            self.lose(path, "its allowed values cannot all be told apart as text")
        return told, {**kept, "type": "string", "enum": spelled}


def _with_inclusive_bounds(schema: Schema) -> Schema:
    said = dict(schema)
    for exclusive, bound, step, tighter in _STEPS:
        limit = said.get(exclusive)
        if isinstance(limit, int) and not isinstance(limit, bool):
            del said[exclusive]
            said[bound] = tighter(said.get(bound, limit + step), limit + step)
    return said


_STEPS: Sequence[tuple[str, str, int, Callable[[int, int], int]]] = (
    ("exclusiveMinimum", "minimum", 1, max),
    ("exclusiveMaximum", "maximum", -1, min),
)


def _spelled(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# ---------------------------------------------------------------------- the way back


def _restored(here: Json, value: Json, root: Schema, change: Callable[[Schema, Any, Schema], Any]) -> Any:
    """Apply `change` to each value with the schema that it stands under, from the outside in."""
    schema = followed(here, root)
    value = change(schema, value, root)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        value = {name: _restored(properties.get(name, {}), part, root, change) for name, part in value.items()}
    elif isinstance(value, list):
        value = [_restored(schema.get("items", {}), part, root, change) for part in value]
    for branch in schema.get("allOf", ()):
        value = _restored(branch, value, root, change)
    for branch in _branches(schema):
        changed = _restored(branch, value, root, change)
        if fits(branch, changed, root):
            return changed
    return value


def _branches(schema: Schema) -> Iterator[Json]:
    for word in ("anyOf", "oneOf"):
        yield from schema.get(word, ())


def fits(branch: Json, value: Json, root: Schema) -> bool:
    body = {"$defs": root.get("$defs", {}), "definitions": root.get("definitions", {}), "allOf": [branch]}
    return compiled(body).is_valid(value)


def _without_fillers(schema: Schema, value: Json, root: Schema) -> Json:
    """Take out each null that stands for an absent property: optional, and not allowed to be null."""
    if not isinstance(value, dict):
        return value
    properties, needed = schema.get("properties", {}), schema.get("required", ())
    return {
        name: part
        for name, part in value.items()
        if part is not None or name in needed or name not in properties or takes_null(properties[name], root)
    }


def _with_enum_types(schema: Schema, value: Json, _root: Schema) -> Json:
    """Give a text back its type where it spells a value of an enum that is no text."""
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    spelled = {_spelled(allowed): allowed for allowed in values if allowed is not None}
    return spelled.get(value, value) if isinstance(value, str) else value
