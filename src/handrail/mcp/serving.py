"""A runtime's tools as a server of the Model Context Protocol, by stdio and by streamable HTTP.

    server = hr.mcp.server(runtime, "shop")

    @server.resource("shop://terms")
    def terms() -> str: ...

    server.run("stdio")

It is the SDK's `MCPServer`, so resources, prompts and completions are made by its decorators. Tools are the runtime's,
and every call of one gets every check and promise that a model's call gets.

Rule 1: a tool's exception never reaches a client with its text, except what the tool says for the protocol (`Leave`).
Rule 2: a request that is made again is the same call, if its state or its key says so, and no other.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mcp import types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from handrail import logs
from handrail._version import __version__
from handrail.calls import ToolCall, ToolResult
from handrail.dialects.wires.mcp import NAMES
from handrail.dialects.writing import name_map
from handrail.effects import Approval, AskHuman
from handrail.errors import Code, ConfigError, Failure
from handrail.events import Event, Progressed
from handrail.mcp import asking
from handrail.mcp.answers import is_never_cut, write_answer, write_failure
from handrail.mcp.callers import MODERN, Caller, identify_caller
from handrail.ports import Approver
from handrail.runtime import Runtime
from handrail.tools.toolset import Toolset

Reply: TypeAlias = types.CallToolResult | types.InputRequiredResult


class Leave(Exception):
    """Raised by a tool to end its call in the protocol's own way.

    Args:
        how: An error of the protocol, or what must be asked of the client before the call can go on. A read leaves
            nothing behind; a write is in doubt, unless its tool declares `interrupts="before"`.
    """

    def __init__(self, how: MCPError | types.InputRequiredResult) -> None:
        super().__init__(type(how).__name__)
        self.how = how


@dataclass(slots=True)
class Request:
    """One request to call a tool: what the tool finds as `context.deps`, unless the server is given `deps`.

    Attributes:
        context: The SDK's: the client's capabilities, its session, its answers to what the tool asked.
        caller: Who calls.
        tool: The name by which it calls.
        result: How the call ended, once it has.
        answer: The answer of another server, where the tool is one of its.
    """

    context: Context[Any, Any]
    caller: Caller
    tool: str
    arguments: Mapping[str, Any]
    words: dict[str, Approval] = field(default_factory=dict)
    result: ToolResult | None = None
    answer: types.CallToolResult | None = None


CallOptions: TypeAlias = Callable[[Request], Mapping[str, Any]]
"""Returns options of `Runtime.calls`, such as `deps`, `inject`, `scope` or `policy`, for one request."""


class Server(MCPServer[Any]):
    """A server of a runtime's tools. See `server` for the arguments; others are the SDK's."""

    def __init__(
        self,
        runtime: Runtime,
        name: str = "handrail",
        *,
        options: CallOptions | None = None,
        ask_client: bool = True,
        **settings: Any,
    ) -> None:
        if not isinstance(runtime, Runtime):
            raise ConfigError(
                f"a server serves an `hr.Runtime`, not {type(runtime).__name__}"
            )
        self.runtime = runtime
        self._options = options
        self._ask_client = ask_client
        settings.setdefault("version", __version__)
        settings.setdefault("log_level", "WARNING")
        super().__init__(name, **settings)

    # ------------------------------------------------------------------ serving

    async def run_stdio_async(self) -> None:
        """Serve the client at the other end of stdin and stdout; what a tool prints goes to stderr."""
        async with stdio_server() as (read_stream, write_stream):
            server = self._lowlevel_server
            # The SDK points the descriptor elsewhere; Python's own buffer would still be written once it is back.
            with redirect_stdout(sys.stderr):
                await server.run(
                    read_stream, write_stream, server.create_initialization_options()
                )

    # ------------------------------------------------------------------ listing

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools that the policy permits, and `read_result`."""
        offered = self.runtime.offered()
        listed: list[types.Tool] = offered.compute_once(
            Server, lambda: self._describe(offered)
        )
        return listed

    def _describe(self, tools: Toolset) -> list[types.Tool]:
        return [
            types.Tool.model_validate(self._without_promise(tools, each))
            for each in tools.definitions("mcp")
        ]

    def _without_promise(
        self, tools: Toolset, definition: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        schema = definition.get("outputSchema")
        if schema is None:
            return definition
        tool = tools[self._own_name(tools, definition["name"])]
        most_bytes = tool.result_bytes or self.runtime.result_bytes
        if is_never_cut(schema, most_bytes):
            return definition
        return {
            name: each for name, each in definition.items() if name != "outputSchema"
        }

    def _own_name(self, tools: Toolset, name: str) -> str:
        return name_map(tools, NAMES).from_wire(name)

    def _tool_input_schema(self, name: str) -> dict[str, Any] | None:
        offered = self.runtime.offered()
        tool = offered.get(self._own_name(offered, name))
        return None if tool is None else dict(tool.parameters)

    # ------------------------------------------------------------------ calling

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: Context[Any, Any] | None = None,
    ) -> Reply:
        """Carry out a call, or ask the client first."""
        if context is None:
            raise ConfigError("a call over MCP comes with a request")
        caller = identify_caller(context, self.name)
        request = Request(context, caller, name, arguments)
        self._take_up(request)
        try:
            return await self._carry_out(request)
        except Leave as left:
            return self._leave(request, left.how)
        except MCPError:
            raise
        except Exception as error:
            return write_failure(_hide(error, name))

    def _take_up(self, request: Request) -> None:
        """Take up a call where the state that the client brings back says it stands."""
        context = request.context
        state = asking.read_state(context.request_state)
        if state is None:
            return
        request.caller = Caller(
            run=state.run,
            call_id=state.call_id,
            principal=request.caller.principal,
            scope=request.caller.scope,
            key=request.caller.key,
            client=request.caller.client,
        )
        answers = context.input_responses or {}
        if state.question and asking.APPROVAL in answers:
            by = asking.who_answers(request.caller)
            try:
                word = asking.read_word(
                    answers[asking.APPROVAL], by, question=state.question
                )
            except asking.BadEdit:
                word = None
            if word is not None:
                request.words[state.call_id] = word
        request.context = _with_state(context, state.own)

    async def _carry_out(self, request: Request) -> Reply:
        caller = request.caller
        call = ToolCall(
            caller.call_id,
            self._own_name(self.runtime.offered(), request.tool),
            json.dumps(request.arguments, ensure_ascii=False),
        )
        how = self._how(request)
        sender = _ProgressSender.begin(request.context)
        if sender is not None:
            how["observers"] = [*how.get("observers", ()), sender.observe]
        try:
            (result,) = await self.runtime.calls(
                [call],
                run=caller.run,
                turn=caller.call_id,
                words=request.words or None,
                passes=(Leave, MCPError),
                **how,
            )
        finally:
            if sender is not None:
                await sender.end()
        request.result = result
        question = result.question
        if question is not None and self._asks_again(request, question):
            state = asking.State(
                caller.run, caller.call_id, question.id, request.context.request_state
            )
            return types.InputRequiredResult(
                input_requests={
                    asking.APPROVAL: asking.write_question(question, request.tool)
                },
                request_state=state.as_text(),
            )
        return self.write_answer(request, result)

    def write_answer(
        self,
        request: Request,  # noqa: ARG002  # for subclasses
        result: ToolResult,
    ) -> types.CallToolResult:
        """Return what the client reads of a result. A subclass may answer otherwise."""
        return write_answer(result)

    def _how(self, request: Request) -> dict[str, Any]:
        how: dict[str, Any] = {
            "deps": request,
            "principal": request.caller.principal or None,
        }
        if request.caller.scope is not None:
            how["scope"] = request.caller.scope
        if self._options is not None:
            how.update(self._options(request))
        if self._ask_client and asking.waits_for_client(request.context):
            client = asking.ClientApprover(
                request.context, request.caller, request.tool
            )
            first = how.get("approver") or self.runtime.approver
            how["approver"] = client if first is None else _Either(first, client)
        return how

    def _asks_again(self, request: Request, question: Any) -> bool:
        """Whether the client is to ask its person, and make the request again."""
        context = request.context
        if not self._ask_client or context.protocol_version != MODERN:
            return False
        answers = context.input_responses or {}
        if asking.APPROVAL in answers and not request.words:
            return False  # the person has closed the form
        by = asking.who_answers(request.caller)
        return asking.can_be_asked(context) and asking.may_answer(question, by)

    def _leave(
        self, request: Request, how: MCPError | types.InputRequiredResult
    ) -> Reply:
        if isinstance(how, MCPError):
            raise how
        state = asking.State(
            request.caller.run, request.caller.call_id, own=how.request_state
        )
        return how.model_copy(update={"request_state": state.as_text()})


