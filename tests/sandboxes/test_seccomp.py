"""The filter of system calls, judged as the kernel does: by running its instructions on a call."""

from __future__ import annotations

import struct
from errno import EAFNOSUPPORT, ENOSYS, EPERM

import pytest

from handrail.sandboxes.seccomp import MACHINES, filter_for

ALLOW, ERROR = 0x7FFF_0000, 0x0005_0000
# AUDIT_ARCH_* of linux/audit.h
ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

both = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


def judged(
    machine: str, number: int, *arguments: int, architecture: int | None = None
) -> str | int:
    """Return "allowed", or the error number with which the filter refuses a call."""
    architecture = ARCHITECTURES[machine] if architecture is None else architecture
    six = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    call = struct.pack("=IIQ6Q", number, architecture, 0, *six)  # struct seccomp_data
    instructions = [*struct.iter_unpack("=HBBI", filter_for(machine))]
    at = loaded = 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", call, value)
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x45:
                at += if_true if loaded & value else if_false
            case 0x06:
                return "allowed" if value == ALLOW else value - ERROR


@pytest.mark.parametrize(("machine", "number"), [
    ("x86_64", 101), ("x86_64", 250), ("x86_64", 323), ("x86_64", 321), ("x86_64", 165), ("x86_64", 310),
    ("aarch64", 117), ("aarch64", 219), ("aarch64", 282), ("aarch64", 280), ("aarch64", 40), ("aarch64", 270),
])  # fmt: skip
def test_ptrace_keyctl_userfaultfd_bpf_mount_and_process_vm_readv_are_refused(
    machine, number
):
    assert judged(machine, number) == EPERM


@pytest.mark.parametrize(("machine", "call"), [
    ("x86_64", (253,)), ("x86_64", (294,)), ("x86_64", (254,)), ("x86_64", (300,)), ("x86_64", (72, 3, 1026)),
    ("x86_64", (72, 3, 1024)), ("aarch64", (26,)), ("aarch64", (27,)), ("aarch64", (262,)),
    ("aarch64", (25, 3, 1026)), ("aarch64", (25, 3, 1024)),
])  # fmt: skip
def test_whatever_reports_what_others_do_with_files_is_refused(machine, call):
    assert judged(machine, *call) == EPERM


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 72), ("aarch64", 25)])
@pytest.mark.parametrize("command", [0, 1, 2, 3, 4, 6, 8, 1030])
def test_other_commands_of_fcntl_are_allowed(machine, number, command):
    assert judged(machine, number, 3, command) == "allowed"


@both
@pytest.mark.parametrize("number", [425, 426, 427, 435])
def test_io_uring_and_clone3_are_as_if_the_kernel_had_none(machine, number):
    assert judged(machine, number) == ENOSYS


@both
@pytest.mark.parametrize(("family", "verdict"), [
    # local, IP, IPv6, netlink
    (1, "allowed"), (2, "allowed"), (10, "allowed"), (16, "allowed"),
    # packet, ciphers, vsock, XDP
    (17, EAFNOSUPPORT), (38, EAFNOSUPPORT), (40, EAFNOSUPPORT), (44, EAFNOSUPPORT),
])  # fmt: skip
def test_sockets_are_local_ip_or_netlink(machine, family, verdict):
    assert judged(machine, MACHINES[machine].socket, family) == verdict
    assert judged(machine, MACHINES[machine].socketpair, family) == verdict


@both
@pytest.mark.parametrize(("flags", "verdict"), [
    (17, "allowed"),             # fork: SIGCHLD
    (0x003D_0F00, "allowed"),    # a thread of libc
    (0x0000_4111, "allowed"),    # vfork
    (0x1000_0011, EPERM),        # CLONE_NEWUSER
    (0x0002_0011, EPERM),        # CLONE_NEWNS
])  # fmt: skip
def test_a_process_begins_others_and_no_namespace(machine, flags, verdict):
    assert judged(machine, MACHINES[machine].clone, flags) == verdict


@both
@pytest.mark.parametrize(
    ("flags", "verdict"), [(0x400, "allowed"), (0x1000_0000, EPERM), (0x80, EPERM)]
)
def test_unshare_makes_no_namespace(machine, flags, verdict):
    assert judged(machine, MACHINES[machine].unshare, flags) == verdict


@both
@pytest.mark.parametrize(("level", "option", "verdict"), [
    # the size of a buffer: "done", and nothing was
    (1, 7, 0), (1, 8, 0), (1, 33, 0),
    # SO_REUSEADDR, TCP_NODELAY; 8 of TCP is another one
    (1, 2, "allowed"), (6, 1, "allowed"), (6, 8, "allowed"),
])  # fmt: skip
def test_the_size_of_a_socket_s_buffer_passes_for_set_and_stays(
    machine, level, option, verdict
):
    assert judged(machine, MACHINES[machine].setsockopt, 3, level, option) == verdict


@both
def test_calls_of_another_architecture_are_refused_whatever_they_are(machine):
    assert judged(machine, 0, architecture=0x4000_0003) == ENOSYS  # AUDIT_ARCH_I386


def test_calls_of_x32_are_refused_whatever_they_are():
    assert judged("x86_64", 0x4000_0000) == ENOSYS


@both
def test_reading_and_writing_pass(machine):
    # read, write, openat, execve
    numbers = {"x86_64": (0, 1, 257, 59), "aarch64": (63, 64, 56, 221)}[machine]
    assert {judged(machine, number) for number in numbers} == {"allowed"}


def test_there_is_no_filter_for_an_architecture_whose_calls_are_not_known():
    assert filter_for("riscv64") == b""
