"""Amazon Bedrock's Converse: one form for the models of many makers, both ways, whole and streamed.

A message is a list of blocks without a type; the one key of a block says what it is. Amazon streams in frames of its
own, which are read whole (`decode`); gateways stream the same events as server-sent ones, which are read as they come.

Rule 1: blocks of a Bedrock model go back as they came: reasoning is signed or redacted, and its maker checks it.
Rule 2: an answer of another provider's model goes back as text and calls; its reasoning has no signature and stays out.
Rule 3: roles alternate, results of calls come first in the message after the calls, and no blank text goes out.
Rule 4: an unknown `stopReason` is `error`, and so is a stream without one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from urllib.parse import quote

from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import (
    Conversation,
    ToolLike,
    json_bodies,
    provider_errors,
    received,
)
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.parts import Attachment, describe_hidden, parse_attachment
from handrail.dialects.wires import prompt_caching
from handrail.dialects.wires.base import BaseWire, check_choice, foreign, refuse_effort
from handrail.dialects.wires.bedrock_blocks import (
    Block,
    StreamedBlock,
    are_blocks,
    as_blocks,
    build_turn,
    is_call,
    join_text,
    parse_blocks,
)
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.sse import ServerEvent
from handrail.dialects.writing import (
    as_collection,
    as_object,
    as_user_message,
    describe_with_examples,
    fit_to_send,
    in_call_order,
    name_map,
    result_text,
)
from handrail.errors import Code, ConfigError, Failure, Json
from handrail.messages import (
    ArgumentsDelta,
    AssistantMessage,
    Delta,
    Message,
    Options,
    Output,
    ReasoningDelta,
    SystemMessage,
    TextDelta,
    ToolMessage,
    Turn,
    UserMessage,
)

NAMES = NameRule("a-zA-Z0-9_-", most_chars=64)
"""What Bedrock accepts as a tool's name."""

_IDS = NameMap(NameRule("a-zA-Z0-9_.:-", most_chars=64))
"""What it accepts as a call's id."""

_EXCEPTIONS: Mapping[str, int] = {
    "validationException": 400,
    "throttlingException": 429,
    "internalServerException": 500,
    "modelStreamErrorException": 500,
    "serviceUnavailableException": 503,
}
"""Events of a stream that are errors, and the status that they have elsewhere."""

_PICTURES = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
_MEDIA_TYPES: Mapping[Json, str] = {
    form: media_type for media_type, form in (_PICTURES | _DOCUMENTS).items()
}

_POINTS = frozenset({"cachePoint"})
_CACHING = re.compile(
    r"anthropic\.claude-(3-5-haiku|3-5-sonnet-20241022|3-7|[a-z]+-[4-9])|amazon\.nova-(micro|lite|pro|premier|2)"
)
"""Models of which Amazon says that they keep prompts, with or without a region before the name."""


