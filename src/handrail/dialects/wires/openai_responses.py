"""OpenAI Responses, and the servers that copy it: both ways, whole and streamed.

A conversation is a flat list of items here. The provider can store it; handrail asks it not to (`store: false`). Every
request carries the whole conversation, so that a run can be resumed, forked or audited from our own record. Reasoning
arrives encrypted and goes back unchanged. `Options.extra` may say otherwise (`store`, `include`,
`previous_response_id`).

Rule 1: the items of an answer go back as they came and in their order. Of a call the name and the arguments are written
        again, because a history is always valid JSON.
Rule 2: nothing goes back that only the provider's store could look up: no reasoning that is neither encrypted nor plain
        text, no id where the API does not demand one. A message without an id is text.
Rule 3: an unknown status is `error`, and so is a stream without its last event.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from mimetypes import guess_extension
from typing import ClassVar, TypeAlias

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
from handrail.dialects.parts import (
    SOUNDS,
    Attachment,
    describe_hidden,
    parse_attachment,
)
from handrail.dialects.programs import describe_outcome, find_runner, name_callers
from handrail.dialects.wires import prompt_caching
from handrail.dialects.wires.base import (
    BaseWire,
    check_choice,
    foreign,
    merge_field,
    sendable_allowed,
)
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.responses_items import (
    CALLS,
    OutputAssembler,
    OutputItem,
    OwnTools,
    TextPosition,
    encode_approval,
    is_approval_request,
    is_client_search,
    parse_answer,
    parse_finish,
    parse_usage,
    raise_if_failed,
)
from handrail.dialects.wires.responses_server import (
    FIRST_EVENTS,
    STATELESS,
    encode_ending,
    encode_item_events,
    encode_output,
    parse_request,
)
from handrail.dialects.wires.sse import ServerEvent
from handrail.dialects.writing import (
    as_collection,
    as_history,
    describe_with_examples,
    event,
    fit_to_send,
    found_tools,
    in_call_order,
    name_map,
    result_text,
)
from handrail.errors import ConfigError, Json
from handrail.messages import (
    ALLOW_MCP_CALL,
    SEARCH_TOOLS,
    AssistantMessage,
    Delta,
    Message,
    Options,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
    conversation_of,
)
from handrail.ports import Described
from handrail.schemas.portability import NotPortable, for_openai_strict

NAMES = NameRule("a-zA-Z0-9_-", most_chars=64)
"""What OpenAI accepts as a function's name."""


_DEFERRING = re.compile(r"gpt-(5\.([4-9]|\d\d)|[6-9]|\d\d)")

