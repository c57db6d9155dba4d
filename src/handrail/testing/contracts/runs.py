"""What every store that keeps runs and questions must hold to. A store's test class inherits `RunContract`."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from socket import gethostname

import pytest
from msgspec.structs import replace

from handrail import process_identity
from handrail.errors import Fenced, RunNameTaken
from handrail.records import ApprovalRequest, JournalEntry, JournalStep, RunRecord

RUN = RunRecord("r_1", {"messages": [{"user": "谢谢"}]}, toolset="abc")
ANSWER = JournalStep("1.m", "model", {"text": "北京"}, 0.5)
RESULT = JournalStep("1.0", "call", {"value": 0}, 0.7)
QUESTION = ApprovalRequest(
    "q_1",
    "r_1",
    "c_1",
    "refund",
    "d1",
    {"order": "7", "amount": 5.0},
    "high",
    "it is large",
    "Refunds.",
)


@cache
def gone() -> str:
    """Return the name of a process that has ended."""
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        check=True,
    )
    return f"{gethostname()}:{int(ended.stdout)}:"


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

    def test_a_run_is_taken_over_unchanged_by_one_of_those_that_have_read_it(
        self, store
    ):
        first = self.begun(store)
        self.settled(store.append_entry(JournalEntry("r_1", 1, [ANSWER], "done")))
        taken = self.settled(store.begin_run(first.record, unchanged=True))
        assert (taken.record.epoch, taken.record.status, list(taken.steps)) == (
            2, "running", [ANSWER],
        )  # fmt: skip
        for record in (first.record, replace(RUN, run_id="r_none")):
            with pytest.raises(Fenced):
                self.settled(store.begin_run(record, unchanged=True))
        stored = self.settled(store.load_run("r_1"))
        assert (stored.record.epoch, list(stored.steps)) == (2, [ANSWER])
        assert self.settled(store.load_run("r_none")) is None

    def test_runs_are_read_through_from_the_newest_with_their_steps(self, store):
        for number in range(1, 6):
            self.settled(store.begin_run(replace(RUN, run_id=f"r_{number}"), new=True))
        self.settled(store.append_entry(JournalEntry("r_2", 1, [ANSWER, RESULT])))
        first = self.settled(store.browse_runs(most=2))
        assert [each.stored.record.run_id for each in first] == ["r_5", "r_4"]
        rest = self.settled(store.browse_runs(before=first[-1].number))
        assert [each.stored.record.run_id for each in rest] == ["r_3", "r_2", "r_1"]
        assert rest[1].stored == self.settled(store.load_run("r_2"))
        assert list(rest[1].stored.steps) == [ANSWER, RESULT]
        changed = rest[1].stored.record.updated
        since = self.settled(store.browse_runs(since=changed))
        assert "r_2" in [each.stored.record.run_id for each in since]
        assert self.settled(store.browse_runs(since=changed + 60)) == []

    def test_when_each_step_was_recorded_is_known(self, store):
        begun = self.begun(store)
        self.settled(store.append_entry(JournalEntry("r_1", 1, [ANSWER])))
        self.settled(store.append_entry(JournalEntry("r_1", 1, [RESULT])))
        times = self.settled(store.step_times("r_1"))
        assert sorted(times) == ["1.0", "1.m"]
        assert begun.record.created <= times["1.m"] <= times["1.0"]
        assert self.settled(store.step_times("r_none")) == {}

    def test_a_run_is_begun_together_with_steps_or_not_at_all(self, store):
        begun = self.settled(store.begin_run(RUN, new=True, steps=[ANSWER]))
        assert list(begun.steps) == [ANSWER]
        self.settled(store.append_entry(JournalEntry("r_1", 1, [RESULT], "done")))
        question = JournalStep("2.q", "question", {"messages": []})
        taken = self.settled(
            store.begin_run(begun.record, unchanged=True, steps=[question])
        )
        assert list(taken.steps) == []  # whoever asks another question knows them
        with pytest.raises(Fenced):
            other = JournalStep("2.q", "question", {"messages": ["other"]})
            self.settled(store.begin_run(begun.record, unchanged=True, steps=[other]))
        with pytest.raises(RunNameTaken):
            self.settled(store.begin_run(RUN, new=True, steps=[question]))
        stored = self.settled(store.load_run("r_1"))
        assert list(stored.steps) == [ANSWER, RESULT, question]
        assert (stored.record.status, stored.record.epoch) == ("running", 2)

    def test_a_new_run_takes_nothing_over(self, store):
        self.settled(store.begin_run(RUN, new=True))
        before = self.settled(store.load_run("r_1"))
        with pytest.raises(RunNameTaken, match="'r_1' is stored already"):
            self.settled(store.begin_run(replace(RUN, owner="another"), new=True))
        assert self.settled(store.load_run("r_1")) == before

    def test_a_run_that_is_taken_over_brings_its_input_and_its_steps_in_order(
        self, store
    ):
        self.begun(store)
        self.settled(store.append_entry(JournalEntry("r_1", 1, [ANSWER])))
        self.settled(store.append_entry(JournalEntry("r_1", 1, [RESULT])))
        again = self.begun(store, RunRecord("r_1", {"messages": "other"}))
        assert again.record.epoch == 2
        assert again.record.input == RUN.input
        assert list(again.steps) == [ANSWER, RESULT]

    def test_an_owner_who_was_replaced_adds_nothing(self, store):
        self.begun(store)
        self.begun(store)
        with pytest.raises(Fenced):
            self.settled(
                store.append_entry(
                    JournalEntry(
                        "r_1", 1, [ANSWER], status="done", result={"text": "late"}
                    )
                )
            )
        kept = self.settled(store.load_run("r_1"))
        assert list(kept.steps) == []
        assert (kept.record.status, kept.record.result) == ("running", None)

    def test_a_run_that_is_not_there_takes_no_steps(self, store):
        with pytest.raises(Fenced):
            self.settled(store.append_entry(JournalEntry("r_none", 1, [ANSWER])))

    def test_a_step_that_is_there_stays_as_it_is(self, store):
        self.begun(store)
        self.settled(store.append_entry(JournalEntry("r_1", 1, [ANSWER])))
        self.settled(
            store.append_entry(
                JournalEntry(
                    "r_1", 1, [JournalStep("1.m", "model", {"text": "other"}), RESULT]
                )
            )
        )
        assert list(self.settled(store.load_run("r_1")).steps) == [ANSWER, RESULT]

    def test_how_a_run_ended_is_kept_beside_its_last_steps(self, store):
        self.begun(store)
        self.settled(
            store.append_entry(
                JournalEntry("r_1", 1, [ANSWER], status="done", result={"text": "北京"})
            )
        )
        record = self.settled(store.load_run("r_1")).record
        assert (record.status, record.result) == ("done", {"text": "北京"})
        assert record.updated >= record.created

    def test_runs_are_found_by_status_newest_first(self, store):
        for number in range(3):
            self.begun(store, RunRecord(f"r_{number}", {}))
        self.settled(store.append_entry(JournalEntry("r_1", 1, status="waiting")))
        assert [
            each.run_id for each in self.settled(store.list_runs(status="running"))
        ] == ["r_2", "r_0"]
        assert [
            each.run_id for each in self.settled(store.list_runs(status="waiting"))
        ] == ["r_1"]
        assert [each.run_id for each in self.settled(store.list_runs(most=2))] == [
            "r_2",
            "r_1",
        ]

    def test_who_drives_a_run_learns_with_the_next_entry_that_its_end_is_wanted(
        self, store
    ):
        self.begun(store)
        assert (
            self.settled(store.append_entry(JournalEntry("r_1", 1, [ANSWER]))) is False
        )
        assert self.settled(store.request_cancel("r_1")) is True
        assert (
            self.settled(store.append_entry(JournalEntry("r_1", 1, [RESULT]))) is True
        )
        assert self.settled(store.request_cancel("r_none")) is False

    def test_a_run_that_waits_is_cancelled_at_once_and_one_that_is_over_not_at_all(
        self, store
    ):
        self.begun(store)
        self.settled(store.append_entry(JournalEntry("r_1", 1, status="waiting")))
        assert self.settled(store.request_cancel("r_1")) is True
        assert self.settled(store.load_run("r_1")).record.status == "cancelled"
        assert self.settled(store.request_cancel("r_1")) is False

    @pytest.mark.parametrize("status", ["queued", "waiting", "poisoned"])
    def test_a_run_that_nobody_drives_is_not_begun_by_who_has_read_it_before_its_cancelling(
        self, store, status
    ):
        self.begun(store)
        self.settled(store.append_entry(JournalEntry("r_1", 1, status=status)))
        read = self.settled(store.load_run("r_1")).record
        self.settled(store.request_cancel("r_1"))
        with pytest.raises(Fenced):
            self.settled(store.begin_run(read, unchanged=True))
        with pytest.raises(Fenced):  # a status that its last owner records late
            self.settled(store.append_entry(JournalEntry("r_1", 1, status=status)))
        assert self.settled(store.load_run("r_1")).record.status == "cancelled"

    def test_who_goes_on_with_a_run_that_was_left_learns_that_its_end_is_wanted(
        self, store
    ):
        self.begun(store)
        self.settled(store.request_cancel("r_1"))
        self.settled(store.append_entry(JournalEntry("r_1", 1, status="queued")))
        assert self.begun(store).record.cancel_requested

    def test_whoever_takes_a_run_over_learns_that_its_end_is_wanted_but_not_who_takes_up_a_cancelled_one(
        self, store
    ):
        self.begun(store)
        self.settled(store.request_cancel("r_1"))
        # its first owner died before the next step
        assert self.begun(store).record.cancel_requested
        self.settled(store.append_entry(JournalEntry("r_1", 2, status="cancelled")))
        assert not self.begun(store).record.cancel_requested

    @pytest.mark.parametrize("status", ["queued", "waiting", "poisoned", "running"])
    def test_a_run_that_was_cancelled_after_somebody_has_loaded_it_is_still_to_end(
        self, store, status
    ):
        self.begun(store)
        self.settled(store.append_entry(JournalEntry("r_1", 1, status=status)))
        loaded = self.settled(store.load_run("r_1")).record
        self.settled(store.request_cancel("r_1"))
        if status == "running":  # its driver heeds it
            ended = JournalEntry("r_1", 1, status="cancelled")
            assert self.settled(store.append_entry(ended))
        cancelled = self.settled(store.load_run("r_1")).record
        taken = self.begun(store, loaded).record
        assert (taken.status, taken.cancel_requested) == ("running", True)
        ended = JournalEntry("r_1", taken.epoch, status="cancelled")
        self.settled(store.append_entry(ended))
        # cancelled once more: whoever has loaded it the first time does not know of the second
        assert self.begun(store, cancelled).record.cancel_requested

    @pytest.mark.parametrize("status", ["cancelled", "failed", "poisoned"])
    def test_a_run_that_was_ended_since_it_was_loaded_is_not_taken_over_unchanged(
        self, store, status
    ):
        self.begun(store)
        loaded = self.settled(store.load_run("r_1")).record
        # its driver, which seemed to be dead
        self.settled(store.append_entry(JournalEntry("r_1", 1, status=status)))
        with pytest.raises(Fenced):
            self.settled(store.begin_run(loaded, unchanged=True))
        ended = self.settled(store.load_run("r_1")).record
        assert ended.status == status
        taken = self.settled(store.begin_run(ended, unchanged=True)).record
        assert (taken.status, taken.epoch) == ("running", 2)

    def test_who_has_loaded_a_cancelled_run_can_take_it_up_again(self, store):
        self.begun(store)
        self.settled(store.append_entry(JournalEntry("r_1", 1, status="waiting")))
        self.settled(store.request_cancel("r_1"))
        loaded = self.settled(store.load_run("r_1")).record
        assert not self.begun(store, loaded).record.cancel_requested

    def test_a_run_that_is_to_wait_is_cancelled_if_its_end_is_wanted(self, store):
        self.begun(store)
        self.asked(store)
        loaded = self.settled(store.load_run("r_1")).record
        self.settled(store.request_cancel("r_1"))
        self.asked(store, replace(QUESTION, id="q_2"))
        waits = JournalEntry("r_1", 1, [ANSWER], status="waiting")
        assert self.settled(store.append_entry(waits)) is True
        stored = self.settled(store.load_run("r_1"))
        assert (stored.record.status, list(stored.steps)) == ("cancelled", [ANSWER])
        assert self.settled(store.list_approvals()) == []
        # the driver of it dies before it records how the run ended
        assert self.begun(store, loaded).record.cancel_requested

    def test_a_run_counts_how_often_in_a_row_it_was_taken_over_from_a_process_that_ended_nothing(
        self, store
    ):
        record = replace(RUN, owner=gone())
        assert [self.begun(store, record).record.takeovers for _ in range(3)] == [
            0,
            1,
            2,
        ]
        self.settled(store.append_entry(JournalEntry("r_1", 3, [ANSWER])))
        assert self.begun(store, record).record.takeovers == 3
        assert self.settled(store.load_run("r_1")).record.takeovers == 3
        self.settled(store.append_entry(JournalEntry("r_1", 4, status="waiting")))
        # it came to a pause, and nobody died
        assert self.begun(store, record).record.takeovers == 0

    def test_a_run_that_is_taken_from_processes_that_live_counts_none_and_forgets_none(
        self, store
    ):
        self.begun(store, replace(RUN, owner=gone()))
        ours = replace(RUN, owner=process_identity.owner())
        assert [self.begun(store, ours).record.takeovers for _ in range(7)] == [1] * 7
        assert not self.settled(store.load_run("r_1")).record.is_poisoned
        taken = self.begun(store, replace(RUN, owner=gone())).record
        assert (taken.takeovers, taken.owner, taken.epoch) == (1, gone(), 9)
        assert self.begun(store).record.takeovers == 2

    def test_of_a_process_elsewhere_silence_counts(self, store, monkeypatch):
        record = replace(RUN, owner="elsewhere:1:x")
        assert [self.begun(store, record).record.takeovers for _ in range(3)] == [
            0,
            0,
            0,
        ]
        monkeypatch.setattr(process_identity, "SILENT_S", 0.0)
        assert [self.begun(store, record).record.takeovers for _ in range(2)] == [1, 2]

    def test_a_run_that_nobody_has_driven_yet_was_not_taken_over(self, store):
        self.begun(store)  # as a fork is made: without an owner
        assert self.begun(store, replace(RUN, owner="here:1:x")).record.takeovers == 0

    def test_a_poisoned_run_can_be_ended_and_begins_to_count_anew_when_somebody_insists(
        self, store
    ):
        for _ in range(6):
            record = self.begun(store, replace(RUN, owner=gone())).record
        assert record.is_poisoned
        self.settled(store.append_entry(JournalEntry("r_1", 6, status="poisoned")))
        assert self.settled(store.list_runs(status="poisoned"))[0].takeovers == 5
        again = self.begun(store, replace(RUN, owner="here:1:x")).record
        assert (again.status, again.takeovers, again.is_poisoned) == (
            "running",
            0,
            False,
        )
        self.settled(store.append_entry(JournalEntry("r_1", 7, status="poisoned")))
        assert self.settled(store.request_cancel("r_1")) is True
        assert self.settled(store.load_run("r_1")).record.status == "cancelled"

    def test_an_unknown_run_is_none(self, store):
        assert self.settled(store.load_run("r_none")) is None

    # -- questions -----------------------------------------------------------------------------------------------------

    def asked(self, store, question=QUESTION, within_s=60.0):
        return self.settled(store.ask(question, within_s=within_s))

    def test_a_question_is_kept_exactly_as_it_was_shown(self, store):
        kept = self.asked(store)
        assert kept.state == "open"
        assert kept.expires - kept.asked == pytest.approx(60.0)
        assert self.settled(store.list_approvals()) == [kept]
        for name in (
            "id",
            "run_id",
            "call_id",
            "tool",
            "digest",
            "arguments",
            "risk",
            "reason",
            "description",
        ):
            assert getattr(kept, name) == getattr(QUESTION, name)

    def test_a_question_asked_again_is_the_same_one(self, store):
        first = self.asked(store)
        assert self.asked(store, within_s=9.0) == first
        assert len(self.settled(store.list_approvals())) == 1

    def test_a_word_is_kept_with_who_gave_it_and_why(self, store):
        self.asked(store)
        decided = self.settled(
            store.decide("q_1", granted=False, by="maria", reason="too much")
        )
        assert (decided.state, decided.by, decided.decision_reason) == (
            "denied",
            "maria",
            "too much",
        )
        assert self.asked(store) == decided

    def test_the_first_word_counts(self, store):
        self.asked(store)
        first = self.settled(
            store.decide(
                "q_1", granted=True, by="maria", edited={"order": "7", "amount": 1.0}
            )
        )
        assert first.edited == {"order": "7", "amount": 1.0}
        assert self.settled(store.decide("q_1", granted=False, by="jens")) == first

    def test_an_approval_is_used_once(self, store):
        self.asked(store)
        assert self.settled(store.use("q_1")) is False
        self.settled(store.decide("q_1", granted=True, by="maria"))
        assert [self.settled(store.use("q_1")) for _ in range(2)] == [True, False]
        assert self.asked(store).state == "used"

    # -- one's own approval --------------------------------------------------------------------------------------------

    def test_the_approval_of_whom_a_call_is_for_changes_nothing_unless_it_is_permitted(
        self, store
    ):
        asked = self.asked(store, replace(QUESTION, principal="ben"))
        assert self.decided(store, "Ben") == asked
        permitted = replace(QUESTION, principal="ben", own_approval=True)
        assert self.asked(store, permitted).own_approval is True
        assert self.decided(store, "Ben").state == "approved"
        # an approval that was given stands
        assert self.asked(store, replace(QUESTION, principal="ben")).by == "Ben"

    # -- several people ------------------------------------------------------------------------------------------------

    OF_TWO = replace(QUESTION, required_approvals=2, principal="ben")

    def decided(self, store, by, granted=True, **how):
        return self.settled(store.decide("q_1", granted=granted, by=by, **how))

    def test_where_two_must_agree_one_yes_leaves_the_question_open_and_says_whose_it_was(
        self, store
    ):
        assert self.asked(store, self.OF_TWO).principal == "ben"
        first = self.decided(store, "anna")
        assert (first.state, first.agreed, first.by) == ("open", ("anna",), "")
        assert self.settled(store.use("q_1")) is False
        assert self.settled(store.list_approvals()) == [first]
        assert self.asked(store, self.OF_TWO) == first
        second = self.decided(store, "cleo")
        assert (second.state, second.by) == ("approved", "anna and cleo")
        assert [self.settled(store.use("q_1")) for _ in range(2)] == [True, False]

    @pytest.mark.parametrize(
        "by",
        [
            "anna",
            " ANNA ",
            "ann\u200ba",
            "ann\ufe0fa",
            "anna\u3164",
            "\u2800",
            "ben",
            "Ben",
            "",
            "  ",
        ],
    )
    def test_the_same_person_the_one_it_is_for_and_nobody_do_not_count_as_a_second_one(
        self, store, by
    ):
        self.asked(store, self.OF_TWO)
        first = self.decided(store, "anna")
        assert self.decided(store, by) == first
        assert self.decided(store, "cleo").state == "approved"

    def test_one_no_of_whomever_is_enough(self, store):
        self.asked(store, self.OF_TWO)
        self.decided(store, "anna")
        denied = self.decided(store, "ben", granted=False, reason="I was wrong")
        assert (denied.state, denied.by, denied.decision_reason) == (
            "denied",
            "ben",
            "I was wrong",
        )
        assert self.decided(store, "cleo") == denied

    def test_an_edit_of_one_is_no_yes_of_two(self, store):
        self.asked(store, self.OF_TWO)
        assert (
            self.decided(store, "anna", edited={"order": "7", "amount": 900.0}).agreed
            == ()
        )

    def test_a_question_that_more_people_must_agree_to_now_is_open_again(self, store):
        self.asked(store, within_s=30.0)
        self.decided(store, "anna", edited={"order": "7", "amount": 1.0})
        again = self.asked(store, self.OF_TWO)
        assert (again.state, again.required_approvals, again.agreed) == ("open", 2, ())
        assert (again.edited, again.by) == (None, "")
        assert again.expires - again.asked > 50
        assert self.settled(store.use("q_1")) is False
        # one that fewer must agree to now stays as strict as it was
        assert self.asked(store).required_approvals == 2

    def test_what_was_used_or_denied_is_not_opened_again(self, store):
        self.asked(store)
        denied = self.decided(store, "anna", granted=False)
        assert self.asked(store, self.OF_TWO) == denied

    def test_two_who_agree_at_once_are_both_heard(self, store):
        for number in range(20):
            question = replace(self.OF_TWO, id=f"q_{number}", required_approvals=8)
            self.asked(store, question)
            with ThreadPoolExecutor(8) as threads:
                agree = partial(store.decide, question.id, granted=True)
                list(
                    threads.map(
                        lambda name, agree=agree: self.settled(agree(by=name)),
                        map(str, range(8)),
                    )
                )
        assert {
            each.state for each in self.settled(store.list_approvals(state=""))
        } == {"approved"}

    def test_a_denied_question_is_never_used(self, store):
        self.asked(store)
        self.settled(store.decide("q_1", granted=False, by="maria"))
        assert self.settled(store.use("q_1")) is False

    def test_a_question_ends_with_its_time_whether_or_not_it_was_answered(self, store):
        self.asked(store, within_s=-1.0)
        assert self.asked(store).state == "expired"
        assert (
            self.settled(store.decide("q_1", granted=True, by="late")).state
            == "expired"
        )
        assert self.settled(store.use("q_1")) is False
        assert self.settled(store.list_approvals()) == []

    @pytest.mark.parametrize("ended_by", ["a wish", "its owner"])
    def test_a_run_that_is_cancelled_closes_its_questions_and_no_others(
        self, store, ended_by
    ):
        for number, run_id in enumerate(["r_1", "r_1", "r_1", "r_2"]):
            self.asked(store, replace(QUESTION, id=f"q_{number}", run_id=run_id))
        self.settled(store.decide("q_1", granted=True, by="maria"))
        self.settled(store.decide("q_2", granted=False, by="maria", reason="too much"))
        self.begun(store)
        if ended_by == "a wish":
            assert self.settled(store.request_cancel("r_1"))
        else:
            self.settled(
                store.append_entry(
                    JournalEntry(
                        "r_1", 1, status="cancelled", result={"status": "cancelled"}
                    )
                )
            )
        states = [
            (each.state, each.decision_reason)
            for each in self.settled(store.list_approvals(state=""))
        ]
        closed = ("cancelled", "the run was cancelled")
        assert states == [closed, closed, ("denied", "too much"), ("open", "")]
        assert (
            self.settled(store.decide("q_0", granted=True, by="maria")).state
            == "cancelled"
        )
        assert self.settled(store.use("q_1")) is False

    @pytest.mark.parametrize("word", [None, True])
    def test_a_question_is_withdrawn_while_nothing_was_done_under_it(self, store, word):
        self.asked(store)
        if word is not None:
            self.settled(store.decide("q_1", granted=word, by="maria"))
        closed = self.settled(store.withdraw("q_1", by="jens", reason="no need"))
        assert (closed.state, closed.by, closed.decision_reason) == (
            "cancelled",
            "jens",
            "no need",
        )
        assert self.settled(store.list_approvals(state="")) == [closed]
        assert self.settled(store.use("q_1")) is False
        assert self.settled(store.decide("q_1", granted=True, by="otto")) == closed

    @pytest.mark.parametrize("end", ["denied", "used"])
    def test_what_is_decided_for_good_is_not_withdrawn(self, store, end):
        self.asked(store)
        self.settled(store.decide("q_1", granted=end == "used", by="maria"))
        if end == "used":
            assert self.settled(store.use("q_1"))
        kept = self.settled(store.withdraw("q_1", by="jens"))
        assert (kept.state, kept.by) == (end, "maria")

    def test_nobody_withdraws_what_was_not_asked(self, store):
        assert self.settled(store.withdraw("q_none", by="maria")) is None

    def test_nobody_decides_what_was_not_asked(self, store):
        assert self.settled(store.decide("q_none", granted=True, by="maria")) is None

    def test_questions_are_found_by_state_and_run(self, store):
        self.asked(store)
        other = ApprovalRequest("q_2", "r_2", "c_2", "refund", "d2", {}, "high", "")
        self.asked(store, other)
        self.settled(store.decide("q_2", granted=True, by="maria"))
        assert [
            each.id for each in self.settled(store.list_approvals(state="", run_id=""))
        ] == ["q_1", "q_2"]
        assert [
            each.id for each in self.settled(store.list_approvals(state="approved"))
        ] == ["q_2"]
        assert [
            each.id
            for each in self.settled(store.list_approvals(state="", run_id="r_1"))
        ] == ["q_1"]

    @pytest.mark.parametrize(("wanted", "found"), [
        ({"id": "q_2", "state": ""}, ["q_2"]),
        ({"id": "q_2", "state": "", "run_id": "r_2"}, ["q_2"]),
        ({"id": "q_2", "state": "", "run_id": "r_1"}, []),
        ({"id": "q_2", "state": "open"}, []),
        ({"id": "q_3", "state": ""}, []),
    ])  # fmt: skip
    def test_a_question_is_found_by_its_id(self, store, wanted, found):
        self.asked(store)
        other = ApprovalRequest("q_2", "r_2", "c_2", "refund", "d2", {}, "high", "")
        self.asked(store, other)
        self.settled(store.decide("q_2", granted=True, by="maria"))
        questions = self.settled(store.list_approvals(**wanted))
        assert [each.id for each in questions] == found
