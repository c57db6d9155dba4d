"""OpenAI Chat Completions: what the contract does not know. The official SDK is the oracle of what goes out."""

from __future__ import annotations

import json
from typing import get_args

import httpx2
import openai
import pytest
from hypothesis import given
from msgspec.structs import replace
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    completion_create_params,
)
from pydantic import TypeAdapter

from handrail.calls import ToolCall, ToolResult
from handrail.dialects import Dialect, Envelope, ServerDialect, WireDialect, dialect
from handrail.dialects.wires.openai_chat import COMPATIBLE, DIALECT
from handrail.errors import ConfigError, Failure, ModelError
from handrail.messages import (
    ArgumentsDelta,
    AssistantMessage,
    Options,
    SystemMessage,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.parsing import jsontext
from handrail.ports import Described
from handrail.testing.contracts.dialects import (
    RICH,
    TOOLS,
    ServerContract,
    in_pieces,
    read,
    shared,
    turns,
)

SDK_REQUEST = TypeAdapter(completion_create_params.CompletionCreateParams)

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
STRICT = {**SCHEMA, "additionalProperties": False}


class TestOpenAIChat(ServerContract):
    dialect = DIALECT


class TestCompatibleServers(ServerContract):
    dialect = COMPATIBLE


def test_it_is_found_by_name():
    assert dialect("openai-chat") is DIALECT
    assert all(
        isinstance(DIALECT, side) for side in (Dialect, WireDialect, ServerDialect)
    )
    with pytest.raises(ConfigError, match=r"no dialect 'openai-chats'.*openai-chat"):
        dialect("openai-chats")


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
    UserMessage(
        "",
        [
            {"type": "text", "text": "And here?"},
            {"type": "image_url", "image_url": {"url": "data:,x"}},
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
        CONVERSATION, TOOLS[1:2], replace(options, extra={"seed": 7})
    )
    assert body == {
        "model": "gpt-5",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather in Paris?"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_1", "type": "function",
                 "function": {"name": "user_info_get", "arguments": '{"city": "Paris"}'}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": CONVERSATION[5].parts},
        ],
        "tools": [{"type": "function", "function": {
            "name": "user_info_get", "description": "Does user_info.get.", "parameters": TOOLS[1].parameters,
        }}],
        "tool_choice": {"type": "function", "function": {"name": "user_info_get"}},
        "parallel_tool_calls": False,
        "max_completion_tokens": 50,
        "temperature": 0.2,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 7,
    }  # fmt: skip


@pytest.mark.parametrize("options", [
    Options("m"),
    Options("m", tool_choice="required", strict=True, parallel=True),
    Options("m", tool_choice="none", max_tokens=5),
    Options("m", tool_choice="refund", stream=True, extra={"reasoning_effort": "low"}),
])  # fmt: skip
def test_the_official_sdk_accepts_our_requests(options):
    strictly = [replace(tool, strict_parameters=STRICT) for tool in TOOLS]
    body = DIALECT.encode_request(CONVERSATION, strictly, options)
    validated = SDK_REQUEST.validate_python(body)
    # Lists are checked when they are walked.
    assert (len([*validated["messages"]]), len([*validated["tools"]])) == (
        len(CONVERSATION),
        len(TOOLS),
    )
    forms = get_args(completion_create_params.CompletionCreateParams)
    assert set(body) <= set().union(
        *(form.__required_keys__ | form.__optional_keys__ for form in forms)
    )


def test_without_tools_nothing_is_said_of_them():
    assert DIALECT.encode_request("Hello", None, Options(parallel=True)) == {
        "messages": [{"role": "user", "content": "Hello"}]
    }


@pytest.mark.parametrize(
    ("tools", "choice"), [([], "required"), ([], "get_weather"), (TOOLS, "get_whether")]
)
def test_a_demand_that_no_tool_can_meet_is_refused_before_it_is_sent(tools, choice):
    with pytest.raises(ConfigError, match=choice):
        DIALECT.encode_request("Hello", tools, Options(tool_choice=choice))


def test_the_limit_of_tokens_has_the_name_that_the_server_knows():
    options = Options(max_tokens=5)
    assert DIALECT.encode_request("Hello", None, options)["max_completion_tokens"] == 5
    assert COMPATIBLE.encode_request("Hello", None, options)["max_tokens"] == 5


def test_strict_is_claimed_only_for_tools_that_lose_nothing_by_it():
    able, unable = Described("a", "A.", SCHEMA, STRICT), Described("b", "B.", SCHEMA)
    told = DIALECT.definitions([able, unable], strict=True)
    assert told[0]["function"] == {
        "name": "a",
        "description": "A.",
        "parameters": STRICT,
        "strict": True,
    }
    assert told[1]["function"] == {
        "name": "b",
        "description": "B.",
        "parameters": SCHEMA,
    }
    assert "strict" not in DIALECT.definitions([able])[0]["function"]


@pytest.mark.parametrize(("arguments", "history"), [
    ('{"a": 1}', '{"a": 1}'),                            # as it was, to the byte
    ('{"a": 1', '{"INVALID_JSON": "{\\"a\\": 1"}'),
    # servers that render templates want an object
    ("[1]", '{"INVALID_JSON": "[1]"}'),
    ('{"a": NaN}', '{"INVALID_JSON": "{\\"a\\": NaN}"}'),
    ("", "{}"),
    (" ", "{}"),
])  # fmt: skip
def test_history_is_always_valid_json(arguments, history):
    turn = Turn(calls=[ToolCall("c", "f", arguments)], finish="calls")
    sent = DIALECT.encode_request([AssistantMessage(turn)])["messages"][0]
    assert sent["tool_calls"][0]["function"]["arguments"] == history


def test_what_the_provider_needs_back_goes_back_and_nothing_else():
    message = {
        "role": "assistant", "content": None, "refusal": None, "annotations": [], "audio": None, "function_call": None,
        "reasoning_content": "Let me look.", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x=="}],
        "executed_tools": [{"a": 1}],
        "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"},
                        "extra_content": {"google": {"thought_signature": "s=="}}}],
    }  # fmt: skip
    turn = DIALECT.decode_message(message)
    assert DIALECT.encode_message(AssistantMessage(turn)) == {
        "role": "assistant", "content": None,
        "reasoning_content": "Let me look.", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x=="}],
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"},
                        "extra_content": {"google": {"thought_signature": "s=="}}}],
    }  # fmt: skip


