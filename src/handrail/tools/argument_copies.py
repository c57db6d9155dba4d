"""Copies of a call's arguments, one for each attempt: a tool that changes its own must not change those of the next.

`copy.deepcopy` walks a model of pydantic in five steps of Python for each value in it. Nearly all that arguments hold
is JSON and models of it, which are copied here in a third of that time.

Rule 1: a copy is what `deepcopy` would have made: what occurs twice occurs twice in the copy, as one object. Values
        that are neither JSON nor a model which is copied as pydantic does it are left to `deepcopy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pydantic

_UNCHANGING = frozenset((str, int, float, bool, type(None)))
_TEXT = frozenset((str,))
_set_field = object.__setattr__


def copy_arguments(bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of keyword arguments."""
    copied: dict[str, Any] = {}
    memo: dict[int, Any] = {}
    for name, value in bound.items():
        copied[name] = value if type(value) in _UNCHANGING else _copy(value, memo)
    return copied


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    """Return a copy of a value that may change. `memo` is that of `deepcopy`: copies by identity."""
    number = id(value)
    if number in memo:
        return memo[number]
    kind = type(value)
    if kind is list:
        return _copy_list(value, memo)
    if kind is dict and _TEXT.issuperset(map(type, value)):
        items = memo[number] = dict[str, Any]()
        _copy_items(value, items, memo)
        return items
    if hasattr(kind, "__pydantic_fields__") and _is_copied_as_usual(value, kind):
        return _copy_model(value, kind, memo)
    return deepcopy(value, memo)


def _copy_list(value: list[Any], memo: dict[int, Any]) -> list[Any]:
    if _UNCHANGING.issuperset(map(type, value)):
        copied = memo[id(value)] = value.copy()
        return copied
    copied = memo[id(value)] = []
    for each in value:
        copied.append(each if type(each) in _UNCHANGING else _copy(each, memo))
    return copied


def _copy_items(
    items: Mapping[str, Any], copied: dict[str, Any], memo: dict[int, Any]
) -> None:
    for name, value in items.items():
        copied[name] = value if type(value) in _UNCHANGING else _copy(value, memo)


def _is_copied_as_usual(model: Any, kind: Any) -> bool:
    """Whether a model is copied as pydantic copies one, and has nothing but its fields."""
    return (
        getattr(kind, "__deepcopy__", None) is pydantic.BaseModel.__deepcopy__
        and getattr(model, "__pydantic_private__", model) is None
        and getattr(model, "__pydantic_extra__", model) is None
    )


def _copy_model(model: Any, kind: Any, memo: dict[int, Any]) -> Any:
    copied = memo[id(model)] = kind.__new__(kind)
    values = model.__dict__
    fields: dict[str, Any] = {}
    if _UNCHANGING.issuperset(map(type, values.values())):
        fields = values.copy()
    else:
        _copy_items(values, fields, memo)
    _set_field(copied, "__dict__", fields)
    _set_field(copied, "__pydantic_extra__", None)
    _set_field(copied, "__pydantic_fields_set__", model.__pydantic_fields_set__.copy())
    _set_field(copied, "__pydantic_private__", None)
    return copied
