"""Carries out the calls of one turn: performs the effects that they yield, and answers each when it has ended.

`BatchExecutor.perform` is the whole of it: one effect in, one answer out, now or later. `attempts` watches over tools
that are running; what differs between drivers is the `Scheduler` (see `scheduler`).

Rule 1: everything here happens in the scheduler's own thread; other threads only `call_soon_threadsafe`. A report
        that comes after the scheduler has ended (`SyncRuntime.call` has returned, the event loop is closed) is recorded
        in the thread that reports it.
Rule 2: an effect says what it is for. Nothing here looks into the generator that has yielded it.
Rule 3: all code of tools and observers finds the caller's context variables. What a timer, a thread, a task or the
        store brings back goes on `within` them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import copy_context
from functools import partial
from threading import Event as Flag
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from handrail import logs
from handrail.audit.observer import AuditObserver
from handrail.context import Context
from handrail.core import retries
from handrail.core.admission import LONGEST_ADMISSION_S, Admitted, admit
from handrail.core.batch import Batch, CallState
from handrail.core.run_settings import RunSettings
from handrail.effects import (
    Admit,
    Approval,
    AskHuman,
    CallCancelled,
    Claim,
    Compute,
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
from handrail.engine.active_run import ActiveRun, tell_all, wait_until_audited
from handrail.engine.attempts import Attempt, Attempts, is_awaitable
from handrail.engine.engine import Engine, current_engine
from handrail.engine.leases import BEAT_S, Lease
from handrail.engine.nested_runs import Nested, hold_while
from handrail.engine.scheduler import AsyncWork, Handle, Scheduler, call_within
from handrail.errors import (
    Code,
    Failure,
    HeldBack,
    NoEffect,
    RunPostponed,
    StoreUnavailable,
)
from handrail.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttemptStarted,
    Event,
    Progressed,
)
from handrail.futures import StoreFuture, then, wait_for
from handrail.ports import LeaseStore
from handrail.records import ApprovalRequest
from handrail.sandboxes import levels
from handrail.surroundings.clock import monotonic
from handrail.tools.shared_limits import uncounted
from handrail.tools.tool import BaseTool
from handrail.workers.threads import ThreadTask

# A store that answers later than this does not answer. Its own time limits are shorter, so they come first.
STORE_S = 60.0
INFINITY = float("inf")
SHORTEST_POSTPONED_S = 5.0
"""A run keeps its worker during a shorter wait: a sweep could take as long to find the run again."""


class PendingEffect(Struct, eq=False):
    """What a call waits for. An answer counts while the call waits for that very thing, else it comes too late."""

    effect: Effect[Admitted]
    stop: Handle | None = None
    silent_at: float = INFINITY
    """When the store counts as silent that was asked for the answer, in monotonic seconds."""

    def cancel(self) -> None:
        """Stop the timer or the work that would answer it."""
        if self.stop is not None:
            self.stop.cancel()


class StoreQuestion(PendingEffect, eq=False, kw_only=True):
    """What a call has asked the store, and what the store calls with its answer.

    One object for both: a crowd of durable runs has thousands at once, at which Python's garbage collector looks.

    Attributes:
        asked_at: In monotonic seconds.
    """

    executor: BatchExecutor
    state: CallState
    asked_at: float

    def __call__(self, done: ThreadFuture[Any]) -> None:
        """Bring the answer to the scheduler's thread."""
        executor = self.executor
        executor.call_soon(executor.read_store_answer, self, done)


class Deciding(Struct, eq=False):
    """A decision in a thread, and the timer of its limit."""

    timer: Handle
    withdraw: Callable[[], bool]

    def cancel(self) -> None:
        """See `Handle.cancel`. Functions that have not been called yet will not be."""
        self.timer.cancel()
        self.withdraw()


