"""What `chaos` and `storm` share: journals of many runs, compared with the world, and the command line."""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.journeys.worlds import Far

import handrail as hr
from handrail.journal.codec import result_from_json
from handrail.testing.crashes import Child

Seen = tuple[str, str]
"""A run and the id of a call."""


@dataclass
class Journals:
    """The results that the journals of some runs hold."""

    by_run: dict[str, Mapping[str, hr.ToolResult]] = field(default_factory=dict)
    """The results of the runs that are done, by the name of the tool."""
    texts: dict[Seen, str] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)


def load_journals(store: Any, run_ids: Iterable[str]) -> Journals:
    """Return what the journals of these runs hold."""
    journals = Journals()
    for run_id in run_ids:
        stored = store.load_run(run_id).result(60)
        if stored is None or stored.record.status != "done":
            journals.unfinished.append(run_id)
            continue
        results = [
            result_from_json(step.body) for step in stored.steps if step.kind == "call"
        ]
        journals.texts |= {(run_id, result.call_id): result.text for result in results}
        journals.by_run[run_id] = {result.name: result for result in results}
    return journals


def find_lost_texts(far: Far, journals: Journals) -> list[str]:
    """Return on which results something was done that the journals of their runs do not hold.

    A model may be asked with a result that a crash then loses; nothing may be done on its answer. So whenever a process
    has asked the far side for another ticket, the journal must hold what its model had last seen of each other call.
    """
    lost = []
    seen: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for line in far.lines("order"):
        process, file, text = line.split(maxsplit=2)
        if file == "seen":
            run_id, call_id, name, result = json.loads(text)
            seen.setdefault((process, run_id), {})[call_id] = (name, result)
        elif file == "asked":
            run_id, _, replay = text.rpartition("-")
            if run_id not in journals.by_run:
                continue
            for call_id, (name, result) in seen.get((process, run_id), {}).items():
                held = journals.texts.get((run_id, call_id))
                if name != f"open_{replay}" and held != result:
                    lost.append(f"{run_id}: {text} was asked for on {result!r}")
    return lost


def find_end(child: Child) -> str | None:
    """Return "done" or "killed"; None while the process lives. Does not wait for it, and leaves it to be waited for."""
    ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return "done" if ended.si_code == os.CLD_EXITED else "killed"


def argument_parser(
    name: str, description: str, *, seconds: float
) -> argparse.ArgumentParser:
    """Return a parser of the options that both have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=description
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=seconds,
        help="stop after so long; unfinished runs then fail",
    )
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 31)
    )
    parser.add_argument(
        "--store",
        default="",
        help="such as postgresql://...; a new SQLite file by default",
    )
    return parser


def print_broken(broken: Mapping[str, Sequence[str]], width: int) -> None:
    """Print how often each promise was broken, and the first five cases."""
    for name, cases in broken.items():
        print(
            f"  {name:{width}}{len(cases):6}", *cases[:5], sep="\n    " if cases else ""
        )
