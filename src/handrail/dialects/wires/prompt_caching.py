"""Prompt caching: asks a provider to reuse the beginning of a request that it has read before.

Reading it from the cache costs about a tenth. How a request asks for that differs by provider: a mark at the end of
each part to cache, one field for the whole request, or a key that routes requests with the same beginning to the same
machine.

Rule 1: `auto` asks only servers whose support is certain; a cache time in the options asks any server.
Rule 2: a request with marks of the caller's own gets none of ours: it may hold four.
Rule 3: a mark or a key changes nothing of what the model reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from handrail.dialects import ToolLike, compute_once
from handrail.errors import Json
from handrail.messages import Message, Options, UserMessage

Server: TypeAlias = Literal["", "own", "copy"]
"""Who runs the server: the maker of the API, somebody with a copy of the API, or unknown (empty)."""

_KEY_CHARS = 32


def is_wanted(options: Options, takes_it: bool) -> bool:
    """Whether a request asks for caching; `takes_it` says that the server certainly supports it."""
    return options.cache is not None and (takes_it or options.cache != "auto")


def key_fields(
    tools: Collection[ToolLike],
    definitions: Sequence[Json],
    system: str,
    options: Options,
    *,
    server: Server,
) -> dict[str, Json]:
    """Return OpenAI's `prompt_cache_key`: the digest of the tools and the system message, so that runs share it."""
    if not (is_wanted(options, server == "own") and (definitions or system)):
        return {}
    digest = compute_once(
        tools, ("digest", id(definitions)), lambda: hashlib.sha256(_json(definitions))
    ).copy()
    digest.update(_json([system, list(options.provider_tools)]))
    return {"prompt_cache_key": digest.hexdigest()[:_KEY_CHARS]}


def has_own_marks(
    messages: Sequence[Message], options: Options, names: frozenset[str]
) -> bool:
    """Whether the caller has put marks of these names into a message, a provider's tool or a field."""
    if not names.isdisjoint(options.extra):
        return True
    parts: list[Any] = [*options.provider_tools]
    for message in messages:
        if isinstance(message, UserMessage):
            parts += message.parts
    return any(
        isinstance(part, Mapping) and not names.isdisjoint(part) for part in parts
    )


def _json(value: Any) -> bytes:
    """Return a value as JSON; empty if it has no JSON form, which is reported when the request is written."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=dict)
    except (TypeError, ValueError, RecursionError):
        return b""
    return text.encode("utf-8", "surrogatepass")
