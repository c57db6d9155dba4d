"""How runs got from a worker that died to another one: from what workers wrote down."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.journeys.worlds import Far

Moment = tuple[float, str]
"""When, and which process."""


@dataclass(order=True)
class TakeOver:
    """A run that waited for another worker.

    Attributes:
        waited_s: From the kill to the next begin.
        begun: When it was begun again, and by whom.
    """

    waited_s: float
    run_id: str
    killed_at: float
    pid: str
    begun: Moment = (0.0, "")

    def describe(self) -> str:
        """Return how long it waited, and for whom."""
        return f"{self.run_id} of {self.pid}: {self.waited_s:.1f} s; begun by {self.begun[1]}"


@dataclass
class Trails:
    """What was written down of each run, in the order of time."""

    begun: Mapping[str, list[Moment]]
    left: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """When a process was last done with a run."""

    @classmethod
    def of(cls, far: Far) -> Trails:
        """Read what the workers have written."""
        begun: dict[str, list[Moment]] = {}
        for at, pid, run_id, _ in map(str.split, far.lines("begun")):
            begun.setdefault(run_id, []).append((float(at), pid))
        left = {
            (pid, run_id): float(at)
            for at, pid, run_id in map(str.split, far.lines("left"))
        }
        return cls(begun, left)

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
        return TakeOver(begun[0] - killed_at, run_id, killed_at, pid, begun=begun)

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
            (at, f"left by {pid}")
            for (pid, each), at in self.left.items()
            if each == run_id
        ]
        workers = {pid for _, pid in self.begun.get(run_id, ())}
        moments += [
            (at, what) for at, what in log if not workers.isdisjoint(what.split())
        ]
        return "; ".join(f"{at - since:+.1f} {what}" for at, what in sorted(moments))
