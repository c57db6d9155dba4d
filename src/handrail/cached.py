"""A value that is worked out when it is first asked for, without a lock.

`functools.cached_property` of Python 3.11 holds one lock for all instances of a class while a value is worked out. A
process that is forked meanwhile has that lock for good, and its first call hangs. Python 3.12 has none either.

Rule 1: two threads that ask at once may both work it out, so what is worked out is a plain value: either one will do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801  # used as the one of `functools` is
    """Makes a method an attribute whose value is worked out once."""

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
        # Found there from now on, before this: it has no `__set__`.
        value = instance.__dict__[self._name] = self._work_out(instance)
        return value
