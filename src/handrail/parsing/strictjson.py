"""JSON as RFC 8259 has it, read within limits.

Python's own reader accepts what a schema lets pass and the next reader of the value refuses or misreads: NaN, numbers
that overflow to infinity, duplicate keys (the last one wins) and lone surrogates. Here they are refused. So is whatever
would cost more than the text is worth: depth, digits, sheer length.

Rule 1: `loads` raises `NotJson` and nothing else.
Rule 2: a value that `loads` returns can be encoded again, as UTF-8, by any JSON writer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Final, NoReturn

from pydantic_core import from_json

from handrail.errors import Json

MAX_CHARS: Final = 16 * 1024 * 1024
"""Longer text is refused unread. It is a file of 12 MB in Base64, and no model writes that; a result may hold it."""

MAX_DEPTH: Final = 100
"""Brackets within brackets. Python's own limit is about 1,000 frames, part of which the caller has used."""

MAX_DIGITS: Final = 500
"""Digits of one integer. Python itself refuses more than 4,300, and can be set to refuse more than 640."""

MAX_PLAIN_CHARS: Final = 4_000
"""Of a text that `load_plain_object` reads: twice as long as nearly every call."""


class NotJson(ValueError):
    """Text that cannot be read as JSON.

    Attributes:
        reason: One word to branch on: `syntax`, `open` (it ends too early), `non_finite`, `duplicate_key`,
            `lone_surrogate`, `too_deep`, `too_many_digits`, `too_long`, `not_an_object`, `glued` or `outside` (a
            member follows the object).
        offset: Characters before the place, or None where the place was not recorded.
    """

    def __init__(self, reason: str, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.offset = offset


def loads(text: str) -> Json:
    """Read strict JSON of any kind, as RFC 8259 has it, within the limits of this module.

    Stricter than `json.loads`: NaN, infinities, numbers that overflow, duplicate keys and lone surrogates are refused.
    They pass a schema here and mean something else, or nothing, to the next reader of the value.

    Raises:
        NotJson: Whatever is wrong; `reason` says what in one word.
    """
    if (plain := load_plain_object(text)) is not None:
        return plain
    if len(text) > MAX_CHARS:
        raise NotJson("too_long", f"{len(text)} characters are more than {MAX_CHARS}")
    try:
        value = _decode(text)
    except json.JSONDecodeError as error:
        reason = "open" if _is_cut(text, error) else "syntax"
        raise NotJson(reason, error.msg, error.pos) from None
    except RecursionError:
        raise NotJson(
            "too_deep", f"more than {MAX_DEPTH} brackets are nested"
        ) from None
    # A count of brackets is cheap and an upper bound of the depth: the depth itself is rarely measured.
    if len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    if not text.isascii():
        _encode(text)
    if "\\u" in text:
        refuse_surrogates(value)
    return value


_UNCHANGING = frozenset((str, int, float, bool, type(None)))


def copy(value: Any) -> Any:
    """Return a deep copy of a JSON value, quicker than `deepcopy`, which copies values of other kinds."""
    kind = type(value)
    if kind is dict:
        if _UNCHANGING.issuperset(map(type, value.values())):
            return value.copy()
        return {name: copy(part) for name, part in value.items()}
    if kind is list:
        if _UNCHANGING.issuperset(map(type, value)):
            return value.copy()
        return [copy(part) for part in value]
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    return deepcopy(value)


def load_plain_object(text: str) -> dict[str, Json] | None:
    """Return a short object that has one reading for every reader, as nearly all calls are; None for anything else.

    pydantic's reader takes a quarter of the time of Python's, and keeps to RFC 8259 but for two things: of two equal
    names it takes the last, and it overflows to infinity. Colons and quotation marks tell whether a name came twice.
    What they do not settle, a number like 3.0 and a very long one are for the careful reader: 1.4 us a call -> 0.7.
    """
    if len(text) > MAX_PLAIN_CHARS:
        return None
    try:
        value = from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):
        # TypeError: a lone surrogate, which has no form in UTF-8
        return None
    if type(value) is not dict:
        return None
    if (
        len(text) < MAX_DIGITS
        and text.count(":") == len(value)
        and _ALWAYS_PLAIN.issuperset(map(type, value.values()))
    ):
        return value
    return value if _has_one_reading(text, value) else None


