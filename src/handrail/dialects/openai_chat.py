"""OpenAI Chat Completions, and the many servers that copy it: both ways, whole and streamed.

The copies differ in small things, so reading is lenient where nothing is lost by it (arguments as an object, missing
ids, reasoning under three names) and strict where something would be invented. Writing keeps to OpenAI's own form.

Rule 1: arguments reach `ToolCall` as the provider sent them, whether or not they are JSON.
Rule 2: arguments go back as a JSON object always: strict servers refuse a whole history for one malformed string.
Rule 3: only a stated end is an end. A missing or unknown `finish_reason` is `error`, also after complete calls.
Rule 4: of the provider's message only `_GOES_BACK` goes back; other servers refuse the fields that they invented.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from handrail import faults, portability
from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import Conversation, Envelope, ToolLike, bodies, provider_errors, received
from handrail.dialects.assembly import CallAssembler, StreamedCall, with_ids
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.parts import SOUNDS
from handrail.dialects.sse import ServerEvent
from handrail.dialects.streams import EventStream
from handrail.dialects.wires import Wire, check_choice, foreign
from handrail.dialects.writing import (
    as_history,
    event,
    fit_to_send,
    in_call_order,
    kept,
    names_of,
    pieces,
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
    SystemMessage,
    TextDelta,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
    conversation_of,
)
from handrail.portability import NotPortable
from handrail.ports import Described
from handrail.shaping import label

NAMES = NameRule("a-zA-Z0-9_-", most_chars=64)
"""What OpenAI accepts as a function's name."""

_FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refused",
    # Words of compatible servers: Together, TGI, mlx-lm, Mistral, Zhipu, those of Gemini, Anthropic and Cohere behind
    # gateways.
    "eos": "stop",
    "eos_token": "stop",
    "complete": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "tool_call": "calls",
    "model_length": "length",
    "max_tokens": "length",
    "sensitive": "refused",
    "safety": "refused",
    "refusal": "refused",
}
_FINISH_WORDS: Mapping[Finish, str | None] = {
    "stop": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refused": "content_filter",
    "error": None,
}

_REASONING_KEYS = ("reasoning_content", "reasoning")
"""DeepSeek, Moonshot, Z.ai, xAI and older vLLM say the first; OpenRouter, Groq, Cerebras and newer vLLM the second."""

_GOES_BACK = (*_REASONING_KEYS, "reasoning_details")
"""Of the provider's message: reasoning, with its signatures and encrypted parts. The thinking models of DeepSeek and
Moonshot refuse a tool loop that comes back without it."""

_CALL_GOES_BACK = ("extra_content", "provider_specific_fields")
"""Of the provider's call: Gemini's thought signature, as Google's own endpoint and as gateways spell it."""

_OTHER_ARGUMENTS = ("parameters", "args")
"""What Llama's own form and LangChain say for `arguments`. Left unread, the call would run without any."""

_PARTS = {"text", "thinking", "refusal", "reference", "output_text"}
"""Types of content parts that hold no call: OpenAI's own and Mistral's."""

_CHOICE_WORDS: Mapping[str, str] = {"any": "required"}
"""Mistral's word for a required call, when we are the server."""


