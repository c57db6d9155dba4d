"""Requests as bytes: what was encoded for an earlier turn is not encoded again.

A conversation grows at its end, and every request holds all of it. So the bytes of a request are cached, and when the
next one begins with the very same messages, only what is new is encoded and appended. That is exact because a
history can be cut before an assistant's message that follows a result or a person: no wire joins, moves or marks
anything across such a place, as long as every call before it has its result there and no id comes again.

Rule 1: bytes are used again for the same message objects, tools and options only; messages are frozen.
Rule 2: what cannot be cut is encoded whole: the bytes mean the same with and without the cache.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from msgspec import Struct
from pydantic_core import PydanticSerializationError, to_json

from handrail.core.history import sanitize
from handrail.dialects import WireDialect
from handrail.errors import ConfigError, Json, ModelError
from handrail.messages import AssistantMessage, Message, Options, SystemMessage

MOST_CACHED_BYTES = 16 * 1024 * 1024
"""Of all active conversations. Beyond it the least recently used ones are dropped."""

_UNWRITABLE = (PydanticSerializationError, ValueError, RecursionError)
_ANSWERS = ("assistant", "model")
_DECIDED_BY_ANSWERS = frozenset({"container"})
"""Fields before the history that change with it: a request that has one is encoded whole."""


_MARK = "cache_control"
"""The field that has a whole request cached; a caller's own marks in a message replace it."""


class _EncodedRequest(Struct, frozen=True):
    """An encoded request: the fields before its tools and its history, and the history without brackets.

    Attributes:
        ids: Of its calls.
        is_marked: The provider is asked to keep it.
    """

    messages: Sequence[Message]
    tools: Json
    options: Options
    frame: bytes
    tools_bytes: bytes
    history: bytes
    ids: frozenset[str]
    is_marked: bool

    def is_extended_by(
        self, messages: Sequence[Message], definitions: Json, options: Options
    ) -> bool:
        """Whether a request with these begins with the very messages of this one, tools and options being the same."""
        if definitions is not self.tools or options != self.options:
            return False
        return _find_cut(messages) == len(self.messages) and all(
            map(operator.is_, self.messages, messages)
        )


