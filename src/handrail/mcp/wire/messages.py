"""A message of JSON-RPC as a line, by the SDK's models."""

from __future__ import annotations

from typing import TypeAlias

from mcp import types
from mcp.shared.message import SessionMessage
from pydantic import BaseModel

Received: TypeAlias = "SessionMessage | Exception"


def read_message(line: bytes | str) -> Received:
    """Return the message of a line, or the error if it is no message."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        return error
    return SessionMessage(message)


def read_likely(line: bytes, kind: type[BaseModel]) -> Received:
    """Return the message of a line that most likely is of one kind, which is tried first: there are four."""
    try:
        return SessionMessage(kind.model_validate_json(line, by_name=False))  # type: ignore[arg-type]
    except ValueError:
        return read_message(line.decode("utf-8", "replace"))


def write_message(message: types.JSONRPCMessage) -> bytes:
    """Return the line of a message."""
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
