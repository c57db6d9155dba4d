"""How runs got from a worker that died to another one, and where the time went: from what workers wrote down.

A worker that dies was last heard of at a beat; it is found dead some time after that by whoever sweeps; its segment is
claimed; and its run is begun again. `Watched` writes these moments into the world's files.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from tests.journeys.worlds import Far

Moment = tuple[float, str]
"""When, and which process."""


class Watched:
    """The rows of a dispatcher, which write down who was found dead and what was claimed again."""

    def __init__(self, rows: Any, far: Far) -> None:
        self._rows = rows
        self._far = far

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def requeue_dead(self, database: Any, now: float, dead_s: float) -> Any:
        """See `SegmentRows.requeue_dead`."""
        dead = self._rows.requeue_dead(database, now, dead_s)
        for each in dead:
            silent_s = -1.0 if each.silent_s is None else each.silent_s
            self._far.add("judged", f"{time()} {os.getpid()} {each.run_id} {silent_s}")
        return dead

    def claim(self, database: Any, **given: Any) -> Any:
        """See `SegmentRows.claim`."""
        claimed = self._rows.claim(database, **given)
        for each in claimed:
            if each.attempt > 1:
                self._far.add(
                    "claimed", f"{time()} {os.getpid()} {each.segment.run_id}"
                )
        return claimed


@dataclass(order=True)
class TakeOver:
    """A run that waited for another worker.

    Attributes:
        waited_s: From the kill to the next begin.
        judged: When its worker was found dead, by whom, and after how many seconds of silence.
        claims: Who claimed it between the kill and the next begin.
        begun: When it was begun again, and by whom.
    """

    waited_s: float
    run_id: str
    killed_at: float
    pid: str
    judged: Sequence[tuple[float, str, float]] = ()
    claims: Sequence[Moment] = ()
    begun: Moment = (0.0, "")

    def describe(self) -> str:
        """Return its parts, in seconds after the kill."""
        parts = [f"{self.run_id} of {self.pid}: {self.waited_s:.1f} s"]
        for at, pid, silent_s in self.judged:
            parts.append(
                f"last beat {at - silent_s - self.killed_at:+.1f}, found dead {at - self.killed_at:+.1f} by {pid}"
            )
        parts += [
            f"claimed {at - self.killed_at:+.1f} by {pid}" for at, pid in self.claims
        ]
        parts.append(f"begun {self.begun[0] - self.killed_at:+.1f} by {self.begun[1]}")
        return "; ".join(parts)


@dataclass
class Trails:
    """What was written down of each run, in the order of time."""

    begun: Mapping[str, list[Moment]]
    claimed: Mapping[str, list[Moment]]
    judged: Mapping[str, list[tuple[float, str, float]]]
    left: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """When a process was last done with a run."""

    @classmethod
    def of(cls, far: Far) -> Trails:
        """Read what the workers have written."""
        begun: dict[str, list[Moment]] = {}
        for at, pid, run_id, _ in map(str.split, far.lines("begun")):
            begun.setdefault(run_id, []).append((float(at), pid))
        claimed: dict[str, list[Moment]] = {}
        for at, pid, run_id in map(str.split, far.lines("claimed")):
            claimed.setdefault(run_id, []).append((float(at), pid))
        judged: dict[str, list[tuple[float, str, float]]] = {}
        for at, pid, run_id, silent_s in map(str.split, far.lines("judged")):
            judged.setdefault(run_id, []).append((float(at), pid, float(silent_s)))
        left = {
            (pid, run_id): float(at)
            for at, pid, run_id in map(str.split, far.lines("left"))
        }
        return cls(begun, claimed, judged, left)

    def find_take_overs(
        self, killed: Sequence[tuple[float, int]]
    ) -> Iterator[TakeOver]:
        """Yield the runs that were under way in a killed process, with how long each waited for another one.

        A run that another worker had taken over before the kill, from a frozen process, was not under way in it.
        """
        for killed_at, pid in killed:
            for run_id, begins in self.begun.items():
                place = bisect_right(begins, (killed_at, "~"))
                if not 0 < place < len(begins) or begins[place - 1][1] != str(pid):
                    continue
                if self.left.get((str(pid), run_id), 0.0) < begins[place - 1][0]:
                    yield self._take_over(run_id, killed_at, str(pid), begins[place])

    def _take_over(
        self, run_id: str, killed_at: float, pid: str, begun: Moment
    ) -> TakeOver:
        def is_between(moment: Sequence[Any]) -> bool:
            return bool(killed_at < moment[0] <= begun[0])

        return TakeOver(
            begun[0] - killed_at,
            run_id,
            killed_at,
            pid,
            judged=list(filter(is_between, self.judged.get(run_id, ()))),
            claims=list(filter(is_between, self.claimed.get(run_id, ()))),
            begun=begun,
        )

    def find_stragglers(self, gap_s: float) -> list[str]:
        """Return the runs, of the last tenth, that were done with so long after all before them: left behind."""
        ends: dict[str, float] = {}
        for (_, run_id), at in self.left.items():
            ends[run_id] = max(at, ends.get(run_id, 0.0))
        last = sorted(ends, key=ends.__getitem__)
        for place in range(len(last) * 9 // 10 + 1, len(last)):
            if ends[last[place]] - ends[last[place - 1]] > gap_s:
                return last[place:]
        return []

    def describe(
        self, run_id: str, since: float, log: Sequence[tuple[float, str]] = ()
    ) -> str:
        """Return all that was written down of a run and what befell its workers, in seconds after a moment."""
        moments = [(at, f"begun by {pid}") for at, pid in self.begun.get(run_id, ())]
        moments += [
            (at, f"claimed by {pid}") for at, pid in self.claimed.get(run_id, ())
        ]
        moments += [
            (at, f"its worker found dead by {pid}, silent for {silent_s:.1f} s")
            for at, pid, silent_s in self.judged.get(run_id, ())
        ]
        moments += [
            (at, f"left by {pid}")
            for (pid, each), at in self.left.items()
            if each == run_id
        ]
        workers = {pid for _, pid in self.begun.get(run_id, ())}
        moments += [
            (at, what) for at, what in log if not workers.isdisjoint(what.split())
        ]
        return "; ".join(f"{at - since:+.1f} {what}" for at, what in sorted(moments))
