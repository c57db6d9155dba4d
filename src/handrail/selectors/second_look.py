"""Ranks the tools that share most words with a question once more, by what a sum over words cannot express.

A tool gains by the share of the question's words that it has, by the share of its name that is in the question, and by
words that are neighbours in both. It loses by the length of its name: `getBeachWeather` is about something more
special than `WeatherTool`, and a question about beaches makes up for it.

Rule 1: what is computed of a tool is cached, and does not depend on the question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

from msgspec import Struct

from handrail.selectors.postings import Postings

# Fitted to one half of the corpus's questions, and confirmed on the other; docs/decisions/0009 has the table.
HELD = 0.51
"""What a tool gains that has all words of the question which any tool has."""

HELD_RARITY = 0.72
"""What it gains beside that, each word counting as it is rare."""

NAME_SHARE = 0.27
"""What a tool gains whose whole name is in the question, each word counting as it is rare."""

PAIR = 0.11
"""What it gains for two words that stand side by side in the question and in its name or description."""

MOST_PAIRS = 4
"""Pairs that count."""

NAME_LENGTH = 0.48
"""What a tool loses for the words of its name, times the logarithm of their number and one."""


class Match(Struct, frozen=True):
    """A word of a question that some tools have, by itself or by a synonym.

    Attributes:
        word: The word of the question; marked with `=` where synonyms of it are matched.
        names: The words that a tool may have for it: the word itself, or its synonyms.
        worths: The positions of the tools that have one of them, with what it is worth there.
        rarity: How much it tells; see `Postings.rarity`.
        share: How much it counts: 1 for the word itself, less for a synonym.
    """

    word: str
    names: Sequence[str]
    worths: Mapping[int, float]
    rarity: float
    share: float = 1.0


class Name(Struct, frozen=True):
    """The words of a tool's name, the sum of their rarity, and what the tool loses for their number."""

    words: frozenset[str]
    rarity: float
    loss: float


class SecondLook:
    """What each tool gains beside the worth of the words that it shares with a question.

    Args:
        tools: In the order of the index.
        postings: The index of their words.
        words: Turns a text into words.
    """

    def __init__(
        self,
        tools: Sequence[Any],
        postings: Postings,
        words: Callable[[str], Sequence[str]],
    ) -> None:
        self._tools = tools
        self._postings = postings
        self._words = words
        self._names: dict[int, Name] = {}
        self._texts: dict[int, str] = {}

    def gains(
        self, places: Collection[int], asked: Sequence[str], matching: Sequence[Match]
    ) -> Mapping[int, float]:
        """Return what the tools at these positions gain, less what they lose.

        Args:
            places: Of tools that have one of the words.
            asked: The question's words in their order.
            matching: The words and synonyms that some tool has, in a fixed order: sums of floats depend on it.
        """
        names = {place: self._name(place) for place in places}
        counts = dict.fromkeys(places, 0.0)
        rarities = dict.fromkeys(places, 0.0)
        in_names = dict.fromkeys(places, 0.0)
        total = 0.0
        most = 0.0
        holders: dict[str, set[int]] = {}
        for match in matching:
            rarity = match.rarity
            share = match.share
            total += share * rarity
            most += share
            holders[match.word] = counts.keys() & match.worths.keys()
            for place in holders[match.word]:
                counts[place] += share
                rarities[place] += share * rarity
                if not names[place].words.isdisjoint(match.names):
                    in_names[place] += rarity
        pairs = self._count_pairs(asked, holders)
        gains = {}
        for place, name in names.items():
            gain = HELD * counts[place] / most
            gain += HELD_RARITY * rarities[place] / total
            if in_names[place]:
                gain += NAME_SHARE * min(in_names[place] / name.rarity, 1.0)
            gain += PAIR * min(pairs[place], MOST_PAIRS)
            gains[place] = gain - name.loss
        return gains

    def _count_pairs(
        self, asked: Sequence[str], holders: Mapping[str, Set[int]]
    ) -> Counter[int]:
        """Return how many of the question's pairs of neighbouring words each tool's name or description has."""
        found: Counter[int] = Counter()
        for one, other in set(pairwise(asked)):
            if one not in holders or other not in holders:
                continue
            pair = f" {one} {other} "
            for place in holders[one] & holders[other]:
                found[place] += pair in self._text(place)
        return found

    def _name(self, place: int) -> Name:
        name = self._names.get(place)
        if name is None:
            words = frozenset(self._words(self._tools[place].name))
            # sorted, for sums of floats depend on the order
            rarity = sum(map(self._postings.rarity, sorted(words)))
            length = sum(not word.isdigit() for word in words)
            name = Name(words, rarity, NAME_LENGTH * math.log(length + 1))
            self._names[place] = name
        return name

    def _text(self, place: int) -> str:
        """Return the words of a tool's name and description, single spaces around each; no pair spans both."""
        text = self._texts.get(place)
        if text is None:
            tool = self._tools[place]
            parts = [
                " ".join(self._words(each))
                for each in (tool.name, tool.description or "")
            ]
            text = self._texts[place] = f" {' | '.join(parts)} "
        return text
