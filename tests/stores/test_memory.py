"""The store in memory: the contract, and what it forgets."""

import time

import pytest
from msgspec.structs import replace

from handrail.effects import Claim, ClaimState, Settle
from handrail.stores import memory
from handrail.stores.memory import KEY_LIFETIME_S, MemoryStore
from handrail.testing import ManualClock
from handrail.testing.contracts.approvals import ApprovedClaimContract
from handrail.testing.contracts.claims import A_REFUND
from handrail.testing.contracts.stores import StoreContract


class TestMemoryStore(StoreContract, ApprovedClaimContract):
    acts_at_once = 300

    def open(self):
        self.passed_s = 0.0
        return MemoryStore(clock=lambda: time.time() + self.passed_s)

    def pass_time(self, seconds):
        self.passed_s += seconds


IN_PLACE = Claim("", "r0/1/0", b"fp", "r0", "none", 60.0)
"""A write whose key is its place in the run."""


def done(store: MemoryStore, claim: Claim, state: str = "done") -> None:
    claimed = store.claim(claim)
    assert claimed.state is ClaimState.FRESH
    assert store.settle(Settle(claim.scope, claim.key, claimed.fence, state))


def others(store: MemoryStore, count: int) -> None:
    """Let other runs write."""
    for number in range(count):
        done(store, replace(IN_PLACE, key=f"x{number}/1/0", run_id=f"x{number}"))


def rows(store: MemoryStore) -> int:
    return int(repr(store).split()[1])


def test_it_says_how_much_it_holds():
    store = MemoryStore()
    done(store, A_REFUND)
    store.save_result("r1", "x")
    assert repr(store) == "<MemoryStore: 1 writes, 1 long results>"


@pytest.mark.parametrize(("claim", "state"), [
    (A_REFUND, "done"),
    (A_REFUND, "failed"),
    (IN_PLACE, "done"),
])  # fmt: skip
def test_a_settled_write_is_forgotten_after_a_day(claim, state):
    store = MemoryStore(now=(clock := ManualClock()))
    done(store, claim, state)
    clock.advance(KEY_LIFETIME_S + 1)
    others(store, 3)
    assert store.claim(claim).state is ClaimState.FRESH
    assert rows(store) == 4


def test_a_declared_key_is_remembered_for_a_day_however_many_others_there_are(
    monkeypatch,
):
    monkeypatch.setattr(memory, "MAX_ROWS", 10)
    store = MemoryStore(now=(clock := ManualClock()))
    done(store, A_REFUND)
    clock.advance(KEY_LIFETIME_S - 1)
    others(store, 100)
    assert store.claim(A_REFUND).state is ClaimState.DONE


def test_the_places_in_old_runs_make_room_for_new_ones(monkeypatch):
    monkeypatch.setattr(memory, "MAX_ROWS", 10)
    store = MemoryStore()
    others(store, 100)
    assert rows(store) == 10
    assert (
        store.claim(replace(IN_PLACE, key="x99/1/0", run_id="x99")).state
        is ClaimState.DONE
    )


@pytest.mark.parametrize("state", ["claimed", "in_doubt"])
def test_what_is_not_known_is_never_forgotten(monkeypatch, state):
    monkeypatch.setattr(memory, "MAX_ROWS", 10)
    store = MemoryStore(now=(clock := ManualClock()))
    claimed = store.claim(A_REFUND)
    if state == "in_doubt":
        store.settle(Settle(A_REFUND.scope, A_REFUND.key, claimed.fence, "in_doubt"))
    for _ in range(3):
        others(store, 100)
        clock.advance(KEY_LIFETIME_S + 1)
    assert store.claim(A_REFUND).state is ClaimState.IN_DOUBT


def test_a_forgotten_write_is_forgotten_by_the_repeat_guard_too():
    store = MemoryStore(now=(clock := ManualClock()))
    done(store, A_REFUND)
    clock.advance(KEY_LIFETIME_S + 1)
    others(store, 2)
    assert store.claim(replace(A_REFUND, key="r1/2/0")).state is ClaimState.FRESH


def test_the_oldest_kept_texts_make_room(monkeypatch):
    monkeypatch.setattr(memory, "MAX_SAVED_CHARACTERS", 100)
    store = MemoryStore()
    handles = [store.save_result("r1", "x" * 40) for _ in range(3)]
    assert [store.load_result("r1", handle) is not None for handle in handles] == [
        False,
        True,
        True,
    ]


def test_a_text_that_is_larger_than_all_room_is_kept_until_the_next():
    store = MemoryStore()
    handle = store.save_result("r1", "x" * (memory.MAX_SAVED_CHARACTERS + 1))
    assert store.load_result("r1", handle)
