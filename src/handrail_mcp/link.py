"""One connection to a server, from its handshake to its end, in a task of its own.

The SDK's client must be entered and left by one task. A `Link` is that task: others wait until it is ready, use its
session, and ask it to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
from mcp import Client, types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from msgspec import Struct
from pydantic import ValidationError

from handrail import logs
from handrail_mcp.delivery import CURRENT, Delivery, ServerNotReached
from handrail_mcp.targets import Address, Target
from handrail_mcp.transports.child import ServerProcess, hold_child
from handrail_mcp.transports.lenient import mend_result
from handrail_mcp.transports.messages import Received
from handrail_mcp.transports.remote import MessageTooLong, open_remote
from handrail_mcp.transports.streams import Incoming, Outgoing

_CLOSE_S = 2.5
"""How long a link may take to end: a child ends within 1.2 s, and the end of a session over HTTP is sent."""

_MOST_ASKED = 10_000
"""Requests without an answer that are remembered. Of older ones an odd result stays as it is."""

_MOST_FAULTS = 100

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
        faults: Sentences about entries of the server's lists that were left out.
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
        self.faults: list[str] = []
        self._asked: dict[str, tuple[str, Delivery | None]] = {}
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

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """Open the transport, and look at each message that goes through it."""
        if isinstance(self.target, Address):
            async with open_remote(self.target, self.connect_s) as (source, target):
                yield (
                    Incoming(lambda: self._receive(source.receive), source),
                    Outgoing(lambda item: self._send(target.send, item), target),
                )
            return
        self.child = child = await ServerProcess.start(self.target)
        async with hold_child(child):
            yield (
                Incoming(lambda: self._receive(child.read_message)),
                Outgoing(lambda item: self._send(child.write_message, item)),
            )

    # ------------------------------------------------------------------ what goes through

    async def _receive(self, receive: Callable[[], Awaitable[Received]]) -> Received:
        try:
            item = await receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.lost = True
            raise
        if isinstance(item, MessageTooLong):
            self.too_long = True
            self.lost = True
        elif isinstance(item, Exception):
            self._note_broken_line()
        else:
            if self.watch is not None:
                self.watch("received", _as_json(item))
            self._mend(item.message)
        return item

    def _mend(self, message: types.JSONRPCMessage) -> None:
        """Make an answer readable to the SDK, and note that there is one."""
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            return
        if message.id is None and len(self._asked) == 1:
            (message.id,) = self._asked
        method, delivery = self._asked.pop(str(message.id), ("", None))
        if isinstance(message, types.JSONRPCResponse):
            version = self.client.protocol_version if self.client is not None else ""
            faults = mend_result(self.server, method, version, message.result)
            self.faults += faults[: _MOST_FAULTS - len(self.faults)]
        elif self.child is not None and delivery is not None:
            # over HTTP the transport itself answers in the place of a server
            delivery.answered = True

    async def _send(
        self, send: Callable[[SessionMessage], Awaitable[None]], item: SessionMessage
    ) -> None:
        if self.watch is not None:
            self.watch("sent", _as_json(item))
        match item.message:
            case types.JSONRPCRequest(id=id_, method=method):
                self._asked[str(id_)] = method, CURRENT.get()
                if len(self._asked) > _MOST_ASKED:
                    del self._asked[next(iter(self._asked))]
            case types.JSONRPCNotification(
                method="notifications/cancelled", params=params
            ):
                self._asked.pop(str((params or {}).get("requestId")), None)
        await send(item)

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
            self._describe(flatten(error) if error is not None else None, delivery),
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
        if isinstance(error, RuntimeError | ValidationError):
            return f"cannot be used: {describe(error)}"  # a version that nobody here speaks
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
        reason = describe(error) if error is not None else "it was closed"
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
