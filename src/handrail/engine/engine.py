"""What every driver shares: tools, rules, store and listeners of one deployment, and how a run is opened.

A driver adds only how effects are performed: `runtime` on asyncio, `sync` in the calling thread.
"""

from __future__ import annotations

import os
import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from threading import Event as Flag
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from handrail import _lazy, plugins
from handrail.audit import log_key
from handrail.audit.trail import notice_of_word
from handrail.calls import ToolCall, ToolResult
from handrail.context import Context, Injected, InjectedOpenly
from handrail.core import results
from handrail.core.batch import Batch, CallPosition, CallState
from handrail.core.budgets import Budget, Spent
from handrail.core.conversation import AskModel, Ending, Progress, Talk, conversation, heed_repeats, last_text
from handrail.core.execution import RunSettings
from handrail.core.flow import FlowState, Rules, course, rules_as_json
from handrail.core.follow_ups import following, tell_of, with_steps
from handrail.core.history import Window, mended
from handrail.core.policy import Policy
from handrail.core.redaction import Known, Redactor, texts_in
from handrail.core.retries import Backoff
from handrail.core.structured_output import wanted, way_of
from handrail.engine import tool_visibility
from handrail.engine.active_run import ActiveRun, AuditObserver, cancelled, ending_by, new_run_id, tell_all
from handrail.engine.approvals import Approvals
from handrail.engine.leases import Lease
from handrail.engine.model_calls import ModelCaller, check_injected
from handrail.engine.scoped_store import ScopedStore, check_run_name, check_scope
from handrail.engine.shared import SharedResources
from handrail.engine.tool_visibility import ToolVisibility
from handrail.engine.unsaved_records import Unrecorded
from handrail.errors import ConfigError, Fenced, ModelError, SetupError, StoreUnavailable
from handrail.events import HistoryMended, RunEnded, RunStarted
from handrail.futures import StoreAnswer, result_now
from handrail.journal.codec import RunInput, budget_as_json, input_as_json, toolset_digest
from handrail.journal.cursor import JournalCursor, worked_s
from handrail.messages import Message, Turn
from handrail.ports import Approver, AuditStore, LeaseStore, LookUpStore, Model, Observer, RunStore, Selector, Store
from handrail.process_identity import owner
from handrail.records import JournalEntry, RunRecord, StoredRun
from handrail.runs import Run
from handrail.schemas import hints
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Tools, Toolset
from handrail.workers import reimport

if TYPE_CHECKING:
    from handrail.engine import undo
else:
    undo = _lazy.module("handrail.engine.undo")

RunSteps: TypeAlias = Generator["AskModel | Batch | JournalEntry", Any, Ending]

# How many runs a process remembers for `handle(run=...)`: spent budget, repeated calls, turn numbers.
MOST_RUNS_REMEMBERED = 10_000


