"""The errors of a compiled schema, each with its place in the value that was checked.

Errors cost a thousand times as much as the verdict: the validator makes all of them at once, with messages and copies
of the values. So they are counted first, and a value with too many is refused for the first one.

Rule 1: a place is `sure` only if it holds the error's own value and no other place could be meant. The validator
        spells a key of digits as a number (`"01"` and `"1"` as 1) and leaves out an empty one.
Rule 2: time grows with the size of the value and no faster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema_rs import ValidationError, Validator
from jsonschema_rs import ValidationErrorKind as Kind
from msgspec import Struct

from handrail.errors import Json

MOST_ERRORS = 2_500
"""How many errors of one call are made, in all rounds of coercion together: about 25 ms. A list of up to 2,500 numbers
as text can be coerced."""

FEW_VALUES = 1_000
"""Values whose errors are made without counting them first."""

_NODES_PER_ERROR = 25
"""An error copies what it is about: this many values cost as much as an error itself, about 5 us."""

_MOST_TRIED = 200
"""Values looked at to find the place of one error whose path has more than one reading."""

Place = tuple[str | int, ...]


class TooManyErrors(Exception):
    """Raised in place of errors that would cost too much. It holds the first one: where, and the validator's words."""

    def __init__(self, place: Place, words: str) -> None:
        super().__init__(words)
        self.place = place
        self.words = words


class Violation(Struct, frozen=True):
    """One error of a schema, and for a union those of its branches."""

    error: ValidationError
    place: Place
    sure: bool
    branches: Sequence[Sequence[Violation]] = ()

    @property
    def kind(self) -> Any:
        """The keyword that was broken, and what it asks for."""
        return self.error.kind

    @property
    def instance(self) -> Json:
        """The value at the place."""
        return self.error.instance


class EvaluationBudget:
    """How many errors may still be made."""

    def __init__(self, left: int = MOST_ERRORS) -> None:
        self.left = left


def find_violations(
    validator: Validator, value: Json, budget: EvaluationBudget
) -> list[Violation]:
    """Return what is wrong with a value; empty when it is valid.

    Raises:
        TooManyErrors: There are more than the budget has left.
    """
    if validator.is_valid(value):
        return []
    size = count_values(value, FEW_VALUES)
    if size > FEW_VALUES:
        _refuse_too_many(validator, value, budget)
    paths = _PathFinder(value)
    violations = [paths.locate(error) for error in validator.iter_errors(value)]
    if size > FEW_VALUES:
        budget.left -= len(violations)
    return violations


def count_values(value: Json, most: int) -> int:
    """Count a value and those within it, up to a little more than `most`."""
    count = 1
    waiting = [value] if isinstance(value, dict | list) else []
    while waiting and count <= most:
        here = waiting.pop()
        parts = here.values() if isinstance(here, dict) else here
        count += len(parts)
        waiting += [part for part in parts if isinstance(part, dict | list)]
    return count


def _refuse_too_many(
    validator: Validator, value: Json, budget: EvaluationBudget
) -> None:
    """Raise TooManyErrors where the errors, with the copies of lists and objects in them, cost more than is left."""
    errors = validator.evaluate(value).errors()
    places = [
        _read_pointer(value, error["instanceLocation"])
        for error in errors
        if _is_near_the_top(error)
    ]
    copies = sum(isinstance(value_at(value, place), dict | list) for place in places)
    size = count_values(value, _NODES_PER_ERROR * MOST_ERRORS)
    # One or two errors about the whole cost what reading the value has cost.
    if len(errors) + max(0, copies - 2) * size // _NODES_PER_ERROR > budget.left:
        first = max(
            errors[:_MOST_TRIED], key=lambda error: error["instanceLocation"].count("/")
        )
        raise TooManyErrors(
            _read_pointer(value, first["instanceLocation"]), first["error"]
        )


def _is_near_the_top(error: Mapping[str, Any]) -> bool:
    return bool(error["instanceLocation"].count("/") <= 1)


def _read_pointer(value: Json, pointer: str) -> Place:
    """Read a JSON pointer (RFC 6901), in which a list's index looks like a key."""
    place: list[str | int] = []
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        step = int(key) if isinstance(value, list) else key
        place.append(step)
        value = value[step]
    return tuple(place)


def value_at(value: Json, place: Sequence[str | int]) -> Json:
    """Return the value at a place."""
    for step in place:
        value = value[step]
    return value


# ---------------------------------------------------------------------- places


_INDEX = re.compile(r"\+?0*[0-9]{1,20}")
"""A key that the validator spells as a number."""


class _PathFinder:
    """Finds the place in a value of each of its errors."""

    def __init__(self, value: Json) -> None:
        self.value = value
        self.numbered: dict[int, dict[int, list[str]]] = {}

    def locate(self, error: ValidationError) -> Violation:
        """Return an error with its place, and its branches with theirs."""
        steps = error.instance_path
        place = self._read_plainly(steps)
        if place is None:
            place = self._find_only_path(steps, error.instance)
        branches: list[list[Violation]] = []
        if isinstance(error.kind, Kind.AnyOf | Kind.OneOfNotValid):
            for branch in error.kind.context:
                branches.append([self.locate(each) for each in branch])
        if place is None:
            return Violation(error, tuple(steps), sure=False, branches=branches)
        return Violation(error, place, sure=True, branches=branches)

    def _read_plainly(self, steps: Sequence[str | int]) -> Place | None:
        """Return the steps as a place where they have one reading: no numbers as keys, and no empty keys."""
        here = self.value
        for step in steps:
            if isinstance(here, dict) and ("" in here or type(step) is int):
                return None
            here = here[step]
        return None if isinstance(here, dict) and "" in here else tuple(steps)

    def _find_only_path(
        self, steps: Sequence[str | int], instance: Json
    ) -> Place | None:
        """Return the only place that the steps can lead to and that holds `instance`; None for none or several."""
        places: list[Place] = []
        waiting: list[tuple[Json, int, Place]] = [(self.value, 0, ())]
        for _ in range(_MOST_TRIED):
            if not waiting:
                return places[0] if len(places) == 1 else None
            here, taken, place = waiting.pop()
            if taken == len(steps) and _is_same(here, instance):
                places.append(place)
            if isinstance(here, dict) and "" in here:
                waiting.append((here[""], taken, (*place, "")))
            if taken < len(steps):
                waiting += [
                    (here[key], taken + 1, (*place, key))
                    for key in self._matching_keys(here, steps[taken])
                ]
        return None

    def _matching_keys(self, here: Json, step: str | int) -> Sequence[str | int]:
        """Return the keys of an object, or the index of a list, that the validator spells as `step`."""
        if isinstance(here, list):
            return [step] if isinstance(step, int) and step < len(here) else []
        if not isinstance(here, dict):
            return []
        if isinstance(step, str):
            return [step] if step in here else []
        if id(here) not in self.numbered:
            numbered = self.numbered[id(here)] = {}
            for key in filter(_INDEX.fullmatch, here):
                numbered.setdefault(int(key.lstrip("+0") or "0"), []).append(key)
        return self.numbered[id(here)].get(step, [])


def _is_same(value: Json, other: Json) -> bool:
    return type(value) is type(other) and bool(value == other)
