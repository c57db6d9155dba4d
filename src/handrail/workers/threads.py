"""Threads for tools that block.

A thread cannot be stopped. So the threads are daemons, which do not hold the program's end, and their number is
bounded; a task that waits for a free one can still be withdrawn, and then has certainly not started.

Rule 1: a thread that waits for other tools, or that nobody waits for any more, does not count: another one may be
        started in its place. At most `MOST_ASIDE` do not.
"""

from __future__ import annotations

import contextvars
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from inspect import CO_ITERABLE_COROUTINE
from threading import Condition, Thread, current_thread, local, main_thread
from types import GeneratorType
from typing import Any, TypeAlias, TypeVar

from handrail.effects import Raised, Returned
from handrail.surroundings.clock import monotonic
from handrail.tools import materialize
from handrail.workers import fork_safety

T = TypeVar("T")
Report: TypeAlias = Callable[["Returned | Raised"], None]

# Blocking tools wait for the network far more than they compute; a hung one occupies its thread for ever.
DEFAULT_THREADS = 64

MOST_ASIDE = 512
"""How many threads a pool may leave out of its count."""

MOST_NAMED = 5
"""How many names `describe_holders` says."""

IDLE_S = 60.0
"""How long an idle thread lives. A runtime that nobody closes must not keep its threads for ever."""


class ThreadTask:
    """A function that waits for a thread, or runs in one."""

    __slots__ = (
        "_context", "_report", "_work", "is_aside", "name", "reasons", "since", "started",
    )  # fmt: skip

    def __init__(self, work: Callable[[], Any], report: Report, name: str) -> None:
        self.name = name
        self.started = False
        self.since = 0.0
        """When it started, on the monotonic clock."""
        self.reasons = 0
        """How many reasons there are not to count its thread."""
        self.is_aside = False
        self._work = work
        self._report = report
        self._context = contextvars.copy_context()

    def run(self) -> None:
        """Run in a worker thread; report exactly once."""
        # bound to no name: a traceback holds this frame
        self._end(self._context.run(run_tool, self._work))

    def _end(self, outcome: Returned | Raised) -> None:
        report = self._report
        self.forget()
        report(outcome)

    def forget(self) -> None:
        """Drop the references to the caller, which refers to the task: no cycle outlives a call."""
        del self._work, self._report


def run_tool(work: Callable[[], Any]) -> Returned | Raised:
    """Call a tool and return how it ended. A fork of the tool does not return."""
    try:
        return wrap_value(fork_safety.run_in_one_process(work))
    except BaseException as error:  # the one broad catch around a user's tool
        return wrap_error(error)


def wrap_value(value: Any) -> Returned | Raised:
    """Return the outcome of a tool's value: `Raised` with `TooLarge` if it is more than a result may hold.

    Iterators in it are read to their end, into lists. An iterator runs when it is read, so this is a part of the tool:
    what it raises, the tool raises, and later readers (the ledger, the journal, a cut) find what the first one found.
    """
    kind = type(value)
    if materialize.is_plain(value, kind):  # as nearly every result is
        return Returned(value, plain=True)
    if hasattr(kind, "__await__") or (
        kind is GeneratorType and value.gi_code.co_flags & CO_ITERABLE_COROUTINE
    ):
        return Returned(value, pending=True)
    try:
        return Returned(*fork_safety.run_in_one_process(materialize.read, value))
    except BaseException as error:  # the tool's own, as far as it runs here
        return wrap_error(error)


def wrap_error(error: BaseException) -> Raised:
    """Return the outcome of a tool that raised. `sys.exit` or a stray `GeneratorExit` ends the tool, not the program.

    An interrupt from the keyboard, which comes in the main thread only, is raised again.
    """
    if isinstance(error, Exception):
        return Raised(error)
    if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
        raise error
    return Raised(RuntimeError(f"the tool raised {type(error).__name__}({error})"))


