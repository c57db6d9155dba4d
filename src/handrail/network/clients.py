"""HTTP clients that reach the public internet and nothing behind it; see `egress` for what may be reached.

    client = hr.http_client(allow=["*.example.org"])     # an `httpx2.Client` as any other

Rule 1: each request passes here, so each redirect does; proxies of the environment do not, nor do mounts.
Rule 2: the address that was checked is the one that is connected to.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import httpcore2
import httpx2

from handrail.errors import ConfigError
from handrail.network.connections import (
    Body,
    Head,
    Stream,
    as_response,
    core_request,
    httpx2_errors,
    pool_settings,
)
from handrail.network.egress import (
    Egress,
    Resolve,
    as_egress,
    refusal,
    system_resolve,
)

_AROUND_THE_GUARD = ("transport", "mounts", "proxy")
_WITHOUT_EFFECT = ("http1", "http2", "limits")


def http_client(
    allow: Sequence[str] | Egress | None = None,
    *,
    resolve: Resolve | None = None,
    **how: Any,
) -> httpx2.Client:
    """Return a client that goes only where it may; by default to every public host, on ports 80 and 443.

    Every address of a host must be public, the address that was checked is the one that is connected to, each redirect
    is checked again, and the environment's proxies are ignored. A request that may not be made raises `ToolError`
    (`NOT_PERMITTED` or `HOST_NOT_FOUND`), which a model reads as it is. Timeouts and other errors are httpx2's.

    Args:
        allow: The hosts that may be reached, such as `["api.example.org", "*.example.net"]`; or an `Egress`, which also
            names ports and private networks.
        resolve: In place of the system's resolver.
        how: What `httpx2.Client` takes, such as `timeout` in seconds, `headers`, `verify` or `follow_redirects`.

    Raises:
        ConfigError: `transport`, `mounts` or `proxy` would lead around the guard.
    """
    transport = Httpx2Transport(
        as_egress(allow), resolve=resolve, ssl_context=_take_ssl_context(how)
    )
    return httpx2.Client(transport=transport, **how)


def async_http_client(
    allow: Sequence[str] | Egress | None = None,
    *,
    resolve: Resolve | None = None,
    **how: Any,
) -> httpx2.AsyncClient:
    """Return the `httpx2.AsyncClient` of the same kind, for one event loop; see `http_client`."""
    transport = AsyncHttpx2Transport(
        as_egress(allow), resolve=resolve, ssl_context=_take_ssl_context(how)
    )
    return httpx2.AsyncClient(transport=transport, **how)


def _take_ssl_context(how: dict[str, Any]) -> ssl.SSLContext:
    """Check a client's settings and take those of TLS out of them; the transport needs these, not the client."""
    for name in (*_AROUND_THE_GUARD, *_WITHOUT_EFFECT):
        if name in how:
            why = "would lead around" if name in _AROUND_THE_GUARD else "is not read by"
            raise ConfigError(f"`{name}` {why} the network guard; leave it out")
    trust_env = how.setdefault("trust_env", False)
    return httpx2.create_ssl_context(
        verify=how.pop("verify", True), cert=how.pop("cert", None), trust_env=trust_env
    )


def admit(egress: Egress, request: Any) -> httpcore2.Request:
    """Return a request of httpx2 or httpx as httpcore2 sends it, its URL checked.

    Raises:
        ToolError: `NOT_PERMITTED`.
    """
    egress.check_url(request.url)
    if egress.hosts is not None:
        _check_host_header(request)
    return core_request(request)


def _check_host_header(request: Any) -> None:
    """Check that a request asks for the host that it goes to: one server may answer for many names."""
    url = request.url
    name = url.raw_host.decode("ascii").lower()
    if ":" in name:
        name = f"[{name}]"
    named = request.headers.get("host", name).lower()
    if named not in (name, f"{name}:{url.port or ''}", url.netloc.decode().lower()):
        raise refusal(
            "its Host header names another host than its address",
            "Leave the header out.",
        )


