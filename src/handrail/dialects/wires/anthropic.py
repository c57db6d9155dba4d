"""Anthropic's Messages API: both ways, whole and streamed.

A message is a list of blocks: text, thinking, calls of tools, and what the provider ran itself. Claude's own blocks go
back unchanged, because thinking is signed and the results of the provider's tools are encrypted.

Rule 1: thinking and all blocks of the provider's own tools go back as they came, in their order.
Rule 2: an answer of another provider's model goes back as text and calls; its reasoning has no signature and stays out.
Rule 3: results of calls come first in the one message after the calls; the API refuses others.
Rule 4: no blank text goes out: the API sends such blocks and refuses them.
Rule 5: code execution keeps its container: the next request names the newest container that has not expired. Without
        it the API refuses the results of calls that a program made.
Rule 6: an unknown `stop_reason` is `error`, and so is a stream without `message_stop`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import (
    Conversation,
    Envelope,
    ToolLike,
    compute_once,
    json_bodies,
    provider_errors,
    received,
)
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.parts import Attachment, describe_hidden, parse_attachment
from handrail.dialects.programs import find_program, find_runner, name_callers
from handrail.dialects.wires import prompt_caching
from handrail.dialects.wires.anthropic_blocks import (
    DELTAS,
    ENDING,
    Block,
    ContentBlock,
    MessageEnd,
    as_blocks,
    build_turn,
    in_deltas,
    is_own_form,
    parse_message,
)
from handrail.dialects.wires.anthropic_server import (
    encode_end,
    encode_event,
    encode_head,
    encode_usage,
    parse_request,
)
from handrail.dialects.wires.base import BaseWire, check_choice, merge_field
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.sse import ServerEvent
from handrail.dialects.writing import (
    as_collection,
    as_object,
    as_user_message,
    describe_with_examples,
    fit_to_send,
    fitting_examples,
    found_tools,
    in_call_order,
    loaded_tools,
    name_map,
    result_text,
)
from handrail.errors import ConfigError, Json
from handrail.messages import (
    ArgumentsDelta,
    AssistantMessage,
    Deferral,
    Delta,
    Message,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.ports import Described
from handrail.schemas import portability
from handrail.surroundings.clock import unix_time

NAMES = NameRule("a-zA-Z0-9_-", most_chars=128)
"""What Anthropic accepts as a tool's name."""

_IDS = NameMap(NameRule("a-zA-Z0-9_-", most_chars=512))
"""What it accepts as a call's id, of any sensible length. Other providers' ids hold dots and colons."""

DEFAULT_MAX_TOKENS = 16_384
"""The API wants a limit in every request. Every model since Claude 4 takes this one (the least is 32,000), and a whole
answer of this length still comes within the ten minutes that the API grants it (21,333 tokens by the official SDK's
reckoning). A lower one would cut calls that write a file."""


_WITHOUT_DEFERRAL = re.compile(r"claude-(2|3|instant)")
_MARKS = frozenset({"cache_control"})
_MOST_LOOKED_BACK = 18
"""Blocks of one turn within which the provider finds the end of the request before; it looks back over 20."""

_CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any", "none": "none"}


