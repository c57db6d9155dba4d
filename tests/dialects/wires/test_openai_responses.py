"""OpenAI Responses: what the form demands beyond the contract of all wires."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.responses import Response, ResponseStreamEvent, response_create_params
from pydantic import BaseModel, TypeAdapter

import handrail as hr
from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects import Dialect, Envelope, ServerDialect, WireDialect, dialect
from handrail.dialects.wires.openai_responses import DIALECT
from handrail.dialects.wires.responses_items import OutputAssembler, TextPosition
from handrail.errors import ConfigError, Failure, ModelError
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
from handrail.parsing import jsontext
from handrail.ports import Described
from handrail.testing import ScriptedServer, call
from handrail.testing.contracts.dialects import (
    ODD,
    RICH,
    TOOLS,
    ServerContract,
    calls_told,
    check_growth,
    joined,
    places,
    read,
    shared,
    turns,
    with_other,
)

SDK_REQUEST = TypeAdapter(response_create_params.ResponseCreateParams)
SDK_EVENT = TypeAdapter(ResponseStreamEvent)

KNOWN = [TOOLS[0], TOOLS[1], TOOLS[4]]
"""Without the tool whose own name is the wire name of `user_info.get`."""

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
STRICT = {**SCHEMA, "additionalProperties": False}


class TestOpenAIResponses(ServerContract):
    dialect = DIALECT
    last = b"event: response.completed"
    stops_beside_calls = False


def test_it_is_found_by_name():
    assert dialect("openai-responses") is DIALECT
    assert all(
        isinstance(DIALECT, side) for side in (Dialect, WireDialect, ServerDialect)
    )


# -- requests ----------------------------------------------------------------------------------------------------------

CONVERSATION = [
    SystemMessage("Be brief."),
    UserMessage("Weather in Paris?"),
    AssistantMessage(
        Turn(
            calls=[ToolCall("call_1", "user_info.get", '{"city": "Paris"}')],
            finish="calls",
        )
    ),
    ToolMessage(ToolResult("call_1", "user_info.get", value="sunny", text="sunny")),
    AssistantMessage(Turn("Sunny.")),
    SystemMessage("The user is in a hurry."),
    UserMessage(
        "",
        [
            {"type": "text", "text": "And here?"},
            {"type": "image_url", "image_url": {"url": "https://x/y"}},
        ],
    ),
]


def test_a_request_is_spelled_as_openai_spells_it():
    options = Options(
        "gpt-5",
        tool_choice="user_info.get",
        parallel=False,
        max_tokens=50,
        temperature=0.2,
        stream=True,
    )
    body = DIALECT.encode_request(
        CONVERSATION,
        TOOLS[1:2],
        replace(options, extra={"reasoning": {"effort": "low"}}),
    )
    assert body == {
        "model": "gpt-5",
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": "Weather in Paris?"},
            {"type": "function_call", "call_id": "call_1", "name": "user_info_get", "arguments": '{"city": "Paris"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
            {"type": "message", "role": "assistant", "content": "Sunny."},
            {"type": "message", "role": "system", "content": "The user is in a hurry."},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "And here?"},
                {"type": "input_image", "image_url": "https://x/y", "detail": "auto"},
            ]},
        ],
        "tools": [{
            "type": "function", "name": "user_info_get", "description": "Does user_info.get.",
            "parameters": TOOLS[1].parameters, "strict": False,
        }],
        "tool_choice": {"type": "function", "name": "user_info_get"},
        "parallel_tool_calls": False,
        "max_output_tokens": 50,
        "temperature": 0.2,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
    }  # fmt: skip


@pytest.mark.parametrize("options", [
    Options("m"),
    Options("m", tool_choice="required", strict=True, parallel=True),
    Options("m", tool_choice="none", max_tokens=5, output=Output(SCHEMA)),
    Options("m", tool_choice="refund", stream=True, extra={"store": True, "previous_response_id": "resp_1"}),
    Options("m", provider_tools=[{"type": "web_search"}], extra={"include": ["web_search_call.action.sources"]}),
])  # fmt: skip
def test_the_official_sdk_takes_our_requests_and_sends_them_as_they_are(options):
    strictly = [replace(tool, strict_parameters=STRICT) for tool in TOOLS]
    body = DIALECT.encode_request(CONVERSATION, strictly, options)
    validated = SDK_REQUEST.validate_python(body)
    # Lists are checked when they are walked.
    assert (len([*validated["input"]]), len([*validated["tools"]])) == (
        len(body["input"]),
        len(body["tools"]),
    )
    assert sent_by_the_sdk(body) == body


def sent_by_the_sdk(body: dict) -> dict:
    """Return what the official client puts on the wire when it is asked the same."""
    sent = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(
            200, json=DIALECT.encode_turn(Turn("Hi"), Envelope("m", "x", 1))
        )

    http = httpx2.Client(transport=httpx2.MockTransport(serve))
    client = openai.OpenAI(
        api_key="none", base_url="http://server.test/v1", http_client=http
    )
    client.responses.create(**body)
    return sent[0]


def test_without_tools_nothing_is_said_of_them():
    assert DIALECT.encode_request("Hello", None, Options(parallel=True)) == {
        "input": [{"type": "message", "role": "user", "content": "Hello"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize(
    ("tools", "choice"), [([], "required"), ([], "get_weather"), (TOOLS, "get_whether")]
)
def test_a_demand_that_no_tool_can_meet_is_refused_before_it_is_sent(tools, choice):
    with pytest.raises(ConfigError, match=choice):
        DIALECT.encode_request("Hello", tools, Options(tool_choice=choice))


def test_strict_is_denied_for_every_tool_that_would_lose_something_by_it():
    tools = [Described("a", "A.", SCHEMA, STRICT), Described("b", "B.", SCHEMA, None)]
    assert [
        (tool["strict"], tool["parameters"])
        for tool in DIALECT.definitions(tools, strict=True)
    ] == [
        (True, STRICT),
        (False, SCHEMA),
    ]
    assert {tool["strict"] for tool in DIALECT.definitions(tools)} == {False}


def test_what_the_provider_runs_is_passed_through_beside_our_tools():
    search = {"type": "web_search", "search_context_size": "low"}
    body = DIALECT.encode_request("?", TOOLS[:1], Options(provider_tools=[search]))
    assert (body["tools"][0]["name"], body["tools"][1]) == ("get_weather", search)
    body = DIALECT.encode_request(
        "?", None, Options(provider_tools=[search], tool_choice="required")
    )
    assert (body["tools"], body["tool_choice"]) == ([search], "required")


def test_a_tool_of_ours_may_be_described_by_the_engineer():
    custom = {"type": "custom", "name": "get_weather", "format": {"type": "text"}}
    assert DIALECT.encode_request("?", TOOLS[:1], Options(provider_tools=[custom]))[
        "tools"
    ] == [custom]


class Weather(BaseModel):
    """What the answer must hold."""

    city: str
    celsius: float


def test_the_form_of_an_answer_is_told_as_the_official_sdk_tells_it():
    sent = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(
            200, json=DIALECT.encode_turn(Turn("{}"), Envelope("m", "x", 1))
        )

    http = httpx2.Client(transport=httpx2.MockTransport(serve))
    client = openai.OpenAI(
        api_key="none", base_url="http://server.test/v1", http_client=http
    )
    # the answer is none, but the request went out
    with pytest.raises(ValueError, match="validation error"):
        client.responses.parse(model="m", input="?", text_format=Weather)
    form = Output(Weather.model_json_schema(), "Weather")
    body = DIALECT.encode_request(
        "?", None, Options(output=form, extra={"text": {"verbosity": "low"}})
    )
    assert body["text"].pop("verbosity") == "low"
    assert without_titles(body["text"]) == without_titles(sent[0]["text"])


def without_titles(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: without_titles(each)
            for key, each in value.items()
            if key not in ("title", "description")
        }
    return value


def test_a_form_that_strict_mode_cannot_say_is_asked_for_plainly():
    anything = {"type": "object", "additionalProperties": True}
    form = DIALECT.encode_request("?", None, Options(output=Output(anything, "any")))[
        "text"
    ]["format"]
    assert (form["strict"], form["schema"]) == (False, anything)


@pytest.mark.parametrize(("part", "spelled"), [
    ({"type": "image_url", "image_url": {"url": "https://x/y", "detail": "high"}},
     {"type": "input_image", "image_url": "https://x/y", "detail": "high"}),
    (Media("image/png", b"abc"), {"type": "input_image", "image_url": "data:image/png;base64,YWJj", "detail": "auto"}),
    (Media("application/pdf", b"abc", name="a.pdf"),
     {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"}),
    (Media("application/pdf", b"abc"),
     {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,YWJj"}),
    (Media("application/pdf", url="https://x/a.pdf"), {"type": "input_file", "file_url": "https://x/a.pdf"}),
    ({"type": "file", "file": {"file_id": "file-1"}}, {"type": "input_file", "file_id": "file-1"}),
    (Media("audio/mpeg", b"abc"), {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}}),
    ({"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}},
     {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}),
    # the provider's own
    ({"type": "input_image", "file_id": "file-2"}, {"type": "input_image", "file_id": "file-2"}),
])  # fmt: skip
def test_what_a_person_shows_is_spelled_as_input(part, spelled):
    body = DIALECT.encode_request([UserMessage("", [part])])
    assert body["input"][0]["content"] == [spelled]


def test_what_a_tool_shows_stands_in_its_output_and_a_sound_is_only_named():
    media = [Media("image/png", b"abc"), Media("audio/wav", b"abc", name="hello.wav")]
    result = ToolResult("c", value="A chart.", text="A chart.", media=media)
    assert DIALECT.encode_results([ToolCall("c", "draw")], [result]) == [{
        "type": "function_call_output",
        "call_id": "c",
        "output": [
            {"type": "input_text", "text": "A chart."},
            {"type": "input_image", "image_url": "data:image/png;base64,YWJj", "detail": "auto"},
            {"type": "input_text", "text": "not shown: [audio/wav hello.wav, 3 bytes]"},
        ],
    }]  # fmt: skip


# -- going back --------------------------------------------------------------------------------------------------------

THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "encrypted_content": "gAAA",
    "new": {"field": 1},
}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
CALL = {
    "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "user_info_get", "arguments": "{}",
    "status": "completed", "caller": {"type": "program", "caller_id": "p"},
}  # fmt: skip


def said(text: str, **rest: object) -> dict:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **rest,
    }


def body_of(*items: dict, status: str = "completed", **rest: object) -> dict:
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "error": None,
        "output": [*items],
        **rest,
    }


def back(*items: dict, tools: object = KNOWN, **extra: object) -> list[dict]:
    """Return the items of an answer as the next request carries them."""
    turn = DIALECT.decode(body_of(*items), tools)
    results = [
        ToolMessage(ToolResult(call.id, call.name, text="done")) for call in turn.calls
    ]
    body = DIALECT.encode_request(
        [AssistantMessage(turn), *results], tools, Options(extra=extra)
    )
    return body["input"][: len(body["input"]) - len(results)]


def test_an_answer_goes_back_as_it_came_without_ids_that_name_nothing_that_is_kept():
    message = said("Let me see.", phase="commentary")
    assert back(THOUGHT, SEARCH, message, CALL) == [
        THOUGHT,
        SEARCH,
        {
            "type": "message",
            "role": "assistant",
            "content": "Let me see.",
            "phase": "commentary",
        },
        {key: value for key, value in CALL.items() if key != "id"},
    ]


def test_with_a_store_an_answer_goes_back_with_all_its_ids():
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        SEARCH,
        said("Yes."),
        CALL,
    ]
    assert back(*items, store=True) == items


def test_reasoning_that_only_a_store_could_read_stays_behind():
    plain = {
        "type": "reasoning",
        "id": "r",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }
    bare = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}
    assert [item["type"] for item in back(bare, plain, said("Yes."))] == [
        "reasoning",
        "message",
    ]
    assert back(bare, plain, said("Yes."))[0] == plain


@pytest.mark.parametrize(("arguments", "history"), [
    ('{"a": 1}', '{"a": 1}'), ("", "{}"),
    ('{"a": ', '{"INVALID_JSON": "{\\"a\\": "}'), ("[1]", '{"INVALID_JSON": "[1]"}'),
])  # fmt: skip
def test_history_is_always_valid_json(arguments, history):
    assert back({**CALL, "arguments": arguments})[0]["arguments"] == history


def test_calls_that_were_told_apart_later_all_go_back():
    turn = DIALECT.decode(
        body_of(THOUGHT, {**CALL, "arguments": '{"a":1}{"a":2}'}), KNOWN
    )
    apart = replace(
        turn,
        calls=[
            ToolCall("call_1", "refund", '{"a":1}'),
            ToolCall("call_2", "refund", '{"a":2}'),
        ],
    )
    results = [
        ToolMessage(ToolResult(call.id, call.name, text="done")) for call in apart.calls
    ]
    items = DIALECT.encode_request([AssistantMessage(apart), *results], KNOWN)["input"][
        :3
    ]
    assert [
        (item["type"], item.get("call_id"), item.get("arguments")) for item in items
    ] == [
        ("reasoning", None, None),
        ("function_call", "call_1", '{"a":1}'),
        ("function_call", "call_2", '{"a":2}'),
    ]


def test_the_turn_of_another_wire_goes_back_as_text_and_calls():
    turn = Turn(
        "Yes.",
        "Hm.",
        [ToolCall("c", "refund", "{}")],
        raw={"role": "assistant", "reasoning_content": "Hm."},
    )
    messages = [
        AssistantMessage(turn),
        ToolMessage(ToolResult("c", "refund", text="done")),
    ]
    assert DIALECT.encode_request(messages, KNOWN)["input"][:2] == [
        {"type": "message", "role": "assistant", "content": "Yes."},
        {"type": "function_call", "call_id": "c", "name": "refund", "arguments": "{}"},
    ]


FREE = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "call_9",
    "name": "write_sql",
    "input": 'SELECT "a"\n',
}


def test_a_call_in_free_text_has_one_argument_and_is_answered_in_its_own_kind_of_item():
    turn = DIALECT.decode(body_of(FREE))
    assert turn.calls == (
        ToolCall("call_9", "write_sql", json.dumps({"input": FREE["input"]})),
    )
    messages = [
        AssistantMessage(turn),
        ToolMessage(ToolResult("call_9", "write_sql", text="1")),
    ]
    assert DIALECT.encode_request(messages)["input"] == [
        {key: value for key, value in FREE.items() if key != "id"},
        {"type": "custom_tool_call_output", "call_id": "call_9", "output": "1"},
    ]


def test_a_result_whose_call_the_provider_keeps_is_sent_alone():
    result = ToolMessage(ToolResult("call_1", "refund", text="done"))
    output = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    kept = Options(extra={"store": True, "previous_response_id": "resp_1"})
    assert DIALECT.encode_request([result], TOOLS, kept)["input"] == [output]
    assert DIALECT.encode_request([result, UserMessage("?")], TOOLS)["input"] == [
        # nobody knows the call, and the server would refuse
        {"type": "message", "role": "user", "content": "?"}
    ]


def test_results_of_calls_with_one_id_go_back_in_order():
    calls = [ToolCall("c", "refund"), ToolCall("c", "get_weather")]
    results = [
        ToolResult("c", "refund", text="one"),
        ToolResult("c", "get_weather", text="two"),
    ]
    assert [item["output"] for item in DIALECT.encode_results(calls, results)] == [
        "one",
        "two",
    ]


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("told", "finish"), [
    ({"status": "completed"}, "stop"),
    ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
    ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "refused"),
    ({"status": "incomplete", "incomplete_details": None}, "error"),
    # as it is not incomplete
    ({"status": "completed", "incomplete_details": {"reason": "content_filter"}}, "stop"),
    ({"status": "in_progress"}, "error"), ({"status": "queued"}, "error"), ({"status": "cancelled"}, "error"),
    ({"status": None}, "error"), ({"status": []}, "error"),
])  # fmt: skip
def test_only_a_stated_end_is_an_end(told, finish):
    assert DIALECT.decode({**body_of(said("Hi")), **told}).finish == finish


def test_an_answer_with_calls_wants_them():
    assert DIALECT.decode(body_of(said("Hi"), CALL)).finish == "calls"
    cut = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    turn = DIALECT.decode({**body_of(CALL), **cut})
    assert isinstance(
        jsontext.parse(turn.calls[0].arguments, finish=turn.finish), Failure
    )


def test_a_refusal_is_told_apart_from_the_text():
    content = [{"type": "refusal", "refusal": "I can't help with that."}]
    turn = DIALECT.decode(body_of({**said(""), "content": content}))
    assert (turn.text, turn.refusal, turn.finish) == (
        "",
        "I can't help with that.",
        "refused",
    )


def test_paragraphs_of_reasoning_stand_apart_and_plain_reasoning_follows_its_summary():
    summary = [
        {"type": "summary_text", "text": "**Plan**"},
        {"type": "summary_text", "text": "**Check**"},
    ]
    content = [
        {"type": "reasoning_text", "text": "First I "},
        {"type": "reasoning_text", "text": "look."},
    ]
    turn = DIALECT.decode(
        body_of(
            {**THOUGHT, "summary": summary, "content": content},
            {**THOUGHT, "id": "rs_2"},
        )
    )
    assert turn.reasoning == "**Plan**\n\n**Check**\n\nFirst I look."


def test_what_the_provider_ran_itself_is_kept_in_order():
    run = {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "code": "1+1",
        "outputs": None,
        "status": "completed",
    }
    turn = DIALECT.decode(body_of(SEARCH, said("2"), run))
    assert (turn.text, turn.calls, turn.finish, turn.server_side) == (
        "2",
        (),
        "stop",
        (SEARCH, run),
    )


def test_calls_are_read_in_every_form():
    calls = [
        {**CALL, "arguments": {"city": "北京"}},  # an object
        {**CALL, "arguments": None, "call_id": "call_2"},
        {
            "type": "function_call",
            "id": "fc_3",
            "name": "refund",
            "arguments": "{}",
        },  # the item's id, for want of another
        {"type": "function_call", "name": "refund", "arguments": "{}"},
    ]
    assert DIALECT.decode(body_of(*calls), KNOWN).calls == (
        ToolCall("call_1", "user_info.get", '{"city": "北京"}', program="p"),
        ToolCall("call_2", "user_info.get", "", program="p"),
        ToolCall("fc_3", "refund", "{}"),
        ToolCall("call_3", "refund", "{}"),
    )


def test_items_with_one_id_are_several_items():
    assert (
        len(DIALECT.decode(body_of(CALL, {**CALL, "arguments": '{"a": 1}'})).calls) == 2
    )


def test_usage_is_read_where_it_is_told():
    usage = {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 3},
             "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 13}  # fmt: skip
    assert DIALECT.decode(body_of(usage=usage)).usage == Usage(9, 4, 3, 2)
    assert (
        DIALECT.decode(body_of(usage={"input_tokens": None})).usage
        == DIALECT.decode(body_of()).usage
        == Usage()
    )


@pytest.mark.parametrize(("body", "code", "retryable"), [
    ({"error": {"message": "no", "type": "invalid_request_error", "code": None}}, "invalid_request_error", False),
    (body_of(status="failed") | {"error": {"code": "server_error", "message": "oops"}}, "server_error", True),
    (body_of(status="failed") | {"error": {"code": "rate_limit_exceeded", "message": "slow"}},
     "rate_limit_exceeded", True),
    (body_of(status="failed"), "", False),
    ({"detail": "Not Found"}, "", False),
])  # fmt: skip
def test_an_error_body_is_classified(body, code, retryable):
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(body)
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


def test_a_bare_message_counts_as_finished():
    assert DIALECT.decode_message({"output": [said("Hi")]}).finish == "stop"
    assert DIALECT.decode_message(CALL, KNOWN).calls == (
        ToolCall("call_1", "user_info.get", "{}", program="p"),
    )
    assert DIALECT.decode_message(CALL).finish == "calls"
    assert DIALECT.decode_message(body_of(CALL, status="incomplete")).finish == "error"


@pytest.mark.parametrize("message", [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]},
    "text", None,
])  # fmt: skip
def test_a_message_of_another_dialect_is_refused_and_not_read_as_one_without_calls(
    message,
):
    with pytest.raises(ConfigError, match="this is no OpenAI response"):
        DIALECT.decode_message(message)


# -- streams -----------------------------------------------------------------------------------------------------------


def sse(*events: dict) -> list[str]:
    return [f"data: {json.dumps(event)}\n\n" for event in events]


def added(item: dict, index: int | None = 0) -> dict:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: dict, index: int | None = 0) -> dict:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def text_delta(text: str, **place: object) -> dict:
    return {"type": "response.output_text.delta", "delta": text, **place}


def arguments_delta(text: str, **place: object) -> dict:
    return {"type": "response.function_call_arguments.delta", "delta": text, **place}


def completed(*items: dict) -> dict:
    return {"type": "response.completed", "response": body_of(*items)}


EMPTY = {**CALL, "arguments": "", "status": "in_progress"}
PARIS = {**CALL, "arguments": '{"city":"Paris"}'}
OSLO = {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": '{"city":"Oslo"}'}
START = {**OSLO, "arguments": ""}


@pytest.mark.parametrize("events", [
    pytest.param([added(EMPTY, 0), arguments_delta('{"city":', item_id="fc_1"), added(START, 1),
                  arguments_delta('{"city":"Oslo"}', item_id="fc_2"), arguments_delta('"Paris"}', item_id="fc_1"),
                  done(PARIS, 0), done(OSLO, 1)], id="interleaved, told apart by their ids"),
    pytest.param([added(EMPTY, 0), added(START, 1), arguments_delta('{"city":"Oslo"}', item_id="x1", output_index=1),
                  arguments_delta('{"city":"Paris"}', item_id="x2", output_index=0),
                  done({**PARIS, "id": "x3"}, 0), done({**OSLO, "id": "x4"}, 1)], id="another id in every event"),
    pytest.param([added(EMPTY, None), arguments_delta('{"city":"Paris"}'), done(PARIS, None), added(START, None),
                  arguments_delta('{"city":"Oslo"}'), done(OSLO, None)], id="neither ids nor indexes"),
    pytest.param([added(EMPTY, 0), arguments_delta('{"city":"Paris"}', item_id="fc_1", output_index=0), done(PARIS, 0),
                  added(START, 0), arguments_delta('{"city":"Oslo"}', item_id="fc_2", output_index=0), done(OSLO, 0)],
                 id="one index for all"),
    pytest.param([done(PARIS, 0), done(OSLO, 1)], id="whole items only"),
    pytest.param([added(PARIS, 0), added(OSLO, 1)], id="announcements only"),
    pytest.param([done(PARIS, 0), done(OSLO, 1), done(PARIS, 0)], id="one item told twice"),
    pytest.param([done({**PARIS, "id": "a", "call_id": ""}, 0), done({**OSLO, "id": "b"}, 1)],
                 id="a call without its id"),
    pytest.param([added(EMPTY, 0), arguments_delta('{"city": "Paris"}', item_id="fc_1"), done(PARIS, 0), done(OSLO, 1)],
                 id="spelled otherwise at the end"),
])  # fmt: skip
@pytest.mark.parametrize(
    "last",
    [completed(PARIS, OSLO), completed()],
    ids=["all told again", "an empty end"],
)
def test_every_call_is_told_once_whatever_a_server_leaves_out(events, last):
    deltas, turn = read(DIALECT.stream(KNOWN), sse(*events, last))
    assert [(call.name, json.loads(call.arguments)["city"]) for call in turn.calls] == [
        ("user_info.get", "Paris"),
        ("user_info.get", "Oslo"),
    ]
    assert turn.finish == "calls"
    assert calls_told(deltas) == {
        n: (call.name, call.arguments) for n, call in enumerate(turn.calls)
    }
    assert [item["call_id"] for item in turn.raw["output"] if item["call_id"]][
        -1
    ] == "call_2"


def free_delta(text: str) -> dict:
    return {
        "type": "response.custom_tool_call_input.delta",
        "item_id": "ctc_1",
        "output_index": 0,
        "delta": text,
    }


@pytest.mark.parametrize(("events", "finish", "arguments"), [
    ([free_delta('SELECT "'), free_delta('a"\n'), done(FREE), completed(FREE)], "calls", {"input": 'SELECT "a"\n'}),
    ([free_delta('SELECT "'), free_delta('a"\n'), completed()], "calls", {"input": 'SELECT "a"\n'}),
    ([done(FREE), completed()], "calls", {"input": 'SELECT "a"\n'}),
    ([done({**FREE, "input": ""}), completed()], "calls", {"input": ""}),
    ([free_delta('SELECT "')], "error", None),
])  # fmt: skip
def test_free_text_is_streamed_as_one_argument(events, finish, arguments):
    deltas, turn = read(DIALECT.stream(), sse(added({**FREE, "input": ""}), *events))
    parsed = jsontext.parse(turn.calls[0].arguments, finish=turn.finish)
    assert (turn.finish, None if isinstance(parsed, Failure) else parsed.value) == (
        finish,
        arguments,
    )
    assert calls_told(deltas) == {0: ("write_sql", turn.calls[0].arguments)}


def test_deltas_of_arguments_name_their_call():
    deltas, _ = read(
        DIALECT.stream(KNOWN),
        sse(added(EMPTY), arguments_delta("{}", item_id="fc_1"), completed()),
    )
    assert deltas == [ArgumentsDelta(0, "user_info.get", "{}")]


def test_an_answer_that_is_told_in_its_last_event_only_is_read_and_streamed():
    deltas, turn = read(
        DIALECT.stream(KNOWN), sse(completed(THOUGHT, said("Hi"), PARIS))
    )
    assert (turn.text, turn.finish) == ("Hi", "calls")
    assert deltas == [
        TextDelta("Hi"),
        ArgumentsDelta(0, "user_info.get", '{"city":"Paris"}'),
    ]


@shared
@given(turn=turns(), data=st.data())
def test_an_event_lost_doubled_or_out_of_place_never_makes_another_call(turn, data):
    events = list(DIALECT.encode_stream(turn, Envelope("m", "x", 1), piece_chars=4))
    one, other = (data.draw(st.integers(0, len(events) - 1)) for _ in range(2))
    match data.draw(st.sampled_from(["lost", "doubled", "swapped"])):
        case "lost":
            del events[one]
        case "doubled":
            events.insert(other, events[one])
        case "swapped":
            events[one], events[other] = events[other], events[one]
    outcome = read(DIALECT.stream(), events)[1]
    if isinstance(outcome, Turn) and outcome.finish == "calls":
        meant = {call.id: json.loads(call.arguments) for call in turn.calls}
        assert {call.id: json.loads(call.arguments) for call in outcome.calls} == meant
        assert len(outcome.calls) == len(turn.calls)


def test_arguments_that_come_after_the_last_event_are_not_added_to_those_that_it_told():
    late = sse(
        added({**PARIS, "arguments": ""}),
        completed(PARIS),
        done(PARIS),
        arguments_delta(PARIS["arguments"]),
    )
    turn = read(DIALECT.stream(KNOWN), late)[1]
    assert [call.arguments for call in turn.calls] == [PARIS["arguments"]]


def test_an_announcement_that_comes_late_announces_nothing_and_one_id_may_serve_two_calls():
    late = read(DIALECT.stream(KNOWN), sse(done(PARIS), added(EMPTY), completed()))[1]
    assert [call.id for call in late.calls] == ["call_1"]
    another = {**OSLO, "id": "fc_1"}
    twice = read(
        DIALECT.stream(KNOWN),
        sse(
            done(PARIS),
            added({**another, "arguments": ""}, 1),
            done(another, 1),
            completed(),
        ),
    )[1]
    assert [call.id for call in twice.calls] == ["call_1", "call_2"]


def test_text_after_a_whole_message_at_the_same_index_is_another_message():
    first = said("One.", id="m1")
    events = sse(
        done(first), text_delta("Two.", item_id="m2", output_index=0), completed()
    )
    turn = read(DIALECT.stream(), events)[1]
    assert turn.text == "One.Two."
    assert turn.raw["output"][0] == first
    assert len(turn.raw["output"]) == 2


def test_ids_that_are_made_up_anew_for_the_last_event_make_no_second_call():
    again = completed(
        {**PARIS, "id": "y1", "call_id": "z1"}, {**OSLO, "id": "y2", "call_id": "z2"}
    )
    turn = read(DIALECT.stream(), sse(done(PARIS, 0), done(OSLO, 1), again))[1]
    assert [call.id for call in turn.calls] == ["call_1", "call_2"]


def test_a_call_that_the_stream_passed_over_is_taken_from_the_last_event():
    turn = read(DIALECT.stream(), sse(done(OSLO, 1), completed(PARIS, OSLO)))[1]
    assert sorted(call.id for call in turn.calls) == ["call_1", "call_2"]


@pytest.mark.parametrize("events", [
    [arguments_delta('{"city":"Oslo"}', item_id="fc_1"), done(PARIS)],
    [done(PARIS), completed(OSLO | {"id": "fc_1", "call_id": "call_1"})],
    [done(PARIS), completed(OSLO)],
])  # fmt: skip
def test_a_call_that_is_told_in_two_ways_is_an_error(events):
    _, outcome = read(DIALECT.stream(), sse(added(EMPTY), *events))
    assert isinstance(outcome, ModelError)
    assert "sent twice" in str(outcome)


def test_a_part_number_that_counts_pieces_breaks_no_thought_apart():
    delta = {"type": "response.reasoning_text.delta", "item_id": "r", "output_index": 0}
    thought = {"type": "reasoning", "id": "r", "summary": []}
    events = [
        {**delta, "delta": piece, "content_index": n}
        for n, piece in enumerate(["Let", " me", " see."])
    ]
    whole = {
        "type": "response.reasoning_text.done",
        "item_id": "r",
        "content_index": 3,
        "text": "Let me see.",
    }
    content = [{"type": "reasoning_text", "text": "Let me see."}]
    deltas, turn = read(
        DIALECT.stream(),
        sse(
            added(thought),
            *events,
            whole,
            done({**thought, "content": content}),
            completed(),
        ),
    )
    assert (turn.reasoning, joined(deltas, ReasoningDelta)) == (
        "Let me see.",
        "Let me see.",
    )


def test_text_that_belongs_to_no_announced_item_is_text():
    thought = {
        "type": "reasoning",
        "id": "r",
        "summary": [{"type": "summary_text", "text": "Hm."}],
    }
    events = sse(
        done(thought),
        text_delta("Yes", item_id="m", output_index=0),
        text_delta(".", item_id="m"),
        completed(),
    )
    deltas, turn = read(DIALECT.stream(), events)
    assert (turn.text, turn.reasoning, turn.finish) == ("Yes.", "Hm.", "stop")
    assert [type(delta) for delta in deltas] == [ReasoningDelta, TextDelta, TextDelta]
    content = [{"type": "output_text", "text": "Yes."}]
    assert turn.raw["output"][1] == {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": content,
    }


def test_paragraphs_of_a_streamed_summary_stand_apart_as_in_a_whole_answer():
    delta = {
        "type": "response.reasoning_summary_text.delta",
        "item_id": "r",
        "output_index": 0,
    }
    summary = [
        {"type": "summary_text", "text": "A b"},
        {"type": "summary_text", "text": "C"},
    ]
    thought = {"type": "reasoning", "id": "r", "summary": summary}
    pieces = [(0, "A"), (0, " b"), (1, "C")]
    events = [{**delta, "summary_index": n, "delta": text} for n, text in pieces]
    deltas, turn = read(
        DIALECT.stream(), sse(*events, done(thought), completed(thought))
    )
    assert (
        turn.reasoning
        == joined(deltas, ReasoningDelta)
        == "A b\n\nC"
        == DIALECT.decode(body_of(thought)).reasoning
    )


def test_a_refusal_is_streamed_beside_the_text():
    events = sse(
        {"type": "response.refusal.delta", "item_id": "m", "delta": "No"}, completed()
    )
    deltas, turn = read(DIALECT.stream(), events)
    assert (deltas, turn.text, turn.refusal, turn.finish) == ([], "", "No", "refused")


def test_what_the_provider_ran_is_read_from_a_stream_too():
    begun = {**SEARCH, "status": "in_progress"}
    events = [
        added(begun),
        {"type": "response.web_search_call.searching", "item_id": "ws_1"},
        done(SEARCH),
    ]
    assert read(DIALECT.stream(), sse(*events, completed()))[1].server_side == (SEARCH,)
    # it broke off
    assert read(DIALECT.stream(), sse(*events[:2]))[1].server_side == (begun,)


def test_signatures_of_a_stream_go_back_as_those_of_a_whole_answer():
    events = sse(
        added({"type": "reasoning", "id": "rs_1", "summary": []}),
        done(THOUGHT),
        done(CALL, 1),
        completed(),
    )
    streamed = read(DIALECT.stream(KNOWN), events)[1]
    messages = [DIALECT.encode_request([AssistantMessage(turn)], KNOWN)["input"] for turn in (
        streamed, DIALECT.decode(body_of(THOUGHT, CALL), KNOWN),
    )]  # fmt: skip
    assert messages[0] == messages[1]
    assert messages[0][0] == THOUGHT


@pytest.mark.parametrize(("end", "finish"), [
    ({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}, "length"),
    ({"type": "response.incomplete"}, "error"),
    ({"type": "response.completed"}, "calls"),
    (None, "error"),
])  # fmt: skip
def test_an_open_call_never_runs_whatever_the_stream_says_at_its_end(end, finish):
    events = [
        added(EMPTY),
        arguments_delta('{"city": "Pa', item_id="fc_1"),
        *([end] if end else []),
    ]
    turn = read(DIALECT.stream(), sse(*events))[1]
    assert (turn.finish, turn.calls[0].arguments) == (finish, '{"city": "Pa')
    assert isinstance(
        jsontext.parse(turn.calls[0].arguments, finish=turn.finish), Failure
    )


@pytest.mark.parametrize("event", [
    {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None, "sequence_number": 1},
    {"type": "error", "error": {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "slow down"}},
    {"type": "response.failed", "response": body_of(status="failed")
     | {"error": {"code": "rate_limit_exceeded", "message": "slow down"}}},
    {"error": {"code": "rate_limit_exceeded", "message": "slow down"}},
])  # fmt: skip
def test_an_error_in_a_stream_is_raised_after_what_was_said_before_it(event):
    stream = DIALECT.stream()
    assert stream.feed("".join(sse(text_delta("Hi"), event, text_delta(" there")))) == [
        TextDelta("Hi")
    ]
    for attempt in (stream.close, lambda: stream.feed("")):
        with pytest.raises(ModelError, match="slow down") as caught:
            attempt()
        assert (caught.value.code, caught.value.retryable) == (
            "rate_limit_exceeded",
            True,
        )


def test_a_server_that_answers_whole_although_a_stream_was_asked_is_read():
    assert (
        read(DIALECT.stream(KNOWN), [json.dumps(body_of(said("Hi"), CALL))])[1].text
        == "Hi"
    )


@pytest.mark.parametrize(("flood", "size"), [
    (lambda size: [b"x" * size], 1_000_000),
    (lambda size: sse(*[text_delta("ab", item_id="m")] * size), 15_000),
    (lambda size: sse(
        text_delta("ab" * 40 * size, item_id="m"),
        *[{"type": "response.output_text.done", "item_id": "m", "text": "a"}] * size,
    ), 6_000),
    (lambda size: sse(
        *(added({**EMPTY, "id": f"f{n}", "call_id": f"c{n}"}, n) for n in range(size)), completed()
    ), 4_000),
    (lambda size: sse(completed(*[{**CALL, "id": "", "call_id": ""}] * size)), 6_000),
    (lambda size: sse(*[arguments_delta('"', item_id="f")] * size), 13_000),
], ids=["no event", "deltas", "a text told whole", "announcements", "an end full of calls", "quotes"])  # fmt: skip
def test_the_work_grows_with_the_length_and_no_faster(flood, size):
    def reading(length):
        told = b"".join(
            each if isinstance(each, bytes) else each.encode() for each in flood(length)
        )
        return lambda: read(
            DIALECT.stream(KNOWN),
            [told[at : at + 4096] for at in range(0, len(told), 4096)],
        )

    check_growth(reading, size)


def test_a_long_text_that_is_told_whole_again_and_again_is_joined_once():
    def saying(times):
        def said():
            answer, deltas = OutputAssembler(str), []
            item = answer.find_item("message", "m", 0)
            for _ in range(times):
                answer.say(item, TextPosition("text"), "ab", deltas)
            for _ in range(times):
                answer.whole(item, TextPosition("text"), "abab", deltas)

        return said

    check_growth(saying, 20_000)


# -- the provider's side -----------------------------------------------------------------------------------------------


@shared
@given(turn=turns())
def test_the_official_sdk_accepts_what_our_server_says(turn):
    body = DIALECT.encode_turn(turn, Envelope("m", "x", 1), TOOLS)
    told = Response.model_validate(body)
    assert told.output_text == turn.text
    for event in DIALECT.encode_stream(turn, Envelope("m", "x", 1), TOOLS):
        name, data = event.removeprefix("event: ").split("\ndata: ")
        assert SDK_EVENT.validate_json(data).type == name


def test_a_broken_turn_is_served_as_a_stream_that_breaks_off():
    broken = Turn(calls=(ToolCall("c", "f", '{"a": '),), finish="error")
    events = list(DIALECT.encode_stream(broken, Envelope("m", "x", 1)))
    assert "response.completed" not in events[-1]
    assert read(DIALECT.stream(), events)[1] == broken


def test_a_request_is_read_back_with_everything_that_it_asks():
    options = Options(
        "m", parallel=True, strict=True, output=Output(STRICT, "place"), provider_tools=({"type": "web_search"},),
        extra={"text": {"verbosity": "low"}, "store": True, "previous_response_id": "resp_1"},
    )  # fmt: skip
    tools = [Described("a", "A.", STRICT, STRICT)]
    assert DIALECT.decode_request(DIALECT.encode_request("?", tools, options)) == (
        [UserMessage("?")],
        tools,
        options,
    )


def test_what_is_shown_in_a_request_is_read_in_the_chat_form():
    media = [
        Media("image/png", b"abc"),
        Media("application/pdf", url="https://x/a.pdf"),
    ]
    told = [
        UserMessage("", media),
        AssistantMessage(Turn(calls=[ToolCall("c", "draw", "{}")], finish="calls")),
        ToolMessage(ToolResult("c", text="A chart.", media=media[:1])),
    ]
    person, _, tool = DIALECT.decode_request(DIALECT.encode_request(told))[0]
    assert person.parts == (
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,YWJj", "detail": "auto"},
        },
        {"type": "file", "file": {"file_data": "https://x/a.pdf"}},
    )
    assert (tool.result.text, [each.link for each in tool.result.media]) == (
        "A chart.",
        [media[0].link],
    )
    body = DIALECT.encode_request(told)
    assert (
        DIALECT.encode_request(DIALECT.decode_request(body)[0])["input"]
        == body["input"]
    )


TOOL_SEARCH = {
    "type": "tool_search_call",
    "id": "t",
    "call_id": "c",
    "execution": "client",
    "arguments": {"q": "x"},
}
APPROVAL = {
    "type": "mcp_approval_request",
    "id": "m",
    "server_label": "links",
    "name": "create",
    "arguments": "{}",
}
SHELL = {
    "type": "shell_call",
    "id": "s",
    "call_id": "c",
    "action": {"commands": ["ls"]},
}


@pytest.mark.parametrize(("output", "words"), [
    ([TOOL_SEARCH], "`tool_search_output` for c"),
    ([APPROVAL], "a yes or a no to 'create' on the MCP server 'links' (`mcp_approval_response` for m)"),
    ([SHELL], "the outcome of a command (`shell_call_output` for c)"),
    ([TOOL_SEARCH, APPROVAL], "; and for a yes or a no"),
    ([{**TOOL_SEARCH, "execution": "server"}], ""),
    # run in the provider's container
    ([SHELL, {"type": "shell_call_output", "call_id": "c", "output": []}], ""),
])  # fmt: skip
def test_a_turn_that_waits_for_what_is_no_call_says_for_what(output, words):
    body = {"status": "completed", "output": output}
    turn = DIALECT.decode(body)
    streamed = read(
        DIALECT.stream(),
        [f"data: {json.dumps({'type': 'response.completed', 'response': body})}\n\n"],
    )[1]
    assert turn == streamed
    assert turn.waits_for == streamed.waits_for
    assert (words in turn.waits_for, turn.finish) == (
        True,
        "calls" if words else "stop",
    )


def test_items_that_are_not_known_here_go_back_as_they_came_and_in_their_place():
    more = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "function", "name": "refund"}],
    }
    told = [
        {"role": "user", "content": "a"},
        more,
        {"role": "user", "content": "b"},
        {"type": "yet_unknown", "x": [1]},
    ]
    heard, _, _ = DIALECT.decode_request({"input": told})
    sent = DIALECT.encode_request(heard)["input"]
    assert [each.get("content") or each for each in sent] == ["a", more, "b", told[3]]


@pytest.mark.parametrize("body", [
    {"input": [{"type": "item_reference", "id": "msg_1"}]},
    {"input": "?", "tools": [{"type": "function"}]},
    {"input": 7}, {"input": [7]}, {"input": "?", "tools": 7}, {"input": [{"role": "user", "content": [7]}]},
    {"input": [{"role": "assistant", "content": [7]}]}, {"input": [{"type": 7, "role": "assistant"}]},
])  # fmt: skip
def test_a_request_for_what_is_not_known_here_is_refused(body):
    with pytest.raises(ConfigError):
        DIALECT.decode_request(body)


@shared
@given(data=st.data())
def test_an_odd_value_anywhere_in_a_request_is_read_or_refused(data):
    options = Options(
        "m",
        tool_choice="refund",
        output=Output(STRICT),
        provider_tools=[{"type": "web_search"}],
    )
    body = DIALECT.encode_request(CONVERSATION, TOOLS, options)
    odd = with_other(
        body,
        data.draw(st.sampled_from([place for place in places(body) if place])),
        data.draw(ODD),
    )
    with suppress(ConfigError):
        DIALECT.decode_request(odd)


# -- whole conversations -----------------------------------------------------------------------------------------------

CITIES = ["Paris", "Oslo", "北京", "Rome", "Lima", "Cairo", "Delhi", "Quito", "Seoul"]
SCRIPT = [
    *(
        hr.Turn(f"Looking at {city}.", "Hm.", [call("get_weather", city=city)], "calls")
        for city in CITIES
    ),
    "Done.",
]


@hr.tool(effect="read")
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"21 °C in {city}"


def asked_by_the_runtime(server: ScriptedServer, *, streamed: bool) -> hr.RunResult:
    async def main():
        budget = hr.Budget(time_s=60, calls=50)
        async with hr.Runtime(
            [get_weather], observers=[lambda event: None] if streamed else ()
        ) as runtime:
            run = await runtime.run(
                "How warm is it?", model=server.model, budget=budget
            )
            await runtime._engine.resolve_model(server.model).aclose()
            return run

    return asyncio.run(main())


def asked_by_the_sdk(server: ScriptedServer) -> str:
    """The loop of OpenAI's own documentation: everything that came goes back, with the results behind it."""
    tools = DIALECT.definitions(hr.Toolset([get_weather]))
    with openai.OpenAI(
        base_url=server.base_url, api_key="none", max_retries=0
    ) as client:
        items: list = [
            {"role": "user", "content": "How warm is it?", "type": "message"}
        ]
        while True:
            how = {
                "store": False,
                "include": ["reasoning.encrypted_content"],
                "tool_choice": "auto",
            }
            answer = client.responses.create(
                model="scripted", input=items, tools=tools, **how
            )
            items += answer.output
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return answer.output_text
            items += [
                {"type": "function_call_output", "call_id": each.call_id,
                 "output": get_weather(**json.loads(each.arguments))} for each in calls
            ]  # fmt: skip


