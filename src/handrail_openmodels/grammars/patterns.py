"""Regular expressions of schemas as expressions over the characters that a notation writes.

Rule 1: a pattern is taken exactly, or not at all: `NotRegular` says what of it no grammar can say.
Rule 2: classes such as `\\d` mean their ASCII members. Validators differ on the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

from handrail_openmodels.grammars.expressions import (
    EMPTY,
    Expression,
    Range,
    choice,
    merge_ranges,
    repeat,
    sequence,
    subtract_ranges,
)

MOST_REPEATS = 2_000
"""A longer count makes a grammar that engines refuse."""

_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_DIGITS: tuple[Range, ...] = ((48, 57),)
_WORDS: tuple[Range, ...] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: tuple[Range, ...] = ((9, 10), (13, 13), (32, 32))
_EVERY_SPACE: tuple[Range, ...] = (
    (9, 13),
    (28, 32),
    (0x85, 0x85),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_ASCII: tuple[Range, ...] = ((32, 126),)
_LINE_ENDS: tuple[Range, ...] = ((10, 10), (13, 13), (0x2028, 0x2029))
_CATEGORIES: dict[str, tuple[Range, ...]] = {
    "CATEGORY_DIGIT": _DIGITS,
    "CATEGORY_NOT_DIGIT": subtract_ranges(_ASCII, _DIGITS),
    "CATEGORY_WORD": _WORDS,
    "CATEGORY_NOT_WORD": subtract_ranges(_ASCII, _WORDS),
    "CATEGORY_SPACE": _SPACES,
    "CATEGORY_NOT_SPACE": subtract_ranges(((33, _LAST),), (*_EVERY_SPACE, _SURROGATES)),
}


class NotRegular(Exception):
    """A pattern holds what no grammar can say; the text says what."""


def parse_pattern(
    pattern: str,
    one_of: Callable[[tuple[Range, ...]], Expression],
    anything: Expression,
) -> Expression:
    """Return the texts in which the pattern is found, as a schema's `pattern` means it.

    Args:
        one_of: Returns one character of these ranges as the notation writes it.
        anything: Any text, as the notation writes it.

    Raises:
        NotRegular: It looks around, refers back, or is no pattern that Python reads.
    """
    return _Reader(one_of, anything).find(_parse(pattern))


def width(pattern: str) -> tuple[int, int | None]:
    """Return how many characters a text with that pattern has, at least and at most; None without end."""
    parsed = _parse(pattern)
    least, most = parsed.getwidth()
    items = list(parsed)
    is_bounded = _is_anchor(items[:1], "AT_BEGINNING") and _is_anchor(
        items[-1:], "AT_END"
    )
    return int(least), int(most) if is_bounded and most < MOST_REPEATS else None


@lru_cache(maxsize=1024)
def _parse(pattern: str) -> Any:
    try:
        return import_module("re._parser").parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise NotRegular(f"the pattern {pattern!r} is not understood") from error


def _is_anchor(items: Iterable[Any], name: str) -> bool:
    return any(
        str(kind) == "AT" and str(value) in (name, f"{name}_STRING")
        for kind, value in items
    )


class _Reader:
    def __init__(
        self, one_of: Callable[[tuple[Range, ...]], Expression], anything: Expression
    ) -> None:
        self._one_of = one_of
        self._anything = anything

    def find(self, parsed: Any) -> Expression:
        """Return the texts that hold what was parsed, anywhere unless it is anchored."""
        items = list(parsed)
        if len(items) == 1:
            kind, value = items[0]
            if str(kind) == "BRANCH":
                return choice(self.find(branch) for branch in value[1])
            if str(kind) == "SUBPATTERN" and not (value[1] or value[2]):
                return self.find(value[3])
        before = after = self._anything
        if _is_anchor(items[:1], "AT_BEGINNING"):
            del items[0]
            before = EMPTY
        if _is_anchor(items[-1:], "AT_END"):
            del items[-1]
            after = EMPTY
        return sequence(before, self._all(items), after)

    def _all(self, items: Iterable[Any]) -> Expression:
        return sequence(*(self._read(str(kind), value) for kind, value in items))

    def _read(self, kind: str, value: Any) -> Expression:
        match kind:
            case "LITERAL":
                return self._one_of(((value, value),))
            case "NOT_LITERAL":
                return self._one_of(_complement(((value, value),)))
            case "ANY":
                return self._one_of(_complement(_LINE_ENDS))
            case "IN":
                return self._one_of(_ranges(value))
            case "BRANCH":
                return choice(self._all(branch) for branch in value[1])
            case "SUBPATTERN" if not (value[1] or value[2]):
                return self._all(value[3])
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(*value)
            case _:
                raise NotRegular(f"a pattern with {kind.lower().replace('_', ' ')}")

    def _repeat(self, least: int, most: Any, inner: Any) -> Expression:
        end = None if str(most) == "MAXREPEAT" else int(most)
        if max(int(least), end or 0) > MOST_REPEATS:
            raise NotRegular(f"a pattern that repeats more than {MOST_REPEATS} times")
        return repeat(self._all(inner), int(least), end)


def _ranges(items: Iterable[Any]) -> tuple[Range, ...]:
    negated = False
    ranges: list[Range] = []
    for kind, value in items:
        match str(kind):
            case "NEGATE":
                negated = True
            case "LITERAL":
                ranges.append((value, value))
            case "RANGE":
                ranges.append(tuple(value))
            case "CATEGORY" if negated and str(value) in _OPPOSITES:
                ranges += _OPPOSITES[str(value)]
            case "CATEGORY":
                ranges += _CATEGORIES[str(value)]
            case other:
                raise NotRegular(f"a class with {other.lower()}")
    return _complement(ranges) if negated else merge_ranges(ranges)


_OPPOSITES: dict[str, tuple[Range, ...]] = {
    "CATEGORY_SPACE": _EVERY_SPACE,
    "CATEGORY_DIGIT": ((48, 57), (127, _LAST)),
    "CATEGORY_WORD": (*_WORDS, (127, _LAST)),
}
"""What is left out where a class leaves out these: all that any validator may count among them."""


def _complement(ranges: Iterable[Range]) -> tuple[Range, ...]:
    return subtract_ranges(((0, _LAST),), (*ranges, _SURROGATES))
