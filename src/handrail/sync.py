"""The blocking driver: the same verbs without `await`, in the calling thread.

The calling thread is the ground on which calls are carried: it waits for reports and timers, one after another. Tools
run in threads as under asyncio; what is async (tools, models, approvers) runs on one background event loop. So it
works in scripts, in web workers, in notebooks, and inside a running event loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from handrail import _lazy
from handrail.calls import ToolCall, ToolResult, arguments_text
from handrail.core.batch import Batch
from handrail.core.budgets import Budget
from handrail.core.conversation import AskModel, Ending
from handrail.core.flow import Rules
from handrail.dialects import message_fields, wire_dialect
from handrail.effects import End, Outcome, Raised, Returned, Unfinished
from handrail.engine import nested_runs
from handrail.engine.active_run import ActiveRun, new_run_id
from handrail.engine.approvals import edits_in
from handrail.engine.attempts import CANCEL_GRACE_S
from handrail.engine.engine import Engine
from handrail.engine.executor import BatchExecutor
from handrail.engine.resume import again, check_free, check_left, known, poisoning, taken_over
from handrail.engine.scheduler import AsyncWork
from handrail.engine.shared import outcome_of
from handrail.engine.tool_visibility import selector_of
from handrail.errors import HandrailError, Json, SetupError
from handrail.events import Event
from handrail.messages import Message, Options, Turn, conversation_of
from handrail.ports import Model, Observer, Selector, now_of, performed_now
from handrail.records import JournalEntry, RunRecord, StoredRun
from handrail.runs import Run
from handrail.workers import fork_safety

if TYPE_CHECKING:
    from handrail import workflows
    from handrail.engine import undo as undoing
    from handrail.journal import fork as forking
else:
    forking = _lazy.module("handrail.journal.fork")
    undoing = _lazy.module("handrail.engine.undo")
    workflows = _lazy.module("handrail.workflows")

T = TypeVar("T")


class SyncRuntime(Engine):
    """Runs tools and conversations in the calling thread. Takes the arguments of `Engine`.

    with SyncRuntime([get_weather]) as runtime:
        result = runtime.call("get_weather", {"city": "北京"})
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._background = LoopThread()

    def call(
        self,
        name: str,
        arguments: Mapping[str, Json] | str | None = None,
        *,
        run: str | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """See `Runtime.call`."""
        turn = Turn(calls=[ToolCall("call_1", name, arguments_text(arguments))], finish="calls")
        return self._handle(turn, run, deps, inject)[0]

    def handle(
        self,
        message: Any,
        *,
        run: str | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        dialect: str = "openai-chat",
    ) -> Any:
        """See `Runtime.handle`."""
        wire = wire_dialect(dialect)
        turn = wire.decode_message(message_fields(message), self.tools)
        return wire.encode_results(turn.calls, self._handle(turn, run, deps, inject))

    def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        system: str = "",
        budget: Budget | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        options: Options | None = None,
        output: Any = None,
        run_id: str | None = None,
        observers: Sequence[Observer] = (),
        selector: str | Selector | None = None,
        flow: Rules = (),
    ) -> Run:
        """See `Runtime.run`."""
        asked, messages = self.model(model), conversation_of(question, system=system)
        if run_id is not None and self.keeps_runs:
            check_free(now_of(self.recorded(run_id)))
        elif self.keeps_runs and (call := nested_runs.current()) is not None:
            run_id = call.named_by_question(messages)
            if now_of(self.recorded(run_id)) is not None:
                return self.resume(
                    run_id, model=model, budget=budget, deps=deps, inject=inject, output=output, observers=observers,
                    selector=selector, flow=flow or None,
                )  # fmt: skip
        session = self.session(run=run_id, deps=deps, inject=inject, budget=budget, observers=observers)
        session.options = options or session.options
        session.selector = None if selector is None else selector_of(selector)
        session.course = self.course(flow)
        self.open(session, messages, output, asked)
        return self._to_its_end(session, asked, self.kept_of(session, messages, model), new=True)

    def resume(self, run_id: str, *, anyway: bool = False, **how: Any) -> Run:
        """See `Runtime.resume`."""
        self.unrecorded.offer(run_id)
        begun = known(now_of(self.recorded(run_id)), run_id)
        if not anyway and (poisoned := poisoning(begun.record)):
            now_of(self.runs.enter(poisoned[0]))
            raise poisoned[1]
        if not anyway:
            check_left(begun.record)
        session, asked, model = again(self, begun, run_id, **how)
        self.open(session, asked.messages, asked.output, model)
        record = taken_over(self, session, begun, anew=how.get("output") is not None)
        return self._to_its_end(session, model, record)

    def replay(self, run_id: str, **how: Any) -> Run:
        """See `Runtime.replay`."""
        begun = now_of(self.recorded(run_id))
        session, asked, model = again(self, begun, run_id, **how)
        session.leave_no_trail()
        self.open(session, asked.messages, asked.output, model)
        self.record(session, cast(StoredRun, begun), replaying=True)
        return self._to_its_end(session, model, None)

    def fork(self, run_id: str, *, at_turn: int, **how: Any) -> Run:
        """See `Runtime.fork`."""
        begun = known(now_of(self.recorded(run_id)), run_id)
        again(self, begun, run_id, **how)  # what could not be gone on with is refused before there is a new run
        edits = performed_now(edits_in(self.store, run_id))
        record, first = forking.fork_of(begun, at_turn, new_run_id(), self.callable_tools(), edits)
        now_of(self.runs.begin_run(record))
        now_of(self.runs.enter(first))
        return self.resume(record.run_id, **how)

    def workflow(
        self,
        fn: Callable[..., Any],
        arguments: Mapping[str, Json] | None = None,
        *,
        run_id: str | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        **how: Any,
    ) -> Run:
        """See `Runtime.workflow`."""
        session = self.session(run=run_id, deps=deps, inject=inject, budget=budget, observers=how.get("observers", ()))
        return workflows.driven_here(self, self, session, fn, arguments, {"deps": deps, "inject": inject, **how})

    def undoable(self, run_id: str) -> list[undoing.Undoable]:
        """See `Runtime.undoable`."""
        begun = known(now_of(self.recorded(run_id)), run_id)
        return performed_now(undoing.undoable(self.store, begun, self.callable_tools(), self._scope))

    def undo(self, run_id: str, steps: Sequence[str] | None = None) -> list[ToolResult]:
        """See `Runtime.undo`."""
        results: list[ToolResult] = []
        for undo in undoing.chosen(self.undoable(run_id), run_id, steps):
            session = self.session(run=f"{run_id}.undo", deps=None, inject=None)
            batch = self.batch_of(undoing.write_back(undo, self.callable_tools(), run_id), session)
            self.carry(session, batch)
            results += batch.finished()
            performed_now(undoing.release(self.store, undo, results[-1]))
        return results

    def stream(self, question: Any, **how: Any) -> SyncRunStream:
        """Run as `run` does, and give its events while they happen: `for event in runtime.stream(...)`."""
        return SyncRunStream(self._streamed(question, how))

    def _streamed(self, question: Any, how: dict[str, Any]) -> Generator[Event, None, Run]:
        events: SimpleQueue[Event | None] = SimpleQueue()
        how["run_id"] = run_id = how.get("run_id") or new_run_id()
        observers = (*how.pop("observers", ()), events.put)
        ended: list[Run | BaseException] = []

        def work() -> None:
            try:
                ended.append(self.run(question, **how, observers=observers))
            except BaseException as error:  # raised again below, in the thread of whoever asked
                ended.append(error)
            finally:
                events.put(None)

        thread = Thread(target=work, name="handrail-stream", daemon=True)
        thread.start()
        try:
            while (event := events.get()) is not None:
                yield event
        finally:
            self.cancel(run_id)  # it is over already, unless the loop was left
            thread.join()
        if isinstance(ended[0], BaseException):
            raise ended[0]
        return ended[0]

    def close(self) -> None:
        """Close the tools that were opened, the models' connections, and let the threads go."""
        self.begin_close()
        self._background.result(self.services.close())
        self._background.result(self.close_models())
        self._background.close()
        self.close_store()

    def __enter__(self) -> SyncRuntime:
        self.reopen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _to_its_end(self, session: ActiveRun, model: Model, record: RunRecord | None, *, new: bool = False) -> Run:
        """Drive a run that has been opened until it is over."""
        ending = Ending("failed", "an error in the set-up")
        try:
            if record is not None:
                begun = now_of(self.runs.begin_run(record, new=new))
                self.record(session, begun)
            ending = self._driven(session, model)
        except KeyboardInterrupt:
            self.leave(session)
            ending = Ending("cancelled", "interrupted")
            raise
        except Exception:
            self.leave(session)
            raise
        finally:
            run = self.end(session, ending)
        return run

    def _driven(self, session: ActiveRun, model: Model) -> Ending:
        """Perform what a run asks for, until it is over."""
        steps = self.steps(session)
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._performed(step, session, model)
                except HandrailError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as over:
            ending: Ending = over.value
            return ending

    def _performed(self, step: AskModel | Batch | JournalEntry, session: ActiveRun, model: Model) -> Any:
        match step:
            case AskModel():
                return self._background.result(self.asker.ask(session, model, step))
            case Batch():
                return self.carry(session, step)
            case JournalEntry():
                return now_of(self.runs.enter(step))

    def _handle(self, turn: Turn, run: str | None, deps: Any, inject: Mapping[str, Any] | None) -> list[ToolResult]:
        session, number = self.session_for(turn, run=run, deps=deps, inject=inject)
        batch = self.batch(session, turn, number)
        for each in self.carried(session, batch, number):
            self.carry(session, cast(Batch, each))  # without a journal there is nothing to enter
        return self.heeded(session, batch, run)

    def carry(self, session: ActiveRun, batch: Batch) -> None:
        ThreadScheduler(self._background).carry(BatchExecutor, self, session, batch)