@dataclass(frozen=True, slots=True)
class Anthropic(BaseWire):
    """The dialect.

    Attributes:
        clock: Tells the Unix time in seconds, which decides whether a container has expired.
    """

    name: str = "anthropic"
    clock: Callable[[], float] = unix_time
    runs_programs: ClassVar[str] = "code_execution_"

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
        # Where no call may come, the API refuses tools that were found.
        deferral = None if options.tool_choice == "none" else options.deferral
        system, conversation = _conversation(sent, names, deferral)
        if sent and not isinstance(sent[0], AssistantMessage):
            # else it is a part of a conversation, and the programs may stand before it
            _drop_orphaned_callers(conversation)
        container = _newest_container(sent)
        is_lost = _is_past(container.get("expires_at"), self.clock)
        if is_lost:
            _end_lost_programs(conversation)
        mark = self._cache_mark(sent, options)
        if mark is not None and self.marks_history(sent, options):
            _mark_history(conversation, mark, with_end=self.server != "own")
        fields = {
            "model": options.model or None,
            "system": _system(system, mark),
            "cache_control": mark if self.server == "own" else None,
            "temperature": options.temperature,
            "stream": options.stream or None,
            "container": None if is_lost else container.get("id"),
        }
        body: dict[str, Json] = {
            "max_tokens": DEFAULT_MAX_TOKENS
            if options.max_tokens is None
            else options.max_tokens,
            "messages": conversation,
            **{key: value for key, value in fields.items() if value is not None},
            **self._tool_fields(
                tools, names, options, mark, loaded=loaded_tools(sent, deferral)
            ),
            **_name_container(options.extra),
        }
        if options.effort is not None:
            effort = {"effort": options.effort}
            body["output_config"] = merge_field(options.extra, "output_config", effort)
        if options.output is not None:
            body["output_config"] = _output_config(options.output, body)
        return body

    def marks_history(self, messages: Sequence[Message], options: Options) -> bool:
        """Whether marks are needed in the history: everywhere but at Anthropic itself, which sets the last one.

        Anthropic looks back from its mark over 20 blocks for what the request before has left. A turn with many calls
        is longer than that, and then the end of that request is marked.
        """
        if self._cache_mark(messages, options) is None:
            return False
        return self.server != "own" or _last_turn_blocks(messages) > _MOST_LOOKED_BACK

    def _cache_mark(
        self, messages: Sequence[Message], options: Options
    ) -> dict[str, Json] | None:
        """Return the mark of what the provider is to keep; None for a request without marks of ours."""
        takes_it = bool(
            self.server
        )  # copies know marks in blocks, which agents send to all of them
        if not prompt_caching.is_wanted(options, takes_it):
            return None
        if prompt_caching.has_own_marks(messages, options, _MARKS):
            return None
        if options.cache == "1h":
            return {"type": "ephemeral", "ttl": "1h"}
        return {"type": "ephemeral"}

    def _tool_fields(
        self,
        tools: Collection[ToolLike],
        names: NameMap,
        options: Options,
        mark: dict[str, Json] | None,
        *,
        loaded: frozenset[str],
    ) -> dict[str, Json]:
        check_choice(options.tool_choice, tools, options.provider_tools, by_name=True)
        if not (tools or options.provider_tools):
            return {}
        sent = self._define_tools(tools, options, mark, loaded=loaded)
        runner = find_runner(options.provider_tools, self.runs_programs)
        if runner:
            sent = _without_strict(name_callers(sent, tools, names, program=runner))
        definitions: list[Mapping[str, Json]] = [*sent, *options.provider_tools]
        return {"tools": definitions, "tool_choice": _tool_choice(options, names)}

    def _define_tools(
        self,
        tools: Collection[ToolLike],
        options: Options,
        mark: dict[str, Json] | None,
        *,
        loaded: frozenset[str],
    ) -> list[dict[str, Json]]:
        """Return the tools as described: those that a search loads deferred, the last other one marked."""
        defined = self.definitions(tools, strict=options.strict)
        if not defined or (mark is None and not loaded):
            return defined
        sent: list[dict[str, Json]] = compute_once(
            tools,
            (type(self), self.server, options.strict, mark and options.cache, loaded),
            lambda: _mark_and_defer(tools, defined, mark, loaded),
        )
        return sent

    def defers_tools(self, model: str) -> bool:
        """See `BaseWire.defers_tools`: Anthropic's models since Claude 4 do."""
        return self.server == "own" and _WITHOUT_DEFERRAL.match(model) is None

    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools; see `BaseWire.definitions`. The strict form is Anthropic's own subset."""
        names = _name_map(tools)
        return [
            _definition(tool, names, strict, with_examples=self.server == "own")
            for tool in tools
        ]

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
        return parse_message(message, _name_map(tools))

    def stream(self, tools: Iterable[ToolLike] | None = None) -> AnthropicStream:
        """Return a reader for one streamed answer."""
        return AnthropicStream(self, tuple(tools or ()))

    def decode_conversation(self, body: Mapping[str, Json]) -> list[Message]:
        """Return the messages in a request; see `WireDialect.decode_conversation`."""
        return self.decode_request(body)[0]

    # -- the provider's side -------------------------------------------------------------------------------------------

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
        return parse_request(body, _name_map(None))

    def encode_turn(
        self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None
    ) -> dict[str, Json]:
        """Return the body that Anthropic would send for a turn; it holds no time of creation."""
        content = [
            block for block, _ in _encode_turn(turn, _name_map(tools), unsigned=True)
        ]
        return {
            **encode_head(envelope),
            "content": content,
            **encode_end(turn),
            "usage": encode_usage(turn.usage),
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
        usage = encode_usage(turn.usage)
        head = {
            **encode_head(envelope),
            "content": [],
            **dict.fromkeys(encode_end(turn)),
            "usage": {**usage, "output_tokens": 0},
        }
        yield encode_event("message_start", message=head)
        for index, (block, arguments) in enumerate(
            _encode_turn(turn, _name_map(tools), unsigned=True)
        ):
            start, deltas = in_deltas(block, arguments, piece_chars)
            yield encode_event("content_block_start", index=index, content_block=start)
            for delta in deltas:
                yield encode_event("content_block_delta", index=index, delta=delta)
            yield encode_event("content_block_stop", index=index)
        if turn.finish == "error":
            return
        yield encode_event("message_delta", delta=encode_end(turn), usage=usage)
        yield encode_event("message_stop")


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
        if not self._blocks:
            for block in json_bodies.items(message.get("content") or [], "`content`"):
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
        """Take the arguments from the block's first event, if no later event brought any."""
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


def _definition(
    tool: ToolLike, names: NameMap, strict: bool, *, with_examples: bool
) -> dict[str, Json]:
    if strict:
        lossless = portability.for_anthropic_strict(dict(tool.parameters))
    else:
        lossless = None
    is_strict = isinstance(lossless, dict)
    has_field = with_examples and not is_strict
    description = tool.description if has_field else describe_with_examples(tool)
    definition: dict[str, Json] = {"name": names.to_wire(tool.name)}
    if description:
        definition["description"] = description
    if is_strict:
        return {**definition, "input_schema": lossless, "strict": True}
    definition["input_schema"] = {"type": "object", **tool.parameters}
    if has_field and (examples := fitting_examples(tool)):
        definition["input_examples"] = examples
    return definition


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


def _output_config(output: Output, body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the answer's form, merged with the other members of the same field, such as the effort."""
    own = body.get("output_config") or {}
    if not isinstance(own, Mapping):
        raise ConfigError(
            "the option `output_config` is no object, so the answer's form has no place in it"
        )
    return {**own, "format": _format(output)}


def _format(output: Output) -> dict[str, Json]:
    lossless = portability.for_anthropic_strict(dict(output.schema))
    # A schema beyond its subset is sent as it is, for the provider to refuse: it may have learnt more by now.
    return {
        "type": "json_schema",
        "schema": lossless if isinstance(lossless, dict) else output.schema,
    }


def _mark_and_defer(
    tools: Iterable[ToolLike],
    defined: Sequence[dict[str, Json]],
    mark: dict[str, Json] | None,
    loaded: frozenset[str],
) -> list[dict[str, Json]]:
    """Return the definitions, loaded tools last and deferred: the model reads those in the result that names them."""
    shown: list[dict[str, Json]] = []
    deferred: list[dict[str, Json]] = []
    for tool, definition in zip(tools, defined, strict=True):
        if tool.name in loaded:
            deferred.append({**definition, "defer_loading": True})
        else:
            shown.append(definition)
    if shown and mark is not None:
        shown[-1] = {**shown[-1], "cache_control": mark}
    return shown + deferred


def _conversation(
    messages: Sequence[Message], names: NameMap, deferral: Deferral | None
) -> tuple[str, list[dict[str, Json]]]:
    """Return the system message and the messages, with roles that alternate."""
    system: list[str] = []
    groups: list[tuple[str, list[str | list[Block]]]] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            system.append(message.text)
        elif content := _encode(message, names, deferral):
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
            content = [block for each in contents for block in as_blocks(each)]
        conversation.append({"role": role, "content": content})
    return "\n\n".join(filter(None, system)), conversation


def _system(text: str, mark: Mapping[str, Json] | None) -> Json:
    """Return the system message, marked as what the provider is to keep; None without one."""
    if not text:
        return None
    if mark is None:
        return text
    return [{"type": "text", "text": text, "cache_control": mark}]


def _last_turn_blocks(messages: Sequence[Message]) -> int:
    """Return about how many blocks the newest answer and its results add."""
    blocks = 0
    for message in reversed(messages):
        blocks += 1
        if isinstance(message, AssistantMessage):
            turn = message.turn
            return blocks + len(turn.calls) + len(turn.server_side) + 1
    return blocks


def _mark_history(
    conversation: list[dict[str, Json]], mark: Mapping[str, Json], *, with_end: bool
) -> None:
    """Mark where the request before ended, so that it is found again, and where this one ends."""
    places = [-3, -1] if with_end else [-3]
    for place in places:
        if len(conversation) < -place:
            continue
        message = conversation[place]
        blocks = as_blocks(message["content"])
        if message["role"] == "user" and blocks:
            blocks[-1] = {**blocks[-1], "cache_control": mark}
            conversation[place] = {**message, "content": blocks}


def _without_strict(
    definitions: Iterable[Mapping[str, Json]],
) -> list[dict[str, Json]]:
    """Return definitions without `strict` where a program may call the tool: the API takes only one of the two."""
    return [
        {
            name: value
            for name, value in each.items()
            if name != "strict" or "allowed_callers" not in each
        }
        for each in definitions
    ]


def _drop_orphaned_callers(conversation: Iterable[Mapping[str, Json]]) -> None:
    """Make calls of a program that is no longer in the history calls of the model's own: the API refuses others."""
    blocks = [
        block
        for message in conversation
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    called = [block for block in blocks if block.get("caller")]
    if not called:
        return
    programs = {
        block.get("id") for block in blocks if block.get("type") == "server_tool_use"
    }
    for block in called:
        caller = block["caller"]
        program = caller.get("tool_id") if isinstance(caller, Mapping) else None
        if program is not None and program not in programs:
            del block["caller"]


def _end_lost_programs(conversation: list[dict[str, Json]]) -> None:
    """Send the calls of a program whose container has expired as the model's own, and say that it did not go on.

    The API refuses results for a program that no longer runs. The calls are not made again.
    """
    lost = _find_lost_programs(conversation)
    if not lost:
        return
    last_places: dict[str, int] = {}
    for place, message in enumerate(conversation):
        blocks = as_blocks(message["content"])
        programs = [find_program(block.get("caller")) for block in blocks]
        last_places |= {program: place for program in programs if program in lost}
        if lost.isdisjoint(programs) and all(
            block.get("id") not in lost for block in blocks
        ):
            continue
        conversation[place] = {
            **message,
            "content": [
                {name: value for name, value in block.items() if name != "caller"}
                if program in lost
                else block
                for block, program in zip(blocks, programs, strict=True)
                if block.get("id") not in lost
            ],
        }
    for place in {*last_places.values()}:
        if place + 1 < len(conversation):
            results = conversation[place + 1]
            conversation[place + 1] = {
                **results,
                "content": [*as_blocks(results["content"]), dict(_LOST)],
            }


def _find_lost_programs(conversation: Sequence[Mapping[str, Json]]) -> set[str]:
    """Return the ids of programs that made calls and have no result of their own."""
    blocks = [
        block for message in conversation for block in as_blocks(message["content"])
    ]
    answered = {block.get("tool_use_id") for block in blocks}
    callers = {find_program(block.get("caller")) for block in blocks}
    started = {
        str(block.get("id"))
        for block in blocks
        if block.get("type") == "server_tool_use"
    }
    return (started & callers) - answered


_LOST: Block = {
    "type": "text",
    "text": "The container of your program expired before it had these results, and the program did not go on. "
    "The results of its calls are above; do not repeat a call that succeeded.",
}


def _name_container(extra: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the user's own fields, with a container that comes from an answer replaced by its id.

    Answers name a container by an object; requests accept an object only if it has `skills`.
    """
    container = extra.get("container")
    if not isinstance(container, Mapping) or "skills" in container:
        return extra
    id = container.get("id")
    return {**extra, "container": id} if isinstance(id, str) else extra


def _newest_container(messages: Sequence[Message]) -> Mapping[str, Json]:
    """Return the newest container that an answer names; empty where none does."""
    answers = (
        each.turn.raw or {}
        for each in reversed(messages)
        if isinstance(each, AssistantMessage)
    )
    own = (raw.get("container") for raw in answers if raw.get("type") == "message")
    return next(
        (
            container
            for container in own
            if isinstance(container, Mapping) and isinstance(container.get("id"), str)
        ),
        {},
    )


def _is_past(moment: Json, clock: Callable[[], float]) -> bool:
    """Whether a time that the API gave has passed; False if it cannot be parsed."""
    try:
        time = datetime.fromisoformat(moment)
    except (TypeError, ValueError):
        return False
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() <= clock()


def _encode(
    message: AssistantMessage | UserMessage | ToolMessage,
    names: NameMap,
    deferral: Deferral | None,
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
            block = _encode_result(result)
            if found := found_tools(result, deferral):
                # It goes into this result, and nothing else may stand beside it.
                block["content"] = [
                    {"type": "tool_reference", "tool_name": names.to_wire(name)}
                    for name in found
                ]
            return [block]
        case UserMessage(text, parts):
            if parts:
                return [
                    block
                    for block in map(_encode_part, parts)
                    if not _is_refused(block)
                ]
            return text


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
    source = _attachment_source(thing)
    if source is None:
        return None
    if thing.media_type.startswith("image/"):
        return {"type": "image", "source": source}
    block: Block = {"type": "document", "source": source}
    if thing.name:
        block["title"] = thing.name
    return block


def _attachment_source(thing: Attachment) -> dict[str, Json] | None:
    """Return where the API finds a thing's content; None for a form that it does not take."""
    media_type = thing.media_type
    is_seen = media_type.startswith("image/") or media_type == "application/pdf"
    if thing.file_id:
        return {"type": "file", "file_id": thing.file_id}
    if thing.url and is_seen:
        return {"type": "url", "url": thing.url}
    if thing.base64 and is_seen:
        return {"type": "base64", "media_type": media_type, "data": thing.base64}
    if thing.base64 and thing.is_text:
        return {"type": "text", "media_type": "text/plain", "data": thing.text}
    return None


def _encode_result(result: ToolResult) -> Block:
    text = result_text(result)
    content: Json = result.value if is_own_form(result) else text
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
