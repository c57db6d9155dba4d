"""What the calls of one process share: threads, resource locks, opened tools; and how the user's functions are called.

Safe for threads: several event loops, or several threads with a blocking driver, may use one deployment.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, cast, get_args

from handrail import logs
from handrail.context import Context
from handrail.core.locks import Locks
from handrail.effects import (
    Approval,
    ApprovalScope,
    AskHuman,
    Found,
    NotFound,
    Raised,
    Resource,
    Returned,
    Unknown,
    Verification,
)
from handrail.errors import Json
from handrail.ports import Approver
from handrail.tools.rate_limits import Limits
from handrail.tools.tool import BaseTool
from handrail.workers.processes import ProcessPool, WorkerCall
from handrail.workers.sandboxed import SandboxedCall
from handrail.workers.threads import ThreadPool, run_tool, wrap_error, wrap_value

PEOPLE_AT_ONCE = 16


class SharedResources:
    """The shared part of one deployment in one process."""

    def __init__(self) -> None:
        self.threads = ThreadPool()
        self.processes = ProcessPool()
        self.limits = Limits()
        self._people = ThreadPool(PEOPLE_AT_ONCE)  # tools that hang must not keep a question from being asked
        self.given_up: set[Any] = set()
        """Attempts that were answered without their tool, kept alive until it reports."""
        self._locks, self._guard = Locks(), Lock()
        self._in_line: dict[Hashable, Callable[[], Any]] = {}
        self._opened: dict[int, BaseTool] = {}
        self._opening: dict[int, Future[Returned | Raised]] = {}
        self._openers: set[asyncio.Task[None]] = set()

    def apart(self, tool: BaseTool, arguments: Mapping[str, Any], timeout_s: float) -> WorkerCall | SandboxedCall:
        """Return a call that is to run outside of this process, as strongly kept apart as its tool demands."""
        if tool.isolation == "process":
            return WorkerCall(self.processes, tool, arguments)
        return SandboxedCall(tool, arguments, timeout_s)

    def reserve(self, owner: Hashable, resources: Sequence[Resource], turn: Callable[[], Any]) -> bool:
        """Stand in line for resources; True when they are free at once, else `turn` is called later."""
        with self._guard:
            if self._locks.ask(owner, resources):
                return True
            self._in_line[owner] = turn
            return False

    def release(self, owner: Hashable) -> None:
        """Leave every line, and tell those whose turn it is."""
        with self._guard:
            self._in_line.pop(owner, None)
            turns = [self._in_line.pop(freed, None) for freed in self._locks.release(owner)]
        for turn in filter(None, turns):
            turn()

    async def ask_human(self, approver: Approver | None, asked: AskHuman) -> Approval | None:
        """Ask the approver; None when nobody is there."""
        if approver is None:
            return None
        return approval_from(await self.called(partial(approver, asked), self._people))

    async def verify(self, tool: BaseTool, arguments: Mapping[str, Json], context: Context[Any]) -> Verification:
        """Ask the tool's own `verify`; whatever goes wrong there means that nobody knows."""
        try:
            work = self.called(partial(cast(Any, tool.verify), arguments, context))
            return verification_from(await asyncio.wait_for(work, tool.timeout_s))
        except TimeoutError:
            return Unknown()

    async def called(self, work: partial[Any], threads: ThreadPool | None = None) -> Returned | Raised:
        """Call a function of the user: a coroutine function here, a plain one in a thread."""
        if inspect.iscoroutinefunction(work.func) or inspect.iscoroutinefunction(type(work.func).__call__):
            return await outcome_of(work)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Returned | Raised] = loop.create_future()
        (threads or self.threads).submit(work, lambda outcome: _post(loop, ended, outcome))
        outcome = await ended
        if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
            return await outcome_of(lambda: outcome.value)
        return outcome

    def is_open(self, tool: BaseTool) -> bool:
        """Whether a tool with state has been opened."""
        return id(tool) in self._opened

    async def open(self, tool: BaseTool) -> Raised | None:
        """Open a tool once, however many calls wait for it; a failed opening is tried again by the next call."""
        with self._guard:
            if self.is_open(tool):
                return None
            opening = self._opening.get(id(tool))
            if opening is None:
                opening = self._opening[id(tool)] = Future()
                opener = asyncio.ensure_future(self._open(tool, opening))  # outlives a caller that is cancelled
                self._openers.add(opener)
                opener.add_done_callback(self._openers.discard)
        try:
            # A future of threads: those who wait may stand in several event loops.
            outcome = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(opening)), tool.timeout_s)
        except TimeoutError:
            return Raised(TimeoutError(f"{tool.name} did not open in time"))
        return outcome if isinstance(outcome, Raised) else None

    async def _open(self, tool: BaseTool, opening: Future[Returned | Raised]) -> None:
        outcome: Returned | Raised = Raised(RuntimeError(f"{tool.name}: the event loop ended while it was opened"))
        try:
            outcome = await self.called(partial(tool.open))
        finally:
            with self._guard:
                del self._opening[id(tool)]
                if isinstance(outcome, Returned):
                    self._opened[id(tool)] = tool
            opening.set_result(outcome)

    async def close(self) -> None:
        """Close the tools that were opened, last one first, and let the threads go. One that fails does not stop it."""
        while self._opened:
            _, tool = self._opened.popitem()
            if isinstance(outcome := await _closed(tool), Raised):
                logs.log_exception(f"the tool {tool.name!r} could not be closed", outcome.error)
        self.threads.close()
        self.processes.close()
        self._people.close()


