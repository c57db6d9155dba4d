"""Conversations as JSON: handrail's own form, the chat form, and those of the providers."""

import json

import pytest

import handrail as hr
from handrail.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)

WIRES = [
    "openai-chat",
    "openai-responses",
    "anthropic",
    "gemini",
    "gemini-interactions",
    "cohere",
    "bedrock",
]

CONVERSATION = [
    SystemMessage("Be short."),
    UserMessage("How warm is it in 北京?"),
    AssistantMessage(
        Turn(
            "Let me look.",
            reasoning="I need the weather.",
            calls=(
                hr.ToolCall("c1", "get_weather", '{"city": "北京"}'),
                hr.ToolCall("c2", "get_weather", '{"city":"Oslo"}'),
            ),
            finish="calls",
            usage=Usage(100, 20),
            raw={"role": "assistant", "signature": "abc=="},
        )
    ),
    ToolMessage(hr.ToolResult("c1", "get_weather", value={"celsius": 21}, text="21")),
    ToolMessage(
        hr.ToolResult(
            "c2",
            "get_weather",
            failure=hr.Failure("TOOL_ERROR", "No such city.", "Spell it otherwise."),
            text='{"success": false}',
        )
    ),
    AssistantMessage(Turn("21 °C.")),
    UserMessage("A picture:", (hr.Media("image/png", b"\x89PNG"),)),
]


def through_text(body):
    return json.loads(json.dumps(body))


def test_nothing_is_lost_in_our_own_form():
    back = hr.messages_from_json(through_text(hr.messages_as_json(CONVERSATION)))
    assert back == CONVERSATION
    assert back[2].turn.raw == CONVERSATION[2].turn.raw


@pytest.mark.parametrize("wire", WIRES)
def test_what_was_read_back_makes_the_same_request(wire):
    back = hr.messages_from_json(through_text(hr.messages_as_json(CONVERSATION)))
    encode = hr.dialect(wire).encode_request
    assert json.dumps(encode(back)) == json.dumps(encode(CONVERSATION))


@pytest.mark.parametrize("wire", WIRES)
def test_every_provider_s_form_is_written_and_read(wire):
    body = through_text(hr.messages_as_json(CONVERSATION, dialect=wire))
    assert not body.keys() & {"model", "tools", "stream", "max_tokens"}
    back = hr.messages_from_json(body, dialect=wire)
    assert [type(each) for each in back] == [type(each) for each in CONVERSATION]
    assert [each.id for each in back[2].turn.calls] == ["c1", "c2"]
    assert through_text(hr.messages_as_json(back, dialect=wire)) == body


@pytest.mark.parametrize("wire", WIRES)
def test_the_list_alone_is_enough(wire):
    body = hr.messages_as_json(CONVERSATION[1:], dialect=wire)
    (name,) = body
    assert len(hr.messages_from_json(body[name], dialect=wire)) == 6


def test_the_chat_form_is_read_without_a_dialect():
    body = hr.messages_as_json(CONVERSATION, dialect="openai-chat")["messages"]
    roles = [type(each) for each in hr.messages_from_json(body)]
    assert roles == [type(each) for each in CONVERSATION]


def test_a_conversation_of_one_provider_goes_on_with_another():
    body = hr.messages_as_json(CONVERSATION, dialect="anthropic")
    messages = hr.messages_from_json(body, dialect="anthropic")
    calls = hr.messages_as_json(messages, dialect="openai-chat")["messages"][2]
    assert [each["id"] for each in calls["tool_calls"]] == ["c1", "c2"]


@pytest.mark.parametrize(("body", "dialect", "sentence"), [
    (5, "", "messages are a list"),
    ({"messages": []}, "", "read with `dialect=`"),
    ("[]", "", "messages are a list"),
    ([5], "", "message 1 is of type int"),
    ([{"user": "a"}, {}], "", "message 2 has neither"),
    ([{"user": 5}], "", "`user` is no text"),
    ([{"assistant": {}}], "", "message 1 cannot be read"),
    ([{"result": 3}], "", "message 1 cannot be read"),
    ([{"user": "a", "parts": [3]}], "", "message 1 cannot be read"),
    ([{"role": "robot"}], "", "has the role 'robot'"),
    (5, "anthropic", "an object with `messages`"),
    ({}, "gemini", "an object with `contents`"),
    ({"messages": 5}, "anthropic", "no conversation in the form of 'anthropic'"),
    ([5], "bedrock", "no conversation in the form of 'bedrock'"),
    pytest.param([], "hermes", "a prompt's dialect", marks=pytest.mark.others),
    ([], "nonsense", "there is no dialect"),
])  # fmt: skip
def test_what_is_no_conversation_is_refused_in_a_sentence(body, dialect, sentence):
    with pytest.raises(hr.ConfigError, match=sentence):
        hr.messages_from_json(body, dialect=dialect)
