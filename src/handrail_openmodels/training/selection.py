"""Which runs are exported."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from handrail.engine.scoped_store import parse_scope
from handrail.errors import JournalMismatch
from handrail.history.run_history import RunHistory, read_history
from handrail.records import RunRecord, StoredRun
from handrail.tools.toolset import Toolset


class LeftOut(Exception):
    """A run or a pair that is not exported; the message is the reason, in words that the summary counts."""


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

    def read(self, stored: StoredRun, tools: Toolset | None) -> RunHistory:
        """Return the history of a run that is exported.

        Args:
            tools: Where tags are looked up.

        Raises:
            LeftOut: It does not fulfil the conditions, or this version cannot read it.
        """
        reason = self._reject_record(stored.record)
        if reason:
            raise LeftOut(reason)
        try:
            history = read_history(stored)
        except JournalMismatch as error:
            raise LeftOut("recorded by another version of handrail") from error
        reason = self._reject_history(history, tools)
        if reason:
            raise LeftOut(reason)
        return history

    def _reject_record(self, record: RunRecord) -> str:
        """Return why the record of a run excludes it, before its steps are read; empty if it does not."""
        if self.scope is not None and parse_scope(record.run_id) != self.scope:
            return "of another tenant"
        if not self.since <= record.created < self.until:
            return "began at another time"
        return ""

    def _reject_history(self, history: RunHistory, tools: Toolset | None) -> str:
        """Return why a run is left out, in words that the summary counts; empty if it is exported."""
        status, _, _ = history.ending
        if self.statuses and status not in self.statuses:
            return f"ended as {status}" if status != "running" else "has not ended"
        names = [call.name for turn in history.turns for call in turn.turn.calls]
        if self.tools and not set(self.tools) & set(names):
            return "did not call the tools asked for"
        if self.tags:
            called = [tools.get(name) for name in names] if tools is not None else []
            if not any(tool and set(self.tags) & set(tool.tags) for tool in called):
                return "called no tool with the tags asked for"
        if len(names) < self.min_calls:
            return "made too few calls"
        if self.max_calls is not None and len(names) > self.max_calls:
            return "made too many calls"
        return ""
