"""The warm process inside a box: forks itself for each call, and gives the new process walls of its own.

Started by `warm` inside a box of `bubblewrap`, in which it is root of a user namespace. It imports what calls need,
once, and then only forks: no call runs in it, so it never holds anything of one.

The processes of a call are made before the call comes: a supervisor, the same as in a box of its own (`supervisor`), in
new namespaces (processes, mounts, network, IPC, host name) with new folders in memory in place of /box, /tmp and
/dev/shm; and the program, walled in and waiting. It is the first process of its process namespace: when it ends, or its
supervisor does, the kernel kills what it has started.

Rule 1: the program starts without capabilities, in a user namespace of its own, under the filter of `seccomp`, and with
    an empty key ring. If one of the steps fails, the program does not start.
Rule 2: the warm process ends with the host: when the line to it is closed.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import os
import pickle
import re
import resource  # noqa: F401  # once, here: every call needs it
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from handrail.sandboxes import confinement, supervisor

READY = b"ready"
MOST_FDS = 4
"""Of a call: its order, stdout, stderr, and where its report goes."""

_MOST_SETTINGS_BYTES = 64 * 1024
_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUTS = 0x0400_0000
_CLONE_NEWIPC = 0x0800_0000
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWPID = 0x2000_0000
_CLONE_NEWNET = 0x4000_0000
_MS_RDONLY = 1
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_NOEXEC = 8
_MS_REMOUNT = 32
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_PR_SET_PDEATHSIG = 1
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_READ_ONLY_IN_PROC = ("sys", "sysrq-trigger", "irq", "bus")
"""Bubblewrap covers the same."""
_HIDDEN_IN_PROC = ("keys", "key-users")


class Walls(NamedTuple):
    """What each call gets.

    Attributes:
        folders: Folders in memory, with their sizes in bytes.
        seccomp_filter: See `seccomp.filter_for`.
        user: The number of its user, who is nobody else outside.
        group: The same of its group.
    """

    folders: Mapping[str, int]
    seccomp_filter: bytes
    user: int
    group: int


def main(
    line_fd: int,
    walls: Walls,
    prepare: str,
    prepared: Sequence[str],
    function: str,
) -> None:
    """Fork for each call until the host closes the line.

    Args:
        line_fd: A socket; each message is the arguments of a call, with its descriptors.
        prepare, prepared, function: See `ports.WarmStart`.
    """
    line = socket.socket(fileno=line_fd)
    process = os.getpid()
    entry = _find(function)
    try:
        _find(prepare)(*prepared)
    except BaseException:
        # each call does it again, and reports it
        traceback.print_exc()
    if os.getpid() != process:
        os._exit(1)  # forked by what was imported, and returned from there
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208  # pathlib is slow to import
        sys.exit("what it imports starts threads, which no fork takes along")
    walls = Walls(*walls)
    _try_walls(walls)
    gc.collect()
    gc.freeze()  # so that no collection of a call writes into what all of them share
    line.send(READY)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the host watches them
    while True:
        # made before its call comes: putting up walls is most of what a call would wait for
        child, call = _fork_spare(line, walls, entry)
        message, fds, _, _ = socket.recv_fds(line, 64 * 1024, MOST_FDS)
        if not message:
            return
        watched = os.pidfd_open(child)
        socket.send_fds(call, [message], fds)
        socket.send_fds(line, [b"started"], [watched])
        for each in (watched, *fds):
            os.close(each)
        call.close()


def _fork_spare(
    line: socket.socket,
    walls: Walls,
    entry: Callable[..., None],
) -> tuple[int, socket.socket]:
    """Fork the supervisor of the next call; return its number, and the socket on which it waits for the call."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        line.close()
        ours.close()
        _supervise(its, walls, entry)
    its.close()
    return child, ours


def _try_walls(walls: Walls) -> None:
    """End this process, with the reason on stderr, where a call could not be walled in."""
    child = os.fork()
    if child == 0:
        try:
            _enter_namespaces(walls.folders)
            if os.fork() == 0:
                _wall_in(walls)
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("the walls of a call could not be put up")


def _find(function: str) -> Callable[..., None]:
    module, _, name = function.partition(":")
    found: Callable[..., None] = getattr(importlib.import_module(module), name)
    return found


