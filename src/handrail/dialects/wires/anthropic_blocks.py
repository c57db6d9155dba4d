"""The blocks of Claude's answers: parsed, sent back, and streamed.

Rule 1: a block of any type, even an unfamiliar one, goes back unchanged, except for what no request could carry.
Rule 2: the text of a call's arguments is what the provider streamed, or our spelling of the object that came whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from handrail.calls import ToolCall, ToolResult
from handrail.dialects import json_bodies, received
from handrail.dialects.call_assembly import with_ids
from handrail.dialects.names import NameMap
from handrail.dialects.programs import find_program
from handrail.dialects.wires.base import foreign
from handrail.dialects.writing import as_object, pieces
from handrail.errors import Json
from handrail.messages import Finish, ReasoningDelta, TextDelta, Turn, Usage

Block: TypeAlias = "dict[str, Json]"

FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # The provider interrupted its own tools. The answer is as unfinished as one that was cut, and goes on when it is
    # sent back.
    "pause_turn": "length",
    "compaction": "length",
    "refusal": "refused",
}
"""What the provider's words for an end mean to us."""

DELTAS: Mapping[str, type[TextDelta] | type[ReasoningDelta]] = {
    "text": TextDelta,
    "thinking": ReasoningDelta,
}
"""What a person may read while it arrives, by its field."""

_GROWTH: Mapping[str, Mapping[str, str]] = {
    "text_delta": {"text": "text"},
    "thinking_delta": {"thinking": "thinking"},
    "signature_delta": {"signature": "signature"},
    "input_json_delta": {"partial_json": "input"},
    "compaction_delta": {
        "content": "content",
        "encrypted_content": "encrypted_content",
    },
}
"""Which texts a delta brings, by its type, and the fields of the block that they belong to."""


