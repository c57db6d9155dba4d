"""The host's side of a sandbox: starts what runs inside, gives it its order, and ends it when its time is over.

Rule 1: what comes out is bounded here, whatever it claims: bytes beyond a limit are read and dropped.
Rule 2: a report is a stranger's text. Names and contents are checked; what does not fit is left out.
Rule 3: first it is asked to end (stdin is closed); a second later it is killed with everything below it.
Rule 4: each process has its own limits from the kernel. What all hold together is looked at here, so that a crowd may
have more for as long as it is not looked at; a bound without that gap needs a cgroup, which few may make.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from handrail.ports import JobEnded, SandboxJob
from handrail.sandboxes import confinement
from handrail.sandboxes.supervisor import descendants, lengths, record

LOOK_S = 0.05
"""How often a running program is looked at, for a cancellation and for what it holds."""
GRACE_S = 1.0
DRAIN_S = 0.2
"""How long to wait for output once all has ended: somebody may hold a pipe open for ever."""

Why: TypeAlias = Literal["exited", "timeout", "cancelled", "memory", "lost"]


class Place(Struct, frozen=True):
    """Where an order is carried out: a command that starts `inside.main`, in a folder, with what the program sees.

    Attributes:
        adopts: Nobody else ends what the program leaves behind, as the first process of a namespace does.
        seccomp_filter: The filter that `inside.main` gives to `confinement.drop_rights`; None if the command drops its
            rights itself.
        pass_fds: Descriptors that the command inherits.
        most_inodes: How many files, folders and links a folder in memory may hold, by its path.
    """

    command: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    limits: Mapping[str, int]
    adopts: bool = False
    seccomp_filter: bytes | None = None
    pass_fds: Sequence[int] = ()
    most_inodes: Mapping[str, int] = {}  # noqa: RUF012  # a Struct copies it


@cache
def program() -> str:
    """The source of what runs inside: `confinement` and `inside` in one text."""
    future = "from __future__ import annotations\n"
    modules = [Path(confinement.__file__), Path(__file__).with_name("supervisor.py")]
    return future + "\n".join(module.read_text(encoding="utf-8").replace(future, "", 1) for module in modules)


class _Kept(Struct):
    """The beginning of a stream, up to a number of bytes."""

    most: int
    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def take(self, more: bytes) -> None:
        room = max(0, self.most - len(self.data))
        self.data += more[:room]
        self.dropped += len(more[room:])


def carry_out(job: SandboxJob, place: Place, cancelled: Event) -> JobEnded:
    """Run a job in a place, to its end.

    Raises:
        OSError: It could not be started.
    """
    report, told = os.pipe()
    over = Event()
    try:
        process = _start(place, told, over)
    except BaseException:
        over.set()
        os.close(report)
        raise
    finally:
        os.close(told)
    watch = _Watch(process, report, job, _order(job, place, told))
    try:
        watch.until_the_end(monotonic() + job.timeout_s, cancelled)
    finally:
        _kill(process)
        over.set()
        watch.close()
    return watch.ended()


def _start(place: Place, report_fd: int, over: Event) -> subprocess.Popen[bytes]:
    """Start the command with an empty session key ring.

    A process inherits the key ring of the thread that starts it, so a new thread first joins an empty one. The thread
    stays until the job is `over`, because the kernel takes it for the parent with which the process is to die.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def start() -> None:
        try:
            confinement.join_empty_key_ring()
            process = subprocess.Popen(
                place.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                pass_fds=[report_fd, *place.pass_fds], cwd=place.folder, start_new_session=True,
                env={"PATH": "/usr/bin:/bin"},
            )  # fmt: skip
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        over.wait()

    Thread(target=start, name="handrail-sandbox", daemon=True).start()
    return started.result()


def _order(job: SandboxJob, place: Place, report_fd: int) -> bytes:
    numbers = {"most_bytes": job.returned_bytes, "most_files": job.returned_files, "report_fd": report_fd}
    return b"".join([
        *(record("arg", f"{at:06}", os.fsencode(each)) for at, each in enumerate(job.argv)),
        *(record("environment", name, os.fsencode(value)) for name, value in place.environment.items()),
        *(record("limit", name, b"%d" % most) for name, most in place.limits.items()),
        *(record("most_inodes", name, b"%d" % most) for name, most in place.most_inodes.items()),
        *(record("file", name, data) for name, data in job.files.items()),
        *(record(kind, "", b"%d" % number) for kind, number in numbers.items()),
        *([record("adopt", "", b"")] if place.adopts else ()),
        *(() if place.seccomp_filter is None else [record("seccomp_filter", "", place.seccomp_filter)]),
        record("end", "", b""),
    ])  # fmt: skip


def hold_more(pid: int, most_bytes: int) -> bool:
    """Whether the processes below this one hold more memory together (Linux; elsewhere never).

    What several hold in common counts in shares. These are dear to ask for, so that is done only where the plain sizes,
    in which it counts for each of them, are more.
    """
    sizes = {each: _resident(each) for each in descendants(pid, stop=False)}
    if sum(sizes.values()) <= most_bytes:
        return False
    return sum(_share(each, size) for each, size in sizes.items()) > most_bytes


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # it has ended meanwhile
        return 0


