"""Support desk on a bad network: however often a request is lost, repeated or killed, one wish makes one ticket.

    python examples/apps/support_desk.py                  # a ticket system of our own that loses, delays and repeats
    python examples/apps/support_desk.py --calls 2000     # more of them
    python examples/apps/support_desk.py --model openai:NAME --desk https://desk.example/api

Shown: an idempotency key that goes out as a header, retries that are safe because of it, and a run whose process is
killed (`kill -9`) between the ticket and its answer, and gone on with by another process.
"""

import argparse
import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

import handrail as hr
from handrail.testing import ScriptedModel, call
from stand_ins.desk import Jitter, TicketServer

QUESTION = "My card was charged twice for order A-1. I am user U1. Please have somebody look into it."
SYSTEM = "You are the support desk of a shop. Open a ticket for what you cannot mend yourself, then tell its number."
RUN = "support-881"
MODEL = ScriptedModel([
    call("create_ticket", user_id="U1", subject="Charged twice for order A-1"),
    lambda messages: f"I have opened a ticket for you: {messages[-1].result.text}",
])  # fmt: skip


def desk_at(url: str, client: httpx2.AsyncClient) -> hr.FunctionTool:
    """Make the tool. The far side tells duplicates apart by our key, so a lost answer may be asked for again."""

    # No breaker: this network always loses some, and a pause of 30 s after five in a row would help nobody.
    limits = hr.Limits(max_attempts=20, breaker=0)

    @hr.tool(effect="write", replay="key", resource="user:{user_id}", timeout_s=60, limits=limits)
    async def create_ticket(context: hr.Context[None], user_id: str, subject: str) -> dict[str, str]:
        """Open a ticket for a user. Use it for what needs a person; do not use it for questions.

        Args:
            user_id: Such as "U1".
            subject: What is wrong, in one line.
        """
        ticket, key = {"user_id": user_id, "subject": subject}, {"Idempotency-Key": context.idempotency_key}
        answer = await client.post(f"{url}/tickets", json=ticket, headers=key, timeout=0.5)
        answer.raise_for_status()
        if answer.headers.get("Idempotency-Key", context.idempotency_key) != context.idempotency_key:
            raise ConnectionError("an answer that was sent twice was taken for the answer to this request")
        return answer.json()

    return create_ticket


async def ask(url: str, store: Path, model: str | ScriptedModel, *, named: bool = True, resume: bool = False) -> hr.Run:
    """Begin the run, or go on with it: what both processes do."""
    async with (
        httpx2.AsyncClient() as client,
        hr.Runtime([desk_at(url, client)], store=f"sqlite:///{store}") as runtime,
    ):
        if resume:
            return await runtime.resume(RUN, model=model)
        return await runtime.run(QUESTION, model=model, system=SYSTEM, run_id=RUN if named else None)


async def killed_and_resumed(server: TicketServer, store: Path) -> hr.Run:
    """Let a process begin; kill it when the ticket is made and not yet answered; go on here."""
    child = subprocess.Popen([sys.executable, __file__, "--begin", str(store), "--desk", server.url])
    server.made = lambda _ticket: os.kill(child.pid, signal.SIGKILL)
    print(f"the first process ended with {await asyncio.to_thread(child.wait)}; tickets: {len(server.tickets)}")
    server.made = lambda _ticket: None
    run = await ask(server.url, store, MODEL, resume=True)
    print(f"gone on with: {run.text}")
    print(f"tickets: {len(server.tickets)}, asked for {len(server.fates)} times\n")
    return run


async def many(server: TicketServer, calls: int) -> Counter[bool]:
    """Open many tickets at once through the bad network."""
    limits = httpx2.Limits(max_connections=50)
    async with httpx2.AsyncClient(limits=limits) as client, hr.Runtime([desk_at(server.url, client)]) as runtime:
        wishes = ({"user_id": f"U{n % 100}", "subject": f"Wish number {n}"} for n in range(calls))
        results = await asyncio.gather(*(runtime.call("create_ticket", wish) for wish in wishes))
    for fate, count in Counter(server.fates).most_common():
        print(f"{count:6} x {fate.value}")
    print(f"{calls} calls took {len(server.fates)} requests and made {len(server.tickets)} tickets.")
    print(f"The network lost some of them and delivered others twice: {server.delivered} reached the desk.")
    print(f"Without the key each of those would have made a ticket: {server.delivered}.")
    return Counter(result.ok for result in results)


def main(arguments: list[str] | None = None) -> tuple[hr.Run, TicketServer, TicketServer] | None:
    """Run the app; return what a test looks at."""
    options = argparse.ArgumentParser()
    options.add_argument("--calls", type=int, default=500)
    options.add_argument("--model", default="")
    options.add_argument("--desk", default="", help="a ticket system of yours that honours Idempotency-Key")
    options.add_argument("--begin", type=Path, help="(the process that will be killed)")
    given = options.parse_args(arguments)
    if given.desk:
        asking = ask(given.desk, given.begin or Path("support-desk.db"), given.model or MODEL, named=bool(given.begin))
        print(asyncio.run(asking).text)
        return None
    with TicketServer() as quiet, TicketServer(Jitter(seed=11)) as bad, TemporaryDirectory() as place:
        run = asyncio.run(killed_and_resumed(quiet, Path(place) / "handrail.db"))
        asyncio.run(many(bad, given.calls))
        return run, quiet, bad


if __name__ == "__main__":
    logging.getLogger("handrail").setLevel(logging.ERROR)  # every lost answer is a warning; here they are counted
    main()
