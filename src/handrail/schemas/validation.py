"""Whether a call's arguments fit the tool's schema.

The usual call passes one compiled check. Only what fails it is looked at again: text that is exactly a value of the
wanted type is read as that value (`"6"` for an integer), and what is still wrong is reported field by field; see
`argument_errors`.

The schema is *closed* first: an object that lists its properties takes no others, so that a misspelt name is refused
and not silently dropped.

Rule 1: what is accepted is valid by the tool's own schema. Closing only refuses more, coercion only changes the value.
Rule 2: coercion is lossless and reported: text becomes a value that JSON writes as that text; nothing is wrapped or
        guessed.
Rule 3: an unknown name among the arguments is refused. Further inside it is refused when it is a near miss of a name
        that is described there, or when the schema says so itself: foreign schemas often list only examples.
Rule 4: whatever the arguments are, the answer is a verdict, never an exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind
from msgspec import Struct

from handrail._lazy import cached_property
from handrail.errors import Code, Failure, Json
from handrail.parsing import strictjson
from handrail.schemas import argument_errors, portability
from handrail.schemas.violations import (
    EvaluationBudget,
    Place,
    TooManyErrors,
    Violation,
    find_violations,
    value_at,
)
from handrail.schemas.walk import (
    IN_PLACE,
    Schema,
    check_size,
    compile_schema,
    map_subschemas,
    resolve_reference,
    schema_types,
    split_words,
    walk,
)

MOST_REPAIRS = 20
"""Repairs that are named; a long list written as text is one habit and not a thousand."""

MOST_ROUNDS = 4
"""How often coercion starts again, for text within text: a list as text, of integers as text."""


NULLS_LEFT_OUT = "nulls_left_out"
"""The repair of nulls that mean absent parameters. A strict mode demands them, so it is not reported to the model."""


class Checked(Struct):
    """Arguments that fit the schema, and what was done to make them fit, such as `text_to_integer:filters.limit`."""

    arguments: dict[str, Json]
    repairs: tuple[str, ...] = ()


class Checker:
    """A tool's schema, compiled when it is first needed.

    Args:
        coerce: Read text as a value of the wanted type where it is exactly that.
        closed: Refuse names that an object with `properties` does not list, also where the schema would let them pass.
    """

    def __init__(
        self, schema: Schema, *, coerce: bool = True, closed: bool = True
    ) -> None:
        self.schema = schema
        self.coerce = coerce
        self.closed = closed

    def check(self, arguments: dict[str, Json]) -> Checked | Failure:
        """Return the arguments as the tool should get them, or what is wrong with them.

        A float without a fraction becomes an int where the schema wants an integer: JSON Schema counts 3.0 as one.

        Raises:
            ToolDefinitionError: At the first check, when the schema itself cannot be used; see `compile`.
        """
        closed = self._validator
        try:
            if closed.is_valid(arguments) and (
                not self._is_subtle or self._original.is_valid(arguments)
            ):
                return Checked(self._restore_integers(arguments))
            return self._coerce_or_explain(arguments)
        except (ValueError, TypeError, RecursionError) as error:
            return _refuse_unreadable(error)

    def compile(self) -> None:
        """Compile now, so that a mistake in the schema is raised now.

        Raises:
            ToolDefinitionError: The schema is too large, or no valid JSON Schema.
        """
        _ = self._validator

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the compiled validators: a copy, or another process, compiles them again."""
        return {"schema": self.schema, "coerce": self.coerce, "closed": self.closed}

    def __repr__(self) -> str:
        names = ", ".join(self.schema.get("properties", {}))
        return f"<Checker of {names or 'no parameters'}>"

    # ------------------------------------------------------------------ compiled once

    @cached_property
    def _checked_schema(self) -> Schema:
        check_size(self.schema)
        if self.closed:
            return close_schema(self.schema)
        return self.schema

    @cached_property
    def _validator(self) -> jsonschema_rs.Validator:
        return compile_schema(self._checked_schema)

    @cached_property
    def _top_validator(self) -> jsonschema_rs.Validator:
        schema = self.schema
        if self.closed:
            schema = close_schema(schema, inside=False)
        return compile_schema(schema)

    @cached_property
    def _original(self) -> jsonschema_rs.Validator:
        return compile_schema(self.schema)

    @cached_property
    def _is_subtle(self) -> bool:
        """Whether closing might accept more: with one branch of a `oneOf` refused, another may be the only one."""
        return self.closed and any(part.keys() & _TURNING for part in walk(self.schema))

    @cached_property
    def _wants_integers(self) -> bool:
        return any("integer" in schema_types(part) for part in walk(self.schema))

    @cached_property
    def _exact(self) -> jsonschema_rs.Validator:
        """The schema with a mark at each place that takes integers and no other numbers; a float there is an error."""

        def mark(schema: Json) -> Any:
            if not isinstance(schema, dict):
                return schema
            types = schema_types(schema)
            marked = map_subschemas(schema, mark)
            if "integer" in types and "number" not in types:
                marked["x-exact"] = True
            return marked

        return compile_schema(mark(self.schema), keywords={"x-exact": _Exact})

    # ------------------------------------------------------------------ coercing and explaining

    def _coerce_or_explain(self, arguments: dict[str, Json]) -> Checked | Failure:
        repairs: list[str] = []
        try:
            arguments, errors = self._coerce(arguments, repairs)
        except TooManyErrors as first:
            return argument_errors.make_failure(argument_errors.explain_too_many(first))
        beyond = 0
        if not errors or self._fits_as_a_whole(arguments):
            wrong = argument_errors.find_misspelt_names(errors, self._checked_schema)
        else:
            wrong = argument_errors.explain_errors(errors, self._checked_schema)
            beyond = max(0, len(errors) - argument_errors.MOST_WORDED)
        if wrong:
            return argument_errors.make_failure(wrong, beyond=beyond)
        named = repairs[:MOST_REPAIRS]
        if len(repairs) > MOST_REPAIRS:
            named.append(f"and {len(repairs) - MOST_REPAIRS:,} more")
        return Checked(self._restore_integers(arguments), tuple(named))

    def _coerce(
        self, arguments: dict[str, Json], repairs: list[str]
    ) -> tuple[dict[str, Json], list[Violation]]:
        """Return the arguments, coerced and named in `repairs` where that is allowed, and what is wrong with them."""
        budget = EvaluationBudget()
        errors = self._find_errors(arguments, budget)
        if not self.coerce:
            return arguments, errors
        if any(error.instance is None for error in errors):
            # A provider's strict mode has no optional parameters: the model writes null for "left out".
            without = portability.from_openai_strict(self.schema, arguments)
            if without != arguments:
                arguments = without
                errors = self._find_errors(without, budget)
                repairs.append(NULLS_LEFT_OUT)
        for _ in range(MOST_ROUNDS):
            changes = dict(_find_coercions(errors))
            if not changes:
                break
            repairs.extend(
                f"text_to_{argument_errors.json_type(value)}:{argument_errors.format_path(at)}"
                for at, value in changes.items()
            )
            arguments = _replace_values(arguments, changes)
            errors = self._find_errors(arguments, budget)
        return arguments, errors

    def _find_errors(
        self, arguments: Json, budget: EvaluationBudget
    ) -> list[Violation]:
        try:
            return find_violations(
                self._validator, arguments, budget
            ) or find_violations(self._original, arguments, budget)
        except TooManyErrors:
            # only unknown names, too many to look for misspelt ones
            if self._fits_as_a_whole(arguments):
                return []
            raise

    def _fits_as_a_whole(self, arguments: Json) -> bool:
        return self._top_validator.is_valid(arguments) and self._original.is_valid(
            arguments
        )

    def _restore_integers(self, arguments: dict[str, Json]) -> dict[str, Json]:
        if not self._wants_integers or not _holds_whole_float(arguments):
            return arguments
        try:
            errors = find_violations(self._exact, arguments, EvaluationBudget())
        except TooManyErrors:
            # a float without a fraction is an integer by the standard
            return arguments
        places = [
            error.place
            for error in errors
            if error.sure and isinstance(error.kind, Kind.Custom)
        ]
        changed: dict[str, Json] = _replace_values(
            arguments, {place: int(value_at(arguments, place)) for place in places}
        )
        if self._original.is_valid(changed):
            return changed
        return arguments


