"""What is wrong with a call's arguments, worded for the model that wrote them.

An `ArgumentError` is one thing wrong at one place. `of_errors` finds them in the errors of a compiled schema, by their
kind and place and never by their text; `failure` tells the first few as one `Failure`, with what to do next.

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
from handrail.schemas.walk import Schema, target, types_of

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

Place: TypeAlias = Sequence[str | int]


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


def failure(found: Iterable[ArgumentError], *, beyond: int = 0) -> Failure:
    """Tell the faults as one failure: the first `MOST_FAULTS`, and how many more there are.

    Args:
        beyond: How many more faults there are that were not put into words.
    """
    faults = list({fault.message: fault for fault in found}.values())
    told = [fault for i, fault in enumerate(faults[:MOST_FAULTS]) if i == 0 or _told_by(faults[: i + 1]) <= MOST_TOLD]
    untold = len(faults) - len(told) + beyond
    message = " ".join(fault.message for fault in told)
    if untold > 0:
        message += f" {untold} more {'fault is' if untold == 1 else 'faults are'} not listed."
    advice = list(dict.fromkeys(fault.advice for fault in told if fault.advice))
    return Failure(
        Code.INVALID_ARGUMENTS,
        message,
        f"Call again with this changed: {'; '.join(advice)}." if advice else "Call again with corrected arguments.",
        retryable=False,
        details=tuple(fault.as_json() for fault in told),
    )


def _told_by(faults: Sequence[ArgumentError]) -> int:
    return sum(len(fault.message) for fault in faults)


# ---------------------------------------------------------------------- names, places and values in a sentence


def field_of(place: Place) -> str:
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
            spelled += f"[{shown(step)}]"
    return writable(spelled + ("..." if len(place) > MOST_STEPS else ""))


_UNPLAIN = frozenset(".[]\"'` \t\r\n")


def named(place: Place) -> str:
    """Name a place within a sentence."""
    return f"`{field_of(place)}`" if place else "the arguments"


def shown(value: Json, most: int = MOST_SHOWN) -> str:
    """Show a value short enough for a sentence: text and numbers as JSON, containers by their size."""
    if isinstance(value, str):
        return writable(json.dumps(value if len(value) <= most else value[: most - 1] + "…", ensure_ascii=False))
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
    if isinstance(value, int) and value.bit_length() > 200:  # beyond 4,300 digits Python refuses to write one
        return f"an integer of about {int(value.bit_length() * math.log10(2)):,} digits"
    return str(value)[:most]


def listed(values: Sequence[Json]) -> str:
    """List the first `MOST_LISTED` values, and say how many more there are."""
    return _with_rest([shown(value) for value in values[:MOST_LISTED]], len(values))


def ticked(names: Sequence[str], within: Place = ()) -> str:
    """List the first `MOST_LISTED` names in backticks, and say how many more there are."""
    return _with_rest([named([*within, name]) for name in names[:MOST_LISTED]], len(names))


def _with_rest(some: Sequence[str], total: int) -> str:
    return ", ".join(some) + (f" and {total - len(some):,} more" if total > len(some) else "")


def writable(text: str) -> str:
    """Return the text with what UTF-8 cannot encode replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def sentence(text: str) -> str:
    """Begin with a capital letter, unless a name in backticks stands first."""
    return text[:1].upper() + text[1:]


def _either(words: Iterable[str]) -> str:
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


def _nouns(types: Iterable[str]) -> str:
    return _either(_NOUNS.get(name, name) for name in types)


# ---------------------------------------------------------------------- from the errors of a schema


def of_errors(errors: Iterable[Violation], schema: Schema) -> list[ArgumentError]:
    """Return what is wrong by the compiled `schema`: names first, since a wrong name explains the rest.

    Errors always give at least one fault: if no sentence here fits, the validator's own message is used.
    """
    flat = list(_without_unions(errors))
    objects = sorted({error.place for error in flat if _is_about_names(error)}, key=_nearest_the_top)
    names = [fault for place in islice(objects, MOST_FAULTS + 1) for fault in _name_faults(place, flat, schema)]
    listed_at = {error.place for error in flat if isinstance(error.kind, Kind.Enum | Kind.Constant)}
    values = [
        _value_fault(error)
        for error in flat[:MOST_WORDED]
        if not _is_about_names(error)
        and not (isinstance(error.kind, Kind.Type) and error.place in listed_at)  # the list says more
    ]
    return names + values or [_in_its_own_words(error) for error in flat[:MOST_WORDED]]


