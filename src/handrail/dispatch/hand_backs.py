"""Which hand-backs of segments a worker has logged.

A run that no worker can carry out comes back to each of them about twice a minute, until one is started that can.
"""

from __future__ import annotations

from collections.abc import Callable

AGAIN_S = 600.0
"""After how many seconds the same hand-back of a run is logged again."""

_MOST = 1000
"""Of how many runs it is known; the oldest is forgotten then."""


class HandBackLog:
    """When a worker logged last why it handed a run back.

    Args:
        now: Monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._logged: dict[str, tuple[str, float]] = {}

    def is_due(self, run_id: str, why: str) -> bool:
        """Return whether a hand-back is to be logged, and note it as logged then: a new reason is, and an old one."""
        now = self._now()
        reason, at = self._logged.get(run_id, ("", now))
        if reason == why and now - at < AGAIN_S:
            return False
        self._logged.pop(run_id, None)
        if len(self._logged) >= _MOST:
            del self._logged[next(iter(self._logged))]
        self._logged[run_id] = (why, now)
        return True
