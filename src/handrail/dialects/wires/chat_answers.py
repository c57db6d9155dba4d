"""What a server of the Chat Completions form answers, whole or event by event: OpenAI's own, and the many copies.

Rule 1: a copy that spells something in its own way is read where that can mean one thing only. What an answer was cut
        by, or refused for, is final, whatever comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from handrail.calls import ToolCall
from handrail.dialects import Dialect, ToolLike, json_bodies, provider_errors, received
from handrail.dialects.call_assembly import CallAssembler, StreamedCall, with_ids
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.sse import ServerEvent
from handrail.dialects.writing import name_map
from handrail.errors import Json
from handrail.messages import (
    ArgumentsDelta,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    Turn,
    Usage,
)

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
_REASONING_KEYS = ("reasoning_content", "reasoning")
"""DeepSeek, Moonshot, Z.ai, xAI and older vLLM say the first; OpenRouter, Groq, Cerebras and newer vLLM the second."""

GOES_BACK = (*_REASONING_KEYS, "reasoning_details")
"""Of the provider's message: reasoning, with its signatures and encrypted parts. The thinking models of DeepSeek and
Moonshot refuse a tool loop that comes back without it."""

CALL_GOES_BACK = ("extra_content", "provider_specific_fields")
"""Of the provider's call: Gemini's thought signature, as Google's own endpoint and as gateways spell it."""

_FIRST_INDEXES = (0, "0", None)
"""How servers spell the index of the first choice, the only one that is read."""

_OTHER_ARGUMENTS = ("parameters", "args")
"""What Llama's own form and LangChain say for `arguments`. Left unread, the call would run without any."""

_PARTS = {"text", "thinking", "refusal", "reference", "output_text"}
"""Types of content parts that hold no call: OpenAI's own and Mistral's."""


class ChatStream(EventStream):
    """One streamed answer of the Chat Completions form; see `DialectStream`."""

    def __init__(self, dialect: Dialect, tools: Sequence[ToolLike]) -> None:
        super().__init__(dialect, tools)
        self._names = chat_names(tools)
        own = {tool.name for tool in tools}
        self._calls = CallAssembler(lambda wire: self._names.from_wire(wire) in own)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        # reasoning as the provider spells it, to go back
        self._raw_reasoning: dict[str, list[str]] = {}
        self._details: list[Mapping[str, Json]] = []
        self._finish: Finish | None = None
        self._usage = Usage()

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event; see `EventStream.take`."""
        chunk = json_bodies.parse_object(event.data)
        choices = chunk.get("choices")
        if (
            event.type == "error"
            or chunk.get("error")
            or (not choices and provider_errors.error_in(chunk))
        ):
            raise provider_errors.classify(None, {}, chunk)
        if chunk.get("usage"):
            self._usage = _parse_usage(chunk["usage"])
        if not isinstance(choices, list):
            return
        for choice in choices:
            if (
                isinstance(choice, json_bodies.OBJECT)
                and choice.get("index", 0) in _FIRST_INDEXES
            ):
                self._take_choice(choice, deltas)

    def _take_choice(self, choice: Mapping[str, Json], deltas: list[Delta]) -> None:
        if choice.get("error"):
            raise provider_errors.classify(None, {}, {"error": choice["error"]})
        # A gateway that cannot stream sends the whole message in one event; behind deltas it says them once more.
        has_content = (
            self._calls.calls or self._text or self._reasoning or self._refusal
        )
        if "delta" in choice or has_content:
            delta = choice.get("delta")
        else:
            delta = choice.get("message")
        if delta:
            self._take_delta(
                json_bodies.mapping(delta, "a delta of the stream"), deltas
            )
        # A gateway adds an end of its own, which does not make an answer whole that was cut before.
        if choice.get("finish_reason") and self._finish not in ("length", "refused"):
            self._finish = _parse_finish(choice["finish_reason"])

    def _take_delta(self, delta: Mapping[str, Json], deltas: list[Delta]) -> None:
        if calls := delta.get("tool_calls"):
            self._take_calls(json_bodies.items(calls, "`tool_calls`"), deltas)
        if content := delta.get("content"):
            text, thought = _content(content)
            if thought:
                self._think(thought, deltas)
            if text:
                self._text.append(text)
                deltas.append(TextDelta(text))
        if any(map(delta.get, GOES_BACK)):
            self._take_reasoning(delta, deltas)
        if refusal := delta.get("refusal"):
            self._refusal.append(json_bodies.string(refusal, "`refusal`"))
        if _has_old_call(delta):
            self._take_calls([{"function": delta["function_call"]}], deltas)

    def _take_reasoning(self, delta: Mapping[str, Json], deltas: list[Delta]) -> None:
        for key in _REASONING_KEYS:
            if delta.get(key):
                self._raw_reasoning.setdefault(key, []).append(
                    json_bodies.string(delta[key], f"`{key}`")
                )
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
            for key in CALL_GOES_BACK:
                if key in entry and received.is_sendable(entry[key]):
                    call.extras[key] = entry[key]
            if text:
                deltas.append(
                    ArgumentsDelta(
                        call.position, self._names.from_wire(call.name), text
                    )
                )

    def whole(self) -> Turn:
        """Return the turn of all events; see `EventStream.whole`."""
        calls = self._calls.finish()
        text = "".join(self._text)
        refusal = "".join(self._refusal)
        raw: dict[str, Json] = {"role": "assistant", "content": text or None}
        if refusal:
            raw["refusal"] = refusal
        raw |= {key: "".join(pieces) for key, pieces in self._raw_reasoning.items()}
        if self._details:
            raw["reasoning_details"] = _merge_details(self._details)
        if calls:
            raw["tool_calls"] = list(map(_raw_call, calls, self._calls.calls))
        return Turn(
            text=text,
            reasoning="".join(self._reasoning),
            calls=self._names.own_calls(calls),
            finish=self._finish or "error",
            usage=self._usage,
            refusal=refusal,
            raw=raw,
        )


def parse_turn(body: Mapping[str, Json], tools: Iterable[ToolLike] | None) -> Turn:
    """Return the turn in a whole response body.

    Raises:
        ModelError: The body is an error (classified), or unreadable.
    """
    if provider_errors.error_in(body):
        raise provider_errors.classify(None, {}, body)
    choice = _first_choice(body)
    if choice.get("error"):
        raise provider_errors.classify(None, {}, {"error": choice["error"]})
    message = _whole_message(choice, body)
    return build_turn(
        message,
        _parse_finish(choice.get("finish_reason")),
        _parse_usage(body.get("usage")),
        tools,
    )


def chat_names(tools: Iterable[ToolLike] | None) -> NameMap:
    """Return how these tools are called on this wire."""
    return name_map(tools, NAMES)


def foreign_in(message: Json) -> str:
    """Return what shows that this is no assistant message of ours; empty when it is one."""
    if not isinstance(message, json_bodies.OBJECT):
        return f"it is {json_bodies.kind(message)}"
    role = message.get("role")
    # only a model's are carried out
    if message.get("tool_calls") or message.get("function_call"):
        return "" if role in ("assistant", "", None) else f"its role is {role!r}"
    unknown = _unknown_parts(message.get("content"))
    if unknown:
        return f"it has content blocks of type {', '.join(unknown)}"
    if role is None and not {"tool_calls", "function_call"} & message.keys():
        return "it has neither a role nor calls"
    return "" if role in ("assistant", None) else f"its role is {role!r}"


def _unknown_parts(content: Json) -> list[str]:
    """Return the types of the content's parts that this form does not have, each once."""
    if not isinstance(content, list):
        return []
    # Bedrock's and Gemini's blocks have no type; their first key says what they are.
    types = [
        str(part.get("type") or next(iter(part), ""))
        for part in content
        if isinstance(part, Mapping)
    ]
    return list(dict.fromkeys(each for each in types if each not in _PARTS))