_Found: TypeAlias = "dict[str, dict[str, dict[str, Json]]]"
"""Definitions of tools that searches have loaded, by the search's call and the tool's own name."""

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
    runs_programs: ClassVar[str] = "programmatic_tool_calling"

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
        found = self._define_found(history, tools, options)
        fields = {
            "model": options.model or None,
            "instructions": instructions,
            "max_output_tokens": options.max_tokens,
            "temperature": options.temperature,
            "stream": options.stream or None,
        }
        is_stored = bool(options.extra.get("store"))
        body: dict[str, Json] = {
            "input": _items(history, names, is_stored, found=found),
            **STATELESS,
        }
        body |= {field: value for field, value in fields.items() if value is not None}
        tool_fields = self._tool_fields(tools, names, options, found=found)
        key = prompt_caching.key_fields(
            tools,
            self._define_tools(tools, options, found),
            instructions or "",
            options,
            server=self.server,
        )
        return body | key | tool_fields | _with_form(options)

    def _tool_fields(
        self,
        tools: Collection[ToolLike],
        names: NameMap,
        options: Options,
        *,
        found: _Found,
    ) -> dict[str, Json]:
        check_choice(options.tool_choice, tools, options.provider_tools)
        if not (tools or options.provider_tools):
            return {}
        defined = self._name_callers(
            self._define_tools(tools, options, found), tools, options
        )
        if options.provider_tools:
            # The engineer may describe a tool of ours in the provider's own terms, such as one that takes free text.
            named = {tool.get("name") for tool in options.provider_tools}
            defined = [each for each in defined if each["name"] not in named] + [
                *map(dict, options.provider_tools)
            ]
        fields: dict[str, Json] = {
            "tools": defined,
            "tool_choice": self._tool_choice(options, tools, names),
        }
        if options.parallel is None:
            return fields
        return {**fields, "parallel_tool_calls": options.parallel}

    def _tool_choice(
        self, options: Options, tools: Collection[ToolLike], names: NameMap
    ) -> Json:
        allowed = sendable_allowed(options, tools, server=self.server)
        if not allowed:
            return _tool_choice(options.tool_choice, names)
        return {
            "type": "allowed_tools",
            "mode": options.tool_choice,
            "tools": [
                {"type": "function", "name": names.to_wire(name)} for name in allowed
            ],
        }

    def asks_about_mcp(self, options: Options) -> bool:
        """See `BaseWire.asks_about_mcp`: the provider asks unless a server's `require_approval` says otherwise."""
        return any(tool.get("type") == "mcp" for tool in options.provider_tools)

    def defers_tools(self, model: str) -> bool:
        """See `BaseWire.defers_tools`: OpenAI's models since GPT-5.4 do."""
        return self.server == "own" and _DEFERRING.match(model) is not None

    def _define_found(
        self,
        messages: Sequence[Message],
        tools: Collection[ToolLike],
        options: Options,
    ) -> _Found:
        """Return the definitions of the tools that the searches of a conversation have loaded, by call and name."""
        deferral = options.deferral
        found: _Found = {}
        if deferral is None:
            return found
        searches = _find_searches(messages)
        defined: dict[str, dict[str, Json]] = {}
        for message in messages:
            if not isinstance(message, ToolMessage):
                continue
            result = message.result
            if result.call_id not in searches:
                continue
            if not defined:
                definitions = self._name_callers(
                    self.definitions(tools, strict=options.strict), tools, options
                )
                defined = {
                    tool.name: {**definition, "defer_loading": True}
                    for tool, definition in zip(tools, definitions, strict=True)
                }
            found[result.call_id] = {
                name: defined[name]
                for name in found_tools(result, deferral)
                if name in defined
            }
        return found

    def _name_callers(
        self,
        definitions: list[dict[str, Json]],
        tools: Collection[ToolLike],
        options: Options,
    ) -> list[dict[str, Json]]:
        """Return definitions that say which tools a program may call, and what it then gets."""
        if not find_runner(options.provider_tools, self.runs_programs):
            return definitions
        names = _name_map(tools)
        outcomes = {
            names.to_wire(tool.name): outcome
            for tool in tools
            if (outcome := describe_outcome(getattr(tool, "result_schema", None)))
        }
        named = name_callers(definitions, tools, names, program="programmatic")
        for each in named:
            outcome = outcomes.get(str(each.get("name")))
            if outcome is not None and "allowed_callers" in each:
                each["output_schema"] = outcome
        return named

    def _define_tools(
        self,
        tools: Collection[ToolLike],
        options: Options,
        found: _Found,
    ) -> list[dict[str, Json]]:
        """Return the tools as described, without those that a search loads, and the search as the provider's own."""
        defined = self.definitions(tools, strict=options.strict)
        deferral = options.deferral
        if deferral is None:
            if not _own_tools(tools).approval:
                return defined
            return _without_approval(tools, defined)
        loaded = frozenset(name for each in found.values() for name in each)
        sent: list[dict[str, Json]] = compute_once(
            tools,
            (type(self), options.strict, deferral.search, loaded),
            lambda: [
                _search_definition(definition)
                if tool.name == deferral.search
                else definition
                for tool, definition in zip(tools, defined, strict=True)
                if tool.name not in loaded and tool.name != ALLOW_MCP_CALL
            ],
        )
        return sent

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
        raise_if_failed(answer)
        json_bodies.items(answer.get("output"), "`output`")
        return received.whole_turn(
            parse_answer(answer, _name_map(tools).from_wire, _own_tools(tools))
        )

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
            if "status" not in message:
                message = {"status": "completed", **message}
            return self.decode(message, tools)
        if not (
            isinstance(message, json_bodies.OBJECT)
            and isinstance(message.get("type"), str)
        ):
            raise foreign("OpenAI response", "it has neither `output` nor a `type`")
        return self.decode({"status": "completed", "output": [message]}, tools)

    def stream(self, tools: Iterable[ToolLike] | None = None) -> ResponsesStream:
        """Return a reader for one streamed answer."""
        return ResponsesStream(self, tuple(tools or ()))

    def decode_conversation(self, body: Mapping[str, Json]) -> list[Message]:
        """Return the messages in a request; see `WireDialect.decode_conversation`."""
        return self.decode_request(body)[0]

    # -- the provider's side -------------------------------------------------------------------------------------------

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
        return parse_request(body)

    def encode_turn(
        self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None
    ) -> dict[str, Json]:
        """Return the body that OpenAI would send for a turn."""
        tools = as_collection(tools)
        output = list(encode_output(turn, _name_map(tools), envelope.id))
        return {**self._head(envelope, tools), **encode_ending(turn), "output": output}

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
        output = list(encode_output(turn, _name_map(tools), envelope.id))
        events: list[dict[str, Json]] = [
            {"type": f"response.{word}", "response": head} for word in FIRST_EVENTS
        ]
        for index, item in enumerate(output):
            events += encode_item_events(item, index, piece_chars)
        if turn.finish != "error":
            whole = {**head, **encode_ending(turn), "output": output} | (
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
        self._answer = OutputAssembler(_name_map(tools).from_wire, _own_tools(tools))
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
        raise_if_failed(end)
        self._answer.close(end.get("output"), deltas)
        self._end = end

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        return self._answer.turn(
            parse_finish(self._end),
            parse_usage(self._end.get("usage")),
            id=self._end.get("id"),
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
        "description": describe_with_examples(tool),
        "parameters": tool.parameters if lossless is None else lossless,
        # Always present: here, unlike in the chat form, a tool is strict by default.
        "strict": lossless is not None,
    }


def _without_approval(
    tools: Collection[ToolLike], defined: Sequence[dict[str, Json]]
) -> list[dict[str, Json]]:
    """Return definitions without the tool that answers the provider, which is no model's to call."""
    left: list[dict[str, Json]] = compute_once(
        tools,
        ("without approval", id(defined)),
        lambda: [
            definition
            for tool, definition in zip(tools, defined, strict=True)
            if tool.name != ALLOW_MCP_CALL
        ],
    )
    return left


def _search_definition(definition: Mapping[str, Json]) -> dict[str, Json]:
    """Return our search as the provider asks for one: it then loads the tools that are found."""
    return {
        "type": "tool_search",
        "execution": "client",
        "description": definition["description"],
        "parameters": definition["parameters"],
    }


def _own_tools(tools: Iterable[ToolLike] | None) -> OwnTools:
    """Return which of the tools answer what the provider asks in items of its own."""
    given = () if tools is None else tools
    own: OwnTools = compute_once(given, OwnTools, lambda: _find_own_tools(given))
    return own


def _find_own_tools(tools: Iterable[ToolLike]) -> OwnTools:
    names = {tool.name for tool in tools}
    return OwnTools(
        search=SEARCH_TOOLS if SEARCH_TOOLS in names else "",
        approval=ALLOW_MCP_CALL if ALLOW_MCP_CALL in names else "",
    )


def _find_searches(messages: Iterable[Message]) -> set[str]:
    """Return the ids of the searches for tools that the provider has asked of us in its own form."""
    return {
        str(item.get("call_id"))
        for message in messages
        if isinstance(message, AssistantMessage)
        for item in (message.turn.raw or {}).get("output") or ()
        if isinstance(item, Mapping) and is_client_search(item)
    }


def _tool_choice(choice: str, names: NameMap) -> Json:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "name": names.to_wire(choice)}


