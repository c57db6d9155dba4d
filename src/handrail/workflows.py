"""A fixed course of steps, written as a function of the user, in which models decide what is left to them.

    async def triage(flow: hr.Workflow, ticket: str) -> str:
        found = await flow.call("get_ticket", {"id": ticket})
        kind = await flow.run(f"Which kind is this? {found.text}", output=Kind)
        if kind.output.urgent:
            await flow.call("page_on_call", {"ticket": ticket})

    run = await runtime.workflow(triage, {"ticket": "T-1"}, run_id="triage-T-1", model="openai:NAME")

The function is the state: after a crash it is called again from its beginning with the same run id, and every step that
has happened is answered from the journal, its writes from the ledger, its runs from their own journals.

Rule 1: steps are known by the order in which they are begun, so the function does nothing by chance or by the clock
        beside its steps; a step that is not the recorded one is a `JournalMismatch`, and nothing runs.
Rule 2: a step that waits for a person, or was cancelled, leaves the function by `Suspended`, which is no `Exception`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from handrail.calls import ToolCall, ToolResult, arguments_text
from handrail.core.batch import Batch, CallPosition
from handrail.core.conversation import Ending
from handrail.core.results import text_of
from handrail.engine.active_run import ActiveRun, cancelled
from handrail.engine.engine import Engine
from handrail.engine.model_calls import check_injected
from handrail.engine.nested_runs import ONLY_AT_FIRST, check_same_question
from handrail.errors import Code, ConfigError, Fenced, HandrailError, JournalMismatch, Json, StoreUnavailable
from handrail.futures import result_now, wait_for
from handrail.journal.codec import RunInput, budget_as_json, input_as_json, input_from_json
from handrail.messages import Turn, UserMessage
from handrail.parsing import jsontext
from handrail.records import JournalEntry, RunRecord, StoredRun
from handrail.runs import Run
from handrail.tools.tool import BaseTool

CallSteps = Generator[Batch | JournalEntry, Any, ToolResult]

_LEAVES = ("waiting", "cancelled", "moved", "failed")
"""How a run of a model may end that can be gone on with: the workflow waits for it."""


class Suspended(BaseException):  # noqa: N818  # like CancelledError: `except Exception` of the user's must not stop it
    """A workflow cannot go on now: a step waits for a person, was cancelled, or belongs to somebody else."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Steps:
    """The steps of one workflow, by number; what both drivers share.

    Attributes:
        run_id: Of the workflow. The runs of its models are called by it and their number: `triage-T-1.2`.
        deps: Whatever was passed as `deps=`.
    """

    def __init__(self, host: Engine, session: ActiveRun, how: Mapping[str, Any]) -> None:
        self.run_id, self.deps = session.id, session.deps
        self._host, self._session, self._how = host, session, how
        self._number = 0
        self._left: Ending | None = None

    def _next(self) -> int:
        # What stands in a `finally` is not done at a leave: it would take the place of the step that comes next time.
        if self._left is not None:
            raise Suspended(self._left)
        if self._session.cancelled:
            raise self._leave(cancelled(self._session))
        self._number += 1
        return self._number

    def _leave(self, ending: Ending) -> Suspended:
        self._left = ending
        return Suspended(ending)

    def _run_id(self, number: int) -> str:
        """Return the name of the run that a step made, or makes."""
        return f"{self.run_id}.{number}"

    def _may_have_been_run(self, number: int) -> bool:
        """Whether a step, which is now a call, may be recorded as a run: that is known to the store alone."""
        recording = self._session.recording
        return recording is not None and recording.goes_on and not recording.holds(number)

    def _check_call(self, number: int, name: str, begun: StoredRun | None) -> None:
        if begun is not None:
            raise JournalMismatch(
                f"step {number} of workflow {self.run_id!r} was the run {begun.record.run_id!r} of a model and is now "
                f"a call of {name}; a workflow makes the same steps each time"
            )

    def _check_run(self, number: int) -> None:
        recording = self._session.recording
        if recording is not None and recording.holds(number) and (known := recording.answer(number)) is not None:
            raise JournalMismatch(
                f"step {number} of workflow {self.run_id!r} was {known.calls[0].name}({known.calls[0].arguments}) and "
                "is now a run of a model; a workflow makes the same steps each time"
            )

    def _calling(self, number: int, name: str, arguments: Mapping[str, Json] | str | None) -> CallSteps:
        """Yield what must happen for a step, a call; return its result."""
        host, session = self._host, self._session
        turn = Turn(calls=[ToolCall(f"step_{number}", name, arguments_text(arguments))], finish="calls")
        if session.recording is not None:
            known = session.recording.answer(number)
            if known is None:
                session.recording.note_answer(number, turn)
            elif (was := known.calls[0]) != turn.calls[0]:
                raise JournalMismatch(
                    f"step {number} of workflow {self.run_id!r} was {was.name}({was.arguments}) and is now "
                    f"{name}({turn.calls[0].arguments}); a workflow makes the same steps each time"
                )
        tool = host.callable_tools().resolve(name)
        if isinstance(tool, BaseTool):
            check_injected([tool], session.injected)
        batch = host.batch(session, turn, number, slots=[CallPosition(0, "")])
        yield from host.carried(session, batch, number)
        result = batch.finished()[0]
        for each in (result, *batch.followed.values()):
            if each.failure is not None and each.failure.code == Code.APPROVAL_PENDING:
                raise self._leave(Ending("waiting", f"waiting for approval of {each.name}"))
        if session.cancelled:
            raise self._leave(cancelled(session))
        return result

    def _options(self, how: Mapping[str, Any], *, again: bool) -> dict[str, Any]:
        """Return how a run of a model is made, or gone on with, which takes less."""
        given = {**self._how, **how}
        return {name: value for name, value in given.items() if not (again and name in ONLY_AT_FIRST)}

    def _may_begin(self, run_id: str) -> None:
        if self._session.recording is not None and self._session.recording.replaying:
            raise JournalMismatch(f"workflow {self.run_id!r} has returned without {run_id!r}, and does no more now")

    def _ended(self, run: Run) -> Run:
        if run.status in _LEAVES:
            raise self._leave(Ending(run.status, f"its run {run.id}: {run.reason}"))
        return run


