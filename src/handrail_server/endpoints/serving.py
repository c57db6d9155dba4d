"""What the endpoints have in common over HTTP: reading a request, watching for its sender to hang up, streaming.

Rule 1: an error in a request is one sentence in the protocol's own form, and no run begins.
Rule 2: once a run has started, a header keeps the client's library from retrying the request by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from handrail.errors import Json
from handrail.invisible import json_text
from handrail_server.endpoints.driving import Requester, RunAnswer
from handrail_server.endpoints.refusals import Refusal, read_error
from handrail_server.endpoints.steps import Step

MOST_BODY_BYTES = 8 * 1024 * 1024
"""The longest request that is read. A conversation with pictures in it is long."""

RUN_HEADER = "x-handrail-run-id"

T = TypeVar("T")

Identify = Callable[[Request], Requester]
"""Returns whose request it is."""


async def read_body(request: Request, form: type[T]) -> T:
    """Return the body of a request in this form.

    Raises:
        Refusal: It is too long, no JSON, or of another form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "the request must be JSON: content-type application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY_BYTES:
            raise Refusal(
                413, f"the request is longer than {MOST_BODY_BYTES >> 20} MiB"
            )
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"the request cannot be read: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, f"the request is no JSON: {error}") from error
    except RecursionError:
        raise Refusal(400, "the request is nested too deep") from None


def digest_of(body: Any) -> str:
    """Return what tells a request from another: its digest, without how the answer is sent."""
    fields = {
        name: value
        for name, value in msgspec.to_builtins(body).items()
        if name not in ("stream", "stream_options")
    }
    return sha256(json_text(fields).encode("utf-8", "surrogatepass")).hexdigest()


def is_retry(request: Request) -> bool:
    """Whether an official client says that it sends a request again."""
    return request.headers.get("x-stainless-retry-count", "0") != "0"


def endpoint(
    handle: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a Starlette endpoint that answers what `handle` raises in OpenAI's form."""

    async def answer(request: Request) -> Response:
        try:
            return await handle(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return refuse(read_error(error))

    return answer


def answer_json(
    body: Json, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return JSON as a response, whatever text a model or a tool wrote: halves of surrogate pairs leave escaped."""
    return Response(
        json_text(body).encode("utf-8", "replace"),
        status,
        headers=headers,
        media_type="application/json",
    )


def refuse(refusal: Refusal, **headers: str) -> Response:
    """Return a refusal as a response."""
    may_retry = "true" if refusal.may_retry else "false"
    headers = {"x-should-retry": may_retry, **headers}
    return answer_json(refusal.as_json(), refusal.status, headers)


async def start(request: Request, answer: RunAnswer) -> None:
    """Wait until the run of an answer is under way.

    Raises:
        Exception: It could not be started; why.
    """
    await _while_connected(request.receive, answer, answer.begin())


async def collect(
    request: Request, answer: RunAnswer, take: Callable[[Step], None]
) -> None:
    """Give each step of an answer to `take`, until the run ends.

    Raises:
        ClientDisconnect: The sender has hung up meanwhile.
    """

    async def read() -> None:
        async for step in answer.steps():
            if step is not None:
                take(step)

    await _while_connected(request.receive, answer, read())


async def _while_connected(
    receive: Receive, answer: RunAnswer, work: Awaitable[None]
) -> None:
    """Wait for some work, unless the sender hangs up: then the answer is left.

    A server that ends cancels this, and leaves nothing: the run is released with the others.

    Raises:
        ClientDisconnect: The sender has hung up.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_wait_for_hanging_up(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            answer.leave()
            raise ClientDisconnect
        working.result()
    finally:
        working.cancel()
        watching.cancel()


async def _wait_for_hanging_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Stream(StreamingResponse):
    """An answer that is sent as it comes."""

    def __init__(
        self,
        answer: RunAnswer,
        pieces: AsyncIterator[bytes],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(pieces, media_type="text/event-stream", headers=headers)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's
        """Send it, until it ends or its reader hangs up."""
        try:
            sending = self.stream_response(send)
            await _while_connected(receive, self._answer, sending)
        except ClientDisconnect:
            pass
        except OSError:  # how some servers say that nobody reads
            self._answer.leave()


def stream(
    answer: RunAnswer,
    write: Callable[[Step], list[str]],
    *,
    headers: Mapping[str, str],
) -> Response:
    """Return the steps of an answer as server-sent events, as they come.

    Args:
        write: Returns the events of a step, each whole.
    """

    async def pieces() -> AsyncIterator[bytes]:
        async for step in answer.steps():
            # a comment keeps proxies from cutting a silent stream
            events = [": \n\n"] if step is None else write(step)
            for event in events:
                yield event.encode("utf-8", "replace")

    given = {
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        RUN_HEADER: answer.run_id,
        **headers,
    }
    return _Stream(answer, pieces(), given)


def event(data: Mapping[str, Json], name: str = "") -> str:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json_text(data)}\n\n"
