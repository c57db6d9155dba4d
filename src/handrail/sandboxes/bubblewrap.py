"""Level `isolated`, on Linux with bubblewrap: no files of ours, no network, no other processes, bounded disk.

Every namespace is its own. It sees /usr read-only and a folder in memory; no /etc, no home. Limits are set inside, for
RLIMIT_NPROC counts a user's processes. Started as root it gives root up first, because that limit does not hold root.
Its session key ring is empty, and it cannot make the system calls that `seccomp` refuses.

Limits: the memory of all processes together (`host`) and the number of files (`supervisor`) are polled many times a
second, because the kernel could enforce them only with a cgroup. The kernel enforces the limits of each process and the
bytes in files. The kernel is shared.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from threading import Event

from msgspec import Struct

from handrail.ports import JobEnded, SandboxJob
from handrail.sandboxes import seccomp
from handrail.sandboxes.host import Launch, run_job, supervisor_source
from handrail.sandboxes.interpreters import find_interpreter, mounts_of_interpreter
from handrail.sandboxes.limits import (
    BOX_BYTES,
    MAX_INODES,
    MAX_PROCESSES,
    NOBODY,
    TMP_BYTES,
    process_limits,
)

_BOX = "/box"
_IN_MEMORY = (_BOX, "/tmp", "/dev/shm")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": _BOX, "LANG": "C.UTF-8"}


class Bubblewrap(Struct, frozen=True):
    """A box made by `bwrap`, where that is installed and works."""

    level: str = "isolated"

    @property
    def lacks(self) -> str:
        """See `Sandbox.lacks`. Found out once, by starting a box."""
        _, reason = _probe()
        return reason

    @property
    def python(self) -> str:
        """See `Sandbox.python`."""
        python, _ = _probe()
        return python

    def run(self, job: SandboxJob, cancelled: Event) -> JobEnded:
        """See `Sandbox.run`."""
        return _run_in_box(self.python, job, cancelled)


def _run_in_box(python: str, job: SandboxJob, cancelled: Event) -> JobEnded:
    filter_fd = os.memfd_create("seccomp filter")
    with os.fdopen(filter_fd, "wb") as file:
        file.write(seccomp.filter_here())
        file.flush()
        file.seek(0)  # bubblewrap reads the inherited descriptor from here
        launch = Launch(
            command=[
                *_box_command(python, job.mounts, filter_fd),
                python,
                "-I",
                "-S",
                "-c",
                supervisor_source(),
            ],
            folder="/",
            environment=_ENVIRONMENT,
            limits={**process_limits(job), "RLIMIT_NPROC": MAX_PROCESSES},
            pass_fds=[filter_fd],
            most_inodes=dict.fromkeys(_IN_MEMORY, MAX_INODES),
        )
        return run_job(job, launch, cancelled)


def _box_command(python: str, mounts: Sequence[str], filter_fd: int) -> Sequence[str]:
    """Return the command that makes the box, whose filter is read at `filter_fd`; what runs in it follows."""
    as_nobody = [
        "setpriv",
        "--reuid",
        str(NOBODY),
        "--regid",
        str(NOBODY),
        "--clear-groups",
        "--no-new-privs",
    ]
    return [
        *(as_nobody if os.geteuid() == 0 else ()),
        # bwrap itself has no environment of ours either: `run_job` starts it with PATH alone. It is pid 1 in there, and
        # /proc/1/environ shows what *it* was started with.
        "bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session",
        "--clearenv", *(word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)),
        "--ro-bind", "/usr", "/usr", *_system_folders(), *_bind(mounts_of_interpreter(python)),
        "--proc", "/proc", *_hide_keys(),
        # `--dev` is a file system in memory without a size, which would be a disk without end.
        "--dev", "/dev", "--size", str(TMP_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
        "--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--size", str(BOX_BYTES), "--tmpfs", _BOX,
        *(word for each in mounts if not Path(each).is_relative_to("/usr") for word in ("--ro-bind", each, each)),
        "--remount-ro", "/",
        "--chdir", _BOX, "--cap-drop", "ALL", "--disable-userns", "--seccomp", str(filter_fd), "--",
    ]  # fmt: skip  # an option and its value on one line


def _system_folders() -> Iterator[str]:
    for name in ("lib", "lib64", "bin"):
        if Path("/", name).is_symlink():
            yield from ("--symlink", f"usr/{name}", f"/{name}")
        elif Path("/", name).is_dir():
            yield from ("--ro-bind", f"/{name}", f"/{name}")


def _bind(paths: Sequence[str]) -> Iterator[str]:
    for each in paths:
        yield from ("--ro-bind", each, each)


def _hide_keys() -> Iterator[str]:
    """Hide the lists of keys: unless we are root, they name the keys of our user."""
    for name in ("/proc/keys", "/proc/key-users"):
        if Path(name).exists():
            yield from ("--ro-bind", "/dev/null", name)


@cache
def _probe() -> tuple[str, str]:
    """Return the interpreter that starts in a box, or none and why."""
    if not sys.platform.startswith("linux"):
        return "", "bubblewrap is for Linux"
    if not shutil.which("bwrap"):
        return "", "bubblewrap is not installed"
    if not seccomp.filter_here():
        return (
            "",
            "the kernel takes no seccomp filter, or handrail has none for this architecture",
        )
    return find_interpreter(
        lambda python, job: _run_in_box(python, job, Event()), "bubblewrap"
    )
