"""Google Gemini's `generateContent`: both ways, whole and streamed.

A conversation is a list of contents, each a list of parts: text, thoughts, calls, results, and what Gemini ran itself.
Parts of a Gemini go back unchanged, because thoughts are signed and newer models refuse a call that lost its
signature. Reading is in `gemini_answers`.

Rule 1: parts of a Gemini go back as they came, in their order; of a call only name and arguments are written again.
Rule 2: an answer of another model goes back as text and calls, and its first call says that it never had a signature.
Rule 3: ids go back where the provider gave them. One that we made says nothing to it: there the order counts, and the
        results of one turn are in one content, in the order of the calls.
Rule 4: a tool is described in Gemini's own subset only where it loses nothing and values keep their types.
"""

from __future__ import annotations

import json
import mimetypes
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from pydantic_core import from_json

from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import Conversation, ToolLike, json_bodies, received
from handrail.dialects.call_assembly import was_made
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.parts import Attachment, parse_attachment
from handrail.dialects.wires.base import (
    BaseWire,
    check_choice,
    foreign,
    sendable_allowed,
)
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.gemini_answers import AnswerAssembler, Part, parse_chunks
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
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.schemas import portability
from handrail.schemas.provider_subsets import list_allowed_values
from handrail.schemas.walk import Schema, split_words, walk

NAMES = NameRule("a-zA-Z0-9_.:-", most_chars=64, first="a-zA-Z_")
"""What Gemini accepts as a function's name. Newer documents say 128 characters, older ones and Vertex AI 64."""

_PARAMETER_NAMES = NameRule("a-zA-Z0-9_", most_chars=64, first="a-zA-Z_")
"""What it accepts as a parameter's name in a schema of its own subset."""

_UNSIGNED = b64encode(b"skip_thought_signature_validator").decode()
"""The signature for a call that no Gemini made, by its guide on thought signatures. Gemini 3 refuses the
first call of a turn without one; earlier models ignore it."""

_MODES: Mapping[str, str] = {"auto": "AUTO", "required": "ANY", "none": "NONE"}

_SHARED_FIELDS = ("generationConfig", "toolConfig")
"""Fields that both we and a user's own `extra` may fill; theirs wins where both say something."""


