"""Which process drives a run, and whether it is still there.

A process names itself by machine, number and beginning. Numbers are used again, also after a restart; the beginning,
where the system tells it, makes sure that it is the same one.

Rule 1: when unsure whether a process is gone, it is not: of another machine nobody knows anything here.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from socket import gethostname


def owner() -> str:
    """Return the name of this process."""
    return _named(os.getpid())


@lru_cache(maxsize=1)  # two files are read for it; a fork has another number
def _named(number: int) -> str:
    return f"{gethostname()}:{number}:{_beginning(number)}"


def is_gone(owner: str) -> bool:
    """Whether a process has certainly ended: it was one of this machine, and there is none of its name any more."""
    host, _, pid = (named := owner.rpartition(":"))[0].rpartition(":")
    if host != gethostname() or not pid.isdigit():
        return False
    number, beginning = int(pid), named[2]
    try:
        os.kill(number, 0)  # asks, and sends nothing
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # there is one, and it is somebody else's
        pass
    return bool(beginning) and _beginning(number) not in ("", beginning)


def _beginning(number: int) -> str:
    """Return when a process began, in ticks since a boot that is named; empty where the system does not tell."""
    try:
        ticks = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text()[:8]}-{ticks}"
    except (OSError, IndexError):
        return ""
