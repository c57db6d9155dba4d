"""One connection to a server, from its handshake to its end, in a task of its own.

The SDK's client must be entered and left by one task. A `Link` is that task: others wait until it is ready, use its
session, and ask it to end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Self

import anyio
from mcp import Client, types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import Dispatcher
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from msgspec import Struct

from handrail import logs
from handrail_mcp.child import ChildLines, ServerProcess, hold_child, open_child
from handrail_mcp.delivery import CURRENT, Delivery, ServerNotReached
from handrail_mcp.remote import MOST_MESSAGE_BYTES, MessageTooLong, open_remote
from handrail_mcp.targets import Address, ServerProgram, Target
from handrail_mcp.wire.dispatcher import LineDispatcher
from handrail_mcp.wire.posts import PostDispatcher

_CLOSE_S = 2.5
"""How long a link may take to end: a child ends within 1.2 s, and the end of a session over HTTP is sent."""

Watch = Callable[[str, Any], None]
"""Sees each message: `sent` or `received`, and the message as JSON."""


class Callbacks(Struct, frozen=True, kw_only=True):
    """Functions that answer the requests of a server, as the `Client` of the package `mcp` takes them.

    A callback that is None is a capability that the client does not declare.
    """

    elicitation: Any = None
    sampling: Any = None
    sampling_capabilities: types.SamplingCapability | None = None
    roots: Any = None
    logging: Any = None
    message: Any = None
    log_level: types.LoggingLevel | None = None


class Link:
    """One connection to a server.

    Attributes:
        ready: Set to the session once the handshake is done, or to why there is none.
        lost: Whether it has ended, or is about to.
        exit_code: Of a child, once it has ended.
    """

    def __init__(
        self,
        server: str,
        target: Target,
        callbacks: Callbacks,
        *,
        mode: str = "auto",
        connect_s: float,
        watch: Watch | None = None,
    ) -> None:
        self.server = server
        self.target = target
        self.callbacks = callbacks
        self.mode = mode
        self.connect_s = connect_s
        self.watch = watch
        self.lost = False
        self.broken_lines = 0
        self.too_long = False
        self.child: ServerProcess | None = None
        self.client: Client | None = None
        self._under_way = 0
        self._closing = asyncio.Event()
        self.ready: asyncio.Future[ClientSession] = (
            asyncio.get_running_loop().create_future()
        )
        # somebody may never ask
        self.ready.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._task = asyncio.ensure_future(self._live())

    @property
    def stderr(self) -> str:
        """The end of a child's standard error."""
        return self.child.stderr if self.child is not None else ""

    @contextmanager
    def use(self) -> Iterator[None]:
        """Count a request that is under way; the last one ends a connection that takes no more."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if self.lost and not self._under_way:
                self._closing.set()

    def retire(self) -> None:
        """Take no more requests; end the connection after those that are under way."""
        self.lost = True
        if not self._under_way:
            self._closing.set()

    async def wait_until_ready(self) -> ClientSession:
        """Return the session. Whoever is cancelled meanwhile does not take the connection from others that wait.

        Raises:
            ServerNotReached: There is no connection.
        """
        # not `asyncio.shield`, which logs an error that comes after its caller was cancelled
        await asyncio.wait((self.ready,))
        return self.ready.result()

    async def close(self) -> None:
        """End the connection; returns when it has ended, and its child is dead."""
        self.lost = True
        self._closing.set()
        if self._task is asyncio.current_task():
            return
        if not self.ready.done():
            self._task.cancel()
        done, _ = await asyncio.wait([self._task], timeout=_CLOSE_S)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_CLOSE_S)

    async def _live(self) -> None:
        """Connect, then wait until the connection is to end, or ends by itself."""
        # The connection's own requests carry nothing of the caller that happened to open it.
        delivery = Delivery()
        CURRENT.set(delivery)
        failure: BaseException | None = None
        try:
            await self._connect_and_wait()
        except (Exception, BaseExceptionGroup) as error:
            failure = error
        except asyncio.CancelledError as error:
            failure = error
            if self._is_cancelled_from_outside():
                raise
        finally:
            self.lost = True
            if not self.ready.done():
                self.ready.set_exception(self._explain(failure, delivery))

    @staticmethod
    def _is_cancelled_from_outside() -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    async def _connect_and_wait(self) -> None:
        clock = asyncio.timeout(self.connect_s)
        try:
            async with clock:
                client = Client(
                    self._open(),
                    mode=self.mode,
                    cache=None,
                    client_info=_describe_us(),
                    elicitation_callback=self.callbacks.elicitation,
                    sampling_callback=self.callbacks.sampling,
                    sampling_capabilities=self.callbacks.sampling_capabilities,
                    list_roots_callback=self.callbacks.roots,
                    logging_callback=self.callbacks.logging,
                    message_handler=self.callbacks.message,
                    log_level=self.callbacks.log_level,
                )
                if sys.platform != "win32" or isinstance(self.target, Address):
                    client._connect = self._connect
                await client.__aenter__()
        except BaseException:
            if clock.expired():
                raise TimeoutError from None
            raise
        try:
            self.client = client
            self.ready.set_result(client.session)
            await self._closing.wait()
        finally:
            self.lost = True
            await client.__aexit__(None, None, None)

    async def _connect(self, stack: AsyncExitStack, *_: Any) -> Dispatcher[Any]:
        """Open the transport; return what the SDK's session sends its requests by, in place of its own."""
        if isinstance(self.target, ServerProgram):
            self.child = child = await ServerProcess.start(self.target)
            await stack.enter_async_context(hold_child(child))
            return LineDispatcher(ChildLines(child, self))
        remote = open_remote(self.target, self.connect_s)
        client, streams = await stack.enter_async_context(remote)
        return PostDispatcher(
            Incoming(streams[0], self),
            Outgoing(streams[1], self),
            client=client,
            url=self.target.url,
            most_bytes=MOST_MESSAGE_BYTES,
            look_at_sent=self.look_at_sent,
            look_at_received=self.look_at_received,
        )

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """Open the transport of a server whose pipes the event loop cannot wait for."""
        assert isinstance(self.target, ServerProgram)
        self.child = await ServerProcess.start(self.target)
        async with open_child(self.child) as (read_stream, write_stream):
            yield Incoming(read_stream, self), Outgoing(write_stream, self)

    # ------------------------------------------------------------------ what goes through

    def look_at_received(self, item: SessionMessage | Exception) -> None:
        """Note what was received; called for each item before the SDK reads it."""
        if isinstance(item, MessageTooLong):
            self.too_long = True
            self.lost = True
        elif isinstance(item, Exception):
            self._note_broken_line()
        else:
            if self.watch is not None:
                self.watch("received", _as_json(item))
            make_readable(item.message)

    def look_at_end(self) -> None:
        """Note that nothing is received any more."""
        self.lost = True

    def look_at_sent(self, item: SessionMessage) -> None:
        """Note what is sent."""
        if self.watch is not None:
            self.watch("sent", _as_json(item))

    def _note_broken_line(self) -> None:
        self.broken_lines += 1
        if self.broken_lines == 1:
            logs.log.warning(
                "the MCP server %r writes lines that are no messages; they are ignored",
                self.server,
            )

    # ------------------------------------------------------------------ what went wrong

    def _explain(
        self, error: BaseException | None, delivery: Delivery
    ) -> ServerNotReached:
        """Return why there is no connection, in one sentence."""
        failure = ServerNotReached(
            self.server,
            self._describe(error, delivery),
            target=str(self.target),
            details=self.stderr,
        )
        failure.__cause__ = flatten(error) if error is not None else None
        return failure

    def _describe(self, error: BaseException | None, delivery: Delivery) -> str:
        if self.too_long:
            return f"cannot be used: {MessageTooLong()}"
        if isinstance(error, TimeoutError):
            return f"did not answer within {self.connect_s:g} s"
        if self.child is not None and self._has_exited_by_itself():
            return f"ended at once, with exit code {self.child.process.returncode}"
        if delivery.error is not None:
            return f"cannot be reached: {describe(delivery.error)}"
        if delivery.status is not None and delivery.status >= 400:
            return f"refused the connection with HTTP {delivery.status}"
        if isinstance(error, OSError) and self.child is None:
            return f"cannot be started: {describe(error)}"
        if isinstance(error, asyncio.CancelledError):
            return "was closed while it was being connected"
        reason = describe(flatten(error)) if error is not None else "it was closed"
        return f"cannot be connected to: {reason}"

    def _has_exited_by_itself(self) -> bool:
        assert self.child is not None
        code = self.child.process.returncode
        return code is not None and code >= 0 and not self._closing.is_set()


