"""The observer that writes a run into the audit log.

Rule 1: no call waits for the log but a write of high risk, which starts once its admission is recorded.
Rule 2: the admission of a write is sent to the store before its claim, its end before the next claim of the run.
Rule 3: the store may delay only records of harmless reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.json import decode

from handrail import logs
from handrail.audit.chain import group_records
from handrail.audit.trail import AuditBuilder, Noted, note_answer
from handrail.calls import Label, ToolCall, ToolResult
from handrail.core.admission import Admitted
from handrail.core.redaction import Redactor
from handrail.events import AttemptStarted, Event, RunEnded
from handrail.futures import StoreAnswer
from handrail.messages import Turn
from handrail.ports import AuditStore
from handrail.records import AuditEntry, UnwrittenEntry

E = TypeVar("E")

_MOST_UNTAKEN = 1000
"""How many records of one run wait to be offered again after the audit log has failed; the oldest are dropped."""


class AuditObserver:
    """Writes what a run decides and does into the audit log, and logs failures to do so.

    What belongs to one turn is sent together, as one row of the log: `send` is called before a write is claimed, where
    the journal takes the turn, and once its calls have ended. Everything else is sent at once.
    """

    __slots__ = (
        "_answer",
        "_builder",
        "_groups",
        "_is_urgent",
        "_offered",
        "_run_id",
        "_store",
        "_unsent",
        "_untaken",
        "_writes_later",
    )

    def __init__(
        self, store: AuditStore, run_id: str, redactor: Redactor, principal: str = ""
    ) -> None:
        self._store = store
        self._groups: bool = getattr(store, "takes_groups", False)
        self._writes_later: bool = getattr(store, "takes_unwritten", False)
        key: bytes = getattr(store, "digest_key", b"")
        self._builder = AuditBuilder(run_id, redactor, principal, key)
        self._run_id = run_id
        self._unsent: list[Noted] = []
        """Events and records that are still to be sent to the store."""
        self._is_urgent = False
        """Whether one of them is about anything but a harmless read."""
        self._answer: Future[None] | None = None
        """The store's answer to the newest records, where it comes later."""
        self._offered: list[AuditEntry | UnwrittenEntry] = []
        """The records that `_answer` confirms."""
        self._untaken: deque[AuditEntry] = deque(maxlen=_MOST_UNTAKEN)

    def __call__(self, event: Event) -> None:
        """Record an event, at once."""
        records = self._builder.records(event)
        if records:
            self._unsent += records
            self._is_urgent = True
            if isinstance(event, RunEnded):
                self.flush()  # nobody offers the records of this run again later
            else:
                self._send()

    def note_event(self, event: Event) -> None:
        """Record an event, at once; never raises."""
        try:
            self(event)
        except Exception as error:
            _log(error)

    def note_answer(self, turn: int, answer: Turn) -> None:
        """Record a model's answer."""
        try:
            self._unsent.append(note_answer(turn, answer))
            self._is_urgent = True
        except Exception as error:
            _log(error)

    def note_admission(self, admitted: Admitted, taint: Label | None) -> None:
        """Record that a call may run; see `events.CallAdmitted`."""
        try:
            verdict = admitted.verdict
            noted = self._builder.admission(
                admitted.call,
                admitted.arguments,
                repairs=admitted.repairs,
                key=admitted.key,
                risk=verdict.risk,
                why=verdict.reason,
                pin=admitted.tool.pin,
                isolation=admitted.tool.isolation,
                tainted_by=taint,
            )
            if noted is not None:
                self._unsent.append(noted)
                self._is_urgent = True
        except Exception as error:
            _log(error)

    def note_end(
        self, call: ToolCall, result: ToolResult, seconds: float, recalled: bool
    ) -> None:
        """Record how a call has ended; see `events.CallFinished`."""
        try:
            noted = self._builder.end(call, result, seconds, recalled)
            if noted.admission is None:
                self._is_urgent = True
            self._unsent.append(noted)
        except Exception as error:
            _log(error)

    def note_attempt(self, call: ToolCall, attempt: int) -> None:
        """Record that an attempt has started, unless admission and end of its call say it as well."""
        if attempt > 1 or not self._builder.is_open(call):
            self.note_event(AttemptStarted(call, attempt))

    def send(self) -> None:
        """Send what has been noted; never raises."""
        if self._unsent:
            try:
                self._send()
            except Exception as error:
                _log(error)

    @property
    def has_untaken(self) -> bool:
        """Whether the log has answered that it did not take some records, which were not offered again since."""
        return bool(self._untaken)

    def flush(self) -> StoreAnswer[None]:
        """Offer the records again that the log did not take; return its answer to the newest.

        Once that is there the earlier ones are answered too: `has_untaken` says whether the log has them all.
        """
        try:
            entries = _take_all(self._untaken)
            if entries:
                self._append(entries)
        finally:
            self._send()
        return self._answer

    def _send(self) -> None:
        noted = self._unsent
        if not noted:
            return
        self._unsent = []
        may_wait = not self._is_urgent
        self._is_urgent = False
        write = _TurnRecords(self._builder, self._run_id, noted, may_wait)
        if self._groups and self._writes_later:
            self._append([UnwrittenEntry(self._run_id, write, may_wait)])
        elif self._groups:
            entry = write()
            if entry.count:
                self._append([entry])
        else:
            records = map(self._builder.write, noted)
            self._append(
                [
                    AuditEntry(
                        self._run_id, name, decode(body), body, may_wait=may_wait
                    )
                    for name, body in records
                ]
            )

    def _append(self, entries: list[Any]) -> None:
        try:
            # Only a store with `takes_unwritten` is given an `UnwrittenEntry`.
            answer = self._store.append_audit(entries)
        except Exception:
            self._untaken.extend(map(_written, entries))
            raise
        if not isinstance(answer, Future):
            return
        if answer is self._answer:  # a store may answer many at once
            self._offered.extend(entries)
            # its callback may have run before it became the answer to these too
            if answer.done():
                _Offer(self._run_id, self._offered, self._untaken)(answer)
            return
        self._answer = answer
        # a list of its own: the other one is the store's
        self._offered = list(entries)
        # Not a method of this object: the future, which this object refers to, would refer back to it.
        answer.add_done_callback(_Offer(self._run_id, self._offered, self._untaken))


