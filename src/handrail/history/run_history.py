"""The history of a stored run, read from its journal alone: no tool is loaded, no model is named, nothing runs.

The journal holds what the model wrote and the results of its calls; calls that were separated are separated here
again. What a dialect repairs on the way to a model appears here as the model wrote it.

Rule 1: pure: steps come in, turns and messages come out.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import TRUSTED, Label, ToolCall, ToolResult
from handrail.core.budgets import Spent
from handrail.core.conversation import last_text
from handrail.errors import JournalMismatch
from handrail.journal import codec
from handrail.journal.cursor import working_time_s
from handrail.journal.rounds import read_rounds
from handrail.messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.parsing import jsontext
from handrail.records import JOURNAL_V, JournalStep, StoredRun
from handrail.runs import Run


class HistoryTurn(Struct, frozen=True):
    """One turn of a stored run.

    Attributes:
        results: One for each call of the turn; None where there is none yet.
        question: What a person asked before it, where it is not the first of the run.
        model: Who answered, where the run's input names no model.
        answered_s: How long the run had worked when the model had answered; `ended_at_s` when the calls had ended.
    """

    number: int
    turn: Turn
    results: Sequence[ToolResult | None] = ()
    answered_at_s: float = 0.0
    ended_at_s: float = 0.0
    question: Sequence[Message] = ()
    model: str = ""

    @property
    def messages(self) -> Iterator[Message]:
        """The question, the answer, as the model wrote it, and the results that there are."""
        yield from self.question
        yield AssistantMessage(self.turn)
        yield from (
            ToolMessage(result) for result in self.results if result is not None
        )


class RunHistory(Struct, frozen=True):
    """A stored run, decoded.

    Attributes:
        asked: The input of its first round.
        unanswered: The last question, where it is not the first one and has no answer yet.
    """

    stored: StoredRun
    asked: codec.RunInput
    turns: Sequence[HistoryTurn]
    unanswered: Sequence[Message] = ()

    @property
    def messages(self) -> list[Message]:
        """The whole conversation so far."""
        return [
            *self.asked.messages,
            *(message for each in self.turns for message in each.messages),
            *self.unanswered,
        ]

    @property
    def question(self) -> str:
        """The last question of a person before the run started."""
        return last_question(self.asked)

    @property
    def model(self) -> str:
        """The model that the run asks for, or else the one that answered last; empty where there is neither."""
        if self.asked.model:
            return self.asked.model
        return next((each.model for each in reversed(self.turns) if each.model), "")

    @property
    def labels(self) -> Iterator[tuple[int, str, Label]]:
        """The labels of its results that are not of trusted, public words: turn, call and label."""
        for turn in self.turns:
            for result in turn.results:
                if result is not None and result.label != TRUSTED:
                    yield turn.number, result.call_id, result.label

    @property
    def origins(self) -> list[tuple[str, str]]:
        """Which calls brought in a stranger's words, and private values, first, as rows for people."""
        rows: dict[str, str] = {}
        inherited: Any = (self.asked.trust or {}).get("taint")
        if inherited:
            rows["tainted"] = f"by {inherited[0]}, before it was started"
        for number, call, label in self.labels:
            where = f"by {label.source}, in turn {number} (call {label.call or call})"
            if label.integrity == "untrusted":
                rows.setdefault("tainted", where)
            if label.confidentiality == "private":
                rows.setdefault("private", where)
        return list(rows.items())

    @property
    def ending(self) -> tuple[str, str, str]:
        """Its status, the reason, and the answer or the model's last text."""
        record = self.stored.record
        result: Mapping[str, Any]
        if isinstance(record.result, Mapping):
            result = record.result
        else:
            result = {}
        # the result of an earlier end no longer holds
        if record.status in ("running", "queued"):
            return record.status, "", last_text(self.messages)
        if record.status == "done":
            status = result.get("status", record.status)
        else:
            status = record.status
        return (
            str(status),
            str(result.get("reason", "")),
            str(result.get("text", "")) or last_text(self.messages),
        )

    def as_run(self) -> Run:
        """Return the run as its caller got it."""
        status, reason, text = self.ending
        results = [
            result
            for each in self.turns
            for result in each.results
            if result is not None
        ]
        spent = Spent(
            len(self.turns),
            sum(bool(result.attempts) for result in results),
            sum((each.turn.usage for each in self.turns), Usage()),
            per_tool=Counter(result.name for result in results if result.attempts),
        )
        budget = codec.budget_from_json(self.asked.budget)
        seconds = working_time_s(self.stored.steps)
        return Run(
            id=self.stored.record.run_id,
            status=cast(Any, status),
            text=text,
            reason=reason,
            messages=self.messages,
            spent=spent,
            budget=budget,
            seconds=seconds,
        )


