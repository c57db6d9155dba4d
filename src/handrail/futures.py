"""Answers that are there now or later, and how they are waited for.

A store in memory answers at once; one that waits for a disk answers with a `concurrent.futures.Future`. `wait_for` and
`result_now` take either, the first on an event loop, the second in a thread of its own.

Each `call_soon_threadsafe` writes to a socket that the loop reads, which costs more than most answers. A store answers
a group of callers at once, so a `Mailbox` collects what other threads bring to a loop and wakes it once.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError
from functools import partial
from threading import Event, RLock, local
from typing import Any, TypeAlias, TypeVar
from weakref import ref

from handrail.logs import log_exception

T = TypeVar("T")
U = TypeVar("U")

StoreAnswer: TypeAlias = "T | Future[T]"
"""What a method of a store returns: a value, or a future of it."""


class _StateLock(type(RLock())):  # type: ignore[misc]  # a class that has no name of its own
    """Guards the states of futures. Whoever waits for one is woken by a callback, so nobody is to be notified."""

    def notify_all(self) -> None:
        """Wake nobody."""

    def wait(self, timeout: float | None = None) -> None:
        """Return at once: whoever comes here has waited."""


_NOBODY: list[Callable[..., Any]] = []
"""The callbacks of every future that has at most one. Shared, so nothing may be added to this list."""
_RAISED = "whoever waited for a store's answer raised"
_UNDER_WAY = frozenset(("PENDING", "RUNNING"))
_CANCELLED = frozenset(("CANCELLED", "CANCELLED_AND_NOTIFIED"))


class StoreFuture(Future[T]):
    """A future of a store: one object in place of the sixteen that a `Future` makes for its own condition.

    A crowd of durable runs makes thousands a second and holds many of them at once. Python's garbage collector looks
    at each such object, which was a third of what a durable write cost.
    """

    _condition = _StateLock()
    _present_waiters: list[Any] | None = None

    # what `Future.__init__` sets, without a condition of its own
    _state = "PENDING"
    _result: T | None = None
    _exception: BaseException | None = None
    _callback: Callable[[Future[T]], Any] | None = None
    """The first callback, which is nearly always the only one."""
    _done_callbacks: list[Callable[[Future[T]], Any]] = _NOBODY
    """The callbacks after the first."""

    def __init__(self, *, is_running: bool = False) -> None:
        if is_running:
            self._state = "RUNNING"

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]  # `Future` never sets it elsewhere
        """Where `concurrent.futures.wait` puts whom it waits for: a list once it looks for that."""
        if self._present_waiters is None:
            self._present_waiters = []
        return self._present_waiters

    # The next three read the state once, which is atomic: the lock would add nothing.

    def done(self) -> bool:
        """See `Future.done`."""
        return self._state not in _UNDER_WAY

    def running(self) -> bool:
        """See `Future.running`."""
        return self._state == "RUNNING"

    def cancelled(self) -> bool:
        """See `Future.cancelled`."""
        return self._state in _CANCELLED

    def start(self) -> bool:
        """Return whether the answer is still wanted; from now on nobody can cancel it."""
        if self._state == "RUNNING":
            return True
        with self._condition:
            if self._state == "PENDING":
                self._state = "RUNNING"
            if self._state in ("RUNNING", "FINISHED"):  # another thread is quick
                return True
            if self._state == "CANCELLED_AND_NOTIFIED":  # and was asked before
                return False
        return self.set_running_or_notify_cancel()

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """See `Future.add_done_callback`."""
        with self._condition:
            if self._state in _UNDER_WAY:
                if self._callback is None:
                    self._callback = fn
                elif self._done_callbacks is _NOBODY:
                    self._done_callbacks = [fn]
                else:
                    self._done_callbacks.append(fn)
                return
        super().add_done_callback(fn)

    def set_result(self, result: T) -> None:
        """See `Future.set_result`. There is no condition to notify: nobody waits on one."""
        with self._condition:
            if self._state not in _UNDER_WAY:
                raise InvalidStateError(f"{self._state}: {self!r}")
            self._result = result
            self._state = "FINISHED"
            if self._present_waiters is not None:
                for waiter in self._present_waiters:
                    waiter.add_result(self)
        if self._done_callbacks is not _NOBODY:
            self._invoke_callbacks()
        elif (callback := self._callback) is not None:
            self._callback = None
            try:
                callback(self)
            except Exception as error:
                log_exception(_RAISED, error)

    def _invoke_callbacks(self) -> None:
        """Call whoever waited; `Future` does so by this name after an exception or a cancel."""
        callbacks = (self._callback, *self._done_callbacks)
        # whoever keeps the answer does not keep those who waited for it
        self._callback = None
        self._done_callbacks = _NOBODY
        for callback in callbacks:
            try:
                if callback is not None:
                    callback(self)
            except Exception as error:
                log_exception(_RAISED, error)

    def result(self, timeout: float | None = None) -> T:
        """See `Future.result`."""
        if self._state == "FINISHED" and self._exception is None:
            return self._result  # type: ignore[return-value]  # `cast` is called
        self._wait_until_done(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `Future.exception`."""
        if self._state == "FINISHED":
            return self._exception
        self._wait_until_done(timeout)
        return super().exception(0)

    def _wait_until_done(self, timeout: float | None) -> None:
        if self._state in _UNDER_WAY:
            done = Event()
            self.add_done_callback(lambda _: done.set())
            done.wait(timeout)


