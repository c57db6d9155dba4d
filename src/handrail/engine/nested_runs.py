"""Runs that a tool starts: an agent as a tool.

A run that a tool starts through its context is named after the call that started it, with a number: `r_7.2.0.1` is the
first run that the first call of the second turn of `r_7` started. When the call is made again (a retry, a resumed run),
the tool starts the run of that name again, and it is resumed instead: its answers come from its journal, its writes
from the ledger.

If a tool of a kept run calls `runtime.run` itself without a name for the run, that run is named after the call and a
digest of its question, and resumed in the same way.

Rule 1: runs are numbered in the order in which the tool starts them. If the question of a number differs from before,
        `JournalMismatch` is raised and nothing runs.
Rule 2: a run that waits for a person makes the call that started it wait, and so the run of that call.
Rule 3: a run ends with the time of the call that started it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from handrail.context import Context
from handrail.engine.active_run import ActiveRun
from handrail.errors import JournalMismatch, RunWaits, SetupError, ToolError
from handrail.futures import result_now, wait_for
from handrail.journal.codec import RunInput, budget_from_json, input_as_json, input_from_json
from handrail.journal.cursor import worked_s
from handrail.messages import Message, conversation_of
from handrail.ports import Model
from handrail.records import StoredRun
from handrail.runs import Run
from handrail.tools.keys import digest
from handrail.tools.tool import FunctionTool

KEY_TTL_S = 30 * 24 * 3600.0
"""How long the run of an agent's call can be resumed: as long as a store keeps runs by default."""


class Nested(Struct, eq=False):
    """Starts the runs of one attempt of a call.

    Attributes:
        runtime: The runtime that carries out the call, and its runs unless another one is named.
        stem: The place of the call, with which the names of its runs begin.
        deadline: When the attempt ends, on `time.monotonic`.
        loop: The event loop of an asyncio runtime.
    """

    runtime: Any
    session: ActiveRun
    stem: str
    deadline: float
    loop: asyncio.AbstractEventLoop | None
    number: int = 0
    asked: list[str] = []
    """Digests of the questions that this attempt has given to `runtime.run`."""

    async def run(self, question: Any, *, runtime: Any = None, **how: Any) -> Run:
        """See `Context.run`."""
        runtime = runtime or self.runtime
        if not iscoroutinefunction(runtime.run):
            return await asyncio.to_thread(partial(self.run_blocking, question, runtime=runtime, **how))
        run_id = self._next_id()
        begun = await wait_for(runtime._engine.load_run(run_id)) if runtime._engine.keeps_runs else None
        start = self._start(runtime, run_id, begun, question, how)
        with self._stopped_with(runtime, run_id):
            return _settled(await start())

    def run_blocking(self, question: Any, *, runtime: Any = None, **how: Any) -> Run:
        """See `Context.run_blocking`."""
        runtime = runtime or self.runtime
        if iscoroutinefunction(runtime.run):
            if self.loop is None or _is_running(self.loop):
                raise SetupError("a run of an asyncio runtime is started by an async tool: `await context.run(...)`")
            return asyncio.run_coroutine_threadsafe(self.run(question, runtime=runtime, **how), self.loop).result()
        run_id = self._next_id()
        begun = result_now(runtime._engine.load_run(run_id)) if runtime._engine.keeps_runs else None
        start = self._start(runtime, run_id, begun, question, how)
        with self._stopped_with(runtime, run_id):
            return _settled(start())

    def named_by_question(self, messages: Sequence[Message]) -> str:
        """Return the name of a run that the tool starts without `Context.run`."""
        name = digest(input_as_json(RunInput(messages, ""))["messages"])[:12]
        self.asked.append(name)
        again = self.asked.count(name)
        return f"{self._dotted}.{name}" if again == 1 else f"{self._dotted}.{name}.{again}"

    def around(self, start: Callable[[], Any], *, is_async: bool) -> partial[Any]:
        """Wrap the start of a tool so that `current` returns this object while the tool runs."""

        async def begin_async() -> Any:
            _CURRENT.set(self)  # in the tool's own context, which ends with it
            return await start()

        def begin() -> Any:
            token = _CURRENT.set(self)
            try:
                return start()
            finally:
                _CURRENT.reset(token)

        return partial(begin_async if is_async else begin)

    @property
    def _dotted(self) -> str:
        return self.stem.replace("/", ".")

    def _next_id(self) -> str:
        self.number += 1
        return f"{self._dotted}.{self.number}"

    def _start(
        self, runtime: Any, run_id: str, begun: StoredRun | None, question: Any, how: Mapping[str, Any]
    ) -> Callable[[], Any]:
        """Return the function that starts or resumes the run."""
        session = self.session
        how = {"deps": session.deps, "inject": session.injected, **how}
        budget, left_s = how.get("budget") or runtime.budget, max(self.deadline - monotonic(), 0.0)
        if begun is not None:
            check_same_question(begun, question, how)
            budget = how.get("budget") or budget_from_json(input_from_json(begun.record.input).budget)
            left_s += worked_s(begun.steps)
        how["budget"] = replace(budget, time_s=left_s if budget.time_s is None else min(budget.time_s, left_s))
        if begun is None:
            return partial(runtime.run, question, run_id=run_id, **how)
        return partial(runtime.resume, run_id, **{name: how[name] for name in how if name not in ONLY_AT_FIRST})

    @contextmanager
    def _stopped_with(self, runtime: Any, run_id: str) -> Iterator[None]:
        """Cancel the run when the run of the call is cancelled."""
        stop = partial(runtime.cancel, run_id)
        self.session.add_stop(stop)
        try:
            yield
        finally:
            self.session.remove_stop(stop)


