"""The tools of one turn that are under way: started, interrupted at their deadline, given up if they will not end.

A tool runs in a task of its own, in a thread or in another process, not in the caller's frame, so that a deadline can
end the call even when the tool will not end. Only a tool that declares `blocking=False`, and so promises to be quick,
runs in place; if it missed its deadline, its result is marked late.

Rule 1: a deadline reports the truth: not started, stopped, or running on. A late report is passed on, never lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import Event as Flag
from typing import Any, Protocol, TypeGuard

from msgspec import Struct

from handrail import logs
from handrail.core import retries
from handrail.core.admission import Admitted
from handrail.core.batch import CallState
from handrail.core.redaction import KnownSecrets
from handrail.effects import End, Invoke, Outcome, Raised, Returned, Unfinished
from handrail.engine import scheduler
from handrail.engine.scheduler import AsyncWork, Handle, Scheduler
from handrail.engine.shared import SharedResources
from handrail.errors import Code, ToolError
from handrail.tools.tool import BaseTool
from handrail.workers.processes import ProcessEnded, WorkerCall
from handrail.workers.sandboxed import SandboxedCall
from handrail.workers.threads import ThreadTask, run_tool

# An async tool that is cancelled gets this long to end; then the call is over, and its result says that the tool still
# runs.
CANCEL_GRACE_S = 0.5


class AttemptListener(Protocol):
    """What waits for the end of an attempt."""

    def answer(self, state: CallState, answer: Outcome) -> None:
        """Take how the tool of a call ended."""
        ...

    def let_pass(self, tool: BaseTool, outcome: Outcome) -> Outcome:
        """Return what the call gets in place of an exception that is for the caller."""
        ...

    def take_late_report(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take how an attempt ended that had been given up."""
        ...

    def environment(self, state: CallState) -> Mapping[str, str]:
        """Return what a process of the tool's own finds in its environment."""
        ...

    def within_trace(self, state: CallState) -> AbstractContextManager[None]:
        """Return what makes the trace of a call the present one, for the log."""
        ...


class Attempt(AsyncWork, eq=False, kw_only=True):
    """One start of a tool that is under way.

    `ending` says that it was asked to end, by its deadline or because the run was cancelled; `given_up` that its call
    was answered without it.
    """

    watcher: AttemptListener
    state: CallState
    tool: BaseTool
    number: int
    until: float
    flag: Flag | None = None
    job: ThreadTask | None = None
    apart: WorkerCall | SandboxedCall | None = None
    ending: bool = False
    by_cancel: bool = False
    given_up: bool = False


