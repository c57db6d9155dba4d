"""Async tools take their first step at once, and get a task only when they wait for something.

A task costs as much as everything else that is done for a quick call. Python 3.12 has `eager_start` for that; this is
the same for 3.11 on, by the interface that asyncio documents for custom tasks (task lifetime support in "Extending
asyncio").

Whatever a tool does in its first step must find the task in which it will continue: `asyncio.timeout` and `TaskGroup`
look at `current_task` and cancel that task later. So the step is taken as if in an `EagerTask`, whose task exists and
has not been run yet. When the tool ends in this step, the task is ready for the next tool; when it waits, the task is
its own from then on.

Rule 1: a tool has a context of its own, for all of its steps.
Rule 2: between the first step and `continue_in_task` nothing else runs in the loop's thread.
Rule 3: `work.ended` is called exactly once for work that continues, in the loop's thread.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, cast

from handrail.effects import End, Outcome, Returned, Unfinished
from handrail.engine.scheduler import AsyncWork
from handrail.tools.materialize import is_plain
from handrail.workers.fork_safety import run_in_one_process
from handrail.workers.threads import wrap_error, wrap_value

current_task: Callable[[asyncio.AbstractEventLoop], asyncio.Task[Any] | None] = (
    asyncio.current_task
    if sys.version_info >= (3, 12)
    # Python 3.11 has it in Python, and each call asks for it
    else asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]
)
"""Return the task that a loop runs now."""


class EagerTasks:
    """The tasks that are ready for the next tools of one event loop: as many as called one another at once."""

    __slots__ = ("_loop", "_ready")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: list[EagerTask] = []

    def start_eagerly(self, begin: Callable[[], Awaitable[Any]]) -> Outcome | None:
        """See `Scheduler.start_eagerly`."""
        loop = self._loop
        ready = self._ready
        # taken: a tool may call others in its first step
        eager = ready.pop() if ready else EagerTask(loop)
        # the loop has run since they were ready, and has ended the tasks of the others too
        if eager.has_run:
            ready.clear()
            eager = EagerTask(loop)
        context = eager.context = copy_context()
        task = eager.task
        caller = current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, task)
        outcome: Outcome | None = None
        try:
            awaitable = begin()  # makes a coroutine; nothing of the tool's runs yet
            eager.steps = steps = (
                awaitable if type(awaitable) is CoroutineType else _await(awaitable)
            )
            eager.waits_for = context.run(run_in_one_process, steps.send, None)
        except StopIteration as stop:
            value = stop.value
            # as nearly every result is; `wrap_value` says so too
            if is_plain(value, type(value)):
                outcome = Returned(value, plain=True)
            else:
                outcome = wrap_value(value)
        except BaseException as error:
            outcome = _read_outcome(error)
        finally:
            _leave_task(loop, task)
            if caller is not None:
                _enter_task(loop, caller)
        # else it would end the next tool in place of this one
        if outcome is None or not task.cancelling():
            ready.append(eager)
        return outcome

    def continue_in_task(self, work: AsyncWork) -> None:
        """See `Scheduler.continue_in_task`."""
        self._ready.pop().continue_in_task(work)


class EagerTask(Coroutine[Any, Any, None]):
    """What a task runs: the steps of one piece of work after its first; nothing when there are none."""

    __slots__ = ("_work", "context", "has_run", "steps", "task", "waits_for")

    context: Context
    steps: Coroutine[Any, Any, Any]
    waits_for: Any

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.has_run = False
        self._work: AsyncWork | None = None
        self.task: asyncio.Task[None] = loop.create_task(self)

    def continue_in_task(self, work: AsyncWork) -> None:
        """Let the task take the steps that remain of this work."""
        self._work = work
        work.task = self.task

    def send(self, value: Any) -> Any:
        """Take the next step, as a task asks for it."""
        if self._work is None:  # run without work: it was ready, and nobody needed it
            self.has_run = True
            raise StopIteration
        if not self.has_run:
            self.has_run = True
            return self.waits_for
        return self._step(self.steps.send, value)

    def throw(self, error: Any, *rest: Any) -> Any:
        """Raise an exception, mostly a cancellation, where the work waits."""
        self.has_run = True
        if self._work is None:
            raise error
        return self._step(
            self.steps.throw, rest[0] if rest and rest[0] is not None else error
        )

    def close(self) -> None:
        """Close the work: the loop ends without it."""
        if self._work is not None:
            self.steps.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise RuntimeError("an EagerTask is run by its task")

    def _step(self, step: Callable[[Any], Any], argument: Any) -> Any:
        try:
            return self.context.run(run_in_one_process, step, argument)
        except BaseException as error:
            # assigned to no name: an error's traceback holds this frame
            self._end(_read_outcome(error))
        raise StopIteration

    def _end(self, outcome: Outcome) -> None:
        """Report how the work ended, and let go of it: the task holds this, and no circle outlives a call."""
        work = cast(AsyncWork, self._work)
        self._work = None
        del self.task
        work.task = None
        work.ended(work, outcome)


def _read_outcome(error: BaseException) -> Outcome:
    """Return how work ended whose last step raised this exception; `StopIteration` is a coroutine's return."""
    if isinstance(error, StopIteration):
        return wrap_value(error.value)
    if isinstance(error, asyncio.CancelledError):
        return Unfinished(End.STOPPED, cancelled=True)
    return wrap_error(error)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
