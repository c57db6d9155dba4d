"""Carries the calls of one turn: performs what they ask for, and answers as things end.

`BatchExecutor.perform` is the whole of it: one effect in, one answer out, now or later. `attempts` watches over tools
that are running; what differs between drivers is the `Scheduler` (see `scheduler`).

Rule 1: everything here happens in the ground's own thread; other threads only `post`. What reports when the ground is
        left (`SyncRuntime.call` has returned, the event loop is closed) is recorded in the thread that reports it.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from functools import partial
from threading import Event as Flag
from time import monotonic
from typing import Any, cast

from msgspec import Struct

from handrail import logs
from handrail.context import Context
from handrail.core import retries
from handrail.core.batch import Batch, CallState
from handrail.core.execution import Admitted
from handrail.effects import (
    Approval,
    AskHuman,
    CallCancelled,
    Claim,
    Effect,
    End,
    Invoke,
    Keep,
    LookUp,
    Outcome,
    Raised,
    Reserve,
    Returned,
    Settle,
    Unfinished,
    Unknown,
    Verify,
    Wait,
)
from handrail.engine import late_results, scheduler
from handrail.engine.active_run import ActiveRun, AuditObserver
from handrail.engine.attempts import Attempt, Attempts, is_awaitable
from handrail.engine.engine import Engine
from handrail.engine.leases import BEAT_S, Lease
from handrail.engine.nested_runs import Nested
from handrail.engine.scheduler import AsyncWork, Handle, Scheduler
from handrail.errors import Code, Failure, HeldBack, NoEffect, StoreUnavailable
from handrail.events import ApprovalAsked, ApprovalGiven, AttemptStarted, Progressed
from handrail.ports import LeaseStore
from handrail.tools.tool import BaseTool

# A store that answers later than this does not answer. Its own time limits are shorter, so that they are told instead.
STORE_S = 60.0


class PendingEffect(Struct, eq=False):
    """What a lane waits for. An answer is heeded while the lane waits for that very thing, else it comes too late."""

    effect: Effect
    stop: Handle | None = None


class BatchExecutor:
    """Carries one batch: begins what it asks for and answers as things end.

    Everything happens in the ground's thread; effects that take no time are answered on the spot.
    """

    def __init__(self, host: Engine, ground: Scheduler, session: ActiveRun, batch: Batch, *, runtime: Any) -> None:
        self.host, self.ground, self.session, self.batch = host, ground, session, batch
        self.runtime = runtime
        """The `Runtime` or `SyncRuntime` that drives the batch, for tools that start runs."""
        self.error: Exception | None = None
        self.reserving: set[CallState] = set()
        """Those that hold resources or stand in line for them, perhaps no longer."""
        self.waits: dict[CallState, PendingEffect] = {}
        self.leases: dict[CallState, Lease] = {}
        self.asked_at: dict[CallState, float] = {}
        self.latest: dict[CallState, int] = {}
        self.progress: deque[tuple[CallState, Progressed]] = deque()
        """Progress of tools that observers have not seen yet."""
        self.timers: list[Handle] = []
        self.unanswered: deque[tuple[float, CallState, PendingEffect]] = deque()
        """What the store was asked, perhaps answered by now, and when it is said not to answer."""
        self.beat: Handle | None = None
        self.when_over: Callable[[], Any] | None = None
        """What is called once every call has its result; set by whoever has to wait for it."""
        self.pumping = self.cancelled = False
        self.troubled = host.services.limits.troubled
        self.attempts = Attempts(
            session.id, host.services, ground, host.now, self.troubled, session.settings.secrets
        )  # fmt: skip
        self.people_asked, self.waited_until = 0, 0.0

    @property
    def over(self) -> bool:
        """Whether every call has its result, or carrying them has failed."""
        return self.batch.left == 0 or self.error is not None

    def pump(self) -> None:
        """Perform everything that the batch asks for, until it waits or is done."""
        if self.pumping:
            return  # an answer given on the spot: the loop below goes on with it
        self.pumping = True
        try:
            todo = self.batch.todo
            while todo and self.error is None:
                lane, effect = todo.popleft()
                if type(effect) is Invoke and not self.cancelled:
                    self.invoke(lane, effect)
                else:
                    self.perform(lane, effect)
            self.attempts.nothing_more_now()
        except Exception as error:
            self.fail(error)
        finally:
            self.pumping = False
        if self.over:
            self.leave()

    def leave(self) -> None:
        """Every call has its result: stop what would still ring, and say so."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        self.attempts.silence()
        if self.beat is not None:
            self.beat.cancel()
        if self.when_over is not None:
            self.when_over()

    def perform(self, lane: CallState, effect: Effect) -> None:
        """Do what a lane asks for, and answer it now or later."""
        if self.cancelled and not isinstance(effect, Settle | Keep):
            self.cut_short(lane, effect)
            return
        match effect:
            case Claim():
                # Counted from the question, not from the answer: a process may be frozen between the two.
                self.asked_at[lane] = monotonic()
                self.ask_store(lane, effect, self.host.unrecorded.claim, effect)
            case LookUp(claim=claim):
                assert self.host.looks_up is not None  # else no call asks for it
                self.ask_store(lane, effect, self.host.unrecorded.look_up, self.host.looks_up, claim)
            case Settle():
                self.ask_store(lane, effect, self.host.store.settle, effect)
            case Keep(text=text):
                self.ask_store(lane, effect, self.host.store.keep, self.session.id, text)
            case Reserve():
                self.reserve(lane, effect)
            case Wait(seconds=seconds):
                waiting = self.wait(lane, effect)
                waiting.stop = self.ground.later(seconds, self.waited, lane, waiting, None)
            case AskHuman():
                self.ask_human(lane, effect)
            case Verify():
                self.verify(lane, effect)

    def answer(self, lane: CallState, answer: Any) -> None:
        """Give a lane its answer and go on with whatever follows from it."""
        if self.progress:
            self.tell_progress()  # observers see a tool's last step before its end, even if both arrive at once
        try:
            self.batch.answer(lane, answer)
        except Exception as error:
            self.fail(error)
        if self.reserving or not self.pumping:
            self.went_on(lane)

    def throw(self, lane: CallState, error: Exception) -> None:
        """Answer a lane with an exception that its life knows."""
        try:
            self.batch.throw(lane, error)
        except Exception as fault:
            self.fail(fault)
        self.went_on(lane)

    def went_on(self, lane: CallState) -> None:
        """Let go of what a call held if it is over, and perform what is to be done next."""
        if lane in self.reserving and self.batch.results[lane.index] is not None:
            self.let_resources_go(lane)
        if not self.pumping:  # else the loop that performs goes on with it
            self.pump()

    def let_resources_go(self, lane: CallState) -> None:
        """Let the next call have what this one held. A write that still runs holds it until it reports."""
        runs_on = lane_tool(lane).writes and any(attempt.lane is lane for attempt in list(self.host.services.given_up))
        if not runs_on:
            self.host.services.release(lane)

    def fail(self, error: Exception) -> None:
        """End the batch by a fault of ours or of a plug-in: better a raised error than a run that never ends."""
        self.error = self.error or error
        for waiting in self.waits.values():
            if waiting.stop is not None:
                waiting.stop.cancel()
        self.waits.clear()
        self.attempts.abandon()
        for lane in self.reserving:
            self.let_resources_go(lane)

    # ------------------------------------------------------------------ waiting

    def wait(self, lane: CallState, effect: Effect) -> PendingEffect:
        """Note that a lane waits for the answer to an effect."""
        waiting = self.waits[lane] = PendingEffect(effect)
        return waiting

    def came(self, lane: CallState, waiting: PendingEffect) -> bool:
        """Whether the lane still waits for this, and from now on no longer does."""
        if self.waits.get(lane) is not waiting:
            return False
        del self.waits[lane]
        return True

    def waited(self, lane: CallState, waiting: PendingEffect, answer: Any) -> None:
        """The answer that a lane waited for is there."""
        waiting.stop = None  # the timer that has rung holds this; no circle outlives the call
        if self.came(lane, waiting):
            self.answer(lane, answer)

    def begin(
        self, lane: CallState, effect: Effect, work: Callable[[], Awaitable[Any]], then: Callable[[Any], Any]
    ) -> None:
        """Let a coroutine find something out, and go on with it unless the lane is cancelled meanwhile."""
        waiting = self.wait(lane, effect)

        def ended(_: AsyncWork, outcome: Outcome) -> None:
            waiting.stop = None  # the work holds this function
            if not self.came(lane, waiting):
                return
            match outcome:
                case Returned(value=found):
                    then(found)
                case Raised(error=error):
                    self.fail(error)
                    self.went_on(lane)
                case Unfinished():  # by somebody else: an event loop that shuts down
                    self.cut_short(lane, effect)

        waiting.stop = begun = AsyncWork(work, ended)
        scheduler.start(self.ground, begun)

    def ask_human(self, lane: CallState, effect: AskHuman) -> None:
        """Ask the approver. What people take does not count against the run's time, and holds up nobody."""
        if lane in self.reserving:
            self.let_resources_go(lane)
        self.session.tell(ApprovalAsked(effect.call, effect.arguments, effect.risk, effect.reason))
        if not self.people_asked:
            self.waited_until = self.host.now()
        self.people_asked += 1
        asked_at = self.host.now()

        def answered(answer: Approval | StoreUnavailable | None) -> None:
            lane.since += self.host.now() - asked_at
            self.people_asked -= 1
            self.count_wait()
            if isinstance(answer, StoreUnavailable):
                self.throw(lane, answer)
                return
            self.session.tell(ApprovalGiven(effect.call, answer))
            self.answer(lane, answer)

        self.begin(lane, effect, partial(self.host.approvals.word_on, self.session, effect), answered)

    def count_wait(self) -> None:
        """Put off the run's end by what people took since it was last put off; two asked at once take it once."""
        waited_s = self.host.now() - self.waited_until
        self.waited_until += waited_s
        self.session.postpone_deadline(waited_s)

    def verify(self, lane: CallState, effect: Verify) -> None:
        """Ask the tool whether its write has happened."""
        tool, admitted = lane_tool(lane), lane.admitted
        assert admitted is not None
        context = self.context(lane, 0, tool.timeout_s, Flag())
        work = partial(self.host.services.verify, tool, admitted.arguments, context)
        self.begin(lane, effect, work, partial(self.answer, lane))

    def reserve(self, lane: CallState, effect: Reserve) -> None:
        """Stand in line for resources, at most until the run's time is over."""
        waiting = self.wait(lane, effect)
        turn = partial(self.ground.post, self.reserved, lane, waiting)
        if effect.resources:
            self.reserving.add(lane)
        if not effect.resources or self.host.services.reserve(lane, effect.resources, turn):
            self.keep_pace(lane, waiting)
        else:
            self.stand_in_line(lane, waiting)

    def stand_in_line(self, lane: CallState, waiting: PendingEffect) -> None:
        """Wait for the run's end, which moves while people are asked."""
        if self.people_asked:
            self.count_wait()
        left_s = self.session.settings.deadline.at - self.host.now()
        if left_s <= 0:
            self.waited(lane, waiting, False)
        elif left_s != float("inf"):
            waiting.stop = self.ground.later(left_s, self.stand_in_line, lane, waiting)

    def reserved(self, lane: CallState, waiting: PendingEffect) -> None:
        """It is this lane's turn."""
        if waiting.stop is not None:
            waiting.stop.cancel()
        if self.waits.get(lane) is waiting:
            self.keep_pace(lane, waiting)

    def keep_pace(self, lane: CallState, waiting: PendingEffect) -> None:
        """Let the call go when its tool's rate does, or say why it does not in time."""
        tool, now = lane_tool(lane), self.host.now()
        if tool.pace is None:
            self.waited(lane, waiting, True)
            return
        key = tool.rate_key_of(cast(Admitted, lane.admitted).arguments)
        most_s = min(tool.timeout_s, self.session.settings.deadline.at - now)
        wait_s = self.host.services.limits.wait_s(tool.name, key, tool.pace, now, most_s)
        if isinstance(wait_s, Failure):
            self.waited(lane, waiting, wait_s)
        elif wait_s > 0:
            waiting.stop = self.ground.later(wait_s, self.waited, lane, waiting, True)
        else:
            self.waited(lane, waiting, True)

    def ask_store(self, lane: CallState, effect: Effect, ask: Callable[..., Any], *args: Any) -> None:
        """Ask the store; answer at once when it does."""
        try:
            answer = ask(*args)
        except Exception as error:  # a driver's own errors too: whatever it raises, the store did not answer
            self.not_stored(lane, effect, silent(error))
            return
        if isinstance(answer, ThreadFuture):
            waiting = self.wait(lane, effect)
            answer.add_done_callback(lambda done: self.ground.post(self.stored, lane, waiting, done))
            if not answer.done():
                self.unanswered.append((monotonic() + STORE_S, lane, waiting))
                if len(self.unanswered) == 1:  # one timer for all that is asked: most are answered at once
                    self.timers.append(self.ground.later(STORE_S, self.look_for_silence))
        else:
            self.recorded(lane, effect, answer)
            self.answer(lane, answer)

    def stored(self, lane: CallState, waiting: PendingEffect, done: ThreadFuture[Any]) -> None:
        """The store has answered."""
        if not self.came(lane, waiting):
            return
        if waiting.stop is not None:
            waiting.stop.cancel()
        try:
            answer = done.result()
        except Exception as error:
            self.not_stored(lane, waiting.effect, silent(error))
        else:
            self.recorded(lane, waiting.effect, answer)
            self.answer(lane, answer)

    def not_stored(self, lane: CallState, effect: Effect, error: StoreUnavailable) -> None:
        """Throw that the store has not answered; keep the end of a write until it does."""
        if isinstance(effect, Settle):
            refused = partial(late_results.tell_refused, self.session, lane, effect)
            self.host.unrecorded.settle(effect, self.leases[lane].claim, refused)
        self.throw(lane, error)

    def look_for_silence(self) -> None:
        """It is time to see whether the store has answered."""
        while self.unanswered:
            until, lane, waiting = self.unanswered[0]
            if self.waits.get(lane) is waiting and (left_s := until - monotonic()) > 0:
                self.timers.append(self.ground.later(left_s, self.look_for_silence))
                break
            self.unanswered.popleft()
            self.store_is_silent(lane, waiting)

    def store_is_silent(self, lane: CallState, waiting: PendingEffect) -> None:
        """The store does not answer. A claim that it takes after all is nobody's, in doubt when its lease is over."""
        if self.came(lane, waiting):
            self.not_stored(lane, waiting.effect, StoreUnavailable(f"it did not answer within {STORE_S:g} s"))

    def recorded(self, lane: CallState, effect: Effect, answer: Any) -> None:
        """The store has recorded something: remember a claim, and tell of a settlement that met no row."""
        if isinstance(effect, Settle) and answer is False:
            late_results.tell_refused(self.session, lane, effect)
        elif isinstance(effect, Claim):
            name = f"{lane.call.name!r} in run {self.session.id}"
            self.leases[lane] = Lease(effect, answer, self.asked_at[lane], name)
            if self.beat is None and self.host.leases is not None:
                self.beat = self.ground.later(BEAT_S, self.keep_leases, self.host.leases)

    def keep_leases(self, store: LeaseStore) -> None:
        """Renew the leases of writes that are still under way."""
        self.beat = self.ground.later(BEAT_S, self.keep_leases, store)
        for lane, lease in self.leases.items():
            if self.batch.results[lane.index] is None:
                lease.renew(store)

    # ------------------------------------------------------------------ tools

    def invoke(self, lane: CallState, effect: Invoke, *, is_recorded: bool = False) -> None:
        """Start the tool, in a task or a thread, with a timer at its side.

        Args:
            is_recorded: The audit log has recorded the call's admission.
        """
        admitted = lane.admitted
        assert admitted is not None
        tool = admitted.tool
        if tool.at_hand and effect.timeout_s > 0 and not (self.troubled or self.session.observers):
            self.attempts.make(self, lane, tool, effect, tool.ready(admitted.bound, None, {}), None)
            return
        if effect.timeout_s <= 0 or (tool.writes and self.leases[lane].over):
            self.answer(lane, Unfinished(End.NOT_STARTED))
            return
        is_grave = admitted.verdict.risk == "high" and tool.writes
        if is_grave and not is_recorded and (trail := self.session.trail):
            self.record_first(lane, effect, trail)
            return
        if tool.opens and not self.host.services.is_open(tool):
            self.open_first(lane, effect)
            return
        if tool.name in self.troubled and (held := self.host.services.limits.rests(tool.name, self.host.now())):
            error = HeldBack(held.code, held.message, suggestion=held.suggestion, retryable=held.retryable)
            self.answer(lane, Raised(error))
            return
        if self.session.observers:
            self.session.tell(AttemptStarted(lane.call, effect.attempt))
        flag = context = None
        if tool.hidden:
            flag = Flag()
            context = self.context(lane, effect.attempt, effect.timeout_s, flag)
        if tool.writes:
            self.latest[lane] = effect.attempt
        start = tool.ready(admitted.bound, context, self.session.injected)
        if self.session.recording is not None and tool.isolation == "none":
            start = self.nested(lane, effect.timeout_s).around(start, is_async=tool.is_async)
        self.attempts.make(self, lane, tool, effect, start, flag)

    def nested(self, lane: CallState, timeout_s: float) -> Nested:
        """Return what starts runs for a call."""
        return Nested(self.runtime, self.session, self.batch.place_of(lane), monotonic() + timeout_s, self.ground.loop)

    def context(self, lane: CallState, attempt: int, timeout_s: float, flag: Flag) -> Context[Any]:
        """Return what the tool may know about this attempt."""
        report = partial(self.heard, lane, flag) if self.session.observers or lane in self.leases else None
        context = self.host.context(self.session, lane, self.leases.get(lane), attempt, timeout_s, flag, report)
        context.nested = self.nested(lane, timeout_s)
        return context

    def heard(self, lane: CallState, flag: Flag, done: float, total: float | None, note: str) -> None:
        """A tool says that it gets on, in its own thread: its lease runs anew even while it blocks the ground's."""
        if (lease := self.leases.get(lane)) and lane in self.attempts.under_way and self.host.leases is not None:
            lease.renew(self.host.leases)
        if self.session.observers and not flag.is_set():
            self.progress.append((lane, Progressed(lane.call, done, total, note)))
            self.ground.post(self.tell_progress)

    def tell_progress(self) -> None:
        """Tell observers the progress of tools, except of calls that have their result."""
        with suppress(IndexError):  # once the ground is left, this thread and a tool's may empty the queue at once
            while True:
                lane, event = self.progress.popleft()
                if self.batch.results[lane.index] is None:
                    self.session.tell(event)

    def open_first(self, lane: CallState, effect: Invoke) -> None:
        """Open a tool before its first call; what goes wrong there fails the call, certainly without effect."""

        def opened(failed: Raised | None) -> None:
            if failed is not None:
                self.answer(lane, not_opened(lane_tool(lane), failed))
            else:
                self.invoke(lane, effect, is_recorded=True)
                self.pump()

        self.begin(lane, effect, partial(self.host.services.open, lane_tool(lane)), opened)

    def record_first(self, lane: CallState, effect: Invoke, trail: AuditObserver) -> None:
        """Start a write of high risk once the audit log has recorded its admission, or not at all.

        The records went to the store before the claim. If one store keeps both, they are in the claim's commit or an
        earlier one, and there is no wait here.
        """

        def recorded(failure: Exception | None) -> None:
            if failure is not None:
                self.answer(lane, not_recorded(lane_tool(lane), failure))
            else:
                self.invoke(lane, effect, is_recorded=True)
                self.pump()

        self.begin(lane, effect, partial(trail.written, effect.timeout_s), recorded)

    def reported_late(self, attempt: Attempt, outcome: Outcome) -> None:
        """A tool that had been given up has ended after all: settle its claim with the truth, and tell it."""
        lane = attempt.lane
        if is_awaitable(outcome):  # a plain function that returned a coroutine: what is in it will not happen
            if inspect.iscoroutine(outcome.value):
                outcome.value.close()
            outcome = Unfinished(End.STOPPED, attempt.by_cancel)
        newest = self.latest.get(lane) == attempt.number
        host = self.host
        held = self.leases.get(lane)
        late_results.record(host.store, host.unrecorded, self.session, lane, held, outcome, newest=newest)
        if lane in self.reserving and (self.error is not None or self.batch.results[lane.index] is not None):
            self.let_resources_go(lane)
        late_results.tell(self.session, lane, outcome)

    # ------------------------------------------------------------------ cancelling

    def cancel(self, hard: bool = False) -> None:
        """End every call: what waits at once, reads at once, a write under way at its deadline (at once if `hard`).

        What a store was asked is waited for: it answers soon, and its answer is the truth.
        """
        self.cancelled = True
        self.batch.cancel_unstarted()
        for lane, waiting in list(self.waits.items()):
            if not isinstance(waiting.effect, LookUp | Claim | Settle | Keep) and self.came(lane, waiting):
                if waiting.stop is not None:
                    waiting.stop.cancel()
                self.cut_short(lane, waiting.effect)
        self.attempts.cancel(hard)
        self.pump()

    def cut_short(self, lane: CallState, effect: Effect) -> None:
        """Answer an effect that is not performed, or not to its end, because the run was cancelled."""
        match effect:
            case Invoke():
                self.answer(lane, Unfinished(End.NOT_STARTED, cancelled=True))
            case Verify():
                self.answer(lane, Unknown())
            case _:
                self.throw(lane, CallCancelled())


