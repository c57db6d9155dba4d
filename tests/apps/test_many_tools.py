"""Two hundred tools: the same is done every way, and a fraction of the definitions travels."""

import runpy
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "examples/apps/many_tools.py"


@pytest.fixture(scope="module")
def app():
    return runpy.run_path(str(FILE))


def test_every_way_approves_the_one_lease_once(app, capsys):
    outcomes = app["main"]([])
    assert outcomes.keys() == app["WAYS"].keys()
    assert {tuple(done) for _, done, _ in outcomes.values()} == {
        (("approve", "lease", "hanoi", "LEA-7"),)
    }
    assert {run.text for run, _, _ in outcomes.values()} == {"Approved."}


def test_choosing_sends_less_than_a_twentieth(app, capsys):
    sent = {
        way: [tokens for _, tokens in turns]
        for way, (_, _, turns) in app["main"]([]).items()
    }
    before = sent.pop("all")
    assert (
        max(sent["auto (the default)"] + sent["the model searches"]) < min(before) / 20
    )
    # the list of all names is its price
    assert sum(sent["two-stage"]) < sum(before) / 5
    assert "200 tools" in capsys.readouterr().out
