"""How values are written in a call: as JSON, as Python's literals, as Gemma's, or as bare text.

A `TextForm` says how a string is written. A `Notation` is such a form with the words and signs around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from handrail.errors import Json
from handrail_openmodels.grammars.expressions import (
    EMPTY,
    NOTHING,
    Characters,
    Expression,
    Literal,
    Range,
    TextUntil,
    characters,
    choice,
    repeat,
    sequence,
    subtract_ranges,
    token,
)
from handrail_openmodels.grammars.patterns import parse_pattern
from handrail_openmodels.prompts.literal_calls import PYTHON_QUOTES, LiteralCalls

_EVERY: tuple[Range, ...] = ((0, 0xD7FF), (0xE000, 0x10FFFF))
_CONTROL: Range = (0, 0x1F)
_WORD = re.compile(r"[^\W\d][\w\-]*")


class TextForm(Struct, frozen=True):
    """How a string is written.

    Attributes:
        opens, closes: Around it.
        banned: The characters that cannot stand in it as they are.
        escapes: How some of those are written instead.
        escaped: Further escapes that a model may write, such as `\\u4f60`.
        until: Any text with its end, where no escape is needed for it: all but the mark that closes it.
        quote: Returns a string between `opens` and `closes`, or None where it cannot be written.
    """

    opens: str
    closes: str
    banned: tuple[Range, ...]
    escapes: Mapping[str, str]
    escaped: Expression
    until: TextUntil | None
    quote: Callable[[str], str | None]

    def any_text(self) -> Expression:
        """Return any string."""
        if self.until:
            return sequence(Literal(self.opens), self.until)
        return self.counted(0, None)

    def counted(self, least: int, most: int | None) -> Expression:
        """Return the strings of so many characters."""
        return self.wrap(repeat(self.character, least, most))

    def matching(self, pattern: str) -> Expression:
        """Return the strings in which a pattern is found.

        Raises:
            NotRegular: No grammar can say the pattern.
        """
        anything = repeat(self.character)
        return self.wrap(parse_pattern(pattern, self.one_of, anything))

    def literal(self, text: str) -> Expression:
        """Return that string; nothing where it cannot be written."""
        quoted = self.quote(text)
        if quoted is None:
            return NOTHING
        return Literal(f"{self.opens}{quoted}{self.closes}")

    def wrap(self, inside: Expression) -> Expression:
        """Return the string as one word."""
        return token(Literal(self.opens), inside, Literal(self.closes))

    @property
    def character(self) -> Expression:
        """One character as it is written, escaped or not."""
        plain = Characters(self.banned, negated=True)
        return choice([plain, *map(Literal, self.escapes.values()), self.escaped])

    def one_of(self, ranges: tuple[Range, ...]) -> Expression:
        """Return one character of these ranges as it is written."""
        plain = subtract_ranges(ranges, self.banned)
        escapes = [
            Literal(written)
            for character, written in self.escapes.items()
            if any(first <= ord(character) <= last for first, last in ranges)
        ]
        return choice([Characters(plain) if plain else NOTHING, *escapes])


class Notation(Struct, frozen=True):
    """How values are written.

    Attributes:
        text: How a string is written.
        comma, colon: Between the members of an object.
        words: The true, the false and the empty value.
        key: Returns how an object's key is written, or None where it cannot be.
        any_key: Any key with what ends it.
        name: Part of the names of rules.
    """

    name: str
    text: TextForm
    comma: str
    colon: str
    words: Mapping[Json, str]
    key: Callable[[str], str | None]
    any_key: Expression

    def literal(self, value: Json) -> Expression:
        """Return that value; nothing where it cannot be written."""
        if isinstance(value, str):
            return self.text.literal(value)
        if value is None or isinstance(value, bool):
            return Literal(self.words[value])
        if isinstance(value, Mapping):
            return self._object(value)
        if isinstance(value, list | tuple):
            items = [self.literal(each) for each in value]
            return sequence(Literal("["), *self._join(items), Literal("]"))
        return Literal(json.dumps(value))

    def _object(self, value: Mapping[str, Json]) -> Expression:
        keys = [self.key(key) for key in value]
        if None in keys:
            return NOTHING
        members = [
            sequence(Literal(f"{key}{self.colon}"), self.literal(each))
            for key, each in zip(keys, value.values(), strict=True)
        ]
        return sequence(Literal("{"), *self._join(members), Literal("}"))

    def _join(self, parts: list[Expression]) -> list[Expression]:
        return [
            each
            for number, part in enumerate(parts)
            for each in ((Literal(self.comma), part) if number else (part,))
        ]


# ---------------------------------------------------------------------- JSON

_HEXADECIMAL = Characters(((48, 57), (65, 70), (97, 102)))
_UNICODE = sequence(
    Literal("\\u"),
    choice(
        [
            # not the halves of a character, which are no character alone
            sequence(
                Characters(((48, 57), (65, 67), (69, 70), (97, 99), (101, 102))),
                repeat(_HEXADECIMAL, 3, 3),
            ),
            sequence(
                characters("dD"), Characters(((48, 55),)), repeat(_HEXADECIMAL, 2, 2)
            ),
        ]
    ),
)
_JSON_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_JSON_TEXT: Final = TextForm(
    '"',
    '"',
    (_CONTROL, (34, 34), (92, 92)),
    _JSON_ESCAPES,
    choice([Literal("\\/"), _UNICODE]),
    None,
    lambda text: _json_text(text)[1:-1],
)
_JSON_WORDS: Mapping[Json, str] = {True: "true", False: "false", None: "null"}
JSON: Final = Notation(
    "json", _JSON_TEXT, ", ", ": ", _JSON_WORDS, _json_text, _JSON_TEXT.counted(0, None)
)

# ---------------------------------------------------------------------- Python

_PYTHON_ESCAPES = {
    "'": "\\'",
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def _python_inside(text: str) -> str | None:
    written = repr(text)
    if written[0] == "'":
        return written[1:-1]
    return written[1:-1].replace("'", "\\'").replace('\\"', '"')


_PYTHON_TEXT: Final = TextForm(
    "'",
    "'",
    (_CONTROL, (39, 39), (92, 92)),
    _PYTHON_ESCAPES,
    NOTHING,
    None,
    _python_inside,
)
PYTHON: Final = Notation(
    "python",
    _PYTHON_TEXT,
    ", ",
    ": ",
    {True: "True", False: "False", None: "None"},
    repr,
    _PYTHON_TEXT.counted(0, None),
)

# ---------------------------------------------------------------------- text as it is


def bare_text(
    opens: str, closes: str, mark: str, *, without: tuple[str, ...] = ()
) -> TextForm:
    """Return the form of strings that are written as they are, up to a mark.

    Args:
        closes: What ends the string, with the mark at its end.
        mark: Is in no string.
    """

    def quote(text: str) -> str | None:
        is_safe = not any(each in text for each in (mark, *without))
        return text if is_safe and not _ends_inside(text, mark) else None

    start = mark.lstrip("\n")[0]
    inside = () if closes == mark else (mark,)
    return TextForm(
        opens,
        closes,
        # Where characters are counted, the first one of the mark is left out: nothing can then begin it.
        ((ord(start), ord(start)),),
        {},
        NOTHING,
        TextUntil(closes, (*inside, *without)),
        quote,
    )


def _ends_inside(text: str, mark: str) -> bool:
    """Whether the text and the mark after it hold the mark before the end of both."""
    return (text + mark).find(mark) < len(text)


def notation_of(call_format: LiteralCalls) -> Notation:
    """Return how a format with literals writes values."""
    if call_format.quotes == PYTHON_QUOTES:
        return PYTHON
    quote = call_format.quotes[-1]
    # The marks of a section end a string that holds them, and the call.
    section = (*call_format.starts, *call_format.ends)
    text = bare_text(quote, quote, quote, without=section)

    def key(name: str) -> str | None:
        if _WORD.fullmatch(name):
            return name
        return None if quote in name else f"{quote}{name}{quote}"

    words = Characters(((48, 57), (65, 90), (95, 95), (97, 122)))
    letters = Characters(((65, 90), (95, 95), (97, 122)))
    any_key = token(letters, repeat(words, 0, None), EMPTY)
    return Notation(
        f"quoted_{_legible(quote)}", text, ",", ":", _JSON_WORDS, key, any_key
    )


def _legible(quote: str) -> str:
    return re.sub(r"\W", "", quote) or "mark"


def is_word(name: str) -> bool:
    """Whether a name can stand for an argument in Python's form of a call."""
    return _WORD.fullmatch(name) is not None
