"""A process is killed in the middle of a write. Another one asks for the same ticket, and there is one ticket."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import handrail as hr

TICKET = {"request_id": "881", "title": "printer on fire"}


def desk_in(place: Path, *, kills: bool) -> list[hr.FunctionTool]:
    """Return one tool three times, with what it may declare. The ticket system is a directory, a ticket a file."""

    def create(request_id: str, title: str, context: hr.Context[None]) -> str:
        """Open a ticket for a customer's request. The ticket system knows a key again."""
        place.joinpath(context.tool, context.idempotency_key).write_text(title)
        if kills:
            os.kill(os.getpid(), signal.SIGKILL)  # it is done, and nobody can say so any more
        return f"opened: {title}"

    def look(arguments: dict[str, Any], context: hr.Context[None]) -> hr.Found | hr.NotFound:
        """Ask the ticket system whether the ticket is there."""
        ticket = place.joinpath(context.tool, context.idempotency_key)
        return hr.Found(f"opened: {ticket.read_text()}") if ticket.exists() else hr.NotFound()

    ways: dict[str, dict[str, Any]] = {"nothing": {}, "verify": {"verify": look}, "replay": {"replay": "key"}}
    return [
        hr.FunctionTool(create, name=way, effect="write", key=f"{way}:{{request_id}}", timeout_s=0.5, **how)
        for way, how in ways.items()
    ]


async def ask(place: Path, way: str, *, kills: bool = False) -> str:
    place.joinpath(way).mkdir(exist_ok=True)
    async with hr.Runtime(desk_in(place, kills=kills), store=f"sqlite:///{place}/handrail.db") as runtime:
        result = await runtime.call(way, TICKET)
    return result.value if result.ok else result.failure.code


if sys.argv[1:]:  # the process that will be killed
    asyncio.run(ask(Path(sys.argv[1]), sys.argv[2], kills=True))

with TemporaryDirectory() as directory:
    place = Path(directory)
    for way in ("nothing", "verify", "replay"):
        ended = subprocess.run([sys.executable, __file__, directory, way]).returncode
        print(f"declares {way}: the process ended with {ended}")
        print("  asked again:", asyncio.run(ask(place, way)))
        print("  tickets:    ", len(list(place.joinpath(way).iterdir())))
