"""Looks at every world of a scenario up to a number of disturbances, the least disturbed first.

A world is replayed from its start along a list of choices and branches at its end. So the first world that breaks a
promise is one with the fewest disturbances, and "complete up to 2" is a sentence that can be said.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from time import process_time

from tests.prove import promises
from tests.prove.scenarios import Scenario
from tests.prove.world import Option, World


@dataclass(frozen=True)
class Violation:
    """A promise that a world broke, and how it came to that.

    Attributes:
        disturbances: What is needed to see it again, see `replay`: labels, each with how often it was passed over.
    """

    scenario: str
    promise: str
    words: str
    cost: int
    trace: tuple[str, ...]
    disturbances: tuple[tuple[str, int], ...]

    @property
    def kind(self) -> tuple[str, str]:
        return self.promise, self.words


@dataclass
class Report:
    """What was looked at in one scenario, and what was found."""

    scenario: str
    worlds: int = 0
    states: int = 0
    steps: int = 0
    complete: int = -1
    """Up to how many disturbances every world was looked at."""
    seconds: float = 0.0
    found: dict[tuple[str, str], Violation] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)


class _Known(Exception):
    """This state was seen before, with no more disturbances than now."""


@dataclass
class _Search:
    scenario: Scenario
    most: int
    report: Report
    seen: dict[int, int] = field(default_factory=dict)
    heap: list[tuple[int, int, tuple[int, ...]]] = field(
        default_factory=lambda: [(0, 0, ())]
    )
    ticks: count[int] = field(default_factory=lambda: count(1))

    def look_at(self, prefix: tuple[int, ...]) -> None:
        """Replay a list of choices, go on undisturbed, and note the other choices for later."""
        chosen: list[int] = []

        def choose(world: World, options: list[Option]) -> int:
            number = 0
            if len(chosen) < len(prefix):
                number = prefix[len(chosen)]
                assert number < len(options), f"the world differs: {world.trace}"
            else:
                self._branch(world, options, tuple(chosen))
            chosen.append(number)
            return number

        world = World(self.scenario, choose)
        log = _Log(world)
        try:
            world.run()
        except _Known:
            pass  # what comes of it is known, too
        else:
            promises.check(world)
        self._note(world, log)
        self.report.worlds += 1
        self.report.steps += world.steps
        self.report.reached |= world.reached

    def _branch(
        self, world: World, options: list[Option], chosen: tuple[int, ...]
    ) -> None:
        state = world.key()
        if self.seen.get(state, self.most + 1) <= world.cost:
            raise _Known
        if state not in self.seen:
            self.report.states += 1
        self.seen[state] = world.cost
        for number, option in enumerate(options[1:], 1):
            cost = world.cost + option.cost
            if cost <= self.most:
                heapq.heappush(self.heap, (cost, next(self.ticks), (*chosen, number)))

    def _note(self, world: World, log: _Log) -> None:
        for promise, words in world.violations:
            known = self.report.found.get((promise, words))
            if known is None or world.cost < known.cost:
                self.report.found[promise, words] = Violation(
                    self.scenario.name,
                    promise,
                    words,
                    world.cost,
                    tuple(world.trace),
                    tuple(log.taken),
                )


class _Log:
    """Watches which options beside the undisturbed one a world takes."""

    def __init__(self, world: World) -> None:
        self.taken: list[tuple[str, int]] = []
        self._passed: dict[str, int] = {}
        self._choose = world.choose
        world.choose = self.choose

    def choose(self, world: World, options: list[Option]) -> int:
        number = self._choose(world, options)
        if number:
            label = options[number].label
            self.taken.append((label, self._passed.get(label, 0)))
            self._passed.clear()
        else:
            for option in options[1:]:
                self._passed[option.label] = self._passed.get(option.label, 0) + 1
        return number


def explore(
    scenario: Scenario, most: int, *, most_s: float = 600.0, stop_at: int = 0
) -> Report:
    """Look at every world with at most `most` disturbances.

    Args:
        most_s: After this many seconds of the processor the search is cut; the report says up to where it is complete.
        stop_at: Stop once so many kinds of violation were found; 0 never.
    """
    report = Report(scenario.name)
    search = _Search(scenario, most, report)
    began = process_time()
    gc.freeze()  # what is there already is looked through no more
    gc.disable()
    while search.heap:
        cost, _, prefix = heapq.heappop(search.heap)
        report.complete = cost - 1
        if process_time() - began > most_s:
            break
        if stop_at and len(report.found) >= stop_at:
            break
        search.look_at(prefix)
        if report.worlds % 300 == 0:
            gc.collect()  # which is off meanwhile: worlds are thrown away whole
    else:
        report.complete = most
    gc.enable()
    report.seconds = process_time() - began
    return report


def replay(scenario: Scenario, disturbances: Sequence[tuple[str, int]]) -> World:
    """Run the world that takes these options, and is undisturbed but for them.

    Args:
        disturbances: Labels of options in order, each with how often it is passed over first.
    """
    left = list(disturbances)

    def choose(world: World, options: list[Option]) -> int:
        for number, option in enumerate(options[1:], 1):
            if left and option.label == left[0][0]:
                label, passed = left.pop(0)
                if not passed:
                    return number
                left.insert(0, (label, passed - 1))
        return 0

    world = World(scenario, choose)
    world.run()
    promises.check(world)
    return world


def run_by_chance(scenario: Scenario, seed: int) -> World:
    """Run a world in which one of four choices is made by chance."""
    random = Random(seed)

    def choose(world: World, options: list[Option]) -> int:
        if world.steps < 60 and random.randrange(4) == 0:
            return random.randrange(len(options))
        return 0

    world = World(scenario, choose)
    world.run()
    promises.check(world)
    return world
