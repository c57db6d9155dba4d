"""Recorded exchanges with Google's Gemini API and Vertex AI, read and rebuilt."""

from __future__ import annotations

import json
import re

import pytest

from handrail.dialects.wires.gemini import DIALECT
from handrail.errors import ModelError
from handrail.messages import AssistantMessage, ToolMessage, Turn
from handrail.testing.contracts.dialects import in_pieces, read
from tests.support import wires
from tests.support.corpus import rows

FINISHES = {"STOP": "stop", "MAX_TOKENS": "length", None: "error"}

EXCHANGES = wires.exchanges("gemini")
BODIES = wires.cases(EXCHANGES, "body")
STREAMS = wires.cases(EXCHANGES, "stream")
ERRORS = [row for row in rows("wire/errors.jsonl") if row["provider"] == "google"]


def seen(outcome: Turn | ModelError) -> dict:
    told = wires.seen(outcome)
    if isinstance(outcome, Turn):
        told["calls"] = [
            (id, name, json.loads(arguments)) for id, name, arguments in told["calls"]
        ]
    return told


def wanted(expected: dict, outcome: Turn | ModelError) -> dict:
    """Return what is expected in our terms: a call without an id has one of ours, and wants to be run."""
    if "error" in expected:
        return {"error": expected["error"]}
    ids = [call.id for call in outcome.calls]
    calls = [
        (call["id"] or id, call["name"], call["arguments"])
        for call, id in zip(expected["calls"], ids, strict=True)
    ]
    finish = "calls" if calls else FINISHES[expected["finish"]]
    told = {
        "text": expected["text"],
        "calls": calls,
        "finish": finish,
        "reasoning": expected["reasoning"],
    }
    if "blocked" in expected:
        return {
            **told,
            "finish": "refused",
            "refusal": "The prompt violated Prompt Injection and Jailbreak filters.",
        }
    return {**told, "refusal": ""}


def stated(cases: list) -> list:
    """Return the cases that say what is to be read."""
    return [case for case in cases if "finish" in case.values[0]["expected"]]


@pytest.mark.parametrize("interaction", BODIES)
def test_a_recorded_body_is_read_as_expected(interaction):
    outcome = wires.answered(DIALECT, interaction["response"])
    assert seen(outcome) == wanted(interaction["expected"], outcome)


@pytest.mark.parametrize("interaction", stated(BODIES))
def test_a_recorded_body_reads_the_same_as_a_stream_of_one_event(interaction):
    body = json.dumps(interaction["response"]["body"], ensure_ascii=False)
    whole = f"data: {body}\r\n\r\n".encode()
    turn = DIALECT.decode(interaction["response"]["body"])
    for pieces in ([whole], in_pieces(whole, range(len(whole)))):
        streamed = read(DIALECT.stream(), pieces)[1]
        assert (streamed, streamed.raw, streamed.server_side) == (
            turn,
            turn.raw,
            turn.server_side,
        )


@pytest.mark.parametrize("interaction", stated(STREAMS))
def test_a_recorded_stream_is_read_as_expected_cut_at_every_byte(interaction):
    whole = wires.stream_bytes(interaction["response"])
    deltas, outcome = read(DIALECT.stream(), [whole])
    assert seen(outcome) == wanted(interaction["expected"], outcome)
    assert read(DIALECT.stream(), in_pieces(whole, range(len(whole)))) == (
        deltas,
        outcome,
    )


@pytest.mark.parametrize("interaction", STREAMS)
def test_a_recorded_stream_is_read_the_same_without_server_sent_events(interaction):
    chunks = [
        line.removeprefix("data: ")
        for line in wires.stream_bytes(interaction["response"]).decode().split("\n")
    ]
    listed = (
        "[" + ",\r\n".join(chunk.strip() for chunk in chunks if chunk.strip()) + "]"
    )
    turn = read(DIALECT.stream(), [wires.stream_bytes(interaction["response"])])[1]
    assert DIALECT.decode(listed) == read(DIALECT.stream(), [listed])[1] == turn


@pytest.mark.parametrize(
    "interaction", [case for case in STREAMS if case not in stated(STREAMS)]
)
def test_arguments_that_come_one_by_one_make_whole_calls(interaction):
    whole = wires.stream_bytes(interaction["response"])
    deltas, turn = read(DIALECT.stream(), [whole])
    assert read(DIALECT.stream(), in_pieces(whole, range(len(whole)))) == (deltas, turn)
    assert turn.finish == "calls"
    assert [delta.text for delta in deltas if hasattr(delta, "index")] == [
        call.arguments for call in turn.calls
    ]
    told = [(call.name, json.loads(call.arguments)) for call in turn.calls]
    if turn.calls[0].name == "cookRecipe":
        recipe = told[0][1]["recipe"]
        assert (len(recipe["ingredients"]), len(recipe["steps"]), recipe["name"]) == (
            10,
            10,
            "Lasagna",
        )
        assert recipe["ingredients"][9] == {"amount": "1/2 tsp", "name": "Pepper"}
        assert (
            recipe["steps"][4]
            == "In a 9x13 baking dish, spread a thin layer of meat sauce."
        )
    else:
        screens = [("read_screen", {"id": screen}) for screen in "ABC"]
        assert told == [("read_theme", {}), *screens]


