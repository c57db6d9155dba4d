"""What a grammar of 100 real tools costs in each family, and whether a model without sense can write a wrong call.

`python -m benchmarks grammars` needs the corpus (HANDRAIL_CORPUS), and for the calls llguidance and numpy.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import cast

from benchmarks.measuring import Figure
from handrail import plugins
from handrail.dialects import dialect
from handrail.dialects.prompts.dialect import PromptDialect
from handrail.grammars import grammar
from handrail.tools.toolset import Toolset

SECONDS = 150.0
"""For the calls of the random model."""


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
    return [cast(PromptDialect, dialect(name)) for name in sorted(plugins.PROMPTS)]


def _building(quick: bool) -> list[Figure]:
    from tests.grammars.random_model import corpus_tools

    tools = corpus_tools(100)
    costs: dict[str, list[float]] = {"lark": [], "gbnf": []}
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
    from tests.grammars.random_model import Vocabulary, try_answer

    every = [(family, Vocabulary(family)) for family in families()]
    counts: Counter[str] = Counter()
    wrong = seed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # each family begins with another choice of tools
        for place, (family, vocabulary) in enumerate(every):
            trial = try_answer(family, vocabulary, seed + place)
            if trial is None:
                continue
            counts[f"{trial.choice}{'' if trial.parallel else ', single'}"] += (
                trial.calls
            )
            wrong += bool(trial.problems)
        seed += 1
    written = ", ".join(f"{kind} {many}" for kind, many in sorted(counts.items()))
    return [
        Figure(
            "answers of a random model with a wrong call", wrong, "of all", 0.0,
            note=f"{sum(counts.values()):,} calls: {written}",
        )
    ]  # fmt: skip


def _seconds(do: Callable[[], object]) -> float:
    began = time.process_time()
    do()
    return time.process_time() - began


def _second(pair: tuple[str, float]) -> float:
    return pair[1]
