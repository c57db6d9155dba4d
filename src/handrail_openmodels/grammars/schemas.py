"""JSON Schema as an engine is given it: what no engine can say is left out and noted, and the rest is closed.

Rule 1: what fits a prepared schema fits the tool's own, except for `losses`: each names a place, and what is not said.
Rule 2: an object whose schema names members has no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import jsonschema_rs

from handrail.errors import Json
from handrail.schemas.walk import (
    Schema,
    resolve_reference,
    schema_types,
)

Losses = dict[str, str]
"""What a grammar cannot say, by the place in a schema."""

_UNSAYABLE = (
    "not",
    "if",
    "contains",
    "uniqueItems",
    "propertyNames",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "unevaluatedProperties",
    "unevaluatedItems",
    "minProperties",
    "maxProperties",
    "multipleOf",
)
_LEFT_OUT = frozenset((*_UNSAYABLE, "then", "else", "format", "title", "description", "default", "examples",
    "$schema", "$id", "$comment", "readOnly", "writeOnly", "deprecated"))  # fmt: skip
_ALTERNATIVES = ("anyOf", "oneOf")
DEFINITIONS = ("$defs", "definitions")
"""Where a schema keeps what its references name."""

_DATE = (
    "[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_OFFSET = "[+-](?:0[0-9]|1[0-4]):[0-5][0-9]"
_FORMATS: Mapping[str, str] = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}(?:Z|{_OFFSET})?$",
    "date-time": f"^{_DATE}T{_TIME}(?:Z|{_OFFSET})$",
    "uuid": "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
}
"""Only what a tool's own types insist on: elsewhere a format is a remark."""

_KEYWORDS_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_LARGEST = 10**15
"""A number without bounds gets these, since within bounds none is written with an exponent, which may overflow."""

_MOST_DEPTH = 24
_ANYTHING = r"[\s\S]*"
_NOT_REGULAR = re.compile(r"\(\?(?:[=!]|<[=!]|P[=>])|\\[1-9bBkAzZ]")
"""What looks around or refers back."""


def prepare(root: Schema, losses: Losses) -> Schema | None:
    """Return a schema as an engine is given it, and note in `losses` what it leaves out; None if nothing fits it."""
    preparation = _Preparation(root, losses)
    prepared = preparation.prepare(root, "", 0)
    if prepared is False:
        return None
    definitions = {
        name: {
            key: preparation.prepare(each, key, 0) for key, each in root[name].items()
        }
        for name in DEFINITIONS
        if isinstance(root.get(name), Mapping)
    }
    return {**prepared, **definitions}


class _Preparation:
    """Prepares the parts of one schema."""

    def __init__(self, root: Schema, losses: Losses) -> None:
        self._root = root
        self._losses = losses

    def prepare(self, schema: Json, path: str, depth: int) -> Any:
        """Return a schema that means the same or less, apart from what is noted as lost."""
        if schema is False:
            return False
        if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
            return self._open(path)
        merged = self._merge_parts(dict(schema), path)
        self._note_unsayable(merged, path)
        kept = {key: each for key, each in merged.items() if key not in _LEFT_OUT}
        for name in DEFINITIONS:
            kept.pop(name, None)
        if pattern := _FORMATS.get(str(merged.get("format"))):
            kept.setdefault("pattern", pattern)
        if "$ref" in kept:
            return self._follow_reference(kept, path, depth)
        for keyword in _ALTERNATIVES:
            if keyword in kept:
                return self._split(keyword, kept, path, depth)
        return self._close(kept, path, depth)

    def _open(self, path: str) -> Schema:
        self._losses[path] = "an open value, in which a name may come twice"
        return {}

    def _note_unsayable(self, schema: Schema, path: str) -> None:
        for keyword in _UNSAYABLE:
            if schema.get(keyword) not in (False, None, {}, 0):
                self._losses[path] = f"`{keyword}`"

    def _merge_parts(self, schema: Schema, path: str) -> Schema:
        """Return a schema without `allOf`: what its parts say, in one."""
        parts = schema.pop("allOf", ())
        if len(parts) > 1:
            self._losses[path] = "`allOf`, whose parts are taken as one"
        for part in parts:
            if isinstance(part, Mapping) and "$ref" in part:
                part = resolve_reference(self._root, str(part["$ref"]))
            schema = _merge(schema, part) if isinstance(part, Mapping) else schema
        return schema

    def _follow_reference(self, schema: Schema, path: str, depth: int) -> Json:
        reference = str(schema.pop("$ref"))
        target = resolve_reference(self._root, reference)
        if target is None:
            self._losses[path] = f"a reference to {reference!r}, which is not here"
            return {}
        if not schema and _is_definition(reference):
            return {"$ref": reference}
        return self.prepare(_merge(schema, target), path, depth + 1)

    def _split(self, keyword: str, schema: Schema, path: str, depth: int) -> Json:
        """Return alternatives that each say what stands beside them, too."""
        alternatives = schema.pop(keyword)
        if keyword == "oneOf":
            self._losses[path] = "`oneOf`, which is taken as `anyOf`"
        options = [
            self.prepare(_merge(schema, each), path, depth + 1) for each in alternatives
        ]
        remaining = [each for each in options if each is not False]
        return {"anyOf": remaining} if remaining else False

    def _close(self, schema: Schema, path: str, depth: int) -> Json:
        if "const" in schema or "enum" in schema:
            return _choose_values(schema)
        types = schema_types(schema) or [
            kind
            for kind, keywords in _KEYWORDS_OF_TYPE.items()
            if any(keyword in schema for keyword in keywords)
        ]
        if not types:
            return self._open(path)
        closed = {**schema, "type": types[0] if len(types) == 1 else types}
        if "string" in types:
            self._check_pattern(closed, path)
        if "number" in types:
            if not {"minimum", "exclusiveMinimum"} & schema.keys():
                closed["minimum"] = -_LARGEST
            if not {"maximum", "exclusiveMaximum"} & schema.keys():
                closed["maximum"] = _LARGEST
        if "array" in types:
            self._close_array(closed, path)
        if "object" in types:
            self._close_object(closed, path)
        for keyword, part in (("items", "[]"), ("additionalProperties", ".*")):
            if keyword in closed:
                closed[keyword] = self.prepare(closed[keyword], path + part, depth + 1)
        if "prefixItems" in closed:
            closed["prefixItems"] = [
                self.prepare(each, f"{path}[{at}]", depth + 1)
                for at, each in enumerate(closed["prefixItems"])
            ]
        if "object" in types and closed.get("properties"):
            members = self._prepare_members(closed["properties"], path, depth)
            if set(closed.get("required") or ()) - members.keys():
                self._losses[path] = "a required member that nothing fits"
                return False
            closed["properties"] = members
        return closed

    def _prepare_members(
        self, properties: Mapping[str, Json], path: str, depth: int
    ) -> Schema:
        """Return the members that may have a value."""
        prepared = {
            name: self.prepare(each, f"{path}.{name}" if path else name, depth + 1)
            for name, each in properties.items()
        }
        return {name: each for name, each in prepared.items() if each is not False}

    def _check_pattern(self, schema: Schema, path: str) -> None:
        pattern = schema.get("pattern")
        if pattern is not None and match_whole(str(pattern)) is None:
            self._losses[path] = f"the pattern {pattern!r}"
            del schema["pattern"]

    def _close_array(self, schema: Schema, path: str) -> None:
        first = schema.get("prefixItems")
        if first:
            is_whole = schema.get("minItems", 0) >= len(first)
            if schema.get("items") is not False or not is_whole:
                self._losses[path] = "a tuple of any length"
            schema["items"] = False
            schema["minItems"] = len(first)
        else:
            schema.setdefault("items", True)

    def _close_object(self, schema: Schema, path: str) -> None:
        others = schema.get("additionalProperties")
        properties = schema.get("properties") or {}
        if not properties and others is not False:
            self._losses[path] = "an open object, in which a name may come twice"
            return
        if isinstance(others, Mapping):
            self._losses.setdefault(path, "further members beside the named ones")
        schema["additionalProperties"] = False


