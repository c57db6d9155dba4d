"""OpenAI Responses, and the servers that copy it: both ways, whole and streamed.

A conversation is a flat list of items here, and the provider would keep it if it were let. We let it not: every request
carries the whole conversation, so that a run can be resumed, forked or audited from our own record. What the model
thought comes along encrypted, and goes back as it came. `Options.extra` may say otherwise (`store`, `include`,
`previous_response_id`).

Rule 1: the items of an answer go back as they came and in their order. Of a call the name and the arguments are written
        again, because a history is always valid JSON.
Rule 2: nothing goes back that only the provider's store could look up: no reasoning that is neither encrypted nor plain
        text, no id where the API does not demand one. A message without an id is text.
Rule 3: only a stated end is an end: a stream without its last event, or a status nobody knows, is `error`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from mimetypes import guess_extension
from typing import ClassVar

from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import (
    Conversation,
    Envelope,
    ToolLike,
    json_bodies,
    provider_errors,
    received,
)
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.parts import (
    SOUNDS,
    Attachment,
    data_url,
    describe_hidden,
    parse_attachment,
)
from handrail.dialects.wires.base import BaseWire, check_choice, foreign
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.responses_items import (
    CALLS,
    OutputAssembler,
    OutputItem,
    TextPosition,
)
from handrail.dialects.wires.sse import ServerEvent
from handrail.dialects.writing import (
    as_collection,
    as_history,
    event,
    fit_to_send,
    in_call_order,
    name_map,
    pieces,
    result_text,
)
from handrail.errors import ConfigError, Json, ModelError
from handrail.messages import (
    AssistantMessage,
    Delta,
    Finish,
    Message,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
    conversation_of,
)
from handrail.ports import Described
from handrail.schemas.portability import NotPortable, for_openai_strict

NAMES = NameRule("a-zA-Z0-9_-", most_chars=64)
"""What OpenAI accepts as a function's name."""

_STATELESS: Mapping[str, Json] = {
    "store": False,
    "include": ["reasoning.encrypted_content"],
}
"""Said in every request: keep nothing, and give us the reasoning in a form that can come back."""

_FINISHES: Mapping[str, Finish] = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "refused",
}
"""By the reason why an answer is incomplete, or else by its status."""

_ENDINGS: Mapping[Finish, tuple[str, str]] = {
    "stop": ("completed", ""),
    "calls": ("completed", ""),
    "length": ("incomplete", "max_output_tokens"),
    "refused": ("incomplete", "content_filter"),
    "error": ("incomplete", ""),
}

_LAST_EVENTS: Mapping[str, str] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}


@dataclass(frozen=True, slots=True)
class _TextEvent:
    """An event with a text: the kind of its item, the position there, and the event's field that holds it."""

    item: str
    kind: str
    field: str


_PIECES: Mapping[str, _TextEvent] = {
    "response.output_text.delta": _TextEvent("message", "text", "delta"),
    "response.refusal.delta": _TextEvent("message", "refusal", "delta"),
    "response.reasoning_text.delta": _TextEvent("reasoning", "thought", "delta"),
    "response.reasoning_summary_text.delta": _TextEvent(
        "reasoning", "summary", "delta"
    ),
    "response.function_call_arguments.delta": _TextEvent(
        "function_call", "call", "delta"
    ),
    "response.custom_tool_call_input.delta": _TextEvent(
        "custom_tool_call", "call", "delta"
    ),
}
_WHOLES: Mapping[str, _TextEvent] = {
    "response.output_text.done": _TextEvent("message", "text", "text"),
    "response.refusal.done": _TextEvent("message", "refusal", "refusal"),
    "response.reasoning_text.done": _TextEvent("reasoning", "thought", "text"),
    "response.reasoning_summary_text.done": _TextEvent("reasoning", "summary", "text"),
    "response.function_call_arguments.done": _TextEvent(
        "function_call", "call", "arguments"
    ),
    "response.custom_tool_call_input.done": _TextEvent(
        "custom_tool_call", "call", "input"
    ),
}


