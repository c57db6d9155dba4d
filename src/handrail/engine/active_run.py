"""The state of one run while it is under way: its progress, its observers, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from functools import partial
from inspect import iscoroutine
from os import environ
from typing import Any, cast
from weakref import WeakSet

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from handrail import logs, plugins
from handrail.audit.observer import AuditObserver
from handrail.core.budgets import Budget, Spent
from handrail.core.conversation import Ending, Progress, Status, last_text
from handrail.core.flow import FlowState
from handrail.core.history import Window
from handrail.core.redaction import KnownSecrets
from handrail.core.run_settings import Deadline, RunSettings
from handrail.core.structured_output import OutputTracker
from handrail.core.trust import Trust
from handrail.dialects.boundaries import Boundaries
from handrail.effects import Approval
from handrail.engine.timeouts import ReusableTimeout
from handrail.errors import ModelError
from handrail.events import Event, HttpExchange, Streamed
from handrail.futures import StoreAnswer, then, wait_for
from handrail.journal import rounds
from handrail.journal.cursor import JournalCursor, working_time_s
from handrail.messages import (
    AssistantMessage,
    Delta,
    Message,
    Options,
    ToolMessage,
)
from handrail.ports import (
    Approver,
    Observer,
    RunTrace,
    Selector,
    SubmittedRunStore,
    Tracer,
)
from handrail.process_identity import owner
from handrail.records import ApprovalRequest, ModelWait, RunRecord, StoredRun
from handrail.surroundings.chance import token_hex
from handrail.tools.toolset import Toolset
from handrail.workers.threads import wrap_error

OUT_OF_TIME = "out_of_time"
"""The code of a ModelError where the run's own time limit has passed."""

CANCEL_LOOK_S = 0.5
"""Seconds between two questions to the store while a run is under way: a cancelled run ends within a second."""


class Words(Struct, eq=False):
    """The words of people that come with the calls of one turn.

    Attributes:
        given: By the id of the call.
        asked_now: The ids of questions that were stored since the words came. Nobody has seen them, so no word counts.
    """

    given: Mapping[str, Approval]
    asked_now: set[str] = field(default_factory=set)

    def word_on(self, question: ApprovalRequest, call_id: str) -> Approval | None:
        """Return the word that decides a question about a call; None without one."""
        word = self.given.get(call_id)
        if word is None or question.id in self.asked_now:
            return None
        if word.question:
            is_meant = word.question == question.id
        else:
            # The same message once more: whoever has agreed in it has not seen this question.
            is_meant = not question.place.endswith(mark_unseen(call_id))
        return word if is_meant else None

    def mark_on(self, call_id: str) -> str:
        """Return what is added to the place of a question that is asked although a word came with its call."""
        return mark_unseen(call_id) if call_id in self.given else ""


def mark_unseen(call_id: str) -> str:
    """Return what ends the place of a question that the words on this call do not know, unless they name it."""
    return f"#unseen:{call_id}"


_driven_here: set[tuple[Any, ...]] = set()
"""The stored runs that this process carries out, with any runtime."""


def is_driven_here(record: RunRecord) -> bool:
    """Whether this process carries out a stored run, with this runtime or another one."""
    return (
        _driver_of(record) in _driven_here
        or (record.owner, record.run_id) in _driven_here
    )


def _driver_of(record: RunRecord) -> tuple[Any, ...]:
    # by when it was created too: several stores may have runs of one name
    return owner(), record.run_id, record.created, record.epoch


def _working_s(now: Callable[[], float], started: float, spent: Spent) -> float:
    """Return how long a run has worked, without the time that people took."""
    return now() - started - spent.waited_s


class Earlier(Struct, frozen=True):
    """The rounds of a conversation before the present one.

    Attributes:
        turns: How many answers were asked for in them.
        is_stored: Whether a store keeps them; their turns are then counted through all processes.
        trust: What was read in them, and from whom.
    """

    messages: Sequence[Message] = ()
    rounds: int = 0
    turns: int = 0
    is_stored: bool = True
    trust: Trust = field(default_factory=Trust)


