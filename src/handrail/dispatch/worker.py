"""A worker: carries out the runs that were submitted to a store, with others like it.

    worker = Worker(runtime, dispatcher, concurrency=8)
    await worker.work()          # until `worker.stop(grace_s=30.0)`

A segment resumes its run by `Runtime.resume`, until the run waits for somebody or has ended. What is stored decides
everything else: the journal which steps are done, the ledger which writes, and the run's epoch who may add to it.

Rule 1: a segment is finished only once the store has given the state of its run; else it is handed back.
Rule 2: a worker that lacks a tool which a run needs hands its segment back, and says so. So two versions of the tools
        can be deployed side by side.
Rule 3: only the worker that has the segment takes its run over. It reads the run's epoch while the segment is certainly
        its own, and takes the run over at that epoch only: a worker that was frozen takes nothing from its successor.
Rule 4: a run in which several workers in a row have died is poisoned: a person decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import random
from shlex import quote
from typing import Any, Protocol

from msgspec.structs import replace
from typing_extensions import Unpack

from handrail.dispatch.hand_backs import HandBackLog
from handrail.dispatch.port import Dispatcher, HandBack, Running, Segment
from handrail.dispatch.submitting import (
    check_place,
    check_seconds,
    describe_missing_provider,
)
from handrail.engine.active_run import is_driven_here
from handrail.engine.resume import is_under_way
from handrail.engine.scoped_store import parse_scope, strip_scope
from handrail.engine.verbs import ResumeOptions
from handrail.errors import (
    Code,
    ConfigError,
    Fenced,
    JournalMismatch,
    RunPostponed,
    RunUnderWay,
    SetupError,
    StoreUnavailable,
)
from handrail.futures import wait_for
from handrail.journal.codec import (
    doubt_in,
    input_from_json,
    result_from_json,
    turn_from_json,
)
from handrail.messages import ToolMessage
from handrail.ports import Model, SubmittedRunStore
from handrail.records import (
    MOST_TAKEOVERS,
    JournalEntry,
    ModelWait,
    RunRecord,
    StoredRun,
    SubmittedRun,
)
from handrail.runs import Run, describe_ending
from handrail.surroundings.clock import monotonic
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

log = logging.getLogger("handrail.worker")

SWEEP_S = 5.0
"""How often a worker looks for runs that must go on and have no segment."""

SWEEP_PAUSE_S = 0.2
"""The pause between two parts of a look, so that others reach the store."""

MOST_HAND_BACKS = 5
"""How often a segment is handed back because this worker lacks the tool of a call without a result. After that the call
is answered with `UNKNOWN_TOOL`: the model may have invented the name."""

MOST_SILENT_S = 30.0
"""How long the store may not have answered until the worker says that it is not ready."""

AWAIT_MODEL_S = 24 * 3600.0
"""How long a run waits for its model while that is away. Outages of providers last minutes to hours; a day covers a key
that ran out of its daily quota, too."""


class Resumes(Protocol):
    """What a worker needs of a `Runtime`."""

    @property
    def tools(self) -> Toolset: ...

    @property
    def store(self) -> Any: ...

    async def resume(
        self,
        run_id: str,
        *,
        anyway: bool = False,
        epoch: int | None = None,
        model_wait: ModelWait | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]:
        """See `Runtime.resume`."""
        ...

    def offered(self) -> Toolset:
        """See `Runtime.offered`."""
        ...

    def cancel(self, run_id: str, *, by: str = "", scope: str | None = None) -> bool:
        """See `Runtime.cancel`."""
        ...


class Worker:
    """Carries out segments of submitted runs.

    A run whose model is away waits in the store and takes no place here; see `core.retries.next_model_wait`.

    Args:
        runtime: Its tools, policy and store, without a scope: a worker serves every tenant of its store.
        dispatcher: Gives it segments; of the same store.
        model: For runs that name none.
        deps: What tools read as `Context.deps`.
        inject: The values of injected parameters, by name.
        concurrency: How many segments it carries out at once.
        queues: The queues that it takes segments from, in turn; none means all.
        await_model_s: How many seconds a run may wait for an answer of its model while that is away, before it fails;
            0 lets it fail at once.

    Raises:
        ConfigError: The runtime's store cannot hand runs to workers, a queue has no name, or `await_model_s` is no
            number of seconds.
    """

    def __init__(
        self,
        runtime: Resumes,
        dispatcher: Dispatcher,
        *,
        model: str | Model | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        concurrency: int = 8,
        queues: Sequence[str] = (),
        await_model_s: float = AWAIT_MODEL_S,
    ) -> None:
        if not isinstance(runtime.store, SubmittedRunStore):
            raise ConfigError(
                "this store has no runs for workers; name sqlite:///FILE or postgresql://HOST/DATABASE, "
                "and give the worker's runtime no scope"
            )
        if isinstance(queues, str):
            raise ConfigError(f"queues is {queues!r}; it takes a list of names")
        for queue in queues:
            check_place(queue)
        if check_seconds("await_model_s", await_model_s) < 0:
            raise ConfigError(
                f"`await_model_s` is {await_model_s!r}; it takes a number of seconds"
            )
        self._runtime = runtime
        self._store: SubmittedRunStore = runtime.store
        self._dispatcher = dispatcher
        self._model = model
        self._deps = deps
        self._inject = inject
        self._concurrency = concurrency
        self._queues = tuple(queues)
        self._await_model_s = await_model_s
        self._under_way: dict[str, Segment] = {}
        self._hand_backs = HandBackLog(monotonic)
        self._answered_at = float("-inf")
        """When the store answered last, in monotonic seconds."""
        self._is_working = False

    @property
    def runs_here(self) -> list[str]:
        """The runs that this worker carries out now."""
        return list(self._under_way)

    def why_not_ready(self) -> str:
        """Return why the worker takes no segments, as a sentence; empty where it does."""
        if not self._is_working:
            return "the worker does not take segments"
        if waits := self._dispatcher.why_waiting():
            return waits
        if monotonic() - self._answered_at > MOST_SILENT_S:
            return f"the store has not answered for {MOST_SILENT_S:g} s"
        return ""

    async def work(self) -> None:
        """Carry out segments until `stop`."""
        sweeping = asyncio.ensure_future(self._repeat(self._sweep_all, SWEEP_S))
        self._is_working = True
        try:
            await self._dispatcher.work(
                self._perform, concurrency=self._concurrency, queues=self._queues
            )
        finally:
            self._is_working = False
            sweeping.cancel()
            await asyncio.wait([sweeping])

    async def stop(self, *, grace_s: float) -> None:
        """Take no more segments; hand over what still runs after the grace. Returns once nothing runs here."""
        self._is_working = False
        await self._dispatcher.stop(grace_s=grace_s)

    # ------------------------------------------------------------------ one segment

    async def _perform(self, segment: Segment, running: Running) -> None:
        """Carry out a segment: `port.Perform`."""
        began = monotonic()
        outcome = "handed over"
        level = logging.INFO
        try:
            outcome = await self._carry_out(segment, running)
        except HandBack as error:
            outcome = f"handed back: {error}"
            if not self._hand_backs.is_due(segment.run_id, str(error)):
                level = logging.DEBUG
            if not running.lost.is_set():
                await self._note(segment, str(error))
            raise
        except asyncio.CancelledError:
            # so that the next worker does not count this one as dead
            await self._note(segment, "handed over by a worker that has ended")
            raise
        except StoreUnavailable as error:
            outcome = f"handed back: {error}"
            raise HandBack(str(error)) from error
        finally:
            log.log(
                level,
                "run %s, segment %d, attempt %d, queue %s: %s after %.2f s",
                segment.run_id,
                segment.number,
                running.attempt,
                segment.queue,
                outcome,
                monotonic() - began,
            )

    async def _note(self, segment: Segment, why: str) -> None:
        """Record why a segment is not carried out here to its end."""
        with suppress(StoreUnavailable):
            await wait_for(self._store.note_segment(segment.run_id, why))

    async def _carry_out(self, segment: Segment, running: Running) -> str:
        """Resume the run of a segment; return what became of it, for the log."""
        taken = await wait_for(
            self._store.take_segment(
                segment.run_id, segment.number, after_death=running.after_death
            )
        )
        self._answered_at = monotonic()
        if taken is None:
            return "nothing to do"
        if not await running.is_ours():
            running.lost.set()
            raise HandBack("the worker that took it was frozen, and has lost it")
        record = taken.stored.record
        if taken.submission.deaths > MOST_TAKEOVERS or record.status == "poisoned":
            return await self._poison(record, segment)
        if running.attempt == 1 and (is_under_way(record) or is_driven_here(record)):
            return f"left to {record.owner.rpartition(':')[0]}, which carries it out"
        self._check_tools(taken, running.attempt)
        self._check_model(record)
        self._under_way[segment.run_id] = segment
        try:
            run = await self._resume(taken, running)
        except RunPostponed as error:
            return await self._postpone(segment, error)
        finally:
            self._under_way.pop(segment.run_id, None)
        if run.status == "moved":
            return "moved: another process has taken the run over"
        _warn_of_doubts(taken.stored, run)
        after = await wait_for(
            self._store.finish_segment(segment.run_id, segment.number)
        )
        self._answered_at = monotonic()
        if after is not None and after.status == "running":
            raise HandBack(f"its end could not be recorded: {run.reason}")
        return describe_ending(run.status, run.reason)

    async def _resume(self, taken: SubmittedRun, running: Running) -> Run[Any]:
        """Resume a run until it waits or ends, or until somebody asks for its end."""
        record = taken.stored.record
        name = strip_scope(record.run_id)
        scope = parse_scope(record.run_id)
        model = None if input_from_json(record.input).model else self._model
        resuming = asyncio.ensure_future(
            self._runtime.resume(
                name,
                scope=scope,
                anyway=True,
                epoch=record.epoch,
                model_wait=replace(
                    taken.submission.model_wait, most_s=self._await_model_s
                ),
                model=model,
                deps=self._deps,
                inject=self._inject,
            )
        )
        cancelling = asyncio.ensure_future(running.cancelled.wait())
        losing = asyncio.ensure_future(running.lost.wait())
        try:
            await asyncio.wait(
                (resuming, cancelling, losing), return_when=asyncio.FIRST_COMPLETED
            )
            if running.lost.is_set() and not resuming.done():
                resuming.cancel()
            elif not resuming.done():
                self._runtime.cancel(name, scope=scope)
            return await resuming
        except asyncio.CancelledError:
            if not running.lost.is_set():
                raise
            raise HandBack("another worker has taken the segment over") from None
        except (Fenced, RunUnderWay) as error:
            raise HandBack(str(error)) from error
        except (SetupError, JournalMismatch) as error:
            asked = input_from_json(record.input).model
            if missing := describe_missing_provider(asked):
                raise HandBack(f"the worker that took it has {missing}") from error
            raise HandBack(
                f"the worker that took it cannot carry it out: {error}"
            ) from error
        finally:
            cancelling.cancel()
            losing.cancel()
            if not resuming.done():
                resuming.cancel()
                await asyncio.wait([resuming])

    async def _postpone(self, segment: Segment, error: RunPostponed) -> str:
        """Leave a run in the store until it can go on; its place in this worker becomes free."""
        after = await wait_for(
            self._store.finish_segment(
                segment.run_id,
                segment.number,
                wait_s=error.wait_s,
                why=str(error),
                model_turn=error.model_turn,
            )
        )
        self._answered_at = monotonic()
        if after is None:
            return "nothing to wait for: the run was deleted"
        if after.status == "running":
            raise HandBack(
                f"the run must wait, and that could not be recorded: {error}"
            )
        if after.status != "queued" or after.cancel_requested:
            return f"not put back: somebody has ended the run ({error})"
        return f"put back for {error.wait_s:.0f} s ({error})"

    async def _poison(self, record: RunRecord, segment: Segment) -> str:
        """End a run in which too many workers have died, until a person has looked at it."""
        entry = JournalEntry(record.run_id, record.epoch, status="poisoned")
        await wait_for(self._store.append_entry(entry))
        await wait_for(self._store.finish_segment(segment.run_id, segment.number))
        return f"poisoned: more than {MOST_TAKEOVERS} workers in a row died in it"

    def _check_tools(self, taken: SubmittedRun, attempt: int) -> None:
        """Hand a segment back if this worker lacks a tool of the run.

        Raises:
            HandBack: It does.
        """
        called, waiting = _called_tools(taken.stored)
        needed = {*taken.submission.tools, *called}
        # A name that no worker knows may be the model's own invention, which is then answered as one.
        if attempt <= MOST_HAND_BACKS:
            needed |= waiting
        own = {tool.name for tool in self._runtime.offered()}
        lacking = sorted(
            name
            for name in needed - own
            if not isinstance(self._runtime.tools.resolve(name), BaseTool)
        )
        if lacking:
            raise HandBack(f"the worker that took it has no tool {', '.join(lacking)}")

    def _check_model(self, record: RunRecord) -> None:
        """Hand a segment back if neither its run nor this worker names a model.

        Raises:
            HandBack: Neither does.
        """
        asked = input_from_json(record.input)
        if self._model is None and not asked.model and not asked.workflow:
            raise HandBack(
                f"run {record.run_id!r} names no model and the worker that took it has none: "
                "start it with --model, or submit with --model"
            )

    # ------------------------------------------------------------------ beside the segments

    async def _repeat(self, act: Callable[[], Awaitable[None]], every_s: float) -> None:
        """Do something again and again; a store that does not answer is asked again the next time."""
        while True:
            try:
                await act()
            except StoreUnavailable as error:
                log.warning("the store does not answer: %s", error)
            except Exception:
                log.exception("a look at the store failed")
            # not in step with other workers
            await asyncio.sleep(every_s * (0.75 + random() / 2))

    async def _sweep_all(self) -> None:
        """Let all runs go on that must: thousands may be due while a model is away."""
        while await self._sweep():
            await asyncio.sleep(SWEEP_PAUSE_S)

    async def _sweep(self) -> int:
        count = await wait_for(self._store.sweep_submitted())
        self._answered_at = monotonic()
        if count:
            log.info("runs that go on after a wait: %d", count)
        return count


def _warn_of_doubts(before: StoredRun, run: Run[Any]) -> None:
    """Log each write that this segment has left in doubt: a run whose model goes on ends as `done` all the same."""
    left = Counter(doubt.tool for doubt in map(doubt_in, before.steps) if doubt)
    now = Counter(
        message.result.name
        for message in run.new_messages
        if isinstance(message, ToolMessage)
        and message.result.failure
        and message.result.failure.code == Code.IN_DOUBT
    )
    run_id = before.record.run_id
    for tool in now - left:
        log.warning(
            "run %s: %s may or may not have happened; a person must look: "
            "handrail ledger list --state in_doubt --run %s",
            run_id,
            tool,
            quote(run_id),
        )


def _called_tools(stored: StoredRun) -> tuple[set[str], set[str]]:
    """Name the tools that a run has called, and those of calls that have no result yet."""
    called: set[str] = set()
    answered: set[str] = set()
    calls: dict[str, str] = {}
    is_formed = input_from_json(stored.record.input).output is not None
    for step in stored.steps:
        # a call that only gives an answer its form is of no tool
        if step.kind == "model" and not is_formed:
            turn = turn_from_json(step.body)
            calls |= {f"{step.turn}/{each.id}": each.name for each in turn.calls}
        elif step.kind == "call":
            result = result_from_json(step.body)
            answered.add(f"{step.turn}/{result.call_id}")
            if result.failure is None or result.failure.code != Code.UNKNOWN_TOOL:
                called.add(result.name)
    waiting = {name for place, name in calls.items() if place not in answered}
    return called, waiting
