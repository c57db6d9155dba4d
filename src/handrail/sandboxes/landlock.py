"""Restricts which files a process can reach, and which processes it can signal: Landlock of Linux, for any user.

It needs no package, no namespace and no root. It cannot be undone, and child processes inherit it. A process under
Landlock can also neither trace the processes outside, nor read their memory and environment by /proc.

Rule 1: this module imports the standard library only, because processes without handrail use it too.
Rule 2: a restriction that this kernel cannot enforce is not claimed: see `abi`.

The layout is in linux/landlock.h, the versions in Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable
from functools import cache

_CREATE_RULESET = 444  # the same numbers on every architecture
_ADD_RULE = 445
_RESTRICT_SELF = 446
_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_FOLDER = 1 << 3
_TRUNCATE = 1 << 14
_FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many of the rights of files a version knows; from the fifth on 16."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
"""Those that mean something for a file that is no folder."""
_READING = _EXECUTE | _READ_FILE | _READ_FOLDER

_TCP = 0b11
"""Bind and connect."""
_ABI_OF_TCP = 4
_ABSTRACT_SOCKETS = 0b01
_SIGNALS = 0b10
ABI_OF_SCOPES = 6


@cache
def abi() -> int:
    """Return the version of Landlock that the kernel offers; 0 for none."""
    if sys.platform != "linux":
        return 0
    import ctypes

    version: int = ctypes.CDLL(None).syscall(
        ctypes.c_long(_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint32(_VERSION),
    )
    return max(0, version)


def restrict(
    readable: Iterable[str] | None = None,
    writable: Iterable[str] = (),
    *,
    tcp: bool = True,
    abstract_sockets: bool = True,
) -> None:
    """Restrict this thread, and what it starts from now on; without effect where the kernel has no Landlock.

    Signals to processes that are not restricted with it are refused from ABI 6 on.

    Args:
        readable: Files and folders that it may read and run; those that are not there are skipped. None: all files.
        writable: Those that it may change as well.
        tcp: Whether it may connect and listen by TCP; needs ABI 4 to be refused. UDP is never refused.
        abstract_sockets: Whether it may reach abstract sockets of others; needs ABI 6 to be refused.

    Raises:
        OSError: The kernel refused it, for example because `no_new_privs` is not set.
    """
    version = abi()
    if not version:
        return
    every = (1 << _FILE_RIGHTS_BY_ABI.get(version, 16)) - 1
    handled = every if readable is not None else 0
    ports = _TCP if not tcp and version >= _ABI_OF_TCP else 0
    scopes = 0
    if version >= ABI_OF_SCOPES:
        scopes = _SIGNALS | (0 if abstract_sockets else _ABSTRACT_SOCKETS)
    if not (handled or ports or scopes):
        return
    ruleset = _call(_CREATE_RULESET, struct.pack("=QQQ", handled, ports, scopes), 24, 0)
    try:
        for rights, paths in ((_READING, readable or ()), (every, writable)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it is not there: nothing to allow
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{place}"):  # noqa: PTH112  # pathlib is slow to import
            rights &= _OF_FILES
        if rights:
            rule = struct.pack("=Qi", rights, place)
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: int | bytes) -> int:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    words = [
        each if isinstance(each, bytes) else ctypes.c_long(each) for each in arguments
    ]
    result: int = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock refused: {os.strerror(error)}")
    return result