def test_a_refusal_goes_back_as_one():
    message = {"role": "assistant", "content": None, "refusal": "I cannot."}
    turn = DIALECT.decode_message(message)
    assert turn.refusal == "I cannot."
    for told in (AssistantMessage(turn), message):
        assert DIALECT.encode_request([told])["messages"] == [
            {**message, "content": ""}
        ]


def test_results_of_calls_with_one_id_go_back_in_order():
    calls = [ToolCall("same", "f", "{}"), ToolCall("same", "g", "{}")]
    told = DIALECT.encode_results(
        calls, [ToolResult("same", "f", text="1"), ToolResult("same", "g", text="2")]
    )
    assert [message["content"] for message in told] == ["1", "2"]


# -- whole answers -----------------------------------------------------------------------------------------------------


def answer(message: dict, finish: str | None = "stop", **rest) -> dict:
    return {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", **message},
                "finish_reason": finish,
            }
        ],
        **rest,
    }


def call(name: str, arguments: object, id: str | None = "c") -> dict:
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


@pytest.mark.parametrize(("word", "finish"), [
    ("stop", "stop"), ("tool_calls", "calls"), ("function_call", "calls"), ("length", "length"),
    ("content_filter", "refused"), ("eos", "stop"), ("MAX_TOKENS", "length"),
    ("eos_token", "stop"), ("COMPLETE", "stop"), ("tool_call", "calls"),
    (None, "error"), ("", "error"), ("insufficient_system_resource", "error"), (7, "error"),
])  # fmt: skip
def test_only_a_stated_end_is_an_end(word, finish):
    assert DIALECT.decode(answer({"content": "x"}, word)).finish == finish


def test_stop_stays_stop_beside_calls():
    turn = DIALECT.decode(answer({"tool_calls": [call("f", "{}")]}, "stop"))
    assert (turn.finish, len(turn.calls)) == ("stop", 1)