class _Exact:
    """A keyword for jsonschema-rs that refuses floats."""

    def __init__(self, *_described: Any) -> None:
        pass

    def validate(self, instance: Json) -> None:
        if isinstance(instance, float):
            raise ValueError("a float")


def _refuse_unreadable(error: Exception) -> Failure:
    """Refuse what is no JSON value. A strict reader gives none of that; a program's own dict may."""
    reason = "they hold something that JSON cannot"
    if isinstance(error, RecursionError):
        reason = "they are nested too deep"
    return Failure(
        Code.INVALID_ARGUMENTS,
        f"The arguments cannot be read: {reason}.",
        "Call again with plain JSON: objects, lists, text, numbers, true, false and null.",
    )


# ---------------------------------------------------------------------- closing

_TURNING = split_words("oneOf not if contains unevaluatedProperties unevaluatedItems")
"""Keywords by which a schema may accept more where one within it accepts less."""
_SHUT = split_words("additionalProperties patternProperties unevaluatedProperties")
_DESCRIBING = split_words("properties patternProperties $ref $dynamicRef") | IN_PLACE
_ALTERNATIVES = split_words("anyOf oneOf")
_PARTS = split_words("allOf then else dependentSchemas")
_INSIDE = split_words(
    "properties patternProperties additionalProperties unevaluatedProperties"
) | split_words("items prefixItems contains unevaluatedItems")


