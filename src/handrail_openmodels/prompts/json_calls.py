"""Calls as JSON objects: the commonest format, and the only one that is reported while it arrives.

The arguments are given verbatim. What is wrong with the JSON is for `jsontext` to say, to the model.

Rule 1: no member is dropped. An unknown member may be an argument in the wrong place: it is appended to the arguments.
        They are then no JSON object, so the call is refused with a message to the model.
Rule 2: a thought within a call (`"thought": "..."`) becomes reasoning, unless the tool has a parameter of that name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from handrail.calls import ToolCall
from handrail.errors import Json
from handrail_openmodels.prompts.buffer import Step, TextBuffer, marks, run_to_end
from handrail_openmodels.prompts.call_format import AnswerSink, Schemas

_THOUGHTS = frozenset({"thought", "thoughts", "thinking", "reasoning"})
"""The names of members in which models say why they make a call."""

_TYPES = frozenset({"function", "tool_call", "function_call", "tool_use"})
"""The values of the member `type` that the chat APIs write; any other value may be an argument."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonCalls(Struct, frozen=True):
    """Calls as JSON objects: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, one by one or in a list.

    Attributes:
        ends: The marks that may close a section. A missing one loses nothing once the object is closed.
        name, arguments, id: The keys; the first of each is the one that is written.
        bare, loose, leads: See `CallFormat`.
        whole: Give a call only after the whole value is there and is strict JSON, for text without any mark.
        exact: The object must have arguments and no foreign keys, for text where JSON may be an answer.
        by_name: The object's only key is the name, and its value the arguments.
        layout: What is written around the JSON: after the start and before the end.
        listed: What is written around and between the objects of a list, for families that write one.
        gathered: Whether several calls without a list are written in one section.
        between: What is written between calls without a list.
        ids: Where in the object the id is written, `first` or `last`, if at all.
    """

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    name: tuple[str, ...] = ("name", "tool_name", "function")
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ("id", "tool_call_id")
    bare: str = ""
    loose: tuple[str, ...] = ()
    leads: str = "{["
    whole: bool = False
    exact: bool = False
    by_name: bool = False
    layout: tuple[str, str] = ("", "")
    listed: tuple[str, str, str] | None = None
    gathered: bool = False
    between: str = "\n"
    ids: str = ""

    @property
    def tokens(self) -> tuple[str, ...]:
        """All marks of this format."""
        return (*self.starts, *self.ends)

    def read(self, source: TextBuffer, sink: AnswerSink, start: str) -> Step[None]:
        """Read objects until something else follows; see `CallFormat.read`."""
        yield from source.space()
        if self.whole:
            reading = _once_whole(self, source, sink)
        else:
            reading = _objects(self, source, sink)
        if (yield from reading) and (yield from _read_end(source, self.ends)):
            source.mark()

    def encode(self, calls: Sequence[ToolCall], schemas: Schemas) -> str:
        """Return the section for these calls; see `CallFormat.encode`."""
        objects = [self._object(call, position) for position, call in enumerate(calls)]
        before, after = self.layout
        start = (self.starts or ("",))[0] + before
        end = after + (self.ends or ("",))[0]
        if self.listed:
            opens, comma, closes = self.listed
            return f"{start}{opens}{comma.join(objects)}{closes}{end}"
        if self.gathered:
            return f"{start}{self.between.join(objects)}{end}"
        return self.between.join(f"{start}{each}{end}" for each in objects)

    def _object(self, call: ToolCall, position: int) -> str:
        name = json.dumps(call.name, ensure_ascii=False)
        if self.by_name:
            return f"{{{name}: {call.arguments}}}"
        id = f'"{self.id[0]}": {json.dumps(call.id or str(position), ensure_ascii=False)}'
        members = f'"{self.name[0]}": {name}, "{self.arguments[0]}": {call.arguments}'
        return {"first": f"{{{id}, {members}}}", "last": f"{{{members}, {id}}}"}.get(
            self.ids, f"{{{members}}}"
        )


def _read_end(source: TextBuffer, ends: tuple[str, ...]) -> Step[bool]:
    """Read the mark that closes a section, and brackets too many before it, a slip that changes nothing."""
    while ends:
        yield from source.space()
        if (yield from source.read_mark(marks(*ends))):
            return True
        if not (yield from source.read_mark(marks("}", "]"))):
            return False
    return False


