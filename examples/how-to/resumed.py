"""A run is killed in the middle of a write. Another process goes on with it, and the model looks before it writes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.testing import ScriptedModel, call

MODEL = ScriptedModel([
    call("create_ticket", request_id="881", title="printer on fire"),
    call("find_tickets", request_id="881"),
    "Your ticket is open: printer on fire.",
])  # fmt: skip


def runtime_in(place: Path, *, kills: bool) -> hr.Runtime:
    """Open what both processes have: the tools, and the store in a file. The ticket system is a directory."""

    @hr.tool(effect="write", key="ticket:{request_id}", timeout_s=5)
    def create_ticket(request_id: str, title: str) -> str:
        """Open a ticket for a customer's request."""
        place.joinpath(f"ticket-{request_id}").write_text(title)
        if kills:
            os.kill(os.getpid(), signal.SIGKILL)  # it is done, and nobody can say so any more
        return "opened"

    @hr.tool(effect="read", timeout_s=5)
    def find_tickets(request_id: str) -> list[str]:
        """Find the tickets of a customer's request."""
        return [ticket.read_text() for ticket in place.glob(f"ticket-{request_id}")]

    return hr.Runtime([create_ticket, find_tickets], store=f"sqlite:///{place}/handrail.db")


async def begin(place: Path) -> None:
    async with runtime_in(place, kills=True) as runtime:
        await runtime.run("My printer is on fire, please open a ticket.", model=MODEL, run_id="support-881")


async def go_on(place: Path) -> None:
    async with runtime_in(place, kills=False) as runtime:
        run = await runtime.resume("support-881", model=MODEL)
    print(run.transcript(debug=True))


if sys.argv[1:]:  # the process that will be killed
    asyncio.run(begin(Path(sys.argv[1])))
else:
    with TemporaryDirectory() as directory:
        print("the first process ended with", subprocess.run([sys.executable, __file__, directory]).returncode)
        asyncio.run(go_on(Path(directory)))
        print("tickets:", len(list(Path(directory).glob("ticket-*"))))
