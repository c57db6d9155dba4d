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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from mcp.shared.message import SessionMessage

from handrail.invisible import printable
from handrail.sandboxes import launcher
from handrail_mcp.targets import ServerProgram
from handrail_mcp.transports.messages import Received, read_from_server, write_message
from handrail_mcp.transports.remote import MOST_MESSAGE_BYTES, MessageTooLong

KEPT_STDERR_BYTES = 4096
"""Size of the part of a child's standard error that is stored: its end."""

_GRACE_S = 0.4
"""How long a child may take to exit after its input was closed, and again after SIGTERM."""

_LAUNCHER_GRACE_S = 5.0
"""How long its launcher may take to kill everything. It gives up by itself before."""

_POLL_S = 0.01
_MOST_WAITING_BYTES = MOST_MESSAGE_BYTES
"""What may wait for a child that does not read. More is not written: a caller that gives up leaves nothing behind."""


class ServerProcess:
    """A running server, and what it wrote to its standard error."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
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
        process = await asyncio.create_subprocess_exec(
            *_make_command(program.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MOST_MESSAGE_BYTES,
            env=program.environment,
            cwd=program.cwd or None,
            start_new_session=True,
        )
        return cls(process)

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
        return read_from_server(line)

    async def write_message(self, item: SessionMessage) -> None:
        """Write a message to it, once there is room. Does nothing if it no longer reads."""
        assert self.process.stdin is not None
        pipe = self.process.stdin
        with suppress(ConnectionError, OSError):
            while pipe.transport.get_write_buffer_size() > _MOST_WAITING_BYTES:
                await pipe.drain()
            pipe.write(write_message(item.message))

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
