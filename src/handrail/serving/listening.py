"""Where a server listens, under which names, and until when.

A page in a browser can send requests to a server on the same machine, under a name that it makes point there. So a
request is answered only if its `Host` is a name of this server, and its `Origin`, if it has one, is allowed.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from handrail.errors import ConfigError

LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")

MOST_PORT = 65_535

_LAST_WORDS_S = 5
"""How long open streams may go on after the signal to end."""


def parse_address(address: str, option: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `[HOST]:PORT` or `PORT`, as given to an option.

    Raises:
        ConfigError: The address has none of these forms.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > MOST_PORT:
        raise ConfigError(
            f"{option} has {address!r}; write a port such as 8000, or HOST:PORT such as 127.0.0.1:8000"
        )
    return host, int(port)


def own_names(host: str, hosts: Sequence[str] = ()) -> list[str]:
    """Return the names under which a server is reached.

    Args:
        host: Where the server listens; on every interface, it has no name of its own.
        hosts: More names of the server, with a port or for any.
    """
    names = [*LOCAL_NAMES, *hosts]
    if host not in ("", "0.0.0.0", "::"):
        names.append(f"[{host}]" if ":" in host else host)
    return names


def has_port(name: str) -> bool:
    """Whether a name of a host, or an address of a site, ends in a port."""
    return name.rpartition(":")[2].isdigit() and not name.endswith("]")


def is_local(host: str) -> bool:
    """Whether nobody but programs of this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 is any that is free.

    Raises:
        ConfigError: The address is not this machine's, or the port is taken.
    """
    try:
        listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            backlog=2048,
        )
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}") from error
    # Connections inherit it. asyncio sets it for sockets that it has made; without it each answer, which is written in
    # two parts, waits 40 ms for the client's acknowledgement of the first one.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve_app(app: Any, listener: socket.socket, *, log_level: str) -> None:
    """Serve until the process gets a signal to end; calls under way are then cancelled.

    SIGHUP, which a closing terminal sends, is such a signal, unless it is ignored, as under `nohup`.
    """
    import uvicorn  # of an extra

    with suppress(ValueError):  # not the main thread, where no signal arrives
        # called once every stream has ended, when uvicorn raises the signal again: the runtime can still be closed
        signal.signal(signal.SIGTERM, _end)
        hang_up = getattr(signal, "SIGHUP", None)  # not on Windows
        if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
            signal.signal(hang_up, lambda *_: signal.raise_signal(signal.SIGTERM))
    from handrail.serving.one_piece import OnePieceProtocol

    config = uvicorn.Config(
        app,
        http=OnePieceProtocol,
        log_level=log_level,
        # its own would write each request to stdout
        log_config=None,
        access_log=False,
        # else a local sender of `X-Forwarded-For` chooses the address that we judge it by
        proxy_headers=False,
        timeout_graceful_shutdown=_LAST_WORDS_S,
        lifespan="on",
    )
    await uvicorn.Server(config).serve(sockets=[listener])


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)
