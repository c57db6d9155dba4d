"""The connection to one server: opened when it is first needed, opened again when it was lost, usable from anywhere.

    connection = McpConnection("shop", make_target("shop-server --stdio"))
    tools = await connection.list_tools()
    result = await connection.call("refund", {"order": 7}, timeout_s=10)      # the protocol's own result
    page = await connection.request(lambda session: session.list_prompts())   # anything else that the SDK can say
    await connection.close()

The connection lives on one event loop, its home. Code on another loop or in another thread may use it just as well.

Rule 1: a request is sent once. It is sent again only where the first one provably did nothing: the server answered
        that it does not know the session (HTTP 404), or that our headers do not fit (-32020). Where it says only in
        words that it does not know the session, a request is sent again that may be carried out twice.
Rule 2: every wait ends: connecting after `connect_s`, a call after its `timeout_s`, or after `idle_s` without progress.
        The server is then asked to cancel the request.
Rule 3: what goes wrong is one `ServerError` with one sentence that names the server; an error that the server itself
        answered is the SDK's `MCPError`, untouched.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

from mcp import Client, types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from handrail import logs
from handrail.engine.thread_scheduler import LoopThread
from handrail_mcp.delivery import (
    CURRENT,
    Delivery,
    ServerBrokeOff,
    ServerError,
    ServerNotReached,
    ServerTimeout,
)
from handrail_mcp.link import Callbacks, Link, Watch, describe
from handrail_mcp.server_settings import DEFAULT_CONNECT_S
from handrail_mcp.targets import Target
from handrail_mcp.transports.remote import MessageTooLong

T = TypeVar("T")
CallAnswer: TypeAlias = "types.CallToolResult | types.InputRequiredResult"
FetchPage: TypeAlias = Callable[
    [ClientSession, types.PaginatedRequestParams], Awaitable[Any]
]
Progress: TypeAlias = Callable[[float, float | None, str], None]
"""Gets how far a call has come: done, total, a note."""

MOST_TOOLS = 10_000
"""Of one server; more is a mistake, or an attack."""

_MOST_PAGES = 10_000

_CALL_ANSWER: TypeAdapter[CallAnswer] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_EXIT_S = 3.0


class McpConnection:
    """The connection to one server.

    Args:
        name: What errors call the server.
        target: Where it is; see `make_target`.
        connect_s: Seconds until it must have answered first.
        idle_s: Seconds that a call may take without any sign of progress; None leaves only its `timeout_s`.
        mode: The era of the protocol: `auto` asks the server, `legacy` uses the handshake (2025-11-25 and before), a
            revision such as `2026-07-28` is spoken without asking.
        callbacks: What answers the server's own requests. What is missing there is a capability we do not have.
        on_changed: Called on the home loop when the server says that its tools have changed, or was connected again.
        watch: Sees each message: `sent` or `received`, and the message as JSON.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        connect_s: float = DEFAULT_CONNECT_S,
        idle_s: float | None = None,
        mode: str = "auto",
        callbacks: Callbacks | None = None,
        on_changed: Callable[[], Any] | None = None,
        on_reopened: Callable[[], Awaitable[None]] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.name = name
        self.target = target
        self.connect_s = connect_s
        self.idle_s = idle_s
        self.mode = mode
        self.callbacks = callbacks or Callbacks()
        self.on_changed = on_changed
        self.on_reopened = on_reopened
        self.watch = watch
        self.calls_under_way: dict[int, Delivery] = {}
        self._home: asyncio.AbstractEventLoop | None = None
        self._current: Link | None = None
        self._era = ""
        self._opened = 0
        self._users = 0
        self._guard = Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        state = "open" if self.is_open else "not open"
        return f"<McpConnection to {self.name!r}: {state}, {self.target}>"

    # ------------------------------------------------------------------ state of the server

    @property
    def is_open(self) -> bool:
        """Whether the server is connected now."""
        link = self._current
        return link is not None and not link.lost and link.client is not None

    @property
    def home(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it lives on; None before it was first used."""
        return self._home

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken; empty while nothing is connected."""
        client = self._client
        return client.protocol_version if client is not None else ""

    @property
    def server_info(self) -> types.Implementation | None:
        """How the server calls itself."""
        client = self._client
        return client.server_info if client is not None else None

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """What the server can do; nothing while it is not connected."""
        client = self._client
        if client is None:
            return types.ServerCapabilities()
        return client.server_capabilities

    @property
    def instructions(self) -> str:
        """What the server says about its use."""
        client = self._client
        return (client.instructions or "") if client is not None else ""

    @property
    def stderr(self) -> str:
        """The end of what a child wrote to its standard error."""
        return self._current.stderr if self._current is not None else ""

    def take_faults(self) -> list[str]:
        """Return sentences about what was left out of the server's lists, once."""
        link = self._current
        if link is None:
            return []
        faults, link.faults = link.faults, []
        return faults

    @property
    def _client(self) -> Client | None:
        return self._current.client if self._current is not None else None

    # ------------------------------------------------------------------ what others call

    async def open(self) -> None:
        """Connect, unless it is connected.

        Raises:
            ServerNotReached: The server did not start, or did not answer in time.
        """
        await self._at_home(self._find_link)

    async def close(self) -> None:
        """End the connection, and the server if it is a child. The next request opens it again."""
        home = self._home
        if home is None or home.is_closed():
            return
        await self._at_home(self._close)

    def acquire(self) -> None:
        """Count a tool that a runtime has opened."""
        with self._guard:
            self._users += 1

    async def release(self) -> None:
        """Count it off; the last one ends the connection."""
        with self._guard:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            await self.close()

    async def request(
        self,
        send: Callable[[ClientSession], Awaitable[T]],
        *,
        timeout_s: float | None = None,
        delivery: Delivery | None = None,
    ) -> T:
        """Send something and return the answer.

        Args:
            send: Sends it with the session that it is given; called again where the session is lost (rule 1).
            timeout_s: Seconds until the answer must be there; without it, `connect_s`.
            delivery: Filled with what becomes of the request.

        Raises:
            ServerError: There is no answer.
            MCPError: The server answered with an error.
        """
        limit_s = self.connect_s if timeout_s is None else timeout_s
        given = delivery or Delivery(may_repeat=True)
        return await self._at_home(lambda: self._exchange(send, given, limit_s))

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
        meta: Mapping[str, Any] | None = None,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        delivery: Delivery | None = None,
    ) -> CallAnswer:
        """Call a tool; return the result as the server gave it. Nothing of it is validated.

        Args:
            tool: Its name at the server.
            timeout_s: Seconds until the result must be there. Progress does not extend them; it extends `idle_s`.
            progress: Called with each report of progress, on the home loop. It must not block or raise.
            meta: For the request's `_meta`.
            input_responses: Answers to the `input_requests` of an earlier result, with its `request_state`.
            delivery: Filled with what becomes of the request.

        Raises:
            ServerNotReached: Nothing was sent.
            ServerTimeout: There was no result in time.
            ServerBrokeOff: The connection broke before the result was there; the call may have been carried out.
            MCPError: The server answered with an error.
        """
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments or {})}
        if input_responses is not None:
            params["input_responses"] = dict(input_responses)
        if request_state is not None:
            params["request_state"] = request_state
        if meta:
            params["_meta"] = dict(meta)
        request = types.CallToolRequest(params=types.CallToolRequestParams(**params))
        given = delivery or Delivery()
        return await self._at_home(
            lambda: self._call(request, given, timeout_s, progress)
        )

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools that the server lists, all pages of them.

        Raises:
            ServerError: There is no answer, its pages never end, or it cannot be read.
            MCPError: The server answered with an error.
        """
        tools: list[types.Tool] = []
        async for page in self.read_pages(_list_tools):
            tools += page.tools
            if len(tools) > MOST_TOOLS and page.next_cursor:
                raise ServerBrokeOff(self.name, f"lists more than {MOST_TOOLS:,} tools")
        return tools

    async def read_pages(self, fetch: FetchPage) -> AsyncIterator[Any]:
        """Yield the pages of one of the server's lists.

        Args:
            fetch: Asks for one page.

        Raises:
            ServerError: There is no answer, its pages never end, or it cannot be read.
            MCPError: The server answered with an error.
        """
        cursor: str | None = None
        cursors: set[str] = set()
        first: Any = None
        while True:
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self.request(
                lambda session, params=params: fetch(session, params)  # type: ignore[misc]
            )
            first = first or page
            if cursor == "" and page == first:
                return  # of a server to which an empty cursor means the end, and which begins again
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in cursors:
                raise ServerBrokeOff(self.name, "lists without end: it repeats a page")
            if len(cursors) == _MOST_PAGES:
                raise ServerBrokeOff(self.name, "lists without end")
            cursors.add(cursor)

    # ------------------------------------------------------------------ the home loop

    async def _at_home(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do work on the home loop; the first caller's loop becomes the home, unless it has ended."""
        here = asyncio.get_running_loop()
        if self._home is None or self._home.is_closed():
            self._home = here
            self._current = None
            _OPEN.add(self)
        if self._home is here:
            return await work()
        future = asyncio.run_coroutine_threadsafe(work(), self._home)
        return await asyncio.wrap_future(future)

    async def _find_link(self) -> Link:
        """Return a connection that is ready for a request."""
        link = self._current
        if link is None or link.lost:
            link = self._start_link()
        try:
            await link.wait_until_ready()
        except ServerNotReached as error:
            # one instance for all that waited, each of which adds its own traceback
            raise ServerNotReached(
                error.server,
                error.happened,
                target=error.target,
                details=error.details,
            ) from error.__cause__
        return link

    def _start_link(self) -> Link:
        if self._current is not None:
            self._current.retire()
        link = self._current = Link(
            self.name,
            self.target,
            self._callbacks(),
            mode=self._era or self.mode,
            connect_s=self.connect_s,
            watch=self.watch,
        )
        self._spawn(self._follow(link))
        return link

    def _callbacks(self) -> Callbacks:
        """Return the callbacks, with one that also notices changes of the tools."""
        return replace(self.callbacks, message=self._take_message)

    async def _take_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._tell_changed()
        if self.callbacks.message is not None:
            await self.callbacks.message(message)

    def _tell_changed(self) -> None:
        if self.on_changed is not None:
            self.on_changed()

    async def _follow(self, link: Link) -> None:
        """Remember the era of a new connection, and listen to its changes where that has to be asked for."""
        try:
            session = await link.wait_until_ready()
        except ServerError:
            # the server may have been replaced by one of another era
            self._era = ""
            return
        if session.initialize_result is not None:
            self._era = "legacy"
        self._opened += 1
        if self._opened > 1:
            self._tell_changed()
            if self.on_reopened is not None:
                await self.on_reopened()
        if self.on_changed is not None and session.discover_result is not None:
            await self._listen(link)

    async def _listen(self, link: Link) -> None:
        """Listen to changes of the tools (2026-07-28), as long as the connection lasts."""
        tools = self.capabilities.tools
        # A server that was not asked for its era was not asked what it can do, either.
        may_tell = self.mode != "auto" if tools is None else tools.list_changed
        if not may_tell or link.client is None:
            return
        wait_s = _FIRST_LISTEN_S
        while not link.lost:
            listened = False
            try:
                async with link.client.listen(tools_list_changed=True) as events:
                    listened = True
                    wait_s = _FIRST_LISTEN_S
                    async for _ in events:
                        self._tell_changed()
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    return
            except (TimeoutError, SubscriptionLost):
                pass
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_LISTEN_S)
            if listened:
                # nobody was notified of what changed meanwhile
                self._tell_changed()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        link = self._current
        self._current = None
        if link is not None:
            await link.close()
        rest = [each for each in self._tasks if each is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=_EXIT_S)

    # ------------------------------------------------------------------ requests

    async def _call(
        self,
        request: types.CallToolRequest,
        delivery: Delivery,
        timeout_s: float | None,
        report: Progress | None,
    ) -> CallAnswer:
        clock = _Clock(timeout_s, self.idle_s)

        async def take_progress(
            progress: float, total: float | None, message: str | None
        ) -> None:
            clock.extend()
            if report is not None:
                report(progress, total, message or "")

        async def send(session: ClientSession) -> CallAnswer:
            # Not `session.call_tool`, which validates the result with patterns that may take minutes.
            return await session.send_request(
                request, _CALL_ANSWER, progress_callback=take_progress
            )

        async def send_again_with_headers(session: ClientSession) -> CallAnswer:
            try:
                return await send(session)
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
                # The tool's schema says which arguments become headers, and this session has not read it yet.
                await _read_schema(session, request.params.name)
                return await send(session)

        self.calls_under_way[id(delivery)] = delivery
        try:
            return await self._exchange(send_again_with_headers, delivery, clock=clock)
        finally:
            del self.calls_under_way[id(delivery)]

    async def _exchange(
        self,
        send: Callable[[ClientSession], Awaitable[T]],
        delivery: Delivery,
        limit_s: float | None = None,
        clock: _Clock | None = None,
    ) -> T:
        """Send a request on a live connection, once more if the server has lost the session."""
        clock = clock or _Clock(limit_s, None)
        async with clock.total(self.name, delivery):
            for is_last in (False, True):
                link = await self._find_link()
                try:
                    return await self._send(send, link, delivery, clock)
                except MCPError:
                    if is_last or not delivery.session_lost:
                        raise
                    link.retire()
                    # 404 proves that nothing was done (2025-11-25, basic/transports, session management)
                    if delivery.status != 404 and not delivery.may_repeat:
                        raise
                delivery.forget()
        raise AssertionError("unreachable")

    async def _send(
        self,
        send: Callable[[ClientSession], Awaitable[T]],
        link: Link,
        delivery: Delivery,
        clock: _Clock,
    ) -> T:
        session = await link.ready
        token = CURRENT.set(delivery)
        try:
            with link.use():
                async with clock.idle(self.name, delivery):
                    delivery.sent = True
                    return await send(session)
        except MCPError as error:
            if delivery.session_lost:
                raise
            failure = self._diagnose(link, delivery, error)
            if failure is None:
                raise
            raise failure from error
        except ValidationError as error:
            raise ServerBrokeOff(
                self.name,
                f"sent an answer that is none of the protocol: {_describe_fault(error)}",
            ) from error
        finally:
            CURRENT.reset(token)

    def _diagnose(
        self, link: Link, delivery: Delivery, error: MCPError
    ) -> ServerError | None:
        """Return what an error of the SDK means; None if the server itself answered with it."""
        if delivery.was_not_sent:
            assert delivery.error is not None
            return ServerNotReached(
                self.name, f"cannot be reached: {describe(delivery.error)}"
            )
        if delivery.error is not None:
            return ServerBrokeOff(self.name, f"broke off: {describe(delivery.error)}")
        if delivery.is_open:
            said = f": {describe(error)}" if delivery.answered else ""
            happened = f"answered with HTTP {delivery.status}{said}"
            return ServerBrokeOff(self.name, happened)
        if delivery.is_unreadable or _is_unread(delivery, error):
            # the SDK reports it as an error from the server, as if the server had refused the request
            return ServerBrokeOff(
                self.name,
                f"sent an answer that cannot be read, with HTTP {delivery.status}",
            )
        if link.too_long:
            return ServerBrokeOff(self.name, f"broke off: {MessageTooLong()}")
        if error.code == types.CONNECTION_CLOSED and not delivery.answered:
            self._note_lost(link)
            return ServerBrokeOff(self.name, _describe_end(link), details=link.stderr)
        return None

    def _note_lost(self, link: Link) -> None:
        if link.lost and link.stderr:
            logs.log.warning(
                "the MCP server %r ended; its last words: %s", self.name, link.stderr
            )


