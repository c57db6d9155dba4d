"""Streams of messages as the SDK takes them, each message got or sent by a function.

A memory stream between a task that reads lines and the one that wants messages takes three turns of the event loop for
each message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

import anyio
from mcp.shared.message import SessionMessage

from handrail_mcp.transports.messages import Received


class Incoming:
    """A stream of received messages.

    Args:
        receive: Returns the next message.
        source: The stream of the SDK from which it takes them, if there is one.
    """

    def __init__(
        self, receive: Callable[[], Awaitable[Received]], source: Any = None
    ) -> None:
        self._receive = receive
        self._source = source

    @property
    def last_context(self) -> Any:
        """The context in which the last message was received, where the transport has one."""
        return getattr(self._source, "last_context", None)

    async def receive(self) -> Received:
        """Return the next message.

        Raises:
            anyio.EndOfStream: There is none.
        """
        return await self._receive()

    async def aclose(self) -> None:
        """Close the stream."""
        if self._source is not None:
            await self._source.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class Outgoing:
    """A stream of sent messages.

    Args:
        send: Sends a message.
        target: The stream of the SDK to which it sends them, if there is one.
    """

    def __init__(
        self, send: Callable[[SessionMessage], Awaitable[None]], target: Any = None
    ) -> None:
        self._send = send
        self._target = target
        self._is_open = True

    async def send(self, item: SessionMessage) -> None:
        """Send a message.

        Raises:
            anyio.ClosedResourceError: It was closed.
        """
        if not self._is_open:
            raise anyio.ClosedResourceError
        await self._send(item)

    async def aclose(self) -> None:
        """Send no more."""
        self._is_open = False
        if self._target is not None:
            with suppress(anyio.ClosedResourceError):
                await self._target.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
