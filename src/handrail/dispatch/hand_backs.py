"""Keeps a worker from logging the same hand-back again and again.

A run that no worker can carry out comes back about once a minute, until one is started that can.
"""

from __future__ import annotations

from collections.abc import Callable

AGAIN_S = 600.0
"""The same hand-back of a run is logged again after this many seconds."""

_MOST = 1000
"""How many runs are remembered; beyond that the oldest is forgotten."""


class HandBackLog:
    """The reasons for which a worker handed runs back, with the time when each was logged last.

    Args:
        now: Monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._logged: dict[str, tuple[str, float]] = {}

    def is_due(self, run_id: str, why: str) -> bool:
        """Return whether to log a hand-back now: a new reason at once, the same one after `AGAIN_S`."""
        now = self._now()
        reason, at = self._logged.get(run_id, ("", now))
        if reason == why and now - at < AGAIN_S:
            return False
        self._logged.pop(run_id, None)
        if len(self._logged) >= _MOST:
            del self._logged[next(iter(self._logged))]
        self._logged[run_id] = (why, now)
        return True
