"""Finding tools among 10,479 real ones: what an index and a question cost, and what each part of the ranking is worth.

`python -m benchmarks selection` prints the costs and the recall; `python -m benchmarks.selection` the ablation of
decision 0009, which takes about two minutes. Both need the corpus (HANDRAIL_CORPUS).
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha1
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.measuring import Figure
from handrail.ports import Described
from handrail.selectors import terms
from handrail.selectors.bm25 import Bm25, Weights

# `handrail.selectors.bm25` is a function; the module of that name is not reachable as an attribute
bm25 = import_module("handrail.selectors.bm25")
second_look = import_module("handrail.selectors.second_look")

CORPUS = (
    Path(
        os.environ.get("HANDRAIL_CORPUS")
        or Path(__file__).parents[2] / "shared" / "data"
    )
    / "retrieval"
)


def selection(quick: bool) -> list[Figure]:
    """Index and question, against a textbook's BM25 over names and descriptions, and what both languages miss."""
    if not CORPUS.exists():
        return []
    tools, questions = corpus()
    asked = [each["query"] for each in questions if each["quick"] or not quick]
    indexed = min(_seconds(lambda: _anew(tools)) for _ in range(1 if quick else 3))
    ours, theirs = Bm25(tools), Textbook(tools)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for query in asked:  # in turn, question by question
        times["ours"].append(_seconds(lambda query=query: ours.top(query, 5)))
        times["theirs"].append(_seconds(lambda query=query: theirs.top(query, 5)))
    middle, slow = _percentile(times["ours"], 0.5), _percentile(times["ours"], 0.95)
    return [
        Figure(f"index {len(tools):,} tools", indexed, "s CPU", 1.0),
        Figure("  a question over them, p95", slow * 1e3, "ms CPU", 20.0, note=f"p50 {middle * 1e3:.2f}"),
        Figure("  against a textbook's BM25 over names and descriptions", slow / _percentile(times["theirs"], 0.95),
               "x", 1.0, usual=0.4),
        *_missed(ours, [each for each in questions if each["quick"] or not quick]),
    ]  # fmt: skip