class BatchExecutor:
    """Carries out one batch: begins what it asks for and answers as things end.

    Everything happens in the scheduler's thread; effects that take no time are answered on the spot.
    """

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        active: ActiveRun,
        batch: Batch,
        *,
        runtime: Any,
    ) -> None:
        self.engine = engine
        self.within: Callable[..., None] = partial(call_within, copy_context())
        """Calls a function with the context variables of the caller of this batch."""
        self.runtime = runtime
        """The `Runtime` or `SyncRuntime` that drives the batch, for tools that start runs."""
        self.scheduler = scheduler
        self.active = active
        self.batch = batch
        self.error: Exception | None = None
        self.reserving: Collection[CallState] = ()
        """Those that hold resources or stand in line for them, perhaps no longer."""
        self.waits: dict[CallState, PendingEffect] = {}
        self.leases: dict[CallState, Lease] = {}
        self.progress: list[tuple[CallState, Progressed]] | None = None
        """Progress of tools that observers have not seen yet; None before a tool has started that may report any."""
        self.silence: Handle | None = None
        """Rings when the store counts as silent. One timer for all that it was asked: most is answered at once."""
        self.beat: Handle | None = None
        self.when_over: Callable[[], Any] | None = None
        """Called once every call has its result; set by whoever has to wait for it."""
        self.is_running = False
        self.cancelled = False
        engine.services.limits.look()
        self.troubled = engine.services.limits.troubled
        self.attempts = Attempts(
            run_id=active.id,
            services=engine.services,
            scheduler=scheduler,
            now=engine.now,
            within=self.within,
            troubled=self.troubled,
            secrets=active.log_secrets,
        )
        self.surrounds = (
            active.recording is not None
            or active.settings.passes_on
            or bool(active.observers)
            or active.trail is not None
        )
        """Whether a tool's start is wrapped (see `surround`): for a journal, an engine to pass on, or observers."""
        self.people_asked = 0
        self.waited_until = 0.0

    @property
    def over(self) -> bool:
        """Whether every call has its result, or carrying them out has failed."""
        return self.batch.left == 0 or self.error is not None

    def run_until_blocked(self) -> None:
        """Perform everything that the batch asks for, until it waits or is done."""
        if self.is_running:
            return  # an answer given on the spot: the loop below goes on with it
        self.is_running = True
        try:
            todo = self.batch.todo
            while todo and self.error is None:
                state, effect = todo.popleft()
                if type(effect) is Invoke and not self.cancelled:
                    self.invoke(state, effect)
                else:
                    self.perform(state, effect)
            if self.attempts.together:
                self.attempts.stop_sharing_alarms()
        except Exception as error:
            self.fail(error)
        finally:
            self.is_running = False
        if self.active.may_be_postponed and not self.over:
            self.postpone_idle()
        if self.batch.left == 0 or self.error is not None:
            self.leave()
        elif self.leases and self.beat is None and self.engine.leases is not None:
            # Only now: a write that ends without a wait needs no renewal.
            self.beat = self.scheduler.call_rarely(
                BEAT_S, self.renew_leases, self.engine.leases
            )

    def postpone_idle(self) -> None:
        """Leave the run to a later segment if all its calls only wait for leases of earlier processes."""
        store = self.engine.leases
        if store is None or self.attempts.under_way or not self.waits:
            return
        until = min(_lease_ends(pending.effect) for pending in self.waits.values())
        wait_s = until - self.engine.now()
        if wait_s < SHORTEST_POSTPONED_S:
            return
        names = sorted({state.call.name[:100] for state in self.waits})
        for state in self.waits:
            if state in self.leases:
                self.leases[state].give_up(store)
        reason = f"an earlier process may still be carrying out {', '.join(names)}"
        self.fail(RunPostponed(reason, wait_s))

    def leave(self) -> None:
        """Every call has its result: cancel what would still ring, and report it."""
        if self.silence is not None:
            self.silence.cancel()
            self.silence = None
        if self.attempts.alarms:
            self.attempts.cancel_alarms()
        if self.beat is not None:
            self.beat.cancel()
        if self.active.trail is not None and self.active.recording is None:
            self.active.send_records()
        if self.when_over is not None:
            self.when_over()

    def perform(self, state: CallState, effect: Effect[Admitted]) -> None:
        """Do what a call asks for, and answer it now or later."""
        if self.cancelled and not isinstance(effect, Settle | Compute | Keep):
            self.cut_short(state, effect)
            return
        match effect:
            case Claim():
                self.claim(state, effect)
            case Settle():
                # a call that was told of a write, and has not claimed it, waits for the answer
                if self.active.goes_ahead and state in self.leases:
                    self.settle_ahead(state, effect)
                else:
                    self.ask_store(state, effect, self.engine.store.settle, effect)
            case Reserve():
                self.reserve(state, effect)
            case LookUp(claim=claim):
                assert self.engine.looks_up is not None  # else no call asks for it
                self.ask_store(
                    state,
                    effect,
                    self.engine.unsaved.look_up,
                    self.engine.looks_up,
                    claim,
                )
            case Compute(function=function):
                self.compute(state, effect, function)
            case Keep(text=text):
                self.ask_store(
                    state,
                    effect,
                    self.engine.store.save_result,
                    self.active.keeps_under,
                    text,
                )
            case Wait(seconds=seconds):
                pending = self.wait(state, effect)
                pending.stop = self.scheduler.call_later(
                    seconds, self.answer_pending, state, pending, None
                )
            case AskHuman():
                self.ask_human(state, effect)
            case Admit():
                self.admit(state, effect)
            case Verify():
                self.verify(state, effect)

    def answer(self, state: CallState, answer: Any) -> None:
        """Give a call its answer and go on with whatever follows from it."""
        if self.progress:
            # observers see a tool's last step before its end, even if both arrive at once
            self.tell_progress()
        try:
            self.batch.answer(state, answer)
        except Exception as error:
            self.fail(error)
        if not self.is_running or (
            self.reserving and self.batch.results[state.index] is not None
        ):
            self.resume_call(state)

    def throw(self, state: CallState, error: Exception) -> None:
        """Answer a call with an exception that its execution expects."""
        try:
            self.batch.throw(state, error)
        except Exception as fault:
            self.fail(fault)
        self.resume_call(state)

    def resume_call(self, state: CallState) -> None:
        """Let go of what a call held if it is over, and perform what is to be done next."""
        if state in self.reserving and self.batch.results[state.index] is not None:
            self.release_resources(state)
        if not self.is_running:  # else the loop that performs goes on with it
            self.run_until_blocked()

    def release_resources(self, state: CallState) -> None:
        """Let the next call have what this one held. A write that still runs holds it until it reports."""
        assert state.admitted is not None
        given_up = self.engine.services.given_up
        runs_on = (
            bool(given_up)
            and state.admitted.tool.writes
            and any(attempt.state is state for attempt in list(given_up))
        )
        if not runs_on:
            self.engine.services.release(state)

    def fail(self, error: Exception) -> None:
        """End the batch by a fault of ours or of a plug-in: better a raised error than a run that never ends."""
        self.error = self.error or error
        for pending in self.waits.values():
            pending.cancel()
        self.waits.clear()
        self.attempts.abandon()
        for state in self.reserving:
            self.release_resources(state)

    # ------------------------------------------------------------------ waiting

    def call_soon(self, then: Callable[..., Any], *args: Any) -> None:
        """Call in the scheduler's thread, with the caller's context variables; from any thread."""
        self.scheduler.call_soon_threadsafe(self.within, then, *args)

    def wait(self, state: CallState, effect: Effect[Admitted]) -> PendingEffect:
        """Note that a call waits for the answer to an effect."""
        pending = PendingEffect(effect)
        self.waits[state] = pending
        return pending

    def still_waiting(self, state: CallState, pending: PendingEffect) -> bool:
        """Whether the call waits for this, and has not been answered or cancelled meanwhile."""
        return self.waits.get(state) is pending

    def stop_waiting(self, state: CallState, pending: PendingEffect) -> bool:
        """Note that the call waits for this no longer; return False where it did not."""
        if self.waits.get(state) is not pending:
            return False
        del self.waits[state]
        return True

    def answer_pending(
        self, state: CallState, pending: PendingEffect, answer: Any
    ) -> None:
        """Answer a call unless it waits no longer."""
        # the timer that has rung holds this; no circle outlives the call
        pending.stop = None
        if self.stop_waiting(state, pending):
            self.answer(state, answer)

    def run_async(
        self,
        state: CallState,
        effect: Effect[Admitted],
        work: Callable[[], Awaitable[Any]],
        then: Callable[[Any], Any],
    ) -> None:
        """Run a coroutine for a call, and call `then` with its value unless the call is cancelled meanwhile."""
        pending = self.wait(state, effect)
        end = partial(self.end_async, state, pending, then)
        task = AsyncWork(work, partial(self.within, end))
        pending.stop = task
        scheduler.start(self.scheduler, task)

    def compute(
        self, state: CallState, effect: Compute, function: Callable[[], Any]
    ) -> None:
        """Call a function of ours in a thread, and answer with what it returns."""
        pending = self.wait(state, effect)
        answer = self.engine.services.computing_threads.call(function)
        answer.add_done_callback(
            lambda done: self.call_soon(self.take_computed, state, pending, done)
        )

    def take_computed(
        self, state: CallState, pending: PendingEffect, done: ThreadFuture[Any]
    ) -> None:
        """Answer with what the function returned; fail the batch if it raised."""
        self.start_nothing_once_left()
        if error := done.exception():
            if self.stop_waiting(state, pending):
                self.fail(cast("Exception", error))
                self.resume_call(state)
            return
        self.answer_pending(state, pending, done.result())

    def end_async(
        self,
        state: CallState,
        pending: PendingEffect,
        then: Callable[[Any], Any],
        _: AsyncWork,
        outcome: Outcome,
    ) -> None:
        """Take how the coroutine of a call ended."""
        pending.stop = None  # the work holds `pending`
        if not self.stop_waiting(state, pending):
            return
        match outcome:
            case Returned(value=value):
                then(value)
            case Raised(error=error):
                self.fail(error)
                self.resume_call(state)
            case Unfinished():  # by somebody else: an event loop that shuts down
                self.cut_short(state, pending.effect)

    # ------------------------------------------------------------------ admission

    def admit(self, state: CallState, effect: Admit) -> None:
        """Decide in a thread whether a call may run; it may not where that takes too long.

        A function that hangs keeps its thread, and what it returns in the end is ignored.
        """
        pending = self.wait(state, effect)
        events: list[Event] = []
        decisions: list[Admitted | Failure] = []
        settings = self.active.settings
        work = partial(_decide, effect, settings, events=events, decisions=decisions)
        end = partial(self.take_decision, state, pending, events, decisions)
        job = self.engine.services.deciding_threads.submit(
            work, partial(self.call_soon, end)
        )
        until = monotonic() + LONGEST_ADMISSION_S
        self.wait_for_decision(state, pending, job, decisions, until)

    def wait_for_decision(
        self,
        state: CallState,
        pending: PendingEffect,
        job: ThreadTask,
        decisions: list[Admitted | Failure],
        until: float,
    ) -> None:
        """Wait until then, or for the run's end if that is sooner, which moves while people are asked."""
        if decisions:
            return  # made in time; its report waits for this thread, which was busy
        if self.people_asked:
            self.extend_deadline()
        run_left_s = self.active.settings.deadline.at - self.engine.now()
        left_s = min(until - monotonic(), run_left_s)
        if left_s > 0:
            timer = self.scheduler.call_later(
                left_s, self.wait_for_decision, state, pending, job, decisions, until
            )
            withdraw = partial(self.engine.services.deciding_threads.withdraw, job)
            pending.stop = Deciding(timer, withdraw)
        else:
            self.refuse_undecided(state, pending, job)

    def take_decision(
        self,
        state: CallState,
        pending: PendingEffect,
        events: list[Event],
        decisions: list[Admitted | Failure],
        outcome: Returned | Raised,
    ) -> None:
        """Take whether a call may run."""
        if not self.stop_waiting(state, pending):
            return
        pending.cancel()
        self.start_nothing_once_left()
        for event in events:
            self.active.tell(event)
        if isinstance(outcome, Raised):
            self.fail(outcome.error)
            self.resume_call(state)
        else:
            self.answer(state, decisions[0])

    def refuse_undecided(
        self, state: CallState, pending: PendingEffect, job: ThreadTask
    ) -> None:
        """Refuse a call about which its tool's own functions have not decided in time."""
        if not self.stop_waiting(state, pending):
            return
        self.engine.services.deciding_threads.withdraw(job)
        name = state.call.name
        logs.log.warning(
            f"{name} was not admitted: its `check`, `approve` and `key` had not answered "
            f"after {LONGEST_ADMISSION_S:g} s, or when the time of the run was over"
        )
        failure = Failure(
            Code.TIMEOUT,
            f"`{name}` was not started now: whether it may run was not decided in time.",
            "Go on without it, or try again later.",
            retryable=True,
        )
        self.answer(state, failure)

    # ------------------------------------------------------------------ people

    def ask_human(self, state: CallState, effect: AskHuman) -> None:
        """Ask the approver. What people take does not count against the run's time, and holds up nobody."""
        if state in self.reserving:
            self.release_resources(state)
        if not effect.is_recall:
            self.active.tell(
                ApprovalAsked(effect.call, effect.arguments, effect.risk, effect.reason)
            )
        asked_at = self.engine.now()
        if not self.people_asked:
            self.waited_until = asked_at
        self.people_asked += 1
        work = partial(self.engine.approvals.decide, self.active, effect)
        self.run_async(
            state, effect, work, partial(self.take_approval, state, effect, asked_at)
        )

    def take_approval(
        self,
        state: CallState,
        effect: AskHuman,
        asked_at: float,
        approval: Approval | ApprovalRequest | StoreUnavailable | None,
    ) -> None:
        """Take what people have answered about a call; where nobody has, the open question, or None."""
        state.since += self.engine.now() - asked_at
        self.people_asked -= 1
        self.extend_deadline()
        if isinstance(approval, StoreUnavailable):
            self.throw(state, approval)
            return
        state.question = None
        if isinstance(approval, ApprovalRequest):
            state.question = approval
            approval = None
        if not effect.is_recall:
            self.active.tell(ApprovalGiven(effect.call, approval))
        self.answer(state, approval)

    def extend_deadline(self) -> None:
        """Put off the run's end by what people took since it was last put off; two asked at once take it once."""
        waited_s = self.engine.now() - self.waited_until
        self.waited_until += waited_s
        self.active.postpone_deadline(waited_s)

    # ------------------------------------------------------------------ resources and rates

    def reserve(self, state: CallState, effect: Reserve[Admitted]) -> None:
        """Stand in line for resources, at most until the run's time is over."""
        call = effect.call
        pending = PendingEffect(effect)
        if call.resources:
            self.reserving = {*self.reserving, state}
            turn = partial(self.call_soon, self.take_turn, state, pending, call)
            resources = self.engine.qualify_resources(call.resources)
            if not self.engine.services.reserve(state, resources, turn):
                self.waits[state] = pending
                self.wait_for_turn(state, pending)
                return
        if call.tool.rate_limit is None:
            self.answer(state, True)
            return
        self.waits[state] = pending
        self.keep_rate(state, pending, call)

    def wait_for_turn(self, state: CallState, pending: PendingEffect) -> None:
        """Wait for the run's end, which moves while people are asked."""
        if self.people_asked:
            self.extend_deadline()
        left_s = self.active.settings.deadline.at - self.engine.now()
        if left_s <= 0:
            self.answer_pending(state, pending, False)
        elif left_s != float("inf"):
            pending.stop = self.scheduler.call_later(
                left_s, self.wait_for_turn, state, pending
            )

    def take_turn(
        self, state: CallState, pending: PendingEffect, call: Admitted
    ) -> None:
        """The resources are this call's."""
        pending.cancel()
        if self.still_waiting(state, pending):
            self.keep_rate(state, pending, call)

    def keep_rate(
        self, state: CallState, pending: PendingEffect, call: Admitted
    ) -> None:
        """Let the call go when its tool's rate does, or say why it does not in time."""
        tool = call.tool
        if tool.rate_limit is None:
            self.answer_pending(state, pending, True)
            return
        now = self.engine.now()
        rules = tool.with_injected(self.active.injected).call_rules
        counted_for = rules.resolve_rate_key(tool.with_defaults(call.arguments))
        key = (self.engine.scope, counted_for)
        most_s = min(tool.timeout_s, self.active.settings.deadline.at - now)
        wait_s = self.engine.services.limits.wait_s(
            tool.name, key, tool.rate_limit, now=now, most_s=most_s
        )
        if isinstance(wait_s, ThreadFuture):
            work = partial(_answer_within, wait_s, uncounted(tool.name))
            effect = pending.effect
            self.run_async(state, effect, work, partial(self.keep_to, state, effect))
        else:
            self.keep_to(state, pending.effect, wait_s)

    def keep_to(
        self, state: CallState, effect: Effect[Admitted], wait_s: float | Failure
    ) -> None:
        """Let the call go after so many seconds, or say why it may not."""
        pending = self.wait(state, effect)
        if isinstance(wait_s, Failure):
            self.answer_pending(state, pending, wait_s)
        elif wait_s > 0:
            pending.stop = self.scheduler.call_later(
                wait_s, self.answer_pending, state, pending, True
            )
        else:
            self.answer_pending(state, pending, True)

    # ------------------------------------------------------------------ the store

    def ask_store(
        self,
        state: CallState,
        effect: Effect[Admitted],
        ask: Callable[..., Any],
        *args: Any,
    ) -> None:
        """Ask the store; answer at once when it does."""
        # before the question, from which a lease counts: a process may be frozen between question and answer
        asked_at = monotonic()
        try:
            answer = ask(*args)
        except Exception as error:
            # a driver's own errors too: whatever it raises, the store did not answer
            self.throw_unavailable(state, effect, late_results.store_unavailable(error))
            return
        if not isinstance(answer, ThreadFuture):
            self.take_store_answer(state, effect, answer, asked_at)
            return
        question = StoreQuestion(effect, executor=self, state=state, asked_at=asked_at)
        self.waits[state] = question
        answer.add_done_callback(question)
        if not answer.done():
            question.silent_at = asked_at + STORE_S
            if self.silence is None:
                self.silence = self.scheduler.call_rarely(
                    STORE_S, self.within, self.check_silence
                )

    def claim(self, state: CallState, effect: Claim) -> None:
        """Claim a write, once the writes that ended before it in this run are settled."""
        unsettled = self.active.list_unsettled()
        if unsettled:
            self.engine.hurry()
            work = partial(_wait_for_all, list(unsettled))
            self.run_async(
                state, effect, work, partial(self.claim_settled, state, effect)
            )
            return
        self.active.send_records()
        self.ask_store(state, effect, self.engine.unsaved.claim, effect)

    def claim_settled(self, state: CallState, effect: Claim, _: None) -> None:
        """Claim a write whose run has no other one that is not settled."""
        self.claim(state, effect)
        self.run_until_blocked()

    def settle_ahead(self, state: CallState, effect: Settle) -> None:
        """Send how a write ended; the call goes on, and whatever depends on it waits for the store's answer."""
        try:
            answer = self.engine.store.settle(replace(effect, may_wait=True))
        except Exception as error:
            # a driver's own errors too: whatever it raises, the store did not answer
            self.throw_unavailable(state, effect, late_results.store_unavailable(error))
            return
        if not isinstance(answer, ThreadFuture):
            self.take_settlement(state, effect, answer)
            return
        # Of its own: whoever waits for it and is cancelled must not cancel the settlement.
        self.active.unsettled.append(_follow(answer))
        sent = late_results.SentSettlement(
            self.active,
            state.call,
            self.leases[state].claim,
            effect,
            self.engine.unsaved,
            self.scheduler,
            self.within,
        )
        answer.add_done_callback(sent)
        self.answer(state, True)

    def read_store_answer(
        self, question: StoreQuestion, done: ThreadFuture[Any]
    ) -> None:
        """Take what the store has answered in its own thread."""
        state = question.state
        effect = question.effect
        if not self.stop_waiting(state, question):
            return
        self.start_nothing_once_left()
        try:
            answer = done.result()
        except Exception as error:
            self.throw_unavailable(state, effect, late_results.store_unavailable(error))
        else:
            self.take_store_answer(state, effect, answer, question.asked_at)

    def take_store_answer(
        self, state: CallState, effect: Effect[Admitted], answer: Any, asked_at: float
    ) -> None:
        """Remember a claim, report a settlement that met no row, and answer the call."""
        if type(effect) is Claim:
            self.leases[state] = Lease(effect, answer, asked_at, state.call.name)
        elif isinstance(effect, Settle):
            self.take_settlement(state, effect, answer)
            return
        self.answer(state, answer)

    def take_settlement(self, state: CallState, effect: Settle, answer: bool) -> None:
        """Report a settlement that met no row, and answer the call."""
        if answer is False:
            late_results.tell_refused(self.active, state.call, effect)
        self.answer(state, answer)

    def throw_unavailable(
        self, state: CallState, effect: Effect[Admitted], error: StoreUnavailable
    ) -> None:
        """Throw that the store has not answered, and log why; keep the end of a write until it does."""
        logs.log.warning(
            "the store did not take the %s of a call of %s: %s",
            type(effect).__name__.lower(),
            state.call.name[:100],
            error,
        )
        if isinstance(effect, Settle) and state in self.leases:
            refused = partial(
                self.within,
                late_results.tell_refused,
                self.active,
                state.call,
                effect,
            )
            self.engine.unsaved.settle(effect, self.leases[state].claim, refused)
        self.throw(state, error)

    def check_silence(self) -> None:
        """Throw where the store has been silent for too long, and look again when the next answer is due.

        A claim that the store takes after all is left in doubt once its lease expires.
        """
        self.silence = None
        now = monotonic()
        for state, pending in list(self.waits.items()):
            if pending.silent_at <= now and self.stop_waiting(state, pending):
                error = StoreUnavailable(f"it did not answer within {STORE_S:g} s")
                self.throw_unavailable(state, pending.effect, error)
        due = min((each.silent_at for each in self.waits.values()), default=INFINITY)
        if due < INFINITY and self.silence is None:
            left_s = max(0.0, due - monotonic())
            self.silence = self.scheduler.call_later(left_s, self.check_silence)

    def renew_leases(self, store: LeaseStore) -> None:
        """Renew the leases of writes that are still under way."""
        self.beat = self.scheduler.call_rarely(BEAT_S, self.renew_leases, store)
        for state, lease in self.leases.items():
            if self.batch.results[state.index] is None:
                lease.renew(store)

    # ------------------------------------------------------------------ tools

    def invoke(
        self, state: CallState, effect: Invoke[Admitted], *, is_recorded: bool = False
    ) -> None:
        """Start the tool, in a task or a thread, with a timer at its side.

        Args:
            is_recorded: The audit log has recorded the call's admission.
        """
        call = effect.call
        tool = call.tool
        traits = call.traits
        if effect.timeout_s <= 0 or (traits.writes and self.leases[state].over):
            self.answer(state, Unfinished(End.NOT_STARTED))
            return
        if traits.writes:
            if not self.is_entered(state, effect):
                return
            if call.verdict.risk == "high" and not is_recorded:
                trail = self.active.trail
                if trail is not None:
                    self.record_first(state, effect, trail)
                    return
        if traits.opens and not self.engine.services.is_open(tool):
            work = partial(self.engine.services.open, tool)
            self.run_async(
                state, effect, work, partial(self.invoke_opened, state, effect)
            )
            return
        if traits.name in self.troubled:
            held = self.engine.services.limits.rests(tool.name, self.engine.now())
            if isinstance(held, ThreadFuture):
                work = partial(_answer_within, held, None)
                self.run_async(
                    state, effect, work, partial(self.invoke_rested, state, effect)
                )
                return
            if held is not None:
                self.hold_back(state, held)
                return
        self.start(state, effect)

    def hold_back(self, state: CallState, held: Failure) -> None:
        """Answer a call whose tool is left alone: it was not started."""
        error = HeldBack(
            held.code,
            held.message,
            suggestion=held.suggestion,
            retryable=held.retryable,
        )
        self.answer(state, Raised(error))

    def invoke_rested(
        self, state: CallState, effect: Invoke[Admitted], held: Failure | None
    ) -> None:
        """Start a tool that was left alone, if this call is the one that may try."""
        if held is not None:
            self.hold_back(state, held)
        elif effect.call.tool.writes and self.leases[state].over:
            self.answer(state, Unfinished(End.NOT_STARTED))
        else:
            self.start(state, effect)
        self.run_until_blocked()

    def is_entered(self, state: CallState, effect: Invoke[Admitted]) -> bool:
        """Whether the store has the model's answer that asked for a write; else the write starts later, or never.

        A store answers in the order in which it is asked, so what was sent before the claim is nearly always there.
        """
        recording = self.active.recording
        if recording is None or recording.sent is None:
            return True
        if not recording.sent.done():
            work = partial(_wait_for_all, [_follow(recording.sent)])
            self.run_async(
                state, effect, work, partial(self.invoke_entered, state, effect)
            )
            return False
        if recording.sent.cancelled() or recording.sent.exception() is not None:
            # the run ends with the store's error, which its driver finds too
            self.answer(state, Unfinished(End.NOT_STARTED))
            return False
        return True

    def invoke_entered(
        self, state: CallState, effect: Invoke[Admitted], _: None
    ) -> None:
        """Start a write now that the store has answered what was sent before its claim."""
        self.invoke(state, effect)
        self.run_until_blocked()

    def start(self, state: CallState, effect: Invoke[Admitted]) -> None:
        """Start a tool that nothing holds back."""
        call = effect.call
        tool = call.tool
        traits = call.traits
        store = self.engine.leases
        if traits.writes and store is not None:
            lease = self.leases[state]
            if not lease.covers(effect.timeout_s):
                self.extend_lease(state, effect, lease, store)
                return
        flag = None
        context = None
        if traits.injects:
            flag = Flag()
            context = self.context(
                state,
                call,
                effect.attempt,
                timeout_s=effect.timeout_s,
                flag=flag,
            )
        if traits.writes:
            lease = self.leases[state]
            lease.attempt = effect.attempt
            lease.doubtful = effect.doubtful
        start = tool.bind_call(call.bound, context, self.active.injected)
        if self.surrounds:
            start = self.surround(state, effect, start)
        self.attempts.make(self, state, effect, start, flag)

    def extend_lease(
        self,
        state: CallState,
        effect: Invoke[Admitted],
        lease: Lease,
        store: LeaseStore,
    ) -> None:
        """Start a write once its lease covers all of its time: opening its tool, or looking for it, has taken some."""
        work = partial(_extend, lease, store, effect.timeout_s)
        self.run_async(state, effect, work, partial(self.invoke_leased, state, effect))

    def invoke_leased(
        self, state: CallState, effect: Invoke[Admitted], _: None
    ) -> None:
        """Start a write whose lease was extended, if it was."""
        lease = self.leases[state]
        if lease.over or not lease.covers(effect.timeout_s):
            self.answer(state, Unfinished(End.NOT_STARTED))
        else:
            self.start(state, effect)
        self.run_until_blocked()

    def surround(
        self, state: CallState, effect: Invoke[Admitted], start: partial[Any]
    ) -> partial[Any]:
        """Return a tool's start, wrapped so that nested runs find this run, and observers learn of the start."""
        active = self.active
        traits = effect.call.traits
        if active.recording is not None and not traits.is_isolated:
            start = self.nested(state, effect.timeout_s).around(
                start, is_async=traits.is_async
            )
        if active.settings.passes_on and not traits.is_isolated:
            start = hold_while(
                start, current_engine, self.engine, is_async=traits.is_async
            )
        if active.observers or active.trail is not None:
            start = self.announce(state, effect, start)
        return start

    def announce(
        self, state: CallState, effect: Invoke[Admitted], start: partial[Any]
    ) -> partial[Any]:
        """Tell observers that a tool is started; return its start, within the trace of its call if there is one."""
        active = self.active
        if active.observers:
            started = AttemptStarted(state.call, effect.attempt)
            tell_all(active.observers, active.id, started)
        if active.trail is not None:
            active.trail.note_attempt(state.call, effect.attempt)
        tool = effect.call.tool
        trace = self.active.trace
        if trace is None or tool.isolation != "none":
            return start
        return trace.around(state.call, start, is_async=tool.is_async)

    def environment(self, state: CallState) -> Mapping[str, str]:
        """See `AttemptListener.environment`."""
        trace = self.active.trace
        return {} if trace is None else trace.environment(state.call)

    def within_trace(self, state: CallState) -> AbstractContextManager[None]:
        """See `AttemptListener.within_trace`."""
        trace = self.active.trace
        return nullcontext() if trace is None else trace.within(state.call)

    def let_pass(self, tool: BaseTool, outcome: Outcome) -> Outcome:
        """See `AttemptListener.let_pass`. The exception is raised once every call of the turn has its result."""
        types = self.active.passes
        if not (types and type(outcome) is Raised and isinstance(outcome.error, types)):
            return outcome
        self.active.note_passed(outcome.error)
        if tool.write.interrupts == "before":
            return Raised(NoEffect("INTERRUPTED", f"`{tool.name}` was interrupted."))
        return Unfinished(End.STOPPED, cancelled=True)

    def nested(self, state: CallState, timeout_s: float) -> Nested:
        """Return what starts runs for a call."""
        return Nested(
            self.runtime,
            self.engine,
            self.active,
            self.batch.locate(state),
            monotonic() + timeout_s,
            self.scheduler.loop,
        )

    def context(
        self,
        state: CallState,
        call: Admitted,
        attempt: int,
        *,
        timeout_s: float,
        flag: Flag,
    ) -> Context[Any]:
        """Return what the tool may know about this attempt."""
        report = None
        if self.active.observers and self.progress is None:
            self.progress = []
        if self.active.observers or state in self.leases:
            report = partial(self.take_progress, state, flag)
        lease = self.leases.get(state)
        context = self.engine.context(
            self.active, call, lease, attempt, timeout_s, flag, report
        )
        context.nested = self.nested(state, timeout_s)
        return context

    def verify(self, state: CallState, effect: Verify[Admitted]) -> None:
        """Ask the tool whether its write has happened."""
        call = effect.call
        context = self.context(
            state, call, 0, timeout_s=call.tool.timeout_s, flag=Flag()
        )
        work = partial(self.engine.services.verify, call.tool, call.arguments, context)
        self.run_async(state, effect, work, partial(self.answer, state))

    def take_progress(
        self, state: CallState, flag: Flag, done: float, total: float | None, note: str
    ) -> None:
        """Take a tool's progress, in its own thread; its lease is renewed even while it blocks the scheduler's."""
        lease = self.leases.get(state)
        if (
            lease is not None
            and state in self.attempts.under_way
            and self.engine.leases is not None
        ):
            lease.renew(self.engine.leases)
        if self.progress is not None and not flag.is_set():
            self.progress.append((state, Progressed(state.call, done, total, note)))
            self.call_soon(self.tell_progress)

    def tell_progress(self) -> None:
        """Tell observers the progress of tools, except of calls that have their result."""
        progress = self.progress or []
        # once the scheduler is left, this thread and a tool's may empty the queue at once
        with suppress(IndexError):
            while True:
                state, event = progress.pop(0)
                if self.batch.results[state.index] is None:
                    self.active.tell(event)

    def invoke_opened(
        self, state: CallState, effect: Invoke[Admitted], error: Raised | None
    ) -> None:
        """Start a tool that was opened for its first call; an error there fails the call, certainly without effect."""
        if error is not None:
            self.answer(state, open_failure(effect.call.tool, error))
            return
        self.invoke(state, effect, is_recorded=True)
        self.run_until_blocked()

    def record_first(
        self, state: CallState, effect: Invoke[Admitted], trail: AuditObserver
    ) -> None:
        """Start a write of high risk once the audit log has recorded its admission, or not at all.

        The records went to the store before the claim. If one store keeps both, they are in the claim's commit or an
        earlier one, and there is no wait here.
        """
        work = partial(wait_until_audited, trail, effect.timeout_s)
        self.run_async(
            state, effect, work, partial(self.invoke_recorded, state, effect)
        )

    def invoke_recorded(
        self, state: CallState, effect: Invoke[Admitted], error: Exception | None
    ) -> None:
        """Start a write whose admission the audit log has recorded, or refuse it where that failed."""
        if error is not None:
            self.answer(state, record_failure(effect.call.tool, error))
            return
        self.invoke(state, effect, is_recorded=True)
        self.run_until_blocked()

    def take_late_report(self, attempt: Attempt, outcome: Outcome) -> None:
        """Settle the claim of a tool that was given up and has ended after all, with the truth, and tell it."""
        state = attempt.state
        # a plain function that returned a coroutine: what is in it will not happen
        if is_awaitable(outcome):
            if inspect.iscoroutine(outcome.value):
                outcome.value.close()
            outcome = Unfinished(End.STOPPED, attempt.by_cancel)
        engine = self.engine
        lease = self.leases.get(state)
        late_results.settle(
            engine.store,
            engine.unsaved,
            self.active,
            state,
            lease=lease,
            outcome=outcome,
            within=self.within,
            alone=lease is not None
            and lease.attempt == attempt.number
            and not lease.doubtful,
        )
        if state in self.reserving and (
            self.error is not None or self.batch.results[state.index] is not None
        ):
            self.release_resources(state)
        late_results.tell(self.active, state, outcome)

    # ------------------------------------------------------------------ cancelling

    def start_nothing_once_left(self) -> None:
        """Cancel what would start from now on, where another thread answers after the scheduler has ended."""
        if self.scheduler.is_left:
            self.cancelled = True

    def cancel(self, hard: bool = False) -> None:
        """End every call: what waits at once, reads at once, a write under way at its deadline (at once if `hard`).

        What a store was asked is waited for: it answers soon, and its answer is the truth.
        """
        self.cancelled = True
        self.batch.cancel_unstarted()
        for state, pending in list(self.waits.items()):
            if isinstance(pending.effect, LookUp | Claim | Settle | Compute | Keep):
                continue
            if self.stop_waiting(state, pending):
                pending.cancel()
                self.cut_short(state, pending.effect)
        self.attempts.cancel(hard)
        self.run_until_blocked()

    def cancel_soon(self) -> None:
        """Cancel in the scheduler's thread; from any thread."""
        self.call_soon(self.cancel)

    def cut_short(self, state: CallState, effect: Effect[Admitted]) -> None:
        """Answer an effect that is not performed, or not to its end, because the run was cancelled."""
        match effect:
            case Invoke():
                self.answer(state, Unfinished(End.NOT_STARTED, cancelled=True))
            case Verify():
                self.answer(state, Unknown())
            case _:
                self.throw(state, CallCancelled())


