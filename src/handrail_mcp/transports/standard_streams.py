"""The client at the other end of stdin and stdout.

While it is served, the descriptors 0 and 1 point elsewhere, so that no tool and no child of one reads the client's
requests or writes between our answers. The SDK waits for a line in a thread that cannot be given up, so that Ctrl-C
would wait for the next one; here two threads read and write that end with the process.

Rule 1: stdout carries the protocol only; whatever else is printed goes to stderr.
Rule 2: a line has a greatest length, so that a client cannot fill the memory.
Rule 3: a client that does not read its answers stops their writer, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any

from anyio import BrokenResourceError, EndOfStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from handrail_mcp.transports.messages import Received, read_from_client, write_message
from handrail_mcp.transports.streams import Incoming, Outgoing

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message. HTTP takes 4 MiB; a client on the same machine may hand over a file."""

_TOO_LONG = f"[a line of more than {LONGEST_LINE} bytes]".encode()
_CHUNK = 64 * 1024
_MOST_WAITING = 64
"""Lines that were read and not taken; the client waits with more."""

_CLAIM = Lock()
"""Held while a server of this process has stdin and stdout."""


async def serve_standard_streams(server: Server[Any]) -> None:
    """Serve the client at the other end of stdin and stdout until it has gone.

    Raises:
        RuntimeError: Another server of this process has stdin and stdout.
    """
    async with open_streams() as streams:
        await server.run(*streams, server.create_initialization_options())


@asynccontextmanager
async def open_streams() -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Yield the streams of the client's messages, and of those to it.

    Raises:
        RuntimeError: Another server of this process has stdin and stdout.
    """
    with _claim_streams(), _divert(0, os.devnull) as source, _divert(1) as target:
        lines = LineReader(source)
        writer = LineWriter(target)

        async def receive() -> Received:
            return read_from_client(await lines.take())

        async def send(item: SessionMessage) -> None:
            try:
                await writer.write(write_message(item.message))
            except OSError:
                # nobody reads, so nobody is served: the server ends, though its input may be open
                lines.close()
                raise BrokenResourceError from None

        try:
            # What is printed into Python's own buffer would be written once the descriptor is back.
            with redirect_stdout(sys.stderr):
                yield Incoming(receive), Outgoing(send)
        finally:
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
def _divert(descriptor: int, elsewhere: str = "") -> Iterator[int]:
    """Point a descriptor at a file, or at stderr; yield where what it was can still be used."""
    private = os.dup(descriptor)
    other = os.open(elsewhere, os.O_RDONLY) if elsewhere else os.dup(2)
    os.dup2(other, descriptor)
    os.close(other)
    try:
        yield private
    finally:
        # The private one stays open: a thread may still wait at it.
        os.dup2(private, descriptor)


# ---------------------------------------------------------------------- lines


class LineReader:
    """Reads the lines of a descriptor in a thread."""

    def __init__(self, descriptor: int) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = Semaphore(_MOST_WAITING)
        self._loop = asyncio.get_running_loop()
        Thread(target=self._read, args=(descriptor,), daemon=True).start()

    async def take(self) -> str:
        """Return the next line.

        Raises:
            anyio.EndOfStream: There is none.
        """
        line = await self._lines.get()
        if line is None:
            raise EndOfStream
        self._room.release()
        return line.decode("utf-8", "replace")

    def close(self) -> None:
        """Wait for no more lines, though the thread may."""
        self._lines.put_nowait(None)

    def _read(self, descriptor: int) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody takes them
            for line in read_lines(descriptor):
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            self._loop.call_soon_threadsafe(self.close)


def read_lines(descriptor: int) -> Iterator[bytes]:
    """Yield lines until the end; in the place of a line that is too long stands a sentence that says so."""
    parts: list[bytes] = []
    size = 0
    while chunk := _read_chunk(descriptor):
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:  # an end of line came before it
                yield _join(parts, size)
                parts.clear()
                size = 0
            size += len(piece)
            if size <= LONGEST_LINE:
                parts.append(piece)
            else:
                parts.clear()
    if size:
        yield _join(parts, size)


def _join(parts: list[bytes], size: int) -> bytes:
    return b"".join(parts) if size <= LONGEST_LINE else _TOO_LONG


def _read_chunk(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:  # whoever started us shares it, and does not wait
            _wait_for(descriptor, selectors.EVENT_READ)
        except OSError:  # whoever was at the other end has gone
            return b""


def _wait_for(descriptor: int, event: int) -> None:
    """Wait until a descriptor of any number can be read or written."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, event)
        selector.select()


class LineWriter:
    """Writes lines to a descriptor in a thread: whole, and in the order in which they came."""

    def __init__(self, descriptor: int) -> None:
        self._lines: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = (
            SimpleQueue()
        )
        self._loop = asyncio.get_running_loop()
        Thread(target=self._write_all, args=(descriptor,), daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Write a line; return once the system has taken it. It is written also if the caller gives up meanwhile.

        Raises:
            OSError: Nobody reads any longer.
        """
        written = self._loop.create_future()
        self._lines.put((line, written))
        await written

    def close(self) -> None:
        """Write no more than what was given."""
        self._lines.put(None)

    def _write_all(self, descriptor: int) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits for it
            while (item := self._lines.get()) is not None:
                line, written = item
                error = _write(descriptor, line)
                self._loop.call_soon_threadsafe(_settle, written, error)


def _write(descriptor: int, line: bytes) -> OSError | None:
    """Write a line; return why it cannot be written."""
    rest = memoryview(line)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _wait_for(descriptor, selectors.EVENT_WRITE)
        except OSError as error:
            return error
    return None


def _settle(written: asyncio.Future[None], error: OSError | None) -> None:
    if written.done():
        return  # whoever wrote it has given up
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
