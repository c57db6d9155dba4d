"""English translations and Chinese synonyms of the words of a Chinese question.

    帮我查一下订单的状态 -> 查: search find query get; 订单: order; 状态: status condition

Most names of tools are English, whatever language their texts are in. `chinese.txt` lists some 1,400 everyday and
technical Chinese words by meaning. At each position of a question the longest listed word is taken.

Rule 1: words are listed because people use them, never for the sake of one catalogue or one question.
Rule 2: the list is read with the first Chinese question, not before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from handrail.selectors.terms import MOST_CHARACTERS, stem
from handrail.selectors.traditional import simplify

_HAN = re.compile("[\u4e00-\u9fff]+")


def find_synonyms(text: str) -> dict[str, tuple[str, ...]]:
    """Return the listed Chinese words of a text, each with its synonyms: English stems and Chinese words.

    Texts are compared by pairs of characters, so Chinese synonyms have two characters; longer ones are left out.

    >>> find_synonyms("工单的温度")
    {'工单': ('ticket',), '温度': ('气温', 'temperatur')}
    """
    runs = [] if text.isascii() else _HAN.findall(simplify(text[:MOST_CHARACTERS]))
    if not runs:
        return {}
    dictionary, longest = _dictionary()
    found: dict[str, tuple[str, ...]] = {}
    for run in runs:
        at = 0
        while at < len(run):
            for size in range(longest, 0, -1):
                word = run[at : at + size]
                if word in dictionary:
                    found[word] = dictionary[word]
                    at += len(word)
                    break
            else:
                at += 1
    return found


@cache
def _dictionary() -> tuple[Mapping[str, tuple[str, ...]], int]:
    """Return each listed Chinese word with its synonyms, and the length of the longest word."""
    synonyms: dict[str, dict[str, None]] = {}
    text = files(__package__).joinpath("chinese.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        names = [stem(word) for word in words if word.isascii() or len(word) == 2]
        for word in words:
            if not word.isascii():
                others = (name for name in names if name != word)
                synonyms.setdefault(word, {}).update(dict.fromkeys(others))
    dictionary = {word: tuple(names) for word, names in synonyms.items()}
    return dictionary, max(map(len, dictionary))
