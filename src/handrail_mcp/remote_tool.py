"""A tool of an MCP server as a tool of handrail: one call, and what its answer means.

Rule 1: a write whose answer was lost is in doubt, and is sent again only if the server promised to know it again
        (`idempotentHint` of a trusted server, or `replay="key"`).
Rule 2: an answer that says the request was refused is a call without effect; any other error leaves open what a write
        has done.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import jsonschema_rs
from mcp import types
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from handrail import logs
from handrail._lazy import cached_property
from handrail.calls import Media
from handrail.context import Context, current_trace
from handrail.core.retries import retry_after_s
from handrail.errors import (
    Code,
    Failure,
    FarFailure,
    FarRefusal,
    Json,
    NoEffect,
    ToolDefinitionError,
    ToolError,
)
from handrail.invisible import clean, clean_schema
from handrail.observers import conventions as names
from handrail.parsing.strictjson import copy
from handrail.schemas.importing import import_schema
from handrail.schemas.walk import check_size, compile_schema
from handrail.tools.tool import BaseTool, ToolSettings
from handrail_mcp.callers import KEY_META
from handrail_mcp.connection import CallAnswer, McpConnection
from handrail_mcp.contents import read_content, read_contents
from handrail_mcp.delivery import Delivery, ServerError, ServerNotReached, ServerTimeout
from handrail_mcp.targets import ServerProgram

_CONTEXT = "$context"
"""No argument has such a name."""

_MOST_TEXT_CHARS = 2000
"""Of what a server says about a call that failed."""

_MOST_ROUNDS = 10
"""How often a server may ask for input before it gives a result."""

_SHARE_OF_TIME = 0.95
"""Of a call's time that the server gets, so that it is the server that is named when the time is over."""

_READ_RESULT = re.compile(r"(\[note: [^\n]*?read the rest with )read_result\(")
"""How another handrail names the tool that reads on, at the end of a result."""

_NOT_RUN = {
    types.PARSE_ERROR,
    types.INVALID_REQUEST,
    types.METHOD_NOT_FOUND,
    types.INVALID_PARAMS,
    types.HEADER_MISMATCH,
    types.MISSING_REQUIRED_CLIENT_CAPABILITY,
    types.UNSUPPORTED_PROTOCOL_VERSION,
}
"""Errors by which a server says that it has not run a tool."""

_REFUSALS = {
    Code.UNKNOWN_TOOL, Code.BAD_JSON, Code.TRUNCATED_CALL, Code.INVALID_ARGUMENTS, Code.RULE_VIOLATED,
    Code.NOT_PERMITTED, Code.NOT_APPROVED, Code.APPROVAL_PENDING, Code.APPROVAL_EXPIRED, Code.IDEMPOTENCY_KEY_REUSED,
    Code.IN_PROGRESS, Code.RATE_LIMITED, Code.BUDGET_EXHAUSTED, Code.NOT_ISOLATED, Code.REPEATED_CALL, Code.TIMEOUT,
    Code.UNAVAILABLE, Code.CANCELLED,
}  # fmt: skip
"""Codes of another handrail after which a write there has certainly not happened: otherwise it says `IN_DOUBT`."""