@dataclass(frozen=True, slots=True)
class OpenAIChat(Wire):
    """The dialect; its fields are where OpenAI and its copies cannot be served alike.

    Attributes:
        max_tokens_field: OpenAI's reasoning models refuse `max_tokens` ("Use 'max_completion_tokens' instead"), and its
            other models take both. Most copies know `max_tokens` only, and some ignore the other one silently, which
            would lift the limit.
        output_by: See `Wire`. Some copies ignore `response_format` in silence, some cannot call tools any more once it
            is set.
    """

    name: str = "openai-chat"
    max_tokens_field: str = "max_completion_tokens"

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the base address requests go."""
        return "/chat/completions"

    # -- what we ask ---------------------------------------------------------------------------------------------------

    def encode_request(
        self, messages: Conversation, tools: Iterable[ToolLike] | None = None, options: Options | None = None
    ) -> dict[str, Json]:
        """Return the body of a request.

        Raises:
            ConfigError: `tool_choice` names a tool that is not among `tools`, or demands a call without any tools.
        """
        options = options or Options()
        tools = kept(tools)
        names = _names_of(tools)
        body: dict[str, Json] = {
            "messages": [self.encode_message(each, names) for each in with_media_shown(fit_to_send(messages, tools))]
        }
        told = {
            "model": options.model or None,
            self.max_tokens_field: options.max_tokens,
            "temperature": options.temperature,
            "response_format": _response_format(options.output) if options.output else None,
            "stream": options.stream or None,
            "stream_options": {"include_usage": True} if options.stream else None,
        }
        body |= {field: value for field, value in told.items() if value is not None}
        return body | self._tool_fields(tools, names, options) | dict(options.extra)

    def _tool_fields(self, tools: Collection[ToolLike], names: NameMap, options: Options) -> dict[str, Json]:
        """Return what a request says of tools; OpenAI refuses every one of these fields in a request without tools."""
        check_choice(options.tool_choice, tools, options.provider_tools)
        if not (tools or options.provider_tools):
            return {}
        defined = self.definitions(tools, strict=options.strict)
        fields: dict[str, Json] = {
            "tools": [*defined, *options.provider_tools] if options.provider_tools else defined,
            "tool_choice": _tool_choice(options.tool_choice, names),
        }
        return fields if options.parallel is None else {**fields, "parallel_tool_calls": options.parallel}

    def encode_message(self, message: Message, names: NameMap | None = None) -> dict[str, Json]:
        """Return one message of a request. Messages are frozen, so a caller may keep the result."""
        match message:
            case SystemMessage(text):
                return {"role": "system", "content": text}
            case UserMessage(text, parts):
                return {"role": "user", "content": list(map(_part, parts)) if parts else text}
            case ToolMessage(result):
                return _encode_result(result)
            case AssistantMessage(turn):
                return _encode_assistant(turn, names or _names_of(()))

    def define(self, tools: Collection[ToolLike], strict: bool) -> list[dict[str, Json]]:
        """Describe the tools; see `Wire.definitions`. The strict form of one is its `strict_parameters`."""
        names = _names_of(tools)
        return [_definition(tool, names, strict) for tool in tools]

    def encode_results(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[dict[str, Json]]:
        """Return one tool message for each call, in the order of the calls; a user's message with what they show.

        Raises:
            ValueError: The results are not one for each call.
        """
        ordered = in_call_order(calls, results)
        told = [_encode_result(result) for result in ordered]
        return told + [self.encode_message(each) for each in _shown_by(ordered)]

    # -- what we are answered ------------------------------------------------------------------------------------------

    def decode(self, body: Json | bytes, tools: Iterable[ToolLike] | None = None) -> Turn:
        """Return the turn in a whole response body, as a dictionary or as JSON text.

        Raises:
            ModelError: The body is an error (classified), or unreadable (`code="unreadable"`).
        """
        told = bodies.object_of(body)
        if provider_errors.error_in(told):
            raise provider_errors.classify(None, {}, told)
        choice = _choice(told)
        if choice.get("error"):
            raise provider_errors.classify(None, {}, {"error": choice["error"]})
        message = _whole_message(choice, told)
        return _turn(message, _finish(choice.get("finish_reason")), _usage(told.get("usage")), tools)

    def decode_message(self, message: Mapping[str, Json], tools: Iterable[ToolLike] | None = None) -> Turn:
        """Return the turn from one assistant message, or from a whole response body.

        A bare message does not say how the model ended; it counts as finished, with calls if it has any.

        Raises:
            ConfigError: It is no message of this dialect: read anyway, its calls would be passed over in silence.
            ModelError: As `decode`.
        """
        if isinstance(message, bodies.OBJECT) and ("choices" in message or "error" in message):
            return self.decode(message, tools)
        if why := _foreign(message):
            raise foreign("OpenAI chat message", why)
        calls = message.get("tool_calls") or message.get("function_call")
        return _turn(received.encodable(message), "calls" if calls else "stop", Usage(), tools)

    def stream(self, tools: Iterable[ToolLike] | None = None) -> ChatStream:
        """Return a reader for one streamed answer."""
        return ChatStream(self, tuple(tools or ()))

    # -- the provider's side -------------------------------------------------------------------------------------------

    def asked_by(self, path: str) -> dict[str, Json] | None:
        """Return what a path says beside the body; see `ServerDialect.asked_by`."""
        return {} if path.endswith("/chat/completions") else None

    def encode_error(self, message: str, *, status: int, type: str) -> dict[str, Json]:
        """Return the body of an error answer."""
        return {"error": {"message": message, "type": type, "param": None, "code": None}}

    def decode_request(self, body: Mapping[str, Json]) -> tuple[list[Message], list[Described], Options]:
        """Return what a client asked: messages, tools and options.

        Raises:
            ConfigError: The request cannot be read.
        """
        rest = dict(body)
        messages = conversation_of(rest.pop("messages", ()))
        asked = rest.pop("tools", None) or ()
        tools = [_described(tool) for tool in asked if not _is_provider_s(tool)]
        rest.pop("stream_options", None)
        limits = [rest.pop(key, None) for key in ("max_completion_tokens", "max_tokens")]
        options = Options(
            model=str(rest.pop("model", "")),
            tool_choice=_choice_of(rest.pop("tool_choice", None)),
            parallel=rest.pop("parallel_tool_calls", None),
            strict=any(tool.strict_parameters is not None for tool in tools),
            max_tokens=next((limit for limit in limits if limit is not None), None),
            temperature=rest.pop("temperature", None),
            stream=bool(rest.pop("stream", False)),
            output=_form_of(rest),
            provider_tools=tuple(filter(_is_provider_s, asked)),
            extra=rest,
        )
        return messages, tools, options

    def encode_turn(self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None) -> dict[str, Json]:
        """Return the body that OpenAI would send for a turn."""
        names = _names_of(tools)
        message: dict[str, Json] = {"role": "assistant", "content": turn.text or None, "refusal": turn.refusal or None}
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if turn.calls:
            message["tool_calls"] = [_encode_call(call, names, call.arguments) for call in turn.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH_WORDS[turn.finish]}
        return {**_head(envelope, "chat.completion"), "choices": [choice], "usage": _encode_usage(turn.usage)}

    def encode_stream(
        self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None, *, piece_chars: int = 12
    ) -> Iterator[str]:
        """Yield the events that OpenAI would stream for a turn, each whole.

        The usage comes in a chunk of its own before the end, as asked by `stream_options.include_usage`.

        Args:
            piece_chars: Characters of text or arguments in one event.

        A turn that finished with `error` just breaks off, as a lost connection does.
        """
        names = _names_of(tools)
        head = _head(envelope, "chat.completion.chunk")
        spare: dict[str, Json] = {"usage": None} if envelope.usage else {}
        opening = {"role": "assistant", "content": None if turn.calls and not turn.text else "", "refusal": None}
        for delta in (opening, *_encode_deltas(turn, names, piece_chars)):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield event({**head, "choices": [choice], **spare})
        if turn.finish == "error":
            return
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _FINISH_WORDS[turn.finish]}
        yield event({**head, "choices": [choice], **spare})
        if envelope.usage:
            yield event({**head, "choices": [], "usage": _encode_usage(turn.usage)})
        yield "data: [DONE]\n\n"


DIALECT = OpenAIChat()
"""For api.openai.com."""

COMPATIBLE = OpenAIChat("openai-compatible", max_tokens_field="max_tokens", output_by="prompt")
"""For servers that copy it: vLLM, llama.cpp, Ollama, OpenRouter, Groq, DeepSeek and others."""


class ChatStream(EventStream):
    """One streamed answer of the Chat Completions form; see `DialectStream`."""

    def __init__(self, dialect: OpenAIChat, tools: Sequence[ToolLike]) -> None:
        super().__init__(dialect, tools)
        self._names = _names_of(tools)
        own = {tool.name for tool in tools}
        self._calls = CallAssembler(lambda wire: self._names.from_wire(wire) in own)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._kept: dict[str, list[str]] = {}  # reasoning as the provider spells it, to go back
        self._details: list[Mapping[str, Json]] = []
        self._finish: Finish | None = None
        self._usage = Usage()

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event; see `EventStream.take`."""
        chunk = bodies.object_of(event.data)
        choices = chunk.get("choices")
        if event.type == "error" or chunk.get("error") or (not choices and provider_errors.error_in(chunk)):
            raise provider_errors.classify(None, {}, chunk)
        if chunk.get("usage"):
            self._usage = _usage(chunk["usage"])
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, bodies.OBJECT) and choice.get("index", 0) in (0, "0", None):
                self._take_choice(choice, deltas)

    def _take_choice(self, choice: Mapping[str, Json], deltas: list[Delta]) -> None:
        if choice.get("error"):
            raise provider_errors.classify(None, {}, {"error": choice["error"]})
        # A gateway that cannot stream sends the whole message in one event; behind deltas it says them once more.
        begun = self._calls.calls or self._text or self._reasoning or self._refusal
        delta = choice.get("delta") if "delta" in choice or begun else choice.get("message")
        if delta:
            self._take_delta(bodies.mapping(delta, "a delta of the stream"), deltas)
        # A gateway adds an end of its own, which does not make an answer whole that was cut before.
        if choice.get("finish_reason") and self._finish not in ("length", "refused"):
            self._finish = _finish(choice["finish_reason"])

    def _take_delta(self, delta: Mapping[str, Json], deltas: list[Delta]) -> None:
        if calls := delta.get("tool_calls"):
            self._take_calls(bodies.items(calls, "`tool_calls`"), deltas)
        if content := delta.get("content"):
            text, thought = _content(content)
            if thought:
                self._think(thought, deltas)
            if text:
                self._text.append(text)
                deltas.append(TextDelta(text))
        if any(map(delta.get, _GOES_BACK)):
            self._take_reasoning(delta, deltas)
        if refusal := delta.get("refusal"):
            self._refusal.append(bodies.string(refusal, "`refusal`"))
        if _has_old_call(delta):
            self._take_calls([{"function": delta["function_call"]}], deltas)

    def _take_reasoning(self, delta: Mapping[str, Json], deltas: list[Delta]) -> None:
        for key in _REASONING_KEYS:
            if delta.get(key):
                self._kept.setdefault(key, []).append(bodies.string(delta[key], f"`{key}`"))
        details = _details(delta)
        self._details += details
        if thought := _reasoning(delta, details):
            self._think(thought, deltas)

    def _think(self, thought: str, deltas: list[Delta]) -> None:
        self._reasoning.append(thought)
        deltas.append(ReasoningDelta(thought))

    def _take_calls(self, entries: Sequence[Json], deltas: list[Delta]) -> None:
        for entry, index in zip(entries, _indexes(entries), strict=True):
            id, name, text = _call_parts(entry)
            if not (id or name or text):
                continue
            call = self._calls.take(index, id, name, text)
            for key in _CALL_GOES_BACK:
                if key in entry and received.can_go_back(entry[key]):
                    call.extras[key] = entry[key]
            if text:
                deltas.append(ArgumentsDelta(call.position, self._names.from_wire(call.name), text))

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        calls = self._calls.finished()
        text, refusal = "".join(self._text), "".join(self._refusal)
        raw: dict[str, Json] = {"role": "assistant", "content": text or None}
        if refusal:
            raw["refusal"] = refusal
        raw |= {key: "".join(pieces) for key, pieces in self._kept.items()}
        if self._details:
            raw["reasoning_details"] = _joined_details(self._details)
        if calls:
            raw["tool_calls"] = [
                _raw_call(call, streamed) for call, streamed in zip(calls, self._calls.calls, strict=True)
            ]
        return Turn(
            text,
            "".join(self._reasoning),
            tuple(ToolCall(call.id, self._names.from_wire(call.name), call.arguments) for call in calls),
            self._finish or "error",
            self._usage,
            refusal,
            raw,
        )


