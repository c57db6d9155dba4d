"""The mistakes of a run: calls that were refused, or whose arguments a person changed.

A refused call is corrected by a call in the model's next answer: one of the same tool, or, if the tool does not exist,
the call in the same place. If that one was refused too, the answer after it is looked at. No other call is a
correction: a later call of the same tool may be about something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult, arguments_text
from handrail.errors import Code, Json
from handrail.history.run_history import HistoryTurn, RunHistory
from handrail.journal import codec

EDITED = "EDITED"
"""The reason of a mistake that no check found: a person changed the arguments."""

REFUSALS = frozenset({
    Code.UNKNOWN_TOOL, Code.BAD_JSON, Code.TRUNCATED_CALL, Code.INVALID_ARGUMENTS, Code.RULE_VIOLATED,
})  # fmt: skip
"""Codes of calls that a tool's own checks refuse, whoever asks."""

_MISTAKES = REFUSALS | {
    Code.NOT_PERMITTED,
    Code.NOT_APPROVED,
    Code.REPEATED_CALL,
}


class Mistake(Struct, frozen=True):
    """A call that the model should not have written.

    Attributes:
        turn, place: The number of its answer in the run's history, and of the call in the answer, from 0.
        reason: The code of its failure, or `EDITED`.
        correction: The call that took its place; None if none did.
    """

    turn: int
    place: int
    call: ToolCall
    reason: str
    correction: ToolCall | None = None


def find_mistakes(
    history: RunHistory, edits: Mapping[str, Mapping[str, Json]] = MappingProxyType({})
) -> list[Mistake]:
    """Return the mistakes of a run, in order.

    Args:
        edits: The arguments as people changed them, by the step of the call.
    """
    changed = {
        (step.turn, codec.result_from_json(step.body).call_id): arguments_text(
            edits[step.key]
        )
        for step in history.stored.steps
        if step.kind == "call" and step.key in edits
    }
    return [
        mistake
        for number in range(len(history.turns))
        for mistake in _find_mistakes_in_turn(history.turns, number, changed)
    ]


def _find_mistakes_in_turn(
    turns: Sequence[HistoryTurn], number: int, edits: Mapping[tuple[int, str], str]
) -> Iterator[Mistake]:
    turn = turns[number]
    taken: set[int] = set()
    for place, (call, result) in enumerate(
        zip(turn.turn.calls, turn.results, strict=True)
    ):
        if result is None:
            continue
        edited = edits.get((turn.number, call.id))
        if edited is not None and result.ok:
            correction = replace(call, arguments=edited)
            yield Mistake(number, place, call, EDITED, correction)
        elif is_mistake(result):
            code = str(result.failure.code) if result.failure else ""
            yield Mistake(
                number, place, call, code, _correct(turns, number, place, taken)
            )


def is_mistake(result: ToolResult) -> bool:
    """Whether a call was refused before it ran, for how it was written or because it was not allowed."""
    return (
        result.failure is not None
        and not result.attempts
        and result.failure.code in _MISTAKES
    )


def _correct(
    turns: Sequence[HistoryTurn], number: int, place: int, taken: set[int]
) -> ToolCall | None:
    """Return the call that took the place of a refused one.

    Args:
        taken: Places in the next answer that correct other calls.
    """
    refused = turns[number].turn.calls[place]
    code = _failure_code(turns[number].results[place])
    for following in turns[number + 1 :]:
        if following.question:
            return None
        found = _successor(following, refused, place, code, taken)
        if found is None:
            return None
        taken.add(found)
        result = following.results[found]
        if result is None:
            return None
        if not is_mistake(result):
            return following.turn.calls[found]
        refused = following.turn.calls[found]
        code = _failure_code(result)
        place = found
        taken = set()
    return None


def _successor(
    turn: HistoryTurn, refused: ToolCall, place: int, code: str, taken: set[int]
) -> int | None:
    """Return the place of the call that replaces a refused one in the next answer."""
    calls = turn.turn.calls
    same_tool = [
        each
        for each, call in enumerate(calls)
        if call.name == refused.name and each not in taken
    ]
    if code == Code.UNKNOWN_TOOL:
        if place < len(calls) and place not in taken:
            return place
        return None
    return same_tool[0] if same_tool else None


def _failure_code(result: ToolResult | None) -> str:
    if result is None or result.failure is None:
        return ""
    return str(result.failure.code)
