"""A program that carries out one step of a story in a folder, and kills itself where it is told to.

    python delivered.py FOLDER STEP [PLACE]

Steps: `begin` a run that orders and waits for the parcel, `deliver` the parcel, `approve` an open question, `resume`
the run. Places: `after-store` once the store has taken the word, `in-tool` inside the tool that uses it.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import handrail as hr
from handrail.testing import ScriptedModel, call

FOLDER = Path(sys.argv[1])
STEP = sys.argv[2]
PLACE = sys.argv[3] if len(sys.argv) > 3 else ""
STORE = f"sqlite:///{FOLDER}/h.db"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def note(what):
    with (FOLDER / "effects").open("a") as file:
        file.write(f"{what}\n")


@hr.tool(effect="write", deferred=True)
def order(item: str) -> str:
    """Order an item; the parcel's number comes when it is sent."""
    note(f"ordered {item}")
    return "ordered"


@hr.tool(effect="write", approve=True)
def pay(parcel: str) -> str:
    """Pay for a parcel."""
    note(f"paid {parcel}")
    if PLACE == "in-tool":
        die()
    return "paid"


MODEL = ScriptedModel(
    [
        call("order", item="a lamp"),
        lambda messages: call("pay", parcel=messages[-1].result.text),
        lambda messages: f"Done: {messages[-1].result.text}",
    ]
)


def print_run(run):
    waits = [
        message.result.question.id
        for message in run.messages
        if getattr(message, "result", None) and message.result.question
    ]
    print(json.dumps([run.status, run.text, waits]))


async def main():
    async with hr.Runtime([order, pay], store=STORE) as runtime:
        if STEP == "begin":
            print_run(await runtime.run("A lamp.", model=MODEL, run_id="r"))
        elif STEP == "deliver":
            [question] = await runtime.approvals.list(run="r")
            await runtime.deliver(question.id, "p-1", by="shop")
        elif STEP == "approve":
            [question] = await runtime.approvals.list(run="r")
            await runtime.approvals.approve(question.id, by="anna")
        elif STEP == "resume":
            print_run(await runtime.resume("r", model=MODEL))
        if PLACE == "after-store":
            die()


asyncio.run(main())
