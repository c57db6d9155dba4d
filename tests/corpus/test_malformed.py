"""Real malformed arguments: every row is read, repaired or refused as its policy says."""

import json

import pytest

from handrail.errors import Code, Failure
from handrail.parsing.jsontext import Parsed, loads, parse, split
from tests.support.corpus import rows

ROWS = rows("malformed/arguments.jsonl")


def of(policy: str):
    """Return the rows whose policy begins with `policy`, as parameters."""
    found = [
        pytest.param(row, id=row["id"])
        for row in ROWS
        if row["policy"].startswith(policy)
    ]
    assert found, f"the corpus has no row for {policy!r}"
    return pytest.mark.parametrize("row", found)


def equal(one, other) -> bool:
    """Equal as JSON: 1, 1.0 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def is_blank(row) -> bool:
    # No text at all is rated differently in two rows: as no arguments, and as unreadable. It is read as no arguments;
    # a tool with a required parameter then refuses it, and only that one can tell.
    return not row["raw"].strip(" ")


@of("repair_to_intended")
def test_repaired_to_what_was_meant(row):
    outcome = parse(row["raw"])
    assert isinstance(outcome, Parsed), outcome
    assert equal(outcome.value, row["intended"])
    assert outcome.repairs


@of("accept_unchanged")
def test_accepted_unchanged(row):
    assert equal(loads(row["raw"]), row["intended"])
    outcome = parse(row["raw"])
    if isinstance(row["intended"], dict):
        assert outcome == Parsed(row["intended"], ())
    else:
        assert isinstance(outcome, Failure)


@of("repair_by_schema")
def test_left_as_text_for_the_schema_to_judge(row):
    assert parse(row["raw"]) == Parsed(json.loads(row["raw"]), ())


@of("not_an_object")
def test_refused_as_no_object(row):
    assert isinstance(parse(row["raw"]), Failure)


@of("must_not_execute_as_complete")
def test_a_cut_text_is_never_completed(row):
    assert isinstance(parse(row["raw"]), Failure)


@of("never_pick_silently")
def test_glued_values_are_refused_or_split(row):
    assert isinstance(parse(row["raw"]), Failure)
    texts = split(row["raw"])
    if (
        all(isinstance(value, dict) for value in row["intended"])
        and "[" not in row["raw"]
    ):
        assert texts and equal([loads(text) for text in texts], row["intended"])
    else:
        assert texts is None


@of("collapse_to_one_call_allowed")
def test_identical_repeats_are_one_call(row):
    assert parse(row["raw"]) == Parsed(row["intended"], ("identical_repeats",))
    assert [loads(text) for text in split(row["raw"])] == [row["intended"]]


@of("must_reject")
def test_rejected(row):
    outcome = parse(row["raw"])
    if is_blank(row):
        assert outcome == Parsed({}, ("empty_text",))
    else:
        assert isinstance(outcome, Failure)


@of("empty_object_if_no_required_parameters")
def test_blank_text_is_no_arguments(row):
    assert parse(row["raw"]) == Parsed({}, ("empty_text",))


@of("contested")
def test_contested_text_is_refused_or_marked_as_a_guess(row):
    outcome = parse(row["raw"])
    if isinstance(outcome, Failure):
        return
    if not outcome.repairs:  # strict JSON whose meaning, not whose text, is contested
        assert outcome.value == json.loads(row["raw"])
        return
    assert outcome.lossy
    assert equal(outcome.value, row["intended"])
    assert isinstance(parse(row["raw"], lossy=False), Failure)


@of("")
def test_no_row_runs_after_an_unclean_end(row):
    outcome = parse(row["raw"], finish="length")
    assert isinstance(outcome, Failure)
    assert outcome.code == Code.TRUNCATED_CALL
