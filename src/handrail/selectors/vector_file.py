"""Vectors in a SQLite file, so that thousands of tools are not embedded again with every start."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

_STATEMENTS = {
    "make": "CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID",
    "get": "SELECT vector FROM vectors WHERE key = ?",
    "put": "INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)",
}


class VectorFile:
    """Vectors in a SQLite file, which several processes may share."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        with closing(self._open()) as file, file:
            file.execute(_STATEMENTS["make"])

    def _open(self) -> sqlite3.Connection:
        # one each time: a selector may ask from any thread
        return sqlite3.connect(self._path, timeout=30)

    def get(self, keys: Sequence[str]) -> Mapping[str, array[float]]:
        """See `VectorCache.get`."""
        with closing(self._open()) as file:
            rows = {
                key: file.execute(_STATEMENTS["get"], (key,)).fetchone() for key in keys
            }
        return {key: array("f", row[0]) for key, row in rows.items() if row}

    def put(self, vectors: Mapping[str, array[float]]) -> None:
        """See `VectorCache.put`."""
        with closing(self._open()) as file, file:
            file.executemany(
                _STATEMENTS["put"],
                [(key, vector.tobytes()) for key, vector in vectors.items()],
            )
