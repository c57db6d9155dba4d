"""Cohere's v2 chat: both ways, whole and streamed.

Calls, results and tools are spelled as in OpenAI's chat form, and `openai_chat` spells them. The rest is Cohere's own:
a plan before calls, content in blocks, citations, one event for each piece of a stream.

Rule 1: an answer goes back as it came: its blocks, its plan, its citations.
Rule 2: `null` for the arguments of a call means that it has none.
Rule 3: an unknown `finish_reason` is `error`, and so is a stream without one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import (
    Conversation,
    ToolLike,
    json_bodies,
    provider_errors,
    received,
)
from handrail.dialects.names import NameMap
from handrail.dialects.parts import Attachment, describe_hidden, parse_attachment
from handrail.dialects.wires import chat_answers, openai_chat
from handrail.dialects.wires.base import BaseWire, check_choice, refuse_effort
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.sse import ServerEvent
from handrail.dialects.writing import (
    as_collection,
    fit_to_send,
    in_call_order,
    result_text,
)
from handrail.errors import ConfigError, Json
from handrail.messages import (
    ArgumentsDelta,
    AssistantMessage,
    Delta,
    Finish,
    Message,
    Options,
    Output,
    ReasoningDelta,
    TextDelta,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
    conversation_of,
)

Block: TypeAlias = "dict[str, Json]"

_CHAT = openai_chat.DIALECT

_FINISHES: Mapping[str, Finish] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "TOOL_CALL": "calls",
    "MAX_TOKENS": "length",
    "ERROR_TOXIC": "refused",  # a word of the first version, which some hosts still say
}
"""`ERROR` and `TIMEOUT`, and words yet to be invented, are no good end."""

_CHOICES: Mapping[str, str | None] = {
    "auto": None,
    "required": "REQUIRED",
    "none": "NONE",
}

_BLOCKS: Mapping[str, type[TextDelta] | type[ReasoningDelta]] = {
    "text": TextDelta,
    "thinking": ReasoningDelta,
}
"""Types of blocks, each of which holds its text in a field of that name."""


@dataclass(frozen=True, slots=True)
class Cohere(BaseWire):
    """The dialect. Cohere refuses a form for the answer beside tools; such a run goes on in the next way to ask for it
    (`structured_output`)."""

    name: str = "cohere"

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the base address requests go."""
        return "/v2/chat"

    # -- what we ask ---------------------------------------------------------------------------------------------------

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> dict[str, Json]:
        """Return the body of a request.

        Cohere has no field for the tool to call: the one that `tool_choice` names is the only one in the request.
        Nor whether several calls are welcome: `parallel` stays out.

        Raises:
            ConfigError: `tool_choice` names a tool that is not among `tools`, or demands a call without any tools; a
                message shows what no model here can take.
        """
        options = options or Options()
        refuse_effort(self.name, options)
        tools = as_collection(tools)
        names = _name_map(tools)
        fields = {
            "model": options.model or None,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "response_format": _response_format(options.output)
            if options.output
            else None,
        }
        return {
            "messages": [
                _encode(message, names)
                for message in _add_media(fit_to_send(messages, tools))
            ],
            "stream": options.stream,
            **{field: value for field, value in fields.items() if value is not None},
            **self._tool_fields(tools, options),
            **options.extra,
        }

    def _tool_fields(
        self, tools: Collection[ToolLike], options: Options
    ) -> dict[str, Json]:
        choice = options.tool_choice
        check_choice(choice, tools, options.provider_tools)
        if not (tools or options.provider_tools):
            return {}
        if choice not in _CHOICES:
            tools = [tool for tool in tools if tool.name == choice]
            choice = "required"
        defined = self.definitions(tools)
        fields: dict[str, Json] = {
            "tools": [*defined, *options.provider_tools]
            if options.provider_tools
            else defined
        }
        if word := _CHOICES[choice]:
            fields["tool_choice"] = word
        return fields | ({"strict_tools": True} if options.strict else {})

    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools; `strict` applies to the whole request."""
        return _CHAT.definitions(tools)

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> list[dict[str, Json]]:
        """Return one tool message for each call, in the order of the calls, and one with what the results show.

        Raises:
            ValueError: The results are not one for each call.
        """
        messages = [ToolMessage(result) for result in in_call_order(calls, results)]
        return [_encode(message, _name_map(())) for message in _add_media(messages)]

    # -- what we are answered ------------------------------------------------------------------------------------------

    def decode(
        self, body: Json | bytes, tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn in a whole response body, as a dictionary or as JSON text.

        Raises:
            ModelError: The body is an error (classified), or unreadable (`code="unreadable"`).
        """
        answer = json_bodies.parse_object(body)
        if provider_errors.error_in(answer) or isinstance(answer.get("message"), str):
            raise provider_errors.classify(None, {}, answer)
        message = json_bodies.mapping(answer.get("message"), "`message`")
        turn = _turn(
            message,
            _finish(answer.get("finish_reason")),
            _usage(answer.get("usage")),
            tools,
        )
        return received.whole_turn(turn)

    def decode_message(
        self, message: Mapping[str, Json], tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn from one assistant message, or from a whole response body.

        A bare message does not say how the model ended; it counts as finished, with calls if it has any.

        Raises:
            ConfigError: It is no message of this dialect: read anyway, its calls would be passed over in silence.
            ModelError: As `decode`.
        """
        if isinstance(message, json_bodies.OBJECT) and "message" in message:
            return self.decode(message, tools)
        # the same messages are foreign here as there
        finish = _CHAT.decode_message(message, tools).finish
        return received.whole_turn(_turn(message, finish, Usage(), tools))

    def stream(self, tools: Iterable[ToolLike] | None = None) -> CohereStream:
        """Return a reader for one streamed answer."""
        return CohereStream(self, tuple(tools or ()))

    def decode_conversation(self, body: Mapping[str, Json]) -> list[Message]:
        """Return the messages in a request; see `WireDialect.decode_conversation`."""
        return conversation_of(
            _with_plain_content(message)
            for message in json_bodies.items(body.get("messages", []), "`messages`")
        )


DIALECT = Cohere()


class CohereStream(EventStream):
    """One streamed answer of Cohere; see `DialectStream`."""

    def __init__(self, dialect: Cohere, tools: Sequence[ToolLike]) -> None:
        super().__init__(dialect, tools)
        self._names = _name_map(tools)
        # by the index that the provider gave
        self._blocks: dict[Json, tuple[Block, list[str]]] = {}
        self._calls: list[_StreamedCall] = []
        # by the index that the provider gave
        self._open: dict[Json, _StreamedCall] = {}
        self._plan: list[str] = []
        self._thoughts: list[str] = []
        self._citations: list[Json] = []
        self._end: Mapping[str, Json] = {}

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event; see `EventStream.take`."""
        payload = json_bodies.parse_object(event.data)
        kind = payload.get("type") or event.type
        if _is_error(kind, payload):
            raise provider_errors.classify(None, {}, payload)
        delta = json_bodies.mapping(payload.get("delta") or {}, "a delta of the stream")
        message = json_bodies.mapping(
            delta.get("message") or {}, "a message of the stream"
        )
        index = payload.get("index")
        if not isinstance(index, int | str | None):
            raise json_bodies.unreadable(
                f"an index is {json_bodies.kind(index)}, not a number"
            )
        match kind:
            case "content-start" | "content-delta":
                self._take_content(index, message.get("content"), deltas)
            case "tool-plan-delta":
                self._take_plan(message.get("tool_plan"), deltas)
            case "tool-call-start" | "tool-call-delta" | "tool-call-end":
                self._take_call(kind, index, message.get("tool_calls"), deltas)
            case "citation-start":
                self._take_citation(message.get("citations"))
            case "message-end":
                self._end = delta

    def _take_content(self, index: Json, content: Json, deltas: list[Delta]) -> None:
        fields = json_bodies.mapping(content or {}, "the content of a message")
        for kind, delta in _BLOCKS.items():
            text = json_bodies.string(fields.get(kind) or "", f"`{kind}` of a block")
            if index not in self._blocks and kind in fields:
                self._blocks[index] = {"type": kind}, []
            if not text:
                continue
            self._blocks[index][1].append(text)
            if delta is ReasoningDelta:
                self._thoughts.append(text)
            deltas.append(delta(text))

    def _take_plan(self, value: Json, deltas: list[Delta]) -> None:
        thought = json_bodies.string(value or "", "`tool_plan`")
        if thought:
            self._plan.append(thought)
            self._thoughts.append(thought)
            deltas.append(ReasoningDelta(thought))

    def _take_citation(self, citation: Json) -> None:
        if received.is_sendable(citation):
            self._citations.append(citation)

    def _take_call(
        self, kind: str, index: Json, value: Json, deltas: list[Delta]
    ) -> None:
        fields = json_bodies.mapping(value or {}, "a call of the stream")
        function = json_bodies.mapping(
            fields.get("function") or {}, "the function of a call"
        )
        call = self._find_call(kind, index, fields.get("id"), function.get("name"))
        if call is None:
            return
        text = call.grow(
            json_bodies.string(
                function.get("arguments") or "", "the arguments of a call"
            )
        )
        if kind == "tool-call-end":
            text = call.end()
        if text:
            deltas.append(
                ArgumentsDelta(call.position, self._names.from_wire(call.name), text)
            )

    def _find_call(
        self, kind: str, index: Json, id: Json, name: Json
    ) -> _StreamedCall | None:
        """Return the call that an event is about, perhaps a new one; None for an event that says nothing new."""
        call = self._open.get(index)
        if call is None and kind == "tool-call-end":
            return None
        if call is not None and kind != "tool-call-start":
            return call
        id = json_bodies.string(id or "", "a call's id")
        if call is not None and id and id == call.id:
            return None  # gateways repeat events, and one call must not become two
        return self._begin_call(
            index, id, json_bodies.string(name or "", "a tool's name")
        )

    def _begin_call(self, index: Json, id: str, name: str) -> _StreamedCall:
        call = _StreamedCall(len(self._calls), id, name)
        self._calls.append(call)
        self._open[index] = call
        return call

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        fields: dict[str, Json] = {
            "content": [
                {**block, block["type"]: "".join(texts)}
                for block, texts in self._blocks.values()
            ],
            "tool_plan": "".join(self._plan),
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": "".join(call.pieces)},
                }
                for call in self._calls
            ],
            "citations": self._citations,
        }
        message = {
            "role": "assistant",
            **{name: value for name, value in fields.items() if value},
        }
        turn = _turn(
            message,
            _finish(self._end.get("finish_reason")),
            _usage(self._end.get("usage")),
            self._tools,
        )
        # in the order in which it was thought
        return replace(turn, reasoning="".join(self._thoughts))


