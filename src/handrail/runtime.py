"""The asyncio driver: the verbs of a deployment, and the ground on which its calls are carried.

What performing an effect means stands in `carrier`; what a run does next stands in `conversation`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from handrail import _lazy
from handrail.calls import ToolCall, ToolResult, arguments_text
from handrail.core.batch import Batch
from handrail.core.budgets import Budget
from handrail.core.conversation import AskModel, Ending
from handrail.core.flow import Rules
from handrail.dialects import message_fields, wire_dialect
from handrail.engine import nested_runs
from handrail.engine.active_run import ActiveRun, new_run_id
from handrail.engine.approvals import edits_in
from handrail.engine.attempts import CANCEL_GRACE_S
from handrail.engine.eager_tasks import EagerTasks
from handrail.engine.engine import Engine
from handrail.engine.executor import BatchExecutor
from handrail.engine.resume import again, check_free, check_left, known, poisoning, taken_over
from handrail.engine.tool_visibility import selector_of
from handrail.errors import HandrailError, Json
from handrail.events import Event
from handrail.futures import mailbox
from handrail.messages import Message, Options, Turn, conversation_of
from handrail.ports import Model, Observer, Selector, later, performed_later
from handrail.records import JournalEntry, RunRecord, StoredRun
from handrail.runs import Run

if TYPE_CHECKING:
    from handrail import workflows
    from handrail.engine import undo as undoing
    from handrail.journal import fork as forking
else:
    forking = _lazy.module("handrail.journal.fork")
    undoing = _lazy.module("handrail.engine.undo")
    workflows = _lazy.module("handrail.workflows")


class Runtime(Engine):
    """Runs tools and conversations on asyncio. Takes the arguments of `Engine`.

    async with Runtime([get_weather]) as runtime:
        result = await runtime.call("get_weather", {"city": "北京"})
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ground: AsyncioScheduler | None = None
        """That of the loop on which it was used last."""

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
            dialect: The wire that the message is in. Prompts, such as `hermes`, have no messages: use `run`.
        """
        wire = wire_dialect(dialect)
        turn = wire.decode_message(message_fields(message), self.tools)
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
        output: Any = None,
        run_id: str | None = None,
        observers: Sequence[Observer] = (),
        selector: str | Selector | None = None,
        flow: Rules = (),
    ) -> Run:
        """Ask the model, carry out its calls, feed back the results, until it answers or may not go on.

        Nothing that the model does raises; `Run.status` and `Run.reason` say how it ended.

        Args:
            question: What a person asks, or a conversation so far.
            model: `provider:name`, such as `openai:NAME`, or a `Model`.
            output: The form of the answer: a type, a JSON Schema, or a `Form`; `Run.output` is then its value.
            observers: Called with every event of this run, beside those of the runtime.
            selector: What this run shows of many tools, in place of the runtime's.
            flow: Which calls it must make and must not, and when: `hr.Require`, `hr.Forbid`.

        Raises:
            SetupError: A model, tool or injected value that cannot be used as given.
        """
        asked, messages = self.model(model), conversation_of(question, system=system)
        if run_id is not None and self.keeps_runs:
            check_free(await later(self.recorded(run_id)))
        elif self.keeps_runs and (call := nested_runs.current()) is not None:
            run_id = call.named_by_question(messages)
            if await later(self.recorded(run_id)) is not None:
                return await self.resume(
                    run_id, model=model, budget=budget, deps=deps, inject=inject, output=output, observers=observers,
                    selector=selector, flow=flow or None,
                )  # fmt: skip
        session = self.session(run=run_id, deps=deps, inject=inject, budget=budget, observers=observers)
        session.options = options or session.options
        session.selector = None if selector is None else selector_of(selector)
        session.course = self.course(flow)
        self.open(session, messages, output, asked)
        return await self._to_its_end(session, asked, self.kept_of(session, messages, model), new=True)

    async def resume(self, run_id: str, *, anyway: bool = False, **how: Any) -> Run:
        """Go on with a run that was interrupted, waits for a person, or ended by its budget; in any process.

        What has happened is not done again: finished turns and results come from the journal, writes from the ledger.
        One that has answered gives its `Run` again; one that was cancelled goes on.

        Args:
            anyway: Also when the run is poisoned (`records.MOST_TAKEOVERS` processes that took it over died in it), or
                when another process drives it that lives: that one then records nothing more of it.
            how: `model`, `deps`, `inject`, `budget`, `output`, `observers`, `selector`, `flow`, as for `run`. What
                cannot be kept (an object as model, dependencies, injected values, a selector, a rule's function) is
                given again. Without `output` the answer is held to the schema that was kept, and `Run.output` is its
                plain JSON value.

        Raises:
            ConfigError: The store keeps no runs, or none of that name; or the run is poisoned.
            RunUnderWay: Another process drives it, which lives.
            JournalMismatch: What was kept cannot be read by this version.
        """
        self.unrecorded.offer(run_id)
        begun = known(await later(self.recorded(run_id)), run_id)
        if not anyway and (poisoned := poisoning(begun.record)):
            await later(self.runs.enter(poisoned[0]))
            raise poisoned[1]
        if not anyway:
            check_left(begun.record)
        session, asked, model = again(self, begun, run_id, **how)
        self.open(session, asked.messages, asked.output, model)
        record = taken_over(self, session, begun, anew=how.get("output") is not None)
        return await self._to_its_end(session, model, record)

    async def replay(self, run_id: str, **how: Any) -> Run:
        """Drive a run along its journal alone: no model is asked, no tool is run, nothing is recorded.

        Raises:
            JournalMismatch: The journal ends before the run does.
        """
        begun = await later(self.recorded(run_id))
        session, asked, model = again(self, begun, run_id, **how)
        session.leave_no_trail()
        self.open(session, asked.messages, asked.output, model)
        self.record(session, cast(StoredRun, begun), replaying=True)
        return await self._to_its_end(session, model, None)

    async def fork(self, run_id: str, *, at_turn: int, **how: Any) -> Run:
        """Begin a new run that has the first turns of another and asks the model anew from `at_turn` on.

        What the other run has written since is not done again without a person's word.
        """
        begun = known(await later(self.recorded(run_id)), run_id)
        again(self, begun, run_id, **how)  # what could not be gone on with is refused before there is a new run
        edits = await performed_later(edits_in(self.store, run_id))
        record, first = forking.fork_of(begun, at_turn, new_run_id(), self.callable_tools(), edits)
        await later(self.runs.begin_run(record))
        await later(self.runs.enter(first))
        return await self.resume(record.run_id, **how)

    async def workflow(
        self,
        fn: Callable[..., Awaitable[Any]],
        arguments: Mapping[str, Json] | None = None,
        *,
        run_id: str | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        **how: Any,
    ) -> Run:
        """Run a function that makes the steps of a run itself, and leaves to models what it will; see `workflows`.

        With a store that keeps runs it survives its process: call this again with the same `run_id`, and each step that
        has happened is answered from what was recorded. What the function raises is raised here.

        Args:
            fn: Called with a `Workflow` and the arguments; what it returns is `Run.output`.
            arguments: JSON. May be left out when a kept workflow is gone on with.
            how: What its runs of models take unless they say otherwise: `model`, `selector`, `observers`, `system`, ...

        Raises:
            ConfigError: The `run_id` is taken by another run, or by one with other arguments.
            JournalMismatch: A step is not the one that was recorded.
        """
        session = self.session(run=run_id, deps=deps, inject=inject, budget=budget, observers=how.get("observers", ()))
        return await workflows.driven(self, self, session, fn, arguments, {"deps": deps, "inject": inject, **how})

    async def undoable(self, run_id: str) -> list[undoing.Undoable]:
        """Return what a kept run has written and its tools can take back, the newest first."""
        begun = known(await later(self.recorded(run_id)), run_id)
        return await performed_later(undoing.undoable(self.store, begun, self.callable_tools(), self._scope))

    async def undo(self, run_id: str, steps: Sequence[str] | None = None) -> list[ToolResult]:
        """Take back what a run has written: these steps, or all that `undoable` offers, the newest first.

        Each is a write of its own, once at most, and frees the key of what it took back. Whoever calls this decides;
        nobody else is asked.

        Raises:
            ConfigError: There is no such run, or a step is not one that can be taken back.
            StoreUnavailable: A write was taken back and its key could not be freed; call this again.
        """
        results: list[ToolResult] = []
        for undo in undoing.chosen(await self.undoable(run_id), run_id, steps):
            session = self.session(run=f"{run_id}.undo", deps=None, inject=None)
            batch = self.batch_of(undoing.write_back(undo, self.callable_tools(), run_id), session)
            await self.carry(session, batch)
            results += batch.finished()
            await performed_later(undoing.release(self.store, undo, results[-1]))
        return results

    def stream(self, question: Any, **how: Any) -> RunStream:
        """Run as `run` does, and give its events while they happen: `async for event in runtime.stream(...)`."""
        return RunStream(self, question, how)

    async def close(self) -> None:
        """Close the tools that were opened, last one first, the models' connections, and let the threads go."""
        self.begin_close()
        await self.services.close()
        await self.close_models()
        await asyncio.to_thread(self.close_store)  # it may still have to write

    async def __aenter__(self) -> Runtime:
        self.reopen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------------ conversations

    async def _to_its_end(
        self, session: ActiveRun, model: Model, record: RunRecord | None, *, new: bool = False
    ) -> Run:
        """Drive a run that has been opened until it is over."""
        try:
            if record is not None:
                begun = await later(self.runs.begin_run(record, new=new))
                self.record(session, begun)
            ending = await self._driven(session, model)
        except asyncio.CancelledError:
            self.leave(session)
            self.end(session, Ending("cancelled", "the task that ran it was cancelled"))
            raise
        except BaseException as error:
            if isinstance(error, Exception):  # any other ends the process, and the run is as after a crash
                self.leave(session)
            self.end(session, Ending("failed", "an error in the set-up"))
            raise
        return self.end(session, ending)

    async def _driven(self, session: ActiveRun, model: Model) -> Ending:
        """Perform what a run asks for, until it is over."""
        answer: Any
        steps = self.steps(session)
        try:
            step = next(steps)
            while True:
                answer = None
                try:
                    match step:
                        case AskModel():
                            answer = await self.asker.ask(session, model, step)
                        case Batch():
                            await self.carry(session, step)
                        case JournalEntry():
                            answer = await later(self.runs.enter(step))
                except HandrailError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as over:
            ending: Ending = over.value
            return ending

    async def _handle(
        self, turn: Turn, run: str | None, deps: Any, inject: Mapping[str, Any] | None
    ) -> list[ToolResult]:
        """Carry out calls that come from elsewhere, as one turn of the run they name."""
        session, number = self.session_for(turn, run=run, deps=deps, inject=inject)
        batch = self.batch(session, turn, number)
        for each in self.carried(session, batch, number):
            await self.carry(session, cast(Batch, each))  # without a journal there is nothing to enter
        return self.heeded(session, batch, run)

    async def carry(self, session: ActiveRun, batch: Batch) -> None:
        """Carry out the calls of one turn; every one has its result when this returns."""
        ground = self._ground
        if ground is None or ground.loop is not asyncio.get_running_loop():
            ground = self._ground = AsyncioScheduler()
        carrier = BatchExecutor(self, ground, session, batch)
        carrier.pump()
        if not carrier.over:
            await _over(carrier, ground)
        if carrier.error is not None:
            raise carrier.error


class AsyncioScheduler:
    """An event loop as the ground of carriers."""

    __slots__ = ("_mailbox", "first_step", "go_on", "loop")

    def __init__(self) -> None:
        self.loop, self._mailbox = asyncio.get_running_loop(), mailbox()
        runners = EagerTasks(self.loop)
        self.first_step, self.go_on = runners.first_step, runners.go_on

    def later(self, seconds: float, then: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """See `Scheduler.later`."""
        return self.loop.call_later(seconds, then, *args)

    def post(self, then: Callable[..., Any], *args: Any) -> None:
        """See `Scheduler.post`. It is left when its loop is closed."""
        try:
            self._mailbox.post(then, *args)
        except RuntimeError:
            then(*args)

    def end_of(self, carrier: BatchExecutor) -> asyncio.Future[None]:
        """Return what is done once every call has its result, anew each time: a cancelled waiter cancels it."""
        end: asyncio.Future[None] = self.loop.create_future()
        carrier.when_over = partial(_set, end)
        return end


def _set(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)


async def _over(carrier: BatchExecutor, ground: AsyncioScheduler) -> None:
    """Return when every call has its result; where the task is cancelled, the calls are."""
    session = carrier.session
    stop = partial(ground.post, carrier.cancel)
    session.stops.append(stop)
    if session.cancelled:  # before the stop was there to be called
        carrier.cancel()
    try:
        if not carrier.over:
            await ground.end_of(carrier)
    except asyncio.CancelledError:
        carrier.cancel(hard=True)
        if not carrier.over:
            await asyncio.wait([ground.end_of(carrier)], timeout=2 * CANCEL_GRACE_S)
        raise
    finally:
        session.stops.remove(stop)


class RunStream:
    """The events of one run while they happen; `run` is there when they have ended.

    Leaving the loop early cancels the run.
    """

    _run: Run | None = None

    def __init__(self, runtime: Runtime, question: Any, how: dict[str, Any]) -> None:
        self._runtime, self._question, self._how = runtime, question, how

    @property
    def run(self) -> Run:
        """How it ended.

        Raises:
            RuntimeError: Its events have not ended yet, or nobody has read them.
        """
        if self._run is None:
            raise RuntimeError("the run has not ended: read all of its events first")
        return self._run

    async def __aiter__(self) -> AsyncIterator[Event]:
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        observers = (*self._how.pop("observers", ()), events.put_nowait)
        running = asyncio.ensure_future(self._runtime.run(self._question, **self._how, observers=observers))
        running.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self._run = await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
