"""Calls the user's functions other than tools, and reads their answers.

Rule 1: only a clear answer of an approver approves, and only a clear answer of `verify` says what happened.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, get_args

from handrail import logs
from handrail.effects import (
    Approval,
    ApprovalScope,
    Found,
    NotFound,
    Raised,
    Returned,
    Unknown,
    Verification,
)
from handrail.workers.fork_safety import run_in_one_process
from handrail.workers.threads import ThreadPool, wrap_error, wrap_value


async def call_user(work: partial[Any], threads: ThreadPool) -> Returned | Raised:
    """Call a function of the user: a coroutine function here, a plain one in a thread."""
    if inspect.iscoroutinefunction(work.func) or inspect.iscoroutinefunction(
        type(work.func).__call__
    ):
        return await await_outcome(work)
    loop = asyncio.get_running_loop()
    end: asyncio.Future[Returned | Raised] = loop.create_future()
    threads.submit(work, lambda outcome: _post(loop, end, outcome))
    outcome = await end
    if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
        return await await_outcome(lambda: outcome.value)
    return outcome


def _set(end: asyncio.Future[Any], outcome: Any) -> None:
    if not end.done():
        end.set_result(outcome)


def _post(
    loop: asyncio.AbstractEventLoop, end: asyncio.Future[Any], outcome: Any
) -> None:
    """Bring a thread's report into the loop, unless it has been closed meanwhile."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_set, end, outcome)


def is_cancelled_from_outside() -> bool:
    """Return whether somebody cancels the running task; else a CancelledError comes from what it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def await_outcome(start: Callable[[], Awaitable[Any]]) -> Returned | Raised:
    """Start something async and return how it ended. Being cancelled is not an outcome: it is raised."""
    try:
        return wrap_value(await _Steps(_await(start)))
    except asyncio.CancelledError:
        if is_cancelled_from_outside():
            raise
        return Raised(RuntimeError("the tool cancelled itself"))
    except BaseException as error:  # the one broad catch around a user's tool
        return wrap_error(error)


class _Steps(Generator[Any, Any, Any]):
    """The steps of something async. A fork ends where it would return from one, before the loop runs others in it."""

    def __init__(self, steps: Coroutine[Any, Any, Any]) -> None:
        self._steps = steps

    def send(self, value: Any) -> Any:
        return run_in_one_process(self._steps.send, value)

    def throw(self, error: Any, *rest: Any) -> Any:
        return run_in_one_process(
            self._steps.throw, rest[0] if rest and rest[0] is not None else error
        )

    def __await__(self) -> Generator[Any, Any, Any]:
        return self


async def _await(start: Callable[[], Awaitable[Any]]) -> Any:
    return await start()


NOT_ASKED = Approval(False, reason="the approval could not be asked for")
"""The answer of an approver that raised, where nobody else can be asked."""


def parse_approval(outcome: Returned | Raised) -> Approval | None:
    """Return the decision in what an approver returned. Only True and an `Approval` approve: "no" is true as well."""
    if isinstance(outcome, Raised):
        logs.log_exception("the approver raised instead of answering", outcome.error)
        return NOT_ASKED
    answer = outcome.value
    if isinstance(answer, Approval):
        by = str(answer.by or "")
        reason = str(answer.reason or "")
        if answer.granted is not True or not _can_be_arguments(answer.arguments):
            return Approval(False, by, reason)
        scope = answer.scope if answer.scope in _SCOPES else "once"
        return Approval(True, by, reason, answer.arguments, scope=scope)
    if answer is None or isinstance(answer, bool):
        return None if answer is None else Approval(answer)
    logs.log.warning(
        "an approver answered with a %s; only True or an Approval agrees",
        type(answer).__name__,
    )
    return Approval(False, reason="the approver gave no clear answer")


_SCOPES = get_args(ApprovalScope)


def _can_be_arguments(arguments: Any) -> bool:
    """Return whether these are arguments as a person may edit them, or None."""
    try:
        return arguments is None or (
            isinstance(arguments, Mapping) and bool(json.dumps(dict(arguments)))
        )
    except (TypeError, ValueError, RecursionError):  # no JSON, so no arguments
        return False


def parse_verification(
    outcome: Returned | Raised, tool_name: str, function: Any
) -> Verification:
    """Return what a tool's `verify` found. Anything but `Found` and `NotFound` means that nobody knows.

    An exception, or a value of another type, is logged: the write stays in doubt until somebody mends `verify`.

    Args:
        function: The `verify` that was called, for the place in the log.
    """
    what = f"`verify` of {tool_name!r}"
    if isinstance(outcome, Raised):
        logs.log_exception(f"{what} raised", outcome.error, function)
        return Unknown()
    answer = outcome.value
    if isinstance(answer, Found | NotFound | Unknown):
        return answer
    logs.log.warning(
        "%s returned a %s; only `Found` and `NotFound` say what happened",
        what,
        type(answer).__name__,
    )
    return Unknown()
