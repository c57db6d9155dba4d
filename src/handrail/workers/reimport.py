"""Whether this process is importing a tool's file in order to run it for another process.

The import runs the top level of that file again. A call made there would be made once more by every worker, and each
would start a worker of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_files: list[str] = []


@contextmanager
def importing(file: str) -> Iterator[None]:
    """Record that this file is being imported, for the time of a `with` block."""
    _files.append(file)
    try:
        yield
    finally:
        _files.pop()


def current_file() -> str:
    """Return the file that is being imported; empty when none is."""
    return _files[-1] if _files else ""
