"""The scenarios on AutoGen's `AssistantAgent`; an agent is run again where others resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    RequestUsage,
)
from autogen_core.tools import FunctionTool
from pydantic import BaseModel

from handrail.runtime import Runtime
from handrail_frameworks.bench.asking import answer_question
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import ScriptedTurn, Talk, turn_after

MOST_TURNS = 30
NO_USAGE = RequestUsage(prompt_tokens=0, completion_tokens=0)


class ScriptedClient(ChatCompletionClient):
    """Answers with the turns of a script, and stores the tools' results."""

    component_type = "model"
    component_config_schema = BaseModel

    def __init__(self, script: Sequence[ScriptedTurn]) -> None:
        self.script = script
        self.turns = 0
        self.texts: list[str] = []

    async def create(self, messages: Sequence[Any], **_: Any) -> CreateResult:
        """Return the turn after those in the messages."""
        ids = [
            call.id
            for each in messages
            if isinstance(each, AssistantMessage) and isinstance(each.content, list)
            for call in each.content
        ]
        self.texts = [
            result.content
            for each in messages
            if isinstance(each, FunctionExecutionResultMessage)
            for result in each.content
        ]
        self.turns += 1
        turn = turn_after(self.script, ids)
        calls = [
            FunctionCall(id=id, name=name, arguments=text)
            for id, name, text in turn.calls
        ]
        return CreateResult(
            finish_reason="function_calls" if turn.finish == "calls" else turn.finish,
            content=calls or turn.text,
            usage=NO_USAGE,
            cached=False,
        )

    async def create_stream(
        self, messages: Sequence[Any], **_: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the turn in one piece."""
        yield await self.create(messages)

    async def close(self) -> None:
        """Do nothing."""

    def actual_usage(self) -> RequestUsage:
        """Return nothing used."""
        return NO_USAGE

    def total_usage(self) -> RequestUsage:
        """Return nothing used."""
        return NO_USAGE

    def count_tokens(self, *_: Any, **__: Any) -> int:
        """Return nothing used."""
        return 0

    def remaining_tokens(self, *_: Any, **__: Any) -> int:
        """Return that there is room."""
        return 100_000

    @property
    def capabilities(self) -> Any:
        """See `model_info`."""
        return self.model_info

    @property
    def model_info(self) -> Any:
        """What the model can do."""
        return {
            "vision": False,
            "function_calling": True,
            "json_output": False,
            "family": "unknown",
            "structured_output": False,
        }


def play(case: Case) -> Talk:
    """Carry out a step."""
    runtime = None
    if case.how == "handrail":
        runtime = case.make_runtime()
        answer_question(case, runtime)
    return asyncio.run(_play(case, runtime))


async def _play(case: Case, runtime: Runtime | None) -> Talk:
    client = ScriptedClient(case.scenario.script)
    given: dict[str, Any] = {}
    if runtime is not None:
        from handrail_frameworks.autogen import HandrailWorkbench

        given["workbench"] = HandrailWorkbench(runtime, run=case.run)
    else:
        given["tools"] = [FunctionTool(fn, text) for fn, text in case.functions()]
    agent = AssistantAgent(
        "clerk",
        model_client=client,
        max_tool_iterations=MOST_TURNS,
        reflect_on_tool_use=False,
        **given,
    )
    error = ""
    try:
        await agent.run(task="Do it.")
    except Exception as failure:
        error = type(failure).__name__
    if runtime is not None:
        await runtime.close()
    return Talk(texts=client.texts, error=error, turns=client.turns)