def _first_choice(body: Mapping[str, Json]) -> Mapping[str, Json]:
    choices = json_bodies.items(body.get("choices"), "`choices`")
    if not choices:
        raise json_bodies.unreadable("`choices` is empty")
    return json_bodies.mapping(choices[0], "`choices[0]`")


def _whole_message(
    choice: Mapping[str, Json], body: Mapping[str, Json]
) -> Mapping[str, Json]:
    """Return the message of the first choice, with the calls that it ends in.

    Some gateways give a model's text and its calls as two choices, both of which end in calls. The calls of a choice
    that was cut, refused or broken off are not taken.
    """
    message = json_bodies.mapping(choice.get("message"), "`choices[0].message`")
    has_calls = message.get("tool_calls") or message.get("function_call")
    if has_calls or not _ends_in_calls(choice):
        return message
    for other in body["choices"][1:]:
        if (
            not isinstance(other, json_bodies.OBJECT)
            or other.get("error")
            or not _ends_in_calls(other)
        ):
            continue
        rest = other.get("message")
        if (
            isinstance(rest, json_bodies.OBJECT)
            and rest.get("tool_calls")
            and not rest.get("refusal")
        ):
            return {**message, "tool_calls": rest["tool_calls"]}
    return message


def _ends_in_calls(choice: Mapping[str, Json]) -> bool:
    return _parse_finish(choice.get("finish_reason")) == "calls"


def _parse_finish(word: Json) -> Finish:
    if isinstance(word, str):
        return _FINISHES.get(word.lower(), "error")
    return "error"


def build_turn(
    message: Mapping[str, Json],
    finish: Finish,
    usage: Usage,
    tools: Iterable[ToolLike] | None,
) -> Turn:
    """Return the turn that a message is."""
    text, thought = _content(message.get("content"))
    wire = _calls(message)
    names = chat_names(tools if wire else ())
    return Turn(
        text=text,
        reasoning=_reasoning(message, _details(message)) or thought,
        calls=names.own_calls(wire),
        finish=finish,
        usage=usage,
        refusal=json_bodies.string(message.get("refusal") or "", "`refusal`"),
        raw=_raw(message),
    )


