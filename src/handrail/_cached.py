"""A cached property without a lock.

`functools.cached_property` of Python 3.11 holds one lock for all instances of a class while it computes a value. A
process forked at that moment inherits the locked lock, and its first call hangs. Python 3.12 removed the lock.

Rule 1: two threads may compute the value at once, so it must be a plain value of which either copy will do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801  # used as the one of `functools` is
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
