"""JSON as it was received, made fit to be stored, shown and sent back.

Python reads more than it can write: lone surrogates, NaN, and values nested deeper than a serializer follows.

A server that counts UTF-16 units may cut a character in two and send the halves in two pieces. Pieces are read as they
come; what leaves a dialect is whole.

Rule 1: what is sound is returned as it is, the same object.
Rule 2: half a character becomes a question mark in text for people. In a call it stays half a character, so that
        `jsontext` refuses the call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from types import NoneType

import msgspec
from msgspec.structs import replace

from handrail.errors import Json
from handrail.messages import ArgumentsDelta, Delta, Turn

MOST_LEVELS = 64
"""Of nesting, that a request carries."""

OBJECT = (dict, Mapping)
"""A JSON object. `dict` comes first because the check of an abstract class costs ten times as much, on every delta."""

_MOST_SHOWN_CHARS = 80


def encodable(value: Json) -> Json:
    """Return a JSON value that UTF-8 can encode: half a character becomes a question mark."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (
        TypeError,
        ValueError,
        RecursionError,
    ):  # no JSON, or too deep: nothing that a provider sent
        return value
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(legible(text))
    return value


_HALF = re.compile("[\ud800-\udfff]")
_FIRST_HALF = re.compile("[\ud800-\udbff]")


def join_halves(text: str) -> str:
    """Return the text with each pair of adjacent halves joined into one character.

    >>> join_halves("\\ud83d" + "\\ude00")
    '😀'
    """
    if not has_half(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode(
        "utf-16-le", "surrogatepass"
    )


def has_half(text: str) -> bool:
    """Whether half a character is in the text, with or without its other half."""
    return not text.isascii() and _HALF.search(text) is not None


def first_half_at_end(text: str) -> str:
    """Return the first half of a character at the end of a text; empty if there is none."""
    if text and _FIRST_HALF.match(text[-1]):
        return text[-1]
    return ""


def legible(text: str) -> str:
    """Return text for people: half a character is a question mark."""
    return join_halves(text).encode("utf-8", "replace").decode()


def escape_halves(arguments: str) -> str:
    """Return arguments with half a character escaped as in JSON, so that the text can be stored and shown.

    The escape is written twice, because after a backslash of the model's the first one would be plain text.
    """
    return _HALF.sub(lambda half: 2 * f"\\u{ord(half[0]):04x}", join_halves(arguments))


def whole_turn(turn: Turn) -> Turn:
    """Return a turn that can be written as UTF-8, with every character whole; see rule 2."""
    try:
        msgspec.json.encode(turn)  # the quickest way to see that all of it is sound
        return turn
    except (TypeError, ValueError, RecursionError, OverflowError):
        calls = [
            replace(
                call,
                id=legible(call.id),
                name=legible(call.name),
                arguments=escape_halves(call.arguments),
            )
            for call in turn.calls
        ]
        return replace(
            turn,
            text=legible(turn.text),
            reasoning=legible(turn.reasoning),
            refusal=legible(turn.refusal),
            waits_for=legible(turn.waits_for),
            calls=tuple(calls),
            raw=None if turn.raw is None else encodable(turn.raw),
            server_side=tuple(map(encodable, turn.server_side)),
        )


class WholeDeltas:
    """Holds back the first half of a character until the other half arrives, separately for each text of an answer."""

    def __init__(self) -> None:
        self._halves: dict[tuple[type[Delta], int], str] = {}

    def take(self, deltas: list[Delta]) -> list[Delta]:
        """Return the part of these deltas that is whole. A half that stays alone appears in the turn only."""
        for delta in deltas:
            if self._halves or not delta.text.isascii():
                return [each for delta in deltas if (each := self._whole(delta))]
        return deltas

    def _whole(self, delta: Delta) -> Delta | None:
        is_call = isinstance(delta, ArgumentsDelta)
        key = type(delta), delta.index if isinstance(delta, ArgumentsDelta) else 0
        if key not in self._halves and not _HALF.search(delta.text):
            return delta
        text = join_halves(self._halves.pop(key, "") + delta.text)
        if half := first_half_at_end(text):
            self._halves[key] = half
            text = text[:-1]
        if not (text or is_call):
            return None
        return replace(delta, text=escape_halves(text) if is_call else legible(text))


def is_sendable(value: Json, levels: int = MOST_LEVELS) -> bool:
    """Whether a request can carry the value: no NaN and no infinity in it, and no more levels than these."""
    if isinstance(value, float):
        return isfinite(value)
    values: Iterable[Json]
    if isinstance(value, (list, tuple)):
        values = value
    elif isinstance(value, OBJECT):
        values = value.values()
    else:
        return True
    if not levels:
        return False
    for each in values:
        if type(each) in _ALWAYS_SENDABLE:
            continue
        if not is_sendable(each, levels - 1):
            return False
    return True


_ALWAYS_SENDABLE = frozenset((str, int, bool, NoneType))


def sendable_fields(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields without those that no request can carry."""
    return {
        name: value
        for name, value in fields.items()
        if type(value) in _ALWAYS_SENDABLE or is_sendable(value)
    }


def beginning(text: str | bytes) -> str:
    """Return how an unreadable answer begins, escaped, in quotation marks."""
    head = text[:_MOST_SHOWN_CHARS]
    return repr(head.decode("utf-8", "replace") if isinstance(head, bytes) else head)