def close_schema(schema: Schema, *, inside: bool = True) -> Schema:
    """Return the schema with each object that lists its properties closed; without `inside`, the top one only.

    An object is closed where its schema describes the whole value. A part of a combination (a branch of `allOf`, the
    target of a `$ref` with more beside it) is left open, and the whole is closed by `unevaluatedProperties`. Under
    `not` and `if` nothing changes, since refusing more there would accept more.
    """
    closing = _Closing(inside)
    # a definition found to be a part may make others parts; each round finds one, or is the last
    while True:
        count = len(closing.parts)
        result: Schema = closing.close_top(schema)
        if len(closing.parts) == count:
            return result


def _list_required(required: Json) -> list[str]:
    if not isinstance(required, list):
        return []
    return [name for name in required if isinstance(name, str)]


class _Closing:
    """One way of closing; `parts` are the references to definitions that describe only a part of some object."""

    def __init__(self, inside: bool) -> None:
        self.inside = inside
        self.parts: set[str] = set()

    def close_top(self, schema: Schema) -> Json:
        result = self.close_whole(schema)
        target: Json = None
        if isinstance(schema.get("$ref"), str):
            target = resolve_reference(schema, schema["$ref"])
        if (
            isinstance(target, dict)
            and "properties" in target
            and not schema.keys() & (_SHUT | {"properties"})
        ):
            result["unevaluatedProperties"] = False
        return result

    def close_whole(self, schema: Json) -> Any:
        """Close a schema that nothing else describes the same value with."""
        if not isinstance(schema, dict):
            return schema
        combined = len(schema.keys() & _DESCRIBING) > 1
        if combined:
            result = self._close_within(schema, self.close_part)
            self._note_part(schema)
            closing = "unevaluatedProperties"
        else:
            result = self._close_within(schema, self.close_whole)
            closing = "additionalProperties"
        if isinstance(schema.get("properties"), dict) and not schema.keys() & _SHUT:
            result[closing] = False
            # What is required is taken, also where nothing describes it: else no call could be right.
            required = dict.fromkeys(_list_required(schema.get("required")), True)
            result["properties"] = required | result["properties"]
        return result

    def close_part(self, schema: Json) -> Any:
        """Leave a schema open that describes a part of an object, and close what is inside."""
        if not isinstance(schema, dict):
            return schema
        self._note_part(schema)
        return self._close_within(schema, self.close_part)

    def _close_within(
        self, schema: Schema, alternative: Callable[[Json], Any]
    ) -> Schema:
        changed: Schema = {}
        for keyword, value in schema.items():
            if keyword in _ALTERNATIVES:
                value = map_subschemas({keyword: value}, alternative)[keyword]
            elif keyword in _PARTS:
                value = map_subschemas({keyword: value}, self.close_part)[keyword]
            elif keyword in _INSIDE and self.inside:
                value = map_subschemas({keyword: value}, self.close_whole)[keyword]
            elif (
                keyword in ("$defs", "definitions")
                and isinstance(value, dict)
                and self.inside
            ):
                value = {
                    name: self._close_definition(f"#/{keyword}/{name}", body)
                    for name, body in value.items()
                }
            changed[keyword] = value
        return changed

    def _note_part(self, schema: Schema) -> None:
        if isinstance(reference := schema.get("$ref"), str):
            self.parts.add(reference)

    def _close_definition(self, reference: str, body: Json) -> Any:
        """Close a definition, unless it is a part somewhere; a reference by anchor might mean any of them."""
        by_anchor = any(not part.startswith("#/") for part in self.parts)
        if by_anchor or reference in self.parts:
            return self.close_part(body)
        return self.close_whole(body)


