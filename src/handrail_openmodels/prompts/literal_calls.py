"""Calls as a programming language writes them: `[get_weather(city='Paris', days=2)]`, `call:get_weather{days:2}`.

A call is reported when it is whole, with JSON that we write from its literals.

Rule 1: nothing is evaluated. What is no literal (a name, an operation, a call within a call) is no argument, and the
        text stays text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from handrail.calls import ToolCall
from handrail.errors import Json
from handrail.parsing.strictjson import MAX_DEPTH, MAX_DIGITS
from handrail_openmodels.prompts.buffer import Step, TextBuffer, marks
from handrail_openmodels.prompts.call_format import MOST_NAME_CHARS, AnswerSink, Schemas

PYTHON_QUOTES = ("'''", '"""', "'", '"')
"""Python's quotes, in whose strings a backslash escapes. Strings in any other quotes are taken as they are."""

_NAME = re.compile(r"[^\W\d][\w\-]*(?:\.[^\W\d][\w\-]*)*")
_WORD = re.compile(r"[^\W\d][\w\-]*")
_NUMBER = re.compile(
    r"[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
)
_SPACE = re.compile(r"[ \t\r\n]*")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))",
    re.DOTALL,
)
_ESCAPED = dict(
    zip(
        "ntrabfv\\'\"\n",
        ["\n", "\t", "\r", "\a", "\b", "\f", "\v", "\\", "'", '"', ""],
        strict=True,
    )
)
_WORDS: dict[str, Json] = {
    "True": True,
    "False": False,
    "None": None,
    "true": True,
    "false": False,
    "null": None,
}
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_BRACKETS = ("(", "[", "{", ")", "]", "}")


class LiteralCalls(Struct, frozen=True):
    """Calls as a name with literals in brackets.

    Attributes:
        starts, ends: The marks that open and close a section.
        listed: Whether the calls are in a list; else they follow each other.
        lead: Stands before each name.
        method: Stands after each name.
        bracket: Opens the arguments.
        equals: Stands between an argument's name and its value.
        quotes: What may enclose a string; the last one is the one that is written.
        alone: A list without any mark counts only on lines of its own, and only if every name is a tool's.
    """

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    listed: bool = True
    lead: str = ""
    method: str = ""
    bracket: str = "("
    equals: str = "="
    quotes: tuple[str, ...] = PYTHON_QUOTES
    bare: str = ""
    loose: tuple[str, ...] = ()
    leads: str = ""
    alone: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """All marks of this format."""
        if self.quotes == PYTHON_QUOTES:
            return (*self.starts, *self.ends)
        return (*self.starts, *self.ends, *self.quotes)

    def read(self, source: TextBuffer, sink: AnswerSink, start: str) -> Step[None]:
        """Read calls until something else follows; see `CallFormat.read`."""
        yield from source.space()
        in_list = yield from source.read_literal("[")
        if self.listed and not in_list:
            return
        if self.alone:
            yield from self._list_alone(source, sink)
            return
        ends = marks(*self.ends)
        while (yield from self._one(source, sink, marked=bool(start))):
            source.mark()
            yield from source.space()
            if not in_list and (yield from source.read_mark(ends)):
                source.mark()
                return
            yield from source.read_mark(_SEPARATORS)
            yield from source.space()
            if in_list and (yield from source.read_literal("]")):
                source.mark()
                yield from source.space()
                if (yield from source.read_mark(ends)):
                    source.mark()
                return

    def _list_alone(self, source: TextBuffer, sink: AnswerSink) -> Step[None]:
        """Read the rest of a list, and report its calls if it is complete and no text follows on its line."""
        calls: list[_ParsedCall] = []
        closed = False
        while not closed:
            call = yield from self._call(source, marked=False)
            if call is None or sink.parameters(call.name) is None:
                return
            calls.append(call)
            yield from source.space()
            yield from source.read_mark(_SEPARATORS)
            yield from source.space()
            closed = yield from source.read_literal("]")
        space = yield from source.space()
        follows = yield from source.peek()
        # a control token may end the answer
        ends_line = "\n" in space or follows in ("", "<")
        if not ends_line:
            return
        source.unmark()
        for call in calls:
            call.report(sink)
        sink.text(space)

    def _one(self, source: TextBuffer, sink: AnswerSink, *, marked: bool) -> Step[bool]:
        """Read one call. Return whether it was reported; one that breaks off is reported only after a mark."""
        call = yield from self._call(source, marked=marked)
        if call is None:
            return False
        source.unmark()
        call.report(sink)
        return True

    def _call(self, source: TextBuffer, *, marked: bool) -> Step[_ParsedCall | None]:
        yield from source.space()
        if self.lead and not (yield from source.read_literal(self.lead)):
            return None
        name, mark = yield from source.upto(
            marks(*_BRACKETS, "<", "\n"), most=MOST_NAME_CHARS
        )
        name = name.strip().removesuffix(self.method)
        if mark != self.bracket or not _NAME.fullmatch(name):
            source.back(mark)
            return None
        text, closed = yield from _inside(source, self.quotes, self._foreign)
        literals = _Literals(text, self.quotes)
        try:
            members = literals.members(self.equals)
        except (ValueError, RecursionError):
            members = literals.top
        else:
            if closed:
                return _ParsedCall(name, _object(members), closed)
        # A call that breaks off has no end behind it: with one, the call is malformed, and all of it stays text.
        breaks_off = not closed and source.is_exhausted()
        if not (breaks_off and marked) or any(end in text for end in self.ends):
            return None
        beginning = _open_object(members, literals.pending)
        return _ParsedCall(name, beginning + literals.rest, closed)

    @property
    def _foreign(self) -> tuple[str, ...]:
        """The marks that no string holds: control tokens, where strings are in control tokens themselves."""
        if self.quotes == PYTHON_QUOTES:
            return ()
        return (*self.starts, *self.ends)

    def encode(self, calls: Sequence[ToolCall], schemas: Schemas) -> str:
        """Return the section for these calls; see `CallFormat.encode`."""
        start = (self.starts or ("",))[0]
        end = (self.ends or ("",))[0]
        each = [
            f"{self.lead}{call.name}{self.method}{self._arguments(call)}"
            for call in calls
        ]
        if self.listed:
            return f"{start}[{', '.join(each)}]{end}"
        if self.lead:
            return f"{end}{start}".join(each).join((start, end))
        return f"{start}{chr(10).join(each)}{end}"

    def _arguments(self, call: ToolCall) -> str:
        members = json.loads(call.arguments).items()
        is_python = self.quotes == PYTHON_QUOTES
        value_of: Callable[[Json], str] = repr if is_python else self._literal
        separator = ", " if is_python else ","
        inside = separator.join(
            f"{key}{self.equals}{value_of(value)}" for key, value in members
        )
        return f"{self.bracket}{inside}{_CLOSES[self.bracket]}"

    def _key(self, key: str) -> str:
        if _WORD.fullmatch(key):
            return key
        return self._literal(key)

    def _literal(self, value: Json) -> str:
        if isinstance(value, dict):
            return (
                "{"
                + ",".join(
                    f"{self._key(key)}:{self._literal(each)}"
                    for key, each in value.items()
                )
                + "}"
            )
        if isinstance(value, list):
            return "[" + ",".join(map(self._literal, value)) + "]"
        if isinstance(value, str):
            return f"{self.quotes[-1]}{value}{self.quotes[-1]}"
        return json.dumps(value)


