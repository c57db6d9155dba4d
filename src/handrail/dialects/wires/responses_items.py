"""The items of one answer in OpenAI's Responses form, put together: from a whole body or from a stream's events.

An answer is a list of items: messages, reasoning, calls, and whatever the provider ran itself. A stream announces an
item, sends its texts in pieces, then each text whole, then the item, then the whole answer. Servers that copy the form
leave out any of these, so every account of an item adds to the earlier ones and repeats nothing.

Rule 1: an item goes back as it was sent last, with unknown fields: signatures and encrypted parts hang on that.
Rule 2: no text is taken back. A later account may only add to it; a call that is sent in two ways is an error, for
        nobody knows which one the model meant.
Rule 3: linear in the length of the stream: pieces are joined once, and compared only with a text as long.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from handrail.calls import ToolCall, ToolResult
from handrail.dialects import json_bodies, provider_errors, received
from handrail.dialects.call_assembly import with_ids
from handrail.dialects.programs import find_program
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
from handrail.tools.mcp_approval import digest_question

CALLS: Mapping[str, str] = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "client_tool_search_call": "arguments",
    "client_mcp_approval": "arguments",
}
"""Items that are calls for us, and the field that holds what the model wrote: JSON, or free text."""

CLIENT_SEARCH = "client_tool_search_call"
"""A search for tools that we answer. Only `execution` distinguishes it from the provider's own search."""

CLIENT_APPROVAL = "client_mcp_approval"
"""A question about a call on an MCP server that is ours to answer. The provider has no other word for one."""

_FREE = "custom_tool_call"
"""The call of a tool that takes free text. For us it has one argument, `input`: a tool is called with an object."""
_FREE_OPENS = '{"input": "'
_FREE_CLOSES = '"}'

_SAID_BY_MODEL = {"message", "reasoning", *CALLS}
"""Every other item was run by the provider, or asks for something that only it defines."""


_WAITING: Mapping[str, str] = {
    "tool_search_call": "the tools that the model searches for (`tool_search_output` for {call_id}); a `tool_search` "
    'with `"execution": "server"` is searched by the provider itself',
    "mcp_approval_request": "a yes or a no to {name!r} on the MCP server {server_label!r} (`mcp_approval_response` for "
    "{id}); `require_approval` of that server says which of its tools are called without",
    "apply_patch_call": "the outcome of a patch (`apply_patch_call_output` for {call_id})",
    "computer_call": "a picture of the screen (`computer_call_output` for {call_id})",
    "local_shell_call": "the outcome of a command (`local_shell_call_output` for {call_id})",
    "shell_call": "the outcome of a command (`shell_call_output` for {call_id})",
}
"""Items that the provider needs an answer to before it can continue, and what that answer is."""


class TextPosition(NamedTuple):
    """The position of a text in an item.

    Attributes:
        kind: `text`, `refusal`, `summary`, `thought`, or `call`.
        part: Which paragraph of a summary, counted from 0. The parts of any other kind are one text: some servers
            number every piece of it.
    """

    kind: str
    part: int = 0


_CALL = TextPosition("call")


class _Part(NamedTuple):
    """How an item's list of parts spells a text: field of the list, type of the part, field of the text."""

    field: str
    type: str
    text: str


_PARTS: Mapping[str, _Part] = {
    "summary": _Part("summary", "summary_text", "text"),
    "thought": _Part("content", "reasoning_text", "text"),
    "text": _Part("content", "output_text", "text"),
    "refusal": _Part("content", "refusal", "refusal"),
}
_KINDS: Mapping[tuple[str, str, str], tuple[str, str]] = {
    (item, part.field, part.type): (kind, part.text)
    for item, kinds in (
        ("reasoning", ("summary", "thought")),
        ("message", ("text", "refusal")),
    )
    for kind in kinds
    for part in (_PARTS[kind],)
}
_APART = "\n\n"
"""Between two thoughts: summaries are paragraphs with headings of their own."""


class OwnTools(NamedTuple):
    """The names of our tools that answer what the provider asks in items of its own; empty where there is none.

    Attributes:
        search: Searches for tools.
        approval: Says whether the provider may call a tool of an MCP server; see `tools.mcp_approval`.
    """

    search: str = ""
    approval: str = ""


