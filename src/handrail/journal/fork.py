"""A run that begins with the first turns of another one.

Rule 1: what the other run has written since is not written again without a person's approval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from handrail.calls import ToolResult
from handrail.core.admission import ParsedCall, admit, parse_call
from handrail.core.follow_ups import with_steps
from handrail.core.policy import Policy, describe_write
from handrail.errors import Code, ConfigError, Failure, Json
from handrail.journal.codec import (
    calls_in,
    input_as_json,
    input_from_json,
    result_from_json,
)
from handrail.journal.cursor import record_status
from handrail.journal.rounds import Round, next_turn, question_key
from handrail.records import JournalEntry, JournalStep, RunRecord, StoredRun
from handrail.tools.toolset import Toolset


def make_fork(
    stored: StoredRun,
    at_turn: int,
    run_id: str,
    tools: Toolset,
    edits: Mapping[str, Mapping[str, Json]],
    injected: Mapping[str, Any],
) -> tuple[RunRecord, Sequence[JournalStep]]:
    """Return a new run that has the first turns of this one, and those turns.

    Args:
        run_id: The new run's name.
        edits: The arguments that people edited, by the step of the call.
        injected: What the caller injects, which rules of the tools may look at.

    Raises:
        ConfigError: The run has no such turn.
    """
    forked_from = stored.record.run_id
    before = [
        step
        for step in stored.steps
        if step.turn < at_turn or step.key == question_key(at_turn)
    ]
    if at_turn < 1 or len(before) == len(stored.steps):
        turns = max((step.turn for step in stored.steps), default=0)
        raise ConfigError(
            f"run {forked_from!r} has {turns} turns; it can be forked at one of them, not at {at_turn}"
        )
    run_input = input_from_json(stored.record.input)
    done_before = (
        *run_input.done_before,
        *_find_writes_since(at_turn, stored, tools, edits, injected=injected),
    )
    record = replace(
        stored.record,
        run_id=run_id,
        input=input_as_json(replace(run_input, done_before=done_before)),
        epoch=0,
        result=None,
        forked_from=forked_from,
        forked_at=at_turn,
    )
    return record, before


def make_branch(
    stored: StoredRun,
    rounds: Sequence[Round],
    run_id: str,
    tools: Toolset,
    edits: Mapping[str, Mapping[str, Json]],
    injected: Mapping[str, Any],
) -> tuple[RunRecord, Sequence[JournalStep], JournalEntry]:
    """Return a new run that has the first rounds of this one, their steps, and the entry that ends it.

    Another question can follow.

    No write of the whole run is done again without a person's approval.

    Args:
        rounds: All of the run's, or its first ones.
        run_id: The new run's name.
        edits: The arguments that people edited, by the step of the call.
        injected: The values of injected parameters, by name.
    """
    run_input = input_from_json(stored.record.input)
    done_before = (
        *run_input.done_before,
        *_find_writes_since(1, stored, tools, edits, injected=injected),
    )
    keys = {step.key for each in rounds for step in each.steps}
    keys |= {question_key(each.first_turn) for each in rounds[1:]}
    steps = [step for step in stored.steps if step.key in keys]
    record = replace(
        stored.record,
        run_id=run_id,
        input=input_as_json(replace(run_input, done_before=done_before)),
        epoch=0,
        result=None,
        forked_from=stored.record.run_id,
        forked_at=next_turn(steps),
    )
    status = record_status(str(rounds[-1].result.get("status", "done")))
    ended = JournalEntry(run_id, 1, status=status, result=rounds[-1].result)
    return record, steps, ended


def _find_writes_since(
    turn: int,
    stored: StoredRun,
    tools: Toolset,
    edits: Mapping[str, Mapping[str, Json]],
    *,
    injected: Mapping[str, Any],
) -> list[str]:
    """Return the writes that a run has performed, or may have performed, from a turn on."""
    writes = []
    all_tools = Toolset(with_steps(tools))
    results = {
        step.key: result_from_json(step.body)
        for step in stored.steps
        if step.kind == "call"
    }
    for step, position, call, finish in calls_in(stored.steps):
        if step.turn < turn:
            continue
        parsed = parse_call(call, all_tools, finish)
        if (
            isinstance(parsed, Failure)
            or not parsed.tool.writes
            or not _may_have_happened(results.get(position))
        ):
            continue
        if position in edits:
            parsed = ParsedCall(call, parsed.tool, dict(edits[position]))
        admitted = admit(parsed, Policy(max_permission="admin"), injected=injected)
        if not isinstance(admitted, Failure):
            writes.append(describe_write(parsed.tool.name, admitted.arguments))
    return writes


def _may_have_happened(result: ToolResult | None) -> bool:
    """Return whether the write of a result may have taken effect.

    A result without attempts may stand for an attempt of an earlier process: then the ledger or `verify` answered, or
    nobody knows. No result at all means that the process died before it could record one.
    """
    if result is None or result.failure is None or result.attempts > 0:
        return True
    return result.failure.code in (Code.IN_DOUBT, Code.IN_PROGRESS, Code.TOO_LARGE)
