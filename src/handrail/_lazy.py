"""A module that is imported when something of it is first needed: most programs never fork a run or start a process.

    if TYPE_CHECKING:
        from handrail import forking
    else:
        forking = late.module("handrail.journal.fork")

The first half tells type checkers, editors and the test of the reading order what the second does. Names are written
with their module, `forking.fork_of(...)`, in annotations too.

Rule 1: only for what an ordinary call does not need. What it needs is imported at the top, where it fails early.
Rule 2: a test imports every module that stands here under the name that it has there, so no mistake waits for its day.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def module(name: str) -> Any:
    """Return what stands for the module of that name until something of it is asked for."""
    return _Late(name)


class _Late:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)

    def __repr__(self) -> str:
        return f"<late module {self._name!r}>"
