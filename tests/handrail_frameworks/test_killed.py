"""`kill -9` at four places of a write, for each way to keep a framework's run, and to know what became of the write."""

import json
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.handrail_frameworks.killed import WAYS
from tests.support.effort import volume

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.proof]

IN_EACH_RUN = {("langgraph", "sqlite"), ("openai-agents", "postgres")}


@pytest.mark.parametrize(
    ("way", "store"),
    [
        pytest.param(*case, marks=[] if case in IN_EACH_RUN else volume)
        for case in product(WAYS, ("sqlite", "postgres"))
    ],
    indirect=["store"],
)
def test_a_killed_write_happens_once_and_the_model_is_told_what_became_of_it(
    way, store, tmp_path
):
    if WAYS[way].missing:
        pytest.skip(WAYS[way].missing)
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.handrail_frameworks.killed",
            way,
            str(tmp_path),
            store,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    cases = json.loads(ended.stdout)
    assert len(cases) == 12
    assert {case["ended"] for case in cases} == {signal.SIGKILL}
    for case in cases:
        happened = case["place"] in ("after the effect", "after the call")
        assert case["before"] == int(happened), case
        # Nobody can tell whether a write took effect that has neither a key nor a way to ask.
        is_lost = case["kind"] == "none" and case["place"] == "before the effect"
        assert case["after"] == (0 if is_lost else 1), case
        assert not any(talk["error"] for talk in case["talks"]), case
        assert expected(case) in case["talks"][0]["texts"][-1], case


def expected(case):
    """Return what the model reads when the run goes on."""
    if case["kind"] == "none" and "effect" in case["place"]:
        return "IN_DOUBT"
    if case["kind"] == "verify" and case["place"] == "after the effect":
        return "verified"
    return "paid"
