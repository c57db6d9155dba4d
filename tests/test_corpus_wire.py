"""Recorded exchanges of real providers, read and rebuilt by the dialects."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from handrail import jsontext
from handrail.dialects import provider_errors
from handrail.dialects.openai_chat import DIALECT
from handrail.dialects.sse import EventSplitter
from handrail.errors import Failure, ModelError
from handrail.messages import AssistantMessage, ToolMessage, Turn, conversation_of
from tests.corpus import rows
from tests.dialects.contract import in_pieces, read

# Mistral's own API speaks the same form, but for content in parts.
CHAT = ("openai_chat", "chat_compat", "mistral")

FINISHES = {"stop": "stop", "tool_calls": "calls", "length": "length"}

EXCHANGES = [row for row in rows("wire/exchanges.jsonl.gz") if row["provider"] in CHAT]
ANOMALIES = [row for row in rows("wire/stream_anomalies.jsonl") if row["provider"] == "openai_chat"]


def cases(kind: str) -> list:
    """Return the interactions whose response is a `body` or a `stream`, each under its exchange's id."""
    return [
        pytest.param(each, id=f"{row['id']}.{n}")
        for row in EXCHANGES
        for n, each in enumerate(row["interactions"])
        if ("body" in each["response"]) == (kind == "body")
    ]


def stream_bytes(response: dict) -> bytes:
    lines = response.get("data_lines", ())
    return (response.get("sse") or "".join(f"data: {line}\n\n" for line in lines)).encode()


def seen(outcome: Turn | ModelError) -> dict:
    """Return what was read in the corpus's terms. An error's code is told as text."""
    if isinstance(outcome, ModelError):
        return {"error": outcome.code}
    return {
        "text": outcome.text,
        "calls": [(call.id, call.name, call.arguments) for call in outcome.calls],
        "finish": outcome.finish,
        "reasoning": bool(outcome.reasoning),
        "refusal": outcome.refusal,
    }


def wanted(expected: dict) -> dict:
    if "error" in expected:
        return {"error": str(expected["error"])}
    # One gateway leaves out the arguments of a call without any.
    calls = [(call["id"], call["name"], call.get("arguments_text", "")) for call in expected["calls"]]
    finish = FINISHES[expected["finish"]] if expected["finish"] else "error"  # Snowflake never says how it ended
    told = {key: expected[key] for key in ("text", "reasoning")}
    return {**told, "calls": calls, "finish": finish, "refusal": expected.get("refusal", "")}


@pytest.mark.parametrize("interaction", cases("body"))
def test_a_recorded_body_is_read_as_expected(interaction):
    try:
        outcome = DIALECT.decode(interaction["response"]["body"])
    except ModelError as error:
        outcome = error
    assert seen(outcome) == wanted(interaction["expected"])


@pytest.mark.parametrize("interaction", cases("stream"))
def test_a_recorded_stream_is_read_as_expected_cut_at_every_byte(interaction):
    whole = stream_bytes(interaction["response"])
    deltas, outcome = read(DIALECT.stream(), [whole])
    assert seen(outcome) == wanted(interaction["expected"])
    again, outcome = read(DIALECT.stream(), in_pieces(whole, range(len(whole))))
    assert (again, seen(outcome)) == (deltas, wanted(interaction["expected"]))


@pytest.mark.parametrize("interaction", [case for case in cases("stream") if str(case.id).startswith("openai_chat")])
def test_a_recorded_stream_is_read_the_same_cut_in_two_anywhere(interaction):
    whole = stream_bytes(interaction["response"])
    events = EventSplitter().feed(whole)
    for cut in range(len(whole)):
        splitter = EventSplitter()
        assert splitter.feed(whole[:cut]) + splitter.feed(whole[cut:]) == events
    expected = read(DIALECT.stream(), [whole])
    for cut in range(0, len(whole), 97):  # the dialect sees events only, so a few cuts will do for it
        assert read(DIALECT.stream(), [whole[:cut], whole[cut:]]) == expected


def steps() -> list:
    """Return pairs of an interaction and the next one; after an error there is no turn to build on."""
    return [
        pytest.param(this, then, id=f"{row['id']}.{n}")
        for row in EXCHANGES
        if "multi_step" in row["features"]
        for n, (this, then) in enumerate(pairwise(row["interactions"]))
        if "error" not in this["expected"]
    ]


def plain(message: dict) -> dict:
    """Return a message without what says nothing, and with reasoning in one place.

    Clients spell empty content as null, "", [] or not at all. One client writes Groq's `reasoning` into the text,
    between tags, which the model never did; we send it back as it came.
    """
    said = {key: value for key, value in message.items() if value not in (None, "", []) and key != "prefix"}
    calls = [{key: value for key, value in call.items() if key != "index"} for call in said.pop("tool_calls", ())]
    if thought := re.fullmatch(r"<think>\n(.*)\n</think>", str(said.get("content")), re.DOTALL):
        del said["content"]
        said["reasoning"] = thought[1]
    return {**said, **({"tool_calls": calls} if calls else {})}


@pytest.mark.parametrize(("this", "then"), steps())
def test_the_next_request_is_rebuilt_from_the_answer_and_the_results(this, then):
    response = this["response"]
    if "body" in response:
        turn = DIALECT.decode(response["body"])
    else:
        turn = read(DIALECT.stream(), [stream_bytes(response)])[1]
    told = this["request"]["messages"]
    added = then["request"]["messages"][len(told) + 1 :]
    messages = [*conversation_of(told), AssistantMessage(turn), *conversation_of(added)]
    rebuilt = DIALECT.encode_request(messages)["messages"]
    recorded = then["request"]["messages"]
    assert [*map(plain, rebuilt)] == [*map(plain, recorded)]
    results = [message.result for message in messages if isinstance(message, ToolMessage)]
    answered = [result for result in results if result.call_id in {call.id for call in turn.calls}]
    assert DIALECT.encode_results(turn.calls, answered) == [m for m in rebuilt[len(told) + 1 :] if m["role"] == "tool"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ANOMALIES])
def test_a_broken_stream_gives_the_calls_that_were_meant_and_none_that_was_cut(row):
    whole = stream_bytes(row)
    for pieces in ([whole], in_pieces(whole, range(len(whole)))):
        turn = read(DIALECT.stream(), pieces)[1]
        parsed = [jsontext.parse(call.arguments, finish=turn.finish) for call in turn.calls]
        cut = [call.id for call, each in zip(turn.calls, parsed, strict=True) if isinstance(each, Failure)]
        assert cut == row["expected"].get("truncated", [])
        good = [(c.id, c.name, p.value) for c, p in zip(turn.calls, parsed, strict=True) if c.id not in cut]
        meant = [
            (call["id"] or f"call_{n}", call["name"], call["arguments"])
            for n, call in enumerate(row["expected"]["calls"])
        ]
        assert good == meant
        assert turn.text == row["expected"].get("text", "")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in rows("wire/errors.jsonl")])
def test_an_error_is_tried_again_only_where_that_may_help(row):
    error = provider_errors.classify(row["status"], row["headers"], row["body"])
    assert (error.status, error.retryable) == (row["status"], row["retryable"])
