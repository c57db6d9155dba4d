"""Iterators in what a tool returned: one is read once, and whoever looks a second time finds nothing in it.

Imported by sandboxed children too, so it is one file of the standard library.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any


def read(value: Any) -> Any:
    """Return a value whose iterators, also in its list or under its keys, are lists; raise what one of them raises.

    No deeper, for every result is looked at so; whoever finds one below (`are_in`) takes `read_all`.
    """
    kind = type(value)
    if kind is dict:
        return {name: _read(each) for name, each in value.items()}
    if kind is list or kind is tuple:
        return kind(map(_read, value))
    return _read(value)


def _read(value: Any) -> Any:
    return list(value) if hasattr(type(value), "__next__") else value


def read_all(value: Any) -> Any:
    """Return a value whose iterators, however deep they lie and in what they give, are lists."""
    kind = type(value)
    if kind is dict:
        return {name: read_all(each) for name, each in value.items()}
    if kind is list or kind is tuple:
        return kind(map(read_all, value))
    return [read_all(each) for each in value] if hasattr(kind, "__next__") else value


def are_in(value: Any) -> bool:
    """Whether there is an iterator anywhere in a value: in its lists and objects, and in what has fields."""
    left, seen = [value], set[int]()
    while left:
        each = left.pop()
        kind = type(each)
        if kind is str or kind is int or kind is float:
            continue
        if hasattr(kind, "__next__"):
            return True
        if (parts := _parts(each, kind)) and id(each) not in seen:
            seen.add(id(each))
            left += parts
    return False


def _parts(value: Any, kind: type) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, _MANY):
        return value
    if (fields := getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)) is not None:
        return [getattr(value, name, None) for name in fields]
    return vars(value).values() if hasattr(kind, "__pydantic_fields__") else ()


_MANY = (list, tuple, set, frozenset, deque)
