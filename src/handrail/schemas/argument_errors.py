"""What is wrong with a call's arguments, worded for the model that wrote them.

An `ArgumentError` is one thing wrong at one place. `explain_errors` finds them in the errors of a compiled
schema, by their kind and path and never by their text; `make_failure` reports the first few as one `Failure`, with what
to do next.

Rule 1: the text is bounded whatever the arguments were: values, names and lists are cut before they are written.
Rule 2: the text can always be encoded: a lone surrogate from the model is shown as `?`.
Rule 3: a misspelt name is one fault, although a schema sees two: a name too many and a name too few.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from jsonschema_rs import ValidationErrorKind as Kind
from msgspec import Struct

from handrail import _lazy
from handrail.errors import Code, Failure, Json
from handrail.parsing.names import nearest
from handrail.schemas.violations import TooManyErrors, Violation
from handrail.schemas.walk import Schema, resolve_reference, schema_types

if TYPE_CHECKING:
    from handrail import guards
else:
    guards = _lazy.module("handrail.guards")

MOST_FAULTS = 8
"""Faults reported at once. A model corrects a handful in one go; a longer list buries the first."""

MOST_WORDED = 200
"""How many errors are put into words, to choose the distinct ones from."""

MOST_CHARACTERS = 2_000
"""Characters of all faults together; the first is reported in any case."""

MOST_LISTED = 12
"""Names or allowed values listed in one sentence."""

MOST_SHOWN = 60
"""Characters of a wrong value that are shown."""

MOST_QUOTED = 200
"""How many characters of the validator's own message are shown, if there is no better one."""

MOST_STEPS = 20
"""Steps of a path that are spelled."""

MOST_EXPLAINED = 80
"""Characters of a parameter's description that are repeated to a model that left it out."""

JsonPath: TypeAlias = Sequence[str | int]


class ArgumentError(Struct, frozen=True):
    """One thing wrong: where, what (a full sentence), and what to do about it (a clause: `add ...`, `set ...`).

    `kind` is `missing`, `unknown`, `misspelt`, or the keyword of the schema that was broken. `expected` says in a few
    words what would be right; empty if no few words say it.
    """

    field: str
    kind: str
    message: str
    advice: str = ""
    expected: str = ""

    def as_json(self) -> dict[str, Json]:
        """Return the entry of `Failure.details`."""
        entry = {"field": self.field, "kind": self.kind, "message": self.message}
        if self.expected:
            entry["expected"] = self.expected
        return entry


def make_failure(errors: Iterable[ArgumentError], *, beyond: int = 0) -> Failure:
    """Report errors as one failure: the first `MOST_FAULTS`, and how many more there are.

    Args:
        beyond: How many more errors there are that were not put into words.
    """
    distinct = list({error.message: error for error in errors}.values())
    listed = _select_listed(distinct)
    message = " ".join(error.message for error in listed)
    unlisted = len(distinct) - len(listed) + beyond
    if unlisted > 0:
        noun = "fault is" if unlisted == 1 else "faults are"
        message += f" {unlisted} more {noun} not listed."
    return Failure(
        Code.INVALID_ARGUMENTS,
        message,
        _suggest_changes(listed),
        retryable=False,
        details=tuple(error.as_json() for error in listed),
    )


def _select_listed(errors: Sequence[ArgumentError]) -> Sequence[ArgumentError]:
    """Return the first errors that are few and short enough to list; the first one in any case."""
    characters = 0
    for i, error in enumerate(errors[:MOST_FAULTS]):
        characters += len(error.message)
        if i and characters > MOST_CHARACTERS:
            return errors[:i]
    return errors[:MOST_FAULTS]


def _suggest_changes(errors: Iterable[ArgumentError]) -> str:
    advice = list(dict.fromkeys(error.advice for error in errors if error.advice))
    if not advice:
        return "Call again with corrected arguments."
    return f"Call again with this changed: {'; '.join(advice)}."


# ---------------------------------------------------------------------- names, places and values in a sentence


