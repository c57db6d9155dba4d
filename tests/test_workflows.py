"""Workflows: a function of the user's makes the steps, and they survive whatever becomes of its process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import handrail as hr
from handrail.errors import ConfigError, JournalMismatch, StoreUnavailable
from handrail.stores.memory_runs import FullMemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import Overlap, ScriptedApprover, ScriptedModel, call
from tests.engine.test_resume import Died, MortalStore, on  # noqa: F401  # `on` is a fixture
from tests.support.drivers import KINDS

KIND = '{"kind": "disk"}'
FORM = {
    "type": "object",
    "properties": {"kind": {"type": "string"}},
    "required": ["kind"],
}


class Desk:
    """Tickets and pages, in a world outside, and the workflow over them in the form that each driver takes."""

    def __init__(self, approve=False):
        self.looks, self.pages = 0, []
        self.tools = [
            hr.FunctionTool(self.get_ticket, effect="read", blocking=False),
            hr.FunctionTool(
                self.page, effect="write", replay="key", approve=approve, blocking=False
            ),
        ]

    def get_ticket(self, id: str) -> dict:
        """Get a ticket. It says something else each time."""
        self.looks += 1
        return {"id": id, "look": self.looks}

    def page(self, text: str, context: hr.Context) -> str:
        """Page somebody. The far side knows a key again."""
        if (context.idempotency_key, text) not in self.pages:
            self.pages.append((context.idempotency_key, text))
        return f"paged: {text}"


async def triage(flow, ticket):
    first = await flow.call("get_ticket", {"id": ticket})
    kind = await flow.run(f"Which kind? {first.text}", output=FORM)
    second = await flow.call(
        "page", {"text": f"{kind.output['kind']} {first.value['look']}"}
    )
    return {"kind": kind.output["kind"], "paged": second.value}


def triage_here(flow, ticket):
    first = flow.call("get_ticket", {"id": ticket})
    kind = flow.run(f"Which kind? {first.text}", output=FORM)
    second = flow.call("page", {"text": f"{kind.output['kind']} {first.value['look']}"})
    return {"kind": kind.output["kind"], "paged": second.value}


triage_here.__name__ = "triage"
TRIAGE = {"asyncio": triage, "sync": triage_here}
TOLD = {"kind": "disk", "paged": "paged: disk 1"}


@pytest.fixture(params=KINDS)
def flows(request):
    """A function that opens a runtime on a store, drives a workflow, and closes it; `both` gives its two forms."""

    def drive(
        store, tools, both, arguments=None, run_id="w_1", model=None, made=None, **how
    ):
        made, model = made or {}, model or ScriptedModel([KIND])
        fn = both[request.param]
        if request.param == "sync":
            with hr.SyncRuntime(tools, store=store, **made) as runtime:
                return runtime.workflow(
                    fn, arguments, run_id=run_id, model=model, **how
                )

        async def main():
            async with hr.Runtime(tools, store=store, **made) as runtime:
                return await runtime.workflow(
                    fn, arguments, run_id=run_id, model=model, **how
                )

        return asyncio.run(main())

    return drive


def test_a_workflow_returns_what_its_function_returns(flows):
    desk = Desk()
    run = flows(MortalStore(), desk.tools, TRIAGE, {"ticket": "T-1"})
    assert (run.status, run.output) == ("done", TOLD)
    assert run.text == '{"kind":"disk","paged":"paged: disk 1"}'


def test_it_needs_no_store_that_keeps_runs(flows):
    assert flows("memory:", Desk().tools, TRIAGE, {"ticket": "T-1"}).output == TOLD


def test_a_workflow_that_dies_before_or_after_any_step_is_gone_on_with_and_pages_once(
    flows,
):
    store, desk = MortalStore(), Desk()
    flows(store, desk.tools, TRIAGE, {"ticket": "T-1"})
    steps = store.count
    # two runs begun, an entry for each of three steps and each end, claim and settle
    assert steps >= 9
    for at in range(1, steps + 1):
        for after in (False, True):
            store, desk = MortalStore(), Desk()
            store.dies_at, store.after = at, after
            with pytest.raises(Died):
                flows(store, desk.tools, TRIAGE, {"ticket": "T-1"})
            store.dies_at = None
            run = flows(store, desk.tools, TRIAGE, {"ticket": "T-1"})
            assert run.status == "done" and len(desk.pages) == 1, (at, after)
            assert run.output["paged"] == f"paged: {desk.pages[0][1]}"


def test_what_has_happened_is_not_done_again_and_no_model_asked_twice(flows):
    store, desk, model = MortalStore(), Desk(), ScriptedModel([KIND])
    for _ in range(2):
        assert (
            flows(store, desk.tools, TRIAGE, {"ticket": "T-1"}, model=model).output
            == TOLD
        )
    assert (desk.looks, len(desk.pages), len(model.requests)) == (1, 1, 1)


def test_a_step_that_waits_for_a_person_leaves_the_function_and_is_gone_on_with(flows):
    store, desk = MortalStore(), Desk(approve=True)
    run = flows(store, desk.tools, TRIAGE, {"ticket": "T-1"})
    assert (run.status, run.reason, run.output) == (
        "waiting",
        "waiting for approval of page",
        None,
    )
    run = flows(store, desk.tools, TRIAGE, made={"approver": ScriptedApprover([True])})
    assert (run.status, run.output, desk.looks) == ("done", TOLD, 1)


@pytest.mark.parametrize("moment", ["load_run", "append_entry"])
def test_a_workflow_that_is_cancelled_while_it_is_resumed_does_not_wait_again(
    flows, moment
):
    class CancelledMeanwhile(FullMemoryStore):
        """A store in which somebody else cancels the workflow around one of its answers."""

        moment = ""

        def load_run(self, run_id):
            stored = super().load_run(run_id)
            if self.moment == "load_run":
                assert self.request_cancel("w_1")
            return stored

        def append_entry(self, entry):
            if self.moment == "append_entry" and entry.status == "waiting":
                assert self.request_cancel("w_1")
            return super().append_entry(entry)

    store, desk = CancelledMeanwhile(), Desk(approve=True)
    assert flows(store, desk.tools, TRIAGE, {"ticket": "T-1"}).status == "waiting"
    store.moment = moment
    run = flows(store, desk.tools, TRIAGE)
    store.moment = ""
    stored = store.load_run("w_1").record
    assert (run.status, stored.status, desk.pages) == ("cancelled", "cancelled", [])
    assert stored.result["status"] == "cancelled"


def test_a_run_of_a_model_that_waits_leaves_it_too(flows):
    async def ask(flow):
        return (await flow.run("Page.")).text

    def ask_here(flow):
        return flow.run("Page.").text

    store, desk, model = (
        MortalStore(),
        Desk(approve=True),
        ScriptedModel([call("page", text="x"), "Paged."]),
    )
    both = {"asyncio": ask, "sync": ask_here}
    ask_here.__name__ = "ask"
    run = flows(store, desk.tools, both, model=model)
    assert (run.status, run.reason) == (
        "waiting",
        "its run w_1.1: waiting for approval of page",
    )
    run = flows(
        store,
        desk.tools,
        both,
        model=model,
        made={"approver": ScriptedApprover([True])},
    )
    assert (run.status, run.text, len(desk.pages)) == ("done", "Paged.", 1)


def test_leaving_is_no_exception_that_the_function_would_catch(flows):
    async def careful(flow):
        try:
            await flow.call("page", {"text": "x"})
        except Exception:
            return "swallowed"

    def careful_here(flow):
        try:
            flow.call("page", {"text": "x"})
        except Exception:
            return "swallowed"

    desk = Desk(approve=True)
    assert (
        flows(
            MortalStore(), desk.tools, {"asyncio": careful, "sync": careful_here}
        ).status
        == "waiting"
    )


def test_what_the_function_raises_is_raised_and_the_workflow_can_be_gone_on_with(flows):
    broken = [True]

    async def shaky(flow):
        first = await flow.call("get_ticket", {"id": "T"})
        if broken[0]:
            raise ValueError("a secret")
        return first.value

    def shaky_here(flow):
        first = flow.call("get_ticket", {"id": "T"})
        if broken[0]:
            raise ValueError("a secret")
        return first.value

    both, store, desk = {"asyncio": shaky, "sync": shaky_here}, MortalStore(), Desk()
    shaky_here.__name__ = "shaky"
    with pytest.raises(ValueError, match="a secret"):
        flows(store, desk.tools, both)
    kept = store.load_run("w_1").record
    assert (kept.status, kept.result["reason"]) == (
        "failed",
        "its function raised ValueError",
    )
    broken[0] = False
    assert (flows(store, desk.tools, both).output, desk.looks) == (
        {"id": "T", "look": 1},
        1,
    )


def test_a_failure_of_a_tool_is_a_result_and_raises_nothing(flows):
    async def wrong(flow):
        return (await flow.call("get_ticket", {"id": 7})).failure.code

    def wrong_here(flow):
        return flow.call("get_ticket", {"id": 7}).failure.code

    both = {"asyncio": wrong, "sync": wrong_here}
    assert flows(MortalStore(), Desk().tools, both).output == "INVALID_ARGUMENTS"


def test_a_function_that_makes_another_step_than_the_recorded_one_is_refused_before_it_runs(
    flows,
):
    names = ["get_ticket"]

    async def first(flow):
        return (
            await flow.call(
                names[0], {"id": "T"} if names[0] == "get_ticket" else {"text": "T"}
            )
        ).ok

    def first_here(flow):
        return flow.call(
            names[0], {"id": "T"} if names[0] == "get_ticket" else {"text": "T"}
        ).ok

    both, store, desk = {"asyncio": first, "sync": first_here}, MortalStore(), Desk()
    first_here.__name__ = "first"
    flows(store, desk.tools, both)
    names[0] = "page"
    with pytest.raises(
        JournalMismatch, match=r"step 1 .* was get_ticket.* and is now page"
    ):
        flows(store, desk.tools, both)
    assert desk.pages == []


@pytest.mark.parametrize("further", ["call", "run"])
def test_a_workflow_that_has_returned_is_told_again_and_does_no_more(flows, further):
    grown = [False]

    async def page(flow):
        await flow.call("page", {"text": "x"})
        if grown[0]:
            await (
                flow.call("page", {"text": "y"})
                if further == "call"
                else flow.run("Which?")
            )
        return "paged"

    def page_here(flow):
        flow.call("page", {"text": "x"})
        if grown[0]:
            _ = (
                flow.call("page", {"text": "y"})
                if further == "call"
                else flow.run("Which?")
            )
        return "paged"

    page_here.__name__ = "page"
    both, store, desk, model = (
        {"asyncio": page, "sync": page_here},
        MortalStore(),
        Desk(),
        ScriptedModel(["This."]),
    )
    assert flows(store, desk.tools, both, model=model).output == "paged"
    # from its journal
    assert flows(store, desk.tools, both, model=model).output == "paged"
    grown[0] = True
    with pytest.raises(JournalMismatch):
        flows(store, desk.tools, both, model=model)
    assert (len(desk.pages), len(model.requests)) == (1, 0)
    grown[0] = False
    # the refusal has changed nothing
    assert flows(store, desk.tools, both, model=model).output == "paged"


@pytest.mark.parametrize("first", ["call", "run"])
def test_a_call_in_place_of_a_recorded_run_and_a_run_in_place_of_a_recorded_call_are_refused(
    flows, first
):
    kinds = [first]

    async def step(flow):
        await (
            flow.call("page", {"text": "x"})
            if kinds[0] == "call"
            else flow.run("Which?")
        )
        raise RuntimeError("gone")

    def step_here(flow):
        _ = (
            flow.call("page", {"text": "x"})
            if kinds[0] == "call"
            else flow.run("Which?")
        )
        raise RuntimeError("gone")

    step_here.__name__ = "step"
    both, store, desk, model = (
        {"asyncio": step, "sync": step_here},
        MortalStore(),
        Desk(),
        ScriptedModel(["This."]),
    )
    with pytest.raises(RuntimeError):
        flows(store, desk.tools, both, model=model)
    done = len(desk.pages), len(model.requests)
    kinds[0] = {"call": "run", "run": "call"}[first]
    with pytest.raises(JournalMismatch, match="step 1 of workflow 'w_1' was "):
        flows(store, desk.tools, both, model=model)
    assert (len(desk.pages), len(model.requests)) == done


def test_what_stands_in_a_finally_is_no_step_while_the_workflow_leaves(flows):
    async def tidy(flow):
        try:
            await flow.call("page", {"text": "x"})
            await flow.call("get_ticket", {"id": "T"})
        finally:
            await flow.call("get_ticket", {"id": "the last"})

    def tidy_here(flow):
        try:
            flow.call("page", {"text": "x"})
            flow.call("get_ticket", {"id": "T"})
        finally:
            flow.call("get_ticket", {"id": "the last"})

    tidy_here.__name__ = "tidy"
    both, store, desk = (
        {"asyncio": tidy, "sync": tidy_here},
        MortalStore(),
        Desk(approve=True),
    )
    assert (flows(store, desk.tools, both).status, desk.looks) == ("waiting", 0)
    assert (
        flows(
            store, desk.tools, both, made={"approver": ScriptedApprover([True])}
        ).status
        == "done"
    )
    assert (len(desk.pages), desk.looks) == (1, 2)


def test_a_model_that_is_asked_something_else_than_was_recorded_is_refused(flows):
    said = ["Which?"]

    async def asks(flow):
        return (await flow.run(said[0])).text

    def asks_here(flow):
        return flow.run(said[0]).text

    both, store = {"asyncio": asks, "sync": asks_here}, MortalStore()
    asks_here.__name__ = "asks"
    flows(store, [], both, model=ScriptedModel(["This."]))
    said[0] = "Why?"
    with pytest.raises(JournalMismatch, match=r"w_1\.1' was asked something else"):
        flows(store, [], both, model=ScriptedModel(["That."]))


def test_a_run_that_another_process_has_begun_a_moment_ago_is_gone_on_with(flows):
    class Late(MortalStore):
        knows = True

        def load_run(self, run_id):
            known, self.knows = (
                self.knows or run_id != "w_1.1",
                self.knows or run_id == "w_1.1",
            )
            return super().load_run(run_id) if known else None

    died = [True]

    def told(run):
        if died[0]:
            raise RuntimeError("gone")
        return run.text

    async def asks(flow):
        return told(await flow.run("Which?"))

    def asks_here(flow):
        return told(flow.run("Which?"))

    asks_here.__name__ = "asks"
    both, store, model = (
        {"asyncio": asks, "sync": asks_here},
        Late(),
        ScriptedModel(["This."]),
    )
    with pytest.raises(RuntimeError):
        flows(store, [], both, model=model)
    died[0], store.knows = False, False
    assert (flows(store, [], both, model=model).output, len(model.requests)) == (
        "This.",
        1,
    )


def test_the_same_write_twice_is_meant_and_done_twice(flows):
    async def twice(flow):
        return [(await flow.call("page", {"text": "x"})).replayed for _ in range(2)]

    def twice_here(flow):
        return [flow.call("page", {"text": "x"}).replayed for _ in range(2)]

    desk = Desk()
    run = flows(MortalStore(), desk.tools, {"asyncio": twice, "sync": twice_here})
    assert (run.output, len(desk.pages)) == ([False, False], 2)


def test_a_name_that_is_another_runs_is_refused_and_that_run_is_left_alone(flows, on):
    store, desk = MortalStore(), Desk()
    on(
        store,
        desk.tools,
        "run",
        "Hello.",
        model=ScriptedModel(["Hello."]),
        run_id="w_1",
    )
    with pytest.raises(ConfigError, match="stored already, as a run of a model"):
        flows(store, desk.tools, TRIAGE, {"ticket": "T-1"})
    assert store.load_run("w_1").record.epoch == 1
    flows(store, desk.tools, TRIAGE, {"ticket": "T-1"}, run_id="w_2")
    with pytest.raises(ConfigError, match="other arguments"):
        flows(store, desk.tools, TRIAGE, {"ticket": "T-2"}, run_id="w_2")
    with pytest.raises(ConfigError, match=r"workflow\(triage, run_id='w_2'\)"):
        on(store, desk.tools, "resume", "w_2", model=ScriptedModel(["no"]))
    with pytest.raises(ConfigError, match="is a workflow"):
        on(store, desk.tools, "fork", "w_2", at_turn=2, model=ScriptedModel(["no"]))
    assert sorted(each.run_id for each in store.list_runs()) == ["w_1", "w_2", "w_2.2"]


def test_a_workflow_can_be_cancelled_between_two_steps():
    runtimes = []

    async def slow(flow):
        await flow.call("get_ticket", {"id": "T"})
        runtimes[0].cancel("w_1")
        await flow.call("page", {"text": "never"})

    def slow_here(flow):
        flow.call("get_ticket", {"id": "T"})
        runtimes[0].cancel("w_1")
        flow.call("page", {"text": "never"})

    desk = Desk()

    async def main():
        async with hr.Runtime(desk.tools, store=MortalStore()) as runtime:
            runtimes.append(runtime)
            return await runtime.workflow(slow, run_id="w_1")

    def here():
        with hr.SyncRuntime(desk.tools, store=MortalStore()) as runtime:
            runtimes[:] = [runtime]
            return runtime.workflow(slow_here, run_id="w_1")

    for run in (asyncio.run(main()), here()):
        assert (run.status, desk.pages) == ("cancelled", [])


def test_a_store_that_falls_silent_leaves_the_workflow_without_the_write(flows):
    class Silent(MortalStore):
        def append_entry(self, entry):
            raise StoreUnavailable("gone")

    async def pages(flow):
        with suppress(Exception):
            await flow.call("page", {"text": "x"})

    def pages_here(flow):
        with suppress(Exception):
            flow.call("page", {"text": "x"})

    desk = Desk()
    run = flows(Silent(), desk.tools, {"asyncio": pages, "sync": pages_here})
    assert (run.status, desk.pages) == (
        "failed",
        [],
    ) and "could not be recorded" in run.reason


def test_steps_may_be_under_way_at_once():
    inside, both_in = Overlap(), asyncio.Event()

    @hr.tool(effect="read")
    async def look(place: str) -> str:
        """Look."""
        async with inside:
            if inside.inside == 2:
                both_in.set()
            await asyncio.wait_for(both_in.wait(), 20)
            return place

    async def wide(flow):
        found = await asyncio.gather(
            *(flow.call("look", {"place": each}) for each in "ab")
        )
        return [each.value for each in found]

    async def main():
        store = MortalStore()
        for _ in range(2):
            async with hr.Runtime([look], store=store) as runtime:
                yield await runtime.workflow(wide, run_id="w_1")

    async def all_of():
        return [run.output async for run in main()]

    assert asyncio.run(all_of()) == [["a", "b"], ["a", "b"]]
    assert (inside.most_inside, inside.entered) == (2, 2)


def test_a_step_that_is_under_way_when_another_one_leaves_is_waited_for_and_recorded():
    done, left = [], []

    @hr.tool(effect="write")
    async def slow(text: str) -> str:
        """Take until the other step has left, and a little longer."""
        for _ in range(20):
            while not left:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        done.append(text)
        return text

    async def page(flow):
        try:
            return await flow.call("page", {"text": "x"})
        finally:
            left.append("page")

    async def wide(flow):
        both = await asyncio.gather(flow.call("slow", {"text": "y"}), page(flow))
        return [each.value for each in both]

    def drive(desk, **made):
        async def main():
            async with hr.Runtime([*desk.tools, slow], store=store, **made) as runtime:
                run = await runtime.workflow(wide, run_id="w_1")
                assert done == ["y"]  # by now, and not only once the runtime was closed
                return run

        return asyncio.run(main())

    store, desk = MortalStore(), Desk(approve=True)
    assert drive(desk).status == "waiting"
    assert drive(desk, approver=ScriptedApprover([True])).output == ["y", "paged: x"]
    assert (len(desk.pages), done) == (1, ["y"])


def test_a_step_that_leaves_a_task_group_leaves_the_workflow():
    async def wide(flow):
        async with asyncio.TaskGroup() as steps:
            steps.create_task(flow.call("page", {"text": "x"}))
            steps.create_task(flow.call("get_ticket", {"id": "T"}))

    async def main(**made):
        async with hr.Runtime(desk.tools, store=store, **made) as runtime:
            return await runtime.workflow(wide, run_id="w_1")

    store, desk = MortalStore(), Desk(approve=True)
    assert asyncio.run(main()).status == "waiting"
    assert asyncio.run(main(approver=ScriptedApprover([True]))).status == "done"
    assert len(desk.pages) == 1


@pytest.mark.proof
def test_a_workflow_that_is_killed_is_gone_on_with_by_another_process(tmp_path):
    """The example, killed by SIGKILL after its model has answered; see `examples/flow/workflow.py`."""
    program = Path(__file__).parents[1] / "examples/flow/workflow.py"
    place = f"sqlite:///{tmp_path}/runs.db"
    died = subprocess.run(
        [sys.executable, program, place, "--die"], timeout=60, check=False
    )
    assert died.returncode < 0
    store = SqliteStore(f"///{tmp_path}/runs.db")
    assert {step.key for step in store.load_run("triage-T-1").result().steps} == {
        "1.m",
        "1.0",
    }
    store.close()
    told = subprocess.run(
        [sys.executable, program, place],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout == "done: paged for T-1; this process asked the model 0 times\n"