def lane_tool(lane: CallState) -> BaseTool:
    """Return the tool of a lane that was admitted."""
    assert lane.admitted is not None
    return lane.admitted.tool


def silent(error: Exception) -> StoreUnavailable:
    """Return what a life knows of a store that did not answer. Why it did not is for the log."""
    if isinstance(error, StoreUnavailable):
        return error
    logs.raised("the store raised instead of answering", error)
    return StoreUnavailable(type(error).__name__)


def not_recorded(tool: BaseTool, failure: Exception) -> Raised:
    """Return the outcome of a write of high risk whose admission the audit log could not record."""
    error = NoEffect(
        Code.UNAVAILABLE,
        f"`{tool.name}` was not started: its risk is high, and the audit log takes no record of it.",
        suggestion="Go on without it, or tell the user that the audit log cannot be written.",
        retryable=True,
    )
    error.__cause__ = failure
    return Raised(error)


def not_opened(tool: BaseTool, failed: Raised) -> Raised:
    """Return how a call ends whose tool could not be opened; the next call tries again."""
    error = NoEffect(
        Code.UNAVAILABLE,
        f"`{tool.name}` is not ready: what it needs could not be opened.",
        suggestion="Go on without it, or try again later.",
        retryable=retries.diagnose(failed, tool.name, tool.timeout_s).passing,
    )
    error.__cause__ = failed.error
    return Raised(error)
