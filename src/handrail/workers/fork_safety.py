"""Resets, in a forked process, whatever has threads, processes or locks: a fork copies none of its parent's threads."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import NoReturn, ParamSpec, TypeVar
from weakref import WeakMethod, WeakSet

P = ParamSpec("P")
T = TypeVar("T")

_RESETS: set[WeakMethod[Callable[[], None]]] = set()
_LOCKS: WeakSet[Lock] = WeakSet()


def reset_after_fork(reset: Callable[[], None]) -> None:
    """Call a method now, and in every fork as long as its object lives.

    The method puts the object into a state without threads and processes, whoever held its lock.
    """
    reset()
    _RESETS.add(WeakMethod(reset, _RESETS.discard))


def new_lock() -> Lock:
    """Return a lock that is free in a fork, whoever held it in the parent."""
    lock = Lock()
    _LOCKS.add(lock)
    return lock


def run_in_one_process(
    function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a user's function, or take a step of a coroutine. A fork of it ends where it would return to us."""
    process = os.getpid()
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        if os.getpid() != process:
            # a coroutine that returns raises StopIteration
            end_fork(None if isinstance(error, StopIteration) else error)
        raise
    if os.getpid() != process:
        end_fork(None)
    return value


def end_fork(error: BaseException | None) -> NoReturn:
    """End a fork that left a tool, with the exit code of a program that ended this way. Its parent reports the call."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit) and (
        error.code is None or type(error.code) is int
    ):
        code = (error.code or 0) & 0xFF
    elif error is not None:
        traceback.print_exception(error)
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _reset_all() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
    for each in list(_RESETS):
        if (reset := each()) is not None:
            reset()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_reset_all)
