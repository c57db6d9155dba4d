"""Whether a failed attempt is tried again, decided by what failed and what the call does; and for how long a run waits
for its model.

A failure is one of four: transient and without effect, transient and perhaps with an effect, permanent, or worded by
its author. Reads are tried again after a transient one; writes only when it certainly had no effect, or when the far
side recognises duplicates.

Rule 1: an exception's type and status speak for one request. They say that a write had no effect only where its tool
        declares that it makes no other (`hr.Write(one_request=True)`): one that pays and then cannot reach its notifier
        raises `ConnectionRefusedError` too.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import ceil, isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from handrail.effects import End, Raised, Unfinished
from handrail.errors import (
    Code,
    Failure,
    HeldBack,
    Json,
    ModelError,
    NoEffect,
    TooLarge,
    ToolError,
)
from handrail.records import ModelWait
from handrail.surroundings.clock import unix_time


class Backoff(Struct, frozen=True):
    """How long to wait before each new attempt, in seconds: doubling from `first_s`, never above `most_s`."""

    first_s: float = 0.2
    most_s: float = 5.0

    def before(self, attempt: int, jitter: float) -> float:
        """Return the wait before `attempt` (the first retry is 2), spread by `jitter` from [0, 1].

        "Full jitter": a uniform share of the capped exponential, so that clients which failed together do not come back
        together.
        """
        # beyond any ceiling; unbounded, the float overflows near 1,024
        doublings = min(attempt - 2, 32)
        return float(min(self.first_s * 2**doublings, self.most_s) * jitter)


MODEL_WAITS = Backoff(5.0, 300.0)
"""How long a run waits at most before a model that is away is asked again: a minute's outage costs little, and one of
hours a request in five minutes."""


def next_model_wait(wait: ModelWait, error: ModelError, jitter: float) -> float | None:
    """Return how many seconds a run waits before its model is asked again; None where that helps nothing any more.

    At least half of the doubling ceiling is waited, and what the provider asked for. The rest is spread by `jitter`
    from [0, 1]: of the runs that a provider has refused together, not all come back together. The last try comes when
    the run has waited `wait.most_s`.
    """
    left_s = wait.most_s - wait.waited_s
    asked_s = error.retry_after_s or 0.0
    # a wait that is no number is not waited for
    if not error.retryable or error.answered or left_s <= 0 or not asked_s <= left_s:
        return None
    ceiling_s = MODEL_WAITS.before(wait.tries + 2, 1.0)
    spread_s = min(max(asked_s, ceiling_s), MODEL_WAITS.most_s) / 2
    return min(max(asked_s, ceiling_s / 2) + spread_s * jitter, left_s)


def describe_waits(wait: ModelWait) -> str:
    """Return how long a run has waited for its model, for people; empty where it has not.

    >>> describe_waits(ModelWait(3, tries=2, waited_s=4.0))
    'waited twice, 4 s in all'
    >>> describe_waits(ModelWait(3, tries=300, waited_s=86_400.0))
    'waited 300 times, 24 h in all'
    """
    if not wait.tries:
        return ""
    span = f"{wait.waited_s:.0f} s"
    if wait.waited_s >= 2 * 60:
        span = f"{ceil(wait.waited_s / 60)} min"
    if wait.waited_s >= 2 * 3600:
        span = f"{ceil(wait.waited_s / 3600)} h"
    times = {1: "once", 2: "twice"}.get(wait.tries, f"{wait.tries} times")
    return f"waited {times}, {span} in all"


class Diagnosis(Struct, frozen=True):
    """What a failed attempt says about the call.

    Attributes:
        failure: What the model reads if this was the last attempt (of a read, or of a write without effect).
        passing: The same call may succeed later.
        no_effect: A write certainly did not happen.
        after_s: The wait that the far side asked for.
        worded: The tool's author worded the failure for the model.
    """

    failure: Failure
    passing: bool = False
    no_effect: bool = False
    after_s: float | None = None
    worded: bool = False


# By class name, so that no HTTP library is imported to recognise its errors: httpx and httpx2 share these names,
# requests and aiohttp have some of them. The first group failed before anything was sent.
_NOT_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ClientConnectorError",
             "ConnectionTimeoutError", "NewConnectionError", "ConnectionRefusedError", "gaierror"}  # fmt: skip
_TIMED_OUT = {
    "TimeoutError",
    "TimeoutException",
    "ReadTimeout",
    "WriteTimeout",
    "Timeout",
    "ServerTimeoutError",
}
_BROKEN_OFF = {"ConnectionError", "NetworkError", "ReadError", "WriteError", "CloseError", "ProtocolError",
               "RemoteProtocolError", "ClientConnectionError", "ChunkedEncodingError", "ClientOSError",
               "ServerDisconnectedError", "StoreUnavailable"}  # fmt: skip

_AMBIGUOUS_STATUS = {408, 409, 425}
_PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504, 529}


def diagnose(
    outcome: Raised | Unfinished,
    tool: str,
    timeout_s: float,
    *,
    one_request: bool = False,
) -> Diagnosis:
    """Diagnose an attempt that returned no value. Never raises, whatever the attributes of the exception do.

    Args:
        one_request: The tool makes one request, so a request that certainly failed is a write without effect.
    """
    if isinstance(outcome, Unfinished):
        return _diagnose_unfinished(outcome, tool, timeout_s)
    try:
        diagnosis = _diagnose_raised(outcome, tool, timeout_s)
    except Exception:
        # an exception of the author's, whose attributes are code that raised
        return Diagnosis(internal(tool, outcome.reference))
    if diagnosis.worded or one_request:
        return diagnosis
    return replace(diagnosis, no_effect=False)


def _diagnose_raised(outcome: Raised, tool: str, timeout_s: float) -> Diagnosis:
    error = outcome.error
    if isinstance(error, ToolError):
        return Diagnosis(
            error.failure_for_model,
            passing=error.failure.retryable and not isinstance(error, HeldBack),
            # Whoever says that the same call may be made again says that this one did nothing.
            no_effect=isinstance(error, NoEffect) or error.failure.retryable,
            after_s=error.retry_after_s,
            worded=True,
        )
    status, headers = _http_answer(error)
    if status is not None:
        return _by_status(status, headers, tool, outcome.reference)
    if isinstance(error, ModelError):
        return Diagnosis(
            _unavailable(tool), passing=error.retryable, after_s=error.retry_after_s
        )
    return _by_class(error, tool, timeout_s, outcome.reference)


def done_but_too_large(tool: str, error: TooLarge) -> Failure:
    """Return the failure of a write that was made and returned more than can be shown."""
    return replace(
        error.failure,
        message=f"`{tool}` was carried out. {error.failure.message}",
        suggestion="It is done: do not call it again. Look at what it did with a tool that reads less.",
    )


def too_large_again(value: Json) -> Failure | None:
    """Return the failure that `done_but_too_large` put in place of a write's value; None for any other value."""
    match value:
        case {
            "success": False,
            "error_code": Code.TOO_LARGE,
            "error_message": str(message),
            "suggestion": str(suggestion),
        }:
            return Failure(Code.TOO_LARGE, message, suggestion)
    return None


