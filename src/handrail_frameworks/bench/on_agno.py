"""The scenarios on agno, which stores its sessions in SQLite, with a checkpoint after each batch of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.tools.function import Function

from handrail.runtime import Runtime
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import EDITED, ScriptedTurn, Talk, turn_after


class ScriptedAgnoModel(Model):
    """Answers with the turns of a script."""

    def __init__(self, script: Sequence[ScriptedTurn]) -> None:
        super().__init__(id="scripted")
        self.script = script
        self.turns = 0

    def invoke(self, messages: Sequence[Message], *_: Any, **__: Any) -> ModelResponse:
        """Return the turn after those in the messages."""
        ids = [call["id"] for each in messages for call in each.tool_calls or ()]
        turn = turn_after(self.script, ids)
        self.turns += 1
        calls = [
            {
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": text},
            }
            for id, name, text in turn.calls
        ]
        return ModelResponse(role="assistant", content=turn.text, tool_calls=calls)

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Return the next turn."""
        return self.invoke(*args, **kwargs)

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        """Yield the next turn in one piece."""
        yield self.invoke(*args, **kwargs)

    async def ainvoke_stream(
        self, *args: Any, **kwargs: Any
    ) -> AsyncIterator[ModelResponse]:
        """Yield the next turn in one piece."""
        yield self.invoke(*args, **kwargs)

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return ModelResponse(content=str(response))

    _parse_provider_response_delta = _parse_provider_response


def play(case: Case) -> Talk:
    """Carry out a step."""
    return asyncio.run(_play(case))


async def _play(case: Case) -> Talk:
    model = ScriptedAgnoModel(case.scenario.script)
    tools, runtime = _make_tools(case)
    agent = Agent(
        model=model,
        tools=tools,
        db=SqliteDb(db_file=str(case.folder / "agno.db")),
        checkpoint="tool-batch",
        telemetry=False,
    )
    try:
        output = await _run(case, agent, runtime)
        messages = output.messages or []
        return Talk(
            texts=[str(each.content) for each in messages if each.role == "tool"],
            waits=output.status == RunStatus.paused,
            turns=model.turns,
            error="" if output.status != RunStatus.error else str(output.content),
        )
    except Exception as error:
        return Talk(error=type(error).__name__, turns=model.turns)
    finally:
        if runtime is not None:
            await runtime.close()


async def _run(case: Case, agent: Agent, runtime: Runtime | None) -> RunOutput:
    run_id = f"{case.run}-1"
    saved = await agent.aget_run_output(run_id, session_id=case.run)
    if saved is None:  # agno saves nothing before the first batch of calls has ended
        output = await agent.arun("Do it.", session_id=case.run, run_id=run_id)
        if runtime is not None:
            await _review(runtime, output)
        return output
    if case.step.word:
        await _decide(case, saved, runtime)
        return await agent.acontinue_run(
            run_id=run_id, session_id=case.run, requirements=saved.requirements
        )
    return await agent.acontinue_run(run_id=run_id, session_id=case.run)


async def _review(runtime: Runtime, output: RunOutput) -> None:
    from handrail_frameworks.agno import review

    await asyncio.to_thread(review, runtime, output)


async def _decide(case: Case, saved: RunOutput, runtime: Runtime | None) -> None:
    """Give a person's word on the call that waits."""
    (asked,) = saved.requirements or []
    if case.step.word == "deny":
        asked.reject("That is too much.")
        if runtime is not None:
            await _review(runtime, saved)
        return
    if case.step.word == "edit" and runtime is not None:
        (question,) = await runtime.approvals.list()
        await runtime.approvals.edit(question.id, EDITED, by="anna")
    elif case.step.word == "edit" and asked.tool_execution is not None:
        asked.tool_execution.tool_args = dict(EDITED)
    asked.confirm()


def _make_tools(case: Case) -> tuple[list[Any], Runtime | None]:
    if case.how == "handrail":
        from handrail_frameworks.agno import as_functions

        runtime = case.make_runtime()
        return list(as_functions(runtime)), runtime
    tools: list[Function] = []
    for fn, description in case.functions():
        tool = Function.from_callable(fn)
        tool.description = description
        tool.requires_confirmation = fn.__name__ in case.scenario.asks
        tools.append(tool)
    return tools, None
