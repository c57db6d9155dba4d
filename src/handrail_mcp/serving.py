"""A runtime's tools as a server of the Model Context Protocol, by stdio and by streamable HTTP.

    server = hr.mcp.server(runtime, "shop")

    @server.resource("shop://terms")
    def terms() -> str: ...

    server.run("stdio")

It is the SDK's `MCPServer`, so resources, prompts and completions are made by its decorators. Tools are the runtime's,
and every call of one gets every check and promise that a model's call gets.

Rule 1: the text of a tool's exception never reaches a client, except that of `Leave`, which is meant for it.
Rule 2: a repeated request is the same call if its state or its key says so; any other is a new call.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from time import perf_counter
from typing import Any, TypeAlias

from mcp import types
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace
from starlette.applications import Starlette

from handrail import logs
from handrail._version import __version__
from handrail.calls import ToolCall, ToolResult
from handrail.context import peers
from handrail.core.policy import Policy
from handrail.dialects.wires.mcp import NAMES
from handrail.dialects.writing import name_map
from handrail.effects import Approval, AskHuman
from handrail.engine.active_run import find_tracer
from handrail.engine.read_result import READ_RESULT
from handrail.errors import Code, ConfigError, Failure
from handrail.observers import conventions as names
from handrail.ports import Approver
from handrail.records import ApprovalRequest
from handrail.runtime import Runtime
from handrail.serving.listening import open_socket, serve_app
from handrail.tools.toolset import Toolset
from handrail_mcp import asking
from handrail_mcp.answers import is_never_cut, write_answer, write_failure
from handrail_mcp.callers import MODERN, Caller, identify_caller
from handrail_mcp.listening import permit_hosts
from handrail_mcp.notices import Client, Leave, is_as_grave
from handrail_mcp.tokens import Tokens
from handrail_mcp.transports.standard_streams import serve_standard_streams

_MOST_HANDLES = 10_000
_MOST_CLIENTS = 10_000
_LAST_WORDS_S = 5
"""How long calls that were cancelled at the end may take to record how they ended."""

Reply: TypeAlias = types.CallToolResult | types.InputRequiredResult


@dataclass(slots=True)
class McpRequest:
    """One request to call a tool: what the tool finds as `context.deps`, unless the server is given `deps`.

    Attributes:
        context: The SDK's: the client's capabilities, its session, its answers to what the tool asked.
        caller: Who calls.
        tool: The name by which it calls.
        words: People's decisions on the call, by its id.
        state: What a repeated request brings back from the one before.
        answered: The question that the request answers.
        complaint: Why that answer could not be read.
        result: How the call ended, once it has.
        answer: The answer of another server, where the tool is one of its.
    """

    context: Context[Any, Any]
    caller: Caller
    tool: str
    arguments: Mapping[str, Any]
    words: dict[str, Approval] = field(default_factory=dict)
    state: asking.State | None = None
    answered: str = ""
    complaint: str = ""
    result: ToolResult | None = None
    answer: types.CallToolResult | None = None


CallOptions: TypeAlias = Callable[[McpRequest], Mapping[str, Any]]
"""Returns options of `Runtime.calls`, such as `deps`, `inject`, `scope` or `policy`, for one request.

