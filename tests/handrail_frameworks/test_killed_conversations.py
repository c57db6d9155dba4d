"""`make frameworks` in small: it kills, it finds nothing, and it would find a second effect and a lie."""

import json

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="no extra `frameworks`")
pytest.importorskip("pydantic_ai", reason="no extra `frameworks`")
pytest.importorskip("agents", reason="no extra `frameworks`")

from benchmarks.under_frameworks import CLASSES, Verdict, kill_conversations, titles_of

from tests.journeys.worlds import Far

NAME = "pydantic-ai:1"


def test_conversations_that_are_killed_at_random_repeat_nothing_and_lose_nothing(
    tmp_path,
):
    verdict = kill_conversations(
        1,
        store=f"sqlite:///{tmp_path}/h.db",
        folder=tmp_path,
        seconds=240,
        seed=3,
        conversations=4,
    )
    assert verdict.kills > 0
    assert verdict.counts["writes"] == len(CLASSES) * 4
    assert not any(verdict.broken.values()), verdict.broken


@pytest.mark.parametrize(("effects", "promise"), [(1, None), (2, "repeated"), (0, "lies")])  # fmt: skip
def test_a_second_effect_and_one_that_never_happened_are_found(
    tmp_path, effects, promise
):
    far = Far(tmp_path)
    texts = ["fine", *(f"opened {title}" for title in titles_of(NAME))]
    far.add("texts", json.dumps([NAME, texts]))
    for title in titles_of(NAME):
        for _ in range(effects):
            far.add("effects", f"- {title}")
    verdict = Verdict()
    verdict.judge(far, [NAME])
    assert [kind for kind, found in verdict.broken.items() if found] == (
        [promise] if promise else []
    )


def test_a_write_that_its_model_never_heard_of_is_found(tmp_path):
    far = Far(tmp_path)
    far.add("texts", json.dumps([NAME, ["fine"]]))
    verdict = Verdict()
    verdict.judge(far, [NAME])
    assert len(verdict.broken["lost"]) == 1 + len(CLASSES)
