"""How things are timed: CPU of this process, the contestants interleaved, the best round of each."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One line of the report.

    Attributes:
        goal: The most it should be; None where there is none yet.
        usual: What it was when docs/explanation/performance.md was made; more than twice of it is a gross regression.
    """

    what: str
    value: float
    unit: str
    goal: float | None = None
    usual: float | None = None
    note: str = ""

    @property
    def is_gross(self) -> bool:
        """Whether a ratio is more than twice what it usually is, which no busy machine explains."""
        return self.usual is not None and self.value > 2 * self.usual

    def as_json(self) -> dict[str, Any]:
        """Return the figure for `--json`."""
        return {
            "what": self.what,
            "value": round(self.value, 4),
            "unit": self.unit,
            "goal": self.goal,
            "note": self.note,
        }

    def __str__(self) -> str:
        verdict = (
            ""
            if self.goal is None
            else f"   goal {self.goal:g}"
            + ("" if self.value <= self.goal else "  MISSED")
        )
        return f"{self.what:58} {self.value:10.3f} {self.unit:10}{verdict}{f'   ({self.note})' if self.note else ''}"


async def interleaved(
    contestants: Mapping[str, Callable[[], Awaitable[Any]]], *, rounds: int, times: int
) -> dict[str, float]:
    """Return CPU seconds of one run of each, best of `rounds` rounds of `times` runs.

    Where a run is so short that many are taken together, one goes before them and is not counted: what is measured is
    a program at its work, and the collection has just emptied the processor's caches, for all contestants alike.
    """
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            gc.collect()
            if times > 1:
                await run()
            began = time.process_time()
            for _ in range(times):
                await run()
            best[name] = min(best[name], (time.process_time() - began) / times)
    return best


def best_of(run: Callable[[], Any], *, rounds: int, times: int = 1) -> float:
    """Return CPU seconds of one run, best of `rounds` rounds of `times` runs."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        for _ in range(times):
            run()
        best = min(best, (time.process_time() - began) / times)
    return best
