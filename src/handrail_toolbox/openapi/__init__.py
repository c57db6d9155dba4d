"""The operations of an HTTP service as tools, from its OpenAPI 3 document.

    tools = hr.openapi("shop.json", base_url="https://shop.example/v1", auth={"key": os.environ["SHOP_KEY"]})

A GET or HEAD is a read, DELETE is destructive, and every other method writes. A write carries the act's key as
`Idempotency-Key`. A PUT is sent again when its answer is lost, since twice is as good as once (RFC 9110, 9.2.2), and so
is an operation whose document says that it knows keys; any other write is then in doubt.

`requests` writes what is sent, and `credentials` what goes along with it.

Rule 1: what a status leaves open is left open: after 408, 409, 425, 429 and 5xx a write may have happened.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock
from typing import Any, cast
from urllib.parse import quote

import httpx2

from handrail.calls import Media
from handrail.context import Context
from handrail.effects import EffectClass
from handrail.errors import Code, ConfigError, NoEffect, ToolDefinitionError, ToolError
from handrail.invisible import clean, clean_schema
from handrail.network.connections import UNSEEN_QUERY, make_client
from handrail.parsing.strictjson import copy
from handrail.schemas import yamltext
from handrail.schemas.importing import import_schema
from handrail.schemas.openapi import LeftOut, Operation, find_server, is_one, operations
from handrail.tools.settings import Sends, Write
from handrail.tools.tool import DEFAULT_TIMEOUT_S
from handrail.tools.toolset import Toolset
from handrail_toolbox.fetching import MOST_ANSWER_BYTES, USER_AGENT, Answer, HttpTool
from handrail_toolbox.openapi.credentials import (
    FETCHED,
    SENT,
    Secret,
    authorize,
    current_secret,
    mask_secrets,
    reason_unsendable,
    scheme_kind,
    secret_forms,
    security_schemes,
)
from handrail_toolbox.openapi.requests import write_request

MOST_SAID_CHARS = 500
"""Of what a service says about a call that it refused."""

_CONTEXT = "$context"
"""No argument has such a name."""
_OPEN_STATUS = {408, 409, 425, 429}
"""Statuses below 500 after which a write may have happened, or may still happen."""
_SAYING = ("message", "detail", "error_description", "title", "error", "errors", "msg")
"""Where services put what was wrong (RFC 9457 and customs)."""
_CODES: Mapping[int, tuple[str, str]] = {
    400: ("REQUEST_REFUSED", "Call again with what the service asks for."),
    401: (
        "NOT_AUTHENTICATED",
        "Tell the user that the credentials for this service are not accepted.",
    ),
    403: (
        Code.NOT_PERMITTED,
        "Go on without it, or tell the user that the service does not permit it.",
    ),
    404: ("NOT_FOUND", "Look up what there is, or ask the user."),
    409: ("CONFLICT", "Look at how things stand now before trying again."),
    410: ("NOT_FOUND", "It is gone for good; go on without it."),
    412: ("CONFLICT", "Look at how things stand now before trying again."),
    422: ("REQUEST_REFUSED", "Call again with what the service asks for."),
}
_OTHERWISE = (
    "REQUEST_REFUSED",
    "Call differently, or tell the user what the service said.",
)


def openapi(
    spec: Mapping[str, Any] | str | Path,
    *,
    base_url: str = "",
    auth: Mapping[str, Secret] | None = None,
    auth_origins: Iterable[str] = (),
    include: Iterable[str] = ("*",),
    effects: Mapping[str, EffectClass] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    most_bytes: int = MOST_ANSWER_BYTES,
) -> Service:
    """Return the operations of an OpenAPI 3.0 or 3.1 document as tools.

    Args:
        spec: The document, or the file that holds it: JSON, or YAML (`.yaml`, `.yml`). Nothing that it refers to
            outside of itself is fetched.
        base_url: In place of the servers that the document names.
        auth: A credential for each security scheme that the document names: a key, a token, `user:password`.
        auth_origins: Where credentials may go besides the document's first server, or `base_url`, for operations that
            name a server of their own: `https://files.example`. An operation whose server is none of these and that
            needs a credential becomes no tool.
        include: Names of tools, with `*` and `?` as in file names.
        effects: What some operations do, where their method does not say it: a POST that only searches is a read.
        most_bytes: How much of an answer is read.

    Raises:
        ConfigError: It is no such document, has no operation that can be used, names no server, or has not what is
            named here.
    """
    document = spec if isinstance(spec, Mapping) else _read(spec)
    _check(document)
    if base_url and not base_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{base_url!r} does not begin with http:// or https://; it is where the service is"
        )
    all_operations = list(operations(document))
    chosen = [each for each in all_operations if _matches_any(each.name, include)]
    wire = Wire(
        document,
        base_url or find_server(document),
        dict(auth or {}),
        most_bytes,
        fixed=bool(base_url),
        auth_origins=tuple(auth_origins),
    )
    overrides = dict(effects or {})
    tools: list[OperationTool] = []
    left_out = [each for each in chosen if isinstance(each, LeftOut)]
    for operation in chosen:
        if isinstance(operation, LeftOut):
            continue
        effect = overrides.pop(operation.name, operation.effect)
        tool = _make_tool(operation, wire, effect, timeout_s)
        if isinstance(tool, LeftOut):
            left_out.append(tool)
        else:
            tools.append(tool)
    if not tools:
        raise _no_tools(left_out, count=len(all_operations))
    if overrides:
        raise ConfigError(
            f"effects names {next(iter(overrides))!r}, which is no tool of this document"
        )
    return Service(tools, left_out)


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _no_tools(left_out: Sequence[LeftOut], *, count: int) -> ConfigError:
    """Return the error for a document of `count` operations, none of which can be used."""
    if left_out:
        reason = f": {left_out[0].name}: {left_out[0].reason}"
    else:
        reason = f"; there are {count} in the document"
    return ConfigError(f"no operation can be used as a tool{reason}")


def _make_tool(
    operation: Operation, wire: Wire, effect: EffectClass, timeout_s: float
) -> OperationTool | LeftOut:
    """Return an operation as a tool that is compiled, or the reason why it cannot be one."""
    try:
        wire.check_server(operation)
        wire.check_origin(operation)
        tool = OperationTool(operation, wire, effect, timeout_s)
        _ = tool.checker
    except (ToolDefinitionError, ConfigError) as error:
        return LeftOut(operation.name, operation.method, operation.path, str(error))
    return tool


def service_at(place: str) -> Service:
    """Return the tools of a service as a command line names it: `shop.json`, or `shop.json@https://shop.example/v1`.

    The credential of a security scheme `api key` is in the environment under `HANDRAIL_AUTH_API_KEY`.

    Raises:
        ConfigError: See `openapi`.
    """
    path, _, base_url = place.partition("@")
    document = _read(path)
    auth = {
        name: os.environ[each]
        for name in security_schemes(document)
        if (each := auth_variable(name)) in os.environ
    }
    return openapi(document, base_url=base_url, auth=auth)


def auth_variable(scheme: str) -> str:
    """Return the environment variable with the credential of a security scheme.

    >>> auth_variable("petstore-auth")
    'HANDRAIL_AUTH_PETSTORE_AUTH'
    """
    return f"HANDRAIL_AUTH_{re.sub(r'[^A-Za-z0-9]+', '_', scheme).upper()}"


class Service(Toolset):
    """The tools of a service, as it was made of a document.

    Attributes:
        operations: Its tools.
        left_out: Operations that are no tools, each with the reason.
    """

    def __init__(
        self, tools: Sequence[OperationTool] = (), left_out: Sequence[LeftOut] = ()
    ) -> None:
        super().__init__(tools)
        self.operations = tuple(tools)
        self.left_out = tuple(left_out)


def _read(place: str | Path) -> Mapping[str, Any]:
    path = Path(place)
    if str(place).startswith(("http://", "https://")):
        raise ConfigError(
            f"{place} is no file, and nothing is fetched; save it in a file first: curl -O {place}"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError):
            why = error.strerror or str(error)
        else:
            why = "it is no text"
        raise ConfigError(
            f"the document {str(path)!r} cannot be read: {why}"
        ) from error
    try:
        if path.suffix.lower() in (".yaml", ".yml"):
            return cast(Mapping[str, Any], yamltext.loads(text))
        return cast(Mapping[str, Any], json.loads(text))
    except ConfigError as error:
        raise ConfigError(
            f"the document {str(path)!r} cannot be read: {error}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the document {str(path)!r} is not JSON: {error}") from error


def _check(document: Any) -> None:
    if isinstance(document, Mapping) and "swagger" in document:
        raise ConfigError(
            "the document is of Swagger 2.0; convert it to OpenAPI 3 first"
        )
    if not is_one(document) or not re.match(
        r"3\.[01]\b", str(document.get("openapi", ""))
    ):
        raise ConfigError(
            "it is no document of OpenAPI 3.0 or 3.1: it needs `openapi` and `paths`"
        )


# ---------------------------------------------------------------------- the wire


@dataclass
class Wire:
    """Where the requests of a service go, and what goes along: one client for all its tools.

    Attributes:
        fixed: The address is the engineer's, also for operations that name another.
        auth_origins: Where credentials may go besides the origin of `base_url`.
    """

    document: Mapping[str, Any] = field(repr=False)
    base_url: str
    auth: Mapping[str, Secret] = field(repr=False)
    most_bytes: int
    fixed: bool = False
    auth_origins: Sequence[str] = ()
    schemes: Mapping[str, Mapping[str, Any]] = field(init=False)
    _client: httpx2.Client | None = field(default=None, init=False)
    _users: int = field(default=0, init=False)
    _guard: Lock = field(default_factory=Lock, init=False)

    def __post_init__(self) -> None:
        self.schemes = security_schemes(self.document)
        for name, secret in self.auth.items():
            if name not in self.schemes:
                names = ", ".join(self.schemes) or "none"
                raise ConfigError(
                    f"auth names {name!r}, and the document's security schemes are {names}"
                )
            if scheme_kind(self.schemes[name]) not in SENT:
                raise ConfigError(
                    f"auth names {name!r}, a credential of the kind {scheme_kind(self.schemes[name])}, which cannot be "
                    f"sent; those that can are {', '.join(SENT)}"
                )
            if not callable(secret) and (
                fault := reason_unsendable(secret, self.schemes[name])
            ):
                raise ConfigError(f"the credential for {name!r} {fault}")

    def missing(self, operation: Operation) -> str:
        """Say what an operation needs, by the first of the ways that its document names."""
        needs = []
        for name in operation.security[0]:
            kind = scheme_kind(self.schemes.get(name, {}))
            if kind in FETCHED:
                kind += ", a token that somebody must fetch beforehand"
            needs.append(f"{name} ({kind})")
        return " and ".join(needs)

    @property
    def query_keys(self) -> set[str]:
        """Names under which credentials go in the query."""
        return {
            str(each.get("name"))
            for each in self.schemes.values()
            if each.get("in") == "query"
        }

    def check_server(self, operation: Operation) -> str:
        """Return where an operation's requests go.

        Raises:
            ConfigError: No server is named, or one that is no HTTP address.
        """
        if self.fixed:
            server = self.base_url
        else:
            server = operation.server or self.base_url
        try:
            url = httpx2.URL(server)
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        if (
            url.scheme not in ("http", "https")
            or not url.host
            or url.query
            or url.fragment
            or url.userinfo
        ):
            if server:
                fault = f"{server!r} is no address of a server"
            else:
                fault = "the document names no server"
            raise ConfigError(f'{fault}; give base_url="https://..."')
        return server.rstrip("/")

    def check_origin(self, operation: Operation) -> None:
        """Raise where an operation would send a credential to a server that is not the document's first.

        The author of an operation in the document need not be the service that the credential is for.

        Raises:
            ConfigError: Its origin is none of `auth_origins` either.
        """
        server = self.check_server(operation)
        trusted = map(_origin, (self.base_url, *self.auth_origins))
        if self._usable_schemes(operation) and _origin(server) not in trusted:
            raise ConfigError(
                f"its requests go to {server}, and not to the document's first server, whose credentials they would "
                'take along; where that may have them, give auth_origins=["https://..."]'
            )

    def _usable_schemes(self, operation: Operation) -> Sequence[str] | None:
        """Return the schemes of the first way that has all its credentials; None where there is no such way."""
        ways = (
            way
            for way in operation.security
            if all(name in self.auth and name in self.schemes for name in way)
        )
        return next((tuple(way) for way in ways), None)

    def acquire(self) -> None:
        """Count one more tool that uses the client; the first opens it."""
        with self._guard:
            self._users += 1
            if self._client is None:
                self._client = make_client(
                    headers={"user-agent": USER_AGENT}, follow_redirects=False
                )

    def release(self) -> None:
        """Count one tool less; the last one closes the client."""
        with self._guard:
            self._users -= 1
            if self._users == 0 and self._client is not None:
                self._client.close()
                self._client = None

    @property
    def client(self) -> httpx2.Client:
        """The client; only while a tool is open."""
        assert self._client is not None
        return self._client

    def credentials(
        self, operation: Operation
    ) -> list[tuple[Mapping[str, Any], str]] | None:
        """Return the schemes that go along with a request, each with its credential; None where one is missing.

        Raises:
            NoEffect: A function that should give one raised.
        """
        if not operation.security:
            return []
        if (together := self._usable_schemes(operation)) is None:
            return None
        schemes = [(name, self.schemes[name]) for name in together]
        return [
            (each, current_secret(self.auth[name], each, operation.name))
            for name, each in schemes
        ]


def _origin(server: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address; the port is left out where it is the scheme's own."""
    url = httpx2.URL(server)
    return url.scheme, url.host.lower().rstrip("."), url.port


