"""What a grammar of 100 real tools costs in each family, and whether a model without sense can write a wrong call.

`python -m benchmarks grammars` needs the corpus (HANDRAIL_CORPUS), and for the calls llguidance and numpy.
`python -m benchmarks.grammars 10000` lets the random model go on until it has written so many calls, which takes
about seven minutes of CPU, and prints how far it is and what became of the calls in each family. Each wrong answer is
printed with its seed: `python -m benchmarks.grammars 1000 57` begins with seed 57.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, cast

from benchmarks.measuring import Figure
from handrail.dialects import dialect
from handrail.tools.toolset import Toolset
from handrail_openmodels import parts
from handrail_openmodels.grammars import grammar
from handrail_openmodels.prompts.dialect import PromptDialect

if TYPE_CHECKING:
    from tests.handrail_openmodels.grammars.random_model import Trial

SECONDS = 150.0
"""For the calls of the random model."""

STEP = 1_000
"""Calls between two lines of progress."""


def grammars(quick: bool) -> list[Figure]:
    """Build every family's grammar, then let a random model write calls under each choice of tools."""
    from tests.support.corpus import CORPUS

    if not CORPUS.exists():
        return []
    figures = _building(quick)
    if find_spec("llguidance") and find_spec("numpy"):
        figures += _calls(5.0 if quick else SECONDS)
    return figures


def families() -> list[PromptDialect]:
    """Return every family that has prompts."""
    return [cast(PromptDialect, dialect(name)) for name in sorted(parts.PROMPTS)]


def _building(quick: bool) -> list[Figure]:
    from tests.handrail_openmodels.grammars.random_model import corpus_tools

    tools = corpus_tools(100)
    costs: dict[str, list[float]] = {"lark": [], "tags": []}
    slowest = ("", 0.0)
    for family in families():
        for notation, times in costs.items():
            best = min(
                _seconds(lambda: getattr(grammar(Toolset(tools), family), notation))
                for _ in range(1 if quick else 3)
            )
            times.append(best)
            slowest = max(slowest, (f"{family.name}, {notation}", best), key=_second)
    many = len(costs["lark"])
    everything = [each for times in costs.values() for each in times]
    return [
        Figure(
            f"grammar of 100 tools, slowest of {many} families",
            slowest[1] * 1e3,
            "ms CPU",
            60.0,
            note=slowest[0],
        ),
        Figure("  on average", sum(everything) / len(everything) * 1e3, "ms CPU"),
    ]


def _calls(seconds: float) -> list[Figure]:
    counts: Counter[str] = Counter()
    wrong = 0
    end = time.monotonic() + seconds
    for _, _, trial in _trials():
        if trial is not None:
            counts[_kind(trial)] += trial.calls
            wrong += bool(trial.problems)
        if time.monotonic() > end:
            break
    written = ", ".join(f"{kind} {many}" for kind, many in sorted(counts.items()))
    return [
        Figure(
            "answers of a random model with a wrong call", wrong, "of all", 0.0,
            note=f"{sum(counts.values()):,} calls: {written}",
        )
    ]  # fmt: skip


def _trials(first: int = 0) -> Iterator[tuple[PromptDialect, int, Trial | None]]:
    """Yield answers of the random model without end, from one family after the other, with their seeds."""
    from tests.handrail_openmodels.grammars.random_model import Vocabulary, try_answer

    every = [(family, Vocabulary(family)) for family in families()]
    for start in count(first):
        # each family begins with another choice of tools
        for seed, (family, vocabulary) in enumerate(every, start):
            yield family, seed, try_answer(family, vocabulary, seed)


def _kind(trial: Trial) -> str:
    return f"{trial.choice}{'' if trial.parallel else ', single'}"


def main(most_calls: int, first_seed: int = 0) -> None:
    """Print the calls of each choice and of each family, and every answer with a wrong one."""
    counts: Counter[str] = Counter()
    written: Counter[str] = Counter()
    shown = 0
    for family, seed, trial in _trials(first_seed):
        if trial is None:
            counts["answers without an end"] += 1
            continue
        counts["answers"] += 1
        counts[_kind(trial)] += trial.calls
        written[family.name] += trial.calls
        for problem in trial.problems:
            print(f"{family.name}, seed {seed}, {_kind(trial)}: {problem}", flush=True)
            counts["wrong"] += 1
        if written.total() >= shown + STEP:
            shown = written.total()
            print(f"  {shown:,} calls, {counts['wrong']} wrong", flush=True)
        if written.total() >= most_calls:
            break
    print(f"{written.total():,} calls, {counts['wrong']} wrong; {dict(counts)}")
    print(dict(written))


def _seconds(do: Callable[[], object]) -> float:
    began = time.process_time()
    do()
    return time.process_time() - began


def _second(pair: tuple[str, float]) -> float:
    return pair[1]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
