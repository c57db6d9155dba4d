"""Recorded exchanges of real providers, for the tests of all wires; `tests.support.corpus` says where they lie."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import pytest

from handrail.dialects import WireDialect
from handrail.errors import Failure, ModelError
from handrail.messages import Turn
from handrail.parsing import jsontext
from handrail.testing.contracts.dialects import in_pieces, read
from tests.support.corpus import rows


def exchanges(*providers: str) -> list[dict]:
    """Return the recorded exchanges of these providers."""
    return [
        row for row in rows("wire/exchanges.jsonl.gz") if row["provider"] in providers
    ]


def cases(recorded: Collection[dict], kind: str) -> list:
    """Return the interactions whose response is a `body` or a `stream`, each under its exchange's id."""
    return [
        pytest.param(each, id=f"{row['id']}.{n}")
        for row in recorded
        for n, each in enumerate(row["interactions"])
        if ("body" in each["response"]) == (kind == "body")
    ]


def steps(recorded: Collection[dict]) -> list:
    """Return pairs of an interaction and the next one; after an error there is no turn to build on."""
    return [
        pytest.param(this, then, id=f"{row['id']}.{n}")
        for row in recorded
        if "multi_step" in row["features"]
        for n, (this, then) in enumerate(pairwise(row["interactions"]))
        if "error" not in this["expected"]
    ]


def stream_bytes(response: dict) -> bytes:
    """Return a recorded stream as it came over the wire."""
    lines = response.get("data_lines", ())
    return (
        response.get("sse") or "".join(f"data: {line}\n\n" for line in lines)
    ).encode()


def answered(dialect: WireDialect, response: dict) -> Turn | ModelError:
    """Return what the dialect reads in a recorded response, body or stream."""
    if "body" not in response:
        return read(dialect.stream(), [stream_bytes(response)])[1]
    try:
        return dialect.decode(response["body"])
    except ModelError as error:
        return error


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


def check_broken_stream(dialect: WireDialect, row: dict) -> None:
    """Check a row of `stream_anomalies`: the calls that were meant are read, and none that was cut can run."""
    whole = stream_bytes(row)
    for pieces in ([whole], in_pieces(whole, range(len(whole)))):
        turn = read(dialect.stream(), pieces)[1]
        assert isinstance(turn, Turn)
        parsed = [
            jsontext.parse(call.arguments, finish=turn.finish) for call in turn.calls
        ]
        cut = [
            call.id
            for call, each in zip(turn.calls, parsed, strict=True)
            if isinstance(each, Failure)
        ]
        assert cut == row["expected"].get("truncated", [])
        good = [
            (c.id, c.name, p.value)
            for c, p in zip(turn.calls, parsed, strict=True)
            if c.id not in cut
        ]
        meant = [
            (call["id"] or f"call_{n}", call["name"], call["arguments"])
            for n, call in enumerate(row["expected"]["calls"])
        ]
        assert good == meant
        assert turn.text == row["expected"].get("text", "")