class Httpx2Transport(httpx2.BaseTransport):
    """An HTTP transport whose every connection is checked. Made once, closed once, safe for threads.

    Both its request and its connections raise `ToolError` (`NOT_PERMITTED`, `HOST_NOT_FOUND`) where it may not go.
    """

    def __init__(
        self,
        egress: Egress | None = None,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.egress = egress or Egress()
        self._head = Head()
        self._pool = pool(self.egress, resolve, ssl_context, head=self._head)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `httpx2.BaseTransport.handle_request`. The whole head of the answer has one read timeout."""
        checked_request = admit(self.egress, request)
        with httpx2_errors(), self._head.within(request):
            answer = self._pool.handle_request(checked_request)
        return as_response(answer, Body(answer))

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


class AsyncHttpx2Transport(httpx2.AsyncBaseTransport):
    """The same for `httpx2.AsyncClient`, for one event loop."""

    def __init__(
        self,
        egress: Egress | None = None,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.egress = egress or Egress()
        self._pool = async_pool(self.egress, resolve, ssl_context)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `httpx2.AsyncBaseTransport.handle_async_request`."""
        checked_request = admit(self.egress, request)
        with httpx2_errors():
            answer = await self._pool.handle_async_request(checked_request)
        return as_response(answer, _AsyncHttpx2Body(answer))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def pool(
    egress: Egress,
    resolve: Resolve | None = None,
    ssl_context: ssl.SSLContext | None = None,
    *,
    head: Head | None = None,
) -> httpcore2.ConnectionPool:
    """Return connections for threads, each of them checked.

    Args:
        head: Until when the head of an answer may be waited for.
    """
    backend = _CheckedBackend(egress, resolve or system_resolve, head or Head())
    return httpcore2.ConnectionPool(
        **pool_settings(ssl_context), network_backend=backend
    )


def async_pool(
    egress: Egress,
    resolve: Resolve | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> httpcore2.AsyncConnectionPool:
    """Return connections for an event loop, each of them checked."""
    backend = _CheckedAsyncBackend(egress, resolve or system_resolve)
    return httpcore2.AsyncConnectionPool(
        **pool_settings(ssl_context), network_backend=backend
    )


class _CheckedBackend(httpcore2.SyncBackend):
    """Opens TCP connections, to checked addresses only. TLS still asks for the certificate of the name."""

    def __init__(self, egress: Egress, resolve: Resolve, head: Head) -> None:
        self._egress = egress
        self._resolve = resolve
        self._head = head

    def connect_tcp(
        self, host: str, port: int, *args: Any, **kwargs: Any
    ) -> httpcore2.NetworkStream:
        *others, last = _find_addresses(self._egress, host, port, self._resolve)
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return Stream(
                    super().connect_tcp(address, port, *args, **kwargs), self._head
                )
        return Stream(super().connect_tcp(last, port, *args, **kwargs), self._head)


class _CheckedAsyncBackend(httpcore2.AnyIOBackend):
    def __init__(self, egress: Egress, resolve: Resolve) -> None:
        self._egress = egress
        self._resolve = resolve

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **kwargs: Any
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await asyncio.to_thread(
            _find_addresses, self._egress, host, port, self._resolve
        )
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await super().connect_tcp(address, port, *args, **kwargs)
        return await super().connect_tcp(last, port, *args, **kwargs)


def _find_addresses(
    egress: Egress, host: str, port: int, resolve: Resolve
) -> Sequence[str]:
    """Return the checked addresses of a host.

    Raises:
        ToolError: As `Egress.resolve`.
        httpcore2.ConnectError: Nobody could be asked for the name.
    """
    try:
        return egress.resolve(host, port, resolve)
    except socket.gaierror as error:
        raise httpcore2.ConnectError(str(error)) from error


class _AsyncHttpx2Body(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with httpx2_errors():
            async for piece in self._answer.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()