class ActiveRun(Struct, eq=False):
    """One run as its runtime holds it while it is under way. Its methods alone change it."""

    id: str
    progress: Progress
    settings: RunSettings
    log_secrets: KnownSecrets
    """What the log of its tools' errors must not hold."""
    budget: Budget
    deps: Any
    injected: Mapping[str, Any]
    started: float
    observers: Sequence[Observer]
    trail: AuditObserver | None = None
    """What writes it into the audit log, where the store has one."""
    window: Window | None = None
    """How large the conversation may grow."""
    options: Options = field(default_factory=Options)
    selector: Selector | None = None
    """What chooses the tools that this run shows; the runtime's otherwise."""
    trace: RunTrace | None = None
    """What its tools continue, where somebody traces it; one of its observers."""
    boundaries: Boundaries | None = None
    """What puts marks around results, where the run's options ask for it."""
    flow: FlowState | None = None
    """Which calls it must make or must not, where there are rules for it."""
    principal: str = ""
    """On whose behalf it acts."""
    resumed_by: str = ""
    """Who resumed it, where that is known and somebody else."""
    approver: Approver | None = None
    """Who is asked in this process, if anybody."""
    wanted: OutputTracker | None = None
    """The form that the answer must have."""
    recording: JournalCursor | None = None
    """Its journal, where the store keeps runs."""
    may_be_postponed: bool = False
    """Whether it ends its segment, as workers' runs do, in place of waiting long for an earlier process's lease."""
    model_wait: ModelWait | None = None
    """How it waits for a model that is away, if it ends its segment in place of failing."""
    tried_turn: int = 0
    """The turn for which it may ask its model, also if that is away."""
    goes_ahead: bool = False
    """Whether its model is asked again while the store still writes; nothing is done on the answer before that."""
    unsettled: list[Future[bool]] = field(default_factory=list)
    """The store's answers to settlements that nobody has waited for."""
    passes: tuple[type[Exception], ...] = ()
    """Which exceptions of a tool are for the caller of its call."""
    passed: Exception | None = None
    """The first such exception."""
    words: Words | None = None
    """What people have said of its calls elsewhere."""
    round: int = 1
    """Which question of the conversation it answers."""
    earlier: int = 0
    """How many of its messages stood before this question."""
    first_answer: int = 0
    """How many stood before the first answer to it."""
    driving: tuple[Any, ...] = ()
    """Its name among the stored runs that this process carries out."""
    offered: tuple[Sequence[str], Toolset, Toolset] | None = None
    """The names that were chosen last, the tools that they were chosen from, and the chosen."""
    permitted: Toolset | None = None
    """The tools that its model may use, as they were found when it was last asked."""
    checked: Toolset | None = None
    """The tools whose injected values were looked for last, and found."""
    cancelled: bool = False
    stops: list[Callable[[], Any]] = field(default_factory=list)
    """What to call to end whatever is under way."""
    patience: ReusableTimeout | None = None
    """How long it waits for its model; there once it has asked."""

    # ------------------------------------------------------------------ beginning

    def open_conversation(
        self, messages: Sequence[Message], wanted: OutputTracker | None
    ) -> None:
        """Begin with these messages, and with the form that the answer must have."""
        self.progress.messages = list(messages)
        self.first_answer = len(messages)
        self.wanted = wanted

    def follow(self, earlier: Earlier) -> None:
        """Take part in a conversation after these rounds of it."""
        self.round = earlier.rounds + 1
        self.earlier = len(earlier.messages)
        self.progress.turn = earlier.turns
        self.take_trust(earlier.trust)
        self.progress.reads_on = any(
            isinstance(message, ToolMessage) and message.result.handle
            for message in earlier.messages
        )
        if not earlier.is_stored:
            # Another process may count turns of this run too; see `Engine.open_run`.
            prefix = f"{self.id}/{token_hex(4)}"
            self.settings = replace(self.settings, key_prefix=prefix)
        if self.window is not None:
            self._learn_scale(self.window, earlier.messages)

    def note_resumed_by(self, person: str) -> None:
        """Note who resumes it, unless it acts for them."""
        self.resumed_by = "" if person == self.principal else person

    def take_trust(self, trust: Trust) -> None:
        """Go on as a run that has read what this says."""
        self.progress.trust = trust
        self.settings = replace(self.settings, trust=trust)

    def _learn_scale(self, window: Window, messages: Sequence[Message]) -> None:
        """Learn from the last answer of an earlier round how many tokens this text has."""
        for position in range(len(messages) - 1, -1, -1):
            message = messages[position]
            if isinstance(message, AssistantMessage):
                window.size(messages[:position])
                window.learn_scale(message.turn.usage.input_tokens)
                return

    def attach_journal(
        self,
        stored: StoredRun,
        *,
        now: Callable[[], float],
        replaying: bool,
        as_texts: bool = False,
    ) -> None:
        """Continue along a journal, as if no time had passed since its last step in this round.

        Args:
            as_texts: See `JournalCursor`.
        """
        if self.progress.turn:
            last = self.progress.turn
            steps = [step for step in stored.steps if step.turn > last]
            stored = replace(stored, steps=steps)
        self.started = now() - working_time_s(stored.steps)
        deadline = Deadline.within(self.budget.time_s, self.started)
        self.settings = replace(
            self.settings, deadline=deadline, epoch=stored.record.epoch
        )
        if stored.record.cancel_requested and not replaying:
            # the process that was to cancel it died before it did
            self.cancelled = True
        self.recording = JournalCursor(
            stored,
            # with `spent` in place of the run itself, which would then hold itself
            partial(_working_s, now, self.started, self.progress.spent),
            replaying=replaying,
            as_texts=as_texts,
        )
        if not replaying:
            self._drive(_driver_of(stored.record))

    def begin_driving(self) -> None:
        """Note that this process is about to take the run over: until the store has answered, by its name alone."""
        self._drive((owner(), self.id))

    def _drive(self, driving: tuple[Any, ...]) -> None:
        _driven_here.add(driving)
        _driven_here.discard(self.driving)
        self.driving = driving

    def stop_driving(self) -> None:
        """Note that this process carries the run out no longer."""
        _driven_here.discard(self.driving)

    def let_pass(self, types: tuple[type[Exception], ...]) -> None:
        """Give exceptions of these types that a tool raises to the caller of its call."""
        self.passes = types

    def note_passed(self, error: Exception) -> None:
        """Keep an exception for the caller; the first one counts."""
        self.passed = self.passed or error

    def take_words(self, given: Mapping[str, Approval]) -> None:
        """Take what people have said of its calls elsewhere, by the id of the call."""
        self.words = Words(given)

    def apply_folds(self, turn: int) -> bool:
        """Let those results become handles that did so before this turn; return whether the journal has any."""
        if self.recording is None or not self.recording.has_folds:
            return False
        folds = self.recording.folds(turn)
        if not folds:
            return False
        rounds.apply_folds(self.progress.messages, folds)
        self.progress.reads_on = True
        return True

    @property
    def reads_on(self) -> bool:
        """Whether the model is offered `read_result`: from the first turn where a store keeps results.

        A tool that comes later would change what every request begins with, which the provider's cache compares.
        """
        return self.progress.reads_on or self.recording is not None

    def keep_boundaries(self, secret: str) -> None:
        """Mark results as before, where they were marked and still are: a provider's cache, and a replay, then fit."""
        if self.options.boundaries and secret:
            self.boundaries = Boundaries(secret)

    @property
    def is_recorded(self) -> bool:
        """Whether a store keeps it: a replay is not recorded."""
        return self.recording is not None and not self.recording.replaying

    @property
    def keeps_under(self) -> str:
        """The name under which its long results are stored; calls of no run share one, since each ends at once."""
        return self.id if self.settings.keeps else ""

    @property
    def answers(self) -> Sequence[Message]:
        """The messages after the question."""
        return self.progress.messages[self.first_answer :]

    # ------------------------------------------------------------------ ending

    def mark_cancelled(self) -> None:
        """Let the run end at its next step."""
        self.cancelled = True

    def cancel(self) -> None:
        """End whatever is under way, and the run at its next step; from any thread."""
        self.cancelled = True
        for stop in list(self.stops):
            stop()

    def cancel_if_wished(self, answer: Future[bool]) -> None:
        """Cancel if the store's answer says that somebody has asked for the run's end; from any thread."""
        failed = answer.cancelled() or answer.exception() is not None
        if not failed and answer.result():
            self.cancel()

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
    def has_observers(self) -> bool:
        """Whether its events go anywhere: to observers or into the audit log."""
        return bool(self.observers) or self.trail is not None

    def tell(self, event: Event) -> None:
        """Give an event to every observer, and to the audit log."""
        tell_all(self.observers, self.id, event)
        if self.trail is not None:
            self.trail.note_event(event)

    def list_unsettled(self) -> list[Future[bool]]:
        """Return the answers to settlements that are still to come."""
        if self.unsettled:
            self.unsettled = [each for each in self.unsettled if not each.done()]
        return self.unsettled

    def send_records(self) -> None:
        """Send the audit log what has been noted for it."""
        if self.trail is not None:
            self.trail.send()