def flatten(error: BaseException) -> BaseException:
    """Return the first error in groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe(error: BaseException) -> str:
    """Return one line about an error: its kind, and what it says, which may come from the server."""
    text = " ".join(str(error).split())[:300]
    if isinstance(error, MCPError):
        return f"it answered with the error {error.code}: {text}"
    if isinstance(error, OSError):
        return error.strerror or text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _describe_us() -> types.Implementation:
    from handrail._version import __version__

    return types.Implementation(name="handrail", version=__version__)


def _as_json(item: SessionMessage) -> Any:
    return item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)


_CONTENT_TYPES = frozenset({"text", "image", "audio", "resource", "resource_link"})


def make_readable(message: types.JSONRPCMessage) -> None:
    """Repair faults whose meaning is clear, but which would make a whole answer unreadable to the SDK.

    Content of an unknown type becomes a sentence, and a schema without a type that of an object.
    """
    if not isinstance(message, types.JSONRPCResponse):
        return
    contents = message.result.get("content")
    if isinstance(contents, list):
        for number, content in enumerate(contents):
            contents[number] = _make_content_readable(content)
    tools = message.result.get("tools")
    if isinstance(tools, list):
        for tool in tools:
            _add_types(tool)


def _make_content_readable(content: Any) -> Any:
    kind = content.get("type") if isinstance(content, dict) else None
    if kind in _CONTENT_TYPES:
        return content
    named = str(kind)[:40] if kind is not None else "of no type"
    return {"type": "text", "text": f"[unsupported content: {named}]"}


def _add_types(tool: Any) -> None:
    if not isinstance(tool, dict):
        return
    for name in ("inputSchema", "outputSchema"):
        schema = tool.get(name)
        if isinstance(schema, dict):
            schema.setdefault("type", "object")


class Incoming:
    """The stream of received messages, each of which the link looks at first."""

    def __init__(self, stream: Any, link: Link) -> None:
        self._stream = stream
        self._link = link

    @property
    def last_context(self) -> Any:
        """The context in which the last message was received, where the transport has one."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        try:
            item = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._link.lost = True
            raise
        self._link.look_at_received(item)
        return item

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class Outgoing:
    """The stream of sent messages, each of which the link looks at first."""

    def __init__(self, stream: Any, link: Link) -> None:
        self._stream = stream
        self._link = link

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        self._link.look_at_sent(item)
        await self._stream.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        with suppress(anyio.ClosedResourceError):
            await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
