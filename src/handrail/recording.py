"""One run's journal while the run is driven: what is known of it already, and what is still to be entered.

Resuming is running: the conversation is driven again from its beginning, and whatever has a step is answered from it.
A replay is the same, but that nothing may be missing.

Rule 1: a model's answer is entered before any of its writes runs. With reads only it is entered together with their
        results: a crash then costs one more answer, and no effect.
Rule 2: a call that waits for a person has no result yet; its siblings keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from handrail import journal
from handrail.batch import Batch
from handrail.calls import ToolResult
from handrail.conversation import Ending, Status
from handrail.errors import Code, JournalMismatch
from handrail.messages import Turn
from handrail.records import JOURNAL_V, Begun, Entry, RecordStatus, Step
from handrail.shaping import plain

_STANDS: Mapping[Status, RecordStatus] = {"waiting": "waiting", "failed": "failed", "cancelled": "cancelled"}
"""How a run stands that may be gone on with; every other end is `done`."""


class Recording:
    """The journal of a run in the hands of its driver.

    Args:
        elapsed_s: How long the run has worked, without what people took.
        replaying: Nothing may happen anew: what has no step is a mismatch.
    """

    def __init__(self, begun: Begun, elapsed_s: Callable[[], float], *, replaying: bool = False) -> None:
        if begun.record.journal_v > JOURNAL_V:
            raise JournalMismatch(
                f"the run {begun.record.run_id!r} was recorded by a newer handrail (journal {begun.record.journal_v}, "
                f"known here {JOURNAL_V})"
            )
        self.run_id, self.epoch, self.replaying = begun.record.run_id, begun.record.epoch, replaying
        self._known = {step.key: step for step in begun.steps}
        self._noted: list[Step] = []
        self._elapsed_s = elapsed_s

    @property
    def goes_on(self) -> bool:
        """Whether something has happened in this run before."""
        return self.epoch > 1

    def holds(self, turn: int) -> bool:
        """Whether the answer of a turn is known."""
        return journal.model_key(turn) in self._known

    def answer(self, turn: int) -> Turn | None:
        """Return the model's answer of a turn, if it is known.

        Raises:
            JournalMismatch: It is not, and the run is only replayed; or it cannot be read.
        """
        step = self._step(journal.model_key(turn))
        return None if step is None else journal.turn_from_json(step.body)

    def results(self, turn: int, places: Iterable[int]) -> dict[int, ToolResult]:
        """Return those results of a turn's calls that are known, by the place of the call."""
        found = {place: self._step(journal.call_key(turn, place)) for place in places}
        return {place: journal.result_from_json(step.body) for place, step in found.items() if step is not None}

    def note_answer(self, turn: int, answer: Turn) -> None:
        """A model has answered."""
        self._note(Step(journal.model_key(turn), "model", journal.turn_as_json(answer), self._elapsed_s()))

    def note_results(self, turn: int, batch: Batch) -> None:
        """The calls of a turn, or of what followed them, have ended, but for those that wait for a person."""
        elapsed_s = self._elapsed_s()
        for lane, result in zip(batch.lanes, batch.finished(), strict=True):
            if result.failure is None or result.failure.code != Code.APPROVAL_PENDING:
                body = journal.result_as_json(result)
                if lane.key:  # a step that follows a call; every other call stands in an answer
                    body["arguments"] = lane.call.arguments
                self._note(Step(journal.call_key(turn, lane.place), "call", body, elapsed_s))

    def entry(self) -> Entry | None:
        """Return what is to be entered now, if anything is."""
        if self.replaying or not self._noted:
            return None
        steps, self._noted = self._noted, []
        return Entry(self.run_id, self.epoch, steps)

    def last_entry(self, ending: Ending) -> Entry | None:
        """Return what is to be entered at the end of the run."""
        if self.replaying:
            return None
        told = {"status": ending.status, "reason": ending.reason, "text": ending.text}
        if ending.output is not None:
            told["output"] = plain(ending.output)
        return Entry(self.run_id, self.epoch, self._noted, _STANDS.get(ending.status, "done"), told)

    def _note(self, step: Step) -> None:
        if step.key not in self._known:
            self._known[step.key] = step
            self._noted.append(step)

    def _step(self, key: str) -> Step | None:
        step = self._known.get(key)
        if step is None and self.replaying:
            raise JournalMismatch(f"the journal of {self.run_id!r} ends before step {key}; a replay does nothing anew")
        return step


def worked_s(steps: Sequence[Step]) -> float:
    """Return how long a run has worked that left these steps."""
    return max((step.elapsed_s for step in steps), default=0.0)
