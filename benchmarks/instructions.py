"""Count instructions in place of time: `python -m benchmarks.instructions`, where valgrind is installed.

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
from typing import Any

import handrail as hr
from benchmarks.one_call import READ, messages_of_one_call

TIMES = 100
ARGUMENTS = {"city": "北京", "days": 2}
MESSAGES = messages_of_one_call(ARGUMENTS)


def main() -> None:
    """Print the instructions of a read by `Runtime.call`, and by `Runtime.handle` for each wire, in calls."""
    counts = _count_instructions()
    for name, count in counts.items():
        print(f"{name:36} {count:9,.0f} instructions {count / counts['call']:7.2f} x")


def _parts(runtime: hr.Runtime) -> dict[str, Callable[[], Awaitable[Any]]]:
    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "call": partial(runtime.call, "get_weather", ARGUMENTS)
    }
    for wire, message in MESSAGES.items():
        parts[f"handle, {wire}"] = partial(runtime.handle, message, dialect=wire)
    return parts


async def _do_marked() -> None:
    parts = _parts(hr.Runtime([READ]))
    for do in parts.values():
        await do()
    gc.collect()
    gc.disable()
    for do in parts.values():
        os.getppid()
        for _ in range(TIMES):
            await do()
        os.getppid()


def _count_instructions() -> dict[str, float]:
    """Run this module under callgrind, which writes its count at each mark and begins again."""
    with TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", "--dump-before=getppid"]
        valgrind += [f"--callgrind-out-file={folder}/counts"]
        subprocess.run(
            [*valgrind, sys.executable, "-m", "benchmarks.instructions", "--marked"],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stderr=subprocess.DEVNULL,
            check=True,
        )
        counts: dict[str, float] = {}
        for number, name in enumerate(_parts(hr.Runtime([READ]))):
            # the first count ends where the first part begins
            text = Path(folder, f"counts.{2 * number + 2}").read_text()
            [total] = re.findall(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)[:1]
            counts[name] = int(total) / TIMES
        return counts


if __name__ == "__main__":
    if "--marked" in sys.argv:
        asyncio.run(_do_marked())
    else:
        main()
