"""Rows of real training sets: each is read as the conversation that it means, and written back equal."""

from __future__ import annotations

import json

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

FORM_OF = {
    "llamafactory_sharegpt": "sharegpt",
    "llamafactory_v1": "llamafactory-v1",
    "ms_swift_agent": "swift",
    "trl_language_modeling": "trl",
}
ROWS = rows("training/formats.jsonl")
EXAMPLES = [each for each in ROWS if each["format"] != "trl_preference"]
PAIRS = [each for each in ROWS if each["format"] == "trl_preference"]


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


@pytest.mark.parametrize("each", EXAMPLES, ids=lambda each: each["id"])
def test_a_real_row_is_read_as_what_it_means_and_written_back_equal(each):
    form = FORM_OF[each["format"]]
    example = read_row(form, each["row"])
    assert [tool["name"] for tool in example.tools] == each["expected"]["tools"]
    assert told(example.messages) == meant(each["expected"]["messages"])
    assert write_row(form, example) == each["row"]


@pytest.mark.parametrize("each", PAIRS, ids=lambda each: each["id"])
def test_a_real_pair_is_read_as_what_it_means_and_written_back_equal(each):
    pair = read_pair(each["row"])
    for part in ("prompt", "chosen", "rejected"):
        assert told(getattr(pair, part)) == meant(each["expected"][part])
    assert write_pair(pair) == each["row"]


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


PARTS = (
    Media("image/png", url="desk.png"),
    {"type": "text", "text": "what is <image> here?"},
)
PICTURED = Example(
    [
        UserMessage("what is <image> here?", PARTS),
        AssistantMessage(Turn(calls=(ToolCall("a", "click", '{"x": 1}'),), finish="calls")),
        ToolMessage(ToolResult("a", "click", text="<image> no picture")),
        AssistantMessage(Turn("A desk.")),
    ]
)  # fmt: skip


@pytest.mark.parametrize("form", ["sharegpt", "swift"])
def test_a_text_that_looks_like_an_image_takes_no_image(form):
    row = write_row(form, PICTURED)
    assert json.dumps(row).count("<image>") == len(row["images"]) == 1
    again = read_row(form, row)
    (question,) = [each for each in again.messages if isinstance(each, UserMessage)]
    assert [each.url for each in question.parts if isinstance(each, Media)] == ["desk.png"]  # fmt: skip


def test_images_of_trl_are_a_column_and_parts():
    row = write_row("trl", PICTURED)
    assert row["images"] == ["desk.png"]
    assert row["messages"][0]["content"][0] == {"type": "image"}
    assert read_row("trl", row).messages[0].parts[0].url == "desk.png"


@pytest.mark.parametrize("form", ["hermes", "toolace", "llamafactory-v1"])
def test_a_form_without_images_refuses_them(form):
    with pytest.raises(hr.ConfigError, match="images"):
        write_row(form, PICTURED)


def test_sharegpt_refuses_questions_and_answers_that_do_not_alternate():
    twice = Example([UserMessage("a"), AssistantMessage(Turn("b")), AssistantMessage(Turn("c"))])  # fmt: skip
    with pytest.raises(hr.ConfigError, match="do not alternate"):
        write_row("sharegpt", twice)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "row", [{}, {"messages": 3, "conversations": 3}, {"messages": [{"role": "x"}], "conversations": [{"from": "x"}]}]
)  # fmt: skip
def test_a_row_of_another_form_is_refused_in_a_sentence(form, row):
    with pytest.raises(hr.ConfigError):
        read_row(form, row)
