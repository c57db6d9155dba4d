"""The real sequences of dependent calls, planned as their authors annotated them."""

import json

import pytest

from handrail.calls import ToolCall
from handrail.planning import Plan, plan
from handrail.tools import FunctionTool
from tests.corpus import rows

# Its second call is labelled `var1` like its first, and nothing is labelled `var2`: an error of the annotation.
MISLABELLED = "nestful_non-executable-glaive_94"
SEQUENCES = {row["id"]: row for row in rows("dependencies/nestful_sequences.jsonl")}


def planned(row: dict) -> Plan:
    """Plan the calls of a row. Their ids say nothing of its labels, `$var1$` means the first call."""
    calls = [ToolCall(str(n), call["name"], json.dumps(call["arguments"])) for n, call in enumerate(row["calls"])]
    names = dict.fromkeys(call.name for call in calls)
    return plan(calls, [FunctionTool(dict, name=name, parameters={"type": "object"}, effect="read") for name in names])


@pytest.mark.parametrize("row", [row for id, row in SEQUENCES.items() if id != MISLABELLED], ids=lambda row: row["id"])
def test_calls_wait_for_the_results_that_they_use_and_for_nothing_else(row):
    found = planned(row)
    assert [list(map(int, found.depends_on[str(n)])) for n in range(len(row["calls"]))] == row["depends_on"]
    assert [list(map(int, wave)) for wave in found.waves] == row["waves"]


def test_a_place_counts_more_than_a_label_that_is_there_twice():
    assert planned(SEQUENCES[MISLABELLED]).depends_on == {"0": [], "1": ["0"], "2": ["0", "1"]}