# -- writing a request -------------------------------------------------------------------------------------------------


def _names_of(tools: Iterable[ToolLike] | None) -> NameMap:
    return names_of(tools, NAMES)


def _response_format(output: Output) -> dict[str, Json]:
    """Return how an answer is held to a schema: strictly where strict mode can say all of it."""
    strict = portability.for_openai_strict(dict(output.schema))
    told = {"schema": output.schema} if isinstance(strict, NotPortable) else {"schema": strict, "strict": True}
    return {"type": "json_schema", "json_schema": {"name": output.name, **told}}


def _definition(tool: ToolLike, names: NameMap, strict: bool) -> dict[str, Json]:
    function: dict[str, Json] = {"name": names.to_wire(tool.name), "description": tool.description}
    lossless = getattr(tool, "strict_parameters", None) if strict else None
    if lossless is None:
        return {"type": "function", "function": {**function, "parameters": tool.parameters}}
    return {"type": "function", "function": {**function, "parameters": lossless, "strict": True}}


def _tool_choice(choice: str, names: NameMap) -> Json:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": names.to_wire(choice)}}


def with_media_shown(spoken: Iterable[Message]) -> Iterator[Message]:
    """Give the messages, and after the results of a turn what they show: a tool's message here holds text alone."""
    results: list[ToolResult] = []
    for message in spoken:
        if isinstance(message, ToolMessage):
            results.append(message.result)
        elif results:
            yield from _shown_by(results)
            results = []
        yield message
    yield from _shown_by(results)


