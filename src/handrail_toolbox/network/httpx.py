"""The network guard as transports of httpx; see `egress` for what may be reached.

    httpx.Client(transport=GuardedTransport(["api.example.org"]), trust_env=False)

Give neither `mounts` nor `proxy` beside it: httpx would take these requests past the transport.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx

from handrail.network import clients
from handrail.network.connections import httpx2_errors
from handrail.network.egress import Egress, Resolve, as_egress


class GuardedTransport(httpx.BaseTransport):
    """A transport for `httpx.Client` that goes only where it may; see `hr.http_client`.

    Args:
        allow: The hosts that may be reached, or an `Egress`; every public host by default.
    """

    def __init__(
        self,
        allow: Sequence[str] | Egress | None = None,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.egress = as_egress(allow)
        self._pool = clients.pool(self.egress, resolve, ssl_context)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.BaseTransport.handle_request`."""
        checked_request = clients.admit(self.egress, request)
        with httpx2_errors(httpx):
            answer = self._pool.handle_request(checked_request)
        return _as_response(answer, _Body(answer))

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


class GuardedAsyncTransport(httpx.AsyncBaseTransport):
    """The same for `httpx.AsyncClient`, for one event loop."""

    def __init__(
        self,
        allow: Sequence[str] | Egress | None = None,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.egress = as_egress(allow)
        self._pool = clients.async_pool(self.egress, resolve, ssl_context)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport.handle_async_request`."""
        checked_request = clients.admit(self.egress, request)
        with httpx2_errors(httpx):
            answer = await self._pool.handle_async_request(checked_request)
        return _as_response(answer, _AsyncBody(answer))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def _as_response(
    answer: Any, body: httpx.SyncByteStream | httpx.AsyncByteStream
) -> httpx.Response:
    return httpx.Response(
        answer.status,
        headers=answer.headers,
        stream=body,
        extensions=answer.extensions,
    )


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with httpx2_errors(httpx):
            yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with httpx2_errors(httpx):
            async for piece in self._answer.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()
