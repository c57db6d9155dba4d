"""Redaction of what is exported.

Rule 1: names in schemas stay: a parameter called `password` is described, and its value in a call is hidden.
Rule 2: JSON is parsed before it is redacted, and stays JSON: `***` as a text takes the place of a value.
Rule 3: text that is no JSON may contain some, or may be malformed: a list or object behind the name of a secret is
        hidden up to its end, or to the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from handrail.calls import Media, ToolCall, arguments_text
from handrail.core.history import as_history
from handrail.core.redaction import HIDDEN, Redactor, is_secret_name
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

_UNREADABLE: Final = "INVALID_JSON"
"""The key of arguments that are no JSON object; see `as_history`."""
_NAME_AND_LIST: Final = re.compile(
    r"""(\\{0,4}["'])([^"'\\\n]{1,64})\1\s{0,20}[:=]>?\s{0,20}(?=[\[{(])"""
)
"""A name in quotes, perhaps escaped ones, before a list or an object."""
_NAME: Final = re.compile(r"([\w.\-]{1,64})(?=[\\\"'’”]{0,9}\s{0,20}[:=：＝])")
"""A name before its value, in quotes or not."""
_QUOTE_OR_BRACKET: Final = re.compile(r"""(\\*)(["'])|[\[{(]|[\]})]""")


class Redaction:
    """Takes secrets out of messages and tools, and counts the texts that it changed."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._redactor = Redactor(secrets)
        self.changed = 0

    def redact_message(self, message: Message) -> Message:
        """Return the message without secrets; the same object if there are none in it."""
        match message:
            case SystemMessage(text=text):
                changes: dict[str, Any] = {"text": self.redact_text(text)}
                return _replace_changed(message, changes)
            case UserMessage(text=text, parts=parts):
                changes = {
                    "text": self.redact_text(text),
                    "parts": tuple(self._part(each) for each in parts),
                }
                return _replace_changed(message, changes)
            case AssistantMessage(turn=turn):
                return _replace_changed(message, {"turn": self._turn(turn)})
            case ToolMessage(result=result):
                text = self.redact_text(result.text)
                media = tuple(self._media(each) for each in result.media)
                return _replace_changed(
                    message,
                    {
                        "result": _replace_changed(
                            result, {"text": text, "media": media}
                        )
                    },
                )

    def redact_text(self, text: str) -> str:
        """Return a text without secrets; in JSON, also without the values of fields that are named like secrets."""
        shown = self._hide_in_text(text)
        self.changed += shown != text
        return shown

    def redact_function(self, function: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the description of a tool without secrets in its texts."""
        shown = _map_texts(function, self._hide)
        self.changed += shown != function
        return shown if shown != function else function

    def _hide_in_text(self, text: str) -> str:
        if text.lstrip()[:1] in ("{", "["):
            try:
                value = jsontext.loads(text)
            except jsontext.NotJson:
                return self._hide(text)
            hidden = self._hide_in_value(value)
            return text if hidden == value else arguments_text(hidden)
        return self._hide(text)

    def _hide_in_value(self, value: Json) -> Json:
        if isinstance(value, str):
            return self._hide_in_text(value)
        if isinstance(value, Mapping):
            return {
                self._hide(name): self._hide_in_field(name, part)
                for name, part in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._hide_in_value(part) for part in value]
        text = arguments_text(value)
        return value if self._hide(text) == text else HIDDEN

    def _hide_in_field(self, name: str, part: Json) -> Json:
        if part is None or part == "":
            return part
        if is_secret_name(name):
            return HIDDEN
        shown = self._hide_in_value(part)
        if isinstance(part, (Mapping, list)) or shown != part:
            return shown
        # `mypassword` names a secret in a text, where no name has a certain beginning
        line = arguments_text({name: part})
        return shown if self._hide(line) == line else HIDDEN

    def _hide(self, text: str) -> str:
        return self._redactor.text(hide_seals(_hide_lists(text)))

    def _turn(self, turn: Turn) -> Turn:
        changes = {
            "text": self.redact_text(turn.text),
            "reasoning": self.redact_text(turn.reasoning),
            "refusal": self.redact_text(turn.refusal),
            "calls": tuple(self._call(each) for each in turn.calls),
        }
        return _replace_changed(turn, changes)

    def _call(self, call: ToolCall) -> ToolCall:
        arguments = as_history(call.arguments)
        shown = self._hide_in_arguments(arguments)
        if shown == arguments:
            return call
        self.changed += 1
        return replace(call, arguments=shown)

    def _hide_in_arguments(self, arguments: str) -> str:
        value = jsontext.loads(arguments)
        if isinstance(value, Mapping) and list(value) == [_UNREADABLE]:
            names = _NAME.finditer(str(value[_UNREADABLE]))
            if any(is_secret_name(name[1]) for name in names):
                return arguments_text({_UNREADABLE: HIDDEN})
        return self._hide_in_text(arguments)

    def _part(self, part: Mapping[str, Json] | Media) -> Mapping[str, Json] | Media:
        if isinstance(part, Media):
            return self._media(part)
        shown = _map_texts(part, self._hide_in_text)
        return shown if shown != part else part

    def _media(self, media: Media) -> Media:
        changes = {
            "url": self.redact_text(media.url),
            "name": self.redact_text(media.name),
        }
        return _replace_changed(media, changes)


def _hide_lists(text: str) -> str:
    """Return a text without the lists and objects that follow the name of a secret."""
    parts: list[str] = []
    done = 0
    while (found := _NAME_AND_LIST.search(text, done)) is not None:
        end = found.end()
        parts.append(text[done:end])
        if is_secret_name(found[2]):
            parts.append(f"{found[1]}{HIDDEN}{found[1]}")
            end = _find_end(text, end)
        done = end
    return "".join((*parts, text[done:])) if parts else text


def _find_end(text: str, begin: int) -> int:
    """Return where the list or object ends that begins there: the end of the text if it is never closed."""
    depth = 0
    opening = ""
    for token in _QUOTE_OR_BRACKET.finditer(text, begin):
        backslashes, quote = token[1], token[2]
        if quote and opening:
            even = len(opening) == 1 and len(backslashes) % 2 == 0
            if token[0] == opening or (even and quote == opening):
                opening = ""
        elif quote:
            opening = token[0]
        elif not opening:
            depth += 1 if token[0] in "[{(" else -1
            if not depth:
                return token.end()
    return len(text)


def _replace_changed(value: T, changes: Mapping[str, Any]) -> T:
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
