"""`handrail demo`: the whole way from a question to an answer, over a real socket, and what became of the world."""

import json
import re
from functools import cache

import pytest
from click.testing import CliRunner

from handrail.cli import main
from handrail.cli.commands import demo
from handrail.cli.demo.story import TEXTS
from handrail.dialects import wire_dialect
from handrail.testing import WIRES, ScriptedServer, call
from tests.support.terminals import PATIENCE_S, program_in_terminal


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch):
    monkeypatch.setattr(demo, "PAUSE_S", 0.0)
    monkeypatch.setenv("COLUMNS", "110")


def run(*words):
    return CliRunner().invoke(main, ["demo", *words])


@cache
def run_once():
    """Run the demo for all tests that only look at what it shows."""
    return run()


def test_the_story_is_told_in_order_and_ends_well():
    result = run_once()
    assert result.exit_code == 0, result.output
    milestones = [
        # said before anything else
        "The model is a script", "no key is needed",
        # and this too: nobody is asked here
        "the demo approves the restart by itself",
        TEXTS["en"].question,
        # two calls of one answer
        "→ get_pod_logs", "→ get_pod_metrics",
        "attempt 1: deadline, stopped; again",
        "✓ get_pod_metrics .* 2 attempts",
        "repaired: single_quotes, trailing_comma",
        r'INVALID_ARGUMENTS: `metric` must be one of .*it\s+was "latency"',
        '✓ get_pod_metrics .*"latency_p99":2.81',
        "a person must agree: restart_service has high risk",
        "approved by the demo itself, not a person",
        "✓ restart_service",
        '"latency_p99":0.09',
        re.escape(TEXTS["en"].answer.splitlines()[0]),
        r"<Run r_\w+: done, 6 calls, .* of 300 s>",
        "api-gateway was restarted 1 time\\.",
        "Five files to read",
    ]  # fmt: skip
    assert re.search(".*".join(milestones), result.stdout, re.DOTALL), result.stdout
    assert result.stderr == ""


def outcome():
    """Run the demo and return what it says of itself, without what differs by nature."""
    document = json.loads(run("--json").stdout)
    return {
        name: value
        for name, value in document.items()
        if name not in ("run_id", "seconds")
    }


def test_it_ends_alike_every_time_and_the_world_was_changed_once():
    first = outcome()
    assert first == outcome()
    assert first["world"] == {"restarts": {"api-gateway": 1}}
    assert [(result["tool"], result["ok"], result["attempts"]) for result in first["results"]] == [
        ("get_pod_logs", True, 1),
        ("get_pod_metrics", True, 2),   # the first attempt hung
        ("get_pod_logs", True, 1),
        ("get_pod_metrics", False, 0),  # refused before it was started
        ("get_pod_metrics", True, 1),
        ("restart_service", True, 1),
        ("get_pod_metrics", True, 1),
    ]  # fmt: skip


def test_the_two_calls_of_the_first_answer_run_side_by_side():
    told = run_once().stdout
    # Both are shown before either result, and the quick one does not wait for the one that hangs.
    assert re.search(
        "→ get_pod_logs.*→ get_pod_metrics.*✓ get_pod_logs.*↻ get_pod_metrics",
        told,
        re.DOTALL,
    )


@pytest.mark.parametrize(("typed", "code", "restarts", "says"), [
    ("y\n", 0, "1 time", r"approved by .*latency\s+is\s+down\s+to\s+0\.09\s+s"),
    ("n\nnot during the sale\n", 5, "0 times", r"denied by .*: not during the sale.*restart\s+was\s+not\s+approved"),
])  # fmt: skip
def test_in_a_terminal_a_person_decides(typed, code, restarts, says):
    with program_in_terminal("demo") as (person, program):
        shown = person.reads_until(r"\(e\)dit\? ")
        assert "by itself" not in shown
        assert '"service": "api-gateway"' in shown
        person.types(typed)
        person.reads_until(f"{says}.*api-gateway was restarted {restarts}\\.")
        person.reads_all()
        assert program.wait(PATIENCE_S) == code


