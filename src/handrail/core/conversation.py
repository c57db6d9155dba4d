"""The loop between a model and its tools: ask, carry out the calls, feed back, until there is an answer.

Like the life of a call it is a generator that yields what must happen and performs nothing:

    AskModel  -> Turn
    RunCalls  -> Batch, done: one result per call, in order

Rule 1: nothing that a model does ends a run with an exception; every end has a status and a reason.
Rule 2: the history is valid JSON always: malformed arguments never go back, because strict servers refuse every later
        turn that holds them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from handrail.calls import Media, ToolCall, ToolResult
from handrail.core import budgets
from handrail.core.batch import Batch, CallState
from handrail.core.budgets import Budget, Spent
from handrail.core.execution import RunSettings
from handrail.core.flow import FlowState
from handrail.core.history import as_history
from handrail.core.loop_detection import NOTE, STOPPED_AT, TOLD_AT, LoopDetector
from handrail.core.results import failure_text, text_of, with_note
from handrail.core.structured_output import Answer, OutputTracker, to_the_model
from handrail.errors import Code, Failure
from handrail.events import AnswerRefused, AnswerTaken
from handrail.messages import AssistantMessage, Message, ToolMessage, Turn, UserMessage
from handrail.parsing import jsontext
from handrail.tools import keys
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

Status: TypeAlias = Literal[
    "done", "stopped", "budget", "waiting", "refused", "cut", "invalid", "failed", "cancelled", "moved"
]
"""How a run stands.

`done` answered; `stopped` turned in a circle; `budget` spent what it may; `waiting` for a person; `refused` the model
declined; `cut` its answer was cut by length; `invalid` no answer had the form that was asked for; `failed` the model
could not be asked; `cancelled` by a person; `moved` somebody else has taken it over.
"""


class Progress(Struct):
    """How far a run has come: everything that its next turn depends on."""

    messages: list[Message] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    repeats: LoopDetector = field(default_factory=LoopDetector)
    turn: int = 0
    reads_on: bool = False
    """Some result was cut, so the model is shown `read_result`."""
    nonce: str = ""
    """Part of the default keys of writes if a process counts the turns, and not a journal."""


class AskModel(Struct):
    """Ask the model for its next turn, showing it these tools."""

    messages: Sequence[Message]
    tools: Toolset
    number: int
    choice: str = ""
    """Which call it must make, or `none`, as `Options.tool_choice` says it; empty leaves it to the run's options."""


class RunCalls(Struct):
    """Carry out the calls of a turn, with the tools that the model was shown."""

    turn: Turn
    tools: Toolset
    number: int


class Ending(Struct, frozen=True):
    """How a run ended, and why, as a sentence for people; `output` is the value of an answer of a given form."""

    status: Status
    reason: str = ""
    text: str = ""
    output: Any = None


Talk: TypeAlias = Generator[AskModel | RunCalls, Any, Ending]


def conversation(
    progress: Progress,
    tools: Callable[[], Toolset],
    budget: Budget,
    conduct: RunSettings,
    started: float,
    wanted: OutputTracker | None = None,
    course: FlowState | None = None,
) -> Talk:
    """Yield what must happen until the run is over; return how it ended.

    Args:
        tools: Gives the tools of the next turn; asked once a turn, so that a set may change from step to step.
        started: When the run began, on `conduct.now`.
        wanted: The form that the answer must have, if any.
        course: Which calls must be made or must not, if there are rules for it.
    """
    spent = progress.spent
    while True:
        if over := budgets.used_up(budget, spent, conduct.now() - started):
            return Ending("budget", over, last_text(progress.messages))
        progress.turn += 1
        shown, choice = tools(), ""
        if course is not None:
            course.begin(progress.turn)
            choice = course.choice(shown)
        turn: Turn = yield AskModel(progress.messages, shown, progress.turn, choice)
        spent.turns += 1
        spent.usage += turn.usage
        if not turn.calls:
            progress.messages.append(AssistantMessage(turn))
            if course is not None and _answered(turn).status == "done":
                owed, omitted = course.heeded(None, answers=True)
                if omitted:
                    return Ending("stopped", omitted, turn.text)
                if owed:
                    progress.messages.append(UserMessage(owed))
                    continue
            if ending := _answered(turn) if wanted is None else _answered_in_form(turn, wanted, progress, conduct):
                return ending
            continue
        turn = separated(turn, shown)
        called = wanted.without_answers(turn) if wanted else turn
        results: list[ToolResult] = []
        circle = ""
        if called.calls:
            batch: Batch = yield RunCalls(called, shown, progress.turn)
            results, circle = heed_repeats(progress.repeats, batch)
        owed = ""
        taken = _prescribed(batch, wanted) if called.calls and batch.prescribes else None
        ends = taken is not None and taken.status == "done"
        if course is not None:
            owed, omitted = course.heeded(batch if called.calls else None, answers=ends or called is not turn)
            circle, taken = omitted or circle, None if owed and ends else taken
        if wanted and called is not turn:
            answer = Failure(Code.NOT_PERMITTED, owed) if owed else wanted.called(turn)
            results = wanted.results(turn, results, answer)
            if not (owed or taken):
                taken = _taken(answer, turn.text or turn.calls[0].arguments, wanted, progress.turn, conduct)
        if [each for each in results if each.failure or each.repairs or each.handle]:  # rarely: one look for all
            progress.reads_on = progress.reads_on or any(result.handle for result in results)
            turn = understood(turn, results)
            taken = _ends_with(turn, results, budgets.calls_used_up(budget, spent)) or taken
        progress.messages.append(AssistantMessage(turn))
        progress.messages.extend(map(ToolMessage, results))
        if owed and ends:  # a tool that ends the run has answered before its time
            progress.messages.append(UserMessage(owed))
        if ending := (Ending("stopped", circle, turn.text) if circle and taken is None else taken):
            return ending


