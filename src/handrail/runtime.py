"""The asyncio driver: performs what the core asks for.

`Runtime.perform` is the whole of it: one effect in, one answer out, now or later. A tool runs in a task of its own or in
a thread, never in the caller's frame, so that a deadline can end the call even when the tool will not end.

Rule 1: a deadline tells the truth: not started, stopped, or running on; what reports late is recorded, never lost.
Rule 2: cancelling a run leaves no task behind; a write that was under way is left claimed, which is the truth.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import Future, Task, TimerHandle
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from functools import partial
from threading import Event as Flag
from typing import Any, cast

from handrail.batch import Batch, Lane
from handrail.budgets import Budget
from handrail.calls import ToolCall, ToolResult
from handrail.context import Context
from handrail.conversation import AskModel, Ending, conversation, heed_repeats
from handrail.effects import (
    Approval,
    AskHuman,
    CallCancelled,
    Claim,
    Claimed,
    Effect,
    End,
    Invoke,
    Keep,
    Outcome,
    Raised,
    Reserve,
    Resource,
    Returned,
    Settle,
    Unfinished,
    Unknown,
    Verification,
    Verify,
    Wait,
)
from handrail.errors import Json, ModelError, StoreUnavailable, ToolError
from handrail.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttemptStarted,
    Event,
    HttpExchange,
    ModelAnswered,
    ModelAsked,
    Streamed,
)
from handrail.host import (
    OUT_OF_TIME,
    Host,
    Session,
    approval_from,
    arguments_text,
    as_json,
    check_injected,
    ending_by,
    late_event,
    late_settlement,
    verification_from,
    wire_dialect,
)
from handrail.locks import Locks
from handrail.messages import Delta, Message, Options, Turn, conversation_of
from handrail.ports import Model, Observer, Request
from handrail.runs import Run
from handrail.tools import BaseTool
from handrail.workers import Job, Threads, attempted

# An async tool that is cancelled gets this long to end; then the call is over and the tool is said to be running on.
CANCEL_GRACE_S = 0.5


class Runtime(Host):
    """Runs tools and conversations on asyncio. Takes the arguments of `Host`.

    async with Runtime([get_weather]) as runtime:
        result = await runtime.call("get_weather", {"city": "北京"})
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.threads = Threads()
        self._locks = Locks()
        self._in_line: dict[Hashable, Carrier] = {}
        self._opening: dict[int, Task[Any]] = {}
        self._opened: dict[int, BaseTool] = {}
        self._stragglers: set[Task[Any]] = set()

    # ------------------------------------------------------------------ the verbs

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json] | str | None = None,
        *,
        run: str | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Carry out one call, with every check, as if a model had made it.

        Args:
            arguments: A JSON object, or its text.
            run: Names a conversation; calls of one run share its budget and its guard against repeated writes.

        Raises:
            MissingInjection: The tool needs a value that `inject` does not have.
        """
        calls = [ToolCall("call_1", name, arguments_text(arguments))]
        return (await self._handle(Turn(calls=calls, finish="calls"), run, deps, inject))[0]

    async def handle(
        self,
        message: Any,
        *,
        run: str | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        dialect: str = "openai-chat",
    ) -> Any:
        """Carry out the calls of a provider's message; return that provider's messages with the results, in order.

        Args:
            message: The assistant's message, or the whole answer that holds it, as a dictionary or an SDK's object.
            run: Names the conversation, so that repeated writes and circles are seen across its turns.
        """
        wire = wire_dialect(dialect)
        turn = wire.decode_message(as_json(message), self.tools)
        results = await self._handle(turn, run, deps, inject)
        return wire.encode_results(turn.calls, results)

    async def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        system: str = "",
        budget: Budget | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        options: Options | None = None,
        run_id: str | None = None,
        observers: Sequence[Observer] = (),
    ) -> Run:
        """Ask the model, carry out its calls, feed back the results, until it answers or may not go on.

        Nothing that the model does raises; `Run.status` and `Run.reason` say how it ended.

        Args:
            question: What a person asks, or a conversation so far.
            model: `provider:name`, such as `openai:NAME`, or a `Model`.
            observers: Called with every event of this run, beside those of the runtime.

        Raises:
            SetupError: A model, tool or injected value that cannot be used as given.
        """
        asked = self.model(model)
        session = self.session(run=run_id, deps=deps, inject=inject, budget=budget, observers=observers)
        session.progress.messages = conversation_of(question, system=system)
        self.begin(session, asked.name)
        try:
            ending = await self._converse(session, asked, options or Options())
        except ModelError as error:
            ending = ending_by(error, session)
        except asyncio.CancelledError:
            self.end(session, Ending("cancelled", "the task that ran it was cancelled"))
            raise
        except BaseException:
            self.end(session, Ending("failed", "an error in the set-up"))
            raise
        return self.end(session, ending)

    def stream(self, question: Any, **how: Any) -> RunStream:
        """Run as `run` does, and give its events while they happen: `async for event in runtime.stream(...)`."""
        return RunStream(self, question, how)

    def cancel(self, run_id: str) -> bool:
        """End a run of this process: its calls are told, and its task ends with status `cancelled`."""
        session = self._live.get(run_id)
        if session is None:
            return False
        session.cancelled.set()
        for stop in list(session.stops):
            stop()
        return True

    async def close(self) -> None:
        """Close the tools that were opened, last one first, the models' connections, and let the threads go."""
        for tool in reversed(self._opened.values()):
            closed = tool.close()
            if inspect.isawaitable(closed):
                await closed
        self._opened.clear()
        for model in self._models.values():
            if aclose := getattr(model, "aclose", None):
                await aclose()
        self.threads.close()

    async def __aenter__(self) -> Runtime:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------------ conversations

    async def _converse(self, session: Session, model: Model, options: Options) -> Ending:
        talk = conversation(
            session.progress, partial(self.shown, session), session.budget, session.conduct, session.started
        )
        answer: Any = None
        while True:
            try:
                asked = talk.send(answer)
            except StopIteration as over:
                return over.value
            if session.cancelled.is_set():
                return Ending("cancelled", "the run was cancelled")
            if isinstance(asked, AskModel):
                answer = await self._ask(session, model, asked, options)
            else:
                answer = await self._carry(session, asked.turn, asked.number)

    async def _ask(self, session: Session, model: Model, asked: AskModel, options: Options) -> Turn:
        """Ask the model within what is left of the run's time."""
        left_s = session.conduct.deadline - self._now()
        request = Request(asked.messages, asked.tools, options, left_s)
        listener = None
        if session.observers:
            session.tell(ModelAsked(asked.number, len(asked.messages), len(asked.tools)))
            listener = Ears(session)
        asking = asyncio.ensure_future(model.ask(request, listener))
        session.stops.append(asking.cancel)
        try:
            turn = await asyncio.wait_for(asking, None if left_s == float("inf") else left_s)
        except TimeoutError:
            raise ModelError("the model did not answer within the run's time", code=OUT_OF_TIME) from None
        except asyncio.CancelledError:
            if session.cancelled.is_set():
                raise ModelError("the run was cancelled while the model was asked", code="cancelled") from None
            raise
        finally:
            session.stops.remove(asking.cancel)
        if session.observers:
            session.tell(ModelAnswered(asked.number, turn))
        return turn

    async def _handle(
        self, turn: Turn, run: str | None, deps: Any, inject: Mapping[str, Any] | None
    ) -> list[ToolResult]:
        """Carry out calls that come from elsewhere, as one turn of the run they name."""
        session = self.session(run=run, deps=deps, inject=inject, remember=run is not None)
        called = (self.tools.get(call.name) for call in turn.calls)
        check_injected([tool for tool in called if tool], session.injected)
        session.progress.turn += 1
        batch = await self._carry(session, turn, session.progress.turn)
        return heed_repeats(session.progress.repeats, batch)[0] if run else batch.finished()

    async def _carry(self, session: Session, turn: Turn, number: int) -> Batch:
        """Carry out the calls of one turn; every one has its result when this returns."""
        batch = self.batch(session, turn, number)
        if not batch.done:
            await Carrier(self, session, batch).finish()
        return batch

    # ------------------------------------------------------------------ what carriers need

    def now(self) -> float:
        """Monotonic seconds."""
        return self._now()

    def reserve(self, lane: Lane, resources: Sequence[Resource], carrier: Carrier) -> bool:
        """Stand in line for resources; True when they are free at once, else the carrier is told later."""
        if self._locks.ask(lane, resources):
            return True
        self._in_line[lane] = carrier
        return False

    def release(self, lane: Lane) -> None:
        """Leave every line, and tell those whose turn it is."""
        self._in_line.pop(lane, None)
        for freed in self._locks.release(lane):
            if carrier := self._in_line.pop(freed, None):
                carrier.reserved(cast(Lane, freed))

    async def ask_human(self, session: Session, asked: AskHuman) -> Approval | None:
        """Ask the approver. What people take does not count against the run's time."""
        session.tell(ApprovalAsked(asked.call, asked.arguments, asked.risk, asked.reason))
        began = self._now()
        answer = None
        if self.approver is not None:
            outcome = await self._in_place_or_thread(partial(self.approver, asked))
            answer = approval_from(outcome)
        waited_s = self._now() - began
        session.progress.spent.waited_s += waited_s
        session.conduct.deadline += waited_s
        session.tell(ApprovalGiven(asked.call, answer))
        return answer

    async def verify(self, lane: Lane, context: Context[Any]) -> Verification:
        """Ask the tool's own `verify`; whatever goes wrong there means that nobody knows."""
        assert lane.admitted is not None
        tool = lane.admitted.tool
        work = self._in_place_or_thread(partial(cast(Any, tool.verify), lane.admitted.arguments, context))
        try:
            outcome = await asyncio.wait_for(work, tool.timeout_s)
        except TimeoutError:
            return Unknown()
        return verification_from(outcome)

    async def _in_place_or_thread(self, work: partial[Any]) -> Returned | Raised:
        """Call a function of the user: a coroutine function here, a plain one in a thread."""
        if inspect.iscoroutinefunction(work.func) or inspect.iscoroutinefunction(getattr(work.func, "__call__", None)):
            return await outcome_of(work)
        loop = asyncio.get_running_loop()
        ended: Future[Returned | Raised] = loop.create_future()
        self.threads.submit(work, lambda outcome: loop.call_soon_threadsafe(_give, ended, outcome))
        outcome = await ended
        if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
            return await outcome_of(lambda: outcome.value)
        return outcome

    def is_open(self, tool: BaseTool) -> bool:
        """Whether a tool with state has been opened."""
        return id(tool) in self._opened

    async def open(self, tool: BaseTool) -> Raised | None:
        """Open a tool once, however many calls wait for it; a failed opening is tried again by the next call."""
        opening = self._opening.get(id(tool))
        if opening is None:
            opening = asyncio.ensure_future(self._in_place_or_thread(partial(tool.open)))
            self._opening[id(tool)] = opening
        try:
            outcome = await asyncio.wait_for(asyncio.shield(opening), tool.timeout_s)
        except TimeoutError:
            return Raised(TimeoutError(f"{tool.name} did not open in time"))
        self._opening.pop(id(tool), None)
        if isinstance(outcome, Raised):
            return outcome
        self._opened[id(tool)] = tool
        return None

    def keep_alive(self, task: Task[Any]) -> None:
        """Hold on to a task that will not end when told to."""
        self._stragglers.add(task)
        task.add_done_callback(self._stragglers.discard)

    def reported_late(
        self, session: Session, lane: Lane, claim: tuple[Claim, Claimed] | None, outcome: Outcome
    ) -> None:
        """A tool that had been given up has ended after all: tell it, and settle its claim with the truth."""
        if settle := late_settlement(claim, outcome):
            self.store.settle(settle)
        if session.observers:
            session.tell(late_event(lane, outcome))


