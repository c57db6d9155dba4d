"""Which process a run or a write belongs to, and whether it is still there.

A process names itself by machine, number and beginning. Numbers are used again, also after a restart and in every
container; the beginning, where the system reports it (Linux), makes sure that it is the same one.

Rule 1: when unsure whether a process is gone, it is not: of another machine nobody knows anything here.
Rule 2: one that was stopped (`SIGSTOP`, a suspended machine) is not gone: it may go on.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from socket import gethostname
from typing import Protocol

SILENT_S = 90.0
"""A process that renews its leases every 30 s (see `leases`) and was silent for so long is probably gone."""


class Processes(Protocol):
    """Who knows the processes of this machine: its system, or a simulation of several within one."""

    def name_own(self) -> str:
        """Return the name of the process that asks."""
        ...

    def is_gone(self, owner: str) -> bool:
        """Whether a process was one of this machine, and has ended."""
        ...

    def is_seen_from_here(self, owner: str) -> bool:
        """Whether a process is one of this machine and of this container, so that its end is noticed."""
        ...

    def shares_our_boot(self, owner: str) -> bool:
        """Whether a process was started on this machine since its last boot."""
        ...


class _System:
    """The processes as the operating system reports them."""

    def name_own(self) -> str:
        return _process_name(os.getpid())

    def is_gone(self, owner: str) -> bool:
        if not self.is_seen_from_here(owner):
            return False
        named, _, beginning = owner.rpartition(":")
        number = int(named.rpartition(":")[2])
        try:
            os.kill(number, 0)  # asks, and sends nothing
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # there is one, and it is somebody else's
            pass
        return bool(beginning) and _beginning(number) not in ("", beginning)

    def is_seen_from_here(self, owner: str) -> bool:
        named, _, beginning = owner.rpartition(":")
        host, _, number = named.rpartition(":")
        return (
            host == gethostname()
            and number.isdecimal()
            and not _is_of_another_room(beginning)
        )

    def shares_our_boot(self, owner: str) -> bool:
        boot, _, room = owner.rpartition(":")[2].partition("-")
        return bool(boot and room) and boot == _boot()


source: Processes = _System()
"""What everything here is asked of; a simulation sets its own."""


def owner() -> str:
    """Return the name of this process."""
    return source.name_own()


@lru_cache(maxsize=1)  # two files are read for it; a fork has another number
def _process_name(number: int) -> str:
    return f"{gethostname()}:{number}:{_beginning(number)}"


def is_gone(owner: str) -> bool:
    """Whether a process has ended: it was one of this machine, and there is none of its name any more.

    A machine of this name that was started since then counts as this one, restarted.
    """
    return source.is_gone(owner)


def has_died_here(owner: str) -> bool:
    """Whether a process has certainly ended, with all that it was doing, since this machine was started.

    Another machine may have this one's name, but not its boot: what rests on the end of a process, as a lease does,
    asks this and not `is_gone`.
    """
    return source.shares_our_boot(owner) and is_gone(owner)


def shares_our_clock(owner: str) -> bool:
    """Whether a process has our monotonic clock: it was started on this machine, since its last boot."""
    return source.shares_our_boot(owner) and source.is_seen_from_here(owner)


def has_left(owner: str, silent_s: float) -> bool:
    """Whether the process that drove a run counts as gone from it, and was not replaced while at work.

    Of a process that can be seen from here this is certain; any other one is judged by its silence.

    Args:
        silent_s: How long ago it last wrote to the store.
    """
    if source.is_seen_from_here(owner):
        return is_gone(owner)
    return silent_s >= SILENT_S


def _beginning(number: int) -> str:
    """Return when and where a process began: the boot, the room of its number, ticks since the boot.

    Empty where the system does not report it; `ended` for a process of which only its number is left.
    """
    try:
        if str(Path("/proc/self").readlink()) != str(os.getpid()):
            return ""  # what lies there are the processes of another room
        state, *fields = (
            Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        )
        # Its threads may outlive the first one; with none beside it, nothing of it runs any more (proc_pid_stat(5)).
        if state in "ZX" and int(fields[16]) <= 1:
            return "ended"
        return f"{_boot()}-{_room()}-{fields[18]}"
    except (OSError, IndexError, ValueError):
        return ""


def _is_of_another_room(beginning: str) -> bool:
    """Whether a process has its number from another container on this machine, where it means nothing here."""
    boot, *rest = beginning.split("-")
    return len(rest) == 2 and boot == _boot() and rest[0] != _room()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        return ""


def _room() -> str:
    """Return which processes are numbered together, and by one clock: containers may share a name, not their numbers.

    In a time namespace of its own the system reports another beginning of the same process (time_namespaces(7)).
    """
    try:
        numbers = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
        clock = Path("/proc/self/ns/time")
        namespace = _FIRST_CLOCK
        if clock.is_symlink():
            namespace = str(clock.readlink()).strip("time:[]")
    except OSError:
        return ""
    if namespace == _FIRST_CLOCK:
        return numbers
    return f"{numbers}.{namespace}"


_FIRST_CLOCK = "4026531834"
"""The time namespace that a machine begins with, on every Linux that has them (5.6)."""
