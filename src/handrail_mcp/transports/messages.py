"""A message of JSON-RPC as a text, by the SDK's models, which refuse a whole message for one fault.

JavaScript writes half a character where a text was cut in an emoji; some servers print progress before an answer, or
give its error another form. Nobody would answer such a request, or get such an answer.

Rule 1: half a character becomes a question mark. A call of a tool stays as it was written, so that `jsontext` refuses
        its arguments and says why.
Rule 2: an answer that names our request ends the wait for it, whatever else it holds.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, TypeAlias

import msgspec
from mcp import types
from mcp.shared.message import SessionMessage
from msgspec import UNSET, Raw, Struct, UnsetType

from handrail.dialects.received import encodable

Received: TypeAlias = "SessionMessage | Exception"

_CALL = "tools/call"
_BOM = "\ufeff"
_MOST_CHARS = 2000
"""Of an error that has no form."""


def read_from_client(line: str) -> Received:
    """Return the message of a line of a client, which most likely is a request; or the error if it is none."""
    try:
        return SessionMessage(
            types.JSONRPCRequest.model_validate_json(line, by_name=False)
        )
    except ValueError:
        return _read_message(line)


def read_from_server(line: bytes) -> Received:
    """Return the message of a line of a server, which most likely is an answer; or the error if it is none."""
    try:
        return SessionMessage(
            types.JSONRPCResponse.model_validate_json(line, by_name=False)
        )
    except ValueError:
        text = line.decode("utf-8", "replace").lstrip(_BOM)
    item = _read_message(text)
    if isinstance(item, SessionMessage):
        return item
    try:
        return SessionMessage(_read_answer(json.loads(_find_answer(text)), None))
    except (ValueError, RecursionError):
        return item


def _read_message(line: str) -> Received:
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        try:
            return _read_unusual(line)
        except (ValueError, RecursionError):
            return error
    return SessionMessage(message)


def _read_unusual(line: str) -> SessionMessage:
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
    mended = mend_halves(line.encode())
    message = types.jsonrpc_message_adapter.validate_json(mended, by_name=False)
    return SessionMessage(message)


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


# ---------------------------------------------------------------------- answers


def _find_answer(text: str) -> str:
    """Return a text from where its message begins: after a byte order mark, or progress printed before it.

    >>> _find_answer('50%...{"jsonrpc":"2.0"}')
    '{"jsonrpc":"2.0"}'
    """
    text = text.lstrip(_BOM)
    start = text.find('{"jsonrpc"')
    return text[start:] if start > 0 and not text.startswith("{") else text


def _read_answer(
    written: Any, request_id: types.RequestId | None
) -> types.JSONRPCResponse | types.JSONRPCError:
    """Return the answer that a JSON value is meant to be.

    Args:
        request_id: Of the request that it answers, where the answer does not say.

    Raises:
        ValueError: It is no answer, or answers nothing that can be named.
    """
    if not isinstance(written, dict) or "method" in written or "jsonrpc" not in written:
        raise ValueError("no answer")
    id_ = _read_id(written.get("id"), request_id)
    error = written.get("error")
    if error is not None:
        return types.JSONRPCError(jsonrpc="2.0", id=id_, error=_read_error(error))
    if id_ is None:
        raise ValueError("a result of nothing")
    result = written.get("result")
    # what is no object becomes one that holds nothing, so that it is refused where it should hold something
    return types.JSONRPCResponse(
        jsonrpc="2.0", id=id_, result=result if isinstance(result, dict) else {}
    )


def _read_id(value: Any, request_id: types.RequestId | None) -> types.RequestId | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    return request_id


def _read_error(error: Any) -> types.ErrorData:
    """Return an error of any form."""
    if not isinstance(error, dict):
        return types.ErrorData(code=types.INTERNAL_ERROR, message=_as_text(error))
    code, message = error.get("code"), error.get("message")
    if not isinstance(message, str):
        message = _as_text(error if message is None else message)
    if isinstance(code, bool) or not isinstance(code, int):
        message = message if code is None else f"{_as_text(code)}: {message}"
        code = types.INTERNAL_ERROR
    return types.ErrorData(code=code, message=message, data=error.get("data"))


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:_MOST_CHARS]


class _Error(Struct):
    code: int
    message: str


class _Answer(Struct):
    """An answer as the SDK reads it."""

    jsonrpc: Literal["2.0"]
    id: int | str
    result: dict[str, Raw] | UnsetType = UNSET
    error: _Error | UnsetType = UNSET
    method: str = ""


def mend_answer(text: bytes, request_id: types.RequestId | None) -> bytes | None:
    """Return JSON text as the answer to a request, in the form that the SDK reads; None where it is no such answer.

    Args:
        request_id: Of the request; None where the text alone says what it answers.
    """
    try:
        answer = msgspec.json.decode(text, type=_Answer)
        is_readable = (answer.result is UNSET) != (answer.error is UNSET)
        if is_readable and not answer.method:
            is_ours = request_id is None or str(answer.id) == str(request_id)
            return text if is_ours else None
    except msgspec.MsgspecError:
        pass
    try:
        written = json.loads(_find_answer(text.decode("utf-8", "replace")))
        mended = _read_answer(written, request_id)
    except (ValueError, RecursionError):
        return None
    if request_id is not None and str(mended.id) != str(request_id):
        return None
    return mended.model_dump_json(by_alias=True, exclude_unset=True).encode()
