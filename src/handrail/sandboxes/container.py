"""Level `container`: a box made by an OCI runtime: `runsc` (gVisor, a kernel of its own), `runc` or `crun`.

No image and no daemon: Docker and Podman bring one of these runtimes, which is used directly. The bundle is made from
the declaration, with /usr and what the job mounts read-only, and folders in memory beside it. It has no network and no
capabilities; it is nobody in a user namespace. The limits are those of `isolated`, and where we are root, cgroups hold
the memory, the processes and the CPU of all of it together, without the gaps of polling.

Limits: with `runc` and `crun` the kernel is shared, as at level `isolated`. The runtime takes 30 to 250 ms.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

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

RUNTIMES = ("runsc", "runc", "crun")
"""The stronger one first."""
MOST_CPU = 1.0
"""Processors that all of its processes use together."""

_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/box", "LANG": "C.UTF-8"}
_FOLDERS = {"/box": BOX_BYTES, "/tmp": TMP_BYTES, "/dev/shm": TMP_BYTES}
_NAMESPACES = ("user", "pid", "network", "ipc", "uts", "mount", "cgroup")
_REPORT_FD = 3
_WITH_REPORT = f'exec "$@" {_REPORT_FD}>/proc/self/fd/$REPORT_FD'
"""`>&` takes numbers below 10 only."""
_CPU_PERIOD = 100_000
_MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class ContainerSandbox(Struct, frozen=True):
    """A container of `runsc` or `runc`, where one of them is installed and works."""

    level: str = "container"

    @property
    def lacks(self) -> str:
        """See `Sandbox.lacks`. Found out once, by starting a container."""
        _, _, reason = _probe()
        return reason

    @property
    def python(self) -> str:
        """See `Sandbox.python`."""
        _, python, _ = _probe()
        return python

    def run(self, job: SandboxJob, cancelled: Event) -> JobEnded:
        """See `Sandbox.run`."""
        runtime, python, _ = _probe()
        return _run_in_container(runtime, python, job, cancelled)


@cache
def _probe() -> tuple[str, str, str]:
    """Return the runtime that works here and the interpreter that starts in it; or why there is none."""
    if not sys.platform.startswith("linux"):
        return "", "", "containers are for Linux"
    reasons = []
    for name in RUNTIMES:
        runtime = shutil.which(name)
        if runtime is None:
            continue
        python, reason = _find_interpreter(runtime, name)
        if python:
            return runtime, python, ""
        reasons.append(reason)
    missing = f"none of {', '.join(RUNTIMES)} is installed"
    return "", "", "; ".join(reasons) or missing


def _find_interpreter(runtime: str, name: str) -> tuple[str, str]:
    return find_interpreter(
        lambda python, job: _run_in_container(runtime, python, job, Event()), name
    )


def _run_in_container(
    runtime: str, python: str, job: SandboxJob, cancelled: Event
) -> JobEnded:
    name = f"handrail-{uuid4().hex}"
    folder = tempfile.mkdtemp(prefix="handrail-container-")
    command = [runtime, "--root", f"{folder}/state", *_options_of(runtime)]
    try:
        bundle = _write_bundle(Path(folder), python, job)
        run = [*command, "run", "--bundle", str(bundle), "--preserve-fds", "1", name]
        launch = Launch(
            command=["sh", "-c", _WITH_REPORT, "sh", *run],
            folder="/",
            environment=_ENVIRONMENT,
            limits={**process_limits(job), "RLIMIT_NPROC": MAX_PROCESSES},
            seccomp_filter=seccomp.filter_here(),
            most_inodes=dict.fromkeys(_FOLDERS, MAX_INODES),
            report_fd=_REPORT_FD,
        )
        return run_job(job, launch, cancelled)
    finally:
        delete = [*command, "delete", "--force", name]
        subprocess.run(delete, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _options_of(runtime: str) -> Sequence[str]:
    if Path(runtime).name == "runsc":
        rootless = () if os.geteuid() == 0 else ("--rootless", "--ignore-cgroups")
        return ("--network=none", *rootless)
    return ()


def _write_bundle(folder: Path, python: str, job: SandboxJob) -> Path:
    """Write an OCI bundle: its description, and an empty root with links where the system has them."""
    bundle = folder / "bundle"
    root = bundle / "rootfs"
    root.mkdir(parents=True)
    for each in (folder, bundle, root):
        each.chmod(0o755)  # nobody enters it
    for name in ("lib", "lib64", "bin"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    description = describe_container(
        python, job, is_root=os.geteuid() == 0, owner=(os.geteuid(), os.getegid())
    )
    for mount in description["mounts"]:
        _make_place(root, mount["destination"], mount["source"])
    (bundle / "config.json").write_text(json.dumps(description), encoding="utf-8")
    return bundle


def _make_place(root: Path, destination: str, source: str) -> None:
    """Make what something is mounted on: nobody, who is root inside, could not."""
    place = root / destination.removeprefix("/")
    if Path(source).is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    else:
        place.mkdir(parents=True, exist_ok=True)


def describe_container(
    python: str, job: SandboxJob, *, is_root: bool, owner: tuple[int, int]
) -> Mapping[str, Any]:
    """Return the description of a container, by the OCI runtime specification 1.0.

    Args:
        python: The interpreter that runs the supervisor.
        is_root: Whether we may set limits for all processes together; they then belong to nobody, not to us.
        owner: Our user and group.
    """
    user, group = (NOBODY, NOBODY) if is_root else owner
    environment = [f"{name}={value}" for name, value in _ENVIRONMENT.items()]
    linux: dict[str, Any] = {
        "namespaces": [{"type": each} for each in _NAMESPACES],
        "uidMappings": [{"containerID": 0, "hostID": user, "size": 1}],
        "gidMappings": [{"containerID": 0, "hostID": group, "size": 1}],
        "maskedPaths": list(_MASKED),
        "readonlyPaths": list(_READ_ONLY),
    }
    if is_root:
        linux["resources"] = {
            "memory": {"limit": job.memory_bytes + BOX_BYTES + 2 * TMP_BYTES},
            "pids": {"limit": MAX_PROCESSES},
            "cpu": {"quota": int(MOST_CPU * _CPU_PERIOD), "period": _CPU_PERIOD},
        }
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": [python, "-I", "-S", "-c", supervisor_source()],
            "env": environment,
            "cwd": "/box",
            "capabilities": {
                name: [] for name in ("bounding", "effective", "permitted", "ambient")
            },
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "box",
        "mounts": _mounts(python, job),
        "linux": linux,
    }


def _mounts(python: str, job: SandboxJob) -> Sequence[Mapping[str, Any]]:
    system = [
        f"/{name}"
        for name in ("lib", "lib64", "bin")
        if Path("/", name).is_dir() and not Path("/", name).is_symlink()
    ]
    shown = ["/usr", *system, *mounts_of_interpreter(python), *job.mounts]
    in_memory = [
        _mount(folder, "tmpfs", ["nosuid", "nodev", f"size={most}", "mode=1777"])
        for folder, most in _FOLDERS.items()
    ]
    return [
        _mount("/proc", "proc", ["nosuid", "noexec", "nodev"]),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536"]),
        *in_memory,
        *(
            _mount(each, "bind", ["rbind", "ro", "nosuid", "nodev"], each)
            for each in dict.fromkeys(shown)
            if each == "/usr" or not Path(each).is_relative_to("/usr")
        ),
    ]


def _mount(
    target: str, kind: str, options: Sequence[str], source: str = ""
) -> Mapping[str, Any]:
    return {
        "destination": target,
        "type": kind,
        "source": source or kind,
        "options": list(options),
    }
