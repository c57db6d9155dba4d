"""`handrail runs export`: journals and training data, which read back to the same."""

import json
import sqlite3
from contextlib import closing

import pytest

from handrail.calls import ToolCall
from handrail.dialects import dialect
from handrail.journal.codec import input_from_json, result_from_json, turn_from_json
from handrail.messages import conversation_of
from handrail.records import JOURNAL_V
from handrail.testing import call
from tests.cli.keeping import recorded

ODD = [
    [
        ToolCall("c1", "get_order", "{'order_id': 'A-1',}"),
        call("note", order_id="</tool_call> & “북”"),
    ],
    # two in one, taken apart
    [ToolCall("c2", "get_order", '{"order_id": "A"}{"order_id": "B"}')],
    # refused
    [ToolCall("c3", "get_order", '{"order": 1}'), ToolCall("c4", "nothing", "{}")],
    call("delete_order", order_id="A-1"),  # waits
]
CALLED = [
    ("get_order", {"order_id": "A-1"}), ("note", {"order_id": "</tool_call> & “북”"}),
    ("get_order", {"order_id": "A"}), ("get_order", {"order_id": "B"}),
    ("get_order", {"order": 1}), ("nothing", {}),
    ("delete_order", {"order_id": "A-1"}),
]  # fmt: skip


@pytest.fixture
def odd(deployed):
    """A deployment with a run in which much had to be mended."""
    made = deployed(ODD)
    made.run, _ = made.begin("--yes-to", "medium")
    return made


def exported(deployment, form, *words):
    result = deployment("runs", "export", deployment.run, "--format", form, *words)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def read(calls):
    return [(each.name, json.loads(each.arguments)) for each in calls]


def test_the_journal_is_exported_whole_and_reads_back_to_the_same(odd):
    kept, (head, *steps) = recorded(odd, odd.run), exported(odd, "jsonl")
    assert input_from_json(head["input"]) == input_from_json(kept.record.input)
    assert (head["kind"], head["status"]) == ("run", "waiting")
    assert head["journal_v"] == JOURNAL_V
    assert [(each["key"], each["body"]) for each in steps] == [
        (step.key, step.body) for step in kept.steps
    ]
    assert {each["kind"] for each in steps} == {"model", "call"}
    for each in steps:
        (turn_from_json if each["kind"] == "model" else result_from_json)(each["body"])


def test_fine_tuning_data_reads_back_to_the_same_calls_each_with_its_result(odd):
    (line,) = exported(odd, "openai", "--tools", odd.tools)
    messages, chat = line["messages"], dialect("openai-chat")
    calls = [
        each
        for told in messages
        if told["role"] == "assistant"
        for each in chat.decode_message(told).calls
    ]
    assert read(calls) == CALLED
    assert [told["tool_call_id"] for told in messages if told["role"] == "tool"] == [
        each.id for each in calls
    ]
    assert "get_order" in [tool["function"]["name"] for tool in line["tools"]]
    assert conversation_of(messages)


def test_hermes_conversations_read_back_to_the_same_calls(odd):
    (line,) = exported(odd, "hermes", "--tools", odd.tools, "--mistakes", "keep")
    said = line["conversations"]
    assert [told["from"] for told in said] == ["system", "human", *["gpt", "tool"] * 4]
    turns = [
        dialect("hermes").decode(told["value"])
        for told in said
        if told["from"] == "gpt"
    ]
    assert read(each for turn in turns for each in turn.calls) == CALLED
    assert "get_order" in said[0]["value"]


def test_several_runs_are_several_lines_and_without_tools_none_are_told(paid):
    second, _ = paid.begin()
    result = paid("runs", "export", paid.run, second, "--format", "openai")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [set(line) for line in lines] == [{"messages"}] * 2


def test_one_unknown_run_exports_nothing(paid):
    result = paid("runs", "export", paid.run, "r_none")
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(("words", "says"), [
    (("--redact",), "--redact is for training data"),
    (("--mistakes", "mask"), "--mistakes is for training data"),
    (("--mistakes", "keep", "--format", "preference"), "--mistakes is for the other forms"),
    (("--tag", "x"), "--tag needs --tools"),
    (("--tag", "x", "--format", "hermes"), "--tag needs --tools"),
    (("--status", "dnoe"), "'dnoe' is not one of 'done'"),
])  # fmt: skip
def test_an_option_that_an_export_would_not_heed_is_refused(paid, words, says):
    result = paid("runs", "export", paid.run, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize("words", [
    ("--no-redact",), ("--status", "any"), ("--status", "done"),
])  # fmt: skip
def test_a_journal_heeds_the_other_options(paid, words):
    assert len(exported(paid, "jsonl", *words)) > 1


@pytest.mark.parametrize("change", ["input = '[]'", "journal_v = 99"])
def test_a_journal_that_cannot_be_read_is_one_sentence(paid, change):
    place = paid.place.removeprefix("sqlite:")
    with closing(sqlite3.connect(place, isolation_level=None)) as file:
        file.execute(f"UPDATE runs SET {change} WHERE run_id = ?", (paid.run,))
    result = paid("runs", "export", paid.run)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "journal" in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_names_the_runs_that_ended_well_become_rows_and_stderr_counts_the_rest(
    odd,
):
    words = ("runs", "export", "--format", "hermes", "--tools", odd.tools)
    result = odd(*words)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "left out: 1, ended as waiting" in result.stderr
    result = odd(*words, "--status", "any", "--mistakes", "keep")
    assert "1 row from 1 run" in result.stderr
    (row,) = map(json.loads, result.stdout.splitlines())
    assert {each["from"] for each in row["conversations"]} == {"system", "human", "gpt", "tool"}  # fmt: skip


def test_tags_choose_journals_as_they_choose_rows(paid):
    words = ("runs", "export", "--tools", paid.tools, "--tag", "no-such-tag")
    result = paid(*words)
    assert (result.exit_code, result.stdout) == (0, "")
