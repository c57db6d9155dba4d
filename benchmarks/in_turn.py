"""Two versions in turn: `python -m benchmarks.in_turn ../other [shapes|durable] [--rounds 5]`.

Ratios to the loop by hand move with the machine, so a goal such as "1.0 where it was 1.2" needs both versions in one
run. Each round starts a process for each checkout, with the benchmarks of this one; the best round of each counts, and
the best of the loop by hand in all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import handrail as hr
from benchmarks import denominators, shapes
from benchmarks.denominators import Provider
from benchmarks.loops import FakeModel
from benchmarks.measuring import interleaved
from benchmarks.one_call import READ
from benchmarks.stores import WRITE, sqlite

HERE = Path(__file__).parents[1]
CROWD = 200

Times: TypeAlias = dict[str, tuple[float, float]]
"""Of each kind of run the CPU seconds by hand, and by handrail."""


def main() -> None:
    """Print what the other version and this one cost, and this one's share of the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_turn")
    parser.add_argument("other", type=Path, help="a checkout of the other version")
    parser.add_argument("what", choices=["shapes", "durable"], nargs="?", default="shapes")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    checkouts = (given.other.resolve(), HERE)
    best: dict[Path, Times] = {each: {} for each in checkouts}
    for _ in range(given.rounds):
        for checkout in checkouts:
            for name, times in _measure_apart(checkout, given.what).items():
                known = best[checkout].get(name, times)
                best[checkout][name] = (
                    min(known[0], times[0]),
                    min(known[1], times[1]),
                )
    print(f"{'':55} other, x hand   this, x hand   this / other")
    for name in best[HERE]:
        hand = min(best[each][name][0] for each in checkouts)
        other, this = (best[each][name][1] for each in checkouts)
        print(f"{name:55} {other / hand:13.2f} {this / hand:14.2f} {this / other:14.2f}")  # fmt: skip


def _measure_apart(checkout: Path, what: str) -> Times:
    """Measure in a process that imports the package of a checkout."""
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.in_turn", "--here", what],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        cwd=HERE,
        stdout=subprocess.PIPE,
        check=True,
    )
    times: Times = json.loads(ended.stdout)
    return times


async def _measure_shapes() -> Times:
    denominators.TOOLS.update(shapes.BY_HAND)
    times: Times = {}
    for shape in shapes.SHAPES:
        found = await interleaved(shapes.make_contestants(shape), rounds=4, times=5)
        times[shape.what.strip()] = found["hand"], found["handrail"]
    return times


async def _measure_durable() -> Times:
    """200 runs at once of 5 turns x 2 calls, 10 ms model, in memory and on SQLite."""
    provider, model = Provider(5, 2, 0.01), FakeModel(5, 2, 0.01)

    def crowd(run: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        return lambda: asyncio.gather(*(run() for _ in range(CROWD)))

    def start(runtime: hr.Runtime) -> Callable[[], Awaitable[Any]]:
        return lambda: runtime.run("How warm?", model=model)

    with sqlite() as file:
        kinds = {"reads": READ, "writes": WRITE}
        crowds = {
            f"{place}, {kind}": crowd(start(hr.Runtime([tool], store=store)))
            for place, store in (("in memory", "memory"), ("SQLite", file))
            for kind, tool in kinds.items()
        }
        by_hand = crowd(lambda: denominators.loop(provider))
        found = await interleaved({"hand": by_hand, **crowds}, rounds=2, times=1)
    return {name: (found["hand"], found[name]) for name in crowds}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        measure = _measure_shapes if sys.argv[2] == "shapes" else _measure_durable
        print(json.dumps(asyncio.run(measure())))
    else:
        main()
