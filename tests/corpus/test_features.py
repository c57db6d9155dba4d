"""Recorded exchanges with the newest features of providers: what is counted, what goes back, what waits for us."""

from __future__ import annotations

from dataclasses import replace

import pytest

import handrail as hr
from tests.support import wires
from tests.support.corpus import rows

WIRES = {
    "anthropic": "anthropic", "openai_responses": "openai-responses", "openai_chat": "openai-chat", "gemini": "gemini",
    "bedrock": "bedrock", "gemini_interactions": "gemini-interactions",
}  # fmt: skip
ROWS = rows("wire/features.jsonl.gz")


def interactions() -> list[tuple[str, str, dict]]:
    """Return the answered interactions on wires that we speak: an id, the wire's name, the interaction."""
    return [
        (f"{row['id']}.{n}", WIRES[provider], each)
        for row in ROWS
        for n, each in enumerate(row["interactions"])
        if (provider := each.get("provider", row["provider"])) in WIRES
        and each.get("expected")
        and "error" not in each["expected"]
    ]


def cases(takes) -> list:
    return [
        pytest.param(wire, each, id=id)
        for id, wire, each in interactions()
        if takes(each["expected"])
    ]


# Where an answer has `iterations`, the figures beside them tell the last one's share only.
COUNTED = cases(
    lambda expected: (
        "cache_written" in (usage := expected.get("usage") or {})
        and "iterations" not in usage
    )
)


@pytest.mark.parametrize(("wire", "interaction"), COUNTED)
def test_what_was_read_from_a_cache_and_written_to_it_is_counted(wire, interaction):
    usage, expected = (
        wires.answered(hr.dialect(wire), interaction["response"]).usage,
        interaction["expected"]["usage"],
    )
    told = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.cache_written_tokens,
    )
    names = "input_total", "output_total", "cache_read", "cache_written"
    read, *others = (expected.get(name, 0) for name in names)
    assert told == (read + expected.get("tool_use_input", 0), *others)


def with_container() -> list:
    return cases(
        lambda expected: [
            each for each in expected.get("carry", ()) if each.get("as") == "container"
        ]
    )


@pytest.mark.parametrize(("wire", "interaction"), with_container())
def test_the_container_of_an_answer_is_named_in_the_next_request_until_it_expires(
    wire, interaction
):
    turn = wires.answered(hr.dialect(wire), interaction["response"])
    (carried,) = (
        each["value"]
        for each in interaction["expected"]["carry"]
        if each.get("as") == "container"
    )
    said = [hr.UserMessage("?"), hr.AssistantMessage(turn), hr.UserMessage("And?")]
    long_ago, later = (
        replace(hr.dialect(wire), clock=lambda now=now: now) for now in (0.0, 4e9)
    )
    assert long_ago.encode_request(said)["container"] == carried
    expires = "expires_at" in turn.raw["container"]
    assert later.encode_request(said).get("container") == (None if expires else carried)


TO_ANSWER = {"tool_search", "mcp_approval", "apply_patch_call", "local_shell_call"}


@pytest.mark.parametrize(
    ("wire", "interaction"),
    cases(
        lambda expected: (
            TO_ANSWER & {each["kind"] for each in expected.get("waits", ())}
        )
    ),
)
def test_a_turn_that_waits_for_us_does_not_look_finished(wire, interaction):
    turn = wires.answered(hr.dialect(wire), interaction["response"])
    (wait,) = interaction["expected"]["waits"]
    assert (turn.finish, wait["id"] in turn.waits_for) == ("calls", True)


@pytest.mark.parametrize(
    ("wire", "interaction"), cases(lambda expected: not expected.get("waits"))
)
def test_a_turn_that_waits_for_nothing_says_so(wire, interaction):
    assert wires.answered(hr.dialect(wire), interaction["response"]).waits_for == ""
