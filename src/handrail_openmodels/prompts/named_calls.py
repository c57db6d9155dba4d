"""Calls as a name and a JSON object with marks between them: `[TOOL_CALLS]name[ARGS]{...}`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from handrail.calls import ToolCall
from handrail_openmodels.prompts.buffer import Step, TextBuffer, marks
from handrail_openmodels.prompts.call_format import (
    MOST_NAME_CHARS,
    AnswerSink,
    Schemas,
    is_name,
)

_COUNTED = re.compile(r"(?:functions\.)?(?P<name>.+):[0-9]+", re.DOTALL)


class NamedCalls(Struct, frozen=True):
    """Calls as a name and a JSON object with marks between them.

    Attributes:
        call: Opens a call.
        name_ends: One of them separates the name from the arguments; the first is the one that is written. A brace
            is read as the beginning of the arguments.
        section: Opens and closes the calls of an answer, where the family has such marks. Both may be missing.
        lead: Stands before the name, as a part of the call's mark.
        id_mark: Stands between name and id, where the family writes ids.
        closes: What may follow the arguments, in this order.
        counted: The name is written as an id, `functions.name:0`.
        between: What is written between calls.
    """

    call: str
    name_ends: tuple[str, ...]
    section: tuple[str, str] = ("", "")
    lead: str = ""
    id_mark: str = ""
    closes: tuple[str, ...] = ()
    counted: bool = False
    between: str = ""
    bare: str = ""
    loose: tuple[str, ...] = ()
    leads: str = ""

    @property
    def starts(self) -> tuple[str, ...]:
        """The marks that open a section of calls."""
        return tuple(mark for mark in (self.section[0], self.call) if mark)

    @property
    def tokens(self) -> tuple[str, ...]:
        """All marks of this format."""
        return (
            *self.section,
            self.call,
            self.lead,
            self.id_mark,
            *self.name_ends,
            *self.closes,
        )

    def read(self, source: TextBuffer, sink: AnswerSink, start: str) -> Step[None]:
        """Read calls until something else follows; see `CallFormat.read`."""
        if start == self.section[0] and start != self.call:
            yield from source.space()
            if not (yield from source.read_literal(self.call)):
                return
        while (yield from self._one(source, sink)):
            source.mark()
            yield from source.space()
            for mark in self.closes:
                if (yield from source.read_literal(mark.strip())):
                    source.mark()
                    yield from source.space()
            if self.section[1] and (yield from source.read_literal(self.section[1])):
                source.mark()
                return
            if not (yield from source.read_literal(self.call)):
                return

    def _one(self, source: TextBuffer, sink: AnswerSink) -> Step[bool]:
        """Read one call after its mark. Return whether it was reported."""
        if self.lead and not (yield from source.read_literal(self.lead)):
            return False
        yield from source.space()
        ends = marks("{", self.id_mark, *self.name_ends, *self.starts)
        name, mark = yield from source.upto(ends, most=MOST_NAME_CHARS)
        id = ""
        if mark and mark == self.id_mark:
            id, mark = yield from source.upto(ends, most=MOST_NAME_CHARS)
        if mark not in self.name_ends:
            source.back(mark)
            mark = mark if mark == "{" else ""
        name = name.strip()
        if self.counted:
            id = name
            name = _without_count(name)
        if not mark or not is_name(name):
            return False
        yield from source.space()
        if (yield from source.peek()) != "{":
            return False
        source.unmark()
        sink.begin(name, id.strip())
        sink.end(whole=(yield from source.json_value(sink.more)))
        return True

    def encode(self, calls: Sequence[ToolCall], schemas: Schemas) -> str:
        """Return the section for these calls; see `CallFormat.encode`."""
        end = "".join(self.closes)
        each = [
            f"{self.call}{self.lead}{self._name(*of)}{self.name_ends[0]}{of[1].arguments}{end}"
            for of in enumerate(calls)
        ]
        return self.between.join(each).join(self.section)

    def _name(self, position: int, call: ToolCall) -> str:
        if self.counted:
            if _without_count(call.id) == call.name:
                return call.id
            return f"functions.{call.name}:{position}"
        if self.id_mark and call.id:
            return f"{call.name}{self.id_mark}{call.id}"
        return call.name


def _without_count(id: str) -> str:
    match = _COUNTED.fullmatch(id)
    return match["name"] if match else id
