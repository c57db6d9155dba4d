"""What a server serves: a runtime, its store, the models that may be asked, and the runs that it carries out.

Nobody is asked in the middle of a run: a call that needs approval waits, its question is stored, and its run ends as
`waiting`. Whoever answers, wherever, the run goes on from its journal: here at once if the answer was given here, and
after the next look at the store otherwise. So a server that was killed has lost nothing.

Rule 1: a run goes on here only if no living process carries it out, and its tools are here.
Rule 2: a model is asked only if it was named when the server was started, or by the run itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from handrail import logs
from handrail.engine.nested_runs import outer_run
from handrail.engine.resume import is_under_way
from handrail.engine.scoped_store import parse_scope, qualify_name, strip_scope
from handrail.errors import (
    HandrailError,
    Json,
    RunNameTaken,
    RunUnderWay,
    StoreUnavailable,
)
from handrail.events import Event
from handrail.futures import result_now
from handrail.history.facts import question_text
from handrail.history.summaries import RunSummary
from handrail.journal.codec import toolset_digest
from handrail.ports import ApprovalStore, Model, Observer, RunStore, Store
from handrail.records import RunRecord, new_run_id
from handrail.runtime import Runtime
from handrail.surroundings.clock import monotonic
from handrail.tools.keys import digest
from handrail_server.access import Principal
from handrail_server.answers import ApiError, not_found
from handrail_server.hub import EventHub
from handrail_server.run_index import FRESH_S, RunFilter, RunIndex

_LAST_WORDS_S = 5.0
MOST_WAITING = 10_000
"""How many runs that wait are looked for when a server starts, the newest first."""
_UNFINISHED = ("queued", "running", "waiting")


class RunDefaults(Struct, frozen=True):
    """What each run of the server is given.

    Attributes:
        inject: The values of injected parameters, by name.
        deps: What tools read as `Context.deps`.
        system: The system message of each run.
    """

    inject: Mapping[str, Any] = {}
    deps: Any = None
    system: str = ""


class Deployment:
    """What a server serves.

    Args:
        runtime: Its tools, policy and store. Its approver should be None, or one that answers by itself.
        models: Those that a run may be started with, the first by default; without any no run can be started.
        place: Where the store is, for people; without a password.
        lang: The console's language until a reader chooses another, `en` or `zh`; empty for the browser's.
        pins_file: The file of an MCP gateway's pins; empty for none.
        closes_runtime: Whether the runtime ends with the server.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        models: Sequence[str | Model] = (),
        place: str = "",
        lang: str = "",
        defaults: RunDefaults | None = None,
        hub: EventHub | None = None,
        pins_file: str = "",
        closes_runtime: bool = True,
    ) -> None:
        self.runtime = runtime
        self.models = {_model_name(each): each for each in models}
        self.place = place
        self.lang = lang
        self.defaults = defaults or RunDefaults()
        self.hub = hub or EventHub()
        self.pins_file = pins_file
        self._closes_runtime = closes_runtime
        self.index = RunIndex(runtime.store)
        self.policy = runtime.policy
        """That of runs and calls which are started here."""
        self._shown = 0
        self._waiting_for_others: set[str] = set()
        """Runs that were carried out here, and wait: somebody may answer elsewhere."""
        self._questions: Mapping[str, Sequence[str]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._reading: asyncio.Future[None] | None = None
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._asked: dict[str, str] = {}
        """The questions of runs that were started here and are under way, which the store may not have yet."""
        self.recall: Callable[[str], Mapping[str, Any]] = _recall_nothing
        """Returns options of `Runtime.resume` that only the endpoint of a run has, such as the caller's tools."""

    def let_people_approve_their_own(self) -> None:
        """Let whom a call is made for approve it: all people have one name here, and nobody else could."""
        self.policy = replace(self.policy, own_approval=True)

    def begin(self) -> None:
        """Begin to serve, on the running loop."""
        self.hub.attach(asyncio.get_running_loop())
        self._watching = asyncio.ensure_future(self._watch(is_first=True))
        self._reading = asyncio.ensure_future(asyncio.to_thread(self._read_runs))

    @property
    def store(self) -> Store:
        """The store, with the rows of all tenants."""
        return self.runtime.store

    @property
    def can_start(self) -> bool:
        """Whether a run can be started here."""
        return bool(self.models)

    def runs_here(self) -> list[str]:
        """Return the runs that this server carries out now."""
        return list(self._tasks)

    def describe_live(self) -> dict[str, Json]:
        """Return breakers and locks as they are in this process now."""
        return self.runtime._engine.services.describe(monotonic())

    # ------------------------------------------------------------------ runs

    async def start(
        self,
        question: str,
        principal: Principal,
        *,
        model: str = "",
        key: str = "",
    ) -> tuple[str, bool]:
        """Start a run; return its name once the store has it, and whether it is new.

        Args:
            model: One of `models`; the first for "".
            key: Names the request: sent again by the same principal, it starts no second run.

        Raises:
            ApiError: The model is not one that may be asked, or the run could not be started.
        """
        if not self.can_start:
            raise ApiError(
                409, "cannot_start", "no run is started here: serve with --model"
            )
        if model and model not in self.models:
            raise ApiError(
                422,
                "unknown_model",
                "that model may not be asked here; the models are those of `GET /api/v1/`",
            )
        name = new_run_id()
        if key:
            name = f"r_{digest({'by': principal.name, 'key': key})[:20]}"
        scope = principal.scope or ""
        run_id = qualify_name(scope, name)
        if key and await self._is_started(run_id):
            await self._check_same(run_id, question)
            return run_id, False
        self._asked[run_id] = question
        chosen = self.models[model or next(iter(self.models))]
        asked = asyncio.get_running_loop().create_future()

        def note(event: Event) -> None:
            # a store has the run by the time that its model is asked
            if type(event).__name__ == "ModelAsked" and not asked.done():
                asked.get_loop().call_soon_threadsafe(_resolve, asked)

        async def carry_out() -> None:
            await self.runtime.run(
                question,
                model=chosen,
                run_id=name,
                system=self.defaults.system,
                **self._options(principal.name, scope, note),
            )

        task = self._begin(run_id, carry_out)
        await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not asked.done():
            try:
                error = task.exception()
            except asyncio.CancelledError:
                error = None
            if key and isinstance(error, RunNameTaken):
                self._asked.pop(run_id, None)
                await self._check_same(run_id, question)
                return run_id, False
            if error is not None:
                raise _as_api_error(error)
        return run_id, True

    async def _is_started(self, run_id: str) -> bool:
        """Whether a run is under way here, or stored."""
        if run_id in self._tasks:
            return True
        is_stored = await asyncio.to_thread(self._find_record, run_id) is not None
        # or started meanwhile, by the same request
        return is_stored or run_id in self._tasks

    async def _check_same(self, run_id: str, question: str) -> None:
        """Raise unless the run of an idempotency key was asked this same question."""
        earlier = self._asked.get(run_id)
        if earlier is None:
            record = await asyncio.to_thread(self._load_record, run_id)
            earlier = question_text(record)
        if earlier != question:
            raise ApiError(
                422,
                "key_reused",
                "this idempotency key was sent with another question before; use a new one",
            )

    def _options(self, principal: str, scope: str, *more: Observer) -> dict[str, Any]:
        return {
            "principal": principal or None,
            "scope": scope,
            "inject": self.defaults.inject,
            "deps": self.defaults.deps,
            "policy": self.policy,
            "observers": (*self.observers(scope), *more),
        }

    def observers(self, scope: str = "") -> tuple[Observer, ...]:
        """Return the observers of a tenant; pass them to each run and call that you start on the runtime."""
        return (self.hub.observer(scope),)

    def _begin(
        self, run_id: str, carry_out: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        async def carry_out_and_log() -> None:
            try:
                await carry_out()
            except HandrailError as error:
                logs.log.warning("the run %s: %s", run_id, error)
                raise
            except Exception as error:
                logs.log_exception(f"the run {run_id} failed here", error)
                raise

        task = asyncio.ensure_future(carry_out_and_log())
        task.add_done_callback(_read_exception)
        self.adopt(run_id, task)
        return task

    def adopt(self, run_id: str, task: asyncio.Task[Any]) -> None:
        """Count a run that an endpoint drives among those under way here, until its task ends."""

        def end(_: asyncio.Task[Any]) -> None:
            if self._tasks.get(run_id) is task:
                del self._tasks[run_id]
                self._asked.pop(run_id, None)
            self._waiting_for_others.add(run_id)
            self.hub.publish("run_changed", run_id)

        self._tasks[run_id] = task
        task.add_done_callback(end)

    async def resume(self, run_id: str, principal: str = "") -> None:
        """Resume a run in this process; return once it is under way.

        Args:
            principal: Who resumes it.

        Raises:
            ApiError: There is no such run, it is under way, or it cannot go on here.
        """
        record = await asyncio.to_thread(self._load_record, run_id)
        if run_id in self._tasks or is_under_way(record):
            raise ApiError(409, "under_way", f"the run {run_id!r} is under way")
        scope = parse_scope(run_id)
        first = asyncio.get_running_loop().create_future()

        def note(_: Event) -> None:
            if not first.done():
                first.get_loop().call_soon_threadsafe(_resolve, first)

        model = self._model_for(record)

        async def carry_out() -> None:
            await self.runtime.resume(
                strip_scope(run_id),
                model=model,
                **self.recall(run_id),
                **self._options(principal, scope, note),
            )

        task = self._begin(run_id, carry_out)
        await asyncio.wait((task, first), return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled() and (error := task.exception()):
            raise _as_api_error(error)

    async def fork(self, run_id: str, at_turn: int, principal: str) -> str:
        """Start a run from the first turns of another; return its name.

        Raises:
            ApiError: There is no such run or turn, or it cannot go on here.
        """
        record = await asyncio.to_thread(self._load_record, run_id)
        scope = parse_scope(run_id)
        model = self._model_for(record)
        named: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def note(event: Event) -> None:
            if not named.done():
                named.get_loop().call_soon_threadsafe(_resolve, named, event.run_id)

        async def carry_out() -> None:
            await self.runtime.fork(
                strip_scope(run_id),
                at_turn=at_turn,
                model=model,
                **self._options(principal, scope, note),
            )

        unnamed = f"fork of {run_id} {new_run_id()}"
        task = self._begin(unnamed, carry_out)
        await asyncio.wait((task, named), return_when=asyncio.FIRST_COMPLETED)
        if not named.done():
            if error := task.exception():
                raise _as_api_error(error)
            raise ApiError(409, "not_started", "the fork could not be started")
        name = qualify_name(scope, named.result())
        self._tasks.pop(unnamed, None)
        self.adopt(name, task)
        return name

    def _model_for(self, record: RunRecord) -> Model | None:
        """Return the model that an unfinished run is given: none where it names its own, which is then asked."""
        if _model_of(record) or not self.models:
            return None
        first = next(iter(self.models.values()))
        return None if isinstance(first, str) else first

    def cancel_here(self, run_id: str, by: str) -> bool:
        """Cancel a run that this process carries out; return whether it does."""
        if run_id not in self._tasks:
            return False
        return self.runtime.cancel(
            strip_scope(run_id), by=by, scope=parse_scope(run_id)
        )

    def search_runs(
        self,
        wanted: RunFilter,
        by: Principal,
        *,
        before: int | None,
        most: int,
    ) -> tuple[list[RunSummary], int | None]:
        """Return runs as they stand now; see `RunIndex.search`."""
        last = self.hub.last
        # what happened here is seen at once, what happened elsewhere within a second
        if self.index.is_complete:
            self.index.refresh(at_least=FRESH_S if last == self._shown else 0.0)
            self._shown = last
        else:
            self.index.read_newest()
        return self.index.search(wanted, by, before=before, most=most)

    # ------------------------------------------------------------------ what other processes do

    async def _watch(self, *, is_first: bool) -> None:
        """Tell listeners of what other processes do with the store, and have runs go on that were answered there."""
        while True:
            try:
                if is_first:
                    found = await asyncio.to_thread(self._runs_that_wait)
                    self._waiting_for_others.update(found)
                    is_first = False
                if self.hub.listeners:
                    await self._tell_changes()
                await self._go_on_answered()
            except HandrailError as error:  # it may be back at the next look
                logs.log.warning("the store could not be read: %s", error)
            except Exception as error:
                logs.log_exception("the store could not be watched", error)
            await asyncio.sleep(FRESH_S)

    def _runs_that_wait(self) -> set[str]:
        """Return the waiting runs that a server like this one began: it may have ended before they were answered."""
        store = self.store
        if not isinstance(store, RunStore):
            return set()
        own = toolset_digest(self.runtime.tools.snapshot())
        return {
            each.run_id
            for each in result_now(store.list_runs(status="waiting", most=MOST_WAITING))
            if each.toolset == own and _model_of(each) in self.models
        }

    async def _go_on_answered(self) -> None:
        """Resume the answered runs that were carried out here, and drop those that have ended."""
        if not self._waiting_for_others:
            return
        asking = await asyncio.to_thread(self._runs_that_ask)
        for run_id in self._waiting_for_others - asking:
            # before it goes on: it may wait again, and be added again, at any moment after that
            self._waiting_for_others.discard(run_id)
            is_settled = False
            try:
                is_settled = await self.go_on(run_id) or await asyncio.to_thread(
                    self._is_over, run_id
                )
            finally:
                if not is_settled:
                    self._waiting_for_others.add(run_id)

    def _runs_that_ask(self) -> set[str]:
        """Return the runs with an open question, and those that started them."""
        asking: set[str] = set()
        for run_id, *_ in self._load_questions().values():
            while run_id and run_id not in asking:
                asking.add(run_id)
                run_id = outer_run(run_id)
        return asking

    def _is_over(self, run_id: str) -> bool:
        store = self.store
        if not isinstance(store, RunStore):
            return True
        stored = result_now(store.load_run(run_id))
        return stored is None or stored.record.status not in _UNFINISHED

    def _read_runs(self) -> None:
        try:
            self.index.refresh(at_least=0.0)
        except Exception as error:
            logs.log_exception("the runs of the store could not be read", error)

    async def _tell_changes(self) -> None:
        for each in await asyncio.to_thread(self.index.refresh):
            if each.id not in self._tasks:
                self.hub.publish("run_changed", each.id, status=each.status)
        questions = await asyncio.to_thread(self._load_questions)
        changed = questions.items() ^ self._questions.items()
        self._questions = questions
        for run_id in {run_id for _, (run_id, *_) in changed}:
            self.hub.publish("approvals_changed", run_id)

    def _load_questions(self) -> Mapping[str, Sequence[str]]:
        store = self.store
        if not isinstance(store, ApprovalStore):
            return {}
        found = result_now(store.list_approvals())
        return {each.id: (each.run_id, *each.agreed) for each in found}

    # ------------------------------------------------------------------ going on after an answer

    async def go_on(self, run_id: str, principal: str = "") -> bool:
        """Resume a run whose questions are all answered; return whether it was resumed."""
        try:
            ready = await asyncio.to_thread(self._outermost_if_ready, run_id)
            if not ready or ready in self._tasks:
                return False
            await self.resume(ready, principal)
        except (ApiError, StoreUnavailable) as error:
            # the answer itself is stored
            logs.log.info("the run %s does not go on here: %s", run_id, error)
            return False
        return True

    def _outermost_if_ready(self, run_id: str) -> str:
        """Return the outermost run around this one, if it waits, has no open question and its tools are here."""
        store = self.store
        if not isinstance(store, RunStore) or not isinstance(store, ApprovalStore):
            return ""
        outermost = run_id
        names = [run_id]
        while (outer := outer_run(outermost)) and result_now(store.load_run(outer)):
            outermost = outer
            names.append(outer)
        stored = result_now(store.load_run(outermost))
        if stored is None or stored.record.status != "waiting":
            return ""
        if any(
            each.state == "open"
            for name in names
            for each in result_now(store.list_approvals(state="", run_id=name))
        ):
            return ""
        own = toolset_digest(self.runtime.tools.snapshot())
        if stored.record.toolset not in ("", own):
            return ""
        return outermost

    def _load_record(self, run_id: str) -> RunRecord:
        record = self._find_record(run_id)
        if record is None:
            raise not_found(f"run {run_id!r}")
        return record

    def _find_record(self, run_id: str) -> RunRecord | None:
        store = self.store
        if not isinstance(store, RunStore):
            return None
        stored = result_now(store.load_run(run_id))
        return None if stored is None else stored.record

    async def close(self) -> None:
        """Release the runs that are under way, so that any process can resume them; then close the runtime."""
        if self._watching is not None:
            self._watching.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_WORDS_S)
        self.hub.close()
        if self._closes_runtime:
            await self.runtime.close()


def _model_of(record: RunRecord) -> str:
    named = record.input.get("model") if isinstance(record.input, dict) else ""
    return str(named or "")


def _recall_nothing(_: str) -> Mapping[str, Any]:
    return {}


def describe_error(error: BaseException) -> Json:
    """Return an error as a sentence for the client."""
    if isinstance(error, HandrailError):
        return str(error)
    return "the server could not do it; its log says why"


def _as_api_error(error: BaseException) -> ApiError:
    if isinstance(error, RunUnderWay):
        return ApiError(409, "under_way", str(error))
    if isinstance(error, StoreUnavailable):
        return ApiError(503, "store_unavailable", str(error))
    if isinstance(error, HandrailError):
        return ApiError(422, "not_possible", str(error))
    return ApiError(500, "internal_error", str(describe_error(error)))


def _model_name(model: str | Model) -> str:
    return model if isinstance(model, str) else model.name


def _resolve(future: asyncio.Future[Any], value: Any = None) -> None:
    if not future.done():
        future.set_result(value)


def _read_exception(task: asyncio.Task[None]) -> None:
    """Retrieve a task's exception, which is logged already, so that asyncio does not report it as unread."""
    if not task.cancelled():
        task.exception()
