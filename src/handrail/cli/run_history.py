"""The story of a kept run, told from its journal alone: no tool is loaded, no model is named, nothing is run.

    turn 1
        → refund  {"order": "7", "amount": 500}
        … refund  has no result yet

The journal holds what the model said and what became of its calls; calls that were taken apart are taken apart here
again. What a dialect mends on the way to a model stands here as the model wrote it.

Rule 1: pure: steps come in, messages and lines come out.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.cli.timeline import Kind, Line, shortened
from handrail.core.budgets import Spent
from handrail.core.conversation import last_text
from handrail.errors import JournalMismatch
from handrail.journal import codec
from handrail.journal.cursor import working_time_s
from handrail.messages import AssistantMessage, Message, ToolMessage, Turn, Usage, UserMessage
from handrail.parsing import jsontext
from handrail.records import JOURNAL_V, ApprovalRequest, JournalStep, StoredRun
from handrail.runs import Run


class Told(Struct, frozen=True):
    """One turn of a kept run.

    Attributes:
        results: Of each call of the turn, None where there is none yet.
        answered_s: How long the run had worked when the model had answered; `ended_s` when the calls had ended.
    """

    number: int
    turn: Turn
    results: Sequence[ToolResult | None] = ()
    answered_s: float = 0.0
    ended_s: float = 0.0

    @property
    def messages(self) -> Iterator[Message]:
        """The answer, as the model wrote it, and the results that there are."""
        yield AssistantMessage(self.turn)
        yield from (ToolMessage(result) for result in self.results if result is not None)


class RunHistory(Struct, frozen=True):
    """A kept run, read."""

    begun: StoredRun
    asked: codec.RunInput
    turns: Sequence[Told]

    @property
    def messages(self) -> list[Message]:
        """The whole conversation, as far as it has come."""
        return [*self.asked.messages, *(message for told in self.turns for message in told.messages)]

    @property
    def question(self) -> str:
        """What a person asked last before the run began."""
        return question_of(self.asked)

    @property
    def ending(self) -> tuple[str, str, str]:
        """How it stands, why, and the answer or the last thing that the model said."""
        record = self.begun.record
        ended: Mapping[str, Any]
        if isinstance(record.result, Mapping):
            ended = record.result
        else:
            ended = {}
        if record.status in ("running", "queued"):  # what it ended with once is the past
            return record.status, "", last_text(self.messages)
        if record.status == "done":
            status = ended.get("status", record.status)
        else:
            status = record.status
        return str(status), str(ended.get("reason", "")), str(ended.get("text", "")) or last_text(self.messages)

    def as_run(self) -> Run:
        """Return it as the value that whoever ran it got."""
        status, reason, text = self.ending
        results = [result for told in self.turns for result in told.results if result is not None]
        spent = Spent(
            len(self.turns),
            sum(bool(result.attempts) for result in results),
            sum((told.turn.usage for told in self.turns), Usage()),
            per_tool=Counter(result.name for result in results if result.attempts),
        )
        budget = codec.budget_from_json(self.asked.budget)
        seconds = working_time_s(self.begun.steps)
        return Run(self.begun.record.run_id, cast(Any, status), text, reason, self.messages, spent, budget, seconds)


def retold(begun: StoredRun) -> RunHistory:
    """Read a kept run.

    Raises:
        JournalMismatch: It cannot be read by this version.
    """
    if begun.record.journal_v > JOURNAL_V:
        raise JournalMismatch(
            f"the run {begun.record.run_id!r} was recorded by a newer handrail (journal {begun.record.journal_v}, "
            f"known here {JOURNAL_V})"
        )
    return RunHistory(begun, codec.input_from_json(begun.record.input), list(_turns(begun.steps)))


def question_of(asked: codec.RunInput) -> str:
    """Return what a person asked last before the run began."""
    return next((each.text for each in reversed(asked.messages) if isinstance(each, UserMessage)), "")


def _turns(steps: Sequence[JournalStep]) -> Iterator[Told]:
    for step in sorted((step for step in steps if step.kind == "model"), key=lambda step: step.turn):
        ended = [each for each in steps if each.kind == "call" and each.turn == step.turn]
        ended.sort(key=lambda each: int(each.key.split(".")[1]))
        known = [codec.result_from_json(each.body) for each in ended]
        turn = _separated(codec.turn_from_json(step.body), known)
        if by_code := list(filter(None, map(codec.call_by_code, ended))):
            turn = replace(turn, calls=[*turn.calls, *by_code])
        yield Told(
            step.turn, turn, _in_order(turn.calls, known), step.elapsed_s, working_time_s(ended) or step.elapsed_s
        )


def _separated(turn: Turn, results: Sequence[ToolResult]) -> Turn:
    """Take glued calls apart where their results show that it was done; see `conversation.separated`."""
    known = {result.call_id for result in results}
    apart: list[ToolCall] = []
    for call in turn.calls:
        if f"{call.id}_2" in known:
            glued = jsontext.split(call.arguments, turn.finish)
        else:
            glued = None
        if glued:
            ids = (call.id, *(f"{call.id}_{n}" for n in range(2, len(glued) + 1)))
        else:
            ids = ()
        pieces = [ToolCall(id, call.name, text) for id, text in zip(ids, glued or (), strict=True)]
        apart += pieces or [call]
    if len(apart) == len(turn.calls):
        return turn
    return replace(turn, calls=apart, raw=None)


def _in_order(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[ToolResult | None]:
    """Return each call's result. By id, because calls that only give an answer its form have no place among them."""
    by_id: dict[str, deque[ToolResult]] = {}
    for result in results:
        by_id.setdefault(result.call_id, deque()).append(result)
    return [by_id[call.id].popleft() if by_id.get(call.id) else None for call in calls]


