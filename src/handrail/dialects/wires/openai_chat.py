"""OpenAI Chat Completions, and the many servers that copy it: both ways, whole and streamed.

The copies differ in small things, so reading is lenient where nothing is lost by it (arguments as an object, missing
ids, reasoning under three names) and strict where something would be invented. Writing keeps to OpenAI's own form.

Rule 1: arguments reach `ToolCall` as the provider sent them, whether or not they are JSON.
Rule 2: arguments go back as a JSON object always: strict servers refuse a whole history for one malformed string.
Rule 3: a missing or unknown `finish_reason` is `error`, also after complete calls.
Rule 4: of the provider's message only `GOES_BACK` goes back; other servers refuse the fields that they invented.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from handrail.calls import Media, ToolCall, ToolResult
from handrail.core.results import label
from handrail.dialects import Conversation, Envelope, ToolLike, json_bodies, received
from handrail.dialects.names import NameMap
from handrail.dialects.parts import SOUNDS
from handrail.dialects.wires import prompt_caching
from handrail.dialects.wires.base import (
    BaseWire,
    check_choice,
    foreign,
    sendable_allowed,
)
from handrail.dialects.wires.chat_answers import (
    CALL_GOES_BACK,
    GOES_BACK,
    ChatStream,
    build_turn,
    chat_names,
    foreign_in,
    parse_turn,
)
from handrail.dialects.writing import (
    as_collection,
    as_history,
    describe_with_examples,
    event,
    fit_to_send,
    in_call_order,
    pieces,
    result_text,
)
from handrail.errors import ConfigError, Json
from handrail.messages import (
    AssistantMessage,
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
from handrail.schemas import argument_errors, portability
from handrail.schemas.portability import NotPortable

_FINISH_WORDS: Mapping[Finish, str | None] = {
    "stop": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refused": "content_filter",
    "error": None,
}

_CHOICE_WORDS: Mapping[str, str] = {"any": "required"}
"""Mistral's word for a required call, when we are the server."""


