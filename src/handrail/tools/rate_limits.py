"""How often a tool may be started, and when it is better left alone for a while.

A rate is a token bucket: `30/min` lets 30 calls go at once and then one every two seconds. A call takes its token when
it learns how long to wait, so those who wait go one after another, in the order in which they asked.

A breaker counts attempts that failed to reach what the tool needs. After so many in a row the tool is not started for a
while; then one call may try, and its end decides for all. A try that never reports ends after the same while.

`Limits` counts in one process. Where the store is shared, `shared_limits` counts in its rows, by the same rules.

Rule 1: nothing here reads a clock: `now` is monotonic seconds, and the driver's.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

from msgspec import Struct

from handrail.errors import Code, Failure

REST_S = 30.0
"""How long a tool is left alone. A service that restarts is mostly back by then; one that is down is asked twice a
minute."""

_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
_RATE = re.compile(r"([1-9][0-9]*)/(s|min|h)")

_MOST_BUCKETS = 10_000
"""Of all tools together, with their keys. A full bucket says nothing, so the oldest may go."""


class Rate(Struct, frozen=True):
    """So many starts, evenly over so many seconds."""

    starts: int
    seconds: float


def parse_rate(text: str) -> Rate:
    """Return the rate that a text such as `5/s`, `30/min` or `1000/h` means.

    Raises:
        ValueError: It means none.
    """
    match = _RATE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no rate; write `5/s`, `30/min` or `1000/h`")
    return Rate(int(match[1]), _UNITS_S[match[2]])


class Bucket(Struct):
    """The tokens of one rate; `due` is when it would be full again."""

    rate: Rate
    due: float = float("-inf")

    def take(self, now: float, most_s: float) -> float | None:
        """Take a token; return how long to wait until it is there. None, and nothing taken, when that is too long."""
        apart_s = self.rate.seconds / self.rate.starts
        due = max(self.due, now) + apart_s
        wait_s = due - now - self.rate.seconds
        if wait_s > most_s:
            return None
        self.due = due
        return max(0.0, wait_s)


class Breaker(Struct):
    """The state of a tool that fails to reach what it needs.

    Attributes:
        failures: Attempts in a row that failed.
        until: The tool is left alone until then; in the past where the breaker is closed.
        tried: Until when a call may try, while the others wait for its end.
    """

    failures: int = 0
    until: float = float("-inf")
    tried: float = float("-inf")

    @property
    def is_closed(self) -> bool:
        """Whether the tool may be started whenever."""
        return self.until == float("-inf")

    def rest_s(self, now: float) -> float:
        """How much longer the tool is to be left alone; 0 for the one call that may try."""
        if self.is_closed:
            return 0.0
        if max(self.until, self.tried) <= now:
            self.tried = now + REST_S
            return 0.0
        return max(self.until - now, 1.0 if self.tried > now else 0.0)

    def note_failed(self, most: int, now: float) -> None:
        """Note one more failed attempt; open the breaker after `most`."""
        self.failures += 1
        self.tried = float("-inf")
        if self.failures >= most:
            self.until = now + REST_S


def rate_failure(tool: str, whom: str, rate: Rate, next_s: float) -> Failure:
    """Return the failure of a call whose turn comes too late.

    Args:
        whom: For whom the rate is counted; empty for all.
        next_s: When a call could be started that does not wait.
    """
    times = "times" if rate.starts > 1 else "time"
    counted = f" for {whom}" if whom else ""
    return Failure(
        Code.RATE_LIMITED,
        f"`{tool}` may be started {rate.starts} {times} in {rate.seconds:g} s{counted}, and has been.",
        f"Go on without it, or try again in {next_s:.0f} s.",
        retryable=True,
    )


def rest_failure(tool: str, failures: int, rest_s: float) -> Failure:
    """Return the failure of a call whose tool is left alone."""
    return Failure(
        Code.UNAVAILABLE,
        f"`{tool}` could not reach what it needs {failures} times in a row, and is left alone for a while.",
        f"Go on without it, or try again in {rest_s:.0f} s.",
        retryable=True,
    )


class Limits:
    """The buckets and breakers of one deployment in one process."""

    def __init__(self) -> None:
        self.troubled: dict[str, Breaker] = {}
        """Tools whose last attempt failed; whoever is not here has no breaker to look at."""
        self._buckets: dict[Hashable, Bucket] = {}

    def wait_s(
        self,
        tool: str,
        key: tuple[str, str],
        rate: Rate,
        *,
        now: float,
        most_s: float,
    ) -> float | Failure:
        """Take a token of a tool's rate; return how long to wait for it, or a failure when that is too long.

        Args:
            key: The tenant, and whom of the tenant's the rate is counted for; empty for all.
        """
        bucket = self._buckets.pop((tool, key), None) or Bucket(rate)
        self._buckets[tool, key] = bucket  # the oldest comes first
        if len(self._buckets) > _MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        wait_s = bucket.take(now, most_s)
        if wait_s is not None:
            return wait_s
        next_s = bucket.due + rate.seconds / rate.starts - rate.seconds - now
        return rate_failure(tool, key[1], rate, next_s)

    def look(self) -> None:
        """Learn what other processes have noted: here there are none."""

    def rests(self, tool: str, now: float) -> Failure | None:
        """Return the failure for a tool that is to be left alone; None when it may be started."""
        breaker = self.troubled.get(tool)
        if breaker is None:
            return None
        rest_s = breaker.rest_s(now)
        return rest_failure(tool, breaker.failures, rest_s) if rest_s > 0 else None

    def note_reached(self, tool: str) -> None:
        """Note an attempt that reached what the tool needs, whatever came back."""
        self.troubled.pop(tool, None)

    def note_failed(self, tool: str, most: int, now: float) -> None:
        """Note an attempt that could not reach what the tool needs."""
        self.troubled.setdefault(tool, Breaker()).note_failed(most, now)
