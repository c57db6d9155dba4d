"""The host's side of a sandbox: starts the supervisor inside, sends it its order, and ends it when its time is over.

Rule 1: output is bounded here: bytes beyond a limit are read and dropped.
Rule 2: a report is untrusted text. Names and contents are checked; what does not fit is left out.
Rule 3: a program is first asked to end (stdin is closed); a second later it is killed with everything below it.
Rule 4: each process has its own limits from the kernel. What all hold together is polled here, so that many processes
may have more between two looks; a bound without that gap needs a cgroup, which few may make.
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
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from handrail.ports import JobEnded, SandboxJob
from handrail.sandboxes import confinement
from handrail.sandboxes.supervisor import descendants, parse_header, record
from handrail.surroundings.clock import monotonic

LOOK_S = 0.05
"""How often a running program is looked at, for a cancellation and for what it holds."""
GRACE_S = 1.0
DRAIN_S = 0.2
"""How long to wait for output after the end: another process may hold a pipe open for ever."""

EndReason: TypeAlias = Literal["exited", "timeout", "cancelled", "memory", "lost"]


class Launch(Struct, frozen=True):
    """How a supervisor is started: a command that runs `supervisor.main`, in a folder, and what the program sees.

    Attributes:
        adopts: The supervisor adopts and ends orphans; in a namespace its first process does.
        seccomp_filter: The filter that `supervisor.main` gives to `confinement.drop_rights`; None if the command drops
            its rights itself.
        pass_fds: Descriptors that the command inherits.
        report_fd: The number that the report has inside, where the command changes it: it finds the number outside in
            its environment, as REPORT_FD.
        most_inodes: How many files, folders and links a folder in memory may hold, by its path.
    """

    command: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    limits: Mapping[str, int]
    adopts: bool = False
    seccomp_filter: bytes | None = None
    pass_fds: Sequence[int] = ()
    report_fd: int | None = None
    most_inodes: Mapping[str, int] = {}  # a Struct copies it


@cache
def supervisor_source() -> str:
    """Return the source of what runs inside: `confinement` and `supervisor` in one text."""
    future = "from __future__ import annotations\n"
    modules = [Path(confinement.__file__), Path(__file__).with_name("supervisor.py")]
    return future + "\n".join(
        module.read_text(encoding="utf-8").replace(future, "", 1) for module in modules
    )


class _StreamHead(Struct):
    """The beginning of a stream, up to a number of bytes."""

    max_bytes: int
    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def append(self, more: bytes) -> None:
        room = max(0, self.max_bytes - len(self.data))
        self.data += more[:room]
        self.dropped += len(more[room:])


def run_job(job: SandboxJob, launch: Launch, cancelled: Event) -> JobEnded:
    """Run a job to its end.

    Raises:
        OSError: It could not be started.
    """
    report, report_end = os.pipe()
    over = Event()
    try:
        process = _start(launch, report_end, over)
    except BaseException:
        over.set()
        os.close(report)
        raise
    finally:
        os.close(report_end)
    inside = report_end if launch.report_fd is None else launch.report_fd
    order = _make_order(job, launch, inside)
    watch = _Watch(process, report, job, order)
    has_ended = False
    try:
        has_ended = watch.run(monotonic() + job.timeout_s, cancelled)
    finally:
        if not has_ended:
            _kill(process)
        over.set()
        watch.close()
    return watch.result()


def _start(launch: Launch, report_fd: int, over: Event) -> subprocess.Popen[bytes]:
    """Start the command of a launch with an empty session key ring.

    A process inherits the key ring of the thread that starts it, so a new thread first joins an empty one. The thread
    stays until the job is `over`, because the kernel takes it for the parent with which the process is to die.
    """
    renumbered = {} if launch.report_fd is None else {"REPORT_FD": str(report_fd)}
    started: Future[subprocess.Popen[bytes]] = Future()

    def start() -> None:
        try:
            confinement.join_empty_key_ring()
            process = subprocess.Popen(
                launch.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=[report_fd, *launch.pass_fds],
                cwd=launch.folder,
                start_new_session=True,
                env={"PATH": "/usr/bin:/bin"} | renumbered,
            )
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        over.wait()

    Thread(target=start, name="handrail-sandbox", daemon=True).start()
    return started.result()


def _make_order(job: SandboxJob, launch: Launch, report_fd: int) -> bytes:
    """Return the order to the supervisor; see its head for the records."""
    numbers = {
        "most_bytes": job.returned_bytes,
        "most_files": job.returned_files,
        "report_fd": report_fd,
    }
    records = [
        record("arg", f"{at:06}", os.fsencode(each)) for at, each in enumerate(job.argv)
    ]
    records += [
        record("environment", name, os.fsencode(value))
        for name, value in launch.environment.items()
    ]
    records += [
        record("limit", name, b"%d" % most) for name, most in launch.limits.items()
    ]
    records += [
        record("most_inodes", name, b"%d" % most)
        for name, most in launch.most_inodes.items()
    ]
    records += [record("file", name, data) for name, data in job.files.items()]
    records += [record(kind, "", b"%d" % number) for kind, number in numbers.items()]
    if launch.adopts:
        records.append(record("adopt", "", b""))
    if launch.seccomp_filter is not None:
        records.append(record("seccomp_filter", "", launch.seccomp_filter))
    records.append(record("end", "", b""))
    return b"".join(records)


def hold_more(pid: int, most_bytes: int) -> bool:
    """Whether the processes below this one hold more memory together (Linux; elsewhere never).

    Shared memory counts in parts. The parts are slow to ask for, so that is done only where the plain sizes, in which
    shared memory counts for each process, are more.
    """
    sizes = {each: _resident(each) for each in descendants(pid, stop=False)}
    if sum(sizes.values()) <= most_bytes:
        return False
    return sum(_share(each, size) for each, size in sizes.items()) > most_bytes


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, IndexError):  # it has ended meanwhile
        return 0


def _share(pid: int, size: int) -> int:
    try:
        match = re.search(
            r"^Pss: +([0-9]+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M
        )
    except PermissionError:  # counted too high, rather than not at all
        return size
    except OSError:
        return 0
    return int(match[1]) * 1024 if match else size


class _Watch:
    """The pipes of one job, and its output."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        report: int,
        job: SandboxJob,
        order: bytes,
    ) -> None:
        self._process = process
        self._job = job
        self._order = memoryview(order)
        self._report = open(report, "rb", buffering=0)  # noqa: SIM115  # closed with the others
        self._streams = {
            process.stdout: _StreamHead(job.output_bytes),
            process.stderr: _StreamHead(job.output_bytes),
            self._report: _StreamHead(job.returned_bytes + 64 * 1024),  # and names
        }
        self._end: EndReason = "exited"
        self._poll = select.poll()
        self._open: dict[int, Any] = {}
        for pipe in (process.stdin, *self._streams):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open[pipe.fileno()] = pipe
            self._poll.register(
                pipe, select.POLLOUT if pipe is process.stdin else select.POLLIN
            )
        self._exit = _open_exit(process)
        if self._exit is not None:
            self._poll.register(self._exit, select.POLLIN)

    def run(self, deadline: float, cancelled: Event) -> bool:
        """Read and write until the program has ended, or until its time and its grace are over; False if it has not."""
        if not self._run_to_end(deadline, cancelled):
            return False
        if self._end == "exited":
            self._stop_polling(self._process.stdin)
        self._close_exit()  # it stays readable, so the loop below would never wait
        until = monotonic() + DRAIN_S
        while self._open and monotonic() < until:
            self._step(until - monotonic())
        return True

    def _run_to_end(self, deadline: float, cancelled: Event) -> bool:
        """Read and write until the process has ended; False when it did not within its grace."""
        next_look = 0.0
        while self._process.poll() is None:
            # returns early when the process ends, where `_exit` reports that
            self._step(LOOK_S)
            now = monotonic()
            holds_too_much = False
            if now > next_look:
                holds_too_much = hold_more(self._process.pid, self._job.memory_bytes)
                # at most a tenth of the time is spent looking
                next_look = now + max(LOOK_S, 10 * (monotonic() - now))
            if cancelled.is_set():
                self._end = "cancelled"
            elif holds_too_much:
                self._end = "memory"
            elif now > deadline:
                self._end = "timeout"
            if self._end != "exited":
                self._close_stdin()
                return self._wait_for_end(now + GRACE_S)
        return True

    def _wait_for_end(self, deadline: float) -> bool:
        """Read and write until the process, which was asked to end, has ended; False when it has not in time."""
        while self._process.poll() is None:
            self._step(LOOK_S)
            if monotonic() > deadline:
                return False
        return True

    def _step(self, within_s: float) -> None:
        for number, _ in self._poll.poll(max(0.0, within_s) * 1000):
            if number == self._exit:
                continue
            pipe = self._open[number]
            if pipe is self._process.stdin:
                self._write_order()
            elif more := os.read(number, 1 << 16):
                self._streams[pipe].append(more)
            else:
                self._stop_polling(pipe)

    def _write_order(self) -> None:
        """Write some of the order; afterwards stdin stays open, for as long as the program may run."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):
            self._order = self._order[
                os.write(stdin.fileno(), self._order[: 1 << 16]) :
            ]
            if self._order:
                return
        self._stop_polling(stdin)

    def _stop_polling(self, pipe: Any) -> None:
        if self._open.pop(pipe.fileno(), None) is not None:
            self._poll.unregister(pipe)

    def _close_stdin(self) -> None:
        self._stop_polling(self._process.stdin)
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
        for pipe in (self._process.stdin, *self._streams):
            if pipe is not None:
                pipe.close()

    def result(self) -> JobEnded:
        """Return how the job ended, and its output."""
        stdout, stderr, report_stream = self._streams.values()
        report = bytes(report_stream.data)
        exit_code, files, left = _parse_report(report, self._job)
        end = self._end
        if end == "exited":
            first_kind, _, _ = next(_records(report), ("", "", b""))
            if first_kind == "memory":
                end = "memory"
            elif exit_code is None:
                end = "lost"
        return JobEnded(
            end=end,
            exit_code=exit_code if end == "exited" else None,
            stdout=bytes(stdout.data),
            stderr=bytes(stderr.data),
            dropped_bytes=stdout.dropped + stderr.dropped,
            files=files,
            left=left,
        )


def _open_exit(process: subprocess.Popen[bytes]) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None where the system has none.

    Without it the end is noticed at the next look: 25 ms later on average.
    """
    try:
        return os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # Linux 5.3 has it; a container may refuse it
        return None


