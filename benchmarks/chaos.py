"""Runs whose processes are killed at random: `make chaos`, or `python -m benchmarks.chaos --help`.

Two processes on one store carry runs side by side, and each is killed after a moment that nobody chose. New ones go on
with what the dead left behind. In the end the world is compared with what the ledger and the journals say, and with
what the models had seen when more was done on their answers.

A run looks at something and writes three times, once for each replay class. Leases are over when they begin, since
whoever takes over comes after the death.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from msgspec.structs import replace
from tests.journeys.worlds import CLASSES, Far, tool

import handrail as hr
from benchmarks.verdicts import (
    argument_parser,
    find_end,
    find_lost_texts,
    load_journals,
    print_broken,
)
from handrail.ports import Store
from handrail.testing import ScriptedModel, call
from handrail.testing.crashes import Child, opener

RUNS_AT_ONCE = 8
PROCESSES = 2
SHORTEST_LIFE_S = 0.02
LONGEST_LIFE_S = 0.15


def script(run_id: str) -> list:
    """Return what the model of a run says."""
    titles = dict(zip(CLASSES, titles_of(run_id), strict=True))
    writes = {
        replay: call(f"open_{replay}", title=title) for replay, title in titles.items()
    }
    return [
        [call("look"), writes["key"]],
        writes["verify"],
        writes["none"],
        "Three tickets.",
    ]


def titles_of(run_id: str) -> list[str]:
    """Return what the three writes of a run are called in the world."""
    return [f"{run_id}-{replay}" for replay in CLASSES]


class Remembering(ScriptedModel):
    """A model that writes down what it has seen, before it answers."""

    def __init__(self, run_id: str, far: Far) -> None:
        super().__init__(script(run_id))
        self.run_id, self.far = run_id, far

    async def ask(self, request, listener=None):
        """See `ports.Model.ask`."""
        results = [
            message.result
            for message in request.messages
            if isinstance(message, hr.ToolMessage)
        ]
        for result in results[-2:]:  # older ones were written down before
            told = [self.run_id, result.call_id, result.name, result.text]
            self.far.add("seen", json.dumps(told))
        return await super().ask(request, listener)


# ---------------------------------------------------------------------- in the processes that die


def carry(
    opened: Callable[[], Store],
    folder: Path,
    run_ids: list[str],
    begun: Callable[[], None],
) -> None:
    """Begin or go on with these runs until all have ended, or until we are killed."""
    store = opened()
    begun()
    asyncio.run(_carry(store, Far(folder), run_ids))


async def _carry(store: Any, far: Far, run_ids: list[str]) -> None:
    places = asyncio.Semaphore(RUNS_AT_ONCE)
    claim = store.claim
    store.claim = lambda request: claim(replace(request, lease_s=-1.0))
    look = hr.FunctionTool(
        lambda: "fine", name="look", parameters={"type": "object"}, effect="read"
    )
    async with hr.Runtime(
        [look, *(tool(far, replay) for replay in CLASSES)], store=store
    ) as runtime:

        async def one(run_id: str) -> None:
            async with places:
                model = Remembering(run_id, far)
                if await asyncio.wrap_future(store.load_run(run_id)):
                    # a run that was killed five times in a row before it got on is poisoned: here nobody need look why
                    run = await runtime.resume(run_id, model=model, anyway=True)
                else:
                    run = await runtime.run("Go.", model=model, run_id=run_id)
                assert run.ok, run
                far.add("ended", run_id)

        await asyncio.gather(*map(one, run_ids))
    store.close()


# ---------------------------------------------------------------------- killing


@dataclass
class Seat:
    """A place for one process after the other, which carry the same runs."""

    share: list[str]
    child: Child | None = None
    dies_at: float = 0.0
    left: int = 0
    stretch: float = 1.0
    """Grows while processes die before they have ended a single run, so that a busy machine gets on too."""

    def clear(self) -> int:
        """Remove a process that has ended, or kill it when its time has come; return how many were killed."""
        if self.child is None:
            return 0
        ended = find_end(self.child) is not None
        if not ended and monotonic() < self.dies_at:
            return 0
        if ended:
            self.child.result()
        self.child.end()
        self.child = None
        return not ended

    def fill(
        self, begin: Callable[[list[str]], Child], far: Far, life_s: float
    ) -> bool:
        """Start a process for the runs that are left; False when none is."""
        if self.child is None:
            # read when the process that ended them is dead
            ended = set(far.lines("ended"))
            left = [run_id for run_id in self.share if run_id not in ended]
            self.stretch = (
                min(2 * self.stretch, 64.0) if len(left) == self.left else 1.0
            )
            self.left = len(left)
            if left:
                self.child = begin(left)
                # else a slow connection would leave nothing of a short life
                self.child.wait_for_boundary()
                self.dies_at = monotonic() + life_s * self.stretch
        return self.child is not None


def kill_until_done(
    begin: Callable[[list[str]], Child],
    far: Far,
    run_ids: list[str],
    until: float,
    dice: random.Random,
) -> int:
    """Let processes carry the runs and kill them; return how often. Stops at `until`, on the monotonic clock.

    Args:
        begin: Starts a process that carries the runs which are left, and writes down in `far` which have ended.
    """
    kills = 0
    seats = [Seat(run_ids[number::PROCESSES]) for number in range(PROCESSES)]
    try:
        while monotonic() < until:
            kills += sum(seat.clear() for seat in seats)
            lives = [dice.uniform(SHORTEST_LIFE_S, LONGEST_LIFE_S) for _ in seats]
            working = [
                seat.fill(begin, far, life_s)
                for seat, life_s in zip(seats, lives, strict=True)
            ]
            if not any(working):
                break
            sleep(0.005)
    finally:
        for seat in seats:
            if seat.child is not None:
                seat.child.end()
    return kills


# ---------------------------------------------------------------------- judging


@dataclass
class Verdict:
    """The outcome. Every list is empty unless a promise was broken."""

    counts: Counter = field(default_factory=Counter)
    repeated: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    @property
    def broken(self) -> dict[str, list[str]]:
        """What broke each promise."""
        return {
            "repeats": self.repeated,
            "lost": self.lost,
            "unfinished": self.unfinished,
        }

    @property
    def is_sound(self) -> bool:
        """Whether no promise was broken."""
        return not any(self.broken.values())

    @property
    def hit(self) -> bool:
        """Whether a kill fell between a claim and its settlement; otherwise nothing was proved."""
        return bool(
            self.counts["in doubt"] + self.counts["verified"] + self.counts["again"]
        )


def judge(place: str, far: Far, run_ids: list[str]) -> Verdict:
    """Compare the world with the journals, and the journals with what the models have seen."""
    verdict = Verdict()
    happened = Counter(line.split()[-1] for line in far.lines("effects"))
    asked = Counter(line.split()[-1] for line in far.lines("asked"))
    store: Any = opener(place)()
    journals = load_journals(store, run_ids)
    store.close()
    for run_id, results in journals.by_run.items():
        for replay, title in zip(CLASSES, titles_of(run_id), strict=True):
            weigh(
                verdict,
                results.get(f"open_{replay}"),
                title,
                happened[title],
                asked[title],
            )
    verdict.lost += find_lost_texts(far, journals)
    verdict.unfinished = journals.unfinished
    return verdict


def weigh(
    verdict: Verdict,
    result: hr.ToolResult | None,
    title: str,
    happened: int,
    asked: int,
) -> None:
    """Judge one write."""
    counts = verdict.counts
    counts["writes"] += 1
    counts["effects"] += happened
    counts["again"] += title.endswith("key") and asked > 1
    counts["verified"] += result is not None and "verified" in result.note
    if happened > 1:
        verdict.repeated.append(f"{title}: {happened} times")
    if (
        result is not None
        and result.failure is not None
        and result.failure.code == hr.Code.IN_DOUBT
    ):
        counts["in doubt"] += 1
        counts["in doubt, and happened"] += happened
    elif result is None or not result.ok or not happened:
        verdict.lost.append(
            f"{title}: {happened} effects, and the journal has {result!r}"
        )


def chaos(
    runs: int, *, store: str, folder: Path, seconds: float, seed: int
) -> tuple[Verdict, int]:
    """Carry so many runs through kills; return the verdict, and how many kills there were."""
    run_ids = [f"r_{seed:x}_{number}" for number in range(runs)]
    opened = opener(store)
    far = Far(folder)

    def begin(left: list[str]) -> Child:
        return Child(partial(carry, opened, folder, left))

    until = monotonic() + seconds
    kills = kill_until_done(begin, far, run_ids, until, random.Random(seed))
    return judge(store, far, run_ids), kills


def main() -> int:
    """Print the counts; the exit code is 1 when a promise was broken, 3 when nothing was proved."""
    parser = argument_parser("chaos", __doc__.splitlines()[0], seconds=600.0)
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args()
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="handrail-chaos-") as folder:
        store = given.store or f"sqlite:///{folder}/chaos.db"
        verdict, kills = chaos(
            given.runs,
            store=store,
            folder=Path(folder),
            seconds=given.seconds,
            seed=given.seed,
        )
        print(
            f"seed {given.seed}: {given.runs} runs, {kills} kills, {monotonic() - began:.0f} s, {store.split(':')[0]}"
        )
    for name in (
        "writes",
        "effects",
        "again",
        "verified",
        "in doubt",
        "in doubt, and happened",
    ):
        print(f"  {name:24}{verdict.counts[name]:6}")
    print_broken(verdict.broken, width=24)
    if not verdict.hit:
        print("no kill fell between a claim and its settlement: nothing was proved")
    if not verdict.is_sound:
        return 1
    return 0 if verdict.hit else 3


if __name__ == "__main__":
    sys.exit(main())