def without_effect(diagnosis: Diagnosis, tool: str) -> Diagnosis:
    """Return the diagnosis of a failed write after it was verified that it did not happen."""
    if not diagnosis.passing and diagnosis.failure.code != Code.IN_DOUBT:
        return replace(diagnosis, no_effect=True)
    failure = Failure(
        Code.UNAVAILABLE,
        f"`{tool}` failed, and it was verified that it did not happen.",
        "It may be called again.",
        retryable=True,
    )
    return replace(diagnosis, failure=failure, no_effect=True)


def _by_class(
    error: Exception, tool: str, timeout_s: float, reference: str
) -> Diagnosis:
    if isinstance(inner := getattr(error, "reason", None), OSError):
        error = inner  # urllib wraps the error of the socket in a URLError
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _NOT_SENT:
        return Diagnosis(_unavailable(tool), passing=True, no_effect=True)
    if names & _TIMED_OUT:
        return Diagnosis(_timeout(tool, timeout_s), passing=True)
    if names & _BROKEN_OFF:
        return Diagnosis(_unavailable(tool), passing=True)
    return Diagnosis(internal(tool, reference))


def _by_status(
    status: int, headers: Mapping[str, str], tool: str, reference: str
) -> Diagnosis:
    after_s = retry_after_s(headers.get("retry-after"))
    if status == 429:
        text = f"The service behind `{tool}` asks for fewer requests."
        wait = "Call it again a little later."
        if after_s:
            wait = f"Wait {after_s:.0f} s before calling it again."
        failure = Failure(Code.RATE_LIMITED, text, wait, retryable=True)
    elif status in _PASSING_STATUS:
        failure = _unavailable(tool, status)
    else:
        failure = internal(tool, reference)
    no_effect = 400 <= status < 500 and status not in _AMBIGUOUS_STATUS
    return Diagnosis(failure, status in _PASSING_STATUS, no_effect, after_s)


