"""OpenAI's Chat Completions: `POST /v1/chat/completions` and `GET /v1/models`.

Each request is a run. Our tools run within it, and the client gets the model's text. A client executes whatever it
finds in `tool_calls`, so only calls of its own tools appear there; it sends their results with the next request, which
continues the run. A call that waits for approval is reported as text.

Rule 1: a call of ours never appears as `tool_calls`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from handrail.approvers.arguments import in_short, warnings
from handrail.errors import ConfigError, Json
from handrail.invisible import json_text, printable
from handrail.messages import Message, Options, conversation_of
from handrail.runs import Run
from handrail.surroundings.clock import unix_time
from handrail_server.endpoints.caller_tools import CallerTool, RecordedCall
from handrail_server.endpoints.driving import Asked, Door, Requester, RunAnswer, Word
from handrail_server.endpoints.refusals import Refusal, read_error
from handrail_server.endpoints.serving import (
    RUN_HEADER,
    Identify,
    answer_json,
    collect,
    digest_of,
    event,
    is_retry,
    read_body,
    start,
    stream,
)
from handrail_server.endpoints.steps import (
    BrokenOff,
    CallWaits,
    Ended,
    Step,
    TextPart,
    WordsEnded,
    read_ticket,
)

Link = Callable[[Request, str], str]
"""Returns where a person can look at a run, for one request; empty for nowhere."""

_WAITS = re.compile(r"\[handrail: the run (r_[0-9a-f]{32}) waits\]\s*$")
"""How a text ends that says what a run waits for: the client sends it back with its next message."""


# ---------------------------------------------------------------------- what is read


class ChatFunction(Struct, frozen=True):
    """A function of the caller's."""

    name: str
    description: str | None = None
    parameters: dict[str, Json] | None = None


class Tool(Struct, frozen=True):
    """A tool of the caller's."""

    type: str
    function: ChatFunction | None = None


class ChatMessage(Struct, frozen=True):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Json]] | None = None
    name: str | None = None
    tool_calls: list[RecordedCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None


class ChatRequest(Struct, frozen=True):
    """A request. What it has beyond this changes nothing."""

    messages: list[ChatMessage]
    model: str = ""
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Json] | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: dict[str, Json] | None = None
    stream: bool | None = None
    stream_options: dict[str, Json] | None = None
    n: int | None = None
    functions: list[Json] | None = None
    logprobs: bool | None = None
    audio: Json = None


def _read(body: ChatRequest) -> Asked:
    if not body.messages:
        raise Refusal(400, "`messages` is empty", param="messages")
    for name in ("functions", "logprobs", "audio"):
        if getattr(body, name):
            raise Refusal(400, f"`{name}` is not served here; leave it out", param=name)
    if body.n not in (None, 1):
        raise Refusal(400, "`n` is 1 here: one request is one run", param="n")
    return Asked(
        [],
        model=body.model,
        options=Options(
            tool_choice=read_choice(body.tool_choice),
            parallel=body.parallel_tool_calls,
            max_tokens=body.max_completion_tokens or body.max_tokens,
            temperature=body.temperature,
            stream=True,
        ),
        output=_read_form(body.response_format),
        tools=[_describe(tool) for tool in body.tools or ()],
        digest=digest_of(body),
    )


def _describe(tool: Tool) -> CallerTool:
    if tool.type != "function" or tool.function is None:
        raise Refusal(
            400,
            f"a tool of the type {tool.type[:100]!r} cannot be sent here; send functions",
            param="tools",
        )
    function = tool.function
    return CallerTool(function.name, function.description or "", function.parameters)


def read_choice(choice: str | dict[str, Json] | None) -> str:
    """Return a `tool_choice` as options have it.

    Raises:
        Refusal: It demands a call; a run has many turns, and it does not say in which.
    """
    if choice in (None, "auto"):
        return "auto"
    if choice == "none":
        return "none"
    raise Refusal(
        400,
        "`tool_choice` is 'auto' or 'none' here: a run has many turns, and would be held to the call in each",
        param="tool_choice",
    )


def _read_form(form: Mapping[str, Json] | None) -> Json:
    """Return the JSON Schema of the answer; None for text."""
    kind = None if form is None else form.get("type")
    if kind in (None, "text"):
        return None
    described = form.get("json_schema") if form is not None else None
    schema = described.get("schema") if isinstance(described, Mapping) else None
    if kind == "json_schema" and isinstance(schema, Mapping):
        return schema
    raise Refusal(
        400,
        "`response_format` is text, or a json_schema with its schema",
        param="response_format",
    )


def _history(messages: Sequence[ChatMessage]) -> list[Message]:
    try:
        return conversation_of([_plain(message) for message in messages])
    except ConfigError as error:
        raise Refusal(400, f"`messages`: {error}", param="messages") from error