class AsyncDriver(Protocol):
    """What a workflow needs of the asyncio driver, beside what a `Engine` is."""

    async def carry(self, session: ActiveRun, batch: Batch) -> None:
        """Carry out the calls of a batch."""
        ...

    @property
    def run(self) -> Callable[..., Awaitable[Run]]:
        """See `Runtime.run`."""
        ...

    @property
    def resume(self) -> Callable[..., Awaitable[Run]]:
        """See `Runtime.resume`."""
        ...


class Workflow(Steps):
    """What an async workflow makes its steps with: several at once, if they are begun in the same order each time."""

    def __init__(self, driver: AsyncDriver, host: Engine, session: ActiveRun, how: Mapping[str, Any]) -> None:
        super().__init__(host, session, how)
        self._driver = driver
        self._under_way: set[asyncio.Future[None]] = set()

    async def settled(self) -> None:
        """Wait for the steps that are still under way: of those begun at once, one may leave before the others end."""
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

    async def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolResult:
        """Call a tool, with every check, as one step; whatever the tool did, it is told in the result."""
        number = self._next()
        with self._step():
            if self._may_have_been_run(number):
                self._check_call(number, name, await wait_for(self._host.runs.load_run(self._run_id(number))))
            return await self._called(self._calling(number, name, arguments))

    async def _called(self, steps: CallSteps) -> ToolResult:
        answer = False
        try:
            while True:
                step = steps.send(answer or None)
                answer = isinstance(step, JournalEntry) and await wait_for(self._host.runs.append_entry(step))
                if isinstance(step, Batch):
                    await self._driver.carry(self._session, step)
        except StopIteration as over:
            result: ToolResult = over.value
            return result
        except (Fenced, StoreUnavailable) as error:
            raise self._leave(left_by(error)[0]) from error

    async def run(self, question: Any, **how: Any) -> Run:
        """Ask a model, with tools as it likes, as one step; takes what `Runtime.run` takes."""
        number = self._next()
        self._check_run(number)
        with self._step():
            return await self._asked(self._run_id(number), question, how)

    async def _asked(self, run_id: str, question: Any, how: Mapping[str, Any]) -> Run:
        begun = await wait_for(self._host.runs.load_run(run_id)) if self._session.recording is not None else None
        stop = partial(self._host.cancel, run_id)
        self._session.stops.append(stop)
        try:
            if begun is None:
                self._may_begin(run_id)
                try:
                    return self._ended(
                        await self._driver.run(question, run_id=run_id, **self._options(how, again=False))
                    )
                except ConfigError:  # another process that drives this workflow may have begun that run meanwhile
                    begun = await wait_for(self._host.runs.load_run(run_id)) if self._session.recording else None
                    if begun is None:
                        raise
            check_same_question(begun, question, how)
            return self._ended(await self._driver.resume(run_id, **self._options(how, again=True)))
        finally:
            self._session.stops.remove(stop)