def plain(content: dict, given: set[str]) -> dict:
    """Return a content without what the recording client did by its own lights.

    It makes ids where Gemini sent none, spells signatures in the other alphabet of base64, and signs the calls of
    models that sign nothing by Google's word for "unsigned".
    """
    parts = [{**part} for part in content["parts"]]
    for part in parts:
        for kind in {"functionCall", "functionResponse"} & part.keys():
            part[kind] = {
                k: v for k, v in part[kind].items() if k != "id" or v in given
            }
        if signature := part.pop("thoughtSignature", None):
            part["thoughtSignature"] = signature.translate(str.maketrans("-_", "+/"))
            if part["thoughtSignature"].startswith("c2tpcF90aG91Z2h0"):
                del part["thoughtSignature"]
    return {**content, "parts": parts}


def ids_of(response: dict) -> set[str]:
    return set(
        re.findall(r'"functionCall": *{[^{}]*"id": *"([^"]*)"', json.dumps(response))
    )


def steps() -> list:
    """Return the steps of all exchanges whose next request goes on where the last answer ended."""
    found = [
        (this, then)
        for row in EXCHANGES
        for this, then in zip(row["interactions"], row["interactions"][1:])
    ]
    return [
        pytest.param(this, then, id=f"{then['path'][-40:]}-{n}")
        for n, (this, then) in enumerate(found)
        if (told := this["request"]["contents"])
        == then["request"]["contents"][: len(told)]
        # its client tells them in a spelling of its own
        and "toolCall" not in json.dumps(then["request"]["contents"])
    ]


@pytest.mark.parametrize(("this", "then"), steps())
def test_the_next_request_is_rebuilt_from_the_answer_and_the_results(this, then):
    turn = wires.answered(DIALECT, this["response"])
    told, recorded = this["request"]["contents"], then["request"]["contents"]
    before = DIALECT.decode_conversation({"contents": told})
    added = DIALECT.decode_conversation(
        {"contents": [turn.raw, *recorded[len(told) + 1 :]]}
    )
    results = [
        message.result for message in added[1:] if isinstance(message, ToolMessage)
    ]
    for call, result in zip(turn.calls, results, strict=True):
        result.call_id = call.id
    rebuilt = DIALECT.encode_request([*before, AssistantMessage(turn), *added[1:]])[
        "contents"
    ]
    given = ids_of(this["response"])
    assert [plain(each, given) for each in rebuilt] == [
        plain(each, given) for each in recorded
    ]
    assert DIALECT.encode_results(turn.calls, results) == (
        [rebuilt[len(told) + 1]] if results else []
    )


@pytest.mark.parametrize(
    "interaction", [case for case in BODIES + STREAMS if case.values[0]["request"]]
)
def test_a_recorded_history_survives_our_own_form_of_it(interaction):
    recorded = interaction["request"]["contents"]
    messages = DIALECT.decode_conversation({"contents": recorded})
    # The client told what Gemini ran by the names of protocol buffers; we tell all by those of JSON.
    assert DIALECT.encode_request(messages)["contents"] == json.loads(
        json.dumps(recorded).replace('"tool_type"', '"toolType"')
    )


def test_what_gemini_ran_itself_is_recorded():
    turns = {
        str(case.id): wires.answered(DIALECT, case.values[0]["response"])
        for case in BODIES + STREAMS
    }
    kinds = {id: [next(iter(each.keys() - {"thoughtSignature"})) for each in turn.server_side]
             for id, turn in turns.items() if isinstance(turn, Turn) and turn.server_side}  # fmt: skip
    assert kinds["gemini-9d0107a1ce.0"] == [
        "toolCall",
        "toolResponse",
        "groundingMetadata",
    ]
    assert kinds["gemini-8b0a332a3c.0"] == ["executableCode", "groundingMetadata"]
    assert kinds["gemini-81505f643c.1"] == ["groundingMetadata"]
    searched = [f"{row['id']}.{n}" for row in EXCHANGES for n, each in enumerate(row["interactions"])
                if "server_side_tool" in each.get("features", ())]  # fmt: skip
    # it was told nothing of a search: `{}`
    assert sorted({*searched} - kinds.keys()) == ["gemini-cc86615a81.0"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ERRORS])
def test_an_error_is_tried_again_only_where_that_may_help(row):
    error = DIALECT.classify(row["status"], row["headers"], row["body"])
    assert (error.status, error.retryable) == (row["status"], row["retryable"])


def test_a_full_quota_says_how_long_to_wait():
    told = next(row for row in EXCHANGES if "error_body" in row["features"])[
        "interactions"
    ][0]["response"]
    error = DIALECT.classify(429, {}, told["body"])
    assert (error.code, error.retryable, error.retry_after_s) == (
        "RESOURCE_EXHAUSTED",
        True,
        34.4,
    )