def _plain(message: ChatMessage) -> dict[str, Json]:
    """Return a message with those members alone that are read here."""
    plain: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.role == "assistant" and message.tool_calls:
        plain["tool_calls"] = [call.as_json() for call in message.tool_calls]
    if message.role == "tool":
        plain["tool_call_id"] = message.tool_call_id or ""
        if message.name:
            plain["name"] = message.name
    return plain


class Reply(Struct, frozen=True):
    """What follows the last answer, where that answer waits for something.

    Attributes:
        words: Results of calls of the caller's.
        then: The other new messages, for the model.
    """

    run_id: str
    words: Sequence[Word]
    then: Sequence[Message]


def find_reply(messages: Sequence[ChatMessage]) -> Reply | None:
    """Return what the last messages say to a run that waits; None where they begin a run.

    Raises:
        Refusal: They hold results of calls of several runs.
    """
    last = max(
        (place for place, each in enumerate(messages) if each.role == "assistant"),
        default=-1,
    )
    if last < 0:
        return None
    before = messages[last]
    after = messages[last + 1 :]
    tickets = [
        (ticket, each)
        for each in after
        if each.role == "tool" and (ticket := read_ticket(each.tool_call_id or ""))
    ]
    run_ids = {ticket[0] for ticket, _ in tickets}
    if len(run_ids) > 1:
        raise Refusal(400, "the results are for calls of several runs; send one run's")
    text = before.content if isinstance(before.content, str) else ""
    marked = _WAITS.search(text)
    if marked:
        run_ids.add(marked[1])
    if not run_ids:
        return None
    words = [Word(ticket[1], value=_text_of(each)) for ticket, each in tickets]
    then = [each for each in after if each.role == "user"]
    return Reply(run_ids.pop(), words, _history(then))


def _text_of(message: ChatMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(str(part.get("text", "")) for part in message.content or ())


# ---------------------------------------------------------------------- what is written


class ChatWriter:
    """Writes a run as one completion: whole, or in chunks.

    Args:
        link: Where a person can look at the run; empty for nowhere.
        usage: Whether a stream ends with the usage.
    """

    def __init__(
        self, answer: RunAnswer, model: str, *, link: str = "", usage: bool = False
    ) -> None:
        self._head = {
            "id": f"chatcmpl-{answer.run_id}",
            "created": int(unix_time()),
            "model": model,
        }
        self._run_id = answer.run_id
        self._link = link
        self._with_usage = usage
        self._text = ""
        self._is_apart = True
        """Whether the next text needs no blank line before it."""
        self._calls: list[dict[str, Json]] = []
        self._waiting: list[CallWaits] = []
        self._ended: Ended | None = None

    def take(self, step: Step) -> None:
        """Take a step of the run.

        Raises:
            Refusal: The run has failed.
        """
        self._pieces(step)

    def write(self, step: Step) -> list[str]:
        """Return the events of a step."""
        try:
            return [self._event(delta) for delta in self._pieces(step)] + self._last()
        except Refusal as refusal:
            return [event(refusal.as_json()), "data: [DONE]\n\n"]

    def whole(self) -> dict[str, Json]:
        """Return the completion, once the run has ended."""
        assert self._ended is not None
        message: dict[str, Json] = {
            "role": "assistant",
            "content": self._text or None,
            "refusal": None,
        }
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self._finish(self._ended.run),
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._usage(self._ended),
        }

    def _pieces(self, step: Step) -> list[dict[str, Json]]:
        match step:
            case TextPart(text=text):
                return self._say(text)
            case WordsEnded():
                self._is_apart = False
            case CallWaits(is_callers=True):
                return [self._call(step)]
            case CallWaits():
                self._waiting.append(step)
            case BrokenOff(error=error):
                raise read_error(error)
            case Ended(run=run):
                self._ended = step
                return self._end(run)
        return []

    def _say(self, text: str) -> list[dict[str, Json]]:
        if self._text and not self._is_apart:
            text = f"\n\n{text}"
        opening = {} if self._text else {"role": "assistant"}
        self._is_apart = True
        self._text += text
        return [{**opening, "content": text}]

    def _call(self, waits: CallWaits) -> dict[str, Json]:
        call: dict[str, Json] = {
            "id": waits.ticket,
            "type": "function",
            "function": {
                "name": waits.call.name,
                "arguments": json_text(waits.question.arguments),
            },
        }
        self._calls.append(call)
        return {
            "role": "assistant",
            "tool_calls": [{"index": len(self._calls) - 1, **call}],
        }

    def _end(self, run: Run) -> list[dict[str, Json]]:
        """Return the last parts: what the run waits for, or why it has no answer.

        Raises:
            Refusal: It has failed.
        """
        if run.status in ("failed", "cancelled", "moved"):
            raise refusal_of(run)
        self._is_apart = not self._text
        if run.status == "waiting" and (self._waiting or not self._calls):
            return self._say(self._describe_waiting(run))
        if run.status in ("stopped", "budget", "invalid"):
            return self._say(
                f"[handrail: the run ended without an answer: {printable(run.reason)}]"
            )
        return []

    def _describe_waiting(self, run: Run) -> str:
        lines = []
        for each in self._waiting:
            asked = each.question
            wants = (
                "waits for approval"
                if not asked.awaits_result
                else "waits for its result"
            )
            lines.append(
                f"`{printable(asked.tool)}` {wants} (risk {asked.risk}: {printable(asked.reason)})."
            )
            lines += [in_short(asked.arguments), *warnings(asked.arguments)]
            lines.append(f"Question {asked.id}; the call has not run.")
            if asked.barred:
                lines.append(
                    f"It must be approved by somebody else than {printable(asked.barred)}."
                )
        if not lines:
            lines.append(f"The run is {printable(run.reason)}.")
        if self._link:
            lines.append(f"Look at it and decide: {self._link}")
        lines.append("Once it is decided, send your next message to go on.")
        lines.append(f"[handrail: the run {self._run_id} waits]")
        return "\n".join(lines)

    def _finish(self, run: Run) -> str:
        if self._calls:
            return "tool_calls"
        if run.status in ("cut", "budget"):
            return "length"
        return "content_filter" if run.status == "refused" else "stop"

    def _last(self) -> list[str]:
        if self._ended is None:
            return []
        events = [self._event({}, self._finish(self._ended.run))]
        if self._with_usage:
            usage = self._usage(self._ended)
            head = {**self._head, "object": "chat.completion.chunk"}
            events.append(event({**head, "choices": [], "usage": usage}))
        return [*events, "data: [DONE]\n\n"]

    def _event(self, delta: Mapping[str, Json], finish: str | None = None) -> str:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish,
        }
        head = {**self._head, "object": "chat.completion.chunk"}
        return event({**head, "choices": [choice]})

    def _usage(self, ended: Ended) -> dict[str, Json]:
        usage = ended.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }


