"""Level `monty`: a subset of Python that pydantic-monty interprets itself, within a millisecond; on every platform.

The interpreter knows no files, network, processes or imports beyond a few modules, so a program can compute and print.
It runs in a process that pydantic-monty keeps warm, and that is killed at the deadline and replaced.

Limits: a part of the language and of the standard library; a program that needs more fails with an error of its own. A
program can read the files of its job, and makes none. `time.sleep` returns at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
from importlib import metadata
from threading import Event, Lock
from typing import Any

from msgspec import Struct

from handrail.errors import describe_install
from handrail.ports import JobEnded, SandboxJob
from handrail.sandboxes.programs import (
    EndReason,
    PythonProgram,
    TimeLimit,
    lay_files,
    read_program,
)

MOST_PROCESSES = 8
_INSIDE = "/box"
_BEYOND_S = 5.0
"""How long after the deadline, which we keep ourselves, the interpreter ends a program."""


class MontySandbox(Struct, frozen=True):
    """The interpreter of pydantic-monty, where that is installed."""

    level: str = "monty"

    @property
    def lacks(self) -> str:
        """See `Sandbox.lacks`."""
        try:
            metadata.version("pydantic-monty")
        except metadata.PackageNotFoundError:
            return f"pydantic-monty is not installed: {describe_install('monty')}"
        return ""

    @property
    def python(self) -> str:
        """See `Sandbox.python`: a name alone, because no other program exists there."""
        return "python"

    def run(self, job: SandboxJob, cancelled: Event) -> JobEnded:
        """See `Sandbox.run`.

        Raises:
            OSError: It is no Python program, or the interpreter does not start.
        """
        import pydantic_monty

        program = read_program(job)
        output = _MontyOutput(job.output_bytes)
        try:
            if not program.files:
                end, exit_code = _run(program, job, cancelled, output, None)
            else:
                with tempfile.TemporaryDirectory(prefix="handrail-monty-") as folder:
                    lay_files(folder, program.files)
                    with pydantic_monty.MountDir(
                        host_path=folder, virtual_path=_INSIDE, mode="read-only"
                    ) as mount:
                        end, exit_code = _run(program, job, cancelled, output, mount)
        except FileNotFoundError as error:
            raise OSError(
                f"the interpreter of level 'monty' is missing: {error}"
            ) from error
        return JobEnded(
            end=end,
            exit_code=exit_code,
            stdout=bytes(output.stdout),
            stderr=bytes(output.stderr),
            dropped_bytes=output.dropped,
        )


def _run(
    program: PythonProgram,
    job: SandboxJob,
    cancelled: Event,
    output: _MontyOutput,
    mount: Any,
) -> tuple[EndReason, int | None]:
    import pydantic_monty as monty

    limits = monty.ResourceLimits(
        max_memory=job.memory_bytes,
        max_feed_duration_secs=job.timeout_s + _BEYOND_S,
    )
    with _POOL.get().checkout(
        script_name=program.name,
        limits=limits,
        # it would sleep in our process, where no deadline ends it
        os_policy=monty.OSPolicy(sleep="zero"),
    ) as session:
        pid = session.worker_pid

        def kill() -> None:
            if pid is not None:
                os.kill(pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)

        with TimeLimit(kill, job.timeout_s, cancelled) as deadline:
            try:
                session.feed_run(
                    program.source, print_callback=output.write, mount=mount
                )
            except monty.MontyCrashedError:
                return deadline.reached or "lost", None
            except monty.MontyError as error:
                return "exited", _read_error(error, output)
    return "exited", 0


def _read_error(error: Any, output: _MontyOutput) -> int:
    """Write an error as Python would, and return the exit code."""
    inner = error.exception()
    if isinstance(inner, SystemExit):
        if inner.code is None or isinstance(inner.code, int):
            return (inner.code or 0) & 0xFF
        output.write("stderr", f"{inner.code}\n")
        return 1
    shown = error.display() if hasattr(error, "display") else str(error)
    output.write("stderr", f"{shown}\n")
    return 1


class _MontyOutput:
    """The beginning of two streams. What is dropped is counted: the interpreter does not limit it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.dropped = 0

    def write(self, stream: str, text: str) -> None:
        head = self.stderr if stream == "stderr" else self.stdout
        data = text.encode("utf-8", "replace")
        sent = data[: max(0, self._most_bytes - len(head))]
        head += sent
        self.dropped += len(data) - len(sent)


class _MontyPool:
    """The interpreters of this process, started with the first program."""

    def __init__(self) -> None:
        self.reset()
        atexit.register(self.close)

    def reset(self) -> None:
        """Forget them: after a fork they are the parent's."""
        self._guard = Lock()
        self._monty: Any = None

    def get(self) -> Any:
        import pydantic_monty

        with self._guard:
            if self._monty is None:
                pool = pydantic_monty.Monty(max_processes=MOST_PROCESSES)
                self._monty = pool.__enter__()
            return self._monty

    def close(self) -> None:
        """End them all."""
        with self._guard:
            pool = self._monty
            self._monty = None
        if pool is not None:
            pool.__exit__(None, None, None)


_POOL = _MontyPool()

if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_POOL.reset)


SANDBOX = MontySandbox()
