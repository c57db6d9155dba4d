"""What runs inside a sandbox, before and around the program: lays out its files, limits it, ends it, brings files back.

Started as `python -I -S -c SOURCE` by `outside`, so it is one file of the standard library. It takes one order on
stdin and writes one report to the descriptor that the order names. The host keeps stdin open as long as it wants the
program to run; when it closes, because the host says so or is gone, everything ends.

Rule 1: when it ends, nothing that it started runs: it adopts orphans, so that a daemon is found too (Linux).
Rule 2: it is in the hands of whatever runs beside it. `outside` believes nothing of its report but bytes.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_DEEPEST = 8


def main() -> None:
    """Carry out the order on stdin."""
    order = json.loads(_exactly(int(_exactly(16), 16)))
    given = {name: base64.b64decode(data) for name, data in order["files"].items()}
    for name, data in given.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    _adopt_orphans()
    exit_code = _run(order)
    end_everything()
    files, left = _made(given, order["returned_bytes"], order["returned_files"])
    report = {"exit_code": exit_code, "files": files, "left": left}
    with os.fdopen(order["report_fd"], "wb") as line:
        line.write(json.dumps(report).encode())


def _exactly(count: int) -> bytes:
    read = b""
    while len(read) < count:
        more = os.read(0, min(count - len(read), 1 << 20))
        if not more:
            sys.exit("the order ended early")
        read += more
    return read


def _run(order: dict[str, Any]) -> int | None:
    """Run the program; return its exit code, None when it had to be ended."""
    try:
        program = subprocess.Popen(
            order["argv"], stdin=subprocess.DEVNULL, env=order["environment"], start_new_session=True,
            preexec_fn=lambda: _limit(order["limits"]),
        )  # fmt: skip
    except OSError as error:
        os.write(2, f"it could not be started: {error.strerror}\n".encode())
        return 127
    ended, tell = os.pipe()

    def wait() -> None:
        program.wait()
        os.close(tell)

    threading.Thread(target=wait, daemon=True).start()
    ready, _, _ = select.select([0, ended], [], [])
    return program.returncode if ended in ready else None


def _limit(limits: dict[str, int]) -> None:
    import resource  # not on Windows, where `outside` imports this file all the same

    for name, most in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):  # macOS knows RLIMIT_AS and refuses it
            resource.setrlimit(kind, (most, most))


def _adopt_orphans() -> None:
    with suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_everything(within_s: float = 2.0) -> None:
    """Kill whatever this process has started or adopted."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def descendants(pid: int) -> Iterator[int]:
    """Yield every process below this one, each stopped first, so that it begins no other meanwhile (Linux)."""
    try:
        told = " ".join(each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return
    for child in map(int, told.split()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGSTOP)
        yield from descendants(child)
        yield child


def _made(given: dict[str, bytes], most_bytes: int, most_files: int) -> tuple[dict[str, str], Sequence[str]]:
    """Return the files that were made or changed, and the names of those that are not brought back."""
    files: dict[str, str] = {}
    left: list[str] = []
    for name in _names(Path(), _DEEPEST):
        if len(left) >= most_files:
            break
        data = _read(name, most_bytes)
        if data is None or len(files) >= most_files:
            left.append(name)
        elif data != given.get(name):
            files[name] = base64.b64encode(data).decode()
            most_bytes -= len(data)
    return files, left


def _names(folder: Path, levels: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if not entry.is_dir(follow_symlinks=False):
                yield str(folder / entry.name)
            elif levels and not entry.name.startswith("."):
                yield from _names(folder / entry.name, levels - 1)


def _read(name: str, most_bytes: int) -> bytes | None:
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
