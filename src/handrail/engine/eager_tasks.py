"""Async tools take their first step at once, and get a task only when they wait for something.

A task costs as much as everything else that is done for a quick call. Python 3.12 has `eager_start` for that; this is
the same for 3.11 on, by the interface that asyncio documents for those who bring tasks of their own (task lifetime
support in "Extending asyncio").

Whatever a tool does in its first step must find the task in which it will go on: `asyncio.timeout` and `TaskGroup` look
at `current_task` and cancel that task later. So the step is taken under the name of a runner, a task that exists and
has not been run yet. When the tool ends in this step, the runner is as good as new; when it waits, the runner is its
task from then on.

Rule 1: a tool has a context of its own, for all of its steps.
Rule 2: between the first step and `go_on` nothing else runs in the loop's thread.
Rule 3: `work.ended` is called exactly once for what goes on, in the loop's thread.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, cast

from handrail.effects import End, Outcome, Unfinished
from handrail.engine.scheduler import AsyncWork
from handrail.workers.threads import wrap_error, wrap_value


class EagerTasks:
    """The runners that are ready for the next tools of one event loop: as many as called one another at once."""

    __slots__ = ("_loop", "_ready")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: list[EagerTask] = []

    def first_step(self, begin: Callable[[], Awaitable[Any]]) -> Outcome | None:
        """See `Scheduler.first_step`."""
        loop, ready = self._loop, self._ready
        runner = ready.pop() if ready else EagerTask(loop)  # taken: a tool may call others in its first step
        if runner.begun:  # the loop has run since they were ready, and has ended the tasks of the others too
            ready.clear()
            runner = EagerTask(loop)
        context = runner.context = copy_context()
        caller, task = asyncio.current_task(loop), runner.task
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, task)
        outcome: Outcome | None = None
        try:
            begun = begin()  # makes a coroutine; nothing of the tool's runs yet
            runner.steps = steps = begun if type(begun) is CoroutineType else _awaited(begun)
            runner.waits_for = context.run(steps.send, None)
        except StopIteration as end:
            outcome = wrap_value(end.value)
        except BaseException as error:
            outcome = _outcome_of(error)
        finally:
            _leave_task(loop, task)
            if caller is not None:
                _enter_task(loop, caller)
        if outcome is None or not task.cancelling():  # else it would end the next one in this one's place
            ready.append(runner)
        return outcome

    def go_on(self, work: AsyncWork) -> None:
        """See `Scheduler.go_on`."""
        self._ready.pop().go_on(work)


class EagerTask(Coroutine[Any, Any, None]):
    """What a task runs: the steps of one piece of work after its first; nothing when there are none."""

    __slots__ = ("_work", "begun", "context", "steps", "task", "waits_for")

    context: Context
    steps: Coroutine[Any, Any, Any]
    waits_for: Any

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.begun = False
        self._work: AsyncWork | None = None
        self.task: asyncio.Task[None] = loop.create_task(self)

    def go_on(self, work: AsyncWork) -> None:
        """Let the task take the steps that remain of this work."""
        self._work, work.task = work, self.task

    def send(self, value: Any) -> Any:
        """Take the next step, as a task asks for it."""
        if self._work is None:  # begun without work: it was ready, and nobody needed it
            self.begun = True
            raise StopIteration
        if not self.begun:
            self.begun = True
            return self.waits_for
        return self._step(self.steps.send, value)

    def throw(self, error: Any, *rest: Any) -> Any:
        """Let an exception, mostly a cancellation, arrive where the work waits."""
        self.begun = True
        if self._work is None:
            raise error
        return self._step(self.steps.throw, rest[0] if rest and rest[0] is not None else error)

    def close(self) -> None:
        """Give the work up: the loop ends without it."""
        if self._work is not None:
            self.steps.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise RuntimeError("a runner is run by its task")

    def _step(self, step: Callable[[Any], Any], what: Any) -> Any:
        try:
            return self.context.run(step, what)
        except BaseException as error:
            self._end(_outcome_of(error))  # kept by no name: an error's traceback holds this frame
        raise StopIteration

    def _end(self, outcome: Outcome) -> None:
        """Say how the work ended, and let go of it: the task holds this, and no circle outlives a call."""
        work, self._work = cast(AsyncWork, self._work), None
        del self.task
        work.task = None
        work.ended(work, outcome)


def _outcome_of(end: BaseException) -> Outcome:
    """Return how work ended whose last step ended with this exception; `StopIteration` is a coroutine's return."""
    if isinstance(end, StopIteration):
        return wrap_value(end.value)
    if isinstance(end, asyncio.CancelledError):
        return Unfinished(End.STOPPED, cancelled=True)
    return wrap_error(end)


async def _awaited(what: Awaitable[Any]) -> Any:
    return await what