def plain(request: dict) -> dict:
    """Return a request without ids that name nothing kept and reasoning that nobody could read, with text as text."""
    items = [item for item in request["input"] if item["type"] != "reasoning"]
    for item in items:
        if isinstance(item.get("content"), list):
            item["content"] = "".join(part["text"] for part in item["content"])
    needless = {"id", "status"}
    return {
        **request,
        "input": [
            {key: item[key] for key in item if key not in needless} for item in items
        ],
    }


@pytest.mark.parametrize("streamed", [False, True])
def test_ten_turns_with_tools_are_asked_as_the_official_sdk_asks_them(streamed):
    with (
        ScriptedServer(SCRIPT, wire="openai-responses") as ours,
        ScriptedServer(SCRIPT) as theirs,
    ):
        run = asked_by_the_runtime(ours, streamed=streamed)
        assert (run.status, run.text) == ("done", "Done.")
        assert asked_by_the_sdk(theirs) == "Done."
    assert {*ours.paths, *theirs.paths} == {"/v1/responses"}
    assert len(ours.requests) == len(SCRIPT)
    sent = [
        {key: value for key, value in request.items() if key != "stream"}
        for request in ours.requests
    ]
    assert [plain(request) for request in sent] == [
        plain(request) for request in theirs.requests
    ]


