"""How a part is found by name: ours by a module name, others' by an entry point.

Nothing is imported before it is asked for. Where a location of ours is a table, the part is in it under its name.
An entry point of the group `handrail.dialects` (`handrail.stores`, `handrail.models`, ...) names a module or an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from handrail import _lazy
from handrail.errors import ConfigError

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = _lazy.module("importlib.metadata")


# fmt: off
_PROMPTS = {
    "deepseek": ("deepseek-r1", "deepseek-v3", "deepseek-v3.1", "deepseek-v3.2", "deepseek-v4"),
    "hermes": ("hermes", "hermes-2-pro", "hermes-vllm", "qwen2.5", "qwen3"),
    "llama3": (
        "llama3", "llama3.1", "llama3.2", "llama3.3", "llama3-vllm", "llama3.2-vllm", "llama3-pythonic", "llama4",
    ),
    "mistral": (
        "mistral", "mistral-v2", "mistral-v3", "mistral-v3-tekken", "mistral-nemo", "mistral-vllm",
        "mistral-vllm-parallel", "mistral-v7", "mistral-v7-tekken", "mistral-v11", "mistral-v13", "devstral",
    ),
    "more_families": (
        "qwen3-coder", "qwen3.5", "glm4", "kimi-k2", "kimi-k2-thinking", "harmony", "gpt-oss",
        "minimax-m2", "granite3", "lfm2", "nemotron-nano-v2", "gemma4",
    ),
    "newer_families": ("glm4.7", "granite4", "granite4.1", "nemotron3", "minimax-m3"),
    "further_families": (
        "qwq", "mimo", "step3.5", "seed-oss", "ling3", "spark", "laguna", "xlam", "xlam-llama", "toolace",
        "internlm2", "functionary-v3.1", "hy3", "command-r7b", "reka", "phi4-mini",
    ),
    "react": ("react",),
}
UNPROMPTED = (
    "apertus", "apriel", "command-a", "command-r", "ernie4.5", "firefunction-v2",
    "functionary-v3.2", "functiongemma", "functools", "generic-json", "gigachat", "granite-20b",
    "hunyuan", "jamba", "kimi-k3", "longcat", "minicpm5", "muse", "olmo3",
    "plain", "step3",
)
"""Dialects that read answers and write no prompts, so that no model can be asked in them."""
# fmt: on
PROMPTS: dict[str, str] = {
    name: f"handrail_openmodels.prompts.{module}:DIALECTS"
    for module, names in _PROMPTS.items()
    for name in names
}
"""Where the prompts of open models are, by the name of their dialect. A model is named with it too, unless a provider
has the name: `hermes:NAME@ADDRESS`."""

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
        **PROMPTS,
        **dict.fromkeys(UNPROMPTED, "handrail_openmodels.prompts.read_only:DIALECTS"),
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
        ("container", "bubblewrap", "process", "wasm", "monty"),
        "handrail.sandboxes.builtin:KNOWN",
    ),
    "notifiers": {
        "mail": "handrail_toolbox.notifying:mail_from",
        "webhook": "handrail_toolbox.notifying:Webhook",
    },
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
    return getattr(import_module(module), attribute)


def list_names(kind: str) -> list[str]:
    """Return the names that `load` takes for a kind of part, ours first."""
    theirs = [point.name for point in metadata.entry_points(group=f"handrail.{kind}")]
    return list(dict.fromkeys([*_own_names(kind), *theirs]))


def list_writers() -> list[str]:
    """Return the names of the dialects in which a model can be asked."""
    return [name for name in list_names("dialects") if name not in UNPROMPTED]


def load(kind: str, name: str) -> Any:
    """Import and return a part, such as `load("dialects", "openai-chat")`.

    Raises:
        ConfigError: No part has that name; the message lists those that there are.
    """
    if location := _own_names(kind).get(name):
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
    raise ConfigError(
        f"there is no {kind.removesuffix('s')} {name!r}; {hint}known are {', '.join(names)}"
    )
