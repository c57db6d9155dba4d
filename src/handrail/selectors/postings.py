"""Which texts hold a word, and what the word is worth in each (BM25).

A text has fields, such as a name and a description, and a word weighs as much as the fields that hold it.

Rule 1: the worth of a word follows from the texts alone, and never from what was asked before.
Rule 2: each distinct piece of a text becomes words once. A catalogue of 10,479 tools repeats 38,000 pieces until they
        are half a million.
Rule 3: the worth of a word is computed when somebody first asks for the word; most words are never asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from handrail.selectors import terms

SATURATION = 1.2
"""k1: how soon a word that comes again in the same text stops counting. The usual value."""


class TextField(Struct, frozen=True):
    """A part of a text. `is_sized` says whether its words make the text longer, so that each of them counts less."""

    weight: float
    is_sized: bool = True


FIELD_BITS = 3
"""Of an occurrence; the rest is the text's position."""

_FIELD = (1 << FIELD_BITS) - 1


class Postings:
    """For every word, the positions of the texts that hold it and what it is worth in each.

    Args:
        texts: Of each text its strings, field by field.
        fields: The first of them is the name; at most eight. Weights are whole quarters, so that sums are exact.
        evenness: b, from 0 to 1: how much a long text must say to count like a short one.
        naming: How much less a word counts if many texts hold it and few are named after it; 0 is not at all. Only
            words in ASCII are affected.
        words: Turns a piece of a text into words.
    """

    def __init__(
        self,
        texts: Iterable[Sequence[Sequence[str]]],
        fields: Sequence[TextField],
        *,
        words: Callable[[str], Iterable[str]],
        evenness: float = 0.75,
        naming: float = 0.0,
    ) -> None:
        assert len(fields) <= 1 << FIELD_BITS
        self._fields = fields
        self._naming = naming
        # a list of occurrences until the word is asked for, and then what it is worth
        self._held: dict[str, list[int] | dict[int, float]] = {}
        self._rarities: dict[str, float] = {}
        sizes = self._add_all(texts, words)
        self._places = list(range(len(sizes)))
        usual = sum(sizes) / len(sizes) if any(sizes) else 1.0
        self._rooms = [
            SATURATION * (1 - evenness + evenness * size / usual) for size in sizes
        ]

    def _add_all(
        self,
        texts: Iterable[Sequence[Sequence[str]]],
        words: Callable[[str], Iterable[str]],
    ) -> list[float]:
        """Note every occurrence of every word, and return the size of each text."""
        held: dict[str, list[int]] = {}
        occurrences = _OccurrencesByPiece(held, words)
        of_piece = occurrences.__getitem__
        sizes: list[float] = []
        fields = [
            (number, field) for number, field in enumerate(self._fields) if field.weight
        ]
        for place, text in enumerate(texts):
            size = 0.0
            for number, field in fields:
                pieces = terms.pieces(text[number])
                if not pieces:
                    continue
                lists = list(chain.from_iterable(map(of_piece, pieces)))
                if field.is_sized:
                    size += field.weight * len(lists)
                occurrence = place << FIELD_BITS | number
                for each in lists:
                    each.append(occurrence)
            sizes.append(size)
        self._held.update(held)
        return sizes

    def get(self, word: str) -> Mapping[int, float] | None:
        """Return the positions of the texts that hold the word, each with its worth there; None if none does."""
        held = self._held.get(word)
        if isinstance(held, list):
            # two threads may both compute it, and compute the same
            held = self._held[word] = self._weigh(word, held)
        return held

    def rarity(self, word: str) -> float:
        """Return how much the word tells by how few texts hold it."""
        rarity = self._rarities.get(word)
        if rarity is None:
            held = self._held.get(word, ())
            if isinstance(held, list):
                holding = len({occurrence >> FIELD_BITS for occurrence in held})
            else:
                holding = len(held)
            rarity = self._rarities[word] = _rarity(len(self._rooms), holding)
        return rarity

    def __contains__(self, word: str) -> bool:
        return word in self._held

    def __len__(self) -> int:
        return len(self._held)

    def _weigh(self, word: str, occurrences: Sequence[int]) -> dict[int, float]:
        weight_of = [field.weight for field in self._fields]
        # all words share one object for each position, which a question then finds in the processor's cache
        places = self._places
        weights: dict[int, float] = {}
        for occurrence in occurrences:
            place = places[occurrence >> FIELD_BITS]
            weights[place] = weights.get(place, 0.0) + weight_of[occurrence & _FIELD]
        most = (SATURATION + 1) * _rarity(len(self._rooms), len(weights))
        # Names are English in nearly every catalogue, so their silence says nothing about a word of another script.
        if self._naming and word.isascii():
            named = len({each for each in occurrences if not each & _FIELD})
            most *= ((named + 1) / (len(weights) + 2)) ** self._naming
        rooms = self._rooms
        return {
            place: most * weight / (weight + rooms[place])
            for place, weight in weights.items()
        }


class _OccurrencesByPiece(dict[str, Sequence[list[int]]]):
    """For every piece of a text, the lists of its words' occurrences."""

    def __init__(
        self, held: dict[str, list[int]], words: Callable[[str], Iterable[str]]
    ) -> None:
        super().__init__()
        self._held = held
        self._words = words

    def __missing__(self, piece: str) -> Sequence[list[int]]:
        held = self._held
        lists = []
        for word in self._words(piece):
            occurrences = held.get(word)
            if occurrences is None:
                occurrences = held[word] = []
            lists.append(occurrences)
        self[piece] = tuple(lists)
        return self[piece]


def _rarity(count: int, holding: int) -> float:
    """Return how much a word tells that `holding` of `count` texts have."""
    return math.log(1 + (count - holding + 0.5) / (holding + 0.5))
