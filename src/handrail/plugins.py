"""How a part is found by name: ours by a module name, others' by an entry point.

Nothing is imported before it is asked for.
An entry point of the group `handrail.dialects` (`handrail.stores`, `handrail.models`, ...) names a module or an object.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from handrail.errors import ConfigError

_OURS: dict[str, dict[str, str]] = {
    "dialects": {
        "openai-chat": "handrail.dialects.openai_chat:DIALECT",
        "openai-compatible": "handrail.dialects.openai_chat:COMPATIBLE",
    },
    "models": {"openai": "handrail.models.http:openai"},
    "stores": {"memory": "handrail.stores.memory:MemoryStore"},
    "approvers": {"terminal": "handrail.approvers.terminal:TerminalApprover"},
}


def known(kind: str) -> list[str]:
    """Return the names that `load` knows for a kind of part, ours first."""
    theirs = [point.name for point in metadata.entry_points(group=f"handrail.{kind}")]
    return list(dict.fromkeys([*_OURS.get(kind, {}), *theirs]))


def load(kind: str, name: str) -> Any:
    """Import and return a part, such as `load("dialects", "openai-chat")`.

    Raises:
        ConfigError: No part of that name; the known ones are listed.
    """
    if place := _OURS.get(kind, {}).get(name):
        module, _, attribute = place.partition(":")
        return getattr(import_module(module), attribute)
    for point in metadata.entry_points(group=f"handrail.{kind}"):
        if point.name == name:
            return point.load()
    raise ConfigError(f"there is no {kind.removesuffix('s')} {name!r}; known are {', '.join(known(kind))}")