def _renew_lock() -> None:
    """Let go of a lock that another thread held when this process was forked: that thread does not exist here."""
    StoreFuture._condition = _StateLock()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_renew_lock)


async def wait_for(answer: StoreAnswer[T]) -> T:
    """Return a store's answer; wait for it where it is a future.

    As `asyncio.wrap_future` does: cancelling the caller cancels the answer.
    """
    if not isinstance(answer, Future):
        return answer
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    answer.add_done_callback(partial(_mailbox_of(loop).wake, waiter))
    try:
        await waiter
    except asyncio.CancelledError:
        answer.cancel()
        raise
    return answer.result()


def result_now(answer: StoreAnswer[T]) -> T:
    """Return a store's answer; block this thread where it is a future."""
    return answer.result() if isinstance(answer, Future) else answer


async def run_steps(steps: Generator[StoreAnswer[Any], Any, T]) -> T:
    """Drive a generator that yields a store's answers, waiting for each; return what it returns."""
    result: Any = None
    try:
        while True:
            result = await wait_for(steps.send(result))
    except StopIteration as stop:
        returned: T = stop.value
        return returned


def then(answer: StoreAnswer[T], change: Callable[[T], U]) -> StoreAnswer[U]:
    """Return an answer with `change` applied, now or when it arrives."""
    if not isinstance(answer, Future):
        return change(answer)
    changed: Future[U] = StoreFuture(is_running=True)

    def complete(done: Future[T]) -> None:
        try:
            changed.set_result(change(done.result()))
        except Exception as error:
            changed.set_exception(error)

    answer.add_done_callback(complete)
    return changed


def run_steps_now(steps: Generator[StoreAnswer[Any], Any, T]) -> T:
    """Drive a generator that yields a store's answers, blocking this thread for each; return what it returns."""
    result: Any = None
    try:
        while True:
            result = result_now(steps.send(result))
    except StopIteration as stop:
        returned: T = stop.value
        return returned


class Mailbox:
    """What waits for one loop: calls, in the order in which they were posted, and futures whose wait is over."""

    __slots__ = ("_calls", "_is_woken", "_waiters", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_woken = False

    def post(self, then: Callable[..., Any], *args: Any) -> None:
        """Have the loop call this soon; from any thread.

        Raises:
            RuntimeError: The loop is closed, and nothing will be called.
        """
        loop = self.loop()
        if loop is None or loop.is_closed():
            raise RuntimeError("the event loop is closed")
        self._calls.append((then, args))
        if not self._is_woken:
            self._is_woken = True
            loop.call_soon_threadsafe(self._read)

    def wake(self, waiter: asyncio.Future[None], _: Future[Any]) -> None:
        """Have the loop end a wait for an answer; from any thread. If the loop is closed, nobody waits any longer."""
        self._waiters.append(waiter)
        if not self._is_woken:
            self._is_woken = True
            loop = self.loop()
            try:  # quicker than `suppress`
                if loop is not None:
                    loop.call_soon_threadsafe(self._read)
            except RuntimeError:
                pass

    def _read(self) -> None:
        # first: what comes from now on wakes the loop again, at worst for nothing
        self._is_woken = False
        waiters = self._waiters
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
        try:
            while self._calls:
                then, args = self._calls.popleft()
                then(*args)
        finally:
            if self._calls:  # one of them raised; the others are still called
                asyncio.get_running_loop().call_soon(self._read)


class _ThreadState(local):
    """The mailbox of the loop that ran last in this thread."""

    box: Mailbox | None = None


_LOCAL = _ThreadState()


def mailbox() -> Mailbox:
    """Return the mailbox of the running loop."""
    return _mailbox_of(asyncio.get_running_loop())


def _mailbox_of(loop: asyncio.AbstractEventLoop) -> Mailbox:
    box = _LOCAL.box
    if box is None or box.loop() is not loop:
        box = _LOCAL.box = Mailbox(loop)
    return box
