"""A process in the middle of a long write: `python -m tests.journeys.slow_writer STORE FILE`.

It says `inside` when its tool has begun, and goes on when FILE is there. Its leases last for half a second and are
renewed twenty times a second, so that a test need not wait for minutes.
"""

import sys
import time
from pathlib import Path

import handrail as hr
from handrail.core import writes
from handrail.engine import executor

LEASE_S = 0.5


def main(place: str, file: str) -> None:
    writes.LONGEST_LEASE_S, executor.BEAT_S = LEASE_S, LEASE_S / 10

    @hr.tool(effect="write", key="pay:{order}", replay="key", timeout_s=600)
    def pay(order: str) -> str:
        """Pay for an order, which takes until a file is there."""
        print("inside", flush=True)
        while not Path(file).exists():
            time.sleep(0.01)
        return "paid, says the slow one"

    with hr.SyncRuntime([pay], store=place) as runtime:
        print(runtime.call("pay", {"order": "7"}, run="r_slow").value, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
