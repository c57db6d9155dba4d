"""A run is cancelled by another process, with its store, while something of it is under way."""

import asyncio

import pytest

import handrail as hr
from handrail import admin
from handrail.errors import Code
from handrail.futures import result_now
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.engine.test_engine import WaitingModel, codes_of
from tests.engine.test_executor import tool_at
from tests.support.drivers import BOUND_S, Gate, until


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def stores(tmp_path):
    """The store of the runtime, and the same one as another process has it open."""
    opened = [SqliteStore(tmp_path / "s.db") for _ in range(2)]
    yield opened
    for store in opened:
        store.close()


@pytest.mark.parametrize("how", ["task", "thread"])
def test_a_read_under_way_does_not_hold_a_run_that_is_cancelled_elsewhere(
    drive, gate, stores, how
):
    here, elsewhere = stores
    driver = drive([tool_at(gate, how=how, timeout_s=10 * BOUND_S)], store=here)
    model = ScriptedModel([call("work"), "never asked"])
    begun = driver.start("run", "?", run_id="r", model=model)
    gate.wait_for()
    admin.cancel(elsewhere, "r", by="anna")
    run = begun.result(BOUND_S)
    assert (run.status, codes_of(run)) == ("cancelled", [Code.CANCELLED])


def test_a_run_that_is_cancelled_elsewhere_does_not_wait_for_its_model(
    drive, gate, stores
):
    here, elsewhere = stores
    begun = drive([], store=here).start(
        "run", "?", run_id="r", model=WaitingModel(["never"], gate)
    )
    gate.wait_for()
    admin.cancel(elsewhere, "r", by="anna")
    assert begun.result(BOUND_S).status == "cancelled"


def test_a_resumed_run_that_is_cancelled_elsewhere_does_not_wait_for_its_read(
    drive, gate, stores
):
    here, elsewhere = stores

    async def die():
        raise KeyboardInterrupt

    dies = hr.FunctionTool(die, name="work", effect="read")
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(
            hr.Runtime([dies], store=elsewhere).run(
                "?", run_id="r", model=ScriptedModel([call("work")])
            )
        )
    driver = drive([tool_at(gate, how="task", timeout_s=10 * BOUND_S)], store=here)
    begun = driver.start(
        "resume", "r", anyway=True, model=ScriptedModel(["never asked"])
    )
    gate.wait_for()
    admin.cancel(elsewhere, "r", by="anna")
    assert begun.result(BOUND_S).status == "cancelled"


def test_a_tenant_s_run_is_cancelled_elsewhere_and_its_neighbour_s_of_one_name_is_not(
    drive, gate, stores
):
    here, elsewhere = stores
    driver = drive([tool_at(gate, how="task", timeout_s=10 * BOUND_S)], store=here)
    begun = {
        scope: driver.start(
            "run",
            "?",
            run_id="r",
            scope=scope,
            model=ScriptedModel([call("work"), "It works."]),
        )
        for scope in ("acme", "globex")
    }
    gate.wait_for(2)
    asyncio.run(cancel_as(elsewhere, "acme"))
    assert begun["acme"].result(BOUND_S).status == "cancelled"
    gate.open()
    assert begun["globex"].result(BOUND_S).text == "It works."


async def cancel_as(store, scope):
    assert hr.Runtime(store=store).cancel("r", scope=scope)


def test_a_write_under_way_ends_before_its_run_that_was_cancelled_elsewhere(
    drive, gate, stores
):
    here, elsewhere = stores
    driver = drive(
        [
            tool_at(gate, how="task", effect="write", timeout_s=10 * BOUND_S),
            tool_at(read := Gate(), how="task", name="look", timeout_s=10 * BOUND_S),
        ],
        store=here,
    )
    model = ScriptedModel([[call("work"), call("look")], "never asked"])
    begun = driver.start("run", "?", run_id="r", model=model)
    gate.wait_for()
    read.wait_for()
    admin.cancel(elsewhere, "r", by="anna")
    until(lambda: read.cancelled, "the read goes on")
    assert not begun.done()
    gate.open()
    run = begun.result(BOUND_S)
    assert (run.status, codes_of(run)) == ("cancelled", [None, Code.CANCELLED])


def test_a_cancelled_run_that_was_taken_up_again_goes_on(drive, gate, tmp_path):
    class Counting(SqliteStore):
        """A store that keeps what it answered when it was asked for cancelled runs."""

        def __init__(self, path):
            super().__init__(path)
            self.answers = []

        def list_cancelled(self, run_ids):
            answer = super().list_cancelled(run_ids)
            answer.add_done_callback(lambda done: self.answers.append(done.result()))
            return answer

    store = Counting(tmp_path / "s.db")
    driver = drive([], store=store)
    asking = Gate()
    begun = driver.start("run", "?", run_id="r", model=WaitingModel(["never"], asking))
    asking.wait_for()
    driver.runtime.cancel("r")
    assert begun.result(BOUND_S).status == "cancelled"
    again = driver.start("resume", "r", model=WaitingModel(["It works."], gate))
    gate.wait_for()
    seen = len(store.answers)
    until(lambda: len(store.answers) >= seen + 2, "the store was not asked")
    assert not any(store.answers[seen:])
    gate.open()
    assert again.result(BOUND_S).text == "It works."
    store.close()


def test_what_ends_a_run_that_is_cancelled_elsewhere_may_wait_for_the_store(
    drive, gate, stores
):
    here, elsewhere = stores
    driver = drive([], store=here)
    begun = driver.start("run", "?", run_id="r", model=WaitingModel(["never"], gate))
    gate.wait_for()
    seen = []

    def stop():  # as a run does that is to end the runs of its tools
        seen.append(result_now(here.request_cancel("r")))

    driver.runtime._engine._deployment.live["r"].stops.insert(0, stop)
    admin.cancel(elsewhere, "r", by="anna")
    until(lambda: seen, "the store waits for itself")
    assert begun.result(BOUND_S).status == "cancelled"


def test_the_runs_of_its_tools_end_with_a_run_that_is_cancelled_elsewhere(
    drive, gate, stores
):
    here, elsewhere = stores

    @hr.tool(effect="read", timeout_s=10 * BOUND_S)
    async def delegate(context: hr.Context[None]) -> str:
        """Let another agent work."""
        ended = await context.run("?", model=ScriptedModel([call("work"), "done"]))
        return ended.text

    work = tool_at(gate, how="task", timeout_s=10 * BOUND_S)
    begun = drive([delegate, work], store=here).start(
        "run", "?", run_id="r", model=ScriptedModel([call("delegate"), "never"])
    )
    gate.wait_for()
    admin.cancel(elsewhere, "r", by="anna")
    assert begun.result(BOUND_S).status == "cancelled"
    until(lambda: gate.cancelled, "the inner run goes on")
