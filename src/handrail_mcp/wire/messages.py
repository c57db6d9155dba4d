"""A message of JSON-RPC as a line, by the SDK's models.

JavaScript writes half a character where a text was cut in an emoji, and the SDK's parser refuses the whole message. It
also refuses what is nested deeper than 200 levels. Nobody would answer such a request, or get such an answer.

Rule 1: half a character becomes a question mark. A call of a tool stays as it was written, so that `jsontext` refuses
        its arguments and says why.
"""

from __future__ import annotations

import json
import re
from typing import TypeAlias

from mcp import types
from mcp.shared.message import SessionMessage
from pydantic import BaseModel

from handrail.dialects.received import encodable

Received: TypeAlias = "SessionMessage | Exception"

_CALL = "tools/call"


def read_message(line: bytes | str) -> Received:
    """Return the message of a line, or the error if it is no message."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        try:
            return _read_unusual(line)
        except (ValueError, RecursionError):
            return error
    return SessionMessage(message)


def _read_unusual(line: bytes | str) -> SessionMessage:
    """Return the message of a line that the SDK's parser refuses and Python's reads.

    Raises:
        ValueError: It is none.
        RecursionError: It is nested deeper than Python follows.
    """
    written = json.loads(line)
    if isinstance(written, dict) and written.get("method") == _CALL:
        return SessionMessage(
            types.JSONRPCRequest.model_validate(written, by_name=False)
        )
    mended = mend_halves(line.encode() if isinstance(line, str) else line)
    message = types.jsonrpc_message_adapter.validate_json(mended, by_name=False)
    return SessionMessage(message)


def read_likely(line: bytes, kind: type[BaseModel]) -> Received:
    """Return the message of a line that most likely is of one kind, which is tried first: there are four."""
    try:
        return SessionMessage(kind.model_validate_json(line, by_name=False))  # type: ignore[arg-type]
    except ValueError:
        return read_message(line.decode("utf-8", "replace"))


def write_message(message: types.JSONRPCMessage) -> bytes:
    """Return the line of a message."""
    try:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:  # half a character that a tool or a client has written
        body = message.model_dump(by_alias=True, exclude_unset=True)
        text = json.dumps(encodable(body), ensure_ascii=False)
    return text.encode() + b"\n"


def mend_halves(text: bytes) -> bytes:
    r"""Return JSON text with a question mark in place of each escape of half a character.

    >>> mend_halves(rb'a \ud83d, a pair \ud83d\ude00, a backslash \\ud83d')
    b'a ?, a pair \\ud83d\\ude00, a backslash \\\\ud83d'
    """
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda found: b"?" if found["half"] else found[0], text)


_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\[^u]"  # of a backslash, for one
)
