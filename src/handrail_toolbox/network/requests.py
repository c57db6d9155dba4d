"""The network guard as an adapter of requests; see `egress` for what may be reached.

    session = guarded_session(allow=["api.example.org"])
    session.get("https://api.example.org/orders", timeout=10)

Rule 1: each request, and so each redirect, passes `send`, which drops the proxies that a session is set to use.
Rule 2: connections are opened by `_open_socket` alone, to an address that was checked.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    NameResolutionError,
    NewConnectionError,
)
from urllib3.util import parse_url
from urllib3.util.connection import create_connection

from handrail.network.egress import Egress, Resolve, as_egress, system_resolve


def guarded_session(
    allow: Sequence[str] | Egress | None = None, *, resolve: Resolve | None = None
) -> requests.Session:
    """Return a session that goes only where it may; see `hr.http_client`.

    Args:
        allow: The hosts that may be reached, or an `Egress`; every public host by default.
    """
    session = requests.Session()
    # neither proxies nor the passwords of ~/.netrc
    session.trust_env = False
    session.adapters.clear()
    for scheme in ("https://", "http://"):
        session.mount(scheme, GuardedAdapter(allow, resolve=resolve))
    return session


class GuardedAdapter(HTTPAdapter):
    """An adapter whose every connection is checked: `session.mount("https://", GuardedAdapter())`, and for `http://`.

    Args:
        allow: The hosts that may be reached, or an `Egress`; every public host by default.
    """

    def __init__(
        self,
        allow: Sequence[str] | Egress | None = None,
        *,
        resolve: Resolve | None = None,
        **how: Any,
    ) -> None:
        self.egress = as_egress(allow)
        self._resolve = resolve or system_resolve
        super().__init__(**how)

    def send(
        self, request: requests.PreparedRequest, *args: Any, **how: Any
    ) -> requests.Response:
        """See `requests.adapters.HTTPAdapter.send`.

        Raises:
            ToolError: `NOT_PERMITTED` or `HOST_NOT_FOUND`.
        """
        # the parser that the connection is made by
        url = parse_url(request.url or "")
        self.egress.check_target(
            url.scheme or "",
            (url.host or "").strip("[]"),
            url.port,
            has_user=url.auth is not None,
        )
        # the last of stream, timeout, verify, cert and proxies
        how["proxies"] = None
        return super().send(request, *args[:4], **how)

    def init_poolmanager(self, *args: Any, **how: Any) -> None:
        """See `requests.adapters.HTTPAdapter.init_poolmanager`."""
        super().init_poolmanager(*args, **how)
        self.poolmanager.pool_classes_by_scheme = {
            "http": self._pool_class(HTTPConnectionPool, HTTPConnection),
            "https": self._pool_class(HTTPSConnectionPool, HTTPSConnection),
        }

    def proxy_manager_for(self, proxy: str, **how: Any) -> Any:  # noqa: ARG002  # requests' signature
        """Refuse: behind a proxy nobody sees which address is connected to."""
        raise ValueError("a guarded session uses no proxy")

    def __getstate__(self) -> Any:
        raise TypeError("a guarded session is not pickled; make one where it is used")

    def _pool_class(self, pool: type[Any], connection: type[Any]) -> type[Any]:
        """Return a kind of pool whose connections are checked by this adapter."""

        def new_conn(made: Any) -> socket.socket:
            return _open_socket(self.egress, self._resolve, made)

        checked = type("Checked", (connection,), {"_new_conn": new_conn})
        return type("CheckedPool", (pool,), {"ConnectionCls": checked})


def _open_socket(egress: Egress, resolve: Resolve, connection: Any) -> socket.socket:
    """Return a socket to a checked address of a connection's host; fails as `HTTPConnection._new_conn` does.

    Raises:
        ToolError: `NOT_PERMITTED` or `HOST_NOT_FOUND`.
    """
    host = connection.host.strip("[]")
    try:
        addresses = egress.resolve(host, connection.port, resolve)
    except socket.gaierror as error:
        raise NameResolutionError(host, connection, error) from error
    failure: Exception | None = None
    for address in addresses:
        try:
            return create_connection(
                (address, connection.port),
                connection.timeout,
                source_address=connection.source_address,
                socket_options=connection.socket_options,
            )
        except TimeoutError as error:
            failure = ConnectTimeoutError(connection, f"no connection to {host}: time")
            failure.__cause__ = error
        except OSError as error:
            failure = NewConnectionError(
                connection, f"no connection to {host}: {error}"
            )
            failure.__cause__ = error
    assert failure is not None
    raise failure
