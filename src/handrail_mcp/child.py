"""A server as a child process: its standard streams as those of a connection.

The SDK has such a transport, too. This one bounds the length of a line, keeps the end of the child's standard error,
ends the child within a second, whatever it does, and passes each message on without a task and a queue in between.

Rule 1: the child has a process group of its own, and the whole group is ended with the connection; on Linux
        also a daemon that has left the group.
Rule 2: the child dies with us, even if we are killed: its standard input is closed, and on Linux its `launcher` kills
        it, with every process below it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, Self

import anyio
from mcp import types
from mcp.shared.message import SessionMessage

from handrail.invisible import printable
from handrail.sandboxes import launcher
from handrail_mcp.remote import MOST_MESSAGE_BYTES, MessageTooLong
from handrail_mcp.targets import ServerProgram
from handrail_mcp.wire.messages import (
    Received,
    read_likely,
    read_message,
    write_message,
)
from handrail_mcp.wire.polled import TOO_LONG, PolledLines

KEPT_STDERR_BYTES = 4096
"""Size of the part of a child's standard error that is stored: its end."""

_GRACE_S = 0.4
"""How long a child may take to exit after its input was closed, and again after SIGTERM."""

_LAUNCHER_GRACE_S = 5.0
"""How long its launcher may take to kill everything. It gives up by itself before."""

_POLL_S = 0.01
_MOST_WAITING_BYTES = MOST_MESSAGE_BYTES
"""What may wait for a child that does not read. More is not written: a caller that gives up leaves nothing behind."""


class Looker(Protocol):
    """Observes the messages of a connection."""

    def look_at_received(self, item: Received) -> None:
        """Note what was received, before anybody reads it."""

    def look_at_sent(self, item: SessionMessage) -> None:
        """Note what is sent."""

    def look_at_end(self) -> None:
        """Note that nothing is received any more."""


class ServerProcess:
    """A running server, and what it wrote to its standard error."""

    def __init__(
        self, process: asyncio.subprocess.Process, reading: int | None = None
    ) -> None:
        self.process = process
        self.lines: PolledLines | None = None
        self._reading = reading
        if reading is not None:
            self.lines = PolledLines(reading, ends_when_too_long=True)
        self._stderr = bytearray()
        self._is_too_long = False
        if process.stdin is not None:
            process.stdin.transport.set_write_buffer_limits(_MOST_WAITING_BYTES)

    @classmethod
    async def start(cls, program: ServerProgram) -> ServerProcess:
        """Start a server.

        Raises:
            OSError: It cannot be started.
        """
        _check_program(program)
        reading, writing = os.pipe() if sys.platform != "win32" else (None, None)
        try:
            process = await asyncio.create_subprocess_exec(
                *_make_command(program.command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if writing is None else writing,
                stderr=asyncio.subprocess.PIPE,
                limit=MOST_MESSAGE_BYTES,
                env=program.environment,
                cwd=program.cwd or None,
                start_new_session=True,
            )
        except BaseException:
            if reading is not None:
                os.close(reading)
            raise
        finally:
            if writing is not None:
                os.close(writing)
        return cls(process, reading)

    @property
    def pid(self) -> int:
        """The id of the process (on Linux that of its launcher), and of its group."""
        return self.process.pid

    @property
    def stderr(self) -> str:
        """The end of what it wrote to its standard error, as a terminal can show it."""
        text = self._stderr.decode("utf-8", "replace").strip()
        return printable(text, keep="\n\t")

    async def read_stderr(self) -> None:
        """Read the standard error to its end, keeping the last of it."""
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(KEPT_STDERR_BYTES):
            self._stderr += chunk
            del self._stderr[:-KEPT_STDERR_BYTES]

    async def read_message(self) -> Received:
        """Return the next message that it writes, or the error of a line that is no message.

        Raises:
            anyio.EndOfStream: It has closed its standard output, or wrote a line that is too long.
        """
        assert self.process.stdout is not None
        if self._is_too_long:
            raise anyio.EndOfStream
        line = b"\n"
        while line.isspace():
            try:
                line = await self.process.stdout.readline()
            except ValueError:
                self._is_too_long = True
                return MessageTooLong()
        if not line:
            # what follows may then say with which code it ended
            await self.wait()
            raise anyio.EndOfStream
        return read_message(line)

    async def write_message(self, message: SessionMessage) -> None:
        """Write a message to it, once there is room. Does nothing if it no longer reads."""
        while (room := self.find_room()) is not None:
            await room
        self.write(write_message(message.message))

    def find_room(self) -> Awaitable[None] | None:
        """Return what to wait for before more is written to it; None where there is room."""
        assert self.process.stdin is not None
        waiting_bytes = self.process.stdin.transport.get_write_buffer_size()
        return self._drain() if waiting_bytes > _MOST_WAITING_BYTES else None

    def write(self, data: bytes) -> None:
        """Write data to it. Does nothing if it no longer reads."""
        assert self.process.stdin is not None
        with suppress(ConnectionError, OSError):
            self.process.stdin.write(data)

    async def _drain(self) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError, OSError):
            await self.process.stdin.drain()

    async def stop(self) -> int | None:
        """End the process and its group; return its exit code, or None if it cannot be ended."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        if _is_launched() and self.process.returncode is None:
            self.process.terminate()  # the launcher only, which then kills what the server leaves
        if not await self.wait():
            self._signal(signal.SIGTERM)
            await self.wait()
        if _is_launched() and self.process.returncode is None:
            self.process.send_signal(launcher.STOP)
            await self.wait(_LAUNCHER_GRACE_S)
        # Also a group whose leader has gone may have members left.
        self._signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
        await self.wait()
        self._close_pipes()
        return self.process.returncode

    async def wait(self, within_s: float = _GRACE_S) -> bool:
        """Whether it exits within a time.

        Not `process.wait()`, which also waits for pipes that a grandchild may hold open.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while self.process.returncode is None:
            if loop.time() >= until:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self.pid, number)
            elif self.process.returncode is None:
                self.process.terminate()

    def _close_pipes(self) -> None:
        """Close our ends of the pipes, which a grandchild may hold open, too."""
        if self.lines is not None and self._reading is not None:
            self.lines.close()
            os.close(self._reading)
            self._reading = None
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            with suppress(PermissionError, ProcessLookupError):
                transport.close()


