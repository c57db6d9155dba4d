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
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any, Protocol

from handrail import jsontext
from handrail.asking import check_injected
from handrail.batch import Batch, Slot
from handrail.calls import ToolCall, ToolResult
from handrail.conversation import Ending
from handrail.errors import Code, ConfigError, Fenced, HandrailError, JournalMismatch, Json, StoreUnavailable
from handrail.host import Host, arguments_text
from handrail.journal import Asked, budget_as_json, input_as_json, input_from_json
from handrail.messages import Turn, UserMessage, conversation_of
from handrail.ports import later, now_of
from handrail.records import Begun, Entry, RunRecord
from handrail.runs import Run
from handrail.sessions import Session, cancelled
from handrail.shaping import text_of
from handrail.tools import BaseTool

CallSteps = Generator[Batch | Entry, Any, ToolResult]

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

    def __init__(self, host: Host, session: Session, how: Mapping[str, Any]) -> None:
        self.run_id, self.deps = session.id, session.deps
        self._host, self._session, self._how = host, session, how
        self._number = 0

    def _next(self) -> int:
        if self._session.cancelled.is_set():
            raise Suspended(cancelled(self._session))
        self._number += 1
        return self._number

    def _calling(self, name: str, arguments: Mapping[str, Json] | str | None) -> CallSteps:
        """Yield what must happen for the next step, a call; return its result."""
        host, session, number = self._host, self._session, self._next()
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
        batch = host.batch(session, turn, number, slots=[Slot(0, "")])
        yield from host.carried(session, batch, number)
        result = batch.finished()[0]
        for each in (result, *batch.followed.values()):
            if each.failure is not None and each.failure.code == Code.APPROVAL_PENDING:
                raise Suspended(Ending("waiting", f"waiting for approval of {each.name}"))
        if session.cancelled.is_set():
            raise Suspended(cancelled(session))
        return result

    def _options(self, how: Mapping[str, Any], *, again: bool) -> dict[str, Any]:
        """Return how a run of a model is made, or gone on with, which takes less."""
        given = {**self._how, **how}
        return {name: value for name, value in given.items() if not (again and name in ("system", "options"))}

    def _same_question(self, begun: Begun, question: Any, how: Mapping[str, Any]) -> None:
        messages = conversation_of(question, system=how.get("system", ""))
        now = input_as_json(Asked(messages, ""))["messages"]
        if input_as_json(Asked(input_from_json(begun.record.input).messages, ""))["messages"] != now:
            raise JournalMismatch(
                f"run {begun.record.run_id!r} was asked something else; a workflow makes the same steps each time"
            )

    def _ended(self, run: Run) -> Run:
        if run.status in _LEAVES:
            raise Suspended(Ending(run.status, f"its run {run.id}: {run.reason}"))
        return run


class AsyncDriver(Protocol):
    """What a workflow needs of the asyncio driver, beside what a `Host` is."""

    async def carry(self, session: Session, batch: Batch) -> None:
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

    def __init__(self, driver: AsyncDriver, host: Host, session: Session, how: Mapping[str, Any]) -> None:
        super().__init__(host, session, how)
        self._driver = driver

    async def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolResult:
        """Call a tool, with every check, as one step; whatever the tool did, it is told in the result."""
        steps, answer = self._calling(name, arguments), False
        try:
            while True:
                step = steps.send(answer or None)
                answer = isinstance(step, Entry) and await later(self._host.runs.enter(step))
                if isinstance(step, Batch):
                    await self._driver.carry(self._session, step)
        except StopIteration as over:
            result: ToolResult = over.value
            return result
        except (Fenced, StoreUnavailable) as error:
            raise Suspended(left_by(error)[0]) from error

    async def run(self, question: Any, **how: Any) -> Run:
        """Ask a model, with tools as it likes, as one step; takes what `Runtime.run` takes."""
        run_id = f"{self.run_id}.{self._next()}"
        begun = await later(self._host.runs.recorded(run_id)) if self._session.recording is not None else None
        stop = partial(self._host.cancel, run_id)
        self._session.stops.append(stop)
        try:
            if begun is None:
                return self._ended(await self._driver.run(question, run_id=run_id, **self._options(how, again=False)))
            self._same_question(begun, question, how)
            return self._ended(await self._driver.resume(run_id, **self._options(how, again=True)))
        finally:
            self._session.stops.remove(stop)