def _in_its_own_words(error: Violation) -> ArgumentError:
    """Return the fault of an error that no other sentence fits, such as a name that only some branches allow.

    The validator's message is used, cut short, since it contains names of the schema and of the call.
    """
    place, said = named(error.place), _cut_short(error.error.message)
    message = f"The schema as a whole refuses {place}: {said}."
    return ArgumentError(field_of(error.place), error.kind.name, message, f"change {place} to what the schema allows")


def _cut_short(said: str) -> str:
    return writable(said if len(said) <= MOST_SAID else said[: MOST_SAID - 1] + "…")


def of_too_many(first: TooManyErrors) -> list[ArgumentError]:
    """Return the only fault reported for a call with too many errors to examine."""
    place, said = named(first.place), _cut_short(first.words)
    message = f"Very much is wrong with the arguments, and only the first fault is told. At {place}: {said}."
    return [
        ArgumentError(
            field_of(first.place), "too_many", message, f"correct {place} and all that is wrong in the same way"
        )
    ]


def misspelt(errors: Iterable[Violation], schema: Schema) -> list[ArgumentError]:
    """Return those faults of `errors` that are misspelt names."""
    return [fault for fault in of_errors(errors, schema) if fault.kind == "misspelt"]


def best_branch(error: Violation) -> Sequence[Violation]:
    """Return the errors of the branch that was likely meant: of the right type, with the right tag, then the fewest."""

    def distance(branch: Sequence[Violation]) -> tuple[bool, bool, int]:
        of_tag = any(isinstance(e.kind, Kind.Constant | Kind.Enum) for e in branch)
        return _is_of_other_type(branch, error), of_tag, len(branch)

    return min(error.branches, key=distance, default=[])


def types_at(error: Violation) -> list[str]:
    """Return the types wanted at the place of an error that is about the type; empty for other errors."""
    kind = error.kind
    if isinstance(kind, Kind.Type):
        return list(kind.types)
    if isinstance(kind, Kind.Enum | Kind.Constant):
        return [type_of(value) for value in _options(kind)]
    branches = error.branches
    here = [[found for found in branch if found.place == error.place] for branch in branches]
    return [name for branch in here for found in branch for name in types_at(found)] if all(here) else []


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def type_of(value: Json) -> str:
    """Return JSON Schema's name for the type of a value."""
    return _TYPES.get(type(value), "null")


def _options(kind: Any) -> list[Json]:
    return list(kind.options) if isinstance(kind, Kind.Enum) else [kind.expected_value]


def _is_about_names(error: Violation) -> bool:
    return isinstance(error.kind, Kind.Required | Kind.AdditionalProperties | Kind.UnevaluatedProperties)


def _nearest_the_top(place: Place) -> tuple[int, str]:
    return len(place), str(place)


def _is_of_other_type(branch: Sequence[Violation], union: Violation) -> bool:
    return any(isinstance(e.kind, Kind.Type) and e.place == union.place for e in branch)


def _without_unions(errors: Iterable[Violation]) -> Iterator[Violation]:
    """Replace the failure of a union by what is wrong with its best branch, where one is of the right type."""
    for error in errors:
        best = best_branch(error)
        if best and not _is_of_other_type(best, error) and not _tags(error):
            yield from _without_unions(best)
        else:
            yield error


def _tags(union: Violation) -> list[Violation]:
    """Return the errors of the tag that tells the branches apart, one for each, where its value fits no branch."""
    of_type = [branch for branch in union.branches if not _is_of_other_type(branch, union)]
    tags = [[e for e in branch if isinstance(e.kind, Kind.Constant | Kind.Enum)] for branch in of_type]
    first = [branch[0] for branch in tags if branch]
    alike = len({error.place for error in first}) == 1 and len(first) == len(of_type)
    return first if alike and len(first) > 1 else []


# ---------------------------------------------------------------------- names


