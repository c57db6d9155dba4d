"""Waiting until a file descriptor can be read, whatever its number.

`select.select` refuses descriptors of 1,024 and above with a `ValueError`. In a server with a thousand open connections
every new descriptor is one of these, so nothing in handrail may depend on low numbers.
"""

from __future__ import annotations

import selectors
from typing import Protocol

# `epoll` and `kqueue` take a descriptor themselves, and there may be none left.
_WITHOUT_DESCRIPTOR = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Descriptor(Protocol):
    """A file, a socket, or whatever else has a descriptor."""

    def fileno(self) -> int:
        """Return the number of the descriptor."""


def wait_readable(*files: int | Descriptor, timeout_s: float | None = None) -> bool:
    """Wait until one of `files` can be read or has ended; return False when `timeout_s` passes first.

    Args:
        files: Descriptors, or files with a `fileno`.
        timeout_s: Seconds; 0 does not wait, None waits without a bound.
    """
    with _WITHOUT_DESCRIPTOR() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))
