"""How a JSON value is cut to a size and stays JSON: long texts first, rows only where their names alone do not fit.

A result of twenty documents is read by its ids and titles, so these stay while there is room for them. One limit holds
for all texts, and one for the parts of all lists and objects; a search finds the largest that fit.

Rule 1: a mark stands where something was left out, and counts in characters of the whole JSON text, as `read_result`
        does: `[... 4800 at 5120 ...]` stands for 4,800 characters from offset 5,120.
Rule 2: only what is shown of a value is visited, some fifteen times, since it may have a million parts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from msgspec import Struct
from pydantic_core import to_json

from handrail.errors import Json

# A text that takes no more bytes of JSON than this names its row, such as a title of 50 Chinese characters.
_NAME_BYTES = 160

# In less room than this a mark with numbers would take most of it.
_LEAST_WITH_MARK_BYTES = 64

_ALL_PARTS = 2**62

# How many parts of a row are searched for one that names it.
_MOST_LOOKED_AT = 64

_NUMBERS = frozenset((int, float, bool, type(None)))

MARKS = "[... N at M ...] stands for N characters at offset M of the whole ({} in all), [...] for the rest of a text"
"""What a note says of the marks; filled with the length of the whole."""


class NotPlain(Exception):
    """A value is no plain JSON: lists, objects whose names are texts, texts, numbers, booleans and None."""


class _Full(Exception):
    """There is no room for more."""


class _Limits(Struct, frozen=True, gc=False):
    """How many bytes of JSON a text may take, and how many parts of a list or an object are shown."""

    text_bytes: int
    parts: int


def fit(value: Json, room: int, whole: str = "") -> str:
    """Return JSON of at most `room` bytes that shows as much of a list or an object as it can.

    Args:
        value: More than `room` bytes of JSON.
        whole: Its JSON, where that can be read on; otherwise the marks have no offsets.

    Raises:
        NotPlain: The value is no plain JSON, or `whole` is not its text.
    """
    known = _Known()

    def write(text_bytes: int, parts: int, place: _Place) -> str:
        limits = _Limits(text_bytes, parts)
        return _Writer(limits, room, place, known).write_all(value)

    def is_full(text_bytes: int, parts: int) -> bool:
        try:
            write(text_bytes, parts, _Place(len(whole), is_known=False))
        except _Full:
            return True
        return False

    parts = _ALL_PARTS
    if is_full(0, parts):
        parts = _most(room // 2, lambda most: is_full(0, most))
    text_bytes = 0
    if known.texts:
        text_bytes = _most(room, lambda most: is_full(most, parts))
    return write(text_bytes, parts, _Place(len(whole), is_known=bool(whole)))


def _most(limit: int, is_full: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` for which there is room; 0 if there is none."""
    return bisect_right(range(1, limit + 1), False, key=is_full)


def write_json(value: Json) -> str:
    """Return plain JSON as a compact text.

    Raises:
        NotPlain: It is none.
    """
    try:
        return to_json(value).decode()
    except Exception as error:  # pydantic raises several, and a value's own code any
        raise NotPlain from error


class _Written(Struct, frozen=True, gc=False):
    """How much JSON a long text takes."""

    bytes: int
    characters: int


class _Known:
    """What was measured already, by the `id` of the part: the lengths of long texts, and the JSON of short parts."""

    def __init__(self) -> None:
        self.texts: dict[int, _Written] = {}
        self.whole: dict[int, str] = {}


class _Place:
    """Where in the whole text the writer stands; during the search for limits, its end, whose mark is the longest."""

    def __init__(self, length: int, *, is_known: bool) -> None:
        self.length = length
        self.is_known = is_known
        self.at = 0 if is_known else length

    def pass_by(self, characters: int) -> None:
        if self.is_known:
            self.at += characters


class _Gap(Struct, frozen=True, gc=False):
    """The parts of a list or an object that are left out: those from one place to another."""

    begin: int
    end: int


class _Spot(Struct, frozen=True, gc=False):
    """Where in a value a part stands.

    Attributes:
        in_row: Within a row of a list, one that something short names.
        blanks: A long text may be left out whole.
    """

    depth: int = 0
    in_list: bool = False
    in_row: bool = False
    blanks: bool = False


