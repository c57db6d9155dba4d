"""Threads for tools that block.

A thread cannot be stopped. So the threads are daemons, which do not hold the program's end, and their number is
bounded; what waits for a free one can still be withdrawn, and then has certainly not begun.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable
from inspect import CO_ITERABLE_COROUTINE
from threading import Condition, Thread, current_thread, main_thread
from types import GeneratorType
from typing import Any, TypeAlias

from handrail.core import materialize
from handrail.effects import Raised, Returned
from handrail.workers import fork_safety

Report: TypeAlias = Callable[["Returned | Raised"], None]

# Blocking tools wait for the network far more than they compute; a hung one occupies its thread for ever.
DEFAULT_THREADS = 64


class ThreadTask:
    """A function on its way to a thread."""

    __slots__ = ("_context", "_report", "_work", "started", "withdrawn")

    def __init__(self, work: Callable[[], Any], report: Report) -> None:
        self.started = self.withdrawn = False
        self._work, self._report = work, report
        self._context = contextvars.copy_context()

    def run(self) -> None:
        """Run in a worker thread; report exactly once."""
        self._end(self._context.run(attempted, self._work))  # kept by no name: an error's traceback holds this frame

    def _end(self, outcome: Returned | Raised) -> None:
        report = self._report
        self.forget()
        report(outcome)

    def forget(self) -> None:
        """Let go of whom it would report to, who holds it: no circle outlives a call."""
        del self._work, self._report


def attempted(work: Callable[[], Any]) -> Returned | Raised:
    """Call, and say how it ended."""
    try:
        return returned(work())
    except BaseException as error:  # the one broad catch around a user's tool
        return raised(error)


def returned(value: Any) -> Returned | Raised:
    """Return the outcome of a tool's value: `Raised` with `TooLarge` if it is more than a result may hold.

    Iterators in it are read to their end, into lists. One runs when it is read, so this is a part of the tool: what it
    raises, the tool raises, and whoever looks at the result a second time (the ledger, the journal, a cut) finds what
    the first one found.
    """
    kind = type(value)
    if materialize.is_flat(value, kind):  # as nearly every result is
        return Returned(value)
    if hasattr(kind, "__await__") or (kind is GeneratorType and value.gi_code.co_flags & CO_ITERABLE_COROUTINE):
        return Returned(value, pending=True)
    try:
        return Returned(materialize.read(value))
    except BaseException as error:  # the tool's own, as far as it runs here
        return raised(error)


def raised(error: BaseException) -> Raised:
    """Say that a tool raised. What is no `Exception` (`sys.exit`, a stray `GeneratorExit`) ends it, not the program.

    An interrupt from the keyboard is no doing of the tool's, and passes. It comes in the main thread only.
    """
    if isinstance(error, Exception):
        return Raised(error)
    if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
        raise error
    return Raised(RuntimeError(f"the tool raised {type(error).__name__}({error})"))


class ThreadPool:
    """A pool of daemon threads that grows when all are busy, up to `most`."""

    def __init__(self, most: int = DEFAULT_THREADS) -> None:
        self._most = most
        fork_safety.begin(self)

    def begin(self) -> None:
        """See `forks.Begun.begin`."""
        self._jobs: deque[ThreadTask] = deque()
        self._change = Condition()
        self._idle = self._size = 0
        self._closed = False

    def submit(self, work: Callable[[], Any], report: Report) -> ThreadTask:
        """Run `work` in a thread; `report` is called there with how it ended."""
        job = ThreadTask(work, report)
        with self._change:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._change.notify()
            elif self._size < self._most:
                self._size += 1
                Thread(target=self._work, name=f"handrail-{self._size}", daemon=True).start()
        return job

    def withdraw(self, job: ThreadTask) -> bool:
        """Take a job back; True when it had not begun, and now never will."""
        with self._change:
            if job.started:
                return False
            job.withdrawn = True
            job.forget()
            return True

    def close(self) -> None:
        """Let idle threads go; those that run a tool end with it."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            del job  # an idle thread keeps nothing of its last call alive

    def _next(self) -> ThreadTask | None:
        with self._change:
            while True:
                while self._jobs:
                    job = self._jobs.popleft()
                    if not job.withdrawn:
                        job.started = True
                        return job
                if self._closed:
                    self._size -= 1
                    return None
                self._idle += 1
                self._change.wait()
                self._idle -= 1

    def __repr__(self) -> str:
        return f"<ThreadPool: {self._size} of {self._most}, {self._idle} idle, {len(self._jobs)} waiting>"
