"""The UI message stream of Vercel's AI SDK: `POST /v1/ui-messages`, for front ends made with `useChat`.

Each request is a run, or goes on with one whose call waits for a person: the last message then holds their word, as
`addToolApprovalResponse` puts it there. Tools of the front end are not part of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from handrail.calls import ToolCall, ToolResult
from handrail.errors import Code, Json
from handrail.messages import (
    AssistantMessage,
    Message,
    Options,
    SystemMessage,
    Turn,
    UserMessage,
)
from handrail.parsing import jsontext
from handrail.runs import Run
from handrail_server.endpoints.driving import Asked, Door, RunAnswer, Word
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


class ShownMessage(Struct, frozen=True):
    """One message as the front end has it."""

    role: Literal["system", "user", "assistant"]
    parts: list[dict[str, Json]] = []
    id: str = ""


class ChatState(Struct, frozen=True):
    """A request. What it has beyond this changes nothing."""

    messages: list[ShownMessage]
    id: str = ""


def read_words(messages: Sequence[ShownMessage]) -> dict[tuple[str, str], Word]:
    """Return people's decisions on calls from the last message, by run and question."""
    words: dict[tuple[str, str], Word] = {}
    if not messages or messages[-1].role != "assistant":
        return words
    for part in messages[-1].parts:
        match part:
            case {
                "state": "approval-responded",
                "approval": {"id": str(ticket), "approved": bool(granted)} as approval,
            }:
                place = read_ticket(ticket)
                if place is None:
                    raise Refusal(404, "there is no such approval request of yours")
                reason = str(approval.get("reason") or "")
                words[place] = Word(place[1], granted, reason)
    return words


def read_history(messages: Sequence[ShownMessage]) -> list[Message]:
    """Return the words of a conversation.

    Raises:
        Refusal: It has none, or a part that is neither words nor a picture.
    """
    history: list[Message] = []
    for message in messages:
        parts = list(_chat_parts(message))
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        if message.role == "assistant":
            if text:
                history.append(AssistantMessage(Turn(text)))
        elif message.role == "system":
            history.append(SystemMessage(text))
        else:
            history.append(UserMessage(text, parts if len(parts) > 1 else ()))
    if not history:
        raise Refusal(400, "`messages` is empty", param="messages")
    return history


def _chat_parts(message: ShownMessage) -> Iterator[dict[str, Json]]:
    for part in message.parts:
        match part:
            case {"type": "text", "text": str(text)}:
                yield {"type": "text", "text": text}
            case {"type": "file", "mediaType": str(kind), "url": str(url)} if (
                kind.startswith("image/")
            ):
                yield {"type": "image_url", "image_url": {"url": url}}
            case {"type": str(kind)} if message.role == "user":
                raise Refusal(
                    400,
                    f"a part of the type {kind[:100]!r} is not served here; send text and images",
                    param="messages",
                )


