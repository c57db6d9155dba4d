"""Anthropic Messages: what the contract does not know. The official SDK is the oracle of what goes out."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import get_args

import anthropic
import httpx2
import pytest
from anthropic.types import Message as SdkMessage
from anthropic.types import RawMessageStreamEvent, message_create_params
from hypothesis import given
from msgspec.structs import replace
from pydantic import TypeAdapter

import handrail as hr
from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import Dialect, Envelope, ServerDialect, WireDialect, dialect
from handrail.dialects.wires.anthropic import DEFAULT_MAX_TOKENS, DIALECT, Anthropic
from handrail.errors import Code, ConfigError, Failure, ModelError
from handrail.messages import (
    ArgumentsDelta,
    AssistantMessage,
    Options,
    Output,
    ReasoningDelta,
    SystemMessage,
    TextDelta,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.models.providers import PROVIDERS
from handrail.parsing import jsontext
from handrail.ports import Described
from handrail.testing import ScriptedServer, call
from handrail.testing.contracts.dialects import (
    TOOLS,
    ServerContract,
    in_pieces,
    read,
    shared,
    turns,
)
from tests.support.drivers import BOUND_S

SDK_REQUEST = TypeAdapter(message_create_params.MessageCreateParams)
SDK_EVENT = TypeAdapter(RawMessageStreamEvent)

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
STRICT = {**SCHEMA, "additionalProperties": False}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
PNG = Media("image/png", b"\x89PNG")
PNG_BASE64 = b64encode(PNG.data).decode()


class TestAnthropic(ServerContract):
    dialect = DIALECT
    last = b"message_stop"
    texts_survive = False


def test_it_is_found_by_name():
    assert dialect("anthropic") is DIALECT
    assert all(
        isinstance(DIALECT, side) for side in (Dialect, WireDialect, ServerDialect)
    )


@pytest.mark.parametrize(
    "address", ["http://h", "http://h/", "http://h/v1", "http://h/v1/"]
)
def test_an_address_may_be_given_with_its_version_or_without(address):
    model = PROVIDERS["anthropic"](f"claude@{address}", api_key="k")
    assert model.url(streamed=True) == "http://h/v1/messages"


# -- requests ----------------------------------------------------------------------------------------------------------

CALL = ToolCall("toolu_1", "user_info.get", '{"city": "Paris"}')
CONVERSATION = [
    SystemMessage("Be brief."),
    UserMessage("Weather in Paris?"),
    AssistantMessage(Turn("I look.", calls=[CALL], finish="calls")),
    ToolMessage(ToolResult("toolu_1", "user_info.get", value="sunny", text="sunny")),
    AssistantMessage(Turn("Sunny.")),
    UserMessage("", [{"type": "text", "text": "And here?"}, PNG]),
]


def sent(*messages) -> list[dict]:
    """Return the messages of a request as they go out."""
    return DIALECT.encode_request(messages)["messages"]


def test_a_request_is_spelled_as_anthropic_spells_it():
    options = Options(
        "claude",
        tool_choice="user_info.get",
        parallel=False,
        max_tokens=50,
        temperature=0.2,
        stream=True,
    )
    body = DIALECT.encode_request(
        CONVERSATION, TOOLS[1:2], replace(options, extra={"metadata": {"user_id": "7"}})
    )
    assert body == {
        "model": "claude",
        "max_tokens": 50,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Weather in Paris?"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "user_info_get", "input": {"city": "Paris"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny", "is_error": False},
            ]},
            {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]},
            {"role": "user", "content": [
                {"type": "text", "text": "And here?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}},
            ]},
        ],
        "tools": [{
            "name": "user_info_get", "description": "Does user_info.get.", "input_schema": TOOLS[1].parameters,
        }],
        "tool_choice": {"type": "tool", "name": "user_info_get", "disable_parallel_tool_use": True},
        "temperature": 0.2,
        "stream": True,
        "metadata": {"user_id": "7"},
    }  # fmt: skip


@pytest.mark.parametrize("options", [
    Options("m"),
    Options("m", tool_choice="required", strict=True, parallel=True),
    Options("m", tool_choice="none", max_tokens=5),
    Options("m", tool_choice="refund", stream=True, extra={"thinking": {"type": "adaptive"}}),
    Options("m", output=Output(SCHEMA), extra={"output_config": {"effort": "low"}}),
    Options("m", provider_tools=[SEARCH]),
    Options("m", temperature=0.5),
])  # fmt: skip
def test_the_official_sdk_accepts_our_requests(options):
    body = DIALECT.encode_request(CONVERSATION, TOOLS, options)
    validated = SDK_REQUEST.validate_python(body)
    # Lists are checked when they are walked.
    spoken = [*validated["messages"]]
    blocks = [
        block
        for message in spoken
        if not isinstance(message["content"], str)
        for block in message["content"]
    ]
    assert (len(spoken), len(blocks)) == (5, 6)
    assert len([*validated["tools"]]) == len(TOOLS) + len(options.provider_tools)
    forms = get_args(message_create_params.MessageCreateParams)
    # The API's version of October 2026, which the SDK speaks, takes no temperature; the one that we speak does.
    assert set(body) - {"temperature"} <= set().union(
        *(f.__required_keys__ | f.__optional_keys__ for f in forms)
    )


def test_a_conversation_is_written_as_the_official_sdk_writes_it():
    """Both sides get the same answer, put it back with the results, and ask again."""
    blocks = [
        {"type": "thinking", "thinking": "Both at once.", "signature": "c2ln"},
        {"type": "text", "text": "I look."},
        {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "get_weather",
            "input": {"city": "北京"},
        },
        {"type": "tool_use", "id": "toolu_2", "name": "refund", "input": {}},
    ]
    bodies = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(
            200, json=message(*blocks, stop="tool_use", id="m", model="m")
        )

    http = httpx2.Client(transport=httpx2.MockTransport(serve))
    client = anthropic.Anthropic(
        api_key="none", base_url="http://server.test", http_client=http
    )
    tools = [
        {"name": t.name, "description": t.description, "input_schema": t.parameters}
        for t in TOOLS[::4]
    ]
    asked = [{"role": "user", "content": "Weather?"}]
    how = {
        "model": "m",
        "max_tokens": 50,
        "system": "Be brief.",
        "tools": tools,
        "tool_choice": {"type": "any"},
    }
    answer = client.messages.create(messages=asked, **how)
    results = [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": "21 °C",
            "is_error": False,
        },
        {
            "type": "tool_result",
            "tool_use_id": "toolu_2",
            "content": '{"success":false}',
            "is_error": True,
        },
    ]
    asked += [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": results},
    ]
    client.messages.create(messages=asked, **how)

    turn = DIALECT.decode(message(*blocks, stop="tool_use"), TOOLS[::4])
    told = [
        *(SystemMessage("Be brief."), UserMessage("Weather?"), AssistantMessage(turn)),
        ToolMessage(
            ToolResult(
                "toolu_2",
                failure=Failure("GONE", "It is gone."),
                text='{"success":false}',
            )
        ),
        ToolMessage(ToolResult("toolu_1", value="21 °C", text="21 °C")),
    ]
    ours = DIALECT.encode_request(
        told, TOOLS[::4], Options("m", tool_choice="required", max_tokens=50)
    )
    assert ours == bodies[1]


@pytest.mark.parametrize(("options", "choice"), [
    (Options(), {"type": "auto"}),
    (Options(tool_choice="required"), {"type": "any"}),
    (Options(tool_choice="none", parallel=False), {"type": "none"}),
    (Options(tool_choice="查询天气"), {"type": "tool", "name": DIALECT.definitions(TOOLS)[3]["name"]}),
    (Options(tool_choice="web_search", provider_tools=[SEARCH]), {"type": "tool", "name": "web_search"}),
    (Options(parallel=False), {"type": "auto", "disable_parallel_tool_use": True}),
    (Options(parallel=True), {"type": "auto", "disable_parallel_tool_use": False}),
])  # fmt: skip
def test_a_choice_of_tools_is_told_in_anthropics_words(options, choice):
    body = DIALECT.encode_request("Hello", TOOLS, options)
    assert body["tool_choice"] == choice
    heard = DIALECT.decode_request(body)[2]
    assert heard.parallel == (
        None if options.tool_choice == "none" else options.parallel
    )


@pytest.mark.parametrize(
    ("tools", "choice"), [([], "required"), ([], "get_weather"), (TOOLS, "get_whether")]
)
def test_a_demand_that_no_tool_can_meet_is_refused_before_it_is_sent(tools, choice):
    with pytest.raises(ConfigError, match=choice):
        DIALECT.encode_request("Hello", tools, Options(tool_choice=choice))


def test_without_tools_nothing_is_said_of_them_and_a_limit_is_always_set():
    assert DIALECT.encode_request("Hello", None, Options(parallel=True)) == {
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": DEFAULT_MAX_TOKENS,
    }


def test_strict_is_claimed_only_for_tools_that_lose_nothing_by_it():
    recursive = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    able, unable = Described("a", "A.", SCHEMA), Described("b", "", recursive)
    assert DIALECT.definitions([able, unable], strict=True) == [
        {"name": "a", "description": "A.", "input_schema": STRICT, "strict": True},
        {"name": "b", "input_schema": recursive},
    ]
    assert "strict" not in DIALECT.definitions([able])[0]


def test_tools_of_the_provider_stand_beside_ours_and_come_back_apart():
    body = DIALECT.encode_request("Hello", TOOLS[:1], Options(provider_tools=[SEARCH]))
    assert [tool["name"] for tool in body["tools"]] == ["get_weather", "web_search"]
    _, tools, options = DIALECT.decode_request(body)
    assert ([tool.name for tool in tools], options.provider_tools) == (
        ["get_weather"],
        (SEARCH,),
    )
    assert DIALECT.encode_request("Hello", None, Options(provider_tools=[SEARCH]))[
        "tools"
    ] == [SEARCH]


def test_the_form_of_an_answer_stands_beside_the_users_own_effort():
    body = DIALECT.encode_request(
        "Hi",
        None,
        Options(output=Output(SCHEMA), extra={"output_config": {"effort": "low"}}),
    )
    assert body["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": STRICT},
    }
    heard = DIALECT.decode_request(body)[2]
    assert (heard.output, heard.extra) == (
        Output(STRICT),
        {"output_config": {"effort": "low"}},
    )


def test_a_form_beyond_the_providers_subset_is_left_to_the_provider_to_refuse():
    recursive = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    body = DIALECT.encode_request("Hi", None, Options(output=Output(recursive)))
    assert body["output_config"]["format"]["schema"] == recursive


# -- the history -------------------------------------------------------------------------------------------------------


def result(id: str, text: str = "") -> ToolMessage:
    return ToolMessage(ToolResult(id, value=text, text=text))


def said(turn: Turn) -> list[dict]:
    """Return the blocks in which a turn goes back; results of its calls follow in the next message."""
    return sent(AssistantMessage(turn))[0]["content"]


def shown_results(message: dict) -> list[str]:
    return [block.get("tool_use_id", block.get("text")) for block in message["content"]]


def test_results_come_first_in_one_message_in_the_order_of_the_calls():
    calling = AssistantMessage(
        Turn(calls=[ToolCall(id, "f") for id in ("a", "b", "c")], finish="calls")
    )
    told = sent(
        calling,
        result("c"),
        UserMessage("Go on."),
        result("a"),
        result("b"),
        UserMessage("Now."),
    )
    assert [message["role"] for message in told] == ["assistant", "user"]
    assert shown_results(told[1]) == ["a", "b", "c", "Go on.", "Now."]


def test_a_call_without_a_result_gets_one_for_the_api_refuses_it_otherwise():
    told = sent(
        AssistantMessage(Turn(calls=[ToolCall("a", "f")])), UserMessage("Go on.")
    )
    assert shown_results(told[1]) == ["a", "Go on."]


def test_roles_alternate_whatever_the_conversation_does():
    said = AssistantMessage(Turn("a"))
    told = sent(
        UserMessage("1"),
        UserMessage("2"),
        said,
        SystemMessage("s"),
        said,
        UserMessage("3"),
    )
    assert [message["role"] for message in told] == ["user", "assistant", "user"]
    assert [block["text"] for block in told[0]["content"]] == ["1", "2"]


def test_what_the_engineer_says_stands_at_the_head():
    body = DIALECT.encode_request(
        [SystemMessage("Be brief."), UserMessage("Hi"), SystemMessage("Be kind.")]
    )
    assert (body["system"], len(body["messages"])) == ("Be brief.\n\nBe kind.", 1)


@pytest.mark.parametrize(
    "turn",
    [
        Turn(""),
        Turn(" \n"),
        DIALECT.decode_message({"role": "assistant", "content": []}),
    ],
)
def test_a_turn_that_said_nothing_is_left_out(turn):
    told = sent(UserMessage("1"), AssistantMessage(turn), UserMessage("2"))
    assert [shown_results(message) for message in told] == [["1", "2"]]


def test_blank_text_beside_calls_stays_out_of_the_request():
    blank = message(
        {"type": "text", "text": "\n\n"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    )
    told = said(DIALECT.decode(blank))
    assert [block["type"] for block in told] == ["tool_use"]


def test_a_failure_is_flagged_as_one():
    told = DIALECT.encode_results(
        [ToolCall("a", "f")], [ToolResult("a", failure=Failure("GONE", "It is gone."))]
    )
    (block,) = told[0]["content"]
    assert block["is_error"] and json.loads(block["content"])["error_code"] == "GONE"
    (heard,) = DIALECT.decode_request({"messages": told})[0]
    assert heard.result.failure.code == Code.TOOL_ERROR
    assert sent(AssistantMessage(Turn(calls=[ToolCall("a", "f")])), heard)[1:] == told


def test_blocks_that_only_anthropic_knows_come_back_as_a_result_as_they_came():
    found = [
        {"type": "text", "text": "Found:"},
        {"type": "tool_reference", "tool_name": "refund"},
    ]
    block = {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": found,
        "is_error": False,
    }
    (heard,) = DIALECT.decode_request(
        {"messages": [{"role": "user", "content": [block]}]}
    )[0]
    assert sent(AssistantMessage(Turn(calls=[ToolCall("a", "f")])), heard)[1][
        "content"
    ] == [block]


def test_no_calls_have_no_results():
    assert DIALECT.encode_results([], []) == []


SIGNED = [
    {"type": "thinking", "thinking": "Hm …", "signature": "c2ln=="},
    {"type": "redacted_thinking", "data": "ZGF0YQ=="},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "天气"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
        {"type": "web_search_result", "title": "T", "url": "https://x", "encrypted_content": "eA==", "page_age": None},
    ]},
    {"type": "thinking", "thinking": "", "signature": "aGlkZGVu"},
    {"type": "text", "text": "It is warm.", "citations": [{"type": "web_search_result_location", "cited_text": "w"}]},
    {"type": "something_new", "payload": {"a": [1, None]}},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1, "a": 2}, "caller": {"type": "direct"}},
]  # fmt: skip


def test_what_claude_said_goes_back_byte_for_byte():
    for turn in (
        DIALECT.decode(message(*SIGNED, stop="tool_use")),
        read(DIALECT.stream(), streamed(*SIGNED))[1],
    ):
        told = said(turn)
        assert json.dumps(told, sort_keys=True) == json.dumps(SIGNED, sort_keys=True)
        assert list(told[-1]["input"]) == ["b", "a"]
        assert [block["type"] for block in turn.server_side] == [
            "server_tool_use",
            "web_search_tool_result",
        ]


@pytest.mark.parametrize(
    ("calls", "kinds"), [([], ["text"]), ([CALL], ["text", "tool_use"])]
)
def test_what_another_model_said_goes_as_text_and_calls(calls, kinds):
    foreign = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": []},
            {"type": "text", "text": "Hi"},
        ],
    }
    told = said(Turn("Hi", "secret thoughts", calls, raw=foreign))
    assert [block["type"] for block in told] == kinds


def test_calls_that_were_changed_since_go_back_changed():
    turn = DIALECT.decode(message(*SIGNED, stop="tool_use"))
    told = said(replace(turn, calls=[ToolCall("toolu_1", "f", '{"a": 3}')]))
    assert (told[0], told[-1]["input"]) == (SIGNED[0], {"a": 3})
    told = said(
        replace(turn, calls=[ToolCall("toolu_1", "f"), ToolCall("toolu_1_2", "f")])
    )
    assert [block["type"] for block in told] == ["text", "tool_use", "tool_use"]


def test_thinking_that_was_cut_has_no_signature_and_stays_out():
    cut = message(
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "text", "text": "x"},
        stop="max_tokens",
    )
    told = said(DIALECT.decode(cut))
    assert [block["type"] for block in told] == ["text"]


def test_ids_of_other_providers_are_spelled_so_that_call_and_result_still_meet():
    told = sent(
        AssistantMessage(Turn(calls=[ToolCall("functions.get:0", "f")])),
        result("functions.get:0"),
    )
    (calling,), (answering,) = (each["content"] for each in told)
    assert calling["id"] == answering["tool_use_id"] == "functions_get_0"


DEEP = '{"a": ' + "[" * 99 + "]" * 99 + "}"


@pytest.mark.parametrize(("arguments", "input"), [
    ('{"a": 1}', {"a": 1}), ("", {}), (" ", {}),
    ('{"a": 1', {"INVALID_JSON": '{"a": 1'}), ("[1]", {"INVALID_JSON": "[1]"}),
    ('{"a": NaN}', {"INVALID_JSON": '{"a": NaN}'}), (DEEP, {"INVALID_JSON": DEEP}),
])  # fmt: skip
def test_arguments_go_back_as_an_object_always(arguments, input):
    told = said(Turn(calls=[ToolCall("c", "f", arguments)]))
    assert told[0]["input"] == input


# -- what is shown -----------------------------------------------------------------------------------------------------

PDF = b64encode(b"%PDF").decode()


@pytest.mark.parametrize(("part", "block"), [
    (PNG, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}),
    (Media("image/jpeg", url="https://x/a.jpg"), {"type": "image", "source": {"type": "url", "url": "https://x/a.jpg"}}),
    (Media("image/*", url=f"data:image/png;base64,{PNG_BASE64}"),
     {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}),
    (Media("application/pdf", b"%PDF", name="a"),
     {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}, "title": "a"}),
    (Media("application/pdf", url="https://x/a.pdf"),
     {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}),
    (Media("text/csv", "城市,°C".encode()),
     {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "城市,°C"}}),
    ({"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}},
     {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}),
    ({"type": "image_url", "image_url": f"data:image/png;base64,{PNG_BASE64}"},
     {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}),
    ({"type": "file", "file": {"filename": "a", "file_data": f"data:application/pdf;base64,{PDF}"}},
     {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}, "title": "a"}),
    ({"type": "file", "file": {"file_id": "file_1"}},
     {"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
    ({"type": "text", "text": "x"}, {"type": "text", "text": "x"}),
    ({"type": "search_result", "source": "s", "title": "t", "content": []},
     {"type": "search_result", "source": "s", "title": "t", "content": []}),
])  # fmt: skip
def test_what_a_person_shows_is_shown(part, block):
    assert sent(UserMessage("", [part])) == [{"role": "user", "content": [block]}]


@pytest.mark.parametrize(("part", "words"), [
    (Media("audio/wav", b"RIFF"), "cannot be shown audio/wav"),
    ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}}, "cannot be shown audio/mp3"),
    (Media("application/zip", b"PK", name="a.zip"), r"application/zip \(a.zip\)"),
    ({"type": "image_url", "image_url": {}}, "`?image_url"),
    ({"type": "file", "file": {"file_data": 7}}, "'file' does not hold"),
])  # fmt: skip
def test_what_cannot_be_shown_is_told_to_the_person(part, words):
    with pytest.raises(ConfigError, match=words):
        sent(UserMessage("", [part]))


def test_what_a_tool_shows_stands_in_its_result_and_what_cannot_be_shown_is_named():
    shown = ToolResult(
        "a", text="two things", media=[PNG, Media("audio/wav", b"RIFF", name="a.wav")]
    )
    ((block,),) = (
        message["content"]
        for message in DIALECT.encode_results([ToolCall("a", "f")], [shown])
    )
    assert block["content"] == [
        {"type": "text", "text": "two things"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64},
        },
        {"type": "text", "text": "not shown: [audio/wav a.wav, 4 bytes]"},
    ]
    (heard,) = DIALECT.decode_request(
        {"messages": [{"role": "user", "content": [block]}]}
    )[0]
    assert (heard.result.media, heard.result.text) == (
        (PNG,),
        "two thingsnot shown: [audio/wav a.wav, 4 bytes]",
    )


def test_what_a_client_shows_is_heard_as_the_chat_form_spells_it():
    blocks = [
        sent(UserMessage("", [part]))[0]["content"][0]
        for part in (PNG, Media("application/pdf", b"%PDF", name="a"))
    ]
    (heard,) = DIALECT.decode_request(
        {"messages": [{"role": "user", "content": [*blocks, {"type": "x"}]}]}
    )[0]
    assert heard.parts == (
        {"type": "image_url", "image_url": {"url": PNG.link}},
        {
            "type": "file",
            "file": {
                "filename": "a",
                "file_data": f"data:application/pdf;base64,{PDF}",
            },
        },
        {"type": "x"},
    )
    assert sent(heard)[0]["content"] == [*blocks, {"type": "x"}]


# -- whole answers -----------------------------------------------------------------------------------------------------


def message(*blocks: object, stop: str | None = "end_turn", **rest) -> dict:
    return {
        "type": "message", "role": "assistant", "content": list(blocks), "stop_reason": stop, "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1}, **rest,
    }  # fmt: skip


def text(said: str) -> dict:
    return {"type": "text", "text": said}


def use(input: object, id: str = "c", name: str = "f") -> dict:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


@pytest.mark.parametrize(("word", "finish"), [
    ("end_turn", "stop"), ("stop_sequence", "stop"), ("tool_use", "calls"), ("max_tokens", "length"),
    ("model_context_window_exceeded", "length"), ("refusal", "refused"),
    # unfinished: what the provider ran itself is to go on
    ("pause_turn", "length"),
    (None, "error"), ("", "error"), ("yet_to_come", "error"), (7, "error"), (["end_turn"], "error"),
])  # fmt: skip
def test_only_a_stated_end_is_an_end(word, finish):
    assert DIALECT.decode(message(text("x"), stop=word)).finish == finish


@pytest.mark.parametrize(("input", "arguments"), [
    ({"a": "天"}, '{"a": "天"}'), ({}, "{}"), (None, ""), ('{"a": 1}', '{"a": 1}'), ('{"a"', '{"a"'), ([1], "[1]"),
])  # fmt: skip
def test_arguments_are_told_as_text(input, arguments):
    assert (
        DIALECT.decode(message(use(input), stop="tool_use")).calls[0].arguments
        == arguments
    )


def test_calls_without_an_id_get_one_and_go_back_with_it_beside_the_rest():
    turn = DIALECT.decode(
        message(SIGNED[0], use({}, ""), use({}, "call_0"), stop="tool_use")
    )
    assert [call.id for call in turn.calls] == ["call_0_2", "call_0"]
    told = said(turn)
    assert (told[0], [block["id"] for block in told[1:]]) == (
        SIGNED[0],
        ["call_0_2", "call_0"],
    )


@pytest.mark.parametrize(("given", "sent"), [
    ("c1", "c1"), ({"id": "c1", "expires_at": "2026-11-22T12:00:00Z"}, "c1"),
    ({"id": "c1", "skills": []}, {"id": "c1", "skills": []}), (None, None),
])  # fmt: skip
def test_a_container_of_an_answer_is_named_by_its_id(given, sent):
    options = Options(extra={"container": given})
    assert DIALECT.encode_request("Hi", options=options)["container"] == sent


def held(id: str | None, expires_at: str = "2026-11-22T12:00:00Z") -> AssistantMessage:
    """An answer that tells of a container, or of none."""
    told = {"container": {"id": id, "expires_at": expires_at} if id else None}
    return AssistantMessage(DIALECT.decode(message(text("x")) | told))


@pytest.mark.parametrize(("answers", "id"), [
    ([held("a")], "a"), ([held("a"), held("b")], "b"), ([held("a"), held(None)], "a"), ([held(None)], None),
    ([held("a", "2026-11-22T11:59:59Z")], None), ([held("a", "2026-11-22T12:59:59+02:00")], None),
    ([held("a", "2026-11-22T12:00:01.123456+00:00")], "a"),
    # the newer one is over, so the older one is too
    ([held("b"), held("a", "2026-11-22T11:00:00")], None),
    ([held("a", "one day")], "a"),                             # not known to be over
    # another provider's
    ([AssistantMessage(Turn("x", raw={"container": {"id": "a"}}))], None),
])  # fmt: skip
def test_the_newest_container_goes_back_unless_it_has_expired(answers, id):
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() - 0.5
    dialect = Anthropic(clock=lambda: noon)
    assert (
        dialect.encode_request([UserMessage("?"), *answers, UserMessage("And?")]).get(
            "container"
        )
        == id
    )
    named = Options(extra={"container": "mine"})
    assert (
        dialect.encode_request([UserMessage("?"), *answers], None, named)["container"]
        == "mine"
    )


@pytest.mark.parametrize("place", ["message_start", "message_delta"])
def test_a_stream_tells_of_its_container_at_its_beginning_or_near_its_end(place):
    told = {"container": {"id": "a", "expires_at": "2027-01-01T00:00:00Z"}}
    begun = {
        "type": "message_start",
        "message": message() | (told if place == "message_start" else {}),
    }
    ended = {"stop_reason": "end_turn"} | (
        told if place == "message_delta" else {"container": None}
    )
    turn = read(
        DIALECT.stream(),
        sse(begun, {"type": "message_delta", "delta": ended}, {"type": "message_stop"}),
    )[1]
    assert turn.raw["container"] == told["container"]


@pytest.mark.parametrize(("usage", "expected"), [
    ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
    # All that the model read is its input: 3 anew, 40 from the cache, 10 written to it.
    ({"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 10, "output_tokens": 2,
      "output_tokens_details": {"thinking_tokens": 1}}, Usage(53, 2, 40, 1, 10)),
    ({"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": True}, Usage()),
    (None, Usage()), ("much", Usage()),
])  # fmt: skip
def test_usage_is_read_where_it_is_told(usage, expected):
    assert DIALECT.decode(message(text("x"), usage=usage)).usage == expected


def test_the_reason_of_a_refusal_is_told():
    details = {
        "type": "refusal",
        "category": "cyber",
        "explanation": "Refused due to policy.",
    }
    turn = DIALECT.decode(message(stop="refusal", stop_details=details))
    assert (turn.finish, turn.refusal) == ("refused", "Refused due to policy.")
    assert DIALECT.decode(DIALECT.encode_turn(turn, Envelope("m", "x", 1))) == turn


@pytest.mark.parametrize("body", [
    {}, message(None), message("x"), message({}), message({"type": 7}), message({"type": "text", "text": 7}),
    message({"type": "thinking", "thinking": ["x"]}), message(use({}, ["c"])), message(use({}, "c", 7)),
    {"content": 3}, {"content": {"type": "text"}}, {"choices": []},
])  # fmt: skip
def test_garbage_is_never_a_type_error(body):
    with pytest.raises(ModelError, match="cannot be read") as caught:
        DIALECT.decode(body)
    assert caught.value.code == "unreadable"


def test_names_are_told_back_when_the_tools_are_known():
    body = message(
        use({}, "a", "user_info_get"), use({}, "b", "invented"), stop="tool_use"
    )
    tools = [Described("user_info.get", "", SCHEMA)]
    assert [each.name for each in DIALECT.decode(body, tools).calls] == [
        "user_info.get",
        "invented",
    ]
    assert [each.name for each in DIALECT.decode(body).calls] == [
        "user_info_get",
        "invented",
    ]


def test_a_bare_message_counts_as_finished():
    assert DIALECT.decode_message({"role": "assistant", "content": "Hi"}) == Turn("Hi")
    assert DIALECT.decode_message({"content": [use({})]}).finish == "calls"
    assert (
        DIALECT.decode_message(message(text("Hi"), stop="max_tokens")).finish
        == "length"
    )


@pytest.mark.parametrize(("foreign", "words"), [
    ({"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}, "has `tool_calls`"),
    ({"choices": [{}]}, "has `choices`"), ({"output": [{}]}, "has `output`"),
    ({"candidates": [{}]}, "has `candidates`"),
    ({"role": "assistant", "content": [{"toolUse": {"name": "f"}}]}, "type toolUse"),
    ({"role": "model", "parts": []}, "role is 'model'"), ({"role": "user", "content": "Hi"}, "role is 'user'"),
    ({}, "content is missing"), ([], "of type list"),
])  # fmt: skip
def test_a_message_of_another_dialect_is_refused_and_not_read_as_one_without_calls(
    foreign, words
):
    with pytest.raises(
        ConfigError,
        match=f"no message of Anthropic's .*{words}.*dialects are openai-chat",
    ):
        DIALECT.decode_message(foreign)


@pytest.mark.parametrize(("body", "code", "retryable"), [
    ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded_error", True),
    ({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}, "invalid_request_error", False),
    ({"error": {"message": "m", "code": 429}}, "429", True),
])  # fmt: skip
def test_an_error_body_is_classified(body, code, retryable):
    for read_it in (DIALECT.decode, DIALECT.decode_message):
        with pytest.raises(ModelError) as caught:
            read_it(body)
        assert (caught.value.code, caught.value.retryable) == (code, retryable)


def test_what_a_provider_sends_is_kept_as_far_as_a_request_can_carry_it():
    deep = json.loads("[" * 400 + "]" * 400)
    odd = {
        "type": "text",
        "text": "a\ud800",
        "citations": deep,
        "score": float("nan"),
        "kept": 1,
    }
    turn = DIALECT.decode(json.dumps(message(odd)))
    assert said(turn) == [{"type": "text", "text": "a?", "kept": 1}]


# -- streams -----------------------------------------------------------------------------------------------------------


def sse(*events: object) -> list[str]:
    return [
        each
        if isinstance(each, str)
        else f"event: {each['type']}\ndata: {json.dumps(each)}\n\n"
        for each in events
    ]


def start(block: dict, index: int = 0) -> dict:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(kind: str, index: int = 0, **fields) -> dict:
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": kind, **fields},
    }


def stop(index: int = 0) -> dict:
    return {"type": "content_block_stop", "index": index}


BEGIN = {"type": "message_start", "message": message(stop=None)}
PING = {"type": "ping"}


def end(word: str | None = "end_turn", **rest) -> list[dict]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": word}, **rest},
        {"type": "message_stop"},
    ]


def streamed(*blocks: dict) -> list[str]:
    """Return the blocks as the API streams them: text and input in pieces, the rest at once."""
    events = [BEGIN, PING]
    for index, block in enumerate(blocks):
        match block["type"]:
            case "text":
                told = [
                    delta("text_delta", index, text=piece) for piece in block["text"]
                ]
                told += [
                    delta("citations_delta", index, citation=each)
                    for each in block.get("citations", ())
                ]
                begun = {"type": "text", "text": ""}
            case "thinking":
                told = [
                    delta("thinking_delta", index, thinking=piece)
                    for piece in block["thinking"]
                ]
                told.append(
                    delta("signature_delta", index, signature=block["signature"])
                )
                begun = {"type": "thinking", "thinking": "", "signature": ""}
            case "tool_use" | "server_tool_use":
                pieces = ["", *json.dumps(block["input"])]
                told = [
                    delta("input_json_delta", index, partial_json=piece)
                    for piece in pieces
                ]
                begun = {**block, "input": {}}
            case _:
                told, begun = [], block
        events += [start(begun, index), *told, stop(index)]
    return sse(*events, *end("tool_use"))


@pytest.mark.parametrize(("events", "arguments"), [
    ([start(use({})), delta("input_json_delta", partial_json=""), stop()], "{}"),
    # a tool without parameters
    ([start(use({})), stop()], "{}"),
    # whole, in the first event
    ([start(use({"a": 1})), stop()], '{"a": 1}'),
    # and no end of the block
    ([start(use({"a": 1}))], '{"a": 1}'),
    ([start(use({})), delta("input_json_delta", partial_json='{"b"'), delta("input_json_delta", partial_json=": 2}"),
      stop()], '{"b": 2}'),
    ([start(use({})), start(text(""), 1), delta("input_json_delta", partial_json="{}"), stop(1), stop()], "{}"),
])  # fmt: skip
def test_arguments_arrive_in_pieces_or_whole(events, arguments):
    deltas, turn = read(DIALECT.stream(), sse(BEGIN, *events, *end("tool_use")))
    assert (list(turn.calls), turn.finish) == ([ToolCall("c", "f", arguments)], "calls")
    assert (
        "".join(each.text for each in deltas if isinstance(each, ArgumentsDelta))
        == arguments
    )


def test_a_message_may_begin_with_its_calls_and_its_end():
    whole = {
        "type": "message_start",
        "message": message(use({"a": 1}), stop="tool_use"),
    }
    deltas, turn = read(DIALECT.stream(), sse(whole, whole, {"type": "message_stop"}))
    assert (turn.calls, turn.finish) == ((ToolCall("c", "f", '{"a": 1}'),), "calls")
    assert deltas == [ArgumentsDelta(0, "f", '{"a": 1}')]


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]])
def test_events_that_come_twice_never_make_another_call(order):
    events = [start(use({})), stop()]
    _, turn = read(
        DIALECT.stream(), sse(BEGIN, *(events[n] for n in order), *end("tool_use"))
    )
    assert turn.calls == (ToolCall("c", "f"),)


def test_an_index_that_is_used_again_begins_another_block():
    body = sse(
        BEGIN,
        start(use({"a": 1}, "x")),
        start(use({}, "y")),
        delta("input_json_delta", partial_json="{}"),
        *end(),
    )
    assert [
        (each.id, each.arguments) for each in read(DIALECT.stream(), body)[1].calls
    ] == [
        ("x", '{"a": 1}'),
        ("y", "{}"),
    ]


@pytest.mark.parametrize(("ending", "finish"), [
    ([], "error"),                                       # the connection broke
    # so it did after the end was told, but not sealed
    (end("tool_use")[:1], "error"),
    ([{"type": "message_stop"}], "error"),               # sealed, but not told
    (end("max_tokens"), "length"), (end("tool_use"), "calls"), (end(None), "error"),
])  # fmt: skip
def test_an_open_call_never_runs_whatever_the_stream_says_at_its_end(ending, finish):
    opened = [start(use({})), delta("input_json_delta", partial_json='{"path": "a')]
    _, turn = read(DIALECT.stream(), sse(BEGIN, *opened, *ending))
    assert turn.finish == finish
    assert isinstance(
        jsontext.parse(turn.calls[0].arguments, finish=turn.finish), Failure
    )


ERROR = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "Overloaded"},
}


@pytest.mark.parametrize("pieces", [
    sse(ERROR), [f"data: {json.dumps(ERROR)}\n\n"], [json.dumps(ERROR)],
    ['event: error\ndata: {"message": "m", "type": "overloaded_error"}\n\n'],
])  # fmt: skip
def test_an_error_at_the_head_of_a_stream_is_raised(pieces):
    for cut in (pieces, [*"".join(pieces)]):
        deltas, error = read(DIALECT.stream(), cut)
        assert deltas == []
        assert isinstance(error, ModelError) and (error.code, error.retryable) == (
            "overloaded_error",
            True,
        )


def test_an_error_in_mid_stream_is_raised_after_what_was_said_before_it():
    hello = [delta("text_delta", text=piece) for piece in ("Hel", "lo")]
    whole = "".join(
        sse(BEGIN, start(text("")), *hello, ERROR, delta("text_delta", text="!"))
    ).encode()
    for pieces in ([whole], in_pieces(whole, range(len(whole)))):
        deltas, error = read(DIALECT.stream(), pieces)
        assert "".join(each.text for each in deltas) == "Hello"
        assert isinstance(error, ModelError) and error.retryable


def test_usage_is_a_total_that_is_told_anew_and_stands_until_then():
    first = {"type": "message_start", "message": message(usage={"input_tokens": 9, "cache_read_input_tokens": 4,
                                                                  "output_tokens": 1}, stop=None)}  # fmt: skip
    _, turn = read(
        DIALECT.stream(),
        sse(first, *end(usage={"output_tokens": 7, "input_tokens": None})),
    )
    assert turn.usage == Usage(13, 7, 4)


def test_heartbeats_events_yet_to_come_and_what_follows_the_end_are_no_part_of_the_answer():
    other = {"type": "content_block_delta_v2", "index": 0, "delta": {"text": "?"}}
    unknown = delta("applause_delta", text=7)
    body = sse(": hello\n\n", PING, BEGIN, PING, other, start(text("")), unknown, delta("text_delta", text="x"), stop(),
               *end(), BEGIN, start(text("y")), *end("max_tokens"))  # fmt: skip
    assert read(DIALECT.stream(), body)[1] == Turn("x", usage=Usage(1, 1))


@pytest.mark.parametrize("broken", [
    "data: {\n\n", "data: <html>\n\n", "data: 7\n\n", delta("text_delta", 9, text="x"), delta("text_delta", text=7),
    {"type": "content_block_start", "index": [], "content_block": text("")}, start({"text": "x"}, 1), start("x", 1),
    {"type": "content_block_delta", "index": 0, "delta": 7}, {"type": "message_start", "message": 7},
])  # fmt: skip
def test_an_unreadable_event_is_an_error(broken):
    _, error = read(DIALECT.stream(), sse(BEGIN, start(text("")), broken, *end()))
    assert isinstance(error, ModelError) and error.code == "unreadable"


def test_a_block_may_begin_with_its_first_words():
    deltas, turn = read(
        DIALECT.stream(),
        sse(BEGIN, start(text("He")), delta("text_delta", text="llo"), stop(), *end()),
    )
    assert (deltas, turn.text) == ([TextDelta("He"), TextDelta("llo")], "Hello")


def test_thinking_is_told_as_it_comes_and_what_the_provider_runs_is_no_call():
    deltas, turn = read(DIALECT.stream(), streamed(*SIGNED))
    assert (
        "".join(each.text for each in deltas if isinstance(each, ReasoningDelta))
        == turn.reasoning
        == "Hm …"
    )
    assert (
        "".join(each.text for each in deltas if isinstance(each, TextDelta))
        == turn.text
        == "It is warm."
    )
    assert {
        (each.index, each.name) for each in deltas if isinstance(each, ArgumentsDelta)
    } == {(0, "f")}


def test_a_server_that_answers_whole_although_a_stream_was_asked_is_read():
    assert read(DIALECT.stream(), [json.dumps(message(text("Hi")), indent=1)])[
        1
    ] == Turn("Hi", usage=Usage(1, 1))


# -- the provider's side -----------------------------------------------------------------------------------------------


@shared
@given(turn=turns())
def test_the_official_sdk_accepts_what_our_server_says(turn):
    body = DIALECT.encode_turn(turn, Envelope("m", "msg_1", 1), TOOLS)
    SdkMessage.model_validate(body)
    for told in DIALECT.encode_stream(turn, Envelope("m", "msg_1", 1), TOOLS):
        head, data = told.rstrip("\n").split("\n")
        kind = SDK_EVENT.validate_json(data.removeprefix("data: ")).type
        assert head == f"event: {kind}"


def client_of(server: ScriptedServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key="none", base_url=server.base_url.removesuffix("/v1"), max_retries=0
    )


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_official_sdk_as_client_reads_our_server_as_we_do(is_streamed):
    tools = [{"name": "get_weather", "description": "W.", "input_schema": SCHEMA}]
    calling = Turn(
        "I look.",
        "Hm …",
        [call("get_weather", city="北京")],
        "calls",
        Usage(100, 20, 40, 5),
    )
    heard = []
    with ScriptedServer(
        [calling, lambda told: heard.extend(told) or "It failed."], wire="anthropic"
    ) as server:
        client, asked = client_of(server), [{"role": "user", "content": "How warm?"}]

        def ask():
            how = {"model": "m", "max_tokens": 50, "messages": asked, "tools": tools}
            if not is_streamed:
                return client.messages.create(**how)
            with client.messages.stream(**how) as stream:
                return stream.get_final_message()

        first = ask()
        assert DIALECT.decode(first.model_dump(mode="json")) == replace(
            calling, calls=tuple(calling.calls)
        )
        failed = {
            "type": "tool_result",
            "tool_use_id": first.content[-1].id,
            "content": "boom",
            "is_error": True,
        }
        asked += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [failed]},
        ]
        assert ask().content[0].text == "It failed."
    assert [type(each) for each in heard] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
    ]
    assert list(heard[1].turn.calls) == calling.calls
    assert (heard[2].result.failure.message, heard[2].result.text) == ("boom", "boom")


def test_the_official_sdk_reads_our_errors():
    with (
        ScriptedServer(["x"], wire="anthropic") as server,
        pytest.raises(anthropic.BadRequestError) as caught,
    ):
        client_of(server).messages.create(
            model="m", max_tokens=5, messages=[{"role": "robot", "content": "x"}]
        )
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert "'robot'" in caught.value.body["error"]["message"]


def test_a_broken_turn_is_served_as_a_stream_that_breaks_off():
    broken = Turn(calls=(ToolCall("c", "f", '{"a": '),), finish="error")
    events = list(DIALECT.encode_stream(broken, Envelope("m", "x", 1)))
    assert "message_stop" not in events[-1]
    assert read(DIALECT.stream(), events)[1] == broken


def test_a_turn_of_claude_is_served_with_all_its_blocks():
    turn = DIALECT.decode(message(*SIGNED, stop="tool_use"))
    for told in (
        DIALECT.decode(DIALECT.encode_turn(turn, Envelope("m", "x", 1))),
        read(
            DIALECT.stream(), list(DIALECT.encode_stream(turn, Envelope("m", "x", 1)))
        )[1],
    ):
        assert (told, told.raw) == (turn, turn.raw)


@pytest.mark.parametrize("body", [
    {"messages": 7}, {"messages": [7]}, {"messages": [{"role": "robot"}]}, {"messages": [], "tools": [{"name": "f"}]},
    {"messages": [], "tools": [7]}, {"messages": [], "tool_choice": "auto"},
    {"messages": [{"role": []}]},
    {"messages": [{"role": "user", "content": 7}]},
])  # fmt: skip
def test_a_request_that_cannot_be_read_is_refused(body):
    with pytest.raises((ConfigError, ModelError)):
        DIALECT.decode_request(body)


# -- a conversation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_streamed", [False, True])
def test_ten_turns_with_tools_run_through_the_runtime(is_streamed):
    @hr.tool(effect="read")
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        if city == "Atlantis":
            raise hr.ToolError("no such city")
        return f"{city}: 21 °C"

    cities = [
        "北京",
        "Paris",
        "Oslo",
        "Atlantis",
        "Rome",
        "Lima",
        "Bern",
        "Kyiv",
        "Cairo",
    ]
    turns = [Turn("", "Hm.", [call("get_weather", city=city), call("get_weather", city=f"{city} 2")], "calls")
             for city in cities]  # fmt: skip
    with ScriptedServer([*turns, "All warm."], wire="anthropic") as server:

        async def main():
            observers = [lambda event: None] if is_streamed else []
            async with hr.Runtime([get_weather], observers=observers) as runtime:
                return await asyncio.wait_for(
                    runtime.run("How warm?", model=server.model), BOUND_S
                )

        run = asyncio.run(main())
    assert (run.status, run.text) == ("done", "All warm.")
    assert len(server.requests) == 10
    assert all(path.endswith("/v1/messages") for path in server.paths)
    last = server.requests[-1]["messages"]
    assert [each["role"] for each in last] == ["user", *["assistant", "user"] * 9]
    results = [block for each in last[2::2] for block in each["content"]]
    assert [place for place, block in enumerate(results) if block["is_error"]] == [6]
