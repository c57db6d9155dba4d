"""A gateway: many MCP servers as one, and every call of a tool with the promises of a call here.

    gateway = hr.mcp.gateway("gateway.toml")
    gateway.run("stdio")

Its clients see one server. A tool of the server `files` is `files_NAME` there; policy, approvals, pins, ledger, lanes,
rates and the audit log hold for it as for any tool. What is no tool, such as resources and prompts, is passed on.

Rule 1: a tool that the policy denies, or that nobody has agreed to, is neither listed nor callable, under any spelling.
Rule 2: a result goes on as its server wrote it, unless it was cut, repeated, noted, or holds a secret of ours. What
        steers a terminal is spelled out in texts.
Rule 3: a server that does not answer costs its own tools, and nobody else's. It is tried again until it does.
Rule 4: no tool has a name that begins with the prefix of another server, whether that one is there or not.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import (
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
from mcp import types
from mcp.server.lowlevel import NotificationOptions
from mcp.server.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError

from handrail import logs
from handrail.calls import ToolResult
from handrail.context import Context
from handrail.core.redaction import KnownSecrets
from handrail.errors import ConfigError, Failure, Json
from handrail.invisible import hides, printable
from handrail.runtime import Runtime
from handrail.tools.settings import Write, change_group
from handrail.tools.tool import ToolSettings
from handrail.tools.toolset import Toolset
from handrail_mcp.callers import MODERN
from handrail_mcp.connection import CallAnswer, McpConnection
from handrail_mcp.delivery import Delivery
from handrail_mcp.gateways.forwarding import Forwarding
from handrail_mcp.gateways.routes import NEUTRAL, Routes, key_of, session_of
from handrail_mcp.gateways.search import Search
from handrail_mcp.gateways.settings import GatewaySettings, read_gateway
from handrail_mcp.hints import read_hints
from handrail_mcp.names import make_name
from handrail_mcp.notices import Leave
from handrail_mcp.pins import Pins
from handrail_mcp.remote_tool import McpTool
from handrail_mcp.server_settings import ServerSettings
from handrail_mcp.serving import McpRequest, Reply, ToolServer
from handrail_mcp.tokens import Tokens
from handrail_mcp.toolset import McpToolset, describe_quarantine

_LEFT_TO_CLIENTS = {
    types.MISSING_REQUIRED_CLIENT_CAPABILITY,
    types.URL_ELICITATION_REQUIRED,
}
"""Errors of a server that only its client can do something about."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""What a terminal may take for a command; tabs and ends of lines are text."""

_ENVELOPE_BYTES = 2_000
"""What an answer may have beside its texts, of which the structured content is a copy."""

_MOST_SESSIONS = 256

_PATIENCE_S = 10.0
"""How long after the start clients wait for servers that do not answer; their tools are announced later."""

_SETTLE_S = 0.2
"""How long the tools of servers that start are gathered."""

_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
"""How long after a failed start a server is started again: each wait is twice the one before."""

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
"""Where in the `_meta` of a result a server names itself."""


class GatewayTool(McpTool):
    """A tool of a server behind a gateway; it is called on the connection that serves the client."""

    routes: Routes

    async def _call(
        self, arguments: Mapping[str, Json], context: Context[Any], delivery: Delivery
    ) -> types.CallToolResult:
        request: McpRequest = context.deps
        client = request.context
        try:
            async with self.routes.serve(client.request_context) as connection:
                if client.protocol_version != MODERN:
                    answer: CallAnswer = await self.call_until_done(
                        connection, arguments, context, delivery
                    )
                else:
                    answer = await self.send(
                        connection, arguments, context, delivery,
                        client.input_responses, client.request_state,
                    )  # fmt: skip
        except MCPError as error:
            if error.code in _LEFT_TO_CLIENTS:
                raise Leave(error) from error
            raise
        if isinstance(answer, types.InputRequiredResult):
            # the client is asked, and makes the request again
            raise Leave(answer)
        request.answer = answer
        return answer


