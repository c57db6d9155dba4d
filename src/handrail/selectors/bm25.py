"""BM25 over the texts of tools: names, descriptions, parameters. The default: it needs nothing.

A tool is found by the words that it shares with the question, rare ones first (Robertson and Zaragoza, "The
Probabilistic Relevance Framework", 2009). Words of its name count most, those of its parameters' descriptions least.

Rule 1: the order of the catalogue never matters; equal scores are ordered by name.
Rule 2: `top(k)` is the beginning of `top(k + 1)`.
Rule 3: what a word is worth in a tool does not depend on the question, which only adds up numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from handrail.errors import Json
from handrail.selectors.chinese import find_synonyms
from handrail.selectors.postings import Postings, TextField
from handrail.selectors.second_look import Match, SecondLook
from handrail.selectors.terms import NOISE, sentences, words

# Chosen on one half of the corpus's questions and confirmed on the other; docs/decisions/0009 has the table.
EVENNESS = 1.0
"""b, here in full: how much a long text must say to count like a short one. A schema of 50 fields is about none."""

NAMING = 0.05
"""The power of a word's share of names: how much less a word counts that tools have, but are never named after."""

PART = 1.0
"""What the best score of one sentence adds to that of the whole question."""

COVERED = 0.95
"""What a word of the question still counts for a tool, for each tool before it that has the word."""

CLOSE = 0.5
"""The share of a sentence's best score that a tool must have to be brought along by that sentence."""

SYNONYM = 0.7
"""What a synonym or translation counts beside a word of the question's own, which counts 1."""

ENOUGH = 1_000
"""Tools that rare words have brought, beyond which a common word brings no more."""

DEPTH = 120
"""Tools that are looked at a second time."""

UNSEEN = 0.01
"""What is left of a score without a second look, and of one that a second look would take more from."""

DEEPEST = 6
"""Levels of a schema that are read."""


class Weights(Struct, frozen=True):
    """How much a word counts, by its position. Whole quarters, so that sums are exact in any order."""

    name: float = 3.0
    description: float = 1.5
    parameter: float = 1.0
    parameter_text: float = 0.75
    value: float = 0.75
    alias: float = 3.0


