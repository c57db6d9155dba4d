"""Requests, answers and notices between us and one peer, as the SDK's `Dispatcher` for what comes in lines.

The SDK's own dispatcher reads from a stream of anyio in a task, and hands each answer on by another one: five turns of
the event loop for a message. Here a line is read where it arrives: an answer wakes whoever waits for it, and a request
gets a task. The messages are the SDK's models; what they mean, the SDK's sessions and handlers decide as before.

Rule 1: a request that its peer has cancelled is not answered.
Rule 2: whoever waits for an answer learns that the connection has ended.
Rule 3: nothing that a handler raises ends the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, Protocol

import anyio
from mcp import types
from mcp.shared._otel import inject_trace_context, otel_span
from mcp.shared.dispatcher import (
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    as_request_id,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import (
    cancelled_request_id_from_params,
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from opentelemetry.context import get_current
from opentelemetry.trace import ProxyTracerProvider, SpanKind, get_tracer_provider

from handrail import logs

Params = Mapping[str, Any] | None

_PIPE = TransportContext(kind="stdio", can_send_request=True)
_ONE_WAY = TransportContext(kind="stdio", can_send_request=False)


class Wire(Protocol):
    """Where lines come from, and go to."""

    def start(
        self,
        take: Callable[[SessionMessage | Exception], None],
        end: Callable[[], None],
    ) -> None:
        """Call `take` with each message, or with the error of a line that is none; call `end` after the last one."""

    def find_room(self) -> Awaitable[None] | None:
        """Return what to wait for before a message is written; None where there is room."""

    def write(self, message: types.JSONRPCMessage) -> Awaitable[None] | None:
        """Write a message; return what to wait for while it is not taken yet.

        Raises:
            OSError: Nobody reads any longer.
        """

    def close(self) -> None:
        """Read no more."""


class LineContext:
    """One message of the peer, as its handler sees it: the SDK's `DispatchContext`.

    Attributes:
        was_cancelled: Whether the peer has cancelled the request.
    """

    __slots__ = (
        "_dispatcher", "_is_closed", "_progress_token", "_requested", "request_id", "transport", "was_cancelled",
    )  # fmt: skip
    message_metadata = None

    def __init__(
        self,
        dispatcher: Dispatcher[TransportContext],
        request_id: types.RequestId | None = None,
        progress_token: types.ProgressToken | None = None,
    ) -> None:
        self.transport = _PIPE
        self.request_id = request_id
        self.was_cancelled = False
        self._dispatcher = dispatcher
        self._progress_token = progress_token
        self._requested: anyio.Event | None = None
        self._is_closed = False

    @property
    def can_send_request(self) -> bool:
        """Whether the handler may send requests to the peer."""
        return self.transport.can_send_request and not self._is_closed

    @property
    def cancel_requested(self) -> anyio.Event:
        """Set once the peer has cancelled the request."""
        if self._requested is None:
            self._requested = anyio.Event()
            if self.was_cancelled:
                self._requested.set()
        return self._requested

    def forbid_requests(self) -> None:
        """Refuse requests to the peer, as the revisions from 2026-07-28 on do."""
        self.transport = _ONE_WAY

    def cancel(self) -> None:
        """Note that the peer has cancelled the request."""
        self.was_cancelled = True
        if self._requested is not None:
            self._requested.set()

    def close(self) -> None:
        """Take no more notices and requests of the handler."""
        self._is_closed = True

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request to the peer.

        Raises:
            NoBackChannelError: The handler has ended, or the peer takes no requests.
        """
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._dispatcher.send_raw_request(method, params, opts)

    async def notify(
        self,
        method: str,
        params: Params,
        opts: CallOptions | None = None,  # noqa: ARG002  # the SDK's
    ) -> None:
        """Send a notice, unless the handler has ended."""
        if not self._is_closed:
            await self._dispatcher.notify(method, params)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the peer wants to hear of it."""
        if self._progress_token is None:
            return
        params: dict[str, Any] = {
            "progressToken": self._progress_token,
            "progress": progress,
        }
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.notify("notifications/progress", params)


class _Waiting:
    """A request of ours, and who waits for its answer."""

    __slots__ = ("answer", "on_progress")

    def __init__(self, answer: asyncio.Future[Any], on_progress: Any) -> None:
        self.answer = answer
        self.on_progress = on_progress


class LineDispatcher(Dispatcher[TransportContext]):
    """Sends and takes the messages of one peer.

    Args:
        wire: Where they come from and go to.
        inline: Methods after whose request nothing is taken until it is answered.
    """

    def __init__(self, wire: Wire, *, inline: frozenset[str] = frozenset()) -> None:
        self._wire = wire
        self._inline = inline
        self._next_id = 0
        self._waiting: dict[types.RequestId, _Waiting] = {}
        self._handling: dict[
            types.RequestId, tuple[asyncio.Task[None], LineContext]
        ] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_back: deque[SessionMessage | Exception] | None = None
        self._is_running = False
        self._is_closed = False

    # ------------------------------------------------------------------ what is received

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Take messages until the peer has gone; then end the handlers."""
        self._on_request = on_request
        self._on_notify = on_notify
        self._intercept = on_notify_intercept
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._context: Context = copy_context()
        self._is_running = True
        task_status.started()
        self._wire.start(self._take, self._end)
        try:
            await self._ended
        finally:
            self._end()
            self._wire.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait(self._tasks)

    def _end(self) -> None:
        """End every wait for an answer, since the connection has ended."""
        self._is_running = False
        self._is_closed = True
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_result(None)
        self._waiting.clear()
        if not self._ended.done():
            self._ended.set_result(None)

    def _take(self, item: SessionMessage | Exception) -> None:
        if self._held_back is not None:
            self._held_back.append(item)
            return
        if isinstance(item, Exception):
            logs.log.debug("a line is no message: %s", type(item).__name__)
            return
        match item.message:
            case types.JSONRPCResponse() as answer:
                self._take_answer(answer.id, answer.result)
            case types.JSONRPCRequest() as request:
                self._take_request(request)
            case types.JSONRPCError() as refusal:
                self._take_answer(refusal.id, refusal.error)
            case types.JSONRPCNotification() as notice:
                self._take_notice(notice)

    def _take_answer(self, request_id: types.RequestId | None, answer: Any) -> None:
        if request_id is None:
            return
        waiting = self._waiting.get(coerce_request_id(request_id))
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(answer)

    def _take_request(self, request: types.JSONRPCRequest) -> None:
        context = LineContext(
            self, request.id, progress_token_from_params(request.params)
        )
        is_inline = request.method in self._inline
        if is_inline:
            self._held_back = deque()
        task = self._spawn(self._handle(request, context))
        key = coerce_request_id(request.id)
        self._handling[key] = (task, context)
        # not in the task: a task that is cancelled before its first step runs none of its code
        task.add_done_callback(
            lambda _: self._note_handled(key, context, is_inline=is_inline)
        )

    def _take_notice(self, notice: types.JSONRPCNotification) -> None:
        method, params = notice.method, notice.params
        if method == "notifications/cancelled":
            self._cancel(cancelled_request_id_from_params(params))
        elif method == "notifications/progress":
            self._take_progress(params or {})
        if not run_notify_intercept(self._intercept, method, params):
            context = LineContext(self)
            self._spawn(report(self._on_notify, context, method, params))

    def _cancel(self, request_id: types.RequestId | None) -> None:
        if request_id is None:
            return
        handling = self._handling.get(coerce_request_id(request_id))
        if handling is not None:
            task, context = handling
            context.cancel()
            task.cancel()

    def _take_progress(self, params: Mapping[str, Any]) -> None:
        token = as_request_id(params.get("progressToken"))
        progress = read_number(params.get("progress"))
        if token is None or progress is None:
            return
        waiting = self._waiting.get(coerce_request_id(token))
        if waiting is not None and waiting.on_progress is not None:
            total = read_number(params.get("total"))
            note = params.get("message")
            text = note if isinstance(note, str) else None
            self._spawn(report(waiting.on_progress, progress, total, text))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        context = self._context.copy()
        task: asyncio.Task[None] = self._loop.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------ requests of the peer

    async def _handle(
        self, request: types.JSONRPCRequest, context: LineContext
    ) -> None:
        """Answer a request."""
        answer = await self._answer(request, context)
        context.close()
        if answer is not None:
            await self._write(answer)

    def _note_handled(
        self, key: types.RequestId, context: LineContext, *, is_inline: bool
    ) -> None:
        context.close()
        if key in self._handling and self._handling[key][1] is context:
            del self._handling[key]
        if is_inline:
            self._go_on()

    async def _answer(
        self, request: types.JSONRPCRequest, context: LineContext
    ) -> types.JSONRPCMessage | None:
        """Return the answer to a request; None where the peer has cancelled it."""
        try:
            result = await self._on_request(context, request.method, request.params)
        except asyncio.CancelledError:
            if not context.was_cancelled:
                await self._say_last(request.id)
                raise
            return None
        except Exception as error:
            fault = handler_exception_to_error_data(error)
            if fault is None:
                logs.log_exception(f"the request {request.method!r} failed", error)
                fault = types.ErrorData(code=0, message=str(error))
            if context.was_cancelled:
                return None
            return types.JSONRPCError(jsonrpc="2.0", id=request.id, error=fault)
        if context.was_cancelled:
            return None
        return types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)

    async def _say_last(self, request_id: types.RequestId) -> None:
        """Answer a request whose handler ends with the connection, if somebody still reads."""
        fault = types.ErrorData(
            code=types.CONNECTION_CLOSED, message="Connection closed"
        )
        refusal = types.JSONRPCError(jsonrpc="2.0", id=request_id, error=fault)
        try:
            self._wire.write(refusal)
        except OSError:
            logs.log.debug("a request ended without an answer: nobody reads")

    def _go_on(self) -> None:
        """Take what came while an inline request was answered."""
        held_back, self._held_back = self._held_back, None
        while held_back:
            self._take(held_back.popleft())
            if self._held_back is not None:
                # another inline request: the rest waits for it
                self._held_back.extend(held_back)
                return

    # ------------------------------------------------------------------ what is sent

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and return the result of its answer.

        Raises:
            MCPError: The peer refused it, did not answer in time, or has gone.
            ValueError: Another request with that id is under way.
        """
        opts = opts or {}
        request_id = self._choose_id(opts)
        sent = dict(params or {})
        meta = dict(sent.pop("_meta", None) or {})
        on_progress = opts.get("on_progress")
        if on_progress is not None:
            meta["progressToken"] = request_id
        with trace_request(method, sent.get("name"), request_id, meta):
            if meta:
                sent["_meta"] = meta
            request = make_request(request_id, method, sent)
            waiting = _Waiting(self._loop.create_future(), on_progress)
            key = coerce_request_id(request_id)
            self._waiting[key] = waiting
            try:
                answer = await self._ask(request, waiting, opts)
            finally:
                self._waiting.pop(key, None)
        if answer is None:
            raise _connection_closed()
        if isinstance(answer, types.ErrorData):
            raise MCPError(answer.code, answer.message, answer.data)
        result: dict[str, Any] = answer
        return result

    def _choose_id(self, opts: CallOptions) -> types.RequestId:
        if self._is_closed:
            raise _connection_closed()
        if not self._is_running:
            raise RuntimeError("a request was sent before the connection was running")
        wanted = opts.get("request_id")
        if wanted is not None:
            if coerce_request_id(wanted) in self._waiting:
                raise ValueError(f"request id {wanted!r} is already in flight")
            return wanted
        self._next_id += 1
        while self._next_id in self._waiting:
            self._next_id += 1
        return self._next_id

    async def _ask(
        self, request: types.JSONRPCRequest, waiting: _Waiting, opts: CallOptions
    ) -> Any:
        """Send a request and wait for its answer; on a timeout or cancellation, cancel it at the peer."""
        timeout = opts.get("timeout")
        try:
            await self._write(request)
            if timeout is None:
                return await waiting.answer
            async with asyncio.timeout(timeout):
                return await waiting.answer
        except TimeoutError:
            self._withdraw(request.id, f"timed out after {timeout}s", opts)
            raise MCPError(
                types.REQUEST_TIMEOUT, f"Request {request.method!r} timed out"
            ) from None
        except asyncio.CancelledError:
            self._withdraw(request.id, "caller cancelled", opts)
            raise

    def _withdraw(
        self, request_id: types.RequestId, reason: str, opts: CallOptions
    ) -> None:
        if self._is_closed or not opts.get("cancel_on_abandon", True):
            return
        notice = types.JSONRPCNotification(
            jsonrpc="2.0",
            method="notifications/cancelled",
            params={"requestId": request_id, "reason": reason},
        )
        try:
            self._wire.write(notice)
        except OSError:
            self._end()

    async def notify(
        self,
        method: str,
        params: Params,
        opts: CallOptions | None = None,  # noqa: ARG002  # the SDK's
    ) -> None:
        """Send a notice; one that nobody reads is dropped."""
        if self._is_closed:
            return
        notice = types.JSONRPCNotification(jsonrpc="2.0", method=method)
        if params is not None:
            notice = types.JSONRPCNotification(
                jsonrpc="2.0", method=method, params=dict(params)
            )
        await self._write(notice)

    async def _write(self, message: types.JSONRPCMessage) -> None:
        """Write a message; where nobody reads it, the connection has ended."""
        try:
            while (room := self._wire.find_room()) is not None:
                await room
            waiting = self._wire.write(message)
            if waiting is not None:
                await waiting
        except OSError:
            self._end()


def _connection_closed() -> MCPError:
    return MCPError(types.CONNECTION_CLOSED, "Connection closed")


def read_number(value: Any) -> float | None:
    """Return a number of the peer; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


