"""Runs that a tool starts: an agent as a tool.

A run that a tool starts through its context is named after the call that started it, with a number: `r_7.2.0.1` is the
first run that the first call of the second turn of `r_7` started. When the call is made again (a retry, a resumed run),
the tool starts the run of that name again, and it is resumed instead: its answers come from its journal, its writes
from the ledger.

If a tool of a stored run calls `runtime.run` itself without a name for the run, that run is named after the call and a
digest of its question, and resumed in the same way.

Rule 1: runs are numbered in the order in which the tool starts them. If the question of a number differs from before,
        `JournalMismatch` is raised and nothing runs.
Rule 2: a run that waits for a person makes the call that started it wait, and so the run of that call.
Rule 3: a run ends with the time of the call that started it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Literal, Protocol, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from handrail.context import Context
from handrail.core.trust import Trust
from handrail.engine import verbs
from handrail.engine.active_run import ActiveRun
from handrail.engine.engine import Engine, Verb, current_call
from handrail.errors import (
    Code,
    FarFailure,
    JournalMismatch,
    RunWaits,
    SetupError,
    ToolError,
)
from handrail.journal.codec import (
    RunInput,
    budget_from_json,
    input_as_json,
    input_from_json,
)
from handrail.journal.cursor import working_time_s
from handrail.messages import Message, ToolMessage, conversation_of
from handrail.ports import Model
from handrail.records import StoredRun
from handrail.runs import Run
from handrail.surroundings.clock import monotonic
from handrail.tools.function_tool import FunctionTool
from handrail.tools.keys import digest
from handrail.tools.settings import Sends, Write
from handrail.workers.threads import waiting_for_tools

T = TypeVar("T")

KEY_TTL_S = 30 * 24 * 3600.0
"""How long the run of an agent's call can be resumed: as long as a store keeps runs by default."""


