"""Agents as tools: a run that a tool starts is known by its call, so that a resume repeats nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import handrail as hr
from handrail.errors import SetupError
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.engine.test_resume import on  # noqa: F401  # a fixture
from tests.support.drivers import BOUND_S, KINDS, Driver
from tests.support.effort import each_value_once

INNER = [[call("ticket", title="a")], [call("report", title="a")], "Both are done."]
OUTER = [[call("colleague", task="A ticket and a report.")], "All done."]
AT_ONCE = {"backoff": hr.Backoff(0)}
WAYS = ("agent_tool", "read", "key", "blocking", "runtime.run")
NAMED = ("agent_tool", "read", "key", "blocking")


class World:
    """What the inner run writes; `dies` names the write in which the process is killed, once it has taken effect."""

    def __init__(self, folder: Path, dies: str = ""):
        self.log, self.dies = folder / "world.log", dies
        self.tools = [
            hr.FunctionTool(self.ticket, effect="write"),
            hr.FunctionTool(self.report, effect="write"),
        ]

    def ticket(self, title: str) -> str:
        """Open a ticket."""
        return self._write(f"ticket {title}")

    def report(self, title: str) -> str:
        """Write a report."""
        return self._write(f"report {title}")

    def _write(self, line: str) -> str:
        with self.log.open("a") as log:
            log.write(f"{line}\n")
        if line.startswith(self.dies or "none"):
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    def happened(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


def colleague(way: str, kind: str, store, world: World, inner=INNER, **how):
    """Return the tool that leaves a task to an agent, in one of the ways in which it can be written."""
    if way == "agent_tool":
        runtime = (hr.SyncRuntime if kind == "sync" else hr.Runtime)(
            world.tools, store=store
        )
        return hr.agent_tool(
            runtime,
            "colleague",
            "Leave a task to a colleague.",
            model=ScriptedModel(inner),
            **how,
        )

    if way == "runtime.run":
        runtime = (hr.SyncRuntime if kind == "sync" else hr.Runtime)(
            world.tools, store=store
        )

        async def run(task: str) -> str:
            """Leave a task to a colleague."""
            return (await runtime.run(task, model=ScriptedModel(inner))).text

        def run_here(task: str) -> str:
            """Leave a task to a colleague."""
            return runtime.run(task, model=ScriptedModel(inner)).text

        return hr.FunctionTool(
            run_here if kind == "sync" else run, name="colleague", effect="read", **how
        )

    async def ask(task: str, context: hr.Context) -> str:
        """Leave a task to a colleague."""
        return (await context.run(task, model=ScriptedModel(inner))).text

    def ask_blocking(task: str, context: hr.Context) -> str:
        """Leave a task to a colleague."""
        return context.run_blocking(task, model=ScriptedModel(inner)).text

    declared = (
        {"effect": "read"} if way == "read" else {"effect": "write", "replay": "key"}
    )
    return hr.FunctionTool(
        ask_blocking if way == "blocking" else ask, name="colleague", **declared, **how
    )


PROGRAM = """
import asyncio, sys
from pathlib import Path
import handrail as hr
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel
from tests.engine.test_nested_runs import OUTER, World, colleague

folder, dies, way, kind = sys.argv[1:]
world = World(Path(folder), dies)
store = SqliteStore(Path(folder) / "a.db")
tools = [*world.tools, colleague(way, kind, store, world)]
how = {"model": ScriptedModel(OUTER), "run_id": "outer"}
if kind == "sync":
    with hr.SyncRuntime(tools, store=store) as runtime:
        runtime.run("Go.", **how)
else:
    async def main():
        async with hr.Runtime(tools, store=store) as runtime:
            await runtime.run("Go.", **how)
    asyncio.run(main())