def test_an_edit_that_restarts_nothing_is_not_said_to_have_restarted_something():
    with program_in_terminal("demo", "--lang", "en", EDITOR="", VISUAL="") as (
        person,
        program,
    ):
        person.reads_until(r"\(e\)dit\? ")
        person.types("e\n")
        person.reads_until(r'2\.81 s" }')
        person.types('\x15{"service": "nope"}\n')  # Ctrl-U, and the line anew
        person.reads_until(r"Nothing was changed: `reason` is required.*\(e\)dit\? ")
        person.types("e\n")
        person.reads_until('{"service": "nope"}')
        person.types('\x7f, "reason": "a try"}\n')
        person.reads_until(r"\(e\)dit\? ")
        person.types("a\n")
        person.reads_until(
            r"The restart did not happen \(SERVICE_NOT_FOUND\).*api-gateway was restarted 0 times\."
        )
        person.reads_all()
        assert program.wait(PATIENCE_S) == 0


def test_it_is_told_in_english_unless_another_language_is_asked_for():
    assert "api-gateway is slow. Why?" in run_once().stdout
    assert not re.search("[\u4e00-\u9fff]", run_once().stdout)


def test_in_chinese_everything_that_the_demo_says_is_chinese():
    output = run("--lang", "zh").stdout
    texts = TEXTS["zh"]
    said = [
        texts.question,
        texts.unattended,
        texts.approver,
        *texts.captions.values(),
        texts.to_read,
    ]
    assert [
        each
        for each in said
        if each not in re.sub(r"\s*\n\s*", "", output) and each not in output
    ] == []
    english = {
        value
        for value in (*TEXTS["en"].captions.values(), *TEXTS["en"].files.values())
        if value in output
    }
    assert english == set()


def test_the_wire_is_real_http_on_this_machine():
    told = run("--wire").stdout
    assert set(re.findall(r"> POST http://([^/:]+)", told)) == {"127.0.0.1"}
    assert told.count("$ curl -sS http://127.0.0.1:") == 7  # one request a turn
    assert "< data: [DONE]" in told


@pytest.mark.parametrize(
    ("said", "wire"),
    # a word of its name is enough
    [*((wire, wire) for wire in WIRES), ("responses", "openai-responses")],
)
def test_the_whole_story_is_told_over_every_wire(said, wire):
    told = run("--lang", "en", "--wire", said).stdout
    asked = re.findall(r"> POST http://127\.0\.0\.1:\d+(\S+)", told)
    assert len(asked) == 7
    assert all(
        path.endswith(wire_dialect(wire).path("", stream=True)) for path in asked
    )
    assert "$KEY" not in told  # no key was sent, so no header is masked
    assert "repaired: single_quotes, trailing_comma" in told
    assert "✗ get_pod_metrics  INVALID_ARGUMENTS" in told
    assert "approved by the demo itself" in told
    assert TEXTS["en"].answer.splitlines()[-1] in told
    assert "api-gateway was restarted 1 time." in told


@pytest.mark.others
@pytest.mark.parametrize("name", ["hermes", "mistral", "llama3"])
def test_the_whole_story_is_told_over_a_raw_completion_endpoint_too(name):
    told = run("--lang", "en", "--wire", name).stdout
    assert set(re.findall(r"> POST http://127\.0\.0\.1:\d+(\S+)", told)) == {
        "/v1/completions"
    }
    assert "✗ get_pod_metrics  INVALID_ARGUMENTS" in told
    assert "approved by the demo itself" in told
    assert TEXTS["en"].answer.splitlines()[-1] in told
    assert "api-gateway was restarted 1 time." in told


@pytest.mark.parametrize(("words", "says"), [
    (["--wire", "morse"], "there is no dialect 'morse'"),
    (["--wire", "anthropic", "--model", "openai:NAME"], "leave out the name after --wire"),
])  # fmt: skip
def test_a_wire_that_cannot_be_spoken_is_told(words, says):
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_another_model_gets_the_same_tools_and_the_same_question():
    script = [
        call("get_pod_metrics", pod="api-gateway-7c9d", metric="cpu"),
        "CPU is fine.",
    ]
    with ScriptedServer(script) as server:
        result = run("--model", server.model, "--lang", "en")
        request = server.requests[0]
    assert result.exit_code == 0
    assert [tool["function"]["name"] for tool in request["tools"]] == [
        "get_pod_logs",
        "get_pod_metrics",
        "restart_service",
    ]
    assert request["messages"][-1]["content"] == TEXTS["en"].question
    assert "The model is a script" not in result.stdout
    assert "run side by side" not in result.stdout  # the captions belong to the story
    assert "restarted 0 times" in result.stdout


def test_both_languages_tell_the_same_facts():
    numbers = re.compile(r"\d[\d.:/%]*\d|\d")
    found = {
        language: sorted(numbers.findall(texts.answer))
        for language, texts in TEXTS.items()
    }
    assert found["zh"] == found["en"]
