"""Sessions whose process dies in a round, by `kill -9`: nothing is lost, and nothing happens twice."""

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

from tests.support.effort import volume

PROGRAM = Path(__file__).with_name("session_turn.py")
PLACES = [
    "before call",
    "before effect",
    "after effect",
    "before answer",
    "after the round",
]

IN_EACH_RUN = {
    *(("sqlite", place, "") for place in PLACES),
    ("sqlite", "before answer", "resumed"),
    ("postgres", "after effect", "resumed"),
}

pytestmark = pytest.mark.slow


def start(store, folder, dies, question):
    return subprocess.run(
        [sys.executable, str(PROGRAM), store, str(folder), dies, question],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(ended):
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def effects(folder):
    return (folder / "effects").read_text().splitlines()


@pytest.mark.parametrize(
    ("store", "place", "resumed"),
    [
        pytest.param(*case, marks=[] if case in IN_EACH_RUN else volume)
        for case in product(("sqlite", "postgres"), PLACES, ("resumed", ""))
    ],
    indirect=["store"],
)
def test_a_round_that_was_killed_is_finished_before_the_next_question(
    store, tmp_path, place, resumed
):
    assert told(start(store, tmp_path, "nowhere", "one"))["round"] == 1
    assert start(store, tmp_path, place, "two").returncode == -signal.SIGKILL
    if resumed:
        again = told(start(store, tmp_path, "nowhere", "resume"))
        assert (again["round"], again["text"]) == (2, "answer 2")
    last = told(start(store, tmp_path, "nowhere", "three"))
    assert last == {
        "round": 3,
        "text": "answer 3",
        "said": [
            "one", "", "answer 1", "two", "", "answer 2", "three", "", "answer 3",
        ],
    }  # fmt: skip
    assert effects(tmp_path) == ["n1", "n2", "n3"]


def test_of_many_processes_that_ask_at_once_each_is_asked_or_told(store, tmp_path):
    assert told(start(store, tmp_path, "nowhere", "one"))["round"] == 1
    with ThreadPoolExecutor(4) as pool:
        ended = list(
            pool.map(lambda n: start(store, tmp_path, "nowhere", f"q{n}"), range(4))
        )
    done = [told(each) for each in ended if each.returncode == 0]
    refused = [each for each in ended if each.returncode != 0]
    assert done
    assert all("RunUnderWay" in each.stderr for each in refused)
    # every answer has a round of its own
    assert sorted(each["round"] for each in done) == list(range(2, 2 + len(done)))
    assert effects(tmp_path) == [f"n{n}" for n in range(1, 2 + len(done))]
