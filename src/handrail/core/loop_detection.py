"""Whether a model turns in a circle: the same calls again and again, without new information.

A call repeats when tool, arguments and what came back are equal to an earlier one's. Circles of one call (A A A), of
two (A B A B A B) and of three are detected. After the second round the model reads a note, and with the third the run
ends. The call that would close a third round is refused before it runs, unless its result may have changed since: it
could be tried again later, or people may have decided meanwhile.

Rule 1: a call whose result differs is new information, and restarts the count.
Rule 2: a tool that declares `hr.Limits(poll=True)` is never counted.
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
from handrail.errors import PENDING, Code, Failure

LONGEST_CIRCLE = 3
WARNED_AT = 2
STOPPED_AT = 3

Step: TypeAlias = tuple[str, str, Any, bool]
"""The text that the model got back, tool name, arguments, and whether the same call may give something else later.

Compared by `==`: no digest is made, and mostly the texts, which stand first, differ already."""

_DECIDED_BY_PEOPLE = PENDING | {
    Code.IN_DOUBT,
    Code.NOT_APPROVED,
    Code.APPROVAL_EXPIRED,
}

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

    def find_closing_calls(self) -> list[tuple[str, Any]]:
        """Return tool and arguments of the calls each of which would close a third round now."""
        # In a circle the last call repeats an earlier one; in nearly every run it does not.
        if not self.steps or self.steps.count(self.steps[-1]) == 1:
            return []
        steps = list(self.steps)
        closing: list[tuple[str, Any]] = []
        for length in range(1, LONGEST_CIRCLE + 1):
            since = STOPPED_AT * length - 1
            last = steps[-since:]
            first = last[:length]
            if len(last) == since and last == (first * STOPPED_AT)[:since]:
                _, name, arguments, may_change = first[-1]
                if not may_change:
                    closing.append((name, arguments))
        return closing


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
    steps = detector.steps
    reason = ""
    for state, result in zip(batch.states, results, strict=True):
        call = state.call
        if call.program:
            continue  # a program repeats calls on purpose, and ends
        if state.index in batch.refused_circles:
            reason = _describe_circle(call.name, STOPPED_AT)
            results[state.index] = replace(result, ends_run=reason)
            continue
        arguments: Any = call.arguments
        admitted = state.admitted
        if admitted is not None:
            if admitted.traits.poll:
                continue
            arguments = admitted.arguments
        if result.failure is None and not (result.note or result.media):
            step: Step = (result.text, call.name, arguments, False)
        else:
            step = _make_step(result, call.name, arguments)
        # `record_if_new`, inlined: every call comes here
        if step not in steps:
            steps.append(step)
            continue
        if _is_repeated_in_turn(state, batch):
            continue
        rounds = detector.count_rounds(step)
        if rounds >= STOPPED_AT:
            reason = _describe_circle(call.name, rounds)
            refused = _refuse_repeat(result, rounds)
            results[state.index] = replace(refused, ends_run=reason)
        elif rounds == WARNED_AT:
            results[state.index] = _with_warning(result)
    return results, reason


def _describe_circle(name: str, rounds: int) -> str:
    return (
        f"{name} was called {rounds} times with the same arguments and the same result"
    )


def _make_step(result: ToolResult, name: str, arguments: Any) -> Step:
    failure = result.failure
    if failure is None:
        return _describe_success(result), name, arguments, False
    # The reference of an internal error is new each time; its code is not.
    is_internal = failure.code == Code.INTERNAL_ERROR
    information = failure.code if is_internal else result.text
    may_change = failure.retryable or failure.code in _DECIDED_BY_PEOPLE
    return information, name, arguments, may_change


def _is_repeated_in_turn(state: CallState, batch: Batch) -> bool:
    """Whether the same call comes earlier in the same turn."""
    call = state.call
    earlier = (other.call for other in batch.states[: state.index])
    return any(
        other.name == call.name and other.arguments == call.arguments
        for other in earlier
    )


def _describe_success(result: ToolResult) -> str:
    """Return what a result says, without notes that count how often it was returned."""
    if not (result.note or result.media):
        return result.text
    text = as_text(result.value) if result.note else result.text
    return text + "".join(map(_digest, result.media))


def _digest(media: Media) -> str:
    """Return what tells two pictures of one size apart."""
    return sha256(media.data).hexdigest()


def _with_warning(result: ToolResult) -> ToolResult:
    note = "; ".join(filter(None, (result.note, NOTE)))
    if result.failure is not None:
        text = failure_text(result.failure, note)
    else:
        # A second note is one more line: the text has the field already.
        text = with_note(result.text, NOTE, None if result.note else result.value)
    return replace(result, note=note, text=text)


def _refuse_repeat(result: ToolResult, rounds: int) -> ToolResult:
    failure = Failure(
        Code.REPEATED_CALL,
        f"`{result.name}` was called {rounds} times in a circle, each time with the same arguments and result.",
        "Its result is above. Use it, call differently, or answer.",
    )
    return replace(result, value=None, failure=failure, text=failure_text(failure))
