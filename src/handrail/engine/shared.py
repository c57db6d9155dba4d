"""What the calls of one runtime share in a process: threads, worker processes, resource locks, opened tools.

Safe for threads: several event loops, or several threads with a blocking driver, may use one deployment.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, cast
from weakref import WeakSet

from handrail import logs
from handrail.context import Context
from handrail.effects import (
    Approval,
    AskHuman,
    Raised,
    Resource,
    Returned,
    Unknown,
    Verification,
)
from handrail.engine.user_code import (
    await_outcome,
    call_user,
    parse_approval,
    parse_verification,
)
from handrail.errors import Json
from handrail.ports import Approver, Notifier
from handrail.records import ApprovalRequest
from handrail.surroundings.clock import monotonic, sleep
from handrail.tools.locks import Locks
from handrail.tools.rate_limits import Limits
from handrail.tools.shared_limits import SharedLimits
from handrail.tools.tool import BaseTool
from handrail.workers import fork_safety
from handrail.workers.file_walls import declared_files, wall_for
from handrail.workers.processes import ProcessPool, WorkerCall
from handrail.workers.sandboxed import SandboxedCall
from handrail.workers.threads import ThreadPool, run_tool

LONGEST_NOTICE_S = 15.0
"""How long it may take to notify people of a question."""

NOTICE_GRACE_S = 1.0
"""How long a call waits for the notice of its question. After that the notice goes on by itself."""

MOST_NOTICES = 1000
"""How many notices may be under way. A notifier that hangs must not fill the memory."""

MOST_QUESTIONS_REMEMBERED = 10_000
"""How many questions without a notice a process remembers, and how many returned refusals."""

MAX_COMPUTING_AT_ONCE = 2
"""Threads that encode long results. More of them would only wait for the interpreter's lock."""

MAX_APPROVERS_AT_ONCE = 16
"""How many questions a process asks at the same time of approvers that are plain functions."""


