"""What a request to `POST /v1/responses` says: a new run, a next question, or answers to what a run waits for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from handrail.dialects.wires.responses_server import parse_request
from handrail.errors import ConfigError, Json
from handrail.messages import Message, Options
from handrail_server.endpoints.caller_tools import CallerTool
from handrail_server.endpoints.chat_completions import read_choice
from handrail_server.endpoints.driving import Asked, Word
from handrail_server.endpoints.refusals import Refusal
from handrail_server.endpoints.serving import digest_of
from handrail_server.endpoints.steps import read_ticket

_ID = re.compile(r"resp_([0-9a-f]{32})_([0-9]{1,6})_([0-9]{1,6})")

_OUTPUT_ITEMS = ("function_call", "mcp_call", "mcp_approval_request", "reasoning")
"""Items that a response has put out, and that a client without `previous_response_id` sends back."""

_IGNORED_ITEMS = ("reasoning", "mcp_list_tools", "mcp_approval_request")
"""Items of those that a run has no use for."""

_ROLES = ("user", "assistant", "system", "developer")

_NOT_SERVED = ("background", "conversation", "prompt")


class TurnPlace(Struct, frozen=True):
    """The position of a response in its run.

    Attributes:
        rounds: How many questions the run has had by then.
        stage: How often the run was resumed since this question, each time after waiting.
    """

    run_id: str
    rounds: int = 1
    stage: int = 0

    @property
    def response_id(self) -> str:
        """The id of the response."""
        return f"resp_{self.run_id.removeprefix('r_')}_{self.rounds}_{self.stage}"


def read_place(response_id: str) -> TurnPlace | None:
    """Return the position that an id of ours names; None for any other id."""
    match = _ID.fullmatch(response_id)
    if match is None:
        return None
    return TurnPlace(f"r_{match[1]}", int(match[2]), int(match[3]))


class ResponsesRequest(Struct, frozen=True):
    """A request. What it has beyond this changes nothing."""

    input: str | list[dict[str, Json]] = ""
    model: str = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Json]] | None = None
    tool_choice: str | dict[str, Json] | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] | None = None
    text: dict[str, Json] | None = None
    stream: bool | None = None
    background: bool | None = None
    conversation: Json = None
    prompt: Json = None


class RequestedTurn(Struct, frozen=True):
    """A parsed request: a new run, the next question of one, or answers.

    Attributes:
        run_id: The run to continue; empty for a new one.
        words: Answers to what that run waits for.
    """

    asked: Asked
    run_id: str = ""
    before: TurnPlace | None = None
    words: Sequence[Word] = ()


def read_request(body: ResponsesRequest) -> RequestedTurn:
    """Return what a request asks.

    Raises:
        Refusal: It cannot be served; why.
    """
    for name in _NOT_SERVED:
        if getattr(body, name):
            raise Refusal(400, f"`{name}` is not served here; leave it out", param=name)
    before = _read_before(body.previous_response_id)
    items = body.input
    if isinstance(items, str):
        items = [{"role": "user", "content": items}] if items else []
    since = _items_since_output(items)
    words = dict(filter(None, map(_read_word, since)))
    run_ids = {run_id for (run_id, _) in words}
    if before is not None:
        run_ids.add(before.run_id)
    if len(run_ids) > 1:
        raise Refusal(
            400, "the request goes on with several runs; send one run's answers"
        )
    if words:
        items = [item for item in since if _read_word(item) is None]
    elif before is not None:
        items = since
    messages = _messages(items)
    _check_content(messages, words)
    run_id = run_ids.pop() if run_ids else ""
    return RequestedTurn(
        _read_asked(body, messages), run_id, before, list(words.values())
    )


def _read_before(response_id: str | None) -> TurnPlace | None:
    if response_id is None:
        return None
    before = read_place(response_id)
    if before is None:
        raise Refusal(
            404,
            "there is no such response of yours",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return before


def _items_since_output(items: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the items that follow the last one of a response."""
    outputs = [place for place, item in enumerate(items) if _is_output(item)]
    return items[outputs[-1] + 1 :] if outputs else items


def _check_content(messages: Sequence[Message], words: Mapping[Any, Word]) -> None:
    if not messages and not words:
        raise Refusal(400, "`input` is empty", param="input")
    if messages and words:
        raise Refusal(
            400,
            "send the answers to what the run waits for alone, and the next question after its response",
            param="input",
        )


