"""What a grammar says, before it is written in anybody's notation: expressions, and rules that name them.

One set of expressions is written as Lark and as GBNF, so the two accept the same texts.

Rule 1: an expression that nothing matches is `NOTHING`, and is removed where it is built: no written grammar has a
        rule that leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

Range: TypeAlias = tuple[int, int]
"""The first and the last code point."""


class Literal(Struct, frozen=True):
    """This text."""

    text: str


class Characters(Struct, frozen=True):
    """One character: of the ranges, or of none of them."""

    ranges: tuple[Range, ...]
    negated: bool = False


class Sequence(Struct, frozen=True):
    """The parts, one after the other."""

    parts: tuple[Expression, ...]


class Choice(Struct, frozen=True):
    """One of the options."""

    options: tuple[Expression, ...]


class Repeat(Struct, frozen=True):
    """The inner expression, `least` to `most` times; without end if `most` is None."""

    inner: Expression
    least: int = 0
    most: int | None = None


class Token(Struct, frozen=True):
    """The inner expression, which holds no rule, read as one word: what may follow it must not look like more of it."""

    inner: Expression


class Rule(Struct, frozen=True):
    """What the rule of that name says."""

    name: str


class TextUntil(Struct, frozen=True):
    """Any text up to the first `mark`, and the mark. None of `without` is in the text."""

    mark: str
    without: tuple[str, ...] = ()


class FreeText(Struct, frozen=True):
    """Any text that holds none of `without`; its first character that is no space is none of `not_first`."""

    without: tuple[str, ...] = ()
    not_first: str = ""


Expression: TypeAlias = (
    Literal
    | Characters
    | Sequence
    | Choice
    | Repeat
    | Token
    | Rule
    | TextUntil
    | FreeText
)

EMPTY: Final = Literal("")
NOTHING: Final = Choice(())


class Rules(Struct):
    """Rules by name; the rule `start` is the whole text."""

    by_name: dict[str, Expression]

    def name_once(self, name: str, expression: Expression) -> Rule:
        """Return the rule of that name, which is defined here if it is not yet."""
        self.by_name.setdefault(name, expression)
        return Rule(name)


def sequence(*parts: Expression) -> Expression:
    """Return the parts in a row, with literals that touch made one."""
    flat: list[Expression] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        for each in part.parts if isinstance(part, Sequence) else (part,):
            before = flat[-1] if flat else None
            if isinstance(each, Literal) and isinstance(before, Literal):
                flat[-1] = Literal(before.text + each.text)
            elif each != EMPTY:
                flat.append(each)
    if len(flat) == 1:
        return flat[0]
    return Sequence(tuple(flat)) if flat else EMPTY


def choice(options: Iterable[Expression]) -> Expression:
    """Return one of the options, each of them once."""
    different = tuple(dict.fromkeys(each for each in options if each != NOTHING))
    if len(different) == 1:
        return different[0]
    return Choice(different)


def repeat(inner: Expression, least: int = 0, most: int | None = None) -> Expression:
    """Return the expression so many times."""
    if inner == NOTHING or most == 0:
        return NOTHING if least else EMPTY
    if least == most == 1:
        return inner
    return Repeat(inner, least, most)


def optional(inner: Expression) -> Expression:
    """Return the expression, or an empty text."""
    return repeat(inner, 0, 1)


def token(*parts: Expression) -> Expression:
    """Return the parts as one word."""
    inner = sequence(*parts)
    return inner if isinstance(inner, Literal) or inner == NOTHING else Token(inner)


def characters(text: str) -> Characters:
    """Return one of these characters."""
    return Characters(merge_ranges((ord(each), ord(each)) for each in text))


def merge_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the same characters in as few ranges as can be, in order."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def subtract_ranges(
    ranges: Iterable[Range], taken: Iterable[Range]
) -> tuple[Range, ...]:
    """Return the characters that are in the first and not in the second."""
    left = list(merge_ranges(ranges))
    for first, last in taken:
        left = [
            part
            for begin, end in left
            for part in (
                (begin, min(end, first - 1)),
                (max(begin, last + 1), end),
            )
            if part[0] <= part[1]
        ]
    return merge_ranges(left)
