"""The network guard as a connector of aiohttp; see `egress` for what may be reached.

    async with aiohttp.ClientSession(connector=GuardedConnector(["api.example.org"])) as session:
        await session.get("https://api.example.org/orders")

Rule 1: each request passes `connect`, so each redirect does; one through a proxy is refused.
Rule 2: every socket is opened by `_open_socket`, which sees the very address that is then connected to.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver

from handrail.network.egress import (
    Egress,
    Resolve,
    as_egress,
    refusal,
    system_resolve,
)


class GuardedConnector(aiohttp.TCPConnector):
    """A connector for `aiohttp.ClientSession` that goes only where it may; see `hr.http_client`. Needs aiohttp 3.12.

    Args:
        allow: The hosts that may be reached, or an `Egress`; every public host by default.
        how: What `aiohttp.TCPConnector` takes, such as `limit` or `ssl`.
    """

    def __init__(
        self,
        allow: Sequence[str] | Egress | None = None,
        *,
        resolve: Resolve | None = None,
        **how: Any,
    ) -> None:
        self.egress = as_egress(allow)
        super().__init__(
            resolver=_Resolver(self.egress, resolve or system_resolve),
            socket_factory=self._open_socket,
            # an address is checked for one connection, so each connection asks for it
            use_dns_cache=False,
            **how,
        )

    async def connect(self, req: Any, *args: Any, **how: Any) -> Any:
        """See `aiohttp.BaseConnector.connect`.

        Raises:
            ToolError: `NOT_PERMITTED` or `HOST_NOT_FOUND`.
        """
        if req.proxy:
            raise refusal("it would go through a proxy", "Leave the proxy out.")
        url = req.url
        self.egress.check_target(
            url.scheme,
            url.host or "",
            url.port,
            has_user=url.user is not None or url.password is not None,
        )
        return await super().connect(req, *args, **how)

    def _open_socket(self, address: Any) -> socket.socket:
        """Return a socket for an address as `getaddrinfo` gives it."""
        family, kind, protocol, _, place = address
        self.egress.check_address(str(place[0]))
        return socket.socket(family=family, type=kind, proto=protocol)


class _Resolver(AbstractResolver):
    """Resolves a name, and checks all that it resolves to."""

    def __init__(self, egress: Egress, resolve: Resolve) -> None:
        self._egress = egress
        self._resolve = resolve

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,
    ) -> list[Any]:
        """See `aiohttp.abc.AbstractResolver.resolve`."""
        addresses = await asyncio.to_thread(
            self._egress.resolve, host, port, self._resolve
        )
        families = {
            address: socket.AF_INET6 if ":" in address else socket.AF_INET
            for address in addresses
        }
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": each,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
            for address, each in families.items()
            if family in (socket.AF_UNSPEC, each)
        ]

    async def close(self) -> None:
        """See `aiohttp.abc.AbstractResolver.close`."""
