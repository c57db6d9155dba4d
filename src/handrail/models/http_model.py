"""A model behind HTTP: any wire dialect on httpx2.

What is sent, read and tried again is one generator without I/O, which `ask` drives.

Rule 1: no delta is taken back: a streamed answer is retried only before its first delta.
Rule 2: nothing that may hold a key is ever shown: no header but those of `_OPEN_HEADERS`, no query of an address.
Rule 3: no answer is unbounded: neither its size nor the silence between two pieces of it.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Generator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, cast

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from handrail.core.retries import Backoff
from handrail.dialects import DialectStream, WireDialect
from handrail.dialects.wires.request_bytes import RequestEncoder
from handrail.errors import ModelError
from handrail.events import HttpExchange
from handrail.messages import Delta, Options, TextDelta, Turn
from handrail.models import streamed_body
from handrail.ports import Listener, Request

MAX_ATTEMPTS = 3
LONGEST_WAIT_S = 60.0
_MOST_ANSWER_BYTES = 24 * 1024 * 1024
"""How much of an answer is read, unpacked. It is in memory twice for a moment; the longest are pictures in base64."""
_MOST_SHOWN_BYTES = 1024 * 1024
"""Of a stream, for whoever watches the exchange."""
_OPEN_HEADERS = {
    "content-type",
    "accept",
    "user-agent",
    "content-length",
    "anthropic-version",
    "api-revision",
}
"""Shown as they are. Every other one may hold a key: gateways and companies have headers of their own."""
_OPEN_QUERIES = {"api-version"}
_LEAST_SECRET_CHARS = 8
"""A shorter word is no key, and taking it out would blacken half of a text."""
_BETWEEN_WORDS = re.compile(r"[\s;,=]+")
_STREAMS = ("text/event-stream", "application/x-ndjson")
_SCHEMES = {"basic", "bearer", "digest", "key", "token"}
_VERSION = re.compile(r"/v\d\w*(?=/)")
_VERSION_AT_END = re.compile(r"/v\d\w*$")


class Open(Struct, frozen=True):
    """Send the request; answered by (status, headers)."""

    body: bytes


class Read(Struct, frozen=True):
    """Give the next piece of the answer; answered by bytes, empty at the end."""


class Pause(Struct, frozen=True):
    """Wait before the next attempt."""

    seconds: float


class _Address(Struct, frozen=True):
    """Where requests go: an address that anybody may see, and what of the real one is sent beside it."""

    url: httpx2.URL
    auth: httpx2.BasicAuth | None
    target: bytes


@lru_cache(maxsize=256)  # taking an address apart is a fortieth of a request
def _parse_address(address: str, asks: bool) -> _Address:
    url = httpx2.URL(address)
    if url.userinfo:
        auth = httpx2.BasicAuth(url.username, url.password)
    else:
        auth = None
    # What a person wrote into the address may be a key, and the client logs the whole address of each request.
    target = url.raw_path if asks else b""
    if target:
        shown = url.copy_with(userinfo=b"", query=None)
    elif auth:
        shown = url.copy_with(userinfo=b"")
    else:
        shown = url
    return _Address(shown, auth, target)


Steps: TypeAlias = Generator["Open | Read | Pause", Any, Turn]


class HttpModel:
    """One model of one provider.

    Args:
        name: What the provider calls the model.
        wire: The dialect that it speaks.
        address: The provider's base address; the dialect knows the path below it.
        headers: Sent with each request; wherever they are shown, all that may hold a key are masked.
        max_attempts: How often a request is sent at most, when its failure may pass.
        stream: Ask for a stream when somebody listens.
        key_variable: The environment variable of the key, there or not, to be named when the provider refuses it.
        provider: Who provides it, such as `openai`.
    """

    def __init__(
        self,
        name: str,
        wire: WireDialect,
        address: str,
        headers: Mapping[str, str],
        *,
        max_attempts: int = MAX_ATTEMPTS,
        stream: bool = True,
        backoff: Backoff | None = None,
        key_variable: str = "",
        provider: str = "",
    ) -> None:
        self.name = name
        self.provider = provider
        self.wire = wire
        self.address = address
        self._key_variable = key_variable
        self._headers = {
            "content-type": "application/json",
            "user-agent": "handrail",
            **headers,
        }
        self._max_attempts = max_attempts
        self._stream = stream
        self._backoff = backoff or Backoff(0.5, 8.0)
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}
        self._encoder = RequestEncoder(wire)

    @property
    def defers_tools(self) -> bool:
        """Whether the provider itself loads the tools that a search of ours found; see `Options.deferral`."""
        defers = getattr(self.wire, "defers_tools", None)
        return defers is not None and bool(defers(self.name))

    def asks_about_mcp(self, options: Options) -> bool:
        """Whether the provider may ask about calls on MCP servers; see `tools.mcp_approval`."""
        asks = getattr(self.wire, "asks_about_mcp", None)
        return asks is not None and bool(asks(options))

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:
        """See `ports.Model.ask`."""
        streamed = self._stream and listener is not None
        steps = self._steps(request, streamed, listener)
        line = _Line(
            self._asyncio_client(),
            self._address_to_post(streamed),
            self._headers,
            request.timeout_s,
        )
        try:
            step = next(steps)
            while True:
                try:
                    answer = await line.perform(step)
                except httpx2.HTTPError as error:
                    step = steps.throw(_unreachable(error))
                else:
                    step = steps.send(answer)
        except StopIteration as over:
            return cast(Turn, over.value)
        finally:
            await line.close()

    async def aclose(self) -> None:
        """Close the connections of the running loop, and drop those of loops that have ended."""
        mine = self._clients.pop(asyncio.get_running_loop(), None)
        self._drop_closed_loops()
        if mine is not None:
            await mine.aclose()

    def __repr__(self) -> str:
        return f"<HttpModel {self.name}: {self.wire.name} at {_visible_part(self.address)}>"

    def url(self, streamed: bool) -> str:
        """Return where requests are posted: the dialect's path comes before whatever the address asks.

        An address that ends in a version, `/v1` or `/v1beta`, has the say: people give it as they find it.
        """
        address, asks, query = self.address.partition("?")
        path = self.wire.path(self.name, stream=streamed)
        base = address.rstrip("/")
        if (version := _VERSION.match(path)) and _VERSION_AT_END.search(base):
            path = path[version.end() :]
        if not asks:
            return base + path
        separator = "&" if "?" in path else "?"
        return base + path + separator + query

    def _address_to_post(self, streamed: bool) -> _Address:
        return _parse_address(self.url(streamed), "?" in self.address)

    def mask_secrets(self, text: str) -> str:
        """Return the text without what may be a key in the headers or in the address: gateways quote what they got."""
        for secret in _find_secrets(self.address, self._headers):
            text = text.replace(secret, "***")
        return text

    # ------------------------------------------------------------------ what is sent, read and tried again

    def _steps(
        self, request: Request, streamed: bool, listener: Listener | None
    ) -> Steps:
        body = self.body(request, streamed)
        deltas = _DeltaListener(listener, self.url(streamed))
        attempt = 0
        while True:
            attempt += 1
            try:
                return (yield from self._attempt(body, request, deltas))
            except ModelError as error:
                wait_s = None
                # A delta cannot be taken back, so a stream that broke off after one is not retried.
                if not deltas.any_delta and attempt < self._max_attempts:
                    wait_s = self._wait_s(error, attempt, request)
                if wait_s is None:
                    # its cause says the same, with whatever was quoted
                    raise self._describe(error) from None
            yield Pause(wait_s)

    def body(self, request: Request, streamed: bool) -> bytes:
        """Return a request as bytes; see `RequestEncoder.body`."""
        options = replace(request.options, model=self.name, stream=streamed)
        return self._encoder.body(request.messages, request.tools, options)

    def read(self, answer: bytes, request: Request) -> Turn:
        """Return the turn of a whole answer to the request."""
        return self.wire.decode(answer, request.tools)

    def reader(self, request: Request) -> DialectStream:
        """Return a reader for a streamed answer to the request."""
        return self.wire.stream(request.tools)

    def _attempt(self, body: bytes, request: Request, deltas: _DeltaListener) -> Steps:
        status, headers = yield Open(body)
        if status == 200 and headers.get("content-type", "").lower().startswith(
            _STREAMS
        ):
            return (yield from self._read_stream(body, request, deltas))
        answer = yield from _all_of_it()
        deltas.exchange(self, body, status, answer, len(answer))
        if status != 200:
            raise self.wire.classify(status, headers, answer)
        turn = self.read(answer, request)
        if turn.text:
            deltas.delta(TextDelta(turn.text))  # asked for a stream, answered at once
        return turn

    def _read_stream(
        self, body: bytes, request: Request, deltas: _DeltaListener
    ) -> Steps:
        stream = self.reader(request)
        size = 0
        shown = bytearray()
        try:
            while piece := (yield Read()):
                size += len(piece)
                shown += piece[: _MOST_SHOWN_BYTES - len(shown)]
                _check_size(size)
                for delta in stream.feed(piece):
                    deltas.delta(delta)
            return stream.close()
        finally:
            deltas.exchange(self, body, 200, shown, size)

    def _wait_s(
        self, error: ModelError, attempt: int, request: Request
    ) -> float | None:
        if not error.retryable:
            return None
        wait_s = max(
            self._backoff.before(attempt + 1, random.random()),
            error.retry_after_s or 0.0,
        )
        # Beyond the run's own time the provider's reason is worth more than "no answer in time".
        if wait_s < min(LONGEST_WAIT_S, request.timeout_s):
            return wait_s
        return None

    def _describe(self, error: ModelError) -> ModelError:
        """Return the error with the address in its sentence, and what a person may do about it."""
        advice = ""
        has_key = any(name.lower() not in _OPEN_HEADERS for name in self._headers)
        if error.retry_after_s:
            advice = f"; it asks to wait {error.retry_after_s:.0f} s"
        elif error.status == 401 and self._key_variable and has_key:
            advice = f"; the key is that of {self._key_variable}"
        elif error.status == 401 and self._key_variable:
            advice = f"; no key was sent: set {self._key_variable}"
        return ModelError(
            f"{self.name} at {_visible_part(self.url(False))}: {self.mask_secrets(str(error))}{advice}",
            status=error.status,
            code=error.code,
            retryable=error.retryable,
            retry_after_s=error.retry_after_s,
            answered=error.answered,
        )

    def _asyncio_client(self) -> httpx2.AsyncClient:
        """Return the client of the running loop; connections do not cross from one loop to another."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._drop_closed_loops()
            client = self._clients[loop] = httpx2.AsyncClient()
            streamed_body.wrap_connections(client)
        return self._clients[loop]

    def _drop_closed_loops(self) -> None:
        for loop in list(self._clients):
            if loop.is_closed():
                self._clients.pop(loop, None)


