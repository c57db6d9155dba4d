"""Recorded exchanges with Cohere's v2 chat, read and rebuilt."""

from __future__ import annotations

import json

import pytest

from handrail.dialects.wires.cohere import DIALECT
from handrail.errors import ModelError
from handrail.messages import AssistantMessage, Turn, conversation_of
from handrail.testing.contracts.dialects import in_pieces, read
from tests.support import wires

FINISHES = {"COMPLETE": "stop", "TOOL_CALL": "calls", "MAX_TOKENS": "length"}

EXCHANGES = wires.exchanges("cohere")
BODIES = wires.cases(EXCHANGES, "body")
STREAMS = wires.cases(EXCHANGES, "stream")


def seen(outcome: Turn | ModelError) -> dict:
    """Return what was read in the corpus's terms: it does not count the plan before calls as reasoning, as we do."""
    assert isinstance(outcome, Turn)
    told = wires.seen(outcome)
    plan = outcome.raw.get("tool_plan", "")
    assert outcome.reasoning.endswith(plan)
    return {**told, "reasoning": outcome.reasoning != plan}


def wanted(expected: dict) -> dict:
    """Return what is expected in our terms: `null` is how Cohere's models write that a call has no arguments."""
    texts = [
        "{}" if call["arguments"] is None else call["arguments_text"]
        for call in expected["calls"]
    ]
    calls = [
        (call["id"], call["name"], text)
        for call, text in zip(expected["calls"], texts, strict=True)
    ]
    told = {key: expected[key] for key in ("text", "reasoning")}
    return {
        **told,
        "calls": calls,
        "finish": FINISHES[expected["finish"]],
        "refusal": "",
    }


@pytest.mark.parametrize("interaction", BODIES)
def test_a_recorded_body_is_read_as_expected(interaction):
    turn = wires.answered(DIALECT, interaction["response"])
    assert seen(turn) == wanted(interaction["expected"])
    assert turn.raw == interaction["response"]["body"]["message"]
    assert (
        turn.usage.input_tokens
        == interaction["response"]["body"]["usage"]["tokens"]["input_tokens"]
    )


@pytest.mark.parametrize("interaction", STREAMS)
def test_a_recorded_stream_is_read_as_expected_cut_at_every_byte(interaction):
    whole = wires.stream_bytes(interaction["response"])
    deltas, outcome = read(DIALECT.stream(), [whole])
    assert seen(outcome) == wanted(interaction["expected"])
    assert read(DIALECT.stream(), in_pieces(whole, range(len(whole)))) == (
        deltas,
        outcome,
    )
    for cut in range(0, len(whole), 97):
        assert read(DIALECT.stream(), [whole[:cut], whole[cut:]]) == (deltas, outcome)


def plain(message: dict) -> dict:
    """Return a message without the plan, which the recording client leaves out; its guides send it back, as we do."""
    return {key: value for key, value in message.items() if key != "tool_plan"}


@pytest.mark.parametrize(("this", "then"), wires.steps(EXCHANGES))
def test_the_next_request_is_rebuilt_from_the_answer_and_the_results(this, then):
    turn = wires.answered(DIALECT, this["response"])
    told, recorded = this["request"]["messages"], then["request"]["messages"]
    messages = [
        *conversation_of(told),
        AssistantMessage(turn),
        *conversation_of(recorded[len(told) + 1 :]),
    ]
    rebuilt = DIALECT.encode_request(messages)["messages"]
    assert [*map(plain, rebuilt)] == recorded
    assert (
        rebuilt[len(told)]["tool_plan"]
        == this["response"]["body"]["message"]["tool_plan"]
    )


@pytest.mark.parametrize(
    "interaction", [case for case in BODIES if case.values[0]["request"]]
)
def test_a_recorded_history_survives_our_own_form_of_it(interaction):
    recorded = interaction["request"]
    messages = DIALECT.decode_conversation(json.loads(json.dumps(recorded)))
    assert DIALECT.encode_request(messages)["messages"] == recorded["messages"]
