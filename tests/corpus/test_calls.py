"""Real definitions and their right calls: all are taken as they are, and the tool gets exactly what was asked."""

import asyncio
import json

import pytest

import handrail as hr
from handrail.dialects import Envelope
from handrail.dialects.wires.openai_chat import DIALECT
from tests.support.corpus import rows

SETS = {name: rows(f"{name}/single_turn.jsonl.gz") for name in ("bfcl", "acebench")}


def stubs(definitions, ran):
    """Tools under the definitions' own names, which note what they are called with."""

    def stub(name):
        return lambda **arguments: ran.append((name, arguments))

    return hr.Toolset(
        hr.FunctionTool(
            stub(each["name"]),
            name=each["name"],
            description=each.get("description", ""),
            parameters=each["parameters"],
            effect="read",
            blocking=False,
        )
        for each in definitions
    )


def exact(called):
    """What was called, so that 1, 1.0 and true differ."""
    return [(name, json.dumps(arguments, sort_keys=True)) for name, arguments in called]


def carried(row, definitions):
    """Bring the right calls of a row over the wire to stubs; return what ran and the results."""
    ran, results = [], []
    tools = stubs(row[definitions], ran)
    gold = row["gold_calls"]
    calls = [
        hr.ToolCall(
            f"c{n}", call["name"], json.dumps(call["arguments"], ensure_ascii=False)
        )
        for n, call in enumerate(gold)
    ]
    body = DIALECT.encode_turn(
        hr.Turn(calls=calls, finish="calls"), Envelope("m", "i", 0), tools
    )

    async def main():
        async with hr.Runtime(
            tools, budget=hr.Budget(calls=None), observers=[results.append]
        ) as runtime:
            return await runtime.handle(json.loads(json.dumps(body)))

    told = asyncio.run(main())
    assert len(told) == len(calls)
    return ran, [
        event.result for event in results if type(event).__name__ == "CallFinished"
    ]


@pytest.mark.parametrize("name", SETS)
def test_every_definition_is_taken_and_goes_over_the_wire(name):
    seen = set()
    for row in SETS[name]:
        for each in row.get("tools_raw", row["tools"]):
            if (key := json.dumps(each, sort_keys=True)) not in seen:
                seen.add(key)
                (told,) = stubs([each], []).definitions("openai-chat")
                assert told["function"]["parameters"]["type"] == "object"
                assert set(told["function"]["parameters"].get("properties", {})) == set(
                    each["parameters"].get("properties", {})
                )


def fits(row):
    """Whether the right calls fit their schemas, also by the rule that a name no parameter has is a mistake."""
    takes = {
        tool["name"]: tool["parameters"].get("properties", {}) for tool in row["tools"]
    }
    return row["gold_valid_against_schema"] and all(
        call["arguments"].keys() <= takes[call["name"]].keys()
        for call in row["gold_calls"]
    )


@pytest.mark.parametrize(
    ("name", "definitions"),
    [("bfcl", "tools"), ("bfcl", "tools_raw"), ("acebench", "tools")],
)
def test_every_right_call_runs_with_exactly_its_arguments(name, definitions):
    wrong, count = [], 0
    for row in SETS[name]:
        if not row["gold_calls"] or not fits(row):
            continue
        count += 1
        ran, results = carried(row, definitions)
        gold = [(call["name"], call["arguments"]) for call in row["gold_calls"]]
        if exact(ran) != exact(gold) or any(
            result.repairs or result.note for result in results
        ):
            wrong.append((row["id"], [result.text for result in results]))
    assert (len(wrong), wrong[:5]) == (0, [])
    assert count > 500


def test_a_call_that_breaks_its_schema_runs_nothing():
    """Where the right answer of the set is wrong by its own schema, it is refused, or repaired and said to be."""
    for row in (row for each in SETS.values() for row in each):
        if row["gold_calls"] and not fits(row):
            ran, results = carried(row, "tools")
            assert any(not result.ok or result.repairs for result in results), row["id"]
            assert len(ran) == sum(result.ok for result in results)