class OperationTool(HttpTool):
    """One operation as a tool."""

    trace_type = "extension"

    def __init__(
        self, operation: Operation, wire: Wire, effect: EffectClass, timeout_s: float
    ) -> None:
        self.operation = operation
        self.wire = wire
        self.name = operation.name
        self.effect = effect
        # a service returns what strangers have written there, whatever the method is called
        self.sends = Sends(trust="untrusted")
        self.timeout_s = timeout_s
        self.description = clean(
            operation.description or f"{operation.method.upper()} {operation.path}"
        )
        self.returns = clean_schema(operation.returns) or None
        # redirects are not followed, and a refused one is not sent again
        self.write = Write(one_request=effect != "read")
        if effect != "read" and (operation.keyed or operation.method == "put"):
            self.replay = "key"
        schema = import_schema(clean_schema(operation.schema), name=operation.name)
        self._describe(schema, copy, {_CONTEXT: Context})
        super().__init__()

    def open(self) -> None:
        """Take part in the client of all tools."""
        self.wire.acquire()
        self.client = self.wire.client

    def close(self) -> None:
        """Leave it."""
        self.wire.release()

    def run(self, /, **given: Any) -> Any:
        """Send the request and return what the service answers."""
        context: Context[Any] = given.pop(_CONTEXT)
        operation = self.operation
        request = write_request(operation, given, self.wire.query_keys)
        credentials = self.wire.credentials(operation)
        if credentials is None:
            raise NoEffect(
                "NOT_AUTHENTICATED",
                f"`{self.name}` needs credentials that were not set up: {self.wire.missing(operation)}.",
                suggestion="Go on without it, or tell the user that nobody has given it credentials.",
            )
        for scheme, secret in credentials:
            authorize(request, scheme, secret)
        if context.idempotency_key:
            request.headers.append(("Idempotency-Key", _ascii(context.idempotency_key)))
        query = "&".join(request.query)
        url = self.wire.check_server(operation) + request.path
        if query:
            url += f"?{query}"
        headers = [*request.headers]
        if request.cookies:
            headers.append(("Cookie", "; ".join(request.cookies)))
        answer = self.fetch(
            operation.method.upper(),
            url,
            context.remaining_s,
            most_bytes=self.wire.most_bytes,
            headers=dict(headers),
            content=request.content,
            extensions={UNSEEN_QUERY: "&".join(request.keys)},
        )
        secrets = [form for _, secret in credentials for form in secret_forms(secret)]
        return self._read(answer, secrets)

    def _read(self, answer: Answer, secrets: Sequence[str]) -> Any:
        if answer.status >= 500 or answer.status in (408, 425, 429):
            # Read by `retries`, as any HTTP library's error is: what may pass, after how long, with what effect.
            raise _UncertainStatus(answer.status, answer.headers)
        if not 200 <= answer.status < 300:
            raise self._refusal(answer, secrets)
        if not answer.body:
            return {"status": answer.status}
        if answer.cut:
            note = f"The answer has more than {self.wire.most_bytes:,} bytes and was not read."
            if self.writes:
                return {"status": answer.status, "note": note}
            raise ToolError(
                "TOO_LARGE",
                note,
                suggestion="Ask for less: a page, a filter, fewer fields.",
            )
        value = _value(answer)
        return mask_secrets(value, secrets) if secrets else value

    def _refusal(self, answer: Answer, secrets: Sequence[str]) -> ToolError:
        code, advice = _CODES.get(answer.status, _OTHERWISE)
        reason = mask_secrets(_refusal_text(answer), secrets)
        message = f"The service refused `{self.name}` (HTTP {answer.status})"
        message += f": {reason}" if reason else "."
        if answer.status in _OPEN_STATUS or answer.status < 400:
            kind = ToolError
        else:
            kind = NoEffect
        return kind(code, message, suggestion=advice)


