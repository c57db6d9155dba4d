"""Recorded exchanges of OpenAI Responses and of the servers that copy it, read and rebuilt."""

from __future__ import annotations

import json

import pytest

from handrail.dialects import json_bodies
from handrail.dialects.wires.openai_responses import DIALECT
from handrail.errors import ModelError
from handrail.messages import (
    AssistantMessage,
    ReasoningDelta,
    TextDelta,
    ToolMessage,
    Turn,
)
from handrail.testing.contracts.dialects import calls_told, in_pieces, joined, read
from tests.support.wires import answered, cases, exchanges, seen, steps, stream_bytes

EXCHANGES = exchanges("openai_responses", "responses_compat")

FINISHES = {"completed": "stop", "incomplete": "length", None: "error"}


MISTYPED = "openai_responses-4cffa1df1f.0"
"""The first and the last event of this hand-made recording lack a bracket; see the test that mends them."""


def told(kind: str) -> list:
    """Return the interactions that say something (one only counts tokens) and can be read."""
    return [
        case
        for case in cases(EXCHANGES, kind)
        if case.values[0].get("expected") and case.id != MISTYPED
    ]


def read_as(outcome: Turn | ModelError) -> dict:
    told = seen(outcome)
    if isinstance(outcome, Turn):
        # The corpus counts encrypted reasoning as reasoning, too.
        told["reasoning"] = any(
            item["type"] == "reasoning" for item in outcome.raw["output"]
        )
        told["server_side"] = len(outcome.server_side)
    return told


WAITING = (
    "apply_patch_call",
    "computer_call",
    "local_shell_call",
    "mcp_approval_request",
    "shell_call",
)


def waits(outcome: Turn | ModelError) -> bool:
    """Whether the last word is an item that the program has to answer."""
    items = outcome.raw["output"] if isinstance(outcome, Turn) else []
    return bool(items) and items[-1]["type"] in WAITING


def wanted(expected: dict, *, waits: bool = False) -> dict:
    if "error" in expected:
        return {"error": str(expected["error"])}
    calls = [
        (
            call["id"],
            call["name"],
            call.get("arguments_text") or json.dumps({"input": call["custom_input"]}),
        )
        for call in expected["calls"]
    ]
    finish = FINISHES[expected["finish"]]
    return {
        "text": expected["text"],
        "calls": calls,
        # A turn that waits for the program is not over, whatever its status says (a patch, a shell, an approval).
        "finish": "calls" if (calls or waits) and finish == "stop" else finish,
        "reasoning": expected["reasoning"],
        "refusal": "",
        "server_side": expected["server_side_blocks"],
    }


@pytest.mark.parametrize("interaction", told("body"))
def test_a_recorded_body_is_read_as_expected(interaction):
    turn = answered(DIALECT, interaction["response"])
    assert read_as(turn) == wanted(interaction["expected"], waits=waits(turn))


@pytest.mark.parametrize("interaction", told("stream"))
def test_a_recorded_stream_is_read_as_expected_cut_at_every_byte(interaction):
    whole = stream_bytes(interaction["response"])
    deltas, turn = read(DIALECT.stream(), [whole])
    assert read_as(turn) == wanted(interaction["expected"], waits=waits(turn))
    assert read(DIALECT.stream(), in_pieces(whole, range(len(whole)))) == (deltas, turn)


@pytest.mark.parametrize("interaction", told("stream"))
def test_the_deltas_of_a_recorded_stream_make_its_turn(interaction):
    deltas, turn = read(DIALECT.stream(), [stream_bytes(interaction["response"])])
    assert (joined(deltas, TextDelta), joined(deltas, ReasoningDelta)) == (
        turn.text,
        turn.reasoning,
    )
    assert calls_told(deltas) == {
        n: (call.name, call.arguments) for n, call in enumerate(turn.calls)
    }


def test_a_recording_that_is_no_json_is_told_as_unreadable_and_read_once_it_is_mended():
    [case] = [case for case in cases(EXCHANGES, "stream") if case.id == MISTYPED]
    recorded, expected = case.values[0]["response"], case.values[0]["expected"]
    assert read_as(answered(DIALECT, recorded)) == {"error": "unreadable"}
    lines = [
        line if json_bodies.is_json(line) else line + "}"
        for line in recorded["data_lines"]
    ]
    assert read_as(answered(DIALECT, {"data_lines": lines})) == wanted(
        {**expected, "finish": "completed"}
    )


ANSWERS_OF_TOOLS = ("function_call_output", "custom_tool_call_output")


def is_of_the_model(item: dict) -> bool:
    return item.get("type") not in ANSWERS_OF_TOOLS and item.get("role") not in (
        "user",
        "system",
        "developer",
    )


def plain(item: dict) -> dict:
    """Return an item without what a client may leave out, and with the model's text in one form.

    Only reasoning needs its id. One recorder wrote straight quotes where the model had written curly ones.
    """
    needless = {"status"} if item.get("type") == "reasoning" else {"status", "id"}
    said = {
        key: value
        for key, value in item.items()
        if value not in (None, []) and key not in needless
    }
    if said.get("role") == "assistant":
        content = said["content"]
        text = (
            content
            if isinstance(content, str)
            else "".join(part["text"] for part in content)
        )
        said["content"] = text.translate({0x2019: "'", 0x201C: '"', 0x201D: '"'})
    return {"type": "message", **said}


@pytest.mark.parametrize(("this", "then"), steps(EXCHANGES))
def test_the_next_request_is_rebuilt_from_the_answer_and_the_results(this, then):
    turn = answered(DIALECT, this["response"])
    before, recorded = this["request"]["input"], then["request"]["input"]
    if {"previous_response_id", "conversation"} & then["request"].keys():
        before, added = [], recorded  # the provider kept the rest
    else:
        added = [item for item in recorded[len(before) :] if not is_of_the_model(item)]
        assert recorded[: len(before)] == before
    opening, closing = (
        DIALECT.decode_request({"input": part})[0] for part in (before, added)
    )
    body = DIALECT.encode_request([*opening, AssistantMessage(turn), *closing])
    rebuilt = (
        [{"role": "system", "content": body["instructions"]}]
        if "instructions" in body
        else []
    )
    rebuilt += body["input"] if before else body["input"][len(turn.raw["output"]) :]
    assert [*map(plain, rebuilt)] == [
        plain(item) for item in recorded if item.get("content") != ""
    ]
    results = [
        message.result for message in closing if isinstance(message, ToolMessage)
    ]
    assert DIALECT.encode_results(turn.calls, results) == [
        item for item in rebuilt if item.get("type") in ANSWERS_OF_TOOLS
    ]
