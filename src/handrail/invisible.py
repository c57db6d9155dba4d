"""Invisible characters: zero-width ones, selectors, fillers, and those that reorder or cover their neighbours.

Texts that differ only in such characters look alike to a person but not to a machine. Prompts show them escaped;
redaction and comparisons of names ignore them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache
from typing import Any

_compiled = cache(re.compile)  # when first needed

UNSEEN = (
    "\u0080-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The characters of `is_unseen` beyond ASCII, for a class of a pattern: control and format characters,
Default_Ignorable_Code_Point of Unicode, and the Braille pattern without dots."""

_IGNORABLE = f"[{UNSEEN}]"

_OVERLAY = "[\u0334-\u0338\u20d2\u20d3\u20d8-\u20da\u20e5\u20e6\u20ea\u20eb\U0001d167-\U0001d169]"
"""Drawn across the letter before it, which then looks like another letter or cannot be read."""

_UNPRINTED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control, format, surrogate, and the two separators that end a line."""

_AS_PICTURE = "\ufe0f"
"""Asks for the emoji form of the character before it; common in texts of models."""

_WIDE_SPACE = "\u3000"
"""The space of Chinese and Japanese text, as wide as a letter: it looks like no other."""


def is_unseen(char: str) -> bool:
    """Whether nothing is shown for a character, nor any space."""
    return (
        unicodedata.category(char) in ("Cf", "Cc")
        or _compiled(_IGNORABLE).match(char) is not None
    )


def hides(char: str) -> bool:
    """Whether a terminal may show nothing for a character, or move or hide its neighbours.

    >>> [hides(char) for char in ("a", "\\u3164", "\\u202e", "\\ufe0f", "\\u00a0")]
    [False, True, True, False, False]
    """
    if char == _AS_PICTURE:
        return False
    return (
        unicodedata.category(char) in _UNPRINTED
        or _compiled(_IGNORABLE + "|" + _OVERLAY).match(char) is not None
    )


def misleads(char: str) -> bool:
    """Whether a text with this character may look like one without it, or be shown in another order.

    >>> [misleads(char) for char in ("a", "\\u00e9", "\\u3164", "\\u202e", "\\u00a0")]
    [False, False, True, True, True]
    """
    if hides(char) or char == _AS_PICTURE:
        return True
    category = unicodedata.category(char)
    return category in ("Co", "Cn") or (
        category == "Zs" and char not in (" ", _WIDE_SPACE)
    )


def printable(text: str, keep: str = "") -> str:
    """Return text that a terminal shows as it is: what would move the cursor, hide or reorder text is escaped.

    >>> printable("rm \\x1b[2K file")
    'rm \\\\x1b[2K file'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(char) if char not in keep and hides(char) else char for char in text
    )


def json_text(value: Any, indent: int | None = None) -> str:
    """Return JSON, readable in any language, that a terminal shows as it is: the same JSON, with more of it escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _compiled(_NOT_PLAIN).sub(_in_json, text)


_NOT_PLAIN = r"[^\n\x20-\x7e\u3001-\u312f\u4e00-\u9fff\uff01-\uff5e]"
"""Characters that need a closer check; most texts have none."""


def _in_json(match: re.Match[str]) -> str:
    char = match[0]
    if char == "\x7f":
        return f"\\u{ord(char):04x}"
    if hides(char):
        return json.dumps(char)[1:-1]
    return char


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
