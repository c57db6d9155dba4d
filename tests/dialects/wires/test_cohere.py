"""Cohere's v2 chat: what the contract does not know."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects.wires.cohere import DIALECT
from handrail.errors import ConfigError, ModelError
from handrail.messages import (
    ArgumentsDelta,
    AssistantMessage,
    Options,
    Output,
    ReasoningDelta,
    TextDelta,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.models.providers import PROVIDERS
from handrail.testing.contracts.dialects import TOOLS, calls_told, read, shared
from tests.support import recorded

ASKED = [UserMessage("How warm is it?")]


class TestCohere(recorded.RecordedContract):
    dialect = DIALECT

    def sayable(self, turn: Turn) -> Turn:
        """Thoughts are not counted on this wire."""
        return replace(turn, usage=replace(turn.usage, reasoning_tokens=0))


def answer(word: str | None = "COMPLETE", **message: object) -> dict:
    return {
        "id": "a",
        "finish_reason": word,
        "message": {"role": "assistant", **message},
    }


def streamed(*events: dict) -> tuple[list, Turn | ModelError]:
    return read(
        DIALECT.stream(TOOLS), [f"data: {json.dumps(each)}\n\n" for each in events]
    )


# -- what we ask -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "told", "count"), [
    (Options(), {}, 5),
    (Options(strict=True), {"strict_tools": True}, 5),
    (Options(tool_choice="required"), {"tool_choice": "REQUIRED"}, 5),
    (Options(tool_choice="none"), {"tool_choice": "NONE"}, 5),
    # there is no word for a name
    (Options(tool_choice="refund"), {"tool_choice": "REQUIRED"}, 1),
])  # fmt: skip
def test_which_tool_is_to_be_called_is_said_as_far_as_it_can_be(options, told, count):
    body = DIALECT.encode_request(ASKED, TOOLS, options)
    tools = body.pop("tools")
    assert (body, len(tools)) == (
        {
            "messages": [{"role": "user", "content": ASKED[0].text}],
            "stream": False,
            **told,
        },
        count,
    )
    if count == 1:
        assert tools[0]["function"]["name"] == "refund"


@pytest.mark.parametrize(("tools", "choice"), [([], "required"), (TOOLS, "find")])
def test_a_tool_that_is_not_there_cannot_be_demanded(tools, choice):
    with pytest.raises(ConfigError, match="tool_choice"):
        DIALECT.encode_request(ASKED, tools, Options(tool_choice=choice))


def test_an_answer_is_held_to_a_form():
    options = Options(output=Output({"type": "object"}), max_tokens=9, extra={"p": 0.5})
    body = DIALECT.encode_request(ASKED, (), options)
    assert body["response_format"] == {
        "type": "json_object",
        "json_schema": {"type": "object"},
    }


def test_pictures_and_texts_are_shown_and_other_files_are_refused():
    parts = [
        {"type": "text", "text": "Look:"},
        Media("image/png", b"\x89PNG"),
        Media("text/csv", b"a,b"),
    ]
    (message,) = DIALECT.encode_request([UserMessage("Look:", parts)])["messages"]
    assert message["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "text", "text": "a,b"},
    ]
    with pytest.raises(ConfigError, match="audio/wav"):
        DIALECT.encode_request([UserMessage("", [Media("audio/wav", b"RIFF")])])


def test_a_picture_of_a_tool_follows_its_result_and_what_cannot_be_seen_is_named():
    turn = Turn(calls=[ToolCall("c1", "draw")], finish="calls")
    media = [Media("image/png", b"\x89PNG"), Media("audio/wav", b"RIFF", name="cat")]
    result = ToolResult("c1", "draw", text="drawn", media=media)
    told = DIALECT.encode_results(turn.calls, [result])
    assert told == [
        {"role": "tool", "tool_call_id": "c1", "content": "drawn\nnot shown: [audio/wav cat, 4 bytes]"},
        {"role": "user", "content": [
            {"type": "text", "text": "Shown by draw (c1):"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        ]},
    ]  # fmt: skip
    assert (
        DIALECT.encode_request([*ASKED, AssistantMessage(turn), ToolMessage(result)])[
            "messages"
        ][2:]
        == told
    )


def test_what_the_model_said_goes_back_with_its_plan_its_thoughts_and_its_citations():
    message = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "text", "text": "21 °C."},
        ],
        "tool_plan": "I will look.",
        "tool_calls": [
            {
                "id": "c",
                "type": "function",
                "function": {"name": "refund", "arguments": "{}"},
            }
        ],
        "citations": [{"start": 0, "end": 2, "text": "21"}],
    }
    turn = DIALECT.decode({"message": message, "finish_reason": "TOOL_CALL"})
    assert (turn.text, turn.reasoning) == ("21 °C.", "Hm.I will look.")
    result = ToolMessage(ToolResult("c", text="ok"))
    assert (
        DIALECT.encode_request([*ASKED, AssistantMessage(turn), result])["messages"][1]
        == message
    )


def test_what_another_model_said_goes_back_as_text_and_calls():
    thought = {"type": "thinking", "thinking": "secret", "signature": "s"}
    foreign = Turn(
        "Yes.",
        "secret",
        raw={"type": "message", "content": [thought, {"type": "text", "text": "Yes."}]},
    )
    assert DIALECT.encode_request([*ASKED, AssistantMessage(foreign)])["messages"][
        1
    ] == {
        "role": "assistant",
        "content": "Yes.",
    }


def test_documents_in_a_tools_message_are_heard_as_text():
    documents = [
        {"type": "document", "document": {"data": {"c": 21}}},
        {"type": "text", "text": "warm"},
    ]
    told = [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "function": {"name": "look", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": documents},
    ]
    messages = DIALECT.decode_conversation({"messages": told})
    assert messages[1].result.text == '{"c": 21}\nwarm'


# -- what we are answered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "finish"), [
    ("COMPLETE", "stop"), ("STOP_SEQUENCE", "stop"), ("MAX_TOKENS", "length"), ("TOOL_CALL", "calls"),
    ("ERROR", "error"), ("TIMEOUT", "error"), ("YET_TO_COME", "error"), (None, "error"),
])  # fmt: skip
def test_only_a_stated_end_is_an_end(word, finish):
    assert (
        DIALECT.decode(answer(word, content=[{"type": "text", "text": "So"}])).finish
        == finish
    )


def test_an_error_says_what_was_wrong():
    with pytest.raises(ModelError, match="invalid api token"):
        DIALECT.decode({"id": "x", "message": "invalid api token"})
    assert DIALECT.classify(429, {}, {"message": "too many"}).retryable
    assert not DIALECT.classify(401, {}, {"message": "invalid api token"}).retryable


def test_null_for_arguments_means_that_there_are_none_streamed_too():
    function = {"name": "refund", "arguments": ""}
    pieces = [
        {
            "type": "tool-call-delta",
            "index": 0,
            "delta": {"message": {"tool_calls": {"function": {"arguments": text}}}},
        }
        for text in ("nu", "ll")
    ]
    deltas, turn = streamed(
        {
            "type": "tool-call-start",
            "index": 0,
            "delta": {"message": {"tool_calls": {"id": "c", "function": function}}},
        },
        *pieces,
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}},
    )
    assert deltas == [ArgumentsDelta(0, "refund", "{}")]
    assert turn.calls == (ToolCall("c", "refund", "{}"),)


def test_a_stream_tells_thoughts_plan_and_text_as_they_come_and_keeps_citations():
    citation = {"start": 0, "end": 1, "text": "a"}
    deltas, turn = streamed(
        {"type": "message-start", "delta": {"message": {"role": "assistant"}}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "Look."}}},
        {
            "type": "content-start",
            "index": 0,
            "delta": {"message": {"content": {"type": "thinking", "thinking": ""}}},
        },
        {
            "type": "content-delta",
            "index": 0,
            "delta": {"message": {"content": {"thinking": "Hm."}}},
        },
        {
            "type": "content-start",
            "index": 1,
            "delta": {"message": {"content": {"type": "text", "text": "a"}}},
        },
        {
            "type": "citation-start",
            "index": 0,
            "delta": {"message": {"citations": citation}},
        },
        {"type": "citation-end", "index": 0},
        {"type": "debug", "prompt": "..."},
        {
            "type": "message-end",
            "delta": {
                "finish_reason": "COMPLETE",
                "usage": {"tokens": {"input_tokens": 3}},
            },
        },
    )
    assert deltas == [ReasoningDelta("Look."), ReasoningDelta("Hm."), TextDelta("a")]
    assert (turn.reasoning, turn.text, turn.finish, turn.usage) == (
        "Look.Hm.",
        "a",
        "stop",
        Usage(3),
    )
    assert turn.raw["citations"] == [citation]


@shared
@given(body=st.binary(max_size=300) | st.text(max_size=300))
def test_any_bytes_give_a_turn_or_a_model_error(body):
    def by_stream() -> Turn:
        stream = DIALECT.stream()
        stream.feed(body)
        return stream.close()

    for told in (lambda: DIALECT.decode(body), by_stream):
        try:
            assert isinstance(told(), Turn)
        except ModelError as error:
            assert str(error)


def test_the_preset_knows_the_place_and_the_key():
    model = PROVIDERS["cohere"]("command-a", environment={"CO_API_KEY": "k"})
    assert model.url(False) == "https://api.cohere.com/v2/chat"
    assert model._headers["authorization"] == "Bearer k"


def call_events(id, city):
    function = {"name": "get_weather", "arguments": ""}
    return [
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"id": id, "function": function}}}},
        {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {
            "arguments": json.dumps({"city": city})}}}}},
        {"type": "tool-call-end", "index": 0},
    ]  # fmt: skip


@pytest.mark.parametrize("repeated", [False, True])
def test_a_start_that_comes_twice_is_one_call_and_a_second_one_at_its_index_is_another(
    repeated,
):
    first, second = call_events("a", "Oslo"), call_events("b", "Rome")
    events = [*first[:1], *(first if repeated else first[1:]), *second]
    events.append({"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}})
    deltas, turn = read(
        DIALECT.stream(TOOLS), [f"data: {json.dumps(event)}\n\n" for event in events]
    )
    assert [(call.id, call.arguments) for call in turn.calls] == [
        ("a", '{"city": "Oslo"}'),
        ("b", '{"city": "Rome"}'),
    ]
    assert calls_told(deltas) == {
        n: (call.name, call.arguments) for n, call in enumerate(turn.calls)
    }