def read_history(stored: StoredRun) -> RunHistory:
    """Decode a stored run.

    Raises:
        JournalMismatch: This version cannot read it.
    """
    if stored.record.journal_v > JOURNAL_V:
        raise JournalMismatch(
            f"the run {stored.record.run_id!r} was recorded by a newer handrail (journal {stored.record.journal_v}, "
            f"this one reads up to {JOURNAL_V})"
        )
    first, *later = read_rounds(stored)
    questions = {min(each.turns): each.asked.messages for each in later if each.turns}
    turns = [
        replace(turn, question=questions.get(turn.number, ()))
        for turn in _turns(stored.steps)
    ]
    unanswered: Sequence[Message] = ()
    if later and not later[-1].turns:
        unanswered = later[-1].asked.messages
    return RunHistory(stored, first.asked, turns, unanswered)


def last_question(run_input: codec.RunInput) -> str:
    """Return the last question of a person before the run started."""
    return question_in(run_input.messages)


def question_in(messages: Sequence[Message]) -> str:
    """Return the last question of a person in messages; empty where there is none."""
    return next(
        (each.text for each in reversed(messages) if isinstance(each, UserMessage)),
        "",
    )


def _turns(steps: Sequence[JournalStep]) -> Iterator[HistoryTurn]:
    steps_of_turns: dict[int, list[JournalStep]] = defaultdict(list)
    for step in steps:
        if step.kind == "call":
            steps_of_turns[step.turn].append(step)
    for step in sorted(
        (step for step in steps if step.kind == "model"), key=lambda step: step.turn
    ):
        call_steps = steps_of_turns[step.turn]
        call_steps.sort(key=lambda each: int(each.key.split(".")[1]))
        results = [codec.result_from_json(each.body) for each in call_steps]
        turn = _separate_calls(codec.turn_from_json(step.body), results)
        if by_code := list(filter(None, map(codec.call_by_code, call_steps))):
            turn = replace(turn, calls=[*turn.calls, *by_code])
        yield HistoryTurn(
            step.turn,
            turn,
            _in_order(turn.calls, results),
            answered_at_s=step.elapsed_s,
            ended_at_s=working_time_s(call_steps) or step.elapsed_s,
            model=codec.answering_model(step.body),
        )


def _separate_calls(turn: Turn, results: Sequence[ToolResult]) -> Turn:
    """Separate glued calls where their results show that the run did; see `conversation.split_glued_calls`."""
    answered_ids = {result.call_id for result in results}
    calls: list[ToolCall] = []
    for call in turn.calls:
        parts: Sequence[str] | None = None
        if f"{call.id}_2" in answered_ids:
            parts = jsontext.split(call.arguments, turn.finish)
        if parts:
            ids = (call.id, *(f"{call.id}_{n}" for n in range(2, len(parts) + 1)))
            calls += [
                replace(call, id=id, arguments=text)
                for id, text in zip(ids, parts, strict=True)
            ]
        else:
            calls.append(call)
    if len(calls) == len(turn.calls):
        return turn
    return replace(turn, calls=calls, raw=None)


def _in_order(
    calls: Sequence[ToolCall], results: Sequence[ToolResult]
) -> list[ToolResult | None]:
    """Return each call's result. By id, because calls that only give an answer its form have no place among them."""
    by_id: dict[str, deque[ToolResult]] = {}
    for result in results:
        by_id.setdefault(result.call_id, deque()).append(result)
    return [by_id[call.id].popleft() if by_id.get(call.id) else None for call in calls]
