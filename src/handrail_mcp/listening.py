"""Requests to which hosts and from which pages the SDK answers; see `serving.listening`."""

from __future__ import annotations

from collections.abc import Sequence

from mcp.server.transport_security import TransportSecuritySettings

from handrail.serving.listening import LOCAL_NAMES, has_port, own_names


def permit_hosts(
    host: str, hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> TransportSecuritySettings:
    """Return which requests are answered.

    Args:
        host: Where the server listens; on every interface, it has no name of its own.
        hosts: More names of the server, with a port or for any.
        origins: Pages that may send requests, such as `https://app.example.com`.
    """
    own = [f"http://{name}" for name in LOCAL_NAMES]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=_with_any_port(own_names(host, hosts)),
        allowed_origins=_with_any_port([*own, *origins]),
    )


def _with_any_port(names: Sequence[str]) -> list[str]:
    """Return each name as it is, and one without a port with any."""
    permitted = list(dict.fromkeys(names))
    permitted += [f"{name}:*" for name in permitted if not has_port(name)]
    return permitted
