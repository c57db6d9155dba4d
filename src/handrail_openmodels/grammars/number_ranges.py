"""Numbers within bounds, as expressions over their digits.

Rule 1: what is written is never outside of the bounds. A number that would need an exponent, or more than `MOST_DIGITS`
        digits, cannot be written where there is a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from handrail_openmodels.grammars.expressions import (
    EMPTY,
    NOTHING,
    Characters,
    Expression,
    Literal,
    characters,
    choice,
    optional,
    repeat,
    sequence,
    token,
)

MOST_DIGITS = 18
_DIGIT = Characters(((48, 57),))
_NOT_ZERO = Characters(((49, 57),))
_WHOLE = choice([Literal("0"), sequence(_NOT_ZERO, repeat(_DIGIT, 0, MOST_DIGITS - 1))])
_FRACTION = sequence(Literal("."), repeat(_DIGIT, 1, MOST_DIGITS))
_EXPONENT = sequence(characters("eE"), optional(characters("+-")), repeat(_DIGIT, 1, 2))

INTEGER = token(optional(Literal("-")), _WHOLE)
"""Any integer."""

NUMBER = token(optional(Literal("-")), _WHOLE, optional(_FRACTION), optional(_EXPONENT))
"""Any number."""


def integers_between(least: float, most: float) -> Expression:
    """Return the integers from `least` to `most`, both of them in; either may be infinite."""
    if least > most:
        return NOTHING
    ceiling = 10**MOST_DIGITS - 1
    low = -ceiling if least == -math.inf else math.ceil(least)
    high = ceiling if most == math.inf else math.floor(most)
    options = [
        sequence(Literal("-"), _digits(max(1, -high), -low)),
        _digits(max(0, low), high),
    ]
    return token(choice(options))


def numbers_between(
    least: float, most: float, *, above: bool = False, below: bool = False
) -> Expression:
    """Return the numbers from `least` to `most`; `above` and `below` leave out the bounds themselves."""
    negative = _from_zero(max(0.0, -most), -least, above=below, below=above)
    positive = _from_zero(max(0.0, least), most, above=above, below=below)
    has_zero = (
        least < 0 < most or (least == 0 and not above) or (most == 0 and not below)
    )
    options = [
        positive if least > 0 or most > 0 else NOTHING,
        sequence(Literal("-"), negative) if least < 0 else NOTHING,
        Literal("0") if has_zero else NOTHING,
    ]
    return token(choice(options))


def _from_zero(low: float, high: float, *, above: bool, below: bool) -> Expression:
    """Return the numbers between two that are not negative, without a sign."""
    if low > high:
        return NOTHING
    first = math.ceil(low)
    ceiling = 10**MOST_DIGITS
    last = ceiling if high == math.inf else math.floor(high)
    is_open_below = above and low == first
    options: list[Expression] = []
    if is_open_below and first < last:
        # of the bound itself only what has a fraction above it
        tail = sequence(repeat(_DIGIT, 0, MOST_DIGITS - 1), _NOT_ZERO)
        options.append(sequence(Literal(f"{first}."), tail))
    options.append(
        sequence(_digits(first + is_open_below, last - 1), optional(_FRACTION))
    )
    is_last_in = last > first or not is_open_below
    if last < ceiling and last >= first and is_last_in and not (below and high == last):
        zeros = sequence(Literal("."), repeat(Literal("0"), 1, MOST_DIGITS))
        options.append(sequence(Literal(str(last)), optional(zeros)))
    return choice(options)


def _digits(low: int, high: int) -> Expression:
    """Return the integers between two that are not negative."""
    if low > high:
        return NOTHING
    options: list[Expression] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = min(high, 10**length - 1)
        options += _same_length(str(first), str(last))
    return choice(options)


def _same_length(low: str, high: str) -> Iterator[Expression]:
    """Yield expressions for the numbers of one length, from their first digits on."""
    if low == high:
        yield Literal(low)
        return
    rest = len(low) - 1
    if set(low[1:]) <= {"0"} and set(high[1:]) <= {"9"}:
        head = Characters(((ord(low[0]), ord(high[0])),))
        yield sequence(head, repeat(_DIGIT, rest, rest) if rest else EMPTY)
        return
    if low[0] == high[0]:
        inner = choice(_same_length(low[1:], high[1:]))
        yield sequence(Literal(low[0]), inner)
        return
    first = int(low[0])
    last = int(high[0])
    yield sequence(Literal(low[0]), choice(_same_length(low[1:], "9" * rest)))
    if first + 1 < last:
        yield from _same_length(f"{first + 1}{'0' * rest}", f"{last - 1}{'9' * rest}")
    yield sequence(Literal(high[0]), choice(_same_length("0" * rest, high[1:])))
