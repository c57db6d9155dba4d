"""Which runs are exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from handrail.engine.scoped_store import parse_scope
from handrail.history.run_history import RunHistory
from handrail.records import RunRecord


class Selection(Struct, frozen=True):
    """Which runs are exported: those that fulfil every condition given here.

    Attributes:
        statuses: How a run ended; empty for any.
        tools: The run has called one of these tools.
        tags: The run has called a tool with one of these tags.
        since, until: When the run began, in Unix seconds; `until` is not included.
        min_calls, max_calls: How many calls it made.
        scope: The tenant; None for every one.
    """

    statuses: Sequence[str] = ("done",)
    tools: Sequence[str] = ()
    tags: Sequence[str] = ()
    since: float = 0.0
    until: float = float("inf")
    min_calls: int = 0
    max_calls: int | None = None
    scope: str | None = None

    def reject_record(self, record: RunRecord) -> str:
        """Return why the record of a run excludes it, before its steps are read; empty if it does not."""
        if self.scope is not None and parse_scope(record.run_id) != self.scope:
            return "of another tenant"
        if not self.since <= record.created < self.until:
            return "began at another time"
        return ""

    def reject(self, history: RunHistory, tags_of: Callable[[str], set[str]]) -> str:
        """Return why a run is left out, in words that the summary counts; empty if it is exported."""
        status, _, _ = history.ending
        if self.statuses and status not in self.statuses:
            return f"ended as {status}" if status != "running" else "has not ended"
        names = [call.name for turn in history.turns for call in turn.turn.calls]
        if self.tools and not set(self.tools) & set(names):
            return "did not call the tools asked for"
        if self.tags and not any(tags_of(name) & set(self.tags) for name in names):
            return "called no tool with the tags asked for"
        if len(names) < self.min_calls:
            return "made too few calls"
        if self.max_calls is not None and len(names) > self.max_calls:
            return "made too many calls"
        return ""