def _diagnose_unfinished(outcome: Unfinished, tool: str, timeout_s: float) -> Diagnosis:
    no_effect = outcome.end is End.NOT_STARTED
    if outcome.cancelled:
        failure = Failure(
            Code.CANCELLED, f"The run was cancelled; `{tool}` was {outcome.end.value}."
        )
        return Diagnosis(failure, no_effect=no_effect)
    return Diagnosis(
        _timeout(tool, timeout_s, outcome.end, outcome.holders),
        passing=True,
        no_effect=no_effect,
    )


def _timeout(
    tool: str, timeout_s: float, end: End = End.STOPPED, holders: str = ""
) -> Failure:
    happened = {
        End.NOT_STARTED: f"`{tool}` did not get its turn in time, and was not started.",
        End.STOPPED: f"`{tool}` did not finish within {timeout_s:g} s and was stopped.",
        End.RUNNING_ON: f"`{tool}` did not finish within {timeout_s:g} s. "
        "It could not be stopped and may still be running.",
    }
    return Failure(
        Code.TIMEOUT,
        f"{happened[end]} {holders}".rstrip(),
        "Ask for less at once, or try again later.",
        retryable=True,
    )


def not_started(tool: str) -> Failure:
    """Return the failure of a call that waited for its turn until the run's time was over."""
    return _timeout(tool, 0.0, End.NOT_STARTED)


def _unavailable(tool: str, status: int | None = None) -> Failure:
    happened = "cannot be reached just now"
    if status:
        happened = f"answered with HTTP {status}"
    return Failure(
        Code.UNAVAILABLE,
        f"The service behind `{tool}` {happened}.",
        "Try again later, or go on without it.",
        retryable=True,
    )


def internal(tool: str, reference: str) -> Failure:
    """Return the failure for an error that has no text for the model: a reference, and nothing of the exception."""
    return Failure(
        Code.INTERNAL_ERROR,
        f"`{tool}` failed for a reason of its own (reference {reference}).",
        "Do not repeat the same call; try another way, or tell the user that this part failed.",
    )


def in_doubt(tool: str) -> Failure:
    """Return the failure of a write of which nobody knows whether it happened."""
    return Failure(
        Code.IN_DOUBT,
        f"`{tool}` was started and may have taken effect.",
        "Check with a reading tool whether it happened before trying again; if there is none, tell the user.",
    )


def http_status(error: BaseException) -> int | None:
    """Return the status of the HTTP answer that an exception carries, if it does: safe to log, as its text is not."""
    try:
        return _http_answer(error)[0]
    except Exception:  # its attributes are its author's code
        return None


def _http_answer(error: BaseException) -> tuple[int | None, Mapping[str, str]]:
    """Return status and headers when the exception carries an HTTP answer (httpx, requests, SDKs of providers)."""
    answer = getattr(error, "response", None)
    places = (answer, "status_code"), (error, "status_code"), (error, "status")
    status = next(
        filter(None, (getattr(holder, name, None) for holder, name in places)), None
    )
    headers: Any = (
        getattr(answer, "headers", None) or getattr(error, "headers", None) or {}
    )
    if not isinstance(status, int) or not 100 <= status < 600:
        status = None
    return status, _lower(headers)


def _lower(headers: Any) -> Mapping[str, str]:
    try:
        return {str(name).lower(): str(value) for name, value in dict(headers).items()}
    except (TypeError, ValueError):
        return {}


def retry_after_s(header: str | None, now: float | None = None) -> float | None:
    """Parse a `Retry-After` header (RFC 9110, 10.2.3): seconds, or an HTTP date against `now` (Unix time)."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        if now is None:
            now = unix_time()
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (TypeError, ValueError, IndexError, OverflowError):
            return None
    if isfinite(seconds):
        return max(0.0, seconds)
    return None
