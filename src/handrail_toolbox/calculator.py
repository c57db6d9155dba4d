"""Exact arithmetic for a model that must not do it in its head.

    runtime = hr.Runtime([calculate])

The numbers are those of `arithmetic`: exact for as long as there is a fraction, and else with a word that they were
rounded.

Rule: nothing is evaluated as Python. The text is read by the grammar of `_Reader`, which knows numbers, operators,
      brackets and the functions of a table, and nothing else. It is bounded in length and depth, and each step by
      `arithmetic.MOST_BITS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NotRequired, TypedDict

from msgspec import Struct

from handrail.errors import ToolError
from handrail.parsing.names import nearest
from handrail.tools.function_tool import tool
from handrail.tools.settings import Sends
from handrail_toolbox.arithmetic import (
    CONSTANTS,
    FUNCTIONS,
    MOST_BITS,
    OPERATORS,
    Number,
    calculation_error,
    format_exact,
    format_rounded,
    power,
    require_fit,
    too_large,
)

MOST_CHARACTERS = 1000
MOST_DEPTH = 50
"""Brackets, signs and powers within one another."""


class Result(TypedDict):
    """A number as a tool tells it: as text, because JSON's readers round what is long."""

    result: str
    exact: bool
    fraction: NotRequired[str]
    unit: NotRequired[str]


# ---------------------------------------------------------------------- the tool


@tool(
    effect="read",
    sends=Sends(inline_references=True, trust="trusted"),
    timeout_s=5,
    blocking=False,
    aliases=("计算器", "计算", "算一下", "算术", "数学"),
    examples=[
        {"expression": "0.1 + 0.2"},
        {"expression": "round(356400 / (42.195 / 2) / 1000)"},
    ],
)
def calculate(expression: str) -> Result:
    """Calculate an arithmetic expression exactly. Use it for every calculation, however small, rather than your own
    head; not for converting units.

    Operators are + - * / // (floor division) % (remainder) and ** (power). Functions are abs, round(x, digits), floor,
    ceil, min, max, sum, sqrt, cbrt, exp, ln, log10, log2, log(x, base), sin, cos, tan, asin, acos, atan, radians,
    degrees, factorial, gcd, lcm; angles are in radians. Constants are pi and e.

    Args:
        expression: Plain numbers without units or thousands separators, such as "384400 / (42.195 / 2.0275)" or
            "round(200 * 15 / 100, 2)".

    Returns:
        `result` as text, with every digit when `exact` is true, else rounded to 15 significant digits; `fraction` is
        then the exact value where it is short.
    """
    return as_result(evaluate(expression))


def evaluate(expression: str) -> Number:
    """Return what an expression is worth.

    >>> evaluate("0.1 + 0.2").value
    Fraction(3, 10)

    Raises:
        ToolError: It is no arithmetic, or has no value, or one that is too large; the message says where and what to
            write instead.
    """
    if len(expression) > MOST_CHARACTERS:
        message = f"The expression has {len(expression)} characters; {MOST_CHARACTERS} is the most."
        raise calculation_error(message, "Calculate it in parts.")
    return _Reader(expression).whole()


def as_result(number: Number) -> Result:
    """Return a number as a tool tells it, with the `fraction` behind a rounded one where it is short."""
    text = format_exact(number.value) if number.exact else None
    if text is not None:
        return Result(result=text, exact=True)
    result = Result(result=format_rounded(number.value), exact=False)
    fraction = str(number.value) if number.exact else ""
    if 0 < len(fraction) <= 40:
        return {**result, "fraction": fraction}
    return result


# ---------------------------------------------------------------------- reading

_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_SAME = str.maketrans(
    {
        **{chr(code): chr(plain) for code, plain in _FULL_WIDTH.items()},
        "\u3000": " ",
        "\u00a0": " ",
        "×": "*",
        "·": "*",
        "✕": "*",
        "∗": "*",
        "÷": "/",
        "∕": "/",
        "−": "-",
        "–": "-",
        "【": "(",
        "】": ")",
    }
)
"""Other ways to write the same sign. Superscripts are none of them: to read 5² as 52 would be a wrong answer."""

