"""The host's side of a sandbox: starts what runs inside, gives it its order, and ends it when its time is over.

Rule 1: what comes out is bounded here, whatever it claims: bytes beyond a limit are read and dropped.
Rule 2: a report is a stranger's text. Names and contents are checked; what does not fit is left out.
Rule 3: first it is asked to end (stdin is closed); a second later it is killed with everything below it.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Literal, TypeAlias

from handrail.errors import Json
from handrail.ports import Job, JobEnded
from handrail.sandboxes.inside import descendants

LOOK_S = 0.05
"""How often a running program is looked at for a cancellation."""
GRACE_S = 1.0
DRAIN_S = 0.2
"""How long to wait for output once all has ended: somebody may hold a pipe open for ever."""

Why: TypeAlias = Literal["exited", "timeout", "cancelled", "lost"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an order is carried out: a command that starts `inside.main`, in a folder, with what the program sees."""

    command: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    limits: Mapping[str, int]


@cache
def program() -> str:
    """The source of what runs inside."""
    return Path(__file__).with_name("inside.py").read_text(encoding="utf-8")


@dataclass(slots=True)
class _Kept:
    """The beginning of a stream, up to a number of bytes."""

    most: int
    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def take(self, more: bytes) -> None:
        room = max(0, self.most - len(self.data))
        self.data += more[:room]
        self.dropped += len(more[room:])


def carry_out(job: Job, place: Place, cancelled: Event) -> JobEnded:
    """Run a job in a place, to its end.

    Raises:
        OSError: It could not be started.
    """
    report, told = os.pipe()
    try:
        process = subprocess.Popen(
            place.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            pass_fds=[told], cwd=place.folder, start_new_session=True, env={"PATH": "/usr/bin:/bin"},
        )  # fmt: skip
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(told)
    watch = _Watch(process, report, job, _order(job, place, told))
    try:
        watch.until_the_end(monotonic() + job.timeout_s, cancelled)
    finally:
        _kill(process)
        watch.close()
    return watch.ended()


def _order(job: Job, place: Place, report_fd: int) -> bytes:
    files = {name: base64.b64encode(data).decode() for name, data in job.files.items()}
    text = json.dumps({
        "argv": list(job.argv), "environment": dict(place.environment), "limits": dict(place.limits), "files": files,
        "returned_bytes": job.returned_bytes, "returned_files": job.returned_files, "report_fd": report_fd,
    }).encode()  # fmt: skip
    return b"%016x" % len(text) + text


class _Watch:
    """The pipes of one job, and what came out of them."""

    def __init__(self, process: subprocess.Popen[bytes], report: int, job: Job, order: bytes) -> None:
        self._process, self._job, self._order = process, job, memoryview(order)
        self._report = open(report, "rb", buffering=0)  # noqa: SIM115  # closed with the others
        self._kept = {
            process.stdout: _Kept(job.output_bytes),
            process.stderr: _Kept(job.output_bytes),
            self._report: _Kept(2 * job.returned_bytes + 64 * 1024),  # base64, names, quotes
        }
        self._end: Why = "exited"
        self._poll = select.poll()
        self._open: dict[int, Any] = {}
        for pipe in (process.stdin, *self._kept):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open[pipe.fileno()] = pipe
            self._poll.register(pipe, select.POLLOUT if pipe is process.stdin else select.POLLIN)

    def until_the_end(self, deadline: float, cancelled: Event) -> None:
        """Read and write until all has ended, or has had its time and its grace."""
        asked_to_end = False
        while self._process.poll() is None:
            self._step(LOOK_S)
            now = monotonic()
            if asked_to_end and now > deadline:
                return
            if not asked_to_end and (now > deadline or cancelled.is_set()):
                self._end = "cancelled" if cancelled.is_set() else "timeout"
                self._close_stdin()
                asked_to_end, deadline = True, now + GRACE_S
        if self._end == "exited":
            self._let_go(self._process.stdin)
        until = monotonic() + DRAIN_S
        while self._open and monotonic() < until:
            self._step(until - monotonic())

    def _step(self, within_s: float) -> None:
        for number, _ in self._poll.poll(max(0.0, within_s) * 1000):
            pipe = self._open[number]
            if pipe is self._process.stdin:
                self._give()
            elif more := os.read(number, 1 << 16):
                self._kept[pipe].take(more)
            else:
                self._let_go(pipe)

    def _give(self) -> None:
        """Write some of the order; afterwards stdin stays open, for as long as the program may run."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):
            self._order = self._order[os.write(stdin.fileno(), self._order[: 1 << 16]) :]
            if self._order:
                return
        self._let_go(stdin)

    def _let_go(self, pipe: Any) -> None:
        """Look at a pipe no longer."""
        if self._open.pop(pipe.fileno(), None) is not None:
            self._poll.unregister(pipe)

    def _close_stdin(self) -> None:
        self._let_go(self._process.stdin)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        """Close the pipes."""
        for pipe in (self._process.stdin, *self._kept):
            if pipe is not None:
                pipe.close()

    def ended(self) -> JobEnded:
        """Say how it ended."""
        out, err, report = self._kept.values()
        exit_code, files, left = _believed(bytes(report.data), self._job)
        end = "lost" if self._end == "exited" and exit_code is None else self._end
        return JobEnded(
            end, exit_code if end == "exited" else None, bytes(out.data), bytes(err.data),
            out.dropped + err.dropped, files, left,
        )  # fmt: skip


def _believed(report: bytes, job: Job) -> tuple[int | None, Mapping[str, bytes], Sequence[str]]:
    """Read a report: an exit code, files within the limits under names that stay in their folder, names."""
    try:
        told: Json = json.loads(report)
        exit_code, given, left = told["exit_code"], told["files"], told["left"]
        files: dict[str, bytes] = {}
        room = job.returned_bytes
        for name, data in list(given.items())[: job.returned_files]:
            contents = base64.b64decode(data, validate=True)
            if is_below(name) and len(contents) <= room:
                files[name] = contents
                room -= len(contents)
        names = [name for name in left if isinstance(name, str) and is_below(name)][: job.returned_files]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None, {}, ()
    return exit_code if type(exit_code) is int else None, files, names


def is_below(name: str) -> bool:
    """Whether a name is a relative path that stays in its folder and can be shown."""
    parts = name.split("/")
    return len(name) <= 255 and name.isprintable() and "\\" not in name and not {"", ".", ".."} & {*parts}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Make sure that nothing of it is left."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)
        for pid in [*descendants(process.pid)]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            process.kill()
    process.wait()