def format_path(place: JsonPath) -> str:
    """Write a place as a model would; the arguments as a whole are the empty text.

    >>> format_path(["items", 2, "id"]), format_path(["a.b", "c"])
    ('items[2].id', '["a.b"].c')
    """
    path = ""
    for step in place[:MOST_STEPS]:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step or len(step) > MOST_SHOWN or _UNPLAIN & set(step):
            path += f"[{format_value(step)}]"
        elif path:
            path += f".{step}"
        else:
            path = step
    if len(place) > MOST_STEPS:
        path += "..."
    return replace_surrogates(path)


_UNPLAIN = frozenset(".[]\"'` \t\r\n")


def name_path(place: JsonPath) -> str:
    """Name a place within a sentence."""
    return f"`{format_path(place)}`" if place else "the arguments"


def format_value(value: Json, most: int = MOST_SHOWN) -> str:
    """Show a value short enough for a sentence: text and numbers as JSON, containers by their size."""
    if isinstance(value, str):
        text = json.dumps(shorten(value, most), ensure_ascii=False)
        return replace_surrogates(text)
    if isinstance(value, dict):
        return _format_size("an", "object", len(value), "key")
    if isinstance(value, list):
        return _format_size("a", "list", len(value), "item")
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    # beyond 4,300 digits Python refuses to write one
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of about {int(value.bit_length() * math.log10(2)):,} digits"
    return str(value)[:most]


def _format_size(article: str, noun: str, count: int, unit: str) -> str:
    if not count:
        return f"an empty {noun}"
    plural = "" if count == 1 else "s"
    return f"{article} {noun} of {count:,} {unit}{plural}"


def shorten(text: str, most: int) -> str:
    """Return a text of at most this many characters, with an ellipsis where it was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def list_values(values: Sequence[Json]) -> str:
    """List the first `MOST_LISTED` values, and say how many more there are."""
    return _append_rest(
        [format_value(value) for value in values[:MOST_LISTED]], len(values)
    )


def list_names(names: Sequence[str], within: JsonPath = ()) -> str:
    """List the first `MOST_LISTED` names in backticks, and say how many more there are."""
    return _append_rest(
        [name_path([*within, name]) for name in names[:MOST_LISTED]], len(names)
    )


def _append_rest(some: Sequence[str], total: int) -> str:
    text = ", ".join(some)
    if total > len(some):
        text += f" and {total - len(some):,} more"
    return text


def replace_surrogates(text: str) -> str:
    """Return the text with what UTF-8 cannot encode replaced."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def capitalize(text: str) -> str:
    """Begin with a capital letter, unless a name in backticks comes first."""
    return text[:1].upper() + text[1:]


def _join_by_or(words: Iterable[str]) -> str:
    every = list(dict.fromkeys(words))
    return " or ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


_NOUNS = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def _list_types(types: Iterable[str]) -> str:
    return _join_by_or(_NOUNS.get(name, name) for name in types)


# ---------------------------------------------------------------------- from the errors of a schema


def explain_errors(errors: Iterable[Violation], schema: Schema) -> list[ArgumentError]:
    """Return what is wrong by the compiled `schema`: names first, since a wrong name explains the rest.

    Errors always give at least one fault: if no sentence here fits, the validator's own message is used.
    """
    flat = list(_resolve_unions(errors))
    objects = _group_by_object(flat)
    names = [
        fault
        for place in sorted(objects, key=_depth_order)[: MOST_FAULTS + 1]
        for fault in _explain_names(place, objects[place], schema)
    ]
    faults = names + _explain_values(flat)
    return faults or [_quote_validator(error) for error in flat[:MOST_WORDED]]


def _group_by_object(
    errors: Iterable[Violation],
) -> dict[tuple[str | int, ...], list[Violation]]:
    """Return the errors about names by the place of the object that they are about."""
    objects: dict[tuple[str | int, ...], list[Violation]] = {}
    for error in errors:
        if _is_about_names(error):
            objects.setdefault(error.place, []).append(error)
    return objects


