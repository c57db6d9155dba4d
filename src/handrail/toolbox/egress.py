"""Where a tool that fetches may go: a transport for httpx2 that reaches the public internet and nothing behind it.

    client = guarded_client(Egress(hosts=["*.example.org"]))     # an `httpx2.Client` as any other

A model, or a page that it read, may name any address: the cloud's metadata service, a router, the database next door.
Names prove nothing, because whoever owns one decides to what it resolves, and may decide differently at each question.

Rule 1: what is checked is the address that is then connected to, once for each connection; nothing resolves it again.
Rule 2: every address of a name must be public, or none is used.
Rule 3: each request passes here, so each redirect does; proxies of the environment do not.
Rule 4: exceptions are given by the programmer in `Egress`, never by a call.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, TypeAlias

import httpcore2
import httpx2
from msgspec import Struct

from handrail.errors import Code, ConfigError, ToolError
from handrail.logs import log
from handrail.toolbox.connections import (
    Body,
    Head,
    Stream,
    as_response,
    core_request,
    httpx2_errors,
    pool_settings,
)

Resolve: TypeAlias = "Callable[[str, int], Sequence[str]]"
"""Takes a host name and a port; returns its addresses as text. Raises OSError where there are none."""

_PORTS = {"http": 80, "https": 443}
_NOBODY_ASKED = {
    socket.EAI_AGAIN,
    socket.EAI_FAIL,
    socket.EAI_SYSTEM,
    socket.EAI_MEMORY,
}
"""How a resolver says that it does not know whether there is such a name."""
_GLOBAL_UNICAST_IPV6 = ip_network("2000::/3")
"""All that IANA has handed out (RFC 4291, 2.4). `is_global` alone holds for addresses that nobody has."""
_METADATA_WITH_PUBLIC_ADDRESS = {ip_address("168.63.129.16")}
"""Azure's host agent: a public address that answers inside every one of its machines."""


