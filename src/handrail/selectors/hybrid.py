"""Words and meaning together: two rankings fused by rank, where the embedding model can read the question.

Ranks are fused and not scores, which do not compare: reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handrail import logs
from handrail.errors import ModelError
from handrail.ports import Ranking
from handrail.selectors.terms import scripts

FLATNESS = 5
"""How little the first ranks stand out. The paper has 60, with which a tool that is 50th in both beats one that is
first in one; docs/decisions/0009 has what that costs."""

DEPTH = 50
"""Ranks of each that are fused."""


class Fused:
    """Two rankings as one. Where the second cannot read the question, or fails, the first alone decides.

    Args:
        readable: The scripts that the second one can read, such as `latin`; see `terms.scripts`.
    """

    def __init__(
        self, first: Ranking, second: Ranking, readable: frozenset[str]
    ) -> None:
        self._first = first
        self._second = second
        self._readable = readable

    def top(self, query: str, k: int = 5) -> Sequence[Any]:
        """Return up to `k` tools, best first."""
        depth = max(DEPTH, k)
        words = self._first.top(query, depth)
        if not scripts(query) <= self._readable:
            return words[:k]
        try:
            meaning = self._second.top(query, depth)
        except ModelError as error:
            # an endpoint that is down costs the fusion, not the run
            logs.log_exception(
                "the embedding model gave no answer; the question was ranked by its words alone",
                error,
            )
            return words[:k]
        tools = {tool.name: tool for tool in (*words, *meaning)}
        scores = dict.fromkeys(tools, 0.0)
        for ranking in (words, meaning):
            for rank, tool in enumerate(ranking, 1):
                scores[tool.name] += 1 / (FLATNESS + rank)
        best = sorted(tools, key=lambda name: (-scores[name], name))
        return [tools[name] for name in best[:k]]
