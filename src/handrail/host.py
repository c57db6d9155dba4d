"""What every driver shares: tools, rules, store and listeners of one deployment, and how a run is opened.

A driver adds only how effects are performed: `runtime` on asyncio, `sync` in the calling thread.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_hex
from threading import Event as Flag
from threading import Lock
from time import monotonic, time
from typing import Any, TypeAlias, TypeVar, cast

from handrail import logs, plugins, shaping, showing
from handrail.audit import notice_of
from handrail.batch import Batch, Lane
from handrail.budgets import Budget, Spent
from handrail.calls import ToolCall, ToolResult
from handrail.context import Context, Injected
from handrail.conversation import AskModel, Ending, Progress, Talk, conversation, heed_repeats, last_text
from handrail.dialects import WireDialect, dialect
from handrail.effects import Approval, AskHuman, Claim, Claimed
from handrail.errors import (
    ConfigError,
    Failure,
    Fenced,
    HandrailError,
    Json,
    MissingInjection,
    ModelError,
    SetupError,
    StoreUnavailable,
)
from handrail.events import (
    AskedOtherwise,
    ContextFolded,
    Event,
    HistoryMended,
    HttpExchange,
    ModelAnswered,
    ModelAsked,
    RunEnded,
    RunStarted,
    Streamed,
    ToolsSelected,
)
from handrail.history import Window, folded, mended, to_fold
from handrail.journal import (
    Asked,
    budget_as_json,
    budget_from_json,
    call_key,
    input_as_json,
    input_from_json,
    result_from_json,
    toolset_digest,
    turn_from_json,
)
from handrail.keys import digest
from handrail.lifecycle import Conduct, admit, read
from handrail.messages import Delta, Message, Options, ToolMessage, Turn
from handrail.policy import Policy, act
from handrail.ports import (
    Answer,
    ApprovalStore,
    Approver,
    AuditStore,
    LedgerStore,
    Model,
    Observer,
    Request,
    RunStore,
    Selector,
    Store,
)
from handrail.processes import place_of
from handrail.reading import READ_RESULT
from handrail.recording import Recording, worked_s
from handrail.records import Begun, Entry, Question, RunRecord
from handrail.redaction import Redactor
from handrail.retries import Backoff
from handrail.runs import Run
from handrail.services import Services, cancelled_from_outside
from handrail.showing import Showing, selector_of
from handrail.structured import Wanted, wanted, way_of
from handrail.tools import BaseTool, FunctionTool
from handrail.toolset import Tools, Toolset
from handrail.undoing import Undoable, chosen, taking_back

T = TypeVar("T")
RunSteps: TypeAlias = Generator["AskModel | Batch | Entry", Any, Ending]

# How many runs a process remembers for `handle(run=...)`: spent budget, repeated calls, turn numbers.
MOST_RUNS_REMEMBERED = 10_000

OUT_OF_TIME = "out_of_time"
"""The code of a ModelError that stands for the run's own time limit."""


@dataclass(slots=True, eq=False)
class Session:
    """One run as its driver holds it while it is under way."""

    id: str
    progress: Progress
    conduct: Conduct
    budget: Budget
    deps: Any
    injected: Mapping[str, Any]
    started: float
    observers: Sequence[Observer]
    window: Window | None = None
    """How large the conversation may grow."""
    wanted: Wanted | None = None
    """The form that the answer must have."""
    recording: Recording | None = None
    """Its journal, where the store keeps runs."""
    options: Options = field(default_factory=Options)
    selector: Selector | None = None
    """What chooses the tools that this run shows; the runtime's otherwise."""
    offered: tuple[Sequence[str], Toolset, Toolset] | None = None
    """The names that were chosen last, the tools that they were chosen from, and the chosen."""
    cancelled: Flag = field(default_factory=Flag)
    stops: list[Callable[[], Any]] = field(default_factory=list)
    """What to call to end whatever is under way."""

    def tell(self, event: Event) -> None:
        """Tell everyone who listens."""
        _tell(self.observers, event)


