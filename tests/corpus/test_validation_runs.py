"""Good calls with one thing broken: what is refused runs nothing, and what runs runs as it was meant."""

import asyncio
import json

import pytest

import handrail as hr
from handrail.errors import Code
from handrail.schemas.validation import Checker
from tests.support.corpus import rows

ROWS = rows("validation/mutated_calls.jsonl.gz")
KINDS = sorted({row["kind"] for row in ROWS})


async def outcomes(of, **declared):
    """Carry out each row's call against a stub; yield the row, the result and what the stub got."""
    for row in of:
        ran, tool = [], row["tool"]
        stub = hr.FunctionTool(
            lambda ran=ran, **arguments: ran.append(arguments),
            name=tool["name"],
            description=tool["description"],
            parameters=tool["parameters"],
            blocking=False,
            **declared,
        )
        yield row, await hr.Runtime([stub]).call(tool["name"], row["arguments"]), ran


def run(of, **declared):
    async def main():
        return [each async for each in outcomes(of, **declared)]

    return asyncio.run(main())


def equal(one, other):
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "number_as_string"])
def test_a_broken_call_runs_nothing_and_the_model_reads_which_field(kind, effect):
    for row, result, ran in run(
        [row for row in ROWS if row["kind"] == kind], effect=effect
    ):
        assert (result.ok, ran, result.attempts) == (False, [], 0), row["id"]
        assert result.failure.code == Code.INVALID_ARGUMENTS
        assert row["parameter"].split(".")[-1] in result.text, (row["id"], result.text)


def test_a_number_written_as_text_is_what_was_meant_and_said_to_be():
    for row, result, ran in run(
        [row for row in ROWS if row["kind"] == "number_as_string"], effect="read"
    ):
        assert (
            result.ok and len(ran) == 1 and equal(ran[0], row["intended_arguments"])
        ), (row["id"], result.text)
        assert result.repairs and "repaired" in result.note


def test_a_number_written_as_text_is_refused_where_nothing_is_converted():
    for row in ROWS:
        if row["kind"] == "number_as_string":
            checker = Checker(row["tool"]["parameters"], coerce=False)
            assert isinstance(checker.check(row["arguments"]), hr.Failure), row["id"]


def test_the_unbroken_call_runs_as_it_is():
    meant = [{**row, "arguments": row["intended_arguments"]} for row in ROWS]
    for row, result, ran in run(meant, effect="write"):
        assert (
            result.ok and equal(ran, [row["intended_arguments"]]) and not result.repairs
        ), (row["id"], result.text)
