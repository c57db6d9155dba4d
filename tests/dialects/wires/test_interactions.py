"""Gemini's Interactions API: what the contract does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from google import genai
from google.genai import interactions as google_types
from google.genai import types

import handrail as hr
from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects.wires.interactions import DIALECT
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
    UserMessage,
)
from handrail.models.providers import PROVIDERS
from handrail.ports import Described
from handrail.testing import Fault, ScriptedServer
from handrail.testing.contracts.dialects import RICH, TOOLS, in_pieces, read
from tests.support import recorded, wires
from tests.support.corpus import rows

ASKED = [UserMessage("How warm is it?")]


class TestInteractions(recorded.RecordedContract):
    dialect = DIALECT
    last = b"interaction.completed"


def answer(*steps: dict, status: str = "completed", **fields: object) -> dict:
    return {"id": "v1_a", "status": status, "steps": [*steps], **fields}


def step_call(call_id: str = "c1", /, **arguments: object) -> dict:
    return {
        "type": "function_call",
        "id": call_id,
        "name": "refund",
        "arguments": arguments,
    }


def output(text: str) -> dict:
    return {"type": "model_output", "content": [{"type": "text", "text": text}]}


def events(*payloads: dict) -> bytes:
    return "".join(f"data: {json.dumps(each)}\n\n" for each in payloads).encode()


def start(index: int, **step: object) -> dict:
    return {"event_type": "step.start", "index": index, "step": step}


def delta(index: int, **fields: object) -> dict:
    return {"event_type": "step.delta", "index": index, "delta": fields}


def stop(index: int) -> dict:
    return {"event_type": "step.stop", "index": index}


def completed(status: str = "completed", **fields: object) -> dict:
    interaction = {"id": "v1_a", "status": status, **fields}
    return {"event_type": "interaction.completed", "interaction": interaction}


def streamed(*payloads: dict) -> tuple[list, Turn | ModelError]:
    return read(DIALECT.stream(TOOLS), [events(*payloads)])


# -- what we ask -------------------------------------------------------------------------------------------------------


def chosen(mode: str, *tools: str) -> dict:
    return {"tool_choice": {"allowed_tools": {"mode": mode, "tools": [*tools]}}}


@pytest.mark.parametrize(("options", "config"), [
    (Options(), None),
    (Options(strict=True), {"tool_choice": "validated"}),
    (Options(tool_choice="required"), {"tool_choice": "any"}),
    (Options(tool_choice="none"), {"tool_choice": "none"}),
    (Options(tool_choice="refund"), chosen("any", "refund")),
    (Options(effort="low", max_tokens=9, temperature=0.0),
     {"thinking_level": "low", "max_output_tokens": 9, "temperature": 0.0}),
    (Options(extra={"generation_config": {"seed": 7}}), {"seed": 7}),
    (Options(max_tokens=9, extra={"generation_config": {"seed": 7, "max_output_tokens": 8}}),
     {"max_output_tokens": 8, "seed": 7}),
])  # fmt: skip
def test_options_go_into_the_configuration(options, config):
    body = DIALECT.encode_request(ASKED, TOOLS, options)
    assert body.get("generation_config") == config
    assert (body["store"], len(body["tools"])) == (False, 5)


def test_only_the_api_itself_is_told_what_may_be_called_now():
    options = Options(allowed=frozenset({"refund", "get_weather"}))
    own = replace(DIALECT, server="own").encode_request(ASKED, TOOLS, options)
    wanted = chosen("validated", "get_weather", "refund")
    assert own["generation_config"] == wanted
    assert "generation_config" not in DIALECT.encode_request(ASKED, TOOLS, options)


@pytest.mark.parametrize(("tools", "choice"), [([], "required"), (TOOLS, "find")])
def test_a_tool_that_is_not_there_cannot_be_demanded(tools, choice):
    with pytest.raises(ConfigError, match="tool_choice"):
        DIALECT.encode_request(ASKED, tools, Options(tool_choice=choice))


def test_an_answer_is_held_to_a_form():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    options = Options(
        model="m",
        output=Output(schema),
        effort="high",
        max_tokens=9,
        provider_tools=({"type": "google_search"},),
        extra={"service_tier": "flex", "generation_config": {"seed": 7}},
    )
    body = DIALECT.encode_request(ASKED, TOOLS, options)
    assert body["response_format"] == {
        "type": "text",
        "mime_type": "application/json",
        "schema": schema,
    }


def test_a_tool_without_parameters_is_described_without_a_schema():
    nothing = Described("ping", "Ping.", {"type": "object", "properties": {}})
    assert DIALECT.definitions([nothing]) == [
        {"type": "function", "name": "ping", "description": "Ping."}
    ]


def test_what_is_shown_goes_as_content_of_its_kind():
    parts = [
        {"type": "text", "text": "Look:"},
        Media("image/png", b"\x89PNG"),
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg"}},
        Media("audio/wav", b"RIFF"),
        Media("application/pdf", b"%PDF"),
        Media("text/markdown", b"# Hi"),
    ]
    (step,) = DIALECT.encode_request([UserMessage("Look:", parts)])["input"]
    assert step["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "mime_type": "image/png", "data": "iVBORw=="},
        {"type": "image", "mime_type": "image/jpeg", "uri": "https://example.com/cat.jpg"},
        {"type": "audio", "mime_type": "audio/wav", "data": "UklGRg=="},
        {"type": "document", "mime_type": "application/pdf", "data": "JVBERg=="},
        {"type": "text", "text": "# Hi"},
    ]  # fmt: skip
    (message,) = DIALECT.decode_conversation({"input": [step]})
    assert DIALECT.encode_request([message])["input"] == [step]


def test_a_result_says_that_it_failed_and_shows_what_the_tool_returned():
    calls = [ToolCall("c1", "draw"), ToolCall("c2", "draw")]
    drawn = ToolResult(
        "c1", "draw", text="drawn", media=[Media("image/png", b"\x89PNG")]
    )
    failure = Failure("NO_INK", "There is no ink.")
    told = DIALECT.encode_results(
        calls, [drawn, ToolResult("c2", "draw", failure=failure)]
    )
    assert told[0] == {
        "type": "function_result", "call_id": "c1", "name": "draw", "result": [
            {"type": "text", "text": "drawn"},
            {"type": "image", "mime_type": "image/png", "data": "iVBORw=="},
        ],
    }  # fmt: skip
    assert told[1]["is_error"] is True
    assert "There is no ink." in told[1]["result"]
    read_back = [each.result for each in DIALECT.decode_conversation({"input": told})]
    assert [(each.ok, len(each.media)) for each in read_back] == [(True, 1), (False, 0)]


def test_what_goes_on_from_a_stored_interaction_is_sent_as_it_is():
    first = DIALECT.decode(answer(step_call(n=1), id="int_1", status="requires_action"))
    said = [hr.ToolMessage(ToolResult("c1", first.calls[0].name, value=7, text="7"))]
    extra = {"store": True, "previous_interaction_id": first.raw["id"]}
    sent = DIALECT.encode_request(said, TOOLS, Options(extra=extra))
    assert sent["previous_interaction_id"] == "int_1"
    assert [(each["type"], each["call_id"]) for each in sent["input"]] == [("function_result", "c1")]  # fmt: skip
    alone = DIALECT.encode_request(said, TOOLS)
    assert "function_result" not in json.dumps(alone["input"])


def test_what_another_model_said_goes_back_as_output_and_calls():
    said = Turn(
        "Yes.",
        "secret",
        [ToolCall("toolu_1", "refund", '{"id": 7}')],
        "calls",
        raw={"role": "assistant", "content": [{"type": "thinking", "signature": "s"}]},
    )
    result = ToolMessage(ToolResult("toolu_1", "refund", text="ok"))
    body = DIALECT.encode_request([*ASKED, AssistantMessage(said), result])
    assert body["input"][1:] == [
        output("Yes."),
        step_call("toolu_1", id=7),
        {"type": "function_result", "call_id": "toolu_1", "name": "refund", "result": "ok"},
    ]  # fmt: skip


def test_a_call_that_was_changed_goes_back_as_it_is_now():
    thought = {"type": "thought", "signature": "c2ln"}
    turn = DIALECT.decode(answer(thought, step_call(), status="requires_action"))
    changed = hr.Turn(
        calls=[ToolCall("c1", "refund", '{"id": 8}')], finish="calls", raw=turn.raw
    )
    result = ToolMessage(ToolResult("c1", "refund", text="ok"))
    sent = DIALECT.encode_request([*ASKED, AssistantMessage(changed), result])["input"]
    assert sent[1:3] == [thought, step_call(id=8)]


REQUESTS = [
    pytest.param(each["request"], id=f"{row['id']}.{n}")
    for row in rows("wire/features.jsonl.gz")
    if row["provider"] == "gemini_interactions"
    for n, each in enumerate(row["interactions"])
    if each["request"]
]


@pytest.mark.parametrize("recorded", REQUESTS)
def test_a_recorded_request_survives_our_own_form_of_it(recorded):
    sent = DIALECT.encode_request(DIALECT.decode_conversation(recorded))
    fields = ("system_instruction", "input")
    assert [sent.get(name) for name in fields] == [
        recorded.get(name) for name in fields
    ]


# -- what we are answered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "finish", "waits_for"), [
    ("completed", "stop", ""), ("incomplete", "length", ""), ("budget_exceeded", "length", ""),
    ("requires_continuation", "length", ""), ("failed", "error", ""), ("cancelled", "error", ""),
    ("invented", "error", ""), (None, "error", ""),
    ("requires_action", "calls", "an action that no step of the answer names"),
    ("in_progress", "calls", "the end of the interaction 'v1_a', which is in_progress"),
    ("queued", "calls", "the end of the interaction 'v1_a', which is queued"),
])  # fmt: skip
def test_a_status_says_how_an_answer_ended(status, finish, waits_for):
    turn = DIALECT.decode(answer(output("21"), status=status))
    assert (turn.text, turn.finish, turn.waits_for) == ("21", finish, waits_for)
    again = streamed(
        start(0, type="model_output"),
        delta(0, type="text", text="21"),
        stop(0),
        completed(status),
    )[1]
    assert (again.text, again.finish, again.waits_for) == ("21", finish, waits_for)


def test_an_answer_with_calls_waits_for_them_whatever_its_status_says():
    assert DIALECT.decode(answer(step_call())).finish == "calls"


def test_a_failed_interaction_is_an_error_unless_the_model_was_not_let():
    errors = [{"code": "internal", "message": "Try again."}]
    with pytest.raises(ModelError, match=r"Try again\.") as caught:
        DIALECT.decode(answer(status="failed", errors=errors))
    assert caught.value.retryable
    step = {"type": "model_output", "error": {"code": 3, "message": "No such file."}}
    with pytest.raises(ModelError, match="No such file") as caught:
        DIALECT.decode(answer(step, status="failed"))
    assert not caught.value.retryable
    blocked = [{"code": "prohibited_content", "message": "Blocked."}]
    turn = DIALECT.decode(answer(status="failed", errors=blocked))
    assert (turn.finish, turn.refusal) == ("refused", "Blocked.")


def test_what_gemini_ran_itself_is_told_and_goes_back():
    search = {"type": "google_search_call", "id": "g", "signature": "", "arguments": {"queries": ["北京"]}}  # fmt: skip
    found = {"type": "google_search_result", "call_id": "g", "result": [{"url": "u"}]}
    turn = DIALECT.decode(answer(search, found, output("Sunny.")))
    assert [*turn.server_side] == [search, found]
    sent = DIALECT.encode_request([*ASKED, AssistantMessage(turn)])["input"]
    assert sent[1:] == [search, found, output("Sunny.")]


def test_a_stored_answer_repeats_its_input_which_goes_back_once():
    asked = {"type": "user_input", "content": [{"type": "text", "text": "?"}]}
    turn = DIALECT.decode(answer(asked, output("21")))
    assert (turn.text, turn.raw["steps"]) == ("21", [output("21")])


@pytest.mark.parametrize("arguments", [{}, {"id": 7}])
def test_a_call_without_pieces_is_told_when_its_step_stops(arguments):
    deltas, turn = streamed(
        start(0, type="function_call", id="c1", name="refund", arguments=arguments),
        stop(0),
        completed("requires_action"),
    )
    assert deltas == [ArgumentsDelta(0, "refund", json.dumps(arguments))]
    assert turn.calls == (ToolCall("c1", "refund", json.dumps(arguments)),)


def test_steps_come_interleaved():
    named = [("a", "refund"), ("b", "get_weather")]
    begun = [
        start(n, type="function_call", id=id, name=name, arguments={})
        for n, (id, name) in enumerate(named)
    ]
    deltas, turn = streamed(
        *begun,
        delta(1, type="arguments_delta", arguments='{"city": '),
        delta(0, type="arguments_delta", arguments='{"id": 7'),
        delta(1, type="arguments_delta", arguments='"Oslo"}'),
        stop(1),
        delta(0, type="arguments_delta", arguments="}"),
        stop(0),
        completed("requires_action"),
    )
    assert [each.index for each in deltas] == [1, 0, 1, 0]
    assert [each.arguments for each in turn.calls] == ['{"id": 7}', '{"city": "Oslo"}']
    assert [each["arguments"] for each in turn.raw["steps"]] == [
        {"id": 7},
        {"city": "Oslo"},
    ]


def test_a_call_whose_stream_broke_off_is_cut():
    _, turn = streamed(
        start(0, type="function_call", id="c1", name="refund", arguments={"id": 7})
    )
    assert (turn.finish, turn.calls[0].arguments) == ("error", '{"id": 7')


def test_thoughts_annotations_and_pictures_are_put_together():
    cited = [{"type": "url_citation", "url": "u", "start_index": 0, "end_index": 2}]
    picture = {"type": "image", "mime_type": "image/png", "data": "iVBORw=="}
    deltas, turn = streamed(
        start(0, type="thought"),
        delta(0, type="thought_summary", content={"type": "text", "text": "I "}),
        delta(0, type="thought_summary", content={"type": "text", "text": "see."}),
        delta(0, type="thought_signature", signature="c2ln"),
        stop(0),
        start(1, type="model_output"),
        delta(1, type="text", text="2"),
        delta(1, type="text", text="1"),
        delta(1, type="text_annotation_delta", annotations=cited),
        delta(1, **picture),
        stop(1),
        start(2, type="google_search_call", id="g", signature="", arguments={}),
        delta(2, type="google_search_call", signature="c2ln", arguments={"queries": ["a"]}),
        stop(2),
        start(3, type="google_search_result", call_id="g"),
        delta(3, type="google_search_result", result=[{"n": 1}]),
        delta(3, type="google_search_result", result=[{"n": 2}]),
        stop(3),
        completed(),
    )  # fmt: skip
    assert deltas == [
        ReasoningDelta("I "), ReasoningDelta("see."), TextDelta("2"), TextDelta("1"),
    ]  # fmt: skip
    assert turn.raw["steps"] == [
        {"type": "thought", "summary": [{"type": "text", "text": "I see."}], "signature": "c2ln"},
        {"type": "model_output", "content": [{"type": "text", "text": "21", "annotations": cited}, picture]},
        {"type": "google_search_call", "id": "g", "signature": "c2ln", "arguments": {"queries": ["a"]}},
        {"type": "google_search_result", "call_id": "g", "result": [{"n": 1}, {"n": 2}]},
    ]  # fmt: skip


def test_a_text_without_the_start_of_its_step_is_read_and_arguments_are_not():
    assert streamed(delta(0, type="text", text="21"), completed())[1].text == "21"
    lost = streamed(delta(0, type="arguments_delta", arguments="{}"), completed())[1]
    assert isinstance(lost, ModelError)
    assert lost.code == "unreadable"


@pytest.mark.parametrize(("status", "code", "retryable"), [
    (400, "invalid_request", False), (401, "authentication", False), (404, "model_not_found", False),
    (429, "rate_limit_exceeded", True), (500, "internal", True), (503, "unavailable", True),
])  # fmt: skip
def test_an_error_body_is_classified(status, code, retryable):
    body = {"error": {"code": code, "message": "No."}}
    error = DIALECT.classify(status, {}, body)
    assert (error.code, error.retryable) == (code, retryable)
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(body)
    assert caught.value.code == code


@pytest.mark.parametrize(("message", "why"), [
    ({"role": "assistant", "content": "Hi"}, "no list of `steps`"),
    ({"candidates": []}, "no list of `steps`"), ({"steps": "x"}, "`steps` are no list"),
    ({"type": "user_input", "content": []}, "'user_input'"), (5, "of type int"),
])  # fmt: skip
def test_a_message_of_another_dialect_is_refused(message, why):
    with pytest.raises(ConfigError, match=why):
        DIALECT.decode_message(message)


def test_bare_steps_and_one_step_of_a_model_are_messages():
    for message in ({"steps": [step_call()]}, step_call()):
        turn = DIALECT.decode_message(message)
        assert (turn.finish, turn.calls[0].name) == ("calls", "refund")


STREAMS = [
    pytest.param(each["response"], id=f"{row['id']}.{n}")
    for row in rows("wire/features.jsonl.gz")
    if row["provider"] == "gemini_interactions"
    for n, each in enumerate(row["interactions"])
    if "body" not in each["response"]
]


@pytest.mark.parametrize("response", STREAMS)
def test_a_recorded_stream_that_breaks_off_has_no_good_end(response):
    whole = wires.stream_bytes(response)
    end = whole.rindex(b"data: ")
    for cut in range(0, end, max(1, end // 40)):
        _, outcome = read(DIALECT.stream(), in_pieces(whole[:cut], [cut // 2]))
        assert isinstance(outcome, ModelError) or outcome.finish == "error"


# -- the official client -----------------------------------------------------------------------------------------------


def client(server: ScriptedServer) -> genai.Client:
    address = server.base_url.removesuffix("/v1")
    return genai.Client(
        api_key="none",
        http_options=types.HttpOptions(base_url=address, api_version="v1beta"),
    )


def test_the_recorded_answer_is_one_to_the_official_client():
    faults = [recorded.answer("gemini-interactions", "rich")]
    with ScriptedServer([], faults=faults) as server, client(server) as google:
        told = google.interactions.create(model="any", input="?", store=False)
    assert (told.status, told.output_text) == ("requires_action", RICH.text)
    calls = [each for each in told.steps if each.type == "function_call"]
    assert [(each.id, each.arguments) for each in calls] == [
        (each.id, json.loads(each.arguments)) for each in RICH.calls
    ]
    assert told.usage.total_tokens == 165
    assert not unknown_parts(told)


def unknown_parts(value: object) -> list:
    """Return what the client's types do not know in one of their objects."""
    if getattr(value, "is_unknown", False):
        return [value]
    inner: Iterator = iter(())
    if isinstance(value, list | tuple):
        inner = iter(value)
    elif isinstance(value, dict):
        inner = iter(value.values())
    elif hasattr(type(value), "model_fields"):
        inner = iter(vars(value).values())
    return [each for one in inner for each in unknown_parts(one)]