@dataclass(frozen=True, slots=True)
class Bedrock(BaseWire):
    """The dialect. Few models here can be held to a form; a run on another goes on in the next way to ask for it
    (`structured_output`)."""

    name: str = "bedrock"

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the base address requests go; the path names the model, which may be an ARN."""
        return f"/model/{quote(model, safe='')}/converse{'-stream' if stream else ''}"

    # -- what we ask ---------------------------------------------------------------------------------------------------

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> dict[str, Json]:
        """Return the body of a request.

        Converse has no word for "no call now" and none for "one call at a time": `none` leaves the tools out where the
        conversation has no calls yet, and `parallel` stays out.

        Raises:
            ConfigError: `tool_choice` names a tool that is not among `tools`, or demands a call without any tools; a
                message shows what no model here can take.
        """
        options = options or Options()
        refuse_effort(self.name, options)
        tools = as_collection(tools)
        names = _name_map(tools)
        sent = fit_to_send(messages, tools)
        system, conversation = _conversation(sent, names)
        point = self._cache_point(sent, options)
        if point is not None:
            _mark_history(conversation, point)
        settings = {"maxTokens": options.max_tokens, "temperature": options.temperature}
        fields = {
            "system": [{"text": system}, *_points(point)] if system else None,
            "inferenceConfig": {
                key: value for key, value in settings.items() if value is not None
            }
            or None,
            "toolConfig": self._tool_config(
                tools, names, options, point, has_calls=_has_calls(conversation)
            ),
            "outputConfig": {"textFormat": _format(options.output)}
            if options.output
            else None,
        }
        return (
            {"messages": conversation}
            | {key: value for key, value in fields.items() if value}
            | dict(options.extra)
        )

    def marks_history(self, messages: Sequence[Message], options: Options) -> bool:
        """Whether there are cache points in the history, which move on with each request."""
        return self._cache_point(messages, options) is not None

    def _cache_point(
        self, messages: Sequence[Message], options: Options
    ) -> Block | None:
        """Return the block that ends a cached part; None if the request is not to be cached.

        A model without a cache refuses the block, so `auto` sends it only to models in `_CACHING`.
        """
        takes_it = _CACHING.search(options.model) is not None
        if not prompt_caching.is_wanted(options, takes_it):
            return None
        if prompt_caching.has_own_marks(messages, options, _POINTS):
            return None
        if options.cache == "1h":
            return {"cachePoint": {"type": "default", "ttl": "1h"}}
        return {"cachePoint": {"type": "default"}}

    def _tool_config(
        self,
        tools: Collection[ToolLike],
        names: NameMap,
        options: Options,
        point: Block | None,
        *,
        has_calls: bool,
    ) -> dict[str, Json] | None:
        choice = options.tool_choice
        check_choice(choice, tools, options.provider_tools)
        if not (tools or options.provider_tools) or (
            choice == "none" and not has_calls
        ):
            return None
        defined = self.definitions(tools, strict=options.strict)
        if point is not None and defined and "nova" not in options.model:
            # Amazon's own models keep tools with the system message, and refuse a point among them.
            defined = [*defined, point]
        config: dict[str, Json] = {
            "tools": [*defined, *options.provider_tools]
            if options.provider_tools
            else defined
        }
        if choice in ("auto", "none"):
            return config
        if choice == "required":
            return {**config, "toolChoice": {"any": {}}}
        return {**config, "toolChoice": {"tool": {"name": names.to_wire(choice)}}}

    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools; see `BaseWire.definitions`. The strict form of one is its `strict_parameters`."""
        names = _name_map(tools)
        return [_definition(tool, names, strict) for tool in tools]

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> list[dict[str, Json]]:
        """Return the one user message that holds the results, in the order of the calls; none without calls.

        Raises:
            ValueError: The results are not one for each call.
        """
        return as_user_message(map(_encode_result, in_call_order(calls, results)))

    # -- what we are answered ------------------------------------------------------------------------------------------

    def decode(
        self, body: Json | bytes, tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn in a whole response body: a dictionary, JSON text, or the frames of Amazon's event stream.

        Raises:
            ModelError: The body is an error (classified), or unreadable (`code="unreadable"`); the model wrote a call
                that its provider could not read (to be tried again).
        """
        if isinstance(body, bytes) and _is_framed(body):
            stream = ConverseStream(self, tuple(tools or ()))
            for each in _read_frames(body):
                stream.take(each, [])
            return received.whole_turn(stream.whole())
        answer = json_bodies.parse_object(body)
        if provider_errors.error_in(answer) or isinstance(answer.get("message"), str):
            raise provider_errors.classify(None, {}, answer)
        output = json_bodies.mapping(answer.get("output"), "`output`")
        content = json_bodies.mapping(output.get("message"), "`output.message`").get(
            "content"
        )
        turn = build_turn(
            parse_blocks(content),
            answer.get("stopReason"),
            answer.get("usage"),
            _name_map(tools),
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
        if isinstance(message, json_bodies.OBJECT) and (
            "output" in message and "stopReason" in message
        ):
            return self.decode(message, tools)
        if why := _foreign(message):
            raise foreign("message of Bedrock's", why)
        if _has_calls([message]):
            word = "tool_use"
        else:
            word = "end_turn"
        return received.whole_turn(
            build_turn(
                parse_blocks(message.get("content")), word, None, _name_map(tools)
            )
        )

    def stream(self, tools: Iterable[ToolLike] | None = None) -> ConverseStream:
        """Return a reader for one streamed answer."""
        return ConverseStream(self, tuple(tools or ()))

    def decode_conversation(self, body: Mapping[str, Json]) -> list[Message]:
        """Return the messages in a request; see `WireDialect.decode_conversation`."""
        return _parse_conversation(body)


DIALECT = Bedrock()


class ConverseStream(EventStream):
    """One streamed answer of Bedrock; see `DialectStream`."""

    def __init__(self, dialect: Bedrock, tools: Sequence[ToolLike]) -> None:
        super().__init__(dialect, tools)
        self._names = _name_map(tools)
        self._blocks: list[StreamedBlock] = []
        # by the index that the provider gave
        self._open: dict[int, StreamedBlock] = {}
        self._calls = 0
        self._stop: Json = None
        self._usage: Json = None

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event, whose one key says what it is; see `EventStream.take`."""
        payload = json_bodies.parse_object(event.data)
        for kind, status in _EXCEPTIONS.items():
            if kind in payload:
                raise provider_errors.classify(status, {}, payload[kind])
        if provider_errors.error_in(payload):
            raise provider_errors.classify(None, {}, payload)
        for kind in ("contentBlockStart", "contentBlockDelta", "contentBlockStop"):
            if kind in payload:
                self._take_block(
                    kind, json_bodies.mapping(payload[kind], f"`{kind}`"), deltas
                )
        if "messageStop" in payload:
            self._stop = json_bodies.mapping(
                payload["messageStop"], "`messageStop`"
            ).get("stopReason")
        if "metadata" in payload:
            self._usage = json_bodies.mapping(payload["metadata"], "`metadata`").get(
                "usage"
            )

    def _take_block(
        self, kind: str, payload: Mapping[str, Json], deltas: list[Delta]
    ) -> None:
        block = self._find_block(kind, payload)
        if block is None:
            return
        pieces = block.grow(
            json_bodies.mapping(payload.get("delta") or {}, "a delta of the stream")
        )
        is_over = kind == "contentBlockStop"
        if is_over and block.is_call and not block.pieces.get("input"):
            # a call without arguments
            pieces = block.grow({"toolUse": {"input": "{}"}})
        for field, text in pieces:
            if field == "input" and block.is_call:
                deltas.append(
                    ArgumentsDelta(
                        block.position, self._names.from_wire(block.name), text
                    )
                )
            elif field in _DELTAS:
                deltas.append(_DELTAS[field](text))

    def _find_block(
        self, kind: str, payload: Mapping[str, Json]
    ) -> StreamedBlock | None:
        """Return the block that an event is about, perhaps a new one; None for an event that says nothing new."""
        index = payload.get("contentBlockIndex", 0)
        if not isinstance(index, int):
            raise json_bodies.unreadable(
                f"the index of a block is {json_bodies.kind(index)}, not a number"
            )
        start = received.sendable_fields(
            json_bodies.mapping(payload.get("start") or {}, "the start of a block")
        )
        block = self._open.get(index)
        if start and block is not None and block.fields == start:
            return None  # proxies repeat events, and one call must not become two
        if block is None and kind == "contentBlockStop":
            return None
        if block is None or kind == "contentBlockStart":
            return self._begin_block(index, start)
        return block

    def _begin_block(self, index: int, start: Mapping[str, Json]) -> StreamedBlock:
        block = StreamedBlock()
        block.begin(start, self._calls)
        self._open[index] = block
        self._blocks.append(block)
        if block.is_call:
            self._calls += 1
        return block

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        blocks = [(block.whole(), block.arguments) for block in self._blocks]
        return build_turn(blocks, self._stop, self._usage, self._names)


_DELTAS: Mapping[str, type[TextDelta] | type[ReasoningDelta]] = {
    "text": TextDelta,
    "thought": ReasoningDelta,
}


# -- writing a request -------------------------------------------------------------------------------------------------


def _name_map(tools: Iterable[ToolLike] | None) -> NameMap:
    return name_map(tools, NAMES)


def _definition(tool: ToolLike, names: NameMap, strict: bool) -> dict[str, Json]:
    definition: dict[str, Json] = {"name": names.to_wire(tool.name)}
    description = describe_with_examples(tool)
    if description:  # an empty one is refused
        definition["description"] = description
    if strict:
        lossless = getattr(tool, "strict_parameters", None)
    else:
        lossless = None
    if lossless is not None:
        return {
            "toolSpec": {
                **definition,
                "inputSchema": {"json": lossless},
                "strict": True,
            }
        }
    return {
        "toolSpec": {
            **definition,
            "inputSchema": {"json": {"type": "object", **tool.parameters}},
        }
    }


def _format(output: Output) -> dict[str, Json]:
    schema = json.dumps(output.schema, ensure_ascii=False)
    return {
        "type": "json_schema",
        "structure": {"jsonSchema": {"schema": schema, "name": output.name}},
    }


def _conversation(
    messages: Sequence[Message], names: NameMap
) -> tuple[str, list[dict[str, Json]]]:
    """Return the system message and the messages, with roles that alternate.

    Args:
        messages: Fit to send: a turn is followed by its results, one for each call, in their order.
    """
    system = [
        message.text for message in messages if isinstance(message, SystemMessage)
    ]
    encoded = [
        (
            "assistant" if isinstance(message, AssistantMessage) else "user",
            _encode(message, names),
        )
        for message in messages
        if not isinstance(message, SystemMessage)
    ]
    conversation: list[dict[str, Json]] = []
    for role, group in groupby(
        (each for each in encoded if each[1]), lambda each: each[0]
    ):
        conversation.append(
            {
                "role": role,
                "content": [*chain.from_iterable(blocks for _, blocks in group)],
            }
        )
    return "\n\n".join(filter(None, system)), conversation


def _points(point: Block | None) -> list[Block]:
    return [] if point is None else [point]


def _mark_history(conversation: list[dict[str, Json]], point: Block) -> None:
    """Mark where the request before ended, so that it is found again, and where this one ends."""
    for place in (-3, -1):
        if len(conversation) >= -place and conversation[place]["role"] == "user":
            message = conversation[place]
            conversation[place] = {**message, "content": [*message["content"], point]}


def _encode(message: Message, names: NameMap) -> list[Block]:
    match message:
        case AssistantMessage(turn):
            blocks = [*_encode_turn(turn, names)]
        case ToolMessage(result):
            return [_encode_result(result)]
        case UserMessage(text, parts):
            if parts:
                blocks = [*map(_encode_part, parts)]
            else:
                blocks = [{"text": text}]
        case SystemMessage(text):
            blocks = [{"text": text}]
    return [block for block in blocks if str(block.get("text", "-")).strip()]


def _encode_turn(turn: Turn, names: NameMap) -> Iterator[Block]:
    calls = iter(turn.calls)
    sent = _own_blocks(turn)
    if sent is not None:
        for block in sent:
            if is_call(block):
                yield _encode_call(next(calls), names, block)
            else:
                yield dict(block)
        return
    if text := turn.text or turn.refusal:
        yield {"text": text}
    for call in calls:
        yield _encode_call(call, names, {})


def _own_blocks(turn: Turn) -> Sequence[Mapping[str, Json]] | None:
    """Return the blocks of a turn that came in this form, unless its calls are others by now."""
    content = (turn.raw or {}).get("content")
    if are_blocks(content) and sum(map(is_call, content or ())) == len(turn.calls):
        return content
    return None


def _encode_call(call: ToolCall, names: NameMap, sent: Mapping[str, Json]) -> Block:
    tool_use = {
        "toolUseId": _IDS.to_wire(call.id),
        "name": names.to_wire(call.name),
        "input": as_object(call.arguments),
    }
    return {**sent, "toolUse": tool_use}


def _encode_result(result: ToolResult) -> Block:
    text = result_text(result)
    content: list[Block] = [{"text": text}] if text.strip() else []
    for media in result.media:
        thing = parse_attachment(media)
        content.append(
            (_encode_attachment(thing) if thing else None)
            or {"text": describe_hidden(media)}
        )
    status = "success" if result.ok else "error"
    return {
        "toolResult": {
            "toolUseId": _IDS.to_wire(result.call_id),
            "content": content,
            "status": status,
        }
    }


def _encode_part(part: Mapping[str, Json] | Media) -> Block:
    thing = parse_attachment(part)
    if thing is not None:
        if (block := _encode_attachment(thing)) is None:
            raise ConfigError(f"Bedrock's models cannot be shown {thing.label}")
        return block
    if isinstance(part, Media):
        return {}
    if part.get("type") == "text":
        return {"text": str(part.get("text") or "")}
    return dict(part)


def _encode_attachment(thing: Attachment) -> Block | None:
    """Return the block that shows a thing to the model, or None for what it cannot be shown: Bedrock fetches only what
    lies in S3, and knows few forms."""
    if thing.base64:
        source: Json = {"bytes": thing.base64}
    elif thing.url.startswith("s3://"):
        source = {"s3Location": {"uri": thing.url}}
    else:
        return None
    if form := _PICTURES.get(thing.media_type):
        return {"image": {"format": form, "source": source}}
    if form := _DOCUMENTS.get(thing.media_type):
        # Names of documents may hold letters, digits, spaces, hyphens and brackets, and are read by the model.
        name = re.sub(r"[^a-zA-Z0-9 ()\[\]-]+", "-", thing.name).strip() or "document"
        return {"document": {"format": form, "name": name, "source": source}}
    return None


def _has_calls(messages: Iterable[Mapping[str, Json]]) -> bool:
    contents = (message.get("content") for message in messages)
    return any(
        is_call(block)
        for content in contents
        if isinstance(content, list)
        for block in content
    )


# -- reading an answer -------------------------------------------------------------------------------------------------


def _foreign(message: Json) -> str:
    """Return what shows that this is no assistant message of Bedrock's; empty when it is one."""
    if not isinstance(message, json_bodies.OBJECT):
        return f"it is {json_bodies.kind(message)}"
    if message.get("role") != "assistant":
        return f"its role is {message.get('role')!r}"
    if are_blocks(message.get("content")):
        return ""
    return "its content is no list of Bedrock's blocks"


_PRELUDE_BYTES = 12
_SUM_BYTES = 4


def _is_framed(body: bytes) -> bool:
    """Whether a body is frames of Amazon's event stream: they begin with a frame's length, which no text does."""
    return len(body) > _PRELUDE_BYTES and body[0] == 0


def _read_frames(body: bytes) -> Iterator[ServerEvent]:
    """Yield the events of a framed body: each frame has a length, headers that name the event, and JSON.

    The checksums are not looked at: the connection has its own.
    """
    at = 0
    while at < len(body):
        size, headers = (
            int.from_bytes(body[start : start + 4], "big") for start in (at, at + 4)
        )
        begin = at + _PRELUDE_BYTES + headers
        end = at + size - _SUM_BYTES
        if (
            size <= _PRELUDE_BYTES + _SUM_BYTES
            or not begin <= end <= len(body) - _SUM_BYTES
        ):
            return  # cut in its middle
        kind = _KIND.search(body, at, begin)
        if kind:
            name = kind[1].decode()
        else:
            name = ""
        yield ServerEvent(
            f'{{"{name}": {body[begin:end].decode("utf-8", "replace") or "{}"}}}'
        )
        at += size


_KIND = re.compile(rb":(?:event|exception)-type\x07..([a-zA-Z]+)", re.DOTALL)
"""The header that names an event: its name, the mark of a text, two bytes of length, the text."""


# -- reading a request -------------------------------------------------------------------------------------------------


def _parse_conversation(body: Mapping[str, Json]) -> list[Message]:
    messages: list[Message] = []
    system = join_text(as_blocks(body.get("system")))
    if system:
        messages.append(SystemMessage(system))
    for message in json_bodies.items(body.get("messages", []), "`messages`"):
        messages += _parse_message(json_bodies.mapping(message, "a message"))
    return messages


def _parse_message(message: Mapping[str, Json]) -> Iterator[Message]:
    """Yield what one message of a request says, results of calls first."""
    blocks = as_blocks(message.get("content"))
    if message.get("role") == "assistant":
        yield AssistantMessage(
            DIALECT.decode_message({"role": "assistant", "content": blocks})
        )
        return
    yield from (
        ToolMessage(_result(block["toolResult"]))
        for block in blocks
        if "toolResult" in block
    )
    contents = [block for block in blocks if "toolResult" not in block]
    if contents or not blocks:
        parts: tuple[Mapping[str, Json] | Media, ...] = ()
        if any(set(block) != {"text"} for block in contents):
            parts = tuple(map(_part, contents))
        yield UserMessage(join_text(contents), parts)


def _part(block: Block) -> Mapping[str, Json] | Media:
    return _media(block) or (
        {"type": "text", "text": block["text"]} if "text" in block else block
    )


def _media(block: Mapping[str, Json]) -> Media | None:
    fields = json_bodies.mapping(
        block.get("image") or block.get("document") or {}, "an image or a document"
    )
    source = fields.get("source")
    if not isinstance(source, Mapping):
        return None
    media_type = _MEDIA_TYPES.get(fields.get("format"), "")
    name = str(fields.get("name") or "")
    location = source.get("s3Location")
    if isinstance(location, Mapping):
        return Media(media_type, url=str(location.get("uri")), name=name)
    return Media(
        media_type,
        Attachment(media_type, str(source.get("bytes") or "")).bytes,
        name=name,
    )


def _result(fields: Json) -> ToolResult:
    fields = json_bodies.mapping(fields, "`toolResult`")
    blocks = as_blocks(fields.get("content"))
    texts = [
        json.dumps(block["json"], ensure_ascii=False)
        if "json" in block
        else join_text([block])
        for block in blocks
    ]
    text = "".join(texts)
    if fields.get("status") == "error":
        failure = Failure(Code.TOOL_ERROR, text)
    else:
        failure = None
    media = tuple(filter(None, map(_media, blocks)))
    return ToolResult(
        str(fields.get("toolUseId") or ""),
        value=text,
        failure=failure,
        text=text,
        media=media,
    )