@pytest.mark.parametrize(("message", "calls"), [
    ({"tool_calls": [call("f", '{"a": 1}')]}, [ToolCall("c", "f", '{"a": 1}')]),
    # Ollama's native form
    ({"tool_calls": [call("f", {"a": "天"})]}, [ToolCall("c", "f", '{"a": "天"}')]),
    ({"tool_calls": [call("f", None)]}, [ToolCall("c", "f", "")]),
    # verbatim
    ({"tool_calls": [call("f", "{bad")]}, [ToolCall("c", "f", "{bad")]),
    ({"tool_calls": [{"id": "c", "function": {"name": "f"}}]}, [ToolCall("c", "f", "")]),
    # Llama's
    ({"tool_calls": [{"id": "c", "function": {"name": "f", "parameters": {}}}]}, [ToolCall("c", "f")]),
    # LangChain's
    ({"tool_calls": [{"id": "c", "name": "f", "args": {"a": 1}}]}, [ToolCall("c", "f", '{"a": 1}')]),
    ({"tool_calls": [{"id": 7, "name": "f", "arguments": "{}"}]}, [ToolCall("7", "f", "{}")]),
    ({"tool_calls": [call("f", "{}", None), call("g", "{}", "")]}, [ToolCall("call_0", "f"), ToolCall("call_1", "g")]),
    # a made id is never a sent one
    ({"tool_calls": [call("f", "{}", "call_1"), call("g", "{}", None)]},
     [ToolCall("call_1", "f"), ToolCall("call_1_2", "g")]),
    # before November 2023
    ({"function_call": {"name": "f", "arguments": "{}"}}, [ToolCall("call_0", "f")]),
    # a gateway's empty fields
    ({"function_call": {"name": "", "arguments": ""}, "tool_calls": None}, []),
    ({"function_call": {"name": "f", "arguments": "{}"}, "tool_calls": [call("f", "{}")]}, [ToolCall("c", "f")]),
    ({"function_call": {"name": "g", "arguments": "{}"}, "tool_calls": [call("f", "{}")]},
     [ToolCall("c", "f"), ToolCall("call_1", "g")]),
    ({"tool_calls": [{"custom": {"input": ""}, **call("f", "{}")}]}, [ToolCall("c", "f")]),
])  # fmt: skip
def test_calls_are_read_in_every_form(message, calls):
    assert list(DIALECT.decode(answer(message)).calls) == calls
    assert list(DIALECT.decode_message({"role": "assistant", **message}).calls) == calls


def test_calls_in_a_choice_of_their_own_are_those_of_the_text_before_it():
    body = answer({"content": "Now."}, "tool_calls")
    body["choices"] += answer(
        {"content": None, "tool_calls": [call("f", "{}")]}, "tool_calls"
    )["choices"]
    turn = DIALECT.decode(body)
    assert (turn.text, list(turn.calls)) == ("Now.", [ToolCall("c", "f")])


@pytest.mark.parametrize("other", [
    {"finish_reason": "length"},
    {"finish_reason": "content_filter"},
    {"finish_reason": None},
    {"error": {"code": 502, "message": "m"}},
    {"message": {"tool_calls": [call("f", "{}")], "refusal": "I cannot."}},
])  # fmt: skip
def test_calls_in_a_choice_that_was_cut_refused_or_broken_off_are_no_calls_of_the_text_before_it(
    other,
):
    body = answer({"content": "Now."}, "tool_calls")
    body["choices"].append(
        answer({"tool_calls": [call("f", "{}")]}, "tool_calls")["choices"][0] | other
    )
    assert list(DIALECT.decode(body).calls) == []


@pytest.mark.parametrize(("message", "text", "reasoning"), [
    ({"content": "a", "reasoning_content": "r"}, "a", "r"),
    ({"content": "a", "reasoning": "r"}, "a", "r"),
    # once
    ({"content": "a", "reasoning": "r", "reasoning_content": "r"}, "a", "r"),
    ({"content": "a", "reasoning": None, "reasoning_details": [{"type": "reasoning.text", "text": "r"}]}, "a", "r"),
    ({"content": "a", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, "a", ""),
    ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}, {"type": "text", "text": "a"}]},
     "a", "r"),
    ({"content": None}, "", ""),
])  # fmt: skip
def test_reasoning_is_found_under_each_of_its_names(message, text, reasoning):
    turn = DIALECT.decode(answer(message))
    assert (turn.text, turn.reasoning) == (text, reasoning)


@pytest.mark.parametrize(("usage", "expected"), [
    ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2)),
    ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4},
      "completion_tokens_details": {"reasoning_tokens": 1}}, Usage(5, 0, 4, 1)),
    ({"prompt_tokens": 5, "prompt_cache_hit_tokens": 4}, Usage(5, 0, 4)),
    ({"prompt_tokens": 5, "cached_tokens": 4}, Usage(5, 0, 4)),
    ({"prompt_tokens": None, "prompt_tokens_details": None}, Usage()),
    (None, Usage()), ("much", Usage()),
    ({"prompt_tokens": 10**400, "completion_tokens": -3}, Usage(2**53, 0)),
    ({"prompt_tokens": True, "completion_tokens": 2.5}, Usage()),
])  # fmt: skip
def test_usage_is_read_where_it_is_told(usage, expected):
    assert DIALECT.decode(answer({"content": "x"}, usage=usage)).usage == expected


