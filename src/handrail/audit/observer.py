"""The observer that writes a run into the audit log.

Rule 1: no call waits for the log but a write of high risk, which starts once its admission is recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from handrail import logs
from handrail.audit.trail import AuditBuilder
from handrail.core.redaction import Redactor
from handrail.events import Event
from handrail.futures import StoreAnswer
from handrail.ports import AuditStore
from handrail.records import AuditEntry

_MOST_UNWRITTEN = 1000
"""How many records of one run wait to be offered again after the audit log has failed; the oldest are dropped."""


class AuditObserver:
    """Writes what a run decides and does into the audit log, and logs failures to do so."""

    __slots__ = ("_answer", "_builder", "_offered", "_run_id", "_store", "_unwritten")

    def __init__(
        self, store: AuditStore, run_id: str, redactor: Redactor, principal: str = ""
    ) -> None:
        self._store = store
        self._builder = AuditBuilder(run_id, redactor, principal)
        self._run_id = run_id
        self._answer: Future[None] | None = None
        """The store's answer to the newest records, where it comes later."""
        self._offered: list[AuditEntry] = []
        """The records that `_answer` confirms."""
        self._unwritten: deque[AuditEntry] = deque(maxlen=_MOST_UNWRITTEN)

    def __call__(self, event: Event) -> None:
        if entries := self._builder.entries(event):
            self._append(entries)

    def flush(self) -> StoreAnswer[None]:
        """Offer the records again that the log did not take; return its answer to all records so far."""
        if self._unwritten:
            entries = list(self._unwritten)
            self._unwritten.clear()
            self._append(entries)
        return self._answer

    def _append(self, entries: Sequence[AuditEntry]) -> None:
        try:
            answer = self._store.append_audit(entries)
        except Exception:
            self._unwritten.extend(entries)
            raise
        if not isinstance(answer, Future):
            return
        if answer is self._answer:  # a store may answer many at once
            self._offered.extend(entries)
            return
        self._answer = answer
        self._offered = list(entries)
        # Not a bound method: the future, which this object refers to, would refer back to it.
        answer.add_done_callback(
            partial(_on_answer, self._run_id, self._offered, self._unwritten)
        )


def _on_answer(
    run_id: str,
    offered: list[AuditEntry],
    unwritten: deque[AuditEntry],
    answer: Future[None],
) -> None:
    if (error := answer.exception()) is not None:
        unwritten.extend(offered)
        logs.log_exception(
            f"an audit record of run {run_id} could not be written", error
        )
