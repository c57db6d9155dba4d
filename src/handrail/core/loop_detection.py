"""Whether a model turns in a circle: the same calls again and again, without new information.

A call repeats when tool, arguments and what came back are equal to an earlier one's. Seen are circles of one call
(A A A), of two (A B A B A B) and of three. After the second time round the model is told, and with the third the run
ends.

Rule 1: a call whose result differs is news, and starts the count anew.
Rule 2: a tool that declares `poll=True` is never counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

LONGEST_CIRCLE = 3
TOLD_AT, STOPPED_AT = 2, 3

Step: TypeAlias = tuple[str, str, Any]
"""The text that the model got back, tool name and arguments. Compared by `==`: no digest is made, and mostly the texts,
which stand first, differ already."""

NOTE = (
    "This call and its result are the same as before. Use the result, call differently, or answer; "
    "the same call once more is refused."
)


class LoopDetector(Struct):
    """The last calls of a run, as far back as a circle can reach."""

    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=LONGEST_CIRCLE * STOPPED_AT))

    def is_news(self, step: Step) -> bool:
        """Whether nothing is known of such a call, as of nearly every one; then it is added."""
        if step in self.steps:
            return False
        self.steps.append(step)
        return True

    def rounds_with(self, step: Step) -> int:
        """Add a finished call; return how often the circle that it closes has been gone round (1: no circle)."""
        if self.is_news(step):
            return 1
        self.steps.append(step)
        steps = list(self.steps)
        return max(_rounds(steps, length) for length in range(1, LONGEST_CIRCLE + 1))


def _rounds(steps: Sequence[Step], length: int) -> int:
    """How many equal runs of `length` steps stand at the end."""
    last, count = steps[len(steps) - length :], 1
    while (end := len(steps) - count * length) >= length and steps[end - length : end] == last:
        count += 1
    return count
