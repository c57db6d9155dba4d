"""The blocks of Converse, which have no type: one key says what a block is. Parsed, and streamed both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from handrail.calls import ToolCall
from handrail.dialects import json_bodies, received
from handrail.dialects.call_assembly import with_ids
from handrail.dialects.names import NameMap
from handrail.dialects.writing import as_object
from handrail.errors import Json, ModelError
from handrail.messages import Finish, Turn, Usage

Block: TypeAlias = "dict[str, Json]"


_FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "refused",
    "content_filtered": "refused",
}


_WORTH_ANOTHER_TRY = {"malformed_model_output", "malformed_tool_use"}
"""The model wrote what Bedrock could not read, and the answer holds none of it: mostly the next attempt succeeds."""


class StreamedBlock:
    """A block on its way."""

    __slots__ = ("fields", "is_call", "name", "pieces", "position")

    def __init__(self) -> None:
        self.fields: Block = {}
        self.pieces: dict[str, list[str]] = {}
        self.is_call = False
        self.name = ""
        self.position = 0

    def begin(self, start: Mapping[str, Json], position: int) -> None:
        """Take what the first event of the block says."""
        self.fields |= start
        if isinstance(call := start.get("toolUse"), Mapping) and not is_server_side(
            start
        ):
            self.is_call = True
            self.position = position
            self.name = json_bodies.string(call.get("name") or "", "a tool's name")

    def grow(self, delta: Mapping[str, Json]) -> list[tuple[str, str]]:
        """Add what an event brings, and return it as (field, text)."""
        thought = delta.get("reasoningContent")
        call = delta.get("toolUse")
        thought = json_bodies.mapping(thought or {}, "`reasoningContent`")
        values = {
            "text": delta.get("text"),
            "thought": thought.get("text"),
            "signature": thought.get("signature"),
            "redactedContent": thought.get("redactedContent"),
            "input": json_bodies.mapping(call or {}, "`toolUse`").get("input"),
        }
        pieces = [
            (field, json_bodies.string(value, f"`{field}` of a delta"))
            for field, value in values.items()
            if value
        ]
        for field, text in pieces:
            self.pieces.setdefault(field, []).append(text)
        return pieces

    @property
    def arguments(self) -> str:
        """The text of a call's arguments so far."""
        return received.join_halves("".join(self.pieces.get("input", ())))

    def whole(self) -> Block:
        """Return the block as a whole answer would hold it."""
        texts = {
            field: "".join(texts_of_field)
            for field, texts_of_field in self.pieces.items()
        }
        if "redactedContent" in texts:
            self.fields["reasoningContent"] = {
                "redactedContent": texts["redactedContent"]
            }
        elif "thought" in texts or "signature" in texts:
            if "signature" in texts:
                signature = {"signature": texts["signature"]}
            else:
                signature = {}
            self.fields["reasoningContent"] = {
                "reasoningText": {"text": texts.get("thought", ""), **signature}
            }
        elif "text" in texts:
            self.fields["text"] = texts["text"]
        return self.fields


def are_blocks(content: Json) -> bool:
    """Whether a message's content is blocks of this form; most others say their type."""
    if not isinstance(content, list):
        return False
    return all(
        isinstance(block, Mapping)
        and "type" not in block
        and not block.keys().isdisjoint(_BLOCKS)
        for block in content
    )


_BLOCKS = frozenset(
    (
        "text",
        "toolUse",
        "toolResult",
        "reasoningContent",
        "citationsContent",
        "image",
        "document",
    )
)


def is_call(block: Mapping[str, Json]) -> bool:
    """Whether the block is a call of a tool that we run."""
    return "toolUse" in block and not is_server_side(block)


def is_server_side(block: Mapping[str, Json]) -> bool:
    """Whether the block is about a tool that Bedrock ran: its call, or its result."""
    call = block.get("toolUse")
    return "toolResult" in block or (
        isinstance(call, Mapping) and call.get("type") == "server_tool_use"
    )


def as_blocks(content: Json) -> list[Block]:
    """Return the blocks of a message's content.

    Raises:
        ModelError: It is no list of objects.
    """
    return [
        dict(json_bodies.mapping(block, "a block"))
        for block in json_bodies.items(content or [], "`content`")
    ]


def join_text(blocks: Iterable[Block]) -> str:
    """Return the text of all blocks."""
    return "".join(
        json_bodies.string(block.get("text") or "", "the text of a block")
        for block in blocks
    )


def parse_blocks(content: Json) -> list[tuple[Block, str]]:
    """Return the blocks of a whole answer, each with the text of its arguments."""
    return [
        (block, _arguments(block) if is_call(block) else "")
        for block in as_blocks(content)
    ]


def _arguments(block: Block) -> str:
    value = json_bodies.mapping(block["toolUse"], "a `toolUse`").get("input")
    if value is None:
        return "{}"
    return json_bodies.json_text(value, "the input of a call")


def build_turn(
    blocks: Sequence[tuple[Block, str]], stop: Json, usage: Json, names: NameMap
) -> Turn:
    """Return the turn that the blocks of an answer make up, each with the text of its arguments.

    Raises:
        ModelError: The provider could not read what its model wrote (`retryable`).
    """
    if isinstance(stop, str) and stop in _WORTH_ANOTHER_TRY:
        raise ModelError(
            f"the model wrote what its provider cannot read ({stop})",
            code=stop,
            retryable=True,
            answered=True,
        )
    calls_on_wire: list[ToolCall] = []
    content: list[Block] = []
    for block, arguments in blocks:
        if is_call(block):
            tool_use = json_bodies.mapping(block["toolUse"], "a `toolUse`")
            id, name = (
                json_bodies.string(tool_use.get(key) or "", f"`{key}`")
                for key in ("toolUseId", "name")
            )
            calls_on_wire.append(ToolCall(id, name, arguments))
            block = {**block, "toolUse": {**tool_use, "input": as_object(arguments)}}
        content.append(received.sendable_fields(block))
    calls = with_ids(calls_on_wire)
    return Turn(
        join_text(content),
        "".join(map(_thought, content)),
        names.own_calls(calls),
        _FINISHES.get(stop, "error") if isinstance(stop, str) else "error",
        _usage(usage),
        raw={"role": "assistant", "content": content},
        server_side=tuple(filter(is_server_side, content)),
    )


def _thought(block: Block) -> str:
    reasoning = json_bodies.mapping(
        block.get("reasoningContent") or {}, "`reasoningContent`"
    ).get("reasoningText")
    text = json_bodies.mapping(reasoning or {}, "`reasoningText`").get("text")
    return json_bodies.string(text or "", "the text of reasoning")


def _usage(usage: Json) -> Usage:
    """Return the usage with all that the model read as its input; Bedrock counts apart what came from its cache."""
    cached, written = (
        json_bodies.count(usage, f"cache{act}InputTokens") for act in ("Read", "Write")
    )
    read = json_bodies.count(usage, "inputTokens") + cached + written
    return Usage(
        read,
        json_bodies.count(usage, "outputTokens"),
        cached,
        cache_written_tokens=written,
    )