class Upstream(McpToolset):
    """The tools of one server behind a gateway.

    Attributes:
        routes: The connections to it.
        listed: All that it lists, whether it can be called or not.
    """

    def __init__(self, settings: ServerSettings, pins: Pins) -> None:
        target = settings.target()
        self.settings = settings
        self.listed: list[types.Tool] = []
        self.routes = Routes(
            settings.name, target, connect_s=settings.connect_s, idle_s=settings.idle_s
        )
        super().__init__(
            self.routes.find(NEUTRAL).connection,
            pins=pins,
            **settings.tool_options(),
        )

    def use(self, connection: McpConnection) -> None:
        """Use another connection to list the tools."""
        self.connection = connection
        connection.on_changed = self._refresh_soon

    def _build_tool(
        self, definition: types.Tool, name: str, settings: ToolSettings
    ) -> McpTool:
        # what leaves a tool here (`Leave`) leaves before its server has done anything
        settings["write"] = change_group(
            "write", Write(interrupts="before"), settings.get("write", {})
        )
        tool = GatewayTool(self.connection, definition, name, settings)
        tool.believes_failures = self.trust == "hints"
        tool.routes = self.routes
        return tool

    def replace_tools(self) -> None:
        """Judge what was listed by what somebody agrees to now."""
        super()._take(self.listed)

    def _take(self, listed: Sequence[types.Tool]) -> None:
        self.listed = list(listed)
        super()._take(listed)


