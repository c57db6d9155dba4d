"""A server of the SDK on lines, in the era of the protocol that its client opens with.

The first request decides, as in the SDK's own loop: one that carries the envelope of 2026-07-28 in its `_meta` opens a
connection of that era, and any other, such as `initialize`, one of the eras with a handshake. A request of the other
era is refused from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp import types
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.lowlevel import Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import (
    ServerRunner,
    aclose_shielded,
    modern_error_data,
    serve_one,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from pydantic import ValidationError

from handrail_mcp.callers import MODERN
from handrail_mcp.wire.dispatcher import LineContext, LineDispatcher, Params, Wire

_OPENING = "initialize"


async def serve_lines(
    server: Server[Any], wire: Wire, options: InitializationOptions
) -> None:
    """Serve a client until it has gone."""
    # the client may send its next request before it has read the answer to this one
    dispatcher = LineDispatcher(wire, inline=frozenset({_OPENING}))
    async with server.lifespan(server) as state:
        client = _LineClient(server, dispatcher, state, options)
        try:
            await dispatcher.run(client.take_request, client.take_notice)
        finally:
            await aclose_shielded(client.connection)


class _LineClient:
    """One client, and the era that it has opened with."""

    def __init__(
        self,
        server: Server[Any],
        dispatcher: LineDispatcher,
        state: Any,
        options: InitializationOptions,
    ) -> None:
        self.connection = Connection.for_loop(dispatcher)
        self._server = server
        self._state = state
        self._notices = NotifyOnlyOutbound(dispatcher)
        self._runner = ServerRunner(
            server, self.connection, state, init_options=options
        )
        self._is_modern: bool | None = None

    async def take_request(
        self, context: Any, method: str, params: Params
    ) -> dict[str, Any]:
        """Answer a request in the era of the connection.

        Raises:
            MCPError: It is of the other era, or is refused.
        """
        is_modern = method != _OPENING and _has_envelope(params)
        if self._is_modern is None:
            self._is_modern = is_modern
        if self._is_modern:
            return await self._serve_modern(context, method, params)
        if is_modern:
            raise MCPError(
                types.INVALID_REQUEST,
                "this connection was opened by the handshake; it takes no requests with the envelope of 2026-07-28",
            )
        return await self._runner.on_request(context, method, params)

    async def _serve_modern(
        self, context: LineContext, method: str, params: Params
    ) -> dict[str, Any]:
        if method == _OPENING:
            raise _refuse_handshake(params)
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        connection = Connection.from_envelope(
            route.protocol_version,
            route.client_info,
            route.client_capabilities,
            outbound=self._notices,
        )
        context.forbid_requests()
        try:
            return await serve_one(
                self._server,
                context,
                method,
                params,
                connection=connection,
                lifespan_state=self._state,
            )
        except (MCPError, ValidationError):
            raise
        except Exception as error:
            hidden = modern_error_data(error)
            raise MCPError(hidden.code, hidden.message, hidden.data) from error

    async def take_notice(self, context: Any, method: str, params: Params) -> None:
        """Take a notice in the era of the connection."""
        if not self._is_modern:
            await self._runner.on_notify(context, method, params)
            return
        connection = Connection.from_envelope(
            MODERN, None, None, outbound=self._notices
        )
        context.forbid_requests()
        runner = ServerRunner(self._server, connection, self._state)
        try:
            await runner.on_notify(context, method, params)
        finally:
            await aclose_shielded(connection)


def _has_envelope(params: Params) -> bool:
    meta = (params or {}).get("_meta")
    return isinstance(meta, Mapping) and types.PROTOCOL_VERSION_META_KEY in meta


def _refuse_handshake(params: Params) -> MCPError:
    data: dict[str, Any] = {"supported": [MODERN]}
    wanted = (params or {}).get("protocolVersion")
    if isinstance(wanted, str):
        data["requested"] = wanted
    return MCPError(
        types.UNSUPPORTED_PROTOCOL_VERSION,
        "this connection speaks 2026-07-28, which has no handshake",
        data,
    )
