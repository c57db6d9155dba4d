"""The scenarios on LangChain's `create_agent`, whose runs LangGraph keeps in SQLite; by `ainvoke` and by `invoke`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, Durability, StateSnapshot

from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import (
    EDITED,
    ScriptedTurn,
    Step,
    Talk,
    turn_after,
)

DECISIONS = {
    "approve": {"type": "approve"},
    "deny": {"type": "reject", "message": "That is too much."},
    "edit": {"type": "edit", "edited_action": {"name": "pay", "args": EDITED}},
}


class ScriptedChat(BaseChatModel):
    """Answers with the turns of a script."""

    script: Sequence[ScriptedTurn]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> ScriptedChat:
        """Take any tools: the script knows what it calls."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        ids = [
            str(call["id"])
            for message in messages
            if isinstance(message, AIMessage)
            for call in (*message.tool_calls, *message.invalid_tool_calls)
        ]
        message = as_message(turn_after(self.script, ids))
        return ChatResult(generations=[ChatGeneration(message=message)])


def as_message(turn: ScriptedTurn) -> AIMessage:
    """Return a turn as the chat models of LangChain do: what is no JSON becomes an invalid call."""
    calls: list[Any] = []
    invalid: list[Any] = []
    for id, name, text in turn.calls:
        try:
            call = {"type": "tool_call", "args": json.loads(text)}
            calls.append({**call, "id": id, "name": name})
        except ValueError as error:
            call = {"type": "invalid_tool_call", "args": text, "error": str(error)}
            invalid.append({**call, "id": id, "name": name})
    finish = "tool_calls" if turn.finish == "calls" else turn.finish
    return AIMessage(
        turn.text,
        tool_calls=calls,
        invalid_tool_calls=invalid,
        response_metadata={"finish_reason": finish},
    )


def play_async(case: Case, *, durability: Durability = "async") -> Talk:
    """Carry out a step by `ainvoke`."""
    return asyncio.run(_play_async(case, durability))


async def _play_async(case: Case, durability: Durability) -> Talk:
    address = str(case.folder / "checkpoints.db")
    async with AsyncSqliteSaver.from_conn_string(address) as saver:
        agent, runtime = _make_agent(case, saver, whole_turns=False)
        try:
            saved = await agent.aget_state(_config(case))
            state = await agent.ainvoke(
                _input(case.step, saved), _config(case), durability=durability
            )
            return _as_talk(state)
        except Exception as error:
            return Talk(error=type(error).__name__)
        finally:
            if runtime is not None:
                await runtime.close()


def play_sync(case: Case, *, durability: Durability = "async") -> Talk:
    """Carry out a step by `invoke`; whole turns keep the model's order there."""
    with SqliteSaver.from_conn_string(str(case.folder / "checkpoints.db")) as saver:
        agent, runtime = _make_agent(case, saver, whole_turns=True)
        try:
            saved = agent.get_state(_config(case))
            state = agent.invoke(
                _input(case.step, saved), _config(case), durability=durability
            )
            return _as_talk(state)
        except Exception as error:
            return Talk(error=type(error).__name__)
        finally:
            if runtime is not None:
                runtime.blocking.close()


def _make_agent(
    case: Case, saver: BaseCheckpointSaver[Any], *, whole_turns: bool
) -> tuple[Any, Any]:
    model = ScriptedChat(script=case.scenario.script)
    if case.how == "handrail":
        from handrail_frameworks.langchain import HandrailMiddleware

        runtime = case.make_runtime()
        middleware: list[AgentMiddleware[Any, Any, Any]] = [
            HandrailMiddleware(runtime, whole_turns=whole_turns)
        ]
        agent = create_agent(model, middleware=middleware, checkpointer=saver)
        return agent, runtime
    tools = [
        StructuredTool.from_function(fn, description=description)
        for fn, description in case.functions()
    ]
    asks: dict[str, Any] = dict.fromkeys(case.scenario.asks, True)
    middleware = [HumanInTheLoopMiddleware(interrupt_on=asks)] if asks else []
    agent = create_agent(model, tools, middleware=middleware, checkpointer=saver)
    return agent, None


def _input(step: Step, saved: StateSnapshot) -> Any:
    if step.word:
        return Command(resume={"decisions": [DECISIONS[step.word]]})
    if step.resumes and saved.values:
        return None
    # a thread that left no checkpoint is asked again
    return {"messages": [("user", "Do it.")]}


def _config(case: Case) -> Any:
    return {"configurable": {"thread_id": case.run}, "recursion_limit": 100}


def _as_talk(state: Any) -> Talk:
    messages = state["messages"]
    return Talk(
        texts=[str(each.content) for each in messages if isinstance(each, ToolMessage)],
        waits="__interrupt__" in state,
        turns=sum(isinstance(each, AIMessage) for each in messages),
    )
