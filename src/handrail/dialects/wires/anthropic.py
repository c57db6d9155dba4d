"""Anthropic's Messages API: both ways, whole and streamed.

A message is a list of blocks: text, thinking, calls of tools, and what the provider ran itself. Claude's own blocks go
back unchanged, because thinking is signed and the results of the provider's tools are encrypted.

Rule 1: thinking and all blocks of the provider's own tools go back as they came, in their order.
Rule 2: an answer of another provider's model goes back as text and calls; its reasoning has no signature and stays out.
Rule 3: results of calls come first in the one message after the calls; the API refuses others.
Rule 4: no blank text goes out: the API sends such blocks and refuses them.
Rule 5: code execution keeps its container: the next request names the newest container that has not expired. Without
        it the API refuses the results of calls that a program made.
Rule 6: only a stated end is an end: an unknown `stop_reason`, or a stream without `message_stop`, is `error`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

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
from handrail.dialects.parts import Attachment, describe_hidden, parse_attachment
from handrail.dialects.wires.anthropic_blocks import (
    DELTAS,
    ENDING,
    Block,
    ContentBlock,
    MessageEnd,
    build_turn,
    in_deltas,
)
from handrail.dialects.wires.base import BaseWire, check_choice, foreign
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.sse import ServerEvent
from handrail.dialects.writing import (
    as_collection,
    as_object,
    event,
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
    Finish,
    Message,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.ports import Described
from handrail.schemas import portability

NAMES = NameRule("a-zA-Z0-9_-", most_chars=128)
"""What Anthropic accepts as a tool's name."""

_IDS = NameMap(NameRule("a-zA-Z0-9_-", most_chars=512))
"""What it accepts as a call's id, of any sensible length. Other providers' ids hold dots and colons."""

DEFAULT_MAX_TOKENS = 16_384
"""The API wants a limit in every request. Every model since Claude 4 takes this one (the least is 32,000), and a whole
answer of this length still comes within the ten minutes that the API grants it (21,333 tokens by the official SDK's
reckoning). A lower one would cut calls that write a file."""

_FINISH_WORDS: Mapping[Finish, str | None] = {
    "stop": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "refused": "refusal",
    "error": None,
}

_CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any", "none": "none"}
_CHOICES_BACK: Mapping[str, str] = {word: choice for choice, word in _CHOICES.items()}