@dataclass(frozen=True, slots=True)
class Trail:
    """Writes what a run decides and does into the audit log. The log is not waited for; whether it fails is logged."""

    store: AuditStore
    run_id: str
    redactor: Redactor

    def __call__(self, event: Event) -> None:
        notice = notice_of(event, self.run_id, self.redactor)
        if notice is not None:
            answer = self.store.append([notice])
            if isinstance(answer, Future):
                answer.add_done_callback(self._done)

    def _done(self, answer: Future[None]) -> None:
        if (error := answer.exception()) is not None:
            logs.raised(f"an audit record of run {self.run_id} could not be written", error)


@dataclass(slots=True)
class Ears:
    """Hears a model's answer on its way and tells the run's observers."""

    session: Session

    def delta(self, delta: Delta) -> None:
        """Tell of a piece of the answer."""
        self.session.tell(Streamed(delta))

    def exchange(self, exchange: HttpExchange) -> None:
        """Tell of a request and its answer."""
        self.session.tell(exchange)


def _tell(observers: Sequence[Observer], event: Event) -> None:
    for observer in observers:
        try:
            observer(event)
        except Exception as error:  # one that only looks on must not cost a result
            logs.raised(f"an observer raised on {type(event).__name__}; the run goes on", error)


class Host:
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
        scope: Tenant: writes of different scopes never share a key.
        secrets: Values that the audit log must never hold, beside what looks like a key.
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
        result_bytes: int = shaping.DEFAULT_RESULT_BYTES,
        backoff: Backoff | None = None,
        repair: bool = True,
        selector: str | Selector = showing.DEFAULT,
        scope: str = "",
        secrets: Iterable[str] = (),
        now: Callable[[], float] = monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if result_bytes < shaping.LEAST_RESULT_BYTES:
            raise ConfigError(f"result_bytes is {result_bytes}; at least {shaping.LEAST_RESULT_BYTES} are needed")
        self.tools = tools if isinstance(tools, Toolset) else Toolset(tools)
        self.policy = policy or Policy()
        self.store: Store = _store(store)
        self._opened_store = isinstance(store, str)
        self._nonce = token_hex(4)
        self.approver, self.observers = approver, tuple(observers)
        # Asked once: a check against a protocol costs as much as a call.
        self._audits = self.store if isinstance(self.store, AuditStore) else None
        self._keeps = self.store if isinstance(self.store, RunStore) else None
        self._redactor = Redactor(secrets)
        self.budget, self.result_bytes = budget or Budget(), result_bytes
        self._backoff, self._repair, self._scope = backoff or Backoff(), repair, f"{scope}/" if scope else ""
        self.now, self._jitter = now, jitter
        self._remembered: OrderedDict[str, Progress] = OrderedDict()
        self._guard = Lock()
        self._live: dict[str, Session] = {}
        self.services = Services()
        self._models: dict[str, Model] = {}
        self._showing = Showing(self.tools, self.policy, selector)

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
    ) -> Session:
        """Open a run, or go on with one that `handle` or `call` has named before."""
        run_id, budget = run or new_run_id(), budget or self.budget
        progress = self._recalled(run_id) if remember else Progress()
        listening, started = (*self.observers, *observers), self.now()
        if self._audits is not None:
            listening = (*listening, Trail(self._audits, run_id, self._redactor))
        conduct = Conduct(
            self.policy,
            self.now,
            self._jitter,
            run_id,
            self._scope,
            started + budget.time_s if budget.time_s is not None else float("inf"),
            self.result_bytes,
            self._backoff,
            self._repair,
            tell=partial(_tell, listening) if listening else None,
        )
        window = Window(budget.context_tokens) if budget.context_tokens is not None else None
        return Session(run_id, progress, conduct, budget, deps, inject or {}, started, listening, window)

    def _recalled(self, run_id: str) -> Progress:
        with self._guard:
            progress = self._remembered.setdefault(run_id, Progress())
            self._remembered.move_to_end(run_id)
            while len(self._remembered) > MOST_RUNS_REMEMBERED:
                self._remembered.popitem(last=False)
        return progress

    def begin(self, session: Session, model: str) -> None:
        """Note that a run is under way, so that it can be cancelled from elsewhere.

        Raises:
            SetupError: A run of that id is under way already.
        """
        if self._live.setdefault(session.id, session) is not session:
            raise SetupError(f"the run {session.id!r} is under way already")
        if session.observers:
            session.tell(RunStarted(session.id, model))

    def end(self, session: Session, ending: Ending) -> Run:
        """Close a run and say how it ended."""
        self._live.pop(session.id, None)
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

    def shown(self, session: Session) -> Toolset:
        """Return the tools that the model is told of in the next turn: those that the policy lets it use.

        Raises:
            MissingInjection: One of them needs a value that the caller did not give.
        """
        tools = self._showing.permitted(reads_on=session.progress.reads_on)
        check_injected(tools, session.injected)
        return tools

    def callable_tools(self) -> Toolset:
        """Return every tool that a call may name: one that the policy hides is refused rather than unknown."""
        return self._showing.callable_tools()

    def batch(self, session: Session, turn: Turn, number: int) -> Batch:
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
            known=recording.results(number, len(turn.calls)) if recording is not None else None,
        )

    def model(self, model: str | Model) -> Model:
        """Return a model by its name, such as `openai:NAME`; made once."""
        if not isinstance(model, str):
            return model
        if model not in self._models:
            provider, colon, name = model.partition(":")
            if not colon or not name:
                raise ConfigError(f"the model {model!r} has no provider; write `provider:name`, such as `openai:NAME`")
            self._models[model] = plugins.load("models", provider)(name)
        return self._models[model]

    def session_for(
        self, turn: Turn, *, run: str | None, deps: Any, inject: Mapping[str, Any] | None
    ) -> tuple[Session, int]:
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
        # Another process may count the turns of this run too, and two writes must not share the key of their place.
        session.conduct.stem = f"{session.id}/{self._nonce}"
        with self._guard:  # two turns of one number would share the keys of their writes
            session.progress.turn += 1
            return session, session.progress.turn

    def heeded(self, session: Session, batch: Batch, run: str | None) -> list[ToolResult]:
        """Return the results of calls from elsewhere; of a run with a name, those that close a circle with a word."""
        if not run:
            return batch.finished()
        with self._guard:
            return heed_repeats(session.progress.repeats, batch)[0]

    def talk(self, session: Session) -> Talk:
        """Open the conversation of a run."""
        return conversation(
            session.progress,
            partial(self.shown, session),
            session.budget,
            session.conduct,
            session.started,
            session.wanted,
        )

    def steps(self, session: Session) -> RunSteps:
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
        except Fenced:
            ending = Ending("moved", "somebody else has taken this run over", last_text(session.progress.messages))
        except StoreUnavailable as error:
            reason = f"what happened in this run could not be recorded: {error}"
            ending = Ending("failed", reason, last_text(session.progress.messages))
        return ending

    def _conversed(self, session: Session) -> RunSteps:
        talk, recording = self.talk(session), session.recording
        answer: Any = None
        while True:
            try:
                asked = talk.send(answer)
            except StopIteration as over:
                ending: Ending = over.value
                return ending
            if session.cancelled.is_set():
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
                answer = batch = self.batch(session, asked.turn, asked.number)
                if not batch.done:
                    if recording is not None and batch.writes:
                        yield from _entered(session, recording)
                    yield batch
                if recording is not None:
                    recording.note_results(asked.number, batch.finished())
                    yield from _entered(session, recording)

    # ------------------------------------------------------------------ runs that are kept

    def kept_of(self, session: Session, messages: Sequence[Message], model: str | Model) -> RunRecord | None:
        """Return what is kept of a run that begins, where the store keeps runs."""
        if self._keeps is None:
            return None
        form = session.wanted.plan.schema if session.wanted is not None else None
        name = model if isinstance(model, str) else ""
        asked = Asked(messages, name, session.options, budget_as_json(session.budget), form)
        return RunRecord(session.id, input_as_json(asked), toolset=toolset_digest(self.tools.snapshot()))

    def fork_of(self, begun: Begun | None, run_id: str, at_turn: int) -> tuple[RunRecord, Entry]:
        """Return a new run that has the first turns of another, and those turns.

        Raises:
            ConfigError: There is no such run, or it has not come so far.
        """
        begun = known(begun, run_id)
        before = [step for step in begun.steps if step.turn < at_turn]
        if at_turn < 1 or not any(step.turn >= at_turn for step in begun.steps):
            turns = max((step.turn for step in begun.steps), default=0)
            raise ConfigError(f"run {run_id!r} has {turns} turns; it can be forked at one of them, not at {at_turn}")
        asked = input_from_json(begun.record.input)
        done = (*asked.done_before, *self._done_from(begun, at_turn))
        record = replace(
            begun.record, run_id=new_run_id(), input=input_as_json(replace(asked, done_before=done)), epoch=0,
            result=None, forked_from=run_id, forked_at=at_turn,
        )  # fmt: skip
        return record, Entry(record.run_id, 1, before)

    def _done_from(self, begun: Begun, turn: int) -> list[str]:
        """Return the writes that a run has done, or may have done, from a turn on."""
        tools, done = self.callable_tools(), []
        results = {step.key: result_from_json(step.body) for step in begun.steps if step.kind == "call"}
        for step in begun.steps:
            if step.kind != "model" or step.turn < turn:
                continue
            answer = turn_from_json(step.body)
            for index, call in enumerate(answer.calls):
                result = results.get(call_key(step.turn, index))
                asked_for = read(call, tools, answer.finish)
                begun_at_all = result is None or result.attempts > 0
                if isinstance(asked_for, Failure) or not (asked_for.tool.writes and begun_at_all):
                    continue
                admitted = admit(asked_for, Policy(max_permission="admin"))
                if not isinstance(admitted, Failure):
                    done.append(act(asked_for.tool.name, admitted.arguments))
        return done

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

    def record(self, session: Session, begun: Begun, *, replaying: bool = False) -> None:
        """Drive the run along its journal, as if no time had passed since its last step."""
        session.started = self.now() - worked_s(begun.steps)
        if session.budget.time_s is not None:
            session.conduct.deadline = session.started + session.budget.time_s
        session.conduct.epoch = begun.record.epoch
        session.recording = Recording(
            begun, lambda: self.now() - session.started - session.progress.spent.waited_s, replaying=replaying
        )

    def again(
        self,
        begun: Begun | None,
        run_id: str,
        *,
        model: str | Model | None = None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        output: Any = None,
        observers: Sequence[Observer] = (),
        selector: str | Selector | None = None,
    ) -> tuple[Session, Asked, Model]:
        """Open a run that was kept.

        Raises:
            ConfigError: There is no such run, or its model was an object, which cannot be kept.
            JournalMismatch: What was kept cannot be read.
        """
        begun = known(begun, run_id)
        asked = input_from_json(begun.record.input)
        if model is None and not asked.model:
            raise ConfigError(f"the model of run {run_id!r} was an object; give it again with model=")
        budget = budget or budget_from_json(asked.budget)
        session = self.session(run=run_id, deps=deps, inject=inject, budget=budget, observers=observers)
        session.options = asked.options
        session.selector = None if selector is None else selector_of(selector)
        found = self.model(model if model is not None else asked.model)
        if begun.record.forked_from:
            session.conduct.policy = replace(self.policy, done_before=frozenset(asked.done_before))
        return session, replace(asked, output=output if output is not None else asked.output), found

    def taking_back(self, offered: Sequence[Undoable], run_id: str, steps: Sequence[str] | None) -> list[FunctionTool]:
        """Return the writes that take these steps of a run back.

        Raises:
            ConfigError: A step is none of the offered.
        """
        try:
            wanted = chosen(offered, steps)
        except KeyError as error:
            told = ", ".join(f"{each.step} ({each.tool})" for each in offered) or "nothing"
            raise ConfigError(f"step {error} of run {run_id!r} cannot be taken back; what can is {told}") from error
        tools = self.callable_tools()
        return [taking_back(each, tools[each.tool], run_id) for each in wanted]

    def batch_of(self, tool: BaseTool, session: Session) -> Batch:
        """Open one call of a tool that no model is shown."""
        call = ToolCall("call_1", tool.name)
        return Batch([call], "calls", Toolset([tool]), session.conduct, budget=session.budget, spent=Spent())

    async def ask_later(self, session: Session, asked: AskHuman) -> Approval | None:
        """Put a question where somebody may answer it tomorrow, in any process; return the answer if it is there.

        An approval is used by one call. A run that was interrupted after that finds it used by itself, and goes on: the
        ledger knows whether the call has happened.
        """
        store = self.store
        if not isinstance(store, ApprovalStore) or not session.conduct.keeps:
            return None  # nobody could come back for the answer of a call that belongs to no run
        name = digest({"run": session.id, "place": asked.place, "digest": asked.digest})[:16]
        question = Question(
            f"a_{name}", session.id, asked.call.id, asked.call.name, asked.digest, asked.arguments, asked.risk,
            asked.reason, asked.description,
        )  # fmt: skip
        kept = await later(store.ask(question, within_s=self.policy.approval_s))
        if kept.state == "approved" and not await later(store.use(kept.id)):
            kept = await later(store.ask(question, within_s=self.policy.approval_s))
            return None if kept.state == "open" else Approval(False, expired=True)
        match kept.state:
            case "open":
                return None
            case "expired":
                return Approval(False, expired=True)
            case "denied":
                return Approval(False, kept.by, kept.because)
        if kept.state == "used" and not await self._knows_again(session, asked.call.name):
            return Approval(False, kept.by, "this approval has been used")
        return Approval(True, kept.by, kept.because, kept.edited)

    async def _knows_again(self, session: Session, name: str) -> bool:
        """Whether a call whose approval was used before may go on: only where the ledger answers it and nothing runs.

        So it is for a run that was interrupted in the meantime, and for a write of a named run that the ledger still
        holds. One that failed or was forgotten needs a new word, and so does one that is meant to be done twice alike.
        """
        if session.recording is not None and session.recording.goes_on:
            return True
        tool, store = self.callable_tools().get(name), self.store
        if tool is None or not tool.writes or (tool.repeatable and not tool.key) or not isinstance(store, LedgerStore):
            return False
        held = await later(store.writes(run_id=session.id))
        return any(each.scope == f"{self._scope}{name}" and each.state != "failed" for each in held)

    def open(self, session: Session, messages: Sequence[Message], output: Any, model: Model) -> None:
        """Begin a run with these messages, made fit to send, and with the form that its answer must have.

        Args:
            output: A type, a JSON Schema or a `Form`; None is plain text.

        Raises:
            ConfigError: The form cannot be described to a model.
            SetupError: A run of that id is under way already.
        """
        if output is not None:
            session.wanted = wanted(output, way_of(model))
        tools = self.callable_tools()
        sound = mended(messages, reads=lambda name: (tool := tools.get(name)) is not None and not tool.writes)
        session.progress.messages = list(sound.messages)
        self.begin(session, model.name)
        if sound.notes:
            session.tell(HistoryMended(sound.notes))

    async def ask(self, session: Session, model: Model, asked: AskModel) -> Turn:
        """Ask the model within what is left of the run's time."""
        left_s = session.conduct.deadline - self.now()
        tools = asked.tools
        if session.window is not None and await self._fold(session, session.window):
            tools = self.shown(session)
        question = Asking(left_s)
        session.stops.append(question.stop)
        if session.cancelled.is_set():
            question.stop()
        try:
            tools = await self._selected(session, tools, asked.number)
            request = Request(session.progress.messages, tools, session.options, left_s)
            listener = None
            if session.observers:
                session.tell(ModelAsked(asked.number, len(asked.messages), len(tools)))
                listener = Ears(session)
            turn = await self._asked_in_form(session, model, request, listener)
        except asyncio.CancelledError:
            if question.ended_here():
                raise ModelError("the model did not answer within the run's time", code=OUT_OF_TIME) from None
            raise
        finally:
            session.stops.remove(question.stop)
            question.close()
        if session.window is not None:
            session.window.counted(turn.usage.input_tokens)
        if session.observers:
            session.tell(ModelAnswered(asked.number, turn))
        return turn

    async def _selected(self, session: Session, tools: Toolset, number: int) -> Toolset:
        """Return what this turn shows of the tools that it may show."""
        selection = await self._showing.select(session.selector, session.progress.messages)
        if selection.names is None:
            return tools
        # What the request itself speaks of is shown in any case: the tool that must be called, the one that reads on.
        names = (*selection.names, session.options.tool_choice, READ_RESULT.name)
        offered = session.offered
        if offered is None or offered[0] != names or offered[1] is not tools:
            offered = session.offered = names, tools, self._showing.chosen(names, tools, session.selector)
        if session.observers:
            session.tell(ToolsSelected(number, selection.strategy, [tool.name for tool in offered[2]], len(tools)))
        return offered[2]

    async def _fold(self, session: Session, window: Window) -> bool:
        """Let old results become handles where the conversation outgrows its window; say whether any did."""
        messages = session.progress.messages
        folds = 0
        for position in to_fold(messages, window.overflows(messages)):
            message = cast(ToolMessage, messages[position])
            try:
                handle = message.result.handle or await later(self.store.keep(session.id, message.result.text))
            except Exception as error:  # a store's own errors too: what cannot be kept stays where it is
                logs.raised("an old result could not be kept, and stays in the conversation", error)
                break
            messages[position] = folded(message, handle)
            folds += 1
        if folds:
            session.progress.reads_on = True
            session.tell(ContextFolded(folds, window.size(messages)))
        return bool(folds)

    async def _asked_in_form(self, session: Session, model: Model, request: Request, listener: Ears | None) -> Turn:
        """Ask for the answer in its form, if any; in the next way where a server refuses to be asked in one."""
        form = session.wanted
        if form is None:
            return await _asked(model, request, listener)
        while True:
            before = form.way
            try:
                turn = await _asked(model, form.asking(request), listener)
            except ModelError as error:
                if not form.falls_back(error):
                    raise
                session.tell(AskedOtherwise(before, form.way, str(error)))
            else:
                form.settled = True
                return turn

    def cancel(self, run_id: str) -> bool:
        """End a run, from any thread: its calls are told, and its `Run` has the status `cancelled`.

        One that another process drives is ended there, at its next step, where the store keeps runs.

        Returns:
            Whether such a run is under way. It ends soon, not at once.
        """
        session = self._live.get(run_id)
        if session is None:
            return self._keeps is not None and now_of(self._keeps.request_cancel(run_id))
        session.cancelled.set()
        for stop in list(session.stops):
            stop()
        return True

    def close_store(self) -> None:
        """Close the store, if it was opened here and not given: what was asked until now is recorded first."""
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
        session: Session,
        lane: Lane,
        claim: tuple[Claim, Claimed] | None,
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
            claim[1].fence if claim else 0,
            lambda handle: now_of(self.store.kept(session.id, handle)),
            report,
        )