async def report(tell: Callable[..., Awaitable[None]], *what: Any) -> None:
    """Tell somebody something; what they raise is no failure of the connection."""
    try:
        await tell(*what)
    except Exception as error:
        logs.log_exception("a notice of a server was not taken", error)


def make_request(
    request_id: types.RequestId, method: str, params: dict[str, Any]
) -> types.JSONRPCRequest:
    """Return a request as a message."""
    # `"params": null` is none of the protocol, so params that are not there are not set
    if not params:
        return types.JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method)
    return types.JSONRPCRequest(
        jsonrpc="2.0", id=request_id, method=method, params=params
    )


@contextmanager
def trace_request(
    method: str, target: Any, request_id: types.RequestId, meta: dict[str, Any]
) -> Iterator[None]:
    """Send the trace of the caller with a request, in a span of its own, as the SDK does."""
    if not get_current() and isinstance(get_tracer_provider(), ProxyTracerProvider):
        # nothing is traced in this process
        yield
        return
    name = f"MCP send {method}{f' {target}' if isinstance(target, str) else ''}"
    attributes = {"mcp.method.name": method, "jsonrpc.request.id": str(request_id)}
    with otel_span(name, kind=SpanKind.CLIENT, attributes=attributes):
        inject_trace_context(meta)
        yield
