"""HTTP without TLS and without a proxy, as a transport of httpx2: what lies between a gateway and a server next to it.

The transport of httpx2 is made for every case (HTTP/2, proxies, two event loops, a limit to its pool), which takes four
times as long as such a request itself. This one writes a request in one piece, and reads on the event loop.

Rule 1: a request is sent once. A connection that its server has closed meanwhile is not used again.
Rule 2: a body that nobody reads stops its sender, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from urllib.request import getproxies, proxy_bypass

import h11
import httpx2

_MOST_WAITING_BYTES = 1024 * 1024
"""Of an answer, before its sender is held up."""

_MOST_IDLE = 20
"""How many idle connections stay open."""

_LONGEST_IDLE_S = 5.0
"""Many servers close after so long; one that was closed while a request was on its way would leave it in doubt."""


def can_be_plain(url: str) -> bool:
    """Whether an address is reached without TLS and without a proxy that the environment names."""
    parts = httpx2.URL(url)
    if parts.scheme != "http":
        return False
    proxies = getproxies()
    is_proxied = "http" in proxies or "all" in proxies
    return not is_proxied or bool(proxy_bypass(parts.host))


class PlainTransport(httpx2.AsyncBaseTransport):
    """Sends requests, and keeps connections for later ones."""

    def __init__(self) -> None:
        self._idle: deque[tuple[tuple[str, int], _Connection, float]] = deque()
        self._all: set[_Connection] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return its answer once the head of it is there.

        Raises:
            httpx2.ConnectError: Nothing was sent.
            httpx2.RemoteProtocolError: The server has closed the connection, or does not speak HTTP.
        """
        place = (request.url.host, request.url.port or 80)
        connection = self._take_idle(place) or await self._connect(place, request)
        body = b"".join([part async for part in request.stream])  # type: ignore[union-attr]
        try:
            connection.send(request, body)
            head = await connection.read_head()
        except BaseException:
            self._drop(connection)
            raise
        return httpx2.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(self, place, connection),
            extensions={
                "http_version": b"HTTP/" + head.http_version,
                "reason_phrase": head.reason,
            },
        )

    def _take_idle(self, place: tuple[str, int]) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        for entry in reversed(self._idle):
            there, connection, since = entry
            if there != place:
                continue
            self._idle.remove(entry)
            if not connection.is_lost and now - since < _LONGEST_IDLE_S:
                return connection
            self._drop(connection)
            return self._take_idle(place)
        return None

    async def _connect(
        self, place: tuple[str, int], request: httpx2.Request
    ) -> _Connection:
        limit_s = request.extensions.get("timeout", {}).get("connect")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s):
                _, connection = await loop.create_connection(_Connection, *place)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("", request=request) from error
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        self._all.add(connection)
        return connection

    def release(self, place: tuple[str, int], connection: _Connection) -> None:
        """Keep a connection whose answer was read to its end; drop any other."""
        if not connection.is_reusable() or len(self._idle) >= _MOST_IDLE:
            self._drop(connection)
            return
        now = asyncio.get_running_loop().time()
        self._idle.append((place, connection, now))

    def _drop(self, connection: _Connection) -> None:
        self._all.discard(connection)
        connection.close()

    async def aclose(self) -> None:
        """Close all connections; requests under way end with an error."""
        self._idle.clear()
        for connection in list(self._all):
            self._drop(connection)


class _Connection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self) -> None:
        self.is_lost = False
        self._http = h11.Connection(h11.CLIENT)
        self._received: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------ called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        self._received.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _MOST_WAITING_BYTES:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Take the end of what the server says."""
        self._lose()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # asyncio's
        """Take the end of the connection."""
        self._lose()

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._received.append(b"")  # h11's word for the end
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------------ one request

    def send(self, request: httpx2.Request, body: bytes) -> None:
        """Write a request."""
        head = h11.Request(
            method=request.method,
            target=request.url.raw_path,
            headers=request.headers.raw,
        )
        written = [self._http.send(head)]
        if body:
            written.append(self._http.send(h11.Data(data=body)))
        written.append(self._http.send(h11.EndOfMessage()))
        self._transport.write(b"".join(part for part in written if part))

    async def read_head(self) -> h11.Response:
        """Return the head of the answer; informational responses before it are ignored."""
        while True:
            event = await self._read()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise httpx2.RemoteProtocolError(
                    "Server disconnected without sending a response."
                )

    async def read_part(self) -> bytes | None:
        """Return the next part of the body; None at its end."""
        event = await self._read()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            return None
        raise httpx2.RemoteProtocolError("the answer broke off")

    async def _read(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._receive())
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from error
        return event

    async def _receive(self) -> bytes:
        while not self._received:
            if self._transport.is_closing():
                raise httpx2.ReadError("the connection was closed")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._received.popleft()
        self._waiting_bytes -= len(data)
        if self._is_paused and self._waiting_bytes <= _MOST_WAITING_BYTES:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def is_reusable(self) -> bool:
        """Whether another request may be sent; then it is ready for one."""
        is_done = self._http.our_state is self._http.their_state is h11.DONE
        if self.is_lost or not is_done or self._received:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """End it; whoever reads from it gets an error."""
        self._transport.close()
        self._wake()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer."""

    def __init__(
        self, transport: PlainTransport, place: tuple[str, int], connection: _Connection
    ) -> None:
        self._transport = transport
        self._place = place
        self._connection: _Connection | None = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        connection = self._connection
        if connection is None:
            return
        while (part := await connection.read_part()) is not None:
            yield part

    async def aclose(self) -> None:
        """Give the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.release(self._place, connection)