def _is_error(kind: Json, payload: Mapping[str, Json]) -> bool:
    if kind == "error" or payload.get("error"):
        return True
    return not kind and bool(payload.get("message"))


_NONE = "null"


class _StreamedCall:
    """A call on its way. Its first characters are held back while they may be those of `null`."""

    __slots__ = ("_is_held", "id", "name", "pieces", "position")

    def __init__(self, position: int, id: str, name: str) -> None:
        self.position = position
        self.id = id
        self.name = name
        self.pieces: list[str] = []
        self._is_held = True

    def grow(self, text: str) -> str:
        """Add a piece of the arguments, and return what is certain by now."""
        if text:
            self.pieces.append(text)
        if not self._is_held:
            return text
        self._is_held = _NONE.startswith("".join(self.pieces))
        if self._is_held:
            return ""
        return "".join(self.pieces)

    def end(self) -> str:
        """Return what was held back, now that there is no more."""
        if self._is_held:
            held = _arguments("".join(self.pieces))
        else:
            held = ""
        self._is_held = False
        return held


# -- writing a request -------------------------------------------------------------------------------------------------


def _name_map(tools: Iterable[ToolLike] | None) -> NameMap:
    # Cohere's documents do not say which names it takes. OpenAI's rule is what its compatible endpoint promises.
    return chat_answers.chat_names(tools)