def test_what_we_send_is_what_the_official_client_sends_of_the_same():
    thought = {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]}  # fmt: skip
    search = {
        "type": "google_search_call",
        "id": "g",
        "signature": "c2ln",
        "arguments": {"queries": ["a"]},
    }
    turn = DIALECT.decode(answer(thought, search, output("I look."), step_call(id=7)))
    shown = [Media("image/png", b"\x89PNG")]
    told = [
        SystemMessage("Be brief."),
        UserMessage("Look:", [{"type": "text", "text": "Look:"}, *shown]),
        AssistantMessage(turn),
        ToolMessage(ToolResult("c1", "refund", text="ok", media=shown)),
        UserMessage("And now?"),
    ]
    options = Options(
        model="any",
        tool_choice="refund",
        effort="low",
        max_tokens=9,
        output=Output({"type": "object", "properties": {"n": {"enum": [1, 2]}}}),
        provider_tools=[{"type": "google_search"}],
    )
    ours = DIALECT.encode_request(told, TOOLS, options)
    assert not unknown_parts(google_types.CreateModelInteraction.model_validate(ours))
    faults = [recorded.answer("gemini-interactions", "text")]
    with ScriptedServer([], faults=faults) as server, client(server) as google:
        google.interactions.create(**ours)
    assert server.requests == [ours]


