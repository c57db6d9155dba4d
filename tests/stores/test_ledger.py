"""What the ledger says of a write whose processes died one after the other."""

import subprocess
import sys

import pytest
from msgspec.structs import replace

from handrail.effects import ClaimState
from handrail.stores.ledger import Ledger
from handrail.testing.contracts.claims import A_REFUND

# The lease of a tool with a limit of 30 s.
VERIFIED = replace(A_REFUND, replay="verify", lease_s=60.0, run_id="")
NAME_ITSELF = "from handrail.process_identity import owner; print(owner())"


@pytest.fixture(scope="module")
def dead():
    """The name of a process that has ended."""
    ended = subprocess.run(
        [sys.executable, "-c", NAME_ITSELF], capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


@pytest.mark.parametrize(("died_at", "left_s"), [
    (6.0, 54.0),   # it waited: only what the first one sent may be under way, until its lease ends at 60
    (29.0, 31.0),
    (30.0, 60.0),  # it may have started at 30, when the limit of the first one was over: its own lease, until 90
    (89.0, 1.0),
])  # fmt: skip
def test_a_process_that_died_while_it_waited_to_go_on_makes_nobody_wait_longer(
    dead, died_at, left_s
):
    ledger = Ledger()
    assert ledger.claim(VERIFIED, 0.0).state is ClaimState.FRESH
    (row,) = ledger.rows.values()
    row.owner = dead
    assert ledger.claim(VERIFIED, 5.0).left_s == 55.0
    row.owner = dead
    claimed = ledger.claim(VERIFIED, died_at)
    assert (claimed.state, claimed.left_s) == (ClaimState.CHECK, left_s)