def _once_whole(
    call_format: JsonCalls, source: TextBuffer, sink: AnswerSink
) -> Step[bool]:
    """Read one value, and only then its calls. Whatever is not strict JSON, or holds no call, stays text."""
    opening = yield from source.read_mark(marks("{", "["))
    space = yield from source.space()
    if (yield from source.peek()) != ('"' if opening == "{" else "{"):
        return False
    pieces = [opening, space]
    if not (yield from source.json_rest(pieces.append)):
        return False
    text = "".join(pieces)
    # quick, and most JSON in a text ends here
    if not any(f'"{key}"' in text for key in call_format.name):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not any(
        _is_call(call_format, each)
        for each in (value if isinstance(value, list) else [value])
    ):
        return False
    inner = TextBuffer(text, ended=True)
    inner.mark()
    run_to_end(_objects(call_format, inner, sink))
    source.mark()
    # the rest, where one of the objects is no call
    sink.text(inner.unmark() + inner.text[inner.at :])
    return True


def _is_call(call_format: JsonCalls, value: Json) -> bool:
    return isinstance(value, dict) and any(
        isinstance(value.get(key), str) and value[key] for key in call_format.name
    )


def _objects(
    call_format: JsonCalls, source: TextBuffer, sink: AnswerSink
) -> Step[bool]:
    """Read a list of calls, or calls in a row. Return whether there was one."""
    in_list = yield from source.read_literal("[")
    has_call = False
    while True:
        yield from source.space()
        if not (yield from source.read_literal("{")):
            if has_call and in_list and (yield from source.read_literal("]")):
                source.mark()
            return has_call
        if (yield from _Object(call_format, source, sink).read()):
            has_call = True
        elif source.is_exhausted() or not (in_list or has_call):
            return has_call
        else:
            sink.text(source.unmark())
            source.mark()
            if not in_list:
                return has_call
        yield from source.space()
        yield from source.read_mark(_SEPARATORS)


_SEPARATORS = marks(",", ";")


def _is_text(value: Json | UnsetType) -> bool:
    """Whether a value is a string that UTF-8 can encode: escapes in JSON can also spell a lone surrogate."""
    return isinstance(value, str) and not _LONE_SURROGATE.search(value)


class _Member(Struct, frozen=True):
    """A member beside the arguments of a call: its key, its value (unset if that is no JSON), and both as written."""

    key: str
    value: Json | UnsetType
    text: str


