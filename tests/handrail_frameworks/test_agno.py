"""handrail under agno: what a session keeps, and whose confirmation counts."""

import asyncio

import pytest

import handrail as hr

pytest.importorskip("agno")
pytest.importorskip("greenlet")  # without it agno cannot keep sessions in SQLite

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.run.base import RunStatus
from agno.tools.function import Function

from handrail_frameworks.agno import as_functions, review
from handrail_frameworks.bench.on_agno import ScriptedAgnoModel
from handrail_frameworks.bench.play import play
from handrail_frameworks.bench.scenarios import SCENARIOS, ScriptedTurn

pytestmark = pytest.mark.slow
END = ScriptedTurn(text="Done.", finish="stop")


def test_a_payment_that_hangs_never_lands():
    assert "paid never" in play("agno", "hung", "handrail").text


@pytest.mark.parametrize(
    "name", ["repeated", "killed", "approve", "deny", "edit", "stale"]
)
def test_a_scenario_ends_as_wanted(name):
    cell = play("agno", name, "handrail")
    assert cell.is_wanted, (SCENARIOS[name].title, cell.text)


@pytest.fixture
def paid():
    return []


@pytest.fixture
def runtime(paid, tmp_path):
    @hr.tool(effect="write", approve="amount > 100")
    def pay(order: str, amount: int) -> str:
        """Pay for an order."""
        paid.append((order, amount))
        return f"paid {amount}"

    return hr.Runtime([pay], store=f"sqlite:///{tmp_path / 'handrail.db'}")


def make_agent(tmp_path, tools, *turns):
    db = SqliteDb(db_file=str(tmp_path / "agno.db"))
    return Agent(model=ScriptedAgnoModel(turns), tools=tools, db=db, telemetry=False)


def call_pay(amount):
    return ScriptedTurn(
        calls=[("call_1", "pay", f'{{"order": "A-1", "amount": {amount}}}')]
    )


def go_on(agent, output):
    held = output.requirements
    return agent.continue_run(run_id=output.run_id, session_id="s", requirements=held)


def test_nobody_is_asked_about_a_small_amount_by_a_plain_agent(runtime, paid, tmp_path):
    tools = as_functions(runtime, is_async=False)
    agent = make_agent(tmp_path, tools, call_pay(20), END)
    output = agent.run("Pay.", session_id="s")
    assert review(runtime, output) == []
    assert go_on(agent, output).status == RunStatus.completed
    assert paid == [("A-1", 20)]
    runtime.blocking.close()


def test_a_confirmation_without_a_question_asks_and_does_not_pay(
    runtime, paid, tmp_path
):
    tools = as_functions(runtime, is_async=False)
    agent = make_agent(tmp_path, tools, call_pay(900), END)
    output = agent.run("Pay.", session_id="s")
    for requirement in output.requirements:
        requirement.confirm()
    go_on(agent, output)
    assert paid == []
    [question] = runtime.blocking.approvals.list()
    assert question.arguments == {"order": "A-1", "amount": 900}
    runtime.blocking.close()


def test_a_rejection_in_agno_closes_the_question_here(runtime, paid, tmp_path):
    tools = as_functions(runtime, is_async=False)
    agent = make_agent(tmp_path, tools, call_pay(900), END)
    output = agent.run("Pay.", session_id="s")
    [question] = review(runtime, output)
    output.requirements[0].reject("too much")
    assert review(runtime, output) == []
    assert runtime.blocking.approvals.get(question.id).state == "denied"
    runtime.blocking.close()


def test_a_tool_of_the_agent_itself_is_left_to_its_person(runtime, tmp_path):
    def erase(path: str) -> str:
        """Erase a file."""
        raise AssertionError(path)

    foreign = Function.from_callable(erase)
    foreign.requires_confirmation = True
    erase_it = ScriptedTurn(calls=[("call_1", "erase", '{"path": "/"}')])
    agent = make_agent(tmp_path, [foreign], erase_it, END)
    output = agent.run("Erase.", session_id="s")
    assert review(runtime, output) == []
    assert output.requirements[0].needs_confirmation


def test_two_tenants_with_one_key_pay_twice(tmp_path, paid):
    @hr.tool(effect="write", key="pay:{order}")
    def pay(order: str, amount: int) -> str:
        """Pay for an order."""
        paid.append((order, amount))
        return f"paid {amount}"

    runtime = hr.Runtime([pay], store=f"sqlite:///{tmp_path / 'handrail.db'}")
    tools = as_functions(runtime, options=lambda context: {"scope": context.user_id})

    async def talk(user):
        agent = make_agent(tmp_path, tools, call_pay(20), END)
        await agent.arun("Pay.", session_id="s-" + user, user_id=user)

    async def main():
        for user in ("anna", "ben", "anna"):
            await talk(user)
        await runtime.close()

    asyncio.run(main())
    assert paid == [("A-1", 20), ("A-1", 20)]


def test_a_parameter_that_agno_would_fill_is_refused():
    @hr.tool(effect="read")
    def find(fc: str) -> str:
        """Find a file."""
        return fc

    with pytest.raises(hr.ConfigError, match="rename its parameter `fc`"):
        as_functions(hr.Runtime([find]))


def test_a_streamed_run_pays(tmp_path, paid):
    @hr.tool(effect="write")
    def pay(order: str, amount: int) -> str:
        """Pay for an order."""
        paid.append((order, amount))
        return f"paid {amount}"

    runtime = hr.Runtime([pay], store=f"sqlite:///{tmp_path / 'handrail.db'}")
    agent = make_agent(tmp_path, as_functions(runtime), call_pay(20), END)

    async def stream():
        events = agent.arun("Pay.", session_id="s", stream=True)
        texts = [event.content async for event in events]
        await runtime.close()
        return texts

    assert "Done." in asyncio.run(stream())
    assert paid == [("A-1", 20)]