def test_the_official_sdk_hears_the_same_streamed_as_whole():
    with (
        ScriptedServer(SCRIPT[:1]) as server,
        openai.OpenAI(base_url=server.base_url, api_key="none") as client,
    ):
        how = {"model": "m", "input": "?", "tools": DIALECT.definitions(TOOLS)}
        whole = client.responses.create(**how)
        with client.responses.stream(**how) as stream:
            events = list(stream)
            final = stream.get_final_response()
        plainly = list(client.responses.create(**how, stream=True))
    assert final.output_text == whole.output_text
    assert final.output[-1].arguments == whole.output[-1].arguments
    assert (
        "".join(e.delta for e in plainly if e.type == "response.output_text.delta")
        == whole.output_text
    )
    assert events[-1].type == plainly[-1].type == "response.completed"
    assert DIALECT.decode(whole.model_dump(mode="json"), TOOLS).calls == tuple(
        SCRIPT[0].calls
    )


def test_the_official_sdk_as_client_reads_our_stream_as_we_do():
    events = "".join(DIALECT.encode_stream(RICH, Envelope("m", "x", 1), TOOLS))
    http = httpx2.Client(transport=httpx2.MockTransport(
        lambda _: httpx2.Response(200, content=events.encode(), headers={"content-type": "text/event-stream"})
    ))  # fmt: skip
    client = openai.OpenAI(
        api_key="none", base_url="http://server.test/v1", http_client=http
    )
    with client.responses.stream(model="m", input="?") as stream:
        final = stream.get_final_response()
    assert DIALECT.decode(final.model_dump(mode="json"), TOOLS) == RICH


def test_a_message_of_the_official_sdk_is_handled_and_answered_in_its_form():
    with (
        ScriptedServer(SCRIPT) as server,
        openai.OpenAI(base_url=server.base_url, api_key="none") as client,
    ):
        answer = client.responses.create(
            model="m", input="?", tools=DIALECT.definitions([get_weather])
        )
        with hr.SyncRuntime([get_weather]) as runtime:
            [output] = runtime.handle(answer, dialect="openai-responses")
    assert output == {
        "type": "function_call_output",
        "call_id": SCRIPT[0].calls[0].id,
        "output": "21 °C in Paris",
    }
