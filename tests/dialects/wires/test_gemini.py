"""Google Gemini: what the contract does not know. The official SDK is the oracle of what goes out."""

from __future__ import annotations

import json

import pytest
from google import genai
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects.wires.gemini import DIALECT
from handrail.errors import ConfigError, Failure, ModelError
from handrail.messages import (
    AssistantMessage,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.models.providers import PROVIDERS
from handrail.ports import Described
from handrail.testing import Fault, ScriptedServer
from handrail.testing.contracts.dialects import RICH, check_growth, read, shared
from tests.support import recorded

ASKED = [UserMessage("How warm is it?")]


class TestGemini(recorded.RecordedContract):
    dialect = DIALECT


def tool(name: str = "look", **properties: object) -> Described:
    return Described(
        name, f"Does {name}.", {"type": "object", "properties": properties}
    )


def declared(*tools: Described) -> list[dict]:
    return DIALECT.definitions(tools)[0]["functionDeclarations"]


def contents(*messages: object) -> list[dict]:
    return DIALECT.encode_request(messages)["contents"]


def answer(*parts: dict, **candidate: object) -> dict:
    told = {
        "content": {"role": "model", "parts": [*parts]},
        "finishReason": "STOP",
        **candidate,
    }
    return {"candidates": [told], "responseId": "r-1"}


# -- what we ask -------------------------------------------------------------------------------------------------------


def test_what_the_engineer_says_and_how_to_answer_stand_beside_the_conversation():
    options = Options(
        max_tokens=7,
        temperature=0.5,
        extra={"safetySettings": [], "generationConfig": {"topK": 3}},
    )
    body = DIALECT.encode_request(
        [SystemMessage("Be brief."), *ASKED, SystemMessage("Be kind.")], options=options
    )
    assert body == {
        "contents": [{"role": "user", "parts": [{"text": "How warm is it?"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief.\n\nBe kind."}]},
        "generationConfig": {"maxOutputTokens": 7, "temperature": 0.5, "topK": 3},
        "safetySettings": [],
    }


def test_an_answer_is_held_to_a_form_by_its_own_json_schema():
    schema = {
        "type": "object",
        "properties": {"at": {"type": "array", "prefixItems": [{"type": "number"}]}},
    }
    body = DIALECT.encode_request(ASKED, options=Options(output=Output(schema)))
    assert body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
    }


@pytest.mark.parametrize(("options", "told"), [
    (Options(), {"mode": "AUTO"}),
    (Options(strict=True), {"mode": "VALIDATED"}),
    (Options(tool_choice="required"), {"mode": "ANY"}),
    (Options(tool_choice="none"), {"mode": "NONE"}),
    (Options(tool_choice="天气"), {"mode": "ANY", "allowedFunctionNames": ["tool_4d947325"]}),
])  # fmt: skip
def test_which_tool_is_to_be_called_is_a_mode(options, told):
    body = DIALECT.encode_request(ASKED, [tool("天气")], options)
    assert body["toolConfig"] == {"functionCallingConfig": told}


@pytest.mark.parametrize(
    ("tools", "choice"), [([], "required"), ([tool("look")], "find")]
)
def test_a_tool_that_is_not_there_cannot_be_demanded(tools, choice):
    with pytest.raises(ConfigError, match="tool_choice"):
        DIALECT.encode_request(ASKED, tools, Options(tool_choice=choice))


def test_tools_that_gemini_runs_itself_pass_through_beside_ours():
    options = Options(
        provider_tools=[{"googleSearch": {}}, {"urlContext": {}}],
        extra={"toolConfig": {"includeServerSideToolInvocations": True}},
    )
    body = DIALECT.encode_request(ASKED, [tool()], options)
    assert body["tools"] == [
        {"googleSearch": {}},
        {"urlContext": {}},
        *DIALECT.definitions([tool()]),
    ]
    assert body["toolConfig"] == {
        "functionCallingConfig": {"mode": "AUTO"},
        "includeServerSideToolInvocations": True,
    }


def test_a_schema_goes_in_geminis_subset_where_that_loses_nothing():
    city = {"type": "string", "title": "City", "maxLength": 80}
    other = {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}
    (told,) = declared(tool(city=city, other=other))
    assert told["parameters"]["properties"]["city"] == {
        "type": "string",
        "maxLength": 80,
    }
    assert told["parameters"]["properties"]["other"] == {
        "type": "string",
        "enum": ["a", "b"],
        "nullable": True,
    }


@pytest.mark.parametrize("properties", [
    # the subset spells enums as text
    {"level": {"enum": [1, 2]}},
    {"城市": {"type": "string"}},                              # and takes few names
    {"counts": {"type": "object", "additionalProperties": {"type": "integer"}}},
])  # fmt: skip
def test_a_schema_that_the_subset_would_change_goes_as_it_is(properties):
    (told,) = declared(tool(**properties))
    assert told["parametersJsonSchema"] == {"type": "object", "properties": properties}
    assert "parameters" not in told


def test_a_tool_without_parameters_has_no_schema_for_gemini_refuses_an_empty_object():
    assert declared(tool("stop")) == [{"name": "stop", "description": "Does stop."}]
    closed = Described(
        "stop",
        "",
        {
            "type": "object",
            "properties": {},
            "additionalProperties": False,
            "title": "Stop",
        },
    )
    assert declared(closed) == [{"name": "stop", "description": ""}]
    either = {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert declared(Described("stop", "", either))[0]["parametersJsonSchema"] == either


@pytest.mark.parametrize(("name", "told"), [
    ("user_info.get", "user_info.get"),  # dots are welcome here
    ("a:b-c", "a:b-c"),
    ("2nd try", "tool_2nd_try"),
])  # fmt: skip
def test_names_are_spelled_by_geminis_rule(name, told):
    assert declared(tool(name))[0]["name"] == told


# -- what goes back ----------------------------------------------------------------------------------------------------

SIGNED = answer(
    {"text": "Two cities.", "thought": True},
    {
        "functionCall": {"name": "look", "args": {"city": "北京"}},
        "thoughtSignature": "sig/+A==",
    },
    {"functionCall": {"name": "look", "args": {"city": "Oslo"}, "id": "x7"}},
)


def test_what_gemini_said_goes_back_as_it_came_with_each_signature_on_its_own_part():
    turn = DIALECT.decode(SIGNED)
    results = [
        ToolMessage(ToolResult(each.id, "look", text="warm")) for each in turn.calls
    ]
    sent = contents(*ASKED, AssistantMessage(turn), *results)
    assert sent[1] == SIGNED["candidates"][0]["content"]
    assert [part["functionResponse"] for part in sent[2]["parts"]] == [
        # the provider gave this call no id
        {"name": "look", "response": {"output": "warm"}},
        {"name": "look", "response": {"output": "warm"}, "id": "x7"},
    ]


def test_signed_parts_stay_apart_in_a_stream_and_unsigned_texts_become_one():
    pieces = [{"text": "a"}, {"text": "b"}, {"text": "c", "thoughtSignature": "s1"}, {"text": "d"}, {"text": ""},
              {"text": "", "thoughtSignature": "s2"}]  # fmt: skip
    _, turn = read(
        DIALECT.stream(), [f"data: {json.dumps(answer(piece))}\n\n" for piece in pieces]
    )
    assert turn.text == "abcd"
    assert turn.raw["parts"] == [{"text": "ab"}, pieces[2], {"text": "d"}, pieces[5]]


def test_ids_that_we_made_differ_from_turn_to_turn():
    body = answer({"functionCall": {"name": "look", "args": {}}})
    first, second = (
        DIALECT.decode({**body, "responseId": id}).calls[0].id
        for id in ("aB-_9", "other")
    )
    assert (first, second) == ("call_0_aB-_9", "call_0_other")


def test_a_call_that_no_gemini_made_says_so_and_others_of_its_turn_need_not():
    turn = Turn(
        "",
        "thought of another model",
        [ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "[1")],
        "calls",
    )
    results = [ToolMessage(ToolResult(id, "look", text="ok")) for id in ("c1", "c2")]
    _, said, _ = contents(*ASKED, AssistantMessage(turn), *results)
    assert said["parts"] == [
        {"functionCall": {"id": "c1", "name": "look", "args": {}},
         "thoughtSignature": "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="},
        {"functionCall": {"id": "c2", "name": "look", "args": {"INVALID_JSON": "[1"}}},
    ]  # fmt: skip


@pytest.mark.parametrize(("result", "told"), [
    (ToolResult("c", text="21 °C"), {"output": "21 °C"}),
    (ToolResult("c", text="[1, 2]"), {"output": "[1, 2]"}),
    (ToolResult("c", text='{"celsius": 21}'), {"celsius": 21}),
    # a good result of that look
    (ToolResult("c", text='{"error": null}'), {"output": {"error": None}}),
    (ToolResult("c", text="{broken"), {"output": "{broken"}),
    (ToolResult("c", failure=Failure("TIMEOUT", "Too slow.", "Try again.", True)),
     {"error": {"success": False, "error_code": "TIMEOUT", "error_message": "Too slow.", "suggestion": "Try again.",
                "retryable": True}}),
])  # fmt: skip
def test_a_result_is_an_object_and_a_failure_stands_under_its_own_key(result, told):
    (content,) = DIALECT.encode_results([ToolCall("c", "look")], [result])
    assert content == {
        "role": "user",
        "parts": [{"functionResponse": {"id": "c", "name": "look", "response": told}}],
    }


@pytest.mark.parametrize(
    "text", ['{"a": "\\ud83d"}', '{"a": NaN}', '{"a": 1e999}', '{"a": 1} b']
)
def test_a_result_that_no_request_can_carry_as_an_object_goes_as_its_text(text):
    result = ToolResult("c", text, text=text)
    (content,) = DIALECT.encode_results([ToolCall("c", "look")], [result])
    (part,) = content["parts"]
    assert part["functionResponse"]["response"] == {"output": text}


def test_media_stand_behind_the_result_that_shows_them_and_are_read_back():
    pictures = (
        Media("image/png", b"\x89PNG"),
        Media("application/pdf", url="https://example.com/a.pdf"),
    )
    turn = Turn(calls=[ToolCall("c1", "draw"), ToolCall("c2", "draw")], finish="calls")
    shown = ToolMessage(ToolResult("c1", "draw", text="drawn", media=pictures))
    plain = ToolMessage(ToolResult("c2", "draw", text="none"))
    body = DIALECT.encode_request([*ASKED, AssistantMessage(turn), shown, plain])
    parts = body["contents"][2]["parts"]
    assert parts[1:3] == [
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
        {
            "fileData": {
                "mimeType": "application/pdf",
                "fileUri": "https://example.com/a.pdf",
            }
        },
    ]
    heard = [
        message.result.media
        for message in DIALECT.decode_conversation(body)
        if isinstance(message, ToolMessage)
    ]
    assert heard == [pictures, ()]


def test_parts_of_the_chat_form_are_translated_and_geminis_own_pass():
    own = {"fileData": {"fileUri": "https://youtu.be/x"}, "videoMetadata": {"fps": 2}}
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.webp"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {
            "type": "file",
            "file": {
                "file_id": "https://generativelanguage.googleapis.com/v1beta/files/abc"
            },
        },
        own,
    ]
    (content,) = contents(UserMessage("Look:", parts))
    assert content["parts"] == [
        {"text": "Look:"},
        {"inlineData": {"mimeType": "image/gif", "data": "R0lG"}},
        {
            "fileData": {
                "mimeType": "image/webp",
                "fileUri": "https://example.com/cat.webp",
            }
        },
        {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
        {
            "fileData": {
                "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc"
            }
        },
        own,
    ]


# -- what we are answered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"]
)
def test_what_gemini_could_not_read_itself_is_asked_for_again(word):
    body = {
        "candidates": [
            {
                "content": {},
                "finishReason": word,
                "finishMessage": "print(default_api.look(",
            }
        ]
    }
    for told in (lambda: DIALECT.decode(body), lambda: _streamed(body)):
        with pytest.raises(ModelError, match=r"default_api\.look") as caught:
            told()
        assert (caught.value.code, caught.value.retryable) == (word, True)


def _streamed(*chunks: dict) -> Turn:
    _, outcome = read(
        DIALECT.stream(), [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    )
    if isinstance(outcome, ModelError):
        raise outcome
    return outcome


def test_a_call_of_a_tool_that_was_not_given_is_told_to_the_model_where_it_is_known():
    turn = DIALECT.decode(
        answer(
            {"functionCall": {"name": "gone", "args": {}}},
            finishReason="UNEXPECTED_TOOL_CALL",
        )
    )
    assert ([each.name for each in turn.calls], turn.finish) == (["gone"], "calls")


@pytest.mark.parametrize(("word", "finish", "refusal"), [
    ("STOP", "stop", ""),
    ("MAX_TOKENS", "length", ""),
    ("SAFETY", "refused", "SAFETY"),
    ("RECITATION", "refused", "RECITATION"),
    ("MISSING_THOUGHT_SIGNATURE", "error", ""),
    ("OTHER", "error", ""),
    ("YET_TO_COME", "error", ""),
    (None, "error", ""),
])  # fmt: skip
def test_only_a_stated_end_is_an_end(word, finish, refusal):
    turn = DIALECT.decode(answer({"text": "So"}, finishReason=word))
    assert (turn.finish, turn.refusal) == (finish, refusal)


def test_a_blocked_prompt_is_a_refusal():
    turn = DIALECT.decode({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
    assert (turn.finish, turn.refusal, turn.text) == (
        "refused",
        "PROHIBITED_CONTENT",
        "",
    )


def test_usage_counts_what_tools_told_and_what_was_thought():
    counts = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 5,
        "cachedContentTokenCount": 4,
    }
    written = {"candidatesTokenCount": 7, "thoughtsTokenCount": 3}
    turn = _streamed(
        {
            **answer({"text": "a"}, finishReason=None),
            "usageMetadata": {**counts, "trafficType": "ON_DEMAND"},
        },
        {**answer({"text": "b"}), "usageMetadata": written},
    )
    assert turn.usage == hr.messages.Usage(15, 10, 4, 3)


def piece(path: str, **said: object) -> dict:
    return {
        "functionCall": {
            "partialArgs": [{"jsonPath": path, **said}],
            "willContinue": True,
        }
    }


OPENED = {
    "functionCall": {"name": "book", "args": {"by": "me"}, "willContinue": True},
    "thoughtSignature": "s",
}


def test_arguments_of_every_kind_are_put_together_where_their_paths_say():
    turn = DIALECT.decode(
        answer(
            OPENED,
            piece("$.rooms[0].beds", numberValue=2),
            piece("$.rooms[0].quiet", boolValue=False),
            piece("$.rooms[1]['sea.view']", nullValue="NULL_VALUE"),
            piece("$.note", stringValue='a "b', willContinue=True),
            piece("$.note", stringValue="\n北京"),
            {"functionCall": {}},
        )
    )
    (booked,) = turn.calls
    wanted = {
        "by": "me",
        "rooms": [{"beds": 2, "quiet": False}, {"sea.view": None}],
        "note": 'a "b\n北京',
    }
    assert json.loads(booked.arguments) == wanted
    assert turn.raw["parts"] == [
        {"functionCall": {"name": "book", "args": wanted}, "thoughtSignature": "s"}
    ]


def test_half_a_character_in_an_argument_waits_for_the_other_and_is_refused_without_it():
    first, other = (
        piece("$.note", stringValue=half, willContinue=True)
        for half in ("\ud83d", "\ude00")
    )
    whole, half = (
        DIALECT.decode(json.dumps(answer(OPENED, *pieces, {"functionCall": {}})))
        for pieces in ((first, other), (first,))
    )
    assert json.loads(whole.calls[0].arguments) == {"by": "me", "note": "😀"}
    assert whole.raw["parts"][0]["functionCall"]["args"] == {"by": "me", "note": "😀"}
    assert isinstance(hr.jsontext.parse(half.calls[0].arguments, "stop"), Failure)


@pytest.mark.parametrize("finish", ["STOP", "MAX_TOKENS", None])
def test_a_call_whose_end_never_came_cannot_be_taken_for_whole(finish):
    turn = DIALECT.decode(
        answer(OPENED, piece("$.note", stringValue="half"), finishReason=finish)
    )
    assert isinstance(hr.jsontext.parse(turn.calls[0].arguments, "stop"), Failure)


@pytest.mark.parametrize("paths", [
    ["$.a[999999999]"], ["$.a[1]"], ["$.a", "$.a.b"], ["$.a[0]", "$.a.b"], ["$"], [""], ["a.b"], ["$.a[*]"], ["$..a"],
    ["$" + ".a" * 100], ["$[0]"],
])  # fmt: skip
def test_a_path_that_leads_nowhere_is_unreadable(paths):
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(
            answer(
                OPENED,
                *(piece(path, stringValue="x") for path in paths),
                {"functionCall": {}},
            )
        )
    assert caught.value.code == "unreadable"


def test_a_content_of_its_own_is_read_and_one_of_others_is_refused():
    turn = DIALECT.decode_message(SIGNED["candidates"][0]["content"])
    assert (len(turn.calls), turn.finish, turn.reasoning) == (2, "calls", "Two cities.")
    for foreign in (
        {"role": "assistant", "content": "hi"},
        {"role": "user", "parts": []},
        {"content": []},
        [],
    ):
        with pytest.raises(ConfigError, match="no content of Gemini's"):
            DIALECT.decode_message(foreign)


@shared
@given(body=st.binary(max_size=300) | st.text(max_size=300))
def test_any_bytes_give_a_turn_or_a_model_error(body):
    for told in (lambda: DIALECT.decode(body), lambda: _any(body)):
        try:
            assert isinstance(told(), Turn)
        except ModelError as error:
            assert str(error)


def _any(body: bytes | str) -> Turn:
    stream = DIALECT.stream()
    stream.feed(body)
    return stream.close()


MEGABYTE = 1_000_000


@pytest.mark.parametrize("parts", [
    [{"text": "a" * MEGABYTE}],
    [{"text": "ab"}] * (MEGABYTE // 15),
    [{"text": "a", "thoughtSignature": "s"}] * (MEGABYTE // 40),
    [{"functionCall": {"name": "a"}}] * (MEGABYTE // 30),
    [OPENED, *[piece("$.a.b.c", stringValue="xy")] * (MEGABYTE // 110)],
    [OPENED, *(piece(f"$.a[{n}]", stringValue="x") for n in range(MEGABYTE // 110)), {"functionCall": {}}],
])  # fmt: skip
def test_the_work_grows_with_the_length_and_no_faster(parts):
    def decoding(length):
        body = json.dumps(answer(*parts[: max(1, len(parts) * length // MEGABYTE)]))
        return lambda: DIALECT.decode(body)

    check_growth(decoding, MEGABYTE)


# -- the official client -----------------------------------------------------------------------------------------------


def client(server: ScriptedServer) -> genai.Client:
    address = server.base_url.removesuffix("/v1")
    return genai.Client(
        api_key="none",
        http_options=types.HttpOptions(base_url=address, api_version="v1beta"),
    )


def test_the_recorded_answer_is_one_to_the_official_client():
    faults = [recorded.answer("gemini", "rich")]
    with ScriptedServer([], faults=faults) as server, client(server) as google:
        told = google.models.generate_content(model="any", contents="How warm is it?")
    assert [(each.id, each.args) for each in told.function_calls] == [
        (each.id, json.loads(each.arguments)) for each in RICH.calls
    ]
    assert told.usage_metadata.total_token_count == 165


@pytest.mark.anyio
@pytest.mark.parametrize("form", ["answer", "content"])
async def test_the_calls_of_the_official_clients_objects_are_handled(form):
    parts = [
        {"functionCall": {"id": id, "name": "measure", "args": {"city": city}}}
        for id, city in (("x6", "北京"), ("x7", None))
    ]
    content = {"role": "model", "parts": parts}
    candidate = {"content": content, "finishReason": "STOP"}
    body = json.dumps({"candidates": [candidate]})
    with (
        ScriptedServer([], faults=[Fault(200, body)]) as server,
        client(server) as google,
    ):
        told = google.models.generate_content(model="any", contents="How warm is it?")
        content = told.candidates[0].content
        content.parts[0].thought_signature = b"\xff\xfe"
    turn = DIALECT.decode_message(told.model_dump())
    assert [each.arguments for each in turn.calls] == [
        '{"city": "北京"}',
        '{"city": null}',
    ]
    assert turn.raw["parts"][0]["thoughtSignature"] == "//4="

    @hr.tool(effect="read")
    def measure(city: str | None) -> str:
        """Measure a city."""
        return f"21 °C in {city}"

    async with hr.Runtime([measure]) as runtime:
        (replies,) = await runtime.handle(
            told if form == "answer" else content, dialect="gemini"
        )
    read_again = types.Content.model_validate(replies)
    results = [part.function_response for part in read_again.parts]
    assert [each.response for each in results] == [
        {"output": f"21 °C in {city}"} for city in ("北京", None)
    ]
    assert [each.id for each in results] == [each.id for each in told.function_calls]


WIRE_CALL = {"name": "measure", "args": {"station_id": None, "days": 2}}


@pytest.mark.parametrize(
    "message",
    [
        {"candidates": [{"content": {"parts": [{"function_call": WIRE_CALL}]}}]},
        {"parts": [{"functionCall": WIRE_CALL, "thought_signature": b"\xff\xfe"}]},
        {"parts": [{"functionCall": WIRE_CALL, "thoughtSignature": b"\xff\xfe"}]},
        {"parts": [{"functionCall": {"id": None, **WIRE_CALL}}]},
        {"parts": [{"functionCall": WIRE_CALL, "thought": None}], "role": None},
    ],
    ids=["names", "name and bytes", "bytes", "absent id", "absent role"],
)
def test_one_word_of_pythons_spelling_anywhere_is_read_as_on_the_wire(message):
    turn = DIALECT.decode_message(message)
    assert [each.arguments for each in turn.calls] == [
        '{"station_id": null, "days": 2}'
    ]
    (part,) = turn.raw["parts"]
    assert part.pop("thoughtSignature", "//4=") == "//4="
    assert part == {"functionCall": WIRE_CALL}


def test_what_we_send_is_what_the_official_client_makes_of_the_same():
    turn = DIALECT.decode(SIGNED)
    results = [
        ToolMessage(ToolResult(each.id, "look", text='{"celsius": 21}'))
        for each in turn.calls
    ]
    told = [SystemMessage("Be brief."), *ASKED, AssistantMessage(turn), *results]
    level = tool("look", city={"type": "string", "enum": ["北京", "Oslo"]})
    options = Options(tool_choice="look", max_tokens=9, temperature=0, provider_tools=[{"googleSearch": {}}],
                      output=Output({"type": "object", "properties": {"n": {"enum": [1, 2]}}}))  # fmt: skip
    ours = DIALECT.encode_request(
        told, [level, tool("level", n={"enum": [1, 2]})], options
    )
    config = types.GenerateContentConfig.model_validate(
        {
            **ours["generationConfig"],
            "systemInstruction": types.Content.model_validate(
                ours["systemInstruction"]
            ),
            "tools": [types.Tool.model_validate(each) for each in ours["tools"]],
            "toolConfig": types.ToolConfig.model_validate(ours["toolConfig"]),
        }
    )
    with (
        ScriptedServer([], faults=[recorded.answer("gemini", "text")]) as server,
        client(server) as google,
    ):
        spoken = [types.Content.model_validate(each) for each in ours["contents"]]
        google.models.generate_content(model="any", contents=spoken, config=config)
    (theirs,) = server.requests
    assert _in_one_spelling(theirs) == _in_one_spelling(ours)


def _in_one_spelling(value: object, key: str = "") -> object:
    """Return a body without what the client spells otherwise: bytes in the other alphabet of base64, types in capitals,
    and one field by its name in protocol buffers."""
    if isinstance(value, dict):
        named = {
            "parametersJsonSchema" if name == "parameters_json_schema" else name: value[
                name
            ]
            for name in value
        }
        return {name: _in_one_spelling(each, name) for name, each in named.items()}
    if isinstance(value, list):
        return [_in_one_spelling(each, key) for each in value]
    if key == "thoughtSignature":
        return value.translate(str.maketrans("-_", "+/"))
    return value.lower() if key == "type" else value


# -- with the runtime --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_whose_call_was_malformed_is_asked_again(streamed):
    body = json.dumps(
        {
            "candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}],
            "usageMetadata": {},
        }
    )
    fault = (
        Fault(200, f"data: {body}\n\n", headers={"content-type": "text/event-stream"})
        if streamed
        else Fault(200, body)
    )
    heard: list[object] = []
    faults = [fault, recorded.answer("gemini", "text", streamed=streamed)]
    with ScriptedServer([], faults=faults) as server:
        async with hr.Runtime(
            [], observers=[heard.append] if streamed else ()
        ) as runtime:
            model = f"gemini:m@{server.base_url}"
            run = await runtime.run("How warm is it?", model=model)
    assert (run.status, run.text, len(server.requests)) == ("done", "It is warm.", 2)


def test_a_key_is_looked_for_under_both_names():
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        model = PROVIDERS["gemini"]("gemini-3", environment={name: "k"})
        assert model._headers["x-goog-api-key"] == "k"
        assert (
            model.url(False)
            == "https://generativelanguage.googleapis.com/v1beta/models/gemini-3:generateContent"
        )
        assert model.url(True).endswith("gemini-3:streamGenerateContent?alt=sse")


@pytest.mark.parametrize(("address", "url"), [
    ("https://proxy.example", "https://proxy.example/v1beta/models/x:generateContent"),
    ("https://proxy.example/v1", "https://proxy.example/v1/models/x:generateContent"),
    ("https://proxy.example/v1alpha/", "https://proxy.example/v1alpha/models/x:generateContent"),
])  # fmt: skip
def test_an_address_may_name_the_version(address, url):
    assert PROVIDERS["gemini"]("x", base_url=address, environment={}).url(False) == url