def refusal_of(run: Run) -> Refusal:
    """Return the error of a run that failed or was cancelled."""
    if run.status == "failed":
        return Refusal(502, f"the run failed: {run.reason}", code="run_failed")
    return Refusal(
        409, f"the run was {run.status}: {run.reason}", code=f"run_{run.status}"
    )


# ---------------------------------------------------------------------- serving


class ChatEndpoint:
    """Serves Chat Completions.

    Args:
        link: Where a person can look at a run.
    """

    def __init__(self, door: Door, identify: Identify, link: Link) -> None:
        self._door = door
        self._identify = identify
        self._link = link

    async def complete(self, request: Request) -> Response:
        """Answer `POST /v1/chat/completions`."""
        caller = self._identify(request)
        body = await read_body(request, ChatRequest)
        answer = await self._begin(request, caller, body)
        await start(request, answer)
        model = body.model or next(iter(self._door.models))
        options = body.stream_options or {}
        writer = ChatWriter(
            answer,
            model,
            link=self._link(request, answer.run_id),
            usage=bool(options.get("include_usage")),
        )
        if body.stream:
            return stream(answer, writer.write, headers={})
        await collect(request, answer, writer.take)
        return answer_json(writer.whole(), headers={RUN_HEADER: answer.run_id})

    async def _begin(
        self, request: Request, caller: Requester, body: ChatRequest
    ) -> RunAnswer:
        asked = _read(body)
        reply = find_reply(body.messages)
        # a text alone that names a run which is no more is a text
        if reply is not None and (
            reply.words or await self._door.can_go_on(caller, reply.run_id)
        ):
            then = _with_messages(asked, reply.then)
            return self._door.answer(caller, reply.run_id, reply.words, then)
        return self._door.begin(
            caller,
            _with_messages(asked, _history(body.messages)),
            key=request.headers.get("idempotency-key", ""),
            door="chat",
            is_retry=is_retry(request),
        )

    async def list_models(self, request: Request) -> Response:
        """Answer `GET /v1/models`."""
        self._identify(request)
        models = [_describe_model(name) for name in self._door.models]
        return answer_json({"object": "list", "data": models})

    async def show_model(self, request: Request) -> Response:
        """Answer `GET /v1/models/NAME`."""
        self._identify(request)
        name = unquote(request.path_params["name"])  # the guard keeps %2F
        if name not in self._door.models:
            raise Refusal(
                404,
                f"there is no model {name[:100]!r} here",
                param="model",
                code="model_not_found",
            )
        return answer_json(_describe_model(name))


def _describe_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "handrail"}


def _with_messages(asked: Asked, messages: Sequence[Message]) -> Asked:
    return replace(asked, messages=messages)
