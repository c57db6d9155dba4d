"""A fixed course of steps, written as a function of the user, in which models decide what is left to them.

    async def triage(flow: hr.Workflow, ticket: str) -> str:
        found = await flow.call("get_ticket", {"id": ticket})
        kind = await flow.run(f"Which kind is this? {found.text}", output=Kind)
        if kind.output.urgent:
            await flow.call("page_on_call", {"ticket": ticket})

    run = await runtime.workflow(triage, {"ticket": "T-1"}, run_id="triage-T-1", model="openai:NAME")

The function is the state: after a crash it is called again from its beginning with the same run id, and every step that
has happened is answered from the journal, its writes from the ledger, its runs from their own journals.

Rule 1: steps are identified by the order in which they start, so the function does nothing by chance or by the clock
        beside its steps; a step that is not the recorded one is a `JournalMismatch`, and nothing runs.
Rule 2: a step that waits for a person, or was cancelled, leaves the function by `Suspended`, which is no `Exception`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypedDict, TypeVar, overload

from msgspec.structs import replace
from typing_extensions import Unpack

from handrail.calls import ToolCall, ToolResult, arguments_text
from handrail.core.batch import CallPosition
from handrail.core.budgets import Budget
from handrail.core.conversation import Ending, describe_pending
from handrail.core.flow import Rules
from handrail.core.results import as_text
from handrail.engine import verbs
from handrail.engine.active_run import ActiveRun, cancelled
from handrail.engine.engine import CallFunction, Engine, Verb
from handrail.engine.model_calls import check_injected
from handrail.engine.nested_runs import ONLY_AT_FIRST, check_same_question
from handrail.engine.verbs import Whose
from handrail.errors import (
    ConfigError,
    Fenced,
    HandrailError,
    JournalMismatch,
    Json,
    StoreUnavailable,
)
from handrail.invisible import check_name
from handrail.journal.codec import (
    RunInput,
    budget_as_json,
    input_as_json,
    input_from_json,
)
from handrail.messages import Message, Options, Turn, UserMessage
from handrail.parsing import jsontext
from handrail.ports import Model, Observer, Selector
from handrail.records import JournalEntry, RunRecord, StoredRun
from handrail.runs import Run
from handrail.tools.tool import BaseTool

T = TypeVar("T")

_LEAVES = ("waiting", "cancelled", "moved", "failed")
"""The endings of a model's run that can be resumed: the workflow waits for it."""


class WorkflowOptions(TypedDict, total=False):
    """What the runs of a workflow's models take unless they say otherwise; see `Runtime.workflow`."""

    model: str | Model
    system: str
    options: Options | None
    observers: Sequence[Observer]
    selector: str | Selector | None
    flow: Rules


class StepOptions(WorkflowOptions, total=False):
    """What `Workflow.run` takes beside the question and the output; see `Runtime.run`."""

    budget: Budget | None
    deps: Any
    inject: Mapping[str, Any] | None


