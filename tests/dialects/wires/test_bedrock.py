"""Amazon Bedrock's Converse: what the contract does not know, and its recorded answers.

What a request looks like was compared with botocore's description of the service (`bedrock-runtime`, 2023-09-30).
"""

from __future__ import annotations

import json
import struct
import zlib
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects.wires.bedrock import DIALECT
from handrail.errors import ConfigError, Failure, ModelError
from handrail.messages import (
    ArgumentsDelta,
    AssistantMessage,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.ports import Described
from handrail.testing.contracts.dialects import (
    RICH,
    TOOLS,
    calls_told,
    in_pieces,
    read,
    shared,
)
from tests.support import recorded, wires

ASKED = [UserMessage("How warm is it?")]
RECORDED = wires.exchanges("bedrock_converse")


class TestBedrock(recorded.RecordedContract):
    dialect = DIALECT
    last = b"messageStop"

    def sayable(self, turn: Turn) -> Turn:
        """Thoughts are not counted on this wire."""
        return replace(turn, usage=replace(turn.usage, reasoning_tokens=0))


def answer(*content: dict, stop: str | None = "end_turn") -> dict:
    return {
        "output": {"message": {"role": "assistant", "content": [*content]}},
        "stopReason": stop,
        "usage": {},
    }


# -- what we ask -------------------------------------------------------------------------------------------------------


def test_a_request_is_spelled_as_the_service_describes_it():
    look = Described("look", "Looks.", {"properties": {"city": {"type": "string"}}})
    options = Options(
        model="m",
        max_tokens=7,
        temperature=0.5,
        tool_choice="look",
        output=Output({"type": "object"}),
    )
    assert DIALECT.encode_request(
        [SystemMessage("Be brief."), *ASKED, *ASKED], [look], options
    ) == {
        "messages": [{"role": "user", "content": [{"text": "How warm is it?"}] * 2}],
        "system": [{"text": "Be brief."}],
        "inferenceConfig": {"maxTokens": 7, "temperature": 0.5},
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "look",
                        "description": "Looks.",
                        "inputSchema": {
                            "json": {
                                "type": "object",
                                "properties": {"city": {"type": "string"}},
                            }
                        },
                    }
                }
            ],
            "toolChoice": {"tool": {"name": "look"}},
        },
        "outputConfig": {
            "textFormat": {
                "type": "json_schema",
                "structure": {
                    "jsonSchema": {"schema": '{"type": "object"}', "name": "answer"}
                },
            }
        },
    }


def test_a_tool_without_a_description_has_none_for_an_empty_one_is_refused():
    assert DIALECT.definitions([Described("stop", "", {})]) == [
        {"toolSpec": {"name": "stop", "inputSchema": {"json": {"type": "object"}}}}
    ]


def test_the_path_names_the_model_and_whether_to_stream():
    arn = "arn:aws:bedrock:us-east-1::foundation-model/m:0"
    for stream in (False, True):
        path = DIALECT.path(arn, stream=stream)
        assert path.count("/") == 3
        assert unquote(path) == f"/model/{arn}/converse{'-stream' if stream else ''}"


CALLED = AssistantMessage(
    Turn(calls=[ToolCall("c1", "look", '{"a": 1}')], finish="calls")
)


def test_tools_that_may_not_be_called_are_left_out_until_there_are_calls_to_explain():
    options = Options(tool_choice="none")
    assert "toolConfig" not in DIALECT.encode_request(ASKED, TOOLS, options)
    answered = [*ASKED, CALLED, ToolMessage(ToolResult("c1", "look", text="ok"))]
    assert (
        "toolChoice"
        not in DIALECT.encode_request(answered, TOOLS, options)["toolConfig"]
    )


@pytest.mark.parametrize(("tools", "choice"), [([], "required"), (TOOLS, "find")])
def test_a_tool_that_is_not_there_cannot_be_demanded(tools, choice):
    with pytest.raises(ConfigError, match="tool_choice"):
        DIALECT.encode_request(ASKED, tools, Options(tool_choice=choice))


def test_results_go_back_with_their_state_and_what_they_show():
    media = [Media("image/png", b"\x89PNG"), Media("application/pdf", url="s3://b/a.pdf", name="a_b.pdf"),
             Media("audio/wav", b"RIFF")]  # fmt: skip
    failure = Failure("TIMEOUT", "Too slow.", "Try again.", True)
    results = [
        ToolResult("c1", text="ok", media=media),
        ToolResult("call|2", failure=failure),
    ]
    (message,) = DIALECT.encode_results(
        [ToolCall("c1", "look"), ToolCall("call|2", "look")], results
    )
    good, bad = (block["toolResult"] for block in message["content"])
    assert good == {
        "toolUseId": "c1",
        "status": "success",
        "content": [
            {"text": "ok"},
            {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}},
            {
                "document": {
                    "format": "pdf",
                    "name": "a-b-pdf",
                    "source": {"s3Location": {"uri": "s3://b/a.pdf"}},
                }
            },
            {"text": "not shown: [audio/wav, 4 bytes]"},
        ],
    }
    assert (bad["status"], bad["toolUseId"]) == ("error", "call_2")
    assert json.loads(bad["content"][0]["text"])["error_code"] == "TIMEOUT"


