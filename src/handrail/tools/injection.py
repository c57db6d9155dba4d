"""Which parameters of a function the model never sees: its context, and what the runtime injects."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from handrail.context import Context, Injected, InjectedOpenly

_CONTAINERS = (Annotated, Union, UnionType)


def is_injected(hint: Any) -> bool:
    """Whether a parameter with this type hint is hidden from the model."""
    return find_injected_kind(hint) is not None


def find_injected_kind(hint: Any) -> type[Any] | None:
    """Return `Context`, `Injected` or `InjectedOpenly` when the hint names it, also in `Annotated` and `Optional`."""
    if isinstance(hint, Injected):
        return Injected if hint.secret else InjectedOpenly
    if hint is Injected:
        return Injected
    if hint is Context or get_origin(hint) is Context:
        return Context
    if get_origin(hint) not in _CONTAINERS:
        return None
    kinds = (find_injected_kind(part) for part in get_args(hint))
    return next(filter(None, kinds), None)
