"""The engine of a runtime: its tools, rules, store and observers, and the runs that are under way.

The generators here and in `verbs` yield requests (`Request`). A runtime drives them: `runtime.Runtime` on asyncio,
`sync.SyncRuntime` in the calling thread.
"""

from __future__ import annotations

import os
import random
from asyncio import AbstractEventLoop
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from functools import partial
from threading import Event as Flag
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from handrail import plugins
from handrail.audit import log_key, redacted_events
from handrail.audit.observer import AuditObserver
from handrail.audit.trail import person_entry
from handrail.calls import Label, ToolCall, ToolResult
from handrail.context import Context, Injected, InjectedOpenly
from handrail.core import results
from handrail.core.admission import Admitted
from handrail.core.batch import Batch, CallPosition
from handrail.core.budgets import Budget, Spent, calls_used_up, return_call
from handrail.core.conversation import (
    AskModel,
    Conversation,
    Ending,
    Progress,
    conversation,
    last_text,
)
from handrail.core.flow import FlowState, Rules, rules_as_json, start_flow
from handrail.core.follow_ups import make_follow_ups, note_follow_up, with_steps
from handrail.core.history import Window, sanitize
from handrail.core.loop_detection import detect_loops
from handrail.core.policy import Policy
from handrail.core.preview import PreviewBatch
from handrail.core.redaction import ForeignSecrets, KnownSecrets, Redactor, texts_in
from handrail.core.retries import Backoff, describe_waits, next_model_wait
from handrail.core.run_settings import Deadline, RunSettings
from handrail.core.structured_output import find_way, track_output
from handrail.core.trust import (
    UNKNOWN,
    Trust,
    label_recorded,
)
from handrail.core.writes import StartedWrites, is_out_of_reach, note_out_of_reach
from handrail.credentials.secret import Secret
from handrail.dialects.boundaries import Boundaries
from handrail.effects import Resource
from handrail.engine import tool_visibility
from handrail.engine.active_run import (
    ActiveRun,
    CancelWatch,
    cancelled,
    ending_by,
    find_tracer,
    observers_by_environment,
    tell_all,
)
from handrail.engine.approvals import Approvals
from handrail.engine.leases import Lease
from handrail.engine.model_calls import AwayModels, ModelCaller, check_injected
from handrail.engine.scoped_store import (
    ScopedStore,
    check_run_name,
    check_scope,
    qualify_name,
)
from handrail.engine.shared import SharedResources
from handrail.engine.tool_visibility import ToolVisibility, resolve_selector
from handrail.engine.unsaved_records import UnsavedRecords
from handrail.errors import (
    PENDING,
    Code,
    ConfigError,
    Fenced,
    Json,
    ModelError,
    RunPostponed,
    RunUnderWay,
    SetupError,
    StoreUnavailable,
)
from handrail.events import HistoryMended, RunEnded, RunStarted
from handrail.futures import StoreAnswer, result_now
from handrail.invisible import check_name, check_person
from handrail.journal import sealed_store
from handrail.journal.codec import (
    RunInput,
    budget_as_json,
    input_as_json,
    model_key,
    toolset_digest,
)
from handrail.journal.cursor import JournalCursor
from handrail.messages import Message, Options, ToolMessage, Turn
from handrail.ports import (
    Approver,
    AuditStore,
    ConnectedStore,
    GatheringStore,
    LeaseStore,
    LedgerStore,
    LimitStore,
    LookUpStore,
    Model,
    Notifier,
    Observer,
    RunStore,
    RunTrace,
    Selector,
    Store,
    SubmittedRunStore,
    TracedRun,
)
from handrail.process_identity import owner
from handrail.records import (
    AuditRecord,
    ModelWait,
    RunRecord,
    StoredRun,
    WriteRecord,
    new_run_id,
)
from handrail.runs import Run
from handrail.sandboxes import levels
from handrail.schemas import hints
from handrail.surroundings.chance import token_hex
from handrail.surroundings.clock import monotonic
from handrail.tools.declaration import is_async
from handrail.tools.shared_limits import SharedLimits
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Tools, Toolset
from handrail.workers import fork_safety, reimport

MOST_TENANTS_REMEMBERED = 1_000
"""For how many scopes a process keeps an engine at hand; one for another is made when it is needed."""

MOST_STARTED = 10_000
"""How many of the newest writes of a resumed run are matched with the calls that started them."""

MOST_RUNS_REMEMBERED = 10_000
"""How many runs a process remembers for `handle(run=...)`: what the present round has spent and repeated.

Runs between two rounds are forgotten first, and lose nothing. One that is forgotten within a round, because as many
others are within one, counts from nothing. Its writes, approvals and long results are the store's.
"""

T = TypeVar("T")


class AskTurn(Struct, frozen=True):
    """Request the next turn of a run's model; `ModelError` may be thrown in."""

    engine: Engine
    active: ActiveRun
    model: Model
    asked: AskModel


class PerformBatch(Struct, frozen=True):
    """Request that the calls of a batch are performed; the answer is None once every call has its result."""

    engine: Engine
    active: ActiveRun
    batch: Batch


class CallFunction(Struct, frozen=True):
    """Request a call of a workflow's function; the answer is what it returns, and what it raises is thrown in.

    Attributes:
        options: What the workflow's runs of models take unless they say otherwise.
    """

    engine: Engine
    active: ActiveRun
    fn: Callable[..., Any]
    arguments: Mapping[str, Json]
    options: Mapping[str, Any]


class Pause(Struct, frozen=True):
    """Request some time, in seconds; the answer is None."""

    seconds: float


Request: TypeAlias = "AskTurn | PerformBatch | CallFunction | Pause | StoreAnswer[Any]"
"""What a verb yields. Anything but the first four is a store's answer, which is waited for and sent back."""

Verb: TypeAlias = Generator[Request, Any, T]
"""A generator that yields requests and returns the value of the verb."""


class CallInProgress(Protocol):
    """A call of a tool, as far as a run that the tool starts without its context must know it."""

    @property
    def trust(self) -> Trust:
        """What the run of the call has read."""
        ...

    def named_by_question(self, messages: Sequence[Message]) -> str:
        """Return the name of a run with this question."""
        ...

    def note_run(self, run: Run[Any]) -> Run[Any]:
        """Note what a run has read that the tool started; return the run."""
        ...


current_call: ContextVar[CallInProgress | None] = ContextVar(
    "handrail_call", default=None
)
"""The call whose tool runs this code; None outside of a call of a stored run."""


current_engine: ContextVar[Engine | None] = ContextVar("handrail_engine", default=None)
"""What carries out the call whose tool runs this code, where that is a tenant's or under a policy of its own."""


