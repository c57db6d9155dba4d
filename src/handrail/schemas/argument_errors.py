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
from itertools import islice
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
"""Faults told at once. A model mends a handful in one go; a longer list buries the first."""

MOST_WORDED = 200
"""How many errors are put into words, to choose the distinct ones from."""

MOST_TOLD = 2_000
"""Characters of all faults together; the first is told in any case."""

MOST_LISTED = 12
"""Names or allowed values listed in one sentence."""

MOST_SHOWN = 60
"""Characters of a wrong value that are shown."""

MOST_SAID = 200
"""How many characters of the validator's own message are shown, if there is no better one."""

MOST_STEPS = 20
"""Steps of a path that are spelled."""

MOST_EXPLAINED = 80
"""Characters of a parameter's description that are repeated to a model that left it out."""

JsonPath: TypeAlias = Sequence[str | int]


class ArgumentError(Struct, frozen=True):
    """One thing wrong: where, what (a full sentence), and what to do about it (a clause: `add ...`, `set ...`).

    `kind` is `missing`, `unknown`, `misspelt`, or the keyword of the schema that was broken. `expected` says in a few
    words what would be right, where that is known.
    """

    field: str
    kind: str
    message: str
    advice: str = ""
    expected: str = ""

    def as_json(self) -> dict[str, Json]:
        """Return the entry of `Failure.details`."""
        told = {"field": self.field, "kind": self.kind, "message": self.message}
        return {**told, "expected": self.expected} if self.expected else told


def make_failure(found: Iterable[ArgumentError], *, beyond: int = 0) -> Failure:
    """Tell the faults as one failure: the first `MOST_FAULTS`, and how many more there are.

    Args:
        beyond: How many more faults there are that were not put into words.
    """
    faults = list({fault.message: fault for fault in found}.values())
    told = [
        fault
        for i, fault in enumerate(faults[:MOST_FAULTS])
        if i == 0 or _count_characters(faults[: i + 1]) <= MOST_TOLD
    ]
    untold = len(faults) - len(told) + beyond
    message = " ".join(fault.message for fault in told)
    if untold > 0:
        message += (
            f" {untold} more {'fault is' if untold == 1 else 'faults are'} not listed."
        )
    advice = list(dict.fromkeys(fault.advice for fault in told if fault.advice))
    return Failure(
        Code.INVALID_ARGUMENTS,
        message,
        f"Call again with this changed: {'; '.join(advice)}."
        if advice
        else "Call again with corrected arguments.",
        retryable=False,
        details=tuple(fault.as_json() for fault in told),
    )


def _count_characters(faults: Sequence[ArgumentError]) -> int:
    return sum(len(fault.message) for fault in faults)


# ---------------------------------------------------------------------- names, places and values in a sentence


def format_path(place: JsonPath) -> str:
    """Spell a place as a model would write it; the arguments as a whole are the empty text.

    >>> field_of(["items", 2, "id"]), field_of(["a.b", "c"])
    ('items[2].id', '["a.b"].c')
    """
    spelled = ""
    for step in place[:MOST_STEPS]:
        if isinstance(step, int):
            spelled += f"[{step}]"
        elif step and len(step) <= MOST_SHOWN and not _UNPLAIN & set(step):
            spelled += f".{step}" if spelled else step
        else:
            spelled += f"[{format_value(step)}]"
    return replace_surrogates(spelled + ("..." if len(place) > MOST_STEPS else ""))


_UNPLAIN = frozenset(".[]\"'` \t\r\n")


def name_path(place: JsonPath) -> str:
    """Name a place within a sentence."""
    return f"`{format_path(place)}`" if place else "the arguments"


def format_value(value: Json, most: int = MOST_SHOWN) -> str:
    """Show a value short enough for a sentence: text and numbers as JSON, containers by their size."""
    if isinstance(value, str):
        return replace_surrogates(
            json.dumps(
                value if len(value) <= most else value[: most - 1] + "…",
                ensure_ascii=False,
            )
        )
    if isinstance(value, dict | list):
        noun, unit = ("object", "key") if isinstance(value, dict) else ("list", "item")
        article = "an" if noun == "object" else "a"
        return (
            f"{article} {noun} of {len(value):,} {unit}{'' if len(value) == 1 else 's'}"
            if value
            else f"an empty {noun}"
        )
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    # beyond 4,300 digits Python refuses to write one
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of about {int(value.bit_length() * math.log10(2)):,} digits"
    return str(value)[:most]


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
    return ", ".join(some) + (
        f" and {total - len(some):,} more" if total > len(some) else ""
    )