class _Either:
    """Asks one approver, and the other where the first does not know."""

    def __init__(self, first: Approver, then: asking.ClientApprover) -> None:
        self._first = first
        self._then = then

    async def __call__(self, asked: AskHuman) -> Approval | None:
        word: Any = self._first(asked)
        if hasattr(word, "__await__"):
            word = await word
        return await self._then(asked) if word is None else word


class _ProgressSender:
    """Sends a tool's progress to the client that asked for it, in order, from any thread."""

    def __init__(self, context: Context[Any, Any]) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Progressed | None] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._send())

    @classmethod
    def begin(cls, context: Context[Any, Any]) -> _ProgressSender | None:
        """Return a sender, if the client wants to hear of progress."""
        meta = context.request_context.meta or {}
        return cls(context) if meta.get("progress_token") is not None else None

    def observe(self, event: Event) -> None:
        """Take an event of the call."""
        if isinstance(event, Progressed):
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def _send(self) -> None:
        while (event := await self._events.get()) is not None:
            await self._context.report_progress(
                event.done, event.total, event.note or None
            )

    async def end(self) -> None:
        """Send what is left."""
        self._loop.call_soon(self._events.put_nowait, None)
        await asyncio.wait([self._task])


def _with_state(context: Context[Any, Any], own: str | None) -> Context[Any, Any]:
    """Return a request's context with the tool's own state in place of ours."""
    given = context._input_params
    assert given is not None
    return Context(
        request_context=context.request_context,
        mcp_server=context.mcp_server,
        input_params=given.model_copy(update={"request_state": own}),
        subscriptions=context._subscriptions,
    )


