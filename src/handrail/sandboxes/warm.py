"""Level `isolated` without the cost of a new box: a warm process inside a box, which is forked for each call.

A box of bubblewrap takes about 30 ms to make, and its program's imports take more. A warm process has done both. There
is one for each set of code and mounts, and each process that it forks is isolated again (`warm_main`): a call has
namespaces and folders of its own, and finds nothing of any other call.

The first call of a kind takes a box of its own. So does the second, which starts the warm process; calls use it once it
is ready. Where it does not start, because the kernel refuses it or because what the tool imports starts threads,
every call goes on taking a box of its own: the level is the same.

Rule 1: a warm process never runs a call itself, and knows nothing but the code that calls import.
Rule 2: it ends when this process does, by whatever cause: the line between them closes.
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Lock
from typing import IO

from handrail import logs
from handrail.network.descriptors import wait_readable
from handrail.ports import JobEnded, SandboxJob, WarmStart
from handrail.sandboxes.host import (
    Launch,
    make_order,
    start_with_empty_key_ring,
    watch_job,
)
from handrail.sandboxes.limits import BOX_BYTES, NOBODY, TMP_BYTES
from handrail.sandboxes.seccomp import filter_here
from handrail.sandboxes.warm_main import READY
from handrail.surroundings.clock import monotonic

MOST_WARM = 8
"""Warm processes at once; each holds what its tool imports, 30 MB or more."""
START_S = 20.0
"""How long one may take to import what it needs."""
_REPORT_FD = 3
"""Replaced inside by the number that it has there."""
FOLDERS = {"/box": BOX_BYTES, "/tmp": TMP_BYTES, "/dev/shm": TMP_BYTES}
"""The folders, with their sizes, that each call gets empty, in memory."""


class WarmProcesses:
    """The warm processes of this program, the least recently used first."""

    def __init__(self) -> None:
        self.reset()
        atexit.register(self.close)

    def reset(self) -> None:
        """Forget all of them: after a fork they are the parent's."""
        self._guard = Lock()
        self._kinds: OrderedDict[Hashable, WarmProcess | None] = OrderedDict()
        self._cold: set[Hashable] = set()

    def find(
        self, job: SandboxJob, command: Callable[[], Sequence[str]]
    ) -> WarmProcess | None:
        """Return the warm process for a job; None where the job has to take a box of its own. Waits for nothing.

        Args:
            command: Returns the words that make the box, without the program.
        """
        assert job.warm is not None
        kind = _kind_of(job, job.warm)
        with self._guard:
            if kind in self._cold:
                return None
            if kind not in self._kinds:
                self._kinds[kind] = None  # the first of its kind
                self._forget_oldest()
                return None
            self._kinds.move_to_end(kind)
            process = self._kinds[kind]
            if process is None:
                self._kinds[kind] = WarmProcess(command(), job.warm)
                return None
            process.calls += 1  # so that nobody closes it
        if process.check_ready():
            return process
        self.give_back(process)
        if process.has_ended:
            self.give_up(job, process)
        return None

    def give_back(self, process: WarmProcess) -> None:
        """Count a call as ended."""
        with self._guard:
            process.calls -= 1

    def give_up(self, job: SandboxJob, process: WarmProcess) -> None:
        """Use a box of its own for every call of this kind from now on, unless its process had served calls."""
        assert job.warm is not None
        kind = _kind_of(job, job.warm)
        with self._guard:
            if self._kinds.get(kind) is process:
                del self._kinds[kind]
                if not process.is_ready:
                    self._cold.add(kind)
        process.close()

    def _forget_oldest(self) -> None:
        """Make room, at the cost of those in which no call runs."""
        idle = [
            kind
            for kind, process in self._kinds.items()
            if process is None or not process.calls
        ]
        for kind in idle[: max(0, len(self._kinds) - MOST_WARM)]:
            process = self._kinds.pop(kind)
            if process is not None:
                process.close()

    def close(self) -> None:
        """End all of them."""
        with self._guard:
            processes = [each for each in self._kinds.values() if each is not None]
            self._kinds.clear()
        for each in processes:
            each.close()


def _kind_of(job: SandboxJob, warm: WarmStart) -> Hashable:
    return tuple(job.mounts), tuple(warm.path), warm.prepare, tuple(warm.prepared)


