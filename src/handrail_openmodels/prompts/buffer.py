"""Text on its way: what has arrived, what of it is read, and what to give back when it was no call after all.

Readers are generators over one `TextBuffer`: a `yield` says that nothing more can be decided without more text. So the
reader of each format reads from top to bottom like a description of it, whole or one character at a time.

Rule 1: linear. Whatever waits has read all that it can; what is left in the buffer is shorter than the longest mark.
Rule 2: text read since a `mark` can be had back, but is never read again: a second reading of the same text is what
        makes a reader quadratic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from functools import cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Step: TypeAlias = Generator[None, None, T]
"""A reading that waits for text at each `yield`, and returns what it read."""

_BLACK = re.compile(r"[^ \t\r\n]")
_JSON_MARK = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
_SCALAR_END = re.compile(r"[,}\] \t\r\n]")


class Marks:
    """A set of literal marks, looked for all at once; where two begin alike, the longer one counts."""

    __slots__ = ("_first", "_longest", "_nest", "_pattern", "_prefixes", "literals")

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = frozenset(literals) - {""}
        longest_first = sorted(self.literals, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._prefixes = frozenset(
            mark[:end] for mark in self.literals for end in range(1, len(mark))
        )
        self._first = frozenset(mark[0] for mark in self.literals)
        self._longest = max(map(len, self.literals), default=1)
        # Whether one mark occurs within another: a match may then be the middle of a longer mark that is not whole yet.
        self._nest = any(
            inner in outer[1:] for inner in self.literals for outer in self.literals
        )

    def find(
        self, text: str, at: int, ended: bool, *, most: int | None = None
    ) -> tuple[int, str]:
        """Return where the next mark begins, and the mark.

        Without a mark in sight: where the text begins that may still become one, and an empty text. `most` is how many
        characters may precede the mark; if there are more, the position returned is any one beyond.
        """
        if most is None:
            stop = len(text)
        else:
            stop = at + most + self._longest
        found = self._pattern.search(text, at, stop)
        if found is None:
            return (
                min(stop, len(text))
                if ended or stop < len(text)
                else self._open_from(text, at)
            ), ""
        start = found.start()
        if not ended and self._may_grow(text, start):
            return start, ""
        if self._nest and not ended:
            open_from = self._open_from(text, at)
            if open_from < start:
                return open_from, ""
        return start, found[0]

    def match(self, text: str, at: int, ended: bool) -> str | None:
        """Return the mark at this position, an empty text if there is none, None if that is still open."""
        if not ended and self._may_grow(text, at):
            return None
        found = self._pattern.match(text, at)
        return found[0] if found else ""

    def _may_grow(self, text: str, start: int) -> bool:
        return len(text) - start < self._longest and (
            start == len(text) or text[start:] in self._prefixes
        )

    def _open_from(self, text: str, at: int) -> int:
        for start in range(max(at, len(text) - self._longest + 1), len(text)):
            if text[start] in self._first and text[start:] in self._prefixes:
                return start
        return len(text)


@cache
def marks(*literals: str) -> Marks:
    """Return the set of these marks, made once."""
    return Marks(literals)


class TextBuffer:
    """Text on its way.

    Attributes:
        text: What has arrived and was not yet dropped.
        at: How far it is read.
        ended: Whether no more will come.
    """

    __slots__ = ("_from", "_marked", "_record", "_record_from", "at", "ended", "text")

    def __init__(self, text: str = "", *, ended: bool = False) -> None:
        self.text = text
        self.at = 0
        self.ended = ended
        self._marked: list[str] | None = None
        self._from = 0
        self._record: list[str] | None = None
        self._record_from = 0

    def feed(self, text: str) -> None:
        """Take the next piece."""
        if self._marked is not None:
            self._marked.append(self.text[self._from : self.at])
            self._from = 0
        if self._record is not None:
            self._record.append(self.text[self._record_from : self.at])
            self._record_from = 0
        if self.at < len(self.text):
            self.text = self.text[self.at :] + text
        else:
            self.text = text
        self.at = 0

    def is_exhausted(self) -> bool:
        """Whether all of the text is read and no more will come."""
        return self.ended and self.at == len(self.text)

    def mark(self) -> None:
        """Mark this position; `unmark` returns what is read from here on."""
        self._marked = []
        self._from = self.at

    def unmark(self) -> str:
        """Return what was read since the mark, and remove the mark."""
        if self._marked is None:
            return ""
        read = "".join([*self._marked, self.text[self._from : self.at]])
        self._marked = None
        return read

    def record(self) -> None:
        """Start to record everything that is read, regardless of marks."""
        self._record = []
        self._record_from = self.at

    def stop_recording(self) -> str:
        """Return what was read since `record`, and stop recording."""
        read = "".join([*(self._record or ()), self.text[self._record_from : self.at]])
        self._record = None
        return read

    def peek(self) -> Step[str]:
        """Return the next character without reading it; empty at the end."""
        while self.at >= len(self.text) and not self.ended:
            yield
        return self.text[self.at : self.at + 1]

    def space(self) -> Step[str]:
        """Read white space."""
        pieces: list[str] = []
        while True:
            black = _BLACK.search(self.text, self.at)
            if black:
                end = black.start()
            else:
                end = len(self.text)
            pieces.append(self.text[self.at : end])
            self.at = end
            if black or self.ended:
                return "".join(pieces)
            yield

    def read_literal(self, literal: str) -> Step[bool]:
        """Read the literal if it comes next, and return whether it did."""
        return bool((yield from self.read_mark(marks(literal))))

    def read_mark(self, wanted: Marks) -> Step[str]:
        """Read whichever of the marks comes next, and return it; empty if none does."""
        while (found := wanted.match(self.text, self.at, self.ended)) is None:
            yield
        self.at += len(found)
        return found

    def next_is(self, wanted: Marks) -> Step[bool]:
        """Return whether one of the marks comes next, or the end, without reading it."""
        while (found := wanted.match(self.text, self.at, self.ended)) is None:
            yield
        return bool(found) or self.is_exhausted()

    def upto(self, wanted: Marks, *, most: int | None = None) -> Step[tuple[str, str]]:
        """Read until the next of the marks. Return the text before it, and the mark.

        The mark is empty if the end came first, or more than `most` characters.
        """
        pieces: list[str] = []
        room = most
        while True:
            start, mark = wanted.find(self.text, self.at, self.ended, most=room)
            if room is not None:
                if start - self.at > room:
                    start = self.at + room
                    mark = ""
                    room = -1
                else:
                    room -= start - self.at
            pieces.append(self.text[self.at : start])
            self.at = start + len(mark)
            if mark or self.ended or room == -1:
                return "".join(pieces), mark
            yield

    def flow(self, wanted: Marks, take: Callable[[str], None]) -> Step[str]:
        """Hand the text before the next of the marks to `take` as it comes. Return the mark; empty at the end."""
        while True:
            start, mark = wanted.find(self.text, self.at, self.ended)
            if start > self.at:
                take(self.text[self.at : start])
            self.at = start + len(mark)
            if mark or self.ended:
                return mark
            yield

    def back(self, mark: str) -> None:
        """Leave a mark, just read, to the next reader."""
        self.at -= len(mark)

    def json_value(self, take: Callable[[str], None]) -> Step[bool]:
        """Read one JSON value and hand its text to `take`, piece by piece. Return whether it ended.

        Only brackets and strings are followed; whether it is JSON is for others to say.
        """
        first = yield from self.peek()
        if first and first in '{["':
            return (yield from self.json_rest(take, depth=0))
        while True:
            end = _SCALAR_END.search(self.text, self.at)
            if end:
                stop = end.start()
            else:
                stop = len(self.text)
            take(self.text[self.at : stop])
            self.at = stop
            if end or self.ended:
                return end is not None
            yield

    def json_rest(self, take: Callable[[str], None], *, depth: int = 1) -> Step[bool]:
        """Read the rest of an object or a list whose bracket is read already; see `json_value`."""
        in_string = False
        while True:
            stop = len(self.text)
            for mark in _JSON_MARK.finditer(self.text, self.at):
                character = mark[0]
                if character[0] == "\\":
                    is_cut = len(character) == 1  # what it escapes is not here yet
                    if is_cut and not self.ended:
                        stop = mark.start()
                    continue
                if character == '"':
                    in_string = not in_string
                elif in_string:
                    continue
                else:
                    depth += 1 if character in "{[" else -1
                if depth <= 0 and not in_string:
                    take(self.text[self.at : mark.end()])
                    self.at = mark.end()
                    return True
            take(self.text[self.at : stop])
            self.at = stop
            if self.ended:
                return False
            yield


def run_to_end(reading: Step[T]) -> T:
    """Return the result of a reader over text that has ended."""
    try:
        next(reading)
    except StopIteration as end:
        read: T = end.value
        return read
    raise AssertionError("a reading waits for text that has ended")
