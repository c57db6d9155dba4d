"""Runs of pydantic-ai that its own libraries keep: the harness's StepPersistence, and workflows of DBOS."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from handrail_frameworks.bench.on_pydantic_ai import scripted_model, tool_texts
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import Talk
from handrail_frameworks.pydantic_ai import HandrailToolset

# ---------------------------------------------------------------------- StepPersistence


def play_steps(case: Case) -> Talk:
    """Go on from the last snapshot that is complete; without one, ask again."""
    return asyncio.run(_play_steps(case))


async def _play_steps(case: Case) -> Talk:
    from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence

    steps = SqliteStepStore(database=case.folder / "steps.db")
    saved = await _load_history(steps, case.run) if case.step.resumes else []
    runtime = case.make_runtime()
    agent = Agent(
        scripted_model(case.scenario.script),
        toolsets=[HandrailToolset(runtime)],
        capabilities=[StepPersistence(store=steps)],
    )
    result = await agent.run(
        None if saved else "Do it.", message_history=saved, conversation_id=case.run
    )
    await runtime.close()
    return Talk(texts=tool_texts(result.all_messages()))


async def _load_history(steps, conversation_id: str) -> Sequence[ModelMessage]:
    """Return the messages of the latest run that left a complete snapshot."""
    from pydantic_ai_harness.step_persistence import continue_run

    runs = await steps.list_runs(conversation_id=conversation_id)
    for run in sorted(runs, key=lambda run: run.started_at, reverse=True):
        try:
            return await continue_run(steps, run_id=run.run_id)
        except LookupError:
            pass
    return []


# ---------------------------------------------------------------------- DBOS


class InSteps(WrapperToolset[Any]):
    """Makes each call of a tool a step of the workflow."""

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],
    ) -> Any:
        from dbos import DBOS

        async def call() -> Any:
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)

        return await DBOS.run_step_async({"name": name}, call)


def play_dbos(case: Case, *, as_steps: bool = False) -> Talk:
    """Carry a workflow; `launch` goes on with what a process left that died."""
    return asyncio.run(_play_dbos(case, as_steps))


async def _play_dbos(case: Case, as_steps: bool) -> Talk:
    from dbos import DBOS, SetWorkflowID
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    database = f"sqlite:///{case.folder / 'dbos.db'}"
    DBOS(config={"name": "shop", "system_database_url": database})
    toolset: AbstractToolset[Any] = HandrailToolset(case.make_runtime())
    agent = Agent(
        scripted_model(case.scenario.script),
        name="shop",
        toolsets=[InSteps(toolset) if as_steps else toolset],
        capabilities=[DBOSDurability()],
    )

    @DBOS.workflow()
    async def converse(run: str) -> list[str]:
        result = await agent.run("Do it.", conversation_id=run)
        return tool_texts(result.all_messages())

    DBOS.launch()
    with SetWorkflowID(case.run):
        handle = await DBOS.start_workflow_async(converse, case.run)
    return Talk(texts=await handle.get_result())
