"""How open models write calls: what every shape of a call has in common.

A shape reads one section of an answer, from the mark that opens it to the mark that closes it. It tells a `Taker` what
it found. The source is marked when a section begins; what was read since the mark when it ends stays text, so a shape
moves the mark on whenever something is spoken for.

Rule 1: a call is told once its name and the beginning of its arguments are certain. Before that nothing is given.
Rule 2: a call that was told and whose text breaks off is told as not whole, and never runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from handrail.calls import ToolCall
from handrail.dialects.prompts.buffer import Step, TextBuffer
from handrail.errors import Json

MOST_NAME_CHARS = 256
"""No provider takes a longer name of a tool; longer text between two marks is none."""


Schemas: TypeAlias = Mapping[str, Mapping[str, Json]]
"""The schemas of the tools' parameters, by the tools' names."""


class AnswerSink(Protocol):
    """Takes what is found in an answer, in order."""

    def begin(self, name: str, id: str = "") -> None:
        """A call begins. What was read of it so far is spoken for."""
        ...

    def identify(self, id: str) -> None:
        """The call that was begun last has this id."""
        ...

    def more(self, text: str) -> None:
        """The arguments go on with this text."""
        ...

    def end(self, *, whole: bool = True) -> None:
        """The call ends."""
        ...

    def text(self, text: str) -> None:
        """This was read, and is no call."""
        ...

    def begin_reasoning(self, mark: str) -> None:
        """Reasoning begins with this mark."""
        ...

    def add_reasoning(self, text: str) -> None:
        """The reasoning goes on with this text."""
        ...

    def end_reasoning(self, mark: str) -> None:
        """The reasoning ends with this mark."""
        ...

    def parameters(self, name: str) -> Mapping[str, Json] | None:
        """Return the schema of the tool's parameters, or None if the tool is not known."""
        ...


class CallFormat(Protocol):
    """How one family of models writes calls.

    Attributes:
        starts: The marks that open a section of calls.
        bare: The characters with which a call without any mark may begin, where the text begins.
        loose: How a call without any mark may begin anywhere in the text.
        leads: The characters with which a section may go on after its mark; any if empty.
        tokens: All marks of this shape, for those who must keep them out of other text.
    """

    @property
    def starts(self) -> Sequence[str]: ...

    @property
    def bare(self) -> str: ...

    @property
    def loose(self) -> Sequence[str]: ...

    @property
    def leads(self) -> str: ...

    @property
    def tokens(self) -> Sequence[str]: ...

    def read(self, source: TextBuffer, taker: AnswerSink, start: str) -> Step[None]:
        """Read a section. `start` is the mark that opened it, already read; empty for a bare call."""
        ...

    def encode(self, calls: Sequence[ToolCall], schemas: Schemas) -> str:
        """Return the section that a model writes for these calls; the arguments are JSON objects."""
        ...


def is_name(text: str) -> bool:
    """Whether text between two marks can be a tool's name."""
    return 0 < len(text) <= MOST_NAME_CHARS and not any(each in _NO_NAME for each in text)


_NO_NAME = frozenset(" \t\r\n\"'<>{}()")