# Like CancelledError: a user's `except Exception` must not catch it.
class Suspended(BaseException):
    """A workflow cannot go on now: a step waits for a person, was cancelled, or belongs to somebody else."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Steps:
    """The steps of one workflow, by number; what both kinds of workflow share.

    Attributes:
        run_id: Of the workflow. The runs of its models are called by it and their number: `triage-T-1.2`.
        deps: Whatever was passed as `deps=`.
    """

    def __init__(
        self, engine: Engine, active: ActiveRun, options: Mapping[str, Any]
    ) -> None:
        self.run_id = active.id
        self.deps = active.deps
        self._engine = engine
        self._active = active
        self._options = options
        self._number = 0
        self._left: Ending | None = None

    # ------------------------------------------------------------------ the steps as verbs

    def _call(
        self, name: str, arguments: Mapping[str, Json] | str | None
    ) -> Verb[ToolResult]:
        number = self._next_number()
        if self._may_have_been_run(number):
            self._check_was_no_run(
                number,
                name,
                (yield self._engine.runs.load_run(self._id_of_run(number))),
            )
        try:
            return (yield from self._perform_call(number, name, arguments))
        except (Fenced, StoreUnavailable) as error:
            raise self._leave(ending_by_error(error)[0]) from error

    def _perform_call(
        self, number: int, name: str, arguments: Mapping[str, Json] | str | None
    ) -> Verb[ToolResult]:
        engine = self._engine
        active = self._active
        turn = Turn(
            calls=[ToolCall(f"step_{number}", name, arguments_text(arguments))],
            finish="calls",
        )
        if active.recording is not None:
            self._check_same_call(active.recording.answer(number), turn, number)
        tool = engine.callable_tools().resolve(name)
        if isinstance(tool, BaseTool):
            check_injected([tool], active.injected)
        tools = engine.callable_tools(turn.calls)
        batch = yield from engine.open_batch(
            active, turn, number, tools, positions=[CallPosition(0, "")]
        )
        yield from engine.perform_turn(active, batch, number)
        result = batch.collect_results()[0]
        for each in (result, *batch.followed.values()):
            if reason := describe_pending([each]):
                raise self._leave(Ending("waiting", reason))
        if active.cancelled:
            raise self._leave(cancelled(active))
        return result

    def _run(
        self, question: Any, output: object, options: StepOptions
    ) -> Verb[Run[Any]]:
        number = self._next_number()
        self._check_was_no_call(number)
        engine = self._engine
        active = self._active
        run_id = self._id_of_run(number)
        stored = (
            (yield engine.runs.load_run(run_id))
            if active.recording is not None
            else None
        )
        stop = partial(engine.cancel, run_id)
        active.add_stop(stop)
        try:
            if stored is None:
                self._check_may_begin(run_id)
                try:
                    given = self._merge_options(options, output)
                    return self._leave_unless_ended(
                        (
                            yield from verbs.run(
                                engine,
                                question,
                                run_id=run_id,
                                parent=active.progress.trust,
                                **given,
                            )
                        )
                    )
                except ConfigError:
                    # another process that drives this workflow may have started that run meanwhile
                    stored = (
                        (yield engine.runs.load_run(run_id))
                        if active.recording
                        else None
                    )
                    if stored is None:
                        raise
            check_same_question(stored, question, options)
            given = self._merge_options(options, output, resuming=True)
            return self._leave_unless_ended(
                (yield from verbs.resume(engine, run_id, **given))
            )
        finally:
            active.remove_stop(stop)

    # ------------------------------------------------------------------ what a step checks

    def _next_number(self) -> int:
        # A step in a `finally` is not taken once the workflow leaves: it would take the number of the next step.
        if self._left is not None:
            raise Suspended(self._left)
        if self._active.cancelled:
            raise self._leave(cancelled(self._active))
        self._number += 1
        return self._number

    def _leave(self, ending: Ending) -> Suspended:
        self._left = ending
        return Suspended(ending)

    def _leave_unless_ended(self, run: Run[Any]) -> Run[Any]:
        if run.status in _LEAVES:
            raise self._leave(Ending(run.status, f"its run {run.id}: {run.reason}"))
        self._active.progress.trust.note_unseen(run.label)
        return run

    def _id_of_run(self, number: int) -> str:
        return f"{self.run_id}.{number}"

    def _may_have_been_run(self, number: int) -> bool:
        """Return whether a step that is now a call may have been a run before: only the store knows."""
        recording = self._active.recording
        return (
            recording is not None
            and recording.is_resumed
            and not recording.has_answer(number)
        )

    def _check_was_no_run(
        self, number: int, name: str, stored: StoredRun | None
    ) -> None:
        if stored is not None:
            raise JournalMismatch(
                f"step {number} of workflow {self.run_id!r} was the run {stored.record.run_id!r} of a model and is now "
                f"a call of {name}; a workflow makes the same steps each time"
            )

    def _check_was_no_call(self, number: int) -> None:
        recording = self._active.recording
        if (
            recording is not None
            and recording.has_answer(number)
            and (turn := recording.answer(number)) is not None
        ):
            raise JournalMismatch(
                f"step {number} of workflow {self.run_id!r} was {turn.calls[0].name}({turn.calls[0].arguments}) and "
                "is now a run of a model; a workflow makes the same steps each time"
            )

    def _check_same_call(self, recorded: Turn | None, turn: Turn, number: int) -> None:
        """Note a new call in the journal, or raise when the recorded one is another."""
        if recorded is None:
            assert self._active.recording is not None
            self._active.recording.note_answer(number, turn)
        elif (before := recorded.calls[0]) != turn.calls[0]:
            raise JournalMismatch(
                f"step {number} of workflow {self.run_id!r} was {before.name}({before.arguments}) and is now "
                f"{turn.calls[0].name}({turn.calls[0].arguments}); a workflow makes the same steps each time"
            )

    def _check_may_begin(self, run_id: str) -> None:
        if self._active.recording is not None and self._active.recording.replaying:
            raise JournalMismatch(
                f"workflow {self.run_id!r} has returned without {run_id!r}, and does no more now"
            )

    def _merge_options(
        self, options: StepOptions, output: object, *, resuming: bool = False
    ) -> dict[str, Any]:
        """Return the options of a model's run; resuming it takes fewer."""
        given = {**self._options, **options, "output": output}
        return {
            name: value
            for name, value in given.items()
            if not (resuming and name in ONLY_AT_FIRST)
        }


