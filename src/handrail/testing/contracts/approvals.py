"""What every store must hold to whose claims use approvals. A store's test class inherits `ApprovedClaimContract`."""

import pytest
from msgspec.structs import replace

from handrail.effects import ClaimState, Settle
from handrail.ports import ApprovedClaimStore
from handrail.records import AWAITS_RESULT, ApprovalRequest, name_write
from handrail.testing.contracts.claims import A_REFUND, LONG_S, OVER_S
from handrail.testing.contracts.stores import SETTLED_AS, closed, now

A_QUESTION = ApprovalRequest(
    "q_1", "r1", "c_1", "refund", "d1", {"order": "7"}, "high", "it is large"
)
APPROVED = replace(A_REFUND, approval="q_1")
ALIKE = replace(APPROVED, key="refund:882", fingerprint=b"fp-882", guard=False)
"""Another write that comes with the same approval."""


class ApprovedClaimContract:
    """The laws. `open` returns a store that holds nothing, `pass_time` lets every question in it be so much older."""

    def open(self):
        raise NotImplementedError

    def pass_time(self, seconds: float) -> None:
        raise NotImplementedError

    @pytest.fixture
    def office(self):
        store = self.open()
        yield store
        closed(store)

    def agreed(self, store, question=A_QUESTION, within_s=600.0):
        now(store.ask(question, within_s=within_s))
        return now(store.decide(question.id, granted=True, by="anna"))

    def question(self, store):
        [kept] = now(store.list_approvals(state=""))
        return kept

    def answers(self, store, *claims):
        return [now(store.claim(each)).state for each in claims]

    def test_a_delivery_settles_the_write_that_waits_for_it(self, office):
        started = now(office.claim(A_REFUND))
        waiting = self.ask_for_result(office, started.fence)
        assert self.answers(office, A_REFUND) == [ClaimState.STARTED]
        office_says = {"granted": True, "by": "bank", "edited": {"value": {"paid": 20}}}
        assert now(office.decide(waiting.id, **office_says)).state == "approved"
        done = now(office.claim(replace(A_REFUND, run_id="r2")))
        assert (done.state, done.value) == (ClaimState.DONE, {"paid": 20})

    @pytest.mark.parametrize("how", ["denied", "withdrawn"])
    def test_a_result_that_will_not_come_leaves_its_write_in_doubt(self, office, how):
        waiting = self.ask_for_result(office, now(office.claim(A_REFUND)).fence)
        if how == "denied":
            now(office.decide(waiting.id, granted=False, by="bank"))
        else:
            now(office.withdraw(waiting.id, by="bank"))
        assert self.answers(office, A_REFUND) == [ClaimState.IN_DOUBT]

    @pytest.mark.parametrize("ending", ["failed", "done"])
    def test_a_delivery_to_a_write_that_has_ended_closes_the_question(
        self, office, ending
    ):
        fence = now(office.claim(A_REFUND)).fence
        waiting = self.ask_for_result(office, fence)
        settle = Settle(A_REFUND.scope, A_REFUND.key, fence, state=ending, value="x")
        assert now(office.settle(settle))
        late = {"granted": True, "by": "bank", "edited": {"value": "late"}}
        assert now(office.decide(waiting.id, **late)).state == "cancelled"
        found = now(office.claim(A_REFUND))
        assert found.value == ("x" if ending == "done" else None)

    def test_the_tool_of_a_deferred_write_ends_before_or_after_its_delivery(
        self, office
    ):
        fence = now(office.claim(A_REFUND)).fence
        ends = Settle(A_REFUND.scope, A_REFUND.key, fence, state="waiting")
        waiting = self.ask_for_result(office, fence)
        assert now(office.settle(ends))
        late = {"granted": True, "by": "bank", "edited": {"value": "Monday"}}
        now(office.decide(waiting.id, **late))
        assert now(office.settle(ends))
        assert now(office.claim(A_REFUND)).value == "Monday"

    def test_a_deferred_write_that_failed_starts_again_and_takes_its_delivery(
        self, office
    ):
        fence = now(office.claim(A_REFUND)).fence
        failed = Settle(A_REFUND.scope, A_REFUND.key, fence, state="failed")
        assert now(office.settle(failed))
        again = now(office.claim(replace(A_REFUND, run_id="r2")))
        assert again.state is ClaimState.FRESH
        waiting = self.ask_for_result(office, again.fence)
        says = {"granted": True, "by": "bank", "edited": {"value": "paid"}}
        assert now(office.decide(waiting.id, **says)).state == "approved"
        assert now(office.load_write(A_REFUND.scope, A_REFUND.key)).run_id == "r2"

    def test_until_its_result_is_asked_for_a_write_is_claimed_like_any_other(
        self, office
    ):
        later = replace(A_REFUND, run_id="r2", lease_s=LONG_S)
        now(office.claim(replace(A_REFUND, lease_s=LONG_S)))
        assert self.answers(office, later) == [ClaimState.BUSY]
        self.ask_for_result(office, 1)
        assert self.answers(office, later) == [ClaimState.STARTED]

    def test_no_result_is_asked_for_of_a_write_that_others_have_given_up(self, office):
        assert self.answers(office, replace(A_REFUND, lease_s=OVER_S)) == [
            ClaimState.FRESH
        ]
        assert self.answers(office, A_REFUND) == [ClaimState.IN_DOUBT]
        assert self.ask_for_result(office, 1).state == "cancelled"
        assert now(office.list_approvals(state="")) == []

    def ask_for_result(self, store, fence):
        name = name_write(A_REFUND.scope, A_REFUND.key, fence)
        question = replace(A_QUESTION, reason=AWAITS_RESULT, used_by=name)
        return now(store.ask(question, within_s=600.0))

    def test_its_claims_use_approvals(self, office):
        assert isinstance(office, ApprovedClaimStore)
        assert office.claims_use_approvals

    def test_a_claim_uses_its_approval_and_the_approval_tells_which_claim_that_was(
        self, office
    ):
        self.agreed(office)
        assert self.answers(office, APPROVED) == [ClaimState.FRESH]
        assert (self.question(office).state, self.question(office).used_by) == (
            "used",
            '["", "refund:881", 1]',
        )

    def test_a_used_approval_starts_no_other_write_and_claims_nothing(self, office):
        self.agreed(office)
        answers = self.answers(office, APPROVED, ALIKE, replace(ALIKE, approval=""))
        assert answers == [ClaimState.FRESH, ClaimState.UNAPPROVED, ClaimState.FRESH]

    @pytest.mark.parametrize(
        "state", ["open", "denied", "expired", "used before", "none"]
    )
    def test_what_is_no_approval_starts_nothing(self, office, state):
        within_s = OVER_S if state == "expired" else 600.0
        now(
            office.ask(
                replace(A_QUESTION, id="q_2") if state == "none" else A_QUESTION,
                within_s=within_s,
            )
        )
        if state != "open":
            now(office.decide("q_1", granted=state != "denied", by="anna"))
        if state == "used before":
            assert now(office.use("q_1"))
        assert self.answers(office, APPROVED) == [ClaimState.UNAPPROVED]

    def test_an_approval_whose_time_is_over_starts_nothing(self, office):
        self.agreed(office, within_s=60.0)
        self.pass_time(61.0)
        assert self.answers(office, APPROVED) == [ClaimState.UNAPPROVED]

    @pytest.mark.parametrize("state", ["done", "in_doubt"])
    def test_what_the_ledger_answers_leaves_the_approval_unused(self, office, state):
        fence = now(office.claim(A_REFUND)).fence
        now(office.settle(Settle("", "refund:881", fence, state, SETTLED_AS[state])))
        self.agreed(office)
        assert self.answers(office, APPROVED) == [ClaimState(state)]
        assert self.question(office).state == "approved"

    def test_what_is_under_way_leaves_the_approval_unused(self, office):
        self.agreed(office)
        assert self.answers(office, A_REFUND, APPROVED) == [
            ClaimState.FRESH,
            ClaimState.BUSY,
        ]
        assert self.question(office).state == "approved"

    @pytest.mark.parametrize(
        ("replay", "answer"), [("key", ClaimState.AGAIN), ("verify", ClaimState.CHECK)]
    )
    def test_a_write_that_was_begun_under_its_approval_is_gone_on_with_however_often_it_dies(
        self, office, replay, answer
    ):
        self.agreed(office)
        begun = replace(APPROVED, replay=replay, lease_s=OVER_S)
        assert self.answers(office, begun, begun, begun) == [
            ClaimState.FRESH,
            answer,
            answer,
        ]
        assert self.question(office).used_by == '["", "refund:881", 3]'

    @pytest.mark.parametrize(
        ("epochs", "answer"),
        [((1, 2), ClaimState.AGAIN), ((0, 0), ClaimState.UNAPPROVED)],
    )
    def test_after_its_time_only_the_kept_run_that_began_a_write_goes_on_with_it(
        self, office, epochs, answer
    ):
        self.agreed(office, within_s=60.0)
        first, second = (
            replace(APPROVED, replay="key", lease_s=OVER_S, epoch=epoch)
            for epoch in epochs
        )
        assert self.answers(office, first) == [ClaimState.FRESH]
        self.pass_time(61.0)
        assert self.answers(office, second) == [answer]

    @pytest.mark.parametrize(("epoch", "later_s", "answer"), [
        # another call that comes to the same: it needs an approval of its own
        (0, 0.0, ClaimState.UNAPPROVED),
        # the same call, whose process died before it could tell of the failure
        (2, 0.0, ClaimState.FRESH),
        (2, 61.0, ClaimState.UNAPPROVED),  # nothing new starts once the time is over
    ])  # fmt: skip
    def test_the_approval_of_a_write_that_certainly_failed_is_for_the_same_call_only(
        self, office, epoch, later_s, answer
    ):
        self.agreed(office, within_s=60.0)
        fence = now(office.claim(replace(APPROVED, epoch=min(epoch, 1)))).fence
        now(office.settle(Settle("", "refund:881", fence, "failed")))
        self.pass_time(later_s)
        assert self.answers(office, replace(APPROVED, epoch=epoch)) == [answer]

    def test_one_who_took_a_dead_write_over_under_another_approval_leaves_the_first_one_nothing(
        self, office
    ):
        self.agreed(office)
        self.agreed(office, replace(A_QUESTION, id="q_2", digest="d2"))
        begun = replace(APPROVED, replay="key", lease_s=OVER_S)
        answers = self.answers(office, begun, replace(begun, approval="q_2"), begun)
        assert answers == [ClaimState.FRESH, ClaimState.AGAIN, ClaimState.UNAPPROVED]

    # -- looking without claiming --------------------------------------------------------------------------------------

    def test_looking_claims_nothing(self, office):
        assert [now(office.look_up(APPROVED)) for _ in range(2)] == [None, None]
        assert self.answers(office, A_REFUND) == [ClaimState.FRESH]

    @pytest.mark.parametrize(("state", "seen"), [
        ("done", ClaimState.DONE), ("in_doubt", ClaimState.IN_DOUBT), ("failed", None), ("", ClaimState.BUSY),
    ])  # fmt: skip
    @pytest.mark.parametrize(
        "other", [{}, {"key": "refund:again"}], ids=["its key", "the same act"]
    )
    def test_looking_tells_what_a_claim_would_be_told(self, office, state, seen, other):
        fence = now(office.claim(A_REFUND)).fence
        value = SETTLED_AS.get(state)
        if state:
            now(office.settle(Settle("", "refund:881", fence, state, value)))
        looked = now(office.look_up(replace(APPROVED, **other)))
        assert (looked and looked.state) == seen
        assert (looked and looked.value) == value

    def test_looking_tells_of_a_conflict_and_of_the_same_act_lately_in_another_run(
        self, office
    ):
        fence = now(office.claim(replace(A_REFUND, repeat_window_s=LONG_S))).fence
        now(office.settle(Settle("", "refund:881", fence, "done", "paid")))
        lately = replace(APPROVED, key="r2/1", run_id="r2", repeat_window_s=LONG_S)
        assert now(office.look_up(lately)).value == "paid"
        assert (
            now(office.look_up(replace(APPROVED, fingerprint=b"other"))).state
            is ClaimState.CONFLICT
        )