@dataclass(frozen=True, slots=True)
class OpenAIChat(BaseWire):
    """The dialect; its fields are where OpenAI and its copies cannot be served alike.

    Attributes:
        max_tokens_field: OpenAI's reasoning models refuse `max_tokens` ("Use 'max_completion_tokens' instead"), and its
            other models take both. Most copies know `max_tokens` only, and some ignore the other one silently, which
            would lift the limit.
        output_by: See `BaseWire`. Some copies ignore `response_format` in silence, some cannot call tools any more once
            it is set.
        keys_cache: OpenAI takes `prompt_cache_key`, which strict copies refuse.
    """

    name: str = "openai-chat"
    max_tokens_field: str = "max_completion_tokens"
    keys_cache: bool = True

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the base address requests go."""
        return "/chat/completions"

    # -- what we ask ---------------------------------------------------------------------------------------------------

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> dict[str, Json]:
        """Return the body of a request.

        Raises:
            ConfigError: `tool_choice` names a tool that is not among `tools`, or demands a call without any tools.
        """
        options = options or Options()
        tools = as_collection(tools)
        names = chat_names(tools)
        history = fit_to_send(messages, tools)
        body: dict[str, Json] = {
            "messages": [
                self.encode_message(each, names) for each in add_media(history)
            ]
        }
        fields = {
            "model": options.model or None,
            self.max_tokens_field: options.max_tokens,
            "temperature": options.temperature,
            "response_format": _response_format(options.output)
            if options.output
            else None,
            "reasoning_effort": options.effort,
            "stream": options.stream or None,
            "stream_options": {"include_usage": True} if options.stream else None,
        }
        body |= {field: value for field, value in fields.items() if value is not None}
        tool_fields = self._tool_fields(tools, names, options)
        key = prompt_caching.key_fields(
            tools,
            self.definitions(tools, strict=options.strict),
            _opening_text(history),
            options,
            server=self.server if self.keys_cache else "copy",
        )
        return body | key | tool_fields | dict(options.extra)

    def _tool_fields(
        self, tools: Collection[ToolLike], names: NameMap, options: Options
    ) -> dict[str, Json]:
        """Return what a request says of tools; OpenAI refuses every one of these fields in a request without tools."""
        check_choice(options.tool_choice, tools, options.provider_tools)
        if not (tools or options.provider_tools):
            return {}
        defined = self.definitions(tools, strict=options.strict)
        fields: dict[str, Json] = {
            "tools": [*defined, *options.provider_tools]
            if options.provider_tools
            else defined,
            "tool_choice": self._tool_choice(options, tools, names),
        }
        if options.parallel is None:
            return fields
        return {**fields, "parallel_tool_calls": options.parallel}

    def _tool_choice(
        self, options: Options, tools: Collection[ToolLike], names: NameMap
    ) -> Json:
        server = self.server if self.keys_cache else "copy"
        allowed = sendable_allowed(options, tools, server=server)
        if not allowed:
            return _tool_choice(options.tool_choice, names)
        functions = [
            {"type": "function", "function": {"name": names.to_wire(name)}}
            for name in allowed
        ]
        return {
            "type": "allowed_tools",
            "allowed_tools": {"mode": options.tool_choice, "tools": functions},
        }

    def encode_message(
        self, message: Message, names: NameMap | None = None
    ) -> dict[str, Json]:
        """Return one message of a request. Messages are frozen, so a caller may keep the result."""
        match message:
            case SystemMessage(text):
                return {"role": "system", "content": text}
            case UserMessage(text, parts):
                return {
                    "role": "user",
                    "content": list(map(_part, parts)) if parts else text,
                }
            case ToolMessage(result):
                return _encode_result(result)
            case AssistantMessage(turn):
                return _encode_assistant(turn, names or chat_names(()))

    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools; see `BaseWire.definitions`. The strict form of one is its `strict_parameters`."""
        names = chat_names(tools)
        return [_definition(tool, names, strict) for tool in tools]

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> list[dict[str, Json]]:
        """Return one tool message for each call, in the order of the calls; a user's message with what they show.

        Raises:
            ValueError: The results are not one for each call.
        """
        ordered = in_call_order(calls, results)
        messages = [_encode_result(result) for result in ordered]
        return messages + [
            self.encode_message(each) for each in _media_messages(ordered)
        ]

    # -- what we are answered ------------------------------------------------------------------------------------------

    def decode(
        self, body: Json | bytes, tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn in a whole response body, as a dictionary or as JSON text.

        Raises:
            ModelError: The body is an error (classified), or unreadable (`code="unreadable"`).
        """
        return received.whole_turn(parse_turn(json_bodies.parse_object(body), tools))

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
            "choices" in message or "error" in message
        ):
            return self.decode(message, tools)
        if why := foreign_in(message):
            raise foreign("OpenAI chat message", why)
        calls = message.get("tool_calls") or message.get("function_call")
        return received.whole_turn(
            build_turn(message, "calls" if calls else "stop", Usage(), tools)
        )

    def stream(self, tools: Iterable[ToolLike] | None = None) -> ChatStream:
        """Return a reader for one streamed answer."""
        return ChatStream(self, tuple(tools or ()))

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
        rest = dict(body)
        messages = conversation_of(rest.pop("messages", ()))
        entries = rest.pop("tools", None) or ()
        tools = [_parse_tool(tool) for tool in entries if not _is_provider_s(tool)]
        rest.pop("stream_options", None)
        limits = [
            rest.pop(key, None) for key in ("max_completion_tokens", "max_tokens")
        ]
        options = Options(
            model=str(rest.pop("model", "")),
            tool_choice=_parse_choice(rest.pop("tool_choice", None)),
            parallel=rest.pop("parallel_tool_calls", None),
            strict=any(tool.strict_parameters is not None for tool in tools),
            max_tokens=next((limit for limit in limits if limit is not None), None),
            temperature=rest.pop("temperature", None),
            stream=bool(rest.pop("stream", False)),
            output=_take_output(rest),
            provider_tools=tuple(filter(_is_provider_s, entries)),
            extra=rest,
        )
        return messages, tools, options

    def encode_turn(
        self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None
    ) -> dict[str, Json]:
        """Return the body that OpenAI would send for a turn."""
        names = chat_names(tools)
        message: dict[str, Json] = {
            "role": "assistant",
            "content": turn.text or None,
            "refusal": turn.refusal or None,
        }
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if turn.calls:
            message["tool_calls"] = [
                _encode_call(call, names, call.arguments) for call in turn.calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _FINISH_WORDS[turn.finish],
        }
        return {
            **_head(envelope, "chat.completion"),
            "choices": [choice],
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
        """Yield the events that OpenAI would stream for a turn, each whole.

        The usage comes in a chunk of its own before the end, as asked by `stream_options.include_usage`.

        Args:
            piece_chars: Characters of text or arguments in one event.

        A turn that finished with `error` just breaks off, as a lost connection does.
        """
        names = chat_names(tools)
        head = _head(envelope, "chat.completion.chunk")
        spare: dict[str, Json] = {"usage": None} if envelope.usage else {}
        opening = {
            "role": "assistant",
            "content": None if turn.calls and not turn.text else "",
            "refusal": None,
        }
        for delta in (opening, *_encode_deltas(turn, names, piece_chars)):
            choice = {
                "index": 0,
                "delta": delta,
                "logprobs": None,
                "finish_reason": None,
            }
            yield event({**head, "choices": [choice], **spare})
        if turn.finish == "error":
            return
        choice = {
            "index": 0,
            "delta": {},
            "logprobs": None,
            "finish_reason": _FINISH_WORDS[turn.finish],
        }
        yield event({**head, "choices": [choice], **spare})
        if envelope.usage:
            yield event({**head, "choices": [], "usage": _encode_usage(turn.usage)})
        yield "data: [DONE]\n\n"


DIALECT = OpenAIChat()
"""For api.openai.com."""

COMPATIBLE = OpenAIChat(
    "openai-compatible",
    max_tokens_field="max_tokens",
    output_by="prompt",
    keys_cache=False,
)
"""For servers that copy it: vLLM, llama.cpp, Ollama, OpenRouter, Groq, DeepSeek and others."""


# -- writing a request -------------------------------------------------------------------------------------------------


def _opening_text(messages: Sequence[Message]) -> str:
    """Return the system message that a conversation begins with, if any."""
    if messages and isinstance(messages[0], SystemMessage):
        return messages[0].text
    return ""


def _response_format(output: Output) -> dict[str, Json]:
    """Return how an answer is held to a schema: strictly where strict mode can say all of it."""
    strict = portability.for_openai_strict(dict(output.schema))
    json_schema: dict[str, Json] = {"name": output.name, "schema": output.schema}
    if not isinstance(strict, NotPortable):
        json_schema["schema"] = strict
        json_schema["strict"] = True
    return {"type": "json_schema", "json_schema": json_schema}


def _definition(tool: ToolLike, names: NameMap, strict: bool) -> dict[str, Json]:
    function: dict[str, Json] = {
        "name": names.to_wire(tool.name),
        "description": describe_with_examples(tool),
    }
    if strict:
        lossless = getattr(tool, "strict_parameters", None)
    else:
        lossless = None
    if lossless is None:
        return {
            "type": "function",
            "function": {**function, "parameters": tool.parameters},
        }
    return {
        "type": "function",
        "function": {**function, "parameters": lossless, "strict": True},
    }


def _tool_choice(choice: str, names: NameMap) -> Json:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": names.to_wire(choice)}}


def add_media(messages: Iterable[Message]) -> Iterator[Message]:
    """Give the messages, and after the results of a turn what they show: a tool's message here holds text alone."""
    results: list[ToolResult] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            results.append(message.result)
        elif results:
            yield from _media_messages(results)
            results = []
        yield message
    yield from _media_messages(results)


def _media_messages(results: Iterable[ToolResult]) -> Iterator[UserMessage]:
    """Give one message with all that the results show, each under the name of its tool."""
    parts: list[Mapping[str, Json] | Media] = []
    for result in results:
        if result.media:
            parts += [
                {"type": "text", "text": f"Shown by {result.name} ({result.call_id}):"},
                *result.media,
            ]
    if parts:
        yield UserMessage("", parts)


def _part(part: Mapping[str, Json] | Media) -> Mapping[str, Json]:
    """Return a part as this API takes it. Only images are fetched; of other media the model gets the address."""
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
        return {
            "type": "input_audio",
            "input_audio": {"data": part.base64, "format": SOUNDS.get(form, form)},
        }
    return {
        "type": "file",
        "file": {"filename": part.name or "file", "file_data": part.link},
    }


def _encode_assistant(turn: Turn, names: NameMap) -> dict[str, Json]:
    raw = turn.raw or {}
    # OpenAI takes null only beside calls, and null is what it sends there itself.
    message: dict[str, Json] = {
        "role": "assistant",
        "content": turn.text or (None if turn.calls else ""),
    }
    message |= {key: raw[key] for key in GOES_BACK if raw.get(key)}
    if turn.refusal:
        message["refusal"] = turn.refusal
    if turn.calls:
        message["tool_calls"] = _encode_calls(turn.calls, names, raw.get("tool_calls"))
    return message


def _encode_calls(
    calls: Sequence[ToolCall], names: NameMap, sent: Json
) -> list[dict[str, Json]]:
    """Return the calls of a history, with those fields of the provider's calls `sent` that have to go back."""
    if not isinstance(sent, list) or len(sent) != len(calls):
        sent = [{}] * len(calls)
    encoded: list[dict[str, Json]] = []
    for call, original in zip(calls, sent, strict=True):
        fields = _encode_call(call, names, as_history(call.arguments))
        if isinstance(original, Mapping):
            fields |= {
                key: original[key] for key in CALL_GOES_BACK if original.get(key)
            }
        encoded.append(fields)
    return encoded


def _encode_call(call: ToolCall, names: NameMap, arguments: str) -> dict[str, Json]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": names.to_wire(call.name), "arguments": arguments},
    }


