"""An agent of agno whose tools run under handrail: who is asked depends on the arguments, and the word is bound."""

import asyncio
from tempfile import TemporaryDirectory

from agno.agent import Agent
from agno.db.sqlite import SqliteDb

import handrail as hr
from handrail_frameworks.agno import as_functions, review
from handrail_frameworks.bench.on_agno import ScriptedAgnoModel
from handrail_frameworks.bench.scenarios import ScriptedTurn


@hr.tool(effect="write", approve="amount > 100")
def pay(order: str, amount: int) -> str:
    """Pay for an order."""
    return f"paid {amount}"


SCRIPT = [
    ScriptedTurn(calls=[
        ("call_1", "pay", '{"order": "A-1", "amount": 20}'),
        ("call_2", "pay", '{"order": "B-2", "amount": 900}'),
    ]),
    ScriptedTurn(text="Both are paid."),
]  # fmt: skip


async def main(folder: str) -> None:
    async with hr.Runtime([pay], store=f"sqlite:///{folder}/handrail.db") as runtime:
        agent = Agent(
            model=ScriptedAgnoModel(SCRIPT),
            tools=as_functions(runtime),
            db=SqliteDb(db_file=f"{folder}/agno.db"),
            checkpoint="tool-batch",  # so that a run which was killed goes on
            telemetry=False,
        )
        output = await agent.arun("Pay both orders.", session_id="ticket-881")
        # agno holds both calls; the small one needs nobody, and is confirmed here
        for question in await asyncio.to_thread(review, runtime, output):
            print("asks:", question.tool, dict(question.arguments), "because", question.reason)
        for requirement in output.active_requirements:
            requirement.confirm()  # a person has looked at it
        output = await agent.acontinue_run(
            run_id=output.run_id, session_id="ticket-881", requirements=output.requirements
        )
        print([message.content for message in output.messages if message.role == "tool"], output.content)


with TemporaryDirectory() as folder:
    asyncio.run(main(folder))
