"""Every right call of the corpus goes over every wire and back, whole, as a stream, and one character at a time."""

from __future__ import annotations

import json

import pytest

from handrail.calls import ToolCall
from handrail.dialects import Envelope, dialect
from handrail.messages import Turn
from handrail.ports import Described
from handrail.testing import WIRES
from handrail.testing.contracts.dialects import read
from tests.support.corpus import rows

ROWS = [
    row
    for name in ("bfcl", "acebench")
    for row in rows(f"{name}/single_turn.jsonl.gz")
    if row["gold_calls"]
]
EVERY = 40
"""Of the streams one in so many is also fed one character at a time: all of them would take minutes."""


def turn_of(row):
    calls = [
        ToolCall(
            f"call_{n}", call["name"], json.dumps(call["arguments"], ensure_ascii=False)
        )
        for n, call in enumerate(row["gold_calls"])
    ]
    return Turn(calls=calls, finish="calls")


def told(turn):
    """Names and arguments, so that 1, 1.0 and true differ; a wire that holds objects spells them anew."""
    return [
        (call.name, json.dumps(json.loads(call.arguments), sort_keys=True))
        for call in turn.calls
    ]


@pytest.mark.parametrize("wire", WIRES)
def test_every_right_call_comes_back_as_it_went(wire):
    spoken, count = dialect(wire), 0
    for number, row in enumerate(ROWS):
        tools = [
            Described(each["name"], each.get("description", ""), each["parameters"])
            for each in row["tools"]
        ]
        turn, envelope = turn_of(row), Envelope("m", "answer_1", 0)
        whole = spoken.decode(
            json.loads(json.dumps(spoken.encode_turn(turn, envelope, tools))), tools
        )
        streamed = "".join(spoken.encode_stream(turn, envelope, tools))
        assert told(whole) == told(turn), row["id"]
        assert told(read(spoken.stream(tools), [streamed])[1]) == told(turn), row["id"]
        if number % EVERY == 0:
            assert told(read(spoken.stream(tools), list(streamed))[1]) == told(turn), (
                row["id"]
            )
        count += 1
    assert count == len(ROWS) > 1_800
