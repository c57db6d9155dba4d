"""Which of many tools a question is about, and which of them a model is shown.

    hits = hr.selectors.bm25(tools).top("weather in Paris", k=5)      # tools, best first
    runtime = hr.Runtime(tools, selector="search")                    # what the model is shown, turn by turn

A *ranking* orders tools by a text: `bm25`, `embeddings`, `hybrid`. A *selector* says which tools the next turn shows:
`all`, `bm25`, `search`, `two-stage`, and `auto`, which is the default. Most selectors take a ranking.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from handrail.selectors.bm25 import Bm25
from handrail.selectors.embeddings import Embed, Vectors
from handrail.selectors.hybrid import Fused
from handrail.selectors.vector_cache import VectorCache as VectorCache
from handrail.selectors.vector_cache import VectorMemory as VectorMemory
from handrail.tools.toolset import Tools, Toolset


def bm25(tools: Tools) -> Bm25:
    """Return an index over the words of these tools: no dependency, no network, any script."""
    return Bm25(_as_tools(tools))


def embeddings(
    tools: Tools, embed: Embed, *, cache: VectorCache | None = None
) -> Vectors:
    """Return an index over what the texts of these tools mean to an embedding model.

    Args:
        embed: Texts in, one vector each out; any function, or a `selectors.endpoint.Endpoint`.
        cache: Stores the vectors; in memory by default. `vector_file.VectorFile(path)` outlives the process.
    """
    return Vectors(_as_tools(tools), embed, cache)


def hybrid(
    tools: Tools,
    embed: Embed,
    *,
    cache: VectorCache | None = None,
    scripts: Iterable[str] = ("latin",),
) -> Fused:
    """Return both, fused by rank where the question is written in a script that the embedding model knows.

    Args:
        scripts: What it knows, such as `latin`, `cyrillic`, `cjk`. An English model costs Chinese questions half of
            what words alone find, so nothing but Latin is taken for granted.
    """
    given = _as_tools(tools)
    return Fused(Bm25(given), Vectors(given, embed, cache), frozenset(scripts))


def _as_tools(tools: Tools) -> list[Any]:
    """Return tools as they are; functions become tools. A list may hold several of one name, as catalogues do."""
    return [
        tool if hasattr(tool, "parameters") else next(iter(Toolset([tool])))
        for tool in tools
    ]
