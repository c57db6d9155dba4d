"""What requests say to a provider's cache: to whom, where, and that each request begins with the whole last one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

import handrail as hr
from handrail import plugins
from handrail.calls import ToolCall, ToolResult
from handrail.dialects.wires.base import BaseWire
from handrail.dialects.wires.request_bytes import RequestEncoder
from handrail.journal.codec import RunInput, input_as_json, input_from_json
from handrail.messages import (
    AssistantMessage,
    Options,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.models.providers import PROVIDERS

MARK = {"type": "ephemeral"}
CLAUDE_ON_BEDROCK = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
WIRES = [
    name
    for name in plugins.list_names("dialects")
    if isinstance(hr.dialect(name), BaseWire)
]


@hr.tool(effect="read")
def look_up(city: str) -> str:
    """Look something up."""
    return city


@hr.tool(effect="read")
def count(city: str) -> int:
    """Count something."""
    return len(city)


TOOLS = hr.Toolset([look_up, count])


def opening():
    return [SystemMessage("Be brief."), UserMessage("How warm is it?")]


def round_of(number, calls=1):
    asked = [
        ToolCall(f"call_{number}_{n}", "look_up", '{"city": "北京"}')
        for n in range(calls)
    ]
    answers = [
        ToolMessage(ToolResult(each.id, each.name, value="12 °C", text="12 °C"))
        for each in asked
    ]
    return [AssistantMessage(Turn("I look.", calls=asked, finish="calls")), *answers]


def requests_of(wire, *, turns=5, options=Options("m"), calls=1):
    """Return the requests of a conversation that grows, as a model sends them."""
    encoder, messages, requests = RequestEncoder(wire), opening(), []
    for number in range(turns):
        requests.append(json.loads(encoder.body(messages, TOOLS, options)))
        messages = [*messages, *round_of(number, calls)]
    return requests


def unmarked(value):
    """Return a request as a provider's cache compares it: without marks, a text and its one block alike."""
    if isinstance(value, list):
        return (
            [unmarked(each) for each in value if set(each) != {"cachePoint"}]
            if all(isinstance(each, dict) for each in value)
            else value
        )
    if not isinstance(value, dict):
        return value
    fields = {
        key: unmarked(each) for key, each in value.items() if key != "cache_control"
    }
    for key in ("content", "system"):
        if isinstance(fields.get(key), str):
            fields[key] = [{"type": "text", "text": fields[key]}]
    return fields


def marks_in(value):
    if isinstance(value, list):
        return sum(map(marks_in, value))
    if isinstance(value, dict):
        own = len({"cache_control", "cachePoint"} & set(value))
        return own + sum(map(marks_in, value.values()))
    return 0


@pytest.mark.parametrize("server", ["", "own", "copy"])
@pytest.mark.parametrize("name", WIRES)
def test_each_request_begins_with_the_whole_last_one(name, server):
    wire = replace(hr.dialect(name), server=server)
    model = CLAUDE_ON_BEDROCK if name == "bedrock" else "m"
    requests = requests_of(wire, options=Options(model))
    for before, after in pairwise(requests):
        assert marks_in(after) <= 4
        before, after = unmarked(before), unmarked(after)
        history, longer = before.pop(wire.history), after.pop(wire.history)
        assert longer[: len(history)] == history and len(longer) > len(history)
        assert after == before


def test_anthropic_itself_marks_the_request_and_tools_and_system_are_marked():
    (body, *_) = requests_of(replace(hr.dialect("anthropic"), server="own"))
    assert body["cache_control"] == MARK
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK]
    assert body["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": MARK}
    ]
    assert marks_in(body["messages"]) == 0


def test_a_copy_of_anthropic_has_marks_where_the_last_request_ended_and_at_the_end():
    requests = requests_of(replace(hr.dialect("anthropic"), server="copy"))
    for body in requests[1:]:
        assert "cache_control" not in body
        places = [n for n, each in enumerate(body["messages"]) if marks_in(each)]
        last = len(body["messages"]) - 1
        assert places == [last - 2, last]


def test_a_turn_longer_than_anthropic_looks_back_has_a_mark_before_it():
    wire = replace(hr.dialect("anthropic"), server="own")
    many, few = (requests_of(wire, turns=3, calls=n)[-1]["messages"] for n in (12, 2))
    assert [marks_in(each) for each in many] == [0, 0, 1, 0, 0]
    assert not marks_in(few)