def replace_surrogates(text: str) -> str:
    """Return the text with what UTF-8 cannot encode replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def capitalize(text: str) -> str:
    """Begin with a capital letter, unless a name in backticks stands first."""
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
    objects = sorted(
        {error.place for error in flat if _is_about_names(error)}, key=_depth_order
    )
    names = [
        fault
        for place in islice(objects, MOST_FAULTS + 1)
        for fault in _explain_names(place, flat, schema)
    ]
    listed_at = {
        error.place
        for error in flat
        if isinstance(error.kind, Kind.Enum | Kind.Constant)
    }
    values = [
        _explain_value(error)
        for error in flat[:MOST_WORDED]
        if not _is_about_names(error)
        # the list says more
        and not (isinstance(error.kind, Kind.Type) and error.place in listed_at)
    ]
    return names + values or [_quote_validator(error) for error in flat[:MOST_WORDED]]


def _quote_validator(error: Violation) -> ArgumentError:
    """Return the fault of an error that no other sentence fits, such as a name that only some branches allow.

    The validator's message is used, cut short, since it contains names of the schema and of the call.
    """
    place = name_path(error.place)
    said = _shorten(error.error.message)
    message = f"The schema as a whole refuses {place}: {said}."
    return ArgumentError(
        format_path(error.place),
        error.kind.name,
        message,
        f"change {place} to what the schema allows",
    )


def _shorten(said: str) -> str:
    return replace_surrogates(
        said if len(said) <= MOST_SAID else said[: MOST_SAID - 1] + "…"
    )


def explain_too_many(first: TooManyErrors) -> list[ArgumentError]:
    """Return the only fault reported for a call with too many errors to examine."""
    place = name_path(first.place)
    said = _shorten(first.words)
    message = f"Very much is wrong with the arguments, and only the first fault is told. At {place}: {said}."
    return [
        ArgumentError(
            format_path(first.place),
            "too_many",
            message,
            f"correct {place} and all that is wrong in the same way",
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


def expected_types(error: Violation) -> list[str]:
    """Return the types wanted at the place of an error that is about the type; empty for other errors."""
    kind = error.kind
    if isinstance(kind, Kind.Type):
        return list(kind.types)
    if isinstance(kind, Kind.Enum | Kind.Constant):
        return [json_type(value) for value in _allowed_values(kind)]
    branches = error.branches
    here = [
        [found for found in branch if found.place == error.place] for branch in branches
    ]
    return (
        [name for branch in here for found in branch for name in expected_types(found)]
        if all(here)
        else []
    )


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


def _allowed_values(kind: Any) -> list[Json]:
    return list(kind.options) if isinstance(kind, Kind.Enum) else [kind.expected_value]


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
        if best and not _is_of_other_type(best, error) and not _tag_errors(error):
            yield from _resolve_unions(best)
        else:
            yield error


def _tag_errors(union: Violation) -> list[Violation]:
    """Return the errors of the tag that tells the branches apart, one for each, where its value fits no branch."""
    of_type = [
        branch for branch in union.branches if not _is_of_other_type(branch, union)
    ]
    tags = [
        [e for e in branch if isinstance(e.kind, Kind.Constant | Kind.Enum)]
        for branch in of_type
    ]
    first = [branch[0] for branch in tags if branch]
    alike = len({error.place for error in first}) == 1 and len(first) == len(of_type)
    return first if alike and len(first) > 1 else []


# ---------------------------------------------------------------------- names


def _explain_names(
    place: tuple[str | int, ...], errors: Sequence[Violation], schema: Schema
) -> Iterator[ArgumentError]:
    """Pair the unknown names of one object with the names that they may have meant."""
    here = [
        error for error in errors if error.place == place and _is_about_names(error)
    ]
    known: dict[str, Json] = {}
    for error in here:
        known.update(_collect_properties(schema, error.error.schema_path))
    missing = list(
        dict.fromkeys(
            e.kind.property for e in here if isinstance(e.kind, Kind.Required)
        )
    )
    extra = (
        e.kind.unexpected
        for e in here
        if isinstance(e.kind, Kind.AdditionalProperties | Kind.UnevaluatedProperties)
    )
    unknown = [
        name
        for name in dict.fromkeys(name for names in extra for name in names)
        if name not in known
    ]
    given = here[0].instance if isinstance(here[0].instance, dict) else {}
    free = [name for name in known if name not in given and name not in missing]
    strange: list[str] = []
    for name in unknown[: 2 * MOST_FAULTS]:
        meant = nearest(name, [*missing, *free], most=1)
        # An optional parameter of another type is near by chance when it is a required one that was meant.
        if meant and not (
            missing and meant[0] in free and not _may_be(given[name], known[meant[0]])
        ):
            yield _explain_misspelt(place, name, meant[0], needed=meant[0] in missing)
            (missing if meant[0] in missing else free).remove(meant[0])
        else:
            strange.append(name)
    if strange := [*strange, *unknown[2 * MOST_FAULTS :]]:
        yield _explain_unknown(place, strange, list(known))
    for name in missing[: 2 * MOST_FAULTS]:
        yield _explain_missing([*place, name], known.get(name))


def _may_be(value: Json, schema: Json) -> bool:
    types = schema_types(schema) if isinstance(schema, dict) else []
    return (
        not types
        or json_type(value) in types
        or (type(value) is int and "number" in types)
    )


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
        f"rename {wrong} to {right}",
        f"the name {right}",
    )


def _explain_unknown(
    place: JsonPath, names: Sequence[str], known: Sequence[str]
) -> ArgumentError:
    wrong = list_names(names, place)
    owner = name_path(place) if place else "the tool"
    takes = f"{owner} takes {list_names(known) if known else 'none'}"
    message = f"{wrong} {'is not a parameter' if len(names) == 1 else 'are no parameters'}; {takes}."
    return ArgumentError(
        format_path([*place, names[0]]), "unknown", message, f"leave out {wrong}"
    )


def _explain_missing(place: JsonPath, described: Json) -> ArgumentError:
    wanted = _describe_parameter(described) if isinstance(described, dict) else ""
    advice = f"add {name_path(place)}" + (f" ({wanted})" if wanted else "")
    return ArgumentError(
        format_path(place),
        "missing",
        f"{name_path(place)} is required.",
        advice,
        wanted,
    )


def _describe_parameter(schema: Schema) -> str:
    """Say in a few words what a parameter takes: its allowed values or type, and the start of its description."""
    enum = schema.get("enum")
    kind = (
        f"one of {list_values(enum)}"
        if isinstance(enum, list) and enum
        else _list_types(schema_types(schema))
    )
    text = schema.get("description")
    about = " ".join(text.split()).rstrip(".。") if isinstance(text, str) else ""
    about = about if len(about) <= MOST_EXPLAINED else about[: MOST_EXPLAINED - 1] + "…"
    return replace_surrogates(": ".join(filter(None, (kind, about))))


def _collect_properties(schema: Schema, schema_path: JsonPath) -> dict[str, Json]:
    """Return the properties described by the schema that holds a keyword, through its branches and references."""
    here: Json = schema
    for step in schema_path[:-1]:
        here = _get_part(here, step)
    found: dict[str, Json] = {}
    # a union of more branches than this is not worth spelling
    waiting = [here]
    budget = 200
    while waiting and budget:
        part = waiting.pop()
        budget -= 1
        if not isinstance(part, dict):
            continue
        described = part.get("properties")
        found.update(described if isinstance(described, dict) else {})
        waiting.extend(
            branch
            for word in ("allOf", "anyOf", "oneOf")
            for branch in part.get(word) or ()
        )
        waiting.extend(part[word] for word in ("then", "else") if word in part)
        waiting.extend(part.get("dependentSchemas", {}).values())
        if isinstance(reference := part.get("$ref"), str):
            waiting.append(resolve_reference(schema, reference))
    return found


def _get_part(schema: Json, step: str | int) -> Json:
    """Return a part of a schema. A path has a numeric name as a number, and omits an empty name."""
    if isinstance(schema, dict):
        return schema.get(step if isinstance(step, str) else str(step))
    return (
        schema[step]
        if isinstance(schema, list) and isinstance(step, int) and step < len(schema)
        else None
    )


# ---------------------------------------------------------------------- values


def _explain_value(error: Violation) -> ArgumentError:
    """Word an error about a value: what it must be, and what it was."""
    if tags := _tag_errors(error):
        options = [value for tag in tags for value in _allowed_values(tag.kind)]
        return _explain_choice(tags[0].place, options, tags[0].instance)
    if isinstance(error.kind, Kind.Enum):
        return _explain_choice(error.place, error.kind.options, error.instance)
    place = name_path(error.place)
    if isinstance(error.kind, Kind.FalseSchema):
        return ArgumentError(
            format_path(error.place),
            "unknown",
            capitalize(f"{place} is not allowed."),
            f"leave out {place}",
        )
    must, was = _find_requirement(error)
    expected = must.removeprefix("be ")
    message = capitalize(
        f"{place} must {must}; it {was or 'was ' + format_value(error.instance)}."
    )
    return ArgumentError(
        format_path(error.place),
        error.kind.name,
        message,
        f"make {place} {expected}",
        expected,
    )


def _explain_choice(
    path: JsonPath, options: Sequence[Json], was: Json
) -> ArgumentError:
    """Word a value that is none of those allowed, and name the nearest."""
    place = name_path(path)
    allowed = f"one of {list_values(options)}"
    near = (
        nearest(was, [value for value in options if isinstance(value, str)], most=1)
        if isinstance(was, str)
        else []
    )
    hint = f" Did you mean {format_value(near[0])}?" if near else ""
    message = capitalize(
        f"{place} must be {allowed}; it was {format_value(was)}.{hint}"
    )
    advice = f"set {place} to {format_value(near[0]) if near else allowed}"
    return ArgumentError(format_path(path), "enum", message, advice, allowed)


_Words: TypeAlias = tuple[str, str]
"""What the value must do, and how to tell what it was where showing the value would not say it."""


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
    was = (
        "the text " + format_value(error.instance)
        if isinstance(error.instance, str)
        else format_value(error.instance)
    )
    return f"be {_list_types(error.kind.types)}", "was " + was


def _require_pattern(error: Any) -> _Words:
    return guards.must(
        error.kind.pattern
    ) or f"match the pattern {format_value(error.kind.pattern)}", ""


def _require_union(error: Violation) -> _Words:
    types = expected_types(error)
    return f"be {_list_types(types)}" if types else "fit one of its alternatives", ""


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
