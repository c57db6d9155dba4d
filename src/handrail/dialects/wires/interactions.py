"""Gemini's Interactions API: both ways, whole and streamed.

A conversation is a list of steps: input, thoughts, output, calls, results, and what Gemini ran itself. The provider can
store a conversation and continue it by an id; we send it whole each time (`store: false`), as on every other wire.
Reading is in `interaction_steps`.

Rule 1: Gemini's steps go back as they came, in their order, because thoughts are signed; only the id, the name and the
        arguments of a call are written again.
Rule 2: an answer of another model goes back as output and calls.
Rule 3: nothing is stored at the provider unless the user's own `extra` says so.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import (
    Conversation,
    ToolLike,
    json_bodies,
    provider_errors,
    received,
)
from handrail.dialects.names import NameMap
from handrail.dialects.parts import Attachment, parse_attachment
from handrail.dialects.wires.base import (
    BaseWire,
    check_choice,
    foreign,
    merge_field,
    sendable_allowed,
)
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.gemini import NAMES, takes_arguments
from handrail.dialects.wires.interaction_steps import (
    CALL,
    INPUT,
    OUTPUT,
    RESULT,
    THOUGHT,
    Step,
    StepAssembler,
)
from handrail.dialects.wires.sse import ServerEvent
from handrail.dialects.writing import (
    as_collection,
    as_object,
    describe_with_examples,
    fit_to_send,
    in_call_order,
    name_map,
    result_text,
)
from handrail.errors import Code, Failure, Json
from handrail.messages import (
    AssistantMessage,
    Delta,
    Message,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
    conversation_of,
)

_MODES: Mapping[str, str] = {"required": "any", "none": "none"}

_CONFIG = "generation_config"
_MEDIA = ("image", "audio", "video", "document")


@dataclass(frozen=True, slots=True)
class Interactions(BaseWire):
    """The dialect."""

    name: str = "gemini-interactions"
    history: ClassVar[str] = "input"

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the base address requests go."""
        return "/v1beta/interactions"

    # -- what we ask ---------------------------------------------------------------------------------------------------

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> dict[str, Json]:
        """Return the body of a request.

        `parallel` is not sent: the API has no field for it.

        Raises:
            ConfigError: `tool_choice` names a tool that is not among `tools`, or demands a call without any tools.
        """
        options = options or Options()
        tools = as_collection(tools)
        names = _name_map(tools)
        # With a stored interaction the messages are only the end of a conversation: a result without its call is right.
        history: Sequence[Message]
        if "previous_interaction_id" in options.extra:
            history = conversation_of(messages)
        else:
            history = fit_to_send(messages, tools)
        system, steps = _conversation(history, names)
        fields: dict[str, Json] = {
            "model": options.model,
            "stream": options.stream,
            "system_instruction": system,
            "tools": self._tools(tools, options),
            _CONFIG: self._config(tools, names, options),
            "response_format": _response_format(options.output),
        }
        return {
            "store": False,
            **{field: value for field, value in fields.items() if value},
            "input": steps,
            **options.extra,
            **self._merge_config(fields[_CONFIG], options),
        }

    def _merge_config(
        self, config: Mapping[str, Json], options: Options
    ) -> dict[str, Json]:
        if config and _CONFIG in options.extra:
            return {_CONFIG: merge_field(options.extra, _CONFIG, config)}
        return {}

    def _tools(self, tools: Collection[ToolLike], options: Options) -> list[Json]:
        check_choice(options.tool_choice, tools)
        defined = self.definitions(tools)
        if options.provider_tools:
            return [*options.provider_tools, *defined]
        return defined

    def _config(
        self, tools: Collection[ToolLike], names: NameMap, options: Options
    ) -> dict[str, Json]:
        allowed = sendable_allowed(options, tools, server=self.server)
        config = {
            "max_output_tokens": options.max_tokens,
            "temperature": options.temperature,
            "thinking_level": options.effort,
            "tool_choice": _tool_choice(options, names, allowed) if tools else None,
        }
        return {key: value for key, value in config.items() if value is not None}

    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools; `strict` applies to the whole request, as the mode `validated`."""
        names = _name_map(tools)
        return [_define(tool, names) for tool in tools]

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> list[dict[str, Json]]:
        """Return one step for each call, in the order of the calls.

        Raises:
            ValueError: The results are not one for each call.
        """
        return [
            _encode_result(result, _NO_NAMES.to_wire(call.name))
            for call, result in zip(calls, in_call_order(calls, results), strict=True)
        ]

    # -- what we are answered ------------------------------------------------------------------------------------------

    def decode(
        self, body: Json | bytes, tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn in a whole response body, as a dictionary or as JSON text.

        Raises:
            ModelError: The body is an error (classified), or unreadable (`code="unreadable"`); the interaction failed.
        """
        interaction = json_bodies.parse_object(body)
        is_answer = "status" in interaction or "steps" in interaction
        if interaction.get("error") or (
            not is_answer and provider_errors.error_in(interaction)
        ):
            raise provider_errors.classify(None, {}, interaction)
        if not is_answer:
            raise json_bodies.unreadable("it has no `steps`")
        answer = StepAssembler(_name_map(tools))
        answer.take_interaction(interaction)
        return received.whole_turn(answer.turn())

    def decode_message(
        self, message: Mapping[str, Json], tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn from a whole response body, from its `steps` alone, or from one step of a model.

        Bare steps do not say how the model ended; they count as finished, with calls if there are any.

        Raises:
            ConfigError: It is none of these. Read all the same, it would lose its calls without an error.
            ModelError: As `decode`.
        """
        if isinstance(message, json_bodies.OBJECT) and (
            message.get("status") or message.get("error")
        ):
            return self.decode(message, tools)
        if why := _foreign(message):
            raise foreign("answer of the Interactions API", why)
        steps = message.get("steps", [message])
        answer = StepAssembler(_name_map(tools))
        answer.take_steps(steps)
        return received.whole_turn(answer.turn("stop"))

    def stream(self, tools: Iterable[ToolLike] | None = None) -> InteractionStream:
        """Return a reader for one streamed answer."""
        return InteractionStream(self, tuple(tools or ()))

    def decode_conversation(self, body: Mapping[str, Json]) -> list[Message]:
        """Return the messages in a request; see `WireDialect.decode_conversation`."""
        return _parse_conversation(body)


DIALECT = Interactions()


class InteractionStream(EventStream):
    """One streamed answer of the Interactions API; see `DialectStream`."""

    def __init__(self, dialect: Interactions, tools: Sequence[ToolLike]) -> None:
        super().__init__(dialect, tools)
        self._answer = StepAssembler(_name_map(tools))

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event; see `EventStream.take`."""
        payload = json_bodies.parse_object(event.data)
        if "event_type" not in payload:
            payload = {**payload, "event_type": event.type}
        self._answer.take_event(payload, deltas)

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        return self._answer.turn()


# -- writing a request -------------------------------------------------------------------------------------------------


def _name_map(tools: Iterable[ToolLike] | None) -> NameMap:
    return name_map(tools, NAMES)


_NO_NAMES = NameMap(NAMES)


def _tool_choice(options: Options, names: NameMap, allowed: Sequence[str]) -> Json:
    choice = options.tool_choice
    if allowed:
        mode = "any" if choice == "required" else "validated"
        return _encode_allowed_tools(mode, allowed, names)
    if choice == "auto":
        return "validated" if options.strict else None
    return _MODES.get(choice) or _encode_allowed_tools("any", [choice], names)


def _encode_allowed_tools(
    mode: str, tools: Sequence[str], names: NameMap
) -> dict[str, Json]:
    return {"allowed_tools": {"mode": mode, "tools": [*map(names.to_wire, tools)]}}


def _response_format(output: Output | None) -> Json:
    if output is None:
        return None
    return {"type": "text", "mime_type": "application/json", "schema": output.schema}


def _define(tool: ToolLike, names: NameMap) -> dict[str, Json]:
    definition: dict[str, Json] = {
        "type": "function",
        "name": names.to_wire(tool.name),
        "description": describe_with_examples(tool),
    }
    if takes_arguments(tool.parameters):
        definition["parameters"] = {"type": "object", **tool.parameters}
    return definition


def _conversation(
    messages: Sequence[Message], names: NameMap
) -> tuple[str, list[Step]]:
    """Return the system message and the steps.

    Args:
        messages: Fit to send: a turn is followed by its results, one for each call, in their order.
    """
    system: list[str] = []
    steps: list[Step] = []
    names_by_id: dict[str, str] = {}
    for message in messages:
        match message:
            case SystemMessage(text):
                system.append(text)
            case ToolMessage(result):
                name = names.to_wire(names_by_id.get(result.call_id, result.name))
                steps.append(_encode_result(result, name))
            case UserMessage(text, parts):
                content = [*map(_encode_part, parts)] if parts else [_text(text)]
                steps.append({"type": INPUT, "content": content})
            case AssistantMessage(turn):
                names_by_id = {call.id: call.name for call in turn.calls}
                steps += _encode_turn(turn, names)
    return "\n\n".join(filter(None, system)), steps


def _encode_turn(turn: Turn, names: NameMap) -> Iterator[Step]:
    sent = _own_steps(turn)
    if sent is not None:
        calls = iter(turn.calls)
        for step in sent:
            is_call = step.get("type") == CALL
            yield _encode_call(next(calls), names, step) if is_call else dict(step)
        return
    if text := turn.text or turn.refusal:
        yield {"type": OUTPUT, "content": [_text(text)]}
    for call in turn.calls:
        yield _encode_call(call, names, {})


def _own_steps(turn: Turn) -> Sequence[Mapping[str, Json]] | None:
    """Return the steps of a turn that came in this form; None if it came in another, or its calls were changed."""
    steps = (turn.raw or {}).get("steps")
    if not isinstance(steps, list):
        return None
    if sum(step.get("type") == CALL for step in steps) == len(turn.calls):
        return steps
    return None


def _encode_call(call: ToolCall, names: NameMap, sent: Mapping[str, Json]) -> Step:
    return {
        "type": CALL,
        **sent,
        "id": call.id,
        "name": names.to_wire(call.name),
        "arguments": as_object(call.arguments),
    }


def _encode_result(result: ToolResult, name: str) -> Step:
    """Return the step of a result: its text, then its media."""
    text = result_text(result)
    things = [thing for each in result.media if (thing := parse_attachment(each))]
    step: Step = {
        "type": RESULT,
        "call_id": result.call_id,
        "name": name,
        "result": [_text(text), *map(_encode_attachment, things)] if things else text,
    }
    if not result.ok:
        step["is_error"] = True
    return step


def _text(text: str) -> dict[str, Json]:
    return {"type": "text", "text": text}


def _encode_part(part: Mapping[str, Json] | Media) -> dict[str, Json]:
    thing = parse_attachment(part)
    if thing is not None:
        return _encode_attachment(thing)
    return dict(part) if isinstance(part, Mapping) else {}


def _encode_attachment(thing: Attachment) -> dict[str, Json]:
    media_type = thing.media_type
    kind = media_type.partition("/")[0]
    if not media_type or media_type.endswith("/*"):
        media_type = mimetypes.guess_type(thing.url or thing.name)[0] or ""
        kind = kind or media_type.partition("/")[0]
    if thing.is_text and thing.base64 and media_type != "text/csv":
        return _text(thing.text)  # the only kind of text that may be a document
    content: dict[str, Json] = {"type": kind if kind in _MEDIA else "document"}
    if media_type:
        content["mime_type"] = media_type
    if thing.base64:
        return {**content, "data": thing.base64}
    return {**content, "uri": thing.url or thing.file_id}


# -- reading a message -------------------------------------------------------------------------------------------------


def _foreign(message: Json) -> str:
    """Return why this is no answer of this API; empty if it is one."""
    if not isinstance(message, json_bodies.OBJECT):
        return f"it is {json_bodies.kind(message)}"
    if "steps" in message:
        if isinstance(message["steps"], list):
            return ""
        return "its `steps` are no list"
    kind = message.get("type")
    if not isinstance(kind, str) or "role" in message:
        return "it has no list of `steps`"
    if kind in (INPUT, RESULT):
        return f"it is a step of type {kind!r}"
    if kind in (OUTPUT, THOUGHT, CALL) or kind.endswith(("_call", "_result")):
        return ""
    return "it has no list of `steps`"


# -- reading a request -------------------------------------------------------------------------------------------------


def _parse_conversation(body: Mapping[str, Json]) -> list[Message]:
    messages: list[Message] = []
    system = body.get("system_instruction")
    if system:
        messages.append(SystemMessage(str(system)))
    given = body.get("input") or []
    if isinstance(given, str):
        return [*messages, UserMessage(given)]
    if isinstance(given, json_bodies.OBJECT):
        given = [given]
    entries = [
        json_bodies.mapping(each, "a step")
        for each in json_bodies.items(given, "`input`")
    ]
    if entries and all(each.get("type") in (*_MEDIA, "text") for each in entries):
        return [*messages, _user_message(entries)]
    answer: list[Json] = []
    for each in entries:
        kind = each.get("type")
        if kind not in (INPUT, RESULT):
            answer.append(each)
            continue
        if answer:
            messages.append(_assistant_message(answer))
            answer = []
        if kind == RESULT:
            messages.append(ToolMessage(_parse_result(each)))
        else:
            messages.append(_parse_input(each))
    if answer:
        messages.append(_assistant_message(answer))
    return messages


def _assistant_message(steps: list[Json]) -> AssistantMessage:
    return AssistantMessage(DIALECT.decode_message({"steps": steps}))


def _parse_input(step: Mapping[str, Json]) -> UserMessage:
    content = step.get("content") or []
    if isinstance(content, str):
        return UserMessage(content)
    return _user_message(
        [
            json_bodies.mapping(each, "a content")
            for each in json_bodies.items(content, "`content`")
        ]
    )


def _user_message(contents: Sequence[Mapping[str, Json]]) -> UserMessage:
    text = _join_text(contents)
    if len(contents) <= 1 and all(set(each) == {"type", "text"} for each in contents):
        return UserMessage(text)
    return UserMessage(text, tuple(_media(each) or each for each in contents))


def _join_text(contents: Iterable[Mapping[str, Json]]) -> str:
    return "".join(
        str(each.get("text") or "") for each in contents if each.get("type") == "text"
    )


def _media(content: Mapping[str, Json]) -> Media | None:
    if content.get("type") not in _MEDIA:
        return None
    media_type = str(content.get("mime_type") or f"{content['type']}/*")
    uri = str(content.get("uri") or "")
    data = Attachment(media_type, str(content.get("data") or "")).bytes
    if data or uri:
        return Media(media_type, data, uri)
    return None


def _parse_result(step: Mapping[str, Json]) -> ToolResult:
    value = step.get("result")
    shown: list[Media] = []
    text = ""
    if isinstance(value, list):
        contents = [json_bodies.mapping(each, "a content") for each in value]
        text = _join_text(contents)
        shown = [media for each in contents if (media := _media(each))]
        value = text
    elif isinstance(value, str):
        text = value
    elif value is not None:
        text = json.dumps(value, ensure_ascii=False)
    return ToolResult(
        str(step.get("call_id") or ""),
        str(step.get("name") or ""),
        value=value,
        failure=Failure(Code.TOOL_ERROR, text) if step.get("is_error") else None,
        text=text,
        media=tuple(shown),
    )