class CancelWatch:
    """Asks a store again and again which of its runs to end, as long as one is under way.

    Another process may have been told to end them. One question serves all runs of a deployment.

    Args:
        store: Keeps the runs of all tenants.
        live: The runs under way, by their names in the store.
    """

    def __init__(self, store: SubmittedRunStore, live: Mapping[str, ActiveRun]) -> None:
        self._store = store
        self._live = live
        self._loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        """The event loops with a timer for the next question."""
        self._answer: StoreAnswer[None] = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to ask on a running event loop. Safe to call from any thread."""
        if loop not in self._loops:
            self._loops.add(loop)
            loop.call_soon_threadsafe(self._set_timer, loop, context=Context())

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(CANCEL_LOOK_S, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        # Before the look at the runs: a thread that adds one sets a new timer, or its run is seen here.
        self._loops.discard(loop)
        if self._live:
            self.begin(loop)
            self._ask(loop)

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        runs = {name: run for name, run in [*self._live.items()] if run.is_recorded}
        is_asking = isinstance(self._answer, Future) and not self._answer.done()
        if is_asking or not runs:
            return
        try:
            cancelled = self._store.list_cancelled(list(runs))
        except Exception as error:
            # a driver's own errors too: each run learns by itself that its store is away
            logs.log.debug("the store does not say which runs to end: %s", error)
        else:
            # only these: a run that was resumed meanwhile is not to end
            self._answer = then(cancelled, partial(_cancel_soon, loop, runs))


def _cancel_soon(
    loop: asyncio.AbstractEventLoop,
    runs: Mapping[str, ActiveRun],
    cancelled: Sequence[str],
) -> None:
    """Cancel runs on the event loop: what their tools have started is cancelled by the store, which calls this."""
    with suppress(RuntimeError):  # the loop has ended, and its runs with it
        for name in cancelled:
            loop.call_soon_threadsafe(runs[name].cancel)


class ListenerAdapter(Struct):
    """Passes what a model's transport reports to the observers of the run."""

    active: ActiveRun

    def delta(self, delta: Delta) -> None:
        """Pass on a piece of the answer."""
        tell_all(self.active.observers, self.active.id, Streamed(delta))

    def exchange(self, exchange: HttpExchange) -> None:
        """Pass on a request and its answer."""
        tell_all(self.active.observers, self.active.id, exchange)