class _TurnRecords(Struct, frozen=True, eq=False, gc=False):
    """What was noted of one turn, to be written as one entry."""

    builder: AuditBuilder
    run_id: str
    noted: Sequence[Noted]
    may_wait: bool

    def __call__(self) -> AuditEntry:
        """Return one entry for all that was noted.

        A record that cannot be written is reported and left out, so that the others are saved. An entry may so become
        empty (`count` is 0); the caller does not append an empty one.
        """
        records = []
        try:
            is_clean = self.builder.holds_no_secret(self.noted)
        except Exception:
            # whichever is at fault is found below, where it is written alone
            is_clean = False
        for each in self.noted:
            try:
                records.append(self.builder.write(each, is_clean=is_clean))
            except Exception as error:
                _log(error)
        if len(records) == 1:
            name, body = records[0]
            return AuditEntry(self.run_id, name, {}, body, may_wait=self.may_wait)
        return group_records(self.run_id, records, may_wait=self.may_wait)


class _Offer(Struct, frozen=True, eq=False, gc=False):
    """Records that the store was given, and what it calls with its answer to them."""

    run_id: str
    entries: list[AuditEntry | UnwrittenEntry]
    untaken: deque[AuditEntry]

    def __call__(self, answer: Future[None]) -> None:
        """Keep the records, to be offered again, if the store did not take them."""
        error: BaseException | None
        try:
            error = answer.exception()
        except CancelledError as cancelled:  # by whoever had waited for it long enough
            error = cancelled
        if error is not None:
            self.untaken.extend(map(_written, _take_all(self.entries)))
            logs.log_exception(
                f"an audit record of run {self.run_id} could not be written", error
            )


def _written(entry: AuditEntry | UnwrittenEntry) -> AuditEntry:
    """Return an entry in written form, to be held until it is offered again: what was noted may hold large results."""
    return entry if isinstance(entry, AuditEntry) else entry.written()


def _log(error: Exception) -> None:
    """Log what was raised where something was noted or sent: the log of a run must not cost a result."""
    logs.log_exception("what a run did could not be recorded; it goes on", error)


def _take_all(entries: list[E] | deque[E]) -> list[E]:
    """Take all entries out; another thread may add to them, or take some out, meanwhile."""
    taken = []
    with suppress(IndexError):
        while True:
            taken.append(entries.pop())
    taken.reverse()
    return taken
