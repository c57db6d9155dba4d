"""Resets, in a forked process, whatever has threads, processes or locks: a fork copies none of its parent's threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from weakref import WeakMethod, WeakSet

_RESETS: set[WeakMethod[Callable[[], None]]] = set()
_LOCKS: WeakSet[Lock] = WeakSet()


def reset_after_fork(reset: Callable[[], None]) -> None:
    """Call a method now, and in every fork as long as its object lives.

    It returns the object to the state in which it has no thread and no process, also if another thread held its lock.
    """
    reset()
    _RESETS.add(WeakMethod(reset, _RESETS.discard))


def new_lock() -> Lock:
    """Return a lock that is free in a fork, whoever held it in the parent."""
    lock = Lock()
    _LOCKS.add(lock)
    return lock


def _reset_all() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
    for each in list(_RESETS):
        if (reset := each()) is not None:
            reset()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_reset_all)
