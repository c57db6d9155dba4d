"""Invisible characters: zero-width ones, selectors, fillers, and those that reorder or cover their neighbours.

Texts that differ only in such characters look alike to a person but not to a machine. Prompts show them escaped;
redaction and comparisons of names ignore them; no new name of a run, a tenant, a queue or a person may hold one.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from handrail.errors import ConfigError

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


def check_name(setting: str, name: object) -> str:
    r"""Return a name of a run, a tenant or a queue; refuse what cannot be one.

    A list shows a name as it is, and two names do not differ only in what nobody sees: a name has no control characters
    or ends of lines, nothing that is invisible or reorders its neighbours, and no spaces but the plain one and the wide
    one. Letters of different scripts may look alike.

    >>> check_name("queue", "mail\n")
    Traceback (most recent call last):
    ...
    handrail.errors.ConfigError: queue is 'mail\n'; a name cannot contain \x0a, which is invisible or misleading

    Args:
        setting: What the name was given as, for the message.

    Raises:
        ConfigError: It is no text, it is blank, or it holds such a character.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{setting} is {_show(name)}; it takes a name")
    if name.isascii() and name.isprintable():
        return name  # nearly always
    for place, char in enumerate(name):
        if misleads(char) and not (char == _AS_PICTURE and _is_picture(name, place)):
            raise ConfigError(
                f"{setting} is {_show(name)}; a name cannot contain {_escape(char)}, which is "
                "invisible or misleading"
            )
    return name


def check_person(setting: str, name: object) -> str:
    """Return the name of a person who decides; see `check_name`. Spaces at an end would make two people of one.

    Raises:
        ConfigError: It is no name, or it begins or ends with a space.
    """
    checked = check_name(setting, name)
    if checked != checked.strip(" " + _WIDE_SPACE):
        raise ConfigError(
            f"{setting} is {_show(name)}; a person's name cannot begin or end with a space"
        )
    return checked


def _show(name: object) -> str:
    shown = printable(repr(name))
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."


_MOST_SHOWN = 100
"""How many characters of a refused name a message shows."""


def _is_picture(name: str, place: int) -> bool:
    """Whether the selector at a place stands behind a symbol, which it turns into an emoji."""
    return place > 0 and unicodedata.category(name[place - 1]) == "So"


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


# ---------------------------------------------------------------------- what a model reads

_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
"""Control characters, but for the tab and the ends of lines."""

_HIDDEN = (
    f"[{_CONTROLS}"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What no reader sees: characters that show nothing, reorder their neighbours, or steer a terminal."""

_SEQUENCE = r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\))"
"""An order to a terminal (ECMA-48): colours and cursor, and the longer ones that set a title or make a link."""

_ASCII_CONTROLS = bytes(code for code in (*range(32), 127) if chr(code) not in "\t\n\r")


@cache
def _hidden_pattern() -> re.Pattern[str]:
    return re.compile(_HIDDEN)


def is_clean(text: str) -> bool:
    """Whether a text holds no hidden character; see `remove_hidden`."""
    if not text.isascii():
        # one search: nearly every text ends there, and this is on the way of each result
        if _hidden_pattern().search(text) is None:
            return True
        return not any(_counts(match) for match in _hidden_pattern().finditer(text))
    if text.isprintable():
        return True
    line = text.encode()
    return len(line.translate(None, _ASCII_CONTROLS)) == len(line)


def remove_hidden(text: str) -> tuple[str, int]:
    """Return a text without the characters that a person does not see in it, and how many there were.

    These are control characters but for tabs and line ends, with the orders to a terminal that they begin; characters
    of no width, that reorder, and that fill; tags, and variation selectors. A text in them is an order to a model that
    nobody else reads. Joiners stay between letters that they join and in emoji, and so does the selector that asks for
    one.

    >>> remove_hidden("bill\\U000e0041\\u200b\\x1b[2J"), remove_hidden("\\u2764\\ufe0f ok\\n")
    (('bill', 6), ('\\u2764\\ufe0f ok\\n', 0))
    """
    if is_clean(text):
        return text, 0
    shown = text
    if "\x1b" in text:
        shown = _compiled(_SEQUENCE).sub("", text)
    shown = _compiled(_HIDDEN).sub(_without, shown)
    return shown, len(text) - len(shown)


def _without(match: re.Match[str]) -> str:
    return "" if _counts(match) else match[0]


def _counts(match: re.Match[str]) -> bool:
    """Whether a character that may be hidden is hidden at this place."""
    char = match[0]
    start = match.start()
    before = match.string[start - 1 : start] if start else ""
    after = match.string[match.end() : match.end() + 1]
    if char == _AS_PICTURE:
        return not before or _compiled(_HIDDEN).match(before) is not None
    if char not in _JOINERS or not before or not after:
        return True
    if _is_joined(before) and _is_joined(after):
        return False
    is_emoji = unicodedata.category(after) == "So" and (
        before == _AS_PICTURE or unicodedata.category(before) in ("So", "Sk")
    )
    return not (is_emoji and char == _JOIN)


_JOIN = "\u200d"
_JOINERS = ("\u200c", _JOIN)


def _is_joined(char: str) -> bool:
    """Whether a letter is of a script that is written with joiners: from Arabic to Malayalam and Sinhala."""
    return "\u0600" <= char <= "\u0dff" and unicodedata.category(char)[0] in "LM"


_DATA = ("enum", "const", "default", "examples")


def clean_schema(schema: Any) -> Any:
    """Return a JSON Schema whose titles and descriptions hold no hidden characters; what is data stays as it is."""
    if isinstance(schema, Mapping):
        return {name: _clean_under(name, part) for name, part in schema.items()}
    if isinstance(schema, list):
        return [clean_schema(part) for part in schema]
    return schema


def _clean_under(name: str, part: Any) -> Any:
    if name in ("title", "description") and isinstance(part, str):
        return clean(part)
    return part if name in _DATA else clean_schema(part)


def clean(text: str) -> str:
    """Return a text without hidden characters."""
    return remove_hidden(text)[0]


def clean_json(value: Any) -> Any:
    """Return a JSON value without hidden characters in its texts and names.

    Where names of one object differ in nothing else they are shown escaped: no value is lost.

    >>> clean_json({"id": 1, "id\u200b": 2})
    {'id': 1, 'id\\\\u200b': 2}
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        once = Counter(clean(str(name)) for name in value)
        shown: dict[str, Any] = {}
        for name, part in value.items():
            text = clean(str(name))
            if once[text] > 1:
                text = printable(str(name))
            while text in shown:  # somebody wrote the escape itself
                text += "_"
            shown[text] = clean_json(part)
        return shown
    if isinstance(value, (list, tuple)):
        return [clean_json(part) for part in value]
    return value