def _missed(ranking: Bm25, questions: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the share of wanted tools that are not among the first five; the goals are recalls of .75 and .90."""
    shares: dict[str, list[float]] = {}
    for question in questions:
        share = _recall(ranking.top(question["query"], 5), question)
        halves = ["", " held out"] if _is_held_out(question) else [""]
        for half in halves:
            shares.setdefault(question["lang"] + half, []).append(share)
    figures = []
    for lang, goal in (("en", 0.25), ("zh", 0.10)):
        every, held_out = (
            sum(found) / len(found)
            for found in (shares[lang], shares[f"{lang} held out"])
        )
        note = f"recall@5 {every:.3f}, held out {held_out:.3f}"
        figures.append(
            Figure(f"  {lang.upper()} tools not among the first 5", 1 - every, "share", goal, note=note)
        )  # fmt: skip
    return figures


def _recall(hits: Sequence[Any], question: Mapping[str, Any]) -> float:
    wanted = set(question["gold_names"])
    return len(wanted.intersection(tool.name for tool in hits)) / len(wanted)


def _is_held_out(question: Mapping[str, Any]) -> bool:
    """Whether the question is of the half that nothing was chosen on."""
    return bool(sha1(question["id"].encode()).digest()[0] % 2)


def corpus() -> tuple[list[Described], list[dict[str, Any]]]:
    """Return the catalogue and the questions."""
    lines = (
        gzip.decompress((CORPUS / "catalogue.jsonl.gz").read_bytes())
        .decode()
        .splitlines()
    )
    rows = map(json.loads, lines)
    tools = [
        Described(row["name"], row["description"] or "", row["parameters"])
        for row in rows
    ]
    text = (CORPUS / "queries.jsonl").read_text(encoding="utf-8")
    return tools, [json.loads(line) for line in text.split("\n") if line]


def _anew(tools: Sequence[Described]) -> Bm25:
    terms.stem.cache_clear()
    return Bm25(tools)


def _seconds(run: Callable[[], Any]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[int(len(times) * share)]


class Textbook:
    """BM25 with k1 1.2 and b .75 over the `\\w+` words of names and descriptions."""

    def __init__(self, tools: Sequence[Described]) -> None:
        self.tools = tools
        texts = [Counter(_plain(f"{tool.name} {tool.description}")) for tool in tools]
        usual = sum(map(Counter.total, texts)) / len(texts)
        self._found: dict[str, list[tuple[int, float]]] = {}
        for place, counts in enumerate(texts):
            room = 1.2 * (0.25 + 0.75 * counts.total() / usual)
            for word, count in counts.items():
                self._found.setdefault(word, []).append(
                    (place, count * 2.2 / (count + room))
                )

    def top(self, query: str, k: int = 5) -> list[Described]:
        """Return the best k tools."""
        scores: dict[int, float] = {}
        for word in _plain(query):
            found = self._found.get(word, ())
            rarity = math.log(
                1 + (len(self.tools) - len(found) + 0.5) / (len(found) + 0.5)
            )
            for place, worth in found:
                scores[place] = scores.get(place, 0.0) + rarity * worth
        return [
            self.tools[place]
            for place in sorted(scores, key=lambda place: -scores[place])[:k]
        ]


def _plain(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _spaced(texts: Sequence[str]) -> list[str]:
    return " ".join(texts).split()


# ---------------------------------------------------------------------- the ablation

ONLY_TEXT = Weights(name=1, description=1, parameter=0, parameter_text=0, value=0)
_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")


def _unstemmed(text: str) -> list[str]:
    return [word.lower() for word in _SPLIT.findall(text)]


def _without_pairs(text: str) -> list[str]:
    return [terms.stem(word) for word in _SPLIT.findall(text)]


_NO_SYNONYMS: Mapping[str, Any] = {"find_synonyms": lambda text: {}}
_SUMS: Mapping[str, Any] = {
    "HELD": 0.0,
    "HELD_RARITY": 0.0,
    "NAME_SHARE": 0.0,
    "PAIR": 0.0,
    "NAME_LENGTH": 0.0,
}
_ONE_LOOK: Mapping[str, Any] = {**_SUMS, **_NO_SYNONYMS}
_PLAIN: Mapping[str, Any] = {**_ONE_LOOK, "EVENNESS": 0.75, "NAMING": 0.0}
_BARE: Mapping[str, Any] = {
    **_PLAIN,
    "NOISE": frozenset(),
    "PART": 0.0,
    "COVERED": 1.0,
}
STEPS: Sequence[tuple[str, Weights, Mapping[str, Any]]] = (
    (
        r"`\w+` words of name and description",
        ONLY_TEXT,
        {**_BARE, "words": _plain, "pieces": _spaced},
    ),
    ("names split", ONLY_TEXT, {**_BARE, "words": _unstemmed}),
    ("and light stems", ONLY_TEXT, {**_BARE, "words": _without_pairs}),
    ("and pairs of characters", ONLY_TEXT, _BARE),
    ("and names and texts of parameters, evenly", Weights(1, 1, 1, 1, 0), _BARE),
    ("and permitted values", Weights(1, 1, 1, 1, 1), _BARE),
    ("and weights 3, 1.5, 1, .75, .75", Weights(), _BARE),
    ("and no words of grammar", Weights(), {**_PLAIN, "PART": 0.0, "COVERED": 1.0}),
    ("and sentences apart", Weights(), {**_PLAIN, "COVERED": 1.0}),
    ("and words covered", Weights(), _PLAIN),
    ("and lengths in full", Weights(), {**_ONE_LOOK, "NAMING": 0.0}),
    ("and words that name tools", Weights(), _ONE_LOOK),
    ("and a second look", Weights(), _NO_SYNONYMS),
    ("and synonyms of Chinese words (the default)", Weights(), {}),
    (
        "default without shares of the question",
        Weights(),
        {"HELD": 0.0, "HELD_RARITY": 0.0},
    ),
    ("default without shares of the name", Weights(), {"NAME_SHARE": 0.0}),
    ("default without pairs of words", Weights(), {"PAIR": 0.0}),
    ("default without lengths of names", Weights(), {"NAME_LENGTH": 0.0}),
    ("default without stems", Weights(), {"stems": False}),
    ("default without pairs of characters", Weights(), {"words": _without_pairs}),
    ("default without parameters", Weights(parameter=0, parameter_text=0, value=0), {}),
    ("default, all weights 1", Weights(1, 1, 1, 1, 1), {}),
    ("default, every word scores every tool", Weights(), {"ENOUGH": 10**9}),
)


@contextmanager
def changed(parts: Mapping[str, Any]) -> Iterator[None]:
    """Let the ranking be without something for a while."""
    parts = dict(parts)
    stems = parts.pop("stems", True)
    pieces = parts.pop("pieces", terms.pieces)
    looks = {name: parts.pop(name, getattr(second_look, name)) for name in _SUMS}
    with (
        patch.multiple(bm25, **{"PART": bm25.PART, **parts}),
        patch.multiple(second_look, **looks),
        patch.object(terms, "stem", terms.stem if stems else str.lower),
        patch.object(terms, "pieces", pieces),
    ):
        yield


def main() -> None:
    """Print the table: recall@1, @3, @5, @10 in English and Chinese, and @5 on the half that nothing was chosen on."""
    tools, questions = corpus()
    print(
        "| ranking | EN @1 | @3 | @5 | @10 | held out @5 | ZH @1 | @3 | @5 | @10 | held out @5 | p95 ms |"
    )
    print("|---|" + "---:|" * 11)
    for name, weights, parts in STEPS:
        with changed(parts):
            ranking = Bm25(tools, weights=weights)
            print(f"| {name} | {_row(ranking, questions)} |", flush=True)


def _row(ranking: Bm25, questions: Sequence[Mapping[str, Any]]) -> str:
    found: Counter[tuple[str, Any]] = Counter()
    times = []
    for question in questions:
        began = time.process_time()
        hits = [tool.name for tool in ranking.top(question["query"], 10)]
        times.append(time.process_time() - began)
        lang, wanted = question["lang"], set(question["gold_names"])
        found[lang, "asked"] += 1
        for k in (1, 3, 5, 10):
            found[lang, k] += len(wanted.intersection(hits[:k])) / len(wanted)  # type: ignore[assignment]
        if _is_held_out(question):
            found[lang, "held out asked"] += 1
            found[lang, "held out"] += len(wanted.intersection(hits[:5])) / len(wanted)  # type: ignore[assignment]
    cells = []
    for lang in ("en", "zh"):
        cells += [f"{found[lang, k] / found[lang, 'asked']:.3f}" for k in (1, 3, 5, 10)]
        cells.append(f"{found[lang, 'held out'] / found[lang, 'held out asked']:.3f}")
    return " | ".join([*cells, f"{_percentile(times, 0.95) * 1e3:.1f}"])


if __name__ == "__main__":
    main()
