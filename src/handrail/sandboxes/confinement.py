"""What a process gives up before it runs untrusted code: its key ring, its capabilities and some system calls.

This cannot be undone. Child processes inherit it, and no program restores the rights, not even a setuid one.
On systems other than Linux nothing happens.

Rule 1: this module imports the standard library only, because an interpreter without handrail runs its source text:
`sandboxes.host` sends it there, followed by `supervisor`.
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
_MAX_CAPABILITIES = 64


def join_empty_key_ring() -> bool:
    """Give this thread, and what it starts from now on, an empty session key ring of its own.

    Returns False where the kernel or a container refuses key rings; then no key ring can be reached at all.
    """
    number = _KEYCTL.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        return False
    import ctypes  # slow to import, and not needed in every process

    joined: int = ctypes.CDLL(None).syscall(
        ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None
    )
    return joined >= 0


def drop_rights(seccomp_filter: bytes) -> None:
    """Drop all capabilities, also root's, and every system call that the filter refuses.

    Call it before the process has threads: rights belong to a thread, and the threads that it starts inherit them.

    Args:
        seccomp_filter: See `seccomp.filter_for`; empty for none.

    Raises:
        OSError: The kernel refused a part of it.
    """
    if sys.platform != "linux":
        return
    import ctypes

    class Program(ctypes.Structure):  # struct sock_fprog of linux/filter.h
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    # fails for unknown ones, and without CAP_SETPCAP
    for capability in range(_MAX_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    no_capabilities = (ctypes.c_uint32 * 6)()
    failed = libc.capset(header, no_capabilities) or libc.prctl(
        _PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0
    )
    if seccomp_filter and not failed:
        program = Program(len(seccomp_filter) // 8, seccomp_filter)
        failed = libc.prctl(
            _PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program)
        )
    if failed:
        raise OSError(
            ctypes.get_errno(),
            f"rights could not be dropped: {os.strerror(ctypes.get_errno())}",
        )
