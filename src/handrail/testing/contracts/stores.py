"""What every store must hold to. A store's test class inherits `StoreContract` and opens its store.

    class TestMemoryStore(StoreContract):
        def open(self):
            return MemoryStore()

Time passes in leases: one of -1 s is over when it begins, one of 600 s outlasts any test.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import Literal, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from handrail.effects import Claimed, ClaimState, Renew, Settle
from handrail.futures import StoreAnswer
from handrail.ports import LeaseStore, Store
from handrail.testing.contracts.claims import A_REFUND, LONG_S, OVER_S

T = TypeVar("T")
THREADS = 64

# One test method serves several stores' classes, which hypothesis would take for a mistake.
shared = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)


def now(answer: StoreAnswer[T]) -> T:
    """The answer of a store, however it gives it."""
    return answer.result(10) if isinstance(answer, Future) else answer


SETTLED_AS = {"done": "paid", "in_doubt": "attempt 1: TimeoutError"}
"""What comes with the end of a write: its result, or why nobody knows whether it happened."""


def closed(store):
    """Close a store that can be closed."""
    getattr(store, "close", lambda: None)()


class StoreContract:
    """The laws."""

    acts_at_once = 20
    """How many keys the threads fight for. A quick store needs more of them for a gap to be found."""

    def open(self) -> Store:
        """Return a store that holds nothing."""
        raise NotImplementedError

    @pytest.fixture
    def store(self):
        store = self.open()
        yield store
        closed(store)

    @pytest.fixture
    def hurried(self):
        """Let threads take turns as often as they can, so that a gap between two steps is found."""
        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(usual)

    def claimed(
        self, store: Store, replay: str = "none", *, lease_s: float = LONG_S
    ) -> Claimed:
        claimed = now(store.claim(replace(A_REFUND, replay=replay, lease_s=lease_s)))
        assert claimed.state is ClaimState.FRESH
        return claimed

    def settled(
        self,
        store: Store,
        state: Literal["done", "failed", "in_doubt", "waiting"],
        replay="none",
        *,
        lease_s: float = LONG_S,
        value=None,
    ) -> Claimed:
        claimed = self.claimed(store, replay, lease_s=lease_s)
        assert now(store.settle(Settle("", "refund:881", claimed.fence, state, value)))
        return claimed

    # -- how long a far side knows a key, and acts of other runs -------------------------------------------------------

    @pytest.mark.parametrize("settled", [None, "in_doubt"])
    def test_a_key_that_the_far_side_may_have_forgotten_is_in_doubt(
        self, store, settled
    ):
        claimed = self.claimed(store, "key", lease_s=OVER_S)
        if settled:
            assert now(store.settle(Settle("", "refund:881", claimed.fence, settled)))
        again = replace(A_REFUND, replay="key", key_ttl_s=OVER_S)
        assert {now(store.claim(again)).state for _ in range(2)} == {
            ClaimState.IN_DOUBT
        }
        # its owner may report
        assert now(
            store.settle(Settle("", "refund:881", claimed.fence, "done", "late"))
        )

    LATELY = replace(A_REFUND, key="refund:other", run_id="r2", repeat_window_s=LONG_S)

    @pytest.mark.parametrize(("settled", "answer"), [
        ("done", ClaimState.DONE),
        (None, ClaimState.BUSY),
        ("in_doubt", ClaimState.IN_DOUBT),
        ("failed", ClaimState.FRESH),
    ])  # fmt: skip
    def test_the_same_act_lately_in_another_run_is_a_repeat_where_a_window_says_so(
        self, store, settled, answer
    ):
        claimed = now(store.claim(replace(A_REFUND, repeat_window_s=LONG_S)))
        if settled:
            settle = Settle(
                "",
                "refund:881",
                claimed.fence,
                settled,
                "it" if settled == "done" else None,
            )
            assert now(store.settle(settle))
        again = now(store.claim(self.LATELY))
        assert (again.state, again.value) == (
            answer,
            "it" if settled == "done" else None,
        )
        assert again.repeated is (answer is not ClaimState.FRESH)

    @pytest.mark.parametrize("other", [
        # it looks into its own run only
        {"repeat_window_s": 0.0},
        {"scope": "acme"},                                   # of another tenant
        {"fingerprint": b"fp-881-30"},
        # it is meant to be done twice
        {"guard": False},
    ])  # fmt: skip
    def test_without_a_window_or_with_another_act_nothing_is_a_repeat(
        self, store, other
    ):
        self.settled_lately(store)
        assert now(store.claim(replace(self.LATELY, **other))).state is ClaimState.FRESH

    def settled_lately(self, store):
        claimed = now(store.claim(replace(A_REFUND, repeat_window_s=LONG_S)))
        assert now(store.settle(Settle("", "refund:881", claimed.fence, "done", "it")))

    def test_exactly_one_of_many_runs_that_do_the_same_act_at_once_is_fresh(
        self, store, hurried
    ):
        together = Barrier(THREADS)

        def claim(number):
            act = replace(self.LATELY, key=f"act:{number}", run_id=f"run:{number}")
            together.wait(20)
            return now(store.claim(act)).state.value

        with ThreadPoolExecutor(THREADS) as threads:
            assert sorted(threads.map(claim, range(THREADS))) == ["busy"] * (
                THREADS - 1
            ) + ["fresh"]

    # -- leases -------------------------------------------------------------------------------------------------------

    def renewed(self, store: LeaseStore, claimed: Claimed, **other) -> bool:
        return now(
            store.renew(
                replace(Renew("", "refund:881", claimed.fence, LONG_S), **other)
            )
        )

    def test_it_can_be_told_that_an_owner_lives(self, store):
        assert isinstance(store, LeaseStore)

    @pytest.mark.parametrize("replay", ["none", "key", "verify"])
    def test_a_lease_that_is_renewed_keeps_others_out(self, store, replay):
        claimed = self.claimed(store, replay, lease_s=OVER_S)
        assert self.renewed(store, claimed)
        assert (
            now(store.claim(replace(A_REFUND, replay=replay))).state is ClaimState.BUSY
        )
        assert now(store.settle(Settle("", "refund:881", claimed.fence, "done", 1)))

    def test_a_lease_that_lasts_longer_is_not_shortened(self, store):
        claimed = self.claimed(store, lease_s=LONG_S)
        assert self.renewed(store, claimed, lease_s=OVER_S)
        assert now(store.claim(A_REFUND)).state is ClaimState.BUSY

    def test_an_owner_that_was_replaced_renews_nothing(self, store):
        frozen = self.claimed(store, "key", lease_s=OVER_S)
        newer = now(store.claim(replace(A_REFUND, replay="key", lease_s=OVER_S)))
        assert not self.renewed(store, frozen)
        again = now(store.claim(replace(A_REFUND, replay="key")))
        # the newer owner's lease is over all the same
        assert again.fence == newer.fence + 1

    @pytest.mark.parametrize("state", ["done", "failed", "in_doubt"])
    def test_what_has_ended_is_not_renewed(self, store, state):
        assert not self.renewed(
            store, self.settled(store, state, "verify", lease_s=OVER_S)
        )

    def test_what_was_never_claimed_is_not_renewed(self, store):
        assert not self.renewed(store, Claimed(ClaimState.FRESH, 1), key="another")

    # -- claims -------------------------------------------------------------------------------------------------------

    def test_it_is_a_store(self, store):
        assert isinstance(store, Store)

    def test_exactly_one_of_many_claims_at_once_is_fresh(self, store, hurried):
        together = Barrier(THREADS)
        acts = [
            replace(A_REFUND, key=f"refund:{n}", guard=False)
            for n in range(self.acts_at_once)
        ]

        def claim(_):
            together.wait(20)
            return [now(store.claim(act)).state for act in acts]

        with ThreadPoolExecutor(THREADS) as threads:
            answers = list(threads.map(claim, range(THREADS)))
        for states in zip(*answers, strict=True):
            assert sorted(state.value for state in states) == ["busy"] * (
                THREADS - 1
            ) + ["fresh"]

    def test_exactly_one_of_many_takes_over_what_was_abandoned(self, store, hurried):
        self.claimed(store, "key", lease_s=OVER_S)
        together = Barrier(THREADS)

        def claim(_):
            together.wait(20)
            return now(store.claim(replace(A_REFUND, replay="key"))).state

        with ThreadPoolExecutor(THREADS) as threads:
            states = list(threads.map(claim, range(THREADS)))
        assert sorted(state.value for state in states) == [
            "again",
            *["busy"] * (THREADS - 1),
        ]

    @pytest.mark.parametrize("other", [
        {"scope": "acme"},                       # another tenant
        {"key": "refund:882", "fingerprint": b"fp-882"},
    ])  # fmt: skip
    def test_another_act_is_another_claim(self, store, other):
        self.claimed(store)
        assert now(store.claim(replace(A_REFUND, **other))).state is ClaimState.FRESH

    def test_a_write_is_listed_with_the_place_of_the_call_that_started_it(self, store):
        now(store.claim(replace(A_REFUND, place="r1/1/0")))
        if hasattr(store, "list_writes"):
            now(store.settle(Settle("", "refund:881", 1, "failed")))
            assert now(store.claim(replace(A_REFUND, place="r1/2/0"))).fence == 2
            (write,) = now(store.list_writes(run_id="r1"))
            assert (write.tool, write.place) == ("refund", "r1/2/0")

    @pytest.mark.parametrize("ended", [None, "done", "in_doubt", "failed"])
    def test_a_key_is_that_of_one_tool_until_nothing_happened_under_it(
        self, store, ended
    ):
        if ended:
            self.settled(store, ended)
        else:
            self.claimed(store)
        renamed = replace(A_REFUND, fingerprint=b"fp-of-it", tool="refund_card")
        answer = now(store.claim(renamed))
        if ended == "failed":
            assert answer.state is ClaimState.FRESH
        else:
            assert (answer.state, answer.tool) == (ClaimState.CONFLICT, "refund")
        if hasattr(store, "list_writes"):
            owner = "refund_card" if ended == "failed" else "refund"
            assert [each.tool for each in now(store.list_writes())] == [owner]

    @pytest.mark.parametrize(("replay", "lease_s", "answer"), [
        ("none", LONG_S, ClaimState.BUSY),
        ("key", LONG_S, ClaimState.BUSY),
        ("verify", LONG_S, ClaimState.BUSY),
        ("none", OVER_S, ClaimState.IN_DOUBT),   # nobody knows how it ended
        ("key", OVER_S, ClaimState.AGAIN),       # the far side tells duplicates apart
        ("verify", OVER_S, ClaimState.CHECK),    # the tool can be asked
    ])  # fmt: skip
    def test_what_was_claimed_and_not_settled_is_answered_by_lease_and_class(
        self, store, replay, lease_s, answer
    ):
        self.claimed(store, replay, lease_s=lease_s)
        assert now(store.claim(replace(A_REFUND, replay=replay))).state is answer

    @pytest.mark.parametrize(("replay", "lease_s", "answer"), [
        ("none", LONG_S, ClaimState.IN_DOUBT),
        ("none", OVER_S, ClaimState.IN_DOUBT),   # it never expires by itself
        ("key", LONG_S, ClaimState.AGAIN),
        # an old request may still be under way, and `verify` would miss it
        ("verify", LONG_S, ClaimState.IN_DOUBT),
        ("verify", OVER_S, ClaimState.CHECK),
    ])  # fmt: skip
    def test_what_is_in_doubt_is_answered_by_lease_and_class(
        self, store, replay, lease_s, answer
    ):
        self.settled(store, "in_doubt", replay, lease_s=lease_s)
        assert now(store.claim(replace(A_REFUND, replay=replay))).state is answer

    def test_what_is_in_doubt_stays_so_however_often_it_is_claimed(self, store):
        self.claimed(store, lease_s=OVER_S)
        assert {now(store.claim(A_REFUND)).state for _ in range(3)} == {
            ClaimState.IN_DOUBT
        }

    @pytest.mark.parametrize("replay", ["none", "key", "verify"])
    def test_what_certainly_had_no_effect_may_be_claimed_again(self, store, replay):
        self.settled(store, "failed", replay)
        assert (
            now(store.claim(replace(A_REFUND, replay=replay))).state is ClaimState.FRESH
        )

    @pytest.mark.parametrize("replay", ["none", "key", "verify"])
    def test_what_is_done_gives_its_result_from_any_run(self, store, replay):
        self.settled(store, "done", replay, value={"id": 3, "名": ["x", None, 1.5]})
        claimed = now(store.claim(replace(A_REFUND, replay=replay, run_id="r2")))
        assert (claimed.state, claimed.value) == (
            ClaimState.DONE,
            {"id": 3, "名": ["x", None, 1.5]},
        )
        assert not claimed.repeated

    @pytest.mark.parametrize("state", ["claimed", "done", "in_doubt"])
    def test_the_same_key_for_other_arguments_is_a_conflict(self, store, state):
        if state == "claimed":
            self.claimed(store)
        else:
            self.settled(store, state)
        assert (
            now(store.claim(replace(A_REFUND, fingerprint=b"fp-881-30"))).state
            is ClaimState.CONFLICT
        )

    def test_what_certainly_did_not_happen_leaves_its_key_free_for_other_arguments(
        self, store
    ):
        self.settled(store, "failed")
        claimed = now(store.claim(replace(A_REFUND, fingerprint=b"fp-881-50")))
        assert claimed.state is ClaimState.FRESH
        assert now(store.settle(Settle("", "refund:881", claimed.fence, "done", 20)))
        assert now(store.claim(A_REFUND)).state is ClaimState.CONFLICT

    @pytest.mark.parametrize("name", [
        "a\0b", "a\\0b", "a\x100000b", "\ud800", "\udc00", "\ufffd", "'; DROP TABLE effects; --", "%s", "", "退款:881",
        "x" * 5000, "x" * 5001, "名" * 5000,
    ])  # fmt: skip
    def test_a_name_may_hold_anything_and_is_no_other_one(self, store, name):
        odd = replace(A_REFUND, scope=f"s{name}", key=f"k{name}", run_id=f"r{name}")
        claimed = now(store.claim(odd))
        assert claimed.state is ClaimState.FRESH
        assert now(store.claim(odd)).state is ClaimState.BUSY
        assert now(store.claim(replace(odd, key=f"{odd.key}~"))).repeated
        assert (
            now(store.claim(replace(odd, scope=f"{odd.scope}~"))).state
            is ClaimState.FRESH
        )
        assert now(
            store.settle(Settle(odd.scope, odd.key, claimed.fence, "done", name))
        )
        assert now(store.claim(odd)).value == name

    @pytest.mark.parametrize("value", [
        None, True, 0, -(2**70), 1e300, 0.1, "", "\0 \ud83d \u2028", [], {}, {"": {"\0": [None, {"a": [[]]}]}},
        ["名"] * 100_000, "x" * 3_000_000, {"nested": json.loads("[" * 200 + "]" * 200)},
    ], ids=lambda value: repr(value)[:20])  # fmt: skip
    def test_a_result_is_given_back_as_it_was(self, store, value):
        self.settled(store, "done", value=value)
        again = now(store.claim(A_REFUND)).value
        assert (again, type(again)) == (value, type(value))

    def test_a_lease_may_be_endless(self, store):
        self.claimed(store, lease_s=float("inf"))
        assert now(store.claim(A_REFUND)).state is ClaimState.BUSY

    # -- fences -------------------------------------------------------------------------------------------------------

    def test_a_fence_grows_with_every_owner(self, store):
        fences = [self.claimed(store, "key", lease_s=OVER_S).fence]
        for _ in range(3):
            fences.append(
                now(store.claim(replace(A_REFUND, replay="key", lease_s=OVER_S))).fence
            )
        now(store.settle(Settle("", "refund:881", fences[-1], "failed")))
        fences.append(now(store.claim(A_REFUND)).fence)
        assert fences == sorted(set(fences))
        assert fences[0] > 0

    def test_an_owner_that_was_replaced_settles_nothing(self, store):
        old = self.claimed(store, "key", lease_s=OVER_S)
        new = now(store.claim(replace(A_REFUND, replay="key")))
        assert not now(store.settle(Settle("", "refund:881", old.fence, "done", "old")))
        assert now(store.claim(A_REFUND)).state is ClaimState.BUSY
        assert now(store.settle(Settle("", "refund:881", new.fence, "done", "new")))
        assert now(store.claim(A_REFUND)).value == "new"

    def test_whoever_reports_late_still_settles_what_nobody_took_over(self, store):
        late = self.claimed(store, lease_s=OVER_S)
        assert now(store.claim(A_REFUND)).state is ClaimState.IN_DOUBT
        assert now(store.settle(Settle("", "refund:881", late.fence, "done", "late")))
        assert now(store.claim(A_REFUND)).value == "late"

    @pytest.mark.parametrize("state", ["done", "failed"])
    def test_what_is_known_is_not_settled_again(self, store, state):
        claimed = self.settled(store, state, value="first")
        assert not now(
            store.settle(Settle("", "refund:881", claimed.fence, "done", "second"))
        )

    def test_what_nobody_claimed_is_not_settled(self, store):
        assert not now(store.settle(Settle("", "refund:881", 1, "done")))

    # -- the repeat guard ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("state", "answer"), [
        ("claimed", ClaimState.BUSY),
        ("done", ClaimState.DONE),
        ("failed", ClaimState.FRESH),
        ("in_doubt", ClaimState.IN_DOUBT),
    ])  # fmt: skip
    def test_the_same_act_under_another_key_in_one_run_is_seen(
        self, store, state, answer
    ):
        value = SETTLED_AS.get(state)
        if state == "claimed":
            self.claimed(store)
        else:
            self.settled(store, state, value=value)
        claimed = now(store.claim(replace(A_REFUND, key="r1/2/0")))
        assert claimed.state is answer
        assert claimed.repeated is (answer is not ClaimState.FRESH)
        assert claimed.value == value
        assert claimed.key == (A_REFUND.key if state == "done" else "")

    def test_the_same_act_whose_owner_is_gone_is_in_doubt_under_another_key_too(
        self, store
    ):
        self.claimed(store, lease_s=OVER_S)
        assert (
            now(store.claim(replace(A_REFUND, key="r1/2/0"))).state
            is ClaimState.IN_DOUBT
        )

    @pytest.mark.parametrize("other", [
        {"run_id": "r2"},                        # another run means it
        {"guard": False},                        # the tool is meant to be repeated
        {"fingerprint": b"fp-881-30"},           # other arguments
        {"scope": "acme"},                       # another tenant
    ])  # fmt: skip
    def test_what_is_meant_is_no_repeat(self, store, other):
        self.settled(store, "done")
        assert (
            now(store.claim(replace(A_REFUND, key="r1/2/0", **other))).state
            is ClaimState.FRESH
        )

    def test_a_repeat_that_was_answered_claims_nothing(self, store):
        self.settled(store, "done")
        other = replace(A_REFUND, key="r1/2/0")
        now(store.claim(other))
        assert now(store.claim(replace(other, guard=False))).state is ClaimState.FRESH

    # -- kept texts ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("text", ["", "x", "多行\n文本 😀\0", "x" * 3_000_000])
    def test_a_kept_text_is_read_back_as_it_was(self, store, text):
        assert now(store.load_result("r1", now(store.save_result("r1", text)))) == text

    def test_a_kept_text_belongs_to_its_run(self, store):
        handle = now(store.save_result("r1", "secret of r1"))
        assert now(store.load_result("r2", handle)) is None

    def test_two_kept_texts_have_two_handles(self, store):
        handles = {now(store.save_result("r1", "same")) for _ in range(50)}
        assert len(handles) == 50

    def test_an_unknown_handle_is_nothing(self, store):
        assert now(store.load_result("r1", "r_unknown")) is None

    # -- the law ------------------------------------------------------------------------------------------------------

    @shared
    @given(data=st.data())
    def test_a_write_without_help_from_the_far_side_is_given_out_again_only_after_it_failed(
        self, data
    ):
        store, may_start, fences = self.open(), True, [0]
        for _ in range(data.draw(st.integers(1, 12))):
            if data.draw(st.booleans()):
                claim = replace(
                    A_REFUND, lease_s=data.draw(st.sampled_from([OVER_S, LONG_S]))
                )
                claimed = now(store.claim(claim))
                if claimed.state is ClaimState.FRESH:
                    assert may_start
                    may_start = False
                    fences.append(claimed.fence)
                assert claimed.state not in (ClaimState.AGAIN, ClaimState.CHECK)
            else:
                fence = data.draw(st.sampled_from(fences))
                state = data.draw(st.sampled_from(["done", "failed", "in_doubt"]))
                if now(store.settle(Settle("", "refund:881", fence, state))):
                    assert fence == fences[-1]
                    may_start = state == "failed"
        closed(store)

    # -- runs that were taken over -------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("replay", "state"), [
        # who had it is dead or fenced, and nobody knows what it did
        ("none", ClaimState.IN_DOUBT),
        ("key", ClaimState.AGAIN),
        # an old request may still be under way, and `verify` would miss it
        ("verify", ClaimState.BUSY),
    ])  # fmt: skip
    def test_who_takes_a_run_over_does_not_wait_for_the_lease_of_its_earlier_owner(
        self, store, replay, state
    ):
        first = replace(A_REFUND, replay=replay, epoch=1)
        assert now(store.claim(first)).state is ClaimState.FRESH
        assert now(store.claim(first)).state is ClaimState.BUSY  # the same owner
        assert (
            now(store.claim(replace(first, run_id="other", guard=False, epoch=9))).state
            is ClaimState.BUSY
        )
        assert now(store.claim(replace(first, epoch=2))).state is state

    @pytest.mark.parametrize("ending", ["failed", "in_doubt"])
    def test_an_owner_of_a_run_who_was_replaced_starts_nothing_that_the_newer_one_has_ended(
        self, store, ending
    ):
        newer = now(store.claim(replace(A_REFUND, epoch=2)))
        settle = Settle(A_REFUND.scope, A_REFUND.key, newer.fence, state=ending)
        assert now(store.settle(settle))
        older = now(store.claim(replace(A_REFUND, replay="key", epoch=1)))
        assert older.state is ClaimState.BUSY

    @pytest.mark.parametrize("settled", ["", "in_doubt"])
    def test_who_takes_a_run_over_learns_how_long_the_lease_of_its_earlier_owner_lasts(
        self, store, settled
    ):
        first = replace(A_REFUND, replay="verify", epoch=1)
        fence = now(store.claim(first)).fence
        if (
            settled
        ):  # the earlier owner has handed the run over in the middle of the write
            now(store.settle(Settle("", "refund:881", fence, settled)))
        assert 0 < now(store.claim(replace(first, epoch=2))).left_s <= first.lease_s
        # of a living process nobody knows when it ends
        other = replace(first, run_id="other", guard=False, epoch=9)
        assert now(store.claim(other)).left_s == 0.0
        if settled:
            # the same owner is told the doubt, and does not wait
            assert now(store.claim(first)).state is ClaimState.IN_DOUBT

    def test_a_lease_that_is_given_up_is_over_and_the_write_as_its_owner_s_death_leaves_it(
        self, store
    ):
        first = replace(A_REFUND, replay="verify")
        fence = now(store.claim(first)).fence
        assert not now(store.renew(Renew("", "refund:881", fence + 1, 0.0)))
        assert now(store.claim(first)).state is ClaimState.BUSY
        assert now(store.renew(Renew("", "refund:881", fence, 0.0)))
        # the lease lasts to the end of this tick of the store's clock
        for _ in range(10_000):
            claimed = now(store.claim(first))
            if claimed.state is not ClaimState.BUSY:
                break
        assert (claimed.state, claimed.left_s) == (ClaimState.CHECK, 0.0)

    # -- the ledger, for people ---------------------------------------------------------------------------------------

    def test_people_see_the_newest_writes_first(self, store):
        for number, (key, run) in enumerate(
            [("refund:1", "r1"), ("r\ufffd\0", "r2"), ("refund:3", "r2")]
        ):
            claimed = now(
                store.claim(replace(A_REFUND, key=key, run_id=run, guard=False))
            )
            if number:
                now(store.settle(Settle("", key, claimed.fence, "done", [number])))
        assert [each.key for each in now(store.list_writes())] == [
            "refund:3",
            "r\ufffd\0",
            "refund:1",
        ]
        assert [each.value for each in now(store.list_writes(run_id="r2"))] == [
            [2],
            [1],
        ]
        assert [
            each.key for each in now(store.list_writes(state="claimed", most=1))
        ] == ["refund:1"]
        assert {each.fingerprint for each in now(store.list_writes())} == {
            A_REFUND.fingerprint.hex()
        }

    def test_a_write_that_nobody_is_at_any_more_is_listed_as_in_doubt(self, store):
        for key, lease_s in (
            ("over", OVER_S),
            ("under way", LONG_S),
            ("doubtful", LONG_S),
        ):
            claimed = now(
                store.claim(replace(A_REFUND, key=key, guard=False, lease_s=lease_s))
            )
        now(store.settle(Settle("", "doubtful", claimed.fence, "in_doubt")))
        assert [write.key for write in now(store.list_writes(state="claimed"))] == [
            "under way"
        ]
        listed = now(store.list_writes(state="in_doubt"))
        assert [(write.key, write.state) for write in listed] == [
            ("doubtful", "in_doubt"),
            ("over", "claimed"),
        ]
        assert now(store.list_writes(state="in_doubt", run_id="another")) == []
        assert now(store.list_writes(state="in_doubt", most=1)) == listed[:1]

    def test_a_write_is_found_by_its_name(self, store):
        self.claimed(store)
        assert now(store.load_write("", "refund:881")) == now(store.list_writes())[0]
        assert now(store.load_write("", "refund:882")) is None

    @pytest.mark.parametrize(
        ("ended", "answer"), [("done", ClaimState.DONE), ("failed", ClaimState.FRESH)]
    )
    @pytest.mark.parametrize("stood", ["in_doubt", "claimed"])
    def test_a_person_says_how_a_write_ended_that_nobody_knows_of(
        self, store, stood, ended, answer
    ):
        late = self.claimed(store, lease_s=OVER_S)
        if stood == "in_doubt":
            assert now(store.claim(A_REFUND)).state is ClaimState.IN_DOUBT
        word = now(
            store.resolve("", "refund:881", state=ended, by="maria 😀", value={"id": 3})
        )
        assert (word.state, word.resolved_by, word.value) == (
            ended,
            "maria 😀",
            {"id": 3},
        )
        assert not now(
            store.settle(Settle("", "refund:881", late.fence, "done", "late"))
        )
        claimed = now(store.claim(A_REFUND))
        assert (claimed.state, claimed.value) == (
            answer,
            {"id": 3} if ended == "done" else None,
        )
        # of this beginning
        assert now(store.list_writes())[0].resolved_by == (
            "maria 😀" if ended == "done" else ""
        )

    def test_nobody_says_how_a_write_ended_that_is_under_way_or_known(self, store):
        claimed = self.claimed(store)
        assert (
            now(store.resolve("", "refund:881", state="failed", by="maria")).state
            == "claimed"
        )
        assert now(store.settle(Settle("", "refund:881", claimed.fence, "done", 20)))
        known = now(store.resolve("", "refund:881", state="failed", by="maria"))
        assert (known.state, known.value, known.resolved_by) == ("done", 20, "")
        assert now(store.resolve("", "refund:0", state="done", by="maria")) is None

    def test_a_write_that_was_taken_back_frees_its_key_and_its_act_once(self, store):
        done = self.settled(store, "done", value=20)
        assert not now(
            store.release("", "refund:881", fence=done.fence + 1, by="undo of 1.0")
        )
        assert now(store.release("", "refund:881", fence=done.fence, by="undo of 1.0"))
        assert now(store.load_write("", "refund:881")).resolved_by == "undo of 1.0"
        anew = now(store.claim(A_REFUND))
        assert (anew.state, anew.fence) == (ClaimState.FRESH, done.fence + 1)
        assert now(store.settle(Settle("", "refund:881", anew.fence, "done", 20)))
        assert not now(
            store.release("", "refund:881", fence=done.fence, by="undo of 1.0")
        )
        assert now(store.claim(A_REFUND)).state is ClaimState.DONE

    def test_nothing_but_a_write_that_was_done_is_released(self, store):
        claimed = self.claimed(store)
        assert not now(store.release("", "refund:881", fence=claimed.fence, by="undo"))
        assert not now(store.release("", "refund:882", fence=1, by="undo"))
        assert now(store.load_write("", "refund:881")).state == "claimed"
