"""`python -m benchmarks.storm` in small: processes die and freeze in each way, nothing is found, and a lie would be."""

from collections import Counter

import pytest
from benchmarks.storm import ENDS, Verdict, storms, weigh

import handrail as hr


def test_processes_that_carry_the_same_runs_and_die_in_every_way_break_no_promise(
    tmp_path,
):
    ends = Counter()
    for seed in range(6):  # until each end has come; mostly two are enough
        store, folder = f"sqlite:///{tmp_path}/{seed}.db", tmp_path / f"{seed}"
        folder.mkdir()
        verdict = storms(8, store=store, folder=folder, seconds=120, seed=seed, runs=6)
        assert verdict.broken == {}
        # of a batch, two runs write four times
        assert verdict.writes and verdict.writes % (6 * 3 + 2) == 0
        ends += verdict.ends
        if ends.keys() == {*ENDS}:
            break
    assert ends.keys() == {*ENDS}


def failed(code):
    return hr.ToolResult(
        "c", "open_none", failure=hr.Failure(code, "It failed.", suggestion="Go on.")
    )


@pytest.mark.parametrize(("result", "happened", "kind"), [
    (hr.ToolResult("c", "open_none", value="opened"), 1, None),
    (hr.ToolResult("c", "open_none", value="opened"), 2, "repeated"),
    (hr.ToolResult("c", "open_none", value="opened"), 0, "lies"),
    (failed("TIMEOUT"), 0, None),
    (failed("TIMEOUT"), 1, "lies"),
    (failed("IN_DOUBT"), 1, None),
    (failed("IN_DOUBT"), 0, None),
    (failed("IN_DOUBT"), 2, "repeated"),
    (None, 0, "lost"),
])  # fmt: skip
def test_what_was_told_is_weighed_against_what_happened(result, happened, kind):
    verdict = Verdict()
    weigh(verdict, result, "ticket", happened)
    assert [*verdict.broken] == ([kind] if kind else [])
