"""handrail under Microsoft's Agent Framework: what its approvals bind, and a call without a session."""

import asyncio

import pytest

import handrail as hr

pytest.importorskip("agent_framework")

from agent_framework import Agent, MiddlewareFailure

from handrail_frameworks.agent_framework import HandrailFunctionMiddleware
from handrail_frameworks.bench.on_agent_framework import ScriptedChatClient
from handrail_frameworks.bench.play import play
from handrail_frameworks.bench.scenarios import SCENARIOS, ScriptedTurn

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["repeated", "killed", "circle", "approve", "stale"])
def test_a_scenario_ends_as_wanted(name):
    cell = play("agent-framework", name, "handrail")
    assert cell.is_wanted, (SCENARIOS[name].title, cell.text)


def test_a_call_without_a_session_ends_the_run_and_does_not_pay():
    paid = []

    @hr.tool(effect="write")
    def pay(order: str) -> str:
        """Pay for an order."""
        paid.append(order)
        return "paid"

    async def talk():
        async with hr.Runtime([pay]) as runtime:
            handrail = HandrailFunctionMiddleware(runtime)
            turn = ScriptedTurn(calls=[("call_1", "pay", '{"order": "A-1"}')])
            client = ScriptedChatClient(
                [turn, ScriptedTurn(text="Done.", finish="stop")]
            )
            agent = Agent(client=client, tools=handrail.tools, middleware=[handrail])
            await agent.run("Pay.")

    with pytest.raises(MiddlewareFailure, match="needs a session"):
        asyncio.run(talk())
    assert paid == []
