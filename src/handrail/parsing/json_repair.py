"""A tolerant reader for what a model meant as one JSON object.

It knows the grammar of JSON and a few named deviations, and returns the object with the name and place of each that it
met. It judges none of them: `jsontext.REPAIRS` says which leave one reading and which are guesses.

Rule 1: whatever is still open at the end stays open (`NotJson` with reason `open`); nothing is ever closed here.
Rule 2: where two readings are possible, the text is refused.
Rule 3: a deviation is accepted in one place, which notes its name.
Rule 4: the reader goes back by one string at most, so that time grows with the length of the text and no faster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from handrail.errors import Json
from handrail.parsing.strictjson import (
    MAX_DEPTH,
    NotJson,
    as_float,
    as_integer,
    loads,
    quote_excerpt,
    refuse_surrogates,
)

MAX_REPAIRED_CHARS: Final = 256 * 1024
"""Longer text is for the strict reader alone: this one needs up to three seconds for 1 MB."""


def repair(text: str) -> tuple[dict[str, Json], Mapping[str, int]]:
    """Read the one object that `text` is meant to be; return it with the names and offsets of its deviations.

    Text longer than `MAX_REPAIRED_CHARS` is not for this reader; the caller sees to that.

    Raises:
        NotJson: There is no object, more than one, or more than one way to read it.
    """
    reader = _TolerantReader(text)
    try:
        value = reader.read_arguments()
        refuse_surrogates(value)
    except RecursionError:
        raise NotJson(
            "too_deep", f"more than {MAX_DEPTH} brackets are nested"
        ) from None
    return value, reader.repairs


_L: Final = r"[^\W\d_]"  # a letter of any script
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ESCAPED_SPACE: Final = re.compile(r"(?:\\[nrt])+")
_ESCAPED_QUOTES: Final = re.compile(r'\\"([^"\\]*+)\\"(?=\s*[,}\]])')
# zero width, so `isspace` does not count them
_INVISIBLE: Final = "\u180e\u200b\u200c\u200d\u2060\ufeff"
_COMMENT: Final = re.compile(r"//[^\r\n]*|#[^\r\n]*|/\*.*?\*/", re.DOTALL)
# What opens like a comment may be the tail of a string that lost a quote; then a quote is in it.
_NO_COMMENT: Final = re.compile(
    r"[\"“”„‟＂‚‛＇「」『』`´]|(?<![^\W\d_])['’‘]|['’‘](?![^\W\d_])"
)
_ELLIPSIS: Final = re.compile(r"\.{3,}|…")
_NAME: Final = re.compile(rf"(?:{_L}|[_$])[\w$.-]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LOOSE_NUMBER: Final = re.compile(
    r"\+?(-?)([0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?(?:[eE][-+]?)?"
)
# 05, 0x1f and 1_000 are numbers in some languages and text in others.
_OTHER_NUMBER: Final = re.compile(
    r"[-+]?(?:0[xob][0-9a-f_]+|0[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]*)?|[0-9]+_[0-9_.]+)",
    re.I,
)
_LITERALS: Final[Mapping[str, Json]] = {"true": True, "false": False, "null": None}
_PYTHON: Final[Mapping[str, Json]] = {"True": True, "False": False, "None": None}
_NO_TEXT: Final = frozenset(("true", "false", "null", "none", "nil", "undefined"))
_NON_FINITE: Final = frozenset(("nan", "inf", "infinity"))

_FULL_WIDTH: Final[Mapping[str, str]] = dict(zip("：，｛｝［］", ":,{}[]", strict=True))
# `12，345` may be one number
_WITHIN_NUMBER: Final = re.compile(r"(?<=[0-9])，(?=[0-9])")
_DOUBLE = "“”„‟＂"
_SINGLE = "‘’‚‛＇"
# opening quote: what may close it, and the repair
_QUOTES: Final[Mapping[str, tuple[str, str]]] = {
    '"': ('"', ""),
    "'": ("'", "single_quotes"),
    **dict.fromkeys(_DOUBLE, (_DOUBLE, "typographic_quotes")),
    **dict.fromkeys(_SINGLE, (_SINGLE, "typographic_quotes")),
    "「": ("」", "typographic_quotes"),
    "『": ("』", "typographic_quotes"),
    **dict.fromkeys("`´", ("`´", "backtick_quotes")),
}
_BODY: Final = {
    closers: re.compile(rf"(?:[^\\{closers}]++|\\.|\\\Z)*+", re.DOTALL)
    for closers, _ in _QUOTES.values()
}
_ESCAPE: Final = re.compile(r"\\(.)|\"", re.DOTALL)
# A string over several lines that lost its closing quote ends at the quote of the next member, or holds that member.
_NEXT_MEMBER: Final = re.compile(
    r"[,:{\[，：｛［][ \t]*+[\r\n]\s*+\Z|,[ \t]*+[\r\n]\s*+\"[^\"\r\n]*+\"\s*+:"
)
_WHITE: Final = rf"[\s{_INVISIBLE}]"
# What follows the quote that ends a string; anything else, and the quote may belong to the text.
_AFTER_STRING: Final = re.compile(
    rf"{_WHITE}*(?:[:,}}\]：，｝］]|\Z|//|/\*|#|\\[nrt](?:\\[nrt]|\s)*+[:,}}\]])"
    rf"|{_WHITE}+[{re.escape(''.join(_QUOTES))}]|{_WHITE}*\n|\"[^\"\\]*\"\s*:"
)
# Quotes that belong to a string: in pairs around words, `say "yes" to it`, or as an apostrophe between two letters.
_PAIR: Final = r'(?<=[^\s,:{\[][\s(])"(?=[^\s"])[^"\\,:{}\[\]\n]*(?<=\S)"(?=[\s.!?;)])'
_WITH_QUOTES: Final = {
    '"': re.compile(rf'"(?:[^"\\]++|\\.|{_PAIR})*+"(?={_WHITE}*[,}}\]])', re.DOTALL),
    "'": re.compile(
        rf"'(?:[^'\\]++|\\.|(?<={_L})'(?={_L}))*+'(?={_WHITE}*[,}}\]])", re.DOTALL
    ),
}
# Text without quotes ends at whatever separates, encloses, quotes or comments; `://` belongs to an address.
_ENDS: Final = r",，\"“”„‟＂「」『』`´\\;\[\]{}()［］｛｝\r\n"
_WORD: Final = re.compile(rf"(?:(?!/\*|(?<!:)//)[^\s{_ENDS}])*")
_BARE: Final = re.compile(rf"(?:(?!/\*|(?<!:)//|(?<=\s)#)[^{_ENDS}])*")
_LONE_APOSTROPHE: Final = re.compile(rf"(?<!{_L})['’‘]|['’‘](?!{_L})")

_FENCE: Final = re.compile(r"`{3,}[ \t]*(?:[\w+-]+(?=\s|[{｛]))?")
_FENCE_END: Final = re.compile(r"\s*`{3,}")
_CALL: Final = re.compile(r"[^\W\d][\w$.]*\s*\((?=\s*[{｛])")
_CALL_END: Final = re.compile(r"\s*\)?\s*;?")
_ESCAPED: Final = re.compile(r'\s*\{(?:\s|\\[nrt])*+\\"')
_OPENING_BRACE: Final = re.compile(r"[{｛]")
_CLOSERS: Final = re.compile(r"[\s\]}]*\Z")
# Words around the object must not be able to hold members that would be lost (brackets, quotes, `b: 2` behind a comma),
# nor be the name of an outer member (`filter: {..}`) or of a function (`callback {..}`), nor be glued to the object.
_BELONGS_TO_IT: Final = re.compile(
    r"(?:\A|[\n,;(])[ \t]*+[\w$.'’-]++\s*+[:=：]\Z|\A[\w$.-]+\Z|[,=]\Z|[\[\]}］｝\"]|/\*"
)
_WORDS_AFTER: Final = re.compile(
    r"(?!\w)\s*+(?![,:=]|['‘]?[\w$.-]+['’]?\s*[:=：])[^{}\[\]｛｝［］\"]*\Z|\s*[,;]\s*\Z"
)
_MEMBER: Final = re.compile(r',\s*"[^"\\]*"\s*:')
_BLURS_THE_END: Final = frozenset(
    ("text_before", "wrong_bracket", "missing_comma", "missing_colon", "ellipsis")
)
_STRING: Final = json.JSONDecoder(strict=False)  # strict=False: raw control characters


class _TolerantReader:
    """One pass over one text, by recursive descent. Every method leaves `pos` behind what it has read."""

    __slots__ = ("continued_after", "depth", "pos", "repairs", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.depth = 0
        self.repairs: dict[str, int] = {}
        # closing brackets that were followed by more members
        self.continued_after: set[str] = set()

    # What a whole text may be

    def read_arguments(self) -> dict[str, Json]:
        """Read one object, with whatever is tolerated around it."""
        # a lone line break is an artefact, not "no arguments"
        if not self.text.strip(" "):
            self.note("empty_text")
            return {}
        if _ESCAPED.match(self.text) and (escaped := _unescape(self.text.strip())):
            self.note("escaped_text")
            return escaped
        self.skip_space()
        closing = self.skip_opening()
        self.skip_space()
        begin = self.pos
        value = self.read_value()
        if closing and (end := closing.match(self.text, self.pos)):
            self.pos = end.end()
        if isinstance(value, str):
            self.note("doubly_encoded", begin)
            value = _load_object(value)
        if not isinstance(value, dict):
            raise NotJson("not_an_object", "arguments must be a JSON object", begin)
        self.check_ending(value)
        return value

    def skip_opening(self) -> re.Pattern[str] | None:
        """Pass over what introduces the object; return what closes it again."""
        if fence := _FENCE.match(self.text, self.pos):
            closed = self.text.rstrip().endswith("```")
            self.note("code_fence" if closed else "open_fence")
            self.pos = fence.end()
            self.skip_space()
            return _FENCE_END
        if call := _CALL.match(self.text, self.pos):
            self.note("call_wrapper")
            self.pos = call.end()
            return _CALL_END
        if self.peek() not in {"{", "[", *_QUOTES}:
            self.skip_words_before()
        return None

    def skip_words_before(self) -> None:
        brace = _OPENING_BRACE.search(self.text, self.pos)
        if not brace:
            raise NotJson("not_an_object", "arguments must be a JSON object", self.pos)
        if _BELONGS_TO_IT.search(self.text[self.pos : brace.start()].rstrip()):
            raise self.make_error("nothing before the object")
        self.note("text_before")
        self.pos = brace.start()

    def check_ending(self, value: Json) -> None:
        """Account for what comes after the object."""
        gap = self.skip_space()
        if self.pos == len(self.text):
            return None
        if self.peek() == "{":
            return self.check_repeats(value)
        # One bracket too many: it is the last one, unless some object was closed too early and its members moved out.
        blurred = self.repairs.keys() & _BLURS_THE_END or self.continued_after & set(
            self.text[self.pos :]
        )
        if _CLOSERS.match(self.text, self.pos) and not blurred:
            return self.note("stray_brackets")
        if not _WORDS_AFTER.match(self.text, self.pos - bool(gap)):
            if _MEMBER.match(self.text, self.pos):
                raise NotJson("outside", "a member stands behind the object", self.pos)
            raise self.make_error("nothing after the object")
        return self.note("text_after")

    def check_repeats(self, value: Json) -> None:
        first = json.dumps(value, sort_keys=True)
        begin = self.pos
        while self.peek() == "{":
            if json.dumps(self.read_value(), sort_keys=True) != first:
                raise NotJson("glued", "several objects stand in a row", begin)
            self.skip_space()
        if self.pos < len(self.text):
            raise self.make_error("nothing after the object")
        self.note("identical_repeats", begin)

    # Values

    def read_value(self) -> Json:
        self.skip_space()
        char = self.peek()
        if char == "{":
            return self.read_object()
        if char == "[":
            return self.read_list()
        if char == "\\" and (quoted := _ESCAPED_QUOTES.match(self.text, self.pos)):
            self.note("escaped_quotes")
            self.pos = quoted.end()
            return self.decode_string(quoted[1], '"', quoted.start())
        if char in _QUOTES:
            return self.read_string()
        return self.read_bare()

    def read_object(self) -> dict[str, Json]:
        begin = self.enter()
        self.skip_space()
        if self.peek() == "{" or _FENCE.match(self.text, self.pos):
            return self.read_wrapped_object()
        members: dict[str, Json] = {}
        for _ in self.each_item("}", begin):
            self.read_member(members)
        return members

    def read_wrapped_object(self) -> dict[str, Json]:
        """Read the inner object of `{{..}}`, or of braces around a code fence; the outer brace has been read."""
        self.note("double_braces")
        fence = _FENCE.match(self.text, self.pos)
        if fence:
            self.pos = fence.end()
        self.skip_space()
        if self.peek() != "{":
            raise self.make_error("`{`")
        inner = self.read_object()
        self.skip_space()
        if fence and (end := _FENCE_END.match(self.text, self.pos)):
            self.pos = end.end()
            self.skip_space()
        if self.peek() != "}":
            raise self.make_error("`}`")
        self.leave()
        return inner

    def read_list(self) -> list[Json]:
        begin = self.enter()
        return [self.read_value() for _ in self.each_item("]", begin)]

    def each_item(self, closer: str, begin: int) -> Iterator[None]:
        """Stop before each item of an object or list that began at `begin`; the caller then reads it."""
        # `before`: the comma or item that was read last
        before = ""
        filled = False
        while True:
            gap = self.skip_space()
            char = self.peek()
            if not char:
                kind = "an object" if closer == "}" else "a list"
                raise NotJson("open", f"{kind} is still open", begin)
            if char in "}]":
                return self.close(closer, after_comma=before == ",", filled=filled)
            if char == ",":
                self.note_comma(before, gap, closer)
                before = self.take()
            elif dots := _ELLIPSIS.match(self.text, self.pos):
                if not filled:
                    raise self.make_error("an item")
                self.note("ellipsis")
                before = "item"
                self.pos = dots.end()
            else:
                if before == "item":
                    self.accept_missing_comma(gap, char, closer)
                yield
                before = "item"
                filled = True

    def note_comma(self, before: str, gap: str, closer: str) -> None:
        """Note a comma that separates nothing, and the bracket that this one follows."""
        if not before and closer == "}":
            self.note("leading_comma")
        elif before != "item":
            self.note("extra_comma")
        self.continued_after.add(self.text[self.pos - len(gap) - 1])

    def close(self, closer: str, *, after_comma: bool, filled: bool) -> None:
        if after_comma:
            if not filled:
                raise self.make_error("an item")
            self.note("trailing_comma")
        if self.peek() != closer:
            self.accept_wrong_bracket(closer, filled=filled)
        self.leave()

    def accept_wrong_bracket(self, closer: str, *, filled: bool) -> None:
        """Accept a bracket of the other kind at the very end; earlier, one may be missing instead."""
        rest = self.text[self.pos :]
        ending = _CLOSERS.match(rest)
        if ending and rest.count("]") + rest.count("}") < self.depth:
            raise NotJson("open", f"`{closer}` is missing", self.pos)
        # The kind of an empty pair such as `{]` is open, unless it is the object that all is about.
        ambiguous = not filled and self.depth != 1
        if not ending or ambiguous or "wrong_bracket" in self.repairs:
            raise self.make_error(f"`{closer}`")
        self.note("wrong_bracket")

    def accept_missing_comma(self, gap: str, char: str, closer: str) -> None:
        """Accept two items without a comma where white space, a bracket or two quotes separate them all the same."""
        if gap:
            separated = "\n" in gap or _begins_item(char, closer)
        else:
            separated = self.text[self.pos - 1 : self.pos + 1] == '""'
        after_bracket = self.text[self.pos - 1] in "}]"
        if not (separated or after_bracket) or "missing_colon" in self.repairs:
            raise self.make_error(f"a comma or `{closer}`")
        self.note("missing_comma")

    def read_member(self, members: dict[str, Json]) -> None:
        begin = self.pos
        quoted = self.peek() in _QUOTES
        name = self.read_string() if quoted else self.read_bare_name()
        # A raw line break at the edge of a name is dropped by some readers and left by others.
        if quoted and min(self.text[begin + 1], self.text[self.pos - 2]) < " ":
            raise NotJson(
                "syntax", "a name begins or ends with a control character", begin
            )
        if name in members:
            raise NotJson(
                "duplicate_key",
                f"the name {quote_excerpt(name)} appears twice in one object",
                begin,
            )
        gap = self.skip_space()
        if self.peek() == ":":
            self.take()
        elif (
            quoted
            and gap
            and self.peek() in _QUOTES
            and "missing_comma" not in self.repairs
        ):
            # with a comma missing as well, names and values could change places
            self.note("missing_colon")
        else:
            raise self.make_error("`:`")
        members[name] = self.read_value()

    def read_bare_name(self) -> str:
        name = _NAME.match(self.text, self.pos)
        if name and name[0].casefold() not in _NO_TEXT:
            self.note("unquoted_key")
        else:
            name = name or _NUMBER.match(self.text, self.pos)
            if not name:
                raise self.make_error("a name in double quotes")
            self.note("literal_key")
        self.pos = name.end()
        return name[0]

    # Strings

    def read_string(self) -> str:
        begin = self.pos
        opener = self.text[self.pos]
        closers, repair = _QUOTES[opener]
        if repair:
            self.note(repair)
        end = begin + 1 + len(_match_text(_BODY[closers], self.text, begin + 1))
        if end >= len(self.text):
            raise NotJson("open", "a string is still open", begin)
        if self.depth and not _AFTER_STRING.match(self.text, end + 1):
            self.pos = end + 1
            inner = None
            if opener in _WITH_QUOTES:
                inner = _WITH_QUOTES[opener].match(self.text, begin)
            if not inner:
                raise self.make_error(
                    "the end of the member; quotes inside a string must be escaped"
                )
            self.note("unescaped_quote", end)
            end = inner.end() - 1
        self.pos = end + 1
        return self.decode_string(self.text[begin + 1 : end], opener, begin)

    def decode_string(self, body: str, opener: str, begin: int) -> str:
        """Return what `body` says between its quotes: the escapes of JSON, and `\\'`."""
        if opener not in "\"'" and ('"' in body or opener in body):
            raise NotJson("syntax", "quotes of several kinds do not pair", begin)
        if opener != "'" and "'" in (escape[1] for escape in _ESCAPE.finditer(body)):
            self.note("escaped_apostrophe", begin)
        if not body.isprintable() and any(char < " " for char in body):
            self.accept_control_characters(body, begin)
        try:
            text: str = _STRING.decode(f'"{_ESCAPE.sub(_as_json_escape, body)}"')
        except json.JSONDecodeError as error:
            raise NotJson(
                "syntax", f"a string holds an {error.msg.lower()}", begin
            ) from None
        return text

    def accept_control_characters(self, body: str, begin: int) -> None:
        if _NEXT_MEMBER.search(body):
            raise NotJson(
                "syntax",
                "a string may have lost its closing quote before a line break",
                begin,
            )
        self.note("control_character", begin)

    # Values without quotes

    def read_bare(self) -> Json:
        """Read a literal, a number, or text that lacks its quotes."""
        begin = self.pos
        word = _match_text(_WORD, self.text, begin)
        if begin + len(word) == len(self.text):
            raise NotJson("open", "a value is still open", begin)
        if word in _LITERALS or word in _PYTHON:
            if word in _PYTHON:
                self.note("python_literal")
            self.pos += len(word)
            return _LITERALS.get(word, _PYTHON.get(word))
        if word.casefold().lstrip("+-") in _NON_FINITE:
            raise NotJson(
                "non_finite", f"{quote_excerpt(word)} is no JSON value", begin
            )
        if word and (number := _LOOSE_NUMBER.fullmatch(word)):
            return self.read_number(word, number)
        return self.read_bare_text()

    def read_bare_text(self) -> str:
        run = _match_text(_BARE, self.text, self.pos)
        text = run.rstrip()
        end = self.pos + len(run)
        if end == len(self.text):
            raise NotJson("open", "a value is still open", self.pos)
        # A quote right behind a word may be one half of a pair; behind white space it begins the next member.
        ended = self.text[end] in ",}]｝］\r\n" or (
            self.text[end] in _QUOTES and len(run) > len(text)
        )
        if not ended or not _is_plain(text):
            raise self.make_error("a JSON value; a text is written in double quotes")
        self.note("unquoted_value")
        self.pos += len(text)
        return text

    def read_number(self, word: str, loose: re.Match[str]) -> int | float:
        """Read a number as JSON has it, or in the forms `.5`, `5.`, `+5` and `5e`."""
        begin = self.pos
        strict = _NUMBER.fullmatch(word)
        if not strict:
            word = _complete_number(loose)
            strict = _NUMBER.fullmatch(word)
            if not strict:
                raise self.make_error("a JSON number")
            self.note("number_form")
        self.pos += loose.end() - loose.start()
        try:
            return as_float(word) if strict[1] or strict[2] else as_integer(word)
        except NotJson as error:
            raise NotJson(error.reason, str(error), begin) from None

    # Between the values

    def skip_space(self) -> str:
        """Pass over white space and comments; return them."""
        begin = self.pos
        while True:
            self.pos += len(_match_text(_SPACE, self.text, self.pos))
            char = self.text[self.pos : self.pos + 1]
            if char.isalnum() or not (self.skip_odd_space(char) or self.skip_comment()):
                return self.text[begin : self.pos]

    def skip_odd_space(self, char: str) -> bool:
        """Pass over white space that JSON does not have; return whether there was some."""
        if char and (char.isspace() or char in _INVISIBLE):
            self.note("unusual_space" if self.pos else "byte_order_mark")
            self.pos += 1
            return True
        if char == "\\" and (escaped := _ESCAPED_SPACE.match(self.text, self.pos)):
            self.note("escaped_space")
            self.pos = escaped.end()
            return True
        return False

    def skip_comment(self) -> bool:
        """Pass over a comment; return whether there was one."""
        comment = _COMMENT.match(self.text, self.pos)
        if comment:
            if _NO_COMMENT.search(comment[0]):
                raise self.make_error("no quote in a comment")
            self.note("hash_comment" if comment[0][0] == "#" else "comment")
            self.pos = comment.end()
            return True
        if self.depth and self.text.startswith("/*", self.pos):
            raise NotJson("open", "a comment is still open", self.pos)
        return False

    def peek(self) -> str:
        """Return the character that comes next, "" at the end, full-width punctuation as its ASCII form."""
        char = self.text[self.pos : self.pos + 1]
        return _FULL_WIDTH.get(char, char)

    def take(self) -> str:
        """Pass over one mark of punctuation and return its ASCII form."""
        if self.text[self.pos] in _FULL_WIDTH:
            if _WITHIN_NUMBER.match(self.text, self.pos):
                raise self.make_error("a plain comma")
            self.note("full_width")
        char = self.peek()
        self.pos += 1
        return char

    def enter(self) -> int:
        """Pass over an opening bracket; return its offset."""
        begin = self.pos
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotJson(
                "too_deep", f"more than {MAX_DEPTH} brackets are nested", begin
            )
        self.take()
        return begin

    def leave(self) -> None:
        self.take()
        self.depth -= 1

    def note(self, name: str, offset: int | None = None) -> None:
        if offset is None:
            offset = self.pos
        self.repairs.setdefault(name, offset)

    def make_error(self, expected: str) -> NotJson:
        """Return the error for the text at `pos`; at the end of the text it is that something is still open."""
        reason = "syntax" if self.peek() else "open"
        return NotJson(reason, f"expected {expected}", self.pos)


def _begins_item(char: str, closer: str) -> bool:
    if char in _QUOTES or char in "{[":
        return True
    return closer == "]" and char in "-0123456789"


def _complete_number(loose: re.Match[str]) -> str:
    """Return a number with the digits that JSON asks for; empty where it has none at all."""
    minus, whole, fraction, power = (part or "" for part in loose.groups())
    if not whole and not fraction[1:]:
        return ""
    if fraction:
        fraction += "0"
    return minus + (whole or "0") + fraction + power


def _match_text(pattern: re.Pattern[str], text: str, at: int) -> str:
    match = pattern.match(text, at)
    return match[0] if match else ""


def _load_object(text: str) -> dict[str, Json] | None:
    """Return the object that `text` spells strictly, or None."""
    try:
        value = loads(text)
    except NotJson:
        return None
    return value if isinstance(value, dict) else None


def _unescape(text: str) -> dict[str, Json] | None:
    """Return the object in text that is escaped as if it stood inside a string, or of which only the quotes are."""
    try:
        unescaped = _STRING.decode(f'"{text}"')
    except json.JSONDecodeError:
        unescaped = text.replace('\\"', '"')
    return _load_object(unescaped)


def _as_json_escape(match: re.Match[str]) -> str:
    """Escape a bare quote, and unescape an apostrophe, which JSON does not escape."""
    return {'"': '\\"', "\\'": "'"}.get(match[0], match[0])


def _may_hold_a_member(token: str) -> bool:
    if "：" in token or token.endswith(":"):
        return True
    return ":" in token and len(token.split()) > 1


def _is_plain(token: str) -> bool:
    """Whether text without quotes can only be text: no literal, no odd number, no quote, no second member."""
    if token.casefold().lstrip("+-") in _NO_TEXT:
        return False
    if _OTHER_NUMBER.fullmatch(token) or _LONE_APOSTROPHE.search(token):
        return False
    if _ELLIPSIS.search(token) or _may_hold_a_member(token):
        return False
    return token.isprintable() and any(char.isalnum() for char in token)