async def _closed(tool: BaseTool) -> Returned | Raised:
    """Close a tool here, and say how that ended."""
    outcome = run_tool(tool.close)
    if isinstance(outcome, Returned) and outcome.pending:
        awaited = outcome.value
        return await outcome_of(lambda: awaited)
    return outcome


def _give(ended: asyncio.Future[Any], outcome: Any) -> None:
    if not ended.done():
        ended.set_result(outcome)


def _post(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[Any], outcome: Any) -> None:
    """Bring a thread's report into the loop; a loop that has closed meanwhile no longer wants it."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_give, ended, outcome)


def cancelled_from_outside() -> bool:
    """Whether somebody asked for the running task's end; else a CancelledError comes from what it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def outcome_of(start: Callable[[], Awaitable[Any]]) -> Returned | Raised:
    """Start an async tool and say how it ended. Being cancelled is not an outcome: it passes."""
    try:
        return wrap_value(await start())
    except asyncio.CancelledError:
        if cancelled_from_outside():
            raise
        return Raised(RuntimeError("the tool cancelled itself"))
    except BaseException as error:  # the one broad catch around a user's tool
        return wrap_error(error)


NOT_ASKED = Approval(False, reason="the approval could not be asked for")
"""What an approver that raised stands for, where nobody else can be asked."""


def approval_from(outcome: Returned | Raised) -> Approval | None:
    """Return the person's word from what an approver returned. Only a clear yes is one: "no" is a true value too."""
    if isinstance(outcome, Raised):
        logs.log_exception("the approver raised instead of answering", outcome.error)
        return NOT_ASKED
    answer = outcome.value
    if isinstance(answer, Approval):
        by, reason = str(answer.by or ""), str(answer.reason or "")
        if answer.granted is not True or not _is_edit(answer.arguments):
            return Approval(False, by, reason)
        return Approval(True, by, reason, answer.arguments, scope=answer.scope if answer.scope in _SCOPES else "once")
    if answer is None or isinstance(answer, bool):
        return None if answer is None else Approval(answer)
    logs.log.warning("an approver answered with a %s; only True or an Approval agrees", type(answer).__name__)
    return Approval(False, reason="the approver gave no clear answer")


_SCOPES = get_args(ApprovalScope)


def _is_edit(arguments: Any) -> bool:
    """Whether these can be a person's arguments, or there are none."""
    try:
        return arguments is None or (isinstance(arguments, Mapping) and bool(json.dumps(dict(arguments))))
    except (TypeError, ValueError, RecursionError):  # no JSON, so no arguments
        return False


def verification_from(outcome: Returned | Raised) -> Verification:
    """Return what a tool's `verify` found. Anything but a clear word means that nobody knows."""
    answer = outcome.value if isinstance(outcome, Returned) else None
    return answer if isinstance(answer, Found | NotFound) else Unknown()
