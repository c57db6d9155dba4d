"""Events as JSON, one line each, for programs that watch a run: `--jsonl`.

    {"v": 1, "at_s": 0.012, "event": "call_admitted", "run_id": "r_1", "call": {"id": ...}, "arguments": {...}, ...}

Rule 1: a record has the fields of its event, under their own names; a reader ignores events that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from handrail.core.redaction import Redactor
from handrail.errors import Json
from handrail.events import Event, HttpExchange
from handrail.history.event_json import event_record
from handrail.invisible import json_text
from handrail.surroundings.clock import monotonic


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