def _name_faults(place: tuple[str | int, ...], errors: Sequence[Violation], schema: Schema) -> Iterator[ArgumentError]:
    """Pair the unknown names of one object with the names that they may have meant."""
    here = [error for error in errors if error.place == place and _is_about_names(error)]
    known: dict[str, Json] = {}
    for error in here:
        known.update(_properties_beside(schema, error.error.schema_path))
    missing = list(dict.fromkeys(e.kind.property for e in here if isinstance(e.kind, Kind.Required)))
    extra = (
        e.kind.unexpected for e in here if isinstance(e.kind, Kind.AdditionalProperties | Kind.UnevaluatedProperties)
    )
    unknown = [name for name in dict.fromkeys(name for names in extra for name in names) if name not in known]
    given = here[0].instance if isinstance(here[0].instance, dict) else {}
    free = [name for name in known if name not in given and name not in missing]
    strange: list[str] = []
    for name in unknown[: 2 * MOST_FAULTS]:
        meant = nearest(name, [*missing, *free], most=1)
        # An optional parameter of another type is near by chance when it is a required one that was meant.
        if meant and not (missing and meant[0] in free and not _may_be(given[name], known[meant[0]])):
            yield _misspelt(place, name, meant[0], needed=meant[0] in missing)
            (missing if meant[0] in missing else free).remove(meant[0])
        else:
            strange.append(name)
    if strange := [*strange, *unknown[2 * MOST_FAULTS :]]:
        yield _unknown(place, strange, list(known))
    for name in missing[: 2 * MOST_FAULTS]:
        yield _missing([*place, name], known.get(name))


def _may_be(value: Json, schema: Json) -> bool:
    types = types_of(schema) if isinstance(schema, dict) else []
    return not types or type_of(value) in types or (type(value) is int and "number" in types)


def _misspelt(place: Place, name: str, meant: str, *, needed: bool) -> ArgumentError:
    wrong, right = named([*place, name]), named([*place, meant])
    if needed:
        message = f"{wrong} is not a parameter, and {right} is required but missing: did you mean {right}?"
    else:
        message = f"{wrong} is not a parameter: did you mean {right}?"
    return ArgumentError(
        field_of([*place, meant]), "misspelt", message, f"rename {wrong} to {right}", f"the name {right}"
    )


def _unknown(place: Place, names: Sequence[str], known: Sequence[str]) -> ArgumentError:
    wrong = ticked(names, place)
    owner = named(place) if place else "the tool"
    takes = f"{owner} takes {ticked(known) if known else 'none'}"
    message = f"{wrong} {'is not a parameter' if len(names) == 1 else 'are no parameters'}; {takes}."
    return ArgumentError(field_of([*place, names[0]]), "unknown", message, f"leave out {wrong}")


def _missing(place: Place, described: Json) -> ArgumentError:
    wanted = _wanted(described) if isinstance(described, dict) else ""
    advice = f"add {named(place)}" + (f" ({wanted})" if wanted else "")
    return ArgumentError(field_of(place), "missing", f"{named(place)} is required.", advice, wanted)


def _wanted(schema: Schema) -> str:
    """Say in a few words what a parameter takes: its allowed values or type, and the start of its description."""
    enum = schema.get("enum")
    kind = f"one of {listed(enum)}" if isinstance(enum, list) and enum else _nouns(types_of(schema))
    text = schema.get("description")
    about = " ".join(text.split()).rstrip(".。") if isinstance(text, str) else ""
    about = about if len(about) <= MOST_EXPLAINED else about[: MOST_EXPLAINED - 1] + "…"
    return writable(": ".join(filter(None, (kind, about))))


def _properties_beside(schema: Schema, schema_path: Place) -> dict[str, Json]:
    """Return the properties described by the schema that holds a keyword, through its branches and references."""
    here: Json = schema
    for step in schema_path[:-1]:
        here = _part_of(here, step)
    found: dict[str, Json] = {}
    waiting, budget = [here], 200  # a union of more branches than this is not worth spelling
    while waiting and budget:
        part, budget = waiting.pop(), budget - 1
        if not isinstance(part, dict):
            continue
        described = part.get("properties")
        found.update(described if isinstance(described, dict) else {})
        waiting.extend(branch for word in ("allOf", "anyOf", "oneOf") for branch in part.get(word) or ())
        waiting.extend(part[word] for word in ("then", "else") if word in part)
        waiting.extend(part.get("dependentSchemas", {}).values())
        if isinstance(reference := part.get("$ref"), str):
            waiting.append(target(schema, reference))
    return found


def _part_of(schema: Json, step: str | int) -> Json:
    """Return a part of a schema. A path has a numeric name as a number, and omits an empty name."""
    if isinstance(schema, dict):
        return schema.get(step if isinstance(step, str) else str(step))
    return schema[step] if isinstance(schema, list) and isinstance(step, int) and step < len(schema) else None


