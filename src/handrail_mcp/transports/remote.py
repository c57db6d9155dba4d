"""A server at an address: the HTTP client under the SDK's transport, which records how each request ended.

The SDK ends a whole connection when one POST of it fails, and says nothing of why. This client answers such a POST with
a status of its own and notes the reason in the `Delivery`, so that other calls under way go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import signature
from typing import Any

import httpx2
import msgspec
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from msgspec import Struct

from handrail_mcp.delivery import CURRENT, Delivery
from handrail_mcp.targets import Address
from handrail_mcp.transports.messages import mend_answer, mend_halves

MOST_MESSAGE_BYTES = 16 * 1024 * 1024
"""The longest message that is read. A result of that size is cut to a few kilobytes for a model anyway."""

_HAS_LIMIT = "max_sse_event_size" in signature(streamable_http_client).parameters
_NO_LIMIT: dict[str, Any] = {"max_sse_event_size": None} if _HAS_LIMIT else {}
"""The SDK's limit to an event is not ours, and `mcp` before 2.3 has none."""

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
        delivery = CURRENT.get() or Delivery()
        if request.method != "POST":
            return _mend_events(await super().send(request, **how), delivery)
        posted = msgspec.json.decode(request.content, type=_Posted)
        try:
            response = await _read_json(await super().send(request, **how))
        except Exception as error:
            # of the network, or of whatever signs the requests
            delivery.error = error
            return httpx2.Response(_NO_ANSWER, request=request)
        if posted.is_request:
            _note_status(response, delivery)
            if MCP_SESSION_ID in request.headers:
                delivery.session_lost = _has_lost_session(response, posted)
        response = _mend_json(response, delivery, posted)
        return _mend_events(response, delivery, posted.id)


class _Posted(Struct):
    """What distinguishes the messages of JSON-RPC: a request has an id and a method.

    A POST may instead carry our answer to the server, which is sent in the context of the call in which the server
    asked: a status of such a POST says nothing of the call.
    """

    id: int | str | None = None
    method: str = ""

    @property
    def is_request(self) -> bool:
        """Whether it is a request of ours."""
        return self.id is not None and self.method != ""


def _note_status(response: httpx2.Response, delivery: Delivery) -> None:
    delivery.status = response.status_code
    delivery.kind = response.headers.get("content-type", "").lower()
    delivery.retry_after = response.headers.get("retry-after")


def _has_lost_session(response: httpx2.Response, posted: _Posted) -> bool:
    """Whether the server does not know the session: it says so by 404, or as many do by 400 and in words."""
    if response.status_code != 400 or not _is_of_kind(response, "application/json"):
        return response.status_code == 404
    try:
        answer = msgspec.json.decode(response.content, type=_Posted)
    except msgspec.MsgspecError:
        return False
    # an error that names our request is about the request
    return answer.id != posted.id and b"session" in response.content.lower()


async def _read_json(response: httpx2.Response) -> httpx2.Response:
    """Return a JSON answer with its content, which is read up to a limit; any other answer as it is."""
    if not _is_of_kind(response, "application/json"):
        return response
    content = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > MOST_MESSAGE_BYTES:
                raise MessageTooLong
    finally:
        await response.aclose()
    return _replace(response, content=mend_halves(bytes(content)))


def _mend_json(
    response: httpx2.Response, delivery: Delivery, posted: _Posted
) -> httpx2.Response:
    """Return a JSON answer that the SDK can read; any other answer as it is."""
    if not posted.is_request or not _is_of_kind(response, "application/json"):
        return response
    answer = mend_answer(response.content, posted.id)
    delivery.answered = answer is not None
    # what answers nothing is no message: the SDK would wait for another one
    return _replace(response, content=answer or b"")


def _mend_events(
    response: httpx2.Response, delivery: Delivery, request_id: int | str | None = None
) -> httpx2.Response:
    """Return a stream of events whose answers can be read; any other answer as it is."""
    if not _is_of_kind(response, "text/event-stream"):
        return response
    return _replace(response, stream=_Events(response, delivery, request_id))


def _is_of_kind(response: httpx2.Response, kind: str) -> bool:
    found = response.headers.get("content-type", "").lower()
    return bool(found.startswith(kind)) and response.next_request is None


def _replace(response: httpx2.Response, **body: Any) -> httpx2.Response:
    """Return a response with another body, which is not encoded."""
    headers = httpx2.Headers(response.headers)
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        headers.pop(name, None)
    return httpx2.Response(
        response.status_code, headers=headers, request=response.request, **body
    )


class _Events(httpx2.AsyncByteStream):
    """A stream of events, mended line by line."""

    def __init__(
        self,
        response: httpx2.Response,
        delivery: Delivery,
        request_id: int | str | None,
    ) -> None:
        self._response = response
        self._delivery = delivery
        self._request_id = request_id
        self._event_bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for chunk in self._response.aiter_bytes():
            rest += chunk
            start = len(rest) - len(chunk)
            end = 1 + max(rest.rfind(b"\n", start), rest.rfind(b"\r", start))
            if end:
                yield b"".join(map(self._mend, rest[:end].splitlines(keepends=True)))
                del rest[:end]
            if self._event_bytes + len(rest) > MOST_MESSAGE_BYTES:
                self._delivery.error = MessageTooLong()
                raise self._delivery.error
        yield self._mend(rest)

    def _mend(self, line: bytearray) -> bytes:
        """Return a line whose answer can be read; what is no answer stays as it is."""
        mended = mend_halves(bytes(line))
        self._event_bytes = self._event_bytes + len(line) if line.strip() else 0
        if not mended.startswith(b"data:"):
            return mended
        answer = mend_answer(mended[5:].strip(), self._request_id)
        if answer is None:
            return mended
        self._delivery.answered = True
        return b"data: " + answer + mended[len(mended.rstrip(b"\r\n")) :]

    async def aclose(self) -> None:
        """Close the answer."""
        await self._response.aclose()


@asynccontextmanager
async def open_remote(address: Address, connect_s: float) -> AsyncIterator[Any]:
    """Yield the streams of a connection to a server."""
    # No limit to reading: each call has a deadline of its own, and an idle stream is as it should be.
    timeout = httpx2.Timeout(connect_s, read=None, write=_WRITE_S)
    async with (
        HttpClient(
            headers=dict(address.headers), auth=address.auth, timeout=timeout
        ) as client,
        streamable_http_client(address.url, http_client=client, **_NO_LIMIT) as streams,
    ):
        yield streams