def _give(ended: Future[Any], outcome: Any) -> None:
    if not ended.done():
        ended.set_result(outcome)


class RunStream:
    """The events of one run while they happen; `run` is there when they have ended.

    Leaving the loop early cancels the run.
    """

    def __init__(self, runtime: Runtime, question: Any, how: dict[str, Any]) -> None:
        self.run: Run | None = None
        self._runtime, self._question, self._how = runtime, question, how

    async def __aiter__(self) -> AsyncIterator[Event]:
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        observers = (*self._how.pop("observers", ()), events.put_nowait)
        running = asyncio.ensure_future(self._runtime.run(self._question, **self._how, observers=observers))
        running.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self.run = await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])


@dataclass(slots=True)
class Ears:
    """Hears a model's answer on its way and tells the run's observers."""

    session: Session

    def delta(self, delta: Delta) -> None:
        """Tell of a piece of the answer."""
        self.session.tell(Streamed(delta))

    def exchange(self, exchange: HttpExchange) -> None:
        """Tell of a request and its answer."""
        self.session.tell(exchange)


@dataclass(slots=True, eq=False)
class Attempt:
    """One start of a tool that is under way.

    `ending` says that it was asked to end, by its deadline or because the run was cancelled; `given_up` that its lane was
    answered without it.
    """

    lane: Lane
    flag: Flag
    task: Task[Returned | Raised] | None = None
    job: Job | None = None
    timer: TimerHandle | None = None
    ending: bool = False
    by_cancel: bool = False
    given_up: bool = False


