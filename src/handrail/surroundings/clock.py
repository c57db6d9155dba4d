"""The one clock: what the time is, and how a thread waits.

Every module of handrail reads the time here and never from `time`, so that a simulation moves all of it by setting
`source`. An event loop has a clock of its own (`loop.time`), and a simulation brings its own loop.
"""

from __future__ import annotations

import time
from typing import Any

source: Any = time
"""Where the time comes from: whatever has `monotonic`, `time` and `sleep` of the module `time`."""


def monotonic() -> float:
    """Return the seconds since a fixed moment; never goes back."""
    now: float = source.monotonic()
    return now


def unix_time() -> float:
    """Return the seconds since 1970, UTC; people may set it."""
    now: float = source.time()
    return now


def sleep(seconds: float) -> None:
    """Hold up the calling thread."""
    source.sleep(seconds)
