"""One call in every dialect: spelled differently everywhere, and the same."""

import runpy
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "examples/apps/one_call.py"


@pytest.fixture(scope="module")
def app():
    return runpy.run_path(str(FILE))


def test_every_dialect_spells_the_same_call(app, capsys):
    read = app["main"](["all"])
    assert len(read) >= 40
    assert {
        (call.name, call.arguments) for calls in read.values() for call in calls
    } == {("get_weather", '{"city": "北京"}')}
    # ids are each dialect's own
    assert len({repr(calls) for calls in read.values()}) > 1


def test_request_and_answer_stand_side_by_side(app, capsys):
    app["main"](["openai-chat", "hermes"])
    told = capsys.readouterr().out
    for piece in (
        "POST /v1/chat/completions",
        '"tool_calls": [',
        "POST /v1/completions",
        "<tool_call>",
        "2 dialects",
    ):
        assert piece in told


def test_the_few_by_default_are_http_and_prompts(app, capsys):
    assert set(app["main"]([])) == set(app["FEW"])
    assert (
        capsys.readouterr()
        .out.strip()
        .splitlines()[-1]
        .startswith("7 dialects, 1 call: get_weather")
    )
