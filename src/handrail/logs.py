"""What goes to the log about an exception of somebody else's code.

Its type and its place say where to look and are safe to keep. Its text and its traceback may hold a password or a
customer's name, so they are written at level DEBUG only, which production does not keep.
"""

from __future__ import annotations

import logging
from pathlib import PurePath
from types import TracebackType

log = logging.getLogger("handrail")


_LONGEST_WORD = 120
_LONGEST_TEXT = 2000


class RaisedElsewhere(RuntimeError):
    """Stands for what a tool raised in its sandbox, as told from there: a stranger's text, so cut and on one line.

    Attributes:
        kind: The exception's type.
        place: Where it came from: `function (file.py:12)`.
    """

    def __init__(self, text: str, kind: str, place: str) -> None:
        super().__init__(_visible(text, _LONGEST_TEXT))
        self.kind, self.place = _visible(kind, _LONGEST_WORD), _visible(place, _LONGEST_WORD)


def _visible(text: str, most: int) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:most])


def raised(what: str, error: BaseException) -> None:
    """Log that something raised, as `what`: a sentence without contents."""
    if isinstance(error, RaisedElsewhere):
        log.warning("%s: %s in %s, as told from its sandbox", what, error.kind, error.place)
    else:
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