class Bm25:
    """An index of tools; it does not follow later changes of a toolset."""

    def __init__(self, tools: Iterable[Any], *, weights: Weights | None = None) -> None:
        self.tools: Sequence[Any] = sorted(
            tools, key=lambda tool: (tool.name, tool.description)
        )
        weights = weights or Weights()
        self._postings = Postings(
            map(_texts, self.tools),
            [
                TextField(weights.name),
                TextField(weights.description),
                TextField(weights.parameter),
                TextField(weights.parameter_text),
                TextField(weights.value),
                # it says again what the tool is, and must not make the rest count less
                TextField(weights.alias, is_sized=False),
            ],
            words=_words,
            evenness=EVENNESS,
            naming=NAMING,
        )
        self._second_look = SecondLook(self.tools, self._postings, _words)

    def top(self, query: str, k: int = 5) -> list[Any]:
        """Return up to `k` tools that share words with the query, best first, no two of one name."""
        return [tool for tool, _ in self.top_with_scores(query, k)]

    def top_with_scores(self, query: str, k: int = 5) -> list[tuple[Any, float]]:
        """Return what `top` returns, each with its score.

        A score compares tools for one question: 1 is the best share of words, a sentence's own adds as much again, and
        the second look up to two.
        """
        matching = self._find_matches(query)
        scores = self._scores(matching)
        most = max(scores.values(), default=1.0)
        parts = list(filter(None, map(self._find_matches, sentences(query))))
        if len(parts) > 1:
            # A question that wants three things finds nine tools for the longest of them. Ranked separately, each
            # of its sentences contributes its own best ones.
            for place, score in self._best_of_parts(parts).items():
                # A pair of characters may begin where a sentence does, so the whole question may lack the tool.
                scores[place] = scores.get(place, 0.0) + PART * most * score
        asked = [word for word in _words(query) if not word.isdigit()]
        first = _take_best(scores, DEPTH)
        gains = self._second_look.gains(first, asked, matching)
        seen = {
            # never below what a tool gets that nobody looks at
            place: max(score / most + gains[place], UNSEEN * score / most)
            for place, score in first.items()
        }
        unseen = UNSEEN / most
        return self._spread(seen, scores, unseen, matching=matching, k=k)

    def _find_matches(self, text: str) -> list[Match]:
        """Return the words and synonyms of a question that some tool has, in a fixed order."""
        wanted = significant_words(text)
        matching = [
            Match(word, (word,), worths, self._postings.rarity(word))
            for word in sorted(wanted)
            if (worths := self._postings.get(word))
        ]
        for word, names in find_synonyms(text).items():
            match = self._match_synonyms(word, names)
            if match is not None:
                matching.append(match)
        return matching

    def _match_synonyms(self, word: str, names: Sequence[str]) -> Match | None:
        """Return the tools that have a synonym of a word, each with the worth of its best one; None if there are none.

        A synonym that more than `ENOUGH` tools have does not distinguish them, and is left out.
        """
        found = [
            worths
            for name in names
            if (worths := self._postings.get(name)) and len(worths) <= ENOUGH
        ]
        if not found:
            return None
        best = max(found, key=len)
        if len(found) > 1:
            best = dict(best)
            for worths in found:
                for place, worth in worths.items():
                    if worth > best.get(place, 0.0):
                        best[place] = worth
        rarity = self._postings.rarity_of(len(best))
        # `=` keeps it apart from the same word as one of the question's own.
        return Match(f"={word}", names, best, rarity, SYNONYM)

    def _best_of_parts(self, parts: Iterable[Sequence[Match]]) -> dict[int, float]:
        """Return the tools near the best of some part, each with its highest score in any of them."""
        highest: dict[int, float] = {}
        for part in parts:
            scores = self._scores(part)
            best = max(scores.values(), default=1.0)
            least = CLOSE * best
            for place, score in scores.items():
                if score > least:
                    highest[place] = max(score / best, highest.get(place, 0.0))
        return highest

    def _spread(
        self,
        seen: Mapping[int, float],
        others: Mapping[int, float],
        unseen: float,
        *,
        matching: Sequence[Match],
        k: int,
    ) -> list[tuple[Any, float]]:
        """Return the first `k`, where each word counts a little less for every earlier tool that has it.

        So ten tools that are alike leave room for the rest of the question. A list of tools, unlike a toolset, may
        hold several of one name; only the best of them is returned. Scores without a second look count `unseen` times.
        """
        left = dict.fromkeys((match.word for match in matching), 1.0)
        chosen: dict[str, tuple[Any, float]] = {}
        scores = dict(seen)
        waiting = [(-score, place) for place, score in seen.items()]
        heapq.heapify(waiting)
        highest = unseen * max(others.values(), default=0.0)
        while len(chosen) < k and (waiting or others):
            if others and (not waiting or -waiting[0][0] < highest):
                added = {place: unseen * score for place, score in others.items()}
                others = {}
                scores |= added
                waiting += [(-score, place) for place, score in added.items()]
                heapq.heapify(waiting)
            _, place = heapq.heappop(waiting)
            tool = self.tools[place]
            if tool.name in chosen:
                continue
            shares = {
                match.word: match.share * match.worths[place]
                for match in matching
                if place in match.worths
            }
            now = (-scores[place] * _remaining_share(shares, left), place)
            # its score has fallen since it was pushed; it can only fall
            if (waiting and now > waiting[0]) or (others and -now[0] < highest):
                heapq.heappush(waiting, now)
                continue
            chosen[tool.name] = (tool, -now[0])
            for word in shares:
                left[word] *= COVERED
        return list(chosen.values())

    def _scores(self, matching: Iterable[Match]) -> dict[int, float]:
        """Return the scores of the tools that match.

        The rarest word comes first. Once there are enough tools to choose from, the more common words only tell these
        apart, which costs no recall and halves the time. The order is fixed, so sums are the same in any catalogue.
        """
        scores: dict[int, float] = {}
        for match in sorted(
            matching, key=lambda match: (len(match.worths), match.word)
        ):
            worths = match.worths
            if match.share != 1.0:
                _add_share(scores, match)
            elif not scores:
                scores = dict(worths)
            elif len(scores) < ENOUGH:
                for place, worth in worths.items():
                    scores[place] = scores.get(place, 0.0) + worth
            else:
                for place in scores.keys() & worths.keys():
                    scores[place] += worths[place]
        return scores

    def __repr__(self) -> str:
        return f"<Bm25 over {len(self.tools)} tools, {len(self._postings)} words>"