_PENDING = Code.APPROVAL_PENDING


def _answered(turn: Turn) -> Ending:
    match turn.finish:
        case "length":
            return Ending("cut", "the model's answer was cut by its length limit", turn.text)
        case "refused":
            return Ending("refused", turn.refusal or "the model declined to answer", turn.text)
        case "error":
            return Ending("failed", "the model's answer broke off", turn.text)
    if turn.waits_for:
        return Ending("failed", f"the model's provider waits for {turn.waits_for}", turn.text)
    if turn.refusal:
        return Ending("refused", turn.refusal, turn.text)
    return Ending("done", text=turn.text)


def _answered_in_form(turn: Turn, wanted: OutputTracker, progress: Progress, conduct: RunSettings) -> Ending | None:
    """Return how the run ends with this text; None when it was told what is wrong with it, and may try again."""
    ending = _answered(turn)
    if ending.status != "done":
        return ending
    answer = wanted.said(turn)
    if isinstance(answer, Failure) and not wanted.given_up:
        progress.messages.append(UserMessage(to_the_model(answer)))
    return _taken(answer, turn.text, wanted, progress.turn, conduct)


def _taken(
    answer: Answer | Failure, text: str, wanted: OutputTracker, turn: int, conduct: RunSettings
) -> Ending | None:
    """Return how the run ends with this answer; None when the model may try again."""
    if conduct.tell is not None:
        conduct.tell(
            AnswerTaken(turn, wanted.way, answer.repairs)
            if isinstance(answer, Answer)
            else AnswerRefused(turn, wanted.way, answer)
        )
    if isinstance(answer, Answer):
        return Ending("done", "", answer.text, answer.value)
    if not wanted.given_up:
        return None
    tried = f"{wanted.tried} attempts" if wanted.tried > 1 else "its one attempt"
    return Ending("invalid", f"no answer had the form that was asked for in {tried}: {answer.message}", text)


def _ends_with(turn: Turn, results: Sequence[ToolResult], used_up: str) -> Ending | None:
    if used_up and all(result.failure and result.failure.code == Code.BUDGET_EXHAUSTED for result in results):
        return Ending("budget", used_up, turn.text)  # it was told in every result, and had its chance to answer
    if waiting := [result.name for result in results if result.failure and result.failure.code == _PENDING]:
        return Ending("waiting", f"waiting for approval of {', '.join(waiting)}", turn.text)
    return None


def _prescribed(batch: Batch, wanted: OutputTracker | None) -> Ending | None:
    """Return how the run ends by what its tools declare: a step waits for a person, or a result is the answer."""
    waiting = [each.name for each in batch.followed.values() if each.failure and each.failure.code == _PENDING]
    if waiting:
        return Ending("waiting", f"waiting for approval of {', '.join(waiting)}")
    for lane, result in zip(batch.lanes, batch.finished(), strict=True):
        followed = batch.followed.get(lane.index, result)
        if lane.admitted is None or not lane.admitted.tool.ends_run or not (result.ok and followed.ok):
            continue
        value = result.value
        if wanted is not None:
            answer = wanted.plan.read(text_of(value))
            if isinstance(answer, Failure):
                return Ending("invalid", f"{result.name} ends the run, and {answer.message}", result.text)
            value = answer.value
        return Ending("done", "", result.text, value)
    return None


def last_text(messages: Sequence[Message]) -> str:
    """Return the last thing that the model said."""
    texts = (message.turn.text for message in reversed(messages) if isinstance(message, AssistantMessage))
    return next(filter(None, texts), "")