class Attempts(Struct, eq=False):
    """The attempts of one batch. Each knows who waits for it; they all do not, so that no circle outlives the batch.

    Attributes:
        run_id: For the log.
        now: Monotonic seconds.
        within: Calls a function with the context variables of the batch's caller.
        troubled: The tools whose breaker has something to note.
        under_way: The newest attempt of each call that has one.
        secrets: What the log must not hold.
        together: Those that began with the same time and share an alarm.
    """

    run_id: str
    services: SharedResources
    scheduler: Scheduler
    now: Callable[[], float]
    within: Callable[..., None]
    troubled: Mapping[str, object]
    secrets: KnownSecrets
    under_way: dict[CallState, Attempt] = {}
    together: dict[float, list[Attempt]] = {}
    alarms: Sequence[Handle] = ()

    def make(
        self,
        watcher: AttemptListener,
        state: CallState,
        effect: Invoke[Admitted],
        start: partial[Any],
        flag: Flag | None,
    ) -> None:
        """Make a call that is ready: its first step here, or all of it in a task, a thread or a process."""
        tool = effect.call.tool
        traits = effect.call.traits
        until = self.now() + effect.timeout_s
        starts_here = flag is None and traits.in_place
        outcome: Outcome | None = None
        if starts_here:
            outcome = (
                self.scheduler.start_eagerly(start)
                if traits.is_async
                else run_tool(start)
            )
            # there was nothing that could be ended or hear of it
            if outcome is not None and not (
                type(outcome) is Returned and outcome.pending
            ):
                self._end(watcher, state, tool, outcome, until)
                del outcome  # the traceback of an error in it holds this frame
                return
        attempt = Attempt(
            start,
            self._report_within,
            watcher=watcher,
            state=state,
            tool=tool,
            number=effect.attempt,
            until=until,
            flag=flag,
        )
        self.under_way[state] = attempt
        if outcome is not None:
            self._report(attempt, outcome)
        elif starts_here:
            self.scheduler.continue_in_task(attempt)
        elif tool.isolation != "none":
            attempt.apart = self.services.call_isolated(
                tool, start.keywords, effect.timeout_s, watcher.environment(state)
            )
            self._in_thread(attempt, attempt.apart)
        elif tool.is_async:
            scheduler.start(self.scheduler, attempt)
        elif tool.blocking:
            self._in_thread(attempt, start)
        else:
            self._report(attempt, run_tool(start))
        if self.under_way.get(state) is attempt:  # it has not ended meanwhile
            self._set_alarm(attempt, effect.timeout_s)

    def cancel(self, hard: bool) -> None:
        """End the reads, and at once; a write has until its deadline, unless `hard`."""
        for attempt in list(self.under_way.values()):
            if (hard or not attempt.tool.writes) and not attempt.ending:
                attempt.by_cancel = True
                self._expire(attempt)

    def abandon(self) -> None:
        """Go on without everything that is under way."""
        for attempt in list(self.under_way.values()):
            self._lose(attempt)
            attempt.cancel()
            if attempt.apart is not None:
                attempt.apart.kill()

    def stop_sharing_alarms(self) -> None:
        """Let attempts that start from now on share no alarm with earlier ones."""
        self.together.clear()

    def cancel_alarms(self) -> None:
        """Cancel every alarm."""
        for alarm in self.alarms:
            alarm.cancel()
        self.alarms = ()

    # ------------------------------------------------------------------ ending

    def _in_thread(self, attempt: Attempt, call: Callable[[], Any]) -> None:
        """Make the call in a thread, which reports when it has ended."""
        attempt.job = self.services.threads.submit(
            call,
            partial(self.scheduler.call_soon_threadsafe, self._report_within, attempt),
            attempt.tool.name,
        )

    def _await_result(self, attempt: Attempt, awaitable: Awaitable[Any]) -> None:
        """Go on with what a plain function returned: a coroutine, which is still to be awaited."""
        attempt.begin = partial(_identity, awaitable)
        scheduler.start(self.scheduler, attempt)

    def _report_within(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take how a tool ended in a task or a thread, with the context variables of its caller."""
        self.within(self._report, attempt, outcome)

    def _report(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take how a tool ended, and pass it on."""
        # They refer to the attempt: what is over is not to wait for the garbage collector.
        attempt.job = None
        attempt.task = None
        if attempt.given_up:
            self.services.given_up.discard(attempt)
            attempt.watcher.take_late_report(attempt, outcome)
            return
        if is_awaitable(outcome):
            self._await_result(attempt, outcome.value)
            return
        del self.under_way[attempt.state]
        until: float | None = attempt.until
        if attempt.ending:
            outcome = _interpret_interrupted(outcome, attempt)
            until = None
        self._end(attempt.watcher, attempt.state, attempt.tool, outcome, until)

    def _end(
        self,
        watcher: AttemptListener,
        state: CallState,
        tool: BaseTool,
        outcome: Outcome,
        until: float | None,
    ) -> None:
        """Take how a tool ended, and answer with it.

        Args:
            until: When its time was over; None of a tool that was interrupted.
        """
        if type(outcome) is Returned:
            if until is not None and self.now() > until:
                # one that blocks the loop is late without having been ended
                outcome.late = True
            if self.troubled and tool.name in self.troubled:
                self._note_reach(tool, outcome)
            watcher.answer(state, outcome)
            return
        if until is not None and type(outcome) is Unfinished:
            outcome = Raised(RuntimeError("the tool cancelled itself"))
        outcome = watcher.let_pass(tool, outcome)
        if tool.limits.breaker:
            self._note_reach(tool, outcome)
        if type(outcome) is Raised and not isinstance(outcome.error, ToolError):
            with watcher.within_trace(state):
                self._log_error(tool, outcome)
        watcher.answer(state, outcome)

    def _log_error(self, tool: BaseTool, outcome: Raised) -> None:
        """Log the text of an error, under the reference that the model reads; of one that may pass it reads none."""
        details = []
        if not retries.diagnose(outcome, tool.name, tool.timeout_s).passing:
            details.append(f"reference {outcome.reference}")
        status = retries.http_status(outcome.error)
        if status:
            details.append(f"HTTP {status}")
        suffix = f" ({', '.join(details)})" if details else ""
        logs.log_exception(
            f"{tool.name} raised in run {self.run_id}{suffix}",
            outcome.error,
            redacted=self.secrets.text,
        )

    def _note_reach(self, tool: BaseTool, outcome: Outcome) -> None:
        """Tell the tool's breaker whether an attempt reached what the tool needs."""
        limits = self.services.limits
        if isinstance(outcome, Returned):
            limits.note_reached(tool.name)
        elif not (
            isinstance(outcome, Unfinished)
            and (outcome.cancelled or outcome.end is End.NOT_STARTED)
        ):
            diagnosis = retries.diagnose(outcome, tool.name, tool.timeout_s)
            code = diagnosis.failure.code
            if diagnosis.passing and (not diagnosis.worded or code == Code.UNAVAILABLE):
                limits.note_failed(tool.name, tool.limits.breaker, self.now())
            else:
                limits.note_reached(tool.name)

    # ------------------------------------------------------------------ deadlines

    def _set_alarm(self, attempt: Attempt, seconds: float) -> None:
        """Set an alarm for the end of an attempt's time. Attempts that begin together with the same time share one."""
        together = self.together.get(seconds)
        if together is not None:
            together.append(attempt)
            return
        together = [attempt]
        self.together[seconds] = together
        alarm = self.scheduler.call_later(seconds, self._ring, together)
        self.alarms = (*self.alarms, alarm)

    def _ring(self, attempts: Sequence[Attempt]) -> None:
        """End those of these attempts that are still under way: their time is over."""
        for attempt in attempts:
            if not attempt.ending and self.under_way.get(attempt.state) is attempt:
                self._expire(attempt)

    def _expire(self, attempt: Attempt) -> None:
        """End an attempt whose time is over, and give it up if it will not end."""
        attempt.ending = True
        if attempt.flag is not None:
            attempt.flag.set()
        if attempt.job is None:
            attempt.cancel()
            self.scheduler.call_later(CANCEL_GRACE_S, self._give_up, attempt)
        elif attempt.apart is not None:
            # it reports that by itself; if it does not, it is given up as any other
            attempt.apart.kill()
            self.scheduler.call_later(CANCEL_GRACE_S, self._give_up, attempt)
        elif self.services.threads.withdraw(attempt.job):
            holders = self.services.threads.describe_holders()
            if holders:
                logs.log.warning("%s was not started. %s", attempt.tool.name, holders)
            self._give_up(attempt, End.NOT_STARTED, holders)
        else:
            self._give_up(attempt)

    def _give_up(
        self, attempt: Attempt, end: End = End.RUNNING_ON, holders: str = ""
    ) -> None:
        """Answer without the tool; observers get a report that comes after all."""
        if self.under_way.get(attempt.state) is not attempt:
            return  # it ended in time
        if end is End.RUNNING_ON:
            self._lose(attempt)
        else:
            del self.under_way[attempt.state]
        self._end(
            attempt.watcher,
            attempt.state,
            attempt.tool,
            Unfinished(end, attempt.by_cancel, holders),
            None,
        )

    def _lose(self, attempt: Attempt) -> None:
        """Go on without an attempt that is under way."""
        attempt.given_up = True
        del self.under_way[attempt.state]
        self.services.given_up.add(attempt)


def is_awaitable(outcome: Outcome) -> TypeGuard[Returned]:
    """Whether a function returned a coroutine, or something else that is still to be awaited."""
    return type(outcome) is Returned and outcome.pending


def _identity(value: Any) -> Any:
    return value


def _interpret_interrupted(outcome: Outcome, attempt: Attempt) -> Outcome:
    """Return what an outcome means that came after the tool was interrupted."""
    match outcome:
        case Raised(error=ProcessEnded(started=False)):
            return Unfinished(End.NOT_STARTED, attempt.by_cancel)
        case Returned(value=value):
            return Returned(value, late=True)
        case Raised(error=ToolError()):
            return outcome  # it used its last moment to say something
        case _:
            # it broke off where it was interrupted
            return Unfinished(End.STOPPED, attempt.by_cancel)
