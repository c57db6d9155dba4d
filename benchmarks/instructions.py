"""Count instructions in place of time: `python -m benchmarks.instructions [shapes]`, where valgrind is installed.

CPU time of a busy machine moves by half, ratios of it by a tenth; instructions move by a thousandth. One process does
the work under callgrind and calls `getppid`, which nothing else here does, before and after each part.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import handrail as hr
from benchmarks.one_call import READ, messages_of_one_call

TIMES = 100
RUNS = 3
"""Of each shape; a run has 40 calls."""
ARGUMENTS = {"city": "北京", "days": 2}
MESSAGES = messages_of_one_call(ARGUMENTS)


def main() -> None:
    """Print the instructions of a read by `Runtime.call`, and by `Runtime.handle` for each wire, in calls.

    With `shapes` those of a call of each shape of run, by hand and by handrail.
    """
    if "shapes" in sys.argv:
        counts = _count_instructions("shapes")
        for name in [name for name in counts if not name.endswith(_BY_HAND)]:
            by_hand = counts[name + _BY_HAND] / 40
            ours = counts[name] / 40
            print(
                f"{name:55} {ours:9,.0f} of {by_hand:9,.0f} {ours / by_hand:7.2f} x hand"
            )
        return
    counts = _count_instructions("calls")
    for name, count in counts.items():
        print(f"{name:36} {count:9,.0f} instructions {count / counts['call']:7.2f} x")


_BY_HAND = ", by hand"
Parts: TypeAlias = dict[str, Callable[[], Awaitable[Any]]]


def _parts(what: str) -> Parts:
    """Return what is counted; a part is done so often that its count is that of one."""
    if what == "calls":
        return {
            name: partial(_repeat, do, TIMES)
            for name, do in _parts_of_calls(hr.Runtime([READ])).items()
        }
    from benchmarks import denominators, shapes  # imports the clients of providers

    denominators.TOOLS.update(shapes.BY_HAND)
    parts: Parts = {}
    for shape in shapes.SHAPES:
        contestants = shapes.make_contestants(shape)
        parts[shape.what + _BY_HAND] = partial(_repeat, contestants["hand"], RUNS)
        parts[shape.what] = partial(_repeat, contestants["handrail"], RUNS)
    return parts


async def _repeat(do: Callable[[], Awaitable[Any]], times: int) -> None:
    for _ in range(times):
        await do()


def _parts_of_calls(runtime: hr.Runtime) -> Parts:
    parts: Parts = {"call": partial(runtime.call, "get_weather", ARGUMENTS)}
    for wire, message in MESSAGES.items():
        parts[f"handle, {wire}"] = partial(runtime.handle, message, dialect=wire)
    return parts


async def _do_marked(what: str) -> None:
    parts = _parts(what)
    for do in parts.values():
        await do()
    gc.collect()
    gc.disable()
    for do in parts.values():
        os.getppid()
        await do()
        os.getppid()


def _count_instructions(what: str) -> dict[str, float]:
    """Run this module under callgrind, which writes its count at each mark and begins again."""
    with TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", "--dump-before=getppid"]
        valgrind += [f"--callgrind-out-file={folder}/counts"]
        subprocess.run(
            [
                *valgrind,
                sys.executable,
                "-m",
                "benchmarks.instructions",
                "--marked",
                what,
            ],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stderr=subprocess.DEVNULL,
            check=True,
        )
        counts: dict[str, float] = {}
        times = TIMES if what == "calls" else RUNS
        for number, name in enumerate(_parts(what)):
            # the first count ends where the first part begins
            text = Path(folder, f"counts.{2 * number + 2}").read_text()
            [total] = re.findall(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)[:1]
            counts[name] = int(total) / times
        return counts


if __name__ == "__main__":
    if "--marked" in sys.argv:
        asyncio.run(_do_marked(sys.argv[-1]))
    else:
        main()
