"""A worker in a program of your own: its tools share an object, and a function of yours gets the questions."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.worker import Worker
from handrail.testing import ScriptedModel, call


@dataclass
class Desk:
    """What the tools share: a pool of connections, say."""

    tickets: list[str] = field(default_factory=list)


@hr.tool(effect="write", key="ticket:{title}", approve=True, timeout_s=5)
def create_ticket(title: str, context: hr.Context[Desk]) -> str:
    """Create a ticket."""
    context.deps.tickets.append(title)
    return f"ticket {len(context.deps.tickets)}"


def tell(question: hr.ApprovalRequest) -> None:
    print("to the team:", question.tool, dict(question.arguments))


async def main(place: str) -> None:
    model = ScriptedModel([call("create_ticket", title="Slow checkout"), "Ticket 1 is open."])  # or "openai:NAME"
    async with hr.Runtime([create_ticket], store=place, notify=tell) as runtime:
        dispatcher = open_dispatcher(runtime.store)
        worker = Worker(runtime, dispatcher, model=model, deps=Desk(), concurrency=16)
        shift = asyncio.create_task(worker.work())

        run_id = await runtime.submit("The checkout is slow. Open a ticket.")  # any process does this
        print((await runtime.result(run_id)).reason)
        [question] = await runtime.approvals.list()
        await runtime.approvals.approve(question.id, by="anna")
        print((await runtime.result(run_id)).text)

        await worker.stop(grace_s=30)  # on SIGTERM
        await shift


with TemporaryDirectory() as folder:
    asyncio.run(main(f"sqlite:///{Path(folder) / 'runs.db'}"))