class Perform(Protocol):
    """Drives a verb on asyncio."""

    def __call__(self, verb: Verb[T], /) -> Awaitable[T]:
        """Return what the verb returns."""
        ...


class PerformBlocking(Protocol):
    """Drives a verb in the calling thread."""

    def __call__(self, verb: Verb[T], /) -> T:
        """Return what the verb returns."""
        ...


class Workflow(Steps):
    """What an async workflow makes its steps with: several at once, if they start in the same order each time."""

    def __init__(
        self,
        perform: Perform,
        engine: Engine,
        active: ActiveRun,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(engine, active, options)
        self._perform = perform
        self._under_way: set[asyncio.Future[None]] = set()

    async def wait_for_steps(self) -> None:
        """Wait for the steps still under way: of those started together, one may leave before the others end."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    @contextmanager
    def _step(self) -> Iterator[None]:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(over)
        try:
            yield
        finally:
            self._under_way.discard(over)
            over.set_result(None)

    async def call(
        self, name: str, arguments: Mapping[str, Json] | str | None = None
    ) -> ToolResult:
        """Call a tool, with every check, as one step; whatever the tool did is in the result."""
        with self._step():
            return await self._perform(self._call(name, arguments))

    @overload
    async def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        output: type[T],
        **options: Unpack[StepOptions],
    ) -> Run[T]: ...
    @overload
    async def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        output: object = None,
        **options: Unpack[StepOptions],
    ) -> Run[Any]: ...
    async def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        output: object = None,
        **options: Unpack[StepOptions],
    ) -> Run[Any]:
        """Ask a model, with tools as it likes, as one step; takes what `Runtime.run` takes, but for `run_id`."""
        with self._step():
            return await self._perform(self._run(question, output, options))


class SyncWorkflow(Steps):
    """What a blocking workflow makes its steps with, one after the other."""

    def __init__(
        self,
        perform: PerformBlocking,
        engine: Engine,
        active: ActiveRun,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(engine, active, options)
        self._perform = perform

    def call(
        self, name: str, arguments: Mapping[str, Json] | str | None = None
    ) -> ToolResult:
        """See `Workflow.call`."""
        return self._perform(self._call(name, arguments))

    @overload
    def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        output: type[T],
        **options: Unpack[StepOptions],
    ) -> Run[T]: ...
    @overload
    def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        output: object = None,
        **options: Unpack[StepOptions],
    ) -> Run[Any]: ...
    def run(
        self,
        question: str | Message | Sequence[Message | Mapping[str, Json]],
        *,
        output: object = None,
        **options: Unpack[StepOptions],
    ) -> Run[Any]:
        """See `Workflow.run`."""
        return self._perform(self._run(question, output, options))


# ---------------------------------------------------------------------- the verb


def workflow(
    engine: Engine,
    fn: Callable[..., Any],
    arguments: Mapping[str, Json] | None,
    *,
    run_id: str | None,
    budget: Budget | None,
    deps: Any,
    inject: Mapping[str, Any] | None,
    whose: Whose,
    options: WorkflowOptions,
) -> Verb[Run[Any]]:
    """See `Runtime.workflow`."""
    engine = verbs.serve(engine, whose)
    stored: StoredRun | None = None
    if run_id and engine.keeps_runs:
        stored = yield engine.load_run(run_id)
    active = _open_run(
        engine,
        stored,
        whose,
        run=run_id,
        deps=deps,
        inject=inject,
        budget=budget,
        observers=options.get("observers", ()),
    )
    record = make_record(active, fn, arguments)
    active.progress.trust.trust_words([arguments_text(arguments)])
    if stored is None and run_id:
        check_name("run_id", run_id)
    given = check_stored(stored, record, arguments)
    if stored is not None:
        loaded = stored.record
        record = replace(record, epoch=loaded.epoch, status=loaded.status)
    has_returned = stored is not None and stored.record.status == "done"
    engine.register_run(active, "")
    error: BaseException | None = None
    try:
        if engine.keeps_runs:
            if stored is None or not has_returned:
                stored = yield engine.runs.begin_run(record)
            engine.attach_journal(active, stored, replaying=has_returned)
        whose["principal"] = active.principal
        for_runs = {"deps": deps, "inject": inject, **whose, **options}
        value = yield CallFunction(engine, active, fn, given, for_runs)
        ending = Ending("done", "", "" if value is None else as_text(value), value)
    except BaseException as raised:
        ending, error = ending_by_error(raised)
    ending = yield from _record_end(engine, active, ending)
    run = engine.finish_run(active, ending)
    if error is not None:
        raise error
    return run


def _record_end(engine: Engine, active: ActiveRun, ending: Ending) -> Verb[Ending]:
    """Append the end of a workflow to its journal; return how it ended, where that is something else now."""
    try:
        if entry := _last_entry(active, ending):
            is_cancelled = yield engine.runs.append_entry(entry)
            assert active.recording is not None
            if is_cancelled and ending.status == "waiting":
                ending = cancelled(active)
                ended = active.recording.last_entry(ending)
                assert ended is not None
                yield engine.runs.append_entry(ended)
            active.recording.confirm_entry()
    except HandrailError as failure:
        ending = ending_by_error(failure)[0]
        if isinstance(failure, StoreUnavailable):
            engine.release_run(active)
    return ending


def _open_run(
    engine: Engine, stored: StoredRun | None, whose: Whose, **given: Any
) -> ActiveRun:
    """Open the run of a workflow. It acts for whom it was started, whoever goes on with it."""
    principal = whose.get("principal")
    approver = whose.get("approver")
    if stored is None:
        return engine.open_run(principal=principal, approver=approver, **given)
    acts_for = input_from_json(stored.record.input).principal
    active = engine.open_run(principal=acts_for, approver=approver, **given)
    active.note_resumed_by(engine.principal if principal is None else principal)
    return active


async def call_function(engine: Engine, perform: Perform, request: CallFunction) -> Any:
    """Call the function of an async workflow, and wait for the steps that are under way when it ends."""
    flow = Workflow(perform, engine, request.active, request.options)
    try:
        value = await request.fn(flow, **request.arguments)
    except asyncio.CancelledError:
        raise
    except BaseException:
        await flow.wait_for_steps()
        raise
    await flow.wait_for_steps()
    return value


def call_function_blocking(
    engine: Engine, perform: PerformBlocking, request: CallFunction
) -> Any:
    """Call the function of a blocking workflow."""
    return request.fn(
        SyncWorkflow(perform, engine, request.active, request.options),
        **request.arguments,
    )


def make_record(
    active: ActiveRun, fn: Callable[..., Any], arguments: Mapping[str, Json] | None
) -> RunRecord:
    """Return the record of a workflow that is started or resumed.

    Raises:
        ConfigError: Its arguments are no JSON.
    """
    name = getattr(fn, "__name__", type(fn).__name__)
    text = arguments_text(arguments)
    asked = RunInput(
        [UserMessage(f"workflow {name}: {text}")],
        "",
        budget=budget_as_json(active.budget),
        workflow=[name, jsontext.loads(text)],
        principal=active.principal,
    )
    return RunRecord(active.id, input_as_json(asked))


def check_stored(
    stored: StoredRun | None, record: RunRecord, arguments: Mapping[str, Json] | None
) -> dict[str, Json]:
    """Return the arguments of a workflow: those that were stored, which must equal those that are given, if any are.

    Raises:
        ConfigError: The name is another run's, or the arguments are others.
    """
    name, given = input_from_json(record.input).workflow
    if stored is None:
        return dict(given)
    before = input_from_json(stored.record.input).workflow
    if not before or before[0] != name:
        what = f"the workflow {before[0]!r}" if before else "a run of a model"
        raise ConfigError(
            f"{record.run_id!r} is stored already, as {what}; give this workflow another run_id"
        )
    if arguments is not None and before[1] != given:
        raise ConfigError(
            f"{record.run_id!r} was started with other arguments; give this workflow another run_id"
        )
    return dict(before[1])


def ending_by_error(error: BaseException) -> tuple[Ending, BaseException | None]:
    """Return how a workflow ended that an exception left, and what of the exception is raised to the caller."""
    # of a TaskGroup, in which one of several steps has left
    if isinstance(error, BaseExceptionGroup):
        suspended, others = error.split(Suspended)
        if suspended is not None:
            return ending_by_error(
                others if others is not None else _first_in_group(suspended)
            )
    match error:
        case Suspended(ending=ending):
            return ending, None
        case Fenced():
            return Ending("moved", "somebody else has taken this run over"), None
        case StoreUnavailable():
            return Ending(
                "failed", f"what happened in this run could not be recorded: {error}"
            ), None
        case asyncio.CancelledError() | KeyboardInterrupt():
            return Ending("cancelled", "whoever drove it was cancelled"), error
    return Ending("failed", f"its function raised {type(error).__name__}"), error


def _first_in_group(group: BaseExceptionGroup[Any]) -> BaseException:
    first: BaseException = group.exceptions[0]
    return _first_in_group(first) if isinstance(first, BaseExceptionGroup) else first


def _last_entry(active: ActiveRun, ending: Ending) -> JournalEntry | None:
    """Return the entry of the end, if this process may still record it."""
    if active.recording is None or ending.status == "moved":
        return None
    return active.recording.last_entry(ending)