class Asking:
    """What a model is being asked in the running task, which is ended after some seconds, or by `stop`.

    It is `asyncio.timeout` for this one use, at a third of the cost: every turn of every run has one.
    """

    __slots__ = ("_cancelling", "_ended", "_loop", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._ended = False
        self._timer = None if seconds == float("inf") else self._loop.call_later(seconds, self._end)

    def stop(self) -> None:
        """End it; from any thread."""
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._task.cancel()

    def ended_here(self) -> bool:
        """Whether the task was cancelled by this question, and by nobody else."""
        return self._ended and self._task.cancelling() - 1 <= self._cancelling

    def close(self) -> None:
        """It is answered, or nobody waits for its answer any longer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ended:
            self._task.uncancel()
        self._ended = True  # what rings from now on is late


def new_run_id() -> str:
    """Return the name of a run that nobody named: by time and 64 random bits, since a store may keep millions."""
    return f"r_{int(time() * 1000):011x}{token_hex(8)}"


async def _asked(model: Model, request: Request, listener: Ears | None) -> Turn:
    """Ask; what a model raises beside what it may raise is told as its failure, without its text: it may hold keys."""
    try:
        return await model.ask(request, listener)
    except HandrailError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and cancelled_from_outside():
            raise
        raise ModelError(f"the model {model.name} raised {type(error).__name__}", code="raised") from error


def known(begun: Begun | None, run_id: str) -> Begun:
    """Return a kept run, or raise where there is none."""
    if begun is None:
        raise ConfigError(f"there is no run {run_id!r} in this store")
    return begun


def check_new(begun: Begun, new: bool) -> None:
    """Raise when a new run takes the name of one that is kept: its answers would be the other one's."""
    if new and begun.record.epoch > 1:
        raise ConfigError(f"a run {begun.record.run_id!r} is kept already; resume it, or give the new one another name")


def cancelled(session: Session) -> Ending:
    """Return how a run ends that was cancelled."""
    return Ending("cancelled", "the run was cancelled", last_text(session.progress.messages))


def ending_by(error: ModelError, session: Session) -> Ending:
    """Return how a run ends whose model could not be asked."""
    if session.cancelled.is_set():
        return cancelled(session)
    return Ending("budget" if error.code == OUT_OF_TIME else "failed", str(error), last_text(session.progress.messages))


def wire_dialect(name: str) -> WireDialect:
    """Return the dialect of a provider's messages."""
    found = dialect(name)
    if not isinstance(found, WireDialect):
        raise ConfigError(
            f"{name!r} is a prompt's dialect; messages come in one of a provider's, such as 'openai-chat'"
        )
    return found


def as_json(message: Any) -> Mapping[str, Json]:
    """Return a provider's message as a dictionary, also from an SDK's object."""
    if isinstance(message, Mapping):
        return message
    dump = getattr(message, "model_dump", None) or getattr(message, "to_dict", None)
    if dump is None:
        raise ConfigError(f"a message is a dictionary or an SDK's object, not {type(message).__name__}")
    return cast(Mapping[str, Json], dump())


def arguments_text(arguments: Mapping[str, Json] | str | None) -> str:
    """Return arguments as the text that a model would have written."""
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(arguments or {}, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the arguments are not JSON: {error}") from error


def _store(store: str | Store) -> Store:
    if not isinstance(store, str):
        return store
    kind, _, place = store.partition(":")
    make = plugins.load("stores", kind)
    try:
        made: Store = make(place) if place else make()
    except TypeError as error:
        raise ConfigError(f"the store {store!r} cannot be opened: {kind!r} takes no place; write '{kind}:'") from error
    return made


def _entered(session: Session, recording: Recording) -> Generator[Entry, bool, None]:
    """Enter what has been noted, and learn whether somebody wants the run to end."""
    entry = recording.entry()
    if entry is not None and (yield entry):
        session.cancelled.set()


async def later(answer: Answer[T]) -> T:
    """Return a store's answer, waiting for it where it comes later."""
    return await asyncio.wrap_future(answer) if isinstance(answer, Future) else answer


def now_of(answer: Answer[T]) -> T:
    """Return a store's answer, blocking this thread until it is there."""
    return answer.result() if isinstance(answer, Future) else answer


def check_injected(tools: Iterable[BaseTool], injected: Mapping[str, Any]) -> None:
    """Raise MissingInjection when a tool needs a value that nobody gave.

    Raises:
        ToolDefinitionError: A tool is to run in a process of its own, which cannot import it.
    """
    for tool in tools:
        if tool.isolation == "process":
            place_of(tool)
        for name, kind in tool.hidden.items():
            if kind is Injected and name not in injected:
                raise MissingInjection(
                    f"tool {tool.name!r} needs `{name}`, which is injected and was not given; "
                    f"pass inject={{{name!r}: ...}}"
                )