def _supervise(
    call: socket.socket,
    walls: Walls,
    entry: Callable[..., None],
) -> None:
    """Put up the walls of one call, wait for it, and carry out its order; never returns."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        confinement.join_empty_key_ring()
        _enter_namespaces(walls.folders)
        os.chdir("/box")
        go, its_go = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = os.fork()
        if program == 0:
            call.close()
            go.close()
            _run_program(its_go, walls, entry)
        its_go.close()
        message, fds, _, _ = socket.recv_fds(call, 64 * 1024, MOST_FDS)
        if not message:
            os._exit(0)
        report_fd = _take_streams(fds)
        order = supervisor.read_order()
        order["report_fd"] = {"": b"%d" % report_fd}
        del order["seccomp_filter"]  # the program has it already

        def start(order: dict[str, dict[str, bytes]]) -> int:
            settings = {each: order.get(each, {}) for each in ("limit", "environment")}
            words = pickle.dumps((settings, message.decode().split("\0")))
            socket.send_fds(go, [words], [1, 2])
            go.close()
            return program

        supervisor.carry_out(order, start)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _take_streams(fds: Sequence[int]) -> int:
    """Make the descriptors of a call our streams; return the one for its report."""
    *streams, report = [os.dup(each) for each in fds]  # above those that are replaced
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    for each in fds:
        os.close(each)
    os.set_inheritable(report, False)
    return report


def _enter_namespaces(folders: Mapping[str, int]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    namespaces = (
        _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
    )
    _check(libc.unshare(ctypes.c_int(namespaces)))
    _mount(libc, None, "/", None, _MS_REC | _MS_PRIVATE)
    shown = [(path, os.open(path, os.O_PATH)) for path in _mounts_below(tuple(folders))]
    for folder, most_bytes in folders.items():
        options = f"size={most_bytes},mode=1777"
        _mount(libc, "tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    for path, place in shown:
        _show_again(libc, path, place)
    _raise_loopback()


def _mounts_below(folders: tuple[str, ...]) -> Sequence[str]:
    """Return what the box shows in these folders, such as a project that lies below /tmp; the outer ones first."""
    below = tuple(f"{each}/" for each in folders)
    with open("/proc/self/mounts", encoding="latin-1") as mounts:  # noqa: PTH123
        paths = [line.split(" ")[1] for line in mounts]
    unescaped = [
        re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), each)
        for each in paths
    ]
    return [
        os.fsdecode(each.encode("latin-1"))
        for each in unescaped
        if each.startswith(below)
    ]


def _show_again(libc: ctypes.CDLL, path: str, place: int) -> None:
    """Mount what the new folder covers, read-only as it was."""
    source = f"/proc/self/fd/{place}"
    if os.path.isdir(source):  # noqa: PTH112
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    _mount(libc, source, path, None, _MS_BIND)
    os.close(place)


def _raise_loopback() -> None:
    """Let a program reach itself by 127.0.0.1, as in a new box; nobody else is in its network."""
    with socket.socket() as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        (flags,) = struct.unpack_from("h", answer, 16)
        request = struct.pack("16sh22x", b"lo", flags | _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _run_program(go: socket.socket, walls: Walls, entry: Callable[..., None]) -> None:
    """Put up the walls that are the program's own, wait for its call, and run it; never returns."""
    try:
        _wall_in(walls)
        message, streams, _, _ = socket.recv_fds(go, _MOST_SETTINGS_BYTES, 2)
        if not message:
            os._exit(0)
        # our own words: its supervisor wrote them, and no program runs yet
        order, arguments = pickle.loads(message)
        for number, each in enumerate(streams, start=1):
            os.dup2(each, number)
        order["report_fd"] = {"": b"%d" % max(streams)}  # the last to be closed
        supervisor.become_program(order)
        os.environ.clear()
        os.environ.update(supervisor.environment_of(order))
        _reseed()
        gc.enable()
        entry(*arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(127)


def _wall_in(walls: Walls) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    # its supervisor keeps the /proc in which it finds this process
    _check(libc.unshare(ctypes.c_int(_CLONE_NEWNS)))
    _mount_proc(libc)
    _enter_user_namespace(libc, walls.user, walls.group)
    confinement.drop_rights(walls.seccomp_filter)
    _check(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def _mount_proc(libc: ctypes.CDLL) -> None:
    """Show the processes of our own namespace alone, and no keys."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _mount(libc, "proc", "/proc", "proc", flags)
    for name in _READ_ONLY_IN_PROC:
        path = f"/proc/{name}"
        if os.path.exists(path):  # noqa: PTH110
            _mount(libc, path, path, None, _MS_BIND | _MS_REC)
            remount = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | flags
            _mount(libc, None, path, None, remount)
    for name in _HIDDEN_IN_PROC:
        path = f"/proc/{name}"
        if os.path.exists(path):  # noqa: PTH110
            _mount(libc, "/dev/null", path, None, _MS_BIND)


def _enter_user_namespace(libc: ctypes.CDLL, user: int, group: int) -> None:
    """Enter one of our own: in it the kernel counts our processes, and no others, against their limit."""
    _check(libc.unshare(ctypes.c_int(_CLONE_NEWUSER)))
    for name, text in (
        ("setgroups", b"deny"),
        ("uid_map", b"%d 0 1" % user),
        ("gid_map", b"%d 0 1" % group),
    ):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text)
        os.close(file)


def _reseed() -> None:
    """Give numpy's shared generator a new state, where it was imported; `random` does that itself after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _mount(
    libc: ctypes.CDLL,
    source: str | None,
    target: str,
    kind: str | None,
    flags: int,
    options: str | None = None,
) -> None:
    words = [
        None if each is None else each.encode()
        for each in (source, target, kind, options)
    ]
    _check(libc.mount(*words[:3], ctypes.c_ulong(flags), words[3]))


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
