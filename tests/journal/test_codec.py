"""A run's journal: everything that happened comes back from JSON as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from handrail.calls import TRUSTED, Label, Media, ToolCall, ToolResult
from handrail.core.budgets import Budget
from handrail.core.results import as_text, encode_if_it_fits
from handrail.errors import Failure, JournalMismatch
from handrail.journal import codec
from handrail.journal.codec import RunInput
from handrail.messages import (
    AssistantMessage,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.tools.toolset import Toolset

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
counts = st.integers(0, 10**6)
turns = st.builds(
    Turn,
    texts,
    texts,
    st.lists(st.builds(ToolCall, texts, texts, texts), max_size=3).map(tuple),
    st.sampled_from(["stop", "calls", "length", "refused", "error"]),
    st.builds(Usage, counts, counts, counts, counts),
    texts,
)
failures = st.builds(
    Failure,
    texts,
    texts,
    texts,
    st.booleans(),
    st.lists(objects, max_size=2).map(tuple),
)
media = st.builds(Media, texts, st.binary(max_size=8), texts, texts)
results = st.builds(
    ToolResult,
    texts,
    texts,
    json_values,
    st.none() | failures,
    texts,
    st.integers(0, 5),
    st.booleans(),
    texts,
    st.lists(texts, max_size=2).map(tuple),
    texts,
    st.lists(media, max_size=2).map(tuple),
    question=st.none(),  # a call that waits has no step
    ends_run=st.just(""),
).map(lambda result: result if result.failure is None else _failed(result))


def _failed(result):
    result.value = None
    return result


def through_json(body):
    return json.loads(json.dumps(body))


@given(turns)
def test_a_models_answer_comes_back_as_it_was(turn):
    assert codec.turn_from_json(through_json(codec.turn_as_json(turn))) == turn


def test_signatures_and_what_the_provider_ran_come_back_byte_for_byte():
    raw = {
        "content": [
            {"type": "thinking", "signature": "Eq+/=="},
            {"n": 0, "flag": False, "none": None},
        ]
    }
    turn = Turn("", raw=raw, server_side=[{"type": "web_search_call", "id": "ws_1"}])
    read = codec.turn_from_json(through_json(codec.turn_as_json(turn)))
    assert read.raw == raw
    assert read.server_side == ({"type": "web_search_call", "id": "ws_1"},)


@given(results)
def test_a_calls_result_comes_back_as_it_was(result):
    assert codec.result_from_json(through_json(codec.result_as_json(result))) == result


shown_values = st.one_of(
    texts,
    objects,
    st.lists(json_values, max_size=3),
    st.dictionaries(
        texts, st.floats(allow_nan=False) | st.text(max_size=4), max_size=3
    ),
)


@given(shown_values, texts, texts, texts)
def test_a_usual_result_is_written_as_the_text_of_the_same_json(
    value, id, name, source
):
    text = encode_if_it_fits(value, 10_000)
    label = Label("untrusted", "public", source, id)
    for each in (label, TRUSTED):
        result = ToolResult(id, name, value, text=text, attempts=1, label=each)
        written = codec.result_as_text(result)
        assert written.isascii()
        if type(value) is str:
            # a lone surrogate is no usual result: it is replaced
            assert bool(written) == (text == value)
        elif "\\" not in text:
            assert written
        if written:
            assert json.loads(written) == through_json(codec.result_as_json(result))


@pytest.mark.parametrize("change", [
    {"text": '{"a":2}'}, {"text": ""}, {"note": "cut"}, {"handle": "r_1"}, {"repairs": ("comment",)},
    {"value": None}, {"value": 1}, {"call_id": 7}, {"value": [Media("image/png", b"")]}, {"done_under": "k"},
    {"failure": Failure("TIMEOUT", "slow")},
])  # fmt: skip
def test_what_is_no_usual_result_has_no_text_of_its_own(change):
    usual = ToolResult("c", "look_up", {"a": 1}, text='{"a":1}', attempts=1)
    assert codec.result_as_text(usual)
    assert codec.result_as_text(replace(usual, **change)) == ""


_CYCLE: list[object] = [1]
_CYCLE.append(_CYCLE)


@pytest.mark.parametrize(
    "value", [_CYCLE, {frozenset((1,)): 2}, [{"a": {(): 1, frozenset(): 2}}]]
)
def test_a_value_without_a_json_form_is_not_written_as_its_repr(value):
    text = as_text(value)
    assert codec.result_as_text(ToolResult("c", "look_up", value, text=text)) == ""


@given(turns, texts)
def test_a_usual_answer_is_written_as_the_text_of_the_same_json(turn, model):
    written = codec.turn_as_text(turn, model)
    assert bool(written) == (not turn.reasoning and not turn.refusal)
    if written:
        assert written.isascii()
        named = {"model": model} if model else {}
        assert json.loads(written) == through_json(codec.turn_as_json(turn) | named)


@pytest.mark.parametrize("value", [0, False, "", [], {}, 0.0, None])
def test_a_value_that_counts_as_false_is_a_value(value):
    read = codec.result_from_json(
        through_json(codec.result_as_json(ToolResult("c1", "x", value)))
    )
    assert read.value == value
    assert type(read.value) is type(value)


@given(turns, results, texts)
def test_what_a_run_was_asked_comes_back_as_it_was(turn, result, text):
    parts = ({"type": "text", "text": text}, Media("image/png", b"\x89PNG"))
    asked = RunInput(
        [
            SystemMessage(text),
            UserMessage(text, parts),
            AssistantMessage(turn),
            ToolMessage(result),
            UserMessage(text),
        ],
        "openai:NAME",
        Options(
            tool_choice="required",
            temperature=0.0,
            parallel=False,
            extra={"seed": 0},
            output=Output({"a": 1}),
        ),
        {"time_s": 120.0, "calls": None},
    )
    assert codec.input_from_json(through_json(codec.input_as_json(asked))) == asked


@pytest.mark.parametrize(
    "read", [codec.turn_from_json, codec.result_from_json, codec.input_from_json]
)
@pytest.mark.parametrize(
    "body",
    [
        None,
        7,
        "text",
        [],
        {"calls": 3, "failure": 3, "messages": 3},
        {"calls": [[1, 2, 3, 4]]},
    ],
)
def test_what_cannot_be_read_is_a_mismatch_and_nothing_else(read, body):
    try:
        read(body)
    except JournalMismatch as error:
        assert "in the journal" in str(error)


@pytest.mark.parametrize(
    "body",
    [None, [], {"time_s": "soon"}, {"calls": [3]}, {"per_tool": 3}, {"cost": "NaN"}],
)
def test_nor_does_a_budget_that_is_none_come_back(body):
    with pytest.raises(JournalMismatch, match="a budget in the journal"):
        codec.budget_from_json(body)


def test_a_digest_tells_schemas_apart_and_texts_not():
    def lookup(city: str) -> str:
        """Look a city up."""

    def same_schema(city: str) -> str:
        """Look up a city in the register of cities."""

    def other_schema(city: int) -> str:
        """Look a city up."""

    same_schema.__name__ = other_schema.__name__ = "lookup"
    digests = [
        codec.toolset_digest(Toolset([each]))
        for each in (lookup, same_schema, other_schema)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_budget_without_end_comes_back_as_it_was():
    budget = Budget(
        time_s=float("inf"),
        per_tool={"find": float("inf")},
        cost=1.5,
        price_per_million=(3.0, 10.0),
    )
    assert (
        codec.budget_from_json(json.loads(json.dumps(codec.budget_as_json(budget))))
        == budget
    )


@pytest.mark.parametrize("value", [None, "", "seen", {"a": [1]}, [], 0, False])
@pytest.mark.parametrize("more", [
    {}, {"name": ""}, {"call_id": ""}, {"text": "seen"}, {"replayed": True},
    {"label": Label(integrity="untrusted", source="web")},
])  # fmt: skip
def test_a_usual_result_is_written_the_short_way_as_any_other_is(value, more):
    usual = {"call_id": "c1", "name": "look", "value": value, "attempts": 1, **more}
    usual = ToolResult(**usual)
    noted = replace(usual, note="noted")
    careful = codec.result_as_json(noted)
    assert careful.pop("note") == "noted"
    short = codec.result_as_json(usual)
    assert list(short.items()) == list(careful.items())
    assert codec.result_from_json(short) == codec.result_from_json(careful)
