"""Level `isolated`, on Linux with bubblewrap: no files of ours, no network, no other processes, bounded disk.

Every namespace is its own. It sees /usr read-only and a folder in memory; no /etc, no home. Limits are set inside, for
RLIMIT_NPROC counts a user's processes. Started as root it gives root up first, because that limit does not hold root.

Limits: what all processes hold together is looked at twenty times a second (`outside`), not held by the kernel: that
needs a cgroup. Each process is held by it, and so are files. The kernel is shared.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from threading import Event

from msgspec import Struct

from handrail.ports import Job, JobEnded
from handrail.sandboxes import process
from handrail.sandboxes.outside import Place, carry_out, program

_NOBODY = "65534"
_BOX = "/box"
BOX_BYTES = 64 * 1024 * 1024
TMP_BYTES = 32 * 1024 * 1024
MOST_PROCESSES = 40
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": _BOX, "LANG": "C.UTF-8"}


class Bubblewrap(Struct, frozen=True):
    """A box made by `bwrap`, where that is installed and works."""

    level: str = "isolated"

    @property
    def lacks(self) -> str:
        """See `Sandbox.lacks`. Found out once, by starting a box."""
        return _tried()[1]

    @property
    def python(self) -> str:
        """See `Sandbox.python`."""
        return _tried()[0]

    def run(self, job: Job, cancelled: Event) -> JobEnded:
        """See `Sandbox.run`."""
        command = [*_box(self.python, job.mounts), self.python, "-I", "-S", "-c", program()]
        limits = {**process.limits(job), "RLIMIT_NPROC": MOST_PROCESSES}
        return carry_out(job, Place(command, "/", _ENVIRONMENT, limits), cancelled)


def _box(python: str, mounts: Sequence[str] = ()) -> Sequence[str]:
    """Return the command that makes the box; what runs in it follows."""
    as_nobody = ["setpriv", "--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups", "--no-new-privs"]
    return [
        *(as_nobody if os.geteuid() == 0 else ()),
        # Outside of it nothing of our environment is left either: `carry_out` starts it with PATH alone, for bwrap is
        # pid 1 in there, and /proc/1/environ shows what *it* was started with.
        "bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
        "--clearenv", *(word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)),
        "--ro-bind", "/usr", "/usr", *_system_folders(), *_interpreter(python),
        "--proc", "/proc",
        # `--dev` is a file system in memory without a size, which would be a disk without end.
        "--dev", "/dev", "--size", str(TMP_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
        "--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--size", str(BOX_BYTES), "--tmpfs", _BOX,
        *(word for each in mounts if not Path(each).is_relative_to("/usr") for word in ("--ro-bind", each, each)),
        "--remount-ro", "/",
        "--chdir", _BOX, "--cap-drop", "ALL", "--",
    ]  # fmt: skip


def _system_folders() -> Iterator[str]:
    for name in ("lib", "lib64", "bin"):
        if Path("/", name).is_symlink():
            yield from ("--symlink", f"usr/{name}", f"/{name}")
        elif Path("/", name).is_dir():
            yield from ("--ro-bind", f"/{name}", f"/{name}")


def _interpreter(python: str) -> Iterator[str]:
    """Mount an interpreter that does not lie below /usr: the program, its library, and nothing else beside them.

    Its prefix may be somebody's home (`~/bin/python3`), or `/`, whose folders are mounted already.
    """
    program = Path(python)
    home = program.parents[1]
    if program.is_relative_to("/usr") or home == Path("/"):
        return
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = [*home.glob(f"lib*/{version}"), *home.glob("lib*/libpython*.so*")]
    if (home / "conda-meta").is_dir():  # its modules link to what else lies in there, and a person's files do not
        library = [home / "lib"]
    for each in (program, *library):
        yield from ("--ro-bind", str(each), str(each))


@cache
def _tried() -> tuple[str, str]:
    """Return the interpreter that starts in a box, or none and why.

    Our own first, then the system's: as nobody, an interpreter in root's home cannot be read.
    """
    if not sys.platform.startswith("linux"):
        return "", "bubblewrap is for Linux"
    if not shutil.which("bwrap"):
        return "", "bubblewrap is not installed"
    why = "it holds no Python"
    for python in dict.fromkeys([str(Path(sys.executable).resolve()), "/usr/local/bin/python3", "/usr/bin/python3"]):
        if not Path(python).exists():
            continue
        try:
            tried = subprocess.run(
                [*_box(python), python, "-I", "-S", "-c", "print('in')"],
                capture_output=True, text=True, timeout=10, env={"PATH": "/usr/bin:/bin"}, cwd="/", check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            why = "bubblewrap does not start"
            continue
        if tried.stdout.strip() == "in":
            return python, ""
        why = f"bubblewrap does not work: {(tried.stderr.strip().splitlines() or ['no reason given'])[-1][:200]}"
    return "", why
