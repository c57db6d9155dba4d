"""Exit codes of the commands.

A run's code reports the worst that a person must know of: a write in doubt outweighs a good answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from handrail.errors import Code, Failure, HandrailError, SetupError


class Exit(IntEnum):
    """The exit codes; those that are `is_documented` are listed in `handrail --help`."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        code_with_meaning = int.__new__(cls, code)
        code_with_meaning._value_ = code
        code_with_meaning.meaning = meaning
        return code_with_meaning

    OK = 0, "success"
    ERROR = 1, "the run, or the call, ended in an error"
    USAGE = 2, "the command line, a file, a key or a tool is not usable as given"
    WAITING = 3, "a call waits for approval; a run that waits prints its id"
    BUDGET = 4, "the budget is used up"
    DENIED = 5, "a policy or a person denied a call"
    IN_DOUBT = 6, "a write may or may not have happened: a person must look"
    INTERRUPTED = 130, "interrupted by Ctrl-C"
    NOBODY_READS = 141, ""
    """The reader of our output has gone; the code that a shell reports for other programs then."""

    @property
    def is_documented(self) -> bool:
        """Whether `handrail --help` lists it."""
        return bool(self.meaning)


_OF_STATUS: Mapping[str, Exit] = {
    "done": Exit.OK,
    "waiting": Exit.WAITING,
    "budget": Exit.BUDGET,
    "cancelled": Exit.INTERRUPTED,
}

_OF_FAILURE: Mapping[str, Exit] = {
    Code.APPROVAL_PENDING: Exit.WAITING,
    Code.RESULT_PENDING: Exit.WAITING,
    Code.BUDGET_EXHAUSTED: Exit.BUDGET,
    Code.NOT_PERMITTED: Exit.DENIED,
    Code.NOT_APPROVED: Exit.DENIED,
    Code.APPROVAL_EXPIRED: Exit.DENIED,
    Code.IN_DOUBT: Exit.IN_DOUBT,
    Code.CANCELLED: Exit.INTERRUPTED,
}


def of_error(error: HandrailError) -> Exit:
    """Return the code for an exception: 2 for a mistake of the caller, 1 for any other failure."""
    if isinstance(error, SetupError):
        return Exit.USAGE
    return Exit.ERROR


def of_failure(failure: Failure | None) -> Exit:
    """Return the code for one call."""
    if failure is None:
        return Exit.OK
    return _OF_FAILURE.get(failure.code, Exit.ERROR)


def of_run(status: str, failures: Iterable[Failure | None]) -> Exit:
    """Return the code for a run: in doubt first, then its end, then a denied call on the way."""
    codes = {of_failure(failure) for failure in failures}
    ending = _OF_STATUS.get(status, Exit.ERROR)
    if Exit.IN_DOUBT in codes:
        return Exit.IN_DOUBT
    if ending is Exit.OK and Exit.DENIED in codes:
        return Exit.DENIED
    return ending
