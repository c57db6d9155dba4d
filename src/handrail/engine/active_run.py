"""One run as its driver holds it while it is under way: how far it has come, who listens, and how it may end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from secrets import token_hex
from time import time
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from handrail import logs
from handrail.audit.trail import AuditBuilder
from handrail.core.budgets import Budget
from handrail.core.conversation import Ending, Progress, last_text
from handrail.core.execution import Deadline, RunSettings
from handrail.core.flow import FlowState
from handrail.core.history import Window
from handrail.core.redaction import Redactor
from handrail.core.structured_output import OutputTracker
from handrail.engine.timeouts import ReusableTimeout
from handrail.errors import ModelError
from handrail.events import Event, HttpExchange, Streamed
from handrail.futures import StoreAnswer, wait_for
from handrail.journal.cursor import JournalCursor, worked_s
from handrail.messages import Delta, Message, Options
from handrail.ports import AuditStore, Observer, Selector
from handrail.records import AuditEntry, StoredRun
from handrail.tools.toolset import Toolset
from handrail.workers.threads import raised

_MOST_UNWRITTEN = 1000
"""How many records of one run are kept to be written again after the audit log has failed; the oldest are dropped."""

OUT_OF_TIME = "out_of_time"
"""The code of a ModelError that stands for the run's own time limit."""


class ActiveRun(Struct, eq=False):
    """One run as its runtime holds it while it is under way. Its methods alone change it."""

    id: str
    progress: Progress
    settings: RunSettings
    budget: Budget
    deps: Any
    injected: Mapping[str, Any]
    started: float
    observers: Sequence[Observer]
    window: Window | None = None
    """How large the conversation may grow."""
    options: Options = field(default_factory=Options)
    selector: Selector | None = None
    """What chooses the tools that this run shows; the runtime's otherwise."""
    flow: FlowState | None = None
    """Which calls it must make or must not, where there are rules for it."""
    wanted: OutputTracker | None = None
    """The form that the answer must have."""
    recording: JournalCursor | None = None
    """Its journal, where the store keeps runs."""
    offered: tuple[Sequence[str], Toolset, Toolset] | None = None
    """The names that were chosen last, the tools that they were chosen from, and the chosen."""
    checked: Toolset | None = None
    """The tools whose injected values were looked for last, and found."""
    cancelled: bool = False
    stops: list[Callable[[], Any]] = field(default_factory=list)
    """What to call to end whatever is under way."""
    patience: ReusableTimeout | None = None
    """How long it waits for its model; there once it has asked."""

    # ------------------------------------------------------------------ beginning

    def open_conversation(self, messages: Sequence[Message], wanted: OutputTracker | None) -> None:
        """Begin with these messages, and with the form that the answer must have."""
        self.progress.messages = list(messages)
        self.wanted = wanted

    def attach_journal(self, stored: StoredRun, *, now: Callable[[], float], replaying: bool) -> None:
        """Continue along a journal, as if no time had passed since its last step."""
        self.started = now() - worked_s(stored.steps)
        deadline = Deadline(self.started + self.budget.time_s) if self.budget.time_s is not None else Deadline()
        self.settings = replace(self.settings, deadline=deadline, epoch=stored.record.epoch)
        if stored.record.cancel_requested and not replaying:
            self.cancelled = True  # the process that was to cancel it died before it did
        started, spent = self.started, self.progress.spent  # not the run itself, which would then hold itself
        self.recording = JournalCursor(stored, lambda: now() - started - spent.waited_s, replaying=replaying)

    # ------------------------------------------------------------------ ending

    def mark_cancelled(self) -> None:
        """Let the run end at its next step."""
        self.cancelled = True

    def cancel(self) -> None:
        """End whatever is under way, and the run at its next step; from any thread."""
        self.cancelled = True
        for stop in list(self.stops):
            stop()

    def add_stop(self, stop: Callable[[], Any]) -> None:
        """Call this when the run is cancelled."""
        self.stops.append(stop)

    def remove_stop(self, stop: Callable[[], Any]) -> None:
        """Call this no longer."""
        self.stops.remove(stop)

    def postpone_deadline(self, seconds: float) -> None:
        """Put the run's end off, by what people took to answer."""
        self.progress.spent.waited_s += seconds
        self.settings.deadline.postpone(seconds)

    # ------------------------------------------------------------------ waiting for the model

    def wait_with(self, patience: ReusableTimeout) -> ReusableTimeout:
        """Wait for the model with this timeout from now on."""
        self.end_waiting()
        self.patience = patience
        self.add_stop(patience.stop)
        return patience

    def end_waiting(self) -> None:
        """Close the timeout, if there is one: nothing more is asked, or by another task."""
        if self.patience is not None:
            self.remove_stop(self.patience.stop)
            self.patience.close()
            self.patience = None

    # ------------------------------------------------------------------ events

    @property
    def trail(self) -> AuditObserver | None:
        """What writes this run into the audit log, where the store has one."""
        return next((observer for observer in self.observers if isinstance(observer, AuditObserver)), None)

    def tell(self, event: Event) -> None:
        """Give an event to every observer."""
        tell_all(self.observers, event)


