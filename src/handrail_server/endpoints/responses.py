"""OpenAI's Responses: `POST /v1/responses`, whole and streamed.

Each request is a run, or goes on with one. Our tools run here: a call of one is an `mcp_call` item with what the model
read. A call that waits for a person is an `mcp_approval_request`, which the next request answers by an
`mcp_approval_response`. A call of the caller's own tool is a `function_call`, whose output comes with the next request.

Rule 1: a call that may have taken effect is never reported as failed: it is `incomplete`, and its error says so.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from handrail.calls import ToolCall, ToolResult
from handrail.errors import Code, Json
from handrail.invisible import json_text
from handrail.runs import Run
from handrail.surroundings.clock import unix_time
from handrail_server.endpoints.driving import Door, RunAnswer
from handrail_server.endpoints.refusals import read_error
from handrail_server.endpoints.responses_request import (
    ResponsesRequest,
    TurnPlace,
    read_request,
)
from handrail_server.endpoints.serving import (
    RUN_HEADER,
    Identify,
    answer_json,
    collect,
    event,
    is_retry,
    read_body,
    start,
    stream,
)
from handrail_server.endpoints.steps import (
    BrokenOff,
    CallEnded,
    CallStarted,
    CallWaits,
    Ended,
    Started,
    Step,
    TextPart,
    WordsEnded,
    read_ticket,
)

LABEL = "handrail"
"""`server_label` of our calls."""

_IN_DOUBT = frozenset({Code.IN_DOUBT, Code.IN_PROGRESS})
"""Failures of calls that may have taken effect all the same."""

Item = dict[str, Json]


class ResponseWriter:
    """Writes a run as one response: whole, or in events."""

    def __init__(
        self, place: TurnPlace, model: str, body: ResponsesRequest, door: Door
    ) -> None:
        self._id = place.response_id
        self._head = _head(place, model, body, door)
        self._output: list[Item] = []
        self._places: dict[str, int] = {}
        """The position of each item, by its own id."""
        self._text: Item | None = None
        """The message that is being written."""
        self._calls: dict[str, int] = {}
        """The position of the item of each call under way, by the call's id."""
        self._number = 0
        self._has_started = False
        self._ended: Ended | None = None

    # ------------------------------------------------------------------ whole

    def take(self, step: Step) -> None:
        """Take a step of the run.

        Raises:
            Refusal: The run could not be driven to an end.
        """
        if isinstance(step, BrokenOff):
            raise read_error(step.error)
        self._events(step)

    def whole(self) -> dict[str, Json]:
        """Return the response, once the run has ended."""
        assert self._ended is not None
        usage = self._ended.usage
        return {
            **self._head,
            **_ending(self._ended.run),
            "output": self._output,
            "usage": {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {
                    "cached_tokens": usage.cached_tokens,
                    "cache_write_tokens": usage.cache_written_tokens,
                },
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
                "total_tokens": usage.input_tokens + usage.output_tokens,
            },
        }

    # ------------------------------------------------------------------ streamed

    def write(self, step: Step) -> list[str]:
        """Return the events of a step."""
        events: list[Item] = []
        if not self._has_started:
            self._has_started = True
            head = {**self._head, "status": "in_progress"}
            events = [
                {"type": "response.created", "response": head},
                {"type": "response.in_progress", "response": head},
            ]
        if isinstance(step, BrokenOff):
            refusal = read_error(step.error)
            error = {"code": "server_error", "message": refusal.message}
            failed = {**self._head, "status": "failed", "error": error}
            events.append(
                {
                    "type": "response.failed",
                    "response": {**failed, "output": self._output},
                }
            )
        else:
            events += self._events(step)
        if isinstance(step, Ended):
            whole = self.whole()
            events.append({"type": f"response.{whole['status']}", "response": whole})
        return [self._write_numbered(each) for each in events]

    def _write_numbered(self, data: Item) -> str:
        number = self._number
        self._number += 1
        return event({**data, "sequence_number": number}, data["type"])

    def _events(self, step: Step) -> list[Item]:
        match step:
            case Started():
                return []
            case TextPart(text=text):
                return self._say(text)
            case WordsEnded():
                return self._end_text()
            case CallStarted(id=id, call=call):
                return self._start_call(id, call)
            case CallEnded(id=id, call=call, result=result):
                return self._end_call(id, call, result)
            case CallWaits():
                return self._wait(step)
            case Ended():
                events = self._end_text()
                self._ended = step
                return events
        return []

    def _say(self, text: str) -> list[Item]:
        events: list[Item] = []
        if self._text is None:
            self._text = {
                "id": self._item_id("msg"),
                "type": "message",
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
            self._add(self._text)
            events = [
                self._of_item("output_item.added", self._text),
                {
                    **self._of_text("content_part.added"),
                    "part": _text_part(""),
                },
            ]
            self._text["content"] = [_text_part("")]
        part = self._text["content"][0]
        part["text"] += text
        events.append(
            {**self._of_text("output_text.delta"), "delta": text, "logprobs": []}
        )
        return events

    def _end_text(self) -> list[Item]:
        if self._text is None:
            return []
        item = self._text
        item["status"] = "completed"
        part = item["content"][0]
        events = [
            {
                **self._of_text("output_text.done"),
                "text": part["text"],
                "logprobs": [],
            },
            {**self._of_text("content_part.done"), "part": part},
            self._of_item("output_item.done", item),
        ]
        self._text = None
        return events

    def _of_text(self, name: str) -> Item:
        assert self._text is not None
        return {
            "type": f"response.{name}",
            "item_id": self._text["id"],
            "output_index": self._places[self._text["id"]],
            "content_index": 0,
        }

    def _start_call(self, id: str, call: ToolCall) -> list[Item]:
        item: Item = {
            "id": self._item_id("mcp"),
            "type": "mcp_call",
            "status": "in_progress",
            "server_label": LABEL,
            "name": call.name,
            "arguments": call.arguments,
            "output": None,
            "error": None,
            "approval_request_id": id if read_ticket(id) else None,
        }
        self._calls[id] = len(self._output)
        self._add(item)
        place = self._of_call(item)
        return [
            self._of_item("output_item.added", {**item, "arguments": ""}),
            {**place, "type": "response.mcp_call.in_progress"},
            {
                **place,
                "type": "response.mcp_call_arguments.delta",
                "delta": call.arguments,
            },
            {
                **place,
                "type": "response.mcp_call_arguments.done",
                "arguments": call.arguments,
            },
        ]

    def _end_call(self, id: str, call: ToolCall, result: ToolResult) -> list[Item]:
        events: list[Item] = []
        if id not in self._calls:
            events = self._start_call(id, call)
        item = self._output[self._calls[id]]
        failure = result.failure
        if failure is None:
            item["status"] = "completed"
        elif failure.code in _IN_DOUBT:
            item["status"] = "incomplete"
        else:
            item["status"] = "failed"
        if failure is not None:
            item["error"] = {
                "type": "mcp_tool_execution_error",
                "content": [{"type": "text", "text": result.text}],
            }
        else:
            item["output"] = result.text
        word = "completed" if failure is None else "failed"
        events.append({**self._of_call(item), "type": f"response.mcp_call.{word}"})
        events.append(self._of_item("output_item.done", item))
        return events

    def _of_call(self, item: Item) -> Item:
        return {"item_id": item["id"], "output_index": self._places[item["id"]]}

    def _wait(self, waits: CallWaits) -> list[Item]:
        arguments = json_text(waits.question.arguments)
        if waits.is_callers:
            item: Item = {
                "id": f"fc_{waits.ticket}",
                "type": "function_call",
                "status": "completed",
                "call_id": waits.ticket,
                "name": waits.call.name,
                "arguments": arguments,
            }
        elif waits.question.awaits_result:
            # one of ours, whose result comes to the server in another way
            return []
        else:
            item = {
                "id": waits.ticket,
                "type": "mcp_approval_request",
                "server_label": LABEL,
                "name": waits.call.name,
                "arguments": arguments,
            }
        self._add(item)
        blank = item
        events = []
        if waits.is_callers:
            blank = {**item, "status": "in_progress", "arguments": ""}
            place = self._of_call(item)
            kind = "response.function_call_arguments"
            events = [
                {**place, "type": f"{kind}.delta", "delta": arguments},
                {
                    **place,
                    "type": f"{kind}.done",
                    "arguments": arguments,
                    "name": waits.call.name,
                },
            ]
        return [
            self._of_item("output_item.added", blank),
            *events,
            self._of_item("output_item.done", item),
        ]

    def _of_item(self, name: str, item: Item) -> Item:
        return {
            "type": f"response.{name}",
            "output_index": self._places[item["id"]],
            # as it is now: it is written on after the event is made
            "item": {**item, "content": list(item["content"])}
            if "content" in item
            else dict(item),
        }

    def _add(self, item: Item) -> None:
        self._places[item["id"]] = len(self._output)
        self._output.append(item)

    def _item_id(self, kind: str) -> str:
        return f"{kind}_{self._id.removeprefix('resp_')}_{len(self._output)}"


def _text_part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _head(
    place: TurnPlace, model: str, body: ResponsesRequest, door: Door
) -> dict[str, Json]:
    return {
        "id": place.response_id,
        "object": "response",
        "created_at": int(unix_time()),
        "model": model or next(iter(door.models)),
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "metadata": body.metadata or {},
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "temperature": body.temperature,
        "top_p": None,
        "max_output_tokens": body.max_output_tokens,
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "text": body.text or {"format": {"type": "text"}},
        "usage": None,
    }


def _ending(run: Run) -> dict[str, Json]:
    """Return the members that say how a run ended. A run that waits has a complete answer for now."""
    match run.status:
        case "done" | "waiting":
            return {"status": "completed"}
        case "cut" | "budget":
            details = {"reason": "max_output_tokens"}
            return {"status": "incomplete", "incomplete_details": details}
        case "refused":
            details = {"reason": "content_filter"}
            return {"status": "incomplete", "incomplete_details": details}
    message = f"the run ended without an answer ({run.status}): {run.reason}"
    return {
        "status": "failed",
        "error": {"code": "server_error", "message": message},
    }


class ResponsesEndpoint:
    """Serves Responses."""

    def __init__(self, door: Door, identify: Identify) -> None:
        self._door = door
        self._identify = identify

    async def respond(self, request: Request) -> Response:
        """Answer `POST /v1/responses`."""
        caller = self._identify(request)
        body = await read_body(request, ResponsesRequest)
        turned = read_request(body)
        key = request.headers.get("idempotency-key", "")
        if turned.words:
            rounds = await self._door.count_rounds(caller, turned.run_id)
            stage = 0 if turned.before is None else turned.before.stage
            place = TurnPlace(turned.run_id, rounds, stage + 1)
            answer = self._door.answer(
                caller, turned.run_id, turned.words, turned.asked
            )
        elif turned.before is not None:
            rounds = turned.before.rounds
            place = TurnPlace(turned.run_id, rounds + 1)
            answer = self._door.ask_next(
                caller, turned.run_id, rounds, turned.asked, key=key
            )
        else:
            answer = self._door.begin(
                caller,
                turned.asked,
                key=key,
                door="responses",
                is_retry=is_retry(request),
            )
            place = TurnPlace(answer.run_id)
        return await self._send(request, answer, place, body)

    async def _send(
        self,
        request: Request,
        answer: RunAnswer,
        place: TurnPlace,
        body: ResponsesRequest,
    ) -> Response:
        await start(request, answer)
        writer = ResponseWriter(place, body.model, body, self._door)
        if body.stream:
            return stream(answer, writer.write, headers={})
        await collect(request, answer, writer.take)
        return answer_json(writer.whole(), headers={RUN_HEADER: answer.run_id})
