"""Tools for a sandbox, in a module that is quickly imported: each call of one imports it anew."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import handrail as hr
from handrail.calls import Media
from handrail.workers.sandboxed import MOST_ANSWER_BYTES

HOW = {
    "effect": "read",
    "isolation": "isolated",
    "limits": hr.Limits(max_attempts=1),
    "timeout_s": 30,
}


@dataclass
class Point:
    x: int
    y: int


CALLS: list[int] = []


@hr.tool(**HOW)
def add(x: int, y: int) -> int:
    """Add two numbers."""
    print("printed", x, y)
    return x + y


@hr.tool(**HOW)
async def add_later(x: int, y: int) -> int:
    """Add two numbers, in a while."""
    await asyncio.sleep(0.001)
    return x + y


@hr.tool(**HOW)
def count_calls() -> int:
    """Count the calls that this process has seen."""
    CALLS.append(1)
    return len(CALLS)


@hr.tool(**HOW)
def fail(how: str) -> str:
    """Fail as asked."""
    match how:
        case "tool":
            raise hr.ToolError(
                "NO_SUCH_ORDER", "There is no order 7.", suggestion="Look it up."
            )
        case "exit":
            os._exit(3)
        case "sys.exit":
            sys.exit(4)
        case _:
            raise ValueError("secret")


@hr.tool(**HOW)
async def fail_later(how: str) -> str:
    """Fail in a while."""
    await asyncio.sleep(0.001)
    raise ValueError(how)


@hr.tool(**HOW)
def fail_in_a_row(how: str) -> object:
    """Fail while its rows are read."""
    return (json.loads(how) if n else n for n in range(2))


@hr.tool(**HOW)
def fail_below(how: str) -> object:
    """Fail in what it calls."""
    return json.loads(how)


@hr.tool(**HOW)
def rows_inside(where: str) -> object:
    """Return iterators where they may lie."""
    return {
        "bare": map(str, range(2)),
        "object": {"rows": map(str, range(2))},
        "list": [map(str, range(2))],
    }[where]


@hr.tool(effect="write", isolation="isolated", timeout_s=30)
def refuse_to_write() -> str:
    """Say that nothing happened."""
    raise hr.NoEffect(
        "CLOSED", "The desk is closed.", suggestion="Come back at nine.", retryable=True
    )


@hr.tool(effect="write", isolation="isolated", timeout_s=30)
def with_context(
    context: hr.Context[dict], tenant: Annotated[str, hr.Injected], order: str
) -> dict:
    """Tell what it knows of its call."""
    return {
        "deps": context.deps,
        "key": context.idempotency_key,
        "left": context.remaining_s() > 0,
        "of": tenant,
    }


@hr.tool(**HOW)
def what(kind: str) -> object:
    """Return something odd."""
    match kind:
        case "point":
            return Point(1, 2)
        case "rows":
            return ({"n": n} for n in range(3))
        case "text":
            return "天" * 1_000_000
        case "too large":
            return "x" * (MOST_ANSWER_BYTES + 1)
        case "picture":
            return Media("image/png", b"\0PNG", name="chart.png")
        case "pictures":
            return {"title": "sales", "chart": Media("image/png", b"\0PNG")}
        case _:
            return lambda: 1


@hr.tool(**HOW)
def list_folder(folder: str) -> list[str]:
    """List a folder."""
    return sorted(each.name for each in Path(folder).iterdir())


@hr.tool(
    effect="read", isolation="isolated", limits=hr.Limits(max_attempts=1), timeout_s=30
)
def escape(probe: str, world: dict) -> str:
    """Try to get out."""
    found: dict[str, object] = {**world, "os": os}
    exec(PROBES[probe], found)
    return str(found["got"])


@hr.tool(
    effect="read", isolation="process", limits=hr.Limits(max_attempts=1), timeout_s=30
)
def escape_from_a_process(probe: str, world: dict) -> str:
    """Try to get out of a mere process."""
    return escape.fn(probe, world)


BY_NUMBER = """
import ctypes, platform
libc, arm = ctypes.CDLL(None, use_errno=True), platform.machine() == 'aarch64'
def call(number, of_arm, *arguments):
    result = libc.syscall(ctypes.c_long(of_arm if arm else number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
add_key, request_key, keyctl = (248, 217), (249, 218), (250, 219)
"""


PROBES = {
    "read the users": "got = open('/etc/passwd').read()",
    "read a secret in the environment": "got = os.environ['PROBE_SECRET']",
    "read a secret of other processes": """
def told(number):
    try:
        return open(f'/proc/{number}/environ').read()
    except OSError:  # it has ended meanwhile
        return ''
got = [number for number in os.listdir('/proc') if number.isdigit() and 'PROBE_SECRET' in told(number)][0]
""",
    "reach a port of this machine": "import socket; got = socket.create_connection(('127.0.0.1', port), 5).recv(9)",
    "reach an abstract socket": """
import socket
got = socket.socket(socket.AF_UNIX); got.connect(name); got = got.recv(9)
""",
    "write outside": "open(outside, 'w').write('x'); got = 'written'",
    "kill the runtime": "os.kill(runtime, 0); got = 'could be killed'",
    "trace the runtime": """
import ctypes
assert ctypes.CDLL(None, use_errno=True).ptrace(0x4206, runtime, 0, 0) == 0  # PTRACE_SEIZE stops nothing
got = 'traced'
""",
    "open a user namespace": """
import ctypes
if (child := os.fork()) == 0:  # whoever has threads cannot
    os._exit(ctypes.CDLL(None).unshare(0x10000000) != 0)
assert os.waitpid(child, 0)[1] == 0
got = 'in a namespace of its own'
""",
    "trace a child": BY_NUMBER
    + """
if (child := os.fork()) == 0:
    os._exit(libc.ptrace(0, 0, 0, 0) != 0)  # PTRACE_TRACEME
assert os.waitpid(child, 0)[1] == 0
got = 'traced'
""",
    "read memory past all files": BY_NUMBER
    + """
room = ctypes.create_string_buffer(8)
part = (ctypes.c_size_t * 2)(ctypes.addressof(room), 8)  # struct iovec
got = call(310, 270, ctypes.c_long(os.getpid()), part, ctypes.c_long(1), part, ctypes.c_long(1), ctypes.c_long(0))
""",
    "read a key of the session": BY_NUMBER
    + """
room = ctypes.create_string_buffer(100)
number = call(*keyctl, 10, -3, b'user', key.encode(), 0)  # KEYCTL_SEARCH in the session's ring
got = room.raw[:call(*keyctl, 11, number, room, 100)]  # KEYCTL_READ
""",
    "leave a key": BY_NUMBER
    + "got = call(*add_key, b'user', key.encode(), b'left', 4, -4)  # in the user's ring",
    "ask for a key": BY_NUMBER
    + "got = call(*request_key, b'user', key.encode(), None, 0)",
    "list keys": "got = [line for line in open('/proc/keys') if key in line][0]",
    "set up an io_uring": BY_NUMBER
    + "got = call(425, 425, 8, ctypes.create_string_buffer(120))",
    "catch page faults": BY_NUMBER + "got = call(323, 282, 1)",  # UFFD_USER_MODE_ONLY
    "make a socket to the host of a virtual machine": "import socket; got = socket.socket(40, socket.SOCK_STREAM)",
    "make a socket to the kernel's ciphers": "import socket; got = socket.socket(38, socket.SOCK_SEQPACKET)",
    "count events of the processor": BY_NUMBER
    + """
event = ctypes.create_string_buffer((1).to_bytes(4, 'little') + (112).to_bytes(4, 'little'), 112)
event.raw = event.raw[:40] + (0x60).to_bytes(8, 'little') + event.raw[48:]  # of a program, not of the kernel
got = call(298, 241, event, 0, -1, -1, 0)
""",
    "clone into a user namespace": BY_NUMBER
    + """
if (child := call(56, 220, ctypes.c_long(0x10000000 | 17), None, None, None, None)) == 0:
    os._exit(0)
os.waitpid(child, 0)
got = 'cloned'
""",
    "compare two processes": BY_NUMBER
    + "got = call(312, 272, os.getpid(), os.getpid(), 1, 0, 0)",
    "read by way of a link": "os.symlink('/etc/shadow', 'link'); got = open('link').read()",
    "take four gigabytes": "got = len(bytearray(4 * 1024**3))",
    "fork 400 times": """
children = []
for _ in range(400):
    if (child := os.fork()) == 0:
        os.read(os.pipe()[0], 1)  # nobody writes
    children.append(child)
got = len(children)
""",
    "write a gigabyte in 40 files": """
for number in range(40):
    with open(f'{number}', 'wb') as file:
        for _ in range(25): file.write(bytes(1024**2))
got = 'a gigabyte'
""",
}


@hr.tool(
    effect="read", isolation="isolated", limits=hr.Limits(max_attempts=1), timeout_s=4
)
def loop_with_child(line: str) -> None:
    """Go on for ever with a child that left the session."""
    if os.fork() == 0:
        os.setsid()
    os.open(line, os.O_WRONLY)
    while True:
        pass


@hr.tool(effect="write", isolation="isolated", timeout_s=30)
def print_without_end() -> int:
    """Print a lot, to wherever it can be printed."""
    for _ in range(64):
        os.write(1, b"x" * 1024**2)
        os.write(2, b"x" * 1024**2)
    return 1


@hr.tool(**HOW)
def hoard() -> None:
    """Take more memory than is allowed, in processes that each take little."""
    for _ in range(8):
        if os.fork() == 0:
            held = bytes(1) * (100 * 1024**2)
            os.read(os.pipe()[0], len(held))  # nobody writes
    os.wait()


@hr.tool(effect="write", isolation="isolated", timeout_s=30)
def leave_a_daemon(line: str) -> str:
    """Leave a grandchild in a session of its own, which holds a line open."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.open(line, os.O_WRONLY)
            os.read(os.pipe()[0], 1)  # nobody writes
        os._exit(0)
    os.open(line, os.O_WRONLY)
    return "left"


@hr.tool(**HOW)
def leave_or_find(what: str) -> list[str]:
    """Leave something wherever it can be left, or say what of it is there."""
    places = [
        Path(folder, "left")
        for folder in (
            os.environ["HOME"],
            "/tmp",
            "/dev/shm",
            ".",
            "/",
            "/run",
            "/var/tmp",
        )
    ]
    libc = ctypes.CDLL(None)
    if what == "find":
        segment = ["a segment of memory"] if libc.shmget(SEGMENT, 4096, 0) >= 0 else []
        return [str(each) for each in places if each.exists()] + segment
    for each in places:
        with suppress(OSError):
            each.write_text("left")
    libc.shmget(SEGMENT, 4096, 0o1666)  # IPC_CREAT
    return leave_or_find.fn("find")


SEGMENT = 0x68_72_01
