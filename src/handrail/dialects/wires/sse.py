"""Server-sent events, split as they arrive: pieces of text or bytes in, whole events out.

Follows the parsing rules of the HTML standard (section 9.2.6, "Interpreting an event stream"), with one leniency: an
event that lacks its closing blank line at the end of the stream is returned by `close`, because servers leave it out.

Rule 1: a piece may be cut anywhere: inside a character, between CR and LF, inside a field name.
Rule 2: every character is looked at a bounded number of times, however the stream is cut.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple


class ServerEvent(NamedTuple):
    """One event: its data lines joined by newlines, and its type where the server named one."""

    # A tuple, not a frozen dataclass: one is made per token of a model, and it costs a third.
    data: str
    type: str = ""


class EventSplitter:
    """Turns the pieces of one stream into its events.

    Attributes:
        strays: Lines before the first event that belong to no event stream. A server that answers a request for a
            stream with a plain JSON body, mostly an error, leaves its whole answer here.
    """

    def __init__(self) -> None:
        self.strays: list[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line: list[str] = []  # pieces of the line that has not ended yet
        self._data: list[str] = []
        self._type = ""
        self._has_started = False  # a byte order mark can only come first
        # a CR ended the last piece: an LF that follows belongs to it
        self._after_cr = False
        self._any = False

    def feed(self, chunk: str | bytes) -> list[ServerEvent]:
        """Take the next piece and return the events that it completes."""
        if isinstance(chunk, str):
            text = chunk
        else:
            text = self._decoder.decode(chunk)
        if not text:
            return []
        if not self._has_started:
            self._has_started = True
            text = text.removeprefix("\ufeff")
        if self._after_cr:
            text = text.removeprefix("\n")
            self._after_cr = False
        if "\r" in text:
            self._after_cr = text.endswith("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        # Not `splitlines`: it also splits at U+2028 and others, which are unescaped inside JSON strings.
        lines = text.split("\n")
        if len(lines) == 1:
            self._line.append(text)
            return []
        if self._line:
            self._line.append(lines[0])
            lines[0] = "".join(self._line)
        self._line = [lines.pop()]
        return self._events(lines)

    def close(self) -> list[ServerEvent]:
        """Return the event that was still open at the end of the stream, if it has data."""
        rest = "".join(self._line) + self._decoder.decode(b"", True)
        self._line = []
        return self._events([rest, ""] if rest else [""])

    def _events(self, lines: list[str]) -> list[ServerEvent]:
        events = []
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                events.append(ServerEvent("\n".join(self._data), self._type))
                self._data = []
                self._type = ""
                self._any = True
            else:
                self._type = ""
        return events

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif name == "event":
            self._type = value.removeprefix(" ")
        elif name not in ("", "id", "retry") and not self._any:
            # an empty name is a comment
            self.strays.append(line)
