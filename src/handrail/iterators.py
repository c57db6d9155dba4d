"""Iterators in what a tool returned: one is read once, and whoever looks a second time finds nothing in it.

Imported by sandboxed children too, so it is one file of the standard library.
"""

from __future__ import annotations

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
    """Whether there is an iterator anywhere in a value's lists and objects."""
    left, seen = [value], set[int]()
    while left:
        each = left.pop()
        kind = type(each)
        if kind is dict or kind is list or kind is tuple:
            if id(each) not in seen:
                seen.add(id(each))
                left += each.values() if kind is dict else each
        elif hasattr(kind, "__next__"):
            return True
    return False
