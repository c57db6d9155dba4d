"""Where vectors are kept, so that a text is embedded once. `vectorfile` has one that outlives the process."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol


class VectorCache(Protocol):
    """Where vectors are kept."""

    def get(self, keys: Sequence[str]) -> Mapping[str, array[float]]:
        """Return the vectors that are here."""
        ...

    def put(self, vectors: Mapping[str, array[float]]) -> None:
        """Keep vectors."""
        ...


class VectorMemory:
    """Vectors for as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, array[float]] = {}

    def get(self, keys: Sequence[str]) -> Mapping[str, array[float]]:
        """See `VectorCache.get`."""
        return {key: self._kept[key] for key in keys if key in self._kept}

    def put(self, vectors: Mapping[str, array[float]]) -> None:
        """See `VectorCache.put`."""
        self._kept.update(vectors)