# ---------------------------------------------------------------------- as lines


def lines_of(
    told: Told, words: Mapping[str, Sequence[ApprovalRequest]], *, whole: bool
) -> Iterator[tuple[float, Line]]:
    """Yield what a person reads of one turn, each line with the seconds that the run had worked by then.

    Args:
        words: What people were asked about calls, by the key of the call's step.
    """
    turn = told.turn
    at = told.answered_s
    yield at, Line("turn", about=f"turn {told.number}", whole=True)
    if turn.text and turn.calls:
        yield at, Line("said", turn.text, whole=True)
    for call in turn.calls:
        yield at, _shown("call", "", call.arguments, call.name, whole)
    for index, (call, result) in enumerate(zip(turn.calls, told.results, strict=True)):
        for asked in words.get(codec.call_key(told.number, index), ()):
            yield at, _word(asked)
        if result is None:
            yield at, Line("waiting", "has no result yet", call.name, whole=True)
        else:
            yield from ((told.ended_s, line) for line in _result(result, whole))


def _word(asked: ApprovalRequest) -> Line:
    because = f": {asked.decision_reason}" if asked.decision_reason else ""
    match asked.state:
        case "approved" | "used":
            told = json.dumps(asked.edited, ensure_ascii=False)
            if asked.edited is not None:
                edited = f", with {told} instead"
            else:
                edited = ""
            return Line("granted", f"approved by {asked.by}{edited}{because}", asked.tool, whole=True)
        case "denied":
            return Line("denied", f"denied by {asked.by}{because}", asked.tool, whole=True)
        case _:
            return Line("ask", f"a person must agree: {asked.reason}", asked.tool, whole=True)


def _result(result: ToolResult, whole: bool) -> Iterator[Line]:
    if result.repairs:
        yield Line("repaired", f"repaired: {', '.join(result.repairs)}", result.name, whole=True)
    if result.failure is not None:
        told = f"{result.failure.code}: {result.failure.message}"
        yield Line("failed" if result.attempts else "refused", told, result.name, whole=True)
        if result.failure.suggestion:
            yield Line("advice", result.failure.suggestion, whole=True)
        return
    if result.attempts > 1:
        how = [f"{result.attempts} attempts"]
    else:
        how = []
    how += ["repeated from before"] if result.replayed else []
    yield _shown("result", f"{', '.join(how)}  " if how else "", result.text, result.name, whole)


def _shown(kind: Kind, head: str, text: str, name: str, whole: bool) -> Line:
    return Line(
        kind,
        head + (text if whole else shortened(text)),
        name,
        whole=whole,
    )