class Engine:
    """The deployment that a driver drives.

    Args:
        tools: Tools, functions, or a `Toolset`, which may change while runs are under way.
        store: `memory:`, another store's name, or a `Store`.
        policy: What a run may do; by default read and write tools, and high risk asks a person.
        approver: Who is asked. Without one a call that needs approval waits; it does not proceed.
        observers: Called with every event.
        budget: What a run may spend unless it says otherwise.
        result_bytes: How much of a result the model reads, in bytes of UTF-8.
        backoff: How long to wait between attempts.
        repair: Mend malformed JSON by named repairs; False refuses it.
        selector: What a model is shown of many tools: `auto`, `all`, `bm25`, `search`, `two-stage`, or a `Selector`.
        scope: The tenant. Runtimes of different scopes share nothing in a store, even under equal names: no run,
            question, approval, long result, key of a write or lock.
        principal: On whose behalf the calls are made, for the audit log.
        secrets: Values that are hidden from models, ledger and logs, in addition to injected ones; the audit log also
            hides what looks like a key.
        now: Monotonic seconds; a test may move them by hand.
        jitter: Numbers from [0, 1].
    """

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
        secrets: Iterable[str] = (),
        now: Callable[[], float] = monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        hints.prepare()
        if result_bytes < results.LEAST_RESULT_BYTES:
            raise ConfigError(f"result_bytes is {result_bytes}; at least {results.LEAST_RESULT_BYTES} are needed")
        _check("policy", policy, isinstance(policy, Policy), "a `Policy`")
        _check("budget", budget, isinstance(budget, Budget), "a `Budget`")
        _check("approver", approver, callable(approver), "a function that is asked")
        listed = isinstance(observers, Collection) and all(map(callable, observers))  # a generator would be used up
        _check("observers", observers, listed, "a list of functions")
        self.tools = tools if isinstance(tools, Toolset) else Toolset(tools)
        for tool in with_steps(self.tools):
            tool.check_names()
        self.policy = policy or Policy()
        check_scope(scope)
        opened = _store(store)
        self.store: Store = cast(Store, ScopedStore(opened, scope)) if scope else opened
        self._opened_store = isinstance(store, str)
        self.approver, self.observers = approver, tuple(observers)
        # Asked once: a check against a protocol costs as much as a call.
        self._audits = self.store if isinstance(self.store, AuditStore) else None
        self._keeps = self.store if isinstance(self.store, RunStore) else None
        self.leases = self.store if isinstance(self.store, LeaseStore) else None
        self.looks_up = self.store if isinstance(self.store, LookUpStore) else None
        self.unrecorded = Unrecorded(self.store, self._keeps)
        self._secrets, self._principal = tuple(secrets), principal
        self._known = Known(self._secrets)
        self._redactor = Redactor(self._known)
        self._digested: tuple[Toolset | None, str] = None, ""
        self.budget, self.result_bytes = budget or Budget(), result_bytes
        self._backoff, self._repair, self._scope = backoff or Backoff(), repair, f"{scope}/" if scope else ""
        self.now, self._jitter = now, jitter
        self._remembered: OrderedDict[str, Progress] = OrderedDict()
        self._guard = Lock()
        self._closed = False
        self._live: dict[str, ActiveRun] = {}
        self.services = SharedResources()
        self._models: dict[str, Model] = {}
        self._showing = ToolVisibility(self.tools, self.policy, selector)
        self.asker = ModelCaller(self._showing, self.store, now)
        self.approvals = Approvals(
            self.store, self.policy, approver, self.services, tools=self.callable_tools, scope=self._scope,
            principal=principal,
        )  # fmt: skip

    # ------------------------------------------------------------------ opening

    def session(
        self,
        *,
        run: str | None,
        deps: Any,
        inject: Mapping[str, Any] | None,
        budget: Budget | None = None,
        observers: Sequence[Observer] = (),
        remember: bool = False,
    ) -> ActiveRun:
        """Open a run, or go on with one that `handle` or `call` has named before."""
        if file := reimport.under_way():
            raise SetupError(
                f"{file} makes calls at its top level, and is imported again by the process that is to run its tool; "
                'put them under `if __name__ == "__main__":`'
            )
        if self._closed:
            raise SetupError("this runtime is closed, and so are its tools; enter it by `with`, or make a new one")
        _check("budget", budget, isinstance(budget, Budget), "a `Budget`")
        run_id, budget = run or new_run_id(), budget or self.budget
        check_run_name(run_id, self._scope)
        progress = self._recalled(run_id) if remember else Progress()
        listening, started = (*self.observers, *observers), self.now()
        known = self._known_with(inject) if inject else self._known
        if self._audits is not None:
            redactor = self._redactor if known is self._known else Redactor(known)
            listening = (*listening, AuditObserver(self._audits, run_id, redactor, self._principal))
        conduct = RunSettings(
            self.policy,
            self.now,
            self._jitter,
            run_id,
            self._scope,
            started + budget.time_s if budget.time_s is not None else float("inf"),
            self.result_bytes,
            self._backoff,
            self._repair,
            tell=partial(tell_all, listening) if listening else None,
            renews=self.leases is not None,
            looks_up=self.looks_up is not None,
            secrets=known if known.forms else None,
        )
        window = Window(budget.context_tokens) if budget.context_tokens is not None else None
        return ActiveRun(run_id, progress, conduct, budget, deps, inject or {}, started, listening, window)

    def _known_with(self, inject: Mapping[str, Any]) -> Known:
        """Return the runtime's secrets and the injected values, except those declared with `secret=False`."""
        openly = self.tools.remembered("openly", partial(_openly_injected, self.tools))
        texts = [text for name, value in inject.items() if name not in openly for text in texts_in(value)]
        return Known((*self._secrets, *texts)) if texts else self._known

    def _recalled(self, run_id: str) -> Progress:
        with self._guard:
            progress = self._remembered.get(run_id)
            if progress is None:  # its turns are counted from 1, perhaps for the second time, and must get new keys
                progress = self._remembered[run_id] = Progress(nonce=token_hex(4))
            self._remembered.move_to_end(run_id)
            while len(self._remembered) > MOST_RUNS_REMEMBERED:
                self._remembered.popitem(last=False)
        return progress

    def begin(self, session: ActiveRun, model: str) -> None:
        """Note that a run is under way, so that it can be cancelled from elsewhere.

        Raises:
            SetupError: A run of that id is under way already.
        """
        if self._live.setdefault(session.id, session) is not session:
            raise SetupError(f"the run {session.id!r} is under way already")
        if session.observers:
            session.tell(RunStarted(session.id, model))

    def end(self, session: ActiveRun, ending: Ending) -> Run:
        """Close a run and say how it ended."""
        self._live.pop(session.id, None)
        session.end_waiting()
        if session.observers:
            session.tell(RunEnded(session.id, ending.status, ending.reason))
        progress = session.progress
        seconds = self.now() - session.started - progress.spent.waited_s
        return Run(
            session.id,
            ending.status,
            ending.text,
            ending.reason,
            progress.messages,
            progress.spent,
            session.budget,
            seconds,
            ending.output,
        )

    def leave(self, session: ActiveRun) -> None:
        """Release a kept run that ended for its caller but not in the store, so that any process may resume it."""
        if session.recording is not None and (entry := session.recording.left()):
            self.unrecorded.enter(entry)

    def callable_tools(self) -> Toolset:
        """Return every tool that a call may name: one that the policy hides is refused rather than unknown."""
        return self._showing.callable_tools()

    def batch(self, session: ActiveRun, turn: Turn, number: int, slots: Sequence[CallPosition] = ()) -> Batch:
        """Open the calls of one turn; those whose results are known from before are over already."""
        recording = session.recording
        return Batch(
            turn.calls,
            turn.finish,
            self._showing.callable_tools(turn.calls, session.selector),
            session.conduct,
            budget=session.budget,
            spent=session.progress.spent,
            turn=number,
            known=recording.results(number, range(len(turn.calls))) if recording is not None else None,
            slots=slots,
        )

    def model(self, model: str | Model) -> Model:
        """Return a model by its name, such as `openai:NAME`; made once."""
        if not isinstance(model, str):
            return model
        if model not in self._models:
            provider, colon, name = model.partition(":")
            if not provider or not name:
                lacks = "name behind its provider" if provider and colon else "provider"
                raise ConfigError(f"the model {model!r} has no {lacks}; write `provider:name`, such as `openai:NAME`")
            self._models[model] = plugins.load("models", provider)(name)
        return self._models[model]

    def session_for(
        self, turn: Turn, *, run: str | None, deps: Any, inject: Mapping[str, Any] | None
    ) -> tuple[ActiveRun, int]:
        """Open the next turn, and say its number, of the run that calls from elsewhere name.

        Without a name they are a run of their own.

        Raises:
            MissingInjection: One of the tools that are called needs a value that the caller did not give.
        """
        session = self.session(run=run, deps=deps, inject=inject, remember=run is not None)
        tools = self._showing.callable_tools(turn.calls)
        resolved = [tools.resolve(call.name) for call in turn.calls]
        called = [tool for tool in resolved if isinstance(tool, BaseTool)]
        for tool in called:
            _ = tool.checker, tool.bind  # a tool that cannot be described is found before anything runs
        check_injected(called, session.injected)
        session.conduct.keeps = run is not None
        if nonce := session.progress.nonce:
            # Another process may count turns of this run too, so the place alone would give two writes one key.
            session.conduct.stem = f"{session.id}/{nonce}"
        with self._guard:  # two turns of one number would share the keys of their writes
            session.progress.turn += 1
            return session, session.progress.turn

    def heeded(self, session: ActiveRun, batch: Batch, run: str | None) -> list[ToolResult]:
        """Return the results of calls from elsewhere; of a run with a name, those that close a circle with a word."""
        if not run:
            return batch.finished()
        with self._guard:
            return heed_repeats(session.progress.repeats, batch)[0]

    def talk(self, session: ActiveRun) -> Talk:
        """Open the conversation of a run."""
        return conversation(
            session.progress,
            partial(self.asker.shown, session),
            session.budget,
            session.conduct,
            session.started,
            session.wanted,
            session.course,
        )

    def steps(self, session: ActiveRun) -> RunSteps:
        """Yield what must happen until the run is over, but for what its journal knows; return how it ended.

        AskModel -> Turn            ModelError may be thrown in
        Batch    -> None, once every call has its result
        Entry    -> whether somebody has asked for the run's end; Fenced and StoreUnavailable may be thrown in
        """
        recording = session.recording
        try:
            ending = yield from self._conversed(session)
            if recording is not None and (last := recording.last_entry(ending)):
                yield last
                recording.entered()
        except Fenced:
            ending = Ending("moved", "somebody else has taken this run over", last_text(session.progress.messages))
        except StoreUnavailable as error:
            self.leave(session)
            reason = f"what happened in this run could not be recorded: {error}"
            ending = Ending("failed", reason, last_text(session.progress.messages))
        return ending

    def _conversed(self, session: ActiveRun) -> RunSteps:
        talk, recording = self.talk(session), session.recording
        answer: Any = None
        while True:
            try:
                asked = talk.send(answer)
            except StopIteration as over:
                ending: Ending = over.value
                # Whoever ended it does not expect it to go on once somebody approves, or gives it more time.
                goes_on = ending.status in ("waiting", "budget", "failed")
                return cancelled(session) if goes_on and session.cancelled else ending
            if session.cancelled:
                return cancelled(session)
            if isinstance(asked, AskModel):
                answer = recording.answer(asked.number) if recording is not None else None
                if answer is None:
                    try:
                        answer = yield asked
                    except ModelError as error:
                        return ending_by(error, session)
                    if recording is not None:
                        recording.note_answer(asked.number, answer)
            else:
                answer = self.batch(session, asked.turn, asked.number)
                yield from self.carried(session, answer, asked.number)

    def carried(self, session: ActiveRun, batch: Batch, number: int) -> Generator[Batch | JournalEntry, Any, None]:
        """Yield the calls of a turn to be carried, then the fixed steps that follow them, each once it is recorded."""
        recording = session.recording
        if batch.left:
            if recording is not None and batch.writes:
                yield from _entered(session, recording)
            yield batch
        if recording is not None:
            recording.note_results(number, batch)
            yield from _entered(session, recording)
        if batch.prescribes and not session.cancelled:
            yield from self._followed(session, batch, number)

    def _followed(self, session: ActiveRun, batch: Batch, number: int) -> Generator[Batch | JournalEntry, Any, None]:
        conduct, recording = session.conduct, session.recording
        found = following(batch, f"{conduct.stem or conduct.run_id}/{number}", conduct.tell)
        if steps := [each for each in found if each.fault is None]:
            tools = list({id(each.tool): each.tool for each in steps}.values())
            after = Batch(
                [each.call for each in steps], "calls", Toolset(tools), conduct,
                budget=session.budget, spent=session.progress.spent, turn=number,
                known=recording.results(number, [each.slot.place for each in steps]) if recording is not None else None,
                slots=[each.slot for each in steps],
            )  # fmt: skip
            yield from self.carried(session, after, number)
            for at, (step, result) in enumerate(zip(steps, after.finished(), strict=True)):
                tell_of(batch, step, result, after.followed.get(at))
        for step in found:
            if step.fault is not None:
                tell_of(batch, step, step.fault)

    # ------------------------------------------------------------------ runs that are kept

    def kept_of(self, session: ActiveRun, messages: Sequence[Message], model: str | Model) -> RunRecord | None:
        """Return what is kept of a run that begins, where the store keeps runs."""
        if self._keeps is None:
            return None
        form = session.wanted.plan.schema if session.wanted is not None else None
        name = model if isinstance(model, str) else ""
        rules = rules_as_json(session.course.rules) if session.course is not None else ()
        asked = RunInput(messages, name, session.options, budget_as_json(session.budget), form, flow=rules)
        if (tools := self.tools.snapshot()) is not self._digested[0]:
            self._digested = tools, toolset_digest(tools)
        return RunRecord(session.id, input_as_json(asked), toolset=self._digested[1], owner=owner())

    @property
    def keeps_runs(self) -> bool:
        """Whether the store keeps runs, so that they can be gone on with."""
        return self._keeps is not None

    @property
    def runs(self) -> RunStore:
        """The store as the keeper of runs.

        Raises:
            ConfigError: It keeps none.
        """
        if self._keeps is None:
            raise ConfigError(
                "this store does not keep runs, so none can be gone on with; open the runtime with "
                'store="sqlite:///handrail.db"'
            )
        return self._keeps

    def recorded(self, run_id: str) -> StoreAnswer[StoredRun | None]:
        """Return a kept run of this runtime's scope.

        Raises:
            ConfigError: The store keeps no runs, or the name belongs to another scope.
        """
        check_run_name(run_id, self._scope)
        return self.runs.load_run(run_id)

    def record(self, session: ActiveRun, begun: StoredRun, *, replaying: bool = False) -> None:
        """Drive the run along its journal, as if no time had passed since its last step."""
        session.started = self.now() - worked_s(begun.steps)
        if session.budget.time_s is not None:
            session.conduct.deadline = session.started + session.budget.time_s
        session.conduct.epoch = begun.record.epoch
        if begun.record.cancel_requested and not replaying:
            session.cancelled = True  # by somebody who was told that it ends; its owner died before it did
        started, spent = session.started, session.progress.spent  # not the session itself, which would then hold itself
        session.recording = JournalCursor(begun, lambda: self.now() - started - spent.waited_s, replaying=replaying)

    def course(self, rules: Rules) -> FlowState | None:
        """Return the course of a run with these rules.

        Raises:
            ConfigError: A rule names no tool that the policy lets a model use.
        """
        if not rules:
            return None
        return course(rules, (tool.name for tool in self.callable_tools() if self.policy.sees(tool)))

    def batch_of(self, tool: BaseTool, session: ActiveRun) -> Batch:
        """Open one call of a tool that no model is shown."""
        call = ToolCall("call_1", tool.name)
        return Batch([call], "calls", Toolset([tool]), session.conduct, budget=session.budget, spent=Spent())

    def open(self, session: ActiveRun, messages: Sequence[Message], output: Any, model: Model) -> None:
        """Begin a run with these messages, made fit to send, and with the form that its answer must have.

        Args:
            output: A type, a JSON Schema or a `Form`; None is plain text.

        Raises:
            ConfigError: The form cannot be described to a model.
            SetupError: A run of that id is under way already.
        """
        if output is not None:
            session.wanted = wanted(output, way_of(model))
        sound = mended(messages, reads=self._reads)
        session.progress.messages = list(sound.messages)
        self.begin(session, model.name)
        if sound.notes:
            session.tell(HistoryMended(sound.notes))

    def _reads(self, name: str) -> bool:
        tool = self.callable_tools().get(name)
        return tool is not None and not tool.writes

    def cancel(self, run_id: str, *, by: str = "") -> bool:
        """End a run, from any thread: its calls are told, and its `Run` has the status `cancelled`.

        One that another process drives is ended there, at its next step, where the store keeps runs.

        Args:
            by: Who wants it, for the audit log.

        Returns:
            Whether such a run is under way. It ends soon, not at once.
        """
        check_run_name(run_id, self._scope)
        session = self._live.get(run_id)
        if session is None:
            is_asked = self._keeps is not None and result_now(self._keeps.request_cancel(run_id))
        else:
            is_asked = True
            session.cancelled = True
            for stop in list(session.stops):
                stop()
            if session.recording is not None and not session.recording.replaying:
                with suppress(Exception):  # a driver's own errors too: the run ends here all the same
                    # Not waited for: whoever goes on is told of it, should this process die before the run's end.
                    self.runs.request_cancel(run_id)
        if is_asked and self._audits is not None:
            self._audits.append_audit([notice_of_word("CancelRequested", run_id, self._redactor, by=by)])
        return is_asked

    def begin_close(self) -> None:
        """Refuse runs and calls until the runtime is entered again: they would open tools that nobody closes."""
        self._closed = True

    def reopen(self) -> None:
        """Accept runs and calls again, after the runtime was entered again."""
        self._closed = False

    def close_store(self) -> None:
        """Close the store, if it was opened here and not given: what was asked until now is recorded first."""
        self.unrecorded.close()
        if self._opened_store and (close := getattr(self.store, "close", None)) is not None:
            close()

    async def close_models(self) -> None:
        """Close the connections of the models that were made here."""
        for model in self._models.values():
            if aclose := getattr(model, "aclose", None):
                await aclose()

    # ------------------------------------------------------------------ what drivers need around an effect

    def context(
        self,
        session: ActiveRun,
        lane: CallState,
        lease: Lease | None,
        attempt: int,
        timeout_s: float,
        flag: Flag,
        report: Callable[[float, float | None, str], None] | None = None,
    ) -> Context[Any]:
        """Return what the tool may know about this attempt."""
        admitted = lane.admitted
        assert admitted is not None
        return Context(
            session.deps,
            session.id,
            lane.call.id,
            admitted.tool.name,
            attempt,
            monotonic() + timeout_s,
            flag,
            admitted.key,
            lease.claimed.fence if lease else 0,
            lambda handle: result_now(self.store.load_result(session.id, handle)),
            report,
        )


