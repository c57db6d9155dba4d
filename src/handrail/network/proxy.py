"""A proxy on this machine that goes only where an `Egress` lets it, for what takes no transport of ours.

    with EgressProxy(["api.example.org"]) as proxy:
        subprocess.run(["git", "fetch"], env=os.environ | proxy.environment)

A program without a network of its own, as in a sandbox, can reach nothing else: `enclose` gives it the proxy as a
socket in a folder, and a relay that makes an address of 127.0.0.1 of it. A program that has a network may pass by.

Rule 1: the proxy resolves the name, checks all its addresses, and connects to one of these.
Rule 2: only a client with the token is served, so other users of this machine are not.

Traffic within TLS is not read: a program may ask a listed server for another name that the same server has.
"""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from hmac import compare_digest
from importlib.resources import files
from pathlib import Path
from secrets import token_urlsafe
from selectors import EVENT_READ, DefaultSelector
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, Thread
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from handrail.errors import ToolError
from handrail.logs import log
from handrail.network.egress import Egress, Resolve, as_egress, system_resolve
from handrail.ports import SandboxJob

MOST_CONNECTIONS = 64
MOST_HEAD_BYTES = 64 * 1024
HEAD_S = 10.0
"""How long the head of a request may take, and the connection to a server."""
IDLE_S = 120.0
"""How long both sides may be silent."""
_PIECE_BYTES = 64 * 1024
_USER = "handrail"
_SOCKET = "egress"
_RELAY = "handrail_relay.py"
_ADDRESS = "handrail_relay.txt"
_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class _Refused(Exception):
    """A request that is not passed on: the status and the sentence that its client gets."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Head(Struct, frozen=True):
    """The head of a request to a proxy.

    Attributes:
        target: What is asked for: `host:port` of CONNECT, else a URL.
        fields: The lines of its header, without those for a proxy.
        token: What `Proxy-Authorization` says.
        rest: What came behind the head.
    """

    method: str
    target: str
    fields: Sequence[bytes]
    token: str
    rest: bytes


class EgressProxy:
    """An HTTP proxy that goes only where it may; serves while it is entered by `with`, in threads.

    Args:
        allow: The hosts that may be reached, or an `Egress`; every public host by default.
        resolve: In place of the system's resolver.

    Attributes:
        url: Its address, with the token that it asks for.
    """

    def __init__(
        self,
        allow: Sequence[str] | Egress | None = None,
        *,
        resolve: Resolve | None = None,
    ) -> None:
        self.egress = as_egress(allow)
        self._resolve = resolve or system_resolve
        self._token = token_urlsafe(16)
        self._room = BoundedSemaphore(MOST_CONNECTIONS)
        self._open = ExitStack()
        self._folder = ""
        self.url = ""

    def __repr__(self) -> str:
        return f"<EgressProxy to {self.egress}>"

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that tell a program of the proxy."""
        return dict.fromkeys(_VARIABLES, self.url) | {"NO_PROXY": "", "no_proxy": ""}

    def __enter__(self) -> Self:
        """Begin to serve.

        Raises:
            OSError: No port, or no folder for a socket, can be had.
        """
        with ExitStack() as opened:
            listening = socket.create_server(("127.0.0.1", 0))
            opened.callback(_stop, listening)
            self.url = self._url(listening.getsockname()[1])
            self._serve(listening)
            if hasattr(socket, "AF_UNIX"):
                self._folder = opened.enter_context(TemporaryDirectory(prefix="hr-"))
                # a sandbox runs as nobody, and is shown this folder only
                Path(self._folder).chmod(0o711)
                place = str(Path(self._folder, _SOCKET))
                listening = socket.socket(socket.AF_UNIX)
                opened.callback(_stop, listening)
                listening.bind(place)
                Path(place).chmod(0o666)
                listening.listen()
                self._serve(listening)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take no more connections; those that are open end when their client does."""
        self._open.close()
        self.url = self._folder = ""

    def enclose(self, job: SandboxJob, python: str) -> SandboxJob:
        """Return a job for a sandbox whose program finds this proxy in its environment.

        Args:
            python: An interpreter inside the sandbox; see `ports.Sandbox.python`.
        """
        relay = (files("handrail.network") / "relay.py").read_bytes()
        socket_path = str(Path(self._folder, _SOCKET))
        # in a file, since every user of this machine can read a command line
        address = f"{socket_path}\n{self._url(0)}".encode()
        return replace(
            job,
            argv=[python, "-I", "-S", _RELAY, *job.argv],
            files={**job.files, _RELAY: relay, _ADDRESS: address},
            mounts=[*job.mounts, self._folder],
        )

    def _url(self, port: int) -> str:
        return f"http://{_USER}:{self._token}@127.0.0.1:{port}"

    # ------------------------------------------------------------------ serving

    def _serve(self, listening: socket.socket) -> None:
        Thread(
            target=self._accept,
            args=(listening,),
            name="handrail egress proxy",
            daemon=True,
        ).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return  # closed
            if not self._room.acquire(blocking=False):
                client.close()
                continue
            Thread(target=self._attend, args=(client,), daemon=True).start()

    def _attend(self, client: socket.socket) -> None:
        try:
            with client, suppress(OSError):
                client.settimeout(HEAD_S)
                try:
                    head = _read_head(client)
                    self._check_token(head)
                    self._pass_on(head, client)
                except _Refused as refused:
                    log.info("egress proxy: %s", refused)
                    client.sendall(_answer(refused))
        finally:
            self._room.release()

    def _check_token(self, head: _Head) -> None:
        expected = b64encode(f"{_USER}:{self._token}".encode()).decode()
        if not compare_digest(head.token.encode(), f"Basic {expected}".encode()):
            raise _Refused("407 Proxy Authentication Required", "the token is missing")

    def _pass_on(self, head: _Head, client: socket.socket) -> None:
        host, port, path = _parse_target(head)
        with self._connect(host, port, is_tunnel=not path) as server:
            if path:
                server.sendall(_request_to(host, port, path, head))
            else:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(head.rest)
            _pump(client, server)

    def _connect(self, host: str, port: int, *, is_tunnel: bool) -> socket.socket:
        """Return a connection to a checked address of a host."""
        try:
            self.egress.check_target("https" if is_tunnel else "http", host, port)
            addresses = self.egress.resolve(host, port, self._resolve)
        except ToolError as error:
            raise _Refused("403 Forbidden", error.failure.message) from error
        except OSError as error:
            raise _Refused("502 Bad Gateway", f"nobody knows {host}") from error
        for address in addresses:
            with suppress(OSError):
                return socket.create_connection((address, port), timeout=HEAD_S)
        raise _Refused("502 Bad Gateway", f"{host} does not answer")


def _stop(listening: socket.socket) -> None:
    """Close a socket, and end the thread that waits for a connection on it."""
    with suppress(OSError):  # not on every system, where closing does
        listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def _read_head(client: socket.socket) -> _Head:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(_PIECE_BYTES)
        if not piece:
            raise _Refused("400 Bad Request", "the request ended early")
        data += piece
        if len(data) > MOST_HEAD_BYTES:
            raise _Refused(
                "431 Request Header Fields Too Large", "the head is too long"
            )
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    if any(char in line for line in (first, *lines) for char in b"\r\n\0"):
        raise _Refused("400 Bad Request", "a line ends in the middle of the head")
    try:
        method, target, _ = first.decode("ascii").split(" ")
    except ValueError as error:
        raise _Refused("400 Bad Request", "this is no request to a proxy") from error
    token = ""
    fields = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"proxy-authorization":
            token = value.strip().decode("latin-1")
        elif name.lower() not in (b"host", b"connection", b"proxy-connection"):
            fields.append(line)
    return _Head(method=method, target=target, fields=fields, token=token, rest=rest)


def _parse_target(head: _Head) -> tuple[str, int, str]:
    """Return host, port and path of what is asked for; the path is empty for a tunnel."""
    try:
        if head.method == "CONNECT":
            parsed = urlsplit(f"//{head.target}")
            if parsed.hostname and parsed.port and not parsed.path:
                return parsed.hostname, parsed.port, ""
        else:
            parsed = urlsplit(head.target)
            if parsed.scheme == "http" and parsed.hostname and not parsed.username:
                path = parsed._replace(scheme="", netloc="", fragment="").geturl()
                return parsed.hostname, parsed.port or 80, path or "/"
    except ValueError:
        pass
    raise _Refused("400 Bad Request", "only http:// addresses and CONNECT are served")


def _request_to(host: str, port: int, path: str, head: _Head) -> bytes:
    """Return a request as the server itself takes it, for this host only and one time."""
    name = f"[{host}]" if ":" in host else host
    lines = [
        f"{head.method} {path} HTTP/1.1".encode(),
        f"Host: {name}:{port}".encode() if port != 80 else f"Host: {name}".encode(),
        *head.fields,
        b"Connection: close",
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + head.rest


def _answer(refused: _Refused) -> bytes:
    body = f"handrail: {refused}\n".encode()
    lines = [
        f"HTTP/1.1 {refused.status}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        'Proxy-Authenticate: Basic realm="handrail"',
        "Connection: close",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _pump(client: socket.socket, server: socket.socket) -> None:
    """Pass bytes both ways until one side ends, or both are silent for too long."""
    other = {client: server, server: client}
    with DefaultSelector() as selector:
        for each in other:
            each.settimeout(IDLE_S)
            selector.register(each, EVENT_READ)
        while ready := selector.select(IDLE_S):
            for key, _ in ready:
                side: socket.socket = key.fileobj  # type: ignore[assignment]  # as registered
                piece = side.recv(_PIECE_BYTES)
                if piece:
                    other[side].sendall(piece)
                elif side is server:
                    return
                else:
                    selector.unregister(side)
                    with suppress(OSError):
                        server.shutdown(socket.SHUT_WR)