def _set_future(future: Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # whoever waits for the future gets it
        future.set_exception(error)


def _ignore_report(_: Returned | Raised) -> None:
    """The future has reported."""


class _ThreadState(local):
    """What a thread of a pool runs."""

    running: tuple[ThreadPool, ThreadTask] | None = None


_LOCAL = _ThreadState()


@contextmanager
def waiting_for_tools() -> Iterator[None]:
    """Leave this thread out of its pool's count meanwhile: the tools that it waits for need threads too."""
    if _LOCAL.running is None:
        yield
        return
    pool, task = _LOCAL.running
    pool.set_aside(task)
    try:
        yield
    finally:
        pool.take_back(task)


class ThreadPool:
    """A pool of daemon threads that grows when all are busy, up to `most`, and shrinks when they have no work.

    Args:
        most: The number of threads at once, without those that do not count.
        idle_s: Seconds after which a thread without work ends.
    """

    def __init__(self, most: int = DEFAULT_THREADS, *, idle_s: float = IDLE_S) -> None:
        self._most = most
        self._idle_s = idle_s
        fork_safety.reset_after_fork(self.reset)

    def reset(self) -> None:
        """See `fork_safety.reset_after_fork`."""
        self._tasks: deque[ThreadTask] = deque()
        self._running: dict[ThreadTask, None] = {}
        self._aside = 0
        self._change = Condition()
        self._idle = 0
        self._size = 0
        self._closed = False

    def submit(
        self, work: Callable[[], Any], report: Report, name: str = "no tool"
    ) -> ThreadTask:
        """Run `work` in a thread; `report` is called there with how it ended.

        Args:
            name: Of the tool, for `describe_holders`.
        """
        task = ThreadTask(work, report, name)
        with self._change:
            if self._idle > len(self._tasks):
                self._change.notify()
            else:
                self._grow()  # before the task is queued: it never runs if this raises
            self._tasks.append(task)
        return task

    def _grow(self) -> None:
        if self._size - self._aside < self._most:
            name = f"handrail-{self._size + 1}"
            Thread(target=self._work, name=name, daemon=True).start()
            self._size += 1

    def set_aside(self, task: ThreadTask) -> None:
        """Do not count the thread of a task that has started."""
        with self._change:
            self._set_aside(task)

    def _set_aside(self, task: ThreadTask) -> None:
        task.reasons += 1
        if task.is_aside or task not in self._running or self._aside >= MOST_ASIDE:
            return
        task.is_aside = True
        self._aside += 1
        if len(self._tasks) > self._idle:
            self._grow()

    def take_back(self, task: ThreadTask) -> None:
        """Count the thread of a task again, unless there is another reason not to."""
        with self._change:
            task.reasons -= 1
            if not task.reasons:
                self._count(task)

    def _count(self, task: ThreadTask) -> None:
        if task.is_aside:
            task.is_aside = False
            self._aside -= 1

    def describe_holders(self) -> str:
        """Return which tools hold the threads and for how long, if all are held; else an empty text."""
        with self._change:
            if self._size - self._aside < self._most or self._idle:
                return ""
            running = [each for each in self._running if not each.is_aside]
        now = monotonic()
        longest: dict[str, float] = {}
        for each in running:  # the oldest first
            longest.setdefault(each.name, now - each.since)
        counts = Counter(each.name for each in running).most_common()
        names = [
            f"`{name}` {count} (for up to {longest[name]:.0f} s)"
            for name, count in counts[:MOST_NAMED]
        ]
        if len(counts) > MOST_NAMED:
            names.append("others")
        return f"All {len(running)} threads are held: {', '.join(names)}."

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Call a function of ours in a thread; return a future of its value."""
        future: Future[T] = Future()
        self.submit(partial(_set_future, future, function), _ignore_report)
        return future

    def withdraw(self, task: ThreadTask) -> bool:
        """Withdraw a task; True when it had not started, and now never will.

        One that has started goes on, and nobody waits for it: its thread does not count.
        """
        with self._change:
            if task.started:
                self._set_aside(task)
                return False
            # Where every thread hangs, nobody else would take it from the queue. After a fork it is in none.
            with suppress(ValueError):
                self._tasks.remove(task)
            task.forget()
            return True

    def close(self) -> None:
        """End idle threads; those that run a tool end with it."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            _LOCAL.running = (self, task)
            task.run()
            _LOCAL.running = None
            with self._change:
                self._running.pop(task, None)
                self._count(task)
            del task  # an idle thread keeps nothing of its last call alive

    def _next(self) -> ThreadTask | None:
        is_wanted = True
        with self._change:
            while True:
                if self._size - self._aside > self._most:  # one has come back
                    self._size -= 1
                    return None
                if self._tasks:
                    task = self._tasks.popleft()
                    task.started = True
                    task.since = monotonic()
                    self._running[task] = None
                    return task
                if self._closed or not is_wanted:
                    self._size -= 1
                    return None
                self._idle += 1
                is_wanted = self._change.wait(self._idle_s)
                self._idle -= 1

    def __repr__(self) -> str:
        return f"<ThreadPool: {self._size} of {self._most}, {self._idle} idle, {len(self._tasks)} waiting>"
