"""The scenarios on the OpenAI Agents SDK; its session is stored in SQLite, a run that waits in a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from handrail.runtime import Runtime
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import EDITED, ScriptedTurn, Talk, turn_after

MOST_TURNS = 30


class ScriptedAgentsModel(Model):
    """Answers with the turns of a script."""

    def __init__(self, script: Sequence[ScriptedTurn]) -> None:
        self.script = script
        self.turns = 0

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        """Return the turn after those in the input."""
        items = [] if isinstance(input, str) else input
        ids = [each["call_id"] for each in items if each.get("type") == "function_call"]
        self.turns += 1
        turn = turn_after(self.script, ids)
        return ModelResponse(output=_as_items(turn), usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Yield the turn in one piece."""
        answer = await self.get_response(*args, **kwargs)
        response = Response(
            id="scripted",
            created_at=0,
            model="scripted",
            object="response",
            output=answer.output,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(
            response=response, sequence_number=0, type="response.completed"
        )


def _as_items(turn: ScriptedTurn) -> list[Any]:
    if not turn.calls:
        text = ResponseOutputText(text=turn.text, type="output_text", annotations=[])
        return [
            ResponseOutputMessage(
                id="text",
                content=[text],
                role="assistant",
                status="completed",
                type="message",
            )
        ]
    status: Any = "incomplete" if turn.finish == "length" else "completed"
    return [
        ResponseFunctionToolCall(
            call_id=id, name=name, arguments=text, type="function_call", status=status
        )
        for id, name, text in turn.calls
    ]


def play(case: Case) -> Talk:
    """Carry out a step."""
    set_tracing_disabled(True)
    return asyncio.run(_play(case))


async def _play(case: Case) -> Talk:
    model = ScriptedAgentsModel(case.scenario.script)
    tools, runtime = _make_tools(case)
    agent = Agent[Any](name="shop", model=model, tools=tools)
    file = case.folder / "state.json"
    session = SQLiteSession(case.run, str(case.folder / "session.db"))
    config = RunConfig(group_id=case.run, tracing_disabled=True)
    has_started = case.step.resumes and await session.get_items()
    given: Any = [] if has_started else "Do it."
    try:
        if case.step.word:
            given = await _decide(case, agent, json.loads(file.read_text()), runtime)
        result = await Runner.run(
            agent, given, session=session, run_config=config, max_turns=MOST_TURNS
        )
        waits = bool(result.interruptions)
        if waits:
            file.write_text(json.dumps(result.to_state().to_json()))
        return Talk(
            texts=_tool_texts(await session.get_items()),
            waits=waits,
            turns=model.turns,
        )
    except Exception as error:
        return Talk(error=type(error).__name__, turns=model.turns)
    finally:
        session.close()
        if runtime is not None:
            await runtime.close()


def _tool_texts(items: Sequence[Any]) -> list[str]:
    """Return what the model has read of its calls, in this process and in those before."""
    outputs = [each for each in items if each.get("type") == "function_call_output"]
    return [str(each["output"]) for each in outputs]


async def _decide(
    case: Case, agent: Agent[Any], saved: dict[str, Any], runtime: Runtime | None
) -> RunState[Any, Any]:
    """Give a person's word on the call that waits."""
    state: RunState[Any, Any] = await RunState.from_json(agent, saved)
    (asked,) = state.get_interruptions()
    if case.step.word == "deny":
        state.reject(asked, rejection_message="That is too much.")
        return state
    if case.step.word == "edit" and runtime is not None:
        (question,) = await runtime.approvals.list()
        await runtime.approvals.edit(question.id, EDITED, by="anna")
    state.approve(asked)
    return state


def _make_tools(case: Case) -> tuple[list[Any], Runtime | None]:
    if case.how == "handrail":
        from handrail_frameworks.openai_agents import as_function_tools

        runtime = case.make_runtime()
        return list(as_function_tools(runtime, run=case.run)), runtime
    tools: list[FunctionTool] = [
        function_tool(
            fn,
            description_override=description,
            needs_approval=fn.__name__ in case.scenario.asks,
        )
        for fn, description in case.functions()
    ]
    return tools, None
