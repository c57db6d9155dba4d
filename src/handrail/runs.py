"""One run, to be looked at: its answer, its status, its messages, in one line, for people, for engineers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

from msgspec import Struct
from typing_extensions import TypeVar

from handrail.calls import TRUSTED, Label, ToolResult
from handrail.core.budgets import Budget, Spent
from handrail.core.conversation import Status
from handrail.core.results import plain
from handrail.errors import Json
from handrail.invisible import json_text
from handrail.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)

T_co = TypeVar("T_co", covariant=True, default=Any)


class Run(Struct, Generic[T_co], frozen=True):
    """How a run ended.

    Attributes:
        text: The answer; with another status than `done`, the last text of the model.
        output: The answer's value, of the type that was passed as `output=`. None without `output=`, and, whatever its
            type says, with another status than `done`: look at `ok` first.
        reason: Why it ended otherwise than by an answer, as a sentence for people.
        seconds: From start to end, without what people took to answer, as the budget counts.
        round: Which question of its conversation it answers; 1 for a run that goes on from no other.
        earlier: How many of the messages stood before this question.
        label: Of all that it has read: untrusted, with the first call that brought words from outside, or private.
    """

    id: str
    status: Status
    text: str
    reason: str
    messages: Sequence[Message]
    spent: Spent
    budget: Budget
    seconds: float
    output: T_co = None  # type: ignore[assignment]  # None is what a run without an answer has
    round: int = 1
    earlier: int = 0
    label: Label = TRUSTED

    @property
    def new_messages(self) -> Sequence[Message]:
        """The question, and what followed it: `messages` without those of earlier rounds."""
        return self.messages[self.earlier :]

    @property
    def ok(self) -> bool:
        """Whether it ended with an answer."""
        return self.status == "done"

    def __repr__(self) -> str:
        status = describe_ending(self.status, self.reason)
        time = f"{self.seconds:.1f} s"
        if self.budget.time_s is not None:
            time = f"{time} of {self.budget.time_s:g} s"
        return f"<Run {self.id}: {status}, {_count(self.spent.calls, 'call')}, {time}>"

    def transcript(self, *, debug: bool = False) -> str:
        """Return the run as text: question and answer for a user; with `debug` every message, call and result."""
        lines_of = _debug if debug else _human
        return "\n".join(
            _visible(line) for message in self.messages for line in lines_of(message)
        )

    def as_json(self) -> dict[str, Json]:
        """Return the run as one JSON document, as `--json` prints it."""
        return {
            "v": 1,
            "run_id": self.id,
            "status": self.status,
            "reason": self.reason,
            "text": self.text,
            "turns": self.spent.turns,
            "calls": self.spent.calls,
            "input_tokens": self.spent.usage.input_tokens,
            "output_tokens": self.spent.usage.output_tokens,
            "cached_tokens": self.spent.usage.cached_tokens,
            "cache_written_tokens": self.spent.usage.cache_written_tokens,
            "seconds": round(self.seconds, 3),
            **({} if self.output is None else {"output": plain(self.output)}),
            "results": [
                _result(message)
                for message in self.new_messages
                if isinstance(message, ToolMessage)
            ],
        }


def _visible(text: str) -> str:
    """Escape what a terminal would obey, and set lines that follow apart: nobody forges a line of a transcript."""
    shown = "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1]
        for char in text
    )
    return shown.replace("\n", "\n    ")


def describe_ending(status: str, reason: str, form: str = "{status} ({reason})") -> str:
    """Return how a run stands, for people; a reason that begins with the status says all.

    >>> describe_ending("failed", "the model did not answer")
    'failed (the model did not answer)'
    >>> describe_ending("waiting", "waiting for approval of pay")
    'waiting for approval of pay'
    """
    if not reason:
        return status
    if reason.startswith(f"{status} "):
        return reason
    return form.format(status=status, reason=reason)


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def _human(message: Message) -> list[str]:
    match message:
        case UserMessage(text=text):
            return [f"you: {text}"]
        case AssistantMessage(turn=turn) if turn.text and not turn.calls:
            return [f"assistant: {turn.text}"]
        case _:
            return []


def _debug(message: Message) -> list[str]:
    match message:
        case SystemMessage(text=text):
            return [f"[system] {text}"]
        case UserMessage(text=text):
            return [f"[user] {text}"]
        case AssistantMessage(turn=turn):
            return _turn_lines(turn)
        case ToolMessage(result=result):
            return [_result_line(result)]


def _turn_lines(turn: Turn) -> list[str]:
    lines = []
    if turn.reasoning:
        lines.append(f"[reasoning] {turn.reasoning}")
    if turn.text:
        lines.append(f"[assistant] {turn.text}")
    lines += [f"[call {call.id}] {call.name}({call.arguments})" for call in turn.calls]
    return [*lines, f"[finish] {turn.finish}"]


def _result_line(result: ToolResult) -> str:
    outcome = f"failed {result.failure.code}" if result.failure else "ok"
    if result.attempts != 1:
        outcome += f", {_count(result.attempts, 'attempt')}"
    if result.repairs:
        outcome += f", repaired {'+'.join(result.repairs)}"
    return f"[result {result.call_id}] {outcome}: {result.text}"


def _result(message: ToolMessage) -> dict[str, Json]:
    result = message.result
    document: dict[str, Json] = {
        "call_id": result.call_id,
        "tool": result.name,
        "ok": result.ok,
        "attempts": result.attempts,
    }
    if result.repairs:
        document["repairs"] = list(result.repairs)
    if result.failure is not None:
        return {**document, **result.failure.as_json()}
    return {**document, "text": result.text}


def as_line(document: Json) -> str:
    """Return one line of JSON, readable in any language."""
    return json_text(document)