_TOKEN = re.compile(
    r"(?P<number>(?:\d(?:_?\d)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-zπ][A-Za-z0-9]*)"
    r"|(?P<sign>\*\*|//|[-+*/%(),])",
    re.ASCII,
)
_LONGEST_EXPONENT = MOST_BITS * 3 // 10

_HINTS: Mapping[str, str] = {
    "^": "Write ** for a power: 2 ** 10.",
    "²": "Write ** for a power: 5 ** 2.",
    "³": "Write ** for a power: 5 ** 3.",
    "!": "Write factorial(5) for 5!.",
    "√": "Write sqrt(2) for a square root.",
    "=": "Write the expression alone, without `=` and without names for its parts.",
    "[": "Use round brackets only.",
    "{": "Use round brackets only.",
    "'": "Write digits without quotes or separators.",
    "万": "Write the digits out: 3万 is 3 * 10000.",
    "亿": "Write the digits out: 3亿 is 3 * 100000000.",
    **dict.fromkeys("$€¥£￥元", "Leave the currency out."),
    **dict.fromkeys(
        "<>&|~",
        "Comparisons and bit operations are not arithmetic; compare the results yourself.",
    ),
}


class _Token(Struct, frozen=True):
    kind: str
    text: str
    at: int


class _Reader:
    """Reads and computes in one go, by precedence: sum < product < sign < power, which binds to the right."""

    def __init__(self, text: str) -> None:
        self.text = text.translate(_SAME)
        self.tokens = list(self._tokens())
        self.place = 0
        self.depth = 0

    def whole(self) -> Number:
        """Return the value of the whole text."""
        if len(self.tokens) == 1:
            raise calculation_error(
                "The expression is empty.", 'Write one such as "2 * (3 + 4)".'
            )
        value = self._sum()
        if self._next.kind != "end":
            raise self._refuse_token()
        return value

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.text):
            if self.text[at].isspace():
                at += 1
                continue
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise self._error(
                    f"`{self.text[at]}`",
                    at,
                    _HINTS.get(
                        self.text[at],
                        "Use only numbers, operators, brackets and the functions that are listed.",
                    ),
                )
            yield _Token(str(match.lastgroup), match.group(), at)
            at = match.end()
        yield _Token("end", "", at)

    @property
    def _next(self) -> _Token:
        return self.tokens[self.place]

    def _take(self, *signs: str) -> str:
        """Take the next token if it is one of these signs; else return an empty text."""
        token = self._next
        if token.kind != "sign" or token.text not in signs:
            return ""
        self.place += 1
        return token.text

    def _sum(self) -> Number:
        value = self._product()
        while sign := self._take("+", "-"):
            value = OPERATORS[sign](value, self._product())
        return value

    def _product(self) -> Number:
        value = self._factor()
        while sign := self._take("*", "/", "//", "%"):
            if sign == "%" and self._next.text.lower() == "of":
                advice = "% is the remainder; write 15% of 80 as 15 / 100 * 80."
                raise self._error("`% of`", self.tokens[self.place - 1].at, advice)
            if sign == "%" and (
                self._next.kind == "end"
                or self._next.text in ("+", "-", "*", "/", ")", ",")
            ):
                raise self._error(
                    "`%`",
                    self.tokens[self.place - 1].at,
                    "% is the remainder; write 15% as 15 / 100.",
                )
            value = OPERATORS[sign](value, self._factor())
        return value

    def _factor(self) -> Number:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise calculation_error(
                f"Brackets and signs are nested more than {MOST_DEPTH} deep.",
                "Calculate parts.",
            )
        try:
            if self._take("-"):
                operand = self._factor()
                return Number(-operand.value, operand.exact)
            if self._take("+"):
                return self._factor()
            base = self._atom()
            if self._take("**"):
                return power(base, self._factor())
            return base
        finally:
            self.depth -= 1

    def _atom(self) -> Number:
        token = self._next
        if token.kind == "number":
            self.place += 1
            return self._number(token)
        if token.kind == "name":
            self.place += 1
            return self._name(token)
        if self._take("("):
            value = self._sum()
            if not self._take(")"):
                raise self._refuse_token("a closing bracket")
            return value
        raise self._refuse_token("a number")

    def _number(self, token: _Token) -> Number:
        mantissa, _, exponent = token.text.lower().replace("_", "").partition("e")
        if exponent and (len(exponent) > 6 or abs(int(exponent)) > _LONGEST_EXPONENT):
            raise too_large()
        return require_fit(
            Number(Fraction(mantissa.rstrip(".")) * Fraction(10) ** int(exponent or 0))
        )

    def _name(self, token: _Token) -> Number:
        if token.text in CONSTANTS and self._next.text != "(":
            return CONSTANTS[token.text]
        if token.text not in FUNCTIONS:
            near = nearest(token.text, [*FUNCTIONS, *CONSTANTS], most=2)
            if near:
                advice = f"Did you mean {' or '.join(near)}?"
            else:
                advice = f"Functions are {', '.join(FUNCTIONS)}."
            raise self._error(
                f"`{token.text}`",
                token.at,
                f"{advice} Names and units are not known here.",
            )
        if not self._take("("):
            raise self._error(
                f"`{token.text}`", token.at, f"Write it with brackets: {token.text}(2)."
            )
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        if not self._take(")"):
            raise self._refuse_token("a closing bracket")
        least, most, compute = FUNCTIONS[token.text]
        if not least <= len(arguments) <= most:
            raise self._count_error(token, len(arguments))
        return compute(*arguments)

    def _count_error(self, token: _Token, count: int) -> ToolError:
        if token.text == "log":
            return self._error(
                "`log`", token.at, "Write ln(x), log10(x), log2(x), or log(x, base)."
            )
        least, most, _ = FUNCTIONS[token.text]
        wanted = f"{least}" if least == most else f"{least} to {most}"
        advice = f"{token.text} takes {wanted} arguments; it got {count}. Thousands separators count as commas."
        return self._error(f"`{token.text}`", token.at, advice)

    def _refuse_token(self, wanted: str = "") -> ToolError:
        token = self._next
        if token.kind == "end":
            missing = f"The expression ends where {wanted or 'an operator'} is needed."
            return calculation_error(missing, "Write it out to its end.")
        return self._error(f"`{token.text}`", token.at, self._advise(token, wanted))

    def _advise(self, token: _Token, wanted: str) -> str:
        """Say what to write instead of a token that does not belong where it is."""
        if token.text in ("x", "X"):
            return "Write * between two factors: 3 * 4. Names of unknowns are not known here."
        if token.kind == "name" and token.text not in {*FUNCTIONS, *CONSTANTS}:
            return "Units and names are not known here: leave them out, and convert units before with convert_units."
        if token.text == ",":
            return "Write numbers without thousands separators: 1234567.5; commas part the arguments of a function."
        if wanted:
            return f"Write {wanted} here."
        if token.text == ")":
            return "Take the closing bracket out, or open one before it."
        if self.place and self._ends_factor(self.tokens[self.place - 1]):
            return "Write * between two factors: 2 * (3 + 4)."
        return "Write an operator here."

    @staticmethod
    def _ends_factor(token: _Token) -> bool:
        return token.kind == "number" or token.text == ")"

    def _error(self, what: str, at: int, advice: str) -> ToolError:
        around = self.text[max(0, at - 15) : at + 15].strip()
        return calculation_error(
            f"{what} at character {at + 1} cannot be read (near `{around}`).", advice
        )