class Deployment:
    """What the tenants of one runtime share, beside its tools, models and threads."""

    def __init__(self, root: Engine, store: Store) -> None:
        self._store = store
        self.root = root
        """The engine of the runtime's own scope."""
        self.tenants: OrderedDict[str, Engine] = OrderedDict()
        """Those of other scopes, the last used at the end."""
        self.remembered: OrderedDict[str, Progress] = OrderedDict()
        """By the names of runs as a store keeps them, as is `live`."""
        self.guard = fork_safety.new_lock()
        self.is_closed = False
        self.has_forgotten = False
        """Whether a run was forgotten, so that one of an unknown name may be an old one."""
        fork_safety.reset_after_fork(self._forget_live)
        self.must_reopen = False

    def _forget_live(self) -> None:
        """Forget the runs under way: in a fork, its parent goes on with them."""
        self.must_reopen = True
        """Whether the store was opened in the parent of this process."""
        self.live: dict[str, ActiveRun] = {}
        self.cancels: CancelWatch | None = None
        """Ends runs that another process cancels; None where the store is this process's own."""
        if isinstance(self._store, SubmittedRunStore):
            self.cancels = CancelWatch(self._store, self.live)


class Engine:
    """The tools, rules, store and observers of one runtime. See `Runtime` for the arguments."""

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
        hints.prepare()
        if result_bytes < results.LEAST_RESULT_BYTES:
            raise ConfigError(
                f"result_bytes is {result_bytes}; at least {results.LEAST_RESULT_BYTES} are needed"
            )
        _check("policy", policy, isinstance(policy, Policy), "a `Policy`")
        if is_async(getattr(policy, "judge", None)):
            raise ConfigError(
                f"`judge` of {type(policy).__name__} is async, and nobody would await it; make it a plain function"
            )
        _check("budget", budget, isinstance(budget, Budget), "a `Budget`")
        _check("approver", approver, callable(approver), "a function that is asked")
        _check_observers(observers)
        self.tools = tools if isinstance(tools, Toolset) else Toolset(tools)
        for tool in with_steps(self.tools):
            tool.check_names()
        self.policy = policy or Policy()
        check_scope(scope)
        opened = _store(store)
        self._store_of_all = opened
        self._opened_store = isinstance(store, str)
        self.approver = approver
        self.observers = (*observers, *observers_by_environment(observers))
        self._secrets = _texts_of(secrets)
        self.principal = principal
        self._known_secrets = KnownSecrets(self._secrets)
        self._redactor = Redactor(self._known_secrets)
        self._digested: tuple[Toolset | None, str] = (None, "")
        """The tools whose digest was taken last, and the digest."""
        self.budget = budget or Budget()
        self.now = now
        self.settings = RunSettings(
            policy=self.policy,
            now=now,
            jitter=jitter,
            result_bytes=result_bytes,
            backoff=backoff or Backoff(),
            repair=repair,
        )
        """What is the same for all runs; each one replaces what is its own."""
        limits = None
        if isinstance(opened, LimitStore):
            limits = SharedLimits(opened, now)
            fork_safety.reset_after_fork(limits.reset)
        self.services = SharedResources(_resolve_notifier(notify), limits)
        self._models: dict[str, Model] = {}
        self._away = AwayModels(now)
        self._selector = selector
        self._showing = ToolVisibility(self.tools, self.policy, selector)
        self._deployment = Deployment(self, opened)
        self._enter_scope(scope)

    # ------------------------------------------------------------------ tenants

    def _enter_scope(self, scope: str) -> None:
        """See the store as the tenant of this scope does."""
        self.scope = scope
        store = self._store_of_all
        if self._known_secrets.forms and isinstance(store, RunStore):
            store = cast(Store, sealed_store.SealedStore(store, self._known_secrets))
        self.store: Store = cast(Store, ScopedStore(store, scope)) if scope else store
        # Asked once: a check against a protocol costs as much as a call.
        self._audits = self.store if isinstance(self.store, AuditStore) else None
        self._keeps = self.store if isinstance(self.store, RunStore) else None
        self.leases = self.store if isinstance(self.store, LeaseStore) else None
        self.looks_up = self.store if isinstance(self.store, LookUpStore) else None
        self._gathers = self.store if isinstance(self.store, GatheringStore) else None
        self.unsaved = UnsavedRecords(self.store, self._keeps)
        self.settings = replace(
            self.settings,
            scope=self.scope,
            passes_on=bool(scope),
            renews=self.leases is not None,
            looks_up=self.looks_up is not None,
        )
        self._enter_policy(self.policy)

    def _enter_policy(self, policy: Policy) -> None:
        """Show and approve by this policy."""
        if policy is not self.policy:
            self.policy = policy
            self.settings = replace(self.settings, policy=policy)
            self._showing = ToolVisibility(self.tools, policy, self._selector)
        self.asker = ModelCaller(self._showing, self.store, self.now, self._away)
        self.approvals = Approvals(
            self.store,
            policy,
            self.services,
            tools=self.callable_tools,
            scope=self.scope,
        )

    def serve(self, scope: str | None = None, policy: Policy | None = None) -> Engine:
        """Return the engine of a tenant, under a policy: the same tools, models and threads, and the tenant's records.

        What a tool does with its own runtime, or with another one, belongs to the tenant of its call, and with its own
        runtime to the policy of its call too.

        Args:
            scope: The tenant; empty for none, None for the engine's own.
            policy: In place of the engine's.

        Raises:
            ConfigError: The scope is no name, or the policy is none.
        """
        engine = self
        caller = current_engine.get()
        if caller is not None and self.is_root:
            if caller._deployment is self._deployment:
                engine = caller
            elif scope is None and caller.scope:
                scope = caller.scope
        if scope is not None and scope != engine.scope:
            engine = self._deployment.root._serve_tenant(scope)
            if caller is not None and engine.is_root:
                engine = copy(engine)
                # what its tools do is not the caller's either
                engine.settings = replace(engine.settings, passes_on=True)
        if policy is not None and policy is not engine.policy:
            _check("policy", policy, isinstance(policy, Policy), "a `Policy`")
            engine = copy(engine)
            engine._enter_policy(policy)
            engine.settings = replace(engine.settings, passes_on=True)
        return engine

    @property
    def is_root(self) -> bool:
        """Whether it is the runtime's own, and not that of a tenant or of a policy of its own."""
        return self is self._deployment.root

    def _serve_tenant(self, scope: str) -> Engine:
        if scope == self.scope:
            return self
        with self._deployment.guard:
            tenant = self._deployment.tenants.get(scope)
            if tenant is None:
                check_scope(scope)
                tenant = copy(self)
                tenant._enter_scope(scope)
                self._deployment.tenants[scope] = tenant
            self._deployment.tenants.move_to_end(scope)
            while len(self._deployment.tenants) > MOST_TENANTS_REMEMBERED:
                oldest = next(iter(self._deployment.tenants.values()))
                if not oldest.unsaved.is_empty:
                    break  # it still has something to tell the store
                self._deployment.tenants.popitem(last=False)
        return tenant

    @property
    def store_of_all(self) -> Store:
        """The store with the records of every tenant."""
        return self._store_of_all

    def qualify_resources(self, resources: Sequence[Resource]) -> Sequence[Resource]:
        """Return resources as the tenant's own; the seats of a tool are for all tenants."""
        if not self.scope:
            return resources
        return [
            each
            if each.seats
            else replace(each, key=qualify_name(self.scope, each.key))
            for each in resources
        ]

    # ------------------------------------------------------------------ opening

    def open_run(
        self,
        *,
        run: str | None,
        deps: Any = None,
        inject: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        observers: Sequence[Observer] = (),
        options: Options | None = None,
        selector: str | Selector | None = None,
        flow: Rules = (),
        principal: str | None = None,
        approver: Approver | None = None,
        policy: Policy | None = None,
        said: str | Sequence[str] = (),
        is_audited: bool = True,
        by_calls: bool = False,
    ) -> ActiveRun:
        """Return a new active run.

        Args:
            principal: On whose behalf; so for `approver`, in place of the runtime's.
            policy: In place of the runtime's.
            said: What people have said to the model, where the run has no messages.
            is_audited: Whether the run is written into the audit log; not one that has been written there before.
            by_calls: Its turns are calls of `call` and `handle`. One with a name continues where the last call left it.

        Raises:
            SetupError: The runtime is closed, or a worker process imports the module that makes this call.
        """
        self._check_open()
        budget = self.budget if budget is None else _check_budget(budget)
        _check("options", options, isinstance(options, Options), "an `Options`")
        run_id = run or new_run_id()
        check_run_name(run_id, self.scope)
        progress = self._open_progress(run if by_calls else None, said)
        started = self.now()
        principal = self.principal if principal is None else principal
        secrets = self.known_secrets(inject) if inject else self._known_secrets
        flow_state = self._make_flow(flow)
        if observers:
            _check_observers(observers)
        listening, trace = self._gather_observers(
            (*self.observers, *observers),
            run_id,
            progress=progress,
            secrets=secrets,
            principal=principal,
            options=options,
            is_audited=is_audited,
        )
        trail = self._make_trail(run_id, secrets, principal) if is_audited else None
        policy = policy or self.policy
        settings = replace(
            self.settings,
            policy=policy,
            run_id=run_id,
            deadline=Deadline.within(budget.time_s, started),
            keeps=run is not None or not by_calls,
            # Another process may count turns of this run too, so the place alone would give two writes one key.
            key_prefix=f"{run_id}/{progress.nonce}" if progress.nonce else "",
            tell=partial(tell_all, listening, run_id) if listening else None,
            trail=trail,
            secrets=secrets if secrets.forms else None,
            foreign_secrets=_hide_from_strangers(secrets, policy),
            injected=inject or {},
            refusal=None if flow_state is None else flow_state.refusal,
            trust=progress.trust,
        )
        active = ActiveRun(
            run_id,
            progress,
            settings,
            log_secrets=ForeignSecrets(secrets),
            budget=budget,
            deps=deps,
            injected=settings.injected,
            started=started,
            observers=listening,
            trail=trail,
            options=options or Options(),
            trace=trace,
            selector=None if selector is None else resolve_selector(selector),
            flow=flow_state,
            principal=principal,
            approver=approver or self.approver,
        )
        if budget.context_tokens is not None:
            active.window = Window(budget.context_tokens)
        return active

    def _gather_observers(
        self,
        observers: tuple[Observer, ...],
        run_id: str,
        *,
        progress: Progress,
        secrets: KnownSecrets,
        principal: str,
        options: Options | None,
        is_audited: bool,
    ) -> tuple[tuple[Observer, ...], RunTrace | None]:
        """Return who observes a run, and what traces it."""
        listening = observers
        trace = None
        if listening and is_audited:
            trace = self._trace_run(
                listening,
                run_id,
                progress,
                options=options,
                secrets=secrets,
                by=principal,
            )
        if secrets.forms and listening:
            listening = _hide_secrets(listening, run_id, secrets)
        if trace is not None:
            listening += (trace,)  # it redacts for itself
        return listening, trace

    def _make_trail(
        self, run_id: str, secrets: KnownSecrets, principal: str
    ) -> AuditObserver | None:
        """Return what writes a run's events into the audit log; None without a log."""
        if self._audits is None:
            return None
        redactor = self._make_redactor(secrets)
        return AuditObserver(self._audits, run_id, redactor, principal)

    def _make_redactor(self, secrets: KnownSecrets) -> Redactor:
        return self._redactor if secrets is self._known_secrets else Redactor(secrets)

    def _trace_run(
        self,
        observers: Sequence[Observer],
        run_id: str,
        progress: Progress,
        *,
        options: Options | None,
        secrets: KnownSecrets,
        by: str,
    ) -> RunTrace | None:
        """Return what traces a run, if one of its observers does."""
        tracer = find_tracer(observers)
        if tracer is None:
            return None
        redactor = self._make_redactor(secrets)
        return tracer.trace_run(
            TracedRun(
                run_id,
                self.scope,
                by,
                options or Options(),
                messages=lambda: progress.messages,
                tools=lambda: list(self.callable_tools()),
                find_tool=self._find_tool,
                redact_text=redactor.text,
                redact=redactor.value,
            )
        )

    def _find_tool(self, name: str) -> BaseTool | None:
        tool = self.callable_tools().resolve(name)
        return tool if isinstance(tool, BaseTool) else None

    def _check_open(self) -> None:
        if file := reimport.current_file():
            raise SetupError(
                f"{file} makes calls at its top level, and is imported again by the process that is to run its tool; "
                'put them under `if __name__ == "__main__":`'
            )
        if self._deployment.is_closed:
            raise SetupError(
                "this runtime is closed, and so are its tools; enter it by `with`, or make a new one"
            )
        if self._deployment.must_reopen:
            if isinstance(self._store_of_all, ConnectedStore):
                # a store that is away fails the calls that need it
                with suppress(StoreUnavailable):
                    self._store_of_all.reopen()
            self._deployment.must_reopen = False

    def hide_secrets(self, value: Json) -> Json:
        """Return a JSON value without the secrets of the runtime."""
        return self._known_secrets.value(value) if self._known_secrets.forms else value

    def known_secrets(self, inject: Mapping[str, Any]) -> KnownSecrets:
        """Return the runtime's secrets and the injected values, except those declared with `secret=False`."""
        openly = self.tools.compute_once(
            "openly", partial(_openly_injected, self.tools)
        )
        texts = [
            text
            for name, value in inject.items()
            if name not in openly or isinstance(value, Secret)
            for text in texts_in(value)
        ]
        return KnownSecrets((*self._secrets, *texts)) if texts else self._known_secrets

    def _open_progress(self, run_id: str | None, said: str | Sequence[str]) -> Progress:
        """Return how far a run of that name has come, or a new progress; it trusts the words that people said."""
        progress = Progress() if run_id is None else self._recall(run_id)
        if said:
            progress.trust.trust_words(_list_words(said))
        return progress

    def _recall(self, run_id: str) -> Progress:
        name = qualify_name(self.scope, run_id)
        with self._deployment.guard:
            progress = self._deployment.remembered.get(name)
            # its turns are counted from 1, perhaps for the second time, and must get new keys
            if progress is None:
                progress = self._deployment.remembered[name] = Progress(
                    nonce=token_hex(4)
                )
                progress.trust.must_recall = (
                    self._audits is not None or self._deployment.has_forgotten
                )
            self._deployment.remembered.move_to_end(name)
            while len(self._deployment.remembered) > MOST_RUNS_REMEMBERED:
                self._deployment.remembered.popitem(last=False)
                self._deployment.has_forgotten = True
        return progress

    def recall_trust(self, active: ActiveRun) -> Verb[None]:
        """Learn from the audit log what another process has read in a run of this name, unless this process knows."""
        trust = active.progress.trust
        trust.must_recall = False
        if self._audits is None:
            trust.note_unseen(UNKNOWN)
            return
        last = 0
        while True:
            records = yield self._audits.log(after=last, run_id=active.id)
            for record in records:
                if record.event == "CallFinished" and record.body.get("attempts"):
                    trust.note_unseen(_read_label(record))
            if not records:
                return
            last = records[-1].seq

    def register_run(self, active: ActiveRun, model: str) -> None:
        """Add a run to those that can be cancelled by name, and announce its start.

        Raises:
            RunUnderWay: A run of that id is under way already.
        """
        name = qualify_name(self.scope, active.id)
        if self._deployment.live.setdefault(name, active) is not active:
            raise RunUnderWay(f"the run {active.id!r} is under way already")
        if active.has_observers:
            active.tell(RunStarted(active.id, model, active.resumed_by))

    def finish_run(self, active: ActiveRun, ending: Ending) -> Run[Any]:
        """Close a run, announce its end, and return its `Run`."""
        self._deployment.live.pop(qualify_name(self.scope, active.id), None)
        active.end_waiting()
        active.stop_driving()
        if active.has_observers:
            active.tell(RunEnded(active.id, ending.status, ending.reason))
        progress = active.progress
        return Run(
            id=active.id,
            status=ending.status,
            text=ending.text,
            reason=ending.reason,
            messages=progress.messages,
            spent=progress.spent,
            budget=active.budget,
            seconds=self.now() - active.started - progress.spent.waited_s,
            output=ending.output,
            round=active.round,
            earlier=active.earlier,
            label=progress.trust.label,
        )

    def release_run(self, active: ActiveRun) -> None:
        """Release a stored run that ended for its caller but not in the store, so that any process may resume it."""
        if active.recording is not None and (entry := active.recording.release_entry()):
            self.unsaved.enter(entry)

    def callable_tools(
        self, calls: Sequence[ToolCall] = (), selector: Selector | None = None
    ) -> Toolset:
        """Return every tool that a call may name; see `ToolVisibility.callable_tools`."""
        return self._showing.callable_tools(calls, selector)

    def open_batch(
        self,
        active: ActiveRun,
        turn: Turn,
        number: int,
        tools: Toolset,
        *,
        positions: Sequence[CallPosition] = (),
        names: Sequence[str] = (),
        from_model: bool = True,
    ) -> Verb[Batch]:
        """Open the calls of one turn; those whose results the journal holds are finished already.

        Args:
            names: See `Batch`; so for `from_model`.
            tools: What the calls may name; see `callable_tools`.
        """
        recording = active.recording
        if tools.needs_sandbox and levels.SEARCH.found is None:
            # a sandbox is started to find out, which admission must not wait for
            yield levels.SEARCH.start()
            # some may have been added meanwhile
            tools = self._showing.callable_tools(turn.calls, active.selector)
        progress = active.progress
        # of this turn's round: another turn may begin a round of its own while the store is asked
        spent = progress.spent
        closing = _find_closing_calls(progress, names)
        started = yield from self._find_started(active, number, names)
        doubts: Sequence[WriteRecord] = ()
        if progress.out_of_reach:
            doubts = yield from self._find_doubts(active)
        settings = active.settings
        if not from_model or positions:
            # no model reads the results of calls by code: it may need a key that a tool returns
            settings = replace(settings, foreign_secrets=settings.secrets)
        return Batch(
            turn.calls,
            turn.finish,
            tools,
            settings,
            budget=active.budget,
            spent=spent,
            turn=number,
            recorded=recording.results(number, range(len(turn.calls)))
            if recording is not None
            else None,
            started=started,
            doubts=doubts,
            positions=positions,
            names=names,
            closing=closing,
            from_model=from_model,
        )

    def _find_started(
        self, active: ActiveRun, number: int, names: Sequence[str]
    ) -> Verb[StartedWrites | None]:
        """Return the writes that the calls of a turn may have started before; read once for each resumed run.

        Calls without names are matched by what they ask for, in the first turn of this process only: later the same
        call is another one.
        """
        recording = active.recording
        progress = active.progress
        if recording is None:
            if not progress.nonce:
                return None  # a call of no run is made once
        elif recording.replaying or not (
            recording.was_answered_before(number) or _goes_on_in_doubt(active)
        ):
            return None
        by_act = recording is None and not any(names)
        earlier = progress.started
        if earlier is None or (recording is None and earlier.has_open):
            found: Sequence[WriteRecord] = ()
            living: Sequence[WriteRecord] = ()
            try:
                found = yield from self._list_writes(active)
                # a run of calls may be under way elsewhere; an earlier owner of a stored run is dead, or fenced
                if recording is None and any(each.is_open for each in found):
                    living = yield from self._list_writes(active, state="claimed")
            except StoreUnavailable:
                if recording is not None:
                    raise
                return StartedWrites(is_unknown=True)
            keys = [each.key for each in living]
            progress.started = StartedWrites(found, living=keys)
            progress.out_of_reach.update(
                each.key for each in found if is_out_of_reach(each)
            )
            if by_act and earlier is None:
                return StartedWrites(found, living=keys, by_act=True)
        return None if by_act else progress.started

    def _list_writes(
        self, active: ActiveRun, state: str = ""
    ) -> Verb[Sequence[WriteRecord]]:
        """Return the writes of a run, as far as the store can list them."""
        if not isinstance(self.store, LedgerStore):
            return ()
        found: Sequence[WriteRecord] = yield self.store.list_writes(
            state=state, run_id=active.id, most=MOST_STARTED
        )
        return found

    def _find_doubts(self, active: ActiveRun) -> Verb[Sequence[WriteRecord]]:
        """Return the writes that today's declarations do not reach and whose end nobody has recorded since."""
        keys = active.progress.out_of_reach
        found = yield from self._list_writes(active)
        return [each for each in found if each.key in keys and each.is_open]

    def _note_out_of_reach(self, active: ActiveRun, batch: Batch) -> Verb[None]:
        """Record which writes are in doubt because of today's declarations, before a call is told so."""
        for write in batch.out_of_reach:
            active.progress.out_of_reach.add(write.key)
            is_unmarked = not is_out_of_reach(write)
            is_ours = active.recording is not None or not batch.is_under_way(write)
            if is_unmarked and is_ours and write.state != "waiting":
                try:
                    yield self.store.settle(note_out_of_reach(write))
                except StoreUnavailable:
                    # the journal cannot have it either; calls of no journal are held back by this process alone
                    if active.recording is not None:
                        raise
        batch.out_of_reach.clear()

    def open_single_call(self, tool: BaseTool, active: ActiveRun) -> Batch:
        """Open one call of a tool that no model is shown."""
        call = ToolCall("call_1", tool.name)
        return Batch(
            [call],
            "calls",
            Toolset([tool]),
            active.settings,
            budget=active.budget,
            spent=Spent(),
            from_model=False,
        )

    def resolve_model(self, model: str | Model) -> Model:
        """Return a model by its name, such as `openai:NAME`; each name is made once.

        Raises:
            ConfigError: The name is not `provider:name`, or there is no such provider.
        """
        if not isinstance(model, str):
            return model
        if model not in self._models:
            provider, colon, name = model.partition(":")
            if not provider or not name:
                lacks = "name behind its provider" if provider and colon else "provider"
                raise ConfigError(
                    f"the model {model!r} has no {lacks}; write `provider:name`, such as `openai:NAME`"
                )
            self._models[model] = plugins.load("models", provider)(name)
        return self._models[model]

    def name_model(self, model: Model) -> str:
        """Return `provider:name` of a model that was found by its name, without its address; else its own name."""
        for asked, made in list(self._models.items()):
            if made is model:
                return asked.partition("@")[0]
        return model.name

    def open_turn(
        self,
        turn: Turn,
        *,
        run: str | None,
        round_name: str,
        options: Mapping[str, Any],
    ) -> tuple[ActiveRun, int, Toolset]:
        """Return the run that `call` or `handle` names, the number of its next turn, and its tools.

        Without a name it is a new run.

        Args:
            round_name: What this turn belongs to; another one than that of the last turn begins a new round.
            options: As `open_run` takes them.

        Raises:
            MissingInjection: One of the called tools needs a value that the caller did not give.
        """
        if run:
            check_name("run", run)
        active = self.open_run(run=run, by_calls=True, **options)
        if round_name and round_name != active.progress.round_name:
            with self._deployment.guard:
                active.progress.begin_round(round_name)
        tools = self._showing.callable_tools(turn.calls)
        called: list[BaseTool] = []
        for call in turn.calls:
            tool = tools.resolve(call.name)
            if isinstance(tool, BaseTool):
                # a tool that cannot be described is found before anything runs
                _ = tool.checker, tool.bind
                called.append(tool)
        check_injected(called, active.injected)
        # two turns of one number would share the keys of their writes
        with self._deployment.guard:
            active.progress.turn += 1
            return active, active.progress.turn, tools

    def open_preview(
        self,
        call: ToolCall,
        *,
        run: str | None,
        names: Sequence[str],
        options: Mapping[str, Any],
    ) -> Verb[tuple[ActiveRun, Batch]]:
        """Return one call that is checked and not carried out, as the next one of the run that it names."""
        if run:
            check_name("run", run)
        active = self.open_run(run=run, by_calls=True, is_audited=False, **options)
        active.observers = ()
        active.trail = None
        progress = active.progress
        tools = self._showing.callable_tools([call])
        tool = tools.resolve(call.name)
        if isinstance(tool, BaseTool):
            check_injected([tool], active.injected)
        if progress.trust.must_recall:
            yield from self.recall_trust(active)
        spent = replace(progress.spent, per_tool=dict(progress.spent.per_tool))
        batch = PreviewBatch(
            [call],
            "calls",
            tools,
            replace(active.settings, tell=None),
            budget=active.budget,
            spent=spent,
            turn=progress.turn + 1,
            names=names,
            closing=_find_closing_calls(progress, names),
        )
        return active, batch

    def offered_tools(self, run: str | None) -> Toolset:
        """See `Runtime.offered`."""
        reads_on = True
        if run is not None:
            name = qualify_name(self.scope, run)
            progress = self._deployment.remembered.get(name)
            reads_on = progress is None or progress.reads_on
        return self._showing.offered_tools(reads_on=reads_on)

    def begin_round(self, run_id: str) -> None:
        """Begin a new round of a named run of calls: what it has spent and repeated counts from nothing."""
        check_run_name(run_id, self.scope)
        name = qualify_name(self.scope, run_id)
        with self._deployment.guard:
            progress = self._deployment.remembered.get(name)
            if progress is not None:
                progress.begin_round("")
                self._deployment.remembered.move_to_end(name, last=False)

    def finish_turn(
        self,
        active: ActiveRun,
        batch: Batch,
        run: str | None,
        names: Sequence[str] = (),
    ) -> list[ToolResult]:
        """Return the results of a turn of `call` or `handle`; a named run adds its notes on repeated rounds."""
        if not run:
            return batch.collect_results()
        with self._deployment.guard:
            if any(each is not None and each.handle for each in batch.results):
                active.progress.reads_on = True
            for each in batch.results:
                if each is not None and _waits_unstarted(each):
                    return_call(active.progress.spent, each.name)
            # Calls that are handed over again are no loop of the model's.
            if active.progress.note_names(names):
                results = batch.collect_results()
            else:
                results = detect_loops(active.progress.repeats, batch)[0]
            return _mark_exhausted(results, active)

    # ------------------------------------------------------------------ conversations

    def open_conversation(
        self, active: ActiveRun, messages: Sequence[Message], output: Any, model: Model
    ) -> None:
        """Register a run with these messages, repaired where a provider would refuse them.

        Args:
            output: What the answer must be: a type, a JSON Schema or a `Form`; None is plain text.

        Raises:
            ConfigError: The form cannot be described to a model.
            RunUnderWay: A run of that id is under way already.
        """
        sound = sanitize(messages, reads=self.reads)
        active.progress.trust.note_handed_over(
            messages[active.earlier :], self.label_result
        )
        active.open_conversation(
            sound.messages,
            None if output is None else track_output(output, find_way(model)),
        )
        if active.options.boundaries and active.boundaries is None:
            active.boundaries = Boundaries()
        if active.trace is not None:
            active.trace.note_provider(getattr(model, "provider", ""))
        self.register_run(active, model.name)
        if sound.notes:
            active.tell(HistoryMended(sound.notes))

    def label_result(self, result: ToolResult) -> ToolResult:
        """Return a result that was recorded or handed over, with its whole label."""
        tool = self.callable_tools().get(result.name)
        return replace(result, label=label_recorded(result, tool))

    def sanitize(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages fit to send: the same object where they are."""
        return sanitize(messages, reads=self.reads).messages

    def reads(self, name: str) -> bool:
        """Whether the tool of that name only reads."""
        tool = self.callable_tools().get(name)
        return tool is not None and not tool.writes

    def drive_conversation(self, active: ActiveRun, model: Model) -> Verb[Ending]:
        """Yield requests until the run has ended, except those that its journal answers; return how it ended."""
        recording = active.recording
        active.goes_ahead = recording is not None
        try:
            ending = yield from self._converse(active, model)
            if recording is not None:
                yield from self.confirm_entry(active, recording)
                last = recording.last_entry(ending, active.answers)
                if last is not None:
                    is_cancelled = yield self.runs.append_entry(last)
                    if is_cancelled and ending.status == "waiting":
                        # whoever asked for its end is not to be asked whether it goes on
                        ending = cancelled(active)
                        ended = recording.last_entry(ending, active.answers)
                        assert ended is not None
                        yield self.runs.append_entry(ended)
                    recording.confirm_entry()
        except Fenced:
            ending = Ending(
                "moved",
                "somebody else has taken this run over",
                last_text(active.progress.messages),
            )
        except StoreUnavailable as error:
            self.release_run(active)
            reason = f"what happened in this run could not be recorded: {error}"
            ending = Ending("failed", reason, last_text(active.progress.messages))
        return ending

    def _converse(self, active: ActiveRun, model: Model) -> Verb[Ending]:
        talk = self._start_conversation(active)
        recording = active.recording
        answer: Any = None
        while True:
            try:
                step = talk.send(answer)
            except StopIteration as stop:
                ending: Ending = stop.value
                if recording is not None and (
                    yield from self.confirm_entry(active, recording)
                ):
                    return cancelled(active)
                # Whoever cancelled the run does not expect it to continue after an approval or with a larger budget.
                can_resume = ending.status in ("waiting", "budget", "failed")
                return cancelled(active) if can_resume and active.cancelled else ending
            if (
                recording is not None
                and recording.sent is not None
                and recording.sent.done()
            ):
                yield from self.confirm_entry(active, recording)
            if active.cancelled:
                return cancelled(active)
            if isinstance(step, AskModel):
                if recording is not None and active.apply_folds(step.number):
                    step.tools = self.asker.shown_tools(active)
                answer = (
                    recording.answer(step.number) if recording is not None else None
                )
                if answer is None:
                    try:
                        self.asker.check_away(active, model, step.number)
                        answer = yield AskTurn(self, active, model, step)
                    except ModelError as error:
                        return (yield from self._end_unanswered(active, error, step))
                    if recording is not None:
                        name = "" if recording.names_model else self.name_model(model)
                        recording.note_answer(step.number, answer, model=name)
            else:
                tools = self._showing.callable_tools(step.turn.calls, active.selector)
                answer = yield from self.open_batch(
                    active, step.turn, step.number, tools
                )
                yield from self.perform_turn(active, answer, step.number)

    def _end_unanswered(
        self, active: ActiveRun, error: ModelError, asked: AskModel
    ) -> Verb[Ending]:
        """Return the ending of a run whose model could not be asked.

        Raises:
            RunPostponed: It waits for the model instead. What was done so far is recorded.
        """
        ending = ending_by(error, active)
        if active.model_wait is None or ending.status != "failed":
            return ending
        assert active.recording is not None
        if (yield from self.confirm_entry(active, active.recording)):
            return cancelled(active)
        wait = active.model_wait.at_turn(asked.number)
        _raise_if_it_waits(wait, error, active)
        if not wait.tries:
            return ending
        return replace(ending, reason=f"{ending.reason} ({describe_waits(wait)})")

    def let_try(self, active: ActiveRun, stored: StoredRun, model: Model) -> None:
        """Put a run that waits for its model back, before it begins, if another run tries the model.

        Raises:
            RunPostponed: Another run tries the model, or has just done so. The stored run is as it was.
        """
        wait = active.model_wait
        # A run that a dead worker left as `running` has to be taken over first; it is put back later.
        if wait is None or not wait.tries or stored.record.status != "queued":
            return
        if not any(step.key == model_key(wait.turn) for step in stored.steps):
            try:
                self.asker.check_away(active, model, wait.turn)
            except ModelError as error:
                _raise_if_it_waits(wait, error, active)

    def _start_conversation(self, active: ActiveRun) -> Conversation:
        return conversation(
            active.progress,
            partial(self.asker.shown_tools, active),
            active.budget,
            settings=active.settings,
            started=active.started,
            output=active.wanted,
            flow=active.flow,
        )

    def perform_turn(self, active: ActiveRun, batch: Batch, number: int) -> Verb[None]:
        """Perform the calls of a turn and the fixed steps that follow them, each recorded before the next.

        Where the run goes ahead, the results are sent to the store, and the next step that depends on them waits.
        """
        recording = active.recording
        if batch.left:
            if recording is not None and batch.writes:
                # with the claims, which are asked for next; no tool starts before both are there
                if recording.has_new_steps:
                    yield from self._send_entry(active, recording)
                if not active.goes_ahead:
                    yield from self.confirm_entry(active, recording)
            yield PerformBatch(self, active, batch)
        if batch.out_of_reach:
            yield from self._note_out_of_reach(active, batch)
        if active.trail is not None:
            active.trail.send()
        if recording is not None:
            recording.note_results(number, batch)
            if recording.has_new_steps:
                yield from self._send_entry(active, recording)
            if recording.sent is not None:
                # the model is asked next; whoever has asked for the run's end does not pay for its answer
                recording.sent.add_done_callback(active.cancel_if_wished)
            if not active.goes_ahead:
                yield from self.confirm_entry(active, recording)
        if batch.prescribes and not active.cancelled:
            yield from self._follow_up(active, batch, number)

    def _follow_up(self, active: ActiveRun, batch: Batch, number: int) -> Verb[None]:
        settings = active.settings
        recording = active.recording
        follow_ups = make_follow_ups(
            batch,
            f"{settings.key_prefix or settings.run_id}/{number}",
            settings.tell_all,
        )
        steps = [step for step in follow_ups if step.refusal is None]
        if steps:
            for step in steps:
                active.progress.trust.trust_words(step.configured)
            positions = [step.position for step in steps]
            by_result = any(step.is_made_of_result for step in steps)
            after = Batch(
                [step.call for step in steps],
                "calls",
                Toolset(list({id(step.tool): step.tool for step in steps}.values())),
                settings,
                budget=active.budget,
                spent=active.progress.spent,
                turn=number,
                recorded=recording.results(number, [each.place for each in positions])
                if recording is not None
                else None,
                started=active.progress.started,
                positions=positions,
                follows=None if by_result else batch,
            )
            yield from self.perform_turn(active, after, number)
            for index, (step, result) in enumerate(
                zip(steps, after.collect_results(), strict=True)
            ):
                note_follow_up(batch, step, result, after.followed.get(index))
        for step in follow_ups:
            if step.refusal is not None:
                place = step.position.place
                recorded = recording.results(number, [place]) if recording else {}
                note_follow_up(batch, step, recorded.get(place, step.refusal))

    def _send_entry(self, active: ActiveRun, recording: JournalCursor) -> Verb[None]:
        """Send the store what has been noted, once it has answered what was sent before."""
        if recording.sent is not None:
            yield from self._confirm_sent(active, recording)
        entry = recording.entry()
        if entry is None:
            return
        # The store may delay it: it is committed with the claims that follow, or with the settlements before it.
        answer = self.runs.append_entry(replace(entry, may_wait=active.goes_ahead))
        if isinstance(answer, Future):
            recording.sent = answer
            return
        if answer:
            active.mark_cancelled()
        recording.confirm_entry()

    def confirm_entry(self, active: ActiveRun, recording: JournalCursor) -> Verb[bool]:
        """Wait until the store has what was sent; cancel the run if somebody has asked for that, and return whether.

        Raises:
            Fenced: Another process has taken the run over.
            StoreUnavailable: The store does not have it.
        """
        if unsettled := active.list_unsettled():
            self.hurry()
        for settled in unsettled:
            with suppress(Exception):  # this process holds it, see `unsaved_records`
                yield settled
        return (yield from self._confirm_sent(active, recording))

    def _confirm_sent(self, active: ActiveRun, recording: JournalCursor) -> Verb[bool]:
        """Wait until the store has the entry that was sent last; see `confirm_entry`."""
        sent = recording.sent
        if sent is None:
            return False
        recording.sent = None
        if sent.done():
            is_cancelled = sent.result()
        else:
            self.hurry()
            is_cancelled = yield sent
        if is_cancelled:
            active.mark_cancelled()
        recording.confirm_entry()
        return bool(is_cancelled)

    def hurry(self) -> None:
        """Make the store commit what it has delayed: somebody waits for it."""
        if self._gathers is not None:
            self._gathers.hurry()

    # ------------------------------------------------------------------ stored runs

    def make_record(
        self, active: ActiveRun, messages: Sequence[Message], model: str | Model
    ) -> RunRecord | None:
        """Return the record of a new run; None where the store keeps no runs."""
        if self._keeps is None:
            return None
        asked = make_run_input(active, messages, model)
        if (tools := self.tools.snapshot()) is not self._digested[0]:
            self._digested = (tools, toolset_digest(tools))
        return RunRecord(
            active.id, input_as_json(asked), toolset=self._digested[1], owner=owner()
        )

    @property
    def keeps_runs(self) -> bool:
        """Whether the store keeps runs, so that they can be resumed."""
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

    def load_run(self, run_id: str) -> StoreAnswer[StoredRun | None]:
        """Return a stored run of this runtime's scope.

        Raises:
            ConfigError: The store keeps no runs, or the name belongs to another scope.
        """
        check_run_name(run_id, self.scope)
        return self.runs.load_run(run_id)

    def attach_journal(
        self, active: ActiveRun, stored: StoredRun, *, replaying: bool = False
    ) -> None:
        """Drive the run along its journal, as if no time had passed since its last step."""
        as_texts: bool = getattr(self._keeps, "takes_texts", False)
        active.attach_journal(
            stored, now=self.now, replaying=replaying, as_texts=as_texts
        )

    def _make_flow(self, rules: Rules) -> FlowState | None:
        """Return the flow of a run with these rules; None without any.

        Raises:
            ConfigError: A rule names no tool that the policy lets a model use.
        """
        if not rules:
            return None
        return start_flow(
            rules,
            (tool.name for tool in self.callable_tools() if self.policy.sees(tool)),
        )

    def cancel(self, run_id: str, *, by: str = "") -> bool:
        """See `Runtime.cancel`."""
        check_run_name(run_id, self.scope)
        if by:
            check_person("by", by)
        active = self._deployment.live.get(qualify_name(self.scope, run_id))
        if active is None:
            is_asked = self._keeps is not None and result_now(
                self._keeps.request_cancel(run_id)
            )
        else:
            is_asked = True
            active.cancel()
            if active.is_recorded:
                # a driver's own errors too: the run ends here all the same
                with suppress(Exception):
                    # Not waited for: if this process dies before the run ends, whoever resumes it finds the request.
                    self.runs.request_cancel(run_id)
        if is_asked and self._audits is not None:
            self._audits.append_audit(
                [person_entry("CancelRequested", run_id, self._redactor, by=by)]
            )
        return is_asked

    def watch_cancels(self, find_loop: Callable[[], AbstractEventLoop]) -> None:
        """Watch for other processes that cancel a run which is under way here; takes about a second.

        Args:
            find_loop: Returns an event loop that runs until whoever is waited for has answered.
        """
        cancels = self._deployment.cancels
        if cancels is not None and self._deployment.live:
            cancels.begin(find_loop())

    def begin_close(self) -> None:
        """Refuse runs and calls until the runtime is entered again: they would open tools that nobody closes."""
        self._deployment.is_closed = True

    def reopen(self) -> None:
        """Accept runs and calls again, after the runtime was entered again."""
        self._deployment.is_closed = False

    def close_store(self) -> None:
        """Close the store, if it was opened here and not given: what was asked until now is recorded first."""
        for engine in (self._deployment.root, *self._deployment.tenants.values()):
            engine.unsaved.close()
        if (
            self._opened_store
            and (close := getattr(self.store, "close", None)) is not None
        ):
            close()

    async def close_models(self) -> None:
        """Close the connections of the models that were made here."""
        for model in self._models.values():
            if aclose := getattr(model, "aclose", None):
                await aclose()

    # ------------------------------------------------------------------ what drivers need around an effect

    def context(
        self,
        active: ActiveRun,
        call: Admitted,
        lease: Lease | None,
        attempt: int,
        timeout_s: float,
        flag: Flag,
        report: Callable[[float, float | None, str], None] | None = None,
    ) -> Context[Any]:
        """Return what the tool may know about this attempt."""
        return Context(
            deps=active.deps,
            run_id=active.id,
            call_id=call.call.id,
            tool=call.tool.name,
            attempt=attempt,
            deadline=monotonic() + timeout_s,
            cancelled=flag,
            idempotency_key=call.key,
            fence=lease.claimed.fence if lease else 0,
            read_kept=lambda handle: result_now(
                self.store.load_result(active.keeps_under, handle)
            ),
            report=report,
        )


def _raise_if_it_waits(wait: ModelWait, error: ModelError, active: ActiveRun) -> None:
    """Raise RunPostponed if waiting for the model can still help."""
    wait_s = next_model_wait(wait, error, active.settings.jitter())
    if wait_s is not None:
        waited = describe_waits(wait)
        reason = f"its model is away{waited and ', '}{waited}: {error}"
        raise RunPostponed(reason, wait_s, model_turn=wait.turn)


def _list_words(said: str | Sequence[str]) -> list[str]:
    texts = [said] if isinstance(said, str) else list(said)
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"said is {said!r}; it takes a text, or a list of texts")
    return texts


def _read_label(record: AuditRecord) -> Label:
    """Return the label of a recorded result; that of unknown words where it was recorded by an earlier version."""
    labels: Any = record.body.get("labels")
    if not isinstance(labels, Mapping):
        return replace(UNKNOWN, source=str(record.body.get("tool", "")))
    return Label(
        str(labels.get("source", "")),
        labels["integrity"],
        labels["confidentiality"],
        call=str(labels.get("call") or record.body.get("call", "")),
    )


def _find_closing_calls(
    progress: Progress, names: Sequence[str]
) -> Sequence[tuple[str, Any]]:
    """Return the calls that would close a circle; none for a turn that is handed over again."""
    if not progress.repeats.steps or (names and progress.knows_names(names)):
        return ()
    return progress.repeats.find_closing_calls()


def _mark_exhausted(results: list[ToolResult], active: ActiveRun) -> list[ToolResult]:
    """Return results that say where the loop around them must end because the run has made all its calls."""
    reason = calls_used_up(active.budget, active.progress.spent)
    if not reason:
        return results
    return [
        replace(each, ends_run=reason) if _is_exhausted(each) else each
        for each in results
    ]


def _hide_from_strangers(secrets: KnownSecrets, policy: Policy) -> KnownSecrets | None:
    """Return what no result of others' words may contain; None where that is nothing."""
    if policy.foreign_secrets == "hide":
        return ForeignSecrets(secrets)
    return secrets if secrets.forms else None


def _goes_on_in_doubt(active: ActiveRun) -> bool:
    """Whether an earlier round of the run was told of a doubt, and the ledger has not been asked for it yet."""
    progress = active.progress
    if progress.started is not None:
        return False
    return any(
        isinstance(each, ToolMessage)
        and each.result.failure is not None
        and each.result.failure.code == Code.IN_DOUBT
        for each in progress.messages[: active.earlier]
    )


def _waits_unstarted(result: ToolResult) -> bool:
    """Whether a call waits for somebody outside, and its tool has not been started."""
    return (
        result.failure is not None
        and result.failure.code in PENDING
        and not result.attempts
    )


def _is_exhausted(result: ToolResult) -> bool:
    """Whether a call was refused because of the budget."""
    return result.failure is not None and result.failure.code == Code.BUDGET_EXHAUSTED


def _texts_of(secrets: Iterable[str | Secret]) -> tuple[str, ...]:
    """Return the texts of a runtime's secrets.

    Raises:
        ConfigError: One of them is neither a text nor a secret, or they are no list.
    """
    if not isinstance(secrets, (str, bytes, Mapping)) and isinstance(secrets, Iterable):
        listed = tuple(secrets)
        if all(isinstance(each, str) or _is_secret(each) for each in listed):
            return tuple(texts_in(listed))
    raise ConfigError("`secrets` takes a list of texts and `hr.Secret`s")


def _is_secret(value: object) -> bool:
    # pydantic's are welcome too
    return hasattr(type(value), "get_secret_value")


def _check_budget(budget: Any) -> Budget:
    _check("budget", budget, isinstance(budget, Budget), "a `Budget`")
    return cast(Budget, budget)


def _hide_secrets(
    observers: Sequence[Observer], run_id: str, secrets: KnownSecrets
) -> tuple[Observer, ...]:
    """Return one observer that passes events to others, without secrets."""
    tell = partial(tell_all, observers, run_id)
    return (redacted_events.RedactedEvents(secrets, tell),)


def make_run_input(
    active: ActiveRun, messages: Sequence[Message], model: str | Model
) -> RunInput:
    """Return the input of a run, or of one of its rounds, as a store has it."""
    return RunInput(
        messages,
        model if isinstance(model, str) else "",
        active.options,
        budget=budget_as_json(active.budget),
        output=active.wanted.plan.schema if active.wanted is not None else None,
        flow=rules_as_json(active.flow.rules) if active.flow is not None else (),
        boundary_secret=active.boundaries.secret if active.boundaries else "",
        trust=active.progress.trust.inherited,
        principal=active.principal,
    )


def refuse_assignment(runtime: object, name: str) -> None:
    """Refuse to set or delete an attribute of a runtime.

    Raises:
        ConfigError: Always.
    """
    kind = type(runtime).__name__
    if isinstance(getattr(type(runtime), name, None), property):
        raise ConfigError(
            f"`{name}` of a {kind} cannot be changed; make another {kind} with `{name}=...`"
        )
    raise ConfigError(f"a {kind} is read-only; `{name}` cannot be set or deleted")


def _check(setting: str, given: object, is_one: bool, what: str) -> None:
    if given is not None and not is_one:
        raise ConfigError(f"{setting} is {given!r}; it takes {what}")


def _check_observers(observers: Sequence[Observer]) -> None:
    # a generator would be used up
    listed = isinstance(observers, Collection) and all(map(callable, observers))
    _check("observers", observers, listed, "a list of functions")
    for observer in observers:
        if is_async(observer):
            raise ConfigError(
                f"the observer {observer!r} is async, and nobody would await it; take a plain function, "
                "which may put the event into a queue of yours"
            )


def _resolve_notifier(notify: str | Notifier | None) -> Notifier | None:
    if isinstance(notify, str):
        kind, _, place = notify.partition(":")
        made: Notifier = plugins.load("notifiers", kind)(place)
        return made
    _check("notify", notify, callable(notify), "a function, or a name such as 'mail:'")
    return notify


def _store(store: str | Store) -> Store:
    if not isinstance(store, str):
        # not by `isinstance`: a store may pass its calls on
        if isinstance(store, type) or not callable(getattr(store, "claim", None)):
            raise ConfigError(
                f"store is {store!r}; it takes a name, such as 'memory:', or a `Store`"
            )
        return store
    kind, _, place = store.partition(":")
    make = plugins.load("stores", kind)
    try:
        made: Store = make(place) if place else make()
    except TypeError as error:
        raise ConfigError(
            f"the store {store!r} cannot be opened: {kind!r} takes no place; write '{kind}:'"
        ) from error
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
    kinds = [
        (name, kind)
        for tool in tools
        for name, kind in tool.injected_parameters.items()
    ]
    return {name for name, kind in kinds if kind is InjectedOpenly} - {
        name for name, kind in kinds if kind is Injected
    }