def _shown_by(results: Iterable[ToolResult]) -> Iterator[UserMessage]:
    """Give one message with all that the results show, each under the name of its tool."""
    parts: list[Mapping[str, Json] | Media] = []
    for result in results:
        if result.media:
            parts += [{"type": "text", "text": f"Shown by {result.name} ({result.call_id}):"}, *result.media]
    if parts:
        yield UserMessage("", parts)


def _part(part: Mapping[str, Json] | Media) -> Mapping[str, Json]:
    """Return a part as this API takes it. An address is fetched for images alone; of others the model is told it."""
    if not isinstance(part, Media):
        return part
    kind, _, form = part.media_type.partition("/")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": part.link}}
    if not part.data:
        return {"type": "text", "text": label(part)}
    if kind == "text":
        return {"type": "text", "text": part.data.decode("utf-8", "replace")}
    if kind == "audio":
        return {"type": "input_audio", "input_audio": {"data": part.base64, "format": SOUNDS.get(form, form)}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": part.link}}


def _encode_assistant(turn: Turn, names: NameMap) -> dict[str, Json]:
    raw = turn.raw or {}
    # OpenAI takes null only beside calls, and null is what it sends there itself.
    message: dict[str, Json] = {"role": "assistant", "content": turn.text or (None if turn.calls else "")}
    message |= {key: raw[key] for key in _GOES_BACK if raw.get(key)}
    if turn.refusal:
        message["refusal"] = turn.refusal
    if turn.calls:
        sent = raw.get("tool_calls")
        extras = sent if isinstance(sent, list) and len(sent) == len(turn.calls) else [{}] * len(turn.calls)
        message["tool_calls"] = [
            _encode_call(call, names, as_history(call.arguments))
            | {key: extra[key] for key in _CALL_GOES_BACK if isinstance(extra, Mapping) and extra.get(key)}
            for call, extra in zip(turn.calls, extras, strict=True)
        ]
    return message


def _encode_call(call: ToolCall, names: NameMap, arguments: str) -> dict[str, Json]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": names.to_wire(call.name), "arguments": arguments},
    }


