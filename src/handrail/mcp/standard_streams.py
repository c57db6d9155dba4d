"""The client at the other end of stdin and stdout.

While it is served, the descriptors 0 and 1 point elsewhere, so that no tool and no child of one reads the client's
requests or writes between our answers. The SDK's own reader waits in a thread that cannot be given up, so that Ctrl-C
would wait for the next line; this one can. Pipes and sockets are read and written on the event loop: a hand-over to a
thread for each line takes longer than the rest of a message.

Rule 1: stdout carries the protocol only; whatever else is printed goes to stderr.
Rule 2: a line has a greatest length, so that a client cannot fill the memory.
Rule 3: a client that does not read its answers stops their writer, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from threading import Lock, Thread
from typing import Any, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from handrail.mcp.child import MessageStream, Received, read_message, write_message

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message. HTTP takes 4 MiB; a client on the same machine may hand over a file."""

_TOO_LONG = f"[a line of more than {LONGEST_LINE} bytes]"
_CHUNK = 64 * 1024
_MOST_WAITING = 64

_CLAIM = Lock()
"""Held while a server of this process has stdin and stdout."""


@asynccontextmanager
async def open_streams() -> AsyncIterator[tuple[Any, Any]]:
    """Yield the stream of messages to read, and the one to write.

    Raises:
        RuntimeError: Another server of this process has stdin and stdout.
    """
    with _claim_streams(), _divert_stdin() as source, _divert_stdout() as target:
        lines = PolledLines(source) if _can_poll(source) else Lines(source)
        writer = None if target is None else PolledWriter(target)
        try:
            # What is printed into Python's own buffer would be written once the descriptor is back.
            if writer is not None and isinstance(lines, PolledLines):
                with redirect_stdout(sys.stderr):
                    yield StdinMessages(lines), StdoutMessages(writer, lines)
                return
            # it asks for lines, one after the other, and writes text
            async with stdio_server(
                stdin=cast(Any, lines), stdout=cast(Any, writer)
            ) as streams:
                with redirect_stdout(sys.stderr):
                    yield streams
        finally:
            lines.close()
            if writer is not None:
                writer.close()


@contextmanager
def _claim_streams() -> Iterator[None]:
    if not _CLAIM.acquire(blocking=False):
        raise RuntimeError("another server of this process has stdin and stdout")
    try:
        yield
    finally:
        _CLAIM.release()


@contextmanager
def _divert_stdin() -> Iterator[int]:
    """Point descriptor 0 at the null device; yield where stdin can still be read."""
    private = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        yield private
    finally:
        # The private one stays open: a thread may still wait at it.
        os.dup2(private, 0)


@contextmanager
def _divert_stdout() -> Iterator[int | None]:
    """Point descriptor 1 at stderr; yield where stdout can still be written.

    None leaves a stdout that cannot be written on the event loop to the SDK, which diverts it itself.
    """
    if not _can_poll(1) or not _is_descriptor(sys.stdout, 1):
        yield None
        return
    private = os.dup(1)
    os.dup2(2, 1)
    try:
        yield private
    finally:
        os.dup2(private, 1)
        os.close(private)


def _is_descriptor(stream: Any, descriptor: int) -> bool:
    try:
        return bool(stream.fileno() == descriptor)
    except (AttributeError, OSError, ValueError):
        return False


def _can_poll(descriptor: int) -> bool:
    """Whether the event loop can wait for a descriptor: a pipe or a socket, but not on Windows."""
    if sys.platform == "win32":
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


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
        """Write a text; return once the other end, or the system on its way there, has taken it all.

        Texts are written whole, in the order of the calls, also that of a caller who is cancelled meanwhile.

        Raises:
            OSError: Nobody reads any longer.
        """
        rest = memoryview(text.encode())
        if not self._waiting:
            rest = self._write_ready(rest)
            if not rest:
                return
            self._loop.add_writer(self._descriptor, self._go_on)
        written: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((rest, written))
        await written

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
        self._lines: deque[str] = deque()
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
        return self._lines.popleft()

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
        if chunk:
            lines = self._splitter.feed(chunk)
        else:
            lines = self._splitter.end()
            self._has_ended = True
        self._lines.extend(line.decode("utf-8", "replace") for line in lines)
        if self._has_ended or len(self._lines) >= _MOST_WAITING:
            self._stop()
        if self._waiter is not None and (self._lines or self._has_ended):
            _wake(self._waiter)


class StdinMessages(MessageStream):
    """What the client says, as the SDK reads it: each line is read when it is asked for."""

    def __init__(self, lines: PolledLines) -> None:
        self._lines = lines

    async def receive(self) -> Received:
        """Return the next message, or why a line is none.

        Raises:
            anyio.EndOfStream: The client has gone.
        """
        try:
            return read_message(await anext(self._lines))
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Read no more."""
        self._lines.close()


class StdoutMessages(MessageStream):
    """What is said to the client, as the SDK writes it: each message is written by whoever sends it."""

    def __init__(self, writer: PolledWriter, lines: PolledLines) -> None:
        self._writer = writer
        self._lines = lines
        self._is_open = True

    async def send(self, item: SessionMessage) -> None:
        """Send a message. Where nobody reads it, nobody is served any longer.

        Raises:
            anyio.BrokenResourceError: Nobody reads.
        """
        if not self._is_open:
            raise anyio.ClosedResourceError
        try:
            await self._writer.write(write_message(item))
        except OSError as error:
            self._lines.close()
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Send no more."""
        self._is_open = False


class Lines:
    """The lines of any descriptor as an async iterator, read in a thread that ends with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(_MOST_WAITING)
        self._loop = asyncio.get_running_loop()
        Thread(target=self._read, name="handrail-stdin", daemon=True).start()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        line = await self._queue.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def close(self) -> None:
        """Leave the thread to itself: it may wait for a line."""

    def _read(self) -> None:
        try:
            for line in read_lines(self._descriptor):
                self._put(line.decode("utf-8", "replace"))
            self._put(None)
        except RuntimeError:
            return  # the loop is closed: nobody reads on

    def _put(self, line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(self._queue.put(line), self._loop).result()


def read_lines(descriptor: int) -> Iterator[bytes]:
    """Yield lines until the end; a line that is too long is replaced by a sentence that says so."""
    splitter = LineSplitter()
    while chunk := os.read(descriptor, _CHUNK):
        yield from splitter.feed(chunk)
    yield from splitter.end()


class LineSplitter:
    """Splits what is read into lines; a line that is too long is replaced by a sentence that says so."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

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
        is_too_long = self._size > LONGEST_LINE
        line = _TOO_LONG.encode() if is_too_long else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return line