class SyncDriver(Protocol):
    """What a workflow needs of the blocking driver, beside what a `Engine` is."""

    def carry(self, session: ActiveRun, batch: Batch) -> None:
        """Carry out the calls of a batch."""
        ...

    @property
    def run(self) -> Callable[..., Run]:
        """See `SyncRuntime.run`."""
        ...

    @property
    def resume(self) -> Callable[..., Run]:
        """See `SyncRuntime.resume`."""
        ...


class SyncWorkflow(Steps):
    """What a blocking workflow makes its steps with, one after the other."""

    def __init__(self, driver: SyncDriver, host: Engine, session: ActiveRun, how: Mapping[str, Any]) -> None:
        super().__init__(host, session, how)
        self._driver = driver

    def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolResult:
        """See `Workflow.call`."""
        number = self._next()
        if self._may_have_been_run(number):
            self._check_call(number, name, result_now(self._host.runs.load_run(self._run_id(number))))
        steps, answer = self._calling(number, name, arguments), False
        try:
            while True:
                step = steps.send(answer or None)
                answer = isinstance(step, JournalEntry) and result_now(self._host.runs.append_entry(step))
                if isinstance(step, Batch):
                    self._driver.carry(self._session, step)
        except StopIteration as over:
            result: ToolResult = over.value
            return result
        except (Fenced, StoreUnavailable) as error:
            raise self._leave(left_by(error)[0]) from error

    def run(self, question: Any, **how: Any) -> Run:
        """See `Workflow.run`."""
        number = self._next()
        self._check_run(number)
        run_id = self._run_id(number)
        begun = result_now(self._host.runs.load_run(run_id)) if self._session.recording is not None else None
        stop = partial(self._host.cancel, run_id)
        self._session.stops.append(stop)
        try:
            if begun is None:
                self._may_begin(run_id)
                try:
                    return self._ended(self._driver.run(question, run_id=run_id, **self._options(how, again=False)))
                except ConfigError:  # another process that drives this workflow may have begun that run meanwhile
                    begun = result_now(self._host.runs.load_run(run_id)) if self._session.recording else None
                    if begun is None:
                        raise
            check_same_question(begun, question, how)
            return self._ended(self._driver.resume(run_id, **self._options(how, again=True)))
        finally:
            self._session.stops.remove(stop)


# ---------------------------------------------------------------------- from begin to end


def record_of(session: ActiveRun, fn: Callable[..., Any], arguments: Mapping[str, Json] | None) -> RunRecord:
    """Return what is kept of a workflow that begins, or is gone on with.

    Raises:
        ConfigError: Its arguments are no JSON.
    """
    name = getattr(fn, "__name__", type(fn).__name__)
    told = jsontext.loads(arguments_text(arguments))
    asked = RunInput(
        [UserMessage(f"workflow {name}: {arguments_text(arguments)}")], "", budget=budget_as_json(session.budget),
        workflow=[name, told],
    )  # fmt: skip
    return RunRecord(session.id, input_as_json(asked))