def _encode_result(result: ToolResult) -> dict[str, Json]:
    return {"role": "tool", "tool_call_id": result.call_id, "content": result_text(result)}


# -- reading an answer -------------------------------------------------------------------------------------------------


def _foreign(message: Json) -> str:
    """Return what shows that this is no assistant message of ours; empty when it is one."""
    if not isinstance(message, bodies.OBJECT):
        return f"it is {bodies.kind(message)}"
    role, content = message.get("role"), message.get("content")
    if message.get("tool_calls") or message.get("function_call"):  # only a model's are carried out
        return "" if role in ("assistant", "", None) else f"its role is {role!r}"
    if isinstance(content, list):
        # Bedrock's and Gemini's blocks have no type; their first key says what they are.
        types = [str(part.get("type") or next(iter(part), "")) for part in content if isinstance(part, Mapping)]
        if unknown := [each for each in types if each not in _PARTS]:
            return f"it has content blocks of type {', '.join(dict.fromkeys(unknown))}"
    if role is None and not {"tool_calls", "function_call"} & message.keys():
        return "it has neither a role nor calls"
    return "" if role in ("assistant", None) else f"its role is {role!r}"


def _choice(body: Mapping[str, Json]) -> Mapping[str, Json]:
    choices = bodies.items(body.get("choices"), "`choices`")
    if not choices:
        raise bodies.unreadable("`choices` is empty")
    return bodies.mapping(choices[0], "`choices[0]`")


