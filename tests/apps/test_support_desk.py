"""The support desk on a bad network: how many tickets there are in the end."""

import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

from stand_ins.desk import Fate

FILE = Path(__file__).parents[2] / "examples/apps/support_desk.py"


def test_a_wish_whose_process_is_killed_is_one_ticket_and_500_wishes_are_500(capsys):
    run, quiet, bad = runpy.run_path(str(FILE))["main"]([])
    assert (run.status, [ticket["ticket_id"] for ticket in quiet.tickets]) == (
        "done",
        ["T1"],
    )
    # the kill came between the ticket and its answer
    assert "T1" in run.text and quiet.delivered == 2
    wishes = Counter((ticket["user_id"], ticket["subject"]) for ticket in bad.tickets)
    assert (len(bad.tickets), set(wishes.values())) == (500, {1})
    # The network was as bad as it claims: without keys there would have been more tickets.
    assert set(bad.fates) == set(Fate) and bad.delivered > 550


def test_the_app_runs_as_documented_and_says_how_it_ended():
    told = subprocess.run(
        [sys.executable, "-W", "error", str(FILE), "--calls", "20"],
        capture_output=True, text=True, encoding="utf-8", check=True, timeout=60,
    )  # fmt: skip
    assert "the first process ended with -9; tickets: 1" in told.stdout
    assert "20 calls" in told.stdout and "20 tickets" in told.stdout
    assert told.stderr == ""
