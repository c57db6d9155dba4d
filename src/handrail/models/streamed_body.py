"""The body of a streamed answer, taken from the connection itself.

A model streams a piece for each token. On its way through h11, httpcore2 and httpx2 each piece passes eight generators
and takes longer than all that is done with it afterwards. So the connection's network stream is wrapped in one that
hands h11 no more than the head of an answer; the chunks of the body (RFC 9112, 7.1) are then read here, several at
once where they came together, and the last one goes to h11, which ends the answer and keeps the connection.

Rule 1: h11 judges whatever is not a plain chunk: trailers, odd sizes, an end in the middle. It is handed over as it
        came, where a chunk begins.
Rule 2: httpx2 reads the body as before where it has any other form (a length, a compression, HTTP/1.0), or where the
        client makes its connections in another way.
"""

from __future__ import annotations

import re
import ssl
from typing import Any

import httpcore2
import httpx2

_READ_BYTES = 64 * 1024
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_MOST_SIZE_BYTES = 10
"""Of a size of eight digits, with its line break."""
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_MOST_HEAD_BYTES = 100 * 1024
"""As much as httpcore2 takes. A longer head is its to refuse."""


def wrap_connections(client: httpx2.AsyncClient) -> None:
    """Have `open_body` read the bodies of a client's answers, if its pool has a network backend of httpcore2."""
    pool = getattr(getattr(client, "_transport", None), "_pool", None)
    backend = getattr(pool, "_network_backend", None)
    if isinstance(backend, httpcore2.AsyncNetworkBackend):
        vars(pool)["_network_backend"] = _Backend(backend)


def open_body(answer: httpx2.Response) -> ChunkedBody | None:
    """Return a reader of an answer's chunks; None where the client is to read its body."""
    stream = answer.extensions.get("network_stream")
    if not isinstance(stream, _HeadFirstStream) or stream.is_in_head:
        return None
    headers = answer.headers
    if answer.http_version != "HTTP/1.1" or "content-encoding" in headers:
        return None
    if headers.get("transfer-encoding", "").strip().lower() != "chunked":
        return None
    return ChunkedBody(stream)


class ChunkedBody:
    """Reads the chunks of one body."""

    def __init__(self, stream: _HeadFirstStream) -> None:
        self._stream = stream
        self._left = 0
        """Bytes that the chunk still has, with the line break behind it."""

    async def read(self, timeout_s: float | None) -> bytes:
        """Return what has come; empty where the client is to read on, which is at the end.

        Raises:
            httpx2.TransportError: Nothing came in time, or the connection is broken.
        """
        stream = self._stream
        while True:
            if stream.held:
                pieces, rest, is_over = self._take(stream.held)
                stream.held = rest
                if pieces or is_over:
                    return pieces
            try:
                received = await stream.receive(timeout_s)
            except (httpcore2.TimeoutException, httpcore2.NetworkError) as error:
                raise _as_of_client(error) from error
            if not received:
                return b""
            stream.held += received

    def _take(self, held: bytes) -> tuple[bytes, bytes, bool]:
        """Return the bytes of the body in what was received, the rest of it, and whether that is for h11."""
        pieces: list[bytes] = []
        at = 0
        while at < len(held):
            if self._left:
                piece = held[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                pieces.append(_without_line_break(piece, self._left))
                continue
            line = _SIZE_LINE.match(held, at)
            if line is None:
                rest = held[at:]
                # else not all of it has come
                is_odd = b"\n" in rest or len(rest) > _MOST_SIZE_BYTES
                return b"".join(pieces), rest, is_odd
            size = int(line[1], 16)
            if not size:
                return b"".join(pieces), held[at:], True
            at = line.end()
            self._left = size + 2
        return b"".join(pieces), b"", False


def _without_line_break(piece: bytes, left: int) -> bytes:
    """Return a piece of a chunk without what of the line break behind the chunk is in it.

    Raises:
        httpx2.RemoteProtocolError: Something else is in its place.
    """
    if left >= 2:
        return piece
    data_end = len(piece) - 2 + left
    expected = b"\r\n"[max(0, -data_end) : 2 - left]
    data_end = max(0, data_end)
    if piece[data_end:] != expected:
        raise httpx2.RemoteProtocolError("no line break behind a chunk")
    return piece[:data_end]


def _as_of_client(error: Exception) -> httpx2.TransportError:
    """Return an error of the network as the client names it."""
    kind = getattr(httpx2, type(error).__name__, httpx2.ReadError)
    translated: httpx2.TransportError = kind(str(error))
    return translated


class _HeadFirstStream(httpcore2.AsyncNetworkStream):
    """A connection that gives the head of an answer by itself, and holds what came with it.

    Attributes:
        held: Received, and not yet given to anybody.
        is_in_head: The head of an answer has not ended yet.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self.held = b""
        self.is_in_head = True
        self._head = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See `httpcore2.AsyncNetworkStream`."""
        received = self.held or await self._stream.read(max_bytes, timeout)
        self.held = b""
        if self.is_in_head:
            received = self._split_head(received)
        return received

    def _split_head(self, received: bytes) -> bytes:
        """Return what of this belongs to the head, and hold the rest."""
        before = len(self._head)
        self._head += received
        end = _END_OF_HEAD.search(self._head, max(0, before - 3))
        if end is None:
            self.is_in_head = len(self._head) <= _MOST_HEAD_BYTES
            return received
        self.held = self._head[end.end() :]
        # after an interim answer (RFC 9110, 15.2) comes another head
        self.is_in_head = self._head.lstrip().startswith(b"HTTP/1.1 1")
        self._head = b""
        return received[: len(received) - len(self.held)]

    async def receive(self, timeout_s: float | None) -> bytes:
        """Return what comes next, whatever it is."""
        return await self._stream.read(_READ_BYTES, timeout_s)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See `httpcore2.AsyncNetworkStream`. What was held belongs to no answer to this."""
        self.held = b""
        self._head = b""
        self.is_in_head = True
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """See `httpcore2.AsyncNetworkStream`."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """See `httpcore2.AsyncNetworkStream`."""
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _HeadFirstStream(stream)

    def get_extra_info(self, info: str) -> Any:
        """See `httpcore2.AsyncNetworkStream`."""
        return self._stream.get_extra_info(info)


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects as another one does."""

    def __init__(self, backend: httpcore2.AsyncNetworkBackend) -> None:
        self._backend = backend

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> _HeadFirstStream:
        """See `httpcore2.AsyncNetworkBackend`."""
        return _HeadFirstStream(await self._backend.connect_tcp(*args, **kwargs))

    async def connect_unix_socket(self, *args: Any, **kwargs: Any) -> _HeadFirstStream:
        """See `httpcore2.AsyncNetworkBackend`."""
        stream = await self._backend.connect_unix_socket(*args, **kwargs)
        return _HeadFirstStream(stream)

    async def sleep(self, seconds: float) -> None:
        """See `httpcore2.AsyncNetworkBackend`."""
        await self._backend.sleep(seconds)