def _hide(error: Exception, tool: str) -> Failure:
    """Return a failure for an exception that no tool raised, whose text no client may read."""
    logs.log_exception(f"a call of {tool!r} over MCP failed", error)
    return Failure(
        Code.INTERNAL_ERROR,
        "The server could not carry out the call.",
        "Tell the user; the server's log says why.",
    )


def server(
    runtime: Runtime,
    name: str = "handrail",
    *,
    instructions: str = "",
    options: CallOptions | None = None,
    ask_client: bool = True,
    **settings: Any,
) -> Server:
    """Return a server of a runtime's tools; `run("stdio")` or `run("streamable-http", host=, port=)` serves them.

    Args:
        name: What clients are told; servers of one store that have different names share no run.
        instructions: What a client may tell its model of the server.
        options: Returns options of `Runtime.calls` for a request, such as `deps`. By default the tools find the
            `Request` as their `deps`.
        ask_client: Whether the person at the client is asked where a call needs approval. False leaves that to the
            runtime's approver and to `handrail approvals`.
        settings: Other arguments of the SDK's `MCPServer`.

    Raises:
        ConfigError: It is no runtime of asyncio.
    """
    return Server(
        runtime,
        name,
        instructions=instructions or None,
        options=options,
        ask_client=ask_client,
        **settings,
    )