class Nested(Struct, eq=False):
    """Starts the runs of one attempt of a call.

    Attributes:
        runtime: The runtime that performs the call, and its runs unless another one is named.
        active: The run of the call.
        stem: The place of the call, with which the names of its runs begin.
        deadline: When the attempt ends, on `time.monotonic`.
        loop: The event loop of an asyncio runtime.
    """

    runtime: Any
    engine: Engine
    active: ActiveRun
    stem: str
    deadline: float
    loop: asyncio.AbstractEventLoop | None
    number: int = 0
    asked: list[str] = []
    """Digests of the questions that this attempt has given to `runtime.run`."""

    async def run(
        self, question: Any, *, runtime: Any = None, **options: Any
    ) -> Run[Any]:
        """See `Context.run`."""
        runtime = runtime or self.runtime
        if not iscoroutinefunction(runtime.run):
            starting = partial(self.run_blocking, question, runtime=runtime, **options)
            # not `asyncio.to_thread`, whose few threads would wait for each other
            return await asyncio.wrap_future(
                self.engine.services.threads.call(starting)
            )
        run: Run[Any] = await runtime._perform(
            self._run(self._engine_for(runtime, options), question, options)
        )
        return run

    def run_blocking(
        self, question: Any, *, runtime: Any = None, **options: Any
    ) -> Run[Any]:
        """See `Context.run_blocking`."""
        runtime = runtime or self.runtime
        if iscoroutinefunction(runtime.run):
            if self.loop is None or _is_running(self.loop):
                raise SetupError(
                    "a run of an asyncio runtime is started by an async tool: `await context.run(...)`"
                )
            starting = self.run(question, runtime=runtime, **options)
            with waiting_for_tools():
                return asyncio.run_coroutine_threadsafe(starting, self.loop).result()
        run: Run[Any] = runtime._perform(
            self._run(self._engine_for(runtime, options), question, options)
        )
        return run

    def _engine_for(self, runtime: Any, options: dict[str, Any]) -> Engine:
        """Return the engine that a run is started on.

        In the runtime of the call that is the call's own engine. In another one it is that of the call's tenant, unless
        the tool names a tenant.
        """
        if runtime is self.runtime:
            return verbs.serve(self.engine, cast(verbs.Whose, options))
        if self.engine.scope and options.get("scope") is None:
            options["scope"] = self.engine.scope
        engine: Engine = runtime._engine
        return verbs.serve(engine, cast(verbs.Whose, options))

    def _run(
        self, engine: Engine, question: Any, options: Mapping[str, Any]
    ) -> Verb[Run[Any]]:
        """Start the next run of this call, or resume it; cancel it when the run of the call is cancelled.

        Raises:
            RunWaits: The run waits for a person.
        """
        self.number += 1
        run_id = f"{self._prefix}.{self.number}"
        stored = (yield engine.load_run(run_id)) if engine.keeps_runs else None
        stop = partial(engine.cancel, run_id)
        self.active.add_stop(stop)
        try:
            run = yield from self._start(engine, run_id, stored, question, options)
        finally:
            self.active.remove_stop(stop)
        if run.status == "waiting":
            raise RunWaits(run.id, run.reason)
        return self.note_run(run)

    def _start(
        self,
        engine: Engine,
        run_id: str,
        stored: StoredRun | None,
        question: Any,
        options: Mapping[str, Any],
    ) -> Verb[Run[Any]]:
        """Return the verb that starts or resumes a run; the run ends with the call's time."""
        options = {
            "deps": self.active.deps,
            "inject": self.active.injected,
            "principal": self.active.principal,
            "approver": self.active.approver,
            **options,
        }
        left_s = max(self.deadline - monotonic(), 0.0)
        budget = options.get("budget") or engine.budget
        if stored is not None:
            check_same_question(stored, question, options)
            budget = options.get("budget") or budget_from_json(
                input_from_json(stored.record.input).budget
            )
            left_s += working_time_s(stored.steps)
        options["budget"] = replace(
            budget,
            time_s=left_s if budget.time_s is None else min(budget.time_s, left_s),
        )
        if stored is None:
            return verbs.run(
                engine, question, run_id=run_id, parent=self.trust, **options
            )
        return verbs.resume(
            engine,
            run_id,
            **{name: options[name] for name in options if name not in ONLY_AT_FIRST},
        )

    @property
    def trust(self) -> Trust:
        """What the run of the call has read."""
        return self.active.progress.trust

    def note_run(self, run: Run[Any]) -> Run[Any]:
        """Note what a run has read that the tool started: the result of the call is made of it. Return the run."""
        self.trust.join_run(self.stem, run.label)
        return run

    def named_by_question(self, messages: Sequence[Message]) -> str:
        """Return the name of a run that the tool starts without `Context.run`."""
        name = digest(input_as_json(RunInput(messages, ""))["messages"])[:12]
        self.asked.append(name)
        count = self.asked.count(name)
        return (
            f"{self._prefix}.{name}" if count == 1 else f"{self._prefix}.{name}.{count}"
        )

    def around(self, start: Callable[[], Any], *, is_async: bool) -> partial[Any]:
        """Wrap the start of a tool so that `current_call` holds this object while the tool runs."""
        return hold_while(start, current_call, self, is_async=is_async)

    @property
    def _prefix(self) -> str:
        return self.stem.replace("/", ".")


def hold_while(
    start: Callable[[], Any],
    variable: ContextVar[T | None],
    value: T,
    *,
    is_async: bool,
) -> partial[Any]:
    """Wrap the start of a tool so that a context variable holds a value while the tool runs."""
    return partial(_hold_async if is_async else _hold, start, variable, value)


async def _hold_async(
    start: Callable[[], Awaitable[Any]], variable: ContextVar[T | None], value: T
) -> Any:
    variable.set(value)  # in the tool's own context, which ends with it
    return await start()


def _hold(start: Callable[[], Any], variable: ContextVar[T | None], value: T) -> Any:
    token = variable.set(value)
    try:
        return start()
    finally:
        variable.reset(token)


_STARTED_BY_A_CALL = re.compile(r"(.+)\.\d+\.\d+\.(?:\d+|[0-9a-f]{12}(?:\.\d+)?)")
"""The run of the call, its turn, its place in the turn, and then the number or the digest that tells its runs apart."""


