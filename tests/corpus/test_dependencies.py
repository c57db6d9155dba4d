"""Real sequences of calls that use each other's results: planned as given, and nothing starts before what it needs."""

import asyncio
import json
import re

import pytest

import handrail as hr
from handrail.testing import ScriptedModel
from tests.support.corpus import rows

MARK = re.compile(r"\$(var\d+)(?:\.([^$]+))?\$")
ROWS = rows("dependencies/nestful_sequences.jsonl")


def labels(row):
    return [call["label"] for call in row["calls"] if "label" in call]


TWICE = [row for row in ROWS if len(set(labels(row))) < len(labels(row))]
ONCE = [row for row in ROWS if row not in TWICE]
ANYTHING = {"type": "object"}


def labelled(row):
    """The calls under the labels of the data set; the last one may have none."""
    return [
        hr.ToolCall(
            call.get("label", "last"), call["name"], json.dumps(call["arguments"])
        )
        for call in row["calls"]
    ]


def numbered(row):
    """The calls under ids as a provider makes them: a label then is a place in the turn."""
    return [
        hr.ToolCall(f"call_{n:08x}", call["name"], json.dumps(call["arguments"]))
        for n, call in enumerate(row["calls"])
    ]


def pointing(row):
    """The calls as a model writes them that was taught `{"$call": id, "path": pointer}`."""
    ids = {call.get("label"): f"call_{n}" for n, call in enumerate(row["calls"])}

    def taught(label, path, whole):
        if not whole:
            return f"${label}.{path}$"  # within a text only a mark can stand
        return (
            {"$call": ids[label], "path": "/" + "/".join(steps(path))}
            if path
            else {"$call": ids[label]}
        )

    return [
        hr.ToolCall(
            f"call_{n}", call["name"], json.dumps(with_marks(call["arguments"], taught))
        )
        for n, call in enumerate(row["calls"])
    ]


SPELLINGS = (labelled, numbered, pointing)


def with_marks(value, put):
    """The arguments with every mark replaced by `put(label, path, whether it is the whole text)`."""
    if isinstance(value, str):
        if whole := MARK.fullmatch(value):
            return put(whole[1], whole[2] or "", True)
        return MARK.sub(lambda found: put(found[1], found[2] or "", False), value)
    if isinstance(value, dict):
        return {name: with_marks(each, put) for name, each in value.items()}
    return (
        [with_marks(each, put) for each in value] if isinstance(value, list) else value
    )


def results_for(row):
    """For each label a result in which every path that the row follows leads to a text of its own."""
    results = {label: {} for label in labels(row)}

    def prepare(label, path, whole):
        at = results[label]
        for step in steps(path)[:-1]:
            at = at.setdefault(step, {})
        for step in steps(path)[-1:]:
            at.setdefault(step, f"{label}.{path}")
        return ""

    for call in row["calls"]:
        with_marks(call["arguments"], prepare)
    return with_lists(results)


def steps(path):
    """`movies[0].title` goes by movies, 0, title."""
    return re.findall(r"[^.\[\]]+", path)


def with_lists(value):
    """An object whose names are all numbers is a list."""
    if not isinstance(value, dict):
        return value
    inner = {name: with_lists(each) for name, each in value.items()}
    return (
        list(inner.values())
        if inner and all(name.isdigit() for name in inner)
        else inner
    )


def planned(row, spelling):
    """What the calls depend on and their waves, by place."""
    calls = spelling(row)
    plan = hr.planning.plan(
        calls, [stub(name) for name in sorted({call.name for call in calls})]
    )
    place = {call.id: n for n, call in enumerate(calls)}
    depends_on = [
        sorted(place[other] for other in plan.depends_on[call.id]) for call in calls
    ]
    return depends_on, [sorted(place[each] for each in wave) for wave in plan.waves]


def stub(name, fn=lambda **_: None):
    return hr.FunctionTool(
        fn,
        name=name,
        parameters=ANYTHING,
        effect="read",
        sends=hr.Sends(inline_references=True),
    )


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_sequence_is_planned_as_given(spelling):
    wrong = [
        row["id"]
        for row in ONCE
        if planned(row, spelling) != (row["depends_on"], row["waves"])
    ]
    assert (wrong, len(ONCE)) == ([], 136)


def test_a_label_given_twice_means_its_nearest_earlier_call():
    (row,) = TWICE
    calls = labelled(row)
    plan = hr.planning.plan(
        calls, [stub(name) for name in sorted({call.name for call in calls})]
    )
    assert [sorted(waits) for waits in plan.waits_for] == row["depends_on"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_nothing_starts_before_what_it_needs_and_each_call_gets_the_real_values(
    spelling,
):
    for row in ONCE:
        begun, ended, got, results = [], set(), {}, results_for(row)

        async def work(
            n, arguments, row=row, begun=begun, ended=ended, got=got, results=results
        ):
            begun.append(n)
            assert set(row["depends_on"][n]) <= ended
            await asyncio.sleep(0)
            got[n] = arguments
            ended.add(n)
            return results.get(row["calls"][n].get("label"))

        run = carried(spelling(row), work)
        assert sorted(begun) == list(range(len(row["calls"]))), (
            row["id"],
            run.transcript(debug=True),
        )

        def meant(label, path, whole, results=results):
            found = results[label]
            for step in steps(path):
                found = found[int(step) if isinstance(found, list) else step]
            return found

        for n, call in enumerate(row["calls"]):
            assert got[n] == with_marks(call["arguments"], meant), row["id"]


def carried(calls, work):
    """Let a model make these calls; `work` gets the place of each and its arguments."""
    events = []

    def worker(name):
        """A tool of a name may be called several times, with the same arguments too: the latest start says which."""

        async def fn(**arguments):
            started = [
                event.call.id
                for event in events
                if type(event).__name__ == "CallAdmitted"
            ]
            n = next(
                n
                for n, call in enumerate(calls)
                if call.id in started and call.name == name and n not in taken
            )
            taken.add(n)
            return await work(n, arguments)

        return stub(name, fn)

    taken = set()

    async def main():
        tools = [worker(name) for name in sorted({call.name for call in calls})]
        async with hr.Runtime(tools, observers=[events.append]) as runtime:
            return await runtime.run("?", model=ScriptedModel([calls, "done"]))

    run = asyncio.run(main())
    assert run.status == "done"
    return run