def _response_format(output: Output) -> dict[str, Json]:
    return {"type": "json_object", "json_schema": output.schema}


def _encode(message: Message, names: NameMap) -> dict[str, Json]:
    match message:
        case AssistantMessage(turn):
            return _encode_assistant(turn, names)
        case UserMessage(_, parts) if parts:
            return {"role": "user", "content": [*map(_encode_part, parts)]}
        case _:
            return _CHAT.encode_message(message, names)


def _add_media(messages: Iterable[Message]) -> Iterator[Message]:
    """Give the messages with what results show behind them; what no model here can see is named in the result."""
    return openai_chat.add_media(map(_name_hidden_media, messages))


def _name_hidden_media(message: Message) -> Message:
    if not isinstance(message, ToolMessage) or not message.result.media:
        return message
    result = message.result
    seen = [media for media in result.media if _is_visible(parse_attachment(media))]
    named = [describe_hidden(media) for media in result.media if media not in seen]
    return ToolMessage(
        replace(result, media=seen, text="\n".join((result_text(result), *named)))
    )


def _is_visible(thing: Attachment | None) -> bool:
    return thing is not None and (
        thing.media_type.startswith("image/") or bool(thing.is_text and thing.base64)
    )


def _encode_assistant(turn: Turn, names: NameMap) -> dict[str, Json]:
    raw = turn.raw or {}
    sent = raw.get("content")
    fields = {
        "content": sent if _is_own(sent) else turn.text or turn.refusal,
        "tool_plan": raw.get("tool_plan"),
        "tool_calls": _CHAT.encode_message(AssistantMessage(turn), names).get(
            "tool_calls"
        ),
        "citations": raw.get("citations"),
    }
    return {
        "role": "assistant",
        **{name: value for name, value in fields.items() if value},
    }