class _Object:
    """One call as a JSON object, read member by member; the brace that opens it is read already."""

    def __init__(
        self, call_format: JsonCalls, source: TextBuffer, sink: AnswerSink
    ) -> None:
        self._format = call_format
        self._source = source
        self._sink = sink
        self._name = ""
        self._id = ""
        self._has_started = False
        self._held: list[str] | None = None  # arguments that came before the name
        self._beside: list[_Member] = []  # members beside the arguments
        self._unread: list[str] = []  # what has come of a member that is not whole

    def read(self) -> Step[bool]:
        """Read the object, and report its call. Return whether it was one."""
        source = self._source
        sink = self._sink
        if (yield from self._members()):
            if not self._is_call():
                return False
            if not self._has_started:
                self._begin()
                sink.more("".join(self._held or ("{}",)))
            self._end()
        elif self._has_started:
            # The object is not JSON. Its rest is passed on as arguments: nothing is lost, and `jsontext` refuses it.
            passed = source.unmark()
            rest, mark = yield from source.upto(marks(*self._format.ends))
            source.back(mark)
            sink.more(passed + rest)
            self._end(whole=bool(mark))
        elif self._name and not self._format.exact and source.is_exhausted():
            self._begin()
            sink.more("".join([*(self._held or ()), *self._unread]))
            self._end(whole=False)
        else:
            return False
        source.mark()
        return True

    def _is_call(self) -> bool:
        """Whether a whole object is a call: it has a name and, where the form is exact, arguments.

        One without arguments is a call without any, unless it says something else: arguments under a wrong name.
        """
        if not self._has_arguments() and (
            self._format.exact or not all(map(self._is_thought, self._beside))
        ):
            return False
        return bool(self._name)

    def _has_arguments(self) -> bool:
        return self._has_started or self._held is not None

    def _members(self) -> Step[bool]:
        """Read up to the brace that closes the object. Return whether it was there."""
        source = self._source
        while True:
            yield from source.space()
            if (yield from source.read_literal("}")):
                return True
            if (yield from source.read_literal(",")):
                continue
            if (yield from source.peek()) != '"':
                return False
            self._unread = []
            key = yield from self._text()
            yield from source.space()
            if not (yield from source.read_literal(":")):
                return False
            self._unread.append(": ")
            yield from source.space()
            if not (yield from self._member(key)):
                return False

    def _member(self, key: str) -> Step[bool]:
        """Read one value. Return whether the object may go on."""
        call_format = self._format
        first = yield from self._source.peek()
        if call_format.by_name and not self._name:
            self._name = key
            return (yield from self._arguments(first))
        if key in call_format.arguments:
            # a second set would have two readings
            if self._has_arguments():
                return False
            return (yield from self._arguments(first))
        # the form of the chat APIs: name and arguments one level down
        if key == "function" and first == "{":
            self._source.at += 1
            return (yield from self._members())
        if not (self._has_started or self._may_precede_arguments(key)):
            return False
        value = yield from self._value()
        if not self._take_value(key, value):
            return False
        if self._source.is_exhausted():
            return False
        self._unread = []
        return True

    def _may_precede_arguments(self, key: str) -> bool:
        if not self._format.exact:
            return True
        return key in {*self._format.name, *self._format.id, "type"}

    def _take_value(self, key: str, value: Json | UnsetType) -> bool:
        """Take the value of a member. Return False if the object is no call: a second name, which is ambiguous."""
        call_format = self._format
        if value is None and key in {*call_format.name, *call_format.id, "type"}:
            return True
        if key in call_format.name and isinstance(value, str):
            if value in ("", self._name):
                return True
            if self._name:
                return False
            self._name = value
        elif key in call_format.id and self._is_id(value):
            self._take_id(str(value))
        elif key != "type" or not (isinstance(value, str) and value in _TYPES):
            # In an exact format, JSON with other members is an answer and no call.
            if call_format.exact and not self._has_started:
                return False
            self._beside.append(_Member(key, value, "".join(self._unread)))
            self._unread = []
            if self._has_started:
                # This member is taken: if the rest is no JSON, only the rest is read again.
                self._source.mark()
        return True

    def _is_id(self, value: Json | UnsetType) -> bool:
        """Whether a value can be the id of this call, which has none yet or the same."""
        is_id = _is_text(value) or type(value) is int
        return is_id and self._id in ("", str(value))

    def _take_id(self, id: str) -> None:
        if self._has_started and id != self._id:
            self._sink.identify(id)
        self._id = id

    def _arguments(self, first: str) -> Step[bool]:
        if self._format.exact and first != "{":
            return False
        if self._name:
            self._begin()
            closed = yield from self._source.json_value(self._sink.more)
            self._source.mark()
            return closed
        self._held = []
        return (yield from self._source.json_value(self._held.append))

    def _begin(self) -> None:
        self._has_started = True
        self._source.unmark()
        self._sink.begin(self._name, self._id)

    def _end(self, *, whole: bool = True) -> None:
        """End the call, after what stood beside its arguments."""
        thoughts: list[_Member] = []
        for member in self._beside:
            if self._is_thought(member):
                thoughts.append(member)
            else:
                self._sink.more(f", {member.text}")
        self._sink.end(whole=whole)
        for thought in thoughts:
            self._sink.think(str(thought.value))

    def _is_thought(self, member: _Member) -> bool:
        """Whether a member says why the call is made, and is no argument of the tool."""
        if member.key not in _THOUGHTS or not _is_text(member.value):
            return False
        schema = self._sink.parameters(self._name) or {}
        return member.key not in (schema.get("properties") or {})

    def _text(self) -> Step[str]:
        """Read a value; return it if it is a string, else an empty string."""
        value = yield from self._value()
        return value if isinstance(value, str) else ""

    def _value(self) -> Step[Json | UnsetType]:
        """Read a value and return it; `UNSET` if it is no JSON."""
        pieces: list[str] = []
        yield from self._source.json_value(pieces.append)
        self._unread += pieces
        try:
            value: Json = json.loads("".join(pieces))
        except (ValueError, RecursionError):
            return UNSET
        return value
