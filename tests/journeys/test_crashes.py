"""Processes are killed with SIGKILL between any two steps of a write, and others go on: never a second effect.

The table of promises is `effects_wanted` and `ends_in_doubt` of `handrail.testing.crashes`; here it is held on both
stores that survive, for a call from elsewhere, for two calls of one turn, and for runs.
"""

import json
import os
import signal
from dataclasses import dataclass
from functools import partial
from secrets import token_hex

import pytest

import handrail as hr
from handrail.testing import ScriptedModel, call
from handrail.testing.crashes import (
    Boundary,
    Moment,
    effects_wanted,
    ends_in_doubt,
    run_in_child,
    start,
    start_and_kill,
)
from tests.journeys.worlds import CLASSES, Far, tool
from tests.support.drivers import chat_message
from tests.support.effort import volume


@pytest.fixture
def far(tmp_path):
    return Far(tmp_path / "far")


# ---------------------------------------------------------------------- what is begun, and how it is gone on with


def one_call(runtime, name, run_id, **_):
    return told(
        runtime, run_id, [runtime.call(name, {"title": f"{run_id}-a"}, run=run_id)]
    )


def one_batch(runtime, name, run_id, **_):
    message = chat_message(
        call(name, title=f"{run_id}-a"), call(name, title=f"{run_id}-b")
    )
    answers = runtime.handle(message, run=run_id)
    return told(runtime, run_id, [], [answer["content"] for answer in answers])


def one_run(runtime, name, run_id, resume):
    model = ScriptedModel(
        [
            [call("look"), call(name, title=f"{run_id}-a")],
            call(name, title=f"{run_id}-b"),
            "Two tickets.",
        ]
    )
    run = (
        runtime.resume(run_id, model=model)
        if resume
        else runtime.run("Go on.", model=model, run_id=run_id)
    )
    assert run.ok, run
    results = [
        message.result
        for message in run.messages
        if isinstance(message, hr.ToolMessage)
    ]
    return told(runtime, run_id, [result for result in results if result.name == name])


def told(runtime, run_id, results, texts=()):
    """What the model was told, and what the ledger holds of this run."""
    writes = runtime.store.list_writes(run_id=run_id).result(10)
    return {
        "told": [*(result.text for result in results), *texts],
        "ledger": sorted(write.state for write in writes),
    }


@dataclass(frozen=True)
class Way:
    """How writes come to handrail, and which of them is killed; None where it cannot be said which one.

    A call from elsewhere is known again in another process by a key of its tool's own; in a run its place will do.
    """

    deed: object
    titles: str
    nth: int = 1
    hits: str | None = "a"
    journal: bool = False


WAYS = {
    "call": Way(one_call, "a"),
    "batch-first": Way(one_batch, "ab", hits=None),
    "batch-second": Way(one_batch, "ab", nth=2, hits=None),
    "run-first": Way(one_run, "ab", journal=True),
    "run-second": Way(one_run, "ab", nth=2, hits="b", journal=True),
}
BOUNDARIES = [*Boundary]


def is_tried_in_each_run(store, name, boundary, replay):
    """Whether a case is the first to show something: every place in one way, and every way and place on each store."""
    turn = [*WAYS].index(name) + BOUNDARIES.index(boundary)
    is_next = replay == CLASSES[turn % len(CLASSES)]
    return is_next or (store, name) == ("sqlite", "run-first")


CELLS = [
    pytest.param(
        *(store, way, boundary, replay),
        id=f"{store}-{name}-{boundary.value.replace(' ', '-')}-{replay}",
        marks=[] if is_tried_in_each_run(store, name, boundary, replay) else volume,
    )
    for store in ("sqlite", "postgres")
    for name, way in WAYS.items()
    for boundary in BOUNDARIES
    for replay in CLASSES
    if way.journal or boundary is not Boundary.AFTER_JOURNAL
]


