"""Level `process`: a process of its own that can be killed with everything it started. Against accidents, not malice.

It has a clean environment, a folder of its own, a session of its own, limits on CPU, memory and the size of a file, and
a supervisor. On Linux, where the kernel permits it, it has a process namespace too: it sees no process but its own, and
all of them end with the supervisor, which it cannot kill. Elsewhere the supervisor adopts daemons and can be killed. On
Linux it has no capabilities and an empty session key ring, and cannot make the system calls that `seccomp` refuses. It
can read our files and use our network.

This is the level for programs, which a model wrote and which run once. A tool's function has the same level in a warm
worker, see `workers.processes`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from threading import Event

from msgspec import Struct

from handrail.ports import JobEnded, SandboxJob
from handrail.sandboxes import seccomp
from handrail.sandboxes.host import Launch, run_job, supervisor_source
from handrail.sandboxes.limits import process_limits


class ProcessSandbox(Struct, frozen=True):
    """A killable process. RLIMIT_NPROC is not set: it would count all processes of the user."""

    level: str = "process"

    @property
    def lacks(self) -> str:
        """See `Sandbox.lacks`."""
        return "it needs POSIX" if sys.platform == "win32" else ""

    @property
    def python(self) -> str:
        """The interpreter below a virtual environment: what is installed in one is not for the program."""
        return getattr(sys, "_base_executable", sys.executable)

    def run(self, job: SandboxJob, cancelled: Event) -> JobEnded:
        """See `Sandbox.run`."""
        folder = tempfile.mkdtemp(prefix="handrail-")
        try:
            environment = {
                "PATH": "/usr/bin:/bin",
                "HOME": folder,
                "TMPDIR": folder,
                "LANG": "C.UTF-8",
            }
            namespace = _namespace_command()
            launch = Launch(
                command=[
                    *namespace,
                    self.python,
                    "-I",
                    "-S",
                    "-c",
                    supervisor_source(),
                ],
                folder=folder,
                environment=environment,
                limits=process_limits(job),
                adopts=not namespace,
                seccomp_filter=seccomp.filter_here(),
            )
            return run_job(job, launch, cancelled)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@cache
def _namespace_command() -> Sequence[str]:
    """Return the words that run a command in a process namespace of its own; empty where that does not work."""
    as_ourselves = (
        () if os.name == "posix" and os.geteuid() == 0 else ("--map-current-user",)
    )
    command = [
        "unshare",
        "--pid",
        "--mount-proc",
        "--fork",
        "--kill-child",
        *as_ourselves,
    ]
    try:
        trial = subprocess.run(
            [*command, "true"], capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return () if trial.returncode else command
