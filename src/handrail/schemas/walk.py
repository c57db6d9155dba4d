"""JSON Schema as a tree: where its subschemas are, how large one may be, and how it is compiled.

Whoever walks a schema walks it by the tables here. A key such as `title`, `type` or `$ref` is a keyword only in a
schema; under `properties` it is somebody's name, under `default`, `const` and `enum` it is data.

Rule 1: a schema is measured before it is compiled. The compiled validator runs in C and cannot be interrupted.
Rule 2: nothing is ever fetched, whatever a `$ref` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, cast
from urllib.parse import unquote, urljoin

import jsonschema_rs
from pydantic_core import PydanticSerializationError, to_json

from handrail.errors import Json, ToolDefinitionError

Schema = dict[str, Json]

MOST_DEPTH = 64
MOST_SUBSCHEMAS = 10_000
MOST_BYTES = 256 * 1024
MOST_EXPANSIONS = 1_000
"""`$ref`s followed for one place of an instance. Thirty definitions that each name the next one twice ask for 2^30."""

MOST_CHAINED = 100
"""`$ref`s that lead from one to the next."""


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text: a table of keywords, written to be read."""
    return frozenset(text.split())


IN_ONE = split_words(
    "items contains additionalProperties propertyNames unevaluatedItems unevaluatedProperties"
) | split_words("contentSchema not if then else")
IN_LIST = split_words("prefixItems allOf anyOf oneOf")
IN_MAP = split_words("properties patternProperties dependentSchemas $defs definitions")

IN_PLACE = split_words("allOf anyOf oneOf not if then else dependentSchemas")
"""Keywords whose subschemas see the same value as the schema itself, not a part of it."""


def children(schema: Schema) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """Yield each direct subschema with the path to it; a subschema may be a boolean."""
    for keyword, value in schema.items():
        if keyword in IN_ONE:
            yield (keyword,), value
        elif keyword in IN_LIST and isinstance(value, list):
            yield from (((keyword, i), part) for i, part in enumerate(value))
        elif keyword in IN_MAP and isinstance(value, dict):
            yield from (((keyword, name), part) for name, part in value.items())


def map_subschemas(schema: Schema, change: Callable[[Json], Json]) -> Schema:
    """Return the schema with `change` applied to each direct subschema."""
    changed = {}
    for keyword, value in schema.items():
        if keyword in IN_ONE:
            value = change(value)
        elif keyword in IN_LIST and isinstance(value, list):
            value = [change(part) for part in value]
        elif keyword in IN_MAP and isinstance(value, dict):
            value = {name: change(part) for name, part in value.items()}
        changed[keyword] = value
    return changed


def walk(schema: Schema) -> Iterator[Schema]:
    """Yield the schema and all subschemas that are objects."""
    waiting: list[Json] = [schema]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield here
            waiting.extend(part for _, part in children(here))


def resolve_reference(root: Schema, reference: str) -> Json:
    """Return what a `$ref` of the form `#/...` points to, or None: anchors and addresses are not followed here."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    here: Json = root
    for token in reference[2:].split("/"):
        step = unquote(token).replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = here.get(step)
        elif isinstance(here, list) and _is_index(step) and int(step) < len(here):
            here = here[int(step)]
        else:
            return None
    return here


def _is_index(step: str) -> bool:
    return step.isdecimal() and len(step) < 7


def schema_types(schema: Schema) -> list[str]:
    """Return the keyword `type` as a list; empty when it is absent."""
    types = schema.get("type", [])
    return list(types) if isinstance(types, list) else [types]


def check_size(schema: Schema) -> None:
    """Refuse a schema that is too large, too deep, or expands without end.

    Raises:
        ToolDefinitionError: Says which limit was passed.
    """
    _check_depth(schema)
    try:
        size = len(to_json(schema))
    except (PydanticSerializationError, ValueError, RecursionError):
        refuse(
            "it is no JSON: a value in it is nested too deep, refers to itself, or is of no JSON type"
        )
    if size > MOST_BYTES:
        refuse(f"it has {size:,} bytes, and at most {MOST_BYTES:,} are read")
    if any(keyword in here for here in walk(schema) for keyword in _REFERENCES):
        _ReferenceCounter(schema).check()


def _check_depth(schema: Schema) -> None:
    count = 0
    waiting: list[tuple[Json, int]] = [(schema, 1)]
    while waiting:
        here, depth = waiting.pop()
        if depth > MOST_DEPTH:
            refuse(f"it is nested deeper than {MOST_DEPTH} levels")
        count += 1
        if count > MOST_SUBSCHEMAS:
            refuse(f"it has more than {MOST_SUBSCHEMAS:,} subschemas")
        if isinstance(here, dict):
            waiting.extend((part, depth + 1) for _, part in children(here))


class _ReferenceCounter:
    """Counts the `$ref`s followed for one place of an instance; each definition is counted once and remembered."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._resources = _Resources(root)
        self._counts: dict[int, int] = {}

    def check(self) -> None:
        """Refuse the schema when a place of it follows more than `MOST_EXPANSIONS`."""
        for here in walk(self._root):
            self._count(here, ())

    def _count(self, here: Json, chain: tuple[int, ...]) -> int:
        if not isinstance(here, dict):
            return 0
        if id(here) in chain:
            refuse(
                "a `$ref` in it leads back to itself without going deeper into the value"
            )
        if len(chain) > MOST_CHAINED:
            refuse(f"more than {MOST_CHAINED} `$ref`s in it lead from one to the next")
        if id(here) in self._counts:
            return self._counts[id(here)]
        count = 0
        for path, part in children(here):
            if path[0] in IN_PLACE:
                count += self._count(part, chain)
        for keyword in _REFERENCES:
            if isinstance(reference := here.get(keyword), str):
                target = self._resources.follow(here, reference)
                count += 1 + self._count(target, (*chain, id(here)))
        if count > MOST_EXPANSIONS:
            refuse(
                f"its `$ref`s expand to more than {MOST_EXPANSIONS:,} schemas for one value"
            )
        self._counts[id(here)] = count
        return count


