"""Conversations as the conventions for generative AI write them: messages of typed parts, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from handrail.calls import ToolCall
from handrail.errors import Json
from handrail.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.observers import conventions as names

MOST_CHARS = 64 * 1024
"""How much of one conversation a span carries; collectors drop larger attributes, or the whole span."""

Redact = Callable[[Json], Json]


def as_json(value: Any, redact: Redact) -> str:
    """Return a value as JSON without secrets, cut to `MOST_CHARS`."""
    text = json.dumps(redact(value), ensure_ascii=False, default=str)
    if len(text) <= MOST_CHARS:
        return text
    return f"{text[:MOST_CHARS]}... [{len(text) - MOST_CHARS} more characters]"


def read_arguments(text: str) -> Json:
    """Return a call's arguments as JSON; as the model's text where they are none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def system_parts(messages: Iterable[Message]) -> list[dict[str, Json]]:
    """Return the instructions to the model, each a part."""
    return [
        _text_part(message.text)
        for message in messages
        if isinstance(message, SystemMessage)
    ]


def input_messages(messages: Iterable[Message]) -> list[dict[str, Json]]:
    """Return what the model reads beside its instructions."""
    return [
        _message(message)
        for message in messages
        if not isinstance(message, SystemMessage)
    ]


def output_messages(turn: Turn) -> list[dict[str, Json]]:
    """Return what the model answered: one message."""
    return [
        {
            "role": "assistant",
            "parts": _turn_parts(turn),
            "finish_reason": names.FINISHES[turn.finish],
        }
    ]


def tool_definitions(tools: Sequence[Any]) -> list[dict[str, Json]]:
    """Return how tools are described to the model."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        for tool in tools
    ]


def _message(message: Message) -> dict[str, Json]:
    match message:
        case UserMessage():
            return {"role": "user", "parts": _user_parts(message)}
        case AssistantMessage(turn=turn):
            return {"role": "assistant", "parts": _turn_parts(turn)}
        case ToolMessage(result=result):
            response = {
                "type": "tool_call_response",
                "id": result.call_id,
                "response": result.text,
            }
            return {"role": "tool", "parts": [response]}
        case SystemMessage(text=text):
            return {"role": "system", "parts": [_text_part(text)]}


def _user_parts(message: UserMessage) -> list[dict[str, Json]]:
    if not message.parts:
        return [_text_part(message.text)]
    return [_user_part(part) for part in message.parts]


def _user_part(part: Any) -> dict[str, Json]:
    """Return a part of what a person says; of an image or a file its kind only."""
    if isinstance(part, Mapping):
        if part.get("type") == "text":
            return _text_part(str(part.get("text", "")))
        return {"type": str(part.get("type", "part"))}
    return {"type": "blob", "mime_type": part.media_type}


def _turn_parts(turn: Turn) -> list[dict[str, Json]]:
    parts = []
    if turn.text or not turn.calls:
        parts.append(_text_part(turn.text))
    return parts + [_call_part(call) for call in turn.calls]


def _call_part(call: ToolCall) -> dict[str, Json]:
    return {
        "type": "tool_call",
        "id": call.id,
        "name": call.name,
        "arguments": read_arguments(call.arguments),
    }


def _text_part(text: str) -> dict[str, Json]:
    return {"type": "text", "content": text}
