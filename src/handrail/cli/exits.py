"""Exit codes: what a shell script learns from a command.

A run tells the worst that a person must know of: a write in doubt outweighs a fine answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from handrail.errors import Code, Failure, HandrailError, SetupError


class Exit(IntEnum):
    """The exit codes; those that are `told` stand in `handrail --help`."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made

    OK = 0, "it is done"
    ERROR = 1, "the run, or the call, ended in an error"
    USAGE = 2, "the command line, a file, a key or a tool cannot be used as given"
    WAITING = 3, "a call waits for approval; a run that waits prints its id"
    BUDGET = 4, "the budget is used up"
    DENIED = 5, "a policy or a person denied a call"
    IN_DOUBT = 6, "a write may or may not have happened: a person must look"
    INTERRUPTED = 130, "interrupted by Ctrl-C"
    NOBODY_READS = 141, ""
    """Whoever read our output has gone; what the shell reports of other programs then."""

    @property
    def told(self) -> bool:
        """Whether users need to know of it."""
        return bool(self.meaning)


_OF_STATUS: Mapping[str, Exit] = {
    "done": Exit.OK,
    "waiting": Exit.WAITING,
    "budget": Exit.BUDGET,
    "cancelled": Exit.INTERRUPTED,
}

_OF_FAILURE: Mapping[str, Exit] = {
    Code.APPROVAL_PENDING: Exit.WAITING,
    Code.BUDGET_EXHAUSTED: Exit.BUDGET,
    Code.NOT_PERMITTED: Exit.DENIED,
    Code.NOT_APPROVED: Exit.DENIED,
    Code.APPROVAL_EXPIRED: Exit.DENIED,
    Code.IN_DOUBT: Exit.IN_DOUBT,
    Code.CANCELLED: Exit.INTERRUPTED,
}


def of_error(error: HandrailError) -> Exit:
    """Return the code for an exception: 2 for what the caller must set right, 1 for what went wrong."""
    if isinstance(error, SetupError):
        return Exit.USAGE
    return Exit.ERROR


def of_failure(failure: Failure | None) -> Exit:
    """Return the code for one call."""
    if failure is None:
        return Exit.OK
    return _OF_FAILURE.get(failure.code, Exit.ERROR)


def of_run(status: str, failures: Iterable[Failure | None]) -> Exit:
    """Return the code for a run: in doubt before all else, then how it ended, then what was denied on the way."""
    met = {of_failure(failure) for failure in failures}
    ended = _OF_STATUS.get(status, Exit.ERROR)
    if Exit.IN_DOUBT in met:
        return Exit.IN_DOUBT
    if ended is Exit.OK and Exit.DENIED in met:
        return Exit.DENIED
    return ended
