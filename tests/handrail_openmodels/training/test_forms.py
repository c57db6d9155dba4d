"""Rows of real training sets: each is read as the conversation that it means, and written back equal."""

from __future__ import annotations

import json
from runpy import run_path

import pytest

import handrail as hr
from handrail.calls import Media, ToolCall, ToolResult
from handrail.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail_openmodels.training import (
    Example,
    read_pair,
    read_row,
    write_pair,
    write_row,
)
from handrail_openmodels.training.forms import FORMS
from tests.support.corpus import rows

ROWS = rows("training/formats.jsonl")
PAIRS = [each for each in ROWS if each["format"] == "trl_preference"]
PROGRAM = run_path("examples/guide/29_training_forms.py")
"""The program of the page, which writes rows of `openai` as other trainers read them."""
WRITERS = {
    "trl_language_modeling": PROGRAM["as_trl"],
    "llamafactory_sharegpt": PROGRAM["as_sharegpt"],
}
OTHERS = [each for each in ROWS if each["format"] in WRITERS]


def told(messages):
    """Messages as the corpus tells them."""
    entries = []
    for message in messages:
        match message:
            case SystemMessage(text=text):
                entries.append({"role": "system", "text": text})
            case UserMessage(text=text):
                entries.append({"role": "user", "text": text})
            case ToolMessage(result=result):
                entries.append({"role": "tool", "text": result.text})
            case AssistantMessage(turn=turn):
                calls = [
                    {"name": each.name, "arguments": json.loads(each.arguments)}
                    for each in turn.calls
                ]
                parts = {"text": turn.text, "reasoning": turn.reasoning, "calls": calls}
                entries.append({"role": "assistant", **{k: v for k, v in parts.items() if v}})  # fmt: skip
    return entries


def meant(entries):
    return [{k: v for k, v in each.items() if k != "name"} for each in entries]


@pytest.mark.parametrize("each", PAIRS, ids=lambda each: each["id"])
def test_a_real_pair_is_read_as_what_it_means_and_written_back_equal(each):
    pair = read_pair(each["row"])
    for part in ("prompt", "chosen", "rejected"):
        assert told(getattr(pair, part)) == meant(each["expected"][part])
    assert write_pair(pair) == each["row"]


def conversation(expected):
    """The messages that the corpus tells, with an id for each call and the result after it."""
    messages, calls = [], []
    for number, entry in enumerate(expected):
        text = entry.get("text", "")
        match entry["role"]:
            case "system":
                messages.append(SystemMessage(text))
            case "user":
                messages.append(UserMessage(text))
            case "assistant":
                calls = [
                    ToolCall(f"c{number}-{place}", each["name"], json.dumps(each["arguments"], ensure_ascii=False))
                    for place, each in enumerate(entry.get("calls", ()))
                ]  # fmt: skip
                messages.append(AssistantMessage(Turn(text, calls=tuple(calls))))
            case "tool":
                call = calls.pop(0)
                messages.append(ToolMessage(ToolResult(call.id, call.name, text=text)))
    return messages


@pytest.mark.parametrize("each", OTHERS, ids=lambda each: each["id"])
def test_the_program_of_the_page_writes_real_rows_of_other_trainers(each):
    tools = each["row"]["tools"]
    tools = json.loads(tools) if isinstance(tools, str) else tools
    functions = [tool.get("function", tool) for tool in tools]
    example = Example(conversation(each["expected"]["messages"]), functions)
    row = write_row("openai", example)
    assert WRITERS[each["format"]](row) == each["row"]


HARD = Example(
    [
        SystemMessage("只用工具。"),
        UserMessage("北京和奥斯陆的天气？\n两个都要。"),
        AssistantMessage(
            Turn(
                "",
                reasoning="Two cities:\nask both.",
                calls=(
                    ToolCall("a", "get_weather", '{"city": "北京", "when": {"day": 1.5}}'),
                    ToolCall("b", "get_weather", '{\n  "city": "Oslo",\n  "days": [1, null, true]\n}'),
                ),
                finish="calls",
            )
        ),
        ToolMessage(ToolResult("a", "get_weather", text='{\n  "晴": true\n}')),
        ToolMessage(ToolResult("b", "get_weather", text='["rain", "snow"]')),
        AssistantMessage(Turn("北京晴，Oslo 下雨。")),
    ],
    ({"name": "get_weather", "description": "天气", "parameters": {"type": "object", "properties": {}}},),
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_parallel_chinese_multi_line_calls_read_back_the_same(form):
    row = json.loads(json.dumps(write_row(form, HARD)))
    again = read_row(form, row)
    wanted = [(each.name, json.loads(each.arguments)) for each in HARD.calls]
    assert [(each.name, json.loads(each.arguments)) for each in again.calls] == wanted
    assert [each.text for each in again.results] == [each.text for each in HARD.results]
    assert again.turns[-1].text == HARD.turns[-1].text
    assert [each["name"] for each in again.tools] == ["get_weather"]


@pytest.mark.parametrize("form", [name for name in FORMS if FORMS[name].has_weights])
def test_of_two_equal_answers_the_masked_one_is_marked(form):
    twice = [UserMessage("a"), AssistantMessage(Turn("ok"))] * 2
    row = write_row(form, Example(twice, masked=frozenset({1})))
    assert read_row(form, row).masked == {1}


def test_a_form_without_images_refuses_them():
    part = Media("image/png", url="desk.png")
    with pytest.raises(hr.ConfigError, match="images"):
        write_row("hermes", Example([UserMessage("what is here?", (part,))]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "row", [{}, {"messages": 3, "conversations": 3}, {"messages": [{"role": "x"}], "conversations": [{"from": "x"}]}]
)  # fmt: skip
def test_a_row_of_another_form_is_refused_in_a_sentence(form, row):
    with pytest.raises(hr.ConfigError):
        read_row(form, row)
