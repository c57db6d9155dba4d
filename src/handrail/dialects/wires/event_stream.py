"""One streamed answer of a provider, event by event: what all wires that stream server-sent events have in common.

A dialect's stream says what an event adds (`take`) and what the turn is at the end (`whole`). The splitting, the order
of deltas and errors, and what an unfinished event means are settled here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from handrail.dialects import Dialect, ToolLike, json_bodies, received
from handrail.dialects.wires.sse import EventSplitter, ServerEvent
from handrail.errors import ModelError
from handrail.messages import Delta, Turn


class EventStream(ABC):
    """A `DialectStream` over server-sent events."""

    def __init__(self, dialect: Dialect, tools: Collection[ToolLike]) -> None:
        self._dialect = dialect
        self._tools = tools
        self._splitter = EventSplitter()
        self._characters = received.WholeDeltas()
        self._has_events = False
        self._error: ModelError | None = None
        self._turn: Turn | None = None

    @abstractmethod
    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event with data, and append what is new in it.

        Raises:
            ModelError: The event is an error, or unreadable.
        """

    @abstractmethod
    def whole(self) -> Turn:
        """Return the turn of all events taken. Without a clean end its `finish` is `error`."""

    def decode_plain(self, body: str) -> Turn:
        """Return the turn of a plain answer that came where a stream was asked for."""
        return self._dialect.decode(body, self._tools)

    def feed(self, chunk: str | bytes) -> list[Delta]:
        """Take the next piece of the stream and return what is new in it; see `DialectStream.feed`."""
        if self._error:
            raise self._error
        return self._read(self._splitter.feed(chunk))

    def close(self) -> Turn:
        """Return the whole turn; see `DialectStream.close`."""
        if self._turn is None:
            for event in self._splitter.close():
                # else it was cut in its middle, and says nothing
                if json_bodies.is_json(event.data):
                    self._read([event])
            if self._has_events or self._error:
                self._turn = received.whole_turn(self.whole())
            elif strays := "\n".join(self._splitter.strays):
                self._turn = self.decode_plain(strays)
            else:
                raise ModelError(
                    "the stream ended before its first event",
                    code="unreadable",
                    retryable=True,
                )
        if self._error:
            raise self._error
        return self._turn

    def _read(self, events: list[ServerEvent]) -> list[Delta]:
        deltas: list[Delta] = []
        for event in events:
            self._has_events = True
            if event.data.strip() in (
                "[DONE]",
                "",
            ):  # an empty one keeps the connection open
                continue
            try:
                self.take(event, deltas)
            except ModelError as error:
                # Deltas before the error are returned first, however the stream was cut.
                self._error = error
                if not deltas:
                    raise
                break
        return self._characters.take(deltas)
