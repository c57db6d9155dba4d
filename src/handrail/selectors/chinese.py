"""What the names of tools call the things that a Chinese question speaks of.

    帮我查一下订单的状态 -> 查: search find query get; 订单: order; 状态: status condition

Most names of tools are English, whatever language their texts are in. `chinese.txt` has some 1,400 everyday and
technical words of Chinese, each with such names and with other ways to say it; the longest word that begins at a place
is taken.

Rule 1: the words are those of the language. None is there for the sake of a catalogue or of a question.
Rule 2: nothing is read before the first question in Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from handrail.selectors.terms import MOST_CHARACTERS, stem
from handrail.selectors.traditional import simplify

_HAN = re.compile("[\u4e00-\u9fff]+")


def other_names(text: str) -> dict[str, tuple[str, ...]]:
    """Return the Chinese words of a text that are known, each with words for the same, as they are compared.

    Other words of Chinese are among them if they have two characters, which is how Chinese is compared.

    >>> other_names("工单的温度")
    {'工单': ('ticket',), '温度': ('气温', 'temperatur')}
    """
    runs = [] if text.isascii() else _HAN.findall(simplify(text[:MOST_CHARACTERS]))
    if not runs:
        return {}
    known, longest = _dictionary()
    found: dict[str, tuple[str, ...]] = {}
    for run in runs:
        at = 0
        while at < len(run):
            for size in range(longest, 0, -1):
                word = run[at : at + size]
                if word in known:
                    found[word] = known[word]
                    at += len(word)
                    break
            else:
                at += 1
    return found


@cache
def _dictionary() -> tuple[Mapping[str, tuple[str, ...]], int]:
    """Return each Chinese word with its English ones, and the length of the longest."""
    known: dict[str, dict[str, None]] = {}
    text = files(__package__).joinpath("chinese.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        names = [stem(word) for word in words if word.isascii() or len(word) == 2]
        for word in words:
            if not word.isascii():
                others = (name for name in names if name != word)
                known.setdefault(word, {}).update(dict.fromkeys(others))
    return {word: tuple(names) for word, names in known.items()}, max(map(len, known))