class _Resources:
    """Where references by anchor or address lead within a schema: each `$id` in it begins a resource of its own.

    What cannot be found here is refused, or else the validator might find it and expand what nobody has counted.
    """

    def __init__(self, root: Schema) -> None:
        self._at: dict[str, Schema] = {_HERE: root}
        self._base: dict[int, str] = {}
        waiting: list[tuple[Json, str]] = [(root, _HERE)]
        while waiting:
            here, base = waiting.pop()
            if not isinstance(here, dict):
                continue
            if isinstance(own := here.get("$id"), str):
                base = _join_uri(base, own).removesuffix("#")
                self._at.setdefault(base, here)
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := here.get(keyword), str):
                    self._at.setdefault(f"{base}#{name}", here)
            self._base[id(here)] = base
            waiting.extend((part, base) for _, part in children(here))

    def follow(self, here: Schema, reference: str) -> Json:
        """Return what a reference in `here` leads to; refuse one that leads out of the schema."""
        address = _join_uri(self._base.get(id(here), _HERE), reference)
        base, _, part = address.partition("#")
        if base.startswith(_META):
            return True  # the schema of schemas, which the validator has with it
        target: Json = self._at.get(base)
        if target is not None:
            if not part or part.startswith("/"):
                target = resolve_reference(target, f"#{part}")
            else:
                target = self._at.get(f"{base}#{unquote(part)}")
        if target is None:
            refuse(
                f"a `$ref` leads out of it, and nothing is fetched: {reference[:200]}. Put the target under `$defs`"
            )
        return target


def _join_uri(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


_HERE = "http://here.invalid/"
_META = ("https://json-schema.org/", "http://json-schema.org/")
_REFERENCES = ("$ref", "$dynamicRef")


def compile_schema(
    schema: Schema | bool,
    keywords: Mapping[str, Any] | None = None,
    *,
    may_backtrack: bool = True,
) -> jsonschema_rs.Validator:
    """Compile a schema as JSON Schema 2020-12, offline; formats are annotations.

    Patterns run on a linear engine. Where one needs look-around or a back-reference, all run on an engine that
    backtracks up to a limit, and a value that exceeds it does not match.

    Args:
        may_backtrack: False refuses such a pattern.

    Raises:
        ToolDefinitionError: It is no valid JSON Schema, or refers to something outside of it.
    """
    try:
        return _compile(schema, jsonschema_rs.RegexOptions(), keywords)
    except jsonschema_rs.ValidationError as error:
        is_pattern = isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Format)
        if not (is_pattern and may_backtrack):
            _raise_explained(error)
    try:
        return _compile(
            schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000), keywords
        )
    except jsonschema_rs.ValidationError as error:
        _raise_explained(error)


def _compile(
    schema: Schema | bool, patterns: Any, keywords: Mapping[str, Any] | None
) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.Draft202012Validator(
            schema,
            validate_formats=False,
            retriever=_refuse_retrieval,
            pattern_options=patterns,
            keywords=cast(Any, dict(keywords)) if keywords else None,
        )
    except (ValueError, TypeError) as error:
        if isinstance(error, jsonschema_rs.ValidationError):
            raise
        refuse(f"it is no JSON ({error})")


def _refuse_retrieval(uri: str) -> NoReturn:
    raise LookupError(f"{uri} is not fetched")


def _raise_explained(error: jsonschema_rs.ValidationError) -> NoReturn:
    place = "/".join(str(step) for step in error.instance_path) or "its root"
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
        refuse(
            f"a `$ref` leads out of it, and nothing is fetched: {error.message[:200]}. Put the target under `$defs`"
        )
    refuse(f"at {place[:200]}: {error.message[:200]}")


def refuse(reason: str) -> NoReturn:
    """Raise the ToolDefinitionError for a schema that cannot be used."""
    raise ToolDefinitionError(f"A schema cannot be used: {reason}.")