def _is_own(content: Json) -> bool:
    """Whether a message's content is blocks that Cohere takes."""
    if not isinstance(content, list):
        return False
    kinds = [
        block.get("type") if isinstance(block, Mapping) else None for block in content
    ]
    # Exactly its own fields: thoughts of others are signed, and mean nothing here.
    return all(
        isinstance(kind, str)
        and kind in _BLOCKS
        and set(block) == {"type", kind}
        and block[kind]
        for kind, block in zip(kinds, content, strict=True)
    )


def _encode_part(part: Mapping[str, Json] | Media) -> Block:
    thing = parse_attachment(part)
    if thing is None:
        if isinstance(part, Mapping):
            return dict(part)
        return {}
    if thing.media_type.startswith("image/"):
        link = thing.url or f"data:{thing.media_type};base64,{thing.base64}"
        return {"type": "image_url", "image_url": {"url": link}}
    if _is_visible(thing):
        return {"type": "text", "text": thing.text}
    raise ConfigError(f"Cohere's models cannot be shown {thing.label}")


# -- reading an answer -------------------------------------------------------------------------------------------------


def _finish(word: Json) -> Finish:
    if isinstance(word, str):
        return _FINISHES.get(word, "error")
    return "error"


def _arguments(text: str) -> str:
    return "{}" if text == _NONE else text


def _turn(
    message: Mapping[str, Json],
    finish: Finish,
    usage: Usage,
    tools: Iterable[ToolLike] | None,
) -> Turn:
    content = message.get("content") or []
    text = [{"type": "text", "text": content}]
    if isinstance(content, str):
        blocks = text
    else:
        blocks = json_bodies.items(content, "`content`")
    texts: dict[str, list[str]] = {kind: [] for kind in _BLOCKS}
    for block in blocks:
        fields = json_bodies.mapping(block, "a block")
        kind = fields.get("type")
        if isinstance(kind, str) and kind in texts:
            texts[kind].append(
                json_bodies.string(fields.get(kind) or "", f"`{kind}` of a block")
            )
    plan = json_bodies.string(message.get("tool_plan") or "", "`tool_plan`")
    called = _CHAT.decode_message(
        {"role": "assistant", "tool_calls": message.get("tool_calls")}, tools
    ).calls
    return Turn(
        "".join(texts["text"]),
        "".join(texts["thinking"]) + plan,
        tuple(replace(call, arguments=_arguments(call.arguments)) for call in called),
        finish,
        usage,
        raw=received.sendable_fields(message),
    )


def _usage(usage: Json) -> Usage:
    if not isinstance(usage, Mapping):
        return Usage()
    tokens = usage.get("tokens") or usage.get("billed_units")
    return Usage(
        json_bodies.count(tokens, "input_tokens"),
        json_bodies.count(tokens, "output_tokens"),
        json_bodies.count(usage, "cached_tokens"),
    )


# -- reading a request -------------------------------------------------------------------------------------------------


def _with_plain_content(message: Json) -> dict[str, Json]:
    """Return a message with a tool's documents as text."""
    fields = dict(json_bodies.mapping(message, "a message"))
    if fields.get("role") == "tool" and isinstance(fields.get("content"), list):
        blocks = [json_bodies.mapping(block, "a block") for block in fields["content"]]
        fields["content"] = "\n".join(_document_text(block) for block in blocks)
    return fields


def _document_text(block: Mapping[str, Json]) -> str:
    document = block.get("document")
    if isinstance(document, Mapping):
        data = document.get("data")
    else:
        data = block.get("text")
    if isinstance(data, str):
        return data
    return json.dumps(data, ensure_ascii=False)
