"""The connections from a gateway to one server: which of them serves which client.

What a server asks of its client while it works (to fill in a form, to sample, for its roots) goes to the client whose
request it works on. The older revisions do not say which request that is, so a client that can be asked has a
connection of its own there, for as long as its session lasts. All others share one for each set of capabilities.

Rule 1: a connection declares to its server the capabilities of the client it serves, and no others.
Rule 2: callers with different tokens share no connection, so a server cannot mix what it remembers of them.
Rule 3: a message that names no request (such as a log message) is passed on only if the connection has one client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from mcp import ClientSession, types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from handrail import logs
from handrail_mcp.callers import MODERN
from handrail_mcp.connection import McpConnection
from handrail_mcp.delivery import ServerError, ServerNotReached
from handrail_mcp.link import Callbacks
from handrail_mcp.targets import Target

Context: TypeAlias = ServerRequestContext[Any, Any]
Key: TypeAlias = tuple[str, frozenset[str], str, str]
"""The era of the client, its capabilities, its session where it has a connection of its own, and whose token it has."""

NEUTRAL: Key = (MODERN, frozenset(), "", "")
"""The connection for requests without a client to ask, such as lists that are needed before one connects."""

MOST_OWN = 32
"""Connections to one server that belong to one session each; the one that was idle longest makes room."""

_ASKABLE = ("elicitation", "sampling", "roots")
_SAMPLING_TOOLS = "sampling.tools"


def session_of(context: Context) -> str:
    """Return what is one client for sure: a session of HTTP, or our standard streams; empty where nothing says so."""
    if context.request is None:
        return "stdio"
    if context.protocol_version == MODERN:
        return ""
    return str(context.request.headers.get("mcp-session-id", ""))


def key_of(context: Context) -> Key:
    """Return which connection serves a request."""
    names = _list_askable(context.session.client_capabilities)
    owner = _owner_of()
    if context.protocol_version == MODERN:
        return (MODERN, names, "", owner)
    return ("legacy", names, session_of(context) if names else "", owner)


def _list_askable(declared: types.ClientCapabilities | None) -> frozenset[str]:
    """Return the capabilities by which a server may ask this client something."""
    if declared is None:
        return frozenset()
    names = {name for name in _ASKABLE if getattr(declared, name) is not None}
    if declared.sampling is not None and declared.sampling.tools is not None:
        names.add(_SAMPLING_TOOLS)
    return frozenset(names)


def _owner_of() -> str:
    """Return the owner of the caller's token and its claims, as text; empty without a token."""
    token = get_access_token()
    if token is None:
        return ""
    return json.dumps([token.subject or token.client_id, token.claims])


