"""Which parameters of a function the model never sees: its context, and what the runtime injects.

Injected values may stand in the rules of a tool, such as `key="ticket:{tenant}:{number}"`. A key is written into the
ledger, the audit log and requests to services, so a secret is in it as a digest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin
from uuid import UUID

import msgspec
import pydantic

from handrail.context import Context, Injected, InjectedOpenly
from handrail.credentials.secret import Secret
from handrail.errors import Json, SetupError
from handrail.schemas import hints
from handrail.tools import keys
from handrail.tools.normal_form import normalize

_CONTAINERS = (Annotated, Union, UnionType)


def is_injected(hint: Any) -> bool:
    """Whether a parameter with this type hint is hidden from the model."""
    return find_injected_kind(hint) is not None


def find_injected_kind(hint: Any) -> type[Any] | None:
    """Return `Context`, `Injected` or `InjectedOpenly` when the hint names it, also in `Annotated` and `Optional`."""
    if isinstance(hint, Injected):
        return Injected if hint.secret else InjectedOpenly
    if hint is Injected or hint is Context:
        return cast(type[Any], hint)
    if type(hint) is type:  # a class holds no other hint
        return None
    origin = get_origin(hint)
    if origin is Context:
        return Context
    if origin not in _CONTAINERS:
        return None
    kinds = (find_injected_kind(part) for part in get_args(hint))
    return next(filter(None, kinds), None)


def find_injected_parameters(
    function: Any, arguments: Collection[str]
) -> dict[str, type[Any]]:
    """Return the parameters of a function that the caller fills, by their hints: name -> `Context`, `Injected`, ...

    Args:
        arguments: The names that a model fills, according to a schema.
    """
    if not getattr(function, "__annotations__", None):
        return {}
    found: dict[str, type[Any]] = {}
    for name, hint in hints.find_hints(function).items():
        kind = find_injected_kind(hint)
        if kind is not None and name not in arguments:
            found[name] = kind
    return found


def find_secret_parameters(function: Any, injected: Collection[str]) -> frozenset[str]:
    """Return the injected parameters that take a `Secret` itself, and not its text."""
    if not getattr(function, "__annotations__", None):
        return frozenset()
    named = hints.find_hints(function)
    return frozenset(name for name in injected if _names_secret(named.get(name)))


def _names_secret(hint: Any) -> bool:
    return hint is Secret or any(map(_names_secret, get_args(hint)))


_DIGITS = 32
"""Of a secret's digest: 128 bits, so that nobody finds a second secret with the same one."""


def hide_secret(value: Json) -> str:
    """Return what represents a secret in a key: the same in every process, and nothing that leads back to it.

    A secret that can be guessed (a PIN, a name) can be tried out against the digest.
    """
    return f"secret_{keys.digest(value)[:_DIGITS]}"


def plain_value(name: str, value: Any) -> Json:
    """Return an injected value as templates and conditions see it: JSON, with the fields of objects by name.

    Args:
        name: What it is injected as.

    Raises:
        SetupError: It holds something that has no text of its own, such as a connection.
    """
    if isinstance(value, Enum):
        return plain_value(name, value.value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, UUID | date | datetime | time | Decimal):
        return normalize(value)
    if isinstance(value, list | tuple):
        return [plain_value(name, each) for each in value]
    # pydantic writes each of its secrets as the same stars
    if hasattr(type(value), "get_secret_value"):
        return plain_value(name, value.get_secret_value())
    if isinstance(value, bytes):
        return value.hex()
    return {
        str(field): plain_value(name, each)
        for field, each in _fields_of(name, value).items()
    }


def _fields_of(name: str, value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, pydantic.BaseModel):
        return dict(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    raise SetupError(
        f"the injected `{name}` holds a {type(value).__name__}, which a template or condition cannot look at; "
        "inject text or a number for it"
    )