"""


@pytest.mark.proof
@each_value_once
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dies", ["ticket", "report"])
def test_what_an_agent_wrote_before_the_process_died_is_not_written_again(
    tmp_path, dies, way, kind
):
    program = [sys.executable, "-c", PROGRAM, str(tmp_path), dies, way, kind]
    died = subprocess.run(
        program, cwd=Path(__file__).parents[2], timeout=60, capture_output=True
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    world = World(tmp_path)
    before = world.happened()
    with SqliteStore(tmp_path / "a.db") as store:
        tools = [*world.tools, colleague(way, kind, store, world)]
        with closing(Driver(kind, tools, {"store": store})) as driver:
            resuming = driver.start("resume", "outer", model=ScriptedModel(OUTER))
            run = resuming.result(BOUND_S)
        [inner] = [
            each for each in store.list_runs().result(BOUND_S) if each.run_id != "outer"
        ]
    assert (run.status, run.text, inner.status) == ("done", "All done.", "done")
    assert inner.run_id.startswith("outer.1.0.")
    assert before == ["ticket a", "report a"][: len(before)]
    # The write that died is of class none, so nobody does it again: the inner run's model reads that it is in doubt.
    assert world.happened() == ["ticket a", "report a"]


@pytest.mark.parametrize("way", NAMED)
def test_a_call_waits_with_the_run_that_it_started_and_goes_on_with_it(
    on, tmp_path, way, request
):
    kind = request.node.callspec.params["on"]
    world = World(tmp_path)
    world.tools[1] = world.tools[1].replace(approve=True)
    with SqliteStore(tmp_path / "a.db") as store:
        tools = [*world.tools, colleague(way, kind, store, world)]
        run = on(store, tools, "run", "Go.", model=ScriptedModel(OUTER), run_id="outer")
        assert (run.status, run.reason) == (
            "waiting",
            "waiting for approval of colleague",
        )
        (question,) = store.list_approvals().result(BOUND_S)
        assert (question.run_id, question.tool) == ("outer.1.0.1", "report")
        store.decide(question.id, granted=True, by="maria").result(BOUND_S)
        tools = [*world.tools, colleague(way, kind, store, world)]
        run = on(store, tools, "resume", "outer", model=ScriptedModel(OUTER))
    assert (run.status, run.messages[2].result.value) == ("done", "Both are done.")
    assert world.happened() == ["ticket a", "report a"]


def test_an_attempt_after_one_that_failed_goes_on_with_the_same_run(on, tmp_path):
    world, attempts = World(tmp_path), []

    async def ask(task: str, context: hr.Context) -> str:
        """Leave a task to a colleague; the line breaks off once behind it."""
        run = await context.run(task, model=ScriptedModel(INNER))
        attempts.append(run.id)
        if len(attempts) == 1:
            raise ConnectionResetError
        return run.text

    with SqliteStore(tmp_path / "a.db") as store:
        tools = [*world.tools, hr.FunctionTool(ask, name="colleague", effect="read")]
        run = on(
            store,
            tools,
            "run",
            "Go.",
            model=ScriptedModel(OUTER),
            run_id="outer",
            made=AT_ONCE,
        )
    assert (run.status, attempts) == ("done", ["outer.1.0.1", "outer.1.0.1"])
    assert world.happened() == ["ticket a", "report a"]


def test_a_run_that_asks_something_else_than_before_is_refused_and_does_nothing(
    on, tmp_path
):
    world, asked = World(tmp_path), []

    async def ask(task: str, context: hr.Context) -> str:
        """Leave a task to a colleague, in other words each time."""
        asked.append(task)
        await context.run(f"{task} {len(asked)}", model=ScriptedModel(INNER))
        raise ConnectionResetError

    with SqliteStore(tmp_path / "a.db") as store:
        tools = [*world.tools, hr.FunctionTool(ask, name="colleague", effect="read")]
        run = on(
            store,
            tools,
            "run",
            "Go.",
            model=ScriptedModel(OUTER),
            run_id="outer",
            made=AT_ONCE,
        )
    assert run.messages[2].result.failure.code == "INTERNAL_ERROR"
    assert len(asked) == 2
    assert world.happened() == ["ticket a", "report a"]


def test_runs_of_one_call_are_numbered_in_the_order_in_which_they_are_started(on):
    async def ask(task: str, context: hr.Context) -> list:
        """Ask two colleagues."""
        ways = [
            context.run(f"{task} {n}", model=ScriptedModel(["Yes."])) for n in range(2)
        ]
        return [run.id for run in await asyncio.gather(*ways)]

    run = on("memory:", [hr.FunctionTool(ask, name="colleague", effect="read")], "run", "Go.",
             model=ScriptedModel(OUTER), run_id="outer")  # fmt: skip
    assert run.messages[2].result.value == ["outer.1.0.1", "outer.1.0.2"]


def test_a_run_that_a_tool_starts_by_itself_is_known_by_its_question_and_no_other_one_is(
    on, tmp_path
):
    tried = []
    with SqliteStore(tmp_path / "a.db") as store:
        runtime = hr.SyncRuntime([], store=store)

        def ask(task: str) -> list:
            """Ask colleagues, one thing twice, and the other way round the second time."""
            questions = ["a", "b", "a"][:: -1 if tried else 1]
            runs = [
                runtime.run(each, model=ScriptedModel([each])) for each in questions
            ]
            tried.append(sorted(run.id for run in runs))
            if len(tried) == 1:
                raise ConnectionResetError
            return [run.text for run in runs]

        tools = [hr.FunctionTool(ask, name="colleague", effect="read")]
        run = on(
            store,
            tools,
            "run",
            "Go.",
            model=ScriptedModel(OUTER),
            run_id="outer",
            made=AT_ONCE,
        )
        outside = runtime.run("a", model=ScriptedModel(["a"]))
    assert run.messages[2].result.value == ["a", "b", "a"]
    assert tried[0] == tried[1]
    assert len(set(tried[0])) == 3
    assert outside.id.startswith("r_")


def test_an_agent_has_the_time_of_its_call_and_the_dependencies_of_its_caller(on):
    seen = []

    def whose(context: hr.Context) -> str:
        """Say whose call this is."""
        return str(context.deps)

    async def ask(task: str, context: hr.Context) -> str:
        """Leave a task to a colleague."""
        run = await context.run(task, model=ScriptedModel([[call("whose")], "Said."]))
        seen.append((run.budget.time_s, run.messages[2].result.value))
        return run.text

    tools = [
        hr.FunctionTool(whose, effect="read"),
        hr.FunctionTool(ask, name="colleague", effect="read", timeout_s=9),
    ]
    on("memory:", tools, "run", "Go.", model=ScriptedModel(OUTER), deps="maria")
    ((time_s, deps),) = seen
    assert 0 < time_s <= 9
    assert deps == "maria"


def test_an_agent_that_ends_without_an_answer_says_so_to_the_one_that_asked(
    on, tmp_path
):
    world = World(tmp_path)
    brief = hr.Budget(turns=1)
    kind_of = hr.SyncRuntime(world.tools)
    tool = hr.agent_tool(
        kind_of, "colleague", "Leave a task.", model=ScriptedModel(INNER), budget=brief
    )
    run = on("memory:", [tool], "run", "Go.", model=ScriptedModel(OUTER))
    failure = run.messages[2].result.failure
    assert failure.code == "TOOL_ERROR"
    assert "`colleague` ended without an answer (budget)" in failure.message


def test_a_write_of_an_agent_that_is_in_doubt_is_in_doubt_for_whoever_asked_it(on):
    @hr.tool(effect="write", name="ticket")
    def lose(title: str) -> str:
        """Open a ticket."""
        raise ConnectionResetError

    inner = hr.SyncRuntime([lose])
    tool = hr.agent_tool(
        inner,
        "colleague",
        "Leave a task.",
        model=ScriptedModel(INNER),
        budget=hr.Budget(turns=1),
    )
    run = on("memory:", [tool], "run", "Go.", model=ScriptedModel(OUTER))
    failure = run.messages[2].result.failure
    assert (failure.code, failure.retryable) == ("IN_DOUBT", False)
    assert "`ticket` was started and may have taken effect" in failure.message


def test_an_agent_answers_in_the_form_that_was_asked_for(on):
    form = {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "required": ["kind"],
    }
    model = ScriptedModel(['{"kind": "disk"}'])
    tool = hr.agent_tool(
        hr.Runtime([]),
        "colleague",
        "Which kind?",
        model=model,
        output=form,
        effect="read",
    )
    run = on("memory:", [tool], "run", "Go.", model=ScriptedModel(OUTER))
    assert run.messages[2].result.value == {"kind": "disk"}
    assert tool.parameters["required"] == ["task"]


def test_cancelling_a_run_cancels_the_runs_that_its_calls_started(tmp_path):
    driver_of, began = {}, asyncio.Event()

    async def hang(context: hr.Context) -> str:
        """Never end."""
        driver_of["loop"].call_soon(began.set)
        await asyncio.Event().wait()

    async def main():
        driver_of["loop"] = asyncio.get_running_loop()
        with SqliteStore(tmp_path / "a.db") as store:
            inner = hr.Runtime([hr.FunctionTool(hang, effect="read")], store=store)
            tool = hr.agent_tool(
                inner,
                "colleague",
                "Leave a task.",
                model=ScriptedModel([[call("hang")], "Never."]),
            )
            async with hr.Runtime([tool], store=store) as runtime:
                run = asyncio.ensure_future(
                    runtime.run("Go.", model=ScriptedModel(OUTER), run_id="outer")
                )
                await asyncio.wait_for(began.wait(), BOUND_S)
                assert runtime.cancel("outer")
                outer = await asyncio.wait_for(run, BOUND_S)
                record = (
                    await asyncio.wrap_future(store.load_run("outer.1.0.1"))
                ).record
        return outer.status, record.status

    assert asyncio.run(main()) == ("cancelled", "cancelled")


def test_a_tool_in_a_process_of_its_own_is_told_that_it_can_start_no_run():
    context = hr.Context(None, "r_1", "call_1", "colleague", 1, 0.0, None)
    make, given = context.__reduce__()
    with pytest.raises(SetupError, match="from which no run can be started"):
        make(*given).run_blocking("Go.", model="openai:NAME")
