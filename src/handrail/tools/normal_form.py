"""One JSON form for values that are equal by their type: what tells one act from another.

`"10.00"`, `10` and `10.0` are one `Decimal`, an instant can be written with several offsets, and a set has no order.
Keys, fingerprints, conditions and people see arguments in this form; a tool gets its values as they are.

Rule 1: values of one type have the same form if, and only if, they are equal. So no character of a text changes: `007`
        is not `7`, and a name in composed letters is not that name in decomposed ones.
"""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any

import pydantic
from pydantic_core import to_jsonable_python

from handrail.errors import Json
from handrail.tools.keys import canonical

SCALARS = frozenset((str, int, float, bool, type(None)))
"""Types whose values are their own normal form: `canonical` writes 10 and 10.0 alike."""

_LONGEST_PLAIN_EXPONENT = 30
"""Beyond it a decimal is written with an exponent, or `1E+999999` would have a million digits."""

_ANY_DAY = datetime(2000, 1, 2, tzinfo=UTC).date()


def normalize_arguments(
    arguments: dict[str, Json], bound: Mapping[str, Any]
) -> dict[str, Json]:
    """Return the arguments that decisions are made on: what the function gets, as JSON, defaults filled in.

    Args:
        arguments: As they were sent.
        bound: As the function gets them.
    """
    if bound == arguments and SCALARS.issuperset(map(type, bound.values())):
        return arguments
    if len(bound) == 1:
        (only,) = bound.values()
        if isinstance(only, pydantic.BaseModel):
            fields = only.model_dump(by_alias=True, warnings=False)
            bound = fields if isinstance(fields, dict) else bound
    normalized: dict[str, Json] = {}
    for name, value in bound.items():
        try:
            normalized[name] = normalize(value)
        except ValueError:
            # a type without a JSON form: what was sent is all there is to look at
            if name in arguments:
                normalized[name] = arguments[name]
    return normalized


def normalize(value: Any) -> Json:
    """Return the JSON form of a Python value.

    Raises:
        ValueError: It holds something that has none.
    """
    kind = type(value)
    if kind in SCALARS and (kind is not float or isfinite(value)):
        return value
    match value:
        case Enum():
            return normalize(value.value)
        case Decimal():
            return _decimal_text(value)
        case datetime():
            return to_jsonable_python(_in_utc(value))
        case time(tzinfo=zone) if zone is not None:
            moment = _in_utc(datetime.combine(_ANY_DAY, value))
            return to_jsonable_python(moment.timetz())
        case bytes():
            return _bytes_text(value)
        case Mapping():
            named = {as_text(key): normalize(each) for key, each in value.items()}
            if len(named) < len(value):
                raise ValueError("two names are written alike, such as 1 and '1'")
            return named
        case list() | tuple() | deque():
            return [normalize(each) for each in value]
        case set() | frozenset():
            return sorted(map(normalize, value), key=canonical)
        case pydantic.BaseModel():
            return normalize(value.model_dump(by_alias=True, warnings=False))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return normalize(_fields_of(value))
    return to_jsonable_python(value, inf_nan_mode="strings")


def as_text(value: Any) -> str:
    """Return the normal form as one text: a text as it is, other JSON written out.

    Raises:
        ValueError: The value has no JSON form.
    """
    form = normalize(value)
    return form if isinstance(form, str) else canonical(form)


def _decimal_text(value: Decimal) -> str:
    """Return the shortest text of a number, exactly: `Decimal.normalize` would round it."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)  # infinite, or no number
    while len(digits) > 1 and digits[-1] == 0:
        digits = digits[:-1]
        exponent += 1
    if not any(digits):
        return "0"
    shortest = Decimal((sign, digits, exponent))
    is_plain = abs(exponent) <= _LONGEST_PLAIN_EXPONENT
    return format(shortest, "f") if is_plain else str(shortest)


def _in_utc(moment: datetime) -> datetime:
    """Return the same instant in UTC; a moment without an offset is none, and is returned as it is."""
    if moment.utcoffset() is None:
        return moment
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return moment  # in the first or the last year there is


def _bytes_text(value: bytes) -> Json:
    """Return the text that the bytes are, or their base64 in an object: no text has that form."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _fields_of(value: Any) -> Any:
    """Return the fields of a dataclass, pydantic's or Python's, still of Python's types."""
    serializer = getattr(type(value), "__pydantic_serializer__", None)
    if serializer is not None:
        return serializer.to_python(value, by_alias=True, warnings=False)
    return {
        field.name: getattr(value, field.name) for field in dataclasses.fields(value)
    }
