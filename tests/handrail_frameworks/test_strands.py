"""handrail under Strands Agents: interrupts that bind a person's word, and what a session keeps."""

import asyncio

import pytest

import handrail as hr

pytest.importorskip("strands")

from strands import Agent
from strands.session.file_session_manager import FileSessionManager

from handrail_frameworks.bench.on_strands import ScriptedStrandsModel
from handrail_frameworks.bench.play import play
from handrail_frameworks.bench.scenarios import SCENARIOS, ScriptedTurn
from handrail_frameworks.strands import as_tools

pytestmark = pytest.mark.slow


def test_a_payment_that_hangs_never_lands():
    assert "paid never" in play("strands", "hung", "handrail").text


@pytest.mark.parametrize(
    "name", ["repeated", "killed", "circle", "approve", "deny", "edit", "stale"]
)
def test_a_scenario_ends_as_wanted(name):
    cell = play("strands", name, "handrail")
    assert cell.is_wanted, (SCENARIOS[name].title, cell.text)


PAY = ScriptedTurn(calls=[("call_1", "pay", '{"order": "A-1", "amount": 900}')])
END = ScriptedTurn(text="Done.", finish="stop")


@pytest.mark.parametrize(("answers", "payments"), [
    ([{"approved": True, "by": "anna"}, {"approved": True, "by": "ben"}], 1),
    ([{"approved": True, "by": "anna"}, {"approved": False, "by": "ben"}], 0),
    (["yes"], 0),  # not a word that says so
])  # fmt: skip
def test_two_people_are_asked_one_after_the_other(tmp_path, answers, payments):
    paid = []

    @hr.tool(effect="write", approve=True, write=hr.Write(required_approvals=2))
    def pay(order: str, amount: int) -> str:
        """Pay for an order."""
        paid.append((order, amount))
        return f"paid {amount}"

    runtime = hr.Runtime([pay], store=f"sqlite:///{tmp_path / 'handrail.db'}")
    agent = Agent(
        model=ScriptedStrandsModel([PAY, END]),
        tools=as_tools(runtime),
        session_manager=FileSessionManager("s", storage_dir=str(tmp_path)),
        callback_handler=None,
    )

    async def talk():
        result = await agent.invoke_async("Pay.")
        for answer in answers:
            (interrupt,) = result.interrupts
            assert interrupt.reason["arguments"] == {"order": "A-1", "amount": 900}
            response = {"interruptId": interrupt.id, "response": answer}
            result = await agent.invoke_async([{"interruptResponse": response}])
        assert result.stop_reason == "end_turn"
        await runtime.close()

    asyncio.run(talk())
    assert len(paid) == payments