def _unreachable(error: httpx2.HTTPError) -> ModelError:
    if isinstance(error, httpx2.TimeoutException):
        return ModelError("no answer in time", code="timeout", retryable=True)
    if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        # Its text shows the header that cannot be written, which may be the one with the key.
        return ModelError(
            "the request cannot be written; look at the address and the headers",
            code="unreachable",
        )
    why = str(error) or type(error).__name__
    if isinstance(error, httpx2.DecodingError):
        return ModelError(
            f"its answer cannot be unpacked: {why}", code="unreadable", retryable=True
        )
    if isinstance(error, httpx2.ConnectError):
        why += "; is the server running?"
    return ModelError(
        f"it cannot be reached: {why}", code="unreachable", retryable=True
    )


def _all_of_it() -> Generator[Read, bytes, bytes]:
    pieces = []
    size = 0
    while piece := (yield Read()):
        pieces.append(piece)
        size += len(piece)
        _check_size(size)
    return b"".join(pieces)


def _check_size(size_bytes: int) -> None:
    if size_bytes > _MOST_ANSWER_BYTES:
        raise ModelError(
            f"the answer is longer than {_MOST_ANSWER_BYTES >> 20} MB",
            code="unreadable",
        )


class _DeltaListener(Struct):
    """The listener, if any, and whether it has received a delta."""

    listener: Listener | None
    url: str
    any_delta: bool = False

    def delta(self, delta: Delta) -> None:
        if self.listener is not None:
            self.any_delta = True
            self.listener.delta(delta)

    def exchange(
        self,
        model: HttpModel,
        body: bytes,
        status: int,
        answer: bytes | bytearray,
        answer_bytes: int,
    ) -> None:
        """Report the exchange; `answer` may hold only the first of the answer's bytes."""
        if self.listener is None:
            return
        request_text = model.mask_secrets(body.decode("utf-8", "replace"))
        answer_text = model.mask_secrets(answer.decode("utf-8", "replace"))
        left_out = answer_bytes - len(answer)
        if left_out:
            answer_text += f"\n[... {left_out} more bytes are left out ...]"
        self.listener.exchange(
            HttpExchange(
                method="POST",
                url=_visible_part(self.url),
                headers={
                    name: _mask_header(name, value)
                    for name, value in model._headers.items()
                },
                body=request_text,
                status=status,
                answer=answer_text,
            )
        )


