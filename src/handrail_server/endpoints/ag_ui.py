"""AG-UI 1.0: `POST /agui`, for front ends that show an agent at work.

Each request is a run, or goes on with one. A call that waits for a person ends the request as an interrupt, which the
next one answers in `resume`: `{"approved": true}`, perhaps with other `arguments`, or `{"approved": false, "reason"}`.
A call of the front end's own tool is sent like any other, without a result; the front end sends that as a message of
the role `tool`. What the protocol has no event for is sent as one of type CUSTOM, whose name begins with `handrail.`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from secrets import token_hex
from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from handrail.calls import ToolCall
from handrail.errors import ConfigError, Json
from handrail.invisible import json_text, printable
from handrail.messages import Message, Options, SystemMessage, conversation_of
from handrail.runs import Run
from handrail_server.endpoints.caller_tools import CallerTool, RecordedCall
from handrail_server.endpoints.driving import Asked, Door, Requester, RunAnswer, Word
from handrail_server.endpoints.refusals import Refusal, read_error
from handrail_server.endpoints.serving import (
    Identify,
    digest_of,
    event,
    read_body,
    start,
    stream,
)
from handrail_server.endpoints.steps import (
    AttemptMissed,
    BrokenOff,
    CallEnded,
    CallStarted,
    CallWaits,
    Ended,
    Step,
    TextPart,
    WordsEnded,
    read_ticket,
)

RESPONSE_SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["approved"],
}
"""The payload that answers an interrupt."""


# ---------------------------------------------------------------------- what is read


class UiMessage(Struct, frozen=True, rename="camel"):
    """One message."""

    role: Literal[
        "system", "developer", "user", "assistant", "tool", "activity", "reasoning"
    ]
    content: str | list[dict[str, Json]] | dict[str, Json] | None = None
    tool_calls: list[RecordedCall] | None = None
    tool_call_id: str | None = None


class UiTool(Struct, frozen=True):
    """A tool of the front end."""

    name: str
    description: str = ""
    parameters: dict[str, Json] | None = None


class AgentContext(Struct, frozen=True):
    """Something that the front end tells the model."""

    description: str
    value: str


class Resumption(Struct, frozen=True, rename="camel"):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Json = None


class AgentInput(Struct, frozen=True, rename="camel"):
    """A request. What it has beyond this changes nothing."""

    thread_id: str
    run_id: str
    messages: list[UiMessage] = []
    tools: list[UiTool] = []
    context: list[AgentContext] = []
    resume: list[Resumption] | None = None


def _read_words(body: AgentInput) -> dict[tuple[str, str], Word]:
    """Return the answers to what a run waits for, by run and question."""
    words = dict(_read_resumption(each) for each in body.resume or ())
    for message in reversed(body.messages):
        if message.role != "tool":
            break
        place = read_ticket(message.tool_call_id or "")
        if place is not None:
            words.setdefault(place, Word(place[1], value=message.content))
    return words


def _read_resumption(resumption: Resumption) -> tuple[tuple[str, str], Word]:
    place = read_ticket(resumption.interrupt_id)
    if place is None:
        raise Refusal(404, "there is no such interrupt of yours", param="resume")
    if resumption.status == "cancelled":
        return place, Word(place[1], False, "the question was dismissed")
    match resumption.payload:
        case {"approved": bool(granted)} as payload:
            reason = str(payload.get("reason") or "")
            arguments = payload.get("arguments")
            if arguments is not None and not isinstance(arguments, dict):
                raise Refusal(400, "`arguments` is an object", param="resume")
            return place, Word(place[1], granted, reason, arguments)
    raise Refusal(
        400, 'the payload of an answer is {"approved": true} or false', param="resume"
    )


def _messages(body: AgentInput) -> list[Message]:
    try:
        messages = conversation_of(list(_plain_messages(body.messages)))
    except ConfigError as error:
        raise Refusal(400, f"`messages`: {error}", param="messages") from error
    if not messages:
        raise Refusal(400, "`messages` is empty", param="messages")
    if body.context:
        lines = [f"{each.description}: {each.value}" for each in body.context]
        return [SystemMessage("\n".join(["The front end says:", *lines])), *messages]
    return messages


def _plain_messages(messages: Sequence[UiMessage]) -> Iterator[dict[str, Json]]:
    """Yield messages in the chat form, without those that are for people alone."""
    for message in messages:
        if message.role in ("activity", "reasoning"):
            continue
        content: Json = message.content
        if isinstance(content, list):
            content = [_chat_part(part) for part in content]
        elif isinstance(content, dict):
            raise Refusal(400, "the content of a message is text, or a list of parts")
        plain: dict[str, Json] = {"role": message.role, "content": content}
        if message.tool_calls:
            plain["tool_calls"] = [call.as_json() for call in message.tool_calls]
        if message.role == "tool":
            plain["tool_call_id"] = message.tool_call_id or ""
        yield plain


def _chat_part(part: Mapping[str, Json]) -> dict[str, Json]:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "source": {"type": "url", "value": str(url)}}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {
            "type": "image",
            "source": {"type": "data", "value": str(data), "mimeType": str(kind)},
        }:
            url = f"data:{kind};base64,{data}"
            return {"type": "image_url", "image_url": {"url": url}}
    raise Refusal(
        400,
        f"a part of the type {str(part.get('type'))[:100]!r} is not served here; send text and images",
        param="messages",
    )


# ---------------------------------------------------------------------- what is written


class UiWriter:
    """Writes a run as events of AG-UI."""

    def __init__(self, body: AgentInput, answer: RunAnswer) -> None:
        self._ids = {"threadId": body.thread_id, "runId": body.run_id}
        self._run_id = answer.run_id
        self._prefix = f"m_{token_hex(6)}"
        self._turn = 0
        self._has_started = False
        self._message = ""
        """The id of the message that is being written."""
        self._under_way: set[str] = set()
        self._waiting: list[CallWaits] = []

    def write(self, step: Step) -> list[str]:
        """Return the events of a step."""
        events: list[dict[str, Json]] = []
        if not self._has_started:
            self._has_started = True
            events = [
                {"type": "RUN_STARTED", **self._ids},
                _custom("handrail.run", {"runId": self._run_id}),
            ]
        events += self._events(step)
        return [event(each) for each in events]

    def _events(self, step: Step) -> list[dict[str, Json]]:
        match step:
            case TextPart(text=text):
                return self._say(text)
            case WordsEnded():
                self._turn += 1
                return self._end_text()
            case CallStarted(id=id, call=call):
                return self._start_call(id, call, call.arguments)
            case AttemptMissed(id=id, attempt=attempt, retry_in_s=retry_in_s):
                value = {
                    "toolCallId": id,
                    "attempt": attempt,
                    "retryInSeconds": retry_in_s,
                }
                return [_custom("handrail.attempt", value)]
            case CallEnded(id=id, call=call, result=result):
                events = self._start_call(id, call, call.arguments)
                return [*events, _result(f"{self._prefix}_{id}", id, result.text)]
            case CallWaits():
                return self._wait(step)
            case BrokenOff(error=error):
                refusal = read_error(error)
                return [*self._end_text(), _error(refusal.message, refusal.code)]
            case Ended(run=run):
                return [*self._end_text(), self._finish(run)]
        return []

    def _say(self, text: str) -> list[dict[str, Json]]:
        events: list[dict[str, Json]] = []
        if not self._message:
            self._message = f"{self._prefix}_{self._turn + 1}"
            events.append(
                {
                    "type": "TEXT_MESSAGE_START",
                    "messageId": self._message,
                    "role": "assistant",
                }
            )
        content = {
            "type": "TEXT_MESSAGE_CONTENT",
            "messageId": self._message,
            "delta": text,
        }
        return [*events, content]

    def _end_text(self) -> list[dict[str, Json]]:
        if not self._message:
            return []
        ended = {"type": "TEXT_MESSAGE_END", "messageId": self._message}
        self._message = ""
        return [ended]

    def _start_call(
        self, id: str, call: ToolCall, arguments: str
    ) -> list[dict[str, Json]]:
        """Return the events of a call, unless they were sent: by this answer, or by the one where it had to wait."""
        if id in self._under_way or read_ticket(id) is not None:
            return []
        self._under_way.add(id)
        return self._describe_call(id, call.name, arguments)

    def _describe_call(
        self, id: str, name: str, arguments: str
    ) -> list[dict[str, Json]]:
        return [
            {
                "type": "TOOL_CALL_START",
                "toolCallId": id,
                "toolCallName": name,
                "parentMessageId": f"{self._prefix}_{self._turn}",
            },
            {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments},
            {"type": "TOOL_CALL_END", "toolCallId": id},
        ]

    def _wait(self, waits: CallWaits) -> list[dict[str, Json]]:
        if not waits.is_callers:
            self._waiting.append(waits)
        if waits.is_old:
            return []
        arguments = json_text(waits.question.arguments)
        return self._describe_call(waits.ticket, waits.call.name, arguments)

    def _finish(self, run: Run) -> dict[str, Json]:
        finished = {"type": "RUN_FINISHED", **self._ids}
        if run.status == "waiting" and self._waiting:
            interrupts = [_interrupt(each) for each in self._waiting]
            outcome = {"type": "interrupt", "interrupts": interrupts}
            return {**finished, "outcome": outcome}
        if run.status in ("done", "waiting"):
            return {**finished, "outcome": {"type": "success"}}
        message = f"the run ended without an answer ({run.status}): {run.reason}"
        return _error(message, f"run_{run.status}")


def _interrupt(waits: CallWaits) -> dict[str, Json]:
    asked = waits.question
    if asked.awaits_result:
        message = f"{printable(asked.tool)} waits for its result"
    else:
        message = f"{printable(asked.tool)} wants to run (risk {asked.risk}: {printable(asked.reason)})"
    return {
        "id": waits.ticket,
        "reason": "tool_call",
        "message": message,
        "toolCallId": waits.ticket,
        "responseSchema": RESPONSE_SCHEMA,
    }


def _result(message_id: str, call_id: str, text: str) -> dict[str, Json]:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": message_id,
        "toolCallId": call_id,
        "content": text,
        "role": "tool",
    }


def _custom(name: str, value: Json) -> dict[str, Json]:
    return {"type": "CUSTOM", "name": name, "value": value}


def _error(message: str, code: str | None) -> dict[str, Json]:
    return {"type": "RUN_ERROR", "message": message, "code": code or "error"}


# ---------------------------------------------------------------------- serving


class UiEndpoint:
    """Serves AG-UI.

    Args:
        door: Its first model is the one that is asked.
    """

    def __init__(self, door: Door, identify: Identify) -> None:
        self._door = door
        self._identify = identify

    async def run(self, request: Request) -> Response:
        """Answer `POST /agui`."""
        caller = self._identify(request)
        body = await read_body(request, AgentInput)
        answer = self._begin(request, caller, body)
        await start(request, answer)
        return stream(answer, UiWriter(body, answer).write, headers={})

    def _begin(
        self, request: Request, caller: Requester, body: AgentInput
    ) -> RunAnswer:
        words = _read_words(body)
        run_ids = {run_id for run_id, _ in words}
        if len(run_ids) > 1:
            raise Refusal(400, "the answers are to several runs; send one run's")
        asked = Asked(
            () if words else _messages(body),
            options=Options(stream=True),
            tools=[
                CallerTool(each.name, each.description, each.parameters)
                for each in body.tools
            ],
            digest=digest_of(body),
        )
        if words:
            return self._door.answer(caller, run_ids.pop(), list(words.values()), asked)
        key = request.headers.get("idempotency-key", "")
        # The protocol names each run, so that the same request sent twice is one. Whoever stops it hangs up.
        own = sha256(f"{body.thread_id}\n{body.run_id}".encode()).hexdigest()
        return self._door.begin(
            caller, asked, key=key or own, door="agui", is_detached=bool(key)
        )
