"""The asyncio runtime.

`engine.verbs` has what each method does; `Runtime._perform` answers the requests that it yields, on the running event
loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
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
from handrail.engine.asyncio_scheduler import AsyncioScheduler
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
from handrail.engine.verbs import CallOptions, ResumeOptions, RunOptions
from handrail.errors import Json
from handrail.events import Event
from handrail.futures import wait_for
from handrail.messages import Finish, Message
from handrail.ports import Approver, Model, Notifier, Observer, Selector, Store
from handrail.records import ApprovalRequest, ModelWait
from handrail.runs import Run
from handrail.surroundings.clock import monotonic
from handrail.tools.toolset import Tools, Toolset

if TYPE_CHECKING:
    from handrail import admin, sync, workflows
    from handrail.admin import ApprovalQueue
    from handrail.dispatch import submitting
    from handrail.dispatch.submitting import SubmitOptions
    from handrail.engine.undo import Undoable
    from handrail.sync import SyncRuntime
    from handrail.workflows import Workflow, WorkflowOptions
else:
    admin = _lazy.module("handrail.admin")
    submitting = _lazy.module("handrail.dispatch.submitting")
    sync = _lazy.module("handrail.sync")
    workflows = _lazy.module("handrail.workflows")

T = TypeVar("T")


class Runtime:
    """Runs tools and conversations on asyncio.

        async with Runtime([get_weather]) as runtime:
            result = await runtime.call("get_weather", {"city": "Paris"})

    Args:
        tools: Tools, functions, or a `Toolset`, which may change while runs are under way.
        store: `memory:`, another store's name, or a `Store`.
        policy: What a run may do; by default it may read and write, and a person is asked before a call of high risk.
        approver: Who is asked. Without one a call that needs approval waits; it does not proceed.
        observers: Called with every event.
        budget: What a run may spend unless it says otherwise.
        result_bytes: How much of a result the model reads, in bytes of UTF-8.
        backoff: How long to wait between attempts.
        repair: Repair malformed JSON by named repairs; False refuses it.
        selector: What a model is shown of many tools: `auto`, `all`, `bm25`, `search`, `two-stage`, or a `Selector`.
        scope: The tenant. Runtimes of different scopes share nothing in a store, even under equal names: no run,
            question, approval, long result, key of a write or lock.
        principal: On whose behalf the calls are made, for the audit log.
        secrets: Values, as text or `hr.Secret`, that are hidden from models, events, journal, ledger and logs, in
            addition to injected ones; the audit log also hides what looks like a key. Give them again to resume a run.
        notify: Who is notified of a stored question that nobody here has answered: a function, or `mail:...` or
            `webhook:URL`, see `toolbox.notifying`. The process that stored the question does so once; if it dies at
            that moment, nobody is notified. If the caller hangs up meanwhile, the next such call notifies again.
        now: Monotonic seconds; a test may move them by hand.
        jitter: Numbers from [0, 1].

    Raises:
        SetupError: A tool, a setting or the store cannot be used as given.
    """

    __slots__ = ("__weakref__", "_blocking", "_engine", "_scheduler")

    _engine: Engine
    _blocking: SyncRuntime | None
    _scheduler: AsyncioScheduler | None
    """That of the loop on which the runtime was used last."""

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
        object.__setattr__(self, "_blocking", None)
        object.__setattr__(self, "_scheduler", None)

    # type checkers see properties without setters, and refuse any other name
    if not TYPE_CHECKING:

        def __setattr__(self, name, value):
            refuse_assignment(self, name)

        def __delattr__(self, name):
            refuse_assignment(self, name)

    # ------------------------------------------------------------------ settings

    @property
    def tools(self) -> Toolset:
        """The tools, which may be added, replaced and removed while runs are under way."""
        return self._engine.tools

    @property
    def store(self) -> Store:
        """The store, as far as the runtime's scope can see it."""
        return self._engine.store

    @property
    def policy(self) -> Policy:
        """What a run may do."""
        return self._engine.policy

    @property
    def approver(self) -> Approver | None:
        """Who is asked for approval, if anybody."""
        return self._engine.approver

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who is called with every event."""
        return self._engine.observers

    @property
    def budget(self) -> Budget:
        """What a run may spend unless it says otherwise."""
        return self._engine.budget

    @property
    def result_bytes(self) -> int:
        """How much of a result the model reads, in bytes of UTF-8."""
        return self._engine.settings.result_bytes

    @property
    def approvals(self) -> ApprovalQueue:
        """The questions to people, and the words on them."""
        return admin.ApprovalQueue(self._engine.serve())

    @property
    def blocking(self) -> SyncRuntime:
        """The same runtime for code that is not async: the same tools, store, locks, budgets and runs.

        It is closed with this runtime.
        """
        if self._blocking is None:
            shared = sync.SyncRuntime._share(self._engine)
            object.__setattr__(self, "_blocking", shared)
        assert self._blocking is not None
        return self._blocking

    # ------------------------------------------------------------------ calls

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json] | str | None = None,
        *,
        run: str | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult:
        """Carry out one call, with every check and promise that a model's call gets.

        Only `callers` of the tool is not looked at: it says who of a model's side may call.

        Args:
            arguments: A JSON object, or its text.
            run: Names a conversation; calls of one run share its budget and its guard against repeated writes.
            deps: What tools read as `Context.deps`.
            inject: The values of injected parameters, by name.
            budget: What the run may spend, in place of the runtime's; so for `policy` and `approver`.
            observers: Called with every event, beside those of the runtime.
            said: What people have said to the model: names and addresses in it may be destinations of its calls, see
                `Policy.provenance`. A run remembers it.
            principal: On whose behalf, for the audit log and for approvals by several people.
            scope: The tenant. Different scopes share nothing: no run, key of a write, resource, rate, question or long
                result.

        Raises:
            MissingInjection: The tool needs a value that `inject` does not have.
        """
        return await self._perform(
            verbs.call(self._engine, name, arguments, run, options)
        )

    async def calls(
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
        """Carry out the calls of one turn that somebody else keeps; return a result for each, in order.

        The ids given are the identity of the calls: a write that declares no key is identified by its run and id, in
        every process, so that a turn which is handed over again after a crash is not done again.

        Args:
            calls: As the model wrote them; `ToolCall.arguments` is text.
            run: Names the conversation.
            turn: Names what the calls belong to, such as one invocation. Budget and loops count within it; the guard
                against repeated writes and approvals hold for the whole run.
            finish: How the model's answer ended; no call of an answer that was cut runs.
            words: What people have said of these calls, by the id of the call. A word decides a question that was open
                before, about the same tool and arguments (`ToolResult.question`). Any other call is asked about again,
                and the same word then counts only if it names that question (`Approval.question`).
            passes: Exceptions of these types that a tool raises are raised here, once every call has its result: the
                control flow of a loop around. A read leaves nothing behind. A write is in doubt and does not run again,
                unless its tool declares `hr.Write(interrupts="before")`.
            options: As for `call`.

        Raises:
            ConfigError: The calls are no list of `ToolCall`, or a word is no approval.
            MissingInjection: A tool needs a value that `inject` does not have.
        """
        return await self._perform(
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

    async def preview(
        self,
        name: str,
        arguments: Mapping[str, Json] | str | None = None,
        *,
        run: str | None = None,
        call_id: str = "",
        **options: Unpack[CallOptions],
    ) -> Preview:
        """Check a call without making it; return what would become of it. Nothing runs, and nothing is counted.

        Where a person would be asked, the question is stored, so that it can be answered before the call is made.

        Args:
            call_id: The id that the call will have, for `calls`.
            options: As for `call`.

        Raises:
            MissingInjection: The tool needs a value that `inject` does not have.
        """
        return await self._perform(
            verbs.preview(self._engine, name, arguments, run, options, call_id=call_id)
        )

    def offered(
        self,
        run: str | None = None,
        *,
        scope: str | None = None,
        policy: Policy | None = None,
    ) -> Toolset:
        """Return the tools that a model may be shown: those that the policy permits, and handrail's own.

        Args:
            run: With a run, `read_result` is among them only if a result of the run was cut, or if this process does
                not know. Without one it always is.
        """
        return self._engine.serve(scope, policy).offered_tools(run)

    async def handle(
        self,
        message: object,
        *,
        run: str | None = None,
        dialect: str = "openai-chat",
        **options: Unpack[CallOptions],
    ) -> Any:
        """Carry out the calls of a provider's message; return that provider's messages with the results, in order.

        A message without calls is an answer; after it a new round of the run begins, in which budget and loops count
        from nothing.

        Args:
            message: The assistant's message, or the whole answer that holds it, as a dictionary or an SDK's object.
            run: Names the conversation, so that repeated writes and circles are seen across its turns.
            dialect: The wire that the message is in. Prompts, such as `hermes`, have no messages: use `run`.
            options: As for `call`.
        """
        return await self._perform(
            verbs.handle(self._engine, message, run, options, dialect=dialect)
        )

    # ------------------------------------------------------------------ runs

    @overload
    async def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: None = None,
        **options: Unpack[RunOptions],
    ) -> Run[None]: ...
    @overload
    async def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: type[T],
        **options: Unpack[RunOptions],
    ) -> Run[T]: ...
    @overload
    async def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: object,
        **options: Unpack[RunOptions],
    ) -> Run[Any]: ...
    async def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: object = None,
        **options: Unpack[RunOptions],
    ) -> Run[Any]:
        """Ask the model and carry out its calls, turn by turn, until it answers or the run must stop.

        Never raises for what the model does; `Run.status` and `Run.reason` say how the run ended.

        Args:
            question: What a person asks, or a conversation so far.
            model: `provider:name`, such as `openai:NAME`, or a `Model`.
            output: The form of the answer: a type, a JSON Schema, or a `Form`; `Run.output` is then its value.
            system: Instructions that the model reads before the question.
            budget: What the run may spend, in place of the runtime's budget.
            deps: What tools read as `Context.deps`.
            inject: The values of injected parameters, by name.
            options: How the model answers: temperature, length, ...
            run_id: The name of the run, by which it is cancelled and resumed.
            after: The run that this question goes on from, or its name: it is asked in that run, after everything that
                was said there, with a budget and a search for loops of its own. A store that keeps no runs needs the
                `Run` itself. Repeated writes are found in the whole run.
            observers: Called with every event of this run, beside those of the runtime.
            selector: What this run shows of many tools, in place of the runtime's.
            flow: Which calls it must make and must not, and when: `hr.Require`, `hr.Forbid`.

        Raises:
            SetupError: A model, tool or injected value that cannot be used as given.
            RunUnderWay: `after` is carried out by somebody else, or has been asked another question since.
            ConfigError: `after` has not answered yet: it waits for a person, or its process has left it.
        """
        return await self._perform(
            verbs.run(self._engine, question, model=model, output=output, **options)
        )

    @overload
    async def resume(
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
    async def resume(
        self,
        run_id: str,
        *,
        output: object = None,
        anyway: bool = False,
        epoch: int | None = None,
        model_wait: ModelWait | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]: ...
    async def resume(
        self,
        run_id: str,
        *,
        output: object = None,
        anyway: bool = False,
        epoch: int | None = None,
        model_wait: ModelWait | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]:
        """Resume a run that was interrupted, failed, waits for a person, or ended by its budget; in any process.

        Nothing is repeated: finished turns and results come from the journal, writes from the ledger. A run that has
        answered returns its `Run` again; a cancelled run continues.

        Args:
            output: As for `run`. Without it the answer must fit the schema that was stored, and `Run.output` is its
                plain JSON value.
            anyway: Resume even a poisoned run (`records.MOST_TAKEOVERS` processes that took it over died in it), or one
                that a living process carries out: that process then records nothing more of it.
            epoch: Take the run over only if this is still its epoch (`RunRecord.epoch`), so that nobody else has taken
                it over since that was read. Workers give it. A run that must then wait long for the lease of an earlier
                process raises `RunPostponed` in place of waiting.
            model_wait: How the run has waited for its model so far. Workers give it. While the model is away, the run
                raises `RunPostponed` in place of ending as `failed`, until it has waited `model_wait.most_s`.
            options: `model`, `budget`, `deps`, `inject`, `observers`, `selector`, `flow`, as for `run`. What cannot be
                stored (an object as model, dependencies, injected values, a selector, a rule's function) is given
                again.

        Raises:
            ConfigError: The store keeps no runs, or none of that name; or the run is poisoned.
            RunUnderWay: Another process, which lives, carries it out.
            Fenced: `epoch` was given, and somebody has taken the run over since, or it was cancelled or has failed.
            RunPostponed: `epoch` was given, and the run must wait for the lease of an earlier process; or `model_wait`
                was given, and its model is away.
            JournalMismatch: What was stored cannot be read by this version.
        """
        return await self._perform(
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
    async def replay(
        self, run_id: str, *, output: type[T], **options: Unpack[ResumeOptions]
    ) -> Run[T]: ...
    @overload
    async def replay(
        self, run_id: str, *, output: object = None, **options: Unpack[ResumeOptions]
    ) -> Run[Any]: ...
    async def replay(
        self, run_id: str, *, output: object = None, **options: Unpack[ResumeOptions]
    ) -> Run[Any]:
        """Repeat a run from its journal alone: no model is asked, no tool is run, nothing is recorded.

        Args:
            options: As for `resume`.

        Raises:
            JournalMismatch: The journal ends before the run does.
        """
        return await self._perform(
            verbs.replay(self._engine, run_id, output=output, **options)
        )

    @overload
    async def fork(
        self,
        run_id: str,
        *,
        at_turn: int,
        output: type[T],
        **options: Unpack[ResumeOptions],
    ) -> Run[T]: ...
    @overload
    async def fork(
        self,
        run_id: str,
        *,
        at_turn: int,
        output: object = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]: ...
    async def fork(
        self,
        run_id: str,
        *,
        at_turn: int,
        output: object = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]:
        """Begin a new run with the first turns of another, and ask the model again from `at_turn` on.

        A write that the other run has made since then is repeated only if a person approves it.

        Args:
            options: As for `resume`.
        """
        return await self._perform(
            verbs.fork(self._engine, run_id, at_turn=at_turn, output=output, **options)
        )

    async def workflow(
        self,
        fn: Callable[Concatenate[Workflow, ...], Awaitable[T]],
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
        """Run a function that decides the steps of a run itself, and asks models where it wants to; see `workflows`.

        With a store that keeps runs it survives its process: call this again with the same `run_id`, and each step that
        has happened is answered from what was recorded. What the function raises is raised here.

        Args:
            fn: Called with a `Workflow` and the arguments; what it returns is `Run.output`.
            arguments: JSON. May be left out when a stored workflow is resumed.
            options: Defaults for the models that it runs: `model`, `system`, `options`, `observers`,
                `selector`, `flow`.

        Raises:
            ConfigError: The `run_id` is taken by another run, or by one with other arguments.
            JournalMismatch: A step is not the one that was recorded.
        """
        return await self._perform(
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
    ) -> RunStream[None]: ...
    @overload
    def stream(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: type[T],
        **options: Unpack[RunOptions],
    ) -> RunStream[T]: ...
    @overload
    def stream(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: object,
        **options: Unpack[RunOptions],
    ) -> RunStream[Any]: ...
    def stream(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str | Model,
        output: object = None,
        **options: Unpack[RunOptions],
    ) -> RunStream[Any]:
        """Do what `run` does, and yield its events as they happen: `async for event in runtime.stream(...)`."""

        def start(observer: Observer) -> Awaitable[Run[Any]]:
            observed: RunOptions = {
                **options,
                "observers": (*options.get("observers", ()), observer),
            }
            return self.run(question, model=model, output=output, **observed)

        return RunStream(start)

    # ------------------------------------------------------------------ runs of workers

    async def submit(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        model: str = "",
        output: object = None,
        **options: Unpack[SubmitOptions],
    ) -> str:
        """Store a run that a worker carries out, see `handrail worker`; return its name once it is on the disk.

        Args:
            model: By name, such as `openai:NAME`; empty for the worker's.
            output: As for `run`. Its schema is stored, and `Run.output` is plain JSON.
            options: `system`, `budget`, `options`, `flow` and `principal` as for `run`; `scope`, the tenant; `queue`,
                which workers name; `priority`, larger first among the tenant's; `run_id`, a name for the run; and
                `idempotent`: submitting the same question under the same `run_id` again changes nothing.

        Raises:
            ConfigError: Something was given that cannot be stored, or the store hands no runs to workers.
            RunNameTaken: There is a run of that name, with another question or without `idempotent`.
            StoreUnavailable: The store did not answer; nothing was submitted, as far as can be seen from here.
        """
        return await self._perform(
            submitting.submit(
                self._engine, question, model=model, output=output, options=options
            )
        )

    async def result(
        self, run_id: str, *, within_s: float | None = None, scope: str | None = None
    ) -> Run[Any]:
        """Wait for the end of a run that another process carries out; return it as it was recorded.

        A run that waits for people is returned as `waiting`.

        Args:
            within_s: How long to wait, in seconds; None for as long as it takes.

        Raises:
            ConfigError: There is no such run, or `within_s` is no number.
            RunUnderWay: It has not ended by then.
        """
        return await self._perform(
            submitting.await_end(self._engine.serve(scope), run_id, within_s=within_s)
        )

    # ------------------------------------------------------------------ taking back, cancelling, closing

    async def undoable(
        self,
        run_id: str,
        *,
        inject: Mapping[str, Any] | None = None,
        scope: str | None = None,
    ) -> list[Undoable]:
        """Return the writes of a stored run that its tools can take back, the newest first.

        Args:
            inject: As for the run, where keys or other rules of its tools look at injected values.

        Raises:
            ConfigError: There is no such run.
            MissingInjection: A rule of a tool looks at a value that `inject` does not have.
        """
        return await self._perform(
            verbs.undoable(self._engine.serve(scope), run_id, inject)
        )

    async def undo(
        self,
        run_id: str,
        steps: Sequence[str] | None = None,
        *,
        inject: Mapping[str, Any] | None = None,
        scope: str | None = None,
    ) -> list[ToolResult]:
        """Take back writes of a run: these steps, or all that `undoable` offers, the newest first.

        Each step is a write of its own, which happens at most once, and frees the key of the write that it took back.
        No person is asked: the caller has decided.

        Args:
            inject: As for `undoable`; `compensate` gets those values that it names.

        Raises:
            ConfigError: There is no such run, or a step is not one that can be taken back.
            MissingInjection: `inject` does not have what a rule or `compensate` names.
            StoreUnavailable: A write was taken back and its key could not be freed; call this again.
        """
        return await self._perform(
            verbs.undo(self._engine.serve(scope), run_id, steps, inject)
        )

    async def deliver(
        self,
        call: str,
        value: Json,
        *,
        run: str | None = None,
        by: str = "",
        scope: str | None = None,
    ) -> ApprovalRequest:
        """Deliver the result of a call of a `deferred` tool. It is stored; the run goes on when it is resumed.

        The same value once more changes nothing, so a message may come twice.

        Args:
            call: The id of the question (`ToolResult.question`), or with `run` that of the call.
            value: Any JSON value.
            by: Who answers, for the audit log.

        Raises:
            ConfigError: No call waits for this result, or another value was delivered.
        """
        queue = self.approvals.for_scope(scope)
        if run is not None:
            call = await queue._find_call(call, run)
        return await queue.answer(call, value, by=by)

    def cancel(self, run_id: str, *, by: str = "", scope: str | None = None) -> bool:
        """End a run, from any thread: its calls are cancelled, and its `Run` has the status `cancelled`.

        A run that another process carries out is ended there, at its next step, if the store keeps runs.

        Args:
            by: Who cancels it, for the audit log.

        Returns:
            Whether such a run is under way. It ends soon, not at once.
        """
        return self._engine.serve(scope).cancel(run_id, by=by)

    async def close(self) -> None:
        """Close the opened tools, the last one first, and the models' connections; release the threads."""
        self._engine.begin_close()
        if self._blocking is not None:
            await asyncio.to_thread(self._blocking._loop_thread.close)
        await self._engine.services.close()
        await self._engine.close_models()
        await asyncio.to_thread(self._engine.close_store)  # it may still have to write

    async def __aenter__(self) -> Runtime:
        self._engine.reopen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------------ driving verbs

    async def _perform(self, verb: Verb[T]) -> T:
        """Drive a verb to its end: answer what it requests."""
        answer: Any
        try:
            request = next(verb)
            while True:
                try:
                    if isinstance(request, PerformBatch):
                        answer = None
                        waiting = self._begin_batch(request)
                        if waiting is not None:
                            await waiting
                    elif isinstance(request, AskTurn):
                        request.engine.watch_cancels(asyncio.get_running_loop)
                        answer = await request.engine.asker.ask(
                            request.active, request.model, request.asked
                        )
                    elif isinstance(request, CallFunction):
                        answer = await workflows.call_function(
                            request.engine, self._perform, request
                        )
                    elif isinstance(request, Pause):
                        await asyncio.sleep(request.seconds)
                        answer = None
                    else:
                        answer = await wait_for(request)
                except BaseException as error:
                    request = verb.throw(error)
                else:
                    request = verb.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _begin_batch(self, request: PerformBatch) -> Awaitable[None] | None:
        """Carry out a batch as far as it waits for nothing; return what waits for its end, None if it has ended."""
        scheduler = self._scheduler
        if scheduler is None or scheduler.loop is not asyncio.get_running_loop():
            scheduler = AsyncioScheduler()
            object.__setattr__(self, "_scheduler", scheduler)
        executor = BatchExecutor(
            request.engine, scheduler, request.active, request.batch, runtime=self
        )
        executor.run_until_blocked()
        if not executor.over:
            request.engine.watch_cancels(asyncio.get_running_loop)
            return scheduler.wait_for(executor)
        if executor.error is not None:
            raise executor.error
        return None


class RunStream(Generic[T]):
    """The events of one run as they happen; `run` is available once they have ended.

    Leaving the loop early cancels the run.
    """

    _run: Run[T] | None = None

    def __init__(self, start: Callable[[Observer], Awaitable[Run[T]]]) -> None:
        self._start = start

    @property
    def run(self) -> Run[T]:
        """The run, after its events were read to the end.

        Raises:
            RuntimeError: The events have not been read to the end.
        """
        if self._run is None:
            raise RuntimeError("the run has not ended: read all of its events first")
        return self._run

    async def __aiter__(self) -> AsyncIterator[Event]:
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        running = asyncio.ensure_future(self._start(events.put_nowait))
        running.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self._run = await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
