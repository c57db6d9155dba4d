"""Events as JSON, for `--jsonl` and for those who listen to a server.

    {"v": 1, "at_s": 0.012, "event": "call_admitted", "run_id": "r_1", "call": {"id": ...}, "arguments": {...}, ...}

Rule 1: a record has the fields of its event, under their own names; a reader ignores events that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from handrail.core.results import plain
from handrail.errors import Json
from handrail.events import Event


def event_record(event: Event, at_s: float) -> dict[str, Json]:
    """Return an event as a JSON object; a value without a JSON form appears as its `repr`."""
    return {
        "v": 1,
        "at_s": round(at_s, 3),
        "event": snake_case(type(event).__name__),
        **event_fields(event),
    }


_LEFT_OUT = {"raw", "data"}
"""A provider's message as received, which may hold signatures, and the bytes of a picture."""


def event_fields(value: Any, without: Sequence[str] = ()) -> dict[str, Json]:
    """Return the fields of an event as JSON, all but some."""
    return {
        name: _plain(getattr(value, name))
        for name in value.__struct_fields__
        if name not in _LEFT_OUT and name not in without
    }


def _plain(value: Any) -> Json:
    if isinstance(value, Struct):
        return {**_delta_kind(value), **event_fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return plain(value)


def _delta_kind(value: Any) -> dict[str, Json]:
    """Return the `kind` of a stream's delta, which its fields do not show."""
    name = type(value).__name__
    if name.endswith("Delta"):
        return {"kind": snake_case(name.removesuffix("Delta"))}
    return {}


def snake_case(name: str) -> str:
    """Return a class's name in snake case: `CallAdmitted` is `call_admitted`."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()