def _with_form(options: Options) -> dict[str, Json]:
    """Return the provider's own fields, with the form of the answer added to the field `text`."""
    fields = dict(options.extra)
    if options.effort is not None:
        effort = {"effort": options.effort}
        fields["reasoning"] = merge_field(options.extra, "reasoning", effort)
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
    messages: Iterable[Message], names: NameMap, is_stored: bool, *, found: _Found
) -> list[dict[str, Json]]:
    items: list[dict[str, Json]] = []
    free_text: set[str] = set()  # calls that are answered in another kind of item
    searches: set[str] = set()
    questions: dict[str, dict[str, Json]] = {}
    callers: dict[str, Json] = {}  # of each call, the program that gets the result
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
                if result.call_id in searches:
                    items.append(_encode_search_output(result, found))
                    continue
                if result.call_id in questions:
                    question = questions[result.call_id]
                    text = result_text(result)
                    items.append(encode_approval(question, result, text))
                    continue
                item = _encode_result(result, custom=result.call_id in free_text)
                if result.call_id in callers:
                    item["caller"] = callers[result.call_id]
                items.append(item)
            case AssistantMessage(turn):
                output = _encode_assistant(turn, names, is_stored)
                searches |= {
                    str(each.get("call_id"))
                    for each in output
                    if is_client_search(each)
                }
                questions |= {
                    each["id"]: each
                    for each in output
                    if is_approval_request(each) and "id" in each
                }
                callers |= {
                    each["call_id"]: each["caller"]
                    for each in output
                    if each.get("caller") and "call_id" in each
                }
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
    calls = deque(turn.calls)
    items: list[dict[str, Json]] = []
    for item in output:
        if calls and calls[0].id == _find_request_id(item):
            calls.popleft()
            items.append(item)
        elif item["type"] in CALLS:
            if calls:
                items.append(_encode_call(calls.popleft(), names, item))
        else:
            items += _encode_sent_item(item, is_stored)
    items += [_encode_call(call, names) for call in calls]
    if is_stored:
        return items
    return [_without_id(item) for item in items]


def _find_request_id(item: Mapping[str, Json]) -> Json:
    """Return the id of what the provider asks us in an item of its own; empty for any other item."""
    if is_client_search(item):
        return item.get("call_id")
    if is_approval_request(item):
        return item.get("id")
    return ""


def _encode_sent_item(item: dict[str, Json], is_stored: bool) -> list[dict[str, Json]]:
    """Return the items that go back for one that is no call: the item itself, its text, or none."""
    if item["type"] == "message" and not (is_stored and item.get("id")):
        return _plain_message(item)
    if item["type"] == "reasoning" and not (is_stored or _is_readable(item)):
        return []
    return [item]


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


def _encode_search_output(result: ToolResult, found: _Found) -> dict[str, Json]:
    """Return what a search has found; of a failure, nothing, for there is no other place to say it."""
    return {
        "type": "tool_search_output",
        "call_id": result.call_id,
        "execution": "client",
        "status": "completed",
        "tools": list(found.get(result.call_id, {}).values()),
    }


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
    link = thing.link
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
