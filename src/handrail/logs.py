"""What goes to the log about an exception of somebody else's code.

Its type and its place say where to look and are safe to keep. Its text and its traceback may hold a password or a
customer's name, so they are written at level DEBUG only, which production does not keep.
"""

from __future__ import annotations

import logging
from pathlib import PurePath
from types import TracebackType

log = logging.getLogger("handrail")


def raised(what: str, error: BaseException) -> None:
    """Log that something raised, as `what`: a sentence without contents."""
    log.warning("%s: %s%s", what, type(error).__name__, _place(error.__traceback__))
    log.debug("%s", what, exc_info=error)


def _place(trace: TracebackType | None) -> str:
    """Say where an exception came from: the last step of its traceback."""
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f" in {code.co_name} ({PurePath(code.co_filename).name}:{trace.tb_lineno})"
