"""How tools over HTTP reach a server: answers whose head ends in time, and a part of an address that no log sees.

A timeout of a socket holds for each read alone, so that a header which comes byte by byte, or one `103` after the
other, would keep a thread for days. Here the whole head has one read timeout. Bodies are `fetching`'s affair.

Rule 1: every read of a head passes `Head.left_s`, through a proxy and inside of TLS too.
Rule 2: the text of `UNSEEN_QUERY` is added where the request is written. httpx2, its log and its errors know the
        address without it.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from handrail.surroundings.clock import monotonic

UNSEEN_QUERY = "unseen_query"
"""Extension of a request: what is added to the query of its address, escaped, such as a key."""


class TimedTransport(httpx2.BaseTransport):
    """An HTTP transport to any server, through the environment's proxies. Made once, closed once, safe for threads."""

    def __init__(self) -> None:
        self._head = Head()
        self._pools: dict[str, httpcore2.ConnectionPool] = {}
        self._guard = threading.Lock()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `httpx2.BaseTransport.handle_request`. The whole head of the answer has one read timeout."""
        with httpx2_errors(), self._head.within(request):
            answer = self._pool(proxy_for(request.url)).handle_request(
                core_request(request)
            )
        return as_response(answer, Body(answer))

    def close(self) -> None:
        """Close the connections."""
        with self._guard:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()

    def _pool(self, proxy: str) -> httpcore2.ConnectionPool:
        with self._guard:
            if proxy not in self._pools:
                self._pools[proxy] = _pool_through(proxy, Backend(self._head))
            return self._pools[proxy]


def make_client(**how: Any) -> httpx2.Client:
    """Return a client for a service of the programmer's choice; for addresses of a model's see `egress`.

    Args:
        how: What `httpx2.Client` takes.
    """
    return httpx2.Client(transport=TimedTransport(), **how)


def proxy_for(url: httpx2.URL) -> str:
    """Return the proxy that the environment names for an address; empty where there is none."""
    proxies = getproxies()
    if not (
        proxy := proxies.get(url.scheme) or proxies.get("all") or ""
    ) or proxy_bypass(url.host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _pool_through(
    proxy: str, backend: httpcore2.NetworkBackend
) -> httpcore2.ConnectionPool:
    if not proxy:
        return httpcore2.ConnectionPool(**pool_settings(), network_backend=backend)
    parsed = httpx2.Proxy(proxy)  # parts the password from the address
    where: Any = httpcore2.URL(
        scheme=parsed.url.raw_scheme,
        host=parsed.url.raw_host,
        port=parsed.url.port,
        target=parsed.url.raw_path,
    )
    if parsed.url.scheme.startswith("socks5"):
        return httpcore2.SOCKSProxy(
            where,
            proxy_auth=parsed.raw_auth,
            **pool_settings(),
            network_backend=backend,
        )
    return httpcore2.HTTPProxy(
        where,
        proxy_auth=parsed.raw_auth,
        **pool_settings(),
        network_backend=backend,
    )


def pool_settings(ssl_context: ssl.SSLContext | None = None) -> dict[str, Any]:
    """Return what every pool of connections is made with; the usual certificates unless a context is given."""
    return {
        "ssl_context": ssl_context or httpx2.create_ssl_context(),
        "max_connections": 20,
        "max_keepalive_connections": 5,
        "keepalive_expiry": 5.0,
    }


def core_request(request: Any) -> httpcore2.Request:
    """Return a request of httpx2 or httpx as httpcore2 sends it, with the text of `UNSEEN_QUERY` added."""
    url = request.url
    unseen = str(request.extensions.get(UNSEEN_QUERY, "")).encode()
    target = url.raw_path + ((b"&" if url.query else b"?") + unseen if unseen else b"")
    return httpcore2.Request(
        request.method,
        httpcore2.URL(
            scheme=url.raw_scheme,
            host=url.raw_host,
            port=url.port,
            target=target,
        ),
        headers=request.headers.raw,
        content=cast(Any, request.stream),
        extensions=request.extensions,
    )


def as_response(
    answer: httpcore2.Response, body: httpx2.SyncByteStream | httpx2.AsyncByteStream
) -> httpx2.Response:
    """Return an answer of httpcore2 as one of httpx2."""
    return httpx2.Response(
        answer.status,
        headers=answer.headers,
        stream=body,
        extensions=answer.extensions,
    )


# ---------------------------------------------------------------------- the head of an answer


class Head(threading.local):
    """Until when this thread waits for the head of an answer, from its first read on."""

    within_s: float | None = None
    until: float | None = None

    @contextmanager
    def within(self, request: httpx2.Request) -> Iterator[None]:
        """Wait for the head of the answer to a request no longer than its read timeout says."""
        self.within_s = request.extensions.get("timeout", {}).get("read")
        try:
            yield
        finally:
            self.until = self.within_s = None

    def left_s(self, timeout: float | None) -> float | None:
        """Return how long the next read may wait.

        Raises:
            httpcore2.ReadTimeout: The time is over.
        """
        if self.within_s is None:
            return timeout
        self.until = self.until or monotonic() + self.within_s
        if (left := self.until - monotonic()) <= 0:
            raise httpcore2.ReadTimeout("the head of the answer did not end in time")
        return left


class Stream(httpcore2.NetworkStream):
    """A connection whose reads end with the time for the head of an answer."""

    def __init__(self, stream: httpcore2.NetworkStream, head: Head) -> None:
        self._stream = stream
        self._head = head

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See `httpcore2.NetworkStream.read`."""
        return self._stream.read(max_bytes, self._head.left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See `httpcore2.NetworkStream.write`."""
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """See `httpcore2.NetworkStream.close`."""
        self._stream.close()

    def start_tls(self, *args: Any, **kwargs: Any) -> httpcore2.NetworkStream:
        """See `httpcore2.NetworkStream.start_tls`."""
        return Stream(self._stream.start_tls(*args, **kwargs), self._head)

    def get_extra_info(self, info: str) -> Any:
        """See `httpcore2.NetworkStream.get_extra_info`."""
        return self._stream.get_extra_info(info)


class Backend(httpcore2.SyncBackend):
    """Opens TCP connections whose reads end with the time for the head of an answer."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore2.NetworkStream:
        """See `httpcore2.NetworkBackend.connect_tcp`."""
        return Stream(super().connect_tcp(*args, **kwargs), self.head)


class Body(httpx2.SyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with httpx2_errors():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        """Give the connection back."""
        self._answer.close()


@contextmanager
def httpx2_errors(library: Any = httpx2) -> Iterator[None]:
    """Raise the error of the same name that httpx2, or httpx, has, which is what its users catch."""
    try:
        yield
    except (
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
        httpcore2.UnsupportedProtocol,
        ssl.SSLError,
    ) as error:
        raise getattr(library, type(error).__name__, library.TransportError)(
            str(error)
        ) from error
