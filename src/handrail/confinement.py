"""What a process gives up for good before it runs a stranger's code: its key ring, its capabilities, some system calls.

Nothing here is undone: what the process starts inherits it, and no program gives more back, not even a setuid one.
It is for Linux; elsewhere nothing happens.

Rule 1: it needs the standard library alone, and is read as text: `sandboxes.outside` sends it ahead of `inside`, to an
interpreter that has no handrail.
"""

from __future__ import annotations

import os
import sys

_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64


def join_empty_key_ring() -> bool:
    """Give this thread, and what it starts from now on, an empty session key ring instead of the one that it shares.

    Returns False where the kernel or a container refuses key rings: there is none to be reached then.
    """
    number = _KEYCTL.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        return False
    import ctypes  # dear, and not needed in every process

    joined: int = ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None)
    return joined >= 0


def drop_rights(seccomp_filter: bytes) -> None:
    """Drop all capabilities, also root's, and every system call that the filter refuses.

    Call it before the process has threads: rights belong to a thread, and the threads that it starts inherit them.

    Args:
        seccomp_filter: See `seccomp.filter_for`; empty for none.

    Raises:
        OSError: The kernel did not take it all.
    """
    if sys.platform != "linux":
        return
    import ctypes

    class Program(ctypes.Structure):  # struct sock_fprog of linux/filter.h
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]  # noqa: RUF012  # ctypes wants a list

    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_MOST_CAPABILITIES):  # fails for those that there are not, and for whoever has none
        libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    failed = libc.capset(header, none) or libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0)
    if seccomp_filter and not failed:
        program = Program(len(seccomp_filter) // 8, seccomp_filter)
        failed = libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program))
    if failed:
        raise OSError(ctypes.get_errno(), f"rights could not be dropped: {os.strerror(ctypes.get_errno())}")