@pytest.mark.anyio
@pytest.mark.parametrize("form", ["object", "dictionary"])
async def test_the_calls_of_the_official_clients_objects_are_handled(form):
    steps = [
        {**step_call(id, city=city), "name": "measure"}
        for id, city in (("c1", "北京"), ("c2", None))
    ]
    faults = [
        Fault(200, json.dumps(answer(*steps, status="requires_action"))),
        recorded.answer("gemini-interactions", "text"),
    ]
    with ScriptedServer([], faults=faults) as server, client(server) as google:
        told = google.interactions.create(model="any", input="How warm?", store=False)

        @hr.tool(effect="read")
        def measure(city: str | None) -> str:
            """Measure a city."""
            return f"21 °C in {city}"

        async with hr.Runtime([measure]) as runtime:
            given = told if form == "object" else told.model_dump()
            replies = await runtime.handle(given, dialect="gemini-interactions")
        google.interactions.create(
            model="any", input=[*told.steps, *replies], store=False
        )
    assert [each["result"] for each in replies] == ["21 °C in 北京", "21 °C in None"]
    heard = DIALECT.decode_conversation(server.requests[1])
    assert [type(each) for each in heard] == [AssistantMessage, ToolMessage, ToolMessage]  # fmt: skip
    assert [each.id for each in heard[0].turn.calls] == [
        each["call_id"] for each in replies
    ]


def test_the_preset_names_the_key_the_path_and_the_revision():
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        model = PROVIDERS["gemini-interactions"]("gemini-3", environment={name: "k"})
        headers = {key.lower(): value for key, value in model._headers.items()}
        assert headers["x-goog-api-key"] == "k"
        assert headers["api-revision"] == "2026-05-20"
        address = "https://generativelanguage.googleapis.com/v1beta/interactions"
        assert model.url(False) == model.url(True) == address
