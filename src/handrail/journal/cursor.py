"""The journal of a run while the run is driven: its stored steps, and those that are still to be appended.

Resuming is running: the conversation is driven again from its beginning, and answered from the steps that are stored.
A replay is the same, but no step may be missing.

Rule 1: a model's answer is appended before any of its writes runs. With reads only it is appended together with their
        results: a crash then costs one more answer, and no effect.
        The model is asked again while the store still writes: what it answers is acted on once that is done.
Rule 2: a call that waits for a person has no result yet; its siblings keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from handrail.calls import ToolResult
from handrail.core.batch import Batch
from handrail.core.conversation import Ending
from handrail.core.results import plain
from handrail.errors import PENDING, Code, JournalMismatch, Json
from handrail.journal import codec, rounds, sealed_store
from handrail.messages import AssistantMessage, Message, ToolMessage, Turn
from handrail.records import (
    JOURNAL_V,
    JournalEntry,
    JournalStep,
    RecordStatus,
    RunRecord,
    StoredRun,
)

T = TypeVar("T")

_RECORD_STATUS: Mapping[str, RecordStatus] = {
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
        as_texts: The store accepts bodies of steps as JSON text; see `records.JournalStep.text`.
    """

    def __init__(
        self,
        stored: StoredRun,
        elapsed_s: Callable[[], float],
        *,
        replaying: bool = False,
        as_texts: bool = False,
    ) -> None:
        record = stored.record
        check_version(record)
        self.run_id = record.run_id
        self.epoch = record.epoch
        self.replaying = replaying
        self._as_texts = as_texts
        asked = record.input
        self.names_model = isinstance(asked, Mapping) and bool(asked.get("model"))
        """Whether the run's input says which model is asked."""
        self._elapsed_s = elapsed_s
        self._stored_steps = {step.key: step for step in stored.steps}
        self.has_folds = any(step.kind == "fold" for step in stored.steps)
        """Whether results became handles in the steps that the store has."""
        # Values read or noted by this process, without their steps: a long run would hold its whole conversation twice.
        self._noted_values: dict[str, Any] = {}
        self._new_steps: list[JournalStep] = []
        self._unconfirmed: JournalEntry | None = None
        self.sent: Future[bool] | None = None
        """The store's answer to the entry that was sent last, while nobody has waited for it."""
        self._is_over = False

    @property
    def is_resumed(self) -> bool:
        """Whether another owner began the run."""
        return self.epoch > 1

    def was_answered_before(self, turn: int) -> bool:
        """Whether the answer of a turn was stored before this process took the run up."""
        return codec.model_key(turn) in self._stored_steps

    def has_answer(self, turn: int) -> bool:
        """Whether the answer of a turn is recorded."""
        return self._has(codec.model_key(turn))

    def answer(self, turn: int) -> Turn | None:
        """Return the model's answer of a turn; None if it is not recorded.

        Raises:
            JournalMismatch: It is not recorded, and the run is only replayed; it cannot be read; or a call of it is
                still to be made, with a secret that this runtime does not know.
        """
        answer = self._load(codec.model_key(turn), codec.turn_from_json)
        if answer is not None and self._stored_steps and not self.replaying:
            calls = [
                call
                for place, call in enumerate(answer.calls)
                if not self._has(codec.call_key(turn, place))
            ]
            sealed_store.check_open(self.run_id, calls)
        return answer

    def results(self, turn: int, places: Iterable[int]) -> dict[int, ToolResult]:
        """Return the recorded results of a turn's calls, by the position of the call."""
        results: dict[int, ToolResult] = {}
        if not (self._stored_steps or self.replaying):
            return results  # what this process has noted, it does not ask for again
        for place in places:
            result = self._load(codec.call_key(turn, place), codec.result_from_json)
            if result is not None:
                results[place] = result
        return results

    def note_answer(self, turn: int, answer: Turn, *, model: str = "") -> None:
        """Record a model's answer, and the name of the model if it is given."""
        key = codec.model_key(turn)
        if not self._has(key):
            self._noted_values[key] = answer
            elapsed_s = self._elapsed_s()
            if self._as_texts and (text := codec.turn_as_text(answer, model)):
                step = JournalStep(key, "model", None, elapsed_s, text)
            else:
                body = codec.turn_as_json(answer)
                if model:
                    body["model"] = model
                step = JournalStep(key, "model", body, elapsed_s)
            self._new_steps.append(step)

    def note_results(self, turn: int, batch: Batch) -> None:
        """Record the results of a turn's calls, or of the steps that followed them, without those that wait."""
        elapsed_s = self._elapsed_s()
        for state, result in zip(batch.states, batch.collect_results(), strict=True):
            key = codec.call_key(turn, state.place)
            code = None if result.failure is None else result.failure.code
            if code in PENDING or self._has(key):
                continue
            self._noted_values[key] = result
            if self._as_texts and not state.key:
                text = codec.result_as_text(result)
                if text:
                    self._new_steps.append(
                        JournalStep(key, "call", None, elapsed_s, text)
                    )
                    continue
            body = codec.result_as_json(result)
            if (
                state.key
            ):  # a step that follows a call; an answer holds every other call
                body["arguments"] = state.call.arguments
            if code == Code.IN_DOUBT:
                body["write"] = list(batch.identify_write(state))
            self._new_steps.append(JournalStep(key, "call", body, elapsed_s))

    def note_folds(self, turn: int, folds: Sequence[tuple[int, str]]) -> None:
        """Record which results became handles before a turn: their positions, and the handles."""
        body = [list(each) for each in folds]
        key = rounds.fold_key(turn)
        self._new_steps.append(JournalStep(key, "fold", body, self._elapsed_s()))

    def folds(self, turn: int) -> Sequence[Any]:
        """Return which results became handles before a turn, as the store has it."""
        step = self._stored_steps.get(rounds.fold_key(turn))
        return step.body if step is not None else ()

    def list_messages(self, messages: Sequence[Message]) -> list[Json] | None:
        """Return the messages after a question as the result of their round lists them.

        A message that a step spells out is listed by the key of the step, any other as it is.

        Returns:
            None where the steps spell all of them out, in order; also where the run ended before it read all answers
            that are recorded.
        """
        if self._are_noted(messages):
            return None
        keys = {id(value): key for key, value in self._noted_values.items()}
        listed: list[Json] = []
        for message in messages:
            if isinstance(message, AssistantMessage):
                key = keys.get(id(message.turn))
            elif isinstance(message, ToolMessage):
                key = keys.get(id(message.result))
            else:
                key = None
            listed.append(key or codec.message_as_json(message))
        answers = sum(isinstance(message, AssistantMessage) for message in messages)
        if answers < self._count_answers() or listed == list(
            self._spelled_out(messages)
        ):
            return None
        return listed

    def _are_noted(self, messages: Sequence[Message]) -> bool:
        """Whether these are exactly the answers and results that this process has noted, in order.

        A quick check that holds for nearly every run; `list_messages` compares one by one where it does not.
        """
        if self._stored_steps or len(messages) != len(self._noted_values):
            return False
        last = place = left = 0
        for message, (key, value) in zip(
            messages, self._noted_values.items(), strict=True
        ):
            if isinstance(message, ToolMessage):
                if message.result is not value or key != f"{last}.{place}":
                    return False
                place += 1
                left -= 1
                continue
            number, _, what = key.partition(".")
            if (
                left
                or what != "m"
                or int(number) <= last
                or not isinstance(message, AssistantMessage)
                or message.turn is not value
            ):
                return False
            last = int(number)
            place = 0
            left = len(message.turn.calls)
        return not left

    def _count_answers(self) -> int:
        keys = self._noted_values.keys() | self._stored_steps.keys()
        return sum(key.endswith(".m") for key in keys)

    def _spelled_out(self, messages: Sequence[Message]) -> Iterable[str]:
        """Yield the keys of the steps that spell out these answers, where nothing stands between them."""
        numbers = sorted(
            int(key.partition(".")[0])
            for key in self._noted_values.keys() | self._stored_steps.keys()
            if key.endswith(".m")
        )
        turns = [each.turn for each in messages if isinstance(each, AssistantMessage)]
        for number, turn in zip(numbers, turns, strict=False):
            yield codec.model_key(number)
            for index in range(len(turn.calls)):
                yield codec.call_key(number, index)

    @property
    def has_new_steps(self) -> bool:
        """Whether steps were noted that no entry has yet."""
        return bool(self._new_steps) and not self.replaying

    def entry(self) -> JournalEntry | None:
        """Return the entry with the new steps; None if there are none."""
        if not self.has_new_steps:
            return None
        self._unconfirmed = JournalEntry(self.run_id, self.epoch, self._open_steps())
        self._new_steps.clear()
        return self._unconfirmed

    def confirm_entry(self) -> None:
        """Record that the store has the entry."""
        self.sent = None
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

    def last_entry(
        self, ending: Ending, messages: Sequence[Message] = ()
    ) -> JournalEntry | None:
        """Return the entry that ends the run, or its round; `messages` are those after the question."""
        if self.replaying:
            return None
        result: dict[str, Json] = {
            "status": ending.status,
            "reason": ending.reason,
            "text": ending.text,
        }
        if ending.output is not None:
            result["output"] = plain(ending.output)
        if ending.status != "waiting":
            listed = self.list_messages(messages)
            if listed is not None:
                result[rounds.MESSAGES] = listed
        status = record_status(ending.status)
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
            value = self._noted_values[key] = read(step.body)
            return value
        if self.replaying:
            raise JournalMismatch(
                f"the journal of {self.run_id!r} ends before step {key}; a replay does nothing new"
            )
        return None


def record_status(status: str) -> RecordStatus:
    """Return the status of the record of a run that has ended with this status."""
    return _RECORD_STATUS.get(status, "done")


def check_version(record: RunRecord) -> None:
    """Raise JournalMismatch for a run that a newer version has recorded."""
    if record.journal_v > JOURNAL_V:
        raise JournalMismatch(
            f"the run {record.run_id!r} was recorded by a newer handrail (journal {record.journal_v}, "
            f"here {JOURNAL_V})"
        )


def working_time_s(steps: Sequence[JournalStep]) -> float:
    """Return how long a run with these steps has worked."""
    return max((step.elapsed_s for step in steps), default=0.0)