def test_a_person_can_show_only_what_bedrock_takes():
    (message,) = DIALECT.encode_request(
        [UserMessage("", [Media("image/webp", b"RIFF"), {"type": "text", "text": "?"}])]
    )["messages"]
    assert message["content"] == [
        {"image": {"format": "webp", "source": {"bytes": "UklGRg=="}}},
        {"text": "?"},
    ]
    with pytest.raises(ConfigError, match="example"):
        DIALECT.encode_request(
            [UserMessage("", [Media("image/png", url="https://example.com/a.png")])]
        )


def test_what_a_bedrock_model_said_goes_back_as_it_came():
    content = [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s1"}}},
        {"reasoningContent": {"redactedContent": "AAAA"}},
        {"text": "I look."},
        {"toolUse": {"toolUseId": "x", "name": "look", "input": {"city": "北京"}}},
    ]
    turn = DIALECT.decode(answer(*content, stop="tool_use"))
    assert (turn.reasoning, turn.text, turn.finish) == ("Hm.", "I look.", "calls")
    sent = DIALECT.encode_request(
        [*ASKED, AssistantMessage(turn), ToolMessage(ToolResult("x", text="ok"))]
    )
    assert sent["messages"][1] == {"role": "assistant", "content": content}
    deltas = [
        {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Hm."}}},
        {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "s1"}}},
        {
            "contentBlockIndex": 1,
            "delta": {"reasoningContent": {"redactedContent": "AAAA"}},
        },
        {"contentBlockIndex": 2, "delta": {"text": "I look."}},
    ]
    _, streamed = read(
        DIALECT.stream(),
        [f"data: {json.dumps({'contentBlockDelta': each})}\n\n" for each in deltas],
    )
    assert streamed.raw["content"] == content[:3]


def test_calls_that_were_changed_since_go_back_as_they_are_now():
    turn = DIALECT.decode(
        answer(
            {"text": "I look."},
            {"toolUse": {"toolUseId": "x", "name": "look", "input": {}}},
        )
    )
    split = replace(
        turn, calls=[ToolCall("x", "look"), ToolCall("x_2", "look", '{"a": 1}')]
    )
    results = [ToolMessage(ToolResult(id, text="ok")) for id in ("x", "x_2")]
    told = DIALECT.encode_request([*ASKED, AssistantMessage(split), *results])[
        "messages"
    ][1]["content"]
    assert [block.get("toolUse", {}).get("input") for block in told] == [
        None,
        {},
        {"a": 1},
    ]


def test_what_another_model_said_goes_back_as_text_and_calls():
    foreign = Turn(
        "Yes.",
        "secret",
        raw={"type": "message", "content": [{"type": "text", "text": "Yes."}]},
    )
    told = DIALECT.encode_request([*ASKED, AssistantMessage(foreign)])["messages"][1]
    assert told == {"role": "assistant", "content": [{"text": "Yes."}]}


# -- what we are answered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interaction", wires.cases(RECORDED, "body"))
def test_a_recorded_body_is_read(interaction):
    body = interaction["response"]["body"]
    turn = DIALECT.decode(body)
    (block,) = body["output"]["message"]["content"]
    (call,) = turn.calls
    assert block["toolUse"] == {
        "toolUseId": call.id,
        "name": call.name,
        "input": json.loads(call.arguments),
    }
    assert (turn.finish, turn.usage.output_tokens) == (
        "calls",
        body["usage"]["outputTokens"],
    )
    assert turn.raw == body["output"]["message"]


@pytest.mark.parametrize("interaction", wires.cases(RECORDED, "stream"))
def test_a_recorded_stream_is_read_cut_at_every_byte(interaction):
    whole = wires.stream_bytes(interaction["response"])
    deltas, turn = read(DIALECT.stream(), [whole])
    assert (
        "".join(delta.text for delta in deltas)
        == turn.calls[0].arguments
        == '{"location":"San Francisco"}'
    )
    assert [(call.id, call.name) for call in turn.calls] == [
        ("toolu_01PQjhxo3eirCdKNvCJrKc8f", "get-weather")
    ]
    assert (turn.finish, turn.usage) == ("calls", Usage(843, 28))
    assert read(DIALECT.stream(), in_pieces(whole, range(len(whole)))) == (deltas, turn)


