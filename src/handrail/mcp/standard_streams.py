"""The client at the other end of stdin and stdout.

While it is served, the descriptors 0 and 1 point elsewhere, so that no tool and no child of one reads the client's
requests or writes between our answers. The SDK's own reader waits in a thread that cannot be given up, so that Ctrl-C
would wait for the next line; this one can.

Rule 1: stdout carries the protocol only; whatever else is printed goes to stderr.
Rule 2: a line has a greatest length, so that a client cannot fill the memory.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from threading import Thread
from typing import Any, cast

from mcp.server.stdio import stdio_server

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message. HTTP takes 4 MiB; a client on the same machine may hand over a file."""

_TOO_LONG = f"[a line of more than {LONGEST_LINE} bytes]"
_CHUNK = 64 * 1024
_MOST_WAITING = 64


@asynccontextmanager
async def open_streams() -> AsyncIterator[tuple[Any, Any]]:
    """Yield the stream of messages to read, and the one to write."""
    with _divert_stdin() as descriptor:
        lines = Lines(descriptor)
        # it asks for nothing but lines, one after the other
        async with stdio_server(stdin=cast(Any, lines)) as streams:
            # What is printed into Python's own buffer would be written once the descriptor is back.
            with redirect_stdout(sys.stderr):
                yield streams


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


class Lines:
    """The lines of a descriptor as an async iterator, read in a thread that ends with the process."""

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
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(descriptor, _CHUNK):
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            size += len(piece)
            yield (
                b"".join([*parts, piece])
                if size <= LONGEST_LINE
                else _TOO_LONG.encode()
            )
            parts = []
            size = 0
        size += len(rest)
        if size <= LONGEST_LINE:
            parts.append(rest)
        else:
            parts = []
    if parts and size:
        yield b"".join(parts)
