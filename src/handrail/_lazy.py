"""What is made when it is first needed: modules that most programs never use, and attributes that are costly.

    if TYPE_CHECKING:
        from handrail.journal import fork
    else:
        fork = _lazy.module("handrail.journal.fork")

The first half says to type checkers, editors and the test of the reading order what the second does. Names are written
with their module, `fork.make_fork(...)`, in annotations too.

Rule 1: only for what an ordinary call does not need. What it needs is imported at the top, where it fails early.
Rule 2: a test imports every module that is named lazily, so that a wrong name is found at once.

`cached_property` is the one of `functools` without its lock. Python 3.11 holds one lock for all instances of a class
while it computes a value; a process forked at that moment inherits it locked, and its first call hangs. Python 3.12
removed the lock.

Rule 3: two threads may compute a cached property at once, so it must be a plain value of which either copy will do.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


def module(name: str) -> Any:
    """Return a stand-in for a module, which is imported when one of its attributes is first read."""
    return _Late(name)


class _Late:
    __slots__ = ("_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, name)

    def __repr__(self) -> str:
        return f"<late module {self._name!r}>"


class cached_property(Generic[T]):  # used as the one of `functools` is
    """Turns a method into an attribute that is computed once."""

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        if instance is None:
            return self
        # Without `__set__`, the instance's own attribute is found first from now on.
        value = instance.__dict__[self._name] = self._work_out(instance)
        return value
