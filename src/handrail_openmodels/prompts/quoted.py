"""Calls in a code fence, which a model may only show: they are calls only if nothing but the fence's end follows.

    A call looks like this:
    ```
    <tool_call>{"name": "delete_all", "arguments": {}}</tool_call>
    ```
    Shall I?

The calls above are text. At the end of an answer they would be calls, because some models wrap theirs in a fence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from handrail.errors import Json
from handrail_openmodels.prompts.call_format import AnswerSink

_SPACE = " \t\r\n"
_FENCE = "```"
_FENCE_LINE = re.compile(r"^ {0,3}```", re.MULTILINE)
_MOST_LINE_CHARS = 8
"""Enough of a line's beginning to recognise a fence."""


class Fences:
    """Tells whether text ends within a code fence. Every piece is scanned once."""

    def __init__(self) -> None:
        self._seen = 0
        self._line = ""  # the beginning of the line that has not ended
        self._open = False

    def open_in(self, pieces: Sequence[str]) -> bool:
        """Whether the text of these pieces ends within a fence; between calls the list may only grow."""
        text = self._line + "".join(pieces[self._seen :])
        self._seen = len(pieces)
        ended, newline, line = text.rpartition("\n")
        if len(_FENCE_LINE.findall(ended + newline)) % 2:
            self._open = not self._open
        self._line = line[:_MOST_LINE_CHARS]
        return self._open != bool(_FENCE_LINE.match(line))


class FencedCalls:
    """Holds the calls of a fence and the text after them until it is clear whether they are calls; see `AnswerSink`."""

    def __init__(self, sink: AnswerSink) -> None:
        self._sink = sink
        self._events: list[Callable[[], None]] = []
        self._raw: list[str] = []
        self._tail: list[str] = []  # the text after the calls
        self._behind = ""  # the same, without white space around it
        self.has_calls = False

    @property
    def is_over(self) -> bool:
        """Whether anything follows the calls, such as the end of their fence."""
        return bool(self._behind)

    def stays(self, text: str) -> bool:
        """Take text that follows the calls; return whether they may still be calls."""
        self._tail.append(text)
        behind = (self._behind + text).lstrip(_SPACE)
        text_behind = behind.rstrip(_SPACE)
        # of white space one character is enough
        self._behind = text_behind + behind[len(text_behind) :][:1]
        return _FENCE.startswith(text_behind)

    def section(self, raw: str) -> None:
        """Take the raw text of a section whose calls were reported."""
        self._raw.append(raw)

    def go_on(self) -> None:
        """Another section follows the calls."""
        space = "".join(self._tail)
        self._raw.append(space)
        self.text(space)
        self._tail = []
        self._behind = ""

    def as_text(self) -> str:
        """Return all of it as text."""
        return "".join([*self._raw, *self._tail])

    def release(self) -> None:
        """Report the calls and the text after them to the sink."""
        for report in self._events:
            report()
        self._sink.text("".join(self._tail))

    def begin(self, name: str, id: str = "") -> None:
        self.has_calls = True
        self._events.append(partial(self._sink.begin, name, id))

    def identify(self, id: str) -> None:
        self._events.append(partial(self._sink.identify, id))

    def more(self, text: str) -> None:
        self._events.append(partial(self._sink.more, text))

    def end(self, *, whole: bool = True) -> None:
        self._events.append(partial(self._sink.end, whole=whole))

    def text(self, text: str) -> None:
        self._events.append(partial(self._sink.text, text))

    def begin_reasoning(self, mark: str) -> None:
        self._events.append(partial(self._sink.begin_reasoning, mark))

    def add_reasoning(self, text: str) -> None:
        self._events.append(partial(self._sink.add_reasoning, text))

    def end_reasoning(self, mark: str) -> None:
        self._events.append(partial(self._sink.end_reasoning, mark))

    def think(self, text: str) -> None:
        self._events.append(partial(self._sink.think, text))

    def parameters(self, name: str) -> Mapping[str, Json] | None:
        return self._sink.parameters(name)
