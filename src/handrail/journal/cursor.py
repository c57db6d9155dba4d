"""One run's journal while the run is driven: what is known of it already, and what is still to be entered.

Resuming is running: the conversation is driven again from its beginning, and whatever has a step is answered from it.
A replay is the same, but that nothing may be missing.

Rule 1: a model's answer is entered before any of its writes runs. With reads only it is entered together with their
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
from handrail.records import JOURNAL_V, JournalEntry, JournalStep, RecordStatus, StoredRun

T = TypeVar("T")

_STANDS: Mapping[Status, RecordStatus] = {"waiting": "waiting", "failed": "failed", "cancelled": "cancelled"}
"""How a run stands that may be gone on with; every other end is `done`."""


class JournalCursor:
    """The journal of a run in the hands of its driver.

    Args:
        elapsed_s: How long the run has worked, without what people took.
        replaying: Nothing may happen anew: what has no step is a mismatch.
    """

    def __init__(self, begun: StoredRun, elapsed_s: Callable[[], float], *, replaying: bool = False) -> None:
        if begun.record.journal_v > JOURNAL_V:
            raise JournalMismatch(
                f"the run {begun.record.run_id!r} was recorded by a newer handrail (journal {begun.record.journal_v}, "
                f"known here {JOURNAL_V})"
            )
        self.run_id, self.epoch, self.replaying = begun.record.run_id, begun.record.epoch, replaying
        self._known = {step.key: step for step in begun.steps}
        self._happened: dict[str, Any] = {}
        """What has been noted here. Not its steps: a run that is long would hold all that it said and heard twice."""
        self._noted: list[JournalStep] = []
        self._asked: JournalEntry | None = None
        """The entry that the store has yet to confirm."""
        self._over = False
        self._elapsed_s = elapsed_s

    @property
    def goes_on(self) -> bool:
        """Whether something has happened in this run before."""
        return self.epoch > 1

    def holds(self, turn: int) -> bool:
        """Whether the answer of a turn is known."""
        return self._has(codec.model_key(turn))

    def answer(self, turn: int) -> Turn | None:
        """Return the model's answer of a turn, if it is known.

        Raises:
            JournalMismatch: It is not, and the run is only replayed; or it cannot be read.
        """
        return self._found(codec.model_key(turn), codec.turn_from_json)

    def results(self, turn: int, places: Iterable[int]) -> dict[int, ToolResult]:
        """Return those results of a turn's calls that are known, by the place of the call."""
        found = ((place, self._found(codec.call_key(turn, place), codec.result_from_json)) for place in places)
        return {place: result for place, result in found if result is not None}

    def note_answer(self, turn: int, answer: Turn) -> None:
        """A model has answered."""
        key = codec.model_key(turn)
        if not self._has(key):
            self._happened[key] = answer
            self._noted.append(JournalStep(key, "model", codec.turn_as_json(answer), self._elapsed_s()))

    def note_results(self, turn: int, batch: Batch) -> None:
        """The calls of a turn, or of what followed them, have ended, but for those that wait for a person."""
        elapsed_s = self._elapsed_s()
        for lane, result in zip(batch.lanes, batch.finished(), strict=True):
            pending = result.failure is not None and result.failure.code == Code.APPROVAL_PENDING
            if not pending and not self._has(key := codec.call_key(turn, lane.place)):
                body = codec.result_as_json(result)
                if lane.key:  # a step that follows a call; every other call stands in an answer
                    body["arguments"] = lane.call.arguments
                if result.failure is not None and result.failure.code == Code.IN_DOUBT:
                    body["write"] = list(batch.write_of(lane))
                self._happened[key] = result
                self._noted.append(JournalStep(key, "call", body, elapsed_s))

    def entry(self) -> JournalEntry | None:
        """Return what is to be entered now, if anything is."""
        if self.replaying or not self._noted:
            return None
        self._asked = JournalEntry(self.run_id, self.epoch, self._open_steps())
        self._noted = []
        return self._asked

    def entered(self) -> None:
        """Note that the store has taken the entry."""
        self._over = self._asked is not None and self._asked.status is not None
        self._asked = None

    def left(self) -> JournalEntry | None:
        """Return the last entry of a run that this process stops driving: its end, or the status `queued`."""
        if self.replaying or self._over:
            return None
        if self._asked is not None and self._asked.status is not None:
            return self._asked
        return JournalEntry(self.run_id, self.epoch, self._open_steps(), "queued")

    def _open_steps(self) -> list[JournalStep]:
        return [*(self._asked.steps if self._asked is not None else ()), *self._noted]

    def last_entry(self, ending: Ending) -> JournalEntry | None:
        """Return what is to be entered at the end of the run."""
        if self.replaying:
            return None
        told = {"status": ending.status, "reason": ending.reason, "text": ending.text}
        if ending.output is not None:
            told["output"] = plain(ending.output)
        stands = _STANDS.get(ending.status, "done")
        self._asked = JournalEntry(self.run_id, self.epoch, self._open_steps(), stands, told)
        return self._asked

    def _has(self, key: str) -> bool:
        return key in self._happened or key in self._known

    def _found(self, key: str, read: Callable[[Json], T]) -> T | None:
        if (noted := self._happened.get(key)) is not None:
            found: T = noted
            return found
        if (step := self._known.get(key)) is not None:
            return read(step.body)
        if self.replaying:
            raise JournalMismatch(f"the journal of {self.run_id!r} ends before step {key}; a replay does nothing anew")
        return None


def worked_s(steps: Sequence[JournalStep]) -> float:
    """Return how long a run has worked that left these steps."""
    return max((step.elapsed_s for step in steps), default=0.0)