class McpTool(BaseTool):
    """One tool of a server.

    Attributes:
        connection: The connection to its server.
        definition: What the server lists.
        believes_failures: Whether the server is believed, where it says as another handrail that a write has not
            happened.
    """

    trace_type = "extension"

    def __init__(
        self,
        connection: McpConnection,
        definition: types.Tool,
        name: str,
        settings: ToolSettings,
    ) -> None:
        self.connection = connection
        self.believes_failures = False
        self.definition = definition
        self.name = name
        self.description = clean(
            definition.description or definition.title or f"The tool {definition.name}."
        )
        if definition.output_schema is not None:
            self.returns = clean_schema(definition.output_schema)
        self._declare(settings, self.run)
        schema = import_schema(clean_schema(definition.input_schema), name=name)
        self._describe(schema, copy, {_CONTEXT: Context})
        super().__init__()

    def open(self) -> None:
        """Take part in the connection."""
        self.connection.acquire()

    async def close(self) -> None:
        """Leave it; the last one closes it."""
        await self.connection.release()

    async def run(self, /, **given: Any) -> Any:
        """Call the tool and return what its result means."""
        context: Context[Any] = given.pop(_CONTEXT)
        may_repeat = not self.writes or self.replay == "key"
        delivery = Delivery(caller=self.name, may_repeat=may_repeat)
        try:
            result = await self._call(given, context, delivery)
        except ServerError as error:
            raise self._diagnose(error) from error
        except MCPError as error:
            raise self._read_error(error, delivery) from error
        if result.is_error:
            raise self._read_failure(result)
        return self._read_result(result)

    # ------------------------------------------------------------------ calling

    async def _call(
        self, arguments: Mapping[str, Json], context: Context[Any], delivery: Delivery
    ) -> types.CallToolResult:
        return await self.call_until_done(self.connection, arguments, context, delivery)

    async def call_until_done(
        self,
        connection: McpConnection,
        arguments: Mapping[str, Json],
        context: Context[Any],
        delivery: Delivery,
    ) -> types.CallToolResult:
        """Call until there is a result, answering what the server asks in between (2026-07-28)."""
        responses: dict[str, Any] | None = None
        state: str | None = None
        for _ in range(_MOST_ROUNDS):
            answer = await self.send(
                connection, arguments, context, delivery, responses, state
            )
            if isinstance(answer, types.CallToolResult):
                return answer
            responses = await self._answer_requests(connection, answer)
            state = answer.request_state
        raise NoEffect(
            "INPUT_REQUIRED",
            f"The MCP server `{self.connection.name}` asks for input again and again.",
            suggestion="Go on without it, or tell the user.",
        )

    async def send(
        self,
        connection: McpConnection,
        arguments: Mapping[str, Json],
        context: Context[Any],
        delivery: Delivery,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
    ) -> CallAnswer:
        """Send one request, and return its answer: a result, or what the server asks first."""
        meta = {}
        if context.idempotency_key:
            meta[KEY_META] = context.idempotency_key
        with _trace_request(connection, self.definition.name):
            return await connection.call(
                self.definition.name,
                arguments,
                timeout_s=context.remaining_s() * _SHARE_OF_TIME,
                progress=context.progress,
                meta=meta,
                input_responses=input_responses,
                request_state=request_state,
                delivery=delivery,
            )

    async def _answer_requests(
        self, connection: McpConnection, asked: types.InputRequiredResult
    ) -> dict[str, Any] | None:
        """Return the answers to what the server asks; None when it only wants to be called again."""
        if not asked.input_requests:
            await asyncio.sleep(0.05)
            return None
        answers: dict[str, Any] = {}
        for key, request in asked.input_requests.items():
            answer = await _answer_request(connection, request)
            if answer is None or isinstance(answer, types.ErrorData):
                raise NoEffect(
                    "INPUT_REQUIRED",
                    f"The MCP server `{self.connection.name}` asks for input that nobody here can give.",
                    suggestion="Go on without it, or tell the user.",
                )
            answers[key] = answer
        return answers

    # ------------------------------------------------------------------ when there is no result

    def _diagnose(self, error: ServerError) -> Exception:
        """Return what a missing answer means for this tool."""
        sentence = f"The MCP server `{error.server}` {error.happened}."
        if isinstance(error, ServerNotReached):
            logs.log.warning("%s%s", error, _quote(error.details))
            return NoEffect(
                Code.UNAVAILABLE,
                sentence,
                suggestion="Try again later, or go on without it.",
                retryable=True,
            )
        if isinstance(error, ServerTimeout):
            sentence = f"The MCP server `{error.server}` did not answer `{self.definition.name}` in time."
        if not self.writes:
            is_late = isinstance(error, ServerTimeout)
            return ToolError(
                Code.TIMEOUT if is_late else Code.UNAVAILABLE,
                sentence,
                suggestion="Ask for less at once, or try again later.",
                retryable=True,
            )
        if self.replay == "key":
            # may be asked for again, which a worded failure never is
            return ConnectionError(str(error))
        failure = Failure(
            Code.IN_DOUBT,
            f"{sentence} `{self.name}` may or may not have happened.",
            "Look whether it happened before trying again, or tell the user. It is not repeated by itself.",
        )
        return FarFailure(failure)

    def _read_error(self, error: MCPError, delivery: Delivery) -> ToolError:
        """Return what an error of the protocol means."""
        server = self.connection.name
        text = " ".join(error.message.split())[:_MOST_TEXT_CHARS]
        if delivery.status == 429:
            return NoEffect(
                Code.RATE_LIMITED,
                f"The MCP server `{server}` asks for fewer requests.",
                suggestion="Call it again a little later.",
                retryable=True,
                retry_after_s=retry_after_s(delivery.retry_after),
            )
        if delivery.status in (401, 403):
            return NoEffect(
                "NOT_AUTHENTICATED",
                f"The MCP server `{server}` does not accept the credentials (HTTP {delivery.status}).",
                suggestion="Tell the user that the credentials for this server are not accepted.",
            )
        if error.code == types.URL_ELICITATION_REQUIRED:
            return NoEffect(
                "INPUT_REQUIRED",
                f"The MCP server `{server}` wants the user to open an address first: {_list_addresses(error) or text}",
                suggestion="Show the address to the user, and call again once they have been there.",
            )
        if error.code in _NOT_RUN or delivery.was_refused:
            return NoEffect(
                "REFUSED",
                f"The MCP server `{server}` refused the call: {text}",
                suggestion="Call differently, or go on without it.",
            )
        suggestion = "Try another way, or tell the user that this part failed."
        if self.writes:
            suggestion = "It may have happened. Look whether it did before you try again, or tell the user."
        return ToolError(
            "SERVER_ERROR",
            f"The MCP server `{server}` failed: {text}",
            suggestion=suggestion,
        )

    # ------------------------------------------------------------------ what a result means

    def _read_failure(self, result: types.CallToolResult) -> ToolError:
        """Return the failure that a result tells of. It says nothing about what a write has done."""
        failure = read_contract(result.structured_content)
        if failure is not None and failure.code == Code.IN_DOUBT:
            return FarFailure(replace(failure, retryable=False))
        # Whoever is not trusted may say anything: that a payment has not happened, for one.
        if failure is not None and (self.believes_failures or not self.writes):
            if failure.code in _REFUSALS:
                return FarRefusal(failure)
            return FarFailure(failure)
        texts = [
            each.text for each in result.content if isinstance(each, types.TextContent)
        ]
        if failure is None and result.structured_content:
            texts.append(json.dumps(result.structured_content, ensure_ascii=False))
        text = "\n".join(texts)[:_MOST_TEXT_CHARS].strip()
        return ToolError(
            "TOOL_FAILED", text or f"`{self.name}` failed without saying why."
        )

    def _read_result(self, result: types.CallToolResult) -> Any:
        """Return the value of a result: its structured content, if there is any that fits, and media beside it."""
        structured = result.structured_content
        if structured is None:
            return self._point_to_rest(read_contents(result.content))
        fault = self._find_fault(structured)
        if fault:
            if not self.writes:
                raise ToolError(
                    "BAD_RESULT",
                    f"The result of `{self.name}` does not fit what its server promised: {fault}",
                    suggestion="Go on without it, or tell the user.",
                )
            # done is done: what it says in words can be relied on best
            logs.log.warning("a result of %s does not fit: %s", self.name, fault)
            return read_contents(result.content) if result.content else structured
        media = [
            part
            for part in map(read_content, result.content)
            if isinstance(part, Media)
        ]
        return [structured, *media] if media else structured

    def _point_to_rest(self, value: Any) -> Any:
        """Name the tool that reads the rest of a result, which another handrail has cut, as it is called here."""
        if not isinstance(value, str) or not self.name.endswith(self.definition.name):
            return value
        prefix = self.name.removesuffix(self.definition.name)
        return _READ_RESULT.sub(rf"\1{prefix}read_result(", value)

    def _find_fault(self, structured: Json) -> str:
        """Say where structured content does not fit the promised schema; empty if it does, or none is promised."""
        if self.result_validator is None:
            return ""
        try:
            self.result_validator.validate(structured)
        except jsonschema_rs.ValidationError as error:
            place = "/".join(str(step) for step in error.instance_path)
            return f"at {place or 'its root'}: {error.message[:200]}"
        except ValueError as error:
            return str(error)[:200]
        return ""

    @cached_property
    def result_validator(self) -> jsonschema_rs.Validator | None:
        """Validates structured content; None without a schema that can be used."""
        schema = self.definition.output_schema
        if schema is None:
            return None
        try:
            check_size(schema)
            return compile_schema(schema)
        except ToolDefinitionError as error:
            logs.log.warning("results of %s are not validated: %s", self.name, error)
            return None