def framed(kind: str, told: object, header: bytes = b":event-type") -> bytes:
    """Return a frame of Amazon's event stream, by its specification."""
    name, payload = kind.encode(), json.dumps(told).encode()
    headers = b"".join(
        bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value
        for key, value in (
            (header, name),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def test_frames_of_amazon_are_read_whole_and_a_cut_one_has_no_good_end():
    lines = TestBedrock().events().splitlines()
    events = [json.loads(line[6:]) for line in lines if line]
    frames = [framed(kind, told) for event in events for kind, told in event.items()]
    rich = replace(RICH, usage=replace(RICH.usage, reasoning_tokens=0))
    assert DIALECT.decode(b"".join(frames), TOOLS) == rich
    for cut in range(1, len(frames[-1]) + len(frames[-2]) + 1):
        turn = DIALECT.decode(b"".join(frames)[:-cut], TOOLS)
        assert (turn.text, turn.finish) == (
            RICH.text,
            "calls" if cut <= len(frames[-1]) else "error",
        )


@pytest.mark.parametrize(("kind", "retryable"), [
    ("throttlingException", True), ("internalServerException", True), ("modelStreamErrorException", True),
    ("serviceUnavailableException", True), ("validationException", False),
])  # fmt: skip
def test_an_exception_in_a_stream_is_an_error(kind, retryable):
    told = {"message": "no luck"}
    with pytest.raises(ModelError, match="no luck") as framed_error:
        DIALECT.decode(
            framed("messageStart", {}) + framed(kind, told, b":exception-type")
        )
    _, error = read(DIALECT.stream(), [f"data: {json.dumps({kind: told})}\n\n"])
    assert framed_error.value.retryable == error.retryable == retryable


@pytest.mark.parametrize("word", ["malformed_model_output", "malformed_tool_use"])
def test_what_bedrock_could_not_read_itself_is_asked_for_again(word):
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(answer(stop=word))
    assert (caught.value.code, caught.value.retryable) == (word, True)


@pytest.mark.parametrize(("word", "finish"), [
    ("stop_sequence", "stop"), ("model_context_window_exceeded", "length"), ("guardrail_intervened", "refused"),
    ("yet_to_come", "error"), (None, "error"),
])  # fmt: skip
def test_only_a_stated_end_is_an_end(word, finish):
    assert DIALECT.decode(answer({"text": "So"}, stop=word)).finish == finish


def test_a_call_without_arguments_is_told_when_its_block_ends():
    start = {
        "contentBlockIndex": 1,
        "start": {"toolUse": {"toolUseId": "x", "name": "refund"}},
    }
    events = (
        {"contentBlockStart": start},
        {"contentBlockStop": {"contentBlockIndex": 1}},
    )
    deltas, turn = read(
        DIALECT.stream(TOOLS), [f"data: {json.dumps(event)}\n\n" for event in events]
    )
    assert deltas == [ArgumentsDelta(0, "refund", "{}")]
    assert turn.calls == (ToolCall("x", "refund", "{}"),)


def test_tools_that_bedrock_ran_are_recorded_and_no_calls_of_ours():
    ran = {
        "toolUse": {
            "toolUseId": "s",
            "name": "search",
            "input": {},
            "type": "server_tool_use",
        }
    }
    told = {"toolResult": {"toolUseId": "s", "content": []}}
    turn = DIALECT.decode(answer(ran, told, {"text": "Found."}))
    assert (turn.calls, turn.server_side, turn.text) == ((), (ran, told), "Found.")


def test_messages_of_others_are_refused():
    for foreign in ({"role": "assistant", "content": [{"type": "text", "text": "hi"}, {"type": "tool_use"}]}, [],
                    {"role": "user", "content": []}, {"role": "assistant", "content": "hi"}):  # fmt: skip
        with pytest.raises(ConfigError, match="no message of Bedrock's"):
            DIALECT.decode_message(foreign)


@shared
@given(
    body=st.binary(max_size=300)
    | st.binary(max_size=300).map(lambda some: bytes([0]) + some)
)
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


def call_events(id, city):
    start = {"toolUse": {"toolUseId": id, "name": "get_weather"}}
    return [
        {"contentBlockStart": {"contentBlockIndex": 0, "start": start}},
        {
            "contentBlockDelta": {
                "contentBlockIndex": 0,
                "delta": {"toolUse": {"input": json.dumps({"city": city})}},
            }
        },
        {"contentBlockStop": {"contentBlockIndex": 0}},
    ]


@pytest.mark.parametrize("repeated", [False, True])
def test_a_start_that_comes_twice_is_one_call_and_a_second_one_at_its_index_is_another(
    repeated,
):
    first, second = call_events("a", "Oslo"), call_events("b", "Rome")
    events = [
        *first[:1],
        *(first if repeated else first[1:]),
        *second,
        {"messageStop": {"stopReason": "tool_use"}},
    ]
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