@pytest.mark.parametrize(
    ("store", "way", "boundary", "replay"), CELLS, indirect=["store"]
)
def test_a_write_that_died_happens_once_or_is_in_doubt(
    store, far, way, boundary, replay
):
    key = {} if way.journal else {"key": "{title}"}
    tools = [
        tool(far, replay, **key),
        hr.FunctionTool(
            lambda: "fine", name="look", parameters={"type": "object"}, effect="read"
        ),
    ]
    run_id = f"r_{token_hex(6)}"
    deed = partial(way.deed, name=f"open_{replay}", run_id=run_id)
    start_and_kill(
        partial(deed, resume=False),
        tools,
        store=store,
        moment=Moment(boundary, way.nth),
    )  # or NotReached is raised
    survived = run_in_child(partial(deed, resume=True), tools, store=store)

    assert len(survived["told"]) == len(way.titles)  # every call has its one result
    outcomes = {
        title: (far.happened(f"{run_id}-{title}"), doubtful(text))
        for title, text in zip(way.titles, survived["told"], strict=True)
    }
    wanted = effects_wanted(replay, boundary), ends_in_doubt(replay, boundary)
    possible = {(1, False), wanted} | (
        {(0, True), (1, True)} if replay == "none" and way.hits is None else set()
    )
    assert set(outcomes.values()) <= possible
    assert wanted in ([outcomes[way.hits]] if way.hits else outcomes.values())
    in_doubt = sum(doubt for _, doubt in outcomes.values())
    assert (
        survived["ledger"]
        == ["done"] * (len(outcomes) - in_doubt) + ["in_doubt"] * in_doubt
    )


def doubtful(text):
    """Whether the model was told that nobody knows; else it must have been told that it happened."""
    if text.startswith("{"):
        failed = json.loads(text)
        if failed.get("error_code") == "IN_DOUBT":
            return True
    assert "opened" in text, text
    return False


# ---------------------------------------------------------------------- what is in doubt


def in_doubt(store, far, boundary):
    """Let a write of class `none` die, and return its deed with the tools."""
    tools = [tool(far, "none", key="{title}")]
    deed = partial(one_call, name="open_none", run_id=f"r_{token_hex(6)}")
    start_and_kill(deed, tools, store=store, moment=Moment(boundary))
    return deed, tools


def test_a_write_in_doubt_stays_so_however_often_it_is_asked_for(store, far):
    deed, tools = in_doubt(store, far, Boundary.AFTER_EFFECT)
    for _ in range(3):
        assert doubtful(run_in_child(deed, tools, store=store)["told"][0])
    assert len(far.lines("asked")) == 1


# ---------------------------------------------------------------------- a worker that freezes


def frozen_and_replaced(deed, successor, tools, store, boundary):
    """Freeze a process at a boundary, let another one take over, thaw the first; return what both had to say."""
    frozen = start(deed, tools, store=store, moment=Moment(boundary, by=signal.SIGSTOP))
    try:
        frozen.wait_for_boundary()
        os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
        after = run_in_child(successor, tools, store=store)
        os.kill(frozen.pid, signal.SIGCONT)
        return frozen.result(), after
    finally:
        frozen.end()


def test_a_run_whose_driver_froze_is_finished_by_another_and_the_first_leaves_quietly(
    store, far
):
    run_id = f"r_{token_hex(6)}"
    model = ScriptedModel(
        [call("open_key", title="a"), call("open_key", title="b"), "Two tickets."]
    )
    begin = partial(run_status, verb="run", on="Go on.", run_id=run_id, model=model)
    go_on = partial(run_status, verb="resume", on=run_id, model=model, anyway=True)
    frozen, after = frozen_and_replaced(
        begin, go_on, [tool(far, "key")], store, Boundary.AFTER_EFFECT
    )
    assert (frozen, after) == ("moved", "done")
    assert (far.happened("a"), far.happened("b")) == (1, 1)


def run_status(runtime, verb, on, **how):
    return getattr(runtime, verb)(on, **how).status
