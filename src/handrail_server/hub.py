"""The events of this process for those who listen over HTTP: numbered, in order, to each at its own pace.

An observer of a run may not block, and is called in whatever thread drives the run. It numbers the event and hands it
to the server's loop, which writes it once as JSON, redacted, and appends it to what each listener has yet to read.

Rule 1: a listener that does not keep up is dropped; it comes back with the number of the last event that it has read.
Rule 2: numbers rise over restarts: they begin at the time of the start in microseconds.
Rule 3: a listener for which events are lost for good is sent `missed` as its first event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from threading import Lock
from typing import Any

from msgspec import Struct

from handrail.engine.scoped_store import parse_scope, qualify_name
from handrail.errors import Json
from handrail.events import Event, HttpExchange, Streamed
from handrail.history.event_json import event_record
from handrail.history.run_moments import RecentMoments
from handrail.invisible import json_text
from handrail.messages import ArgumentsDelta
from handrail.ports import Observer
from handrail.surroundings.clock import unix_time
from handrail_server.answers import redact, time_text

MOST_KEPT_BYTES = 32 * 1024 * 1024
"""How much of the newest events can be read again."""
MOST_WAITING = 1_000
"""How many events a listener may be behind."""
MOST_LISTENERS = 2_500
_CHUNK_BYTES = 64 * 1024
HEARTBEAT_S = 15.0

_GOODBYE = b'event: dropped\ndata: {"reason":"too slow"}\n\n'


class Frame(Struct, frozen=True):
    """An event as it is sent.

    Attributes:
        number: Its place among all events of this server.
        run_id: Its run, as the store names it; empty for an event of no run.
    """

    number: int
    run_id: str
    data: bytes

    def is_for(self, run: str, tenant: str | None) -> bool:
        """Whether it is for a listener to this run (all if empty) of this tenant (any if None)."""
        if run and run != self.run_id:
            return False
        return tenant is None or parse_scope(self.run_id) == tenant


class EventListener:
    """A listener; iterate over it for the chunks to send."""

    def __init__(self, hub: EventHub, run: str, tenant: str | None) -> None:
        self._hub = hub
        self._run = run
        self._tenant = tenant
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._is_dropped = False

    def offer(self, frame: Frame) -> None:
        """Queue an event. A listener that has too many unread ones is dropped."""
        if self._is_dropped or not frame.is_for(self._run, self._tenant):
            return
        if len(self._waiting) >= MOST_WAITING:
            self.drop()
            return
        self._waiting.append(frame.data)
        self._news.set()

    def drop(self) -> None:
        """Take no more events, and forget those that wait."""
        self._is_dropped = True
        self._waiting.clear()
        self._hub.forget(self)
        self._news.set()

    def _take_chunk(self) -> bytes:
        """Take events off those that wait: a few at once, as each listener has a copy of its own."""
        chunk = bytearray()
        while self._waiting and len(chunk) < _CHUNK_BYTES:
            chunk += self._waiting.popleft()
        return bytes(chunk)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"retry: 1000\n\n"
            while True:
                while self._waiting:
                    yield self._take_chunk()
                if self._is_dropped:
                    yield _GOODBYE
                    return
                self._news.clear()
                try:
                    await asyncio.wait_for(self._news.wait(), HEARTBEAT_S)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._hub.forget(self)


class EventHub:
    """Collects events, and gives them to listeners and to pages that are asked for later.

    Args:
        clock: Unix time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = unix_time) -> None:
        self._clock = clock
        self._lock = Lock()
        self._number = int(clock() * 1_000_000)
        self._pending: deque[tuple[int, float, str, Event | Mapping[str, Json]]] = (
            deque()
        )
        self._frames: deque[Frame] = deque()
        self._frames_bytes = 0
        self._gone_before = self._number
        self._listeners: set[EventListener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.moments = RecentMoments()

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._number

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to give events to listeners, on the loop on which they listen."""
        self._loop = loop
        loop.call_soon_threadsafe(self._deliver)

    def observer(self, scope: str = "") -> Observer:
        """Return an observer for the runs of a tenant, whose events have the runs' own names."""

        def observe(event: Event) -> None:
            if _is_piece_of_arguments(event):
                return
            run_id = qualify_name(scope, event.run_id)
            self.moments.add(run_id, self._clock(), event)
            self._enter(run_id, event)

        return observe

    def publish(self, event: str, run_id: str = "", **fields: Json) -> None:
        """Tell listeners of something that is no event of a run."""
        self._enter(run_id, {"v": 1, "event": event, "run_id": run_id, **fields})

    def _enter(self, run_id: str, event: Event | Mapping[str, Json]) -> None:
        with self._lock:
            self._number += 1
            self._pending.append((self._number, self._clock(), run_id, event))
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Write what is pending, and offer it to each listener. Runs on the loop."""
        while self._pending:
            frame = self._write(*self._pending.popleft())
            self._frames.append(frame)
            self._frames_bytes += len(frame.data)
            while self._frames_bytes > MOST_KEPT_BYTES:
                oldest = self._frames.popleft()
                self._frames_bytes -= len(oldest.data)
                self._gone_before = oldest.number
            for listener in list(self._listeners):
                listener.offer(frame)

    def _write(
        self, number: int, at: float, run_id: str, event: Event | Mapping[str, Json]
    ) -> Frame:
        if isinstance(event, Mapping):
            record: dict[str, Json] = dict(event)
        else:
            record = event_record(event, 0)
            record["run_id"] = run_id
            del record["at_s"]
            _leave_out_value(record)
            if isinstance(event, HttpExchange):  # `/runs/{id}/wire` has it
                del record["body"], record["answer"]
        record |= {"id": number, "at": time_text(at)}
        data = json_text(redact(record))
        text = f"id: {number}\nevent: {record['event']}\ndata: {data}\n\n"
        return Frame(number, run_id, text.encode("utf-8", "replace"))

    def listen(
        self, *, after: int | None = None, run: str = "", tenant: str | None = None
    ) -> EventListener:
        """Return a listener.

        Args:
            after: The number of the last event that it has read; None to begin with the next event.
            run: Of this run only.
            tenant: Of this tenant only; None for all.
        """
        self._deliver()
        listener = EventListener(self, run, tenant)
        if after is not None:
            earlier = [
                each
                for each in self._frames
                if each.number > after and each.is_for(run, tenant)
            ]
            gone_before = self._gone_before
            if len(earlier) > MOST_WAITING:
                gone_before = earlier[-MOST_WAITING - 1].number
            # a number that we have not given is of a clock that was set back between two starts
            if not gone_before <= after <= self._number:
                missed = {"v": 1, "event": "missed", "run_id": run}
                frame = self._write(gone_before, self._clock(), run, missed)
                listener._waiting.append(frame.data)
            listener._waiting.extend(each.data for each in earlier[-MOST_WAITING:])
        self._listeners.add(listener)
        return listener

    def forget(self, listener: EventListener) -> None:
        """Offer a listener no more events."""
        self._listeners.discard(listener)

    def close(self) -> None:
        """Drop every listener: the server ends."""
        for listener in list(self._listeners):
            listener.drop()


def _is_piece_of_arguments(event: Event) -> bool:
    """Whether an event has a piece of a call's arguments: a secret in two pieces cannot be found by its name."""
    return isinstance(event, Streamed) and isinstance(event.delta, ArgumentsDelta)


def _leave_out_value(record: dict[str, Any]) -> None:
    """Leave the value of a result out of an event: it has its text, and may be as large as the tool made it."""
    result = record.get("result")
    if isinstance(result, dict):
        record["result"] = {
            name: each for name, each in result.items() if name != "value"
        }
    record.pop("value", None)