class _Writer:
    """Writes a value within limits, and raises `_Full` where that takes more than the room."""

    def __init__(
        self, limits: _Limits, room: int, place: _Place, known: _Known
    ) -> None:
        self._limits = limits
        self._room = room
        self._place = place
        self._known = known
        self._pieces: list[str] = []

    def write_all(self, value: Json) -> str:
        self._write(value, _Spot())
        if self._place.is_known and self._place.at != self._place.length:
            raise NotPlain
        return "".join(self._pieces)

    def _put(self, text: str, stands_for: int) -> None:
        self._room -= size(text)
        if self._room < 0:
            raise _Full
        self._pieces.append(text)
        self._place.pass_by(stands_for)

    def _write(self, value: Json, spot: _Spot) -> None:
        kind = type(value)
        if kind is dict or kind is list:
            if spot.depth and self._write_whole(value):
                return
            self._write_parts(value, spot)
        elif kind is str:
            self._write_text(value, spot.blanks)
        elif kind in _NUMBERS:
            self._write_number(write_json(value))
        else:
            raise NotPlain

    def _write_whole(self, parts: Json) -> bool:
        """Write a list or an object in one step, if it is so short that no limit cuts it; return whether it is."""
        known = self._known
        written = known.whole.get(id(parts))
        if written is None:
            written = write_json(parts)
            if size(written) > _NAME_BYTES:
                written = ""
            known.whole[id(parts)] = written
        if not written or self._limits.parts < _NAME_BYTES // 2:
            return False
        self._put(written, len(written))
        return True

    def _write_parts(self, parts: Any, spot: _Spot) -> None:
        """Write a list or an object: all of its parts, or the first and the last ones."""
        is_object = type(parts) is dict
        blanks = spot.in_row or self._may_blank(parts, spot)
        inside = _Spot(
            spot.depth + 1,
            in_list=not is_object,
            in_row=spot.in_row or (blanks and spot.in_list),
            blanks=blanks,
        )
        comma = False
        self._put("{" if is_object else "[", 1)
        for name, part in self._choose(parts, is_object):
            if comma:
                self._put(",", 1)
            comma = True
            if type(part) is _Gap:
                self._write_gap(part, parts)
                continue
            if is_object:
                if type(name) is not str:
                    raise NotPlain
                self._write_text(name, blanks=False)
                self._put(":", 1)
            self._write(part, inside)
        self._put("}" if is_object else "]", 1)

    def _choose(self, parts: Any, is_object: bool) -> Iterator[tuple[Any, Any]]:
        """Yield parts with their names: twice as many from the beginning as from the end, and the gap between them."""
        count = len(parts)
        most = self._limits.parts
        items = parts.items() if is_object else zip(parts, parts, strict=True)
        if count <= most:
            yield from items
            return
        head = (2 * most + 2) // 3
        tail = most - head
        yield from islice(items, head)
        yield "", _Gap(head, count - tail)
        if is_object:
            yield from reversed(list(islice(reversed(parts.items()), tail)))
        else:
            yield from ((each, each) for each in parts[count - tail :])

    def _write_gap(self, gap: _Gap, parts: Any) -> None:
        left_out = self._place.length
        if self._place.is_known:
            left_out = len(write_json(_slice(parts, gap))) - 2
        mark = f'"[... {gap.end - gap.begin} more{self._describe(left_out)} ...]"'
        if type(parts) is dict:
            name = "[...]"
            while name in parts:
                name += "."
            mark = f"{write_json(name)}:{mark}"
        self._put(mark, left_out)

    def _describe(self, left_out: int) -> str:
        if self._place.length:
            return f": {left_out} at {self._place.at}"
        return ""

    def _may_blank(self, parts: Any, spot: _Spot) -> bool:
        """Whether long texts may be left out whole: where every part is shown, or something short names the row."""
        if spot.depth == 0:
            return type(parts) is dict and self._limits.parts == _ALL_PARTS
        if type(parts) is not dict and not spot.in_list:
            return False
        values = parts.values() if type(parts) is dict else parts
        return any(map(_is_short, islice(values, _MOST_LOOKED_AT)))

    def _write_number(self, text: str) -> None:
        if len(text) <= _NAME_BYTES:
            self._put(text, len(text))
        else:
            self._put(f'"{self._shorten(text, len(text), 0, _NAME_BYTES)}"', len(text))

    def _write_text(self, text: str, blanks: bool) -> None:
        most = max(self._limits.text_bytes, _NAME_BYTES)
        if len(text) <= most:
            written = write_json(text)
            if size(written) <= most:
                self._put(written, len(written))
                return
        length = self._measure(text)
        if length.bytes <= most:
            self._put(write_json(text), length.characters)
            return
        share = self._limits.text_bytes if blanks else most
        if share < _LEAST_WITH_MARK_BYTES:
            room = max(share - len('"[...]"'), 0)
            shortened = f"{_escape(text, room, lambda kept: text[:kept])}[...]"
        else:
            shortened = self._shorten(text, length.characters - 2, 1, share - 2)
        self._put(f'"{shortened}"', length.characters)

    def _shorten(self, text: str, characters: int, quote: int, most: int) -> str:
        """Return both ends of a text as JSON writes them, in at most `most` bytes with the mark between them.

        Args:
            characters: How many its JSON takes without quotes.
            quote: How many characters stand before it.
        """
        longest_mark = _mark(characters, self._place.length, self._place.length)
        room = most - len(longest_mark)
        head = _escape(text, room * 2 // 3, lambda kept: text[:kept])
        tail = _escape(text, room // 3, lambda kept: text[len(text) - kept :])
        left_out = characters - len(head) - len(tail)
        at = self._place.at + quote + len(head)
        return f"{head}{_mark(left_out, at, self._place.length)}{tail}"

    def _measure(self, text: str) -> _Written:
        length = self._known.texts.get(id(text))
        if length is None:
            written = write_json(text)
            length = _Written(size(written), len(written))
            self._known.texts[id(text)] = length
        return length


def _slice(parts: Any, gap: _Gap) -> Any:
    if type(parts) is dict:
        return dict(islice(parts.items(), gap.begin, gap.end))
    return parts[gap.begin : gap.end]


def _mark(left_out: int, at: int, length: int) -> str:
    """Return what stands for the middle of a text; it has no offset where the whole has no length."""
    if length:
        return f" [... {left_out} at {at} ...] "
    return f" [... {left_out} characters left out ...] "


def _escape(text: str, most: int, take: Callable[[int], str]) -> str:
    """Return as much of a text as fits in `most` bytes of JSON; `take` returns a number of its characters."""
    kept = min(most, len(text))
    while True:
        written = write_json(take(kept))[1:-1]
        needed = size(written)
        if needed <= most or not kept:
            return written
        kept = min(kept - 1, kept * most // needed)


def _is_short(value: Json) -> bool:
    """Whether a value is a number or a text that may name its row."""
    kind = type(value)
    if kind is dict or kind is list:
        return False
    return kind is not str or len(value) <= _NAME_BYTES


def size(text: str) -> int:
    """Return how many bytes of UTF-8 a text takes."""
    if text.isascii():
        return len(text)
    return len(text.encode())