def _check(setting: str, given: object, is_one: bool, what: str) -> None:
    if given is not None and not is_one:
        raise ConfigError(f"{setting} is {given!r}; it takes {what}")


def _store(store: str | Store) -> Store:
    if not isinstance(store, str):
        return store
    kind, _, place = store.partition(":")
    make = plugins.load("stores", kind)
    try:
        made: Store = make(place) if place else make()
    except TypeError as error:
        raise ConfigError(f"the store {store!r} cannot be opened: {kind!r} takes no place; write '{kind}:'") from error
    try:
        log_key.give(made, os.environ.get(log_key.VARIABLE, ""))
        log_key.check(made)
    except BaseException:
        if close := getattr(made, "close", None):
            close()
        raise
    return made


def _openly_injected(tools: Toolset) -> set[str]:
    """Return the names whose injected values are public according to every tool that takes them."""
    kinds = [(name, kind) for tool in tools for name, kind in tool.hidden.items()]
    return {name for name, kind in kinds if kind is InjectedOpenly} - {name for name, kind in kinds if kind is Injected}


def _entered(session: ActiveRun, recording: JournalCursor) -> Generator[JournalEntry, bool, None]:
    """Enter what has been noted, and learn whether somebody wants the run to end."""
    entry = recording.entry()
    if entry is None:
        return
    if (yield entry):
        session.cancelled = True
    recording.entered()
