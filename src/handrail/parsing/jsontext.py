"""What a model wrote as the arguments of a call, read as one JSON object or refused.

Strict JSON is read strictly and fast (`strictjson`). Any other text goes to a tolerant reader (`json_repair`), which
names each deviation that it met; this module decides which of them are welcome. A *lossless* one leaves exactly one
reading of the text and suits every tool; a *lossy* one is a good guess, fit for reads only.

Rule 1: a call counts only after a clean end. A cut answer, or text in which something is still open, is never closed.
Rule 2: where two readings are possible, the text is refused: NaN, duplicate keys, a quote that may or may not end a
        string, two objects in a row.
Rule 3: nothing is repaired silently: every deviation is listed in `REPAIRS`, and in `Parsed.repairs` of the call.
Rule 4: `parse` never raises; what is wrong with the text is reported to the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from handrail import _lazy
from handrail.errors import Code, Failure, Json
from handrail.messages import Finish
from handrail.parsing.strictjson import NotJson, loads, quote_excerpt

if TYPE_CHECKING:
    from handrail.parsing import json_repair
else:
    json_repair = _lazy.module("handrail.parsing.json_repair")

__all__ = ["REPAIRS", "NotJson", "Parsed", "Repair", "loads", "parse", "split"]


class Repair(Struct, frozen=True):
    """A deviation from JSON that the reader can accept: `lossless` when it leaves one reading of the text."""

    lossless: bool
    what: str


_LOSSLESS = True
_LOSSY = False
REPAIRS: Final[Mapping[str, Repair]] = MappingProxyType(
    {
        "empty_text": Repair(_LOSSLESS, "no text at all, which means no arguments"),
        "byte_order_mark": Repair(_LOSSLESS, "a byte order mark before the text"),
        "unusual_space": Repair(_LOSSLESS, "white space that JSON does not know"),
        "code_fence": Repair(_LOSSLESS, "a code fence around the object"),
        "doubly_encoded": Repair(
            _LOSSLESS, "the object written as a string that holds its JSON text"
        ),
        "trailing_comma": Repair(_LOSSLESS, "a comma after the last member"),
        "leading_comma": Repair(
            _LOSSLESS, "a comma before the first member of an object"
        ),
        "comment": Repair(_LOSSLESS, "a comment, `//` or `/* */`"),
        "single_quotes": Repair(_LOSSLESS, "single quotes around a string"),
        "typographic_quotes": Repair(
            _LOSSLESS, "typographic or full-width quotes around a string"
        ),
        "full_width": Repair(_LOSSLESS, "full-width punctuation between values"),
        "python_literal": Repair(_LOSSLESS, "True, False or None"),
        "unquoted_key": Repair(_LOSSLESS, "a name without quotes"),
        "control_character": Repair(
            _LOSSLESS, "a line break or other control character inside a string"
        ),
        "literal_key": Repair(_LOSSY, "a number or literal where a name belongs"),
        "backtick_quotes": Repair(_LOSSY, "backticks around a string"),
        "escaped_apostrophe": Repair(_LOSSY, "a backslash before an apostrophe"),
        "unescaped_quote": Repair(
            _LOSSY, "a quote inside a string that is not escaped"
        ),
        "unquoted_value": Repair(_LOSSY, "a text value without quotes"),
        "number_form": Repair(_LOSSY, "a number in a form that JSON does not know"),
        "missing_comma": Repair(_LOSSY, "no comma between two members"),
        "extra_comma": Repair(_LOSSY, "a comma that separates nothing"),
        "missing_colon": Repair(_LOSSY, "no colon between a name and its value"),
        "ellipsis": Repair(_LOSSY, "dots in place of members"),
        "hash_comment": Repair(_LOSSY, "a comment that begins with `#`"),
        "double_braces": Repair(_LOSSY, "a second pair of braces around an object"),
        "wrong_bracket": Repair(_LOSSY, "a closing bracket of the other kind"),
        "escaped_space": Repair(
            _LOSSY, "a line break or tab written as `\\n` or `\\t` between values"
        ),
        "escaped_quotes": Repair(
            _LOSSY, "a backslash before each of the quotes around a string"
        ),
        "escaped_text": Repair(
            _LOSSY, "the whole object escaped as if inside a string"
        ),
        "open_fence": Repair(_LOSSY, "a code fence that is not closed"),
        "call_wrapper": Repair(_LOSSY, "a function call around the object"),
        "text_before": Repair(_LOSSY, "words before the object"),
        "text_after": Repair(_LOSSY, "words after the object"),
        "stray_brackets": Repair(_LOSSY, "closing brackets after the object"),
        "identical_repeats": Repair(_LOSSY, "the same object several times in a row"),
    }
)
"""Every repair by name: the one list that documents, counts and permits them."""


class Parsed(Struct):
    """The arguments of a call, and the names of the repairs that reading them took, in the order of the text."""

    value: dict[str, Json]
    repairs: tuple[str, ...] = ()

    @property
    def lossy(self) -> bool:
        """Whether the value is a guess: good enough to look something up, not to change something."""
        return any(not REPAIRS[name].lossless for name in self.repairs)


def parse(
    text: str,
    finish: Finish = "calls",
    allow_repair: bool = True,
    *,
    lossy: bool = True,
) -> Parsed | Failure:
    """Read the arguments of a call, or say why not, to the model. Never raises.

    Args:
        finish: How the model ended. After anything but `stop` and `calls` the text may be part of a longer one, so it
            is refused even where it looks complete.
        allow_repair: False refuses all but strict JSON; then empty text is refused as well.
        lossy: Whether guesses are welcome. False is for writes.
    """
    if finish not in CLEAN_ENDS:
        return Failure(
            Code.TRUNCATED_CALL,
            f"The answer ended early ({finish}); the call may be incomplete.",
            _WHOLE,
        )
    try:
        if type(value := loads(text)) is dict:
            return Parsed(value)
        refusal = NotJson("not_an_object", "arguments must be a JSON object", 0)
    except NotJson as error:
        refusal = error
    if len(text) > json_repair.MAX_REPAIRED_CHARS:
        return _refuse(text, refusal)
    try:
        value, repairs = json_repair.repair(text)
    except NotJson as error:
        return _refuse(text, error)
    for name, offset in repairs.items():
        if not allow_repair or not (lossy or REPAIRS[name].lossless):
            return _refuse(
                text, NotJson("syntax", f"found {REPAIRS[name].what}", offset)
            )
    return Parsed(value, tuple(repairs))


def split(text: str, finish: Finish = "calls") -> list[str] | None:
    """Return the texts of objects glued together, `{..}{..}`, one for each call that was meant; None for other text.

    Only white space may separate the objects, which must be strict. Equal ones count once: they are an artefact of
    streams far more often than a wish. An empty object beside others is an artefact as well, but which call it belongs
    to is unknown, so the answer is None.
    """
    if finish not in CLEAN_ENDS or len(text) > json_repair.MAX_REPAIRED_CHARS:
        return None
    texts: dict[str, str] = {}
    count = 0
    end = 0
    while black := _NOT_SPACE.search(text, end):
        begin = black.start()
        try:
            end = _FIND_END.raw_decode(text, begin)[1]
            value = loads(text[begin:end])
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        texts.setdefault(json.dumps(value, sort_keys=True), text[begin:end])
        count += 1
    if count < 2 or ("{}" in texts and len(texts) > 1):
        return None
    return list(texts.values())


_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_FIND_END: Final = json.JSONDecoder()
CLEAN_ENDS: Final = frozenset({"stop", "calls"})
_STRICTLY: Final = (
    "Call again with one strict JSON object and nothing around it: double quotes around names and texts, "
    '`\\n` and `\\"` escaped inside them, commas between members.'
)
_WHOLE: Final = "Call again with the whole arguments; if they are long, split the work into several smaller calls."
_SUGGESTIONS: Final = {
    "open": _WHOLE,
    "non_finite": "Call again with a finite number, or leave the argument out.",
    "duplicate_key": "Call again with each name once.",
    "lone_surrogate": "Call again with the character itself, or without it.",
    "too_deep": "Call again with flatter arguments.",
    "too_many_digits": "Call again with a shorter number, or with the digits as a string.",
    "too_long": _WHOLE,
    "not_an_object": 'Call again with an object that names each argument, for example {"name": "value"}.',
    "glued": "Make one call for each object.",
    "outside": "Call again with every argument inside the one object, and nothing beside it.",
}


def _refuse(text: str, error: NotJson) -> Failure:
    if error.reason == "open":
        code = Code.TRUNCATED_CALL
        intro = "The arguments end too early"
    else:
        code = Code.BAD_JSON
        intro = "The arguments cannot be read"
    return Failure(
        code,
        f"{intro}: {error}{_describe_location(text, error.offset)}.",
        _SUGGESTIONS.get(error.reason, _STRICTLY),
    )


def _describe_location(text: str, offset: int | None) -> str:
    """Say where, as an editor counts and as a program counts, and what is there."""
    if offset is None:
        return ""
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    found = "the end"
    if offset < len(text):
        found = quote_excerpt(text[offset : offset + 20])
    return f", at line {line}, column {column} (offset {offset}), where {found} stands"
