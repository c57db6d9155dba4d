"""Calls of tools by HTTP, each sent and answered in the task of its caller.

From 2026-07-28 on a request is one POST, and its answer is what the POST returns. The SDK's transport hands it to one
task, this one to another that sends it, and the answer comes back by two queues. Calls of tools go the short way here;
all else, and all of the older revisions with their sessions, goes the SDK's.

Rule 1: an answer that cannot be read says nothing about what the call has done, so the connection "broke off".
Rule 2: a caller that gives up closes its stream, which is how this revision cancels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp import types
from mcp.shared._httpx_utils import redirect_location, stream_within_origin
from mcp.shared.dispatcher import (
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage

from handrail_mcp.callers import MODERN
from handrail_mcp.wire.dispatcher import (
    LineContext,
    Params,
    make_request,
    read_number,
    report,
    trace_request,
)
from handrail_mcp.wire.messages import Received, read_likely, write_message

_CALL = "tools/call"
_HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}


class PostDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's dispatcher, with a shorter way for calls of tools.

    Args:
        client: Sends the requests.
        url: Of the server.
        most_bytes: Of one event of a streamed answer.
        look_at_sent: Called with each message of the short way before it is sent.
        look_at_received: Called with each before it is read.
    """

    def __init__(
        self,
        *streams: Any,
        client: httpx2.AsyncClient,
        url: str,
        most_bytes: int,
        look_at_sent: Callable[[SessionMessage], None],
        look_at_received: Callable[[Received], None],
    ) -> None:
        super().__init__(*streams)
        self._client = client
        self._url = httpx2.URL(url)  # read once
        self._most_bytes = most_bytes
        self._look_at_sent = look_at_sent
        self._look_at_received = look_at_received
        self._posts = 0
        self._notice_handler: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """See `Dispatcher.run`."""
        self._notice_handler = on_notify
        self._intercept = on_notify_intercept
        await super().run(
            on_request, on_notify, on_notify_intercept, task_status=task_status
        )

    async def send_raw_request(
        self,
        method: str,
        params: Params,
        opts: CallOptions | None = None,
        *,
        _related_request_id: types.RequestId | None = None,
    ) -> dict[str, Any]:
        """See `Dispatcher.send_raw_request`."""
        headers = (opts or {}).get("headers", {})
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        is_short = method == _CALL and version == MODERN
        if opts is None or not is_short or self._closed or "request_id" in opts:
            return await super().send_raw_request(
                method, params, opts, _related_request_id=_related_request_id
            )
        self._posts += 1
        request_id = f"call-{self._posts}"
        sent = dict(params or {})
        meta = dict(sent.pop("_meta", None) or {})
        if opts.get("on_progress") is not None:
            meta["progressToken"] = request_id
        with trace_request(method, sent.get("name"), request_id, meta):
            if meta:
                sent["_meta"] = meta
            request = make_request(request_id, method, sent)
            self._look_at_sent(SessionMessage(request))
            try:
                async with asyncio.timeout(opts.get("timeout")):
                    answer = await self._post(request, headers, opts)
            except TimeoutError:
                text = f"Request {method!r} timed out"
                raise MCPError(types.REQUEST_TIMEOUT, text) from None
        if isinstance(answer, types.JSONRPCError):
            raise MCPError.from_error_data(answer.error)
        return answer.result

    async def _post(
        self, request: types.JSONRPCRequest, headers: dict[str, str], opts: CallOptions
    ) -> types.JSONRPCResponse | types.JSONRPCError:
        async with stream_within_origin(
            self._client,
            "POST",
            self._url,
            content=write_message(request)[:-1],
            headers={**_HEADERS, **headers},
        ) as response:
            kind = response.headers.get("content-type", "").lower()
            try:
                if response.status_code >= 400:
                    raise await _read_refusal(response, kind)
                if response.status_code == 202 or response.next_request is not None:
                    raise _describe_no_answer(response)
                if kind.startswith("application/json"):
                    return self._take(await response.aread(), request.id)
                if kind.startswith("text/event-stream"):
                    return await self._read_events(response, request.id, opts)
            except (
                httpx2.StreamError,
                httpx2.TransportError,
                httpx2.SSEError,
            ) as error:
                raise _broke_off(type(error).__name__) from error
        raise MCPError(types.INVALID_REQUEST, f"Unexpected content type: {kind}")

    async def _read_events(
        self, response: httpx2.Response, request_id: types.RequestId, opts: CallOptions
    ) -> types.JSONRPCResponse | types.JSONRPCError:
        """Return the answer at the end of a stream of events; report the notices before it as they come."""
        source = httpx2.EventSource(response, max_event_size=self._most_bytes)
        async for event in source:
            if event.event != "message" or not event.data:
                continue
            item = read_likely(event.data.encode(), types.JSONRPCNotification)
            notice = item.message if isinstance(item, SessionMessage) else None
            if not isinstance(notice, types.JSONRPCNotification):
                return self._take(event.data.encode(), request_id)
            self._look_at_received(item)
            await self._tell(notice, request_id, opts)
        raise _broke_off("SSE stream ended without a response")

    async def _tell(
        self,
        notice: types.JSONRPCNotification,
        request_id: types.RequestId,
        opts: CallOptions,
    ) -> None:
        method, params = notice.method, notice.params or {}
        on_progress = opts.get("on_progress")
        progress = read_number(params.get("progress"))
        is_ours = params.get("progressToken") == request_id
        if method == "notifications/progress" and is_ours and progress is not None:
            note = params.get("message")
            text = note if isinstance(note, str) else None
            if on_progress is not None:
                await report(
                    on_progress, progress, read_number(params.get("total")), text
                )
        if run_notify_intercept(self._intercept, method, notice.params):
            return
        if self._notice_handler is not None:
            await report(self._notice_handler, LineContext(self), method, notice.params)

    def _take(
        self, content: bytes, request_id: types.RequestId
    ) -> types.JSONRPCResponse | types.JSONRPCError:
        item = read_likely(content, types.JSONRPCResponse)
        self._look_at_received(item)
        if isinstance(item, SessionMessage):
            answer = item.message
            if (
                isinstance(answer, types.JSONRPCResponse | types.JSONRPCError)
                and answer.id is not None
                and coerce_request_id(answer.id) == coerce_request_id(request_id)
            ):
                return answer
        raise _broke_off("it answered with something else than an answer")


def _broke_off(reason: str) -> MCPError:
    return MCPError(types.CONNECTION_CLOSED, reason)


def _describe_no_answer(response: httpx2.Response) -> MCPError:
    """Return the error for a status after which no answer follows."""
    where = redirect_location(response)
    if where is None:
        text = "server answered a request with 202 Accepted"
    else:
        text = f"server redirected to {where}, which was not followed"
    return MCPError(types.INVALID_REQUEST, text)


async def _read_refusal(response: httpx2.Response, kind: str) -> MCPError:
    """Return the error of a status from 400 on: the server's own where it sent one."""
    if kind.startswith("application/json"):
        item = read_likely(await response.aread(), types.JSONRPCError)
        if isinstance(item, SessionMessage) and isinstance(
            item.message, types.JSONRPCError
        ):
            return MCPError.from_error_data(item.message.error)
    if response.status_code == 404:
        return MCPError(types.METHOD_NOT_FOUND, "Not Found")
    return MCPError(types.INTERNAL_ERROR, "Server returned an error response")