def heed_repeats(repeats: LoopDetector, batch: Batch) -> tuple[list[ToolResult], str]:
    """Return the results, those that close a circle with a word to the model, and why the run is to stop (or "").

    The same call twice in one turn is no circle: the model had not seen the first result yet.
    """
    heeded, circle = batch.finished(), ""
    for lane, result in zip(batch.lanes, heeded, strict=True):
        call, admitted = lane.call, lane.admitted
        told = result.text if result.failure is None and not (result.note or result.media) else _news(result)
        step = (told, call.name, admitted.arguments if admitted else call.arguments)
        if (admitted and admitted.tool.poll) or repeats.is_news(step) or _stands_before(lane, batch):
            continue
        rounds = repeats.rounds_with(step)
        if rounds >= STOPPED_AT:
            circle = f"{call.name} was called {rounds} times with the same arguments and the same result"
            heeded[lane.index] = _stopped(result, rounds)
        elif rounds == TOLD_AT:
            # A second note is one more line: the text has the field already.
            text = with_note(result.text, NOTE, None if result.note else result.value)
            heeded[lane.index] = replace(result, note="; ".join(filter(None, (result.note, NOTE))), text=text)
    return heeded, circle


def _stands_before(lane: CallState, batch: Batch) -> bool:
    """Whether the same call stands in the same turn before."""
    said = lane.call.name, lane.call.arguments
    return any((other.call.name, other.call.arguments) == said for other in batch.lanes[: lane.index])


def _news(result: ToolResult) -> str:
    """What a result tells, without notes that say how often it was told."""
    if result.failure is None:
        text = text_of(result.value) if result.note else result.text
        return text + "".join(map(_digest, result.media))
    # The reference of an internal error is new each time; its code is not.
    return result.failure.code if result.failure.code == Code.INTERNAL_ERROR else result.text


def _digest(media: Media) -> str:
    """Return what tells two pictures of one size apart."""
    return sha256(media.data).hexdigest()


def _stopped(result: ToolResult, rounds: int) -> ToolResult:
    failure = Failure(
        Code.REPEATED_CALL,
        f"`{result.name}` was called {rounds} times in a circle, each time with the same arguments and result.",
        "Its result stands above. Use it, call differently, or answer.",
    )
    return replace(result, value=None, failure=failure, text=failure_text(failure))


# ---------------------------------------------------------------------- the history stays valid


def separated(turn: Turn, tools: Toolset) -> Turn:
    """Return the turn with glued calls (`{..}{..}` as one call's arguments) taken apart, for tools that only read.

    A write is left as it is, and refused: of glued arguments nobody knows which the model meant.
    """
    for call in turn.calls:
        if call.arguments.find("}", 0, -1) >= 0:
            break
    else:
        return turn  # no object ends before its text does
    apart: list[ToolCall] = []
    for call in turn.calls:
        glued = jsontext.split(call.arguments, turn.finish)
        if glued and isinstance(tool := tools.resolve(call.name), BaseTool) and not tool.writes:
            ids = [call.id, *(f"{call.id}_{n}" for n in range(2, len(glued) + 1))]
            apart += [ToolCall(call_id, call.name, text) for call_id, text in zip(ids, glued, strict=True)]
        else:
            apart.append(call)
    return turn if len(apart) == len(turn.calls) else replace(turn, calls=apart, raw=None)


def understood(turn: Turn, results: Sequence[ToolResult]) -> Turn:
    """Return the turn as it may go back to a provider: with the arguments that were understood, or as text."""
    if not any(result.repairs or result.failure for result in results):
        return turn
    calls = [
        call if _is_plain(call, result) else ToolCall(call.id, call.name, _as_read(call.arguments, result))
        for call, result in zip(turn.calls, results, strict=True)
    ]
    # What the provider sent beside the calls, its signatures above all, still goes back; a dialect writes calls anew.
    return turn if all(map(operator.is_, calls, turn.calls)) else replace(turn, calls=calls)


_UNREAD = {Code.BAD_JSON, Code.TRUNCATED_CALL, Code.UNKNOWN_TOOL}


def _is_plain(call: ToolCall, result: ToolResult) -> bool:
    """Whether the arguments are an object in strict JSON, seen from what became of the call."""
    if result.repairs or (result.failure and result.failure.code in _UNREAD):
        try:
            return isinstance(jsontext.loads(call.arguments), dict)
        except ValueError:
            return False
    return True


def _as_read(arguments: str, result: ToolResult) -> str:
    """Return the arguments with which the call was carried out; those that nobody could read are shown as text."""
    parsed = jsontext.parse(arguments)
    was_read = result.failure is None or result.failure.code != Code.BAD_JSON
    return keys.canonical(parsed.value) if was_read and isinstance(parsed, jsontext.Parsed) else as_history(arguments)