async def wait_until_audited(
    observer: AuditObserver, within_s: float
) -> Exception | None:
    """Wait until the audit log has all records of a run so far; those that it did not take are offered again.

    Returns:
        The reason if it did not take them; None if it did.
    """
    try:
        await asyncio.wait_for(_record_all(observer), within_s)
    except Exception as error:
        # a driver's own errors too: whatever it raises, assume that nothing was written
        return error
    return None


async def _record_all(observer: AuditObserver) -> None:
    await wait_for(observer.flush())
    # the log may take what came last and not what came before
    while observer.has_untaken:
        await wait_for(observer.flush())


def tell_all(observers: Sequence[Observer], run_id: str, event: Event) -> None:
    """Give an event of a run to each observer; one that raises is logged and costs nothing."""
    force_setattr(event, "run_id", run_id)
    for observer in observers:
        try:
            answer: object = observer(event)
            if answer is not None and iscoroutine(answer):
                answer.close()
                logs.log.warning(
                    "an observer gave a coroutine for %s, and nobody awaits it",
                    type(event).__name__,
                )
        except BaseException as error:  # one that only looks on must not cost a result
            logs.log_exception(
                f"an observer raised on {type(event).__name__}; the run goes on",
                wrap_error(error).error,
            )


def find_tracer(observers: Sequence[Observer]) -> Tracer | None:
    """Return the first observer that observes each run by an object of its own."""
    for observer in observers:
        if hasattr(observer, "trace_run"):
            return cast(Tracer, observer)
    return None


OTEL_VARIABLE = "HANDRAIL_OTEL"
"""The environment variable that, set to `true`, gives every runtime of a process OpenTelemetry's traces."""


def observers_by_environment(given: Sequence[Observer]) -> Sequence[Observer]:
    """Return the observers that the environment asks for, beside those that the code gives.

    Raises:
        ConfigError: It asks for traces, and OpenTelemetry is not installed.
    """
    wanted = environ.get(OTEL_VARIABLE, "").strip().lower() in ("true", "1")
    if not wanted or find_tracer(given) is not None:
        return ()
    return (plugins.load("observers", "otel")(),)


def cancelled(active: ActiveRun) -> Ending:
    """Return the ending of a run that was cancelled."""
    return Ending(
        "cancelled", "the run was cancelled", last_text(active.progress.messages)
    )


def ending_by(error: ModelError, active: ActiveRun) -> Ending:
    """Return the ending of a run whose model could not be asked."""
    if active.cancelled:
        return cancelled(active)
    status: Status = "budget" if error.code == OUT_OF_TIME else "failed"
    return Ending(status, str(error), last_text(active.progress.messages))