class RequestEncoder:
    """Encodes requests for one wire. Thread-safe."""

    def __init__(self, wire: WireDialect) -> None:
        self._wire = wire
        self._marks_history = getattr(wire, "marks_history", _never)
        self._field = str(getattr(wire, "history", ""))  # empty: nothing is cached
        self._tools: tuple[Json, bytes] = (None, b"")
        self._requests: OrderedDict[int, _EncodedRequest] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def body(self, messages: Sequence[Message], tools: Any, options: Options) -> bytes:
        """Return a request as bytes.

        Raises:
            ConfigError: A tool or an option holds something that JSON cannot.
            ModelError: The conversation does (`code="unwritable"`): it stems from people, tools and the model itself.
        """
        if (
            self._field in ("", *options.extra)
            or options.tool_choice == "none"
            or not hasattr(tools, "compute_once")
            or self._marks_history(messages, options)
        ):
            fields = self._wire.encode_request(messages, tools, options)
            tools_bytes = self._take_tools(fields, options)
            return b"".join((_frame(fields), tools_bytes))[:-1] + b"}"
        definitions: Json = self._wire.definitions(tools, strict=options.strict)
        request = self._extend(messages, tools, definitions, options)
        if request is None:
            request = self._whole(messages, tools, definitions, options)
        return b"".join(
            (
                request.frame,
                request.tools_bytes,
                b'"',
                self._field.encode(),
                b'":[',
                request.history,
                b"]}",
            )
        )

    def _extend(
        self,
        messages: Sequence[Message],
        tools: Any,
        definitions: Json,
        options: Options,
    ) -> _EncodedRequest | None:
        """Append what is new to a cached request; None if there is none to extend."""
        cut = _find_cut(messages)
        if not cut:
            return None
        previous = self._requests.get(id(messages[cut - 1]))
        if previous is None or not previous.is_extended_by(
            messages, definitions, options
        ):
            return None
        new = messages[cut:]
        ids = _ids(new)
        has_system = any(isinstance(each, SystemMessage) for each in new)
        if has_system or not previous.ids.isdisjoint(ids) or not _is_sound(new):
            return None
        fields = self._wire.encode_request(new, tools, options)
        history = fields[self._field]
        if not _DECIDED_BY_ANSWERS.isdisjoint(fields):
            return None
        if (_MARK in fields) != previous.is_marked:
            return None
        if not history or history[0].get("role") in ("user", "tool"):
            # this wire leaves the answer out, so that its neighbours may join
            return None
        self._forget(previous)
        extended = _EncodedRequest(
            messages=(*messages,),
            tools=definitions,
            options=options,
            frame=previous.frame,
            tools_bytes=previous.tools_bytes,
            history=previous.history + b"," + _encode_history(history),
            ids=previous.ids | ids,
            is_marked=previous.is_marked,
        )
        return self._remember(extended, history)

    def _whole(
        self,
        messages: Sequence[Message],
        tools: Any,
        definitions: Json,
        options: Options,
    ) -> _EncodedRequest:
        fields = self._wire.encode_request(messages, tools, options)
        history = fields.pop(self._field)
        is_marked = _MARK in fields
        tools_bytes = self._take_tools(fields, options)
        request = _EncodedRequest(
            messages=(*messages,),
            tools=definitions,
            options=options,
            frame=_frame(fields),
            tools_bytes=tools_bytes,
            history=_encode_history(history),
            ids=_ids(messages),
            is_marked=is_marked,
        )
        is_reusable = _DECIDED_BY_ANSWERS.isdisjoint(fields) and _is_sound(messages)
        if is_reusable:
            return self._remember(request, history)
        return request

    def _take_tools(self, fields: dict[str, Json], options: Options) -> bytes:
        """Take the tools out of a request's fields; return their bytes, which are one object for all runs."""
        tools = fields.pop("tools", None)
        encoded = self._tools  # read once: another thread may write it
        try:
            if tools is not None and tools is not encoded[0]:
                encoded = (tools, b'"tools":' + to_json(tools) + b",")
                self._tools = encoded
            to_json(dict(options.extra))
        except _UNWRITABLE as error:
            raise ConfigError(
                f"the request cannot be written as JSON: {error}"
            ) from error
        return b"" if tools is None else encoded[1]

    def _remember(
        self, request: _EncodedRequest, history: Sequence[Mapping[str, Json]]
    ) -> _EncodedRequest:
        """Cache the request, unless the next answer might join with its end."""
        if history and history[-1].get("role") not in _ANSWERS:
            with self._lock:
                self._requests[id(request.messages[-1])] = request
                self._size += len(request.history)
                while self._size > MOST_CACHED_BYTES:
                    self._size -= len(self._requests.popitem(last=False)[1].history)
        return request

    def _forget(self, request: _EncodedRequest) -> None:
        with self._lock:
            if self._requests.pop(id(request.messages[-1]), None) is not None:
                self._size -= len(request.history)


def _never(messages: Sequence[Message], options: Options) -> bool:  # noqa: ARG001  # `BaseWire.marks_history`
    return False


def _frame(fields: Mapping[str, Json]) -> bytes:
    """Return fields as an object that is still open."""
    return _json(fields)[:-1] + (b"," if fields else b"")


def _find_cut(messages: Sequence[Message]) -> int:
    """Return where the last answer begins that follows a person or a result; 0 where there is none."""
    for place in range(len(messages) - 1, 0, -1):
        if isinstance(messages[place], AssistantMessage) and not isinstance(
            messages[place - 1], AssistantMessage
        ):
            return place
    return 0


def _is_sound(messages: Sequence[Message]) -> bool:
    return sanitize(messages).messages is messages


def _ids(messages: Sequence[Message]) -> frozenset[str]:
    return frozenset(
        call.id
        for each in messages
        if isinstance(each, AssistantMessage)
        for call in each.turn.calls
    )


def _encode_history(history: Json) -> bytes:
    return _json(history)[1:-1]


def _json(value: Json) -> bytes:
    try:
        return to_json(value)
    except _UNWRITABLE as error:
        raise ModelError(
            f"the conversation cannot be written as JSON: {error}", code="unwritable"
        ) from error
