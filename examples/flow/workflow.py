"""A fixed workflow with a model's decision inside. Its process is killed halfway, and another one goes on with it."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from typing import Literal

import handrail as hr
from handrail.testing import ScriptedModel


@hr.tool(effect="read")
def get_ticket(ticket: str) -> str:
    """Read a ticket."""
    return "The database is read-only since 14:02."


@hr.tool(effect="write", key="page:{ticket}")
def page_on_call(ticket: str) -> str:
    """Page whoever is on call."""
    return f"paged for {ticket}"


async def triage(flow: hr.Workflow, ticket: str) -> str:
    result = await flow.call("get_ticket", {"ticket": ticket})
    kind = await flow.run(f"Urgent or later? {result.value}", output=Literal["urgent", "later"])
    if "--die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return (await flow.call("page_on_call", {"ticket": ticket})).text if kind.output == "urgent" else "queued"


async def main(store: str) -> None:
    model = ScriptedModel(['{"value": "urgent"}'])
    async with hr.Runtime([get_ticket, page_on_call], store=store) as runtime:
        run = await runtime.workflow(triage, {"ticket": "T-1"}, run_id="triage-T-1", model=model)
    print(f"{run.status}: {run.output}; this process asked the model {len(model.requests)} times")


if len(sys.argv) > 1:
    asyncio.run(main(sys.argv[1]))
else:
    with tempfile.TemporaryDirectory() as folder:
        place = f"sqlite:///{folder}/runs.db"
        print("killed:", subprocess.run([sys.executable, __file__, place, "--die"], check=False).returncode)
        asyncio.run(main(place))
