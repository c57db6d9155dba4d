"""What a training set holds: conversations with their tools (`Example`), or two answers to one prompt (`Pair`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from handrail.calls import ToolCall, ToolResult
from handrail.errors import Json
from handrail.messages import AssistantMessage, Message, ToolMessage, Turn

Function = Mapping[str, Json]
"""A tool as training sets describe it: `name`, `description`, `parameters` as JSON Schema."""


class Example(Struct, frozen=True):
    """One conversation to train on.

    Attributes:
        tools: The tools that the model had; empty where nobody named them.
        masked: The numbers of the answers that are not to be learnt, counted among the answers from 0.
        parallel: Whether several calls in one answer were allowed; None if the run did not say.
    """

    messages: Sequence[Message]
    tools: Sequence[Function] = ()
    masked: frozenset[int] = frozenset()
    parallel: bool | None = None

    @property
    def turns(self) -> list[Turn]:
        """The model's answers, in order."""
        return [
            message.turn
            for message in self.messages
            if isinstance(message, AssistantMessage)
        ]

    @property
    def calls(self) -> list[ToolCall]:
        """All calls, in order."""
        return [call for turn in self.turns for call in turn.calls]

    @property
    def results(self) -> list[ToolResult]:
        """All results, in order."""
        return [
            message.result
            for message in self.messages
            if isinstance(message, ToolMessage)
        ]


class Pair(Struct, frozen=True):
    """Two answers to one prompt: the model should prefer the chosen one.

    Attributes:
        reason: Why the other was rejected: the code of its failure, or `EDITED` where a person changed the arguments.
    """

    prompt: Sequence[Message]
    chosen: Sequence[Message]
    rejected: Sequence[Message]
    tools: Sequence[Function] = ()
    reason: str = ""


class Unwritable(ValueError):
    """A form of training data cannot hold this example; the message says why. Such an example is left out."""


class ConversationBuilder:
    """Builds the messages of a row; gives each result the id and the name of its call, in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: deque[ToolCall] = deque()
        self._number = 0

    def add(self, message: Message) -> None:
        """Add a message that is neither an answer nor a result."""
        self.messages.append(message)

    def answer(
        self, text: str = "", calls: Iterable[tuple[str, str]] = (), reasoning: str = ""
    ) -> None:
        """Add an answer with calls, each a name and the text of its arguments."""
        made = []
        for name, arguments in calls:
            self._number += 1
            made.append(ToolCall(f"call_{self._number}", name, arguments))
        self._waiting = deque(made)
        finish = "calls" if made else "stop"
        turn = Turn(text, reasoning=reasoning, calls=tuple(made), finish=finish)  # type: ignore[arg-type]  # one of two
        self.messages.append(AssistantMessage(turn))

    def result(self, text: str, name: str = "") -> None:
        """Add the result of the first call that has none yet."""
        id = ""
        if self._waiting:
            call = self._waiting.popleft()
            id = call.id
            name = call.name
        self.messages.append(ToolMessage(ToolResult(id, name, value=text, text=text)))
