"""Finding out which name was meant: nearest names for a suggestion, and the name under a model's wrappings.

Rule 1: a name is resolved only by removing what cannot be a part of it (template tokens, wire prefixes); a name that
        merely resembles a tool's is suggested, never run by guess.
Rule 2: what is compared is cut to a bounded length and number first: a name of a megabyte costs nothing, and a hundred
        thousand names cost milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice

MOST_COMPARED = 100
"""Characters of a name that are compared; longer names differ early or are no names."""

MOST_SCORED = 200
"""Names that are compared in full."""

MOST_LOOKED_AT = 20_000
"""Names that are looked at at all."""

MOST_PAIRS = 30
"""Pairs of neighbouring letters by which many names are chosen from."""

LIKENESS = 0.6
"""The least likeness of a suggestion, from 0 to 1; difflib's own default."""

_TOKEN = re.compile(
    r"<\|[^<>|]{1,40}\|>"  # <|channel|>, <|constrain|>: harmony, ChatML, Llama
    r"|<｜[^<>｜]{1,40}｜>"  # DeepSeek writes the same with full-width bars
    r"|\[/?[A-Z_]{3,30}\]"  # [ARGS], [CALL_ID], [TOOL_CALLS]: Mistral
    r"|</?(?:tool_call|function_call|function|tool|invoke|parameter)\b[^<>]{0,80}>"
)
_WRAPPINGS = (
    re.compile(r"^.*\bto="),  # harmony: `commentary to=functions.get_weather`
    re.compile(r"^(?:functions?|tools?|default_api)[.:/]"),  # harmony, Kimi, Gemini
    re.compile(r":\d+$"),  # Kimi counts the calls: `functions.get_weather:0`
    re.compile(r"\(\)$"),
)
_QUOTES = " \t\r\n\"'`"


def resolve_name(raw: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that `raw` is without its wrappings, or None.

    >>> resolve_name("functions.get_weather:0", ["get_weather"])
    'get_weather'
    >>> resolve_name("create_event<|channel|>analysis", ["create_event"])
    'create_event'
    >>> resolve_name("tool:execute_terminal", ["terminal"]) is None
    True
    """
    if not isinstance(names, Mapping | Set):
        names = set(names)
    if raw in names:
        return raw
    for piece in _TOKEN.split(raw[: 10 * MOST_COMPARED]):
        spelling = piece.strip(_QUOTES)
        if spelling in names:
            return spelling
        for wrapping in _WRAPPINGS:
            spelling = wrapping.sub("", spelling).strip(_QUOTES)
            if spelling in names:
                return spelling
        if spelling:
            # only the first piece with text names the tool; what follows a token is not a name
            return None
    return None


def nearest(name: str, names: Iterable[str], *, most: int = 3) -> list[str]:
    """Return up to `most` of `names` that `name` may have been meant to be, best first.

    Case, `_`, `-`, `.` and spaces do not count. A name whose words are all in another's is near it, however long
    that is: `date` is near `start_date`.
    """
    wanted = _plain(name)
    if not wanted:
        return []
    words = set(_words(name))
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    scored = []
    for candidate in _choose_promising(wanted, list(islice(names, MOST_LOOKED_AT))):
        matcher.set_seq1(_plain(candidate))
        score = _score(matcher)
        if score < LIKENESS and _one_holds_the_other(words, set(_words(candidate))):
            score = LIKENESS
        if score >= LIKENESS:
            scored.append((-score, candidate))
    return [candidate for _, candidate in sorted(scored)[:most]]


def advise(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return the end of a sentence about a name that there is not: what was meant, or something else to say."""
    near = nearest(name, names, most=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def _score(matcher: SequenceMatcher[str]) -> float:
    """Return how alike two texts are, from 0 to 1; 0 for what the quick upper bounds put below `LIKENESS`."""
    if matcher.real_quick_ratio() < LIKENESS or matcher.quick_ratio() < LIKENESS:
        return 0.0
    return matcher.ratio()


def _choose_promising(wanted: str, names: Sequence[str]) -> Sequence[str]:
    """Return the names that are worth a comparison: all of a few, of many those with most pairs of letters in common.

    A comparison takes some 60 microseconds, a look for pairs one; the callers sit on an event loop.
    """
    if len(names) <= MOST_SCORED:
        return names
    pairs = {wanted[at : at + 2] for at in range(min(len(wanted), MOST_PAIRS))}

    def count_common(name: str) -> int:
        return sum(map(name[:MOST_COMPARED].casefold().__contains__, pairs))

    return nlargest(MOST_SCORED, names, key=count_common)


def _one_holds_the_other(words: set[str], others: set[str]) -> bool:
    shorter, longer = sorted((words, others), key=len)
    return bool(shorter) and shorter <= longer


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name[:MOST_COMPARED]).casefold()


def _words(name: str) -> list[str]:
    """Split `getUser_name` into get, user, name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name[:MOST_COMPARED])
    return [word.casefold() for word in re.split(r"[\W_]+", spaced) if word]