def _read_asked(body: ResponsesRequest, messages: Sequence[Message]) -> Asked:
    return Asked(
        messages,
        model=body.model,
        system=body.instructions or "",
        options=Options(
            tool_choice=read_choice(body.tool_choice),
            parallel=body.parallel_tool_calls,
            max_tokens=body.max_output_tokens,
            temperature=body.temperature,
            stream=True,
        ),
        output=_read_form(body.text),
        tools=[_describe(tool) for tool in body.tools or ()],
        digest=digest_of(body),
    )


def _is_output(item: Mapping[str, Json]) -> bool:
    return item.get("type") in _OUTPUT_ITEMS or item.get("role") == "assistant"


def _read_word(item: Mapping[str, Json]) -> tuple[tuple[str, str], Word] | None:
    """Return an answer to what a run waits for, by its run and question; None for another item."""
    match item:
        case {"type": "mcp_approval_response", "approval_request_id": str(ticket)}:
            granted = item.get("approve")
            if not isinstance(granted, bool):
                raise Refusal(400, "`approve` is true or false", param="input")
            place = read_ticket(ticket)
            if place is None:
                raise Refusal(
                    404, "there is no such approval request of yours", param="input"
                )
            reason = str(item.get("reason") or "")
            return place, Word(place[1], granted, reason)
        case {"type": "function_call_output", "call_id": str(ticket)}:
            place = read_ticket(ticket)
            if place is not None:
                return place, Word(place[1], value=_text_of(item.get("output")))
    return None


def _text_of(output: Json) -> Json:
    if not isinstance(output, list):
        return output
    return "".join(
        str(part.get("text", "")) for part in output if isinstance(part, Mapping)
    )


def _messages(items: Sequence[Mapping[str, Json]]) -> list[Message]:
    try:
        return parse_request({"input": list(_plain_items(items))})[0]
    except ConfigError as error:
        raise Refusal(400, f"`input`: {error}", param="input") from error


def _plain_items(items: Sequence[Mapping[str, Json]]) -> Iterator[dict[str, Json]]:
    """Yield items with those members alone that are read here; a call of ours is a function's to a model."""
    for item in items:
        kind = item.get("type") or "message"
        if kind in _IGNORED_ITEMS or kind == "mcp_approval_response":
            continue
        if kind == "message":
            role = item.get("role")
            if role not in _ROLES:
                raise Refusal(
                    400,
                    f"`input`: a message has the role {str(role)[:100]!r}; it is one of {', '.join(_ROLES)}",
                    param="input",
                )
            yield {"type": kind, "role": role, "content": item.get("content")}
        elif kind in ("function_call", "mcp_call"):
            call_id = str(item.get("call_id") or item.get("id") or "")
            yield {
                "type": "function_call",
                "call_id": call_id,
                "name": str(item.get("name") or ""),
                "arguments": str(item.get("arguments") or "{}"),
            }
            if kind == "mcp_call":
                output = str(item.get("output") or "")
                yield {
                    "type": "function_call_output",
                    "call_id": call_id,
                    "output": output,
                }
        elif kind == "function_call_output":
            yield {
                "type": kind,
                "call_id": str(item.get("call_id") or ""),
                "output": item.get("output"),
            }
        else:
            raise Refusal(
                400,
                f"an item of the type {str(kind)[:100]!r} is not served here",
                param="input",
            )


def _describe(tool: Mapping[str, Json]) -> CallerTool:
    match tool:
        case {"type": "function", "name": str(name)}:
            parameters = tool.get("parameters")
            if parameters is not None and not isinstance(parameters, dict):
                raise Refusal(
                    400, "`parameters` of a tool is a JSON Schema", param="tools"
                )
            return CallerTool(name, str(tool.get("description") or ""), parameters)
    kind = str(tool.get("type"))[:100]
    raise Refusal(
        400,
        f"a tool of the type {kind!r} cannot be sent here; send functions with a name",
        param="tools",
    )


def _read_form(text: Mapping[str, Json] | None) -> Json:
    """Return the JSON Schema of the answer; None for text."""
    form = None if text is None else text.get("format")
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
    raise Refusal(
        400, "`text.format` is text, or a json_schema with its schema", param="text"
    )
