"""A quick slice of `make prove`, and every world that broke a promise once."""

import logging
from pathlib import Path

import pytest

from tests.prove import kept, promises
from tests.prove.declarations import all_declarations, find_refusal
from tests.prove.search import explore, replay, run_by_chance
from tests.prove.stories import STORIES


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", [
    "a write without a key",
    "write key replay=key",
    "write verify",
    "write approve x2",
    "read",
    "two runs, one key",
    "taken over",
])  # fmt: skip
def test_every_world_with_at_most_one_disturbance_keeps_the_promises(name):
    report = explore(kept.all_scenarios()[name], 1)
    assert report.complete == 1
    assert report.worlds > 20
    assert report.found == {}


@pytest.mark.parametrize("file", kept.files(), ids=lambda file: file.stem)
def test_what_broke_a_promise_once_does_so_no_more(file):
    scenario, disturbances = kept.load(file)
    assert replay(scenario, disturbances).violations == []


def test_the_same_choices_give_the_same_world():
    scenarios = [
        each for each in (*STORIES, *all_declarations()) if not find_refusal(each)
    ]
    for number, scenario in enumerate(scenarios[::9]):
        first, second = (run_by_chance(scenario, number) for _ in range(2))
        assert first.trace == second.trace
        assert first.key() == second.key()


@pytest.mark.parametrize("promise", promises.SENTENCES)
def test_each_promise_that_is_checked_stands_on_the_page(promise):
    page = Path(__file__).parents[2] / "docs" / "explanation" / "promises.md"
    said = " ".join(page.read_text(encoding="utf-8").split())
    assert " ".join(promises.SENTENCES[promise].split()) in said
