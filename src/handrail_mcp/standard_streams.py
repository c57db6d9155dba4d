"""The client at the other end of stdin and stdout.

While it is served, the descriptors 0 and 1 point elsewhere, so that no tool and no child of one reads the client's
requests or writes between our answers. The SDK's own reader waits in a thread that cannot be given up, so that Ctrl-C
would wait for the next line; this one can. Pipes and sockets are read and written on the event loop (`wire.polled`).

Rule 1: stdout carries the protocol only; whatever else is printed goes to stderr.
Rule 2: a line has a greatest length, so that a client cannot fill the memory.
Rule 3: a client that does not read its answers stops their writer, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from threading import Lock, Thread
from typing import Any, cast

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from handrail_mcp.wire.eras import serve_lines
from handrail_mcp.wire.messages import Received, read_likely, write_message
from handrail_mcp.wire.polled import LineSplitter, PolledLines, PolledWriter

_CHUNK = 64 * 1024
_MOST_WAITING = 64

_CLAIM = Lock()
"""Held while a server of this process has stdin and stdout."""


async def serve_standard_streams(server: Server[Any]) -> None:
    """Serve the client at the other end of stdin and stdout until it has gone.

    Raises:
        RuntimeError: Another server of this process has stdin and stdout.
    """
    options = server.create_initialization_options()
    async with open_streams() as streams:
        if isinstance(streams, ClientLines):
            await serve_lines(server, streams, options)
        else:
            await server.run(*streams, options)


@asynccontextmanager
async def open_streams() -> AsyncIterator[ClientLines | tuple[Any, Any]]:
    """Yield where the lines come from and go to, or streams of the SDK where the event loop cannot wait for them.

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
                    yield ClientLines(lines, writer)
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


# ---------------------------------------------------------------------- lines


class ClientLines:
    """The messages from and to the client, one a line. See `Wire`."""

    def __init__(self, lines: PolledLines, writer: PolledWriter) -> None:
        self._lines = lines
        self._writer = writer

    def start(self, take: Callable[[Received], None], end: Callable[[], None]) -> None:
        """See `Wire.start`."""
        kind = types.JSONRPCRequest
        self._lines.hand_on(lambda line: take(read_likely(line, kind)), end)

    def find_room(self) -> None:
        """See `Wire.find_room`: what is written is waited for."""

    def write(self, message: types.JSONRPCMessage) -> Awaitable[None] | None:
        """See `Wire.write`."""
        return self._writer.put(write_message(message))

    def close(self) -> None:
        """See `Wire.close`."""
        self._lines.close()


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
        """Do nothing: the thread may be waiting for a line."""

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