def _decide(
    effect: Admit,
    settings: RunSettings,
    *,
    events: list[Event],
    decisions: list[Admitted | Failure],
) -> None:
    """Add whether a call may run to `decisions`, and what observers get to `events`."""
    decisions.append(
        admit(
            effect.call,
            settings.policy,
            effect.default_key,
            events.append,
            injected=settings.injected,
            isolation=levels.SEARCH.found,
        )
    )


def _lease_ends(effect: Effect[Admitted]) -> float:
    """Return when the lease ends that a call waits for, on the run's clock; 0, a time long past, for any other wait."""
    return effect.until if isinstance(effect, Wait) else 0.0


def _follow(answer: ThreadFuture[bool]) -> ThreadFuture[bool]:
    """Return a future that ends as another one does; whoever waits for it and is cancelled does not cancel that one."""
    if isinstance(answer, StoreFuture):
        answer.start()  # nobody can cancel it from now on
        return answer
    if answer.running() or answer.done():
        return answer
    return cast("ThreadFuture[bool]", then(answer, bool))


async def _answer_within(answer: ThreadFuture[Any], otherwise: Any) -> Any:
    """Return what the store answers, or something else where it is silent for too long."""
    try:
        return await asyncio.wait_for(wait_for(answer), STORE_S)
    except TimeoutError:
        return otherwise