def _explain_values(errors: Sequence[Violation]) -> list[ArgumentError]:
    listed_at = {
        error.place
        for error in errors
        if isinstance(error.kind, Kind.Enum | Kind.Constant)
    }
    return [
        _explain_value(error)
        for error in errors[:MOST_WORDED]
        if not _is_about_names(error)
        # the list of allowed values says more than the type
        and not (isinstance(error.kind, Kind.Type) and error.place in listed_at)
    ]


def _quote_validator(error: Violation) -> ArgumentError:
    """Return the fault of an error that no other sentence fits, such as a name that only some branches allow.

    The validator's message is used, cut short, since it contains names of the schema and of the call.
    """
    place = name_path(error.place)
    reason = _shorten_message(error.error.message)
    return ArgumentError(
        format_path(error.place),
        error.kind.name,
        f"The schema as a whole refuses {place}: {reason}.",
        advice=f"change {place} to what the schema allows",
    )


def _shorten_message(message: str) -> str:
    return replace_surrogates(shorten(message, MOST_QUOTED))


def explain_too_many(first: TooManyErrors) -> list[ArgumentError]:
    """Return the only fault reported for a call with too many errors to examine."""
    place = name_path(first.place)
    reason = _shorten_message(first.words)
    message = f"Very much is wrong with the arguments, and only the first fault is reported. At {place}: {reason}."
    return [
        ArgumentError(
            format_path(first.place),
            "too_many",
            message,
            advice=f"correct {place} and all that is wrong in the same way",
        )
    ]


def find_misspelt_names(
    errors: Iterable[Violation], schema: Schema
) -> list[ArgumentError]:
    """Return those faults of `errors` that are misspelt names."""
    return [
        fault for fault in explain_errors(errors, schema) if fault.kind == "misspelt"
    ]


def choose_branch(error: Violation) -> Sequence[Violation]:
    """Return the errors of the branch that was likely meant: of the right type, with the right tag, then the fewest."""

    def distance(branch: Sequence[Violation]) -> tuple[bool, bool, int]:
        of_tag = any(isinstance(e.kind, Kind.Constant | Kind.Enum) for e in branch)
        return _is_of_other_type(branch, error), of_tag, len(branch)

    return min(error.branches, key=distance, default=[])


def list_expected_types(error: Violation) -> list[str]:
    """Return the types wanted at the place of an error that is about the type; empty for other errors."""
    kind = error.kind
    if isinstance(kind, Kind.Type):
        return list(kind.types)
    if isinstance(kind, Kind.Enum | Kind.Constant):
        return [json_type(value) for value in _list_allowed(kind)]
    types: list[str] = []
    for branch in error.branches:
        here = [each for each in branch if each.place == error.place]
        if not here:
            return []
        for each in here:
            types += list_expected_types(each)
    return types


_TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def json_type(value: Json) -> str:
    """Return JSON Schema's name for the type of a value."""
    return _TYPES.get(type(value), "null")


def _list_allowed(kind: Any) -> list[Json]:
    if isinstance(kind, Kind.Enum):
        return list(kind.options)
    return [kind.expected_value]


def _is_about_names(error: Violation) -> bool:
    return isinstance(
        error.kind,
        Kind.Required | Kind.AdditionalProperties | Kind.UnevaluatedProperties,
    )


def _depth_order(place: JsonPath) -> tuple[int, str]:
    return len(place), str(place)


def _is_of_other_type(branch: Sequence[Violation], union: Violation) -> bool:
    return any(isinstance(e.kind, Kind.Type) and e.place == union.place for e in branch)


def _resolve_unions(errors: Iterable[Violation]) -> Iterator[Violation]:
    """Replace the failure of a union by what is wrong with its best branch, where one is of the right type."""
    for error in errors:
        best = choose_branch(error)
        if best and not _is_of_other_type(best, error) and not _find_tag_errors(error):
            yield from _resolve_unions(best)
        else:
            yield error


