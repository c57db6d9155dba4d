"""Validation against real tools, calls and mistakes; see the corpus for where each comes from."""

import json

import pytest

from handrail.errors import Failure
from handrail.schemas.hints import import_schema
from handrail.schemas.validation import Checked, Checker, coerce_text
from tests.support.corpus import rows

MUTATED = rows("validation/mutated_calls.jsonl.gz")
BFCL = rows("bfcl/single_turn.jsonl.gz")
ACEBENCH = rows("acebench/single_turn.jsonl.gz")

MISPLACED_IN_GOLD = {"parallel_multiple_26"}
"""Gives `type`, which belongs to the items of another parameter, beside it. JSON Schema lets that pass; we do not."""


def checkers(row):
    return {
        tool["name"]: Checker(import_schema(tool["parameters"]))
        for tool in row["tools"]
    }


@pytest.mark.parametrize("coerce", [True, False])
def test_every_broken_call_is_refused_by_the_name_of_its_parameter(coerce):
    for row in MUTATED:
        verdict = Checker(
            import_schema(row["tool"]["parameters"]), coerce=coerce
        ).check(row["arguments"])
        if row["kind"] == "number_as_string" and coerce:
            assert isinstance(verdict, Checked), row["id"]
            assert verdict.arguments == row["intended_arguments"], row["id"]
            assert verdict.repairs, row["id"]
        else:
            assert isinstance(verdict, Failure), row["id"]
            assert row["parameter"] in [fault["field"] for fault in verdict.details], (
                row["id"]
            )
            assert f"`{row['parameter']}`" in verdict.message, row["id"]


WORDS = {
    "misspelt_parameter": ("is not a parameter",),
    "drop_required": ("is required",),
    "wrong_type": ("must be",),
    "enum_violation": ("must be one of",),
}


@pytest.mark.parametrize("kind", WORDS)
def test_the_wording_differs_by_the_kind_of_mistake(kind):
    for row in (row for row in MUTATED if row["kind"] == kind):
        told = (
            Checker(import_schema(row["tool"]["parameters"]))
            .check(row["arguments"])
            .message
        )
        assert any(words in told for words in WORDS[kind]), (row["id"], told)


def test_bfcls_own_types_are_imported_as_json_schema():
    for row in BFCL:
        for raw, tool in zip(row["tools_raw"], row["tools"], strict=True):
            assert import_schema(raw["parameters"]) == tool["parameters"], row["id"]


@pytest.mark.parametrize("corpus", [BFCL, ACEBENCH], ids=["bfcl", "acebench"])
def test_gold_calls_are_accepted_unchanged(corpus):
    for row in corpus:
        if not row.get("gold_valid_against_schema") or row["id"] in MISPLACED_IN_GOLD:
            continue
        known = checkers(row)
        for call in row["gold_calls"]:
            assert known[call["name"]].check(call["arguments"]) == Checked(
                call["arguments"]
            ), row["id"]


def test_a_misplaced_argument_of_gold_is_refused_by_name():
    row = next(row for row in BFCL if row["id"] in MISPLACED_IN_GOLD)
    verdicts = [
        checkers(row)[call["name"]].check(call["arguments"])
        for call in row["gold_calls"]
    ]
    assert [v.details[0]["field"] for v in verdicts if isinstance(v, Failure)] == [
        "type"
    ]


def test_all_calls_over_many_turns_fit_but_those_known_not_to():
    docs = rows("bfcl/multi_turn_api_docs.json")
    known = {
        (kind, doc["name"]): doc
        for kind, functions in docs.items()
        for doc in functions
    }
    for doc in known.values():
        assert import_schema(doc["raw"]["parameters"]) == doc["parameters"]
    compiled = {
        name: Checker(import_schema(doc["parameters"])) for name, doc in known.items()
    }
    calls = [
        call
        for row in rows("bfcl/multi_turn.jsonl.gz")
        for turn in row["gold_turns"]
        for call in turn
    ]
    for call in calls:
        fits = isinstance(
            compiled[call["class"], call["name"]].check(call["arguments"]), Checked
        )
        assert fits == (not call.get("schema_error")), call


def test_text_is_coerced_as_the_corpus_has_it():
    for row in rows("malformed/coercion.jsonl"):
        value = coerce_text(row["raw_value"], row["schema"])
        assert (value, type(value)) == (row["expected"], type(row["expected"])), row[
            "id"
        ]


def test_a_list_written_as_text_is_repaired_by_its_schema():
    for row in rows("malformed/arguments.jsonl"):
        if row["policy"] == "repair_by_schema":
            verdict = Checker(import_schema(row["schema"])).check(
                json.loads(row["raw"])
            )
            assert (verdict.arguments, bool(verdict.repairs)) == (row["intended"], True)


def test_every_real_mcp_tool_is_imported():
    for tool in rows("mcp_tools/tools.jsonl"):
        schema = (
            tool.get("parameters")
            or tool.get("inputSchema")
            or tool.get("input_schema")
        )
        assert import_schema(schema)["type"] == "object", tool["name"]