def _parse_report(
    report: bytes, job: SandboxJob
) -> tuple[int | None, Mapping[str, bytes], Sequence[str]]:
    """Return exit code, files and names left out; stop at the first malformed record, skip names outside."""
    exit_code: int | None = None
    files: dict[str, bytes] = {}
    left: list[str] = []
    room = job.returned_bytes
    for kind, name, data in _records(report):
        match kind:
            case "exit_code" if re.fullmatch(rb"-?[0-9]{1,3}", data):
                exit_code = int(data)
            case "file" if (
                is_below(name) and len(data) <= room and len(files) < job.returned_files
            ):
                files[name] = data
                room -= len(data)
            case "left" if is_below(name) and len(left) < job.returned_files:
                left.append(name)
    return exit_code, files, left


def _records(report: bytes) -> Iterator[tuple[str, str, bytes]]:
    at = 0
    while (end := report.find(b"\n", at, at + 80)) >= 0:
        try:
            kind, name_length, data_length = parse_header(report[at:end])
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
    return (
        len(name) <= 255
        and name.isprintable()
        and "\\" not in name
        and not {"", ".", ".."} & {*parts}
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and everything below it."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            process.send_signal(signal.SIGSTOP)
        for pid in [*descendants(process.pid)]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            process.kill()
    process.wait()