def _encode_result(result: ToolResult) -> dict[str, Json]:
    return {
        "role": "tool",
        "tool_call_id": result.call_id,
        "content": result_text(result),
    }


# -- the provider's side -----------------------------------------------------------------------------------------------


def _take_output(fields: dict[str, Json]) -> Output | None:
    """Take the form of the answer out of a request's fields; any other `response_format` stays."""
    response_format = fields.get("response_format")
    if isinstance(response_format, Mapping):
        form = response_format.get("json_schema")
    else:
        form = None
    if not isinstance(form, Mapping) or not isinstance(form.get("schema"), Mapping):
        return None
    del fields["response_format"]
    return Output(form["schema"], str(form.get("name") or "answer"))


def _is_provider_s(tool: Json) -> bool:
    """Whether a tool is run by the provider itself: any with a type other than `function`."""
    return isinstance(tool, Mapping) and tool.get("type", "function") != "function"


def _parse_tool(tool: Json) -> Described:
    if isinstance(tool, Mapping):
        function = tool.get("function")
    else:
        function = None
    if not isinstance(function, Mapping) or not function.get("name"):
        raise ConfigError(
            f"the request has a tool without a function: {argument_errors.format_value(tool)}"
        )
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict"):
        strict = parameters
    else:
        strict = None
    return Described(
        str(function["name"]),
        str(function.get("description") or ""),
        parameters,
        strict,
    )


def _parse_choice(choice: Json) -> str:
    if isinstance(choice, Mapping):
        return str((choice.get("function") or choice).get("name", "auto"))
    if choice:
        return _CHOICE_WORDS.get(str(choice), str(choice))
    return "auto"


def _head(envelope: Envelope, kind: str) -> dict[str, Json]:
    return {
        "id": envelope.id,
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
    }


def _encode_usage(usage: Usage) -> dict[str, Json]:
    # Only some servers count it.
    if usage.cache_written_tokens:
        written = {"cache_write_tokens": usage.cache_written_tokens}
    else:
        written = {}
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, **written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _encode_deltas(
    turn: Turn, names: NameMap, piece_chars: int
) -> Iterator[dict[str, Json]]:
    for key, text in (
        ("reasoning_content", turn.reasoning),
        ("content", turn.text),
        ("refusal", turn.refusal),
    ):
        yield from ({key: piece} for piece in pieces(text, piece_chars))
    for index, call in enumerate(turn.calls):
        yield {"tool_calls": [{"index": index, **_encode_call(call, names, "")}]}
        for piece in pieces(call.arguments, piece_chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
