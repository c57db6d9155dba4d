"""Tools for processes, in a module that is quickly imported: each worker imports it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import handrail as hr


@hr.tool(effect="read", isolation="process")
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


@hr.tool(effect="read", isolation="process")
def where() -> int:
    """Say in which process this is."""
    return os.getpid()


@hr.tool(effect="read", isolation="process", limits=hr.Limits(max_attempts=1))
def fail(how: str) -> str:
    """Fail as asked."""
    match how:
        case "tool":
            raise hr.ToolError(
                "NO_SUCH_ORDER",
                "There is no order 7.",
                suggestion="Look it up.",
                retryable=False,
            )
        case "exit":
            os._exit(3)
        case "sys.exit":
            sys.exit(4)
        case "odd":
            raise OddError(1, 2)
        case _:
            raise ValueError("secret")


class OddError(Exception):
    """One that pickles and does not come back."""

    def __init__(self, one, two):
        super().__init__(f"{one}{two}")


@hr.tool(effect="write", isolation="process", timeout_s=0.6)
def write_late(path: str) -> str:
    """Write a file after a while, and have a child that does so too, in a session of its own."""
    program = f"import time; time.sleep(1.2); open({path + '.child'!r}, 'w').close()"
    subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    Path(path + ".begun").touch()
    time.sleep(1.2)
    Path(path).touch()
    return "written"


@hr.tool(effect="write", isolation="process")
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


@hr.tool(effect="read", isolation="process")
def what(kind: str) -> object:
    """Return something odd."""
    return "x" * 3_000_000 if kind == "text" else lambda: 1


@hr.tool(effect="read", isolation="process")
def rights(how: str) -> dict:
    """Say whose this process is, and which rights it and a program of its own have."""
    command = ["cat", "/proc/self/status"]
    status = (
        Path("/proc/self/status").read_text()
        if how == "itself"
        else subprocess.check_output(command, text=True)
    )
    lines = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    names = ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
    return {"uid": os.getuid(), **{name: lines[name] for name in names}}


@hr.tool(effect="read", isolation="process", timeout_s=10)
def meet(box: str, who: str) -> int:
    """Wait in a folder until two are there."""
    Path(box, who).touch()
    deadline = time.monotonic() + 8
    while len([*Path(box).iterdir()]) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return len([*Path(box).iterdir()])


@hr.tool(
    effect="read", isolation="process", timeout_s=0.6, limits=hr.Limits(max_attempts=1)
)
def hold() -> None:
    """Keep its process busy."""
    time.sleep(30)


@hr.tool(effect="write", isolation="process", timeout_s=0.3)
def leave_mark(path: str) -> None:
    """Make a file."""
    Path(path).touch()


WALKERS, STEPS = 4, 1000


@hr.tool(effect="write", isolation="process", timeout_s=0.7)
def scatter(line: str) -> None:
    """Begin walkers: processes that go on in a child, in a session of its own, and end; each for so many steps."""
    walking = os.open(line, os.O_WRONLY)
    for _ in range(WALKERS):
        if os.fork() == 0:
            for _ in range(STEPS):
                if os.fork():
                    os._exit(0)
                os.setsid()
            os.write(walking, b"got away")
            os._exit(0)
    while True:
        time.sleep(60)