def _find_tag_errors(union: Violation) -> list[Violation]:
    """Return the errors of the tag that tells the branches apart, one for each, where its value fits no branch."""
    of_type = [
        branch for branch in union.branches if not _is_of_other_type(branch, union)
    ]
    tags = [_find_tag_error(branch) for branch in of_type]
    errors = [error for error in tags if error is not None]
    if len(errors) < 2 or len(errors) < len(of_type):
        return []
    if len({error.place for error in errors}) > 1:
        return []
    return errors


def _find_tag_error(branch: Iterable[Violation]) -> Violation | None:
    for error in branch:
        if isinstance(error.kind, Kind.Constant | Kind.Enum):
            return error
    return None


# ---------------------------------------------------------------------- names


def _explain_names(
    place: tuple[str | int, ...], errors: Sequence[Violation], schema: Schema
) -> Iterator[ArgumentError]:
    """Word the errors about the names in one object, pairing unknown ones with those that they may have meant."""
    described: dict[str, Json] = {}
    for error in errors:
        described.update(_collect_properties(schema, error.error.schema_path))
    arguments = errors[0].instance if isinstance(errors[0].instance, dict) else {}
    missing = _list_missing(errors)
    taken = arguments.keys() | set(missing)
    optional = [name for name in described if name not in taken]
    unknown = [name for name in _list_unexpected(errors) if name not in described]
    pairs = _pair_names(
        unknown[: 2 * MOST_FAULTS],
        missing,
        optional,
        may_mean=lambda name, meant: _may_be(arguments[name], described[meant]),
    )
    for name, meant in pairs.items():
        yield _explain_misspelt(place, name, meant, needed=meant in missing)
    unpaired = [name for name in unknown if name not in pairs]
    if unpaired:
        yield _explain_unknown(place, unpaired, list(described))
    left_out = [name for name in missing if name not in pairs.values()]
    for name in left_out[: 2 * MOST_FAULTS]:
        yield _explain_missing([*place, name], described.get(name))


def _pair_names(
    unknown: Iterable[str],
    missing: Iterable[str],
    optional: Iterable[str],
    *,
    may_mean: Callable[[str, str], bool],
) -> dict[str, str]:
    """Return the parameter that each unknown name may have meant; no parameter is meant twice.

    Args:
        may_mean: Whether the value under an unknown name fits a parameter.
    """
    pairs: dict[str, str] = {}
    missing = list(missing)
    optional = list(optional)
    for name in unknown:
        meant = next(iter(nearest(name, [*missing, *optional], most=1)), None)
        if meant is None:
            continue
        if meant in missing:
            missing.remove(meant)
        elif missing and not may_mean(name, meant):
            # An optional parameter of another type is near by chance when it is a required one that was meant.
            continue
        else:
            optional.remove(meant)
        pairs[name] = meant
    return pairs


def _list_missing(errors: Iterable[Violation]) -> list[str]:
    names = (
        error.kind.property for error in errors if isinstance(error.kind, Kind.Required)
    )
    return list(dict.fromkeys(names))


def _list_unexpected(errors: Iterable[Violation]) -> list[str]:
    names = (
        name
        for error in errors
        if isinstance(
            error.kind, Kind.AdditionalProperties | Kind.UnevaluatedProperties
        )
        for name in error.kind.unexpected
    )
    return list(dict.fromkeys(names))


def _may_be(value: Json, schema: Json) -> bool:
    types = schema_types(schema) if isinstance(schema, dict) else []
    if not types or json_type(value) in types:
        return True
    return type(value) is int and "number" in types


def _explain_misspelt(
    place: JsonPath, name: str, meant: str, *, needed: bool
) -> ArgumentError:
    wrong = name_path([*place, name])
    right = name_path([*place, meant])
    if needed:
        message = f"{wrong} is not a parameter, and {right} is required but missing: did you mean {right}?"
    else:
        message = f"{wrong} is not a parameter: did you mean {right}?"
    return ArgumentError(
        format_path([*place, meant]),
        "misspelt",
        message,
        advice=f"rename {wrong} to {right}",
        expected=f"the name {right}",
    )