@dataclass(frozen=True, slots=True)
class Gemini(BaseWire):
    """The dialect. Models before Gemini 3 refuse a form for the answer beside tools; such a run goes on in the next way
    to ask for it (`structured_output`)."""

    name: str = "gemini"
    history: ClassVar[str] = "contents"

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the base address requests go; the path says what other providers' bodies say."""
        if "/" in model:
            resource = model
        else:
            resource = f"models/{model}"
        return f"/v1beta/{quote(resource)}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"

    # -- what we ask ---------------------------------------------------------------------------------------------------

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> dict[str, Json]:
        """Return the body of a request.

        System messages always come before the conversation. Gemini has no field that says whether several calls are
        welcome: `parallel` stays out.

        Raises:
            ConfigError: `tool_choice` names a tool that is not among `tools`, or demands a call without any tools.
        """
        options = options or Options()
        tools = as_collection(tools)
        names = _name_map(tools)
        system, contents = _conversation(fit_to_send(messages, tools), names)
        body: dict[str, Json] = {"contents": contents}
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if config := _generation_config(options):
            body["generationConfig"] = config
        body |= self._tool_fields(tools, names, options)
        for name, value in options.extra.items():
            is_shared = name in _SHARED_FIELDS and isinstance(value, Mapping)
            if is_shared and body.get(name):
                body[name] = {**body[name], **value}
            else:
                body[name] = value
        return body

    def _tool_fields(
        self, tools: Collection[ToolLike], names: NameMap, options: Options
    ) -> dict[str, Json]:
        check_choice(options.tool_choice, tools)
        fields: dict[str, Json] = {}
        if tools or options.provider_tools:
            defined = self.definitions(tools, strict=options.strict)
            if options.provider_tools:
                fields["tools"] = [*options.provider_tools, *defined]
            else:
                fields["tools"] = defined
        if tools:
            fields["toolConfig"] = {
                "functionCallingConfig": _calling_config(
                    options,
                    names,
                    allowed=sendable_allowed(options, tools, server=self.server),
                )
            }
        return fields

    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools in one entry that declares them all; see `BaseWire.definitions`.

        A tool has no strict form of its own; `strict` applies to the whole request, as the mode `VALIDATED`.
        """
        names = _name_map(tools)
        if tools:
            return [
                {
                    "functionDeclarations": [
                        _declaration(tool, names) | self._outcome(tool)
                        for tool in tools
                    ]
                }
            ]
        return []

    def _outcome(self, tool: ToolLike) -> dict[str, Json]:
        """Return what a tool returns, where that is an object: any other result goes back as a text.

        Google's own API alone takes it.
        """
        schema = getattr(tool, "result_schema", None)
        if self.server != "own" or schema is None or schema.get("type") != "object":
            return {}
        return {"responseJsonSchema": schema}

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> list[dict[str, Json]]:
        """Return the one content that holds the results, in the order of the calls; none without calls.

        Raises:
            ValueError: The results are not one for each call.
        """
        parts: list[Part] = []
        for call, result in zip(calls, in_call_order(calls, results), strict=True):
            parts += _encode_result(result, _NO_NAMES.to_wire(call.name))
        if parts:
            return [{"role": "user", "parts": parts}]
        return []

    # -- what we are answered ------------------------------------------------------------------------------------------

    def decode(
        self, body: Json | bytes, tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn in a whole response body, as a dictionary or as JSON text.

        Raises:
            ModelError: The body is an error (classified), or unreadable (`code="unreadable"`); the model wrote a call
                that its provider could not read (`MALFORMED_FUNCTION_CALL`, to be tried again).
        """
        answer = AnswerAssembler(_name_map(tools))
        for chunk in parse_chunks(body):
            answer.take(chunk, [])
        return received.whole_turn(answer.turn())

    def decode_message(
        self, message: Mapping[str, Json], tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn from one content of a model, or from a whole response body; Google's own client gives both.

        A bare content does not say how the model ended; it counts as finished, with calls if it has any.

        Raises:
            ConfigError: It is no content of this dialect: read anyway, its calls would be passed over in silence.
            ModelError: As `decode`.
        """
        try:
            if not _is_in_json(message):
                message = _in_json(message)
        except RecursionError as error:
            raise json_bodies.unreadable("it is nested too deep") from error
        if isinstance(message, json_bodies.OBJECT) and (
            "candidates" in message or "promptFeedback" in message or "error" in message
        ):
            return self.decode(message, tools)
        if why := _foreign(message):
            raise foreign("content of Gemini's", why)
        return self.decode(
            {"candidates": [{"content": message, "finishReason": "STOP"}]}, tools
        )

    def stream(self, tools: Iterable[ToolLike] | None = None) -> ContentStream:
        """Return a reader for one streamed answer."""
        return ContentStream(self, tuple(tools or ()))

    def decode_conversation(self, body: Mapping[str, Json]) -> list[Message]:
        """Return the messages in a request; see `WireDialect.decode_conversation`."""
        return _parse_conversation(_camel(body))


DIALECT = Gemini()


class ContentStream(EventStream):
    """One streamed answer of Gemini; see `DialectStream`."""

    def __init__(self, dialect: Gemini, tools: Sequence[ToolLike]) -> None:
        super().__init__(dialect, tools)
        self._answer = AnswerAssembler(_name_map(tools))

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event; see `EventStream.take`."""
        self._answer.take(json_bodies.parse_object(event.data), deltas)

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        return self._answer.turn()


# -- writing a request -------------------------------------------------------------------------------------------------


def _name_map(tools: Iterable[ToolLike] | None) -> NameMap:
    return name_map(tools, NAMES)


_NO_NAMES = NameMap(NAMES)


def _generation_config(options: Options) -> dict[str, Json]:
    config: dict[str, Json] = {
        "maxOutputTokens": options.max_tokens,
        "temperature": options.temperature,
    }
    if options.effort is not None:
        config["thinkingConfig"] = {"thinkingLevel": options.effort}
    if options.output is not None:
        config |= {
            "responseMimeType": "application/json",
            "responseJsonSchema": options.output.schema,
        }
    return {key: value for key, value in config.items() if value is not None}


def _calling_config(
    options: Options, names: NameMap, *, allowed: Sequence[str]
) -> dict[str, Json]:
    choice = options.tool_choice
    if allowed:
        # No other modes take names; this one leaves the model free to answer with text.
        return {
            "mode": "ANY" if choice == "required" else "VALIDATED",
            "allowedFunctionNames": [names.to_wire(name) for name in allowed],
        }
    if choice == "auto" and options.strict:
        return {"mode": "VALIDATED"}
    if choice in _MODES:
        return {"mode": _MODES[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [names.to_wire(choice)]}


def _declaration(tool: ToolLike, names: NameMap) -> dict[str, Json]:
    declaration: dict[str, Json] = {
        "name": names.to_wire(tool.name),
        "description": describe_with_examples(tool),
    }
    schema = dict(tool.parameters)
    if not takes_arguments(schema):
        return declaration  # Gemini refuses an object without properties
    subset = portability.for_gemini(schema)
    if isinstance(subset, dict) and _is_lossless(schema):
        return {**declaration, "parameters": subset}
    # Any JSON Schema is taken here, if only by newer models and versions of the API.
    return {**declaration, "parametersJsonSchema": {"type": "object", **schema}}


_SAYS_NOTHING = split_words("type title description $schema $comment")
"""Keywords that ask for no argument."""


def takes_arguments(schema: Mapping[str, Json]) -> bool:
    """Whether the schema of a tool asks for any argument."""
    return any(
        value for keyword, value in schema.items() if keyword not in _SAYS_NOTHING
    )


def _is_lossless(schema: Schema) -> bool:
    """Whether arguments by Gemini's subset are those of the schema: it spells enums as text and takes few names."""
    parts = list(walk(schema))
    spelled = any(
        not isinstance(value, str | None)
        for part in parts
        for value in list_allowed_values(part)
    )
    return not spelled and all(
        _PARAMETER_NAMES.accepts(name)
        for part in parts
        for name in part.get("properties", ())
    )


def _conversation(
    messages: Sequence[Message], names: NameMap
) -> tuple[str, list[dict[str, Json]]]:
    """Return the system message and the contents; the results of one turn are in one of them.

    Args:
        messages: Fit to send: a turn is followed by its results, one for each call, in their order.
    """
    system: list[str] = []
    contents: list[dict[str, Json]] = []
    names_by_id: dict[str, str] = {}
    # of the last turn; in one content, which grows with each of them
    results: list[Part] = []
    for message in messages:
        match message:
            case SystemMessage(text):
                system.append(text)
                continue
            case ToolMessage(result):
                if not results:
                    contents.append({"role": "user", "parts": results})
                results += _encode_result(
                    result, names.to_wire(names_by_id[result.call_id])
                )
                continue
            case UserMessage(text, parts):
                content = [*map(_encode_part, parts)] if parts else [{"text": text}]
                contents.append({"role": "user", "parts": content})
            case AssistantMessage(turn):
                names_by_id = {call.id: call.name for call in turn.calls}
                content = [*_encode_turn(turn, names)]
                if content:  # a content without parts is refused
                    contents.append({"role": "model", "parts": content})
        results = []
    return "\n\n".join(filter(None, system)), contents


def _encode_turn(turn: Turn, names: NameMap) -> Iterator[Part]:
    sent = _own_parts(turn)
    if sent is not None:
        calls = iter(turn.calls)
        for part in sent:
            if "functionCall" in part:
                yield _encode_call(next(calls), names, part)
            else:
                yield dict(part)
        return
    if text := turn.text or turn.refusal:
        yield {"text": text}
    signature: Part = {"thoughtSignature": _UNSIGNED}
    for call in turn.calls:
        yield _encode_call(call, names, signature)
        signature = {}  # the first call alone has one


def _own_parts(turn: Turn) -> Sequence[Mapping[str, Json]] | None:
    """Return the parts of a turn that came in this form, unless its calls are others by now."""
    parts = (turn.raw or {}).get("parts")
    if not isinstance(parts, list):
        return None
    if sum("functionCall" in part for part in parts) == len(turn.calls):
        return parts
    return None


def _encode_call(call: ToolCall, names: NameMap, sent: Mapping[str, Json]) -> Part:
    return {
        **sent,
        "functionCall": {
            **_id(call.id),
            "name": names.to_wire(call.name),
            "args": as_object(call.arguments),
        },
    }


def _id(id: str) -> dict[str, Json]:
    if id and not was_made(id):
        return {"id": id}
    return {}


def _encode_result(result: ToolResult, name: str) -> list[Part]:
    """Return a result, and behind it what it shows: models before Gemini 3 take no media within the result itself."""
    response = {
        **_id(result.call_id),
        "name": name,
        "response": _response(result),
    }
    parts: list[Part] = [{"functionResponse": response}]
    for media in result.media:
        thing = parse_attachment(media)
        if thing is not None:
            parts.append(_encode_attachment(thing))
    return parts


def _response(result: ToolResult) -> dict[str, Json]:
    """Return a result as an object. Gemini reads `output` and `error` in it, and takes any other for the output."""
    text = result_text(result)
    value = _object_in(text)
    if not result.ok:
        return {"error": text if value is None else value}
    if value is None:
        return {"output": text}
    if "output" in value or "error" in value:
        return {"output": value}
    return value


def _object_in(text: str) -> dict[str, Json] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = from_json(text)
    except ValueError:
        return None
    if isinstance(value, dict) and received.is_sendable(value):
        return value
    return None


def _encode_part(part: Mapping[str, Json] | Media) -> Part:
    thing = parse_attachment(part)
    if thing is not None:
        return _encode_attachment(thing)
    if isinstance(part, Media) or part.get("type") != "text":
        if isinstance(part, Mapping):
            return dict(part)
        return {}
    return {"text": str(part.get("text") or "")}


def _encode_attachment(thing: Attachment) -> Part:
    media_type = thing.media_type
    if not media_type or media_type.endswith("/*"):
        media_type = mimetypes.guess_type(thing.url or thing.name)[0] or ""
    if media_type:
        fields = {"mimeType": media_type}
    else:
        fields = {}
    if thing.base64:
        return {"inlineData": {**fields, "data": thing.base64}}
    return {"fileData": {**fields, "fileUri": thing.url or thing.file_id}}


# -- reading a message -------------------------------------------------------------------------------------------------


_VALUES = ("args", "response")
"""Fields that hold somebody's own values, with names of their own."""


_SCALARS = frozenset((str, int, float, bool))


def _is_in_json(value: Json) -> bool:
    """Whether a message is as it was on the wire: `_in_json` would return its equal, at twice the cost."""
    if isinstance(value, list):
        return all(map(_is_in_json, value))
    if not isinstance(value, json_bodies.OBJECT):
        return not isinstance(value, bytes)
    for name, each in value.items():
        if "_" in name:
            return False
        if type(each) in _SCALARS:
            continue
        if name in _VALUES and isinstance(each, json_bodies.OBJECT):
            continue
        if each is None or not _is_in_json(each):
            return False
    return True


def _in_json(value: Json, name: str = "") -> Json:
    """Return a message of Google's own Python client as it was on the wire: names, bytes, absent fields."""
    if isinstance(value, list):
        return [_in_json(each) for each in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if name in _VALUES or not isinstance(value, json_bodies.OBJECT):
        return value
    fields: dict[str, Json] = {}
    for given, each in value.items():
        if each is None:
            continue
        key = _camel_name(given) if "_" in given else given
        fields[key] = each if type(each) in _SCALARS else _in_json(each, key)
    return fields


def _foreign(message: Json) -> str:
    """Return what shows that this is no content of a Gemini; empty when it is one."""
    if not isinstance(message, json_bodies.OBJECT):
        return f"it is {json_bodies.kind(message)}"
    if message.get("role", "model") != "model":
        return f"its role is {message.get('role')!r}"
    if isinstance(message.get("parts"), list):
        return ""
    return "it has no list of `parts`"


# -- reading a request -------------------------------------------------------------------------------------------------


def _parse_conversation(body: Mapping[str, Json]) -> list[Message]:
    messages: list[Message] = []
    system = _join_text(_parse_parts(body.get("systemInstruction")))
    if system:
        messages.append(SystemMessage(system))
    calls: Sequence[ToolCall] = ()
    for content in json_bodies.items(body.get("contents", []), "`contents`"):
        for message in _parse_content(json_bodies.mapping(content, "a content"), calls):
            messages.append(message)
            if isinstance(message, AssistantMessage):
                calls = message.turn.calls
    return messages


def _camel(fields: Json) -> dict[str, Json]:
    """Return the fields by the names of Google's JSON; its servers take those of its protocol buffers as well."""
    given = json_bodies.mapping(fields, "a part of the request")
    return {_camel_name(key): given[key] for key in given}


def _camel_name(name: str) -> str:
    if "_" not in name:
        return name
    return re.sub(r"(?<=[a-z])_([a-z])", lambda match: match[1].upper(), name)


def _parse_parts(content: Json) -> list[Part]:
    if not content:
        return []
    parts = json_bodies.mapping(content, "a content").get("parts") or []
    if not isinstance(parts, list):
        parts = [parts]
    return [_camel(part) for part in parts]


def _join_text(parts: Iterable[Part]) -> str:
    return "".join(str(part.get("text") or "") for part in parts)


def _parse_content(
    content: Mapping[str, Json], calls: Sequence[ToolCall]
) -> Iterator[Message]:
    """Yield what one content of a request says.

    Args:
        calls: Those of the last turn; a result without an id answers the first of its name that has no result yet.
    """
    parts = _parse_parts(content)
    if content.get("role") == "model":
        yield AssistantMessage(
            DIALECT.decode_message({"role": "model", "parts": parts})
        )
        return
    waiting = list(calls)
    results = list[ToolResult]()
    others = list[Part]()
    for part in parts:
        if "functionResponse" in part:
            results.append(_result(_camel(part["functionResponse"]), waiting))
        elif results and (media := _media(part)):
            results[-1].media = (*results[-1].media, media)
        else:
            others.append(part)
    yield from map(ToolMessage, results)
    if others or not results:
        is_text = [set(part) for part in others] in ([], [{"text"}])
        yield UserMessage(
            _join_text(others), () if is_text else tuple(map(_part, others))
        )


def _part(part: Part) -> Mapping[str, Json] | Media:
    """Return a part as the chat form spells it, where it does."""
    if set(part) == {"text"}:
        return {"type": "text", "text": part["text"]}
    return _media(part) or part


def _media(part: Part) -> Media | None:
    fields = _camel(part.get("inlineData") or part.get("fileData") or {})
    media_type = str(fields.get("mimeType") or "")
    uri = str(fields.get("fileUri") or "")
    data = Attachment(media_type, str(fields.get("data") or "")).bytes
    if data or uri:
        return Media(media_type, data, uri)
    return None


def _result(fields: Mapping[str, Json], waiting: list[ToolCall]) -> ToolResult:
    name = str(fields.get("name") or "")
    call = _take_call(waiting, fields.get("id"), name)
    value = fields.get("response")
    is_error = False
    if isinstance(value, dict) and len(value) == 1:
        (key,) = value
        is_error = key == "error"
        if key in ("output", "error"):
            value = value[key]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    call_id = fields.get("id") or (call.id if call else "")
    failure = Failure(Code.TOOL_ERROR, text) if is_error else None
    return ToolResult(str(call_id), name, value=value, failure=failure, text=text)


def _take_call(waiting: list[ToolCall], id: Json, name: str) -> ToolCall | None:
    """Take the call that a result answers out of those that wait: by its id, or the first of its name."""
    for call in waiting:
        is_answered = call.id == id if id else call.name == name
        if is_answered:
            waiting.remove(call)
            return call
    return None