@contextmanager
def _trace_request(connection: McpConnection, tool: str) -> Iterator[None]:
    """Note a request in the trace of the call that makes it. The SDK sends the trace itself with the request."""
    trace = current_trace.get()
    if trace is None:
        yield
        return
    is_child = isinstance(connection.target, ServerProgram)
    attributes = {
        names.MCP_METHOD: "tools/call",
        names.TOOL_NAME: tool,
        names.NETWORK_TRANSPORT: "pipe" if is_child else "tcp",
    }
    began = perf_counter()
    try:
        yield
    except MCPError as error:
        attributes[names.ERROR_TYPE] = str(error.code)
        attributes[names.RPC_STATUS] = str(error.code)
        raise
    except ServerError as error:
        attributes[names.ERROR_TYPE] = type(error).__name__
        raise
    finally:
        if version := connection.protocol_version:
            attributes[names.MCP_PROTOCOL_VERSION] = version
        trace.note_request(attributes, perf_counter() - began)


async def _answer_request(connection: McpConnection, request: Any) -> Any:
    callbacks = connection.callbacks
    match request:
        case types.ElicitRequest() if callbacks.elicitation is not None:
            return await callbacks.elicitation(None, request.params)
        case types.CreateMessageRequest() if callbacks.sampling is not None:
            return await callbacks.sampling(None, request.params)
        case types.ListRootsRequest() if callbacks.roots is not None:
            return await callbacks.roots(None)
    return None


def read_contract(document: Any) -> Failure | None:
    """Return the failure in the structured content of another handrail's result; None without one."""
    match document:
        case {
            "success": False,
            "error_code": str(code),
            "error_message": str(message),
        }:
            return Failure(
                code,
                message[:_MOST_TEXT_CHARS],
                str(document.get("suggestion", ""))[:_MOST_TEXT_CHARS],
                retryable=document.get("retryable") is True,
            )
    return None


def _list_addresses(error: MCPError) -> str:
    """Return the addresses that a server wants opened, from the data of its error."""
    data = error.data if isinstance(error.data, dict) else {}
    asked = data.get("elicitations")
    if not isinstance(asked, list):
        return ""
    addresses = [each.get("url") for each in asked if isinstance(each, dict)]
    return " ".join(str(each)[:_MOST_TEXT_CHARS] for each in addresses[:5] if each)


def _quote(details: str) -> str:
    return f"; its last words: {details}" if details else ""
