"""What goes to the log about an exception of somebody else's code.

Its type and its place say where to look and are safe to store. Its text and its traceback may hold a password or a
customer's name, so they are written at level DEBUG only, which production leaves out.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import Any

log = logging.getLogger("handrail")


_LONGEST_WORD = 120
_LONGEST_TEXT = 2000


class RaisedElsewhere(RuntimeError):
    """An exception that a tool raised in its sandbox, as reported from there: untrusted text, so cut and on one line.

    Attributes:
        kind: The exception's type.
        place: Where it came from: `function (file.py:12)`.
    """

    def __init__(self, text: str, kind: str, place: str) -> None:
        super().__init__(_visible(text, _LONGEST_TEXT))
        self.kind = _visible(kind, _LONGEST_WORD)
        self.place = _visible(place, _LONGEST_WORD)


def _visible(text: str, most: int) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:most])


def log_exception(
    what: str,
    error: BaseException,
    function: Any = None,
    *,
    redacted: Callable[[str], str] | None = None,
) -> None:
    """Log that something raised, as `what`: a sentence without contents.

    Args:
        function: The author's function that was called. The logged place is the last frame in its file, or its start.
        redacted: Returns the traceback without secrets.
    """
    if isinstance(error, RaisedElsewhere):
        log.warning(
            "%s: %s in %s, as reported from its sandbox", what, error.kind, error.place
        )
    else:
        log.warning(
            "%s: %s%s",
            what,
            type(error).__name__,
            _place(error.__traceback__, function),
        )
    if redacted is None:
        log.debug("%s", what, exc_info=error)
    elif log.isEnabledFor(logging.DEBUG):
        log.debug("%s\n%s", what, redacted("".join(traceback.format_exception(error))))


def _place(trace: TracebackType | None, function: Any) -> str:
    """Return where an exception was raised: the last frame of its traceback, or the last one in the function's file."""
    own = None
    last = None
    if callable(function):
        own = getattr(inspect.unwrap(function), "__code__", None)
    if own is not None:
        last = (own, own.co_firstlineno)
    while trace is not None:
        code = trace.tb_frame.f_code
        if own is None or code.co_filename == own.co_filename:
            last = code, trace.tb_lineno
        trace = trace.tb_next
    if last is None:
        return ""
    code, line = last
    return f" in {code.co_name} ({PurePath(code.co_filename).name}:{line})"
