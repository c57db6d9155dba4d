"""What can go wrong, and who reads about it.

An error has one of two readers. The *model* reads a `Failure`: plain data without traceback or secret. A *person* reads
an exception:

    HandrailError
    ├── SetupError                 a mistake in setting up; raised when the program starts
    │   ├── ToolDefinitionError    a tool cannot be described to a model
    │   ├── DuplicateToolError     two tools of one name
    │   ├── MissingInjection       an injected parameter that nobody filled
    │   └── ConfigError            a model name, a key, a file or an option that cannot be used
    │       ├── RunNameTaken       a new run has the name of a stored one
    │       └── RunUnderWay        a run cannot be gone on with: somebody else carries it out, or has
    ├── ModelError                 the model's provider refused, failed, or answered with garbage
    ├── StoreUnavailable           a store did not answer; nothing was claimed
    ├── JournalMismatch            the journal of a run does not fit the code that resumes it
    ├── Fenced                     another process has taken a run over
    ├── RunPostponed               a worker's run must wait: for a lease, or for a model that is away
    └── ToolError                  raised by a tool's author: a failure that the tool anticipated
        ├── RunWaits               a run that a tool started waits for a person
        ├── FarFailure             another handrail, which the tool called, answered with a failure
        │   └── FarRefusal         ... before it did anything
        └── NoEffect               a write failed, and certainly did not happen
            └── HeldBack           it was not started: its rate or its breaker holds it back

Rule 1: code matches on types and codes, never on the text of a message.
Rule 2: nothing in a `Failure` comes from an exception that the tool's author did not word for the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf
from typing import Any, final

from msgspec import Struct
from msgspec.structs import replace

Json = Any
"""A JSON value: None, bool, int, float, str, or a list or string-keyed dict of these."""


class Code(StrEnum):
    """The codes of the error contract; a tool may add its own in `ToolError`."""

    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    BAD_JSON = "BAD_JSON"
    TRUNCATED_CALL = "TRUNCATED_CALL"
    INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
    RULE_VIOLATED = "RULE_VIOLATED"
    NOT_PERMITTED = "NOT_PERMITTED"
    NOT_APPROVED = "NOT_APPROVED"
    APPROVAL_PENDING = "APPROVAL_PENDING"
    APPROVAL_EXPIRED = "APPROVAL_EXPIRED"
    RESULT_PENDING = "RESULT_PENDING"
    TIMEOUT = "TIMEOUT"
    IN_DOUBT = "IN_DOUBT"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
    IN_PROGRESS = "IN_PROGRESS"
    REPEATED_CALL = "REPEATED_CALL"
    TOOL_ERROR = "TOOL_ERROR"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    RATE_LIMITED = "RATE_LIMITED"
    UNAVAILABLE = "UNAVAILABLE"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    CANCELLED = "CANCELLED"
    NOT_ISOLATED = "NOT_ISOLATED"
    TOO_LARGE = "TOO_LARGE"


ONLY_OURS = frozenset({
    Code.UNKNOWN_TOOL, Code.BAD_JSON, Code.TRUNCATED_CALL, Code.APPROVAL_PENDING, Code.IN_DOUBT, Code.REPEATED_CALL,
    Code.BUDGET_EXHAUSTED, Code.RESULT_PENDING,
})  # fmt: skip
"""Codes that only handrail may give, because runs wait or end by them. From a tool they become `TOOL_ERROR`."""

PENDING = frozenset({Code.APPROVAL_PENDING, Code.RESULT_PENDING})
"""The codes of calls that wait for somebody outside: such a result is not final, and its run waits."""


@final
class Failure(Struct, frozen=True):
    """A failure for the model: what was wrong with the call, what would be right, what to do next.

    `retryable` has one meaning: the same call, unchanged, may succeed later. `details` lists the faults where there are
    several, each a JSON object with `field`, `message` and perhaps `expected`.
    """

    code: str
    message: str
    suggestion: str = ""
    retryable: bool = False
    details: Sequence[Json] = ()

    def as_json(self) -> dict[str, Json]:
        """Return the error contract as the model reads it; `details` appears only with several faults."""
        document: dict[str, Json] = {
            "success": False,
            "error_code": str(self.code),
            "error_message": self.message,
            "suggestion": self.suggestion,
            "retryable": self.retryable,
        }
        if len(self.details) > 1:
            document["details"] = list(self.details)
        return document


def describe_install(extras: str) -> str:
    """Return the command that installs extras, such as `mcp` or `postgres,sql`, as handrail itself was installed."""
    # here: programs that lack nothing need no search for what is installed
    import json
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        known = metadata.distribution("handrail").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        known = None
    origin = json.loads(known or "{}")
    if origin.get("dir_info", {}).get("editable"):
        folder = url2pathname(urlsplit(origin["url"]).path)
        return f"pip install -e '{folder}[{extras}]'"
    return f"pip install 'handrail[{extras}]'"


class HandrailError(Exception):
    """The root of every exception that handrail raises on purpose."""


class SetupError(HandrailError):
    """A mistake in setting up, raised before any model or tool is called. The model never sees it."""


class ToolDefinitionError(SetupError):
    """A tool cannot be described to a model, or its declaration contradicts itself."""


class DuplicateToolError(SetupError):
    """Two tools of one name meet in one toolset, or two names become one on a provider's wire."""


class MissingInjection(SetupError):
    """A tool needs an injected parameter or `deps` that the caller did not give.

    Raised to the engineer before the model is asked; the model never sees it, as it could not repair it.
    """


class ConfigError(SetupError):
    """A model name, key, address, file or option that cannot be used as given."""


