"""Real malformed arguments at the effect itself: a tool that reads and one that writes, both of which take anything."""

import asyncio
import json

import pytest

import handrail as hr
from handrail.errors import Code
from handrail.parsing.jsontext import REPAIRS
from tests.support.corpus import rows

MAY_WRITE = {
    "accept_unchanged",
    "repair_to_intended",
    "repair_by_schema",
    "contested",
    "collapse_to_one_call_allowed",
}
GUESSES = {name for name, repair in REPAIRS.items() if not repair.lossless}
ROWS = rows("malformed/arguments.jsonl")
ANYTHING = {"type": "object"}


def carried(effect, row, finish="calls"):
    """Let a model say the row's text as a call's arguments; return what the tool got, call by call, and the results."""
    got = []
    tool = hr.FunctionTool(
        lambda **arguments: got.append(arguments),
        name="work",
        parameters=ANYTHING,
        effect=effect,
        blocking=False,
    )
    said = hr.Turn(calls=[hr.ToolCall("c1", "work", row["raw"])], finish=finish)
    script = hr.testing.ScriptedModel([said, "done"])

    async def main():
        return await hr.Runtime([tool]).run("?", model=script)

    run = asyncio.run(main())
    assert run.status == "done"
    results = [
        message.result
        for message in run.messages
        if isinstance(message, hr.ToolMessage)
    ]
    assert [call.id for call in run.messages[1].turn.calls] == [
        result.call_id for result in results
    ]
    for call in run.messages[1].turn.calls:
        # what goes back is an object always
        assert isinstance(json.loads(call.arguments), dict)
    return got, results


def same(one, other):
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def of(policy):
    return [row for row in ROWS if row["policy"].startswith(policy)]


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize(
    "policy", ["must_not_execute_as_complete", "must_reject", "not_an_object"]
)
def test_what_is_no_complete_object_runs_nothing(policy, effect):
    for row in of(policy):
        got, results = carried(effect, row)
        if not row["raw"].strip():
            assert got in ([], [{}])  # nothing was written where nothing is wanted
        else:
            assert got == [], row["id"]
            assert all(not result.ok for result in results)


@pytest.mark.parametrize("effect", ["read", "write"])
def test_nothing_runs_from_an_answer_that_was_cut(effect):
    for row in ROWS:
        got, (result,) = carried(effect, row, finish="length")
        assert (got, result.failure.code) == ([], Code.TRUNCATED_CALL), row["id"]


def test_a_read_runs_what_was_meant_or_says_what_was_guessed():
    for row in ROWS:
        got, results = carried("read", row)
        for arguments, result in zip(
            got, (result for result in results if result.ok), strict=True
        ):
            if not result.repairs:
                # several: taken apart
                assert len(got) > 1 or same(arguments, json.loads(row["raw"])), row[
                    "id"
                ]
            elif row["raw"].strip() and not GUESSES & set(result.repairs):
                assert same(arguments, row["intended"]), row["id"]
            assert not result.repairs or "repaired" in result.note


def test_a_write_runs_only_what_was_certainly_meant():
    for row in ROWS:
        got, (result,) = carried("write", row)
        assert len(got) <= 1
        assert not GUESSES & set(result.repairs), row["id"]
        if got and row["raw"].strip():
            # Strict JSON runs as it stands: what it should have been only a schema can tell; this one wants nothing.
            assert same(
                got[0], row["intended"] if result.repairs else json.loads(row["raw"])
            ), row["id"]
            assert row["policy"].split(":")[0] in MAY_WRITE, row["id"]


def test_what_can_be_repaired_without_loss_is_and_is_said_to_be():
    for row in of("repair_to_intended"):
        got, (result,) = carried("read", row)
        assert len(got) == 1 and same(got[0], row["intended"]), row["id"]
        assert result.repairs


def test_what_needs_no_repair_runs_as_it_is_without_a_word():
    for row in of("accept_unchanged"):
        if isinstance(row["intended"], dict):
            for effect in ("read", "write"):
                got, (result,) = carried(effect, row)
                assert (
                    same(got, [row["intended"]])
                    and not result.repairs
                    and not result.note
                ), row["id"]


def test_of_glued_calls_a_read_runs_each_and_a_write_none():
    for row in of("never_pick_silently"):
        assert carried("write", row)[0] == []
        got, _ = carried("read", row)
        assert got == [] or same(got, row["intended"]), row["id"]
