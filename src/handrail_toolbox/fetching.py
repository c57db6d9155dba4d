"""What tools over HTTP share: one client for a tool's whole life, and answers that end in time and size.

Rule 1: no answer is unbounded: neither in bytes, however well it was compressed, nor in time.
Rule 2: no part of a request reaches the model: a key is in its headers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Lock
from typing import Any, TypeAlias

import httpx2
from msgspec import Struct

from handrail._version import __version__
from handrail.context import trace_headers
from handrail.errors import Code, ToolError
from handrail.logs import log
from handrail.network.connections import make_client, proxy_for
from handrail.tools.tool import BaseTool

MOST_ANSWER_BYTES = 8 * 1024 * 1024
RemainingS: TypeAlias = "Callable[[], float]"
"""Returns the seconds until a call is ended; called each time."""
_DECODED = {"gzip", "x-gzip", "deflate"}


def user_agent(contact: str = "") -> str:
    """Return who asks, in the form that Wikimedia's policy gives: client, whom to write to, library."""
    return f"handrail/{__version__} {f'({contact}) ' if contact else ''}httpx2/{httpx2.__version__}"


USER_AGENT = user_agent()
"""For services that do not ask whom to write to."""


class Answer(Struct, frozen=True):
    """An HTTP answer: where it came from in the end, and its first bytes, decompressed."""

    status: int
    headers: httpx2.Headers
    url: httpx2.URL
    body: bytes
    cut: bool = False

    @property
    def media_type(self) -> str:
        """The type of its body, such as `text/html`; empty when it has none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class HttpTool(BaseTool):
    """A tool with an HTTP client that is opened before its first call and closed with the last runtime that uses it."""

    client: httpx2.Client
    _users = 0
    _guard = Lock()

    def new_client(self) -> httpx2.Client:
        """Return the client that this tool uses."""
        return make_client(headers={"user-agent": USER_AGENT})

    def open(self) -> None:
        """Make the client, unless another runtime has done so."""
        with self._guard:
            if not self._users:
                self.client = self.new_client()
            self._users += 1

    def close(self) -> None:
        """Close its connections, unless another runtime still uses them."""
        with self._guard:
            self._users -= 1
            if not self._users:
                self.client.close()

    def fetch(
        self,
        method: str,
        url: str,
        remaining_s: RemainingS,
        *,
        most_bytes: int = MOST_ANSWER_BYTES,
        **how: Any,
    ) -> Answer:
        """Send a request and return the answer, cut at `most_bytes`.

        Args:
            remaining_s: Says how long the call may still take, such as `context.remaining_s`; asked before each piece.
            how: What `httpx2.Client.stream` takes.

        Raises:
            httpx2.HTTPError: It could not be reached, or not in time.
        """
        timeout = httpx2.Timeout(max(0.1, remaining_s()))
        headers = {
            "accept-encoding": "gzip, deflate",
            **trace_headers(),
            **how.pop("headers", {}),
        }
        request = self.client.build_request(
            method,
            url,
            timeout=timeout,
            headers=headers,
            **how,
        )
        # Redirects are followed here: the client would first read the whole body of each, however long that is.
        follows = self.client.follow_redirects
        for _ in range(1 + self.client.max_redirects * follows):
            with closing(self._send(request)) as response:
                if not (follows and response.next_request):
                    return _read_bounded(response, remaining_s, most_bytes)
                request = response.next_request
            if remaining_s() <= 0:
                raise httpx2.ReadTimeout(
                    "the redirects did not end in time", request=request
                )
        raise httpx2.TooManyRedirects("the answer is another redirect", request=request)

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return self.client.send(request, stream=True, follow_redirects=False)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            log.warning(
                "%s got no connection to %s%s: %s; look at this machine's network, name server and HTTPS_PROXY",
                self.name,
                request.url.netloc.decode(),
                _describe_proxy(request.url),
                str(error) or type(error).__name__,
            )
            raise


def _describe_proxy(url: httpx2.URL) -> str:
    """Name the proxy that a log line is about, without its password."""
    proxy = proxy_for(url)
    if proxy:
        return f" by the proxy {httpx2.URL(proxy).netloc.decode()}"
    return ""


def _read_bounded(
    response: httpx2.Response, remaining_s: RemainingS, most_bytes: int
) -> Answer:
    body = bytearray()
    cut = False
    for piece in _decompress(response):
        body += piece
        if cut := len(body) > most_bytes:
            break
        if remaining_s() <= 0:
            raise httpx2.ReadTimeout(
                "the answer did not end in time", request=response.request
            )
    return Answer(
        response.status_code,
        response.headers,
        response.url,
        bytes(body[:most_bytes]),
        cut,
    )


def check_status(answer: Answer, whom: str) -> None:
    """Raise the error of a temporary status: too many requests, or a service that is down.

    Args:
        whom: How the service is called in the message.

    Raises:
        ToolError: `RATE_LIMITED` or `UNAVAILABLE`, both worth another try.
    """
    if answer.status == 429:
        raise rate_limited(answer, whom)
    if answer.status >= 500:
        raise ToolError(
            Code.UNAVAILABLE,
            f"{whom} is out of order (HTTP {answer.status}).",
            suggestion="Try again later, or use another source.",
            retryable=True,
            retry_after_s=_retry_after_s(answer),
        )


def rate_limited(answer: Answer, whom: str) -> ToolError:
    """Return the failure that asks to wait, for as long as the answer's `Retry-After` says."""
    return ToolError(
        Code.RATE_LIMITED,
        f"{whom} asks to wait before the next request.",
        suggestion="Go on with what is known, or call again later.",
        retryable=True,
        retry_after_s=_retry_after_s(answer),
    )


def _retry_after_s(answer: Answer) -> float | None:
    value = answer.headers.get("retry-after", "").strip()
    if value.isdecimal() and len(value) < 10:
        return float(value)
    return None


def _decompress(response: httpx2.Response) -> Iterator[bytes]:
    """Give the body in pieces of at most 64 KiB: a megabyte of compressed zeros is a gigabyte.

    Pieces are given as they arrive: filling each one up could take a day if the sender sends a byte a second.
    """
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", ""):
        yield from response.iter_raw()
        return
    if coding not in _DECODED:
        raise ToolError(
            "UNREADABLE",
            f"The answer is encoded as {coding[:20]}, which was not asked for.",
            suggestion="Use another source.",
        )
    # finds out itself whether the header is of gzip or zlib
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
    for piece in response.iter_raw():
        rest = piece
        while rest and not unpack.eof:
            try:
                yield unpack.decompress(rest, _PIECE_BYTES)
            except zlib.error:
                raise ToolError(
                    "UNREADABLE",
                    "The answer is damaged.",
                    suggestion="Use another source.",
                ) from None
            rest = unpack.unconsumed_tail
        if unpack.eof:  # zlib holds what follows; nobody reads it
            return


_PIECE_BYTES = 64 * 1024
