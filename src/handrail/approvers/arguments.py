"""How a call's arguments are shown to the person who approves it: with nothing hidden, and the destination in sight.

A model wrote the arguments, perhaps following a page that it read. Two different addresses may look alike, and a long
text may push the address off the screen.

Rule 1: every character is distinguishable: invisible, overlapping and reordering characters are escaped.
Rule 2: arguments that name a destination come last, next to the question.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from secrets import token_hex

from handrail.errors import Json
from handrail.invisible import misleads

_LONGEST_TEXT = 1200
_HEAD = 800
_TAIL = 200
_MOST_PARTS = 40
_FIRST_PARTS = 25
_LAST_PARTS = 10
_MOST_WARNINGS = 3
_LOOKED_AT = 10_000

_DESTINATION = (
    r"(?i)(?:^|[_\-.]|(?<=[a-z])(?=[A-Z]))(?:to|cc|bcc|recipients?|participants?|attendees|e?mails?|address(?:es)?"
    r"|url|uri|link|host|domain|server|endpoint|webhook|user(?:name|_?id)?|account|channel|iban|phone|number|namespace)$"
)
"""Names of arguments that say where something goes."""

_ALIKE = {
    "LATIN",
    "CYRILLIC",
    "GREEK",
    "ARMENIAN",
    "CHEROKEE",
    "COPTIC",
    "LISU",
    "FULLWIDTH",
    "MATHEMATICAL",
}
"""Scripts with letters that look like those of another one."""


def exact(arguments: Json) -> str:
    """Return the arguments as JSON that is safe to show: the same value, with more characters escaped."""
    text = json.dumps(arguments, ensure_ascii=False, indent=2)
    return "".join(
        json.dumps(char)[1:-1] if char != "\n" and misleads(char) else char
        for char in text
    ).replace("\x7f", "\\u007f")


def in_short(arguments: Mapping[str, Json]) -> str:
    """Return the arguments as `exact` does, with destinations last, and long values cut to both ends and their size."""
    cuts: dict[str, str] = {}
    nonce = token_hex(8)

    def mark(shown: str) -> str:
        place = f"{nonce} {len(cuts)}"
        cuts[json.dumps(place)] = shown
        return place

    def shorten(value: Json) -> Json:
        if isinstance(value, str) and len(value) > _LONGEST_TEXT:
            left = len(value) - _HEAD - _TAIL
            return mark(
                f"{_quote(value[:_HEAD])} ... {left:,} more characters ... {_quote(value[-_TAIL:])}"
            )
        if isinstance(value, list):
            left = len(value) - _FIRST_PARTS - _LAST_PARTS
            if len(value) <= _MOST_PARTS:
                return [shorten(each) for each in value]
            ends = [
                shorten(each) for each in (*value[:_FIRST_PARTS], *value[-_LAST_PARTS:])
            ]
            return [
                *ends[:_FIRST_PARTS],
                mark(f"... {left:,} more ..."),
                *ends[_FIRST_PARTS:],
            ]
        if isinstance(value, Mapping):
            return {name: shorten(each) for name, each in value.items()}
        return value

    ordered = sorted(
        arguments.items(), key=lambda pair: re.search(_DESTINATION, pair[0]) is not None
    )
    text = exact({name: shorten(value) for name, value in ordered})
    for place, shown in cuts.items():
        text = text.replace(place, shown)
    return text


def warnings(arguments: Mapping[str, Json]) -> list[str]:
    """Return a sentence for each word that mixes letters of look-alike scripts, three at most."""
    found = (
        f"{_quote(word)} mixes {' and '.join(scripts)} letters."
        for text in _texts(arguments)
        for word in re.findall(r"[^\W\d_]{2,}", text[:_LOOKED_AT])
        if not word.isascii() and len(scripts := _scripts(word)) > 1
    )
    return [
        sentence
        for _, sentence in zip(
            range(_MOST_WARNINGS), dict.fromkeys(found), strict=False
        )
    ]


def _quote(text: str) -> str:
    return exact({"": text})[len('{\n  "": ') : -len("\n}")]


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield name
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _scripts(word: str) -> list[str]:
    """Return the Unicode names of the look-alike scripts that a word's letters belong to."""
    names = {unicodedata.name(char, "").partition(" ")[0] for char in word}
    return sorted(script.capitalize() for script in names.intersection(_ALIKE))
