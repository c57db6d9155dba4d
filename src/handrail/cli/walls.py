"""Which kernel features the sandboxes of this machine use, found by trying each; no file is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from threading import Thread

from msgspec import Struct

from handrail.sandboxes import landlock
from handrail.sandboxes.confinement import join_empty_key_ring
from handrail.sandboxes.seccomp import filter_here
from handrail.workers.file_walls import LEAST_ABI


class Wall(Struct, frozen=True):
    """One kernel feature, and whether this machine has it."""

    name: str
    state: str
    there: bool


def walls() -> Iterator[Wall]:
    """Try each feature, without changing this process."""
    if not sys.platform.startswith("linux"):
        return
    if length := len(filter_here()) // 8:
        yield Wall("seccomp", f"works, {length} instructions", there=True)
    else:
        yield Wall("seccomp", "missing: `isolated` is refused", there=False)
    if _has_own_key_ring():
        yield Wall("key ring", "one of its own for each sandbox", there=True)
    else:
        yield Wall("key ring", "refused to everybody", there=False)
    if _has_user_namespaces():
        yield Wall("user namespaces", "work", there=True)
    else:
        yield Wall("user namespaces", "refused: `isolated` needs them", there=False)
    yield _describe_landlock(landlock.abi())


def _has_own_key_ring() -> bool:
    joined: list[bool] = []
    # the ring is this thread's, and ends with it
    thread = Thread(target=lambda: joined.append(join_empty_key_ring()))
    thread.start()
    thread.join()
    return joined == [True]


def _has_user_namespaces() -> bool:
    """Whether an ordinary user may create one. As root it is tried as `nobody`, the user of a sandbox."""
    if os.geteuid() == 0:
        as_nobody = [
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
        ]
    else:
        as_nobody = []
    try:
        command = [*as_nobody, "unshare", "--user", "true"]
        return (
            subprocess.run(
                command,
                capture_output=True,
                timeout=10,
                check=False,
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _describe_landlock(abi: int) -> Wall:
    """Say what `process` has of it."""
    if not abi:
        missing = "missing: a `process` tool that declares its files is refused"
        return Wall("landlock", missing, there=False)
    if abi < LEAST_ABI:
        too_old = f"ABI {abi}, too old to hold a `process` tool to its files"
        return Wall("landlock", too_old, there=False)
    signals = " and to its own processes" if abi >= landlock.ABI_OF_SCOPES else ""
    return Wall(
        "landlock",
        f"ABI {abi}: holds a `process` tool to its files{signals}",
        there=True,
    )
