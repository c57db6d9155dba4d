"""A run in one row of a list: what was asked, its state, which tools it called, what went wrong.

Rule 1: pure: a stored run comes in, a row comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from handrail.engine.nested_runs import outer_run
from handrail.errors import PENDING, Code
from handrail.history.facts import question_text, run_status
from handrail.records import JournalStep, RunRecord, StoredRun

DENIALS = frozenset({Code.NOT_APPROVED, Code.NOT_PERMITTED, Code.APPROVAL_EXPIRED})
"""The codes of calls that a person or the policy did not allow: no fault of the tool."""

_OVER = frozenset({"done", "failed", "cancelled", "poisoned"})
_MOST_QUESTION_CHARS = 500


class RunSummary(Struct, frozen=True):
    """A run in one row.

    Attributes:
        started: Unix time in seconds; so are `ended` and `updated`. `ended` is 0 while it goes on or waits.
        calls: How many calls have a result or wait for one.
        failed: How many of them failed for good; a call that was denied is not among them.
        waiting: How many wait for somebody.
        in_doubt: How many writes it has left in doubt.
        failures: The codes of the failures.
        parent: The run that started or was forked into it; empty for none.
    """

    id: str
    status: str
    question: str
    started: float
    ended: float
    updated: float
    calls: int
    failed: int
    waiting: int
    in_doubt: int
    tools: tuple[str, ...]
    failures: tuple[str, ...]
    parent: str


def summarize(stored: StoredRun) -> RunSummary:
    """Return a stored run as a row."""
    record = stored.record
    tally = _Tally()
    try:
        tally.count(stored.steps)
    except (AttributeError, LookupError, TypeError):
        # Steps of another version. One run that cannot be read does not cost the list of all others.
        tally = _Tally()
    status = run_status(record)
    return RunSummary(
        id=record.run_id,
        status=status,
        question=_question_of(record)[:_MOST_QUESTION_CHARS],
        started=record.created,
        ended=record.updated if record.status in _OVER else 0.0,
        updated=record.updated,
        calls=tally.calls,
        failed=tally.failed,
        waiting=tally.waiting if status == "waiting" else 0,
        in_doubt=tally.in_doubt,
        tools=tuple(tally.tools),
        failures=tuple(tally.failures),
        parent=outer_run(record.run_id) or record.forked_from,
    )


def _question_of(record: RunRecord) -> str:
    """Return the last question; read from the raw input, as a list has many."""
    body = record.input
    messages = body.get("messages") if isinstance(body, Mapping) else None
    if not isinstance(messages, list):
        return question_text(record)
    for message in reversed(messages):
        if isinstance(message, Mapping) and "user" in message:
            return str(message["user"])
    return ""


class _Tally:
    """Counts the calls of a run by its steps, without decoding them whole."""

    def __init__(self) -> None:
        self.calls = self.failed = self.waiting = self.in_doubt = 0
        self.tools: dict[str, None] = {}
        self.failures: dict[str, None] = {}

    def count(self, steps: Iterable[JournalStep]) -> None:
        """Count the calls of these steps."""
        asked = answered = 0
        for step in steps:
            body: Any = step.body
            if not isinstance(body, Mapping):
                continue
            if step.kind == "model":
                for call in body.get("calls", ()):
                    asked += 1
                    self.tools[str(call[1])] = None
            elif step.kind == "call":
                answered += 1
                if name := body.get("name"):
                    self.tools.setdefault(str(name))
                self._count_failure(body.get("failure"))
        self.calls = max(asked, answered)
        self.waiting += max(0, asked - answered)

    def _count_failure(self, failure: Any) -> None:
        if not failure:
            return
        code = str(failure[0])
        if code in PENDING:
            self.waiting += 1
            return
        self.failures[code] = None
        if code == Code.IN_DOUBT:
            self.in_doubt += 1
        elif code not in DENIALS:
            self.failed += 1
