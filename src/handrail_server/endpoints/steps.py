"""The steps of a run, which every protocol spells in its own way: texts, calls, results, the end.

The steps of a run under way are made from its events; those of an ended run from its messages, as when a request is
sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from handrail.audit.redacted_events import RedactedEvents
from handrail.calls import ToolCall, ToolResult
from handrail.core.history import as_history
from handrail.core.redaction import KnownSecrets
from handrail.errors import PENDING, Code
from handrail.events import (
    AttemptFailed,
    AttemptStarted,
    CallFinished,
    Event,
    ModelAnswered,
    ModelAsked,
    RunStarted,
    Streamed,
)
from handrail.messages import (
    AssistantMessage,
    Message,
    TextDelta,
    ToolMessage,
    Turn,
    Usage,
)
from handrail.ports import Observer
from handrail.records import ApprovalRequest
from handrail.runs import Run


class Started(Struct, frozen=True):
    """The run is under way."""


class TextPart(Struct, frozen=True):
    """The next piece of the model's text."""

    text: str


class WordsEnded(Struct, frozen=True):
    """The model's answer of one turn is complete; its text may be empty. The calls that follow are of this turn."""

    text: str


class CallStarted(Struct, frozen=True):
    """A tool of ours is started.

    Attributes:
        id: Names the call; the model's own ids may repeat. That of a call which had to wait is its ticket.
    """

    id: str
    call: ToolCall


class AttemptMissed(Struct, frozen=True):
    """An attempt of a call ended without a result; it is tried again where `retry_in_s` is not None."""

    id: str
    call: ToolCall
    attempt: int
    retry_in_s: float | None


class CallEnded(Struct, frozen=True):
    """A call of one of our tools has its result."""

    id: str
    call: ToolCall
    result: ToolResult


class CallWaits(Struct, frozen=True):
    """A call waits: for a person's word, or for a result from outside.

    Attributes:
        ticket: What the answer is sent under.
        is_callers: Whether it is a call of the caller's tool, whose result the caller sends.
        is_old: It waited before this request, too.
    """

    ticket: str
    call: ToolCall
    question: ApprovalRequest
    is_callers: bool
    is_old: bool = False


class Ended(Struct, frozen=True):
    """The run has ended; `usage` is that of the turns in this answer."""

    run: Run
    usage: Usage


class BrokenOff(Struct, frozen=True):
    """The run could not be driven to an end."""

    error: Exception


Step: TypeAlias = (
    Started
    | TextPart
    | WordsEnded
    | CallStarted
    | AttemptMissed
    | CallEnded
    | CallWaits
    | Ended
    | BrokenOff
)


def make_ticket(run_id: str, question_id: str) -> str:
    """Return what a question is called outside: enough to find it in its run."""
    return f"{run_id}-{question_id}"


def read_ticket(ticket: str) -> tuple[str, str] | None:
    """Return the run and the question of a ticket; None for any other text."""
    run_id, dash, question_id = ticket.partition("-")
    is_one = run_id.startswith("r_") and question_id.startswith("a_") and dash
    return (run_id, question_id) if is_one else None