_STARTED_BY_A_CALL = re.compile(r"(.+)\.\d+\.\d+\.(?:\d+|[0-9a-f]{12}(?:\.\d+)?)")
"""The run of the call, its turn, its place in the turn, and then the number or the digest that tells its runs apart."""


def outer_of(run_id: str) -> str:
    """Return which run's call started this one, going by its name alone; empty where the name says of none."""
    named = _STARTED_BY_A_CALL.fullmatch(run_id)
    return named[1] if named else ""


def is_within(run_id: str, outer: str) -> bool:
    """Return whether a run is this one, or was started by a call of it, however deep."""
    return run_id == outer or (run_id != "" and is_within(outer_of(run_id), outer))


_CURRENT: ContextVar[Nested | None] = ContextVar("handrail_call", default=None)


def current() -> Nested | None:
    """Return the `Nested` of the call that runs this code; None outside of a call of a kept run."""
    return _CURRENT.get()


ONLY_AT_FIRST = ("system", "options")
"""Arguments of `run` that `resume` does not take, because the run keeps them."""


def check_same_question(begun: StoredRun, question: Any, how: Mapping[str, Any]) -> None:
    """Raise `JournalMismatch` if a kept run was given another question."""
    messages = conversation_of(question, system=how.get("system", ""))
    now = input_as_json(RunInput(messages, ""))["messages"]
    if input_as_json(RunInput(input_from_json(begun.record.input).messages, ""))["messages"] != now:
        raise JournalMismatch(
            f"run {begun.record.run_id!r} was asked something else; whoever starts it asks the same each time"
        )


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this thread is the loop's own."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _settled(run: Run) -> Run:
    if run.status == "waiting":
        raise RunWaits(run.id, run.reason)
    return run


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
    **how: Any,
) -> FunctionTool:
    """Return a tool that delegates a task to an agent: a run of `runtime`, with the tools of that runtime.

    After a crash, resuming the outer run repeats the call, which resumes the agent's run: if both runtimes keep runs,
    no write is repeated. While the agent waits for a person, the outer run waits too.

    Args:
        description: What the agent can be asked to do, for the model that asks it.
        system: What the agent is told before its task.
        output: The form of its answer, as for `Runtime.run`; plain text without one.
        effect: `read` where none of the agent's tools writes.
        timeout_s: The time limit of the call, and of the agent's run within it.
        how: What else `Runtime.run` takes: `budget`, `deps`, `selector`, `flow`, ...
    """
    how = {"runtime": runtime, "model": model, "system": system, "output": output, **how}

    async def ask(task: str, context: Context[Any]) -> Any:
        return _answer(name, await context.run(task, **how), output)

    def ask_blocking(task: str, context: Context[Any]) -> Any:
        return _answer(name, context.run_blocking(task, **how), output)

    fn: Callable[..., Any] | Callable[..., Awaitable[Any]] = ask
    if not iscoroutinefunction(getattr(runtime, "run", None)):
        fn = ask_blocking
    fn.__doc__ = _DOCSTRING.format(description=description)
    declared: dict[str, Any] = {"replay": "key", "key_ttl_s": KEY_TTL_S} if effect == "write" else {}
    return FunctionTool(fn, name=name, effect=effect, timeout_s=timeout_s, **declared)


_DOCSTRING = """{description}

Args:
    task: What to do, with everything that is needed to do it: nothing else of this conversation is known there.
"""


def _answer(name: str, run: Run, output: Any) -> Any:
    if not run.ok:
        raise ToolError(f"`{name}` ended without an answer ({run.status}): {run.reason}")
    return run.text if output is None else run.output