class Routes:
    """The connections to one server.

    Attributes:
        wants_log: Whether the client of a request takes log lines of a level.
        publish: Tells the clients that listen to the gateway (2026-07-28) of an event.

    Args:
        limits: `connect_s` and `idle_s` of each connection.
    """

    wants_log: Callable[[Context, types.LoggingLevel], bool]
    publish: Callable[[ServerEvent], Awaitable[None]]

    def __init__(self, name: str, target: Target, **limits: Any) -> None:
        self.name = name
        self.target = target
        self._limits = limits
        self._routes: dict[Key, Route] = {}
        self._speaks_old = False
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self, context: Context) -> AsyncIterator[McpConnection]:
        """Yield the connection that serves a request, open.

        Raises:
            ServerNotReached: The server did not start, or did not answer in time.
        """
        key = self._fit(key_of(context))
        async with self._use(key, context) as connection:
            if key == self._fit(key):
                yield connection
                return
        # the handshake has shown that the server cannot ask this client
        async with self._use(self._fit(key), context) as connection:
            yield connection

    def _fit(self, key: Key) -> Key:
        """Return the key without capabilities where the server speaks an older revision than the client.

        It would ask while a call runs, and such a client is only asked by the answer to a call.
        """
        era, names, session, owner = key
        if era == MODERN and names and self._speaks_old:
            return (era, frozenset(), session, owner)
        return key

    @asynccontextmanager
    async def _use(self, key: Key, context: Context) -> AsyncIterator[McpConnection]:
        route = self.find(key)
        route.requests.append(context)
        try:
            await route.open()
            if key[0] == MODERN:
                version = route.connection.protocol_version
                self._speaks_old = bool(version) and version < MODERN
            yield route.connection
        finally:
            route.requests.remove(context)

    def find(self, key: Key) -> Route:
        """Return the route of a key."""
        route = self._routes.pop(key, None)
        if route is None:
            route = Route(self, key, self._limits)
            self._make_room()
        self._routes[key] = route  # the last one is the one used last
        return route

    def subscribe(self, context: Context, uri: str) -> None:
        """Notify the session of a request when a resource changes; its connection has subscribed to it."""
        subscribers = self.find(self._fit(key_of(context))).subscribers
        subscribers.setdefault(uri, {})[session_of(context)] = context.session

    def unsubscribe(self, context: Context, uri: str) -> bool:
        """Stop notifying the session of a request; return whether its connection has no subscriber left."""
        subscribers = self.find(self._fit(key_of(context))).subscribers
        sessions = subscribers.get(uri, {})
        sessions.pop(session_of(context), None)
        if not sessions:
            subscribers.pop(uri, None)
        return not sessions

    def _make_room(self) -> None:
        own = [key for key in self._routes if key[2]]
        idle = [key for key in own if not self._routes[key].requests]
        for key in idle[: max(0, len(own) - MOST_OWN + 1)]:
            ending = asyncio.ensure_future(self._routes.pop(key).connection.close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all connections."""
        while self._routes:
            _, route = self._routes.popitem()
            await route.connection.close()
        await asyncio.gather(*self._ending, return_exceptions=True)


def _describe_sampling(can: frozenset[str]) -> types.SamplingCapability:
    tools = types.SamplingToolsCapability() if _SAMPLING_TOOLS in can else None
    return types.SamplingCapability(tools=tools)


async def _send_subscription(
    request: types.SubscribeRequest, session: ClientSession
) -> types.EmptyResult:
    return await session.send_request(request, types.EmptyResult)


class Route:
    """One connection, the requests that are under way on it, and the subscribers of its server's resources."""

    def __init__(self, routes: Routes, key: Key, limits: dict[str, Any]) -> None:
        self.requests: list[Context] = []
        self.subscribers: dict[str, dict[str, Any]] = {}
        """The sessions that subscribed to a resource, by its address."""
        self._routes = routes
        self._can_ask = key[0] != MODERN
        can = key[1]
        callbacks = Callbacks(
            elicitation=self._elicit if "elicitation" in can else None,
            sampling=self._sample if "sampling" in can else None,
            roots=self._list_roots if "roots" in can else None,
            sampling_capabilities=_describe_sampling(can),
            logging=self._log,
            message=self._take_message,
        )
        mode = "auto" if key[0] == MODERN else "legacy"
        self.connection = McpConnection(
            routes.name,
            routes.target,
            mode=mode,
            callbacks=callbacks,
            on_reopened=self._subscribe_again,
            **limits,
        )

    async def open(self) -> None:
        """Connect, unless it is connected: in the era of the client where the server knows it."""
        connection = self.connection
        try:
            await connection.open()
        except ServerNotReached as error:
            if connection.mode != "legacy" or not isinstance(error.__cause__, MCPError):
                raise
            # it answered, and does not know the handshake
            connection.mode = "auto"
            await connection.open()

    async def _subscribe_again(self) -> None:
        """Subscribe on a new connection to what the last one was subscribed to, which its server has forgotten."""
        for uri in list(self.subscribers):
            params = types.SubscribeRequestParams(uri=uri)
            send = partial(_send_subscription, types.SubscribeRequest(params=params))
            try:
                await self.connection.request(send)
            except (MCPError, ServerError) as error:
                logs.log.warning(
                    "%s: no notice of changes of %r any longer: %s",
                    self._routes.name,
                    uri,
                    error,
                )

    async def _elicit(self, _: Any, params: types.ElicitRequestParams) -> Any:
        return await self._ask(types.ElicitRequest(params=params), types.ElicitResult)

    async def _sample(self, _: Any, params: types.CreateMessageRequestParams) -> Any:
        wants_tools = params.tools is not None or params.tool_choice is not None
        kind: Any = types.CreateMessageResult
        if wants_tools:
            kind = types.CreateMessageResultWithTools
        return await self._ask(types.CreateMessageRequest(params=params), kind)

    async def _list_roots(self, _: Any) -> Any:
        return await self._ask(types.ListRootsRequest(), types.ListRootsResult)

    async def _ask(self, request: Any, answer: Any) -> Any:
        """Ask the client whose request came last: on a connection of its own, all requests are of one client."""
        if not (self._can_ask and self.requests):
            text = "no client can be asked at this time"
            return types.ErrorData(code=types.INVALID_REQUEST, message=text)
        asked = self.requests[-1]
        about = ServerMessageMetadata(related_request_id=asked.request_id)
        try:
            return await asked.session.send_request(request, answer, metadata=about)
        except MCPError as error:
            return error.error

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        sessions = {session_of(each) for each in self.requests}
        is_one = len(self.requests) == 1 or (len(sessions) == 1 and "" not in sessions)
        if not is_one:
            return
        latest = self.requests[-1]
        if self._routes.wants_log(latest, params.level):
            await latest.session.send_log_message(
                level=params.level,
                data=params.data,
                logger=params.logger,
                related_request_id=latest.request_id,
            )

    async def _take_message(self, message: Any) -> None:
        """Notify the subscribers of a resource that has changed."""
        if not isinstance(message, types.ResourceUpdatedNotification):
            return
        uri = str(message.params.uri)
        await self._routes.publish(ResourceUpdated(uri))
        sessions = self.subscribers.get(uri, {})
        for key, session in list(sessions.items()):
            try:
                await session.send_resource_updated(uri)
            except Exception:  # it has gone; the transport says so in its own way
                sessions.pop(key, None)