@dataclass(frozen=True, slots=True)
class OpenAIResponses(BaseWire):
    """The dialect."""

    name: str = "openai-responses"
    history: ClassVar[str] = "input"

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the base address requests go."""
        return "/responses"

    # -- what we ask ---------------------------------------------------------------------------------------------------

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> dict[str, Json]:
        """Return the body of a request.

        A system message that comes first becomes `instructions`: some backends demand them, and unlike an item they
        are not repeated when `previous_response_id` continues what the provider has stored.

        Raises:
            ConfigError: `tool_choice` names a tool that is not among `tools`, or demands a call without any tools.
        """
        options = options or Options()
        tools = as_collection(tools)
        names = _name_map(tools)
        # What continues a conversation that the provider keeps is a part of one, and looks broken by itself.
        is_part = not {"previous_response_id", "conversation"}.isdisjoint(options.extra)
        history: Sequence[Message]
        if is_part:
            history = conversation_of(messages)
        else:
            history = fit_to_send(messages, tools)
        instructions = None
        if history and isinstance(history[0], SystemMessage):
            instructions = history[0].text
            history = history[1:]
        fields = {
            "model": options.model or None,
            "instructions": instructions,
            "max_output_tokens": options.max_tokens,
            "temperature": options.temperature,
            "stream": options.stream or None,
        }
        is_stored = bool(options.extra.get("store"))
        body: dict[str, Json] = {
            "input": _items(history, names, is_stored),
            **_STATELESS,
        }
        body |= {field: value for field, value in fields.items() if value is not None}
        return body | self._tool_fields(tools, names, options) | _with_form(options)

    def _tool_fields(
        self, tools: Collection[ToolLike], names: NameMap, options: Options
    ) -> dict[str, Json]:
        check_choice(options.tool_choice, tools, options.provider_tools)
        if not (tools or options.provider_tools):
            return {}
        defined = self.definitions(tools, strict=options.strict)
        if options.provider_tools:
            # The engineer may describe a tool of ours in the provider's own terms, such as one that takes free text.
            named = {tool.get("name") for tool in options.provider_tools}
            defined = [each for each in defined if each["name"] not in named] + [
                *map(dict, options.provider_tools)
            ]
        fields: dict[str, Json] = {
            "tools": defined,
            "tool_choice": _tool_choice(options.tool_choice, names),
        }
        if options.parallel is None:
            return fields
        return {**fields, "parallel_tool_calls": options.parallel}

    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools; see `BaseWire.definitions`. The strict form of one is its `strict_parameters`."""
        names = _name_map(tools)
        return [_definition(tool, names, strict) for tool in tools]

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> list[dict[str, Json]]:
        """Return one output item for each call, in the order of the calls.

        Raises:
            ValueError: The results are not one for each call.
        """
        return [_encode_result(result) for result in in_call_order(calls, results)]

    # -- what we are answered ------------------------------------------------------------------------------------------

    def decode(
        self, body: Json | bytes, tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn in a whole response body, as a dictionary or as JSON text.

        Raises:
            ModelError: The body is an error (classified), or unreadable (`code="unreadable"`).
        """
        answer = json_bodies.parse_object(body)
        _raise_if_failed(answer)
        json_bodies.items(answer.get("output"), "`output`")
        return received.whole_turn(_turn(answer, tools))

    def decode_message(
        self, message: Mapping[str, Json], tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn from a whole response body, or from one item of its output.

        A bare item or list does not say how the model ended; it counts as finished, with calls if it has any.

        Raises:
            ConfigError: It is nothing of this dialect: read anyway, its calls would be passed over in silence.
            ModelError: As `decode`.
        """
        if isinstance(message, json_bodies.OBJECT) and (
            "output" in message or "error" in message
        ):
            return self.decode({"status": "completed", **message}, tools)
        if not (
            isinstance(message, json_bodies.OBJECT)
            and isinstance(message.get("type"), str)
        ):
            raise foreign("OpenAI response", "it has neither `output` nor a `type`")
        return self.decode({"status": "completed", "output": [message]}, tools)

    def stream(self, tools: Iterable[ToolLike] | None = None) -> ResponsesStream:
        """Return a reader for one streamed answer."""
        return ResponsesStream(self, tuple(tools or ()))

    # -- the provider's side -------------------------------------------------------------------------------------------

    def parse_path(self, path: str) -> dict[str, Json] | None:
        """Return what a path says beside the body; see `ServerDialect.asked_by`."""
        if path.endswith("/responses"):
            return {}
        return None

    def encode_error(self, message: str, *, status: int, type: str) -> dict[str, Json]:
        """Return the body of an error answer."""
        return {
            "error": {"message": message, "type": type, "param": None, "code": None}
        }

    def decode_request(
        self, body: Mapping[str, Json]
    ) -> tuple[list[Message], list[Described], Options]:
        """Return what a client asked: messages, tools and options.

        Raises:
            ConfigError: The request cannot be read.
        """
        rest = {
            name: value
            for name, value in body.items()
            if value is not None and _STATELESS.get(name) != value
        }
        instructions = rest.pop("instructions", None)
        messages = _messages(rest.pop("input", []))
        entries = [
            _require_object(tool, "a tool")
            for tool in _require_list(rest.pop("tools", []), "`tools`")
        ]
        tools = [
            _parse_tool(tool) for tool in entries if tool.get("type") == "function"
        ]
        options = Options(
            model=str(rest.pop("model", "")),
            tool_choice=_parse_choice(rest.pop("tool_choice", None)),
            parallel=rest.pop("parallel_tool_calls", None),
            strict=any(tool.strict_parameters is not None for tool in tools),
            max_tokens=rest.pop("max_output_tokens", None),
            temperature=rest.pop("temperature", None),
            stream=bool(rest.pop("stream", False)),
            output=_take_output(rest),
            provider_tools=tuple(
                tool for tool in entries if tool.get("type") != "function"
            ),
            extra=rest,
        )
        return (
            [SystemMessage(str(instructions)), *messages] if instructions else messages,
            tools,
            options,
        )

    def encode_turn(
        self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None
    ) -> dict[str, Json]:
        """Return the body that OpenAI would send for a turn."""
        tools = as_collection(tools)
        output = list(_output(turn, _name_map(tools), envelope.id))
        return {**self._head(envelope, tools), **_ending(turn), "output": output}

    def _head(self, envelope: Envelope, tools: Collection[ToolLike]) -> dict[str, Json]:
        return {
            "id": envelope.id,
            "object": "response",
            "created_at": envelope.created,
            "status": "in_progress",
            "model": envelope.model,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "output": [],
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "top_p": None,
            "tools": self.definitions(tools),
            "usage": None,
        }

    def encode_stream(
        self,
        turn: Turn,
        envelope: Envelope,
        tools: Iterable[ToolLike] | None = None,
        *,
        piece_chars: int = 12,
    ) -> Iterator[str]:
        """Yield the events that OpenAI would stream for a turn, each whole.

        Args:
            piece_chars: Characters of text or arguments in one event.

        A turn that finished with `error` just breaks off, as a lost connection does.
        """
        tools = as_collection(tools)
        head = self._head(envelope, tools)
        output = list(_output(turn, _name_map(tools), envelope.id))
        events: list[dict[str, Json]] = [
            {"type": f"response.{word}", "response": head} for word in _FIRST_EVENTS
        ]
        for index, item in enumerate(output):
            events += _item_events(item, index, piece_chars)
        if turn.finish != "error":
            whole = {**head, **_ending(turn), "output": output} | (
                {} if envelope.usage else {"usage": None}
            )
            events.append({"type": f"response.{whole['status']}", "response": whole})
        for number, each in enumerate(events):
            yield event({**each, "sequence_number": number}, each["type"])


DIALECT = OpenAIResponses()
"""For api.openai.com, and for servers that copy it."""


class ResponsesStream(EventStream):
    """One streamed answer of the Responses form; see `DialectStream`."""

    def __init__(self, dialect: OpenAIResponses, tools: Sequence[ToolLike]) -> None:
        super().__init__(dialect, tools)
        self._answer = OutputAssembler(_name_map(tools).from_wire)
        self._end: Mapping[str, Json] = {}

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event; see `EventStream.take`."""
        payload = json_bodies.parse_object(event.data)
        name = payload.get("type")
        if not isinstance(name, str):
            name = event.type
        if name == "error" or (
            not name.startswith("response.") and provider_errors.error_in(payload)
        ):
            raise provider_errors.classify(None, {}, payload)
        if self._end:
            # the last event holds the whole answer, so one that comes after it adds nothing
            return
        index = payload.get("output_index")
        if name in _PIECES:
            item, position, text = self._find_text(_PIECES[name], payload, index)
            self._answer.say(item, position, text, deltas)
        elif name in _WHOLES:
            item, position, text = self._find_text(_WHOLES[name], payload, index)
            self._answer.whole(item, position, text, deltas)
        elif name == "response.output_item.added":
            self._answer.announce(payload.get("item"), index)
        elif name == "response.output_item.done":
            self._answer.complete(payload.get("item"), index, deltas)
        elif name in _LAST_EVENTS:
            self._take_end(_LAST_EVENTS[name], payload, deltas)

    def _find_text(
        self,
        event: _TextEvent,
        payload: Mapping[str, Json],
        index: Json,
    ) -> tuple[OutputItem, TextPosition, str]:
        """Return the item that an event's text belongs to, its position there, and the text."""
        item = self._answer.find_item(event.item, payload.get("item_id"), index)
        text = json_bodies.string(
            payload.get(event.field) or "", f"`{event.field}` of an event"
        )
        part = payload.get("summary_index")
        if not isinstance(part, int):
            part = 0
        return item, TextPosition(event.kind, part), text

    def _take_end(
        self, status: str, payload: Mapping[str, Json], deltas: list[Delta]
    ) -> None:
        response = payload.get("response")
        end = {
            "status": status,
            **(response if isinstance(response, json_bodies.OBJECT) else {}),
        }
        _raise_if_failed(end)
        self._answer.close(end.get("output"), deltas)
        self._end = end

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        return self._answer.turn(
            _finish(self._end), _usage(self._end.get("usage")), id=self._end.get("id")
        )


# -- writing a request -------------------------------------------------------------------------------------------------


def _name_map(tools: Iterable[ToolLike] | None) -> NameMap:
    return name_map(tools, NAMES)


def _definition(tool: ToolLike, names: NameMap, strict: bool) -> dict[str, Json]:
    if strict:
        lossless = getattr(tool, "strict_parameters", None)
    else:
        lossless = None
    return {
        "type": "function",
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parameters": tool.parameters if lossless is None else lossless,
        # Always present: here, unlike in the chat form, a tool is strict by default.
        "strict": lossless is not None,
    }


def _tool_choice(choice: str, names: NameMap) -> Json:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "name": names.to_wire(choice)}


