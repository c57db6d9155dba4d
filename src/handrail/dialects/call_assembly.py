"""Which call a streamed piece belongs to, for providers that stream calls in numbered pieces.

OpenAI's form is clear: each call has its own index, its first piece brings an id and a name, the others bring
arguments only. Servers that copy the form keep to less of it: every call at index 0, no ids, id and name in every
piece, indexes used twice, none at all. So a piece is placed by its id, else by its index, else at the last call; and it
begins a new call where it contradicts the call at that place.

Rule 1: a piece without a name never begins a call where another call could take it: arguments glued together
        (`{"a":1}{"a":2}`) stay one text, and `jsontext` refuses it.
Rule 2: linear in the length of the stream: pieces are collected in lists, each character is looked at once at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from msgspec.structs import replace

from handrail.calls import ToolCall

_MARK = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)


class StreamedCall:
    """A call on its way."""

    __slots__ = (
        "_brackets",
        "_seen",
        "announced",
        "extras",
        "id",
        "name",
        "pieces",
        "position",
    )

    def __init__(self, position: int, id: str, name: str) -> None:
        self.position = position
        self.id = id
        self.name = name
        self.pieces: list[str] = []
        self.extras: dict[str, Any] = {}
        # the name came again after whole arguments; the next text begins another call
        self.announced = False
        self._brackets = _Brackets()
        self._seen = 0

    def is_whole(self) -> bool:
        """Whether the arguments so far are closed JSON objects, with nothing open."""
        for piece in self.pieces[self._seen :]:
            self._brackets.take(piece)
        self._seen = len(self.pieces)
        return self._brackets.closed


class CallAssembler:
    """Puts the pieces of one turn's calls together.

    Args:
        is_tool: Whether a wire name is a tool's. It settles whether a name that follows another one, before any
            arguments, is the rest of it (`get_` `weather`) or another call's.
    """

    def __init__(self, is_tool: Callable[[str], bool]) -> None:
        self.calls: list[StreamedCall] = []
        self._is_tool = is_tool
        self._by_id: dict[str, StreamedCall] = {}
        self._by_index: dict[int, StreamedCall] = {}

    def take(self, index: int | None, id: str, name: str, text: str) -> StreamedCall:
        """Add one piece and return the call that it belongs to. What the piece does not say is None or empty."""
        call = self._find(index, id, name)
        if call is None or self._begins_another(call, index, id, name, text):
            call = self._begin(
                index, id, name or (call.name if call and call.announced else "")
            )
        else:
            self._update(call, index, id, name)
        if text:
            call.pieces.append(text)
        return call

    def finish(self) -> list[ToolCall]:
        """Return the calls in the order in which they began; those without an id get `call_<n>`."""
        calls = [
            ToolCall(call.id, call.name, "".join(call.pieces)) for call in self.calls
        ]
        return with_ids(calls)

    def _find(self, index: int | None, id: str, name: str) -> StreamedCall | None:
        if id and (call := self._by_id.get(id)):
            return call
        if index is not None and (call := self._by_index.get(index)):
            return call
        if index is None or not (id or name):
            return self.calls[-1] if self.calls else None
        return None

    def _begins_another(
        self, call: StreamedCall, index: int | None, id: str, name: str, text: str
    ) -> bool:
        has_other_id = bool(id and call.id and id != call.id)
        has_text = bool(text.strip())
        if not name:
            # A new id alone says little: some servers invent one for every piece of one call.
            is_elsewhere = has_other_id or (
                index is not None and index not in self._by_index
            )
            return has_text and (call.announced or (is_elsewhere and call.is_whole()))
        if has_other_id:
            return True
        if name != call.name:
            return bool(call.pieces) or (bool(call.name) and self._is_tool(call.name))
        return call.is_whole() and self._calls_tool_again(call, index, id, has_text)

    def _calls_tool_again(
        self, call: StreamedCall, index: int | None, id: str, has_text: bool
    ) -> bool:
        """Whether a piece that names a whole call's tool again begins another call of that tool."""
        # repeated in every piece, unless one id serves for all calls
        if id and id == call.id:
            return has_text and self._is_elsewhere(call, index)
        return bool(id) or has_text

    def _is_elsewhere(self, call: StreamedCall, index: int | None) -> bool:
        return index is not None and self._by_index.get(index) is not call

    def _begin(self, index: int | None, id: str, name: str) -> StreamedCall:
        call = StreamedCall(len(self.calls), id, name)
        self.calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if id:
            self._by_id[id] = call
        return call

    def _update(
        self, call: StreamedCall, index: int | None, id: str, name: str
    ) -> None:
        """Take over what the piece says of its call beside arguments."""
        if id and not call.id:
            call.id = id
        if id:
            self._by_id[id] = call
        if not name:
            return
        if name != call.name:
            call.name += name
        elif (not id or self._is_elsewhere(call, index)) and call.is_whole():
            call.announced = True


def with_ids(calls: list[ToolCall], answer: str = "") -> list[ToolCall]:
    """Return the calls with `call_<n>` where the provider sent no id; `n` counts the calls of the turn from 0.

    Args:
        answer: The answer's own id. With it as a part, the ids of two turns differ.
    """
    ids = [call.id for call in calls]
    if "" not in ids:
        return calls
    taken = set(ids)
    ending = ""
    if answer:
        ending = f"_{re.sub('[^a-zA-Z0-9_-]', '', answer)[:_MOST_ANSWER_CHARS]}"
    completed: list[ToolCall] = []
    for position, call in enumerate(calls):
        if not call.id:
            id = next(
                each for each in _candidate_ids(position, ending) if each not in taken
            )
            taken.add(id)
            call = replace(call, id=id)
        completed.append(call)
    return completed


def was_made(id: str) -> bool:
    """Whether `with_ids` made an id, perhaps numbered since. Where an id is optional, such an id is left out."""
    return _MADE.fullmatch(id) is not None


_MADE = re.compile(r"call_\d+(_[a-zA-Z0-9_-]*)?")
_MOST_ANSWER_CHARS = 24
"""OpenAI takes ids of up to 40 characters, and a conversation may go on there."""


def _candidate_ids(position: int, ending: str) -> Iterator[str]:
    yield f"call_{position}{ending}"
    yield from (f"call_{position}{ending}_{turn}" for turn in count(2))


class _Brackets:
    """Watches whether JSON text is closed, piece by piece, without reading what is in it."""

    __slots__ = ("_depth", "_escape_is_cut", "_in_string", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._depth = 0
        self._in_string = False
        # the last piece ended between a backslash and its character
        self._escape_is_cut = False

    def take(self, piece: str) -> None:
        start = 1 if self._escape_is_cut else 0
        self._escape_is_cut = False
        for mark in _MARK.findall(piece, start):
            if mark[0] == "\\":
                self._escape_is_cut = len(mark) == 1
            elif mark == '"':
                self._in_string = not self._in_string
            elif self._in_string:
                continue
            elif mark in "{[":
                self._depth += 1
                self.closed = False
            else:
                self._depth -= 1
                self.closed = mark == "}" and self._depth == 0
