"""How open models write calls: what every format of a call has in common.

A format reads one section of an answer, from the mark that opens it to the mark that closes it, and reports what it
finds to an `AnswerSink`. The source is marked when a section begins; what was read since the mark when it ends stays
text, so a format moves the mark on whenever it has reported something.

Rule 1: a call is reported once its name and the beginning of its arguments are certain. Before that nothing is given.
Rule 2: a reported call whose text breaks off is reported as not whole, and never runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from handrail.calls import ToolCall
from handrail.errors import Json
from handrail_openmodels.prompts.buffer import Step, TextBuffer

MOST_NAME_CHARS = 256
"""No provider takes a longer name of a tool, so longer text between two marks is no name."""


Schemas: TypeAlias = Mapping[str, Mapping[str, Json]]
"""The schemas of the tools' parameters, by the tools' names."""


class AnswerSink(Protocol):
    """Receives what is found in an answer, in order."""

    def begin(self, name: str, id: str = "") -> None:
        """Begin a call."""
        ...

    def identify(self, id: str) -> None:
        """Set the id of the call that began last."""
        ...

    def more(self, text: str) -> None:
        """Add text to the arguments."""
        ...

    def end(self, *, whole: bool = True) -> None:
        """End the call."""
        ...

    def text(self, text: str) -> None:
        """Add text that is no call."""
        ...

    def begin_reasoning(self, mark: str) -> None:
        """Begin reasoning; `mark` opens it."""
        ...

    def add_reasoning(self, text: str) -> None:
        """Add text to the reasoning."""
        ...

    def end_reasoning(self, mark: str) -> None:
        """End the reasoning; `mark` closes it."""
        ...

    def think(self, text: str) -> None:
        """Add a whole thought that the model wrote within a call, once that call has ended."""
        ...

    def parameters(self, name: str) -> Mapping[str, Json] | None:
        """Return the schema of the tool's parameters, or None if there is no such tool."""
        ...


class CallFormat(Protocol):
    """How one family of models writes calls.

    Attributes:
        starts: The marks that open a section of calls.
        bare: The characters with which a call without any mark may begin, where the text begins.
        loose: How a call without any mark may begin anywhere in the text.
        leads: The characters with which a section may go on after its mark; any if empty.
        tokens: All marks of this format, for those who must keep them out of other text.
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

    def read(self, source: TextBuffer, sink: AnswerSink, start: str) -> Step[None]:
        """Read a section. `start` is the mark that opened it, already read; empty for a bare call."""
        ...

    def encode(self, calls: Sequence[ToolCall], schemas: Schemas) -> str:
        """Return the section that a model writes for these calls; the arguments are JSON objects."""
        ...


def is_name(text: str) -> bool:
    """Whether text between two marks can be a tool's name."""
    return 0 < len(text) <= MOST_NAME_CHARS and not any(
        each in _NO_NAME for each in text
    )


_NO_NAME = frozenset(" \t\r\n\"'<>{}()")