def find_branches(
    root: Schema, schema: Json, within: frozenset[str] = frozenset()
) -> Iterator[tuple[Schema, frozenset[str]]]:
    """Yield schemas of one type each, without references; a value fits one of them.

    Args:
        root: The whole schema, prepared.
        within: The references that were followed to the schema; a schema within itself is any value.
    """
    if not isinstance(schema, Mapping):
        if schema is not False:
            yield {}, within
    elif "$ref" in schema:
        reference = schema["$ref"]
        target = {} if reference in within else resolve_reference(root, reference)
        yield from find_branches(root, target, within | {reference})
    elif "anyOf" in schema:
        for each in schema["anyOf"]:
            yield from find_branches(root, each, within)
    elif "enum" in schema or not schema.get("type"):
        yield dict(schema), within
    else:
        for kind in schema_types(dict(schema)):
            yield {**schema, "type": kind}, within


def match_whole(pattern: str) -> str | None:
    """Return the expression that matches whole texts in which a pattern is found; None where no engine can say it."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    if _NOT_REGULAR.search(pattern):
        return None
    inner = pattern.removeprefix("^")
    before = "" if inner != pattern else _ANYTHING
    after = _ANYTHING
    if inner.endswith("$") and not inner.endswith("\\$"):
        inner = inner[:-1]
        after = ""
    outside = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", inner)
    depths = accumulate((each == "(") - (each == ")") for each in outside)
    is_bare = any(
        each == "|" and not depth for each, depth in zip(outside, depths, strict=True)
    )
    if "^" in outside or "$" in outside or (is_bare and not (before and after)):
        return None
    return f"{before}(?:{_in_ascii(inner)}){after}"


def _in_ascii(pattern: str) -> str:
    """Return a pattern whose digits and letters are those of ASCII, as those of a schema are."""
    pieces = re.split(r"(\[(?:\\.|[^\]\\])*\]|\\.)", pattern)
    written = [
        _ASCII_CLASSES.get(piece, piece)
        if not piece.startswith("[")
        else piece.replace(r"\d", "0-9").replace(r"\w", "a-zA-Z0-9_")
        for piece in pieces
    ]
    return re.sub(
        r"\\.|/", lambda found: r"\/" if found[0] == "/" else found[0], "".join(written)
    )


_ASCII_CLASSES = {r"\d": "[0-9]", r"\w": "[a-zA-Z0-9_]"}


def _is_definition(reference: str) -> bool:
    return reference.startswith(tuple(f"#/{name}/" for name in DEFINITIONS))


def _choose_values(schema: Schema) -> Json:
    """Return the values that a schema lists, as far as they are of its types."""
    values = [schema["const"]] if "const" in schema else list(schema["enum"])
    types = schema_types(schema)
    if types:
        values = [
            each for each in values if jsonschema_rs.is_valid({"type": types}, each)
        ]
    return {"enum": values} if values else False


def _merge(schema: Schema, other: Json) -> Json:
    """Return one schema that says what both say."""
    if not isinstance(other, Mapping):
        return other and schema
    merged = {**schema, **other}
    if "properties" in schema and "properties" in other:
        merged["properties"] = {**schema["properties"], **other["properties"]}
    if "required" in schema and "required" in other:
        merged["required"] = [*schema["required"], *other["required"]]
    return merged