_ALWAYS_PLAIN = frozenset((str, int, bool, type(None)))
_MOST_BITS = 1_600
"""Of an integer that has fewer digits than MAX_DIGITS for sure."""


def _has_one_reading(text: str, value: dict[str, Json]) -> bool:
    """Whether no name came twice in an object as it was written, and every reader takes its numbers for the same.

    Each name has a colon and two quotation marks, each text two of these; a name that came twice has left a colon and
    marks behind. Other colons and escaped marks stand within texts, so one of the counts has to come out even.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH:
        return False
    names = 0
    texts = 0
    waiting: list[Json] = [value]
    for each in waiting:  # which grows
        kind = type(each)
        if kind is str:
            texts += 1
        elif kind is dict:
            names += len(each)
            waiting += each.values()
        elif kind is list:
            waiting += each
        elif kind is float:
            if _is_odd(each):
                return False
        elif kind is int and each.bit_length() > _MOST_BITS:
            return False
    if text.count(":") == names:
        return True
    return "\\" not in text and text.count('"') == 2 * (names + texts)


def _is_odd(number: float) -> bool:
    """Whether a number is infinite, or one like 3.0, which a schema may count as an integer."""
    return number.is_integer() or not math.isfinite(number)


def _decode(text: str) -> Json:
    # Most text is one value without white space around it. Reading that directly saves a third of the decoder's time;
    # whatever else it is, the decoder finds out, and says where.
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return _STRICT.decode(text)
    return value if end == len(text) else _STRICT.decode(text)


def _check_members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # None: go on
        raise NotJson(
            "duplicate_key",
            f"the name {quote_excerpt(twice)} appears twice in one object",
        )
    return members


def as_integer(digits: str) -> int:
    """Return an integer of at most `MAX_DIGITS` digits."""
    if len(digits) > MAX_DIGITS:
        raise NotJson(
            "too_many_digits",
            f"a number of {len(digits)} digits is longer than {MAX_DIGITS}",
        )
    return int(digits)


def as_float(digits: str) -> float:
    """Return a finite number."""
    number = float(digits)
    if not math.isfinite(number):
        raise NotJson("non_finite", f"the number {quote_excerpt(digits)} is too large")
    return number


def _refuse_non_finite(word: str) -> NoReturn:
    raise NotJson("non_finite", f"{word} is no JSON value")


_NUMBERS: Final = {
    "parse_float": as_float,
    "parse_int": as_integer,
    "parse_constant": _refuse_non_finite,
}
_STRICT: Final = json.JSONDecoder(object_pairs_hook=_check_members, **_NUMBERS)  # type: ignore[arg-type]  # one dict of three callables
_scan: Final = _STRICT.scan_once  # type: ignore[attr-defined]  # there since Python 2.6, but not in the type stubs
_WRITER: Final = json.JSONEncoder(ensure_ascii=False)


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether a text is refused for what is missing at its end."""
    if error.pos >= len(text.rstrip()):
        return True
    return error.msg.startswith("Unterminated string")


def _check_depth(value: Json) -> None:
    """Refuse brackets nested deeper than allowed. Level by level, for a walk by recursion would overflow."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for outer in level
            for item in _items(outer)
            if isinstance(item, dict | list)
        ]
    if level:
        raise NotJson("too_deep", f"more than {MAX_DEPTH} brackets are nested")


def _items(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def refuse_surrogates(value: Json) -> None:
    """Refuse text that UTF-8 cannot carry: it would raise later, in a driver or a log, far from its cause."""
    _encode(_WRITER.encode(value))


def _encode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotJson(
            "lone_surrogate",
            "half of a surrogate pair (\\ud800 to \\udfff) stands alone",
        ) from None


def quote_excerpt(text: str) -> str:
    """Quote a piece of the model's text for a message: short, and in characters that every channel can carry."""
    return repr(text if len(text) <= 40 else text[:40] + "…")
