"""The rounds of a run: one for each question, with the model's answers and the results of its calls.

The first round is the run's input. Every later one begins with a step, and its turns are numbered on:

    5.q     the question before the fifth answer: the input of its round, and how the round before it ended
    5.f     the results that became handles before the fifth answer, by their position in the conversation

A round that has ended is not driven again: its messages are read from its steps. Where a message is more than its step
(arguments that were repaired, a note beside a result), the end of the round holds the message itself; see
`JournalCursor.list_messages`.

Rule 1: the same steps give the same messages in every process, and those are the messages that the model has read.
Rule 2: a question that got no answer at all is left out: it can be asked again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.core.history import fold
from handrail.errors import JournalMismatch, Json
from handrail.journal import codec
from handrail.messages import AssistantMessage, Message, ToolMessage, UserMessage
from handrail.records import JournalStep, StoredRun

ENDED = "ended"
"""The member of a question's step that holds the result of the round before."""
MESSAGES = "messages"
"""The member of a result that lists the messages of its round, where the steps do not spell them out."""


class Round(Struct, frozen=True):
    """One question of a run, and what followed.

    Attributes:
        first_turn: The number of its first answer, counted through all rounds.
        steps: Without the question itself.
        result: How it ended, as `RunRecord.result`; empty while it has not.
    """

    asked: codec.RunInput
    first_turn: int
    steps: Sequence[JournalStep]
    result: Mapping[str, Json]

    @property
    def turns(self) -> list[int]:
        """The numbers of its answers."""
        return sorted(step.turn for step in self.steps if step.kind == "model")


def question_key(turn: int) -> str:
    """Return the key of the question before a turn."""
    return f"{turn}.q"


def fold_key(turn: int) -> str:
    """Return the key of what was folded before a turn."""
    return f"{turn}.f"


def question_step(turn: int, asked: codec.RunInput, ended: Json) -> JournalStep:
    """Return the step of a question before a turn; `ended` is the result of the round before it."""
    body = {**codec.input_as_json(asked), ENDED: ended or {}}
    return JournalStep(question_key(turn), "question", body)


def next_turn(steps: Sequence[JournalStep]) -> int:
    """Return the number of the first turn of the next round."""
    return max((step.turn for step in steps), default=0) + 1


def read_rounds(stored: StoredRun) -> list[Round]:
    """Return the rounds of a stored run, at least one.

    Raises:
        JournalMismatch: This version cannot read them.
    """
    questions = sorted(
        (step for step in stored.steps if step.kind == "question"),
        key=lambda step: step.turn,
    )
    firsts = [1, *(step.turn for step in questions)]
    steps_of: list[list[JournalStep]] = [[] for _ in firsts]
    for step in stored.steps:
        if step.kind != "question":
            # a run forked from its first turn on has a question there, and no round before it
            steps_of[max(bisect_right(firsts, step.turn) - 1, 0)].append(step)
    bodies = [stored.record.input, *(step.body for step in questions)]
    results = [*(_ended(step) for step in questions), stored.record.result]
    return [
        Round(
            codec.input_from_json(body),
            first,
            steps,
            result if isinstance(result, Mapping) else {},
        )
        for body, first, steps, result in zip(
            bodies, firsts, steps_of, results, strict=True
        )
    ]


def _ended(question: JournalStep) -> Json:
    return question.body.get(ENDED) if isinstance(question.body, Mapping) else None


# ---------------------------------------------------------------------- the messages of rounds that have ended


def read_messages(
    rounds: Sequence[Round],
    sanitize: Callable[[Sequence[Message]], Sequence[Message]],
) -> list[Message]:
    """Return the conversation of rounds that have ended, as the model has read it.

    Args:
        sanitize: Makes messages fit to send, as it is done at the beginning of a round; sound ones stay as they are.

    Raises:
        JournalMismatch: This version cannot read a step.
    """
    messages = _join_rounds(rounds, lambda given: given)
    sound = sanitize(messages)
    if sound is messages:
        # then the beginnings of all rounds were sound too
        return messages
    if any(step.kind == "fold" for each in rounds for step in each.steps):
        # a fold names a position among the messages as they were sent
        sound = sanitize(_join_rounds(rounds, sanitize))
    return list(sound)


def _join_rounds(
    rounds: Sequence[Round],
    sanitize: Callable[[Sequence[Message]], Sequence[Message]],
) -> list[Message]:
    messages: list[Message] = []
    for each in rounds:
        messages = list(sanitize([*messages, *each.asked.messages]))
        folds = {step.turn: step.body for step in each.steps if step.kind == "fold"}
        turns = iter(each.turns)
        answers = list(_answers(each))
        for message in answers:
            if isinstance(message, AssistantMessage):
                apply_folds(messages, folds.pop(next(turns, 0), ()))
            messages.append(message)
        for positions in folds.values():
            apply_folds(messages, positions)
        while not answers and messages and isinstance(messages[-1], UserMessage):
            messages.pop()
    return messages


def _answers(each: Round) -> Iterator[Message]:
    """Yield the messages of a round after its question."""
    steps = {step.key: step for step in each.steps}
    for item in each.result.get(MESSAGES) or _spell_out(each, steps):
        if not isinstance(item, str):
            yield codec.message_from_json(item)
        elif item not in steps:
            raise JournalMismatch(f"the journal has no step {item}")
        elif steps[item].kind == "model":
            yield AssistantMessage(codec.turn_from_json(steps[item].body))
        else:
            yield ToolMessage(codec.result_from_json(steps[item].body))


def _spell_out(each: Round, steps: Mapping[str, JournalStep]) -> Iterator[str]:
    """Yield the keys of the steps that are the messages of a round."""
    for number in each.turns:
        key = codec.model_key(number)
        yield key
        count = len(codec.turn_from_json(steps[key].body).calls)
        keys = (codec.call_key(number, index) for index in range(count))
        yield from (key for key in keys if key in steps)


def lost_calls(each: Round) -> dict[str, ToolCall]:
    """Return the calls of a round that ended before they had a result, by the keys of their steps."""
    if MESSAGES in each.result:
        return {}
    keys = {step.key for step in each.steps}
    calls: dict[str, ToolCall] = {}
    for step in each.steps:
        if step.kind == "model":
            for index, call in enumerate(codec.turn_from_json(step.body).calls):
                key = codec.call_key(step.turn, index)
                if key not in keys:
                    calls[key] = call
    return calls


def with_results(each: Round, results: Mapping[str, ToolResult]) -> Round:
    """Return a round with results for its lost calls, by the keys of their steps; its result lists them."""
    steps = {step.key: step for step in each.steps}
    listed: list[Json] = []
    for number in each.turns:
        key = codec.model_key(number)
        listed.append(key)
        for index, _ in enumerate(codec.turn_from_json(steps[key].body).calls):
            key = codec.call_key(number, index)
            if key in results:
                listed.append(codec.message_as_json(ToolMessage(results[key])))
            else:
                listed.append(key)
    return replace(each, result={**each.result, MESSAGES: listed})


def apply_folds(messages: list[Message], folds: Sequence[Any]) -> None:
    """Let results become handles: those at these positions, each with its handle."""
    for position, handle in folds:
        message = messages[position] if position < len(messages) else None
        if isinstance(message, ToolMessage):
            messages[position] = fold(message, handle)