def _mask_header(name: str, value: str) -> str:
    if name.lower() in _OPEN_HEADERS:
        return value
    scheme, space, _ = value.partition(" ")
    if space and scheme.lower() in _SCHEMES:
        return f"{scheme} ***"
    return "***"


def _find_secrets(address: str, headers: Mapping[str, str]) -> list[str]:
    """Return what may be a key in an address and in headers, the longest first: one may begin with another."""
    url = httpx2.URL(address)
    query_values = [
        value
        for name, value in url.params.multi_items()
        if name.lower() not in _OPEN_QUERIES
    ]
    header_values = [
        value for name, value in headers.items() if name.lower() not in _OPEN_HEADERS
    ]
    words = {
        word
        for value in (url.password, *query_values, *header_values)
        for word in (value, *_BETWEEN_WORDS.split(value))
    }
    return sorted(
        (word for word in words if len(word) >= _LEAST_SECRET_CHARS),
        key=len,
        reverse=True,
    )


def _visible_part(url: str) -> str:
    """Return scheme, host and path of an address, without anything that could hold a key."""
    parsed = httpx2.URL(url)
    return f"{parsed.scheme}://{parsed.netloc.decode()}{parsed.path}"


class _Line:
    """One exchange on asyncio."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        address: _Address,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        self._client = client
        self._address = address
        self._headers = headers
        self._timeout = _timeout(timeout_s)
        self._answer: httpx2.Response | None = None
        self._body: streamed_body.ChunkedBody | None = None

    async def perform(self, step: Open | Read | Pause) -> Any:
        match step:
            case Open(body=body):
                await self.close()
                address = self._address
                extensions = {"target": address.target} if address.target else None
                request = self._client.build_request(
                    "POST",
                    address.url,
                    content=body,
                    headers=self._headers,
                    timeout=self._timeout,
                    extensions=extensions,
                )
                self._answer = await self._client.send(
                    request, stream=True, auth=address.auth
                )
                self._body = streamed_body.open_body(self._answer)
                self._pieces = self._answer.aiter_bytes()
                return self._answer.status_code, self._answer.headers
            case Read():
                if self._body is not None:
                    piece = await self._body.read(self._timeout.read)
                    if piece:
                        return piece
                    self._body = None  # what is left is for the client
                return await anext(self._pieces, b"")
            case Pause(seconds=seconds):
                return await asyncio.sleep(seconds)

    async def close(self) -> None:
        if self._answer is not None:
            await self._answer.aclose()


def _timeout(timeout_s: float) -> httpx2.Timeout:
    # Between two pieces of an answer, not for the whole of it: the run's own deadline bounds that. A reasoning model
    # may be silent for minutes before its first piece.
    return httpx2.Timeout(min(timeout_s, 600.0), connect=min(timeout_s, 10.0))