def _explain_unknown(
    place: JsonPath, names: Sequence[str], described: Sequence[str]
) -> ArgumentError:
    wrong = list_names(names, place)
    owner = name_path(place) if place else "the tool"
    takes = list_names(described) if described else "none"
    are_none = "is not a parameter" if len(names) == 1 else "are no parameters"
    return ArgumentError(
        format_path([*place, names[0]]),
        "unknown",
        f"{wrong} {are_none}; {owner} takes {takes}.",
        advice=f"leave out {wrong}",
    )


def _explain_missing(place: JsonPath, schema: Json) -> ArgumentError:
    wanted = _describe_parameter(schema) if isinstance(schema, dict) else ""
    advice = f"add {name_path(place)}"
    if wanted:
        advice += f" ({wanted})"
    return ArgumentError(
        format_path(place),
        "missing",
        f"{name_path(place)} is required.",
        advice=advice,
        expected=wanted,
    )


def _describe_parameter(schema: Schema) -> str:
    """Say in a few words what a parameter takes: its allowed values or type, and the start of its description."""
    enum = schema.get("enum")
    if isinstance(enum, list) and enum:
        kind = f"one of {list_values(enum)}"
    else:
        kind = _list_types(schema_types(schema))
    text = schema.get("description")
    about = " ".join(text.split()).rstrip(".。") if isinstance(text, str) else ""
    parts = (kind, shorten(about, MOST_EXPLAINED))
    return replace_surrogates(": ".join(filter(None, parts)))


def _collect_properties(schema: Schema, schema_path: JsonPath) -> dict[str, Json]:
    """Return the properties described by the schema that holds a keyword, through its branches and references."""
    here: Json = schema
    for step in schema_path[:-1]:
        here = _get_part(here, step)
    collected: dict[str, Json] = {}
    # a union of more branches than this is not worth spelling
    waiting = [here]
    budget = 200
    while waiting and budget:
        part = waiting.pop()
        budget -= 1
        if not isinstance(part, dict):
            continue
        properties = part.get("properties")
        if isinstance(properties, dict):
            collected.update(properties)
        waiting += _list_branches(part)
        if isinstance(reference := part.get("$ref"), str):
            waiting.append(resolve_reference(schema, reference))
    return collected


def _list_branches(schema: Schema) -> list[Json]:
    branches: list[Json] = []
    for word in ("allOf", "anyOf", "oneOf"):
        branches.extend(schema.get(word) or ())
    branches.extend(schema[word] for word in ("then", "else") if word in schema)
    branches.extend(schema.get("dependentSchemas", {}).values())
    return branches


def _get_part(schema: Json, step: str | int) -> Json:
    """Return a part of a schema. A path has a numeric name as a number, and omits an empty name."""
    if isinstance(schema, dict):
        return schema.get(str(step))
    if isinstance(schema, list) and isinstance(step, int) and step < len(schema):
        return schema[step]
    return None


# ---------------------------------------------------------------------- values


def _explain_value(error: Violation) -> ArgumentError:
    """Word an error about a value: what it must be, and what it was."""
    if tags := _find_tag_errors(error):
        options = [value for tag in tags for value in _list_allowed(tag.kind)]
        return _explain_choice(tags[0].place, options, tags[0].instance)
    if isinstance(error.kind, Kind.Enum):
        return _explain_choice(error.place, error.kind.options, error.instance)
    place = name_path(error.place)
    if isinstance(error.kind, Kind.FalseSchema):
        return ArgumentError(
            format_path(error.place),
            "unknown",
            capitalize(f"{place} is not allowed."),
            advice=f"leave out {place}",
        )
    must, was = _find_requirement(error)
    expected = must.removeprefix("be ")
    if not was:
        was = "was " + format_value(error.instance)
    return ArgumentError(
        format_path(error.place),
        error.kind.name,
        capitalize(f"{place} must {must}; it {was}."),
        advice=f"make {place} {expected}",
        expected=expected,
    )