@pytest.mark.parametrize("body", [
    {"choices": []}, {"choices": [None]}, {"choices": [{}]}, {"choices": [{"message": []}]},
    answer({"content": 7}), answer({"content": {"a": 1}}), answer({"tool_calls": "f"}), answer({"tool_calls": [7]}),
    answer({"tool_calls": [{"function": 7}]}), answer({"tool_calls": [call(["f"], "{}")]}), answer({"refusal": 7}),
    answer({"reasoning": {"a": 1}}), answer({"function_call": "f"}), answer({"content": [{"type": "text", "text": 1}]}),
])  # fmt: skip
def test_garbage_is_never_a_type_error(body):
    with pytest.raises(ModelError, match="cannot be read") as caught:
        DIALECT.decode(body)
    assert caught.value.code == "unreadable"


def test_names_are_told_back_when_the_tools_are_known():
    body = answer({"tool_calls": [call("user_info_get", "{}"), call("invented", "{}")]})
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
    assert DIALECT.decode_message({"tool_calls": [call("f", "{}")]}).finish == "calls"
    assert (
        DIALECT.decode_message(answer({"content": "Hi"}, "length")).finish == "length"
    )


@pytest.mark.parametrize(("message", "words"), [
    ({"type": "message", "role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
     "content blocks of type tool_use"),
    ({"role": "assistant", "content": [{"toolUse": {"name": "f"}}]}, "type toolUse"),
    ({}, "neither a role nor calls"), ({"foo": 1}, "neither a role nor calls"),
    ({"role": "user", "content": "Hi"}, "role is 'user'"), ([], "of type list"),
    ({"role": "user", "tool_calls": [{"id": "c1"}]}, "its role is 'user'"),
])  # fmt: skip
def test_a_message_of_another_dialect_is_refused_and_not_read_as_one_without_calls(
    message, words
):
    with pytest.raises(
        ConfigError, match=f"no OpenAI chat message .*{words}.*dialects are openai-chat"
    ):
        DIALECT.decode_message(message)


def test_what_a_provider_sends_is_kept_as_far_as_a_request_can_carry_it():
    deep = json.loads("[" * 400 + "]" * 400)
    sent = call("f\ud800", "{}", "c\ud800") | {
        "extra_content": deep,
        "provider_specific_fields": {"s": "x"},
    }
    turn = DIALECT.decode(json.dumps(answer({"content": "a\ud800", "reasoning": "r", "reasoning_details": [
        {"type": "t", "score": float("nan")}], "tool_calls": [sent]})))  # fmt: skip
    back = DIALECT.encode_message(AssistantMessage(turn))
    assert (turn.text, turn.calls[0].name, turn.calls[0].id) == ("a?", "f?", "c?")
    assert (back["reasoning"], "reasoning_details" in back) == ("r", False)
    assert back["tool_calls"][0]["provider_specific_fields"] == {"s": "x"}
    assert "extra_content" not in back["tool_calls"][0]


def test_an_unreadable_answer_shows_how_it_begins():
    with pytest.raises(ModelError, match=r"they begin with '<html>\\n0{73}'"):
        DIALECT.decode("<html>\n" + "0" * 999)


@pytest.mark.parametrize(("result", "content"), [
    (ToolResult("a", value={"x": 1}), '{"x":1}'),
    (ToolResult("a", failure=Failure("GONE", "It is gone.")), '"error_code":"GONE"'),
    (ToolResult("a", value={"x": 1}, text="short"), "short"),
    (ToolResult("a"), ""),
])  # fmt: skip
def test_a_result_made_by_hand_says_what_it_holds(result, content):
    (message,) = DIALECT.encode_results([ToolCall("a", "f")], [result])
    assert content in message["content"]
    assert bool(content) == bool(message["content"])


@pytest.mark.parametrize(("body", "code", "retryable"), [
    ({"error": {"message": "m", "type": "invalid_request_error", "code": "unsupported_parameter"}},
     "unsupported_parameter", False),
    ({"error": {"message": "m", "code": 429}}, "429", True),
    ({"error": "model 'x' not found"}, "", False),
    ({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, "BadRequestError", False),
    ({"detail": [{"loc": ["body"], "msg": "m"}]}, "", False),
    ({"choices": [{"error": {"code": 502, "message": "m"}, "finish_reason": "error"}]}, "502", True),
    ([{"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}}], "UNAVAILABLE", True),
])  # fmt: skip
def test_an_error_body_is_classified(body, code, retryable):
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(json.dumps(body))
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


# -- streams -----------------------------------------------------------------------------------------------------------


def sse(*chunks: object) -> list[str]:
    return [
        f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n"
        for chunk in chunks
    ]


def chunk(delta: dict | None, finish: str | None = None, **rest) -> dict:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **rest}


def piece(
    index: int | None = 0,
    id: str | None = None,
    name: str | None = None,
    arguments: object = None,
) -> dict:
    """One piece of a call; what it does not say is left out."""
    function = {
        key: value
        for key, value in (("name", name), ("arguments", arguments))
        if value is not None
    }
    told = {
        key: value for key, value in (("index", index), ("id", id)) if value is not None
    }
    return {**told, "function": function}


def stream_of(*lists: list[dict]) -> list[str]:
    return sse(
        *(chunk({"tool_calls": pieces}) for pieces in lists),
        chunk({}, "tool_calls"),
        "[DONE]",
    )


F1, F2, G3 = ("f", '{"a": 1}'), ("f", '{"a": 2}'), ("g", '{"a": 3}')


@pytest.mark.parametrize(("lists", "expected"), [
    # OpenAI's own form
    ([[piece(0, "A", "f", "")], [piece(0, arguments='{"a"')], [piece(0, arguments=": 1}")], [piece(1, "B", "g", "")],
      [piece(1, arguments='{"a": 3}')]], [("A", *F1), ("B", *G3)]),
    # every call at index 0 without ids, whole
    ([[piece(0, None, *F1)], [piece(0, None, *F2)], [piece(0, None, *G3)]], [F1, F2, G3]),
    # the same, in pieces: the name comes with the first piece only, so a name after whole arguments is another call's
    ([[piece(0, None, "f", "")], [piece(0, arguments='{"a"')], [piece(0, arguments=": 1}")],
      [piece(0, None, "f", "")], [piece(0, arguments='{"a": 2}')], [piece(0, None, "g", "")],
      [piece(0, arguments='{"a": 3}')]], [F1, F2, G3]),
    # the same with ids
    ([[piece(0, "A", *F1)], [piece(0, "B", *F2)], [piece(0, "C", *G3)]], [("A", *F1), ("B", *F2), ("C", *G3)]),
    # no index at all, one by one and all at once
    ([[piece(None, None, *F1)], [piece(None, None, *F2)]], [F1, F2]),
    ([[piece(None, None, *F1), piece(None, None, *F2), piece(None, None, *G3)]], [F1, F2, G3]),
    ([[piece(None, "A", "f", "")], [piece(None, arguments='{"a": 1}')], [piece(None, "B", *F2)]],
     [("A", *F1), ("B", *F2)]),
    # one list, one index, no arguments: two calls nevertheless
    ([[piece(0, None, "f", ""), piece(0, None, "g", "")]], [("f", ""), ("g", "")]),
    # id and name in every piece
    ([[piece(0, "A", "f", '{"a"')], [piece(0, "A", "f", ": 1")], [piece(0, "A", "f", "}")]], [("A", *F1)]),
    # name in every piece, no id; and a closing brace inside a string is not the end
    ([[piece(0, None, "f", '{"a": "}')], [piece(0, None, "f", '\\')], [piece(0, None, "f", '"}"')],
      [piece(0, None, "f", "}")], [piece(0, None, "f", "")]], [("f", '{"a": "}\\"}"}')]),
    # the id comes later than the name
    ([[piece(0, None, "f", "")], [piece(0, "A", None, '{"a": 1}')]], [("A", *F1)]),
    ([[piece(0, "A")], [piece(0, None, "f")], [piece(0, None, None, '{"a": 1}')]], [("A", *F1)]),
    # the name in two pieces
    ([[piece(0, "A", "get_")], [piece(0, None, "weather", "")], [piece(0, None, None, "{}")]],
     [("A", "get_weather", "{}")]),
    # empty names and ids that mean nothing
    ([[piece(0, "A", "f", "")], [piece(0, "", "", '{"a": 1}')]], [("A", *F1)]),
    # another id in each piece of one call
    ([[piece(0, "A", "f", "")], [piece(0, "B", None, '{"a"')], [piece(0, "C", None, ": 1}")],
      [piece(0, "D", None, "")]],
     [("A", *F1)]),
    # interleaved, and an index used again
    ([[piece(0, "A", "f", '{"a":')], [piece(1, "B", "f", '{"a":')], [piece(0, arguments=" 1}")],
      [piece(1, arguments=" 2}")], [piece(0, "C", "g", '{"a":')], [piece(0, arguments=" 3}")]],
     [("A", *F1), ("B", *F2), ("C", *G3)]),
    # indexes as text
    ([[piece("0", "A", "f", '{"a":')], [piece("1", "B", "f", '{"a":')], [piece("0", arguments=" 1}")],
      [piece("1", arguments=" 2}")]], [("A", *F1), ("B", *F2)]),
    # one id for all calls
    ([[piece(0, "A", *F1)], [piece(1, "A", *F2)], [piece(2, "A", *G3)]], [("A", *F1), ("A", *F2), ("A", *G3)]),
    ([[piece(0, "A", "f", "")], [piece(0, arguments='{"a": 1}')], [piece(1, "A", "f", "")],
      [piece(1, arguments='{"a": 2}')]], [("A", *F1), ("call_1", *F2)]),
    # indexes that begin at 1, with a gap
    ([[piece(1, "A", *F1)], [piece(5, "B", *F2)]], [("A", *F1), ("B", *F2)]),
    # arguments as an object
    ([[piece(0, "A", "f", {"a": 1})]], [("A", *F1)]),
    # glued without any sign of a second call: one text, for `jsontext` to judge
    ([[piece(0, "A", "f", '{"a": 1}{"a": 2}')]], [("A", "f", '{"a": 1}{"a": 2}')]),
    ([[piece(0, "A", "f", '{"a": 1}')], [piece(0, arguments='{"a": 2}')]], [("A", "f", '{"a": 1}{"a": 2}')]),
    # a cut call is followed by another: the first stays open
    ([[piece(0, None, "f", '{"a": ')], [piece(0, None, *G3)]], [("f", '{"a": '), G3]),
    # pieces that say nothing
    ([[piece(0)], [piece(0, "A", *F1)], [piece(0)], [{}]], [("A", *F1)]),
])  # fmt: skip
def test_streamed_pieces_find_their_call(lists, expected):
    deltas, turn = read(DIALECT.stream(), stream_of(*lists))
    with_ids = [
        each if len(each) == 3 else (f"call_{n}", *each)
        for n, each in enumerate(expected)
    ]
    assert [(each.id, each.name, each.arguments) for each in turn.calls] == with_ids
    texts = [
        "".join(
            d.text for d in deltas if isinstance(d, ArgumentsDelta) and d.index == n
        )
        for n in range(9)
    ]
    assert texts[: len(expected)] == [each.arguments for each in turn.calls]
    assert not any(texts[len(expected) :])


def test_known_tools_tell_a_second_name_from_the_rest_of_the_first():
    pieces = stream_of(
        [piece(0, None, "get_weather", "")], [piece(0, None, "refund", "")]
    )
    assert [each.name for each in read(DIALECT.stream(TOOLS), pieces)[1].calls] == [
        "get_weather",
        "refund",
    ]


def test_legacy_function_calls_are_streamed_too():
    pieces = [
        {"name": "f", "arguments": ""},
        {"arguments": '{"a"'},
        {"arguments": ": 1}"},
    ]
    body = sse(
        *(chunk({"function_call": each}) for each in pieces), chunk({}, "function_call")
    )
    _, turn = read(DIALECT.stream(), body)
    assert (list(turn.calls), turn.finish) == (
        [ToolCall("call_0", "f", '{"a": 1}')],
        "calls",
    )


@pytest.mark.parametrize(("end", "finish"), [
    ([], "error"),                                   # the connection broke
    # a gateway writes this also when the far side broke
    (["[DONE]"], "error"),
    ([chunk({}, "length"), "[DONE]"], "length"),
    ([chunk({}, "stop"), "[DONE]"], "stop"),
    ([chunk({}, "stop"), {"choices": [], "usage": {}}], "stop"),
    ([chunk({}, "tool_calls"), chunk({}, None)], "calls"),
    ([chunk({}, "stop"), " [DONE] "], "stop"),
    # the second is the gateway's own
    ([chunk({}, "length"), chunk({}, "stop")], "length"),
])  # fmt: skip
def test_an_open_call_never_runs_whatever_the_stream_says_at_its_end(end, finish):
    _, turn = read(
        DIALECT.stream(),
        sse(chunk({"tool_calls": [piece(0, "A", "f", '{"path": "a')]}), *end),
    )
    assert turn.finish == finish
    assert isinstance(
        jsontext.parse(turn.calls[0].arguments, finish=turn.finish), Failure
    )


@pytest.mark.parametrize(
    "end", [[], [chunk({}, "length")], [chunk({}, "length"), chunk({}, "tool_calls")]]
)
def test_a_closed_call_does_not_run_either_when_the_answer_was_cut(end):
    _, turn = read(
        DIALECT.stream(), sse(chunk({"tool_calls": [piece(0, "A", *F1)]}), *end)
    )
    assert isinstance(
        jsontext.parse(turn.calls[0].arguments, finish=turn.finish), Failure
    )


ERROR = {"error": {"message": "m", "type": "server_error", "code": "server_error"}}


@pytest.mark.parametrize("pieces", [
    # a 200 whose first event is an error
    sse(ERROR),
    ["event: error\n", *sse(ERROR)],
    ["event: error\n", *sse({"message": "m", "type": "server_error"})],
    sse({**ERROR, "choices": []}),
    sse({"choices": [{"error": ERROR["error"], "delta": {}, "finish_reason": "error"}]}),
    # no stream at all
    [json.dumps(ERROR)],
    [json.dumps(ERROR, indent=2)],
])  # fmt: skip
def test_an_error_at_the_head_of_a_stream_is_raised(pieces):
    for cut in (pieces, ["".join(pieces)], [*"".join(pieces)]):
        deltas, error = read(DIALECT.stream(), cut)
        assert deltas == []
        assert isinstance(error, ModelError) and error.retryable


def test_an_error_in_mid_stream_is_raised_after_what_was_said_before_it():
    whole = "".join(
        sse(
            chunk({"content": "Hel"}),
            chunk({"content": "lo"}),
            ERROR,
            chunk({"content": "!"}),
        )
    ).encode()
    for pieces in ([whole], in_pieces(whole, range(len(whole)))):
        stream = DIALECT.stream()
        deltas, error = read(stream, pieces)
        assert "".join(delta.text for delta in deltas) == "Hello"
        assert isinstance(error, ModelError) and error.code == "server_error"
        with pytest.raises(ModelError):
            stream.close()
        with pytest.raises(ModelError):
            stream.feed("")


def test_a_server_that_answers_whole_although_a_stream_was_asked_is_read():
    whole = json.dumps(answer({"content": "Hi"}), indent=1)
    assert read(DIALECT.stream(), [whole])[1] == Turn("Hi")


@pytest.mark.parametrize(
    "data", ["{", "<html>", "7", '{"choices": [{"index": 0, "delta": 7}]}']
)
def test_an_unreadable_event_is_an_error(data):
    _, error = read(DIALECT.stream(), sse(data, chunk({}, "stop")))
    assert isinstance(error, ModelError) and error.code == "unreadable"


def test_heartbeats_other_choices_and_empty_deltas_are_no_part_of_the_answer():
    body = [
        ": OPENROUTER PROCESSING\n\n",
        *sse(
            "",
            chunk({"role": "assistant", "content": ""}),
            chunk(None),
            {"choices": None},
        ),
        *sse(
            {
                "choices": [
                    {
                        "index": 1,
                        "delta": {"content": "other"},
                        "finish_reason": "length",
                    }
                ]
            }
        ),
        *sse(chunk({"content": "x"}), chunk({}, "stop"), "[DONE]"),
    ]
    assert read(DIALECT.stream(), body)[1] == Turn("x")


def test_a_call_streamed_under_its_old_and_its_new_name_is_one():
    pieces = [("f", ""), (None, '{"a"'), (None, ": 1}")]
    told = [piece(0, "A" if name else None, name, text) for name, text in pieces]
    body = sse(
        *(
            chunk({"tool_calls": [each], "function_call": each["function"]})
            for each in told
        ),
        chunk({}, "stop"),
    )
    assert list(read(DIALECT.stream(), body)[1].calls) == [ToolCall("A", *F1)]


def test_a_whole_message_in_one_event_is_read():
    message = {
        "role": "assistant",
        "content": "Now.",
        "tool_calls": [piece(None, "A", *F1)],
    }
    _, turn = read(
        DIALECT.stream(),
        sse({"choices": [{"message": message, "finish_reason": "tool_calls"}]}),
    )
    assert (turn.text, list(turn.calls), turn.finish) == (
        "Now.",
        [ToolCall("A", *F1)],
        "calls",
    )


def test_a_whole_message_behind_its_deltas_says_nothing_twice():
    told = {"content": "Now.", "tool_calls": [piece(0, "A", *F1)]}
    last = {
        "choices": [
            {"message": {"role": "assistant", **told}, "finish_reason": "tool_calls"}
        ]
    }
    _, turn = read(DIALECT.stream(), sse(chunk(told), last))
    assert (turn.text, list(turn.calls), turn.finish) == (
        "Now.",
        [ToolCall("A", *F1)],
        "calls",
    )


def test_a_refusal_is_streamed_beside_the_text():
    deltas, turn = read(
        DIALECT.stream(),
        sse(chunk({"refusal": "I "}), chunk({"refusal": "cannot."}), chunk({}, "stop")),
    )
    assert (deltas, turn.text, turn.refusal) == ([], "", "I cannot.")


def test_signatures_of_a_stream_go_back_as_those_of_a_whole_answer():
    signed = {
        **piece(0, "c", "f", "{}"),
        "extra_content": {"google": {"thought_signature": "s=="}},
    }
    details = [
        {"type": "reasoning.text", "index": 0, "text": "Let me ", "signature": None},
        {
            "type": "reasoning.text",
            "index": 0,
            "text": "look.",
            "format": "anthropic-claude-v1",
        },
        {"type": "reasoning.text", "index": 0, "signature": "abc=="},
        {"type": "reasoning.encrypted", "index": 1, "data": "x=="},
    ]
    chunks = [chunk({"reasoning_details": [each]}) for each in details]
    _, turn = read(
        DIALECT.stream(),
        sse(*chunks, chunk({"tool_calls": [signed]}), chunk({}, "tool_calls")),
    )
    assert turn.reasoning == "Let me look."
    sent = DIALECT.encode_message(AssistantMessage(turn))
    assert sent["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Let me look.", "signature": "abc==",
         "format": "anthropic-claude-v1"},
        {"type": "reasoning.encrypted", "index": 1, "data": "x=="},
    ]  # fmt: skip
    assert sent["tool_calls"][0]["extra_content"] == signed["extra_content"]


# -- the provider's side -----------------------------------------------------------------------------------------------


def sound(turn: Turn) -> Turn:
    """The turn without what OpenAI itself would never send."""
    return replace(turn, finish="stop") if turn.finish == "error" else turn


@shared
@given(turn=turns())
def test_the_official_sdk_accepts_what_our_server_says(turn):
    body = DIALECT.encode_turn(sound(turn), Envelope("m", "chatcmpl-1", 1), TOOLS)
    ChatCompletion.model_validate(body)
    for event in DIALECT.encode_stream(
        sound(turn), Envelope("m", "chatcmpl-1", 1), TOOLS
    ):
        if event != "data: [DONE]\n\n":
            ChatCompletionChunk.model_validate_json(event.removeprefix("data: "))


def test_the_official_sdk_as_client_reads_our_stream_as_we_do():
    events = "".join(DIALECT.encode_stream(RICH, Envelope("m", "chatcmpl-1", 1), TOOLS))

    def serve(request: httpx2.Request) -> httpx2.Response:
        assert DIALECT.decode_request(json.loads(request.content))[2].stream
        return httpx2.Response(
            200, content=events.encode(), headers={"content-type": "text/event-stream"}
        )

    http = httpx2.Client(transport=httpx2.MockTransport(serve))
    client = openai.OpenAI(
        api_key="none", base_url="http://server.test/v1", http_client=http
    )
    with client.chat.completions.stream(
        model="m", messages=[{"role": "user", "content": "?"}]
    ) as stream:
        final = stream.get_final_completion()
    turn = DIALECT.decode(final.model_dump(mode="json"), TOOLS)
    assert replace(turn, reasoning=RICH.reasoning) == RICH  # the SDK knows no reasoning


def test_the_usage_is_streamed_only_when_asked_for():
    turn = Turn("Hi", usage=Usage(3, 1))
    events = list(DIALECT.encode_stream(turn, Envelope("m", "x", 1, usage=False)))
    assert not any("usage" in event for event in events)
    assert read(DIALECT.stream(), events)[1] == replace(turn, usage=Usage())


def test_a_broken_turn_is_served_as_a_stream_that_breaks_off():
    broken = Turn(calls=(ToolCall("c", "f", '{"a": '),), finish="error")
    events = list(DIALECT.encode_stream(broken, Envelope("m", "x", 1)))
    assert "[DONE]" not in events[-1]
    assert read(DIALECT.stream(), events)[1] == broken


def test_a_tool_that_the_provider_runs_itself_is_passed_on_beside_ours():
    search = {"type": "web_search", "web_search": {"enable": True}}
    for tools in (TOOLS, []):
        body = DIALECT.encode_request("Hi", tools, Options(provider_tools=[search]))
        assert body["tools"] == [*DIALECT.definitions(tools), search]
        _, ours, options = DIALECT.decode_request(body)
        assert len(ours) == len(tools)
        assert options.provider_tools == (search,)


@pytest.mark.parametrize("tool", [{"type": "function"}, {"function": {}}, "web_search"])
def test_a_tool_without_a_function_is_refused(tool):
    with pytest.raises(ConfigError, match="without a function"):
        DIALECT.decode_request({"messages": [], "tools": [tool]})
