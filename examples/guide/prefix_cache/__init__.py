"""A provider's prompt cache, counted as providers count it, so that a test can say what a run pays for its input.

    with ScriptedServer(script, wire="anthropic", cache=PrefixCache()) as server:
        run = await runtime.run("How warm is it?", model=server.model)
    assert run.spent.cache_read_share > 0.85

Anthropic keeps a request up to each of its marks, four at most, and finds what it keeps by looking back over 20 blocks
from a mark. OpenAI keeps what requests of one key begin with, by 128 tokens from 1,024 on. Both compare exactly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from threading import Lock

from msgspec import Struct

from handrail.errors import Json, ModelError
from handrail.messages import Usage

READ_PRICE = 0.1
"""What a token costs that is read from the cache, where one that is not costs 1."""
WRITE_PRICE = 1.25
"""What a token costs that is written to the cache for five minutes; OpenAI takes 1."""

_CHARACTERS_PER_TOKEN = 4
_MOST_MARKS = 4
_MOST_LOOKED_BACK = 20
_OPENAI_STEP = 128


class _Block(Struct, frozen=True):
    """A part of a request that the cache compares as a whole."""

    text: str
    is_marked: bool = False

    @property
    def tokens(self) -> int:
        return -(-len(self.text) // _CHARACTERS_PER_TOKEN)


class PrefixCache:
    """A provider's cache of the beginnings of requests. Thread-safe; nothing expires.

    Args:
        least_tokens: Shorter beginnings are not cached.
    """

    def __init__(self, *, least_tokens: int = 1024) -> None:
        self._least_tokens = least_tokens
        self._prefixes: set[str] = set()
        self._texts: dict[str, list[str]] = {}
        self._lock = Lock()

    def count(self, wire: str, body: Mapping[str, Json]) -> Usage:
        """Return the usage of a request, with what was read from the cache and written to it.

        Args:
            wire: Its dialect: `anthropic`, or one of OpenAI's.

        Raises:
            ModelError: The request has more marks than Anthropic takes, or one on a deferred tool.
        """
        with self._lock:
            if wire == "anthropic":
                return self._count_marked(list(_anthropic_blocks(body)))
            return self._count_text(str(body.get("prompt_cache_key", "")), _openai_text(body))

    def _count_marked(self, blocks: list[_Block]) -> Usage:
        marks = [n for n, block in enumerate(blocks) if block.is_marked]
        if len(marks) > _MOST_MARKS:
            raise ModelError(
                f"a maximum of {_MOST_MARKS} blocks with cache_control may be provided, found {len(marks)}",
                status=400,
            )
        prefixes, sizes = _sum_up(blocks)
        read = 0
        for mark in marks:
            for place in range(mark, max(-1, mark - _MOST_LOOKED_BACK), -1):
                if prefixes[place] in self._prefixes:
                    read = max(read, sizes[place])
                    break
        written = 0
        for mark in marks:
            if sizes[mark] >= self._least_tokens:
                self._prefixes.add(prefixes[mark])
                written = max(written, sizes[mark] - read)
        return Usage(sizes[-1] if sizes else 0, cached_tokens=read, cache_written_tokens=written)

    def _count_text(self, key: str, text: str) -> Usage:
        texts = self._texts.setdefault(key, [])
        longest = max((_common_length(each, text) for each in texts), default=0)
        read = longest // _CHARACTERS_PER_TOKEN // _OPENAI_STEP * _OPENAI_STEP
        texts.append(text)
        return Usage(
            -(-len(text) // _CHARACTERS_PER_TOKEN),
            cached_tokens=read if read >= self._least_tokens else 0,
        )


def input_price(usage: Usage, *, write_price: float = WRITE_PRICE) -> float:
    """Return what an input costs, as a share of what it would cost without a cache."""
    plain = usage.input_tokens - usage.cached_tokens - usage.cache_written_tokens
    cost = plain + READ_PRICE * usage.cached_tokens + write_price * usage.cache_written_tokens
    return cost / usage.input_tokens if usage.input_tokens else 1.0


def _common_length(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    differing = (number for number, (a, b) in enumerate(pairs) if a != b)
    return next(differing, min(len(one), len(other)))


def _sum_up(blocks: list[_Block]) -> tuple[list[str], list[int]]:
    """Return for each block the digest of all up to it, and their tokens."""
    digest, tokens = hashlib.sha256(), 0
    prefixes: list[str] = []
    sizes: list[int] = []
    for block in blocks:
        digest.update(block.text.encode("utf-8", "surrogatepass") + b"\0")
        tokens += block.tokens
        prefixes.append(digest.hexdigest())
        sizes.append(tokens)
    return prefixes, sizes


def _anthropic_blocks(body: Mapping[str, Json]) -> Iterator[_Block]:
    """Yield the blocks of a request in the order in which the model reads them."""
    deferred: dict[str, Json] = {}
    for tool in body.get("tools") or ():
        if not tool.get("defer_loading"):
            yield _block("tool", tool)
            continue
        deferred[tool["name"]] = tool
        if "cache_control" in tool:
            raise ModelError("cache_control cannot be used with defer_loading", status=400)
    for block in _as_blocks(body.get("system")):
        yield _block("system", block)
    last: _Block | None = None
    for message in body.get("messages") or ():
        for block in _as_blocks(message.get("content")):
            if last is not None:
                yield last
            last = _block(message["role"], _with_references(block, deferred))
    if last is not None:
        yield _Block(last.text, last.is_marked or "cache_control" in body)


def _with_references(block: Json, deferred: Mapping[str, Json]) -> Json:
    """Return a result with the definitions of the tools that it refers to, which the provider puts there."""
    content = block.get("content")
    if not isinstance(content, list):
        return block
    loaded = [deferred[each["tool_name"]] for each in content if each.get("type") == "tool_reference"]
    return {**block, "loaded": loaded} if loaded else block


def _as_blocks(content: Json) -> list[dict[str, Json]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def _block(role: str, fields: Mapping[str, Json]) -> _Block:
    plain = {key: value for key, value in fields.items() if key != "cache_control"}
    return _Block(role + _write(plain), "cache_control" in fields)


def _openai_text(body: Mapping[str, Json]) -> str:
    tools = [tool for tool in body.get("tools") or () if not tool.get("defer_loading")]
    parts = (*tools, body.get("instructions"))
    history = body.get("input") or body.get("messages") or ()
    return "\n".join(map(_write, (*parts, *_as_blocks(history))))


def _write(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
