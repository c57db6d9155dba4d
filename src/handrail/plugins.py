"""How a part is found by name: ours by a module name, others' by an entry point.

Nothing is imported before it is asked for. Where a location of ours is a table, the part is in it under its name.
An entry point of the group `handrail.dialects` (`handrail.stores`, `handrail.models`, ...) names a module or an object.

The packages that are installed with this one, which does not name them, add their parts by two further groups of the
same distribution, so that only its own entry points are read:

* `handrail.parts` names a table of locations by kind and name;
* `handrail.commands` names a table `COMMANDS` of the commands of `handrail`, each with the first line of its help. The
  command `gateway` is `command` in the module `gateway` beside that table, and `serve mcp` that in `serve_mcp`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from handrail import _lazy
from handrail.errors import ConfigError

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = _lazy.module("importlib.metadata")


FORMS = {"mcp": "handrail.dialects.wires.mcp:MCP"}
"""In what form tools are described beside those of dialects: no model is asked in these."""

_OURS: dict[str, Mapping[str, str] | str] = {
    "forms": FORMS,
    "dialects": {
        "openai-chat": "handrail.dialects.wires.openai_chat:DIALECT",
        "openai-compatible": "handrail.dialects.wires.openai_chat:COMPATIBLE",
        "openai-responses": "handrail.dialects.wires.openai_responses:DIALECT",
        "anthropic": "handrail.dialects.wires.anthropic:DIALECT",
        "gemini": "handrail.dialects.wires.gemini:DIALECT",
        "gemini-interactions": "handrail.dialects.wires.interactions:DIALECT",
        "cohere": "handrail.dialects.wires.cohere:DIALECT",
        "bedrock": "handrail.dialects.wires.bedrock:DIALECT",
    },
    "models": "handrail.models.provider_table:MODELS",
    "stores": {
        "memory": "handrail.stores.memory:MemoryStore",
        "sqlite": "handrail.stores.sqlite:SqliteStore",
        "postgres": "handrail.stores.postgres:PostgresStore",
        "postgresql": "handrail.stores.postgres:PostgresStore",
    },
    "selectors": dict.fromkeys(
        ("auto", "all", "bm25", "search", "two-stage"),
        "handrail.selectors.strategies:SELECTORS",
    ),
    "sandboxes": dict.fromkeys(
        ("container", "bubblewrap", "process"), "handrail.sandboxes.builtin:KNOWN"
    ),
    "observers": {"otel": "handrail.observers.otel:Tracing"},
    "approvers": {"terminal": "handrail.approvers.terminal:TerminalApprover"},
}


_SQLITE_FILE = r"(?i)[/\\]|\.\w*(db|sqlite)\w*$"
"""What names a file rather than a kind of store."""


def _own_names(kind: str) -> Mapping[str, str]:
    """Return where our parts of a kind are, by name. A long table is in a module of its own, named by its location."""
    names = _OURS.get(kind, {})
    if isinstance(names, str):
        table: Mapping[str, str] = _import(names)
        return table
    return names


def _import(location: str) -> Any:
    module, _, attribute = location.partition(":")
    return (
        getattr(import_module(module), attribute)
        if attribute
        else import_module(module)
    )


def list_added(kind: str) -> Mapping[str, str]:
    """Return where the parts of a kind are that packages beside this one add, by name.

    Kinds that nobody else can add to: `names` are attributes of `handrail`, `commands` are commands, and `help` has the
    first line of the help of each.
    """
    return _added().get(kind, {})


@cache
def _added() -> Mapping[str, Mapping[str, str]]:
    added: dict[str, dict[str, str]] = {}
    try:
        points = metadata.distribution("handrail").entry_points
    except metadata.PackageNotFoundError:
        return added
    for point in points.select(group="handrail.parts"):
        for kind, locations in point.load().items():
            added.setdefault(kind, {}).update(locations)
    for point in points.select(group="handrail.commands"):
        for name, line in point.load().items():
            module = re.sub(r"\W", "_", name)
            added.setdefault("help", {})[name] = line
            added.setdefault("commands", {})[name] = f"{point.module}.{module}:command"
    return added


def list_names(kind: str) -> list[str]:
    """Return the names that `load` takes for a kind of part, ours first."""
    theirs = [point.name for point in metadata.entry_points(group=f"handrail.{kind}")]
    return list(dict.fromkeys([*_own_names(kind), *list_added(kind), *theirs]))


def list_writers() -> list[str]:
    """Return the names of the dialects in which a model can be asked."""
    readers = list_added("readers")
    return [name for name in list_names("dialects") if name not in readers]


def load(kind: str, name: str) -> Any:
    """Import and return a part, such as `load("dialects", "openai-chat")`.

    Raises:
        ConfigError: No part has that name; the message lists those that there are.
    """
    if location := _own_names(kind).get(name) or list_added(kind).get(name):
        part = _import(location)
        return part[name] if isinstance(part, Mapping) else part
    for point in metadata.entry_points(group=f"handrail.{kind}"):
        if point.name == name:
            return point.load()
    names = list_names(kind)
    near = get_close_matches(name, names, n=2)
    if kind == "stores" and re.search(_SQLITE_FILE, name):
        near = [f"sqlite:///{name.removeprefix('./')}"]
    hint = ""
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}? "
    known = f"known are {', '.join(names)}" if names else "no installed package has any"
    raise ConfigError(f"there is no {kind.removesuffix('s')} {name!r}; {hint}{known}")
