"""Exact numbers, and what can be calculated with them.

A number is a fraction of two whole numbers until a function has no fraction for an answer; from there on it is a number
of 50 digits, and says that it was rounded.

Rule: nothing grows beyond `MOST_BITS`; what would is refused before it is computed, so no step costs more than a
      fraction of a second.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException, Inexact, localcontext
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

from msgspec import Struct

from handrail.errors import ToolError

MOST_BITS = 12_000
"""Of a numerator or denominator: 3,612 digits, below the 4,300 at which Python refuses to write an integer out."""
ROUNDED_DIGITS = 15
"""Significant digits of a result that cannot be written out: as many as a double holds for certain."""
MOST_DECIMALS = 60
"""A fraction that ends is written out in full up to so many digits after the point."""


class Number(Struct, frozen=True):
    """A value, and whether it is exactly what was asked for."""

    value: Fraction
    exact: bool = True


def calculation_error(message: str, suggestion: str) -> ToolError:
    """Return the failure of an expression that has no value; the same text never will."""
    return ToolError("NOT_CALCULABLE", message, suggestion=suggestion)


def format_exact(value: Fraction) -> str | None:
    """Return a fraction as a decimal number with all its digits; None when these never end, or hardly.

    >>> format_exact(Fraction(1, 8)), format_exact(Fraction(1, 3))
    ('0.125', None)
    """
    twos = 0
    fives = 0
    rest = value.denominator
    while rest % 2 == 0 and twos <= MOST_DECIMALS:
        rest //= 2
        twos += 1
    while rest % 5 == 0 and fives <= MOST_DECIMALS:
        rest //= 5
        fives += 1
    places = max(twos, fives)
    if rest != 1 or places > MOST_DECIMALS:
        return None
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(
        places + 1, "0"
    )
    if places:
        digits = f"{digits[:-places]}.{digits[-places:]}"
    return f"-{digits}" if value < 0 else digits


def format_rounded(value: Fraction) -> str:
    """Return a fraction rounded to `ROUNDED_DIGITS`.

    >>> format_rounded(Fraction(2, 3))
    '0.666666666666667'
    """
    with localcontext(Context(prec=ROUNDED_DIGITS)):
        number = Decimal(value.numerator) / Decimal(value.denominator)
        number = number.normalize()
    if -7 < number.adjusted() < ROUNDED_DIGITS + 6:
        return f"{number:f}"
    return str(number).replace("E+", "e").replace("E", "e")


# ---------------------------------------------------------------------- operators and functions

_Operation: TypeAlias = "Callable[..., Number]"


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def require_fit(number: Number) -> Number:
    """Return the number; cut one that is inexact to fifty digits.

    Raises:
        ToolError: It is larger than `MOST_BITS`.
    """
    if not number.exact and _bits(number.value) > _BITS_OF_FIFTY_DIGITS:
        return _inexact(lambda value: value, number)
    if _bits(number.value) > MOST_BITS:
        raise too_large()
    return number


def too_large() -> ToolError:
    """Return the failure of a number that does not fit into `MOST_BITS`."""
    message = (
        f"The result, or a step of it, has more than {MOST_BITS * 3 // 10} digits."
    )
    return calculation_error(
        message, "Use smaller numbers, or logarithms: ln(a ** b) is b * ln(a)."
    )


def _binary(combine: Callable[[Fraction, Fraction], Any]) -> _Operation:
    def operation(left: Number, right: Number) -> Number:
        exact = left.exact and right.exact
        try:
            value = Fraction(combine(left.value, right.value))
        except ZeroDivisionError:
            raise calculation_error(
                "It divides by zero.", "Check the divisor; it came out as 0."
            ) from None
        # What is left when two rounded numbers cancel is their rounding: sqrt(2) ** 2 - 2 is 0.
        cancelled = (
            not exact
            and abs(value) < max(abs(left.value), abs(right.value)) * _NOISE
            and combine in _SUMS
        )
        if cancelled:
            return Number(Fraction(0), exact)
        return require_fit(Number(value, exact))

    return operation


_SUMS = (operator.add, operator.sub)
# Fifty digits each, as printed in Abramowitz and Stegun, table 1.1.
_PI = Fraction("3.14159265358979323846264338327950288419716939937511")
_E = Fraction("2.71828182845904523536028747135266249775724709369996")
_NOISE = Fraction(1, 10**40)
"""Ten digits above the last of the fifty that are computed."""


def _is(number: Number, whole: int) -> bool:
    """Whether a number equals a whole one, within the precision of a rounded number."""
    gap = abs(number.value - whole)
    if number.exact:
        return gap == 0
    return gap < (1 + abs(number.value)) * _NOISE


def _floor(number: Number) -> int:
    """Return the whole number below, or the one that it is: floor(sqrt(2) ** 2) is 2, not 1."""
    nearest_whole = round(number.value)
    if _is(number, nearest_whole):
        return nearest_whole
    return math.floor(number.value)


def _floor_division(left: Number, right: Number) -> Number:
    quotient = OPERATORS["/"](left, right)
    return Number(Fraction(_floor(quotient)), quotient.exact)


def _remainder(left: Number, right: Number) -> Number:
    return OPERATORS["-"](left, OPERATORS["*"](right, _floor_division(left, right)))


def power(base: Number, exponent: Number) -> Number:
    """Return a power: exact where there is a fraction for it, also of a fractional exponent (`8 ** (1/3)` is 2).

    Raises:
        ToolError: It has no real value, or none that fits.
    """
    exact = base.exact and exponent.exact
    if base.value == 0 and exponent.value < 0:
        raise calculation_error(
            "It divides by zero: 0 to a negative power.",
            "Check the base; it came out as 0.",
        )
    if exponent.value.denominator == 1:
        times = int(exponent.value)
        # Before it is computed: a power of two small numbers can fill the memory. 0, 1 and -1 stay what they are. What
        # is too long to be written exactly may still be a handy number: ten years of daily interest.
        if abs(times) * (_bits(base.value) - 1) > MOST_BITS and abs(base.value) not in (
            0,
            1,
        ):
            return _inexact(lambda a, b: a**b, base, exponent)
        if base.value == -1:
            times = times % 2
        elif base.value in (0, 1):
            times = min(times, 1)
        return require_fit(Number(base.value**times, exact))
    if base.value < 0:
        message = "A negative number to a fractional power is not a real number."
        raise calculation_error(
            message, "Write cbrt(x) for the third root, or check the sign of the base."
        )
    root = _exact_root(base.value, exponent.value.denominator)
    if root is not None:
        return power(
            Number(root, exact), Number(Fraction(exponent.value.numerator), exact)
        )
    return _inexact(lambda a, b: a**b, base, exponent)


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    """Return the root of a non-negative fraction where that is a fraction; only of small degrees, as people write."""
    if degree > 6:
        return None
    above = _whole_root(value.numerator, degree)
    below = _whole_root(value.denominator, degree)
    if above is None or below is None:
        return None
    return Fraction(above, below)


def _whole_root(value: int, degree: int) -> int | None:
    """Return the root of a whole number if it is one, by Newton's method from above."""
    root = 1 << (value.bit_length() // degree + 1)
    while root:
        nearer = ((degree - 1) * root + value // root ** (degree - 1)) // degree
        if nearer >= root:
            return root if root**degree == value else None
        root = nearer
    return 0


_BITS_OF_FIFTY_DIGITS = 512
"""Room for them and for an exponent of a hundred; a larger one is no trouble, only rounded again."""
_DIGITS = Context(
    prec=50,
    Emax=MOST_BITS * 3 // 10,
    Emin=-MOST_BITS * 3 // 10,
)
"""Fifty digits leave 35 to be lost on the way to 15. The exponents keep a Decimal within `MOST_BITS` as a fraction."""


def _inexact(compute: Callable[..., Decimal], *numbers: Number) -> Number:
    """Compute with 50 digits; the result is exact when it needed no rounding."""
    with localcontext(_DIGITS) as context:
        context.clear_flags()
        try:
            arguments = [
                Decimal(each.value.numerator) / Decimal(each.value.denominator)
                for each in numbers
            ]
            value = compute(*arguments)
        except DecimalException:
            raise too_large() from None
        exact = not context.flags[Inexact] and all(each.exact for each in numbers)
        return Number(Fraction(value), exact)


def _decimal(compute: Callable[..., Decimal]) -> _Operation:
    return lambda *numbers: _inexact(compute, *numbers)


def _sine(angle: Number) -> Number:
    """Return the sine, to fifty digits: the angle within one turn, then Taylor's series."""
    # beyond it our digits of pi say nothing of the place in a turn
    if abs(angle.value) > 10**20:
        raise calculation_error(
            "The angle is too large.", "Take full turns off first: x % (2 * pi)."
        )
    x = angle.value - round(angle.value / (2 * _PI)) * 2 * _PI
    with localcontext(_DIGITS):
        square = (Decimal(x.numerator) / Decimal(x.denominator)) ** 2
        term = total = Decimal(x.numerator) / Decimal(x.denominator)
        for n in range(2, 80, 2):
            term = -term * square / (n * (n + 1))
            total += term
    value = Fraction(total)
    return Number(
        Fraction(0) if abs(value) < _NOISE else value, angle.exact and angle.value == 0
    )


def _cosine(angle: Number) -> Number:
    sine = _sine(Number(angle.value + _PI / 2, angle.exact))
    if angle.exact and angle.value == 0:
        return Number(Fraction(1))
    return Number(sine.value, exact=False)


def _tangent(angle: Number) -> Number:
    below = _cosine(angle)
    if below.value == 0:
        raise calculation_error(
            "The tangent of a right angle has no value.",
            "Check the angle; it is in radians.",
        )
    return OPERATORS["/"](_sine(angle), below)


def _arctangent(x: Decimal) -> Decimal:
    """Return the arc tangent: the angle is halved three times, then Taylor's series converges quickly."""
    for _ in range(3):
        x = x / (1 + (1 + x * x).sqrt())
    power = x
    total = x
    square = x * x
    for n in range(3, 120, 2):
        power = -power * square
        total += power / n
    return 8 * total


def _arcsine(x: Decimal) -> Decimal:
    if abs(x) > 1:
        message = f"asin and acos take numbers from -1 to 1; it was {format_rounded(Fraction(x))}."
        raise calculation_error(
            message, "Check the argument; it must come out between -1 and 1."
        )
    return 2 * _arctangent(x / (1 + (1 - x * x).sqrt()))


def _exactly(compute: Callable[..., Any]) -> _Operation:
    return lambda *numbers: require_fit(
        Number(
            Fraction(compute(*(each.value for each in numbers))),
            all(each.exact for each in numbers),
        )
    )


def _root(degree: int) -> _Operation:
    def operation(number: Number) -> Number:
        negative = number.value < 0
        if negative and degree % 2 == 0:
            raise calculation_error(
                "The square root of a negative number is not a real number.",
                "Check the sign.",
            )
        root = power(
            Number(abs(number.value), number.exact), Number(Fraction(1, degree))
        )
        if negative:
            return Number(-root.value, root.exact)
        return root

    return operation


def _logarithm(base: int | None) -> _Operation:
    def operation(number: Number, *given: Number) -> Number:
        if number.value <= 0 or any(
            each.value <= 0 or each.value == 1 for each in given
        ):
            message = (
                "A logarithm is of a number above 0, to a base above 0 that is not 1."
            )
            raise calculation_error(
                message,
                "Check the argument; it came out as 0 or below, or the base as 1.",
            )
        if given:
            to = given[0]
        elif base:
            to = Number(Fraction(base))
        else:
            return _inexact(Decimal.ln, number)
        close = _inexact(lambda a, b: a.ln() / b.ln(), number, to)
        # log2(8) is 3, not 3.000
        whole = Number(Fraction(round(close.value)), number.exact and to.exact)
        is_exact = (
            abs(close.value - whole.value) < Fraction(1, 10**40)
            and power(to, whole).value == number.value
        )
        return whole if is_exact else close

    return operation


def _round(number: Number, digits: Number = Number(Fraction(0))) -> Number:  # noqa: B008  # frozen
    """Round half to even, as Python does and accountants do."""
    places = _whole(digits, "The second argument of round")
    if abs(places) > MOST_DECIMALS:
        raise calculation_error(
            f"round keeps at most {MOST_DECIMALS} digits.",
            "Call round(x, 2), for example.",
        )
    return Number(Fraction(round(number.value, places)), number.exact)


def _factorial(number: Number) -> Number:
    n = _whole(number, "factorial")
    if n < 0:
        raise calculation_error(
            "factorial is of a whole number from 0 on.",
            "Check the sign of its argument.",
        )
    if math.lgamma(min(n, MOST_BITS) + 1) / math.log(2) > MOST_BITS:
        raise too_large()
    return Number(Fraction(math.factorial(n)), number.exact)


def _whole(number: Number, what: str) -> int:
    whole = _floor(number)
    if not _is(number, whole):
        raise calculation_error(
            f"{what} takes a whole number; it got {format_rounded(number.value)}.",
            "Use round or floor.",
        )
    return whole


def _of_whole(compute: Callable[[int, int], int], name: str) -> _Operation:
    def operation(*numbers: Number) -> Number:
        exact = all(each.exact for each in numbers)
        total = abs(_whole(numbers[0], name))
        for each in numbers[1:]:  # one at a time, so that none grows beyond what fits
            total = require_fit(
                Number(Fraction(compute(total, _whole(each, name))))
            ).value.numerator
        return require_fit(Number(Fraction(total), exact))

    return operation


OPERATORS: Mapping[str, _Operation] = {
    "+": _binary(operator.add),
    "-": _binary(operator.sub),
    "*": _binary(operator.mul),
    "/": _binary(operator.truediv),
    "//": _floor_division,
    "%": _remainder,
}

_MANY = 100
FUNCTIONS: Mapping[str, tuple[int, int, _Operation]] = {
    "abs": (1, 1, _exactly(abs)),
    "round": (1, 2, _round),
    "floor": (1, 1, lambda number: Number(Fraction(_floor(number)), number.exact)),
    "ceil": (
        1,
        1,
        lambda number: Number(
            Fraction(-_floor(Number(-number.value, number.exact))), number.exact
        ),
    ),
    "min": (1, _MANY, _exactly(lambda *values: min(values))),
    "max": (1, _MANY, _exactly(lambda *values: max(values))),
    "sum": (1, _MANY, lambda *numbers: reduce(OPERATORS["+"], numbers)),
    "sqrt": (1, 1, _root(2)),
    "cbrt": (1, 1, _root(3)),
    "exp": (1, 1, _decimal(Decimal.exp)),
    "ln": (1, 1, _logarithm(None)),
    "log10": (1, 1, _logarithm(10)),
    "log2": (1, 1, _logarithm(2)),
    "log": (2, 2, _logarithm(None)),
    "sin": (1, 1, _sine),
    "cos": (1, 1, _cosine),
    "tan": (1, 1, _tangent),
    "asin": (1, 1, _decimal(_arcsine)),
    "acos": (1, 1, _decimal(lambda x: 2 * _arctangent(Decimal(1)) - _arcsine(x))),
    "atan": (1, 1, _decimal(_arctangent)),
    "radians": (
        1,
        1,
        lambda number: require_fit(Number(number.value * _PI / 180, exact=False)),
    ),
    "degrees": (
        1,
        1,
        lambda number: require_fit(Number(number.value * 180 / _PI, exact=False)),
    ),
    "factorial": (1, 1, _factorial),
    "gcd": (1, _MANY, _of_whole(math.gcd, "gcd")),
    "lcm": (1, _MANY, _of_whole(math.lcm, "lcm")),
}
"""Name -> the least and the most arguments, and what it does."""

CONSTANTS: Mapping[str, Number] = {
    "pi": Number(_PI, False),
    "π": Number(_PI, False),
    "e": Number(_E, False),
}
