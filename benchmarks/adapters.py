"""What handrail costs under other frameworks: a run of ten calls with a scripted model, plain and with its adapter."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from itertools import count
from typing import Any

import handrail as hr
from benchmarks.measuring import Figure, interleaved

CALLS = 10
NUMBERS = count()


def look(order: str) -> str:
    """Look an order up.

    Args:
        order: Its number.
    """
    return f"order {order} has shipped"


async def under_frameworks(quick: bool) -> list[Figure]:
    """Return the figures of the frameworks that are installed."""
    parts = {
        "langgraph": langgraph_steps,
        "pydantic_ai": pydantic_ai_steps,
        "agents": agents_invoker,
    }
    figures: list[Figure] = []
    for module, measure in parts.items():
        if find_spec(module) is not None:
            figures += await measure(5 if quick else 15)
    return figures


async def langgraph_steps(rounds: int) -> list[Figure]:
    """A LangGraph agent by `ainvoke`."""
    from langchain.agents import create_agent
    from langchain_core.tools import StructuredTool

    from handrail_frameworks.bench.on_langchain import ScriptedChat
    from handrail_frameworks.langchain import HandrailMiddleware

    model = ScriptedChat(script=_script())

    async def ainvoke(agent: Any) -> None:
        ended = await agent.ainvoke(
            {"messages": [("user", "Where are my orders?")]},
            {"configurable": {"thread_id": f"t{next(NUMBERS)}"}, "recursion_limit": 99},
        )
        assert len(ended["messages"]) == 2 * CALLS + 2

    async def aplain(order: str) -> str:
        return look(order)

    plain_tool = StructuredTool.from_function(
        coroutine=aplain, name="look", description="Look an order up."
    )
    plain = create_agent(model, tools=[plain_tool])
    with_handrail = create_agent(model, middleware=[HandrailMiddleware(_runtime())])
    return await _compare("LangGraph", ainvoke, plain, with_handrail, rounds=rounds)


async def pydantic_ai_steps(rounds: int) -> list[Figure]:
    """An agent of pydantic-ai."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from handrail_frameworks.pydantic_ai import HandrailToolset

    def answer(messages: list[Any], _: AgentInfo) -> ModelResponse:
        turn = len(messages) // 2
        if turn == CALLS:
            return ModelResponse([TextPart("All have shipped.")])
        arguments = json.dumps({"order": str(turn)})
        return ModelResponse([ToolCallPart("look", arguments, tool_call_id=f"c{turn}")])

    async def run(agent: Any) -> None:
        ended = await agent.run("Where are my orders?")
        assert len(ended.all_messages()) == 2 * CALLS + 2

    async def aplain(order: str) -> str:
        return look(order)

    aplain.__name__ = "look"
    plain = Agent(FunctionModel(answer), tools=[aplain])
    with_handrail = Agent(FunctionModel(answer), toolsets=[HandrailToolset(_runtime())])
    return await _compare("pydantic-ai", run, plain, with_handrail, rounds=rounds)


async def agents_invoker(rounds: int) -> list[Figure]:
    """The invoker of one tool of the OpenAI Agents SDK."""
    from agents import RunContextWrapper, function_tool
    from agents.tool_context import ToolContext

    from handrail_frameworks.openai_agents import as_function_tools

    async def alook(order: str) -> str:
        return look(order)

    plain = function_tool(alook)
    tools = as_function_tools(_runtime(), run=lambda _: f"t{next(NUMBERS)}")
    [with_handrail] = [each for each in tools if each.name == "look"]
    arguments = '{"order": "1"}'
    wrapper: RunContextWrapper[None] = RunContextWrapper(None)

    def invoke(tool: Any) -> Callable[[], Awaitable[Any]]:
        context = ToolContext(
            context=None,
            usage=wrapper.usage,
            tool_name=tool.name,
            tool_call_id="c1",
            tool_arguments=arguments,
        )
        return lambda: tool.on_invoke_tool(context, arguments)

    times = await interleaved(
        {"plain": invoke(plain), "handrail": invoke(with_handrail)},
        rounds=rounds,
        times=200,
    )
    more_us = (times["handrail"] - times["plain"]) * 1e6
    return [
        Figure(
            "openai-agents: the invoker of a tool, over a plain one", more_us, "us", 35
        )
    ]


def _runtime() -> hr.Runtime:
    async def alook(order: str) -> str:
        return look(order)

    tool = hr.FunctionTool(
        alook, name="look", description=look.__doc__ or "", effect="read"
    )
    return hr.Runtime([tool])


def _script() -> list[Any]:
    from handrail_frameworks.bench.scenarios import ScriptedTurn

    turns = [
        ScriptedTurn(calls=[(f"c{number}", "look", json.dumps({"order": str(number)}))])
        for number in range(CALLS)
    ]
    return [*turns, ScriptedTurn(text="All have shipped.", finish="stop")]


async def _compare(
    name: str,
    run: Callable[[Any], Awaitable[None]],
    plain: Any,
    with_handrail: Any,
    *,
    rounds: int,
) -> list[Figure]:
    times = await interleaved(
        {"plain": lambda: run(plain), "handrail": lambda: run(with_handrail)},
        rounds=rounds,
        times=3,
    )
    ratio = times["handrail"] / times["plain"]
    more_us = (times["handrail"] - times["plain"]) / CALLS * 1e6
    note = f"{more_us:.0f} us a call"
    return [Figure(f"{name}: a run of ten calls", ratio, "x plain", 1.2, note=note)]
