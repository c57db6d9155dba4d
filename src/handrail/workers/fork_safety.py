"""What has threads or processes of its own begins anew in a fork: threads do not go with it, and none would answer."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Begun(Protocol):
    """Something that begins without a thread."""

    def begin(self) -> None:
        """Be as it is when it is made, whatever it was, and whoever held its lock when the process was forked."""
        ...


_BEGUN: WeakSet[Begun] = WeakSet()


def begin(each: Begun) -> None:
    """Begin it, here and in every fork."""
    each.begin()
    _BEGUN.add(each)


def _begin_all() -> None:
    for each in list(_BEGUN):
        each.begin()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_begin_all)
