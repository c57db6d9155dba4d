"""Where a request may go: which hosts, which ports, and no address that is not of the public internet.

A model, or a page that it read, may name any address: the cloud's metadata service, a router, the database next door.
Names prove nothing, because whoever owns one decides to what it resolves, and may decide differently at each question.

Rule 1: what is checked is the address that is then connected to, once for each connection; nothing resolves it again.
Rule 2: every address of a name must be public, or none is used.
Rule 3: exceptions are given by the programmer in `Egress`, never by a call.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Protocol, TypeAlias

from msgspec import Struct

from handrail.errors import Code, ConfigError, ToolError
from handrail.logs import log

Resolve: TypeAlias = "Callable[[str, int], Sequence[str]]"
"""Takes a host name and a port; returns its addresses as text. Raises OSError where there are none."""

PORTS = {"http": 80, "https": 443}
"""The schemes that may be used, with the port of each."""

_NOBODY_ASKED = {
    socket.EAI_AGAIN,
    socket.EAI_FAIL,
    # Windows has neither
    getattr(socket, "EAI_SYSTEM", socket.EAI_FAIL),
    getattr(socket, "EAI_MEMORY", socket.EAI_FAIL),
}
"""How a resolver says that it does not know whether there is such a name."""
_GLOBAL_UNICAST_IPV6 = "2000::/3"
"""All that IANA has assigned (RFC 4291, 2.4); `is_global` is also true of addresses that are not assigned."""
_NOT_PUBLIC = (
    # Azure's host agent: a public address that answers inside every one of its machines
    "168.63.129.16/32",
    # relays and special purposes (RFC 6890), which some versions of `ipaddress` call global
    "192.0.0.0/24",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
)
_network = cache(ip_network)  # when first needed
_MOST_LISTED = 20
"""Hosts that a refusal names."""


class UrlParts(Protocol):
    """A parsed URL, as of httpx2 or httpx."""

    @property
    def scheme(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int | None: ...
    @property
    def userinfo(self) -> bytes: ...


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

    def resolve(self, host: str, port: int, resolve: Resolve) -> Sequence[str]:
        """Return the addresses of a host, at least one and all of them checked.

        Raises:
            ToolError: `HOST_NOT_FOUND` or `NOT_PERMITTED`.
            socket.gaierror: Nobody could be asked for the name, as without a network.
        """
        try:
            addresses = resolve(host, port)
        except socket.gaierror as error:
            if error.errno in _NOBODY_ASKED:
                raise
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

    def check_url(self, url: UrlParts) -> None:
        """Check what can be seen in a URL before its host is resolved.

        Raises:
            ToolError: `NOT_PERMITTED`.
        """
        self.check_target(url.scheme, url.host, url.port, has_user=bool(url.userinfo))

    def check_target(
        self, scheme: str, host: str, port: int | None, *, has_user: bool = False
    ) -> None:
        """Check the parts of a URL, as `check_url`.

        Args:
            port: None for that of the scheme.
            has_user: Whether the URL holds a user name or password.

        Raises:
            ToolError: `NOT_PERMITTED`.
        """
        if scheme not in PORTS:
            raise refusal(
                f"`{scheme}` addresses cannot be read",
                "Use an address that begins with https://.",
            )
        if has_user:
            raise refusal(
                "an address with a user name or password in it is not read",
                "Leave out what is before @.",
            )
        port = port or PORTS[scheme]
        if port not in self.ports:
            listed = ", ".join(map(str, self.ports))
            raise refusal(
                f"port {port} is not among those that may be used",
                f"They are {listed}.",
            )
        host = host.rstrip(".").lower()
        if self.hosts is not None and not any(
            _is_like(host, each.lower()) for each in self.hosts
        ):
            raise refusal(
                f"`{host}` is not among the hosts that may be read",
                f"They are {', '.join(self.hosts[:_MOST_LISTED])}.",
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
            raise refusal(
                "the address leads into a private network",
                "Only public addresses can be read.",
            )


def as_egress(allow: Sequence[str] | Egress | None) -> Egress:
    """Return what `allow=` of a client means: a list of hosts, or an `Egress`; every public host for None.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(allow, Egress):
        return allow
    return Egress(hosts=allow)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is global unicast and names no other one inside it.

    >>> is_public(ip_address("93.184.215.14")), is_public(ip_address("169.254.169.254"))
    (True, False)
    """
    # Not in 2000::/3 are also IPv4 inside IPv6, mapped or by NAT64. 6to4 carries one to which a relay would connect.
    if isinstance(address, IPv6Address) and address not in _network(
        _GLOBAL_UNICAST_IPV6
    ):
        return False
    return (
        address.is_global
        and not address.is_multicast
        and not any(address in _network(each) for each in _NOT_PUBLIC)
    )


def system_resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name by the system's resolver, which also reads `0x7f.1` and `2130706433`."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in entries))


def refusal(why: str, advice: str) -> ToolError:
    """Return the error that a request may not be made, as a model reads it."""
    return ToolError(Code.NOT_PERMITTED, f"Not fetched: {why}.", suggestion=advice)


def _is_like(host: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern
