"""Resets, in a forked process, whatever has threads or processes of its own: threads are not copied by a fork."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ForkSafe(Protocol):
    """Something that can be reset to the state in which it has no thread and no process."""

    def reset(self) -> None:
        """Return to the initial state, also if another thread held the lock when the process was forked."""
        ...


_INSTANCES: WeakSet[ForkSafe] = WeakSet()


def reset_after_fork(instance: ForkSafe) -> None:
    """Reset an instance now and in every fork."""
    instance.reset()
    _INSTANCES.add(instance)


def _reset_all() -> None:
    for instance in list(_INSTANCES):
        instance.reset()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_reset_all)
