"""The blocking runtime: the same methods without `await`, in the calling thread.

The calling thread waits for reports and timers, and handles them one at a time. Tools run in threads as under asyncio;
what is async (tools, models, approvers) runs on one background event loop. So it works in scripts, in web workers, in
notebooks, and inside a running event loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar, overload

from typing_extensions import Unpack

from handrail import _lazy
from handrail.calls import ToolCall, ToolResult
from handrail.core import results
from handrail.core.budgets import Budget
from handrail.core.policy import Policy
from handrail.core.preview import Preview
from handrail.core.retries import Backoff
from handrail.credentials.secret import Secret
from handrail.effects import Approval
from handrail.engine import tool_visibility, verbs
from handrail.engine.engine import (
    AskTurn,
    CallFunction,
    Engine,
    Pause,
    PerformBatch,
    Verb,
    refuse_assignment,
)
from handrail.engine.executor import BatchExecutor
from handrail.engine.thread_scheduler import LoopThread, ThreadScheduler
from handrail.engine.verbs import CallOptions, ResumeOptions, RunOptions
from handrail.errors import Json
from handrail.events import Event
from handrail.futures import result_now
from handrail.messages import Finish, Message
from handrail.ports import Approver, Model, Notifier, Observer, Selector, Store
from handrail.records import ApprovalRequest, ModelWait, new_run_id
from handrail.runs import Run
from handrail.surroundings.clock import monotonic, sleep
from handrail.tools.toolset import Tools, Toolset
from handrail.workers.threads import waiting_for_tools

if TYPE_CHECKING:
    from handrail import admin, workflows
    from handrail.admin import SyncApprovalQueue
    from handrail.dispatch import submitting
    from handrail.dispatch.submitting import SubmitOptions
    from handrail.engine.undo import Undoable
    from handrail.workflows import SyncWorkflow, WorkflowOptions
else:
    admin = _lazy.module("handrail.admin")
    submitting = _lazy.module("handrail.dispatch.submitting")
    workflows = _lazy.module("handrail.workflows")

T = TypeVar("T")


class SyncRuntime:
    """Runs tools and conversations in the calling thread.

    Takes the arguments of `Runtime`.

    with SyncRuntime([get_weather]) as runtime:
        result = runtime.call("get_weather", {"city": "Paris"})
    """

    __slots__ = ("__weakref__", "_engine", "_loop_thread")

    _engine: Engine
    _loop_thread: LoopThread

    def __init__(
        self,
        tools: Tools = (),
        *,
        store: str | Store = "memory:",
        policy: Policy | None = None,
        approver: Approver | None = None,
        observers: Sequence[Observer] = (),
        budget: Budget | None = None,
        result_bytes: int = results.DEFAULT_RESULT_BYTES,
        backoff: Backoff | None = None,
        repair: bool = True,
        selector: str | Selector = tool_visibility.DEFAULT,
        scope: str = "",
        principal: str = "",
        secrets: Iterable[str | Secret] = (),
        notify: str | Notifier | None = None,
        now: Callable[[], float] = monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        engine = Engine(
            tools,
            store=store,
            policy=policy,
            approver=approver,
            observers=observers,
            budget=budget,
            result_bytes=result_bytes,
            backoff=backoff,
            repair=repair,
            selector=selector,
            scope=scope,
            principal=principal,
            secrets=secrets,
            notify=notify,
            now=now,
            jitter=jitter,
        )
        object.__setattr__(self, "_engine", engine)
        object.__setattr__(self, "_loop_thread", LoopThread())

    @classmethod
    def _share(cls, engine: Engine) -> SyncRuntime:
        """Return a runtime over an engine that another one has made; see `Runtime.blocking`."""
        shared = cls.__new__(cls)
        object.__setattr__(shared, "_engine", engine)
        object.__setattr__(shared, "_loop_thread", LoopThread())
        return shared

    # type checkers see properties without setters, and refuse any other name
    if not TYPE_CHECKING:

        def __setattr__(self, name, value):
            refuse_assignment(self, name)

        def __delattr__(self, name):
            refuse_assignment(self, name)

    # ------------------------------------------------------------------ settings

    @property
    def tools(self) -> Toolset:
        """See `Runtime.tools`."""
        return self._engine.tools

    @property
    def store(self) -> Store:
        """See `Runtime.store`."""
        return self._engine.store

    @property
    def policy(self) -> Policy:
        """See `Runtime.policy`."""
        return self._engine.policy

    @property
    def approver(self) -> Approver | None:
        """See `Runtime.approver`."""
        return self._engine.approver

    @property
    def observers(self) -> tuple[Observer, ...]:
        """See `Runtime.observers`."""
        return self._engine.observers

    @property
    def budget(self) -> Budget:
        """See `Runtime.budget`."""
        return self._engine.budget

    @property
    def result_bytes(self) -> int:
        """See `Runtime.result_bytes`."""
        return self._engine.settings.result_bytes

    @property
    def approvals(self) -> SyncApprovalQueue:
        """See `Runtime.approvals`."""
        return admin.SyncApprovalQueue(self._engine.serve())

    @property
    def blocking(self) -> SyncRuntime:
        """This runtime; see `Runtime.blocking`."""
        return self

    # ------------------------------------------------------------------ calls

    def call(
        self,
        name: str,
        arguments: Mapping[str, Json] | str | None = None,
        *,
        run: str | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult:
        """See `Runtime.call`."""
        return self._perform(verbs.call(self._engine, name, arguments, run, options))

    def calls(
        self,
        calls: Sequence[ToolCall],
        *,
        run: str,
        turn: str = "",
        finish: Finish = "calls",
        words: Mapping[str, Approval | bool] | None = None,
        passes: tuple[type[Exception], ...] = (),
        **options: Unpack[CallOptions],
    ) -> list[ToolResult]:
        """See `Runtime.calls`."""
        return self._perform(
            verbs.calls(
                self._engine,
                calls,
                run,
                options,
                turn=turn,
                finish=finish,
                words=words,
                passes=passes,
            )
        )

    def preview(
        self,
        name: str,
        arguments: Mapping[str, Json] | str | None = None,
        *,
        run: str | None = None,
        call_id: str = "",
        **options: Unpack[CallOptions],
    ) -> Preview:
        """See `Runtime.preview`."""
        return self._perform(
            verbs.preview(self._engine, name, arguments, run, options, call_id=call_id)
        )

    def offered(
        self,
        run: str | None = None,
        *,
        scope: str | None = None,
        policy: Policy | None = None,
    ) -> Toolset:
        """See `Runtime.offered`."""
        return self._engine.serve(scope, policy).offered_tools(run)

    def handle(
        self,
        message: object,
        *,
        run: str | None = None,
        dialect: str = "openai-chat",
        **options: Unpack[CallOptions],
    ) -> Any:
        """See `Runtime.handle`."""
        return self._perform(
            verbs.handle(self._engine, message, run, options, dialect=dialect)
        )

    # ------------------------------------------------------------------ runs

    @overload
    def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: None = None,
        **options: Unpack[RunOptions],
    ) -> Run[None]: ...
    @overload
    def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: type[T],
        **options: Unpack[RunOptions],
    ) -> Run[T]: ...
    @overload
    def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: object,
        **options: Unpack[RunOptions],
    ) -> Run[Any]: ...
    def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: object = None,
        **options: Unpack[RunOptions],
    ) -> Run[Any]:
        """See `Runtime.run`."""
        return self._perform(
            verbs.run(self._engine, question, model=model, output=output, **options)
        )

    @overload
    def resume(
        self,
        run_id: str,
        *,
        output: type[T],
        anyway: bool = False,
        epoch: int | None = None,
        model_wait: ModelWait | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[T]: ...
    @overload
    def resume(
        self,
        run_id: str,
        *,
        output: object = None,
        anyway: bool = False,
        epoch: int | None = None,
        model_wait: ModelWait | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]: ...
    def resume(
        self,
        run_id: str,
        *,
        output: object = None,
        anyway: bool = False,
        epoch: int | None = None,
        model_wait: ModelWait | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]:
        """See `Runtime.resume`."""
        return self._perform(
            verbs.resume(
                self._engine,
                run_id,
                output=output,
                anyway=anyway,
                epoch=epoch,
                model_wait=model_wait,
                **options,
            )
        )

    @overload
    def replay(
        self, run_id: str, *, output: type[T], **options: Unpack[ResumeOptions]
    ) -> Run[T]: ...
    @overload
    def replay(
        self, run_id: str, *, output: object = None, **options: Unpack[ResumeOptions]
    ) -> Run[Any]: ...
    def replay(
        self, run_id: str, *, output: object = None, **options: Unpack[ResumeOptions]
    ) -> Run[Any]:
        """See `Runtime.replay`."""
        return self._perform(
            verbs.replay(self._engine, run_id, output=output, **options)
        )

    @overload
    def fork(
        self,
        run_id: str,
        *,
        at_turn: int,
        output: type[T],
        **options: Unpack[ResumeOptions],
    ) -> Run[T]: ...
    @overload
    def fork(
        self,
        run_id: str,
        *,
        at_turn: int,
        output: object = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]: ...
    def fork(
        self,
        run_id: str,
        *,
        at_turn: int,
        output: object = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]:
        """See `Runtime.fork`."""
        return self._perform(
            verbs.fork(self._engine, run_id, at_turn=at_turn, output=output, **options)
        )

    def workflow(
        self,
        fn: Callable[Concatenate[SyncWorkflow, ...], T],
        arguments: Mapping[str, Json] | None = None,
        *,
        run_id: str | None = None,
        budget: Budget | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        principal: str | None = None,
        scope: str | None = None,
        policy: Policy | None = None,
        approver: Approver | None = None,
        **options: Unpack[WorkflowOptions],
    ) -> Run[T]:
        """See `Runtime.workflow`."""
        return self._perform(
            workflows.workflow(
                self._engine,
                fn,
                arguments,
                run_id=run_id,
                budget=budget,
                deps=deps,
                inject=inject,
                whose={
                    "principal": principal,
                    "scope": scope,
                    "policy": policy,
                    "approver": approver,
                },
                options=options,
            )
        )

    @overload
    def stream(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: None = None,
        **options: Unpack[RunOptions],
    ) -> SyncRunStream[None]: ...
    @overload
    def stream(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: type[T],
        **options: Unpack[RunOptions],
    ) -> SyncRunStream[T]: ...
    @overload
    def stream(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: object,
        **options: Unpack[RunOptions],
    ) -> SyncRunStream[Any]: ...
    def stream(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: object = None,
        **options: Unpack[RunOptions],
    ) -> SyncRunStream[Any]:
        """Do what `run` does, and yield its events as they happen: `for event in runtime.stream(...)`."""
        after = options.get("after")
        if after is None:
            options["run_id"] = run_id = options.get("run_id") or new_run_id()
        else:
            run_id = after if isinstance(after, str) else after.id
        cancel = partial(self.cancel, run_id, scope=options.get("scope"))

        def start(observer: Observer) -> Run[Any]:
            observed: RunOptions = {
                **options,
                "observers": (*options.get("observers", ()), observer),
            }
            return self.run(question, model=model, output=output, **observed)

        return SyncRunStream(stream_events(start, cancel=cancel))

    # ------------------------------------------------------------------ runs of workers

    def submit(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str = "",
        output: object = None,
        **options: Unpack[SubmitOptions],
    ) -> str:
        """See `Runtime.submit`."""
        return self._perform(
            submitting.submit(
                self._engine, question, model=model, output=output, options=options
            )
        )

    def result(
        self, run_id: str, *, within_s: float | None = None, scope: str | None = None
    ) -> Run[Any]:
        """See `Runtime.result`."""
        return self._perform(
            submitting.await_end(self._engine.serve(scope), run_id, within_s=within_s)
        )

    # ------------------------------------------------------------------ taking back, cancelling, closing

    def undoable(
        self,
        run_id: str,
        *,
        inject: Mapping[str, Any] | None = None,
        scope: str | None = None,
    ) -> list[Undoable]:
        """See `Runtime.undoable`."""
        return self._perform(verbs.undoable(self._engine.serve(scope), run_id, inject))

    def undo(
        self,
        run_id: str,
        steps: Sequence[str] | None = None,
        *,
        inject: Mapping[str, Any] | None = None,
        scope: str | None = None,
    ) -> list[ToolResult]:
        """See `Runtime.undo`."""
        return self._perform(
            verbs.undo(self._engine.serve(scope), run_id, steps, inject)
        )

    def deliver(
        self,
        call: str,
        value: Json,
        *,
        run: str | None = None,
        by: str = "",
        scope: str | None = None,
    ) -> ApprovalRequest:
        """See `Runtime.deliver`."""
        queue = self.approvals.for_scope(scope)
        if run is not None:
            call = queue._find_call(call, run)
        return queue.answer(call, value, by=by)

    def cancel(self, run_id: str, *, by: str = "", scope: str | None = None) -> bool:
        """See `Runtime.cancel`."""
        return self._engine.serve(scope).cancel(run_id, by=by)

    def close(self) -> None:
        """See `Runtime.close`."""
        self._engine.begin_close()
        self._loop_thread.result(self._engine.services.close())
        self._loop_thread.result(self._engine.close_models())
        self._loop_thread.close()
        self._engine.close_store()

    def __enter__(self) -> SyncRuntime:
        self._engine.reopen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ driving verbs

    def _perform(self, verb: Verb[T]) -> T:
        """Drive a verb to its end: answer what it requests."""
        with waiting_for_tools():
            return self._drive(verb)

    def _drive(self, verb: Verb[T]) -> T:
        answer: Any
        try:
            request = next(verb)
            while True:
                try:
                    if isinstance(request, PerformBatch):
                        self._perform_batch(request)
                        answer = None
                    elif isinstance(request, AskTurn):
                        request.engine.watch_cancels(self._loop_thread.loop)
                        asking = request.engine.asker.ask(
                            request.active, request.model, request.asked
                        )
                        answer = self._loop_thread.result(asking)
                    elif isinstance(request, CallFunction):
                        answer = workflows.call_function_blocking(
                            request.engine, self._perform, request
                        )
                    elif isinstance(request, Pause):
                        sleep(request.seconds)
                        answer = None
                    else:
                        answer = result_now(request)
                except BaseException as error:
                    request = verb.throw(error)
                else:
                    request = verb.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _perform_batch(self, request: PerformBatch) -> None:
        request.engine.watch_cancels(self._loop_thread.loop)
        scheduler = ThreadScheduler(self._loop_thread)
        executor = BatchExecutor(
            request.engine, scheduler, request.active, request.batch, runtime=self
        )
        scheduler.perform(executor)
        if executor.error is not None:
            raise executor.error


class SyncRunStream(Generic[T]):
    """The events of one run as they happen; `run` is available once they have ended.

    Leaving the loop early, or `close`, cancels the run.
    """

    _run: Run[T] | None = None

    def __init__(self, events: Generator[Event, None, Run[T]]) -> None:
        self._events = events

    @property
    def run(self) -> Run[T]:
        """The run, after its events were read to the end.

        Raises:
            RuntimeError: The events have not been read to the end.
        """
        if self._run is None:
            raise RuntimeError("the run has not ended: read all of its events first")
        return self._run

    def __iter__(self) -> Generator[Event, None, Run[T] | None]:
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


def stream_events(
    start: Callable[[Observer], Run[T]], cancel: Callable[[], Any]
) -> Generator[Event, None, Run[T]]:
    """Yield the events of a run that `start` drives in a thread of its own; return the run.

    Args:
        cancel: Called if the events are not read to the end.
    """
    is_over = False
    events: SimpleQueue[Event | None] = SimpleQueue()
    outcome: list[Run[T] | BaseException] = []

    def work() -> None:
        try:
            outcome.append(start(events.put))
        except BaseException as error:
            # raised again below, in the thread of whoever asked
            outcome.append(error)
        finally:
            events.put(None)

    thread = Thread(target=work, name="handrail-stream", daemon=True)
    thread.start()
    try:
        while (event := events.get()) is not None:
            yield event
        is_over = True
    finally:
        if not is_over:
            cancel()
        thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