def _with_form(options: Options) -> dict[str, Json]:
    """Return the provider's own fields, with the form of the answer beside what they say of its text."""
    fields = dict(options.extra)
    if options.output is None:
        return fields
    strict = for_openai_strict(dict(options.output.schema))
    is_lossless = not isinstance(strict, NotPortable)
    form = {
        "type": "json_schema",
        "name": options.output.name,
        "schema": strict if is_lossless else options.output.schema,
        "strict": is_lossless,
    }
    own = fields.get("text") or {}
    if not isinstance(own, Mapping):
        raise ConfigError(
            "the option `text` is no object, so the answer's form has no place in it"
        )
    return {**fields, "text": {**own, "format": form}}


def _items(
    messages: Iterable[Message], names: NameMap, is_stored: bool
) -> list[dict[str, Json]]:
    items: list[dict[str, Json]] = []
    free_text: set[str] = set()  # calls that are answered in another kind of item
    for message in messages:
        match message:
            case SystemMessage(text):
                items.append({"type": "message", "role": "system", "content": text})
            case UserMessage(text, parts):
                content: Json = text
                if parts:
                    content = [_encode_part(part) for part in parts]
                items.append({"type": "message", "role": "user", "content": content})
            case ToolMessage(result):
                items.append(_encode_result(result, custom=result.call_id in free_text))
            case AssistantMessage(turn):
                output = _encode_assistant(turn, names, is_stored)
                free_text |= {
                    item["call_id"]
                    for item in output
                    if item["type"] == "custom_tool_call"
                }
                items += output
    return items


