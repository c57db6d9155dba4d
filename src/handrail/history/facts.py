"""A stored run as JSON: the facts of one, and everything about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from handrail.errors import JournalMismatch, Json
from handrail.history.run_history import RunHistory, last_question
from handrail.journal.codec import input_from_json
from handrail.process_identity import is_gone
from handrail.records import ApprovalRequest, RunRecord


def run_status(record: RunRecord) -> str:
    """Return the status of a run; of one that is over, how it ended."""
    if record.is_poisoned and (record.status == "poisoned" or is_gone(record.owner)):
        return "poisoned"
    if record.status == "done" and isinstance(record.result, Mapping):
        return str(record.result.get("status") or record.status)
    return record.status


def question_text(record: RunRecord) -> str:
    """Return what a person asked; of a run that this version cannot read, that it cannot."""
    try:
        return last_question(input_from_json(record.input))
    except JournalMismatch as error:
        return f"({error})"


def facts(record: RunRecord) -> dict[str, Json]:
    """Return the facts about a run that need no steps."""
    return {
        "run_id": record.run_id,
        "status": record.status,
        "ended": run_status(record),
        "question": question_text(record),
        "created": record.created,
        "updated": record.updated,
        "epoch": record.epoch,
        "cancel_requested": record.cancel_requested,
        "forked_from": record.forked_from,
        "forked_at": record.forked_at,
        "takeovers": record.takeovers,
    }


def document(
    history: RunHistory, questions: Sequence[ApprovalRequest]
) -> dict[str, Json]:
    """Return everything about a run."""
    turns = [
        {
            "turn": each.number,
            "text": each.turn.text,
            "finish": each.turn.finish,
            "calls": [
                {
                    "id": call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                    "has_result": result is not None,
                }
                for call, result in zip(each.turn.calls, each.results, strict=True)
            ],
        }
        for each in history.turns
    ]
    requests = [
        {
            "id": each.id,
            "tool": each.tool,
            "state": each.state,
            "arguments": each.arguments,
        }
        for each in questions
    ]
    result = history.as_run().as_json()
    about = {**facts(history.stored.record), "model": history.model}
    return {
        **about,
        "turns": turns,
        "questions": requests,
        "result": result,
    }
