"""Recorded exchanges of real providers, read and rebuilt by the dialects."""

from __future__ import annotations

import re

import pytest

from handrail.dialects import provider_errors
from handrail.dialects.wires.openai_chat import DIALECT
from handrail.dialects.wires.sse import EventSplitter
from handrail.messages import AssistantMessage, ToolMessage, conversation_of
from handrail.testing.contracts.dialects import in_pieces, read
from tests.support import wires
from tests.support.corpus import rows
from tests.support.wires import seen, stream_bytes

# Mistral's own API speaks the same form, but for content in parts.
CHAT = ("openai_chat", "chat_compat", "mistral")

FINISHES = {"stop": "stop", "tool_calls": "calls", "length": "length"}

EXCHANGES = wires.exchanges(*CHAT)
BODIES = wires.cases(EXCHANGES, "body")
STREAMS = wires.cases(EXCHANGES, "stream")
ANOMALIES = [
    row
    for row in rows("wire/stream_anomalies.jsonl")
    if row["provider"] == "openai_chat"
]


def wanted(expected: dict) -> dict:
    if "error" in expected:
        return {"error": str(expected["error"])}
    # One gateway leaves out the arguments of a call without any.
    calls = [
        (call["id"], call["name"], call.get("arguments_text", ""))
        for call in expected["calls"]
    ]
    # Snowflake never says how it ended
    finish = FINISHES[expected["finish"]] if expected["finish"] else "error"
    told = {key: expected[key] for key in ("text", "reasoning")}
    return {
        **told,
        "calls": calls,
        "finish": finish,
        "refusal": expected.get("refusal", ""),
    }


@pytest.mark.parametrize("interaction", BODIES)
def test_a_recorded_body_is_read_as_expected(interaction):
    assert seen(wires.answered(DIALECT, interaction["response"])) == wanted(
        interaction["expected"]
    )


@pytest.mark.parametrize("interaction", STREAMS)
def test_a_recorded_stream_is_read_as_expected_cut_at_every_byte(interaction):
    whole = stream_bytes(interaction["response"])
    deltas, outcome = read(DIALECT.stream(), [whole])
    assert seen(outcome) == wanted(interaction["expected"])
    again, outcome = read(DIALECT.stream(), in_pieces(whole, range(len(whole))))
    assert (again, seen(outcome)) == (deltas, wanted(interaction["expected"]))


@pytest.mark.parametrize(
    "interaction", [case for case in STREAMS if str(case.id).startswith("openai_chat")]
)
def test_a_recorded_stream_is_read_the_same_cut_in_two_anywhere(interaction):
    whole = stream_bytes(interaction["response"])
    events = EventSplitter().feed(whole)
    for cut in range(len(whole)):
        splitter = EventSplitter()
        assert splitter.feed(whole[:cut]) + splitter.feed(whole[cut:]) == events
    expected = read(DIALECT.stream(), [whole])
    # the dialect sees events only, so a few cuts will do for it
    for cut in range(0, len(whole), 97):
        assert read(DIALECT.stream(), [whole[:cut], whole[cut:]]) == expected


def plain(message: dict) -> dict:
    """Return a message without what says nothing, and with reasoning in one place.

    Clients spell empty content as null, "", [] or not at all. One client writes Groq's `reasoning` into the text,
    between tags, which the model never did; we send it back as it came.
    """
    said = {
        key: value
        for key, value in message.items()
        if value not in (None, "", []) and key != "prefix"
    }
    calls = [
        {key: value for key, value in call.items() if key != "index"}
        for call in said.pop("tool_calls", ())
    ]
    if thought := re.fullmatch(
        r"<think>\n(.*)\n</think>", str(said.get("content")), re.DOTALL
    ):
        del said["content"]
        said["reasoning"] = thought[1]
    return {**said, **({"tool_calls": calls} if calls else {})}


@pytest.mark.parametrize(("this", "then"), wires.steps(EXCHANGES))
def test_the_next_request_is_rebuilt_from_the_answer_and_the_results(this, then):
    turn = wires.answered(DIALECT, this["response"])
    told = this["request"]["messages"]
    added = then["request"]["messages"][len(told) + 1 :]
    messages = [*conversation_of(told), AssistantMessage(turn), *conversation_of(added)]
    rebuilt = DIALECT.encode_request(messages)["messages"]
    recorded = then["request"]["messages"]
    assert [*map(plain, rebuilt)] == [*map(plain, recorded)]
    results = [
        message.result for message in messages if isinstance(message, ToolMessage)
    ]
    answered = [
        result
        for result in results
        if result.call_id in {call.id for call in turn.calls}
    ]
    assert DIALECT.encode_results(turn.calls, answered) == [
        m for m in rebuilt[len(told) + 1 :] if m["role"] == "tool"
    ]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ANOMALIES])
def test_a_broken_stream_gives_the_calls_that_were_meant_and_none_that_was_cut(row):
    wires.check_broken_stream(DIALECT, row)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["id"]) for row in rows("wire/errors.jsonl")]
)
def test_an_error_is_tried_again_only_where_that_may_help(row):
    error = provider_errors.classify(row["status"], row["headers"], row["body"])
    assert (error.status, error.retryable) == (row["status"], row["retryable"])
