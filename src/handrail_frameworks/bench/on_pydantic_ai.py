"""The scenarios on pydantic-ai; the messages are saved after each step of a run, and a run goes on from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolApproved, ToolDenied

from handrail.runtime import Runtime
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import EDITED, ScriptedTurn, Talk, turn_after

WORDS: dict[str, bool | ToolApproved | ToolDenied] = {
    "approve": True,
    "deny": ToolDenied("That is too much."),
    "edit": ToolApproved(override_args=EDITED),
}
FINISH: dict[str, Any] = {"calls": "tool_call", "stop": "stop", "length": "length"}


def play(case: Case) -> Talk:
    """Carry out a step."""
    return asyncio.run(_play(case))


async def _play(case: Case) -> Talk:
    agent, runtime = _make_agent(case)
    file = case.folder / "messages.json"
    saved = (
        ModelMessagesTypeAdapter.validate_json(file.read_bytes())
        if file.exists()
        else []
    )
    try:
        messages, waits = await _converse(case, agent, saved, file)
        return Talk(texts=tool_texts(messages), waits=waits, turns=_turns(messages))
    except Exception as error:
        messages = ModelMessagesTypeAdapter.validate_json(file.read_bytes())
        return Talk(
            texts=tool_texts(messages),
            turns=_turns(messages),
            error=type(error).__name__,
        )
    finally:
        if runtime is not None:
            await runtime.close()


async def _converse(
    case: Case, agent: Agent[None, Any], saved: list[ModelMessage], file: Path
) -> tuple[Sequence[ModelMessage], bool]:
    """Run the agent and save its messages after each step, as an application does that wants to go on after a crash."""
    approvals = {"call_1": WORDS[case.step.word]} if case.step.word else {}
    async with agent.iter(
        None if case.step.resumes and saved else "Do it.",
        message_history=saved,
        conversation_id=case.run,
        deferred_tool_results=DeferredToolResults(approvals=approvals)
        if approvals
        else None,
    ) as run:
        async for _ in run:
            _save(file, run.all_messages())
    waits = run.result is not None and isinstance(
        run.result.output, DeferredToolRequests
    )
    return run.all_messages(), waits


def _save(file: Path, messages: list[ModelMessage]) -> None:
    """Replace the file at once: a process that dies leaves the earlier messages whole."""
    draft = file.with_suffix(".draft")
    draft.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))
    draft.replace(file)


def _make_agent(case: Case) -> tuple[Agent[None, Any], Runtime | None]:
    model = scripted_model(case.scenario.script)
    output: Any = [str, DeferredToolRequests]
    if case.how == "handrail":
        from handrail_frameworks.pydantic_ai import HandrailToolset

        runtime = case.make_runtime()
        toolset = HandrailToolset(runtime)
        return Agent(model, toolsets=[toolset], output_type=output), runtime
    tools = [
        Tool(
            fn,
            description=description,
            requires_approval=fn.__name__ in case.scenario.asks,
        )
        for fn, description in case.functions()
    ]
    return Agent(model, tools=tools, output_type=output), None


def scripted_model(script: Sequence[ScriptedTurn]) -> FunctionModel:
    """Return a model that answers with the turns of a script."""

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        return _as_response(turn_after(script, _call_ids(messages)))

    return FunctionModel(answer)


def _as_response(turn: ScriptedTurn) -> ModelResponse:
    parts: list[Any] = [
        ToolCallPart(name, text, tool_call_id=id) for id, name, text in turn.calls
    ]
    return ModelResponse(
        parts or [TextPart(turn.text)], finish_reason=FINISH[turn.finish]
    )


def _call_ids(messages: Sequence[ModelMessage]) -> list[str]:
    return [
        part.tool_call_id
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]


def tool_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return what the model has read of its calls."""
    return [
        part.content if isinstance(part.content, str) else json.dumps(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def _turns(messages: Sequence[ModelMessage]) -> int:
    return sum(isinstance(message, ModelResponse) for message in messages)