# ---------------------------------------------------------------------- values


def _value_fault(error: Violation) -> ArgumentError:
    """Word an error about a value: what it must be, and what it was."""
    if tags := _tags(error):
        options = [value for tag in tags for value in _options(tag.kind)]
        return _out_of(tags[0].place, options, tags[0].instance)
    if isinstance(error.kind, Kind.Enum):
        return _out_of(error.place, error.kind.options, error.instance)
    place = named(error.place)
    if isinstance(error.kind, Kind.FalseSchema):
        return ArgumentError(
            field_of(error.place), "unknown", sentence(f"{place} is not allowed."), f"leave out {place}"
        )
    must, was = _requirement(error)
    expected = must.removeprefix("be ")
    message = sentence(f"{place} must {must}; it {was or 'was ' + shown(error.instance)}.")
    return ArgumentError(field_of(error.place), error.kind.name, message, f"make {place} {expected}", expected)


def _out_of(path: Place, options: Sequence[Json], was: Json) -> ArgumentError:
    """Word a value that is none of those allowed, and name the nearest."""
    place, allowed = named(path), f"one of {listed(options)}"
    near = nearest(was, [value for value in options if isinstance(value, str)], most=1) if isinstance(was, str) else []
    hint = f" Did you mean {shown(near[0])}?" if near else ""
    message = sentence(f"{place} must be {allowed}; it was {shown(was)}.{hint}")
    advice = f"set {place} to {shown(near[0]) if near else allowed}"
    return ArgumentError(field_of(path), "enum", message, advice, allowed)


_Words: TypeAlias = tuple[str, str]
"""What the value must do, and how to tell what it was where showing the value would not say it."""


def _requirement(error: Violation) -> _Words:
    for kind, words in _REQUIREMENTS.items():
        if isinstance(error.kind, kind):
            return words(error)
    return "fit its schema", ""


def _bound(text: str) -> Callable[[Violation], _Words]:
    return lambda error: (text.format(shown(error.kind.value)), "")


def _size(text: str, unit: str) -> Callable[[Any], _Words]:
    return lambda error: (text.format(error.kind.limit), f"has {len(error.instance):,} {unit}")


def _just(must: str, was: str = "") -> Callable[[Violation], _Words]:
    return lambda _error: (must, was)


def _of_type(error: Any) -> _Words:
    was = "the text " + shown(error.instance) if isinstance(error.instance, str) else shown(error.instance)
    return f"be {_nouns(error.kind.types)}", "was " + was


def _of_pattern(error: Any) -> _Words:
    return guards.must(error.kind.pattern) or f"match the pattern {shown(error.kind.pattern)}", ""


def _of_union(error: Violation) -> _Words:
    types = types_at(error)
    return f"be {_nouns(types)}" if types else "fit one of its alternatives", ""


_REQUIREMENTS: Mapping[Any, Callable[[Any], _Words]] = {
    Kind.Type: _of_type,
    Kind.Constant: _bound("be {}"),
    Kind.Minimum: _bound("be at least {}"),
    Kind.Maximum: _bound("be at most {}"),
    Kind.ExclusiveMinimum: _bound("be more than {}"),
    Kind.ExclusiveMaximum: _bound("be less than {}"),
    Kind.MultipleOf: _bound("be a multiple of {}"),
    Kind.Pattern: _of_pattern,
    Kind.Format: _bound("have the format {}"),
    Kind.MinLength: _size("have at least {:,} characters", "characters"),
    Kind.MaxLength: _size("have at most {:,} characters", "characters"),
    Kind.MinItems: _size("have at least {:,} items", "items"),
    Kind.MaxItems: _size("have at most {:,} items", "items"),
    Kind.MinProperties: _size("have at least {:,} keys", "keys"),
    Kind.MaxProperties: _size("have at most {:,} keys", "keys"),
    Kind.UniqueItems: _just("hold each item only once", "holds one twice"),
    Kind.Contains: _just("hold the items that its schema asks for"),
    Kind.Not: _just("be something that its schema does not exclude"),
    Kind.AnyOf: _of_union,
    Kind.OneOfNotValid: _of_union,
    Kind.OneOfMultipleValid: _just("fit only one of its alternatives", "fits several"),
    Kind.PropertyNames: _just("have keys of the form that its schema asks for", "has another"),
}