# ---------------------------------------------------------------------- coercion


def coerce_text(text: str, schema: Schema) -> Json:
    """Read `text` as a value of one of the schema's types; text that is not exactly one stays text.

    Where the schema allows text and another type, the other type is preferred: this is for formats that write every
    value as text.

    >>> coerce_text("9223372036854775807", {"type": "number"}), coerce_text("inf", {"type": "number"})
    (9223372036854775807, 'inf')
    >>> coerce_text("42", {"type": ["integer", "string"]}), coerce_text("0", {"type": "boolean"})
    (42, False)
    """
    return _read_as(text, _find_types(schema))


def _read_as(text: str, types: Iterable[str]) -> Json:
    wanted = set(types)
    for name, read in _READERS.items():
        if name in wanted:
            value = read(text.strip())
            if value is not _NO:
                return value
    return text


_NO: Any = object()
_NUMBER = re.compile(
    r"[+-]?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<power>[eE][+-]?[0-9]{1,4})?"
)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _read_null(text: str) -> Json:
    return None if text.lower() == "null" else _NO


def _read_number(text: str) -> Json:
    if len(text) > strictjson.MAX_DIGITS:
        return _NO
    match = _NUMBER.fullmatch(text)
    if not match:
        return _NO
    if not match["fraction"] and not match["power"]:
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else _NO


def _read_integer(text: str) -> Json:
    value = _read_number(text)
    if not isinstance(value, float):
        return value
    # beyond 2^53, a float is not that integer
    exact = value.is_integer() and abs(value) < 2**53
    return int(value) if exact else _NO


def _read_boolean(text: str) -> Json:
    return _BOOLEANS.get(text.lower(), _NO)


def _read_container(kind: type) -> Callable[[str], Json]:
    def read(text: str) -> Json:
        try:
            value = strictjson.loads(text)
        except strictjson.NotJson:
            return _NO
        return value if isinstance(value, kind) else _NO

    return read


# in the order in which a list of types is tried
_READERS: Mapping[str, Callable[[str], Json]] = {
    "null": _read_null,
    "integer": _read_integer,
    "number": _read_number,
    "boolean": _read_boolean,
    "object": _read_container(dict),
    "array": _read_container(list),
}


def _find_types(schema: Schema) -> list[str]:
    """Return the types that a schema allows, as far as it says: by `type`, else by its values, else by its branches."""
    if types := schema_types(schema):
        return types
    values = schema.get("enum")
    if not values and "const" in schema:
        values = [schema["const"]]
    if values:
        return [argument_errors.json_type(value) for value in values]
    for word in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(word, ()):
            if isinstance(branch, dict):
                types += _find_types(branch)
    return types


def _find_coercions(errors: Iterable[Violation]) -> Iterator[tuple[Place, Json]]:
    """Yield place and value wherever text was sent, another type is wanted, and the text is exactly a value of it."""
    for error in errors:
        if not isinstance(error.instance, str):
            yield from _find_coercions(argument_errors.choose_branch(error))
        elif error.sure:
            types = argument_errors.list_expected_types(error)
            if "string" in types:
                continue
            value = _read_as(error.instance, types)
            if not isinstance(value, str):
                yield error.place, value


# ---------------------------------------------------------------------- values and places


def _replace_values(arguments: Json, changes: Mapping[Place, Json]) -> Any:
    """Return the arguments with the values at some places changed; the caller's are left as they were."""
    copied = _copy(arguments)
    for place, value in changes.items():
        if not place:
            return value
        value_at(copied, place[:-1])[place[-1]] = value
    return copied


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_copy(part) for part in value]
    return value


def _holds_whole_float(value: Json) -> bool:
    if isinstance(value, dict):
        parts: Iterable[Json] = value.values()
    elif isinstance(value, list):
        parts = value
    else:
        return False
    for part in parts:
        kind = type(part)
        if kind is float:
            if part.is_integer():
                return True
        elif (kind is dict or kind is list) and _holds_whole_float(part):
            return True
    return False
