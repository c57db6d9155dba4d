"""The journal of a run while the run is driven: its stored steps, and those that are still to be appended.

Resuming is running: the conversation is driven again from its beginning, and answered from the steps that are stored.
A replay is the same, but no step may be missing.

Rule 1: a model's answer is appended before any of its writes runs. With reads only it is appended together with their
        results: a crash then costs one more answer, and no effect.
Rule 2: a call that waits for a person has no result yet; its siblings keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from handrail.calls import ToolResult
from handrail.core.batch import Batch
from handrail.core.conversation import Ending, Status
from handrail.core.results import plain
from handrail.errors import Code, JournalMismatch, Json
from handrail.journal import codec
from handrail.messages import Turn
from handrail.records import (
    JOURNAL_V,
    JournalEntry,
    JournalStep,
    RecordStatus,
    StoredRun,
)

T = TypeVar("T")

_RECORD_STATUS: Mapping[Status, RecordStatus] = {
    "waiting": "waiting",
    "failed": "failed",
    "cancelled": "cancelled",
}
"""The stored status of a run that can be resumed; every other end is `done`."""


class JournalCursor:
    """The journal of a run, for its driver.

    Args:
        elapsed_s: How long the run has worked, without the time that people took.
        replaying: Nothing new may happen: a missing step is a mismatch.
    """

    def __init__(
        self,
        stored: StoredRun,
        elapsed_s: Callable[[], float],
        *,
        replaying: bool = False,
    ) -> None:
        record = stored.record
        if record.journal_v > JOURNAL_V:
            raise JournalMismatch(
                f"the run {record.run_id!r} was recorded by a newer handrail (journal {record.journal_v}, "
                f"here {JOURNAL_V})"
            )
        self.run_id = record.run_id
        self.epoch = record.epoch
        self.replaying = replaying
        self._elapsed_s = elapsed_s
        self._stored_steps = {step.key: step for step in stored.steps}
        # Values noted by this process, without their steps: a long run would hold its whole conversation twice.
        self._noted_values: dict[str, Any] = {}
        self._new_steps: list[JournalStep] = []
        self._unconfirmed: JournalEntry | None = None
        self._is_over = False

    @property
    def is_resumed(self) -> bool:
        """Whether another owner began the run."""
        return self.epoch > 1

    def has_answer(self, turn: int) -> bool:
        """Whether the answer of a turn is recorded."""
        return self._has(codec.model_key(turn))

    def answer(self, turn: int) -> Turn | None:
        """Return the model's answer of a turn; None if it is not recorded.

        Raises:
            JournalMismatch: It is not recorded, and the run is only replayed; or it cannot be read.
        """
        return self._load(codec.model_key(turn), codec.turn_from_json)

    def results(self, turn: int, places: Iterable[int]) -> dict[int, ToolResult]:
        """Return the recorded results of a turn's calls, by the position of the call."""
        results = {}
        for place in places:
            result = self._load(codec.call_key(turn, place), codec.result_from_json)
            if result is not None:
                results[place] = result
        return results

    def note_answer(self, turn: int, answer: Turn) -> None:
        """Record a model's answer."""
        key = codec.model_key(turn)
        if not self._has(key):
            self._noted_values[key] = answer
            self._new_steps.append(
                JournalStep(key, "model", codec.turn_as_json(answer), self._elapsed_s())
            )

    def note_results(self, turn: int, batch: Batch) -> None:
        """Record the results of a turn's calls, or of the steps that followed them, without those that wait."""
        elapsed_s = self._elapsed_s()
        for state, result in zip(batch.states, batch.collect_results(), strict=True):
            key = codec.call_key(turn, state.place)
            code = None if result.failure is None else result.failure.code
            if code == Code.APPROVAL_PENDING or self._has(key):
                continue
            body = codec.result_as_json(result)
            if (
                state.key
            ):  # a step that follows a call; an answer holds every other call
                body["arguments"] = state.call.arguments
            if code == Code.IN_DOUBT:
                body["write"] = list(batch.identify_write(state))
            self._noted_values[key] = result
            self._new_steps.append(JournalStep(key, "call", body, elapsed_s))

    def entry(self) -> JournalEntry | None:
        """Return the entry with the new steps; None if there are none."""
        if self.replaying or not self._new_steps:
            return None
        self._unconfirmed = JournalEntry(self.run_id, self.epoch, self._open_steps())
        self._new_steps = []
        return self._unconfirmed

    def confirm_entry(self) -> None:
        """Record that the store has the entry."""
        self._is_over = (
            self._unconfirmed is not None and self._unconfirmed.status is not None
        )
        self._unconfirmed = None

    def release_entry(self) -> JournalEntry | None:
        """Return the last entry of a run that this process stops driving: its end, or the status `queued`."""
        if self.replaying or self._is_over:
            return None
        if self._unconfirmed is not None and self._unconfirmed.status is not None:
            return self._unconfirmed
        return JournalEntry(self.run_id, self.epoch, self._open_steps(), "queued")

    def _open_steps(self) -> list[JournalStep]:
        unconfirmed = () if self._unconfirmed is None else self._unconfirmed.steps
        return [*unconfirmed, *self._new_steps]

    def last_entry(self, ending: Ending) -> JournalEntry | None:
        """Return the entry that ends the run."""
        if self.replaying:
            return None
        result = {"status": ending.status, "reason": ending.reason, "text": ending.text}
        if ending.output is not None:
            result["output"] = plain(ending.output)
        status = _RECORD_STATUS.get(ending.status, "done")
        self._unconfirmed = JournalEntry(
            self.run_id, self.epoch, self._open_steps(), status=status, result=result
        )
        return self._unconfirmed

    def _has(self, key: str) -> bool:
        return key in self._noted_values or key in self._stored_steps

    def _load(self, key: str, read: Callable[[Json], T]) -> T | None:
        noted: T | None = self._noted_values.get(key)
        if noted is not None:
            return noted
        step = self._stored_steps.get(key)
        if step is not None:
            return read(step.body)
        if self.replaying:
            raise JournalMismatch(
                f"the journal of {self.run_id!r} ends before step {key}; a replay does nothing new"
            )
        return None


def working_time_s(steps: Sequence[JournalStep]) -> float:
    """Return how long a run with these steps has worked."""
    return max((step.elapsed_s for step in steps), default=0.0)
