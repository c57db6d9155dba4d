"""Answers of HTTP that leave in one piece.

uvicorn writes the head of an answer, its body and its end one by one, each of which wakes whoever reads it. What is
written within one turn of the event loop is written at once here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


class GatheringTransport:
    """A transport that writes what it was given at the end of a turn of the event loop; see `asyncio.Transport`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._gathered: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write data, together with what else is written in this turn."""
        if not data:
            return
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(data)

    def close(self) -> None:
        """Write what was gathered, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._transport.write(b"".join(gathered))


class OnePieceProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # uvicorn chooses it
    """uvicorn's protocol, over such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take the transport."""
        super().connection_made(GatheringTransport(transport))
