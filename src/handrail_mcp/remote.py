"""A server at an address: the HTTP client under the SDK's transport, which records how each request ended.

The SDK ends a whole connection when one POST of it fails, and says nothing of why. This client answers such a POST with
a status of its own and notes the reason in the `Delivery`, so that other calls under way go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from msgspec import Struct

from handrail_mcp.delivery import CURRENT
from handrail_mcp.targets import Address
from handrail_mcp.wire.messages import mend_halves
from handrail_mcp.wire.plain_http import PlainTransport, can_be_plain

MOST_MESSAGE_BYTES = 16 * 1024 * 1024
"""The longest message that is read. A result of that size is cut to a few kilobytes for a model anyway."""

_NO_ANSWER = 503
_WRITE_S = 30.0
_FAREWELL_S = 1.0


class MessageTooLong(Exception):
    """A message is longer than what is read."""

    def __init__(self) -> None:
        super().__init__(
            f"it sent a message of more than {MOST_MESSAGE_BYTES // 2**20} MiB"
        )


class HttpClient(httpx2.AsyncClient):
    """Sends the requests of one connection."""

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Send a request; a POST that fails is answered with a status, and the reason noted."""
        if request.method == "DELETE":
            # a farewell, which a server that hangs does not hold up
            async with asyncio.timeout(_FAREWELL_S):
                return await super().send(request, **how)
        if request.method != "POST":
            return _mend_events(await super().send(request, **how))
        delivery = CURRENT.get()
        try:
            response = _mend_events(
                await _read_json(await super().send(request, **how))
            )
        except Exception as error:
            # of the network, or of whatever signs the requests
            if delivery is not None:
                delivery.error = error
            return httpx2.Response(_NO_ANSWER, request=request)
        if delivery is not None and _holds_request(request):
            delivery.status = response.status_code
            delivery.kind = response.headers.get("content-type", "").lower()
            delivery.retry_after = response.headers.get("retry-after")
            delivery.session_lost = (
                response.status_code == 404 and MCP_SESSION_ID in request.headers
            )
        return response


class _Message(Struct):
    """What distinguishes the messages of JSON-RPC: a request has an id and a method."""

    id: int | str | None = None
    method: str = ""


def _holds_request(posted: httpx2.Request) -> bool:
    """Whether a POST carries a request of ours.

    It may instead carry our answer to the server, which is sent in the context of the call in which the server asked: a
    status of such a POST says nothing of the call.
    """
    try:
        message = msgspec.json.decode(posted.content, type=_Message)
    except (msgspec.MsgspecError, httpx2.RequestNotRead):
        return True  # not a message of JSON-RPC: of whoever signs the requests, say
    return message.id is not None and message.method != ""


async def _read_json(response: httpx2.Response) -> httpx2.Response:
    """Return a JSON answer with its content, which is read up to a limit; any other answer as it is."""
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("application/json") or response.next_request is not None:
        return response
    content = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > MOST_MESSAGE_BYTES:
                raise MessageTooLong
    finally:
        await response.aclose()
    headers = httpx2.Headers(response.headers)
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        headers.pop(name, None)
    return httpx2.Response(
        response.status_code,
        headers=headers,
        content=mend_halves(bytes(content)),
        request=response.request,
    )


def _mend_events(response: httpx2.Response) -> httpx2.Response:
    """Return a stream of events with every character whole; any other answer as it is."""
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("text/event-stream") or response.next_request is not None:
        return response
    headers = httpx2.Headers(response.headers)
    headers.pop("content-encoding", None)
    return httpx2.Response(
        response.status_code,
        headers=headers,
        stream=_WholeLines(response),
        request=response.request,
    )


class _WholeLines(httpx2.AsyncByteStream):
    """The lines of an answer, mended one by one; a line that is too long goes on as it is."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for chunk in self._response.aiter_bytes():
            rest += chunk
            start = len(rest) - len(chunk)
            end = 1 + max(rest.rfind(b"\n", start), rest.rfind(b"\r", start))
            if not end and len(rest) > MOST_MESSAGE_BYTES:
                end = len(rest)
            if end:
                yield mend_halves(bytes(rest[:end]))
                del rest[:end]
        if rest:
            yield mend_halves(bytes(rest))

    async def aclose(self) -> None:
        """Close the answer."""
        await self._response.aclose()


@asynccontextmanager
async def open_remote(address: Address, connect_s: float) -> AsyncIterator[Any]:
    """Yield the HTTP client of a connection to a server, and its streams."""
    # No limit to reading: each call has a deadline of its own, and an idle stream is as it should be.
    timeout = httpx2.Timeout(connect_s, read=None, write=_WRITE_S)
    transport = PlainTransport() if can_be_plain(address.url) else None
    async with (
        HttpClient(
            headers=dict(address.headers),
            auth=address.auth,
            timeout=timeout,
            transport=transport,
        ) as client,
        streamable_http_client(
            address.url, http_client=client, max_sse_event_size=MOST_MESSAGE_BYTES
        ) as streams,
    ):
        yield client, streams
