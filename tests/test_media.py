"""Results that are more than text: what the model reads of them, and what it is shown beside the text."""

import base64

import pytest

import handrail as hr
from handrail.calls import ToolCall, ToolResult
from handrail.core import results as shaping
from handrail.messages import AssistantMessage, ToolMessage, Turn, UserMessage
from handrail.testing import WIRES, ScriptedModel, ScriptedServer, call
from tests.support.drivers import chat_message

PNG = hr.Media("image/png", b"\x89PNG" + bytes(12_284))
LINKED = hr.Media("image/jpeg", url="https://a.example/b.jpg")


@pytest.mark.parametrize(("value", "text", "media"), [
    (PNG, "[image/png, 12 KB]", [PNG]),
    (hr.Media("application/pdf", b"%PDF", name="bill.pdf"), "[application/pdf bill.pdf, 4 bytes]", ...),
    (hr.Media("video/mp4", bytes(3 * 1024 * 1024)), "[video/mp4, 3.0 MB]", ...),
    (LINKED, "[image/jpeg, https://a.example/b.jpg]", [LINKED]),
    (["Sales by month:", PNG, {"total": 3}], 'Sales by month:\n[image/png, 12 KB]\n{"total":3}', [PNG]),
    ((PNG, LINKED), "[image/png, 12 KB]\n[image/jpeg, https://a.example/b.jpg]", [PNG, LINKED]),
    ({"title": "Sales", "chart": PNG}, '{"title":"Sales","chart":"[image/png, 12 KB]"}', [PNG]),
    (["a", "b"], '["a","b"]', []),
    ("text", "text", []),
])  # fmt: skip
def test_what_a_tool_shows_is_named_in_the_text_and_stands_beside_it(
    drive, value, text, media
):
    tool = hr.FunctionTool(lambda: value, name="look", effect="read")
    result = (
        drive([tool])
        .run("?", model=ScriptedModel([call("look"), "Seen."]))
        .messages[2]
        .result
    )
    assert (result.text, list(result.media)) == (
        text,
        [value] if media is ... else media,
    )


def test_a_call_without_a_run_shows_it_too(drive):
    result = drive([hr.FunctionTool(lambda: PNG, name="look", effect="read")]).call(
        "look"
    )
    assert (result.text, result.media) == ("[image/png, 12 KB]", (PNG,))


def test_pictures_are_no_part_of_the_text_s_budget(drive):
    large = hr.Media("image/png", bytes(3_000_000))
    result = drive(
        [hr.FunctionTool(lambda: ["Look:", large], name="look", effect="read")]
    ).call("look")
    assert (result.text, result.note, result.handle) == (
        "Look:\n[image/png, 2.9 MB]",
        "",
        "",
    )


def test_text_beside_a_picture_is_cut_like_any_other(drive):
    tool = hr.FunctionTool(lambda: ["x" * 50_000, PNG], name="look", effect="read")
    result = drive([tool], result_bytes=1024).call("look", run="r")
    assert (len(result.text) <= 1024, result.media, bool(result.handle)) == (
        True,
        (PNG,),
        True,
    )


def test_two_pictures_of_one_size_are_no_circle(drive):
    frames = iter(range(9))
    tool = hr.FunctionTool(
        lambda: hr.Media("image/png", bytes([next(frames)])),
        name="screenshot",
        effect="read",
    )
    run = drive([tool]).run(
        "?", model=ScriptedModel([*[call("screenshot")] * 4, "Seen."])
    )
    assert run.status == "done"


def test_the_same_picture_again_and_again_is_a_circle(drive):
    run = drive([hr.FunctionTool(lambda: PNG, name="look", effect="read")]).run(
        "?", model=ScriptedModel([call("look")])
    )
    assert run.status == "stopped"


def test_a_ledger_holds_the_name_of_a_picture():
    assert shaping.plain(PNG) == "[image/png, 12 KB]"
    assert shaping.plain({"chart": PNG}) == {"chart": "[image/png, 12 KB]"}


# ---------------------------------------------------------------------- on the wire

CHAT = hr.dialect("openai-chat")


def shown(*media):
    return [
        ToolResult(f"c{n}", "look", value=each, text="named", media=[each])
        for n, each in enumerate(media)
    ]


def test_the_chat_form_shows_pictures_in_a_user_s_message_after_all_results_of_the_turn():
    calls = [ToolCall("c0", "look"), ToolCall("c1", "look")]
    results = shown(PNG, LINKED)
    answer = AssistantMessage(Turn(calls=calls, finish="calls"))
    body = CHAT.encode_request(
        [UserMessage("?"), answer, *map(ToolMessage, results), UserMessage("And?")]
    )
    messages = body["messages"]
    assert [each["role"] for each in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "user",
    ]
    assert [each["content"] for each in messages[2:4]] == ["named", "named"]
    assert messages[4]["content"] == [
        {"type": "text", "text": "Shown by look (c0):"},
        {
            "type": "image_url",
            "image_url": {
                "url": "data:image/png;base64," + base64.b64encode(PNG.data).decode()
            },
        },
        {"type": "text", "text": "Shown by look (c1):"},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.jpg"}},
    ]
    assert CHAT.encode_results(calls, results) == messages[2:5]


@pytest.mark.parametrize(("media", "part"), [
    (hr.Media("audio/mpeg", b"ab"), {"type": "input_audio", "input_audio": {"data": "YWI=", "format": "mp3"}}),
    (hr.Media("audio/wav", b"ab"), {"type": "input_audio", "input_audio": {"data": "YWI=", "format": "wav"}}),
    (hr.Media("application/pdf", b"ab", name="a.pdf"),
     {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,YWI="}}),
    (hr.Media("text/csv", "城市".encode()), {"type": "text", "text": "城市"}),
    (hr.Media("application/pdf", url="https://a.example/b"), {"type": "text", "text": "[application/pdf, https://a.example/b]"}),
])  # fmt: skip
def test_the_chat_form_spells_each_kind_of_medium(media, part):
    assert CHAT.encode_message(UserMessage("?", [media]))["content"] == [part]


@pytest.mark.parametrize("wire", WIRES)
def test_a_picture_reaches_the_model_over_every_wire(drive, wire):
    tool = hr.FunctionTool(lambda: ["Sales:", PNG], name="chart", effect="read")
    with ScriptedServer([call("chart"), "I see."], wire=wire) as server:
        run = drive([tool]).run("?", model=server.model)
    assert run.status == "done"
    assert base64.b64encode(PNG.data).decode() in str(server.requests[-1])


def test_handling_a_message_gives_results_and_what_they_show(drive):
    tool = hr.FunctionTool(lambda: PNG, name="look", effect="read")
    replies = drive([tool]).handle(chat_message(call("look")))
    assert [reply["role"] for reply in replies] == ["tool", "user"]


@pytest.mark.parametrize(
    "given",
    [
        (b"png", "image/png"),
        ("image/png", "png"),
        (None,),
        ("image/png", b"", b"https:"),
    ],
)
def test_what_is_no_media_is_refused_where_it_is_made(given):
    with pytest.raises(TypeError, match="such as 'image/png', bytes and an address"):
        hr.Media(*given)
