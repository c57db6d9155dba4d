"""Prove the promises in every world up to a number of disturbances: `make prove`.

    python -m tests.prove                  up to 1 for every declaration, up to 2 without people and for two processes
    python -m tests.prove --nightly        all up to 3, and combinations of all settings by chance
    python -m tests.prove --determinism    1,000 worlds twice
    python -m tests.prove --only "two runs" --most 2 --keep

Exit code 1 where a promise is broken, or where the worlds have met too little.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from tests.prove import kept, promises, reached
from tests.prove.declarations import all_declarations, by_chance, find_refusal
from tests.prove.scenarios import Scenario
from tests.prove.search import Report, Violation, explore, run_by_chance
from tests.prove.stories import ALONE, DEPLOYS, LONGER, PEOPLE, STORIES, TOGETHER

NEW = Path("build/prove")
MOST_S = 240.0
"""A search of one scenario is cut after that, and the summary says so."""


@dataclass(frozen=True)
class Job:
    """One scenario, up to how many disturbances, and the group that it is counted in."""

    group: str
    scenario: Scenario
    most: int
    most_s: float = MOST_S


@dataclass
class Tally:
    """What was looked at in all jobs of a group."""

    scenarios: int = 0
    worlds: int = 0
    states: int = 0
    steps: int = 0
    seconds: float = 0.0
    cut: list[str] = field(default_factory=list)

    def add(self, job: Job, report: Report) -> None:
        self.scenarios += 1
        self.worlds += report.worlds
        self.states += report.states
        self.steps += report.steps
        self.seconds += report.seconds
        if report.complete < job.most:
            self.cut.append(f"{job.scenario.name} (complete up to {report.complete})")


def plan(most: int | None, only: str) -> tuple[list[Job], Counter[str]]:
    """Return what to look at, and which declarations were refused, by the sentence that refuses them."""
    refused: Counter[str] = Counter()
    jobs: list[Job] = []
    for scenario in all_declarations():
        if why := find_refusal(scenario):
            refused[why.partition(": ")[2]] += 1
            continue
        jobs.append(Job("every declaration", scenario, 1))
        if not scenario.asks_people:
            # who cancels is looked at up to 2 in the stories
            alone = replace(scenario, cancels=False)
            jobs.append(Job("declarations without people", alone, 2))
    for group, scenarios, up_to in (
        ("one process, no people", ALONE, 2),
        ("a deploy between two processes", DEPLOYS, 2),
        ("people", PEOPLE, 1),
        ("two processes", TOGETHER, 2),
        ("two processes, longer worlds", LONGER, 1),
    ):
        jobs += [Job(group, each, up_to) for each in scenarios]
    jobs = [each for each in jobs if only in each.scenario.name]
    if most is not None:
        jobs = [Job(each.group, each.scenario, most) for each in jobs]
    return jobs, refused


def plan_nightly(seed: int) -> list[Job]:
    """Return the same up to 3, and 2,000 combinations of all settings up to 1."""
    jobs, _ = plan(3, "")
    for number in range(2_000):
        scenario = by_chance(seed + number)
        if not find_refusal(scenario):
            jobs.append(Job("all settings at once", scenario, 1))
    return [Job(each.group, each.scenario, each.most, 1800.0) for each in jobs]


_jobs: list[Job] = []


def _look(number: int) -> tuple[int, Report]:
    job = _jobs[number]
    with reached.noted():
        return number, explore(job.scenario, job.most, most_s=job.most_s)


def look_at_all(jobs: Sequence[Job], processes: int) -> Iterable[tuple[Job, Report]]:
    """Carry the jobs out on several cores, the longest ones first."""
    _jobs[:] = sorted(jobs, key=lambda each: (-each.most, -len(each.scenario.runs)))
    if processes == 1:
        for number in range(len(_jobs)):
            yield _jobs[number], _look(number)[1]
        return
    # a fork has the jobs, whose tools cannot be pickled
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for number, report in pool.imap_unordered(_look, range(len(_jobs))):
            yield _jobs[number], report


def prove(
    jobs: Sequence[Job], refused: Counter[str], arguments: argparse.Namespace
) -> bool:
    """Look at all jobs and print what came of it; return whether every promise was kept."""
    began = perf_counter()
    is_whole = not arguments.only and arguments.most is None
    tallies: dict[str, Tally] = {}
    met: set[str] = set()
    found: dict[tuple[str, str], list[Violation]] = {}
    for job, report in look_at_all(jobs, arguments.processes):
        tallies.setdefault(job.group, Tally()).add(job, report)
        broken = "".join(f"! {' '.join(kind)} " for kind in report.found)
        line = f"{job.scenario.name}: up to {report.complete}, {report.worlds} worlds, {report.seconds:.1f} s {broken}"
        print(line.rstrip(), file=sys.stderr, flush=True)
        met |= report.reached
        for violation in report.found.values():
            found.setdefault(violation.kind, []).append(violation)
    most = {each.group: each.most for each in jobs}
    print_tallies(tallies, most, perf_counter() - began)
    for why, count in refused.most_common():
        print(f"  {count:4} combinations are refused: {why}")
    print_promises(found)
    print_found(found, kept.FOUND if arguments.keep else NEW)
    missed = sorted(reached.wanted() - met) if is_whole else []
    if missed:
        print(
            f"\nnot met in any world, so the worlds are too narrow: {', '.join(missed)}"
        )
    elif is_whole:
        print(f"\nmet: all of {', '.join(sorted(reached.wanted()))}")
    return not found and not missed


def print_tallies(
    tallies: dict[str, Tally], most: dict[str, int], seconds: float
) -> None:
    """Print what was looked at."""
    print(
        f"{'':34}{'scenarios':>10}{'worlds':>9}{'states':>9}{'steps':>10}{'CPU s':>7}   complete up to"
    )
    total = Tally()
    for group, tally in sorted(tallies.items()):
        cut = (
            f", but for {len(tally.cut)}: {'; '.join(tally.cut[:6])}"
            if tally.cut
            else ""
        )
        print(
            f"{group:34}{tally.scenarios:10}{tally.worlds:9}{tally.states:9}{tally.steps:10}{tally.seconds:7.0f}   "
            f"{most[group]}{cut}"
        )  # fmt: skip
        total.scenarios += tally.scenarios
        total.worlds += tally.worlds
        total.seconds += tally.seconds
    print(
        f"{total.scenarios} scenarios, {total.worlds} worlds, {total.seconds:.0f} s of the processor in {seconds:.0f} s"
    )


def print_promises(found: dict[tuple[str, str], list[Violation]]) -> None:
    """Print each promise that was looked at, with its sentence."""
    print("\npromises (docs/explanation/promises.md)")
    for promise, sentence in promises.SENTENCES.items():
        broken = sum(len(each) for kind, each in found.items() if kind[0] == promise)
        mark = f"BROKEN in {broken} scenarios" if broken else "kept"
        print(f"  {promise:11} {mark:24} {' '.join(sentence.split())}")


def print_found(found: dict[tuple[str, str], list[Violation]], folder: Path) -> None:
    """Print each kind of violation with its shortest trace, and keep that one."""
    for (promise, words), violations in sorted(found.items()):
        least = min(violations, key=lambda each: (each.cost, len(each.trace)))
        print(
            f"\n! {promise}: {words}   [{least.cost} disturbances, {len(violations)} scenarios]\n"
            f"  {least.scenario}"
        )
        for label in least.trace:
            print(f"      {label}")
        print(f"  kept in {kept.keep(least, folder)}")


def check_determinism(count: int) -> bool:
    """Run worlds by chance twice each; return whether none of them differs."""
    scenarios = [
        each for each in (*STORIES, *all_declarations()) if not find_refusal(each)
    ]
    differing = steps = 0
    for number in range(count):
        scenario = scenarios[number % len(scenarios)]
        first, second = (run_by_chance(scenario, number) for _ in range(2))
        steps += first.steps + second.steps
        differing += (first.trace, first.key(), first.violations) != (
            second.trace,
            second.key(),
            second.violations,
        )
    print(f"{count} worlds run twice, {steps} steps: {differing} differ")
    return differing == 0


def main(given: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument("--nightly", action="store_true", help="up to 3, and by chance")
    parser.add_argument("--determinism", action="store_true", help="run worlds twice")
    parser.add_argument("--only", default="", help="scenarios with this in their name")
    parser.add_argument("--most", type=int, help="up to how many disturbances")
    parser.add_argument(
        "--keep", action="store_true", help="keep what is found as tests"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is made by chance")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args(given)
    quieten()
    if arguments.determinism:
        return 0 if check_determinism(1_000) else 1
    if arguments.nightly:
        jobs, refused = plan_nightly(arguments.seed), Counter[str]()
    else:
        jobs, refused = plan(arguments.most, arguments.only)
    return 0 if prove(jobs, refused, arguments) else 1


def quieten() -> None:
    """Leave out what handrail would tell a person of each death."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


if __name__ == "__main__":
    sys.exit(main())