def _share(pid: int, size: int) -> int:
    try:
        told = re.search(r"^Pss: +([0-9]+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    except PermissionError:  # counted too high, rather than not at all
        return size
    except OSError:
        return 0
    return int(told[1]) * 1024 if told else size


class _Watch:
    """The pipes of one job, and what came out of them."""

    def __init__(self, process: subprocess.Popen[bytes], report: int, job: SandboxJob, order: bytes) -> None:
        self._process, self._job, self._order = process, job, memoryview(order)
        self._report = open(report, "rb", buffering=0)  # noqa: SIM115  # closed with the others
        self._kept = {
            process.stdout: _Kept(job.output_bytes),
            process.stderr: _Kept(job.output_bytes),
            self._report: _Kept(job.returned_bytes + 64 * 1024),  # and names
        }
        self._end: Why = "exited"
        self._poll = select.poll()
        self._open: dict[int, Any] = {}
        for pipe in (process.stdin, *self._kept):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open[pipe.fileno()] = pipe
            self._poll.register(pipe, select.POLLOUT if pipe is process.stdin else select.POLLIN)
        self._exit = _open_exit(process.pid)
        if self._exit is not None:
            self._poll.register(self._exit, select.POLLIN)

    def until_the_end(self, deadline: float, cancelled: Event) -> None:
        """Read and write until all has ended, or has had its time and its grace."""
        asked_to_end, look = False, 0.0
        while self._process.poll() is None:
            self._step(LOOK_S)  # returns early when the process ends, where `_exit` reports that
            now = monotonic()
            if asked_to_end and now > deadline:
                return
            crowded = False
            if now > look and not asked_to_end:
                crowded = hold_more(self._process.pid, self._job.memory_bytes)
                look = now + max(LOOK_S, 10 * (monotonic() - now))  # at most a tenth of the time goes into looking
            if not asked_to_end and (now > deadline or crowded or cancelled.is_set()):
                self._end = "cancelled" if cancelled.is_set() else "memory" if crowded else "timeout"
                self._close_stdin()
                asked_to_end, deadline = True, now + GRACE_S
        if self._end == "exited":
            self._let_go(self._process.stdin)
        self._close_exit()  # it stays readable, so the loop below would never wait
        until = monotonic() + DRAIN_S
        while self._open and monotonic() < until:
            self._step(until - monotonic())

    def _step(self, within_s: float) -> None:
        for number, _ in self._poll.poll(max(0.0, within_s) * 1000):
            if number == self._exit:
                continue
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

    def _close_exit(self) -> None:
        if self._exit is not None:
            self._poll.unregister(self._exit)
            os.close(self._exit)
            self._exit = None

    def close(self) -> None:
        """Close the pipes."""
        self._close_exit()
        for pipe in (self._process.stdin, *self._kept):
            if pipe is not None:
                pipe.close()

    def ended(self) -> JobEnded:
        """Say how it ended."""
        out, err, report = self._kept.values()
        exit_code, files, left = _believed(bytes(report.data), self._job)
        end = self._end
        if end == "exited" and next(_records(bytes(report.data)), ("", "", b""))[0] == "memory":
            end = "memory"
        elif end == "exited" and exit_code is None:
            end = "lost"
        return JobEnded(
            end, exit_code if end == "exited" else None, bytes(out.data), bytes(err.data),
            out.dropped + err.dropped, files, left,
        )  # fmt: skip


def _open_exit(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a child process ends; None where the system has none.

    Without it the end is noticed at the next look: 25 ms later on average.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # Linux 5.3 has it; a container may refuse it
        return None


def _believed(report: bytes, job: SandboxJob) -> tuple[int | None, Mapping[str, bytes], Sequence[str]]:
    """Read a report up to where it is none: an exit code, and files and names that stay in their folder."""
    exit_code: int | None = None
    files: dict[str, bytes] = {}
    left: list[str] = []
    room = job.returned_bytes
    for kind, name, data in _records(report):
        if kind == "exit_code" and re.fullmatch(rb"-?[0-9]{1,3}", data):
            exit_code = int(data)
        elif kind == "file" and is_below(name) and len(data) <= room and len(files) < job.returned_files:
            files[name] = data
            room -= len(data)
        elif kind == "left" and is_below(name) and len(left) < job.returned_files:
            left.append(name)
    return exit_code, files, left


def _records(report: bytes) -> Iterator[tuple[str, str, bytes]]:
    at = 0
    while (end := report.find(b"\n", at, at + 80)) >= 0:
        try:
            kind, name_length, data_length = lengths(report[at:end])
            name = report[end + 1 : end + 1 + name_length].decode()
        except ValueError:
            return
        at = end + 1 + name_length + data_length
        if at > len(report):
            return
        yield kind, name, report[at - data_length : at]


def is_below(name: str) -> bool:
    """Whether a name is a relative path that stays in its folder and can be shown."""
    parts = name.split("/")
    return len(name) <= 255 and name.isprintable() and "\\" not in name and not {"", ".", ".."} & {*parts}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Make sure that nothing of it is left."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            process.send_signal(signal.SIGSTOP)
        for pid in [*descendants(process.pid)]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            process.kill()
    process.wait()
