"""An agent as a tool: its process is killed in the middle of its work, and the resumed run repeats nothing."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import handrail as hr
from handrail.testing import ScriptedModel, call

FOLDER = Path(os.environ.get("AGENTS_FOLDER") or tempfile.mkdtemp())
STORE = f"sqlite:///{FOLDER}/handrail.db"


@hr.tool(effect="write", key="ticket:{title}")
def create_ticket(title: str) -> str:
    """Open a ticket."""
    with (FOLDER / "tickets.txt").open("a") as tickets:
        tickets.write(f"{title}\n")
    return "opened"


@hr.tool(effect="write", key="report:{title}", replay="key")
def write_report(title: str) -> str:
    """Write a report; its service knows a key again."""
    if "die" in sys.argv:
        os._exit(1)  # as kill -9 does: nothing is cleaned up, nothing is recorded
    return "written"


DESK_SCRIPT = [[call("create_ticket", title="disk full")], [call("write_report", title="disk full")], "Both are done."]
DESK = hr.agent_tool(
    hr.Runtime([create_ticket, write_report], store=STORE),
    name="desk",
    description="Leave a task to the service desk, which can open tickets and write reports.",
    model=ScriptedModel(DESK_SCRIPT),
)


async def main() -> None:
    model = ScriptedModel([[call("desk", task="A ticket and a report for the full disk.")], "The desk has done it."])
    async with hr.Runtime([DESK], store=STORE) as runtime:
        if "die" in sys.argv:
            await runtime.run("The disk of db-1 is full.", model=model, run_id="alarm-7")
        run = await runtime.resume("alarm-7", model=model)
    print(run.text)
    print((FOLDER / "tickets.txt").read_text().splitlines())


if __name__ == "__main__":
    if "die" not in sys.argv:
        subprocess.run([sys.executable, __file__, "die"], env={**os.environ, "AGENTS_FOLDER": str(FOLDER)}, check=False)
    asyncio.run(main())
