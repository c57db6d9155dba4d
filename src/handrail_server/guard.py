"""Checks each request before its route: who sends it, from which page, how large it is, and how often.

A page of another site can make a browser send requests here. The guard refuses them: a request must name this server
in `Host` and have an `Origin` of ours or none, and one that changes something must have a JSON body, which no form can
send.

Rule 1: a request is refused before its body is read and before its path is routed.
Rule 2: no answer can be shown in a frame, load anything from elsewhere, or be read by another site.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote

from handrail.serving.listening import LOCAL_NAMES, has_port
from handrail.serving.tokens import Role
from handrail_server.access import Access
from handrail_server.answers import ApiError, refuse
from handrail_server.rates import RequestRate

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BODY_BYTES = 1024 * 1024
MOST_ENDPOINT_BODY_BYTES = 8 * 1024 * 1024
"""Of a conversation that a client of an endpoint sends whole."""

COOKIE = "handrail_session"
PRINCIPAL = "handrail.principal"
"""The key of the request's scope under which routes find the `Principal`."""

_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; connect-src 'self'; img-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Lets requests through to an application, or refuses them.

    Args:
        names: Of this server, as `Host` may have them, with a port or for any.
        origins: Of pages of other sites that may send requests.
        needs: Returns the role that a path needs by its method; None for what everybody may read.
    """

    def __init__(
        self,
        app: App,
        access: Access,
        *,
        names: Sequence[str] = LOCAL_NAMES,
        origins: Sequence[str] = (),
        needs: Callable[[str, str], Role | None],
        rate: RequestRate | None = None,
    ) -> None:
        self._app = app
        self._access = access
        self._names = frozenset(each.lower() for each in names)
        self._origins = frozenset(each.lower().rstrip("/") for each in origins)
        self._needs = needs
        self._rate = rate or RequestRate(200, 400)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        try:
            receive = self._admit(scope, receive)
            await self._app(scope, receive, send)
        except ApiError as error:
            await refuse(error)(scope, receive, send)

    def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Check a request and note whose it is; return how its body is read.

        Raises:
            ApiError: It is refused.
        """
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        _check_once(scope["headers"], self._access.identity_header)
        self._check_host(headers.get("host", ""))
        self._check_origin(headers)
        _keep_escaped_slashes(scope)
        method = scope["method"]
        path = scope["path"]
        peer = (scope.get("client") or ("",))[0]
        role = self._needs(method, path)
        if method not in _SAFE:
            _check_type(headers)
        session = read_cookie(headers.get("cookie", ""))
        principal = self._access.identify(peer, headers, session)
        self._check_rate(peer if principal is None else f"{peer} {principal.name}")
        if role is not None:
            if principal is None:
                raise self._unproven(peer)
            if not principal.may(role):
                raise ApiError(
                    403,
                    "role_too_small",
                    f"this needs the role {role!r}; {principal.name} has {principal.role!r}",
                )
        scope[PRINCIPAL] = principal
        most = MOST_BODY_BYTES
        if not path.startswith("/api/"):
            most = MOST_ENDPOINT_BODY_BYTES
        return _bound_body(receive, headers, most)

    def _check_host(self, host: str) -> None:
        name = host.lower()
        bare = name.rpartition(":")[0] if has_port(name) else name
        if not host or not (name in self._names or bare in self._names):
            raise ApiError(
                400,
                "foreign_host",
                "this server is not reached under that name; --host-name permits one",
            )

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        if origin is None:
            if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                is_visit = headers.get("sec-fetch-mode") == "navigate"
                if not is_visit:
                    raise _foreign()
            return
        host = headers.get("host", "").lower()
        own = {f"http://{host}", f"https://{host}"}
        if origin.lower() not in own | self._origins:
            raise _foreign()

    def _check_rate(self, name: str) -> None:
        wait_s = self._rate.take(name)
        if wait_s:
            raise ApiError(
                429,
                "too_many_requests",
                f"too many requests; the next one is answered in {wait_s:.2f} s",
                retry_after_s=round(wait_s, 3),
            )

    def _unproven(self, peer: str) -> ApiError:
        """Return the error for a request without a valid proof; guessing is slowed down."""
        if self._access.note_failure(peer):
            return too_many_failures()
        return ApiError(
            401,
            "no_valid_token",
            "send a bearer token in the header `Authorization`; `handrail serve token` makes one",
        )


def read_cookie(header: str) -> str:
    """Return the session that a request brings; empty without one.

    Other programs of this machine have cookies here, too, in whatever form: browsers tell no ports apart.

    >>> read_cookie('theme={"dark": 1}; handrail_session=abc')
    'abc'
    """
    pairs = (each.strip().partition("=") for each in header.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


def too_many_failures() -> ApiError:
    """Return the error for an address that guesses tokens."""
    return ApiError(429, "too_many_failures", "too many requests without a valid token")


def _foreign() -> ApiError:
    return ApiError(
        403, "foreign_origin", "pages of other sites may not send requests here"
    )


_ONCE = (b"host", b"origin", b"authorization", b"content-type", b"content-length")


def _check_once(headers: Sequence[tuple[bytes, bytes]], identity_header: str) -> None:
    """Refuse a header that comes twice: we would judge by one, and somebody else by the other."""
    names = [name.lower() for name, _ in headers]
    once = (*_ONCE, identity_header.encode())
    if any(names.count(each) > 1 for each in once):
        raise ApiError(400, "header_twice", "a header comes twice that may come once")


def _check_type(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415, "not_json", "a request that changes something has JSON as its body"
        )


def _keep_escaped_slashes(scope: Scope) -> None:
    """Have the path keep `%2F`, which routes would take for a slash: names of runs may hold one, or a `%`."""
    raw = scope.get("raw_path")
    if not raw:
        return
    text = raw.decode("latin-1").partition("?")[0]
    scope["path"] = unquote(re.sub("(?i)%(?=2f|25)", "%25", text))


def _bound_body(
    receive: Receive, headers: Mapping[str, str], most_bytes: int
) -> Receive:
    """Return a `receive` that refuses a body of more than `most_bytes`.

    Raises:
        ApiError: The header `Content-Length` is larger already.
    """
    too_large = ApiError(
        413, "too_large", f"a body has at most {most_bytes:,} bytes here"
    )
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most_bytes:
        raise too_large
    received = 0

    async def receive_bounded() -> MutableMapping[str, Any]:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most_bytes:
            raise too_large
        return message

    return receive_bounded


def _with_headers(send: Send) -> Send:
    """Return a `send` that adds our headers to an answer, unless it has one of that name."""

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            headers += [
                (name.encode(), value.encode())
                for name, value in _HEADERS.items()
                if name.encode() not in names
            ]
            if b"cache-control" not in names:
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
        await send(message)

    return send_with_headers