class Gateway(ToolServer):
    """Many servers as one; see `gateway`."""

    def __init__(
        self, settings: GatewaySettings, *, dry_run: bool = False, **how: Any
    ) -> None:
        secrets = [
            secret
            for server in settings.servers.values()
            for secret in server.find_secrets()
        ]
        runtime = Runtime(
            Toolset(),
            store=settings.store,
            policy=settings.policy,
            budget=settings.budget,
            result_bytes=settings.result_bytes,
            secrets=secrets,
            selector="all",
        )
        super().__init__(
            runtime,
            settings.name,
            instructions=settings.instructions or None,
            **how,
        )
        server = self._lowlevel_server
        announced = NotificationOptions(tools_changed=True)
        # the SDK says otherwise that the list of tools never changes
        server.create_initialization_options = partial(  # type: ignore[method-assign]
            server.create_initialization_options, announced
        )
        self.settings_of_gateway = settings
        self.dry_run = dry_run
        self.pins = Pins(settings.pins)
        self.upstreams = {
            name: Upstream(server, self.pins)
            for name, server in settings.servers.items()
        }
        self.problems: dict[str, str] = {}
        self._secrets = KnownSecrets(secrets)
        self._pins_changed = 0
        self._search = Search(settings.definition_tokens)
        self._starting: asyncio.Future[None] | None = None
        self._patient_until = 0.0
        self._sessions: dict[str, Any] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._taking: asyncio.TimerHandle | None = None
        for each in self.upstreams.values():
            each.routes.wants_log = self.wants_log
            each.routes.publish = self._subscriptions.publish
        Forwarding(
            {name: each.routes for name, each in self.upstreams.items()},
            {name: each.name_prefix for name, each in self.upstreams.items()},
        ).install(self._lowlevel_server)

    # ------------------------------------------------------------------ the servers behind it

    async def start(self, context: Any = None) -> None:
        """Connect to all servers and list their tools, once; a server that does not answer is in `problems`.

        Args:
            context: The request of the first client: its connection serves the lists too, where there is one client.
        """
        # whoever gives up does not take it from the others
        await asyncio.shield(self._begin(context))

    def _begin(self, context: Any = None) -> asyncio.Future[None]:
        if self._starting is None:
            self._patient_until = asyncio.get_running_loop().time() + _PATIENCE_S
            self._starting = asyncio.ensure_future(self._start_all(context))
        return self._starting

    async def _wait_for_servers(self, context: Any = None) -> None:
        """Wait for the servers, but not for long for those that hang."""
        starting = self._begin(context)
        left_s = self._patient_until - asyncio.get_running_loop().time()
        await asyncio.wait([starting], timeout=max(0.0, left_s))

    async def _start_all(self, context: Any) -> None:
        await asyncio.gather(
            *(self._start_one(each, context) for each in self.upstreams.values())
        )
        self._take_tools()

    async def _start_one(self, upstream: Upstream, context: Any) -> None:
        if context is not None and session_of(context) == "stdio":
            upstream.use(upstream.routes.find(key_of(context)).connection)
        upstream.listen(self._take_changed_tools)
        try:
            await upstream.start()
        except ConfigError as error:
            self._note_down(upstream, error, is_logged=context is not None)
            # an override for a tool that is not there has no cause, and no second look helps
            if context is not None and error.__cause__ is not None:
                self._spawn(self._start_later(upstream))

    def _note_down(
        self, upstream: Upstream, error: ConfigError, *, is_logged: bool = True
    ) -> None:
        name = upstream.server_name
        if is_logged and self.problems.get(name) != str(error):
            logs.log.error("%s", error)
        self.problems[name] = str(error)

    async def _start_later(self, upstream: Upstream) -> None:
        """Start a server again and again, until it answers."""
        wait_s = _FIRST_RETRY_S
        while True:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_RETRY_S)
            try:
                await upstream.start()
            except ConfigError as error:
                self._note_down(upstream, error)
            else:
                del self.problems[upstream.server_name]
                return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_tools(self) -> None:
        """Make the tools of all servers those of the runtime."""
        tools: dict[str, McpTool] = {}
        collisions: set[str] = set()
        for upstream in self.upstreams.values():
            for tool in upstream:
                if self._is_anothers(upstream, tool.name):
                    self.problems[tool.name] = (
                        f"{tool.name!r} of {upstream.server_name!r} is not listed: it is a name of another server"
                    )
                elif tool.name in tools or tool.name in Search.NAMES:
                    collisions.add(tool.name)
                else:
                    assert isinstance(tool, McpTool)
                    tools[tool.name] = tool
        for name in collisions:
            self.problems[name] = (
                f"several tools would be called {name!r} here; none of them is listed"
            )
            tools.pop(name, None)
        self.runtime.tools.replace_all(tools.values())

    def _is_anothers(self, upstream: Upstream, name: str) -> bool:
        """Whether a tool's name begins with the prefix of another server, which need not be there to have it."""
        own = upstream.name_prefix
        return any(
            len(each.name_prefix) > len(own) and name.startswith(each.name_prefix)
            for each in self.upstreams.values()
        )

    def _take_changed_tools(self) -> None:
        is_starting = self._starting is not None and not self._starting.done()
        if self._taking is None:
            # many servers that start at once are one change, or a few
            wait_s = _SETTLE_S if is_starting else 0.0
            loop = asyncio.get_running_loop()
            self._taking = loop.call_later(wait_s, self._take_and_tell)

    def _take_and_tell(self) -> None:
        self._taking = None
        self._take_tools()
        self._spawn(self._tell_changed())

    async def _tell_changed(self) -> None:
        """Tell the clients that the tools have changed."""
        await self._subscriptions.publish(ToolsListChanged())
        for key, session in list(self._sessions.items()):
            try:
                await session.send_tool_list_changed()
            except Exception:  # it has gone; the transport says so in its own way
                self._sessions.pop(key, None)

    async def aclose(self) -> None:
        """End all connections and the runtime."""
        if self._taking is not None:
            self._taking.cancel()
        tasks = [*self._tasks, *([self._starting] if self._starting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(
            *(each.routes.close() for each in self.upstreams.values()),
            return_exceptions=True,
        )
        await self.runtime.close()

    async def _serve_and_close(
        self, serve: Callable[..., Any], how: Mapping[str, Any]
    ) -> None:
        try:
            await super()._serve_and_close(serve, how)
        finally:
            await self.aclose()

    # ------------------------------------------------------------------ what clients ask

    async def _handle_list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        await self._wait_for_servers(ctx)
        self._look_at_pins()
        self._remember_session(ctx)
        return await super()._handle_list_tools(ctx, params)

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools that may be used, or what searches them where there are too many to list."""
        await self._wait_for_servers()
        return self._search.select(await super().list_tools())

    def _describe(self, tools: Toolset) -> list[types.Tool]:
        """Return definitions as their servers wrote them, under the names and with the hints that hold here."""
        listed = []
        for definition in super()._describe(tools):
            tool = tools[self._own_name(tools, definition.name)]
            if isinstance(tool, McpTool):
                there = tool.definition
                promise = definition.output_schema and there.output_schema
                if self.dry_run:
                    promise = None  # a verdict would not fit it
                definition = there.model_copy(
                    update={
                        "name": definition.name,
                        "annotations": definition.annotations,
                        "output_schema": promise,
                        # nobody has agreed to these: a pin does not hold them
                        "icons": None,
                        "meta": None,
                    }
                )
            listed.append(definition)
        return listed

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Any = None
    ) -> Reply:
        """Carry out a call, which may be one of the two tools that search and call the others."""
        self._look_at_pins()
        if name not in self.runtime.tools:
            await self._wait_for_servers(context.request_context)
        if name == Search.FIND:
            return self._search.find(await super().list_tools(), arguments)
        if name == Search.CALL:
            inner = self._search.unwrap(arguments)
            if isinstance(inner, types.CallToolResult):
                return inner
            name, arguments = inner
        if self.dry_run:
            return _describe_verdict(name, explain_call(self, name, arguments))
        return await super().call_tool(name, arguments, context)

    def _how(self, request: McpRequest) -> dict[str, Any]:
        how = super()._how(request)
        budget = self.settings_of_gateway.budget
        if budget.calls is not None or budget.time_s is not None:
            # a budget counts within a turn: the whole session is one
            how["turn"] = "session"
        return how

    def write_answer(
        self, request: McpRequest, result: ToolResult
    ) -> types.CallToolResult:
        """Return a server's own answer; ours where it was cut, repeated, noted, or holds a secret."""
        answer = request.answer
        if answer is None or result.handle or result.note or result.replayed:
            return super().write_answer(request, result)
        if result.failure is not None or not self._may_go_on(answer):
            return super().write_answer(request, result)
        # who has answered is the gateway, for its client
        meta = {
            key: each for key, each in (answer.meta or {}).items() if key != SERVER_INFO
        }
        content = [_without_controls(part) for part in answer.content]
        return answer.model_copy(update={"meta": meta or None, "content": content})

    def _may_go_on(self, answer: types.CallToolResult) -> bool:
        """Whether an answer is small enough as a whole, media aside, and holds no secret of ours."""
        text = answer.model_dump_json()
        media = sum(map(_count_media, answer.content))
        is_small = len(text) - media <= self.runtime.result_bytes + _ENVELOPE_BYTES
        return is_small and self._secrets.text(text) == text

    def _look_at_pins(self) -> None:
        """Take the tools again where somebody has agreed to some of them, or forgotten them, since the last look."""
        try:
            changed = self.settings_of_gateway.pins.stat().st_mtime_ns
        except OSError:
            return
        if changed == self._pins_changed:
            return
        self._pins_changed = changed
        for upstream in self.upstreams.values():
            if upstream.listed:
                upstream.replace_tools()
        self._take_tools()

    def _remember_session(self, context: Any) -> None:
        if context.protocol_version == MODERN:
            return
        self._sessions[session_of(context)] = context.session
        if len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]


def _count_media(part: types.ContentBlock) -> int:
    """Return the encoded length of an image, a sound or a file in an answer; 0 for a text."""
    match part:
        case types.ImageContent() | types.AudioContent():
            return len(part.data)
        case types.EmbeddedResource(resource=types.BlobResourceContents() as file):
            return len(file.blob)
    return 0


def _without_controls(part: types.ContentBlock) -> types.ContentBlock:
    """Return a text with what would steer a terminal in a form that can be read; anything else as it is."""
    if not isinstance(part, types.TextContent) or not _CONTROLS.search(part.text):
        return part
    text = _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", part.text)
    return part.model_copy(update={"text": text})


def gateway(
    settings: GatewaySettings | Path | str,
    *,
    dry_run: bool = False,
    ask_client: bool = True,
    tokens: Tokens | Path | str | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> Gateway:
    """Return a gateway over the servers in its settings; `run("stdio")` or `run("streamable-http", ...)` serves it.

    Args:
        settings: Or the file that they are in, see `gateways.settings`.
        dry_run: Whether each call is only judged: its result says what would become of it, and no server is called.
        ask_client: Whether the person at the client is asked where a call needs approval. False leaves that to
            `handrail approvals`.
        tokens: Whose calls are served over HTTP, or the file that says so; see `Tokens`. Callers with different tokens
            share no connection to a server. Without it, anybody's.
        hosts: Names under which clients reach the gateway, beside its address and this machine's own.
        origins: Pages of other sites that may send requests, such as `https://app.example.com`.

    Raises:
        ConfigError: The file cannot be used; one sentence says why.
    """
    if not isinstance(settings, GatewaySettings):
        settings = read_gateway(Path(settings))
    return Gateway(
        settings,
        dry_run=dry_run,
        ask_client=ask_client,
        tokens=tokens,
        hosts=hosts,
        origins=origins,
    )


# ---------------------------------------------------------------------- for a person to read


def explain_call(
    gateway: Gateway, name: str, arguments: dict[str, Json]
) -> dict[str, Json]:
    """Return what would become of a call: `decision` and `reason`, and `risk` where a tool would be called.

    Nothing runs, and no question is stored. The gateway was started before.
    """
    for upstream in gateway.upstreams.values():
        for there, pin in upstream.quarantined.items():
            if name in (there, make_name(upstream.name_prefix, there)):
                return _deny(describe_quarantine(pin))
    tool = gateway.runtime.tools.resolve(name)
    if isinstance(tool, Failure):
        return _deny(tool.message)
    checked = tool.checker.check(arguments)
    if isinstance(checked, Failure):
        return _deny(checked.message)
    verdict = gateway.runtime.policy.judge(tool, checked.arguments)
    return {
        "decision": verdict.decision.value,
        "reason": verdict.reason,
        "risk": verdict.risk,
    }


def _describe_verdict(name: str, verdict: Mapping[str, Json]) -> types.CallToolResult:
    """Return what a client reads of a call that was only judged."""
    text = f"dry run, nothing was called: {name} -> {verdict['decision']}: {verdict['reason']}"
    logs.log.info("%s", text)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=dict(verdict),
        is_error=verdict["decision"] == "deny",
    )


def _deny(reason: str) -> dict[str, Json]:
    return {"decision": "deny", "reason": reason}


def draft(server: str, tools: Iterable[types.Tool]) -> Iterator[str]:
    """Yield the lines of TOML that declare what a server's hints say of its tools."""
    for tool in tools:
        declared = read_hints(tool.annotations, "hints")
        yield ""
        for line in (tool.description or tool.title or "").splitlines()[:3]:
            yield f"# {printable(line)[:100]}"
        table = {"mcp": {"servers": {server: {"tools": {tool.name: declared}}}}}
        yield _show_hidden(tomli_w.dumps(table).strip())


def _show_hidden(document: str) -> str:
    """Return TOML whose hidden characters, which can only stand in quotes, are escapes."""
    return "".join(
        f"\\U{ord(sign):08X}" if hides(sign) and sign != "\n" else sign
        for sign in document
    )
