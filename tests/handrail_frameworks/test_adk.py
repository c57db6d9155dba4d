"""handrail under Google's ADK: what an invocation that is resumed keeps, and whose session is whose."""

import asyncio

import pytest

import handrail as hr

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

from handrail_frameworks.adk import HandrailBaseToolset
from handrail_frameworks.bench.on_adk import ScriptedLlm
from handrail_frameworks.bench.play import play
from handrail_frameworks.bench.scenarios import SCENARIOS, ScriptedTurn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # ADK marks what is experimental
    pytest.mark.filterwarnings("ignore::DeprecationWarning:google"),
]


def test_a_payment_that_hangs_never_lands():
    assert "paid never" in play("adk", "hung", "handrail").text


@pytest.mark.parametrize(
    "name", ["repeated", "killed", "cut", "approve", "deny", "edit", "stale"]
)
def test_a_scenario_ends_as_wanted(name):
    cell = play("adk", name, "handrail")
    assert cell.is_wanted, (SCENARIOS[name].title, cell.text)


def test_users_with_equal_session_ids_do_not_share_a_run(tmp_path):
    paid = []

    @hr.tool(effect="write")
    def pay(order: str) -> str:
        """Pay for an order."""
        paid.append(order)
        return "paid"

    runtime = hr.Runtime([pay], store=f"sqlite:///{tmp_path / 'handrail.db'}")
    script = [
        ScriptedTurn(calls=[("call_1", "pay", '{"order": "A-1"}')]),
        ScriptedTurn(text="Done.", finish="stop"),
    ]

    async def talk(user):
        model = ScriptedLlm(model="scripted", script=script)
        agent = LlmAgent(name="shop", model=model, tools=[HandrailBaseToolset(runtime)])
        runner = InMemoryRunner(agent=agent, app_name="shop")
        session = await runner.session_service.create_session(
            app_name="shop", user_id=user, session_id="1"
        )
        text = types.Content(role="user", parts=[types.Part(text="Pay.")])
        async for _ in runner.run_async(
            user_id=user, session_id=session.id, new_message=text
        ):
            pass

    async def main():
        for user in ("anna", "ben", "anna"):
            await talk(user)
        await runtime.close()

    asyncio.run(main())
    assert paid == ["A-1", "A-1"]
