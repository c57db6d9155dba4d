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
from typing import TypeAlias

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
        words: Callable[[str], Sequence[str]],
        evenness: float = 0.75,
        naming: float = 0.0,
    ) -> None:
        assert len(fields) <= 1 << FIELD_BITS
        self._fields = fields
        self._naming = naming
        noted = _Occurrences(fields, words)
        sizes = noted.add_all(texts)
        # The occurrences of a word, replaced by its worths once it is asked for.
        self._held: dict[str, _WordOccurrences | dict[int, float]] = {}
        self._held.update(noted.held)
        self._rarities: dict[str, float] = {}
        self._places = list(range(len(sizes)))
        usual = sum(sizes) / len(sizes) if any(sizes) else 1.0
        self._rooms = [
            SATURATION * (1 - evenness + evenness * size / usual) for size in sizes
        ]

    def get(self, word: str) -> Mapping[int, float] | None:
        """Return the positions of the texts that hold the word, each with its worth there; None if none does."""
        held = self._held.get(word)
        if held is None or isinstance(held, dict):
            return held
        # two threads may both compute it, and compute the same
        worths = self._held[word] = self._weigh(word, _as_list(held))
        return worths

    def rarity(self, word: str) -> float:
        """Return how much the word tells by how few texts hold it."""
        rarity = self._rarities.get(word)
        if rarity is None:
            held = self._held.get(word, [])
            if isinstance(held, dict):
                holding = len(held)
            else:
                holding = len({each >> FIELD_BITS for each in _as_list(held)})
            rarity = self._rarities[word] = _rarity(len(self._rooms), holding)
        return rarity

    def rarity_of(self, holding: int) -> float:
        """Return the rarity of a word that `holding` texts hold; see `rarity`."""
        return _rarity(len(self._rooms), holding)

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


_WordOccurrences: TypeAlias = int | list[int]
"""The occurrences of a word; a word that occurs once has no list."""


class _Occurrences(dict[str, list[int] | None]):
    """Collects where each word occurs. As a dictionary it maps each piece seen twice to the list of its occurrences.

    Two thirds of all pieces occur once; they have no list, and become words at the end. Pieces of one word share that
    word's list. A piece of several words, such as a run of Chinese, has a list of its own, which is added to each of
    its words at the end. A piece without words has None.
    """

    def __init__(
        self, fields: Sequence[TextField], words: Callable[[str], Sequence[str]]
    ) -> None:
        super().__init__()
        self.held: dict[str, _WordOccurrences] = {}
        self._lists: dict[str, list[int]] = {}
        self._fields = fields
        self._words = words
        self._sizes: list[float] = []
        self._size_of = [field.weight * field.is_sized for field in fields]
        self._current = 0
        self._once: dict[str, int] = {}
        self._of_several: list[tuple[Sequence[str], list[int]]] = []

    def add_all(self, texts: Iterable[Sequence[Sequence[str]]]) -> list[float]:
        """Note every occurrence of every word, and return the size of each text."""
        of_piece = self.__getitem__
        sizes = self._sizes
        fields = [
            (number, self._size_of[number])
            for number, field in enumerate(self._fields)
            if field.weight
        ]
        for place, text in enumerate(texts):
            sizes.append(0.0)
            for number, size in fields:
                strings = text[number]
                if not strings:
                    continue
                occurrence = self._current = place << FIELD_BITS | number
                lists = list(filter(None, map(of_piece, terms.pieces(strings))))
                for each in lists:
                    each.append(occurrence)
                sizes[place] += size * len(lists)
        self._finish()
        return sizes

    def __missing__(self, piece: str) -> list[int] | None:
        first = self._once.pop(piece, None)
        if first is None:
            self._once[piece] = self._current
            return None
        words = self._words(piece)
        occurrences: list[int] | None = None
        if len(words) == 1:
            occurrences = self._lists.setdefault(words[0], [])
            occurrences.append(first)
        elif words:
            occurrences = [first]
            self._of_several.append((words, occurrences))
        if occurrences:
            self._lengthen(first, 1)
        self[piece] = occurrences
        return occurrences

    def _finish(self) -> None:
        """Add the occurrences of pieces that occurred once, and of those with several words, to their words."""
        for words, occurrences in self._of_several:
            for occurrence in occurrences:
                self._lengthen(occurrence, len(words) - 1)
            for word in words:
                self._lists.setdefault(word, []).extend(occurrences)
        held = self.held
        held.update(self._lists)
        words_of = self._words
        sizes = self._sizes
        size_of = self._size_of
        for piece, occurrence in self._once.items():
            words = words_of(piece)
            sizes[occurrence >> FIELD_BITS] += size_of[occurrence & _FIELD] * len(words)
            for word in words:
                noted = held.get(word)
                if noted is None:
                    held[word] = occurrence
                elif isinstance(noted, list):
                    noted.append(occurrence)
                else:
                    held[word] = [noted, occurrence]

    def _lengthen(self, occurrence: int, words: int) -> None:
        size = self._size_of[occurrence & _FIELD]
        self._sizes[occurrence >> FIELD_BITS] += size * words


def _as_list(held: _WordOccurrences) -> list[int]:
    return [held] if isinstance(held, int) else held


def _rarity(count: int, holding: int) -> float:
    """Return how much a word tells that `holding` of `count` texts have."""
    return math.log(1 + (count - holding + 0.5) / (holding + 0.5))