class AuditObserver:
    """Writes what a run decides and does into the audit log, and logs failures to do so.

    Nothing waits for the log, except `written`.
    """

    __slots__ = ("_account", "_asked", "_last", "_run_id", "_store", "_unwritten")

    def __init__(self, store: AuditStore, run_id: str, redactor: Redactor, principal: str = "") -> None:
        self._store, self._account = store, AuditBuilder(run_id, redactor, principal)
        self._run_id = run_id
        self._asked: Future[None] | None = None
        self._last: list[AuditEntry] = []
        """The records that `_asked` confirms."""
        self._unwritten: deque[AuditEntry] = deque(maxlen=_MOST_UNWRITTEN)

    def __call__(self, event: Event) -> None:
        if notices := self._account.notices(event):
            self._append(notices)

    def _append(self, notices: Sequence[AuditEntry]) -> None:
        try:
            answer = self._store.append_audit(notices)
        except Exception:
            self._unwritten.extend(notices)
            raise
        if not isinstance(answer, Future):
            return
        if answer is self._asked:  # a store may answer many at once
            self._last.extend(notices)
            return
        self._asked, self._last = answer, list(notices)
        # Not a bound method: the future, which this object refers to, would refer back to it.
        answer.add_done_callback(partial(_written, self._run_id, self._last, self._unwritten))

    async def written(self, within_s: float) -> Exception | None:
        """Wait until the log has all records of this run so far; write those again that it did not take.

        Returns:
            The reason if it did not take them; None if it did.
        """
        try:
            if self._unwritten:
                notices = list(self._unwritten)
                self._unwritten.clear()
                self._append(notices)
            if self._asked is not None:
                written: StoreAnswer[None] = self._asked
                await asyncio.wait_for(wait_for(written), within_s)
        except Exception as error:  # a driver's own errors too: whatever it raises, nothing is known to be written
            return error
        return None


class ListenerAdapter(Struct):
    """Hears a model's answer on its way and tells the run's observers."""

    session: ActiveRun

    def delta(self, delta: Delta) -> None:
        """Tell of a piece of the answer."""
        self.session.tell(Streamed(delta))

    def exchange(self, exchange: HttpExchange) -> None:
        """Tell of a request and its answer."""
        self.session.tell(exchange)


def _written(run_id: str, notices: list[AuditEntry], unwritten: deque[AuditEntry], answer: Future[None]) -> None:
    if (error := answer.exception()) is not None:
        unwritten.extend(notices)
        logs.raised(f"an audit record of run {run_id} could not be written", error)


def tell_all(observers: Sequence[Observer], event: Event) -> None:
    """Tell each of them; one that raises is logged and costs nothing."""
    for observer in observers:
        try:
            observer(event)
        except BaseException as error:  # one that only looks on must not cost a result
            logs.raised(f"an observer raised on {type(event).__name__}; the run goes on", raised(error).error)


def cancelled(session: ActiveRun) -> Ending:
    """Return how a run ends that was cancelled."""
    return Ending("cancelled", "the run was cancelled", last_text(session.progress.messages))


def ending_by(error: ModelError, session: ActiveRun) -> Ending:
    """Return how a run ends whose model could not be asked."""
    if session.cancelled:
        return cancelled(session)
    return Ending("budget" if error.code == OUT_OF_TIME else "failed", str(error), last_text(session.progress.messages))


def new_run_id() -> str:
    """Return the name of a run that nobody named: by time and 64 random bits, since a store may keep millions."""
    return f"r_{int(time() * 1000):011x}{token_hex(8)}"