class ContentBlock:
    """A block of an answer, whole or on its way."""

    __slots__ = (
        "_has_sound_input",
        "fields",
        "id",
        "input",
        "is_call",
        "name",
        "pieces",
        "position",
    )

    def __init__(self, fields: dict[str, Json], input: Json) -> None:
        self.fields = fields
        self.input = input
        self.is_call = fields.get("type") == "tool_use"
        self.id = json_bodies.string(fields.get("id") or "", "a block's id")
        self.name = json_bodies.string(fields.get("name") or "", "a tool's name")
        self.pieces: dict[str, list[str]] = {}
        self.position = 0
        # the arguments came as an object that goes back as it is
        self._has_sound_input = False

    @classmethod
    def start(cls, content: Json) -> ContentBlock:
        """Return the block that an event begins."""
        fields = json_bodies.mapping(content, "a block")
        json_bodies.string(fields.get("type"), "a block's type")
        for name in DELTAS:
            if fields.get(name):
                json_bodies.string(fields[name], f"`{name}` of a block")
        return cls(received.sendable_fields(fields), fields.get("input"))

    @classmethod
    def whole(cls, content: Json) -> ContentBlock:
        """Return a block that came in one piece."""
        block = cls.start(content)
        if block.is_call:
            block.take_whole_input()
        return block

    @property
    def arguments(self) -> str:
        """The text of a call's arguments so far."""
        return received.join_halves("".join(self.pieces.get("input", ())))

    def take_whole_input(self) -> str:
        """Take the arguments that came as an object, and return their text."""
        text = json_bodies.json_text(self.input, "the input of a tool")
        self.pieces["input"] = [text]
        self._has_sound_input = isinstance(
            self.fields.get("input"), dict
        ) and not received.has_half(text)
        return text

    def grow(self, delta: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
        """Add what an event brings, and yield it as (field, text)."""
        kind = delta.get("type")
        if kind == "citations_delta" and received.is_sendable(delta.get("citation")):
            if not isinstance(self.fields.get("citations"), list):
                self.fields["citations"] = []
            self.fields["citations"].append(delta.get("citation"))
        for source, name in (
            _GROWTH.get(kind, {}).items() if isinstance(kind, str) else ()
        ):
            if text := json_bodies.string(
                delta.get(source) or "", f"`{source}` of a delta"
            ):
                self.pieces.setdefault(name, []).append(text)
                yield name, text

    def text(self, name: str) -> str:
        """Return a field's text, whole."""
        beginning = json_bodies.text_or_empty(self.fields, name)
        if name not in self.pieces:
            return beginning
        return "".join((beginning, *self.pieces[name]))

    def raw(self) -> Block:
        """Return the block as it goes back."""
        if not self.pieces:
            return self.fields
        grown = {name: self.text(name) for name in self.pieces if name != "input"}
        if "input" in self.pieces and not self._has_sound_input:
            grown["input"] = as_object(self.arguments)
        return {**self.fields, **grown}


ENDING = ("stop_reason", "stop_details", "container")
"""The fields of an answer with its end, and with the container of its programs."""


class MessageEnd(Struct, frozen=True):
    """How an answer ended.

    Attributes:
        container: Where the provider runs its code: `id` and `expires_at`.
    """

    finish: Finish
    refusal: str = ""
    usage: Usage = field(default_factory=Usage)
    container: Json = None

    @classmethod
    def of(cls, fields: Mapping[str, Json], usage: Json) -> MessageEnd:
        """Parse the end from the fields of an answer, or of the last events of a stream."""
        word = fields.get("stop_reason")
        details = fields.get("stop_details")
        why = None
        if details is not None and isinstance(details, json_bodies.OBJECT):
            why = details.get("explanation")
        if isinstance(word, str):
            finish = FINISHES.get(word, "error")
        else:
            finish = "error"
        return cls(
            finish,
            why if isinstance(why, str) else "",
            _usage(usage),
            fields.get("container"),
        )


def build_turn(blocks: Sequence[ContentBlock], end: MessageEnd, names: NameMap) -> Turn:
    """Return the turn that the blocks of an answer make up."""
    calls = with_ids(
        [
            ToolCall(
                block.id,
                block.name,
                block.arguments,
                find_program(block.fields.get("caller")),
            )
            for block in blocks
            if block.is_call
        ]
    )
    waiting = iter(calls)
    content: list[Block] = []
    for block in blocks:
        raw = block.raw()
        if block.is_call:
            raw["id"] = next(waiting).id
        content.append(raw)
    message: dict[str, Json] = {
        "type": "message",
        "role": "assistant",
        "content": content,
    }
    if end.container is not None and isinstance(end.container, json_bodies.OBJECT):
        message["container"] = end.container
    return Turn(
        text="".join([block.text("text") for block in blocks]),
        reasoning="".join([block.text("thinking") for block in blocks]),
        calls=names.own_calls(calls),
        finish=end.finish,
        usage=end.usage,
        refusal=end.refusal,
        raw=message,
        server_side=tuple([block for block in content if _is_server_side(block)]),
    )


def _is_server_side(block: Block) -> bool:
    """Whether the block is about a tool that the provider ran: `server_tool_use`, `web_search_tool_result`, ..."""
    return str(block.get("type")).endswith(("_tool_use", "_tool_result"))


def _usage(usage: Json) -> Usage:
    """Return the usage with all that the model read as its input; the API counts apart what came from its cache."""
    if not isinstance(usage, json_bodies.OBJECT):
        return Usage()
    cached = json_bodies.count(usage, "cache_read_input_tokens")
    written = json_bodies.count(usage, "cache_creation_input_tokens")
    return Usage(
        json_bodies.count(usage, "input_tokens") + cached + written,
        json_bodies.count(usage, "output_tokens"),
        cached,
        json_bodies.count(usage.get("output_tokens_details"), "thinking_tokens"),
        written,
    )


def in_deltas(
    block: Block, arguments: str, piece_chars: int
) -> tuple[Block, list[Block]]:
    """Return how a block begins in a stream, and the deltas that fill it."""
    if block["type"] == "tool_use":
        texts = {**block, "input": arguments}
    else:
        texts = block
    deltas = [
        {"type": kind, source: piece}
        for kind, sources in _GROWTH.items()
        for source, name in sources.items()
        if name in _FILLED.get(block["type"], {}) and isinstance(texts.get(name), str)
        for piece in pieces(texts[name], piece_chars)
    ]
    return {**block, **_FILLED.get(block["type"], {})}, deltas


_FILLED: Mapping[str, Mapping[str, Json]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
"""What a block lacks when it begins in a stream. Blocks of other types come whole."""


def as_blocks(content: Json) -> list[Block]:
    """Return the blocks of a message's content, which may be mere text."""
    if content is None or isinstance(content, str):
        if content and content.strip():
            return [{"type": "text", "text": content}]
        return []
    blocks = json_bodies.items(content, "`content`")
    return [
        dict(json_bodies.mapping(block, "a block of a message")) for block in blocks
    ]


def is_own_form(result: ToolResult) -> bool:
    """Whether a result consists of blocks only, one of them Anthropic's own: sources to cite, tools found."""
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


def parse_message(message: Mapping[str, Json], names: NameMap) -> Turn:
    """Return the turn from one assistant message, which does not say how the model ended.

    Raises:
        ConfigError: It is no message of this dialect.
        ModelError: A block cannot be read.
    """
    if why := _explain_foreign(message):
        raise foreign("message of Anthropic's", why)
    blocks = [ContentBlock.whole(block) for block in as_blocks(message.get("content"))]
    finish: Finish = "calls" if any(block.is_call for block in blocks) else "stop"
    return received.whole_turn(build_turn(blocks, MessageEnd(finish), names))


_BLOCKS_OF_OTHERS = (
    "toolUse",
    "functionCall",
    "function_call",
    "tool_call",
    "image_url",
    "output_text",
    "input_text",
)


def _explain_foreign(message: Json) -> str:
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
