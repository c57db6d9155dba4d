"""To the Moon at marathon pace: the answer is the calculator's, over every wire."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.messages import AssistantMessage, ToolMessage, UserMessage
from handrail.testing import WIRES

FILE = Path(__file__).parents[2] / "examples/apps/kipchoge.py"


@pytest.fixture(scope="module")
def app():
    return runpy.run_path(str(FILE))


@pytest.mark.parametrize("wire", [
    *WIRES, "hermes", "mistral", "llama3", "qwen3-coder", "deepseek-v3.1", "kimi-k2", "harmony", "react",
])  # fmt: skip
def test_the_answer_is_17_over_every_wire(app, capsys, wire):
    run = app["main"](["--wire", wire])
    assert (run.status, run.text) == ("done", "About 17 thousand hours.")
    assert [
        each.result.ok for each in run.messages if isinstance(each, ToolMessage)
    ] == [True] * 7


@pytest.mark.slow
def test_the_answer_is_17_where_the_tools_are_served_over_mcp(app, capsys):
    run = app["main"](["--mcp"])
    assert (run.status, run.text) == ("done", "About 17 thousand hours.")
    results = [each.result for each in run.messages if isinstance(each, ToolMessage)]
    assert [each.ok for each in results] == [True] * 7


def test_no_number_is_the_model_s_own(app, capsys):
    """Each number in its calls and its answer was read in a result before, or stands in the question."""
    known, own = set(), []
    for message in app["main"]([]).messages:
        match message:
            case AssistantMessage(turn=turn):
                said = "".join(
                    [
                        turn.text,
                        *(
                            call.arguments
                            for call in turn.calls
                            if call.name != "search_web"
                        ),
                    ]
                )
                own += [number for number in numbers(said) if number not in known]
            case ToolMessage(result=result):
                known |= set(numbers(result.text))
            case UserMessage(text=text):
                known |= set(numbers(text))
    # What makes minutes of hours and thousands of ones is no fact that a page holds.
    assert set(own) <= {"60", "3600", "1000"}


def numbers(text):
    return [
        each.lstrip("0") or "0"
        for each in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))
    ]


def test_all_arithmetic_is_done_by_the_calculator(app, capsys):
    run = app["main"]([])
    results = [each.result for each in run.messages if isinstance(each, ToolMessage)]
    (calculated,) = [each for each in results if each.name == "calculate"]
    (expression,) = [
        call.arguments for each in run.messages if isinstance(each, AssistantMessage)
        for call in each.turn.calls if call.name == "calculate"
    ]  # fmt: skip
    # 42.195 km in 2:01:09 are 20.897 km/h; 356,400 km take 17,055 hours.
    assert "356400 / (42.195 / (2 + 1 / 60 + 9 / 3600))" in expression
    assert calculated.value == {"result": "17", "exact": True}
    assert results[-1] is calculated


def test_it_is_a_program_with_the_same_outcome_twice():
    told = [
        subprocess.run(
            [sys.executable, "-W", "error", FILE],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        for _ in range(2)
    ]
    assert [each.stdout.strip().splitlines()[-1] for each in told] == [
        "About 17 thousand hours."
    ] * 2