class Narrator:
    """Makes steps of a run's events, and of its messages.

    Args:
        tell: Gets each step.
        callers: The names of the caller's tools.
        tickets: Of the calls that had waited when the request came, by tool and the model's id.
        is_form: The answer has a given form, so that only its end is the answer.
        secrets: Values to hide from messages and from the reason of the end; events come without them.
    """

    def __init__(
        self,
        run_id: str,
        tell: Callable[[Step], None],
        *,
        callers: Collection[str] = (),
        tickets: Mapping[tuple[str, str], str] | None = None,
        is_form: bool = False,
        secrets: KnownSecrets | None = None,
    ) -> None:
        self._run_id = run_id
        self._tell = tell
        self._callers = callers
        self._tickets = dict(tickets or {})
        self._is_form = is_form
        self._secrets = secrets
        self._prefix = f"{run_id}-{token_hex(3)}_"
        self._is_streamed = False
        self._ids: dict[int, tuple[ToolCall, str]] = {}
        """By the identity of the call, which all its events share; the call is held, so that no other gets it."""
        self._last_text = ""
        self.usage = Usage()
        self.has_output = False
        """Whether a step of the run itself was sent: an answer of the model, or the end of a call."""

    # ------------------------------------------------------------------ of events

    def __call__(self, event: Event) -> None:
        """Turn an event of the run into steps."""
        match event:
            case RunStarted():
                self._tell(Started())
            case ModelAsked():
                self._is_streamed = False
            case Streamed(delta=TextDelta(text=text)) if text and not self._is_form:
                self._is_streamed = True
                self._tell(TextPart(text))
            case ModelAnswered(answer=turn):
                self._end_turn(turn)
            case AttemptStarted(call=call, attempt=1):
                if call.name not in self._callers:
                    self._tell(
                        CallStarted(self._id_of(call), _with_valid_arguments(call))
                    )
            case AttemptFailed(call=call, attempt=attempt, retry_in_s=retry_in_s):
                missed = AttemptMissed(self._id_of(call), call, attempt, retry_in_s)
                self._tell(missed)
            case CallFinished(call=call, result=result, recalled=False):
                self._end_call(call, result)

    def _end_turn(self, turn: Turn) -> None:
        self.has_output = True
        self.usage += turn.usage
        if self._is_form:
            self._tell(WordsEnded(""))
            return
        if turn.text and not self._is_streamed:
            self._tell(TextPart(turn.text))
        self._tell(WordsEnded(turn.text))
        self._last_text = turn.text

    def _end_call(self, call: ToolCall, result: ToolResult) -> None:
        self.has_output = True
        question = result.question
        code = None if result.failure is None else result.failure.code
        is_callers = call.name in self._callers
        if code in PENDING and question is not None:
            self._tell(
                CallWaits(
                    make_ticket(self._run_id, question.id),
                    call,
                    question,
                    is_callers=is_callers and code == Code.RESULT_PENDING,
                    is_old=(call.name, call.id) in self._tickets,
                )
            )
        elif not is_callers:
            self._tell(
                CallEnded(self._id_of(call), _with_valid_arguments(call), result)
            )

    def _id_of(self, call: ToolCall) -> str:
        entry = self._ids.get(id(call))
        if entry is None:
            name = self._tickets.pop((call.name, call.id), "")
            name = name or f"{self._prefix}{len(self._ids)}"
            entry = self._ids[id(call)] = (call, name)
        return entry[1]

    # ------------------------------------------------------------------ of messages

    def retell(self, messages: Sequence[Message]) -> None:
        """Send the steps of an ended run, made from its messages; secrets are hidden as in its events."""
        observe: Observer = self
        if self._secrets is not None and self._secrets.forms:
            observe = RedactedEvents(self._secrets, self)
        calls: dict[str, ToolCall] = {}
        for message in messages:
            if isinstance(message, AssistantMessage):
                calls = {call.id: call for call in message.turn.calls}
                observe(ModelAsked(0, 0, 0))
                observe(ModelAnswered(0, message.turn))
            elif isinstance(message, ToolMessage):
                result = message.result
                call = calls.get(result.call_id)
                call = call or ToolCall(result.call_id, result.name)
                observe(CallFinished(call, result, 0.0))

    def end(self, run: Run) -> None:
        """Send the last step; an answer that was in no turn is sent before it."""
        text = self._hide(run.text)
        if run.ok and text and (self._is_form or text != self._last_text):
            self._tell(TextPart(text))
            self._tell(WordsEnded(text))
        hidden = replace(run, text=text, reason=self._hide(run.reason))
        self._tell(Ended(hidden, self.usage))

    def _hide(self, text: str) -> str:
        return text if self._secrets is None else self._secrets.text(text)


def _with_valid_arguments(call: ToolCall) -> ToolCall:
    """Return a call with arguments that are JSON, whatever the model wrote."""
    return replace(call, arguments=as_history(call.arguments))


def after_opening(
    messages: Sequence[Message], opening: Sequence[Message]
) -> Sequence[Message]:
    """Return what followed the messages that a run, or a question, began with."""
    left = sum(isinstance(each, AssistantMessage) for each in opening)
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            if not left:
                return messages[position:]
            left -= 1
    return ()


def after_answers(
    messages: Sequence[Message], answered: Collection[tuple[str, str]]
) -> Sequence[Message] | None:
    """Return the results of the calls that were answered, and what followed their turn.

    Args:
        answered: By tool and the model's id of the call.

    Returns:
        None where these messages have no such call.
    """
    for position in reversed(range(len(messages))):
        message = messages[position]
        if isinstance(message, AssistantMessage) and any(
            (call.name, call.id) in answered for call in message.turn.calls
        ):
            # its text was sent before
            asked = AssistantMessage(Turn(calls=message.turn.calls))
            return [asked, *_only_answered(messages[position + 1 :], answered)]
    return None


def _only_answered(
    messages: Sequence[Message], answered: Collection[tuple[str, str]]
) -> Iterator[Message]:
    is_later = False
    for message in messages:
        is_later = is_later or isinstance(message, AssistantMessage)
        if (
            is_later
            or not isinstance(message, ToolMessage)
            or (message.result.name, message.result.call_id) in answered
        ):
            yield message