async def _extend(lease: Lease, store: LeaseStore, timeout_s: float) -> None:
    """Wait until the store has extended a lease, or has not for whatever reason."""
    with suppress(Exception):
        await asyncio.wait_for(wait_for(lease.extend(store, timeout_s)), STORE_S)


async def _wait_for_all(answers: Sequence[ThreadFuture[Any]]) -> None:
    """Wait until the store has answered all of these, with whatever."""
    for answer in answers:
        with suppress(Exception):
            await wait_for(answer)


def record_failure(tool: BaseTool, cause: Exception) -> Raised:
    """Return the outcome of a write of high risk whose admission the audit log could not record."""
    error = NoEffect(
        Code.UNAVAILABLE,
        f"`{tool.name}` was not started: its risk is high, and the audit log takes no record of it.",
        suggestion="Go on without it, or tell the user that the audit log cannot be written.",
        retryable=True,
    )
    error.__cause__ = cause
    return Raised(error)


def open_failure(tool: BaseTool, cause: Raised) -> Raised:
    """Return how a call ends whose tool could not be opened; the next call tries again."""
    error = NoEffect(
        Code.UNAVAILABLE,
        f"`{tool.name}` is not ready: what it needs could not be opened.",
        suggestion="Go on without it, or try again later.",
        retryable=retries.diagnose(cause, tool.name, tool.timeout_s).passing,
    )
    error.__cause__ = cause.error
    return Raised(error)
