"""A write of class `verify` that starts long after its claim: nobody looks for it before its time is over."""

import asyncio
import time

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.core.writes import LEASE_BEYOND_TIMEOUT_S
from handrail.effects import Claim, Claimed, ClaimState
from handrail.engine import leases
from handrail.engine.leases import Lease
from handrail.stores.memory_runs import FullMemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call

TIMEOUT_S = 20.0
VERIFY = Claim(
    "pay", "k", b"", "r", "verify", lease_s=TIMEOUT_S + LEASE_BEYOND_TIMEOUT_S
)


class Clock:
    """The clock of leases, which can be moved on."""

    def __init__(self):
        self.passed_s = 0.0

    def __call__(self):
        return time.monotonic() + self.passed_s


class Bank:
    """A write that is opened for as long as you say, and what of its lease was renewed before it started."""

    def __init__(self, clock, *, opens_s, is_lost=False):
        self.clock = clock
        self.opens_s = opens_s
        self.is_lost = is_lost
        self.renewed = []
        self.paid_after = []

    def tool(self):
        bank = self

        class Opened(hr.FunctionTool):
            def open(self):
                bank.clock.passed_s += bank.opens_s

        def pay(order: str) -> str:
            bank.paid_after.append(list(bank.renewed))
            return f"paid {order}"

        return Opened(
            pay,
            name="pay",
            effect="write",
            timeout_s=TIMEOUT_S,
            verify=lambda arguments, context: hr.NotFound(),
        )

    def watch(self, store):
        renew = store.renew

        def note(request):
            self.renewed.append(request.lease_s)
            if self.is_lost:
                request = replace(request, fence=request.fence + 1)
            return renew(request)

        store.renew = note
        return store


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(leases, "monotonic", clock)
    return clock


def run(bank, place):
    async def ask():
        store = bank.watch(SqliteStore(place))
        async with hr.Runtime([bank.tool()], store=store) as runtime:
            model = ScriptedModel([call("pay", order="7"), "Done."])
            await runtime.run("Go.", model=model)
        store.close()

    asyncio.run(ask())


def test_a_lease_is_extended_before_a_write_that_starts_late(clock, tmp_path):
    bank = Bank(clock, opens_s=25.0)
    run(bank, tmp_path / "store.db")
    [[lease_s]] = bank.paid_after
    assert lease_s >= TIMEOUT_S + LEASE_BEYOND_TIMEOUT_S


def test_a_lease_that_was_lost_meanwhile_is_not_extended_and_the_write_does_not_start(
    clock, tmp_path
):
    bank = Bank(clock, opens_s=25.0, is_lost=True)
    run(bank, tmp_path / "store.db")
    assert (len(bank.renewed), bank.paid_after) == (1, [])


def test_a_write_that_starts_at_once_needs_no_other_lease(clock, tmp_path):
    bank = Bank(clock, opens_s=0.0)
    run(bank, tmp_path / "store.db")
    assert bank.paid_after == [[]]


def test_a_lease_of_a_write_that_is_taken_over_counts_from_its_earlier_owners_end(
    clock,
):
    check = Claimed(ClaimState.CHECK, 2, left_s=15.0 + LEASE_BEYOND_TIMEOUT_S)
    lease = Lease(VERIFY, check, clock(), "pay")
    clock.passed_s = 15.0 + VERIFY.lease_s - 1.0
    assert not lease.over
    clock.passed_s += 2.0
    assert lease.over


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_write_that_was_taken_over_starts_once_its_lease_is_confirmed(clock, is_lost):
    store = FullMemoryStore(now=clock)
    store.claim(VERIFY)
    clock.passed_s = VERIFY.lease_s + 1.0
    claimed = store.claim(VERIFY)
    assert claimed.state is ClaimState.CHECK
    lease = Lease(VERIFY, claimed, clock(), "pay")
    assert not lease.covers(TIMEOUT_S)
    if is_lost:
        clock.passed_s += VERIFY.lease_s + 1.0
        assert store.claim(VERIFY).fence > claimed.fence
    assert lease.extend(store, TIMEOUT_S) is not is_lost
    assert lease.covers(TIMEOUT_S) is not is_lost


def test_a_write_of_another_class_relies_on_no_such_time(clock):
    claim = replace(VERIFY, replay="key")
    lease = Lease(claim, Claimed(ClaimState.FRESH, 1), clock(), "pay")
    clock.passed_s = 1000.0
    assert lease.covers(TIMEOUT_S)