@dataclass(order=True, slots=True)
class TimerHandle:
    """Something to be called at a time, unless it is cancelled before."""

    at: float
    number: int
    then: Callable[[], Any] | None = field(compare=False)

    def cancel(self) -> None:
        """See `Handle.cancel`."""
        self.then = None


class ThreadScheduler:
    """The calling thread as a carrier's ground: a queue of what others report, and alarms."""

    loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, background: LoopThread) -> None:
        self._background = background
        self._posted: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self._alarms: list[TimerHandle] = []
        self._numbers = count()
        self._guard, self._left = Lock(), False

    def carry(self, make: Callable[..., BatchExecutor], host: Engine, session: ActiveRun, batch: Batch) -> None:
        """Carry a batch to its end. An interrupt from the keyboard ends what is under way first."""
        carrier = make(host, self, session, batch)
        stop = partial(self.post, carrier.cancel)
        session.stops.append(stop)
        if session.cancelled:
            stop()
        try:
            carrier.pump()
            self._until(carrier, float("inf"))
        except KeyboardInterrupt as interrupt:
            # It may have come in the middle of anything of ours, and then ending the rest may fail.
            with suppress(Exception):
                carrier.cancel(hard=True)
                self._until(carrier, monotonic() + 2 * CANCEL_GRACE_S)
            raise interrupt from None
        finally:
            session.stops.remove(stop)
            self._leave()
        if carrier.error is not None:
            raise carrier.error

    def later(self, seconds: float, then: Callable[..., Any], *args: Any) -> TimerHandle:
        """See `Scheduler.later`."""
        alarm = TimerHandle(monotonic() + seconds, next(self._numbers), lambda: then(*args))
        heapq.heappush(self._alarms, alarm)
        return alarm

    def first_step(self, begin: Callable[[], Awaitable[Any]]) -> None:
        """See `Scheduler.first_step`: none is taken in this thread."""

    def go_on(self, work: AsyncWork) -> None:
        """See `Scheduler.go_on`: it runs on the background loop, its end is reported here."""
        work.task = RemoteTask(self._background.loop(), work.begin, partial(self.post, work.ended, work))

    def post(self, then: Callable[..., Any], *args: Any) -> None:
        """See `Scheduler.post`."""
        with self._guard:
            if not self._left:
                self._posted.put((then, args))
                return
        then(*args)

    def _leave(self) -> None:
        with self._guard:
            self._left = True
        while not self._posted.empty():
            then, args = self._posted.get()
            then(*args)

    def _until(self, carrier: BatchExecutor, deadline: float) -> None:
        while not carrier.over and monotonic() < deadline:
            while self._alarms and (self._alarms[0].then is None or self._alarms[0].at <= monotonic()):
                then = heapq.heappop(self._alarms).then
                if then is not None:
                    then()
            if carrier.over:
                return
            wake = min(deadline, self._alarms[0].at) if self._alarms else deadline
            try:
                then_posted, args = self._posted.get(
                    timeout=None if wake == float("inf") else max(0.0, wake - monotonic())
                )
            except Empty:
                continue
            then_posted(*args)


