"""The one clock: what the time is, and how a thread waits.

Every module of handrail reads the time here and never from `time`, so that a simulation moves all of it by setting
`source`. An event loop has a clock of its own (`loop.time`), and a simulation brings its own loop.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from: the module `time`, or a simulation."""

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment; never goes back."""
        ...

    def time(self) -> float:
        """Return the seconds since 1970, UTC; people may set it."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Hold up the calling thread."""
        ...


source: Clock = time


def monotonic() -> float:
    """Return the seconds since a fixed moment; never goes back."""
    return source.monotonic()


def unix_time() -> float:
    """Return the seconds since 1970, UTC; people may set it."""
    return source.time()


def sleep(seconds: float) -> None:
    """Hold up the calling thread."""
    source.sleep(seconds)