class OutputItem:
    """One item on its way."""

    __slots__ = ("call", "fields", "is_closed", "is_whole", "pieces", "type")

    def __init__(self, type: str) -> None:
        self.type = type
        self.fields: dict[str, Json] = {}
        self.pieces: dict[TextPosition, list[str]] = {}
        self.is_whole = False
        self.is_closed = False  # set for free text once no more can follow
        self.call = -1  # which call of the answer it is

    def text_at(self, position: TextPosition) -> str:
        """Return the text at a position so far."""
        pieces = self.pieces.get(position)
        if not pieces:
            return ""
        if len(pieces) > 1:  # a character may have come in two
            pieces[:] = [received.join_halves("".join(pieces))]
        return pieces[0]

    def arguments(self) -> str:
        """Return a call's arguments so far."""
        text = self.text_at(_CALL)
        if self.type != _FREE:
            return text
        arguments = _within_json(text)
        if text or self.is_closed:
            arguments = _FREE_OPENS + arguments
        if self.is_closed:
            arguments += _FREE_CLOSES
        return arguments

    def raw(self) -> dict[str, Json]:
        """Return the item as the provider sent it, or as much of it as arrived."""
        if self.is_whole or self.type not in _SAID_BY_MODEL:
            return self.fields
        if self.type == CLIENT_APPROVAL:
            return self.fields
        if field := CALLS.get(self.type):
            return {
                **self.fields,
                "type": self.fields.get("type", self.type),
                field: self.text_at(_CALL),
            }
        parts: dict[str, list[Json]] = {}
        for position in self.pieces:
            part = _PARTS[position.kind]
            parts.setdefault(part.field, []).append(
                {"type": part.type, part.text: self.text_at(position)}
            )
        if self.type == "message":
            role = {"role": "assistant"}
        else:
            role = {}
        return {**self.fields, "type": self.type, **role, **parts}


_NO_TOOLS = OwnTools()


