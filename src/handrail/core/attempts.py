"""The attempts of one call: how each starts, how long it may take, and what follows when it fails.

Reads and writes share these steps; whether a failed attempt may be repeated is for each of them to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from msgspec import Struct
from pydantic_core import from_json

from handrail.core import results, retries
from handrail.core.admission import Admitted
from handrail.core.run_settings import RunSettings
from handrail.effects import (
    CallCancelled,
    Compute,
    Effect,
    Invoke,
    Outcome,
    Raised,
    Reserve,
    Returned,
    Unfinished,
    Wait,
)
from handrail.errors import Code, Failure, StoreUnavailable
from handrail.events import AttemptFailed
from handrail.tools import materialize
from handrail.tools.tool import BaseTool

_SHORTEST_ATTEMPT_S = 0.01

T = TypeVar("T")


class CallOutcome(Struct):
    """How a call ended, before its result is shaped for the model."""

    call: Admitted
    value: Any = None
    failure: Failure | None = None
    attempts: int = 0
    replayed: bool = False
    note: str = ""
    size: int = 0
    """About how many bytes the value takes as JSON; 0 where nobody measured it."""
    done_under: str = ""
    """The ledger's key of the write, if it is not the key with which the call was admitted."""
    plain: bool = False
    """Whether the value is plain for certain; see `effects.Returned`."""
    body: bytes | None = None
    """The value as JSON, where it was encoded for the ledger."""
    why: str = ""
    """Why a write is in doubt, for people: the attempt and the class of its exception."""
    runs_on: bool = False
    """Whether the tool has not ended."""


def reserve(call: Admitted) -> Generator[Effect[Admitted], Any, Failure | None]:
    """Wait for the call's turn on its resources; return a failure if it does not come in time."""
    reserved: bool | Failure = yield Reserve(call)
    if reserved is True:
        return None
    return reserved or retries.not_started(call.tool.name)


def start_attempt(
    call: Admitted,
    attempt: int,
    began: float,
    settings: RunSettings,
    *,
    doubtful: bool = False,
) -> Invoke[Admitted]:
    """Return the effect that starts a tool for the n-th time, with the rest of its time.

    Args:
        doubtful: An earlier attempt may have taken effect.
    """
    # The first attempt gets exactly the declared time, not that less a microsecond: calls that start together then have
    # one and the same time, and a driver needs one timer for them.
    traits = call.traits
    left_s = settings.deadline.at - began
    if traits.timeout_s < left_s:
        left_s = traits.timeout_s
    if attempt > 1:
        left_s -= settings.now() - began
    most_s = traits.attempt_timeout_s
    if most_s is not None and most_s < left_s:
        left_s = most_s
    return Invoke(call, attempt, left_s if left_s > 0 else 0.0, doubtful)


def time_limit_s(tool: BaseTool, began: float, settings: RunSettings) -> float:
    """Return how long an attempt may take; in a run that ends sooner, what it had left when the call began."""
    declared_s = tool.limits.attempt_timeout_s or tool.timeout_s
    left_s = settings.deadline.at - began
    if declared_s <= left_s:
        return declared_s
    return float(f"{max(left_s, 0.0):.3g}")


def wait_before(
    attempt: int,
    diagnosis: retries.Diagnosis,
    tool: BaseTool,
    *,
    deadline: float,
    settings: RunSettings,
) -> float | None:
    """Return how long to wait before `attempt`; None when there must not be one."""
    if not diagnosis.passing or attempt > tool.limits.max_attempts:
        return None
    wait_s = settings.backoff.before(attempt, settings.jitter())
    if diagnosis.after_s is not None:
        wait_s = max(wait_s, diagnosis.after_s)
    if settings.now() + wait_s + _SHORTEST_ATTEMPT_S >= deadline:
        return None
    return wait_s


def wait(
    seconds: float, call: Admitted, until: float = 0.0
) -> Generator[Effect[Admitted], Any, Failure | None]:
    """Let time pass before the next attempt; return why there is none if the run is cancelled meanwhile.

    Args:
        until: When the lease ends that is waited for; see `effects.Wait`.
    """
    try:
        yield Wait(seconds, until)
    except (StoreUnavailable, CallCancelled):
        return Failure(
            Code.CANCELLED,
            f"The run was cancelled before `{call.tool.name}` was tried again.",
        )
    return None


def report_failed_attempt(
    call: Admitted,
    attempt: int,
    outcome: Outcome,
    diagnosis: retries.Diagnosis,
    *,
    wait_s: float | None,
    settings: RunSettings,
) -> None:
    """Emit the event of an attempt that failed; `wait_s` is None for the last one."""
    tell = settings.tell_all
    if tell is None:
        return
    reason = str(diagnosis.failure.code)
    if isinstance(outcome, Raised):
        reason = outcome.words
    elif isinstance(outcome, Unfinished):
        cause = "cancelled" if outcome.cancelled else "deadline"
        reason = f"{cause}, {outcome.end.value}"
    tell(AttemptFailed(call.call, attempt, reason, wait_s))


def compute(
    size: int, function: Callable[[], T]
) -> Generator[Effect[Admitted], Any, T]:
    """Call `function`, in a thread if its value takes more than `LONG_BYTES` as JSON (`size` bytes)."""
    if size <= materialize.LONG_BYTES:
        return function()
    answer: T = yield Compute(function)
    return answer


def make_outcome(call: Admitted, outcome: Returned, attempts: int) -> CallOutcome:
    """Return how a call ended whose tool returned."""
    note = ""
    if outcome.late:
        note = "it finished after its deadline"
    value = outcome.value
    if outcome.has_iterators and not outcome.plain:
        value = _read_iterators(value)
    return CallOutcome(
        call,
        value,
        attempts=attempts,
        note=note,
        size=outcome.size,
        plain=outcome.plain,
    )


def _read_iterators(value: Any) -> Any:
    """Return a value that can be read twice, by the ledger and for the model."""
    if materialize.is_plain(value, type(value)):  # as nearly every result is
        return value
    try:
        if not materialize.has_iterators(value):
            return value
        items, _, has_iterators = materialize.read(value)
        if not has_iterators:
            return items
        # An object with fields is its author's and keeps its iterators, so its JSON takes its place.
        return from_json(results.encode(items))
    except Exception:
        # the tool's own code raised, or the value contains itself: the first reader gets what there is
        return value