@dataclass(frozen=True, slots=True)
class Anthropic(BaseWire):
    """The dialect.

    Attributes:
        clock: Tells the Unix time in seconds, which decides whether a container has expired.
    """

    name: str = "anthropic"
    clock: Callable[[], float] = time.time

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the base address requests go."""
        return "/v1/messages"

    # -- what we ask ---------------------------------------------------------------------------------------------------

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> dict[str, Json]:
        """Return the body of a request.

        System messages always come before the conversation: not every model takes them later.

        Raises:
            ConfigError: `tool_choice` names a tool that is not among the tools, or demands a call without any; or a
                person shows what no model here can be shown, such as a sound.
        """
        options = options or Options()
        tools = as_collection(tools)
        names = _name_map(tools)
        sent = fit_to_send(messages, tools)
        system, conversation = _conversation(sent, names)
        fields = {
            "model": options.model or None,
            "system": system or None,
            "temperature": options.temperature,
            "stream": options.stream or None,
            "container": _container(sent, self.clock),
        }
        body: dict[str, Json] = {
            "max_tokens": DEFAULT_MAX_TOKENS
            if options.max_tokens is None
            else options.max_tokens,
            "messages": conversation,
            **{key: value for key, value in fields.items() if value is not None},
            **self._tool_fields(tools, names, options),
            **options.extra,
        }
        if options.output is not None:
            # Effort is in the same field, and is the user's own.
            own = options.extra.get("output_config") or {}
            if not isinstance(own, Mapping):
                raise ConfigError(
                    "the option `output_config` is no object, so the answer's form has no place in it"
                )
            body["output_config"] = {**own, "format": _format(options.output)}
        return body

    def _tool_fields(
        self, tools: Collection[ToolLike], names: NameMap, options: Options
    ) -> dict[str, Json]:
        check_choice(options.tool_choice, tools, options.provider_tools, by_name=True)
        if not (tools or options.provider_tools):
            return {}
        definitions = [
            *self.definitions(tools, strict=options.strict),
            *options.provider_tools,
        ]
        return {"tools": definitions, "tool_choice": _tool_choice(options, names)}

    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools; see `BaseWire.definitions`. The strict form is Anthropic's own subset."""
        names = _name_map(tools)
        return [_definition(tool, names, strict) for tool in tools]

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> list[dict[str, Json]]:
        """Return the one user message that holds the results, in the order of the calls; none without calls.

        Raises:
            ValueError: The results are not one for each call.
        """
        blocks = [_encode_result(result) for result in in_call_order(calls, results)]
        if blocks:
            return [{"role": "user", "content": blocks}]
        return []

    # -- what we are answered ------------------------------------------------------------------------------------------

    def decode(
        self, body: Json | bytes, tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn in a whole response body, as a dictionary or as JSON text.

        Raises:
            ModelError: The body is an error (classified), or unreadable (`code="unreadable"`).
        """
        answer = json_bodies.parse_object(body)
        if provider_errors.error_in(answer):
            raise provider_errors.classify(None, {}, answer)
        blocks = [
            ContentBlock.whole(block)
            for block in json_bodies.items(answer.get("content"), "`content`")
        ]
        return received.whole_turn(
            build_turn(
                blocks, MessageEnd.of(answer, answer.get("usage")), _name_map(tools)
            )
        )

    def decode_message(
        self, message: Mapping[str, Json], tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn from one assistant message, or from a whole response body.

        A bare message does not say how the model ended; it counts as finished, with calls if it has any.

        Raises:
            ConfigError: It is no message of this dialect: read anyway, its calls would be passed over in silence.
            ModelError: As `decode`.
        """
        is_object = isinstance(message, json_bodies.OBJECT)
        if is_object and (
            message.get("stop_reason") or provider_errors.error_in(message)
        ):
            return self.decode(message, tools)
        if why := _foreign(message):
            raise foreign("message of Anthropic's", why)
        blocks = [
            ContentBlock.whole(block) for block in _as_blocks(message.get("content"))
        ]
        finish: Finish = "calls" if any(block.is_call for block in blocks) else "stop"
        return received.whole_turn(
            build_turn(blocks, MessageEnd(finish), _name_map(tools))
        )

    def stream(self, tools: Iterable[ToolLike] | None = None) -> AnthropicStream:
        """Return a reader for one streamed answer."""
        return AnthropicStream(self, tuple(tools or ()))

    # -- the provider's side -------------------------------------------------------------------------------------------

    def parse_path(self, path: str) -> dict[str, Json] | None:
        """Return what a path says beside the body; see `ServerDialect.asked_by`."""
        if path.endswith("/messages"):
            return {}
        return None

    def encode_error(self, message: str, *, status: int, type: str) -> dict[str, Json]:
        """Return the body of an error answer."""
        return {"type": "error", "error": {"type": type, "message": message}}

    def decode_request(
        self, body: Mapping[str, Json]
    ) -> tuple[list[Message], list[Described], Options]:
        """Return what a client asked: messages, tools and options.

        Raises:
            ConfigError: The request cannot be read.
            ModelError: As above: what both sides write is read by the same functions.
        """
        rest = dict(body)
        contents = json_bodies.items(rest.pop("messages", []), "`messages`")
        messages = [
            *_parse_message({"role": "system", "content": rest.pop("system", None)})
        ]
        for content in contents:
            messages += _parse_message(json_bodies.mapping(content, "a message"))
        own_tools: list[Described] = []
        provider_tools: list[Mapping[str, Json]] = []
        for entry in json_bodies.items(rest.pop("tools", None) or [], "`tools`"):
            tool = json_bodies.mapping(entry, "a tool")
            if _is_ours(tool):
                own_tools.append(_parse_tool(tool))
            else:
                provider_tools.append(tool)
        choice = json_bodies.mapping(
            rest.pop("tool_choice", None) or {"type": "auto"}, "`tool_choice`"
        )
        alone = choice.get("disable_parallel_tool_use")
        output = _take_output(rest.pop("output_config", None), rest)
        options = Options(
            model=str(rest.pop("model", "")),
            tool_choice=str(
                choice.get("name") or _CHOICES_BACK.get(str(choice.get("type")), "auto")
            ),
            parallel=None if alone is None else not alone,
            strict=any(tool.strict_parameters is not None for tool in own_tools),
            max_tokens=rest.pop("max_tokens", None),
            temperature=rest.pop("temperature", None),
            stream=bool(rest.pop("stream", False)),
            output=output,
            provider_tools=tuple(provider_tools),
            extra=rest,
        )
        return messages, own_tools, options

    def encode_turn(
        self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None
    ) -> dict[str, Json]:
        """Return the body that Anthropic would send for a turn; it holds no time of creation."""
        content = [
            block for block, _ in _encode_turn(turn, _name_map(tools), unsigned=True)
        ]
        return {
            **_head(envelope),
            "content": content,
            **_end(turn),
            "usage": _encode_usage(turn.usage),
        }

    def encode_stream(
        self,
        turn: Turn,
        envelope: Envelope,
        tools: Iterable[ToolLike] | None = None,
        *,
        piece_chars: int = 12,
    ) -> Iterator[str]:
        """Yield the events that Anthropic would stream for a turn, each whole, always with the usage.

        Args:
            piece_chars: Characters of text or arguments in one event.

        A turn that finished with `error` just breaks off, as a lost connection does.
        """
        usage = _encode_usage(turn.usage)
        head = {
            **_head(envelope),
            "content": [],
            **dict.fromkeys(_end(turn)),
            "usage": {**usage, "output_tokens": 0},
        }
        yield _event("message_start", message=head)
        for index, (block, arguments) in enumerate(
            _encode_turn(turn, _name_map(tools), unsigned=True)
        ):
            start, deltas = in_deltas(block, arguments, piece_chars)
            yield _event("content_block_start", index=index, content_block=start)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        if turn.finish == "error":
            return
        yield _event("message_delta", delta=_end(turn), usage=usage)
        yield _event("message_stop")


DIALECT = Anthropic()


class AnthropicStream(EventStream):
    """One streamed answer of the Messages form; see `DialectStream`."""

    def __init__(self, dialect: Anthropic, tools: Sequence[ToolLike]) -> None:
        super().__init__(dialect, tools)
        self._names = _name_map(tools)
        self._blocks: list[ContentBlock] = []
        self._open: dict[Json, ContentBlock] = {}  # by the index that the provider gave
        # blocks that have an id, with their index
        self._named: set[tuple[int, str]] = set()
        self._calls = 0
        self._message: dict[str, Json] = {}
        self._usage: dict[str, Json] = {}
        self._ended = False

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event; see `EventStream.take`."""
        payload = json_bodies.parse_object(event.data)
        kind = payload.get("type") or event.type
        if kind == "error" or event.type == "error" or payload.get("error"):
            raise provider_errors.classify(None, {}, payload)
        if isinstance(kind, str):
            handle = _EVENTS.get(kind)
        else:
            handle = None
        # others (`ping`, and those yet to be invented) say nothing
        if handle is not None and not self._ended:
            handle(self, payload, deltas)

    def _start(self, payload: Mapping[str, Json], deltas: list[Delta]) -> None:
        message = json_bodies.mapping(
            payload.get("message") or {}, "the message that a stream begins with"
        )
        self._note(message, message.get("usage"))
        # Gateways send this event twice. Calls of a running program come in it, whole.
        for block in (
            json_bodies.items(message.get("content") or [], "`content`")
            if not self._blocks
            else ()
        ):
            self._close(self._begin(block, deltas), deltas)

    def _begin(self, content: Json, deltas: list[Delta]) -> ContentBlock:
        block = ContentBlock.start(content)
        if block.is_call:
            block.position = self._calls
            self._calls += 1
        self._blocks.append(block)
        for name, delta in DELTAS.items():
            if isinstance(text := block.fields.get(name), str) and text:
                deltas.append(delta(text))
        return block

    def _begin_indexed(self, payload: Mapping[str, Json], deltas: list[Delta]) -> None:
        index = _index(payload)
        content = json_bodies.mapping(payload.get("content_block"), "a block")
        named = index, str(content.get("id") or "")
        if named in self._named:
            return  # gateways repeat events, and one call must not become two
        if index in self._open:
            self._close(self._open.pop(index), deltas)
        if named[1]:
            self._named.add(named)
        self._open[index] = self._begin(content, deltas)

    def _grow(self, payload: Mapping[str, Json], deltas: list[Delta]) -> None:
        block = self._open.get(_index(payload))
        if block is None:
            raise json_bodies.unreadable("a piece of a block came before the block")
        for name, text in block.grow(
            json_bodies.mapping(payload.get("delta"), "a delta of the stream")
        ):
            if name == "input":
                if block.is_call:
                    deltas.append(
                        ArgumentsDelta(
                            block.position, self._names.from_wire(block.name), text
                        )
                    )
            elif name in DELTAS:
                deltas.append(DELTAS[name](text))

    def _finish_indexed(self, payload: Mapping[str, Json], deltas: list[Delta]) -> None:
        if (block := self._open.pop(_index(payload), None)) is not None:
            self._close(block, deltas)

    def _close(self, block: ContentBlock, deltas: list[Delta]) -> None:
        """Take the arguments that came whole, in the block's first event, for those that came in no other."""
        if block.is_call and not block.arguments:
            text = block.take_whole_input()
            deltas.append(
                ArgumentsDelta(block.position, self._names.from_wire(block.name), text)
            )

    def _near_the_end(self, payload: Mapping[str, Json], deltas: list[Delta]) -> None:
        self._note(
            json_bodies.mapping(payload.get("delta") or {}, "a delta of the stream"),
            payload.get("usage"),
        )

    def _end(self, payload: Mapping[str, Json], deltas: list[Delta]) -> None:
        for block in self._open.values():
            self._close(block, deltas)
        self._open.clear()
        self._ended = True

    def _note(self, ending: Mapping[str, Json], usage: Json) -> None:
        """Merge the fields of an ending, and the counts, which are totals so far."""
        self._message |= {
            key: value
            for key, value in ending.items()
            if key in ENDING and value is not None
        }
        if isinstance(usage, Mapping):
            self._usage |= {
                key: value for key, value in usage.items() if value is not None
            }

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        ending = MessageEnd.of(self._message if self._ended else {}, self._usage)
        return build_turn(self._blocks, ending, self._names)


_EVENTS = {
    "message_start": AnthropicStream._start,
    "content_block_start": AnthropicStream._begin_indexed,
    "content_block_delta": AnthropicStream._grow,
    "content_block_stop": AnthropicStream._finish_indexed,
    "message_delta": AnthropicStream._near_the_end,
    "message_stop": AnthropicStream._end,
}


def _index(payload: Mapping[str, Json]) -> int:
    index = payload.get("index", 0)
    if not isinstance(index, int):
        raise json_bodies.unreadable(
            f"the index of a block is {json_bodies.kind(index)}, not a number"
        )
    return index


# -- writing a request -------------------------------------------------------------------------------------------------


def _name_map(tools: Iterable[ToolLike] | None) -> NameMap:
    return name_map(tools, NAMES)


def _definition(tool: ToolLike, names: NameMap, strict: bool) -> dict[str, Json]:
    definition: dict[str, Json] = {"name": names.to_wire(tool.name)}
    if tool.description:
        definition["description"] = tool.description
    if strict:
        lossless = portability.for_anthropic_strict(dict(tool.parameters))
    else:
        lossless = None
    if isinstance(lossless, dict):
        return {**definition, "input_schema": lossless, "strict": True}
    return {**definition, "input_schema": {"type": "object", **tool.parameters}}


def _tool_choice(options: Options, names: NameMap) -> Json:
    choice = options.tool_choice
    if choice in _CHOICES:
        fields: dict[str, Json] = {"type": _CHOICES[choice]}
    else:
        is_provided = any(tool.get("name") == choice for tool in options.provider_tools)
        fields = {
            "type": "tool",
            "name": choice if is_provided else names.to_wire(choice),
        }
    if options.parallel is None or choice == "none":
        return fields
    return {**fields, "disable_parallel_tool_use": not options.parallel}


def _format(output: Output) -> dict[str, Json]:
    lossless = portability.for_anthropic_strict(dict(output.schema))
    # A schema beyond its subset is sent as it is, for the provider to refuse: it may have learnt more by now.
    return {
        "type": "json_schema",
        "schema": lossless if isinstance(lossless, dict) else output.schema,
    }


def _conversation(
    messages: Sequence[Message], names: NameMap
) -> tuple[str, list[dict[str, Json]]]:
    """Return the system message and the messages, with roles that alternate."""
    system: list[str] = []
    groups: list[tuple[str, list[str | list[Block]]]] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            system.append(message.text)
        elif content := _encode(message, names):
            # else the turn is empty, which no history can hold
            if isinstance(message, AssistantMessage):
                role = "assistant"
            else:
                role = "user"
            if not groups or groups[-1][0] != role:
                groups.append((role, []))
            groups[-1][1].append(content)
    conversation: list[dict[str, Json]] = []
    for role, contents in groups:
        if len(contents) == 1:
            content = contents[0]
        else:
            content = [block for each in contents for block in _as_blocks(each)]
        conversation.append({"role": role, "content": content})
    return "\n\n".join(filter(None, system)), conversation


def _container(messages: Sequence[Message], clock: Callable[[], float]) -> str | None:
    """Return the id of the newest container that an answer names, unless it has expired."""
    answers = (
        each.turn.raw or {}
        for each in reversed(messages)
        if isinstance(each, AssistantMessage)
    )
    own = (raw.get("container") for raw in answers if raw.get("type") == "message")
    newest = next(
        (container for container in own if isinstance(container, Mapping)), {}
    )
    id = newest.get("id")
    expires_at = newest.get("expires_at")
    if isinstance(id, str) and not _is_past(expires_at, clock):
        return id
    return None


def _is_past(moment: Json, clock: Callable[[], float]) -> bool:
    """Whether a time that the API gave has passed; False if it cannot be parsed."""
    try:
        time = datetime.fromisoformat(moment)
    except (TypeError, ValueError):
        return False
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() <= clock()


def _encode(
    message: AssistantMessage | UserMessage | ToolMessage, names: NameMap
) -> str | list[Block]:
    match message:
        case AssistantMessage(turn):
            cut = turn.finish in ("length", "error")
            return [
                block
                for block, _ in _encode_turn(turn, names)
                if not _is_refused(block, cut)
            ]
        case ToolMessage(result):
            return [_encode_result(result)]
        case UserMessage(text, parts):
            if parts:
                return [
                    block
                    for block in map(_encode_part, parts)
                    if not _is_refused(block)
                ]
            return text


def _as_blocks(content: Json) -> list[Block]:
    """Return the blocks of a message's content, which may be mere text."""
    if content is None or isinstance(content, str):
        if content and content.strip():
            return [{"type": "text", "text": content}]
        return []
    blocks = json_bodies.items(content, "`content`")
    return [
        dict(json_bodies.mapping(block, "a block of a message")) for block in blocks
    ]


def _is_refused(block: Block, cut: bool = False) -> bool:
    """Whether the API would refuse the block, and with it the whole history."""
    if block.get("type") == "text":
        return not str(block.get("text")).strip()
    # The signature comes last, so thinking that was cut has none.
    return cut and block.get("type") == "thinking" and not block.get("signature")


def _encode_turn(
    turn: Turn, names: NameMap, *, unsigned: bool = False
) -> Iterator[tuple[Block, str]]:
    """Yield the blocks of a turn, each with the text of its arguments.

    Args:
        unsigned: Include reasoning that has no signature too, as we do when we are the provider.
    """
    sent = _own_blocks(turn)
    if sent is not None:
        calls = iter(turn.calls)
        for block in sent:
            if block.get("type") == "tool_use":
                yield _encode_call(next(calls), names, block)
            else:
                yield dict(block), ""
        return
    if unsigned and turn.reasoning:
        yield {"type": "thinking", "thinking": turn.reasoning, "signature": ""}, ""
    text = turn.text if unsigned else turn.text or turn.refusal
    if text:
        yield {"type": "text", "text": text}, ""
    for call in turn.calls:
        yield _encode_call(call, names, {})


def _own_blocks(turn: Turn) -> Sequence[Mapping[str, Json]] | None:
    """Return the blocks of a turn that came in this form, unless its calls are others by now."""
    raw = turn.raw or {}
    content = raw.get("content")
    if raw.get("type") != "message" or not isinstance(content, list):
        return None
    ids = [block.get("id") for block in content if block.get("type") == "tool_use"]
    if ids == [call.id for call in turn.calls]:
        return content
    return None


def _encode_call(
    call: ToolCall, names: NameMap, sent: Mapping[str, Json]
) -> tuple[Block, str]:
    id = _IDS.to_wire(call.id)
    name = names.to_wire(call.name)
    return {
        **sent,
        "type": "tool_use",
        "id": id,
        "name": name,
        "input": as_object(call.arguments),
    }, call.arguments


def _encode_part(part: Mapping[str, Json] | Media) -> Block:
    thing = parse_attachment(part)
    if thing is None:
        assert not isinstance(part, Media)  # which always shows something
        return dict(part)
    if (block := _encode_attachment(thing)) is None:
        raise ConfigError(f"Anthropic's models cannot be shown {thing.label}")
    return block


def _encode_attachment(thing: Attachment) -> Block | None:
    """Return the block that shows a thing to the model, or None for what it cannot be shown."""
    is_image = thing.media_type.startswith("image/")
    source: dict[str, Json]
    if thing.file_id:
        source = {"type": "file", "file_id": thing.file_id}
    elif thing.url and (is_image or thing.media_type == "application/pdf"):
        source = {"type": "url", "url": thing.url}
    elif thing.base64 and (is_image or thing.media_type == "application/pdf"):
        source = {
            "type": "base64",
            "media_type": thing.media_type,
            "data": thing.base64,
        }
    elif thing.base64 and thing.is_text:
        source = {"type": "text", "media_type": "text/plain", "data": thing.text}
    else:
        return None
    if is_image:
        return {"type": "image", "source": source}
    return {
        "type": "document",
        "source": source,
        **({"title": thing.name} if thing.name else {}),
    }


def _encode_result(result: ToolResult) -> Block:
    text = result_text(result)
    content: Json = result.value if _is_own_form(result) else text
    if result.media:
        seen = [(media, parse_attachment(media)) for media in result.media]
        blocks = [
            (_encode_attachment(thing) if thing else None)
            or {"type": "text", "text": describe_hidden(media)}
            for media, thing in seen
        ]
        content = [
            *({"type": "text", "text": text} for _ in range(bool(text.strip()))),
            *blocks,
        ]
    return {
        "type": "tool_result",
        "tool_use_id": _IDS.to_wire(result.call_id),
        "content": content,
        "is_error": not result.ok,
    }


def _is_own_form(result: ToolResult) -> bool:
    """Whether a result is nothing but blocks, one of which only Anthropic knows: sources to cite, tools found."""
    if result.text or not isinstance(result.value, list):
        return False
    kinds = [
        block.get("type") if isinstance(block, Mapping) else None
        for block in result.value
    ]
    return all(isinstance(kind, str) for kind in kinds) and not _OWN_RESULTS.isdisjoint(
        kinds
    )


_OWN_RESULTS = frozenset({"search_result", "tool_reference"})


# -- reading an answer -------------------------------------------------------------------------------------------------

_BLOCKS_OF_OTHERS = (
    "toolUse",
    "functionCall",
    "function_call",
    "tool_call",
    "image_url",
    "output_text",
    "input_text",
)


def _foreign(message: Json) -> str:
    """Return what shows that this is no assistant message of Anthropic's; empty when it is one."""
    if not isinstance(message, json_bodies.OBJECT):
        return f"it is {json_bodies.kind(message)}"
    for key in ("tool_calls", "function_call", "choices", "output", "candidates"):
        if message.get(key):
            return f"it has `{key}`"
    if message.get("role", "assistant") != "assistant":
        return f"its role is {message.get('role')!r}"
    content = message.get("content")
    if isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return f"its content is {json_bodies.kind(content)}"
    unknown = _blocks_of_others(content)
    return f"it has content blocks of type {', '.join(unknown)}" if unknown else ""


def _blocks_of_others(content: Sequence[Json]) -> list[str]:
    """Return the types of the blocks that only other providers have, each once."""
    # Bedrock's and Gemini's blocks have no type; their first key says what they are.
    types = [
        str(block.get("type") or next(iter(block), ""))
        for block in content
        if isinstance(block, Mapping)
    ]
    return list(
        dict.fromkeys(each for each in types if each in _BLOCKS_OF_OTHERS or not each)
    )


# -- the provider's side -----------------------------------------------------------------------------------------------


def _is_ours(tool: Mapping[str, Json]) -> bool:
    return tool.get("type") in (None, "custom")


def _parse_tool(tool: Mapping[str, Json]) -> Described:
    parameters = tool.get("input_schema")
    if not tool.get("name") or not isinstance(parameters, dict):
        raise ConfigError("the request has a tool without a name or an `input_schema`")
    if tool.get("strict"):
        strict = parameters
    else:
        strict = None
    return Described(
        str(tool["name"]), str(tool.get("description") or ""), parameters, strict
    )


def _take_output(config: Json, rest: dict[str, Json]) -> Output | None:
    """Return the form that the answer must have; what else the field says is left to the others."""
    if not isinstance(config, Mapping):
        return None
    form = config.get("format")
    if others := {key: value for key, value in config.items() if key != "format"}:
        rest["output_config"] = others
    if isinstance(form, Mapping) and isinstance(form.get("schema"), Mapping):
        return Output(form["schema"])
    return None


def _parse_message(message: Mapping[str, Json]) -> Iterator[Message]:
    """Yield what one message of a request says, results of calls first."""
    role = message.get("role")
    blocks = _as_blocks(message.get("content"))
    match role:
        case "system":
            if text := "\n\n".join(str(block.get("text") or "") for block in blocks):
                yield SystemMessage(text)
        case "assistant":
            yield AssistantMessage(
                DIALECT.decode_message({"role": role, "content": blocks})
            )
        case "user":
            yield from _parse_user_blocks(blocks)
        case _:
            raise ConfigError(
                f"a message has the role {role!r}; it is user or assistant"
            )


def _parse_user_blocks(blocks: Sequence[Block]) -> Iterator[Message]:
    contents: list[Block] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            yield ToolMessage(_result(block))
        else:
            contents.append(block)
    if contents or not blocks:
        parts: tuple[Mapping[str, Json] | Media, ...] = ()
        if [*map(set, contents)] != [{"type", "text"}]:
            parts = tuple(map(_part, contents))
        yield UserMessage(_join_text(contents), parts)


def _join_text(blocks: Iterable[Block]) -> str:
    return "".join(
        str(block.get("text") or "") for block in blocks if block.get("type") == "text"
    )


def _part(block: Block) -> Block:
    """Return a block as the chat form spells it, where it does."""
    media = _media(block)
    if media is None:
        return block
    if media.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": media.link}}
    if media.url:
        return block
    return {"type": "file", "file": {"filename": media.name, "file_data": media.link}}


def _media(block: Block) -> Media | None:
    """Return what a block shows; None where it shows nothing, or what only the provider holds."""
    source = block.get("source")
    if block.get("type") not in ("image", "document") or not isinstance(
        source, Mapping
    ):
        return None
    if block["type"] == "image":
        kind = "image/*"
    else:
        kind = "application/pdf"
    name = str(block.get("title") or "")
    match source.get("type"):
        case "url":
            return Media(kind, url=str(source.get("url")), name=name)
        case "text":
            return Media("text/plain", str(source.get("data")).encode(), name=name)
        case "base64":
            thing = Attachment(
                str(source.get("media_type") or kind), str(source.get("data"))
            )
            return Media(thing.media_type, thing.bytes, name=name)
        case _:
            return None


def _result(block: Block) -> ToolResult:
    content = _as_blocks(block.get("content"))
    text = _join_text(content)
    if block.get("is_error"):
        failure = Failure(Code.TOOL_ERROR, text)
    else:
        failure = None
    media = tuple(filter(None, map(_media, content)))
    id = str(block.get("tool_use_id") or "")
    if failure:
        value = None
    else:
        value = block.get("content")
    own = ToolResult(id, value=value)
    if _is_own_form(own):
        return own
    return ToolResult(id, value=value, failure=failure, text=text, media=media)


def _head(envelope: Envelope) -> dict[str, Json]:
    return {
        "id": envelope.id,
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
    }


def _end(turn: Turn) -> dict[str, Json]:
    if turn.refusal:
        details = {"type": "refusal", "category": None, "explanation": turn.refusal}
    else:
        details = None
    return {
        "stop_reason": _FINISH_WORDS[turn.finish],
        "stop_sequence": None,
        "stop_details": details,
    }


def _encode_usage(usage: Usage) -> dict[str, Json]:
    return {
        "input_tokens": usage.input_tokens
        - usage.cached_tokens
        - usage.cache_written_tokens,
        "cache_creation_input_tokens": usage.cache_written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _event(type: str, **fields: Any) -> str:
    return event({"type": type, **fields}, type)