def _explain_choice(
    path: JsonPath, options: Sequence[Json], was: Json
) -> ArgumentError:
    """Word a value that is none of those allowed, and name the nearest."""
    place = name_path(path)
    allowed = f"one of {list_values(options)}"
    message = capitalize(f"{place} must be {allowed}; it was {format_value(was)}.")
    wanted = allowed
    near = _find_nearest(was, options)
    if near is not None:
        wanted = format_value(near)
        message += f" Did you mean {wanted}?"
    return ArgumentError(
        format_path(path),
        "enum",
        message,
        advice=f"set {place} to {wanted}",
        expected=allowed,
    )


def _find_nearest(value: Json, options: Sequence[Json]) -> str | None:
    if not isinstance(value, str):
        return None
    texts = [option for option in options if isinstance(option, str)]
    return next(iter(nearest(value, texts, most=1)), None)


_Words: TypeAlias = tuple[str, str]
"""What the value must do, and what it was where showing the value would not say it."""


def _find_requirement(error: Violation) -> _Words:
    for kind, words in _REQUIREMENTS.items():
        if isinstance(error.kind, kind):
            return words(error)
    return "fit its schema", ""


def _require_bound(text: str) -> Callable[[Violation], _Words]:
    return lambda error: (text.format(format_value(error.kind.value)), "")


def _require_size(text: str, unit: str) -> Callable[[Any], _Words]:
    return lambda error: (
        text.format(error.kind.limit),
        f"has {len(error.instance):,} {unit}",
    )


def _require_text(must: str, was: str = "") -> Callable[[Violation], _Words]:
    return lambda _error: (must, was)


def _require_type(error: Any) -> _Words:
    was = format_value(error.instance)
    if isinstance(error.instance, str):
        was = "the text " + was
    return f"be {_list_types(error.kind.types)}", "was " + was


def _require_pattern(error: Any) -> _Words:
    pattern = error.kind.pattern
    return guards.must(pattern) or f"match the pattern {format_value(pattern)}", ""


def _require_union(error: Violation) -> _Words:
    types = list_expected_types(error)
    must = f"be {_list_types(types)}" if types else "fit one of its alternatives"
    return must, ""


_REQUIREMENTS: Mapping[Any, Callable[[Any], _Words]] = {
    Kind.Type: _require_type,
    Kind.Constant: _require_bound("be {}"),
    Kind.Minimum: _require_bound("be at least {}"),
    Kind.Maximum: _require_bound("be at most {}"),
    Kind.ExclusiveMinimum: _require_bound("be more than {}"),
    Kind.ExclusiveMaximum: _require_bound("be less than {}"),
    Kind.MultipleOf: _require_bound("be a multiple of {}"),
    Kind.Pattern: _require_pattern,
    Kind.Format: _require_bound("have the format {}"),
    Kind.MinLength: _require_size("have at least {:,} characters", "characters"),
    Kind.MaxLength: _require_size("have at most {:,} characters", "characters"),
    Kind.MinItems: _require_size("have at least {:,} items", "items"),
    Kind.MaxItems: _require_size("have at most {:,} items", "items"),
    Kind.MinProperties: _require_size("have at least {:,} keys", "keys"),
    Kind.MaxProperties: _require_size("have at most {:,} keys", "keys"),
    Kind.UniqueItems: _require_text("hold each item only once", "holds one twice"),
    Kind.Contains: _require_text("hold the items that its schema asks for"),
    Kind.Not: _require_text("be something that its schema does not exclude"),
    Kind.AnyOf: _require_union,
    Kind.OneOfNotValid: _require_union,
    Kind.OneOfMultipleValid: _require_text(
        "fit only one of its alternatives", "fits several"
    ),
    Kind.PropertyNames: _require_text(
        "have keys of the form that its schema asks for", "has another"
    ),
}