def _encode_assistant(
    turn: Turn, names: NameMap, is_stored: bool
) -> list[dict[str, Json]]:
    output = (turn.raw or {}).get("output")
    if not isinstance(output, list):  # it came over another wire
        output = [{"type": "message", "content": turn.text or turn.refusal}]
    calls = iter(turn.calls)
    items: list[dict[str, Json]] = []
    for item in output:
        if item["type"] in CALLS:
            items += [_encode_call(call, names, item) for call in islice(calls, 1)]
        elif item["type"] == "message" and not (is_stored and item.get("id")):
            items += _plain_message(item)
        elif item["type"] != "reasoning" or is_stored or _is_readable(item):
            items.append(item)
    items += [_encode_call(call, names) for call in calls]
    if is_stored:
        return items
    return [_without_id(item) for item in items]


def _is_readable(reasoning: Mapping[str, Json]) -> bool:
    """Whether the provider can read reasoning that it has not stored."""
    return bool(reasoning.get("encrypted_content") or reasoning.get("content"))


def _plain_message(item: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return a message as text: an id that comes back is looked up, and parts may not come without one."""
    content = item.get("content")
    if not isinstance(content, str):
        content = _join_parts(content or ())
    if not content:
        return []
    message: dict[str, Json] = {
        "type": "message",
        "role": "assistant",
        "content": content,
    }
    if item.get("phase"):
        message["phase"] = item["phase"]
    return [message]


def _join_parts(parts: Iterable[Json]) -> str:
    texts: list[Json] = []
    for part in parts:
        if isinstance(part, Mapping):
            texts += (part.get("text"), part.get("refusal"))
    return "".join(text for text in texts if isinstance(text, str))


def _without_id(item: dict[str, Json]) -> dict[str, Json]:
    """Return a call without its id; items that are neither calls nor messages must have theirs."""
    return {
        key: value
        for key, value in item.items()
        if key != "id" or item["type"] not in CALLS
    }


def _encode_call(
    call: ToolCall, names: NameMap, sent: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    item: dict[str, Json] = {
        **(sent or {"type": "function_call"}),
        "call_id": call.id,
        "name": names.to_wire(call.name),
    }
    if item["type"] == "function_call":
        item["arguments"] = as_history(call.arguments)
    return item


def _encode_result(result: ToolResult, *, custom: bool = False) -> dict[str, Json]:
    text: Json = result_text(result)
    if result.media:
        if text:
            history = [{"type": "input_text", "text": text}]
        else:
            history = []
        text = [*history, *(_encode_media(media) for media in result.media)]
    if custom:
        kind = "custom_tool_call_output"
    else:
        kind = "function_call_output"
    return {"type": kind, "call_id": result.call_id, "output": text}


def _encode_media(media: Media) -> dict[str, Json]:
    """Return what a tool shows. A sound is named only: no result may hold one."""
    if media.media_type.startswith("audio/"):
        return {"type": "input_text", "text": describe_hidden(media)}
    return _encode_part(media)


def _encode_part(part: Mapping[str, Json] | Media) -> dict[str, Json]:
    """Return a part of a message. What neither we nor the chat form know is the provider's own, and passes."""
    seen = parse_attachment(part)
    if seen is not None:
        return _encode_attachment(seen, part)
    if isinstance(part, Mapping):
        own = dict(part)
    else:
        own = {}
    if own.get("type") == "text":
        return {**own, "type": "input_text"}
    return own


def _encode_attachment(
    thing: Attachment, part: Mapping[str, Json] | Media
) -> dict[str, Json]:
    link = _link(thing)
    kind, _, form = thing.media_type.partition("/")
    if kind == "image":
        return {"type": "input_image", "image_url": link, "detail": _image_detail(part)}
    if kind == "audio" and thing.base64:
        sound = {"data": thing.base64, "format": SOUNDS.get(form, form)}
        return {"type": "input_audio", "input_audio": sound}
    if thing.file_id:
        return {"type": "input_file", "file_id": thing.file_id}
    if thing.url:
        return {"type": "input_file", "file_url": thing.url}
    # The API infers the kind of a file from its name.
    name = thing.name or f"file{guess_extension(thing.media_type) or ''}"
    return {"type": "input_file", "filename": name, "file_data": link}


def _image_detail(part: Mapping[str, Json] | Media) -> Json:
    """Return how closely the model is to look at an image, where the part says so."""
    image = part.get("image_url") if isinstance(part, Mapping) else None
    if isinstance(image, Mapping) and image.get("detail"):
        return image["detail"]
    return "auto"


# -- reading an answer -------------------------------------------------------------------------------------------------


def _raise_if_failed(answer: Mapping[str, Json]) -> None:
    if answer.get("error") or answer.get("status") == "failed":
        raise provider_errors.classify(
            None, {}, {"error": answer.get("error") or "the provider does not say why"}
        )
    if "output" not in answer and provider_errors.error_in(answer):
        raise provider_errors.classify(None, {}, answer)


def _turn(answer: Mapping[str, Json], tools: Iterable[ToolLike] | None) -> Turn:
    items = OutputAssembler(_name_map(tools).from_wire)
    items.close(answer.get("output"), [])
    return items.turn(_finish(answer), _usage(answer.get("usage")), id=answer.get("id"))


def _finish(answer: Mapping[str, Json]) -> Finish:
    details = answer.get("incomplete_details")
    if isinstance(details, json_bodies.OBJECT):
        reason = details.get("reason")
    else:
        reason = None
    if answer.get("status") == "incomplete":
        word = reason
    else:
        word = answer.get("status")
    if isinstance(word, str):
        return _FINISHES.get(word, "error")
    return "error"


def _usage(usage: Json) -> Usage:
    if not isinstance(usage, Mapping):
        return Usage()
    return Usage(
        json_bodies.count(usage, "input_tokens"),
        json_bodies.count(usage, "output_tokens"),
        json_bodies.count(usage.get("input_tokens_details"), "cached_tokens"),
        json_bodies.count(usage.get("output_tokens_details"), "reasoning_tokens"),
        json_bodies.count(usage.get("input_tokens_details"), "cache_write_tokens"),
    )


# -- the provider's side -----------------------------------------------------------------------------------------------


def _require_object(value: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(value, json_bodies.OBJECT):
        raise ConfigError(
            f"{what} is {json_bodies.kind(value)} in the request, not an object"
        )
    return value


def _require_list(value: Json, what: str) -> list[Json]:
    if not isinstance(value, list):
        raise ConfigError(
            f"{what} is {json_bodies.kind(value)} in the request, not a list"
        )
    return value


def _messages(value: Json) -> list[Message]:
    if isinstance(value, str):
        return [UserMessage(value)]
    messages: list[Message] = []
    model_items: list[Mapping[str, Json]] = []
    for item in _require_list(value, "`input`"):
        entry = _require_object(item, "an item of `input`")
        message = _message(entry)
        if message is None:
            model_items.append(entry)
            continue
        if model_items:
            messages.append(_parse_turn(model_items))
            model_items = []
        messages.append(message)
    if model_items:
        messages.append(_parse_turn(model_items))
    return messages


def _message(item: Mapping[str, Json]) -> Message | None:
    """Return a message of a person or a tool; None for items of the model, and for items that are no messages."""
    if str(item.get("type")) in _OUTPUTS:
        text, parts = _content(item.get("output"))
        media = [
            Media(seen.media_type, url=_link(seen))
            for part in parts
            if (seen := parse_attachment(part))
        ]
        return ToolMessage(
            ToolResult(str(item.get("call_id", "")), value=text, text=text, media=media)
        )
    if item.get("type") == "item_reference":
        raise ConfigError(
            "the request has an `item_reference`: what it names is stored by the provider, and not here"
        )
    if item.get("type") not in (None, "message"):
        # a call, or an item of the provider's such as `additional_tools`, which is sent back unchanged
        return None
    match item.get("role"):
        case "system" | "developer":
            return SystemMessage(_content(item.get("content"))[0])
        case "user":
            text, parts = _content(item.get("content"))
            return UserMessage(text, tuple(parts))
    return None


_OUTPUTS = {"function_call_output", "custom_tool_call_output"}


def _content(content: Json) -> tuple[str, list[dict[str, Json]]]:
    """Return the text of a content, and its parts in the chat form where it has any."""
    if content is None or isinstance(content, str):
        return content or "", []
    parts = [
        _require_object(part, "a part of a message")
        for part in _require_list(content, "the content of a message")
    ]
    texts = [
        str(part.get("text", ""))
        for part in parts
        if part.get("type") in ("input_text", "output_text", "text")
    ]
    return "".join(texts), [_chat_part(part) for part in parts]


def _chat_part(part: Mapping[str, Json]) -> dict[str, Json]:
    match part:
        case {"type": "input_text"}:
            return {**part, "type": "text"}
        case {"type": "input_image", "image_url": str(url)}:
            if part.get("detail"):
                detail = {"detail": part["detail"]}
            else:
                detail = {}
            return {"type": "image_url", "image_url": {"url": url, **detail}}
        case {"type": "input_file", "file_url": str(url)}:
            return {"type": "file", "file": {"file_data": url}}
        case {"type": "input_file"}:
            return {
                "type": "file",
                "file": {key: value for key, value in part.items() if key != "type"},
            }
    return dict(part)


def _link(seen: Attachment) -> str:
    return seen.url or data_url(seen.media_type, seen.base64)


def _parse_turn(items: Sequence[Mapping[str, Json]]) -> AssistantMessage:
    """Return the turn that a request spells as items; an assistant's message may be plain text there."""
    output = [{"type": "message", **item} for item in items]
    try:
        return AssistantMessage(_turn({"status": "completed", "output": output}, None))
    except ModelError as error:
        raise ConfigError(
            f"the model's items in the request cannot be read: {error}"
        ) from error


def _parse_tool(tool: Mapping[str, Json]) -> Described:
    if not tool.get("name"):
        raise ConfigError("the request has a function without a name")
    parameters = dict(
        _require_object(
            tool.get("parameters") or {"type": "object", "properties": {}},
            "`parameters`",
        )
    )
    if tool.get("strict"):
        strict = parameters
    else:
        strict = None
    return Described(
        str(tool["name"]), str(tool.get("description") or ""), parameters, strict
    )


def _parse_choice(choice: Json) -> str:
    if isinstance(choice, Mapping):
        return str(choice.get("name", "auto"))
    return str(choice or "auto")


def _take_output(rest: dict[str, Json]) -> Output | None:
    """Take the form of the answer out of what a request says of its text."""
    match rest.get("text"):
        case {
            "format": {
                "type": "json_schema",
                "name": str(name),
                "schema": dict(schema),
            },
            **others,
        }:
            rest.pop("text")
            if others:
                rest["text"] = others
            return Output(schema, name)
    return None


def _output(turn: Turn, names: NameMap, id: str) -> Iterator[dict[str, Json]]:
    if turn.reasoning:
        thoughts = [{"type": "summary_text", "text": turn.reasoning}]
        yield {"id": f"rs_{id}", "type": "reasoning", "summary": thoughts}
    content: list[dict[str, Json]] = []
    if turn.text:
        content.append({"type": "output_text", "text": turn.text, "annotations": []})
    if turn.refusal:
        content.append({"type": "refusal", "refusal": turn.refusal})
    if content:
        head = {
            "id": f"msg_{id}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
        }
        yield {**head, "content": content}
    for number, call in enumerate(turn.calls):
        yield {
            "id": f"fc_{id}_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": names.to_wire(call.name),
            "arguments": call.arguments,
        }


def _ending(turn: Turn) -> dict[str, Json]:
    status, reason = _ENDINGS[
        "stop" if turn.refusal and turn.finish == "refused" else turn.finish
    ]
    spent = turn.usage
    usage = {
        "input_tokens": spent.input_tokens,
        "input_tokens_details": {
            "cached_tokens": spent.cached_tokens,
            "cache_write_tokens": spent.cache_written_tokens,
        },
        "output_tokens": spent.output_tokens,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
        "total_tokens": spent.input_tokens + spent.output_tokens,
    }
    return {
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": usage,
    }


_FIRST_EVENTS = ("created", "in_progress")


def _item_events(
    item: dict[str, Json], index: int, piece_chars: int
) -> Iterator[dict[str, Json]]:
    """Yield the events of an item: announced empty, its texts in pieces and whole, then the item itself."""
    if item["type"] == "function_call":
        history = "arguments"
    elif item["type"] == "reasoning":
        history = "summary"
    else:
        history = "content"
    if "status" in item:
        progress = {"status": "in_progress"}
    else:
        progress = {}
    blank = "" if history == "arguments" else []
    yield {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {**item, **progress, history: blank},
    }
    place = {"item_id": item["id"], "output_index": index}
    if history == "arguments":
        yield from _text_events(
            "function_call_arguments", "arguments", item[history], place, piece_chars
        )
    else:
        for number, part in enumerate(item[history]):
            yield from _part_events(
                part, {**place, f"{history}_index": number}, piece_chars
            )
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


_PART_EVENTS: Mapping[str, tuple[str, str, str]] = {
    "output_text": ("content_part", "output_text", "text"),
    "refusal": ("content_part", "refusal", "refusal"),
    "summary_text": ("reasoning_summary_part", "reasoning_summary_text", "text"),
}


def _part_events(
    part: dict[str, Json], place: dict[str, Json], piece_chars: int
) -> Iterator[dict[str, Json]]:
    frame, name, key = _PART_EVENTS[part["type"]]
    yield {"type": f"response.{frame}.added", **place, "part": {**part, key: ""}}
    yield from _text_events(
        name,
        key,
        part[key],
        place | ({"logprobs": []} if key == "text" else {}),
        piece_chars,
    )
    yield {"type": f"response.{frame}.done", **place, "part": part}


def _text_events(
    name: str, key: str, text: str, place: dict[str, Json], piece_chars: int
) -> Iterator[dict[str, Json]]:
    for piece in pieces(text, piece_chars):
        yield {"type": f"response.{name}.delta", **place, "delta": piece}
    yield {"type": f"response.{name}.done", **place, key: text}
