"""The words of a text, as selectors compare them: of names, descriptions and questions, in any script.

    getPowerOutput, power_output, power.outputs -> power output
    查询天气 -> 查询 询天 天气

A script without spaces cannot be split into words without a dictionary, so pairs of neighbouring characters take their
place: on 10,479 real tools they found more than a segmenter of Chinese did.

Rule 1: a name and a sentence that say the same give the same words.
Rule 2: what a word becomes depends on that word alone, never on the tools or on the question.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from operator import add

from handrail.selectors.traditional import simplify

MOST_CHARACTERS = 20_000
"""Of a text that are looked at: a question with a document in it still begins with the question."""

# Han, kana, hangul, Thai, Lao, Burmese and Khmer are written without spaces, or with endings grown onto the words.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
)

# An acronym ends before the capital of the next word: `HTML`, `Parser`.
_ASCII = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PIECE = re.compile(
    rf"(?P<unspaced>[{UNSPACED}]+)"
    rf"|{_ASCII.pattern}"
    rf"|[^\W\d_a-zA-Z{UNSPACED}]+"
)
# Most Chinese texts consist of these. NFKC changes only some punctuation among them, which ends a word in either form.
_FIRST_HAN = "\u4e00"
_PLAIN = re.compile("[\x00-\x7f\u4e00-\u9fff，。、；：？！（）《》【】“”‘’—…]+")
_PLAIN_PIECE = re.compile(rf"[\u4e00-\u9fff]+|{_ASCII.pattern}")
_LATIN_ACCENTS = re.compile("[\u00c0-\u024f]+")


def words(text: str) -> list[str]:
    """Return the words of a text, in order, each in the form in which it is compared.

    >>> words("getPowerOutputs of HTMLParser.v2")
    ['get', 'power', 'output', 'of', 'html', 'parser', 'v', '2']
    >>> words("查询天气 in Zürich")
    ['查询', '询天', '天气', 'in', 'zurich']
    """
    text = text[:MOST_CHARACTERS]
    if text.isascii():
        # one word, as most pieces are
        if text.isalpha() and text[1:].islower():
            return [stem(text)]
        return [stem(piece) for piece in _ASCII.findall(text)]
    text = simplify(text)
    if _PLAIN.fullmatch(text):
        return _plain_words(text)
    text = _LATIN_ACCENTS.sub(_without_accents, unicodedata.normalize("NFKC", text))
    pieces: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        if match.lastgroup:
            pieces += _pairs(piece)
        else:
            pieces.append(stem(piece))
    return pieces


def _plain_words(text: str) -> list[str]:
    pieces: list[str] = []
    for piece in _PLAIN_PIECE.findall(text):
        if piece < _FIRST_HAN:
            pieces.append(stem(piece))
        else:
            pieces += _pairs(piece)
    return pieces


def _pairs(run: str) -> list[str]:
    return list(map(add, run, run[1:])) or [run]


# ASCII that is neither letter nor digit ends a word, whatever is beside it.
_ENDING = bytes(
    code if code >= 128 or chr(code).isalnum() else ord(" ") for code in range(256)
)


def pieces(texts: Sequence[str]) -> list[str]:
    """Return texts cut at spaces and punctuation: the words of the pieces are those of the texts, in order.

    Far quicker than `words`, and pieces repeat: their words can be looked up.

    >>> pieces(["getPowerOutputs of HTMLParser.v2", "查询天气 in Zürich"])
    ['getPowerOutputs', 'of', 'HTMLParser', 'v2', '查询天气', 'in', 'Zürich']
    """
    joined = " ".join(texts)
    if len(joined) > MOST_CHARACTERS:
        joined = " ".join(text[:MOST_CHARACTERS] for text in texts)
    # as bytes, for a text that is not ASCII would be translated character by character
    spaced = joined.encode("utf-8", "surrogatepass").translate(_ENDING)
    return spaced.decode("utf-8", "surrogatepass").split()


def _without_accents(match: re.Match[str]) -> str:
    return "".join(
        char
        for char in unicodedata.normalize("NFD", match[0])
        if not unicodedata.combining(char)
    )


_VOWEL = re.compile("[aeiouy]")
_STEPS = (
    # ending, replacement, least number of characters before it
    ("ies", "y", 2),
    ("sses", "ss", 1),
    ("shes", "sh", 1),
    ("ches", "ch", 1),
    ("xes", "x", 1),
)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return an English word without its ending, lightly: plurals, -ing, -ed, a last e. Others in lower case.

    >>> [stem(word) for word in ("cities", "searches", "booking", "planned", "analysis", "Straße")]
    ['city', 'search', 'book', 'plan', 'analysis', 'straße']
    """
    word = word.lower()
    # Every ending that is cut off ends in one of these letters.
    if (
        word[-1:] not in "sgde"
        or len(word) <= 3
        or word == "news"
        or not word.isascii()
    ):
        return word
    word = _without_verb_ending(_without_plural(word))
    if word[-1] == "e" and len(word) > 3:
        return word[:-1]
    return word


def _without_plural(word: str) -> str:
    if word[-1] != "s":
        return word
    for ending, replacement, least in _STEPS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            return word.removesuffix(ending) + replacement
    if word[-2] not in "isu":
        return word[:-1]
    return word


def _without_verb_ending(word: str) -> str:
    if word[-1] not in "gd":
        return word
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < 3 or not _VOWEL.search(stem):
            continue
        is_doubled = stem[-1] == stem[-2] and stem[-1] not in "lsz"
        return stem[:-1] if is_doubled else stem
    return word


_SENTENCE_END = re.compile(
    r"(?<=[.!?;])\s+|[。！？；\n]+|,\s+(?=(?:and|then|also)\s)"
    r"|\b(?:then|also|additionally|after that|finally)\b|然后|还有|另外|以及",
    re.IGNORECASE,
)


def sentences(question: str) -> list[str]:
    """Return what a question asks one after the other, each as a text.

    >>> sentences("Find the museum. Then book a table for two, and send me the address.")
    ['Find the museum.', 'book a table for two', 'and send me the address.']
    """
    return list(
        filter(None, map(str.strip, _SENTENCE_END.split(question[:MOST_CHARACTERS])))
    )


# What a question says beside its subject. Rare in descriptions, so that its rarity would count as weight.
_GRAMMAR = """
a an the of for to in on at by with from into as and or but nor not no so if then than that this these those there here
it its i me my mine we us our you your he she him her his they them their who whom which what when where why how
is are was were be been being am do does did doing done have has had having will would can could shall should may might
must please thank thanks hi hello hey just also some any s m d ll re ve t
"""
NOISE = frozenset(map(stem, _GRAMMAR.split()))
"""Words of grammar and courtesy, in the form in which words are compared."""


LEAST_SHARE = 0.2
"""Of a question's letters that must be of a script to count: a Chinese question may hold a Latin name."""


def scripts(text: str) -> frozenset[str]:
    """Return the scripts that a text is written in, by the first word of its letters' names in Unicode.

    >>> sorted(scripts("What is 天气 in English?")), sorted(scripts("巴黎天气 Paris 怎么样"))
    (['latin'], ['cjk', 'latin'])
    """
    letters = [char for char in text[:MOST_CHARACTERS] if char.isalpha()]
    if text.isascii():
        return frozenset(["latin"] if letters else [])
    counted = Counter(
        unicodedata.name(char, "unknown").split(" ", 1)[0].lower() for char in letters
    )
    return frozenset(
        script
        for script, count in counted.items()
        if count >= LEAST_SHARE * len(letters)
    )