class _ParsedCall(Struct):
    """A call as it was read, with its arguments as JSON text."""

    name: str
    arguments: str
    whole: bool

    def report(self, sink: AnswerSink) -> None:
        sink.begin(self.name)
        sink.more(self.arguments)
        sink.end(whole=self.whole)


_SEPARATORS = marks(",", ";")


def _inside(
    source: TextBuffer, quotes: tuple[str, ...], foreign: tuple[str, ...]
) -> Step[tuple[str, bool]]:
    """Read up to the bracket that closes the one just read, or to a mark that is foreign to a call.

    Return the text before it, and whether it was the bracket.
    """
    pieces: list[str] = []
    outside = marks(*_BRACKETS, *quotes, *foreign)
    inside = {quote: marks(quote, "\\", *foreign) for quote in quotes}
    escapes = quotes == PYTHON_QUOTES
    depth = 1
    quote = ""
    while True:
        text, mark = yield from source.upto(inside[quote] if quote else outside)
        pieces.append(text)
        if not mark or mark in foreign:
            source.back(mark)
            return "".join(pieces), False
        if mark == "\\" and escapes:
            yield from source.peek()  # what it escapes belongs to it
            mark += source.text[source.at : source.at + 1]
            source.at += len(mark) - 1
        elif quote:
            quote = "" if mark == quote else quote
        elif mark in quotes:
            quote = mark
        else:
            depth += 1 if mark in _CLOSES else -1
            if not depth:
                return "".join(pieces), True
        pieces.append(mark)