def _whole_message(choice: Mapping[str, Json], body: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the message of the first choice, with the calls that it ends in.

    Some gateways give a model's text and its calls as two choices, both of which end in calls. Calls of a choice that
    was cut, refused or broken off are none of this one's.
    """
    message = bodies.mapping(choice.get("message"), "`choices[0].message`")
    if _finish(choice.get("finish_reason")) != "calls" or message.get("tool_calls") or message.get("function_call"):
        return message
    for other in body["choices"][1:]:
        if not isinstance(other, bodies.OBJECT) or other.get("error") or _finish(other.get("finish_reason")) != "calls":
            continue
        rest = other.get("message")
        if isinstance(rest, bodies.OBJECT) and rest.get("tool_calls") and not rest.get("refusal"):
            return {**message, "tool_calls": rest["tool_calls"]}
    return message


def _finish(word: Json) -> Finish:
    return _FINISHES.get(word.lower(), "error") if isinstance(word, str) else "error"


def _turn(message: Mapping[str, Json], finish: Finish, usage: Usage, tools: Iterable[ToolLike] | None) -> Turn:
    text, thought = _content(message.get("content"))
    wire = _calls(message)
    names = _names_of(tools) if wire else _names_of(())
    return Turn(
        text,
        _reasoning(message, _details(message)) or thought,
        tuple(ToolCall(call.id, names.from_wire(call.name), call.arguments) for call in wire),
        finish,
        usage,
        bodies.string(message.get("refusal") or "", "`refusal`"),
        _raw(message),
    )


def _raw(message: Mapping[str, Json]) -> dict[str, Json]:
    """Return the provider's message as it may be kept: without fields that no request could carry."""
    raw = received.that_go_back({name: value for name, value in message.items() if name != "tool_calls"})
    if calls := message.get("tool_calls"):
        raw["tool_calls"] = [received.that_go_back(call) for call in calls]
    return raw


def _calls(message: Mapping[str, Json]) -> list[ToolCall]:
    entries = list(bodies.items(message.get("tool_calls") or [], "`tool_calls`"))
    if _has_old_call(message):
        entries.append({"function": message["function_call"]})
    parts = [_call_parts(entry) for entry in entries]
    # A gateway fills the fields that it does not use: `"function_call": {"name": "", "arguments": ""}` is no call.
    return with_ids([ToolCall(*part) for part in parts if any(part)])


def _has_old_call(message: Mapping[str, Json]) -> bool:
    """Whether a call stands under `function_call` alone; some servers say the same one there and in `tool_calls`."""
    function = message.get("function_call")
    if not function:
        return False
    said = [_call_parts(entry)[1:] for entry in message.get("tool_calls") or ()]
    return _call_parts({"function": function})[1:] not in said


def _call_parts(entry: Json) -> tuple[str, str, str]:
    """Return id, name and arguments of a call or of a streamed piece of one, each empty where it is missing."""
    if not isinstance(entry, bodies.OBJECT):
        raise bodies.unreadable(f"a tool call is {bodies.kind(entry)}, not an object")
    function = entry.get("function") or entry  # some servers leave out the inner object
    if not isinstance(function, bodies.OBJECT):
        raise bodies.unreadable(f"the function of a tool call is {bodies.kind(function)}, not an object")
    id, name = entry.get("id"), function.get("name")
    told = function.get("arguments")
    if told is None:
        told = next((function[key] for key in _OTHER_ARGUMENTS if function.get(key) is not None), None)
    arguments = bodies.json_text(told, "what a tool is called with")
    return str(id) if isinstance(id, str | int | float) else "", bodies.string(name or "", "a tool's name"), arguments


def _indexes(entries: Sequence[Json]) -> Sequence[int | None]:
    """Return the indexes of one list's pieces. One list never names one call twice: where they repeat, places count."""
    told = [entry.get("index") if isinstance(entry, bodies.OBJECT) else None for entry in entries]
    indexes = [_index(index) for index in told]
    return range(len(told)) if len(told) > 1 and len(set(indexes)) < len(told) else indexes


def _index(told: Json) -> int | None:
    """Return an index; some servers write theirs as text, as protocol buffers do with long integers."""
    if isinstance(told, str) and told.isdecimal() and len(told) < 5:
        return int(told)
    return told if isinstance(told, int) else None


def _content(content: Json) -> tuple[str, str]:
    """Return text and reasoning of a message's content, which is text or, at Mistral, a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    texts, thoughts = [], []
    for part in bodies.items(content, "`content`"):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type") == "text":
            texts.append(bodies.string(part.get("text") or "", "a text part"))
        elif isinstance(part, Mapping) and part.get("type") == "thinking":
            thoughts.append(_content(part.get("thinking"))[0])
    return "".join(texts), "".join(thoughts)


def _reasoning(message: Mapping[str, Json], details: Sequence[Mapping[str, Json]]) -> str:
    """Return the reasoning once: gateways send it under several names at the same time."""
    for key in _REASONING_KEYS:
        if message.get(key):
            return bodies.string(message[key], f"`{key}`")
    told = (detail.get("text") or detail.get("summary") for detail in details)
    return "".join(text for text in told if isinstance(text, str))


def _details(message: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    details = message.get("reasoning_details")
    if not isinstance(details, list):
        return []
    return [each for each in details if isinstance(each, Mapping) and received.can_go_back(each)]


_DETAIL_TEXTS = ("text", "summary", "data", "signature")


def _joined_details(pieces: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """Return streamed `reasoning_details` as a whole answer would hold them: texts joined, one entry for each block."""
    blocks: list[tuple[dict[str, Json], dict[str, list[str]]]] = []
    block_of: dict[tuple[str, str], int] = {}
    for piece in pieces:
        key = str(piece.get("type")), str(piece.get("index"))
        if key not in block_of:
            block_of[key] = len(blocks)
            blocks.append(({}, {}))
        fields, texts = blocks[block_of[key]]
        for name, value in piece.items():
            if name in _DETAIL_TEXTS and isinstance(value, str):
                texts.setdefault(name, []).append(value)
            elif value is not None or name not in fields:
                fields[name] = value
    return [fields | {name: "".join(values) for name, values in texts.items()} for fields, texts in blocks]


def _raw_call(call: ToolCall, streamed: StreamedCall) -> dict[str, Json]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **streamed.extras}


def _usage(usage: Json) -> Usage:
    if not isinstance(usage, Mapping):
        return Usage()
    input_details, output_details = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        bodies.count(usage, "prompt_tokens"),
        bodies.count(usage, "completion_tokens"),
        # Moonshot and DeepSeek tell it beside the details.
        bodies.count(input_details, "cached_tokens") or bodies.count(usage, "cached_tokens", "prompt_cache_hit_tokens"),
        bodies.count(output_details, "reasoning_tokens"),
    )


# -- the provider's side -----------------------------------------------------------------------------------------------


def _form_of(fields: dict[str, Json]) -> Output | None:
    """Take the form of the answer out of a request's fields; any other `response_format` stays."""
    told = fields.get("response_format")
    form = told.get("json_schema") if isinstance(told, Mapping) else None
    if not isinstance(form, Mapping) or not isinstance(form.get("schema"), Mapping):
        return None
    del fields["response_format"]
    return Output(form["schema"], str(form.get("name") or "answer"))


def _is_provider_s(tool: Json) -> bool:
    """Whether a tool is run by the provider itself: any whose type is said and is not `function`."""
    return isinstance(tool, Mapping) and tool.get("type", "function") != "function"


def _described(tool: Json) -> Described:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not function.get("name"):
        raise ConfigError(f"the request has a tool without a function: {faults.shown(tool)}")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    strict = parameters if function.get("strict") else None
    return Described(str(function["name"]), str(function.get("description") or ""), parameters, strict)


def _choice_of(choice: Json) -> str:
    if isinstance(choice, Mapping):
        return str((choice.get("function") or choice).get("name", "auto"))
    return _CHOICE_WORDS.get(str(choice), str(choice)) if choice else "auto"


def _head(envelope: Envelope, kind: str) -> dict[str, Json]:
    return {"id": envelope.id, "object": kind, "created": envelope.created, "model": envelope.model}


def _encode_usage(usage: Usage) -> dict[str, Json]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _encode_deltas(turn: Turn, names: NameMap, piece_chars: int) -> Iterator[dict[str, Json]]:
    for key, text in (("reasoning_content", turn.reasoning), ("content", turn.text), ("refusal", turn.refusal)):
        yield from ({key: piece} for piece in pieces(text, piece_chars))
    for index, call in enumerate(turn.calls):
        yield {"tool_calls": [{"index": index, **_encode_call(call, names, "")}]}
        for piece in pieces(call.arguments, piece_chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
