"""What a grammar says, before it is written in anybody's notation: expressions, and rules that name them.

What is regular or JSON stays so: an engine makes the automata of a `Pattern` and of a `Value`.

Rule 1: an expression that nothing matches is `NOTHING`, and is removed where it is built: no written grammar has a
        rule that leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct


class Literal(Struct, frozen=True):
    """This text."""

    text: str


class Pattern(Struct, frozen=True):
    """A text that a regular expression matches whole, with a mark before it and one after it.

    Attributes:
        without: Characters that are not in the text, so that it cannot be taken for what closes it.
    """

    regex: str
    opens: str = ""
    closes: str = ""
    without: str = ""


class Value(Struct, frozen=True):
    """A JSON value that fits a schema.

    Attributes:
        schema: JSON Schema as text, without references to anything around it.
    """

    schema: str


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
    Literal | Pattern | Value | Sequence | Choice | Repeat | Rule | TextUntil | FreeText
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
