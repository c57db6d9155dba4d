"""Long conversations over stateful tools: every right call runs once, in order, with the tools that there are then."""

import asyncio
import json

import pytest

import handrail as hr
from handrail.stores.memory import MemoryStore
from handrail.testing import ScriptedModel
from tests.support.corpus import rows

ROWS = rows("bfcl/multi_turn.jsonl.gz")
DOCS = rows("bfcl/multi_turn_api_docs.json")
ANYTHING = hr.Policy(ask_from=None, provenance="off")
"""Nobody is asked, also about what a schema describes and nobody has declared."""
CATEGORIES = sorted({row["category"] for row in ROWS})


class CountingStore(MemoryStore):
    """Counts the writes that were settled as done."""

    done = 0

    def settle(self, settle):
        self.done += settle.state == "done"
        return super().settle(settle)


class World:
    """Stub tools of a row, which log what they are called with. They declare no effect, so all count as writes."""

    def __init__(self, row):
        self.row, self.log = row, []
        self.late = {
            name: int(turn)
            for turn, names in (row["missed_function"] or {}).items()
            for name in names
        }
        self.tools = hr.Toolset(self.stubs(lambda name: name not in self.late))

    def stubs(self, wanted):
        """All calls of a class change its one object: they touch the same resource, and are meant when made twice."""
        for each_class in self.row["involved_classes"]:
            for each in DOCS[each_class]:
                if each["name"] not in self.row["excluded_function"] and wanted(
                    each["name"]
                ):
                    yield hr.FunctionTool(
                        self.stub(each["name"]),
                        name=each["name"],
                        description=each["description"],
                        parameters=each["parameters"],
                        resource="world",
                        write=hr.Write(repeatable=True),
                        blocking=False,
                    )

    def stub(self, name):
        def fn(**arguments):
            self.log.append((name, arguments))
            return {"step": len(self.log)}

        return fn

    def begin_turn(self, turn):
        """Add the tools that the conversation lacked until now."""
        self.tools.add(*self.stubs(lambda name: self.late.get(name) == turn))


def replayed(row, together):
    """Replay a row: the model makes a turn's calls one by one, or all at once.

    Returns:
        The world, the ledger, what the model was asked, and the results.
    """
    world, store = World(row), CountingStore()
    script = []
    for n, gold in enumerate(row["gold_turns"]):
        calls = [
            hr.ToolCall(f"c{n}_{place}", call["name"], json.dumps(call["arguments"]))
            for place, call in enumerate(gold)
        ]
        script += ([calls] if calls else []) if together else [[call] for call in calls]
        script.append(f"end of turn {n}")
    model = ScriptedModel(script)

    async def main():
        messages = []
        async with hr.Runtime(
            world.tools, store=store, selector="all", policy=ANYTHING
        ) as runtime:
            for n, said in enumerate(row["turns"]):
                world.begin_turn(n)
                asked = hr.UserMessage(
                    said[-1]["content"] if said else "There are more tools now."
                )
                run = await runtime.run([*messages, asked], model=model)
                assert (run.status, run.text) == ("done", f"end of turn {n}")
                messages = run.messages
        return [
            message.result
            for message in messages
            if isinstance(message, hr.ToolMessage)
        ]

    return world, store, model.requests, asyncio.run(main())


def gold_calls(row):
    return [call for turn in row["gold_turns"] for call in turn]


def exact(called):
    return [(name, json.dumps(arguments, sort_keys=True)) for name, arguments in called]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "all at once"])
@pytest.mark.parametrize("category", CATEGORIES)
def test_every_right_call_runs_once_in_order(category, together):
    for row in (row for row in ROWS if row["category"] == category):
        world, store, _, results = replayed(row, together)
        gold = gold_calls(row)
        fits = [
            (call["name"], call["arguments"])
            for call in gold
            if "schema_error" not in call
        ]
        assert exact(world.log) == exact(fits), row["id"]
        assert [result.ok for result in results] == [
            "schema_error" not in call for call in gold
        ], row["id"]
        assert store.done == len(fits)


def test_a_replay_gives_the_same_log():
    for row in ROWS[::7]:
        first, second = (replayed(row, True) for _ in range(2))
        assert (first[0].log, [result.text for result in first[3]]) == (
            second[0].log, [result.text for result in second[3]]
        )  # fmt: skip


def test_a_missing_tool_is_shown_from_the_turn_on_in_which_it_is_added():
    for row in (row for row in ROWS if row["missed_function"]):
        world, _, requests, _ = replayed(row, True)
        for request in requests:
            turn = (
                sum(isinstance(message, hr.UserMessage) for message in request.messages)
                - 1
            )
            shown = {tool.name for tool in request.tools}
            assert {name for name in world.late if name in shown} == {
                name for name, since in world.late.items() if since <= turn
            }, row["id"]
