"""Redaction of what is exported.

Rule 1: names in schemas stay: a parameter called `password` is described, and its value in a call is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from handrail.calls import Media, ToolCall, arguments_text
from handrail.core.redaction import Redactor
from handrail.errors import Json
from handrail.journal.sealed_store import hide_seals
from handrail.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.parsing import jsontext

T = TypeVar("T")


class Redaction:
    """Takes secrets out of messages and tools, and counts the texts that it changed."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._redactor = Redactor(secrets)
        self.changed = 0

    def message(self, message: Message) -> Message:
        """Return the message without secrets; the same object if there are none in it."""
        match message:
            case SystemMessage(text=text):
                changes: dict[str, Any] = {"text": self.text(text)}
                return _changed(message, changes)
            case UserMessage(text=text, parts=parts):
                changes = {
                    "text": self.text(text),
                    "parts": tuple(self._part(each) for each in parts),
                }
                return _changed(message, changes)
            case AssistantMessage(turn=turn):
                return _changed(message, {"turn": self._turn(turn)})
            case ToolMessage(result=result):
                text = self.text(result.text)
                media = tuple(self._media(each) for each in result.media)
                return _changed(
                    message,
                    {"result": _changed(result, {"text": text, "media": media})},
                )

    def text(self, text: str) -> str:
        """Return a text without secrets; in JSON, also without the values of fields that are named like secrets."""
        shown = self._hide(text)
        if text[:1] in ("{", "["):
            try:
                value = jsontext.loads(shown)
            except jsontext.NotJson:
                value = None
            hidden = self._redactor.value(value, self._hide)
            if value is not None and hidden != value:
                shown = arguments_text(hidden)
        self.changed += shown != text
        return shown

    def function(self, function: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the description of a tool without secrets in its texts."""
        shown = _map_texts(function, self._hide)
        self.changed += shown != function
        return shown if shown != function else function

    def _hide(self, text: str) -> str:
        return self._redactor.text(hide_seals(text))

    def _turn(self, turn: Turn) -> Turn:
        changes = {
            "text": self.text(turn.text),
            "reasoning": self.text(turn.reasoning),
            "refusal": self.text(turn.refusal),
            "calls": tuple(self._call(each) for each in turn.calls),
        }
        return _changed(turn, changes)

    def _call(self, call: ToolCall) -> ToolCall:
        return _changed(call, {"arguments": self.text(call.arguments)})

    def _part(self, part: Mapping[str, Json] | Media) -> Mapping[str, Json] | Media:
        if isinstance(part, Media):
            return self._media(part)
        shown = _map_texts(part, self._hide)
        return shown if shown != part else part

    def _media(self, media: Media) -> Media:
        changes = {"url": self.text(media.url), "name": self.text(media.name)}
        return _changed(media, changes)


def _changed(value: T, changes: Mapping[str, Any]) -> T:
    """Return a value with the changes; the same object if they change nothing."""
    real = {
        name: new
        for name, new in changes.items()
        if not _same(getattr(value, name, UNSET), new)
    }
    if not real:
        return value
    changed: T = replace(value, **real)  # type: ignore[type-var]  # a struct
    return changed


def _same(old: Any, new: Any) -> bool:
    if isinstance(new, tuple) and isinstance(old, Sequence):
        return len(old) == len(new) and all(map(_same, old, new))
    return old is new or (isinstance(new, str) and old == new)


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _map_texts(part, change) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_texts(part, change) for part in value]
    return value
