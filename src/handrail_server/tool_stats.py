"""How tools fare: calls, failures and how long they take, from what the audit log says of the newest calls."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping

from msgspec import Struct

from handrail.errors import PENDING, Json
from handrail.history.run_moments import RunMoment
from handrail.history.summaries import DENIALS
from handrail_server.answers import time_text

MOST_DURATIONS = 2_000


class ToolStats(Struct):
    """Counts and durations of a tool's newest calls."""

    durations_s: deque[float]
    calls: int = 0
    failures: int = 0
    last_failure: Json = None

    def as_json(self) -> dict[str, Json]:
        """Return the numbers; times in milliseconds, None where there was no call."""
        ordered = sorted(self.durations_s)
        return {
            "calls": self.calls,
            "failures": self.failures,
            "p50_ms": percentile_ms(ordered, 0.5),
            "p95_ms": percentile_ms(ordered, 0.95),
            "last_failure": self.last_failure,
            "recent_ms": [round(each * 1000, 1) for each in self.durations_s][-100:],
        }


def count_calls(moments: Iterable[tuple[str, RunMoment]]) -> Mapping[str, ToolStats]:
    """Count calls by tool.

    Args:
        moments: Each with its run, in order.
    """
    stats: dict[str, ToolStats] = defaultdict(
        lambda: ToolStats(deque(maxlen=MOST_DURATIONS))
    )
    for run_id, each in moments:
        body = each.body
        if each.name != "CallFinished" or body.get("recalled"):
            continue
        if body.get("code") in PENDING:
            continue
        tool = stats[str(body.get("tool") or "")]
        tool.calls += 1
        seconds = body.get("seconds")
        if isinstance(seconds, (int, float)) and body.get("attempts", 1):
            tool.durations_s.append(float(seconds))
        if not body.get("ok", True) and body.get("code") not in DENIALS:
            tool.failures += 1
            tool.last_failure = {
                "at": time_text(each.at),
                "code": body.get("code"),
                "run": run_id,
            }
    return stats


def percentile_ms(ordered: list[float], share: float) -> float | None:
    """Return the time within which this share of the calls ended, in milliseconds."""
    if not ordered:
        return None
    place = math.ceil(share * len(ordered))  # nearest rank, counted from 1
    return round(ordered[max(place, 1) - 1] * 1000, 1)
