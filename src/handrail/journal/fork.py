"""A run that begins with the first turns of another one.

Rule 1: what the other run has written since is not done again without a person's word.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from handrail.calls import ToolResult
from handrail.core.admission import ParsedCall, admit, parse_call
from handrail.core.follow_ups import with_steps
from handrail.core.policy import Policy, describe_write
from handrail.errors import Code, ConfigError, Failure, Json
from handrail.journal.codec import calls_in, input_as_json, input_from_json, result_from_json
from handrail.records import JournalEntry, RunRecord, StoredRun
from handrail.tools.toolset import Toolset


def fork_of(
    begun: StoredRun, at_turn: int, run_id: str, tools: Toolset, edits: Mapping[str, Mapping[str, Json]]
) -> tuple[RunRecord, JournalEntry]:
    """Return a new run that has the first turns of this one, and those turns.

    Args:
        run_id: The new run's name.
        edits: The arguments that people edited, by the step of the call.

    Raises:
        ConfigError: It has not come so far.
    """
    forked_from = begun.record.run_id
    before = [step for step in begun.steps if step.turn < at_turn]
    if at_turn < 1 or not any(step.turn >= at_turn for step in begun.steps):
        turns = max((step.turn for step in begun.steps), default=0)
        raise ConfigError(f"run {forked_from!r} has {turns} turns; it can be forked at one of them, not at {at_turn}")
    asked = input_from_json(begun.record.input)
    done = (*asked.done_before, *_done_from(begun, at_turn, tools, edits))
    record = replace(
        begun.record, run_id=run_id, input=input_as_json(replace(asked, done_before=done)), epoch=0,
        result=None, forked_from=forked_from, forked_at=at_turn,
    )  # fmt: skip
    return record, JournalEntry(record.run_id, 1, before)


def _done_from(begun: StoredRun, turn: int, tools: Toolset, edits: Mapping[str, Mapping[str, Json]]) -> list[str]:
    """Return the writes that a run has done, or may have done, from a turn on."""
    done, tools = [], Toolset(with_steps(tools))
    results = {step.key: result_from_json(step.body) for step in begun.steps if step.kind == "call"}
    for step, place, call, finish in calls_in(begun.steps):
        if step.turn < turn:
            continue
        result, asked_for = results.get(place), parse_call(call, tools, finish)
        if isinstance(asked_for, Failure) or not (asked_for.tool.writes and _may_have_happened(result)):
            continue
        if place in edits:
            asked_for = ParsedCall(call, asked_for.tool, dict(edits[place]))
        admitted = admit(asked_for, Policy(max_permission="admin"))
        if not isinstance(admitted, Failure):
            done.append(describe_write(asked_for.tool.name, admitted.arguments))
    return done


def _may_have_happened(result: ToolResult | None) -> bool:
    """Return whether the write of a result may have taken effect.

    A result without attempts may stand for an attempt of an earlier process: then the ledger or `verify` answered, or
    nobody knows. No result at all means that the process died before it could record one.
    """
    if result is None or result.failure is None or result.attempts > 0:
        return True
    return result.failure.code in (Code.IN_DOUBT, Code.IN_PROGRESS, Code.TOO_LARGE)