class _Literals:
    """Reads literals from a text that is whole.

    Attributes:
        top: The arguments read so far.
        pending: The name whose value is being read.
    """

    @property
    def rest(self) -> str:
        """The text behind the arguments read so far, and behind the name whose value is being read."""
        return self._text[self._read :]

    def __init__(self, text: str, quotes: tuple[str, ...]) -> None:
        self.top: list[tuple[str, Json]] = []
        self.pending: str | None = None
        self._text = text
        self._at = 0
        self._read = 0
        self._quotes = quotes
        self._depth = 0

    def members(self, equals: str) -> list[tuple[str, Json]]:
        """Return the arguments: names and values.

        Raises:
            ValueError: Something is no literal, or an argument has no name.
        """
        while self._space() < len(self._text):
            self.pending = None
            name = self._match(_WORD)
            self._expect(equals)
            self.pending = name
            self._read = self._at
            self.top.append((name, self._value(equals)))
            self.pending = None
            self._read = self._at
            if self._space() < len(self._text):
                self._expect(",")
        return self.top

    def _value(self, equals: str) -> Json:
        self._space()
        for quote in self._quotes:
            if self._text.startswith(quote, self._at):
                return self._string(quote)
        character = self._text[self._at : self._at + 1]
        if character in _CLOSES:
            return self._collection(character, equals)
        word = _WORD.match(self._text, self._at)
        if word:
            self._at = word.end()
            if word[0] not in _WORDS:
                raise ValueError(f"{word[0]!r} is no literal")
            return _WORDS[word[0]]
        return _number(self._match(_NUMBER))

    def _collection(self, bracket: str, equals: str) -> Json:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError("too deep")
        self._at += 1
        if bracket != "{" or self._is_set():
            value = self._sequence(_CLOSES[bracket], equals)
        else:
            value = self._dictionary(equals)
        self._depth -= 1
        return value

    def _sequence(self, closes: str, equals: str) -> Json:
        items: list[Json] = []
        comma = False
        while not self._accept(closes):
            if items and not comma:
                raise ValueError("no comma")
            items.append(self._value(equals))
            comma = self._accept(",")
        if closes == ")" and len(items) == 1 and not comma:
            return items[0]
        return items

    def _is_set(self) -> bool:
        """Whether the brace just read opens a Python set, which becomes a list in JSON."""
        if self._quotes != PYTHON_QUOTES:
            return False
        begin = self._space()
        quote = next(
            (quote for quote in self._quotes if self._text.startswith(quote, begin)), ""
        )
        if quote:
            self._string(quote)
            is_set = not self._text.startswith(":", self._space())
        else:
            is_set = bool(_NUMBER.match(self._text, begin))
        self._at = begin
        return is_set

    def _dictionary(self, equals: str) -> Json:
        members: dict[str, Json] = {}
        comma = True
        while not self._accept("}"):
            if not comma:
                raise ValueError("no comma")
            self._space()
            quote = next(
                (
                    quote
                    for quote in self._quotes
                    if self._text.startswith(quote, self._at)
                ),
                "",
            )
            if quote:
                key = self._string(quote)
            else:
                key = self._match(_WORD)
            self._expect(":")
            if key in members:
                raise ValueError(f"{key!r} appears twice")
            members[key] = self._value(equals)
            comma = self._accept(",")
        return members

    def _string(self, quote: str) -> str:
        begin = self._at + len(quote)
        if self._quotes != PYTHON_QUOTES:
            end = self._text.index(quote, begin)
            self._at = end + len(quote)
            return self._text[begin:end]
        ends = marks(quote, "\\")
        at = begin
        while True:
            at, mark = ends.find(self._text, at, True)
            if not mark:
                raise ValueError("a string is open")
            if mark == quote:
                self._at = at + len(quote)
                return _ESCAPE.sub(_unescape, self._text[begin:at])
            at += 2

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._space())
        if not match:
            raise ValueError("no literal")
        self._at = match.end()
        return match[0]

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise ValueError(f"no {mark!r}")

    def _accept(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._space()):
            return False
        self._at += len(mark)
        return True

    def _space(self) -> int:
        match = _SPACE.match(self._text, self._at)
        if match:
            self._at = match.end()
        return self._at


def _unescape(match: re.Match[str]) -> str:
    hexadecimal = match[1] or match[2] or match[3]
    if hexadecimal or match[4]:
        if hexadecimal:
            code = int(hexadecimal, 16)
        else:
            code = int(match[4], 8)
        if code < 0x110000:
            return chr(code)
        return match[0]
    return _ESCAPED.get(match[5], match[0])


def _number(text: str) -> Json:
    if len(text) > MAX_DIGITS:
        raise ValueError("too many digits")
    if not set(text) & set(".eE"):
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("no finite number")
    return value


def _object(members: Sequence[tuple[str, Json]]) -> str:
    """Return the arguments as JSON text. A name that comes twice stays there twice: two readings are for `jsontext`."""
    return (
        "{" + ", ".join(f"{_json(key)}: {_json(value)}" for key, value in members) + "}"
    )


def _open_object(members: Sequence[tuple[str, Json]], pending: str | None) -> str:
    """Return the beginning of the arguments, as far as the model came."""
    beginning = _object(members)[:-1]
    if pending is None:
        return beginning
    return f"{beginning}{', ' if members else ''}{_json(pending)}: "


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
