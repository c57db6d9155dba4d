"""Events over HTTP, as a stream that a browser's `EventSource` reads (Server-Sent Events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse

from handrail.surroundings.clock import monotonic
from handrail_server.answers import ApiError
from handrail_server.hub import MOST_LISTENERS, EventListener
from handrail_server.operations import ApiCall, ApiOperation
from handrail_server.run_routes import load

PROOF_HOLDS_S = 1.0
"""How long a listener hears on without being checked again: the file of tokens is looked at for it."""


async def listen(call: ApiCall) -> Response:
    """Return the events of all runs as they happen."""
    return _stream(call, "")


async def listen_to_run(call: ApiCall) -> Response:
    """Return the events of a run as they happen."""
    stored = await asyncio.to_thread(load, call)
    return _stream(call, stored.record.run_id)


def _stream(call: ApiCall, run_id: str) -> Response:
    hub = call.deployment.hub
    if hub.listeners >= MOST_LISTENERS:
        raise ApiError(503, "too_many_listeners", "too many listen already")
    after = call.headers.get("last-event-id") or call.query.get("after", "")
    if after and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise ApiError(422, "bad_parameter", "`after` is the number of an event")
    listener = hub.listen(
        after=int(after) if after else None, run=run_id, tenant=call.by.scope
    )
    return StreamingResponse(
        _chunks(listener, call),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _chunks(listener: EventListener, call: ApiCall) -> AsyncIterator[bytes]:
    """Yield what is to be sent, until the token or the session of whoever listens is gone."""
    async with aclosing(aiter(listener)) as chunks:
        checked = monotonic()
        async for chunk in chunks:
            if monotonic() - checked > PROOF_HOLDS_S:
                if not call.is_still_proven():
                    return
                checked = monotonic()
            yield chunk


_AFTER = {"after": "The number of the last event that you know; `Last-Event-ID` too."}

OPERATIONS = [
    ApiOperation(
        "GET",
        "/events",
        listen,
        "see",
        "Listen to what happens.",
        gives="text/event-stream",
        query=_AFTER,
    ),
    ApiOperation(
        "GET",
        "/runs/{id}/events",
        listen_to_run,
        "see",
        "Listen to what happens in a run.",
        gives="text/event-stream",
        query=_AFTER,
    ),
]
