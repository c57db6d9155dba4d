"""JSON bodies of providers, looked into: one kind of error for everything that cannot be read.

Each function names what it looked at, so that the error says where a provider's answer went wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic_core import from_json

from handrail.dialects import provider_errors, received
from handrail.errors import Json, ModelError

_MOST_TOKENS = 2**53
"""No provider counts so far; beyond it a float is no longer exact."""

_MOST_EVENT_CHARS = 4_000
"""Of an event that pydantic's reader reads, in a third of the time: no number in it has too many digits for Python."""

OBJECT = received.OBJECT


def unreadable(what: str) -> ModelError:
    """Return the error for an answer without the provider's form; `what` is the reason, as part of a sentence."""
    return ModelError(
        f"the model's provider sent an answer that cannot be read: {what}",
        code="unreadable",
    )


def parse_object(body: Json | bytes) -> Mapping[str, Json]:
    """Return a whole answer, or one event of a stream, as an object.

    Its texts may contain half a character (`received.WholeDeltas`), which `received.whole_turn` joins or replaces.

    Raises:
        ModelError: It is no JSON object (`code="unreadable"`), or Google's list of one error (classified).
    """
    body = parse_body(body)
    if isinstance(body, list) and body and provider_errors.error_in(body):
        raise provider_errors.classify(None, {}, body)
    return mapping(body, "the body")


def parse_body(body: Json | bytes) -> Json:
    """Return a whole answer as a JSON value; see `parse_object`.

    Raises:
        ModelError: It is no JSON (`code="unreadable"`).
    """
    if isinstance(body, (str, bytes)):
        if isinstance(body, str) and len(body) <= _MOST_EVENT_CHARS:
            try:
                return from_json(body)
            except (ValueError, TypeError):
                # half a character among others, which Python's reader takes
                pass
        sent = body
        try:
            if isinstance(body, str):
                text = body.removeprefix("\ufeff")
            else:
                text = body.decode(json.detect_encoding(body))
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            if sent:
                begin = f"; they begin with {received.beginning(sent)}"
            else:
                begin = ""
            raise unreadable(
                f"its {len(sent)} characters are no JSON{begin}"
            ) from error
    return body


def is_json(text: str) -> bool:
    """Whether an event's data is whole."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text.strip() == "[DONE]"
    return True


def json_text(value: Json, what: str) -> str:
    """Return the text of a call's arguments, which many send as the value itself; empty where there are none."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return write(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise unreadable(f"{what} has no JSON form") from error


write = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
"""Writes a value as JSON. `json.dumps` makes an encoder at each call that asks for other settings than its own.

A circle is a `RecursionError`, like any value that is nested too deep."""


def mapping(value: Json, what: str) -> Mapping[str, Json]:
    """Return the value, which must be an object."""
    if not isinstance(value, OBJECT):
        raise unreadable(f"{what} is {kind(value)}, not an object")
    return value


def items(value: Json, what: str) -> list[Json]:
    """Return the value, which must be a list."""
    if not isinstance(value, list):
        raise unreadable(f"{what} is {kind(value)}, not a list")
    return value


def string(value: Json, what: str) -> str:
    """Return the value, which must be text."""
    if not isinstance(value, str):
        raise unreadable(f"{what} is {kind(value)}, not text")
    return value


def text_or_empty(fields: Mapping[str, Json], key: str) -> str:
    """Return the text of a field; empty where the field is missing or no text."""
    value = fields.get(key)
    if isinstance(value, str):
        return value
    return ""


def kind(value: Json) -> str:
    """Return what a value is, for a sentence."""
    if value is None:
        return "missing"
    return f"of type {type(value).__name__}"


def count(counts: Json, key: str) -> int:
    """Return the count of that name, or 0 where there is none."""
    if counts is None or not isinstance(counts, OBJECT):
        return 0
    number = counts.get(key)
    if type(number) is not int:  # to `isinstance` a bool is an int
        return 0
    if 0 <= number <= _MOST_TOKENS:
        return number
    return 0 if number < 0 else _MOST_TOKENS