def _is_unread(delivery: Delivery, error: MCPError) -> bool:
    """Whether the SDK could not read the answer. A server that cannot read our request says so by its status."""
    status = delivery.status
    return error.code == types.PARSE_ERROR and status is not None and status < 400


def _describe_end(link: Link) -> str:
    if not link.lost:
        return "broke off before the answer was there"
    if link.child is not None and link.child.process.returncode is not None:
        return f"ended before the answer was there, with exit code {link.child.process.returncode}"
    return "closed the connection before the answer was there"


def _describe_fault(error: ValidationError) -> str:
    """Return the first place of an answer that does not fit."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[
        0
    ]
    place = ".".join(str(step) for step in first["loc"])[:100]
    return f"{place}: {first['msg'][:150]}"


_FIRST_LISTEN_S = 0.5
_LONGEST_LISTEN_S = 30.0


async def _list_tools(
    session: ClientSession, params: types.PaginatedRequestParams
) -> types.ListToolsResult:
    return await session.list_tools(params=params)


async def _read_schema(session: ClientSession, tool: str) -> None:
    """Have the session read the definition of a tool, page by page."""
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        params = types.PaginatedRequestParams(cursor=cursor)
        page = await session.list_tools(params=params)
        cursor = page.next_cursor
        if cursor is None or any(each.name == tool for each in page.tools):
            return


class _Clock:
    """The deadlines of a call: one in all, and one that each sign of progress moves."""

    def __init__(self, total_s: float | None, idle_s: float | None) -> None:
        self.total_s = total_s
        self.idle_s = idle_s
        self._idle: asyncio.Timeout | None = None

    def extend(self) -> None:
        """Note that there was progress."""
        if self._idle is not None and self.idle_s is not None:
            with suppress(RuntimeError):  # it has ended meanwhile
                self._idle.reschedule(asyncio.get_running_loop().time() + self.idle_s)

    def total(self, server: str, delivery: Delivery) -> _Limit:
        """Return the limit of the whole call, reconnecting included."""
        return _Limit(server, self.total_s, "did not answer within {:g} s", delivery)

    def idle(self, server: str, delivery: Delivery) -> _Limit:
        """Return the limit of silence."""
        happened = "gave no sign of progress for {:g} s"
        limit = _Limit(server, self.idle_s, happened, delivery)
        self._idle = limit.timeout
        return limit


class _Limit:
    """Ends a wait with a sentence that names the server."""

    def __init__(
        self, server: str, seconds: float | None, happened: str, delivery: Delivery
    ) -> None:
        self.server = server
        self.seconds = seconds
        self.happened = happened
        self.delivery = delivery
        self.timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self.timeout.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self.timeout.__aexit__(*error)
        except TimeoutError as late:
            assert self.seconds is not None
            kind = ServerTimeout if self.delivery.sent else ServerNotReached
            raise kind(self.server, self.happened.format(self.seconds)) from late


# ---------------------------------------------------------------------- for code that is not async

LOOP = LoopThread()
"""The home of connections that were opened by blocking code."""

_OPEN: WeakSet[McpConnection] = WeakSet()


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run work on the shared background loop and return its result."""
    return LOOP.result(work)


@atexit.register
def _close_all() -> None:
    """End the connections of the background loop, and their children, before the interpreter ends."""
    loop = LOOP._loop
    if loop is None:
        return
    for connection in list(_OPEN):
        if connection._home is loop and connection._current is not None:
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(connection.close(), loop).result(
                    _EXIT_S
                )
