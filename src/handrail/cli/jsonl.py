"""Events as JSON, one line each, for programs that watch a run: `--jsonl`.

    {"v": 1, "at_s": 0.012, "event": "call_admitted", "run_id": "r_1", "call": {"id": ...}, "arguments": {...}, ...}

Rule 1: a record has the fields of its event, under their own names; a reader ignores events that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic
from typing import Any, TextIO

from msgspec import Struct

from handrail.core.redaction import Redactor
from handrail.core.results import plain
from handrail.errors import Json
from handrail.events import Event, HttpExchange
from handrail.invisible import json_text


def event_record(event: Event, at_s: float) -> dict[str, Json]:
    """Return an event as a JSON object; a value without a JSON form appears as its `repr`."""
    return {
        "v": 1,
        "at_s": round(at_s, 3),
        "event": _snake_case(type(event).__name__),
        **_fields(event),
    }


class Recorder:
    """An observer that writes one line for every event.

    It falls silent when its reader has gone, as `printer.Printer` does; `write` raises.
    """

    def __init__(
        self,
        file: TextIO,
        *,
        wire: bool = False,
        raw: bool = False,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._file = file
        self._wire = wire
        self._now = now
        self._started = now()
        self._gone = False
        self._redactor = None if raw else Redactor()

    def __call__(self, event: Event) -> None:
        """Write an event; HTTP exchanges only with `wire`."""
        if not self._gone and (self._wire or not isinstance(event, HttpExchange)):
            try:
                record = event_record(event, self._now() - self._started)
                if self._redactor is not None and isinstance(event, HttpExchange):
                    record = {
                        name: self._redactor.value(each)
                        for name, each in record.items()
                    }
                self.write(record)
            except BrokenPipeError:
                self._gone = True

    def write(self, record: dict[str, Json]) -> None:
        """Write one line, so that it can be read at once.

        Raises:
            BrokenPipeError: The reader has gone.
        """
        self._file.write(json_text(record) + "\n")
        self._file.flush()


_LEFT_OUT = {"raw", "data"}
"""A provider's message as received, which may hold signatures, and the bytes of a picture."""


def _fields(value: Any) -> dict[str, Json]:
    return {
        name: _plain(getattr(value, name))
        for name in value.__struct_fields__
        if name not in _LEFT_OUT
    }


def _plain(value: Any) -> Json:
    if isinstance(value, Struct):
        return {**_delta_kind(value), **_fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return plain(value)


def _delta_kind(value: Any) -> dict[str, Json]:
    """Return the `kind` of a stream's delta, which its fields do not show."""
    name = type(value).__name__
    if name.endswith("Delta"):
        return {"kind": _snake_case(name.removesuffix("Delta"))}
    return {}


def _snake_case(name: str) -> str:
    """Return a class's name in snake case: `CallAdmitted` is `call_admitted`."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()
