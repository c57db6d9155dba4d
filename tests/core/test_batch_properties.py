"""Laws of carrying: whatever tools do, and whenever a run is cancelled, every call has its one, true result."""

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import handrail as hr
from handrail.effects import ClaimState
from handrail.errors import Code
from handrail.messages import AssistantMessage, ToolMessage
from handrail.stores.memory import MemoryStore
from handrail.testing import ScriptedModel
from tests.support.drivers import BOUND_S, KINDS, Driver, until

TIMEOUT_S = 0.02


@dataclass(frozen=True)
class Behaviour:
    """What one call's tool does: steps, and an ending."""

    steps: tuple[str, ...]
    ending: str
    how: str
    writes: bool

    @property
    def tool(self):
        return f"{'write' if self.writes else 'read'}_in_{self.how}"


@st.composite
def behaviours(draw):
    steps = tuple(draw(st.lists(st.sampled_from(["act", "pause", "hang"]), max_size=3)))
    endings = ["return", "raise", "refuse", "exit", "reset"] + (
        [] if "act" in steps else ["no_effect"]
    )
    how = draw(st.sampled_from(["task", "thread", "place"]))
    # In place nothing may hang: that is what `blocking=False` promises.
    steps = tuple(step for step in steps if step == "act") if how == "place" else steps
    return Behaviour(steps, draw(st.sampled_from(endings)), how, draw(st.booleans()))


class World:
    """What the calls' tools did, seen from outside, and what the ledger says of it."""

    def __init__(self, plan):
        self.plan, self.acts = plan, Counter()

    def end(self, n):
        match self.plan[n].ending:
            case "raise":
                raise ValueError("db password=hunter2")
            case "refuse":
                raise hr.ToolError("REFUSED", "no")
            case "exit":
                raise SystemExit(1)
            case "reset":
                raise ConnectionResetError
            case "no_effect":
                raise hr.NoEffect("NOTHING", "nothing happened")
        return n

    async def task(self, context: hr.Context[None], n: int) -> int:
        for step in self.plan[n].steps:
            if step == "act":
                self.acts[n] += 1
            else:
                await asyncio.sleep(0 if step == "pause" else BOUND_S)
        return self.end(n)

    def thread(self, context: hr.Context[None], n: int) -> int:
        for step in self.plan[n].steps:
            if step == "act":
                self.acts[n] += 1
            elif step == "hang":
                assert context.cancelled.wait(BOUND_S)
        return self.end(n)

    def tools(self):
        for writes in (False, True):
            for how in ("task", "thread", "place"):
                effect, name = (
                    ("write", f"write_in_{how}")
                    if writes
                    else ("read", f"read_in_{how}")
                )
                fn = self.task if how == "task" else self.thread
                more = (
                    {"key": f"act:{how}:{{n}}"}
                    if writes
                    else {"write": hr.Write(repeatable=True)}
                )
                yield hr.FunctionTool(
                    fn,
                    name=name,
                    effect=effect,
                    timeout_s=TIMEOUT_S,
                    blocking=how != "place",
                    **more,
                )


class Ledger(MemoryStore):
    """Remembers the last state of every claim."""

    def __init__(self):
        super().__init__()
        self.last = {}

    def claim(self, claim):
        claimed = super().claim(claim)
        if claimed.state in (ClaimState.FRESH, ClaimState.AGAIN):
            self.last[claim.key] = "claimed"
        return claimed

    def settle(self, settle):
        if super().settle(settle):
            self.last[settle.key] = settle.state
            return True
        return False


def carried(kind, plan, cancel_at):
    """Run a turn with these calls; return the world, the results and the ledger when all is quiet."""
    world, ledger, seen = World(plan), Ledger(), []

    def observer(event):
        seen.append(event)
        if len(seen) == cancel_at:
            driver.runtime.cancel("r")

    driver = Driver(
        kind,
        world.tools(),
        {"store": ledger, "observers": [observer], "backoff": hr.Backoff(0.001, 0.001)},
    )
    try:
        calls = [
            hr.ToolCall(f"c{n}", each.tool, f'{{"n": {n}}}')
            for n, each in enumerate(plan)
        ]
        run = driver.run("?", model=ScriptedModel([calls, "done"]), run_id="r")
        until(
            lambda: not driver.runtime._engine.services.given_up and not driver.tasks()
        )
    finally:
        driver.close()
    return (
        world,
        run,
        [
            message.result
            for message in run.messages
            if isinstance(message, ToolMessage)
        ],
        ledger,
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=st.lists(behaviours(), min_size=1, max_size=6),
    cancel_at=st.none() | st.integers(1, 25),
)
def test_every_call_has_one_result_and_the_ledger_tells_the_truth(
    kind, plan, cancel_at
):
    world, run, results, ledger = carried(kind, plan, cancel_at)
    assert run.status in ("done", "cancelled")
    # A run that is cancelled before it has begun the calls keeps neither them nor results of them.
    asked = [
        call.id
        for message in run.messages
        if isinstance(message, AssistantMessage)
        for call in message.turn.calls
    ]
    assert [result.call_id for result in results] == asked
    assert run.status == "cancelled" or len(asked) == len(plan)
    assert "hunter2" not in run.transcript(debug=True)
    for n, (behaviour, result) in enumerate(zip(plan, results, strict=False)):
        acted, state = world.acts[n], ledger.last.get(f"act:{behaviour.how}:{n}")
        if not behaviour.writes:
            assert state is None
            continue
        assert acted <= behaviour.steps.count("act")  # begun once at most
        assert state != "claimed"  # nothing is left open
        if state in (None, "failed"):
            assert not acted
        if result.ok:
            assert state == "done"
        elif result.failure.code in (Code.TIMEOUT, Code.CANCELLED):
            # not started; or it told of its end later
            assert not acted or state == "done"