class _UncertainStatus(Exception):  # it carries an answer, as HTTP libraries' errors do
    """An answer that leaves open whether the call happened."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers


def _ascii(key: str) -> str:
    if key.isascii() and key.isprintable():
        return key
    return quote(key, safe="/:")


# ---------------------------------------------------------------------- reading


def _value(answer: Answer) -> Any:
    """Return an answer as JSON, as text, or as `Media`."""
    kind = answer.media_type
    if kind == "application/json" or kind.endswith("+json") or not kind:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            pass
    if kind.startswith(("image/", "audio/")) or kind == "application/pdf":
        return Media(kind, answer.body)
    try:
        return answer.body.decode()
    except UnicodeDecodeError:
        return {
            "media_type": kind,
            "bytes": len(answer.body),
            "note": "The answer is no text, and is not shown.",
        }


def _refusal_text(answer: Answer) -> str:
    """Return what a service says of its refusal, in one line."""
    try:
        message = json.loads(answer.body)
    except (ValueError, RecursionError):
        message = ""
        if answer.media_type == "text/plain":
            message = answer.body.decode(errors="replace")
    for _ in range(2):  # `{"error": {"message": ...}}`
        if isinstance(message, dict):
            message = next(
                (message[key] for key in _SAYING if message.get(key)), message
            )
    text = ""
    if isinstance(message, str):
        text = message
    else:
        with suppress(RecursionError):
            text = json.dumps(message, ensure_ascii=False)
    line = " ".join(re.sub(r"[^\S ]|[\x00-\x1f\x7f]", " ", text).split())
    if len(line) <= MOST_SAID_CHARS:
        return line
    return f"{line[:MOST_SAID_CHARS]}…"
