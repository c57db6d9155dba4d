"""Whether a model turns in a circle: the same calls again and again, without new information.

A call repeats when tool, arguments and what came back are equal to an earlier one's. Circles of one call (A A A), of
two (A B A B A B) and of three are detected. After the second round the model reads a note, and with the third the run
ends.

Rule 1: a call whose result differs is new information, and restarts the count.
Rule 2: a tool that declares `poll=True` is never counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from handrail.calls import Media, ToolResult
from handrail.core.batch import Batch, CallState
from handrail.core.results import as_text, failure_text, with_note
from handrail.errors import Code, Failure

LONGEST_CIRCLE = 3
WARNED_AT = 2
STOPPED_AT = 3

Step: TypeAlias = tuple[str, str, Any]
"""The text that the model got back, tool name and arguments. Compared by `==`: no digest is made, and mostly the texts,
which stand first, differ already."""

NOTE = (
    "This call and its result are the same as before. Use the result, call differently, or answer; "
    "the same call once more is refused."
)


class LoopDetector(Struct):
    """The last calls of a run, as far back as a circle can reach."""

    steps: deque[Step] = field(
        default_factory=partial(deque, (), LONGEST_CIRCLE * STOPPED_AT)
    )

    def record_if_new(self, step: Step) -> bool:
        """Record a call unless an equal one is recorded; return whether it was new, as nearly every call is."""
        if step in self.steps:
            return False
        self.steps.append(step)
        return True

    def count_rounds(self, step: Step) -> int:
        """Record a finished call; return how many rounds of the circle that it closes there are (1: no circle)."""
        if self.record_if_new(step):
            return 1
        self.steps.append(step)
        steps = list(self.steps)
        return max(_rounds(steps, length) for length in range(1, LONGEST_CIRCLE + 1))


def _rounds(steps: Sequence[Step], length: int) -> int:
    """Return how many equal runs of `length` steps stand at the end."""
    last = steps[len(steps) - length :]
    count = 1
    while True:
        end = len(steps) - count * length
        if end < length or steps[end - length : end] != last:
            return count
        count += 1


def detect_loops(detector: LoopDetector, batch: Batch) -> tuple[list[ToolResult], str]:
    """Return the results of a batch, a note beside those that close a circle, and why the run is to stop (or "").

    The same call twice in one turn is no circle: the model had not seen the first result yet.
    """
    results = batch.collect_results()
    reason = ""
    for state, result in zip(batch.states, results, strict=True):
        call = state.call
        arguments: Any = call.arguments
        if state.admitted is not None:
            if state.admitted.tool.poll:
                continue
            arguments = state.admitted.arguments
        step = (_information(result), call.name, arguments)
        if detector.record_if_new(step) or _is_repeated_in_turn(state, batch):
            continue
        rounds = detector.count_rounds(step)
        if rounds >= STOPPED_AT:
            reason = f"{call.name} was called {rounds} times with the same arguments and the same result"
            results[state.index] = _refuse_repeat(result, rounds)
        elif rounds == WARNED_AT:
            results[state.index] = _with_warning(result)
    return results, reason


def _is_repeated_in_turn(state: CallState, batch: Batch) -> bool:
    """Whether the same call comes earlier in the same turn."""
    call = state.call
    earlier = (other.call for other in batch.states[: state.index])
    return any(
        other.name == call.name and other.arguments == call.arguments
        for other in earlier
    )


def _information(result: ToolResult) -> str:
    """Return what a result says, without notes that count how often it was returned."""
    if result.failure is not None:
        # The reference of an internal error is new each time; its code is not.
        if result.failure.code == Code.INTERNAL_ERROR:
            return result.failure.code
        return result.text
    if not (result.note or result.media):
        return result.text
    text = as_text(result.value) if result.note else result.text
    return text + "".join(map(_digest, result.media))


def _digest(media: Media) -> str:
    """Return what tells two pictures of one size apart."""
    return sha256(media.data).hexdigest()


def _with_warning(result: ToolResult) -> ToolResult:
    # A second note is one more line: the text has the field already.
    text = with_note(result.text, NOTE, None if result.note else result.value)
    note = "; ".join(filter(None, (result.note, NOTE)))
    return replace(result, note=note, text=text)


def _refuse_repeat(result: ToolResult, rounds: int) -> ToolResult:
    failure = Failure(
        Code.REPEATED_CALL,
        f"`{result.name}` was called {rounds} times in a circle, each time with the same arguments and result.",
        "Its result is above. Use it, call differently, or answer.",
    )
    return replace(result, value=None, failure=failure, text=failure_text(failure))
