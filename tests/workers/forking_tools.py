"""Tools whose process forks, in a module that is quickly imported: each worker imports it."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import pty
import sys
import threading
from contextlib import suppress
from pathlib import Path

import handrail as hr


class ForksWhenPickled:
    """A result that forks on its way out."""

    def __init__(self, gate: str) -> None:
        self.gate = gate

    def __reduce__(self):
        _fork_at(self.gate, "return")
        return str, ("mine",)


class OfTheChild(Exception):
    """What the child raises."""


def _wait_behind(gate: str) -> None:
    """In the child: wait until another call opens the gate."""
    Path(gate).read_text(encoding="ascii")


def _fork_at(gate: str, how: str) -> None:
    """Fork; the child comes out of here once another call has opened the gate."""
    forks = {"raw": ctypes.CDLL(None).fork, "pty": lambda: pty.fork()[0]}
    child = forks.get(how, os.fork)()
    if child == 0:
        if how == "double" and os.fork():
            os._exit(0)  # the way of a daemon
        _wait_behind(gate)
        if how == "raise":
            raise OfTheChild
        if how == "exit":
            sys.exit(3)


@hr.tool(
    effect="write",
    key="fork:{gate}",
    isolation="process",
    limits=hr.Limits(max_attempts=1),
)
def fork(gate: str, how: str) -> object:
    """Fork, and let the child out of the tool too."""
    match how:
        case "pickle":
            return ForksWhenPickled(gate)
        case "generator":
            return (_fork_at(gate, "return") or each for each in ["mine"])
        case "thread":
            thread = threading.Thread(target=_fork_at, args=(gate, "return"))
            thread.start()
            thread.join()
        case "multiprocessing":
            context = multiprocessing.get_context("fork")
            context.Process(target=_wait_behind, args=(gate,)).start()
        case _:
            _fork_at(gate, how)
    return "mine"


@hr.tool(
    effect="write",
    key="fork:{gate}",
    isolation="process",
    limits=hr.Limits(max_attempts=1),
)
async def fork_later(gate: str, how: str) -> object:
    """Do the same in a coroutine."""
    _fork_at(gate, how)
    return "mine"


@hr.tool(
    effect="write",
    key="ask:{number}",
    isolation="process",
    limits=hr.Limits(max_attempts=1),
)
def let_out(number: int, gate: str) -> int:
    """Let the child of an earlier call come out, and wait until it has ended."""
    Path(gate).write_text("go", encoding="ascii")
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return number


@hr.tool(effect="read", isolation="process", limits=hr.Limits(max_attempts=1))
def die_beside_a_child() -> None:
    """End the process while a child of it lives on."""
    if os.fork() == 0:
        threading.Event().wait()
    os._exit(5)


def fork_first(how: str) -> object:
    """Fork, let the child out first, and say how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if how == "raise":
            raise OfTheChild
        if how == "exit":
            sys.exit(3)
        if how == "double" and os.fork():
            os._exit(0)
        return "of the child"
    os.close(writing)
    os.read(reading, 1)  # the last process below has ended, too
    os.close(reading)
    return f"mine {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


@hr.tool(effect="write", key="here:{how}", limits=hr.Limits(max_attempts=1))
def fork_here(how: str) -> object:
    """Fork in the process of the runtime."""
    if how == "generator":
        return (fork_first(how) for _ in "1")
    return fork_first(how)


@hr.tool(
    effect="write", key="here:{how}", limits=hr.Limits(max_attempts=1), blocking=False
)
def fork_in_place(how: str) -> object:
    """Fork in the thread of the runtime."""
    return fork_first(how)


@hr.tool(effect="write", key="here:{how}", limits=hr.Limits(max_attempts=1))
async def fork_in_first_step(how: str) -> object:
    """Fork on the event loop before anything is waited for."""
    if how == "generator":
        return (fork_first(how) for _ in "1")
    return fork_first(how)


@hr.tool(effect="write", key="here:{how}", limits=hr.Limits(max_attempts=1))
async def fork_in_later_step(how: str) -> object:
    """Fork on the event loop; the child may wait for a future of the parent."""
    future = asyncio.get_running_loop().create_future()
    await asyncio.sleep(0)
    outcome = fork_first(how)
    if how == "wait" and outcome == "of the child":
        await future
    return outcome


@hr.tool(effect="read", isolation="isolated", limits=hr.Limits(max_attempts=1))
def fork_in_a_box(how: str) -> str:
    """Fork, and let the child out first."""
    child = os.fork()
    if child == 0:
        if how == "raise":
            raise OfTheChild
        if how == "exit":
            sys.exit(3)
        return "of the child"
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"mine {code}"