class Carrier:
    """Carries one batch: begins what it asks for and answers as things end.

    Everything happens in the event loop's thread. Effects that take no time are answered on the spot, and this object's
    own task wakes once, when the last call has ended.
    """

    def __init__(self, runtime: Runtime, session: Session, batch: Batch) -> None:
        self.runtime, self.session, self.batch = runtime, session, batch
        self.loop = asyncio.get_running_loop()
        self.over: Future[None] = self.loop.create_future()
        self.attempts: dict[Lane, Attempt] = {}
        self.waits: dict[Lane, TimerHandle | Task[Any] | None] = {}
        self.claims: dict[Lane, tuple[Claim, Claimed]] = {}
        self.pumping = False

    async def finish(self) -> None:
        """Return when every call has its result."""
        self.session.stops.append(self.cancel)
        try:
            self.pump()
            await self.over
        except asyncio.CancelledError:
            self.cancel(hard=True)
            if not self.batch.done:
                await asyncio.wait([self.over], timeout=2 * CANCEL_GRACE_S)
            raise
        finally:
            self.session.stops.remove(self.cancel)

    def pump(self) -> None:
        """Perform everything that the batch asks for, until it waits or is done."""
        if self.pumping:
            return  # an answer given on the spot: the loop below goes on with it
        self.pumping = True
        try:
            while self.batch.todo:
                self.perform(*self.batch.todo.popleft())
        except Exception as error:  # a fault of ours or of a plug-in: better a raised error than a run that never ends
            if not self.over.done():
                self.over.set_exception(error)
        finally:
            self.pumping = False
        if self.batch.done and not self.over.done():
            self.over.set_result(None)

    def perform(self, lane: Lane, effect: Effect) -> None:
        """Do what a lane asks for, and answer it now or later."""
        match effect:
            case Invoke():
                self.invoke(lane, effect)
            case Claim():
                self.ask_store(lane, self.runtime.store.claim, effect)
            case Settle():
                self.ask_store(lane, self.runtime.store.settle, effect)
            case Keep(text=text):
                self.ask_store(lane, partial(self.runtime.store.keep, self.session.id), text)
            case Reserve(resources=resources):
                self.reserve(lane, resources)
            case Wait(seconds=seconds):
                self.waits[lane] = self.loop.call_later(seconds, self.waited, lane, None)
            case AskHuman():
                self.begin(lane, self.runtime.ask_human(self.session, effect))
            case Verify():
                self.begin(lane, self.runtime.verify(lane, self.context(lane, 0, lane_tool(lane).timeout_s, Flag())))

    def answer(self, lane: Lane, answer: Any) -> None:
        """Give a lane its answer and go on with whatever follows from it."""
        self.batch.answer(lane, answer)
        self.went_on(lane)

    def throw(self, lane: Lane, error: Exception) -> None:
        """Answer a lane with an exception that its life knows."""
        self.batch.throw(lane, error)
        self.went_on(lane)

    def went_on(self, lane: Lane) -> None:
        """Let go of what a call held if it is over, and perform what is to be done next."""
        if lane.admitted and lane.admitted.resources and self.batch.results[lane.index] is not None:
            self.runtime.release(lane)
        self.pump()

    # ------------------------------------------------------------------ waiting

    def begin(self, lane: Lane, work: Coroutine[Any, Any, Any]) -> None:
        """Let a coroutine find the answer."""
        task = self.loop.create_task(work)
        self.waits[lane] = task
        task.add_done_callback(lambda done: None if done.cancelled() else self.waited(lane, done.result()))

    def waited(self, lane: Lane, answer: Any) -> None:
        """The answer that a lane waited for is there."""
        if lane in self.waits:
            del self.waits[lane]
            self.answer(lane, answer)

    def reserve(self, lane: Lane, resources: Sequence[Resource]) -> None:
        """Stand in line for resources, at most until the run's time is over."""
        if self.runtime.reserve(lane, resources, self):
            self.answer(lane, True)
            return
        left_s = self.session.conduct.deadline - self.runtime.now()
        self.waits[lane] = None if left_s == float("inf") else self.loop.call_later(left_s, self.waited, lane, False)

    def reserved(self, lane: Lane) -> None:
        """It is this lane's turn."""
        if timer := self.waits.get(lane):
            timer.cancel()
        self.waited(lane, True)

    def ask_store(self, lane: Lane, ask: Callable[[Any], Any], effect: Any) -> None:
        """Ask the store; answer at once when it does."""
        try:
            answer = ask(effect)
        except StoreUnavailable as error:
            self.throw(lane, error)
            return
        if isinstance(answer, ThreadFuture):
            self.waits[lane] = None
            answer.add_done_callback(lambda done: self.loop.call_soon_threadsafe(self.stored, lane, effect, done))
        else:
            self.claimed(lane, effect, answer)
            self.answer(lane, answer)

    def stored(self, lane: Lane, effect: Any, done: ThreadFuture[Any]) -> None:
        """The store has answered."""
        if lane not in self.waits:
            return  # cancelled meanwhile: a claim stays claimed, which is the truth
        del self.waits[lane]
        if error := done.exception():
            self.throw(lane, error if isinstance(error, StoreUnavailable) else StoreUnavailable(str(error)))
        else:
            self.claimed(lane, effect, done.result())
            self.answer(lane, done.result())

    def claimed(self, lane: Lane, effect: Any, answer: Any) -> None:
        """Remember a claim, for the tool's context and for a late report."""
        if isinstance(effect, Claim):
            self.claims[lane] = effect, answer

    # ------------------------------------------------------------------ tools

    def invoke(self, lane: Lane, effect: Invoke) -> None:
        """Start the tool, in a task or a thread, with a timer at its side."""
        tool = lane_tool(lane)
        if effect.timeout_s <= 0:
            self.answer(lane, Unfinished(End.NOT_STARTED))
            return
        if tool.opens and not self.runtime.is_open(tool):
            self.open_first(lane, effect)
            return
        if self.session.observers:
            self.session.tell(AttemptStarted(lane.call, effect.attempt))
        attempt = Attempt(lane, Flag())
        context = self.context(lane, effect.attempt, effect.timeout_s, attempt.flag) if tool.hidden else None
        start = partial(tool.start, lane.admitted.bound, context, self.session.injected)
        if tool.is_async:
            self.run_task(attempt, outcome_of(start))
        elif tool.blocking:
            report = partial(self.loop.call_soon_threadsafe, self.reported, attempt)
            attempt.job = self.runtime.threads.submit(start, report)
        else:
            self.finished(lane, attempted(start))
            return
        self.attempts[lane] = attempt
        attempt.timer = self.loop.call_later(effect.timeout_s, self.expire, attempt)

    def context(self, lane: Lane, attempt: int, timeout_s: float, flag: Flag) -> Context[Any]:
        """Return what the tool may know about this attempt."""
        return self.runtime.context(self.session, lane, self.claims.get(lane), attempt, timeout_s, flag)

    def open_first(self, lane: Lane, effect: Invoke) -> None:
        """Open a tool before its first call; what goes wrong there is a failure of the call."""

        def opened(done: Task[Raised | None]) -> None:
            if lane in self.waits and not done.cancelled():
                del self.waits[lane]
                if (failed := done.result()) is not None:
                    self.answer(lane, failed)
                else:
                    self.invoke(lane, effect)
                    self.pump()

        task = self.loop.create_task(self.runtime.open(lane_tool(lane)))
        self.waits[lane] = task
        task.add_done_callback(opened)

    def run_task(self, attempt: Attempt, work: Coroutine[Any, Any, Returned | Raised]) -> None:
        """Run an async tool in a task of its own: one that refuses to be cancelled cannot hold its caller."""
        attempt.task = self.loop.create_task(work)
        attempt.task.add_done_callback(partial(self.task_ended, attempt))

    def task_ended(self, attempt: Attempt, task: Task[Returned | Raised]) -> None:
        """An async tool has ended, by itself or because it was told to."""
        if not task.cancelled():
            self.reported(attempt, task.result())
        elif attempt.ending:
            self.reported(attempt, Unfinished(End.STOPPED, attempt.by_cancel))
        else:
            self.reported(attempt, Raised(RuntimeError("the tool cancelled itself")))

    def reported(self, attempt: Attempt, outcome: Outcome) -> None:
        """A tool has said how it ended."""
        if attempt.given_up:
            self.runtime.reported_late(self.session, attempt.lane, self.claims.get(attempt.lane), outcome)
            return
        if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
            self.run_task(attempt, outcome_of(lambda: outcome.value))  # a plain function that returned a coroutine
            return
        if attempt.timer:
            attempt.timer.cancel()
        self.attempts.pop(attempt.lane, None)
        if attempt.ending:
            outcome = told_to_end(outcome, attempt.by_cancel)
        self.answer(attempt.lane, outcome)

    def finished(self, lane: Lane, outcome: Returned | Raised) -> None:
        """A quick tool has ended on the spot."""
        self.attempts[lane] = attempt = Attempt(lane, Flag())
        self.reported(attempt, outcome)

    def expire(self, attempt: Attempt) -> None:
        """The time of an attempt is over: end it, and if it will not end, give it up."""
        attempt.ending = True
        attempt.flag.set()
        if attempt.task is not None:
            attempt.task.cancel()
            attempt.timer = self.loop.call_later(CANCEL_GRACE_S, self.give_up, attempt)
        elif attempt.job is not None and self.runtime.threads.withdraw(attempt.job):
            self.give_up(attempt, End.NOT_STARTED)
        else:
            self.give_up(attempt)

    def give_up(self, attempt: Attempt, end: End = End.RUNNING_ON) -> None:
        """Answer without the tool; if it reports after all, that is recorded."""
        attempt.given_up = True
        self.attempts.pop(attempt.lane, None)
        if attempt.task is not None:
            self.runtime.keep_alive(attempt.task)
        self.answer(attempt.lane, Unfinished(end, attempt.by_cancel))

    # ------------------------------------------------------------------ cancelling

    def cancel(self, hard: bool = False) -> None:
        """End every call: what waits at once, reads at once, a write under way at its deadline (at once if `hard`)."""
        self.batch.cancel_unstarted()
        for lane, waiting in list(self.waits.items()):
            if waiting is not None:
                waiting.cancel()
            del self.waits[lane]
            self.throw(lane, CallCancelled())
        for attempt in list(self.attempts.values()):
            if (hard or not lane_tool(attempt.lane).writes) and not attempt.ending:
                attempt.by_cancel = True
                if attempt.timer:
                    attempt.timer.cancel()
                self.expire(attempt)
        self.pump()


def lane_tool(lane: Lane) -> BaseTool:
    """Return the tool of a lane that was admitted."""
    assert lane.admitted is not None
    return lane.admitted.tool


async def outcome_of(start: Callable[[], Any]) -> Returned | Raised:
    """Start an async tool and say how it ended. Being cancelled is not an outcome: it passes."""
    try:
        value = start()
        return Returned(await value if inspect.isawaitable(value) else value)
    except Exception as error:  # the one broad catch around a user's tool
        return Raised(error)
    except SystemExit as error:
        return Raised(RuntimeError(f"the tool asked the program to exit ({error.code})"))


def told_to_end(outcome: Outcome, by_cancel: bool) -> Outcome:
    """What an outcome means that came after the tool was told to end."""
    match outcome:
        case Returned(value=value):
            return Returned(value, late=True)
        case Raised(error=error) if not isinstance(error, ToolError):
            return Unfinished(End.STOPPED, by_cancel)  # it broke off where it was interrupted
        case _:
            return outcome