@pytest.mark.parametrize(
    ("model", "points"),
    [
        (CLAUDE_ON_BEDROCK, (1, 1, 1)),
        ("amazon.nova-pro-v1:0", (0, 1, 1)),
        ("anthropic.claude-3-sonnet-20240229-v1:0", (0, 0, 0)),
        ("meta.llama3-1-70b-instruct-v1:0", (0, 0, 0)),
    ],
)
def test_bedrock_has_cache_points_for_models_that_keep_prompts(model, points):
    body = hr.dialect("bedrock").encode_request(opening(), TOOLS, Options(model))
    parts = body["toolConfig"]["tools"], body["system"], body["messages"]
    assert tuple(map(marks_in, parts)) == points


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses"])
def test_runs_with_the_same_tools_and_system_message_share_openai_s_key(name):
    wire = replace(hr.dialect(name), server="own")

    def key(messages, tools=TOOLS, **options):
        return wire.encode_request(messages, tools, Options("m", **options)).get(
            "prompt_cache_key"
        )

    shared = key(opening())
    assert shared and len(shared) <= 64
    assert key([*opening(), *round_of(1)]) == shared
    assert key([SystemMessage("Be brief."), UserMessage("Another question")]) == shared
    assert key([SystemMessage("Be long."), UserMessage("How warm is it?")]) != shared
    assert key(opening(), hr.Toolset([look_up])) != shared
    assert key(opening(), cache=None) is None
    assert key("Hello", None) is None
    assert key(opening(), extra={"prompt_cache_key": "mine"}) == "mine"


FIELDS = ("cache_control", "cachePoint", "prompt_cache_key")


@pytest.mark.parametrize("name", WIRES)
def test_nothing_is_said_to_servers_that_nobody_knows_unless_asked(name):
    wire = hr.dialect(name)
    for options in (Options("m"), Options("m", cache=None)):
        text = json.dumps(wire.encode_request(opening(), TOOLS, options))
        assert not any(field in text for field in FIELDS)
    asked = json.dumps(wire.encode_request(opening(), TOOLS, Options("m", cache="1h")))
    has_field = name not in ("gemini", "gemini-interactions", "cohere")
    assert any(field in asked for field in FIELDS) == has_field


def test_a_compatible_server_of_a_provider_gets_only_what_is_safe():
    def body(name, **how):
        model = PROVIDERS[name]("m", api_key="k", **how)
        return json.dumps(model.wire.encode_request(opening(), TOOLS, Options("m")))

    elsewhere = {"base_url": "http://localhost:8000/v1"}
    assert "prompt_cache_key" in body("openai")
    assert "prompt_cache_key" in body("openai-responses")
    for name in ("openai", "openai-responses", "groq", "vllm"):
        assert "prompt_cache_key" not in body(name, **elsewhere)
    assert "prompt_cache_key" not in body("groq")
    assert '"cache_control"' in body("anthropic", **elsewhere)


def test_marks_of_the_caller_s_own_replace_ours():
    parts = [{"type": "text", "text": "A book.", "cache_control": MARK}]
    wire = replace(hr.dialect("anthropic"), server="own")
    begun = [SystemMessage("Be brief."), UserMessage("", parts)]
    assert marks_in(wire.encode_request(begun, TOOLS)) == 1
    # also where they come late, after requests that had ours
    encoder, messages = RequestEncoder(wire), [*opening(), *round_of(1)]
    first = json.loads(encoder.body(messages, TOOLS, Options("m")))
    messages = [*messages, AssistantMessage(Turn("Yes.")), UserMessage("", parts)]
    assert marks_in(first) == 3
    assert marks_in(json.loads(encoder.body(messages, TOOLS, Options("m")))) == 1


@pytest.mark.parametrize("cache", ["auto", "5m", "1h", None])
def test_a_stored_run_is_resumed_with_the_same_cache(cache):
    given = RunInput(
        messages=[UserMessage("?")], model="m", options=Options(cache=cache), budget={}
    )
    stored = json.loads(json.dumps(input_as_json(given)))
    assert input_from_json(stored).options.cache == cache