class SyncDriver(Protocol):
    """What a workflow needs of the blocking driver, beside what a `Host` is."""

    def carry(self, session: Session, batch: Batch) -> None:
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

    def __init__(self, driver: SyncDriver, host: Host, session: Session, how: Mapping[str, Any]) -> None:
        super().__init__(host, session, how)
        self._driver = driver

    def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolResult:
        """See `Workflow.call`."""
        steps, answer = self._calling(name, arguments), False
        try:
            while True:
                step = steps.send(answer or None)
                answer = isinstance(step, Entry) and now_of(self._host.runs.enter(step))
                if isinstance(step, Batch):
                    self._driver.carry(self._session, step)
        except StopIteration as over:
            result: ToolResult = over.value
            return result
        except (Fenced, StoreUnavailable) as error:
            raise Suspended(left_by(error)[0]) from error

    def run(self, question: Any, **how: Any) -> Run:
        """See `Workflow.run`."""
        run_id = f"{self.run_id}.{self._next()}"
        begun = now_of(self._host.runs.recorded(run_id)) if self._session.recording is not None else None
        stop = partial(self._host.cancel, run_id)
        self._session.stops.append(stop)
        try:
            if begun is None:
                return self._ended(self._driver.run(question, run_id=run_id, **self._options(how, again=False)))
            self._same_question(begun, question, how)
            return self._ended(self._driver.resume(run_id, **self._options(how, again=True)))
        finally:
            self._session.stops.remove(stop)


# ---------------------------------------------------------------------- from begin to end


def record_of(session: Session, fn: Callable[..., Any], arguments: Mapping[str, Json] | None) -> RunRecord:
    """Return what is kept of a workflow that begins, or is gone on with.

    Raises:
        ConfigError: Its arguments are no JSON.
    """
    name = getattr(fn, "__name__", type(fn).__name__)
    told = jsontext.loads(arguments_text(arguments))
    asked = Asked(
        [UserMessage(f"workflow {name}: {arguments_text(arguments)}")], "", budget=budget_as_json(session.budget),
        workflow=[name, told],
    )  # fmt: skip
    return RunRecord(session.id, input_as_json(asked))


def check_kept(begun: Begun | None, record: RunRecord, arguments: Mapping[str, Json] | None) -> dict[str, Json]:
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


def done(value: Any) -> Ending:
    """Return how a workflow ends whose function has returned."""
    return Ending("done", "", "" if value is None else text_of(value), value)


def left_by(error: BaseException) -> tuple[Ending, BaseException | None]:
    """Return how a workflow ends that was left by an exception, and what of it goes on to the caller."""
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


def last_of(session: Session, ending: Ending) -> Entry | None:
    """Return what is to be entered at the end, if it is still ours to enter."""
    return None if session.recording is None or ending.status == "moved" else session.recording.last_entry(ending)


async def driven(
    driver: AsyncDriver, host: Host, session: Session, fn: Callable[..., Awaitable[Any]],
    arguments: Mapping[str, Json] | None, how: Mapping[str, Any],
) -> Run:  # fmt: skip
    """Drive an async workflow to its end."""
    record, kept = record_of(session, fn, arguments), host.keeps_runs
    given = check_kept(await later(host.runs.recorded(session.id)) if kept else None, record, arguments)
    host.begin(session, "")
    error: BaseException | None = None
    try:
        if kept:
            host.record(session, await later(host.runs.begin_run(record)))
        ending = done(await fn(Workflow(driver, host, session, how), **given))
    except BaseException as left:
        ending, error = left_by(left)
    try:
        if last := last_of(session, ending):
            await later(host.runs.enter(last))
    except HandrailError as unkept:
        ending = left_by(unkept)[0]
    run = host.end(session, ending)
    if error is not None:
        raise error
    return run


def driven_here(
    driver: SyncDriver, host: Host, session: Session, fn: Callable[..., Any],
    arguments: Mapping[str, Json] | None, how: Mapping[str, Any],
) -> Run:  # fmt: skip
    """Drive a blocking workflow to its end."""
    record, kept = record_of(session, fn, arguments), host.keeps_runs
    given = check_kept(now_of(host.runs.recorded(session.id)) if kept else None, record, arguments)
    host.begin(session, "")
    error: BaseException | None = None
    try:
        if kept:
            host.record(session, now_of(host.runs.begin_run(record)))
        ending = done(fn(SyncWorkflow(driver, host, session, how), **given))
    except BaseException as left:
        ending, error = left_by(left)
    try:
        if last := last_of(session, ending):
            now_of(host.runs.enter(last))
    except HandrailError as unkept:
        ending = left_by(unkept)[0]
    run = host.end(session, ending)
    if error is not None:
        raise error
    return run
