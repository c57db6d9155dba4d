"""Caches of vectors, so that a text is embedded once. `vector_file` has one that outlives the process."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol


class VectorCache(Protocol):
    """Vectors by the digest of their text."""

    def get(self, keys: Sequence[str]) -> Mapping[str, array[float]]:
        """Return the vectors that are here."""
        ...

    def put(self, vectors: Mapping[str, array[float]]) -> None:
        """Store vectors."""
        ...


class VectorMemory:
    """Vectors for as long as the process lives."""

    def __init__(self) -> None:
        self._vectors: dict[str, array[float]] = {}

    def get(self, keys: Sequence[str]) -> Mapping[str, array[float]]:
        """See `VectorCache.get`."""
        return {key: self._vectors[key] for key in keys if key in self._vectors}

    def put(self, vectors: Mapping[str, array[float]]) -> None:
        """See `VectorCache.put`."""
        self._vectors.update(vectors)