def _add_share(scores: dict[int, float], match: Match) -> None:
    """Add the worths of a match that counts less. Apart from `_scores`, whose loop would multiply each worth by 1."""
    share = match.share
    worths = match.worths
    if len(scores) < ENOUGH:
        for place, worth in worths.items():
            scores[place] = scores.get(place, 0.0) + share * worth
    else:
        for place in scores.keys() & worths.keys():
            scores[place] += share * worths[place]


def _remaining_share(shares: Mapping[str, float], left: Mapping[str, float]) -> float:
    """Return the share of a tool's score that is left, when each word counts only as much as `left` says."""
    whole = sum(shares.values())
    if not whole:
        return 1.0
    return sum(worth * left[word] for word, worth in shares.items()) / whole


def _take_best(scores: dict[int, float], most: int) -> dict[int, float]:
    """Take the best scores out of all, equal ones by position."""
    if len(scores) <= most:
        best = dict(scores)
        scores.clear()
        return best
    least = heapq.nlargest(most, scores.values())[-1]
    places = sorted(
        (-score, place) for place, score in scores.items() if score >= least
    )[:most]
    return {place: scores.pop(place) for _, place in places}


def significant_words(query: str) -> set[str]:
    """Return the words of a question that can tell tools apart: neither grammar and courtesy nor numbers."""
    return {word for word in _words(query) if not word.isdigit()}


def _words(text: str) -> list[str]:
    found = words(text)
    if NOISE.isdisjoint(found):
        return found
    return [word for word in found if word not in NOISE]


def _texts(tool: Any) -> tuple[Sequence[str], ...]:
    """Return the texts of a tool, in the order of the fields of `Weights`."""
    parameters: list[str] = []
    parameter_texts: list[str] = []
    values: list[str] = []
    _describe_schema(tool.parameters, DEEPEST, parameters, parameter_texts, values)
    return (
        (tool.name,),
        (tool.description or "",),
        parameters,
        parameter_texts,
        values,
        (*getattr(tool, "aliases", ()), *getattr(tool, "tags", ())),
    )


def _describe_schema(
    schema: Json,
    levels: int,
    parameters: list[str],
    texts: list[str],
    values: list[str],
) -> None:
    """Add the names, descriptions and permitted values of parameters, the nested ones too."""
    if not isinstance(schema, dict) or not levels:
        return
    for value in schema.get("enum") or ():
        values.append(str(value))
    inner = _branches(schema)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        parameters += properties
        inner += properties.values()
    for each in inner:
        if not isinstance(each, dict):
            continue
        text = each.get("description")
        if isinstance(text, str):
            texts.append(text)
        if not _HOLDING_MORE.isdisjoint(each):
            _describe_schema(each, levels - 1, parameters, texts, values)


_HOLDING_MORE = frozenset(
    ["enum", "properties", "items", "additionalProperties", "anyOf", "oneOf", "allOf"]
)


def _branches(schema: Mapping[str, Json]) -> list[Json]:
    branches: list[Json] = [schema.get("items"), schema.get("additionalProperties")]
    for key in ("anyOf", "oneOf", "allOf"):
        branches += schema.get(key) or ()
    return branches