def check_kept(begun: StoredRun | None, record: RunRecord, arguments: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return the arguments of a workflow: those that were kept, which must be those that are given, if any are.

    Raises:
        ConfigError: The name is another run's, or the arguments are others.
    """
    name, given = input_from_json(record.input).workflow
    if begun is None:
        return dict(given)
    kept = input_from_json(begun.record.input).workflow
    if not kept or kept[0] != name:
        what = f"the workflow {kept[0]!r}" if kept else "a run of a model"
        raise ConfigError(f"{record.run_id!r} is kept already, as {what}; give this workflow another run_id")
    if arguments is not None and kept[1] != given:
        raise ConfigError(f"{record.run_id!r} was begun with other arguments; give this workflow another run_id")
    return dict(kept[1])


def is_over(begun: StoredRun | None) -> bool:
    """Whether a workflow has returned before: then it is told again, and no step of it is made anew."""
    return begun is not None and begun.record.status == "done"


def done(value: Any) -> Ending:
    """Return how a workflow ends whose function has returned."""
    return Ending("done", "", "" if value is None else text_of(value), value)


def left_by(error: BaseException) -> tuple[Ending, BaseException | None]:
    """Return how a workflow ends that was left by an exception, and what of it goes on to the caller."""
    if isinstance(error, BaseExceptionGroup):  # of a TaskGroup, in which one of several steps has left
        left, others = error.split(Suspended)
        if left is not None:
            return left_by(others if others is not None else _first_of(left))
    match error:
        case Suspended(ending=ending):
            return ending, None
        case Fenced():
            return Ending("moved", "somebody else has taken this run over"), None
        case StoreUnavailable():
            return Ending("failed", f"what happened in this run could not be recorded: {error}"), None
        case asyncio.CancelledError() | KeyboardInterrupt():
            return Ending("cancelled", "whoever drove it was cancelled"), error
    return Ending("failed", f"its function raised {type(error).__name__}"), error


def _first_of(group: BaseExceptionGroup[Any]) -> BaseException:
    first: BaseException = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def last_of(session: ActiveRun, ending: Ending) -> JournalEntry | None:
    """Return what is to be entered at the end, if it is still ours to enter."""
    return None if session.recording is None or ending.status == "moved" else session.recording.last_entry(ending)


def recorded(session: ActiveRun) -> None:
    """The store has taken the end of a workflow."""
    if session.recording is not None:
        session.recording.entered()


async def driven(
    driver: AsyncDriver, host: Engine, session: ActiveRun, fn: Callable[..., Awaitable[Any]],
    arguments: Mapping[str, Json] | None, how: Mapping[str, Any],
) -> Run:  # fmt: skip
    """Drive an async workflow to its end."""
    record, kept = record_of(session, fn, arguments), host.keeps_runs
    before = await wait_for(host.runs.load_run(session.id)) if kept else None
    given, over = check_kept(before, record, arguments), is_over(before)
    host.begin(session, "")
    error: BaseException | None = None
    flow = Workflow(driver, host, session, how)
    try:
        if kept:
            begun = before if before is not None and over else await wait_for(host.runs.begin_run(record))
            host.record(session, begun, replaying=over)
        ending = done(await fn(flow, **given))
    except BaseException as left:
        ending, error = left_by(left)
    try:
        if not isinstance(error, asyncio.CancelledError):
            await flow.settled()
    except asyncio.CancelledError as cut:
        ending, error = left_by(cut)
    try:
        if last := last_of(session, ending):
            await wait_for(host.runs.append_entry(last))
            recorded(session)
    except HandrailError as unkept:
        ending = left_by(unkept)[0]
        if isinstance(unkept, StoreUnavailable):
            host.leave(session)
    run = host.end(session, ending)
    if error is not None:
        raise error
    return run


def driven_here(
    driver: SyncDriver, host: Engine, session: ActiveRun, fn: Callable[..., Any],
    arguments: Mapping[str, Json] | None, how: Mapping[str, Any],
) -> Run:  # fmt: skip
    """Drive a blocking workflow to its end."""
    record, kept = record_of(session, fn, arguments), host.keeps_runs
    before = result_now(host.runs.load_run(session.id)) if kept else None
    given, over = check_kept(before, record, arguments), is_over(before)
    host.begin(session, "")
    error: BaseException | None = None
    try:
        if kept:
            begun = before if before is not None and over else result_now(host.runs.begin_run(record))
            host.record(session, begun, replaying=over)
        ending = done(fn(SyncWorkflow(driver, host, session, how), **given))
    except BaseException as left:
        ending, error = left_by(left)
    try:
        if last := last_of(session, ending):
            result_now(host.runs.append_entry(last))
            recorded(session)
    except HandrailError as unkept:
        ending = left_by(unkept)[0]
        if isinstance(unkept, StoreUnavailable):
            host.leave(session)
    run = host.end(session, ending)
    if error is not None:
        raise error
    return run
