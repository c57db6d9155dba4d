"""Long writes keep their claim for as long as their process lives, and not longer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.core import writes
from handrail.core.run_settings import Deadline
from handrail.core.writes import claim_for
from handrail.effects import Claim, ClaimState, Settle, Wait
from handrail.engine import executor
from handrail.errors import Code
from handrail.events import LateResult
from handrail.stores.memory import MemoryStore
from handrail.stores.sqlite import SqliteStore
from tests.journeys.slow_writer import LEASE_S
from tests.support.drivers import BOUND_S, KINDS, Driver, Gate, until
from tests.support.effect_script import World, admitted

ROOT = Path(__file__).parents[2]


class Watched(MemoryStore):
    """Counts renewals."""

    def __init__(self):
        super().__init__()
        self.renewals = []

    def renew(self, renew):
        held = super().renew(renew)
        self.renewals.append(held)
        return held


@pytest.fixture(params=KINDS)
def drive(request):
    drivers = []

    def make(tools, **how):
        drivers.append(Driver(request.param, tools, how))
        return drivers[-1]

    yield make
    for each in drivers:
        each.close()


@pytest.fixture
def brief(monkeypatch):
    """Leases of a moment, renewed in the wink of an eye."""
    monkeypatch.setattr(writes, "LONGEST_LEASE_S", 0.06)
    monkeypatch.setattr(executor, "BEAT_S", 0.01)


def writer(work, **declared):
    return hr.FunctionTool(
        work, name="pay", effect="write", key="pay:1", timeout_s=600, **declared
    )


@pytest.mark.parametrize("how", ["thread", "async"])
def test_a_long_write_renews_its_lease_until_it_ends(drive, brief, how):
    gate, store = Gate(), Watched()

    def pay() -> str:
        gate.pass_through()
        return "paid"

    async def pay_async() -> str:
        await gate.pass_through_async()
        return "paid"

    driver = drive([writer(pay if how == "thread" else pay_async)], store=store)
    begun = driver.start("call", "pay")
    until(lambda: len(store.renewals) >= 3)
    gate.open()
    assert begun.result(BOUND_S).value == "paid"
    assert all(store.renewals)
    (row,) = store._ledger.rows.values()
    assert (row.state, row.fence) == ("done", 1)


def test_a_tool_that_blocks_its_loop_keeps_its_lease_by_saying_that_it_gets_on(
    drive, brief
):
    store = Watched()

    def pay(context: hr.Context[None]) -> str:
        """Pay, without ever letting anybody else have the thread."""
        until(lambda: context.progress(1) or len(store.renewals) >= 3)
        return "paid"

    driver = drive([writer(pay, blocking=False)], store=store)
    assert driver.call("pay").value == "paid"
    assert all(store.renewals)


def test_a_write_that_somebody_else_has_taken_is_not_tried_again(drive, brief):
    gate, store, begun = Gate(), Watched(), []

    def pay() -> str:
        begun.append(1)
        gate.pass_through()
        # nobody knows whether it happened; with `replay="key"` it would be tried again
        raise ConnectionResetError

    driver = drive([writer(pay, replay="key")], store=store, backoff=hr.Backoff(0, 0))
    call = driver.start("call", "pay", run="r_1")
    until(lambda: begun)
    (row,) = store._ledger.rows.values()
    # as a claim of somebody else does, after this process had been frozen
    row.fence += 1
    until(lambda: False in store.renewals)
    gate.open()
    assert call.result(BOUND_S).failure.code == Code.IN_DOUBT
    assert begun == [1]
    (told,) = driver.told(LateResult)
    assert (told.key, told.fence) == ("pay:1", 1)


def test_a_process_keeps_its_claim_while_it_lives_and_what_it_says_after_it_was_frozen_is_refused_and_audited(
    tmp_path,
):
    place, go = f"sqlite:{tmp_path}/ledger.db", tmp_path / "go"
    store = SqliteStore(tmp_path / "ledger.db")
    words = [sys.executable, "-m", "tests.journeys.slow_writer", place, str(go)]
    owner = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout.readline() == "inside\n"
        (write,) = store.list_writes().result(BOUND_S)
        first = write.lease_until
        until(
            lambda: (
                store.list_writes().result(BOUND_S)[0].lease_until > first + 2 * LEASE_S
            )
        )
        mine = replaced(store, write)
        assert mine().state is ClaimState.BUSY  # two whole leases later

        os.kill(owner.pid, signal.SIGSTOP)
        taken = until(
            lambda: (
                claimed if (claimed := mine()).state is not ClaimState.BUSY else None
            )
        )
        assert (taken.state, taken.fence) == (ClaimState.AGAIN, 2)
        assert store.settle(
            Settle(write.scope, write.key, 2, "done", "paid, says the new one")
        ).result(BOUND_S)

        go.touch()
        os.kill(owner.pid, signal.SIGCONT)
        owner.communicate(timeout=BOUND_S)
    finally:
        owner.kill()
        owner.communicate()
    (write,) = store.list_writes().result(BOUND_S)
    assert (write.state, write.value) == ("done", "paid, says the new one")
    (late,) = [
        each for each in store.log().result(BOUND_S) if each.event == "LateResult"
    ]
    assert (late.body["key"], late.body["fence"], late.body["state"]) == (
        "pay:7",
        1,
        "done",
    )
    store.close()


DIES = """
import os, signal, sys
import handrail as hr
from tests.journeys.test_leases import transfer

with hr.SyncRuntime([transfer(lambda: os.kill(os.getpid(), signal.SIGKILL))], store=sys.argv[1]) as runtime:
    runtime.call("transfer", {"order": "A"}, run="r_1")
"""


def transfer(book):
    """Return a write that may take ten minutes, and of which it can be asked whether it has happened."""

    def transfer(order: str) -> str:
        """Send a transfer, which the bank books later."""
        book()
        return "booked"

    return hr.FunctionTool(
        transfer,
        effect="write",
        key="t:{order}",
        verify=lambda arguments, context: hr.NotFound(),
        timeout_s=600,
    )


def test_what_a_killed_process_has_sent_is_waited_for_until_the_tool_s_time_is_over(
    tmp_path,
):
    place = tmp_path / "ledger.db"
    died = subprocess.run(
        [sys.executable, "-c", DIES, f"sqlite:{place}"], cwd=ROOT, timeout=BOUND_S
    )
    assert died.returncode == -signal.SIGKILL
    world, store = World(Verify=hr.NotFound()), SqliteStore(place)
    world.conduct = replace(world.conduct, renews=True, deadline=Deadline())
    call = admitted(transfer(str), order="A")
    world.answers["Claim"] = store.claim(claim_for(call, world.conduct)).result(BOUND_S)
    store.close()
    assert world.carry(call).value == "done"
    assert world.kinds == ["Claim", "Verify", "Wait", "Verify", "Invoke", "Settle"]
    (wait,) = world.seen(Wait)
    assert 600 - BOUND_S < wait.seconds <= 600


def replaced(store, write):
    """Return what claims the same write as its owner did."""
    [[fingerprint]] = store.use_connection(
        lambda base: base.run("SELECT fingerprint FROM effects")
    )
    claim = Claim(
        write.scope, write.key, bytes.fromhex(fingerprint), "r_other", "key", 600.0
    )
    return lambda: store.claim(claim).result(BOUND_S)