def outer_run(run_id: str) -> str:
    """Return the run whose call started this one, going by its name alone; empty where the name has none."""
    named = _STARTED_BY_A_CALL.fullmatch(run_id)
    return named[1] if named else ""


def is_within(run_id: str, outer: str) -> bool:
    """Return whether a run is this one, or was started by one of its calls, at any depth."""
    return run_id == outer or (run_id != "" and is_within(outer_run(run_id), outer))


ONLY_AT_FIRST = ("system", "options")
"""Arguments of `run` that `resume` does not take, because the run keeps them."""


def check_same_question(
    stored: StoredRun, question: Any, options: Mapping[str, Any]
) -> None:
    """Raise `JournalMismatch` if a stored run was given another question."""
    messages = conversation_of(question, system=options.get("system", ""))
    now = input_as_json(RunInput(messages, ""))["messages"]
    if (
        input_as_json(RunInput(input_from_json(stored.record.input).messages, ""))[
            "messages"
        ]
        != now
    ):
        raise JournalMismatch(
            f"run {stored.record.run_id!r} was asked something else; whoever starts it asks the same each time"
        )


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this thread is the loop's own."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class Starter(Protocol):
    """A runtime, of either kind."""

    @property
    def run(self) -> Callable[..., Any]:
        """See `Runtime.run`."""
        ...

    @property
    def resume(self) -> Callable[..., Any]:
        """See `Runtime.resume`."""
        ...


def agent_tool(
    runtime: Starter,
    name: str,
    description: str,
    *,
    model: str | Model,
    system: str = "",
    output: Any = None,
    effect: Literal["read", "write"] = "write",
    timeout_s: float = 300.0,
    **options: Any,
) -> FunctionTool:
    """Return a tool that delegates a task to an agent: a run of `runtime`, with the tools of that runtime.

    After a crash, resuming the outer run repeats the call, which resumes the agent's run: if both runtimes keep runs,
    no write is repeated. While the agent waits for a person, the outer run waits too.

    Args:
        description: What the agent can be asked to do, for the model that asks it.
        system: Instructions that the agent reads before its task.
        output: The form of its answer, as for `Runtime.run`; plain text without one.
        effect: `read` where none of the agent's tools writes.
        timeout_s: The time limit of the call, and of the agent's run within it.
        options: What else `Runtime.run` takes: `budget`, `deps`, `selector`, `flow`, ...
    """
    options = {
        "runtime": runtime,
        "model": model,
        "system": system,
        "output": output,
        **options,
    }

    async def ask(task: str, context: Context[Any]) -> Any:
        return _answer(name, await context.run(task, **options), output)

    def ask_blocking(task: str, context: Context[Any]) -> Any:
        return _answer(name, context.run_blocking(task, **options), output)

    fn: Callable[..., Any] | Callable[..., Awaitable[Any]] = ask
    if not iscoroutinefunction(getattr(runtime, "run", None)):
        fn = ask_blocking
    fn.__doc__ = _DOCSTRING.format(description=description)
    declared: dict[str, Any] = (
        {"replay": "key", "write": Write(key_ttl_s=KEY_TTL_S)}
        if effect == "write"
        else {}
    )
    return FunctionTool(
        fn,
        name=name,
        effect=effect,
        # the label of the agent's run is that of its answer
        sends=Sends(trust="trusted"),
        timeout_s=timeout_s,
        **declared,
    )


_DOCSTRING = """{description}

Args:
    task: What to do, with everything that is needed to do it: the agent sees nothing else of this conversation.
"""


def _answer(name: str, run: Run, output: Any) -> Any:
    if run.ok:
        return run.text if output is None else run.output
    message = f"`{name}` ended without an answer ({run.status}): {run.reason}"
    for each in run.messages:
        failure = each.result.failure if isinstance(each, ToolMessage) else None
        if failure is not None and failure.code == Code.IN_DOUBT:
            # the agent's write is in doubt for whoever asked the agent too
            doubt = f"{message}. {failure.message}"
            raise FarFailure(replace(failure, message=doubt, retryable=False))
    raise ToolError(message)
