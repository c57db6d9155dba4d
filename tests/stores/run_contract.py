"""What every store that keeps runs and questions must hold to. A store's test class inherits `RunContract`."""

from __future__ import annotations

import pytest

from handrail.errors import Fenced
from handrail.records import Entry, Question, RunRecord, Step

RUN = RunRecord("r_1", {"messages": [{"user": "谢谢"}]}, toolset="abc")
ANSWER = Step("1.m", "model", {"text": "北京"}, 0.5)
RESULT = Step("1.0", "call", {"value": 0}, 0.7)
QUESTION = Question(
    "q_1", "r_1", "c_1", "refund", "d1", {"order": "7", "amount": 5.0}, "high", "it is large", "Refunds."
)


class RunContract:
    """The laws. `settled` waits for an answer that a store gives later; `later` moves the store's clock on."""

    @pytest.fixture
    def store(self):
        raise NotImplementedError

    @staticmethod
    def settled(answer):
        return answer.result(timeout=10) if hasattr(answer, "result") else answer

    def begun(self, store, record=RUN):
        return self.settled(store.begin_run(record))

    # -- runs ----------------------------------------------------------------------------------------------------------

    def test_a_run_is_begun_with_what_it_was_asked_and_no_steps(self, store):
        begun = self.begun(store)
        assert begun.record.epoch == 1
        assert begun.record.status == "running"
        assert begun.record.input == RUN.input
        assert begun.record.toolset == "abc"
        assert begun.record.created > 0
        assert list(begun.steps) == []

    def test_a_run_that_is_taken_over_brings_its_input_and_its_steps_in_order(self, store):
        self.begun(store)
        self.settled(store.enter(Entry("r_1", 1, [ANSWER])))
        self.settled(store.enter(Entry("r_1", 1, [RESULT])))
        again = self.begun(store, RunRecord("r_1", {"messages": "other"}))
        assert again.record.epoch == 2
        assert again.record.input == RUN.input
        assert list(again.steps) == [ANSWER, RESULT]

    def test_an_owner_who_was_replaced_adds_nothing(self, store):
        self.begun(store)
        self.begun(store)
        with pytest.raises(Fenced):
            self.settled(store.enter(Entry("r_1", 1, [ANSWER], status="done", result={"text": "late"})))
        kept = self.settled(store.recorded("r_1"))
        assert list(kept.steps) == []
        assert (kept.record.status, kept.record.result) == ("running", None)

    def test_a_run_that_is_not_there_takes_no_steps(self, store):
        with pytest.raises(Fenced):
            self.settled(store.enter(Entry("r_none", 1, [ANSWER])))

    def test_a_step_that_is_there_stays_as_it_is(self, store):
        self.begun(store)
        self.settled(store.enter(Entry("r_1", 1, [ANSWER])))
        self.settled(store.enter(Entry("r_1", 1, [Step("1.m", "model", {"text": "other"}), RESULT])))
        assert list(self.settled(store.recorded("r_1")).steps) == [ANSWER, RESULT]

    def test_how_a_run_ended_is_kept_beside_its_last_steps(self, store):
        self.begun(store)
        self.settled(store.enter(Entry("r_1", 1, [ANSWER], status="done", result={"text": "北京"})))
        record = self.settled(store.recorded("r_1")).record
        assert (record.status, record.result) == ("done", {"text": "北京"})
        assert record.updated >= record.created

    def test_runs_are_found_by_status_newest_first(self, store):
        for number in range(3):
            self.begun(store, RunRecord(f"r_{number}", {}))
        self.settled(store.enter(Entry("r_1", 1, status="waiting")))
        assert [each.run_id for each in self.settled(store.records(status="running"))] == ["r_2", "r_0"]
        assert [each.run_id for each in self.settled(store.records(status="waiting"))] == ["r_1"]
        assert [each.run_id for each in self.settled(store.records(most=2))] == ["r_2", "r_1"]

    def test_who_drives_a_run_learns_with_the_next_entry_that_its_end_is_wanted(self, store):
        self.begun(store)
        assert self.settled(store.enter(Entry("r_1", 1, [ANSWER]))) is False
        assert self.settled(store.request_cancel("r_1")) is True
        assert self.settled(store.enter(Entry("r_1", 1, [RESULT]))) is True
        assert self.settled(store.request_cancel("r_none")) is False

    def test_a_run_that_waits_is_cancelled_at_once_and_one_that_is_over_not_at_all(self, store):
        self.begun(store)
        self.settled(store.enter(Entry("r_1", 1, status="waiting")))
        assert self.settled(store.request_cancel("r_1")) is True
        assert self.settled(store.recorded("r_1")).record.status == "cancelled"
        assert self.settled(store.request_cancel("r_1")) is False

    def test_whoever_takes_a_run_over_learns_that_its_end_is_wanted_but_not_who_takes_up_a_cancelled_one(self, store):
        self.begun(store)
        self.settled(store.request_cancel("r_1"))
        assert self.begun(store).record.cancel_requested  # its first owner died before the next step
        self.settled(store.enter(Entry("r_1", 2, status="cancelled")))
        assert not self.begun(store).record.cancel_requested

    def test_an_unknown_run_is_none(self, store):
        assert self.settled(store.recorded("r_none")) is None

    # -- questions -----------------------------------------------------------------------------------------------------

    def asked(self, store, question=QUESTION, within_s=60.0):
        return self.settled(store.ask(question, within_s=within_s))

    def test_a_question_is_kept_exactly_as_it_was_shown(self, store):
        kept = self.asked(store)
        assert kept.state == "open"
        assert kept.expires - kept.asked == pytest.approx(60.0)
        assert self.settled(store.questions()) == [kept]
        for name in ("id", "run_id", "call_id", "tool", "digest", "arguments", "risk", "reason", "description"):
            assert getattr(kept, name) == getattr(QUESTION, name)

    def test_a_question_asked_again_is_the_same_one(self, store):
        first = self.asked(store)
        assert self.asked(store, within_s=9.0) == first
        assert len(self.settled(store.questions())) == 1

    def test_a_word_is_kept_with_who_gave_it_and_why(self, store):
        self.asked(store)
        decided = self.settled(store.decide("q_1", granted=False, by="maria", because="too much"))
        assert (decided.state, decided.by, decided.because) == ("denied", "maria", "too much")
        assert self.asked(store) == decided

    def test_the_first_word_counts(self, store):
        self.asked(store)
        first = self.settled(store.decide("q_1", granted=True, by="maria", edited={"order": "7", "amount": 1.0}))
        assert first.edited == {"order": "7", "amount": 1.0}
        assert self.settled(store.decide("q_1", granted=False, by="jens")) == first

    def test_an_approval_is_used_once(self, store):
        self.asked(store)
        assert self.settled(store.use("q_1")) is False
        self.settled(store.decide("q_1", granted=True, by="maria"))
        assert [self.settled(store.use("q_1")) for _ in range(2)] == [True, False]
        assert self.asked(store).state == "used"

    def test_a_denied_question_is_never_used(self, store):
        self.asked(store)
        self.settled(store.decide("q_1", granted=False, by="maria"))
        assert self.settled(store.use("q_1")) is False

    def test_a_question_ends_with_its_time_whether_or_not_it_was_answered(self, store):
        self.asked(store, within_s=-1.0)
        assert self.asked(store).state == "expired"
        assert self.settled(store.decide("q_1", granted=True, by="late")).state == "expired"
        assert self.settled(store.use("q_1")) is False
        assert self.settled(store.questions()) == []

    def test_nobody_decides_what_was_not_asked(self, store):
        assert self.settled(store.decide("q_none", granted=True, by="maria")) is None

    def test_questions_are_found_by_state_and_run(self, store):
        self.asked(store)
        other = Question("q_2", "r_2", "c_2", "refund", "d2", {}, "high", "")
        self.asked(store, other)
        self.settled(store.decide("q_2", granted=True, by="maria"))
        assert [each.id for each in self.settled(store.questions(state="", run_id=""))] == ["q_1", "q_2"]
        assert [each.id for each in self.settled(store.questions(state="approved"))] == ["q_2"]
        assert [each.id for each in self.settled(store.questions(state="", run_id="r_1"))] == ["q_1"]
