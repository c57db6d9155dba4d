"""Events without the secrets that a run knows, for its observers: an answer that comes in pieces too.

Rule 1: a run that knows no secret never comes here.
Rule 2: what may be the beginning of a secret is held back until the next pieces say whether it is one, or until
        anything else happens. So an observer may get fewer and longer pieces than the model sent.
Rule 3: a call is the same object in all its events, as observers may know it by its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from handrail.calls import Media, ToolCall
from handrail.core.redaction import KnownSecrets
from handrail.events import Event, HttpExchange, ModelAnswered, Streamed
from handrail.messages import ArgumentsDelta, Delta

LEFT_OUT = "[the answer is left out: its pieces hold a secret]"
"""What an observer of the wire reads in place of such an answer."""


class RedactedEvents:
    """An observer that passes events on without known secrets.

    Args:
        tell: Gets each event.
    """

    __slots__ = ("_calls", "_held", "_is_streamed", "_secrets", "_tell")

    def __init__(self, secrets: KnownSecrets, tell: Callable[[Event], None]) -> None:
        self._secrets = secrets
        self._tell = tell
        self._calls: dict[int, tuple[ToolCall, ToolCall]] = {}
        """The calls with a secret, by their identity, and each without it."""
        self._held: dict[Any, tuple[Delta, str]] = {}
        """By what it is a piece of: the newest piece, and the text that is held back."""
        self._is_streamed = False
        """Whether a secret stood in the pieces of the answer that comes."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Streamed):
            self._pass_piece(event.delta)
            return
        self._release()
        event = self._redact(event)
        if self._is_streamed and isinstance(event, HttpExchange):
            # on the wire the secret is in pieces too, with a frame around each
            event = replace(event, answer=LEFT_OUT)
        if isinstance(event, ModelAnswered):
            self._is_streamed = False
        self._tell(event)

    def _pass_piece(self, delta: Delta) -> None:
        channel = _channel_of(delta)
        _, held = self._held.pop(channel, (delta, ""))
        text = held + delta.text
        certain = self._secrets.certain_length(text)
        if certain < len(text):
            self._held[channel] = (delta, text[certain:])
        if certain:
            self._tell_piece(delta, text[:certain])
        elif not text:
            self._tell(Streamed(delta))

    def _release(self) -> None:
        """Pass on what was held back: no further piece comes."""
        held = list(self._held.values())
        self._held.clear()
        for delta, text in held:
            self._tell_piece(delta, text)

    def _tell_piece(self, delta: Delta, text: str) -> None:
        redacted = self._secrets.text(text)
        self._is_streamed = self._is_streamed or redacted != text
        self._tell(Streamed(replace(delta, text=redacted)))

    def _redact(self, value: Any) -> Any:
        """Return a value without secrets; the same object if it has none."""
        if isinstance(value, str):
            return self._secrets.text(value)
        if isinstance(value, ToolCall):
            return self._redact_call(value)
        if isinstance(value, Media):
            return value
        if isinstance(value, Struct):
            return self._redact_struct(value)
        if isinstance(value, Mapping):
            redacted = {
                self._redact(name): self._redact(part) for name, part in value.items()
            }
            return value if redacted == value else redacted
        if isinstance(value, (list, tuple)):
            parts = [self._redact(each) for each in value]
            is_changed = any(
                new is not old for new, old in zip(parts, value, strict=True)
            )
            # Also for a subclass, such as a named tuple.
            kind = list if isinstance(value, list) else tuple
            return kind(parts) if is_changed else value
        return value

    def _redact_struct(self, value: Struct) -> Any:
        changed = {
            name: redacted
            for name, part in asdict(value).items()
            if (redacted := self._redact_field(name, part)) is not part
        }
        return replace(value, **changed) if changed else value

    def _redact_field(self, name: str, part: Any) -> Any:
        if name == "key" and isinstance(part, str):
            return self._secrets.key(part)
        return self._redact(part)

    def _redact_call(self, call: ToolCall) -> ToolCall:
        earlier = self._calls.get(id(call))
        if earlier is not None:
            return earlier[1]
        redacted: ToolCall = self._redact_struct(call)
        if redacted is not call:
            self._calls[id(call)] = (call, redacted)
        return redacted


def _channel_of(delta: Delta) -> Any:
    """Return what a piece is a piece of: the text, the reasoning, or the arguments of one call."""
    if isinstance(delta, ArgumentsDelta):
        return delta.index
    return type(delta)