class OutputAssembler:
    """Assembles the items of one answer, with their texts in the order of arrival.

    Args:
        own_name: Returns the tool's own name for a wire name.
        own_tools: Which of our tools answer what the provider asks.
    """

    def __init__(
        self, own_name: Callable[[str], str], own_tools: OwnTools = _NO_TOOLS
    ) -> None:
        self._own_tools = own_tools
        self.items: list[OutputItem] = []
        self._own_name = own_name
        self._by_id: dict[str, OutputItem] = {}
        self._by_call_id: dict[str, OutputItem] = {}
        self._by_index: dict[int, OutputItem] = {}
        self._calls: list[OutputItem] = []
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thoughts: list[str] = []

    def announce(self, entry: Json, index: Json) -> None:
        """Take an item that begins. Its texts wait until they are sent again, piece by piece or whole."""
        fields = json_bodies.mapping(entry, "an item of the answer")
        type = self._type(fields)
        call_id = json_bodies.text_or_empty(fields, "call_id")
        item = self._by_id.get(json_bodies.text_or_empty(fields, "id"))
        if (
            item is None
            or item.type != type
            or (
                item.is_whole
                and json_bodies.text_or_empty(item.fields, "call_id") != call_id
            )
        ):
            self._update(self._begin(type), fields, index)
        elif not item.is_whole:
            self._update(item, fields, index)

    def complete(self, entry: Json, index: Json, deltas: list[Delta]) -> None:
        """Take an item that is whole, and report what is new in it."""
        fields = json_bodies.mapping(entry, "an item of the answer")
        item = self._find_announced(fields, _number(index)) or self._begin(
            self._type(fields)
        )
        self._complete(item, fields, index, deltas)

    def close(self, output: Json, deltas: list[Delta]) -> None:
        """Take the list of all items at the answer's end, if there is one, and report what only it holds."""
        entries: list[Mapping[str, Json]] = []
        if isinstance(output, list):
            entries = [
                json_bodies.mapping(entry, "an item of the answer") for entry in output
            ]
        for fields, item in zip(entries, self._match_items(entries), strict=True):
            if item is None or not item.is_whole:
                self._complete(
                    item or self._begin(self._type(fields)), fields, None, deltas
                )
            elif item.type in CALLS:
                self._say_rest(item, fields, deltas)
        for item in self.items:
            if not item.is_whole:
                self._say_announced(item, deltas)
            self._close_free_text(item, deltas)

    def _say_announced(self, item: OutputItem, deltas: list[Delta]) -> None:
        """Report the texts of an item that came with its announcement only."""
        for position, text in _texts(item.fields, item.type):
            if position not in item.pieces:  # else it was announced with its beginning
                self.say(item, position, text, deltas)

    def find_item(self, type: str, id: Json, index: Json) -> OutputItem:
        """Return the item that an event speaks of: by its id, else by its index, else the last one."""
        item = self._look_up(id, _number(index))
        if item is not None and item.type == type:
            return item
        started = self._begin(type)
        fields = {"id": id} if isinstance(id, str) and id else {}
        self._update(started, fields, index)
        return started

    def _look_up(self, id: Json, number: int | None) -> OutputItem | None:
        if isinstance(id, str) and (item := self._by_id.get(id)):
            return item
        if number is None:
            return self.items[-1] if self.items else None
        # some gateways give an item another id in every event
        item = self._by_index.get(number)
        if item is None or item.is_whole:
            return None
        return item

    def say(
        self, item: OutputItem, position: TextPosition, text: str, deltas: list[Delta]
    ) -> None:
        """Add the next piece of an item's text."""
        if not text or item.is_closed:
            return
        begins = position not in item.pieces
        item.pieces.setdefault(position, []).append(text)
        if position.kind == "text":
            self._text.append(text)
            deltas.append(TextDelta(text))
        elif position.kind == "refusal":
            self._refusal.append(text)
        elif position.kind == "call":
            if item.type != _FREE:
                shown = text
            else:
                shown = f"{_FREE_OPENS if begins else ''}{_within_json(text)}"
            deltas.append(ArgumentsDelta(item.call, self._name(item), shown))
        else:
            if begins and self._thoughts:
                thought = _APART + text
            else:
                thought = text
            self._thoughts.append(thought)
            deltas.append(ReasoningDelta(thought))

    def whole(
        self, item: OutputItem, position: TextPosition, text: str, deltas: list[Delta]
    ) -> None:
        """Take a text that is sent whole, and report the part that is new.

        Raises:
            ModelError: It is a call's, and contradicts the pieces so far.
        """
        so_far = item.text_at(position)
        if len(text) > len(so_far) and text.startswith(so_far):
            self.say(item, position, text[len(so_far) :], deltas)
        elif (
            position.kind == "call"
            and text
            and text != so_far
            and not _same_json(text, so_far)
        ):
            raise json_bodies.unreadable(
                f"the arguments of a call of {self._name(item)!r} were sent twice, and differ"
            )

    def turn(self, finish: Finish, usage: Usage, *, id: Json = None) -> Turn:
        """Return the turn that the items make."""
        refusal = "".join(self._refusal)
        waits_for = ""
        if finish == "stop":
            waits_for = self._waits_for()
            if self._calls or waits_for:
                finish = "calls"
            elif refusal:
                finish = "refused"
        raw: dict[str, Json] = {"id": id} if isinstance(id, str) else {}
        raw["output"] = [received.sendable_fields(item.raw()) for item in self.items]
        server_side: list[dict[str, Json]] = []
        for item, entry in zip(self.items, raw["output"], strict=True):
            if item.type not in _SAID_BY_MODEL:
                server_side.append(entry)
        return Turn(
            text="".join(self._text),
            reasoning="".join(self._thoughts),
            calls=tuple(with_ids([self._call(item) for item in self._calls])),
            finish=finish,
            usage=usage,
            refusal=refusal,
            raw=raw,
            server_side=tuple(server_side),
            waits_for=waits_for,
        )

    def _waits_for(self) -> str:
        """Return what the items wait for; empty if the provider has answered them itself."""
        waiting = [item for item in self.items if item.type in _WAITING]
        if not waiting:
            return ""
        answered = {
            json_bodies.text_or_empty(item.fields, "call_id")
            for item in self.items
            if item.type.endswith("_output")
        }
        wanted = [
            _WAITING[item.type].format_map(defaultdict(str, item.fields))
            for item in waiting
            if json_bodies.text_or_empty(item.fields, "call_id") not in answered - {""}
            and (item.type != "tool_search_call" or is_client_search(item.fields))
        ]
        return "; and for ".join(wanted)

    def _call(self, item: OutputItem) -> ToolCall:
        id = json_bodies.text_or_empty(
            item.fields, "call_id"
        ) or json_bodies.text_or_empty(item.fields, "id")
        if item.type == CLIENT_APPROVAL:
            program = id  # the provider asks, and no model could
        else:
            program = find_program(item.fields.get("caller"))
        return ToolCall(id, self._name(item), item.arguments(), program)

    def _type(self, fields: Mapping[str, Json]) -> str:
        """Return the type of an item, which for one that is ours to answer is one of our own."""
        if self._own_tools.search and is_client_search(fields):
            return CLIENT_SEARCH
        if self._own_tools.approval and is_approval_request(fields):
            return CLIENT_APPROVAL
        return _type(fields)

    def _name(self, item: OutputItem) -> str:
        if item.type == CLIENT_SEARCH:
            return self._own_tools.search
        if item.type == CLIENT_APPROVAL:
            return self._own_tools.approval
        return self._own_name(json_bodies.text_or_empty(item.fields, "name"))

    def _begin(self, type: str) -> OutputItem:
        item = OutputItem(type)
        self.items.append(item)
        if type in CALLS:
            item.call = len(self._calls)
            self._calls.append(item)
        return item

    def _update(
        self, item: OutputItem, fields: Mapping[str, Json], index: Json
    ) -> None:
        item.fields.update(fields)
        if id := json_bodies.text_or_empty(fields, "id"):
            self._by_id[id] = item
        if call_id := json_bodies.text_or_empty(fields, "call_id"):
            self._by_call_id[call_id] = item
        if (number := _number(index)) is not None:
            self._by_index[number] = item

    def _complete(
        self,
        item: OutputItem,
        fields: Mapping[str, Json],
        index: Json,
        deltas: list[Delta],
    ) -> None:
        self._update(item, fields, index)
        self._say_rest(item, fields, deltas)
        self._close_free_text(item, deltas)
        item.is_whole = True

    def _close_free_text(self, item: OutputItem, deltas: list[Delta]) -> None:
        if item.type == _FREE and not item.is_closed:
            item.is_closed = True
            if _CALL in item.pieces:
                opened = ""
            else:
                opened = _FREE_OPENS
            deltas.append(
                ArgumentsDelta(item.call, self._name(item), opened + _FREE_CLOSES)
            )

    def _say_rest(
        self, item: OutputItem, fields: Mapping[str, Json], deltas: list[Delta]
    ) -> None:
        for position, text in _texts(fields, item.type):
            self.whole(item, position, text, deltas)

    def _find_announced(
        self, fields: Mapping[str, Json], index: int | None
    ) -> OutputItem | None:
        """Return the item that is now sent whole. Only its own id can name it a second time."""
        type = self._type(fields)
        item = self._by_id.get(json_bodies.text_or_empty(fields, "id"))
        if item is not None and item.type == type:
            return item
        others = (
            self._by_index.get(-1 if index is None else index),
            self._by_call_id.get(json_bodies.text_or_empty(fields, "call_id")),
        )
        return next(
            (
                each
                for each in others
                if each and each.type == type and not each.is_whole
            ),
            None,
        )

    def _match_items(self, listed: list[Mapping[str, Json]]) -> list[OutputItem | None]:
        """Return the item that each entry of the list at the answer's end repeats, or None if it is a new one.

        By its ids; and what is then left in the order of each type, because some servers invent new ids there.
        """
        left = dict.fromkeys(self.items)
        matches: list[OutputItem | None] = []
        for fields in listed:
            item = self._by_id.get(
                json_bodies.text_or_empty(fields, "id")
            ) or self._by_call_id.get(json_bodies.text_or_empty(fields, "call_id"))
            if item not in left or item.type != self._type(fields):
                matches.append(None)
                continue
            matches.append(item)
            del left[item]
        rest: dict[str, deque[OutputItem]] = {}
        for item in left:
            rest.setdefault(item.type, deque()).append(item)
        for number, fields in enumerate(listed):
            if matches[number] is None and (others := rest.get(self._type(fields))):
                matches[number] = others.popleft()
        return matches


