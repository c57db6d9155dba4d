"""The client at the other end of stdin and stdout.

While it is served, the descriptors 0 and 1 point elsewhere, so that no tool and no child of one reads the client's
requests or writes between our answers. The SDK's own reader waits in a thread that cannot be given up, so that Ctrl-C
would wait for the next line; this one can. Pipes and sockets are read and written on the event loop (`polled`).

Rule 1: stdout carries the protocol only; whatever else is printed goes to stderr.
Rule 2: a line has a greatest length, so that a client cannot fill the memory.
Rule 3: a client that does not read its answers stops their writer, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from threading import Lock, Thread
from typing import Any, cast

from anyio import BrokenResourceError, EndOfStream
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from handrail.mcp.messages import Received, read_from_client, write_message
from handrail.mcp.polled import LineSplitter, PolledLines, PolledWriter
from handrail.mcp.streams import Incoming, Outgoing

_CHUNK = 64 * 1024
_MOST_WAITING = 64

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
async def open_streams() -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of the client's messages, and of those to it.

    Raises:
        RuntimeError: Another server of this process has stdin and stdout.
    """
    with _claim_streams(), _divert_stdin() as source, _divert_stdout() as target:
        lines = PolledLines(source) if _can_poll(source) else Lines(source)
        try:
            if target is None:
                # it asks for lines, one after the other
                async with stdio_server(stdin=cast(Any, lines)) as streams:
                    with redirect_stdout(sys.stderr):
                        yield streams
                return
            writer = PolledWriter(target)
            try:
                # What is printed into Python's own buffer would be written once the descriptor is back.
                with redirect_stdout(sys.stderr):
                    yield _open_messages(lines, writer)
            finally:
                writer.close()
        finally:
            lines.close()


def _open_messages(
    lines: PolledLines | Lines, writer: PolledWriter
) -> tuple[Incoming, Outgoing]:
    """Return streams of messages on lines."""

    async def receive() -> Received:
        async for line in lines:
            return read_from_client(line)
        raise EndOfStream

    async def send(item: SessionMessage) -> None:
        try:
            waiting = writer.put(write_message(item.message))
            if waiting is not None:
                await waiting
        except OSError:
            # nobody reads, so nobody is served: the server ends, though its input may be open
            lines.close()
            raise BrokenResourceError from None

    return Incoming(receive), Outgoing(send)


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


# ---------------------------------------------------------------------- lines


class Lines:
    """The lines of any descriptor as an async iterator, read in a thread that ends with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(_MOST_WAITING)
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        Thread(target=self._read, name="handrail-stdin", daemon=True).start()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        line = None if self._is_closed else await self._queue.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def close(self) -> None:
        """Wait for no more lines, though the thread may."""
        self._is_closed = True
        with suppress(asyncio.QueueFull):  # then nobody waits for one
            self._queue.put_nowait(None)

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