class StreamWriter:
    """Writes a run as parts of a UI message stream.

    Args:
        message_id: Of the message to continue; empty for a new one.
    """

    def __init__(self, answer: RunAnswer, message_id: str = "") -> None:
        self._run_id = answer.run_id
        self._message_id = message_id
        self._has_started = False
        self._turn = 0
        self._text = ""
        """The id of the text that is being written."""
        self._under_way: set[str] = set()

    def write(self, step: Step) -> list[str]:
        """Return the events of a step."""
        parts: list[dict[str, Json]] = []
        if not self._has_started:
            self._has_started = True
            start: dict[str, Json] = {"type": "start"}
            if self._message_id:
                start["messageId"] = self._message_id
            run = {"type": "data-handrail-run", "data": {"runId": self._run_id}}
            parts = [start, {"type": "start-step"}, {**run, "transient": True}]
        parts += self._parts(step)
        events = [event(each) for each in parts]
        if isinstance(step, Ended | BrokenOff):
            events.append("data: [DONE]\n\n")
        return events

    def _parts(self, step: Step) -> list[dict[str, Json]]:
        match step:
            case TextPart(text=text):
                return self._say(text)
            case WordsEnded():
                self._turn += 1
                return self._end_text()
            case CallStarted(id=id, call=call):
                return self._start_call(id, call.name, call.arguments)
            case AttemptMissed(id=id, attempt=attempt):
                data = {"toolCallId": id, "attempt": attempt}
                return [
                    {
                        "type": "data-handrail-attempt",
                        "data": data,
                        "transient": True,
                    }
                ]
            case CallEnded(id=id, call=call, result=result):
                return [*self._start_call_once(id, call), _output(id, result)]
            case CallWaits():
                return self._wait(step)
            case BrokenOff(error=error):
                return [*self._end_text(), _error(read_error(error).message)]
            case Ended(run=run):
                return [*self._end_text(), *_finish(run)]
        return []

    def _say(self, text: str) -> list[dict[str, Json]]:
        parts: list[dict[str, Json]] = []
        if not self._text:
            self._text = f"t{self._turn + 1}"
            parts.append({"type": "text-start", "id": self._text})
        return [*parts, {"type": "text-delta", "id": self._text, "delta": text}]

    def _end_text(self) -> list[dict[str, Json]]:
        if not self._text:
            return []
        ended = {"type": "text-end", "id": self._text}
        self._text = ""
        return [ended]

    def _start_call_once(self, id: str, call: ToolCall) -> list[dict[str, Json]]:
        if id in self._under_way:
            return []
        return self._start_call(id, call.name, call.arguments)

    def _start_call(self, id: str, name: str, arguments: str) -> list[dict[str, Json]]:
        """Return the parts of a call, unless the message has it already because it had to wait."""
        self._under_way.add(id)
        if self._message_id and read_ticket(id) is not None:
            return []
        place = {"toolCallId": id, "toolName": name, "dynamic": True}
        return [
            {"type": "tool-input-start", **place},
            {
                "type": "tool-input-delta",
                "toolCallId": id,
                "inputTextDelta": arguments,
            },
            {
                "type": "tool-input-available",
                **place,
                "input": jsontext.loads(arguments),
            },
        ]

    def _wait(self, waits: CallWaits) -> list[dict[str, Json]]:
        if waits.is_old or waits.question.awaits_result:
            return []
        arguments = dict(waits.question.arguments)
        place = {
            "toolCallId": waits.ticket,
            "toolName": waits.call.name,
            "dynamic": True,
        }
        return [
            {"type": "tool-input-start", **place},
            {"type": "tool-input-available", **place, "input": arguments},
            {
                "type": "tool-approval-request",
                "approvalId": waits.ticket,
                "toolCallId": waits.ticket,
            },
        ]


def _output(id: str, result: ToolResult) -> dict[str, Json]:
    if result.failure is None:
        return {
            "type": "tool-output-available",
            "toolCallId": id,
            "output": result.text,
            "dynamic": True,
        }
    if result.failure.code == Code.NOT_APPROVED:
        return {"type": "tool-output-denied", "toolCallId": id}
    return {
        "type": "tool-output-error",
        "toolCallId": id,
        "errorText": result.text,
        "dynamic": True,
    }


def _finish(run: Run) -> list[dict[str, Json]]:
    ended: list[dict[str, Json]] = [{"type": "finish-step"}, {"type": "finish"}]
    if run.status in ("done", "waiting"):
        return ended
    message = f"the run ended without an answer ({run.status}): {run.reason}"
    return [_error(message), *ended]


def _error(message: str) -> dict[str, Json]:
    return {"type": "error", "errorText": message}


class UiMessagesEndpoint:
    """Serves the UI message stream.

    Args:
        door: Its first model is the one that is asked.
    """

    def __init__(self, door: Door, identify: Identify) -> None:
        self._door = door
        self._identify = identify

    async def chat(self, request: Request) -> Response:
        """Answer `POST /v1/ui-messages`."""
        caller = self._identify(request)
        body = await read_body(request, ChatState)
        words = read_words(body.messages)
        run_ids = {run_id for run_id, _ in words}
        if len(run_ids) > 1:
            raise Refusal(400, "the answers are to several runs; send one run's")
        asked = Asked(
            () if words else read_history(body.messages),
            options=Options(stream=True),
            digest=digest_of(body),
        )
        if words:
            answer = self._door.answer(
                caller, run_ids.pop(), list(words.values()), asked
            )
        else:
            key = request.headers.get("idempotency-key", "")
            answer = self._door.begin(caller, asked, key=key, door="ui-messages")
        await start(request, answer)
        message_id = body.messages[-1].id if words else ""
        headers: Mapping[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}
        return stream(answer, StreamWriter(answer, message_id).write, headers=headers)
