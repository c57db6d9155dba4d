"""Tools by what an embedding model makes of their texts, beside the words that they are written in.

Rule 1: a text is embedded once: vectors are cached under a digest of the text, and of the model's name where
        the function has one (`embed.model`). Give every other function a cache of its own.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from operator import mul
from typing import Any, TypeAlias

from handrail.errors import ModelError
from handrail.selectors.vector_cache import VectorCache, VectorMemory

Embed: TypeAlias = Callable[[list[str]], Sequence[Sequence[float]]]
"""Texts in, one vector each out, all of one length."""

BATCH = 100
"""Texts that are embedded at once; every provider takes as many."""

TEXT_CHARACTERS = 2_000
"""Of a tool's text that are embedded: about 500 tokens, the whole window of a small model."""


class Vectors:
    """An index of tools by the meaning of their texts; it does not follow later changes of a toolset.

    A question takes time in proportion to tools x length of a vector.

    Raises:
        ModelError: The texts cannot be embedded.
    """

    def __init__(
        self, tools: Iterable[Any], embed: Embed, cache: VectorCache | None = None
    ) -> None:
        self.tools: Sequence[Any] = sorted(
            tools, key=lambda tool: (tool.name, tool.description)
        )
        self._embed = embed
        self._cache = VectorMemory() if cache is None else cache
        self._vectors = self._embed_all([describe(tool) for tool in self.tools])

    def top(self, query: str, k: int = 5) -> list[Any]:
        """Return the `k` tools nearest in meaning, best first, no two of one name."""
        if not query.strip():
            return []
        (wanted,) = self._embed_all([query[:TEXT_CHARACTERS]])
        nearness = sorted(
            (-_dot(wanted, vector), place) for place, vector in enumerate(self._vectors)
        )
        chosen: dict[str, Any] = {}
        for _, place in nearness[: 4 * k]:
            chosen.setdefault(self.tools[place].name, self.tools[place])
        return list(chosen.values())[:k]

    def _embed_all(self, texts: Sequence[str]) -> list[array[float]]:
        model = getattr(self._embed, "model", "")
        keys = [
            sha256(f"{model}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
            for text in texts
        ]
        vectors = dict(self._cache.get(list(dict.fromkeys(keys))))
        missing = {
            key: text
            for key, text in zip(keys, texts, strict=True)
            if key not in vectors
        }
        for start in range(0, len(missing), BATCH):
            batch = dict(list(missing.items())[start : start + BATCH])
            embeddings = self._embed(list(batch.values()))
            if len(embeddings) != len(batch):
                raise ModelError(
                    f"{len(batch)} texts were embedded as {len(embeddings)} vectors",
                    code="embeddings",
                )
            fresh = {
                key: _unit(vector)
                for key, vector in zip(batch, embeddings, strict=True)
            }
            self._cache.put(fresh)
            vectors |= fresh
        return [vectors[key] for key in keys]

    def __repr__(self) -> str:
        dimension = len(self._vectors[0]) if self._vectors else 0
        return f"<Vectors of {len(self.tools)} tools of dimension {dimension}>"


def describe(tool: Any) -> str:
    """Return what is embedded of a tool: its name, its aliases, its description and its parameters' names."""
    also = ", ".join((*getattr(tool, "aliases", ()), *getattr(tool, "tags", ())))
    parameters = ", ".join(tool.parameters.get("properties") or ())
    lines = (
        tool.name.replace("_", " ").replace(".", " "),
        also,
        tool.description or "",
        parameters,
    )
    return "\n".join(filter(None, lines))[:TEXT_CHARACTERS]


def _unit(vector: Sequence[float]) -> array[float]:
    length = math.hypot(*vector) or 1.0
    return array("f", [number / length for number in vector])


def _dot(one: array[float], other: array[float]) -> float:
    return float(sum(map(mul, one, other)))