def _texts(fields: Mapping[str, Json], type: str) -> Iterator[tuple[TextPosition, str]]:
    """Return all texts of an item, with their positions."""
    if type == CLIENT_APPROVAL:
        yield _CALL, json.dumps(_question(fields), ensure_ascii=False)
    elif field := CALLS.get(type):
        text = json_bodies.json_text(fields.get(field), "what a tool is called with")
        yield _CALL, text
    if type not in ("message", "reasoning"):
        return
    texts: dict[TextPosition, list[str]] = {}
    for field in ("summary", "content"):
        for number, part in enumerate(_parts(fields, field, type)):
            kind, key = _KINDS.get((type, field, str(part.get("type"))), ("", ""))
            if not kind:
                continue
            position = TextPosition(kind, number if kind == "summary" else 0)
            text = json_bodies.string(part.get(key) or "", f"a part of `{field}`")
            texts.setdefault(position, []).append(text)
    for position, pieces in texts.items():
        yield position, "".join(pieces)


def _parts(
    fields: Mapping[str, Json], field: str, type: str
) -> list[Mapping[str, Json]]:
    """Return the parts in a field of an item; some servers send one text in place of them."""
    parts = fields.get(field) or []
    if isinstance(parts, str):
        part_type = "output_text" if type == "message" else "reasoning_text"
        return [{"type": part_type, "text": parts}]
    items = json_bodies.items(parts, f"`{field}` of the answer")
    return [json_bodies.mapping(part, f"a part of `{field}`") for part in items]