class Egress(Struct, frozen=True):
    """Where requests may go.

    Attributes:
        hosts: Names that may be asked for, such as `example.org` or `*.example.org` (without example.org itself); None
            is every public one. An address as a name must be listed as it is.
        private: Addresses and networks that may be connected to although they are not public, such as `127.0.0.1` or
            `10.2.0.0/16`.
        ports: TCP ports.
    """

    hosts: Sequence[str] | None = None
    private: Sequence[str] = ()
    ports: Sequence[int] = (80, 443)

    def __post_init__(self) -> None:
        if isinstance(self.hosts, str) or isinstance(self.private, str):
            raise ConfigError('`hosts` and `private` take lists: hosts=["example.org"]')
        try:
            _ = [ip_network(each) for each in self.private]
        except ValueError as error:
            raise ConfigError(
                f"`private` takes addresses and networks such as 10.2.0.0/16: {error}"
            ) from error

    def admit(self, request: httpx2.Request) -> httpcore2.Request:
        """Return a request as httpcore2 sends it, its address checked."""
        self.check_url(request.url)
        return core_request(request)

    def resolve(self, host: str, port: int, resolve: Resolve) -> Sequence[str]:
        """Return the addresses of a host, at least one and all of them checked.

        Raises:
            ToolError: `HOST_NOT_FOUND` or `NOT_PERMITTED`.
            httpcore2.ConnectError: Nobody could be asked for the name, as without a network.
        """
        try:
            addresses = resolve(host, port)
        except socket.gaierror as error:
            if error.errno in _NOBODY_ASKED:
                raise httpcore2.ConnectError(str(error)) from error
            addresses = ()
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            log.info("no address was found for the host %s", host)
            advice = "Check the spelling, or search for the page. If other hosts fail too, this machine has no network."
            raise ToolError(
                "HOST_NOT_FOUND", f"There is no host `{host}`.", suggestion=advice
            )
        for address in addresses:
            self.check_address(address)
        return addresses

    def check_url(self, url: httpx2.URL) -> None:
        """Check what can be seen in an address before it is resolved.

        Raises:
            ToolError: `NOT_PERMITTED`.
        """
        host = url.host.rstrip(".").lower()
        if url.scheme not in _PORTS:
            raise _refusal(
                f"`{url.scheme}` addresses cannot be read",
                "Use an address that begins with https://.",
            )
        if url.userinfo:
            raise _refusal(
                "an address with a user name or password in it is not read",
                "Leave out what is before @.",
            )
        if (port := url.port or _PORTS[url.scheme]) not in self.ports:
            listed = ", ".join(map(str, self.ports))
            raise _refusal(
                f"port {port} is not among those that may be used",
                f"They are {listed}.",
            )
        if self.hosts is not None and not any(
            _is_like(host, each.lower()) for each in self.hosts
        ):
            raise _refusal(
                f"`{host}` is not among the hosts that may be read",
                f"They are {', '.join(self.hosts[:20])}.",
            )

    def check_address(self, address: str) -> None:
        """Check an address before it is connected to: a global unicast one, or one of `private`.

        Raises:
            ToolError: `NOT_PERMITTED`; the address is not named, or names could be asked for through here.
        """
        # A zone (`fe80::1%eth0`) belongs to link-local addresses, which are not public.
        parsed = ip_address(address.partition("%")[0])
        if not (
            is_public(parsed)
            or any(parsed in ip_network(each) for each in self.private)
        ):
            raise _refusal(
                "the address leads into a private network",
                "Only public addresses can be read.",
            )


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is global unicast and names no other one inside it.

    >>> is_public(ip_address("93.184.215.14")), is_public(ip_address("169.254.169.254"))
    (True, False)
    """
    if isinstance(address, IPv6Address) and (
        address not in _GLOBAL_UNICAST_IPV6 or address.sixtofour is not None
    ):
        # also IPv4 inside IPv6, mapped or by NAT64; 6to4 carries one to which a relay would connect
        return False
    return (
        address.is_global
        and not address.is_multicast
        and address not in _METADATA_WITH_PUBLIC_ADDRESS
    )


def guarded_client(
    egress: Egress | None = None, *, resolve: Resolve | None = None, **how: Any
) -> httpx2.Client:
    """Return a client that goes only where `egress` lets it; by default everywhere that is public.

    For async tools: `httpx2.AsyncClient(transport=GuardedAsyncTransport(egress))`.

    Args:
        resolve: In place of the system's resolver.
        how: What `httpx2.Client` takes.
    """
    return httpx2.Client(transport=GuardedTransport(egress, resolve=resolve), **how)


class GuardedTransport(httpx2.BaseTransport):
    """An HTTP transport whose every connection is checked. Made once, closed once, safe for threads.

    Both its request and its connections raise `ToolError` (`NOT_PERMITTED`, `HOST_NOT_FOUND`) where it may not go.
    """

    def __init__(
        self, egress: Egress | None = None, *, resolve: Resolve | None = None
    ) -> None:
        self.egress = egress or Egress()
        self._head = Head()
        backend = _CheckedBackend(self.egress, resolve or system_resolve, self._head)
        self._pool = httpcore2.ConnectionPool(
            **pool_settings(), network_backend=backend
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `httpx2.BaseTransport.handle_request`. The whole head of the answer has one read timeout."""
        checked_request = self.egress.admit(request)
        with httpx2_errors(), self._head.within(request):
            answer = self._pool.handle_request(checked_request)
        return as_response(answer, Body(answer))

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


class GuardedAsyncTransport(httpx2.AsyncBaseTransport):
    """The same for `httpx2.AsyncClient`, for one event loop."""

    def __init__(
        self, egress: Egress | None = None, *, resolve: Resolve | None = None
    ) -> None:
        self.egress = egress or Egress()
        backend = _CheckedAsyncBackend(self.egress, resolve or system_resolve)
        self._pool = httpcore2.AsyncConnectionPool(
            **pool_settings(), network_backend=backend
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `httpx2.AsyncBaseTransport.handle_async_request`."""
        checked_request = self.egress.admit(request)
        with httpx2_errors():
            answer = await self._pool.handle_async_request(checked_request)
        return as_response(answer, _AsyncBody(answer))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


class _CheckedBackend(httpcore2.SyncBackend):
    """Opens TCP connections, to checked addresses only. TLS still asks for the certificate of the name."""

    def __init__(self, egress: Egress, resolve: Resolve, head: Head) -> None:
        self._egress = egress
        self._resolve = resolve
        self._head = head

    def connect_tcp(
        self, host: str, port: int, *args: Any, **kwargs: Any
    ) -> httpcore2.NetworkStream:
        *others, last = self._egress.resolve(host, port, self._resolve)
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
        addresses = await asyncio.to_thread(
            self._egress.resolve, host, port, self._resolve
        )
        *others, last = addresses
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await super().connect_tcp(address, port, *args, **kwargs)
        return await super().connect_tcp(last, port, *args, **kwargs)


def system_resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name by the system's resolver, which also reads `0x7f.1` and `2130706433`."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in entries))


class _AsyncBody(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with httpx2_errors():
            async for piece in self._answer.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


def _is_like(host: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern


def _refusal(why: str, advice: str) -> ToolError:
    return ToolError(Code.NOT_PERMITTED, f"Not fetched: {why}.", suggestion=advice)
