"""JSON as it was received, made fit to be kept, shown and sent back.

Python reads more than it can write: lone surrogates, NaN, and values nested deeper than a serializer follows.

Rule 1: what is sound is returned as it is, the same object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite

from handrail.errors import Json

MOST_LEVELS = 64
"""Of nesting, that a request carries."""

_MOST_SHOWN_CHARS = 80


def encodable(told: Json) -> Json:
    """Return a JSON value whose strings all have a form in UTF-8: lone surrogates become question marks."""
    try:
        text = json.dumps(told, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # no JSON, or too deep: nothing that a provider sent
        return told
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return told


def can_go_back(value: Json, levels: int = MOST_LEVELS) -> bool:
    """Whether a request can carry the value: no NaN and no infinity in it, and no more levels than these."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, Mapping):
        return levels > 0 and all(can_go_back(each, levels - 1) for each in value.values())
    if isinstance(value, (list, tuple)):
        return levels > 0 and all(can_go_back(each, levels - 1) for each in value)
    return True


def that_go_back(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields without those that no request can carry."""
    return {name: value for name, value in fields.items() if can_go_back(value)}


def beginning(text: str | bytes) -> str:
    """Return how an unreadable answer begins, escaped, in quotation marks."""
    head = text[:_MOST_SHOWN_CHARS]
    return repr(head.decode("utf-8", "replace") if isinstance(head, bytes) else head)