def _raw(message: Mapping[str, Json]) -> dict[str, Json]:
    """Return the provider's message as it may be stored: without fields that no request could carry."""
    raw = received.sendable_fields(
        {name: value for name, value in message.items() if name != "tool_calls"}
    )
    if calls := message.get("tool_calls"):
        raw["tool_calls"] = [received.sendable_fields(call) for call in calls]
    return raw


def _calls(message: Mapping[str, Json]) -> list[ToolCall]:
    entries = list(json_bodies.items(message.get("tool_calls") or [], "`tool_calls`"))
    if _has_old_call(message):
        entries.append({"function": message["function_call"]})
    parts = [_call_parts(entry) for entry in entries]
    # A gateway fills the fields that it does not use: `"function_call": {"name": "", "arguments": ""}` is no call.
    return with_ids([ToolCall(*part) for part in parts if any(part)])


def _has_old_call(message: Mapping[str, Json]) -> bool:
    """Whether only `function_call` has the call; some servers put the same one there and in `tool_calls`."""
    function = message.get("function_call")
    if not function:
        return False
    others = [_call_parts(entry)[1:] for entry in message.get("tool_calls") or ()]
    return _call_parts({"function": function})[1:] not in others


def _call_parts(entry: Json) -> tuple[str, str, str]:
    """Return id, name and arguments of a call or of a streamed piece of one, each empty where it is missing."""
    if not isinstance(entry, json_bodies.OBJECT):
        raise json_bodies.unreadable(
            f"a tool call is {json_bodies.kind(entry)}, not an object"
        )
    function = entry.get("function") or entry  # some servers leave out the inner object
    if not isinstance(function, json_bodies.OBJECT):
        raise json_bodies.unreadable(
            f"the function of a tool call is {json_bodies.kind(function)}, not an object"
        )
    id = entry.get("id")
    name = function.get("name")
    value = function.get("arguments")
    if value is None:
        value = next(
            (
                function[key]
                for key in _OTHER_ARGUMENTS
                if function.get(key) is not None
            ),
            None,
        )
    arguments = json_bodies.json_text(value, "what a tool is called with")
    if isinstance(id, str | int | float):
        call_id = str(id)
    else:
        call_id = ""
    return call_id, json_bodies.string(name or "", "a tool's name"), arguments


def _indexes(entries: Sequence[Json]) -> Sequence[int | None]:
    """Return the indexes of one list's pieces. One list never names one call twice: where they repeat, places count."""
    given = [
        entry.get("index") if isinstance(entry, json_bodies.OBJECT) else None
        for entry in entries
    ]
    indexes = [_index(index) for index in given]
    if len(given) > 1 and len(set(indexes)) < len(given):
        return range(len(given))
    return indexes


def _index(index: Json) -> int | None:
    """Return an index; some servers write theirs as text, as protocol buffers do with long integers."""
    if isinstance(index, str) and index.isdecimal() and len(index) < 5:
        return int(index)
    if isinstance(index, int):
        return index
    return None


def _content(content: Json) -> tuple[str, str]:
    """Return text and reasoning of a message's content, which is text or, at Mistral, a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    texts = []
    thoughts = []
    for part in json_bodies.items(content, "`content`"):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type") == "text":
            texts.append(json_bodies.string(part.get("text") or "", "a text part"))
        elif isinstance(part, Mapping) and part.get("type") == "thinking":
            thoughts.append(_content(part.get("thinking"))[0])
    return "".join(texts), "".join(thoughts)


def _reasoning(
    message: Mapping[str, Json], details: Sequence[Mapping[str, Json]]
) -> str:
    """Return the reasoning once: gateways send it under several names at the same time."""
    for key in _REASONING_KEYS:
        if message.get(key):
            return json_bodies.string(message[key], f"`{key}`")
    if not details:
        return ""
    texts = (detail.get("text") or detail.get("summary") for detail in details)
    return "".join(text for text in texts if isinstance(text, str))


def _details(message: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    details = message.get("reasoning_details")
    if not isinstance(details, list):
        return []
    return [
        each
        for each in details
        if isinstance(each, Mapping) and received.is_sendable(each)
    ]


_DETAIL_TEXTS = ("text", "summary", "data", "signature")


def _merge_details(pieces: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
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
    return [
        fields | {name: "".join(values) for name, values in texts.items()}
        for fields, texts in blocks
    ]


def _raw_call(call: ToolCall, streamed: StreamedCall) -> dict[str, Json]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **streamed.extras}


def _parse_usage(usage: Json) -> Usage:
    if not isinstance(usage, json_bodies.OBJECT):
        return Usage()
    input_details = usage.get("prompt_tokens_details")
    output_details = usage.get("completion_tokens_details")
    return Usage(
        json_bodies.count(usage, "prompt_tokens"),
        json_bodies.count(usage, "completion_tokens"),
        # Moonshot and DeepSeek report it beside the details.
        json_bodies.count(input_details, "cached_tokens")
        or json_bodies.count(usage, "cached_tokens")
        or json_bodies.count(usage, "prompt_cache_hit_tokens"),
        json_bodies.count(output_details, "reasoning_tokens"),
        json_bodies.count(input_details, "cache_write_tokens"),
    )
