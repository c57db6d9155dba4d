"""Whether this process is importing a tool's file in order to run it for another process.

What stands at the top level of that file is run again by that. A call made there would be made once more by every
worker, and each would begin a worker of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_files: list[str] = []


@contextmanager
def of(file: str) -> Iterator[None]:
    """Know meanwhile that this file is being imported."""
    _files.append(file)
    try:
        yield
    finally:
        _files.pop()


def under_way() -> str:
    """Return the file that is being imported; empty when none is."""
    return _files[-1] if _files else ""
