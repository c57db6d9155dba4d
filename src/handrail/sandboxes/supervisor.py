"""The supervisor inside a sandbox: writes a program's files, limits it, ends it, and reports the files that it made.

Started as `python -I -S -c SOURCE` by `host`, so it imports the standard library only, and little of that: every run
pays for an import (json, pathlib and subprocess would double the time it takes to start). The same text begins with
`confinement`, for `drop_rights`. It reads one order on stdin and writes one report to the descriptor that the order
names. The host keeps stdin open as long as it wants the program to run; when stdin closes, because the host says so or
is gone, everything ends.

Order and report are records, each a line `KIND LENGTH LENGTH`, a name and bytes:

    order   arg, environment, limit, file, most_bytes, most_files, most_inodes, report_fd, seccomp_filter, adopt, end
    report  exit_code, memory, file, left

Rule 1: when it ends, nothing that it started runs: it adopts orphans, so that a daemon is found too (Linux).
Rule 2: the program may have taken it over. `host` reads its report as untrusted bytes.
"""

# ruff: noqa: PTH103, PTH123, PTH208  (pathlib is one of the imports that are not worth their time here)

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from handrail.sandboxes.confinement import drop_rights

_PR_SET_CHILD_SUBREAPER = 36
_MAX_DEPTH = 8
_MAX_LINE_BYTES = 80
_LOOK_S = 0.02


def main() -> None:
    """Run the order on stdin, and report."""
    order: dict[str, dict[str, bytes]] = {}
    for kind, name, data in _records_of_stdin():
        order.setdefault(kind, {})[name] = data
    if "seccomp_filter" in order:
        # Before the program starts: it runs as the same user, and could write into a supervisor with more rights.
        drop_rights(order["seccomp_filter"][""])
    files = order.get("file", {})
    for name, data in files.items():
        _write_file(name, data)
    if "adopt" in order:
        adopt_orphans()
    exit_code = _run(order)
    end_everything()
    report = b""
    if _has_too_many_files(order):
        report += record("memory", "", b"")
    if exit_code is not None:
        report += record("exit_code", "", b"%d" % exit_code)
    report += _report_files(
        files, int(order["most_bytes"][""]), int(order["most_files"][""])
    )
    for stream in (1, 2):
        os.close(
            stream
        )  # nobody writes there any more: the host need not wait for our own end
    with os.fdopen(int(order["report_fd"][""]), "wb") as line:
        line.write(report)


def record(kind: str, name: str, data: bytes) -> bytes:
    """Return one record."""
    encoded = name.encode("utf-8", "surrogateescape")
    return b"%s %d %d\n%s%s" % (kind.encode(), len(encoded), len(data), encoded, data)


def parse_header(line: bytes) -> tuple[str, int, int]:
    """Return kind and lengths from a record's first line.

    Raises:
        ValueError: The line is malformed.
    """
    kind, name, data = line.split(b" ")
    if not (kind.isalpha() or b"_" in kind) or not (
        name.isdigit() and data.rstrip(b"\n").isdigit()
    ):
        raise ValueError("no record")
    return kind.decode("ascii"), int(name), int(data)


def _records_of_stdin() -> Iterator[tuple[str, str, bytes]]:
    """Yield the records of the order up to its `end`; stdin stays open."""
    stdin = open(0, "rb", closefd=False)  # noqa: SIM115  # not ours to close
    while (line := stdin.readline(_MAX_LINE_BYTES)) and not line.startswith(b"end "):
        kind, name_length, data_length = parse_header(line)
        yield (
            kind,
            stdin.read(name_length).decode("utf-8", "surrogateescape"),
            stdin.read(data_length),
        )
    if not line:
        sys.exit("the order ended early")


def _write_file(name: str, data: bytes) -> None:
    above, _, _ = name.rpartition("/")
    if above:
        os.makedirs(above, exist_ok=True)
    with open(name, "wb") as file:
        file.write(data)


def _run(order: dict[str, dict[str, bytes]]) -> int | None:
    """Run the program; return its exit code, None when it has to be ended."""
    ended, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    program = _start_program(order)
    os.write(tell, b"\0")  # one that was there before may have ended before we listened
    while not _has_too_many_files(order):
        ready, _, _ = select.select(
            [0, ended], [], [], _LOOK_S if "most_inodes" in order else None
        )
        if ended in ready:
            os.read(ended, 100)
            pid, status = os.waitpid(program, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        if 0 in ready:
            return None
    return None


def _has_too_many_files(order: dict[str, dict[str, bytes]]) -> bool:
    """Whether a folder in memory holds too many files. Even an empty one takes a kilobyte of kernel memory."""
    for folder, most in order.get("most_inodes", {}).items():
        room = os.statvfs(folder)
        if room.f_files - room.f_ffree > int(most):
            return True
    return False


def _start_program(order: dict[str, dict[str, bytes]]) -> int:
    program = os.fork()
    if program == 0:
        _exec_program(order)
    return program


def _exec_program(order: dict[str, dict[str, bytes]]) -> None:
    """Replace this new process by the program; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        # the last two Python ignores for itself
        for each in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(each, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # the limit itself could be a thousand million
        os.closerange(3, max(256, int(order["report_fd"][""]) + 1))
        _set_limits({name: int(most) for name, most in order.get("limit", {}).items()})
        argv = [os.fsdecode(each) for _, each in sorted(order["arg"].items())]
        environment = {
            name: os.fsdecode(value) for name, value in order["environment"].items()
        }
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"it could not be started: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _set_limits(limits: dict[str, int]) -> None:
    import resource  # not on Windows, where `host` imports this file all the same

    for name, most in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (most, most))
        except (ValueError, OSError):  # macOS knows RLIMIT_AS and refuses it
            continue


def adopt_orphans() -> None:
    """Become the parent of grandchildren whose own parent has ended, so that they are found when this process ends."""
    # slow to import, and not needed in a namespace: when its first process ends, all others do
    import ctypes

    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):  # Linux only
        return


def end_everything(within_s: float = 2.0) -> None:
    """Kill every process that this one has started or adopted."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        for pid in descendants(os.getpid()):
            _signal(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def descendants(pid: int, stop: bool = True) -> Iterator[int]:
    """Yield every process below this one (Linux), each stopped first, so that it starts no other meanwhile."""
    try:
        pids = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as children:
                pids += children.read().split()
    except OSError:
        return
    for child in map(int, pids):
        if stop:
            _signal(child, signal.SIGSTOP)
        yield from descendants(child, stop)
        yield child


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # gone meanwhile, or no longer ours
        return


def _report_files(given: dict[str, bytes], most_bytes: int, most_files: int) -> bytes:
    """Return records of the files that were made or changed, and of the names of those that are not returned."""
    report = b""
    file_count = 0
    left_count = 0
    for name in _file_names("", _MAX_DEPTH):
        if left_count >= most_files:
            break
        data = _read_file(name, most_bytes)
        if data is not None and data == given.get(name):
            continue
        if data is None or file_count >= most_files:
            report += record("left", name, b"")
            left_count += 1
        else:
            report += record("file", name, data)
            file_count += 1
            most_bytes -= len(data)
    return report


def _file_names(folder: str, levels: int) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        name = f"{folder}/{entry.name}" if folder else entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield name
        elif levels and not entry.name.startswith("."):
            yield from _file_names(name, levels - 1)


def _read_file(name: str, most_bytes: int) -> bytes | None:
    """Read a regular file that is no link: the program may have planted `result.txt -> /etc/shadow`."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        data = opened.read(most_bytes + 1)
    return data if len(data) <= most_bytes else None


if __name__ == "__main__":
    main()