class WarmProcess:
    """One warm process, and the line to it.

    Attributes:
        calls: How many use it now; changed under the guard of `WarmProcesses`.
        carried: How many it has carried.
        is_ready: It has imported what calls need.
        has_ended: It is gone, and no call can use it.
    """

    def __init__(self, command: Sequence[str], warm: WarmStart) -> None:
        self.calls = 0
        self.carried = 0
        self.is_ready = False
        self.has_ended = False
        self._until = monotonic() + START_S
        self._guard = Lock()
        self._over = Event()
        self._line, its_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = (
            its_line.fileno(),
            (FOLDERS, filter_here(), *_user_inside()),
            warm.prepare,
            list(warm.prepared),
            warm.function,
        )
        program = (
            f"import sys; sys.path += {list(warm.path)!r}; "
            f"sys.version_info[:2] == {sys.version_info[:2]!r} or sys.exit('its Python is another version'); "
            "from handrail.sandboxes.warm_main import main; "
            f"main(*{arguments!r})"
        )
        with its_line, tempfile.TemporaryFile() as output:
            self._output = os.dup(output.fileno())
            words = [*command, "-I", "-S", "-B", "-X", "utf8", "-c", program]
            self._process = start_with_empty_key_ring(
                self._over,
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[its_line.fileno()],
                cwd="/",
                start_new_session=True,
                env={"PATH": "/usr/bin:/bin"},
            )

    def check_ready(self) -> bool:
        """Whether a call can be started."""
        with self._guard:
            if not (self.is_ready or self.has_ended):
                if wait_readable(self._line, timeout_s=0):
                    self._read_ready()
                elif monotonic() > self._until:
                    self.has_ended = True
        return self.is_ready and not self.has_ended

    def check_ended(self) -> bool:
        """Whether it is gone, and no call can use it."""
        with self._guard:
            self.has_ended = self.has_ended or self._process.poll() is not None
            return self.has_ended

    def _read_ready(self) -> None:
        self.is_ready = self._line.recv(64) == READY
        if not self.is_ready:
            self.has_ended = True
            end = os.pread(self._output, 10_000, 0)[-500:]
            logs.log.debug("a warm sandbox process did not start: %r", end)

    def run(self, job: SandboxJob, launch: Launch, cancelled: Event) -> JobEnded | None:
        """Run a job in a process forked from this one; None when it is gone, and the job has not started."""
        assert job.warm is not None
        arguments = "\0".join(job.warm.arguments).encode()
        with ExitStack() as ours:
            theirs = ExitStack()
            with theirs:
                pipes = [os.pipe() for _ in range(4)]
                (
                    (order_end, order),
                    (out, out_end),
                    (err, err_end),
                    (report, report_end),
                ) = pipes
                inside = [order_end, out_end, err_end, report_end]
                for each in inside:
                    theirs.callback(os.close, each)
                files = [
                    os.fdopen(order, "wb", 0), os.fdopen(out, "rb", 0), os.fdopen(err, "rb", 0)
                ]  # fmt: skip
                for file in files:
                    ours.callback(file.close)
                watched = self._fork(arguments, inside)
            if watched is None:
                os.close(report)
                return None
            process = ForkedProcess(watched, *files)
            self.carried += 1
            ours.callback(process.close)
            words = make_order(job, launch, _REPORT_FD)
            return watch_job(process, report, job, words, cancelled, Event())

    def _fork(self, arguments: bytes, fds: Sequence[int]) -> int | None:
        """Have a process forked; return what becomes readable when it has ended."""
        with self._guard:
            if self.has_ended:
                return None
            try:
                socket.send_fds(self._line, [arguments], fds)
                _, watched, _, _ = socket.recv_fds(self._line, 64, 1)
            except OSError:
                watched = []
            if not watched:
                self.has_ended = True
                return None
        return watched[0]

    def close(self) -> None:
        """End it, with every process that it has forked."""
        with self._guard:
            self.has_ended = True
            if self._over.is_set():
                return
            self._over.set()
            self._line.close()
            os.close(self._output)
        self._process.kill()
        self._process.wait()


def _user_inside() -> tuple[int, int]:
    """Return the user and the group that a call sees itself as: those that it has in a box of its own."""
    if os.geteuid() == 0:
        return NOBODY, NOBODY
    return os.geteuid(), os.getegid()


class ForkedProcess:
    """A process that a warm one has forked: the supervisor of one call. See `host.SupervisorProcess`."""

    def __init__(
        self, watched: int, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]
    ) -> None:
        self.exit_fd = watched
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.pid = _pid_of(watched)

    def poll(self) -> int | None:
        """Return 0 when it has ended: with what code, its report says."""
        return 0 if wait_readable(self.exit_fd, timeout_s=0) else None

    def wait(self) -> int:
        """Wait until it has ended."""
        wait_readable(self.exit_fd)
        return 0

    def send_signal(self, sig: int) -> None:
        """Send it a signal; never to another process that has its number by now."""
        signal.pidfd_send_signal(self.exit_fd, sig)

    def kill(self) -> None:
        """End it; the kernel ends what it supervises, the first process of a namespace, with it."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close what watches it."""
        os.close(self.exit_fd)


def _pid_of(watched: int) -> int:
    """Return the number of a process, as our namespace has it; 0 when it has ended."""
    info = Path(f"/proc/self/fdinfo/{watched}").read_text(encoding="ascii")
    found = re.search(r"^Pid:\s+([0-9]+)$", info, re.M)
    return int(found[1]) if found else 0


WARM = WarmProcesses()

if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=WARM.reset)
