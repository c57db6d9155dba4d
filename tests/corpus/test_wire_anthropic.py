"""Recorded exchanges with Anthropic's Messages API, read and rebuilt."""

from __future__ import annotations

import json

import pytest

from handrail.dialects.wires.anthropic import DIALECT
from handrail.errors import ModelError
from handrail.messages import AssistantMessage, ToolMessage, Turn
from handrail.testing.contracts.dialects import in_pieces, read
from tests.support import wires
from tests.support.corpus import rows

FINISHES = {"end_turn": "stop", "tool_use": "calls", "refusal": "refused"}

EXCHANGES = wires.exchanges("anthropic")
BODIES = wires.cases(EXCHANGES, "body")
STREAMS = wires.cases(EXCHANGES, "stream")
ERRORS = [row for row in rows("wire/errors.jsonl") if row["provider"] == "anthropic"]


def seen(outcome: Turn | ModelError) -> dict:
    """Return what was read in the corpus's terms: thinking counts where its text is withheld, too."""
    told = wires.seen(outcome)
    if isinstance(outcome, Turn):
        kinds = [block["type"] for block in outcome.raw["content"]]
        told["reasoning"] = not {"thinking", "redacted_thinking"}.isdisjoint(kinds)
        told["server_side_blocks"] = len(outcome.server_side)
        told["calls"] = [
            (id, name, json.loads(arguments)) for id, name, arguments in told["calls"]
        ]
        del told["refusal"]
    return told


def wanted(expected: dict) -> dict:
    if "error" in expected:
        return {"error": expected["error"]}
    calls = [
        (call["id"], call["name"], call["arguments"]) for call in expected["calls"]
    ]
    told = {key: expected[key] for key in ("text", "reasoning", "server_side_blocks")}
    return {**told, "calls": calls, "finish": FINISHES[expected["finish"]]}


def stated(cases: list) -> list:
    """Return the cases that say what is to be read."""
    return [case for case in cases if case.values[0].get("expected")]


@pytest.mark.parametrize("interaction", BODIES)
def test_a_recorded_body_is_read_as_expected(interaction):
    assert seen(wires.answered(DIALECT, interaction["response"])) == wanted(
        interaction["expected"]
    )


@pytest.mark.parametrize("interaction", stated(STREAMS))
def test_a_recorded_stream_is_read_as_expected_cut_at_every_byte(interaction):
    whole = wires.stream_bytes(interaction["response"])
    deltas, outcome = read(DIALECT.stream(), [whole])
    assert seen(outcome) == wanted(interaction["expected"])
    spelled = [call["arguments_text"] for call in interaction["expected"]["calls"]]
    assert [call.arguments for call in getattr(outcome, "calls", ())] == spelled
    again, outcome = read(DIALECT.stream(), in_pieces(whole, range(len(whole))))
    assert (again, seen(outcome)) == (deltas, wanted(interaction["expected"]))


@pytest.mark.parametrize("interaction", STREAMS)
def test_a_recorded_stream_is_read_the_same_cut_in_two_anywhere(interaction):
    whole = wires.stream_bytes(interaction["response"])
    deltas, outcome = read(DIALECT.stream(), [whole])
    for cut in range(0, len(whole), 97):
        again, other = read(DIALECT.stream(), [whole[:cut], whole[cut:]])
        assert (again, seen(other)) == (deltas, seen(outcome))


def answers(lines: list[str]) -> list[list[str]]:
    """Return the answers of a recording that holds several, one after the other."""
    starts = [
        n for n, line in enumerate(lines) if n == 0 or '"message_stop"' in lines[n - 1]
    ]
    return [
        lines[start:end]
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]


@pytest.mark.parametrize(
    "interaction", [case for case in STREAMS if case not in stated(STREAMS)]
)
def test_a_recording_of_several_answers_is_read_answer_by_answer(interaction):
    lines = interaction["response"]["data_lines"]
    told = [
        read(DIALECT.stream(), [wires.stream_bytes({"data_lines": each})])[1]
        for each in answers(lines)
    ]
    assert all(turn.finish == ("calls" if turn.calls else "stop") for turn in told)
    assert told[-1].finish == "stop"
    # A stream holds one answer: what comes after its end is none of it.
    assert (
        read(DIALECT.stream(), [wires.stream_bytes({"data_lines": lines})])[1]
        == told[0]
    )


def continued() -> list:
    """Return the steps whose second request goes on where the first answer ended."""
    steps = wires.steps(EXCHANGES)
    return [
        step
        for step in steps
        if is_continued(*(each["request"]["messages"] for each in step.values))
    ]


def is_continued(told: list, then: list) -> bool:
    return len(then) > len(told) and then[: len(told)] == told


def plain(message: dict) -> dict:
    """Return a message with its texts in one of the two spellings that the API takes, without what says nothing.

    That a call comes from the model itself (`caller: direct`) some clients send back, as we do, and others do not.
    """
    content = message["content"]
    blocks = (
        [{"type": "text", "text": content}] if isinstance(content, str) else content
    )
    blocks = [plain(each) if each["type"] == "tool_result" else each for each in blocks]
    direct = ("caller", {"type": "direct"})
    return {
        **message,
        "content": [
            {k: v for k, v in each.items() if (k, v) != direct} for each in blocks
        ],
    }


@pytest.mark.parametrize(("this", "then"), continued())
def test_the_next_request_is_rebuilt_from_the_answer_and_the_results(this, then):
    turn = wires.answered(DIALECT, this["response"])
    told, recorded = this["request"]["messages"], then["request"]["messages"]
    before = DIALECT.decode_conversation({"messages": told})
    added = DIALECT.decode_conversation({"messages": recorded[len(told) + 1 :]})
    rebuilt = DIALECT.encode_request([*before, AssistantMessage(turn), *added])[
        "messages"
    ]
    assert [*map(plain, rebuilt)] == [*map(plain, recorded)]
    results = [message.result for message in added if isinstance(message, ToolMessage)]
    answered = [
        result
        for result in results
        if result.call_id in {call.id for call in turn.calls}
    ]
    assert DIALECT.encode_results(turn.calls, answered) == [rebuilt[len(told) + 1]]


@pytest.mark.parametrize(
    "interaction", [case for case in BODIES + STREAMS if "request" in case.values[0]]
)
def test_a_recorded_history_survives_our_own_form_of_it(interaction):
    told = interaction["request"]["messages"] if interaction["request"] else []
    messages = DIALECT.decode_conversation({"messages": told})
    # it goes to the head of the request
    said = [message for message in told if message["role"] != "system"]
    assert [*map(plain, DIALECT.encode_request(messages)["messages"])] == [
        *map(plain, said)
    ]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ERRORS])
def test_an_error_is_tried_again_only_where_that_may_help(row):
    error = DIALECT.classify(row["status"], row["headers"], row["body"])
    assert (error.status, error.retryable) == (row["status"], row["retryable"])