class RemoteTask:
    """A task on another thread's event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, begin: Callable[[], Awaitable[Any]], ended: Callable[[Outcome], Any]
    ) -> None:
        self._loop, self._begin, self._ended = loop, begin, ended
        self._task: asyncio.Task[Returned | Raised] | None = None
        loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        self._task = self._loop.create_task(outcome_of(self._begin))
        self._task.add_done_callback(self._report)

    def _report(self, task: asyncio.Task[Returned | Raised]) -> None:
        ended, self._task = self._ended, None
        del self._begin, self._ended  # they hold the work, which holds this
        ended(Unfinished(End.STOPPED, cancelled=True) if task.cancelled() else task.result())

    def cancel(self) -> None:
        """See `Handle.cancel`. It comes after `_start`, because the loop keeps the order."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())


class SyncRunStream:
    """The events of one run while they happen; `run` is there when they have ended.

    Leaving the loop early, or `close`, cancels the run.
    """

    _run: Run | None = None

    def __init__(self, events: Generator[Event, None, Run]) -> None:
        self._events = events

    @property
    def run(self) -> Run:
        """The run, after its events were read to the end.

        Raises:
            RuntimeError: The events have not been read to the end.
        """
        if self._run is None:
            raise RuntimeError("the run has not ended: read all of its events first")
        return self._run

    def __iter__(self) -> Generator[Event, None, Run | None]:
        # A new generator that only the loop refers to, so that leaving the loop closes it.
        self._run = (yield from self._events) or self._run
        return self._run

    def __next__(self) -> Event:
        try:
            return next(self._events)
        except StopIteration as end:
            self._run = end.value or self._run
            raise

    def close(self) -> None:
        """Cancel the run, unless it has ended."""
        self._events.close()


class LoopThread:
    """One event loop in a daemon thread, begun when it is first needed."""

    def __init__(self) -> None:
        fork_safety.begin(self)

    def begin(self) -> None:
        """See `forks.StoredRun.begin`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._guard = Lock()

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop.

        Raises:
            SetupError: Who asks runs on this very loop, which would wait for itself.
        """
        with self._guard:
            if current_thread() is self._thread:
                raise SetupError(
                    "an async tool calls the SyncRuntime on whose event loop it runs; make it a plain function"
                )
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._loop.run_forever, name="handrail-loop", daemon=True)
                self._thread.start()
            return self._loop

    def result(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for what it returns; an interrupt cancels it."""
        try:
            loop = self.loop()
        except SetupError:
            work.close()  # or it would complain that nobody awaited it
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread, and before that, as far as they let themselves be ended, the tasks on it."""
        with self._guard:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_GRACE_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
