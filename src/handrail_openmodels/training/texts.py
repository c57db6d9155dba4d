"""Calls, tools and arguments as training sets spell them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from handrail.calls import Media, ToolCall, arguments_text
from handrail.core.history import as_history
from handrail.dialects.parts import parse_attachment
from handrail.errors import ConfigError, Json
from handrail.messages import Message, ToolMessage, UserMessage
from handrail.parsing import jsontext
from handrail_openmodels.training.examples import Function, Unwritable


def dump(value: Json) -> str:
    """Return JSON as one line of text, in which no letter of any language is escaped."""
    return json.dumps(value, ensure_ascii=False)


def load_arguments(call: ToolCall) -> dict[str, Json]:
    """Return a call's arguments as an object; text that is no object becomes one member, see `as_history`."""
    arguments: dict[str, Json] = jsontext.loads(as_history(call.arguments))
    return arguments


def read_call_object(value: Json) -> tuple[str, str]:
    """Return the name and the arguments of a call.

    Raises:
        ConfigError: The value is no call.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise ConfigError(f"a call has `name` and `arguments`, not {dump(value)[:100]}")
    return value["name"], arguments_text(value.get("arguments"))


def read_functions(tools: Json) -> tuple[Function, ...]:
    """Return the tools of a row: a list, or its JSON text, of functions, wrapped or not.

    Raises:
        ConfigError: The text is no JSON.
    """
    if isinstance(tools, str):
        try:
            tools = jsontext.loads(tools) if tools.strip() else []
        except jsontext.NotJson as error:
            raise ConfigError(f"`tools` is no JSON: {error}") from error
    return tuple(each.get("function", each) for each in tools or ())


def wrap_functions(functions: Sequence[Function]) -> list[Json]:
    """Return tools as the chat form describes them."""
    return [{"type": "function", "function": dict(each)} for each in functions]


def forbid_images(messages: Iterable[Message]) -> None:
    """Check that messages are only text.

    Raises:
        Unwritable: One has an image or another attachment.
    """
    for message in messages:
        parts: Sequence[Mapping[str, Json] | Media] = ()
        if isinstance(message, UserMessage):
            parts = message.parts
        elif isinstance(message, ToolMessage):
            parts = message.result.media
        if any(parse_attachment(part) is not None for part in parts):
            raise Unwritable("it shows images or other files")
