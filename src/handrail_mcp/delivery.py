"""The delivery of one request to a server: whether it was sent, and what the transport answered.

A `Delivery` travels in a context variable: the package `mcp` sends each request over HTTP in the context of its caller.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2

from handrail.errors import HandrailError

_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
)


@dataclass(slots=True)
class Delivery:
    """The delivery of one request.

    Attributes:
        status: The HTTP status of the answer; None over standard streams, or without an answer.
        kind: The content type of the answer, in lower case.
        retry_after: The header `Retry-After` of the answer.
        error: Why there is no answer.
        session_lost: The server says that it does not know the session any more.
        sent: Whether it was handed to the connection.
        answered: Whether the server itself answered it, by an error or a result. The SDK reports what it cannot
            read, and the end of a connection, by errors as of a server.
        may_repeat: Whether sending it twice does no more than sending it once.
        caller: Whatever the caller wants to find again in a callback of this request.
    """

    status: int | None = None
    kind: str = ""
    retry_after: str | None = None
    error: Exception | None = None
    session_lost: bool = False
    sent: bool = False
    answered: bool = False
    may_repeat: bool = False
    caller: Any = None

    def forget(self) -> None:
        """Forget what became of the request, which is sent again."""
        self.status = None
        self.session_lost = self.sent = self.answered = False

    @property
    def was_not_sent(self) -> bool:
        """Whether nothing can have reached the server."""
        return isinstance(self.error, _NOT_SENT)

    @property
    def was_refused(self) -> bool:
        """Whether the status says that nothing was done."""
        status = self.status
        return status is not None and 400 <= status < 500 and status not in _OPEN_STATUS

    @property
    def is_unreadable(self) -> bool:
        """Whether the answer reports no error, yet cannot hold a message: 202, a redirect, or another content type."""
        status = self.status
        if status is None or status >= 400:
            return False
        return status == 202 or status >= 300 or not self.kind.startswith(_KINDS)

    @property
    def is_open(self) -> bool:
        """Whether the status leaves open what was done."""
        status = self.status
        return status is not None and (status >= 500 or status in _OPEN_STATUS)


_KINDS = ("application/json", "text/event-stream")

_OPEN_STATUS = (408, 409, 425)
"""Statuses below 500 after which something may have been done."""

CURRENT: ContextVar[Delivery | None] = ContextVar("handrail_mcp_delivery", default=None)
"""The request in whose context something happens."""


class ServerError(HandrailError):
    """A server did not answer as a server does. The message is one sentence that names it.

    Attributes:
        server: Its name here.
        happened: What happened, as the rest of a sentence about the server. Nothing in it is secret.
        target: Where it is: a command line, perhaps with secrets in it. For a person only.
        details: The end of its standard error. For a person only.
    """

    def __init__(
        self, server: str, happened: str, *, target: str = "", details: str = ""
    ) -> None:
        place = f" ({target})" if target else ""
        super().__init__(f"the MCP server {server!r} {happened}{place}")
        self.server = server
        self.happened = happened
        self.target = target
        self.details = details


class ServerNotReached(ServerError):
    """No request was sent: the server did not start, or does not answer."""


class ServerBrokeOff(ServerError):
    """A request was sent and its answer will not come; whether it was carried out is unknown."""


class ServerTimeout(ServerBrokeOff):
    """A request was sent and not answered in time. The server is asked to cancel it."""
