"""Level `wasm`: Python that a model wrote, in a WebAssembly machine; Linux, macOS and Windows, without namespaces.

The program is run by a CPython that is itself WebAssembly, so it has what that machine gives it: memory, output, a
clock, randomness, and the files of its job, which it can read. Files of ours, the network, the environment, processes
and threads do not exist there. Each program gets a fresh instance, in a warm process of its own (`wasm_worker`), which
is killed at the deadline and replaced.

Limits: pure Python and the standard library; a third to a fifth of CPython's speed; a program makes no files.

Rule 1: the process's answer is untrusted bytes of a stated length: it is parsed, never unpickled.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock

import msgspec
from msgspec import Struct

from handrail.ports import JobEnded, SandboxJob
from handrail.sandboxes.programs import (
    EndReason,
    PythonProgram,
    TimeLimit,
    lay_files,
    read_program,
)
from handrail_toolbox.sandboxes import wasm_build
from handrail_toolbox.sandboxes.wasm_worker import (
    DROPPED,
    END,
    HEADER_BYTES,
    STDERR,
    STDOUT,
    WasmEnd,
    WasmOrder,
    read_message,
    write_message,
)

MOST_IDLE = 4
"""How many idle processes stay warm; each holds about 80 MB, most of it shared."""
_MOST_MESSAGE_BYTES = 64 * 1024 * 1024
"""WASI cuts output into far smaller pieces."""
_TRAPPED = -6
"""The exit code of a program whose machine stopped it, as if by SIGABRT; stderr says why."""


class WasmSandbox(Struct, frozen=True):
    """Python in WebAssembly, where wasmtime is installed and the component has been built."""

    level: str = "wasm"

    @property
    def lacks(self) -> str:
        """See `Sandbox.lacks`."""
        return wasm_build.find_lack()

    @property
    def python(self) -> str:
        """See `Sandbox.python`: a name alone, because no other program exists there."""
        return "python"

    def run(self, job: SandboxJob, cancelled: Event) -> JobEnded:
        """See `Sandbox.run`.

        Raises:
            OSError: It is no Python program, or the process does not start.
        """
        program = read_program(job)
        worker = _POOL.take()
        try:
            return worker.run(program, job, cancelled)
        except BaseException:
            worker.end()
            raise
        finally:
            _POOL.give_back(worker)


class WasmWorker:
    """One warm process, which runs one program at a time."""

    def __init__(self) -> None:
        self.alive = True
        self._folder = tempfile.mkdtemp(prefix="handrail-wasm-")
        # it looks for modules where we do
        path = [str(Path(each or ".").resolve()) for each in sys.path]
        arguments = (str(wasm_build.compiled_file()), self._folder)
        program = (
            f"import sys; sys.path[:0] = {path!r}; "
            f"from handrail_toolbox.sandboxes.wasm_worker import main; main(*{arguments!r})"
        )
        environment = {
            name: os.environ[name]
            for name in ("PATH", "SYSTEMROOT")
            if name in os.environ
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        if self._read_end(_Heads(0)) is None:
            self.end()
            raise OSError("the process of level 'wasm' did not start")

    def run(
        self, program: PythonProgram, job: SandboxJob, cancelled: Event
    ) -> JobEnded:
        """Run a program; kill the process when its time is over, or it is cancelled."""
        heads = _Heads(job.output_bytes)
        order = WasmOrder(
            name=program.name,
            source=program.source,
            has_files=bool(program.files),
            memory_bytes=job.memory_bytes,
            output_bytes=job.output_bytes,
        )
        lay_files(self._folder, program.files)
        with TimeLimit(self.kill, job.timeout_s, cancelled) as deadline:
            end = self._ask(order, heads)
        if end is None:
            self.end()
            return heads.ended(deadline.reached or "lost", None)
        if program.files:
            self._empty_folder()
        exit_code = _TRAPPED if end.exit_code is None else end.exit_code
        return heads.ended("exited", exit_code, end.dropped_bytes)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def end(self) -> None:
        """End the process and remove its folder."""
        self.alive = False
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._process.kill()
        self._process.wait()
        self._stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, order: WasmOrder, heads: _Heads) -> WasmEnd | None:
        try:
            write_message(self._stdin, msgspec.msgpack.encode(order))
        except BrokenPipeError:
            return None
        return self._read_end(heads)

    def _read_end(self, heads: _Heads) -> WasmEnd | None:
        """Read output up to the end of a program; None when the process is gone or says nonsense."""
        try:
            while message := read_message(self._stdout, _MOST_MESSAGE_BYTES):
                if message[:1] == END:
                    return msgspec.msgpack.decode(message[1:], type=WasmEnd)
                heads.append(message[:1], message[1:])
        except (OSError, KeyError, ValueError, msgspec.DecodeError):
            return None
        return None

    def _empty_folder(self) -> None:
        for each in Path(self._folder).iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()


class _Heads:
    """The beginning of each stream."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._streams = {STDOUT: bytearray(), STDERR: bytearray()}
        self._dropped = 0

    def append(self, stream: bytes, data: bytes) -> None:
        if stream == DROPPED:
            self._dropped = int.from_bytes(data[:HEADER_BYTES], "little")
            return
        head = self._streams[stream]
        head += data[: max(0, self._most_bytes - len(head))]

    def ended(
        self, end: EndReason, exit_code: int | None, dropped: int = 0
    ) -> JobEnded:
        return JobEnded(
            end=end,
            exit_code=exit_code,
            stdout=bytes(self._streams[STDOUT]),
            stderr=bytes(self._streams[STDERR]),
            dropped_bytes=max(dropped, self._dropped),
        )


class _Pool:
    """Idle workers. One that was killed is not given back; the next call starts another."""

    def __init__(self) -> None:
        self.reset()
        atexit.register(self.close)

    def reset(self) -> None:
        """Forget all workers: after a fork they are the parent's."""
        self._guard = Lock()
        self._idle: list[WasmWorker] = []

    def take(self) -> WasmWorker:
        with self._guard:
            if self._idle:
                return self._idle.pop()
        return WasmWorker()

    def give_back(self, worker: WasmWorker) -> None:
        with self._guard:
            has_room = worker.alive and len(self._idle) < MOST_IDLE
            if has_room:
                self._idle.append(worker)
        if worker.alive and not has_room:
            worker.end()

    def close(self) -> None:
        """End all idle workers."""
        with self._guard:
            idle = self._idle
            self._idle = []
        for worker in idle:
            worker.end()


_POOL = _Pool()

if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_POOL.reset)


SANDBOX = WasmSandbox()
