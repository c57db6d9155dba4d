"""Conversations as JSON: in handrail's own form, which loses nothing, or as any provider's request holds them.

    text = json.dumps(hr.messages_as_json(run.messages))
    run = await runtime.run([*hr.messages_from_json(json.loads(text)), hr.UserMessage("And now?")], model=...)

    body = hr.messages_as_json(run.messages, dialect="anthropic")     # {"messages": [...], "system": "..."}
    messages = hr.messages_from_json(body, dialect="anthropic")

Rule 1: what is read back in handrail's own form makes the same request, byte for byte, to every provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from handrail.dialects import Conversation, wire_dialect
from handrail.errors import ConfigError, JournalMismatch, Json, ModelError
from handrail.journal.codec import message_as_json, message_from_json
from handrail.messages import Message, conversation_of

_LISTS = ("messages", "input", "contents")
"""How the wires that we have call the list of messages in a request."""
_OF_A_CONVERSATION = (
    "system",
    "instructions",
    "systemInstruction",
    "system_instruction",
    *_LISTS,
)
"""The members of requests that hold a conversation."""


@overload
def messages_as_json(messages: Conversation) -> list[dict[str, Json]]: ...
@overload
def messages_as_json(messages: Conversation, *, dialect: str) -> dict[str, Json]: ...
def messages_as_json(
    messages: Conversation, *, dialect: str = ""
) -> list[dict[str, Json]] | dict[str, Json]:
    """Return messages as JSON.

    Args:
        messages: Of a run, a question, or dictionaries in the chat form.
        dialect: The wire of a provider, such as `anthropic`; empty for handrail's own form.

    Returns:
        A list with an object for each message; with a dialect the members of that provider's request that hold the
        conversation, such as `messages` and `system`.

    Raises:
        ConfigError: There is no such dialect, it writes prompts, or something is no message.
    """
    conversation = conversation_of(messages)
    if not dialect:
        return [message_as_json(each) for each in conversation]
    body: Mapping[str, Json] = wire_dialect(dialect).encode_request(conversation)
    return {name: body[name] for name in _OF_A_CONVERSATION if name in body}


def messages_from_json(body: Json, *, dialect: str = "") -> list[Message]:
    """Return messages from JSON that `messages_as_json`, or a provider's client, has written.

    Args:
        body: A list in handrail's own form, or in the chat form that every tool exports. With a dialect a request's
            body, or the list in it.
        dialect: The wire of a provider; empty for the other two.

    Raises:
        ConfigError: There is no such dialect, or the body holds no messages in that form.
    """
    if dialect:
        return _decode_request(body, dialect)
    if not isinstance(body, Sequence) or isinstance(body, str | bytes):
        raise ConfigError(
            f"messages are a list in JSON, not {type(body).__name__}; a provider's request is read with `dialect=`"
        )
    return [_read_message(each, number) for number, each in enumerate(body, 1)]


def _read_message(body: Json, number: int) -> Message:
    if not isinstance(body, Mapping):
        raise ConfigError(
            f"message {number} is of type {type(body).__name__}; a message is an object"
        )
    if "role" in body:
        return conversation_of(body)[0]
    kinds = _KINDS & body.keys()
    if len(kinds) != 1:
        raise ConfigError(
            f"message {number} has neither a `role` nor one of {', '.join(sorted(_KINDS))}"
        )
    (kind,) = kinds
    if kind in _TEXTS and not isinstance(body[kind], str):
        raise ConfigError(f"message {number}: `{kind}` is no text")
    try:
        return message_from_json(body)
    except JournalMismatch as error:
        raise ConfigError(f"message {number} cannot be read: {error}") from error


_TEXTS = {"system", "user"}
_KINDS = {*_TEXTS, "assistant", "result"}


def _decode_request(body: Json, dialect: str) -> list[Message]:
    wire = wire_dialect(dialect)
    request = wire.encode_request("?")
    name = next(name for name in _LISTS if name in request)
    if not isinstance(body, Mapping | str | bytes) and isinstance(body, Iterable):
        body = {name: list(body)}
    if not isinstance(body, Mapping) or name not in body:
        raise ConfigError(
            f"a conversation in the form of {dialect!r} is an object with `{name}`, or the list in it"
        )
    try:
        return wire.decode_conversation(body)
    except (
        ModelError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
    ) as error:
        raise ConfigError(
            f"the body is no conversation in the form of {dialect!r}: {error}"
        ) from error
