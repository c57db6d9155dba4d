"""How many requests are answered, by whom they come from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from handrail.surroundings.clock import monotonic

_MOST_NAMES = 10_000


class RequestRate:
    """A bucket of tokens for each of many names.

    Args:
        per_s: How many requests a second are allowed in the long run.
        burst: How many at once.
    """

    def __init__(
        self,
        per_s: float,
        burst: int,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._now = now
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Count a request; return 0, or after how many seconds the next one is allowed."""
        now = self._now()
        left, at = self._buckets.pop(name, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._per_s
        self._buckets[name] = (left if wait_s else left - 1, now)
        if len(self._buckets) > _MOST_NAMES:
            self._buckets.popitem(last=False)
        return wait_s