class RecentNames:
    """The last names that were added, up to `most`. Safe for threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: dict[str, None] = {}
        self._guard = fork_safety.new_lock()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str) -> None:
        """Add a name; forget the oldest one where there are too many."""
        with self._guard:
            self._names[name] = None
            if len(self._names) > self._most:
                del self._names[next(iter(self._names))]

    def discard(self, name: str) -> bool:
        """Remove a name; return whether it was there."""
        with self._guard:
            return self._names.pop(name, self) is None


class SharedResources:
    """Threads, worker processes, locks, rate limits and opened tools of one runtime in one process."""

    def __init__(
        self,
        notifier: Notifier | None = None,
        limits: Limits | SharedLimits | None = None,
    ) -> None:
        self.notifier = notifier
        """Who is notified of questions that wait."""
        self.threads = ThreadPool()
        self.processes = ProcessPool()
        self._walled: dict[Hashable, ProcessPool] = {}
        self.limits = limits or Limits()
        self.deciding_threads = ThreadPool()
        """For functions that decide whether a call may run. Tools that hang must not keep others from being decided
        about, nor functions that hang keep tools from running."""
        self.computing_threads = ThreadPool(MAX_COMPUTING_AT_ONCE)
        """For slow functions of ours, which always return."""
        self._approver_threads = ThreadPool(MAX_APPROVERS_AT_ONCE)
        """Their own: tools that hang must not keep a question from being asked."""
        self._notifier_threads = ThreadPool(MAX_APPROVERS_AT_ONCE)
        """Their own: a mail server that hangs must not either."""
        self.unnoticed = RecentNames(MOST_QUESTIONS_REMEMBERED)
        """Questions that were stored here, and of which nobody was notified."""
        self.returned = RecentNames(MOST_QUESTIONS_REMEMBERED)
        """Refusals that were returned to a call already."""
        self._guard = fork_safety.new_lock()
        self._opened: dict[int, BaseTool] = {}
        fork_safety.reset_after_fork(self._forget_calls)

    def _forget_calls(self) -> None:
        """Forget the calls under way: in a fork, those of its parent never end."""
        self.given_up: set[Any] = set()
        """Attempts that were answered without their tool, kept alive until it reports."""
        self._locks = Locks()
        self._waiting: dict[Hashable, Callable[[], Any]] = {}
        self._opening: dict[int, Future[Returned | Raised]] = {}
        self._openers: set[asyncio.Task[None]] = set()
        self._notices: set[asyncio.Task[None]] = set()

    def call_isolated(
        self,
        tool: BaseTool,
        arguments: Mapping[str, Any],
        timeout_s: float,
        environment: Mapping[str, str],
    ) -> WorkerCall | SandboxedCall:
        """Return a call that runs outside of this process, isolated as strongly as its tool demands."""
        if tool.isolation == "process":
            return WorkerCall(self._pool_for(tool), tool, arguments, environment)
        return SandboxedCall(tool, arguments, timeout_s, environment)

    def _pool_for(self, tool: BaseTool) -> ProcessPool:
        """Return the workers that reach the files which a tool declares: all files, unless it declares some."""
        if not (tool.sandbox.mounts or tool.sandbox.writable):
            return self.processes
        declared = declared_files(tool)
        with self._guard:
            pool = self._walled.get(declared)
            if pool is None:
                pool = self._walled[declared] = ProcessPool(wall=wall_for(tool))
            return pool

    def reserve(
        self, owner: Hashable, resources: Sequence[Resource], turn: Callable[[], Any]
    ) -> bool:
        """Take resources, or wait for them: True when they are free at once, else `turn` is called later."""
        with self._guard:
            if self._locks.ask(owner, resources):
                return True
            self._waiting[owner] = turn
            return False

    def describe(self, now: float) -> dict[str, Json]:
        """Return the breakers that are not closed, and who holds and waits for each resource, for people to read.

        Args:
            now: Monotonic seconds.
        """
        breakers: list[Json] = [
            {
                "tool": tool,
                "failures": each.failures,
                "rests_s": round(max(0.0, each.until - now), 1),
            }
            for tool, each in list(self.limits.troubled.items())
        ]
        with self._guard:
            lines = self._locks.describe()
        return {"breakers": breakers, "locks": lines}

    def release(self, owner: Hashable) -> None:
        """Let go of resources and of waiting for them, and call those whose turn it is."""
        with self._guard:
            self._waiting.pop(owner, None)
            freed = self._locks.release(owner)
            if not freed:
                return
            turns = [self._waiting.pop(each, None) for each in freed]
        for turn in filter(None, turns):
            turn()

    async def ask_human(
        self, approver: Approver | None, request: AskHuman
    ) -> Approval | None:
        """Ask the approver; None when there is none."""
        if approver is None:
            return None
        return parse_approval(
            await call_user(partial(approver, request), self._approver_threads)
        )

    async def notify(self, question: ApprovalRequest) -> None:
        """Call the notifier with a question, and wait a moment for it; log a warning if nobody could be notified."""
        if len(self._notices) >= MOST_NOTICES:
            logs.log.warning(
                "nobody was notified of the question %r: %d notices are under way",
                question.id,
                MOST_NOTICES,
            )
            return
        notice = asyncio.ensure_future(self._notify(question))
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)
        _notices_here.add(notice)
        await asyncio.wait([notice], timeout=NOTICE_GRACE_S)

    async def _notify(self, question: ApprovalRequest) -> None:
        assert self.notifier is not None
        outcome: Returned | Raised
        try:
            notice = call_user(partial(self.notifier, question), self._notifier_threads)
            outcome = await asyncio.wait_for(notice, LONGEST_NOTICE_S)
        except TimeoutError as error:
            outcome = Raised(error)
        except asyncio.CancelledError:
            logs.log.warning(
                "perhaps nobody was notified of the question %r: the event loop ended; close the runtime first",
                question.id,
            )
            raise
        if isinstance(outcome, Raised):
            logs.log_exception(
                f"nobody was notified of the question {question.id!r}", outcome.error
            )

    async def verify(
        self, tool: BaseTool, arguments: Mapping[str, Json], context: Context[Any]
    ) -> Verification:
        """Call the tool's own `verify`; whatever goes wrong there is logged, and means that nobody knows."""
        function = cast(Any, tool.verify)
        try:
            work = call_user(partial(function, arguments, context), self.threads)
            outcome = await asyncio.wait_for(work, tool.timeout_s)
        except TimeoutError:
            logs.log.warning(
                "`verify` of %r did not end within %g s", tool.name, tool.timeout_s
            )
            return Unknown()
        return parse_verification(outcome, tool.name, function)

    def is_open(self, tool: BaseTool) -> bool:
        """Whether a tool with state has been opened."""
        return id(tool) in self._opened

    async def open(self, tool: BaseTool) -> Raised | None:
        """Open a tool once, however many calls wait for it; after a failure the next call tries again."""
        with self._guard:
            if self.is_open(tool):
                return None
            opening = self._opening.get(id(tool))
            if opening is None:
                opening = self._opening[id(tool)] = Future()
                # outlives a caller that is cancelled
                opener = asyncio.ensure_future(self._open(tool, opening))
                self._openers.add(opener)
                opener.add_done_callback(self._openers.discard)
        try:
            # A future of threads: those who wait may stand in several event loops.
            outcome = await asyncio.wait_for(
                asyncio.shield(asyncio.wrap_future(opening)), tool.timeout_s
            )
        except TimeoutError:
            return Raised(TimeoutError(f"{tool.name} did not open in time"))
        return outcome if isinstance(outcome, Raised) else None

    async def _open(self, tool: BaseTool, opening: Future[Returned | Raised]) -> None:
        outcome: Returned | Raised = Raised(
            RuntimeError(f"{tool.name}: the event loop ended while it was opened")
        )
        try:
            outcome = await call_user(partial(tool.open), self.threads)
        finally:
            with self._guard:
                del self._opening[id(tool)]
                if isinstance(outcome, Returned):
                    self._opened[id(tool)] = tool
            opening.set_result(outcome)

    async def close(self) -> None:
        """Close the tools that were opened, last one first, and the threads and processes; failures are logged.

        Notices that are under way come first: each ends in a bounded time.
        """
        here = asyncio.get_running_loop()
        notices = [each for each in self._notices if each.get_loop() is here]
        if notices:
            await asyncio.wait(notices)
        while self._opened:
            _, tool = self._opened.popitem()
            if isinstance(outcome := await _close(tool), Raised):
                logs.log_exception(
                    f"the tool {tool.name!r} could not be closed", outcome.error
                )
        self.threads.close()
        self.deciding_threads.close()
        self.computing_threads.close()
        for pool in (self.processes, *self._walled.values()):
            pool.close()
        self._approver_threads.close()
        self._notifier_threads.close()


_notices_here: WeakSet[asyncio.Task[None]] = WeakSet()

if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_notices_here.clear)


@atexit.register
def _wait_for_notices() -> None:
    """Wait for the notices under way when the program ends: it may end without closing a blocking runtime."""
    until = monotonic() + LONGEST_NOTICE_S
    while monotonic() < until and any(
        each.get_loop().is_running() and not each.done() for each in list(_notices_here)
    ):
        sleep(0.01)


async def _close(tool: BaseTool) -> Returned | Raised:
    """Close a tool in this thread."""
    outcome = run_tool(tool.close)
    if isinstance(outcome, Returned) and outcome.pending:
        awaited = outcome.value
        return await await_outcome(lambda: awaited)
    return outcome
