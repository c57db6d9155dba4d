"""The tools of any MCP server as a toolset, which follows the server as it changes.

    tools = await hr.mcp.connect("npx -y @modelcontextprotocol/server-everything")
    runtime = hr.Runtime(tools)

`connect` is for code on an event loop, and `tools` for all other. Every call goes through the runtime like that of any
tool: it is validated, asked about, recorded, and ended in time.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, get_args

import httpx2
from mcp import types
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from handrail import logs
from handrail.calls import Confidentiality, Integrity
from handrail.engine.read_result import READ_RESULT
from handrail.errors import ConfigError, SetupError
from handrail.invisible import hides
from handrail.parsing.names import nearest
from handrail.ports import Approver
from handrail.tools.tool import DEFAULT_TIMEOUT_S, ToolSettings
from handrail.tools.toolset import Toolset
from handrail_mcp.connection import McpConnection, run_blocking
from handrail_mcp.delivery import CURRENT, Delivery, ServerError
from handrail_mcp.hints import declare
from handrail_mcp.link import Callbacks, Watch, describe
from handrail_mcp.names import make_name, make_prefix, name_tools
from handrail_mcp.pins import Pin, Pins
from handrail_mcp.questions import Elicitor
from handrail_mcp.remote_tool import McpTool
from handrail_mcp.server_settings import DEFAULT_CONNECT_S, Trust
from handrail_mcp.targets import Target, make_target

Overrides = Mapping[str, Mapping[str, Any]]
"""Declarations by the name of a tool at its server: `{"search": {"effect": "read"}}`, as keywords of `hr.adopt`."""

_HARMLESS = re.compile(r"[\n\t\r -~]+")
"""What most descriptions are made of, and hides nothing."""

SETTLE_S = 0.2
"""How long changes of a server are gathered before its tools are listed again; longer where nothing had changed."""

_MOST_SETTLE_S = 60.0


class McpToolset(Toolset):
    """The tools of one server, as they were last listed.

    It is listed again when the server says that its tools have changed, and after a new connection. What was added,
    removed or redeclared here by hand does not survive that; declare by `overrides`.

    Attributes:
        connection: The connection, for everything but calls of tools.
        server_name: What the server is called here.
        problems: Sentences about tools that are not here, or not as they should be.
        quarantined: Pins of the tools that nobody has agreed to, by their names at the server; see `Pins`.
        definitions_there: What the server lists, by the tools' names here.
    """

    def __init__(
        self,
        connection: McpConnection,
        *,
        trust: Trust = "none",
        results: Integrity = "untrusted",
        confidentiality: Confidentiality = "public",
        pins: Pins | None = None,
        overrides: Overrides | None = None,
        prefix: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__()
        _check_label("results", results, get_args(Integrity))
        _check_label("confidentiality", confidentiality, get_args(Confidentiality))
        if trust not in get_args(Trust):
            raise ConfigError(
                f"trust is {trust!r}; it is one of {', '.join(get_args(Trust))}"
            )
        self.connection = connection
        self.server_name = connection.name
        self.trust = trust
        self.results = results
        self.confidentiality = confidentiality
        self.pins = pins
        self.overrides = dict(overrides or {})
        self.name_prefix = make_prefix(connection.name) if prefix is None else prefix
        self.timeout_s = timeout_s
        self.problems: list[str] = []
        self.quarantined: dict[str, Pin] = {}
        self.definitions_there: dict[str, types.Tool] = {}
        self._listed: list[types.Tool] = []
        self._wait_s = SETTLE_S
        self._listeners: list[Callable[[], Any]] = []
        self._refreshing: asyncio.TimerHandle | None = None
        self._refreshes = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        connection.on_changed = self._refresh_soon

    def __repr__(self) -> str:
        return f"<McpToolset of {self.server_name!r}: {len(self)} tools>"

    # ------------------------------------------------------------------ its life

    async def start(self) -> Self:
        """Connect and list the tools.

        Raises:
            ConfigError: The server cannot be used; the sentence names it and says why, with the end of its standard
                error. Or an override is for a tool that it has not.
        """
        try:
            await self.refresh()
            self._check_overrides()
        except BaseException as error:
            # whoever is cancelled leaves no child behind either
            await asyncio.shield(self.connection.close())
            if isinstance(error, ServerError | MCPError):
                raise ConfigError(_explain(self.server_name, error)) from error
            raise
        return self

    async def aclose(self) -> None:
        """End the connection, and the server if it is a child. A later call connects again."""
        await self.connection.close()

    def close(self) -> None:
        """Do what `aclose` does, from code that is not async.

        Raises:
            SetupError: It is called on the connection's own loop, which would wait for itself.
        """
        home = self.connection.home
        if home is None or home.is_closed() or not home.is_running():
            return
        if asyncio._get_running_loop() is home:
            raise SetupError(
                "this MCP connection lives on the running event loop; close it by `await tools.aclose()`"
            )
        asyncio.run_coroutine_threadsafe(self.connection.close(), home).result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def listen(self, listener: Callable[[], Any]) -> None:
        """Have a function called whenever the tools have changed, on the connection's loop."""
        self._listeners.append(listener)

    def list_notes(self) -> list[str]:
        """Return the problems, without those that only say that a tool waits for somebody to agree."""
        waiting = set(map(describe_quarantine, self.quarantined.values()))
        return [problem for problem in self.problems if problem not in waiting]

    # ------------------------------------------------------------------ what the server lists

    async def refresh(self) -> None:
        """List the server's tools again.

        Raises:
            ServerError, MCPError: The server does not list them; the tools stay as they are.
        """
        listed = await self.connection.list_tools()
        # a server may say that its tools have changed whenever they are listed
        is_same = listed == self._listed
        self._wait_s = min(2 * self._wait_s, _MOST_SETTLE_S) if is_same else SETTLE_S
        self._listed = listed
        self._take(listed)
        self.problems += self.connection.take_faults()

    def _take(self, listed: Sequence[types.Tool]) -> None:
        """Replace the tools by those that a server lists."""
        problems: list[str] = []
        listed = [tool for tool in listed if not self._is_reserved(tool, problems)]
        names = name_tools(self.name_prefix, [tool.name for tool in listed])
        problems += [
            f"{tool!r} of {self.server_name!r} is left out: another tool of it has the same name here"
            for tool, name in names.items()
            if name is None
        ]
        pins = self._look_at_pins(listed)
        tools: list[McpTool] = []
        for definition in listed:
            name = names[definition.name]
            if name is None:
                continue
            pin = pins.get(definition.name)
            if pin is not None and pin.state != "agreed":
                problems.append(describe_quarantine(pin))
                continue
            try:
                tools.append(self._make_tool(definition, name))
            except SetupError as error:
                problems.append(
                    f"{definition.name!r} of {self.server_name!r} is left out: {error}"
                )
            if any(map(hides, _HARMLESS.sub("", definition.description or ""))):
                problems.append(
                    f"{definition.name!r} of {self.server_name!r} has characters in its description that a screen hides"
                )
        problems += self._list_idle_overrides(listed)
        self.quarantined = {
            name: pin
            for name, pin in pins.items()
            if pin.state in ("unknown", "changed")
        }
        self.definitions_there = {tool.name: tool.definition for tool in tools}
        self.problems = problems
        self._state = Toolset(tools)._state
        for listener in self._listeners:
            listener()

    def _is_reserved(self, tool: types.Tool, problems: list[str]) -> bool:
        """Whether a tool would stand in the place of one of ours."""
        if make_name(self.name_prefix, tool.name) != READ_RESULT.name:
            return False
        problems.append(
            f"{tool.name!r} of {self.server_name!r} is left out: handrail itself has a tool of that name"
        )
        return True

    def _look_at_pins(self, listed: Sequence[types.Tool]) -> Mapping[str, Pin]:
        if self.pins is None:
            return {}
        return self.pins.look(self.server_name, listed)

    def _make_tool(self, definition: types.Tool, name: str) -> McpTool:
        present = self.get(name)
        if isinstance(present, McpTool) and present.definition == definition:
            # as it was, so what was compiled for it stays
            return present
        override = self.overrides.get(definition.name, {})
        settings = declare(
            definition.annotations,
            self.trust,
            override,
            results=self.results,
            confidentiality=self.confidentiality,
        )
        settings.setdefault("timeout_s", self.timeout_s)
        return self._build_tool(definition, name, settings)

    def _build_tool(
        self, definition: types.Tool, name: str, settings: ToolSettings
    ) -> McpTool:
        tool = McpTool(self.connection, definition, name, settings)
        tool.believes_failures = self.trust == "hints"
        return tool

    def _list_idle_overrides(self, listed: Iterable[types.Tool]) -> list[str]:
        names = [tool.name for tool in listed]
        return [
            _describe_idle_override(name, self.server_name, names)
            for name in self.overrides
            if name not in names
        ]

    def _check_overrides(self) -> None:
        """Refuse an override for a tool that there is not: it would be a rule that never holds."""
        names = [tool.name for tool in self.definitions_there.values()]
        names += list(self.quarantined)
        for name in self.overrides:
            if name not in names and not any(
                problem.startswith(repr(name)) for problem in self.problems
            ):
                raise ConfigError(
                    _describe_idle_override(name, self.server_name, names)
                )

    def _refresh_soon(self) -> None:
        """List the tools again a moment later; several changes at once are one. Called on the connection's loop."""
        if self._refreshing is None:
            loop = asyncio.get_running_loop()
            self._refreshing = loop.call_later(self._wait_s, self._begin_refresh)

    def _begin_refresh(self) -> None:
        self._refreshing = None
        task = asyncio.ensure_future(self._refresh_quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refresh_quietly(self) -> None:
        # one after the other: an older list never takes the place of a newer one
        async with self._refreshes:
            await self._refresh_if_open()

    async def _refresh_if_open(self) -> None:
        # closed meanwhile, and not to be opened for this: the next connection lists the tools again
        if not self.connection.is_open:
            return
        try:
            await self.refresh()
        except (ServerError, MCPError, ConfigError) as error:
            logs.log.warning("%s", _explain(self.server_name, error))


def _describe_idle_override(name: str, server: str, names: Sequence[str]) -> str:
    near = nearest(name, names)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"`overrides` names {name!r}, which the MCP server {server!r} does not list{hint}"


def describe_quarantine(pin: Pin) -> str:
    """Return why a tool cannot be called."""
    if pin.state == "unknown":
        happened = "is new: nobody has agreed to it"
    else:
        happened = "has changed since somebody agreed to it"
    return f"{pin.tool!r} of {pin.server!r} {happened}; it cannot be called until somebody does"


def _explain(server: str, error: Exception) -> str:
    """Return one sentence about a server that cannot be used, and the end of its standard error."""
    if isinstance(error, ServerError):
        if error.details:
            return f"{error}; the end of its standard error:\n{error.details}"
        return str(error)
    return f"the MCP server {server!r} {describe(error)}"


def _check_label(setting: str, value: object, permitted: Sequence[str]) -> None:
    if value not in permitted:
        raise ConfigError(
            f"{setting} is {value!r}; it is one of {', '.join(permitted)}"
        )


# ---------------------------------------------------------------------- making one


async def connect(
    target: str | Sequence[str] | Target,
    *,
    name: str = "",
    trust: Trust = "none",
    results: Integrity = "untrusted",
    confidentiality: Confidentiality = "public",
    pins: Pins | None = None,
    overrides: Overrides | None = None,
    prefix: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    connect_s: float = DEFAULT_CONNECT_S,
    idle_s: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] = "",
    headers: Mapping[str, str] | None = None,
    auth: httpx2.Auth | None = None,
    approver: Approver | None = None,
    callbacks: Callbacks | None = None,
    mode: str = "auto",
    watch: Watch | None = None,
) -> McpToolset:
    """Connect to an MCP server on the running loop and return its tools.

    Args:
        target: A command line (`"npx -y @modelcontextprotocol/server-everything"`), a list of words, or an address
            (`https://...`).
        name: What the server is called in messages, and the prefix of its tools; by default taken from the target.
        trust: `hints` believes what the server says of its tools' effects. By default nothing is believed: each tool is
            a write of high risk, so a person is asked before each call.
        results: The label of what its tools return: `trusted` where no stranger can have written any of it. See
            `Policy.provenance`; `confidentiality="private"` keeps numbers in it from leaving unasked.
        pins: What somebody has agreed to; a tool that is not as agreed cannot be called.
        overrides: Declarations by the tools' names at the server, which count before its hints.
        prefix: In front of the tools' names, in place of `NAME_`; may be empty.
        timeout_s: Seconds that a call may take in all, whatever progress it reports.
        connect_s: Seconds until the server must have answered first.
        idle_s: Seconds that a call may take without a sign of progress.
        env: The environment of a program beyond `PATH` and the like. Nothing else of ours is handed on.
        headers, auth: Sent with each request to an address; `auth` such as the SDK's `OAuthClientProvider`.
        approver: Answers what the server asks of a person (elicitation), like the approver of a `Runtime`. Without
            one the client does not declare elicitation.
        callbacks: Functions of the SDK that answer a server's requests: sampling and roots, which are off otherwise.
        mode: The era of the protocol, see `McpConnection`.
        watch: Sees each message, see `McpConnection`.

    Raises:
        ConfigError: The server cannot be used; one sentence names it and says why.
    """
    connection = McpConnection(
        name,
        make_target(target, env=env, cwd=cwd, headers=headers, auth=auth),
        connect_s=connect_s,
        idle_s=idle_s,
        mode=mode,
        callbacks=callbacks,
        watch=watch,
    )
    connection.name = name or connection.target.default_name
    if approver is not None:
        _answer_questions(connection, approver)
    toolset = McpToolset(
        connection,
        trust=trust,
        results=results,
        confidentiality=confidentiality,
        pins=pins,
        overrides=overrides,
        prefix=prefix,
        timeout_s=timeout_s,
    )
    return await toolset.start()


def tools(target: str | Sequence[str] | Target, **options: Any) -> McpToolset:
    """Connect to an MCP server and return its tools, for code that is not async and at start-up.

    The connection lives on a background thread's event loop, so a `SyncRuntime`, any thread and any loop can use it.

    Args:
        target: As for `connect`.
        options: As for `connect`.

    Raises:
        ConfigError: As `connect`.
    """
    return run_blocking(connect(target, **options))


def _answer_questions(connection: McpConnection, approver: Approver) -> None:
    def find_call() -> Delivery | None:
        """Return the call in whose context something is asked, else the only one under way."""
        delivery = CURRENT.get()
        if delivery is not None:
            return delivery
        under_way = list(connection.calls_under_way.values())
        return under_way[0] if len(under_way) == 1 else None

    elicitor = Elicitor(connection.name, approver, find_call)
    connection.callbacks = replace(connection.callbacks, elicitation=elicitor)
