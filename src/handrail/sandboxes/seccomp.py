"""Which system calls a program in a sandbox may not make, as a seccomp filter for Linux.

The filter refuses what no ordinary program needs and what opens a way past namespaces and file permissions: io_uring,
which acts beside every other filter; ptrace and its kin; key rings; user namespaces and mounts; programs and modules
for the kernel; whatever reports what others do with files (inotify, fanotify, dnotify, leases); sockets other than
local, IP and netlink ones (AF_VSOCK reaches the host of a virtual machine).
Everything else passes: threads, subprocesses, asyncio, sqlite3 and ssl work.

Rule 1: a call that cannot be judged is refused: another architecture's, x32's, and `clone3`, whose flags are in memory
that a filter cannot read. `clone3` fails with ENOSYS, so that libc falls back to `clone`.

Numbers are those of the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h);
the layout of an instruction and of what it reads is in linux/filter.h and linux/seccomp.h.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Mapping
from errno import EAFNOSUPPORT, ENOSYS, EPERM
from functools import cache
from pathlib import Path

from msgspec import Struct

_REFUSED = {
    # name: (x86_64, aarch64); None where the architecture has no such call.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "userfaultfd": (323, 282), "bpf": (321, 280), "perf_event_open": (298, 241), "lookup_dcookie": (212, 18),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "setns": (308, 268),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "syslog": (103, 116), "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "vhangup": (153, 58),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None),
}  # fmt: skip
_NOT_THERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "clone3": 435,
}
"""Refused with ENOSYS, so that programs fall back to older calls. The numbers are the same everywhere."""

_NAMESPACES = 0x7E02_0000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_TIME_NAMESPACE = 0x80
"""CLONE_NEWTIME. In `clone`, this bit is part of a signal's number."""
_BUFFER_SIZES = {
    "SO_SNDBUF": 7,
    "SO_RCVBUF": 8,
    "SO_SNDBUFFORCE": 32,
    "SO_RCVBUFFORCE": 33,
}
"""Options of SOL_SOCKET that succeed without effect, because no limit of ours counts the data in sockets."""
_SOL_SOCKET = 1
_REPORTS = {"F_SETLEASE": 1024, "F_NOTIFY": 1026}
"""Commands of `fcntl` that report when others open or change a file."""
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""Sockets that may be opened; libc uses netlink to list the addresses of this machine."""


class Machine(Struct, frozen=True):
    """An architecture: its number in the kernel, and the numbers of the calls whose arguments are checked."""

    audit_arch: int
    column: int
    clone: int
    unshare: int
    socket: int
    socketpair: int
    setsockopt: int
    fcntl: int


MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(
        0xC000_003E,
        column=0,
        clone=56,
        unshare=272,
        socket=41,
        socketpair=53,
        setsockopt=54,
        fcntl=72,
    ),
    "aarch64": Machine(
        0xC000_00B7,
        column=1,
        clone=220,
        unshare=97,
        socket=198,
        socketpair=199,
        setsockopt=208,
        fcntl=25,
    ),
}
"""By what `os.uname().machine` says."""

# Instructions.
_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

# Offsets in struct seccomp_data; of each argument the lower half.
_NUMBER = 0
_ARCHITECTURE = 4
_FIRST = 16
_SECOND = 24
_THIRD = 32

_ALLOW = 0x7FFF_0000
_ERROR = 0x0005_0000
_X32 = 0x4000_0000


def filter_for(machine: str) -> bytes:
    """Return the filter for an architecture, as `struct sock_filter[]`; empty where we have no table of its calls."""
    architecture = MACHINES.get(machine)
    if architecture is None:
        return b""
    numbers = [pair[architecture.column] for pair in _REFUSED.values()]
    sockets = [_equal(each, _return(_ALLOW)) for each in _FAMILIES.values()]
    sizes = [_equal(each, _return(_ERROR | 0)) for each in _BUFFER_SIZES.values()]
    return b"".join([
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, architecture.audit_arch, 1, 0), _return(_ERROR | ENOSYS),
        _instruction(_LOAD, _NUMBER),
        _instruction(_ANY_BIT, _X32, 0, 1), _return(_ERROR | ENOSYS),
        *(_equal(number, _return(_ERROR | ENOSYS)) for number in _NOT_THERE.values()),
        *(_equal(number, _return(_ERROR | EPERM)) for number in numbers if number is not None),
        _equal(architecture.clone, _without_bits(_NAMESPACES)),
        _equal(architecture.unshare, _without_bits(_NAMESPACES | _TIME_NAMESPACE)),
        *(
            _equal(number, b"".join([_instruction(_LOAD, _FIRST), *sockets, _return(_ERROR | EAFNOSUPPORT)]))
            for number in (architecture.socket, architecture.socketpair)
        ),
        _equal(architecture.setsockopt, b"".join([
            _instruction(_LOAD, _SECOND),
            _equal(_SOL_SOCKET, b"".join([_instruction(_LOAD, _THIRD), *sizes])), _return(_ALLOW),
        ])),
        _equal(architecture.fcntl, b"".join([
            _instruction(_LOAD, _SECOND),
            *(_equal(each, _return(_ERROR | EPERM)) for each in _REPORTS.values()), _return(_ALLOW),
        ])),
        _return(_ALLOW),
    ])  # fmt: skip


@cache
def filter_here() -> bytes:
    """Return the filter for this machine; empty where its kernel takes none, or we have no table of its calls."""
    try:
        actions = (
            Path("/proc/sys/kernel/seccomp/actions_avail")
            .read_text(encoding="ascii")
            .split()
        )
    except OSError:
        return b""
    # a 32-bit interpreter makes other calls than its machine's
    native = sys.maxsize > 2**32
    return filter_for(os.uname().machine) if native and "errno" in actions else b""


def _without_bits(bits: int) -> bytes:
    """Decide a call by its first argument: refuse any of these bits."""
    return b"".join([
        _instruction(_LOAD, _FIRST), _instruction(_ANY_BIT, bits, 0, 1), _return(_ERROR | EPERM), _return(_ALLOW)
    ])  # fmt: skip


def _equal(value: int, then: bytes) -> bytes:
    """Run `then` if the loaded word has this value; otherwise skip it."""
    return _instruction(_EQUAL, value, 0, len(then) // 8) + then


def _return(action: int) -> bytes:
    return _instruction(_RETURN, action)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