def _within_json(text: str) -> str:
    """Return the text as it is between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _type(fields: Mapping[str, Json]) -> str:
    return json_bodies.string(fields.get("type"), "the type of an item")


def is_client_search(item: Mapping[str, Json]) -> bool:
    """Whether an item is a search for tools that is ours to answer."""
    return item.get("type") == "tool_search_call" and item.get("execution") == "client"


def is_approval_request(item: Mapping[str, Json]) -> bool:
    """Whether an item is a question about a call on an MCP server."""
    return item.get("type") == "mcp_approval_request"


def encode_approval(
    item: Mapping[str, Json], result: ToolResult, text: str
) -> dict[str, Json]:
    """Return the answer to a question about a call on an MCP server: yes to that very call, else no.

    Args:
        text: What the model would read of the result.
    """
    answer: dict[str, Json] = {
        "type": "mcp_approval_response",
        "approval_request_id": item["id"],
        "approve": False,
    }
    if result.failure is not None:
        return {**answer, "reason": result.failure.message}
    question = _question(item)
    digest = digest_question(
        question["server"], question["name"], question["arguments"]
    )
    if digest in text:
        return {**answer, "approve": True}
    return {**answer, "reason": "Another call was allowed than this one."}


def _question(item: Mapping[str, Json]) -> dict[str, str]:
    """Return what an item asks, as arguments of the tool that answers it."""
    return {
        "server": json_bodies.text_or_empty(item, "server_label"),
        "name": json_bodies.text_or_empty(item, "name"),
        "arguments": json_bodies.text_or_empty(item, "arguments"),
    }


def _number(index: Json) -> int | None:
    if isinstance(index, int):
        return index
    return None


def parse_answer(
    answer: Mapping[str, Json],
    own_name: Callable[[str], str],
    own_tools: OwnTools = _NO_TOOLS,
) -> Turn:
    """Return the turn of a whole answer; for the arguments see `OutputAssembler`."""
    items = OutputAssembler(own_name, own_tools)
    items.close(answer.get("output"), [])
    return items.turn(
        parse_finish(answer), parse_usage(answer.get("usage")), id=answer.get("id")
    )


def raise_if_failed(answer: Mapping[str, Json]) -> None:
    """Raise the error that an answer is, if it is one."""
    if answer.get("error") or answer.get("status") == "failed":
        raise provider_errors.classify(
            None, {}, {"error": answer.get("error") or "the provider does not say why"}
        )
    if "output" not in answer and provider_errors.error_in(answer):
        raise provider_errors.classify(None, {}, answer)


_FINISHES: Mapping[str, Finish] = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "refused",
}
"""By the reason why an answer is incomplete, or else by its status."""


def parse_finish(answer: Mapping[str, Json]) -> Finish:
    """Return how an answer ended; `error` where it does not say."""
    details = answer.get("incomplete_details")
    if isinstance(details, json_bodies.OBJECT):
        reason = details.get("reason")
    else:
        reason = None
    if answer.get("status") == "incomplete":
        word = reason
    else:
        word = answer.get("status")
    if isinstance(word, str):
        return _FINISHES.get(word, "error")
    return "error"


def parse_usage(usage: Json) -> Usage:
    """Return the usage of an answer."""
    if not isinstance(usage, json_bodies.OBJECT):
        return Usage()
    return Usage(
        json_bodies.count(usage, "input_tokens"),
        json_bodies.count(usage, "output_tokens"),
        json_bodies.count(usage.get("input_tokens_details"), "cached_tokens"),
        json_bodies.count(usage.get("output_tokens_details"), "reasoning_tokens"),
        json_bodies.count(usage.get("input_tokens_details"), "cache_write_tokens"),
    )