It is also asked when a client lists the tools, for its policy; the request then names no tool."""


class ToolServer(MCPServer[Any]):
    """A server of a runtime's tools. See `server` for the arguments; others are the SDK's."""

    def __init__(
        self,
        runtime: Runtime,
        name: str = "handrail",
        *,
        options: CallOptions | None = None,
        ask_client: bool = True,
        tokens: Tokens | str | Path | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        if not isinstance(runtime, Runtime):
            raise ConfigError(
                f"a server serves an `hr.Runtime`, not {type(runtime).__name__}"
            )
        self.runtime = runtime
        self._options = options
        self._ask_client = ask_client
        self._hosts = tuple(hosts)
        self._origins = tuple(origins)
        self._stored_by: OrderedDict[tuple[str, str], str] = OrderedDict()
        """The runs of long results that a caller reads on in another run than its own."""
        self._under_way: set[asyncio.Future[list[ToolResult]]] = set()
        if tokens is not None:
            settings.update(_require(tokens))
        settings.setdefault("version", __version__)
        settings.setdefault("log_level", "WARNING")
        super().__init__(name, **settings)
        self._levels: OrderedDict[str, types.LoggingLevel] = OrderedDict()
        """From which level on a client takes log lines, by its run."""
        self._lowlevel_server.add_request_handler(
            "logging/setLevel", types.SetLevelRequestParams, self._set_level
        )

    async def _set_level(
        self, ctx: Any, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        self._levels[identify_caller(ctx, self.name).home] = params.level
        if len(self._levels) > _MOST_CLIENTS:
            self._levels.popitem(last=False)
        return types.EmptyResult()

    def wants_log(self, context: Any, level: types.LoggingLevel) -> bool:
        """Whether the client of a request wants log lines of a level; it gets all until it sets a level."""
        least = self._levels.get(identify_caller(context, self.name).home)
        return is_as_grave(level, least)

    # ------------------------------------------------------------------ serving

    async def run_stdio_async(self) -> None:
        """Serve the client at the other end of stdin and stdout; what a tool prints goes to stderr."""
        await serve_standard_streams(self._lowlevel_server)

    def run(self, transport: Any = "stdio", **how: Any) -> None:
        """Serve until the client or the process ends, and close the runtime.

        Args:
            transport: `stdio` or `streamable-http`.
            how: `host`, `port` and others of the SDK for HTTP. The path is `/mcp`.

        Raises:
            ConfigError: The transport is another one, or the address cannot be used.
        """
        if transport == "stdio":
            serve: Callable[..., Any] = self._serve_until_ended
        elif transport == "streamable-http":
            serve = self.run_streamable_http_async
        else:
            raise ConfigError(
                f"the transport is {transport!r}; it is 'stdio' or 'streamable-http'"
            )
        asyncio.run(self._serve_and_close(serve, how))

    async def _serve_and_close(
        self, serve: Callable[..., Any], how: Mapping[str, Any]
    ) -> None:
        async with self.runtime:
            try:
                await serve(**how)
            finally:
                # the calls of clients that have gone are recorded before the store is closed
                if self._under_way:
                    await asyncio.wait(self._under_way, timeout=_LAST_WORDS_S)

    async def _serve_until_ended(self) -> None:
        """Serve stdin and stdout; SIGTERM ends the calls that are under way."""
        serving = asyncio.ensure_future(self.run_stdio_async())
        # not on Windows, nor in a thread
        with suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(SIGTERM, serving.cancel)
        try:
            await serving
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            raise SystemExit(128 + SIGTERM) from None

    async def run_streamable_http_async(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        started: Callable[[str], None] | None = None,
        **how: Any,
    ) -> None:
        """Serve HTTP until the process gets a signal to end.

        Args:
            port: 0 is any that is free.
            started: Called with the address once the server listens.

        Raises:
            ConfigError: It cannot listen there.
        """
        listener = open_socket(host, port)
        bound = listener.getsockname()[1]
        path = how.get("streamable_http_path", "/mcp")
        shown = f"[{host}]" if ":" in host else host
        app = self.streamable_http_app(host=host, **how)
        if started is not None:
            started(f"http://{shown}:{bound}{path}")
        await serve_app(app, listener, log_level=self.settings.log_level.lower())

    def streamable_http_app(self, *, host: str = "127.0.0.1", **how: Any) -> Starlette:
        """Return the server as an ASGI application, for a web server of your own.

        Args:
            host: Where that listens; other names of it are `hosts` of the server.
        """
        if how.get("transport_security") is None:
            how["transport_security"] = permit_hosts(host, self._hosts, self._origins)
        return super().streamable_http_app(host=host, **how)

    def add_tool(self, *_: Any, **__: Any) -> None:
        """Raise: a tool of the SDK would run without any check.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "the tools of this server are its runtime's: `server.runtime.tools.add(tool)`"
        )

    # ------------------------------------------------------------------ listing

    async def _handle_list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:  # noqa: ARG002  # the SDK's
        listed = await self.list_tools()
        policy = self._policy_for(ctx)
        if policy is not None:
            offered = self.runtime.offered(policy=policy)
            listed = [
                each for each in listed if self._own_name(offered, each.name) in offered
            ]
        return types.ListToolsResult(tools=listed)

    def _policy_for(self, ctx: Any) -> Policy | None:
        """Return the policy that `options` has for a caller who lists the tools; None for the runtime's."""
        if self._options is None:
            return None
        context = Context(request_context=ctx, mcp_server=self)
        request = McpRequest(context, identify_caller(ctx, self.name), "", {})
        policy: Policy | None = self._options(request).get("policy")
        return policy

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools that the policy permits, and `read_result`."""
        offered = self.runtime.offered()
        listed: list[types.Tool] = offered.compute_once(
            ToolServer, lambda: self._describe(offered)
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
        most_bytes = tool.limits.result_bytes or self.runtime.result_bytes
        if is_never_cut(schema, most_bytes):
            return definition
        return {
            name: each for name, each in definition.items() if name != "outputSchema"
        }

    def _own_name_of(self, request: McpRequest) -> str:
        return self._own_name(self.runtime.offered(), request.tool)

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
        caller = identify_caller(context.request_context, self.name)
        request = McpRequest(context, caller, name, arguments)
        self._take_up(request)
        tracer = find_tracer(self.runtime.observers)
        if tracer is None:
            return await self._answer(request)
        began = perf_counter()
        reply = await self._answer(request)
        tracer.record_served(
            self._trace_attributes(request, reply), perf_counter() - began
        )
        return reply

    def _trace_attributes(self, request: McpRequest, reply: Reply) -> dict[str, str]:
        """Return the attributes of a request in metrics; the name of a tool that does not exist is left out."""
        attributes = {
            names.MCP_METHOD: "tools/call",
            names.MCP_PROTOCOL_VERSION: request.context.protocol_version or "",
        }
        if self._own_name_of(request) in self.runtime.offered():
            attributes[names.TOOL_NAME] = request.tool
        if getattr(reply, "is_error", False):
            attributes[names.ERROR_TYPE] = "tool_error"
        return attributes

    async def _answer(self, request: McpRequest) -> Reply:
        """Carry out a call, or leave it to what the client is asked."""
        try:
            return await self._carry_out(request)
        except Leave as left:
            return self._leave(request, left.how)
        except MCPError:
            raise
        except Exception as error:
            return write_failure(_hide(error, request.tool))

    def _take_up(self, request: McpRequest) -> None:
        """Continue a call from the state that the client brings back."""
        context = request.context
        brought = context.request_state
        state = None if brought is None else asking.read_state(brought)
        if state is None:
            return
        request.caller = replace(request.caller, run=state.run, call_id=state.call_id)
        request.state = state
        answer = (context.input_responses or {}).get(asking.APPROVAL)
        if state.question and answer is not None:
            request.answered = state.question
            self._read_word(request, state, answer)
        request.context = _with_state(context, state)

    def _read_word(self, request: McpRequest, state: asking.State, answer: Any) -> None:
        """Take the answer to our question as a word on the call."""
        tool = self.runtime.tools.get(self._own_name_of(request))
        parameters = {} if tool is None else tool.parameters
        by = asking.who_answers(request.caller)
        try:
            word = asking.read_word(answer, by, parameters, question=state.question)
        except asking.BadEdit as error:
            if state.tries < asking.MOST_TRIES - 1:
                request.complaint = str(error)
            return
        if word is not None:
            request.words[state.call_id] = word

    async def _carry_out(self, request: McpRequest) -> Reply:
        caller = request.caller
        call = ToolCall(
            caller.call_id,
            self._own_name_of(request),
            json.dumps(request.arguments, ensure_ascii=False),
        )
        result = await self._perform(request, call)
        question = result.question
        earlier = question and request.state and request.state.word_on(question)
        if earlier:
            # The tool left the call to ask something before it changed anything, so the decision still counts.
            request.words[call.id] = earlier
            result = await self._perform(request, call)
            question = result.question
        request.result = result
        if question is not None and self._asks_again(request, question):
            return self._ask(request, question)
        return self.write_answer(request, result)

    async def _perform(self, request: McpRequest, call: ToolCall) -> ToolResult:
        """Have the runtime carry out a call; send what the tool says meanwhile."""
        run = self._run_of(request)
        client = Client(request.context, self._levels.get(request.caller.home))
        how = self._how(request)
        if client.wants_progress:
            how["observers"] = [*how.get("observers", ()), client.observe]
        name = (run, call.id)
        is_first = peers.setdefault(name, client) is client
        calling = asyncio.ensure_future(
            self.runtime.calls(
                [call],
                run=run,
                turn=how.pop("turn", call.id),
                words=request.words or None,
                passes=(Leave,),
                **how,
            )
        )
        self._under_way.add(calling)
        calling.add_done_callback(self._note_end)
        try:
            # In a task of its own: a client's cancellation is repeated until its handler ends, and would not let a
            # call record how it ended.
            (result,) = await asyncio.shield(calling)
        except asyncio.CancelledError:
            calling.cancel()
            raise
        finally:
            if is_first:
                del peers[name]
        if client.outbox.is_used:
            await client.outbox.flush()
        if result.handle and run != request.caller.home:
            self._remember(request.caller.home, result.handle, run)
        return result

    def _note_end(self, calling: asyncio.Future[list[ToolResult]]) -> None:
        self._under_way.discard(calling)
        if not calling.cancelled():
            calling.exception()  # whoever waited has gone, or has it

    def _run_of(self, request: McpRequest) -> str:
        """Return the run of a call; a result is read on in the run that stored it."""
        caller = request.caller
        if request.tool == READ_RESULT.name:
            handle = str(request.arguments.get("handle"))
            return self._stored_by.get((caller.home, handle), caller.home)
        return caller.run

    def _remember(self, home: str, handle: str, run: str) -> None:
        """Remember the run of a result whose call had a key, for the caller alone."""
        self._stored_by[home, handle] = run
        if len(self._stored_by) > _MOST_HANDLES:
            self._stored_by.popitem(last=False)

    def write_answer(
        self,
        request: McpRequest,  # noqa: ARG002  # for subclasses
        result: ToolResult,
    ) -> types.CallToolResult:
        """Return what the client reads of a result. A subclass may answer otherwise."""
        return write_answer(result)

    def _how(self, request: McpRequest) -> dict[str, Any]:
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

    def _asks_again(self, request: McpRequest, question: ApprovalRequest) -> bool:
        """Whether the client is to ask its person, and make the request again."""
        context = request.context
        if not self._ask_client or context.protocol_version != MODERN:
            return False
        if request.answered == question.id and not request.complaint:
            return (
                False  # the answer did not decide the question, or the form was closed
            )
        by = asking.who_answers(request.caller)
        return asking.can_be_asked(context) and asking.may_answer(question, by)

    def _ask(
        self, request: McpRequest, question: ApprovalRequest
    ) -> types.InputRequiredResult:
        """Return what makes the client ask its person, and make the request again."""
        caller = request.caller
        tries = request.state.tries + 1 if request.complaint and request.state else 0
        state = asking.State(
            run=caller.run,
            call_id=caller.call_id,
            question=question.id,
            digest=question.digest,
            tries=tries,
            own=request.context.request_state,
        )
        form = asking.write_question(question, request.tool, request.complaint)
        return types.InputRequiredResult(
            input_requests={asking.APPROVAL: form}, request_state=state.as_text()
        )

    def _leave(
        self, request: McpRequest, how: MCPError | types.InputRequiredResult
    ) -> Reply:
        if isinstance(how, MCPError):
            raise how
        before = request.state
        word = request.words.get(request.caller.call_id)
        state = asking.State(
            run=request.caller.run,
            call_id=request.caller.call_id,
            digest=before.digest if before is not None else "",
            word=asking.keep_word(word),
            own=how.request_state,
        )
        return how.model_copy(update={"request_state": state.as_text()})


def _require(tokens: Tokens | str | Path) -> dict[str, Any]:
    """Return the SDK's settings for a server that demands a token."""
    if not isinstance(tokens, Tokens):
        tokens = Tokens.from_toml(tokens)
    # The tokens come from no authorization server, and without `resource_server_url` none is published.
    auth = AuthSettings.model_validate(
        {"issuer_url": "https://localhost", "resource_server_url": None}
    )
    return {"auth": auth, "token_verifier": tokens}


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


