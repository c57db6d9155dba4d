"""Lines of pipes and sockets, read and written on the event loop.

A hand-over to a thread for each line takes longer than the rest of a message, and a thread that waits for a line cannot
be given up.

Rule 1: a line has a greatest length, so that nobody can fill the memory.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
from collections import deque

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message. HTTP takes 4 MiB; a client on the same machine may hand over a file."""

_TOO_LONG = f"[a line of more than {LONGEST_LINE} bytes]".encode()
"""Stands in the place of a line that is too long."""

_CHUNK = 64 * 1024
_MOST_WAITING = 64


# ---------------------------------------------------------------------- writing


class PolledWriter:
    """Writes texts to a pipe or a socket from the event loop, without making the descriptor non-blocking.

    Others may share what it describes, such as the shell that started us.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._socket: socket.socket | None = None
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._waiting: deque[tuple[memoryview, asyncio.Future[None]]] = deque()
        self._loop = asyncio.get_running_loop()

    async def write(self, text: str) -> None:
        """Write a text; return once the system has taken all of it.

        Texts are written whole, in the order of the calls, also that of a caller who is cancelled meanwhile.

        Raises:
            OSError: Nobody reads any longer.
        """
        written = self.put(text.encode())
        if written is not None:
            await written

    def put(self, data: bytes) -> asyncio.Future[None] | None:
        """Write what can be written now; return what is done once the rest is taken, or None if nothing is left.

        Raises:
            OSError: Nobody reads any longer.
        """
        rest = memoryview(data)
        if not self._waiting:
            rest = self._write_ready(rest)
            if not rest:
                return None
            self._loop.add_writer(self._descriptor, self._go_on)
        written: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((rest, written))
        return written

    async def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def close(self) -> None:
        """Write no more. The descriptor stays open."""
        self._give_up(OSError("the stream was closed"))
        if self._socket is not None:
            self._socket.close()

    def _go_on(self) -> None:
        """Write what waits, as far as it is taken now."""
        try:
            while self._waiting:
                rest, written = self._waiting[0]
                rest = self._write_ready(rest)
                if rest:
                    self._waiting[0] = (rest, written)
                    return
                self._waiting.popleft()
                _wake(written)
        except OSError as error:
            self._give_up(error)
        else:
            self._loop.remove_writer(self._descriptor)

    def _give_up(self, error: OSError) -> None:
        if self._waiting:
            self._loop.remove_writer(self._descriptor)
        for _, written in self._waiting:
            if not written.done():
                written.set_exception(error)
        self._waiting.clear()

    def _write_ready(self, rest: memoryview) -> memoryview:
        """Write what can be written without waiting; return the rest."""
        while rest:
            written = self._write_part(rest)
            if not written:
                break
            rest = rest[written:]
        return rest

    def _write_part(self, data: memoryview) -> int:
        """Write what can be written without waiting; return how many bytes."""
        if self._socket is not None:
            try:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return 0
        if not self._poll.poll(0):
            return 0
        # a pipe that is ready takes so much without waiting
        return os.write(self._descriptor, data[: select.PIPE_BUF])


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


# ---------------------------------------------------------------------- reading


class PolledLines:
    """The lines of a pipe or a socket as an async iterator, read on the event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()
        self._has_ended = False
        self._is_reading = False
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._start()

    def __aiter__(self) -> PolledLines:
        return self

    async def __anext__(self) -> str:
        while not self._lines:
            if self._has_ended:
                raise StopAsyncIteration
            self._start()
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._lines.popleft().decode("utf-8", "replace")

    def close(self) -> None:
        """Read no more; whoever waits for a line learns that there is none."""
        self._stop()
        self._has_ended = True
        if self._waiter is not None:
            _wake(self._waiter)

    def _start(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._read)

    def _stop(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _read(self) -> None:
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # whoever was at the other end has gone
            chunk = b""
        self._lines.extend(
            self._splitter.feed(chunk) if chunk else self._splitter.end()
        )
        self._has_ended = not chunk
        if self._has_ended or len(self._lines) >= _MOST_WAITING:
            self._stop()
        if self._waiter is not None and (self._lines or self._has_ended):
            _wake(self._waiter)


class LineSplitter:
    """Splits what is read into lines; a line that is too long is replaced by a sentence that says so."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_too_long(self) -> bool:
        """Whether the line that has not ended yet is too long."""
        return self._size > LONGEST_LINE

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in a chunk."""
        *ended, rest = chunk.split(b"\n")
        lines = []
        for piece in ended:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def end(self) -> list[bytes]:
        """Return the last line, where no end of line follows it."""
        return [self._take()] if self._size else []

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= LONGEST_LINE:
            self._parts.append(piece)
        else:
            self._parts.clear()

    def _take(self) -> bytes:
        line = _TOO_LONG if self.is_too_long else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return line