def _check_program(program: ServerProgram) -> None:
    """Raise FileNotFoundError for a program that is nowhere."""
    name = program.command[0]
    if program.cwd and "/" in name:
        return  # it may be relative to that folder
    if shutil.which(name, path=program.environment.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _is_launched() -> bool:
    """Whether a server is started by `launcher`."""
    return sys.platform == "linux" and bool(sys.executable)


def _make_command(command: Sequence[str]) -> Sequence[str]:
    if not _is_launched():
        return command
    # asking the kernel after the fork, in our own process, may deadlock where there are threads
    return sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), *command


@asynccontextmanager
async def hold_child(child: ServerProcess) -> AsyncIterator[None]:
    """Read the standard error of a server that was started; end it afterwards."""
    reading_stderr = asyncio.ensure_future(child.read_stderr())
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await child.stop()
            reading_stderr.cancel()
            await asyncio.wait([reading_stderr])


@asynccontextmanager
async def open_child(child: ServerProcess) -> AsyncIterator[Any]:
    """Yield the streams of a connection to a server whose pipes the event loop cannot wait for; end it afterwards."""
    async with hold_child(child):
        yield ChildMessages(child), ChildInput(child)


# ---------------------------------------------------------------------- messages, one a line


class ChildLines:
    """The messages from and to a server, one a line. See `Wire`.

    Args:
        link: Looks at each message before it is taken, and before it is written.
    """

    def __init__(self, child: ServerProcess, link: Looker) -> None:
        assert child.lines is not None
        self._child = child
        self._lines = child.lines
        self._link = link

    def start(self, take: Callable[[Received], None], end: Callable[[], None]) -> None:
        """See `Wire.start`."""

        def take_line(line: bytes) -> None:
            if line is TOO_LONG:  # the last one
                self._link.look_at_received(MessageTooLong())
                end()
            elif line and not line.isspace():
                item = read_likely(line, types.JSONRPCResponse)
                self._link.look_at_received(item)
                take(item)

        def take_end() -> None:
            self._ending = asyncio.ensure_future(self._end(end))

        self._lines.hand_on(take_line, take_end)

    async def _end(self, end: Callable[[], None]) -> None:
        self._link.look_at_end()
        # what follows may then say with which code it ended
        await self._child.wait()
        end()

    def find_room(self) -> Awaitable[None] | None:
        """See `Wire.find_room`."""
        return self._child.find_room()

    def write(self, message: types.JSONRPCMessage) -> None:
        """See `Wire.write`. Does nothing if the server no longer reads."""
        self._link.look_at_sent(SessionMessage(message))
        self._child.write(write_message(message))

    def close(self) -> None:
        """See `Wire.close`."""
        self._lines.close()


class MessageStream:
    """A stream as the SDK takes it, without a task of its own and without a queue.

    A memory stream between a task that reads lines and the one that wants messages takes three turns of the event loop
    for each message.
    """

    async def receive(self) -> Received:
        """Return the next message."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the stream."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class ChildMessages(MessageStream):
    """What a server writes."""

    def __init__(self, child: ServerProcess) -> None:
        self._child = child

    async def receive(self) -> Received:
        """Return the next message, or the error of a line that is no message."""
        return await self._child.read_message()


class ChildInput(MessageStream):
    """What is written to a server."""

    def __init__(self, child: ServerProcess) -> None:
        self._child = child
        self._is_open = True

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        if not self._is_open:
            raise anyio.ClosedResourceError
        await self._child.write_message(item)

    async def aclose(self) -> None:
        """Send no more."""
        self._is_open = False