def _with_state(context: Context[Any, Any], state: asking.State) -> Context[Any, Any]:
    """Return a request's context with the tool's own state in place of ours, and without the answer to our question."""
    given = context._input_params
    assert given is not None
    responses = given.input_responses
    if state.question and responses is not None:
        responses = {
            key: each for key, each in responses.items() if key != asking.APPROVAL
        }
    return Context(
        request_context=context.request_context,
        mcp_server=context.mcp_server,
        input_params=given.model_copy(
            update={"request_state": state.own, "input_responses": responses or None}
        ),
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
    tokens: Tokens | str | Path | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    **settings: Any,
) -> ToolServer:
    """Return a server of a runtime's tools; `run("stdio")` or `run("streamable-http", host=, port=)` serves them.

    Args:
        name: The name that clients read; servers of one store with different names share no run.
        instructions: What a client may tell its model of the server.
        options: Returns options of `Runtime.calls` for a request, such as `deps`. By default the tools find the
            `McpRequest` as their `deps`. Its `policy` also decides what a caller is listed.
        ask_client: Whether the person at the client is asked where a call needs approval. False leaves that to the
            runtime's approver and to `handrail approvals`.
        tokens: Whose calls are served over HTTP, or the file that says so; see `Tokens`. Without it, anybody's.
        hosts: Names under which clients reach the server, beside its address and this machine's own.
        origins: Pages of other sites that may send requests, such as `https://app.example.com`.
        settings: Other arguments of the SDK's `MCPServer`.

    Raises:
        ConfigError: It is no runtime of asyncio, or the file of tokens has a fault.
    """
    return ToolServer(
        runtime,
        name,
        instructions=instructions or None,
        options=options,
        ask_client=ask_client,
        tokens=tokens,
        hosts=hosts,
        origins=origins,
        **settings,
    )