class RunNameTaken(ConfigError):
    """A new run has the name of a stored run. Nothing was started, and the stored run is not affected.

    Where a job is delivered to several workers, all but the first get this error and should drop the job.
    """


class RunUnderWay(ConfigError):
    """A run cannot be resumed, or be asked another question, because somebody else does. Nothing was changed.

    Of several callers that ask the next question of one conversation at the same moment, all but one get this error.
    """


class ModelError(HandrailError):
    """The model's provider could not be reached, refused the request, or answered with something unreadable.

    Attributes:
        status: HTTP status, or None when no answer came.
        code: The provider's own error code, or a word of ours: `unreachable`, `timeout`, `unreadable`.
        retryable: The same request may succeed later.
        retry_after_s: The wait that the provider asked for, if it did.
        answered: The model has answered, and only what it wrote cannot be read: its provider is not away.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "",
        retryable: bool = False,
        retry_after_s: float | None = None,
        answered: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.answered = answered


class StoreUnavailable(HandrailError):
    """A store did not answer. Nothing was claimed; a write must not run."""


class JournalMismatch(HandrailError):
    """The journal of a run does not fit the code that resumes it; nothing was run.

    Raised to the engineer by `resume`, `replay` and `fork`. The model never sees it.
    """


class Fenced(HandrailError):
    """Another process has taken this run over; nothing more that this process does in it is recorded.

    The driver leaves the run without an error: the run continues elsewhere.
    """


class RunPostponed(HandrailError):
    """A worker's run must wait, and gives up its place in the worker meanwhile.

    It waits for the lease of an earlier process, or for a model that is away. Raised by `Runtime.resume` if `epoch`, or
    `model_wait`, is given. The worker catches it and leaves the run in the store; no model sees it.

    Attributes:
        wait_s: Seconds until the run can go on.
        model_turn: The turn for which the model was asked; 0 where the run waits for a lease.
    """

    def __init__(self, reason: str, wait_s: float, *, model_turn: int = 0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        self.model_turn = model_turn


class ToolError(HandrailError):
    """A failure that a tool saw coming, worded by its author for the model.

        raise ToolError("ORDER_NOT_FOUND", "There is no order 881.", suggestion="Look it up with `find_orders`.")

    With one positional argument the code is `TOOL_ERROR`, which also replaces a code in `ONLY_OURS`.
    The message goes to the model unchanged: no secrets in it.

    Args:
        retryable: The same call, unchanged, may succeed later; it is retried within its deadline. For a write this also
            states that nothing happened, as `NoEffect` does. If you do not know that, let your exception pass.
        retry_after_s: The wait that the far side asked for; a value that is no time, such as infinity, is ignored.
    """

    def __init__(
        self,
        code: str,
        message: str | None = None,
        *,
        suggestion: str = "",
        retryable: bool = False,
        retry_after_s: float | None = None,
        details: Sequence[Mapping[str, Json]] = (),
    ) -> None:
        if message is None:
            message = code
            code = Code.TOOL_ERROR
        super().__init__(message)
        self.failure = Failure(code, message, suggestion, retryable, tuple(details))
        try:
            # a header is text
            seconds = -1.0 if retry_after_s is None else float(retry_after_s)
        except (TypeError, ValueError, OverflowError):
            seconds = -1.0
        self.retry_after_s = seconds if 0 <= seconds < inf else None

    @property
    def failure_for_model(self) -> Failure:
        """The failure, with `TOOL_ERROR` for a code in `ONLY_OURS`: such a code could make a run wait for nobody."""
        if self.failure.code in ONLY_OURS:
            return replace(self.failure, code=Code.TOOL_ERROR)
        return self.failure


class RunWaits(ToolError):
    """A run that a tool started waits for a person, so its call waits too. Raised by `Context.run`; do not catch it."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(
            Code.APPROVAL_PENDING,
            f"A part of this is {reason}, and nobody has answered yet (run {run_id}).",
            suggestion="Do not call it again meanwhile; tell the user that it waits for approval.",
        )

    @property
    def failure_for_model(self) -> Failure:
        """This failure unchanged, since a person was really asked."""
        return self.failure


class NoEffect(ToolError):
    """A failure of a write that certainly did not happen: it may be tried again, and is not left in doubt."""


class FarFailure(ToolError):
    """A failure in the words of the error contract, from a service that keeps it: another handrail, over MCP.

    It reaches the model as what it is. Codes that `ToolError` hides, because runs wait or end by them, are meant here:
    a write in doubt there is in doubt here too, and a call that waits for a person there makes this run wait. The other
    codes of `ONLY_OURS` speak of the far side's own run, and become `TOOL_ERROR`.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(
            failure.code,
            failure.message,
            suggestion=failure.suggestion,
            retryable=failure.retryable,
            details=failure.details,
        )

    @property
    def failure_for_model(self) -> Failure:
        """The failure; with `TOOL_ERROR` for a code that only means something in the far side's run."""
        if self.failure.code in _MEANT_FROM_AFAR:
            return self.failure
        return super().failure_for_model


_MEANT_FROM_AFAR = PENDING | {Code.IN_DOUBT}


class FarRefusal(FarFailure, NoEffect):
    """A failure of another handrail that was there before anything was done, such as a call that nobody approved."""


class HeldBack(NoEffect):
    """A tool was not started, because its rate or its breaker holds it back. Raised by drivers, never tried again."""


class TooLarge(ToolError):
    """A tool returned more than a result may hold. Replaces the value, and the model reads `TOO_LARGE`.

    The tool has ended, so if it is a write, the write is done.

    Args:
        what: What it returned, such as `more than 1,000,000 values`.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            Code.TOO_LARGE,
            f"The tool returned {what}, which is too large for a result.",
            suggestion="Ask for less: fewer rows, a narrower filter or one page.",
        )
