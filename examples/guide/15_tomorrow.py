"""A run waits for a person in a store; the word is given on the command line; another runtime goes on with it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel

import handrail as hr
from handrail.testing import ScriptedServer, call


class Outcome(BaseModel):
    """What the shop's own program goes on with."""

    order_id: str
    refunded: float


@hr.tool(effect="write", key="refund:{order_id}", approve="amount > 100", timeout_s=5)
def refund(order_id: str, amount: float) -> str:
    """Pay a part of an order back, once."""
    return f"{amount:g} paid back"


def handrail(place: str, *command: str) -> str:
    """Type a command of handrail where `handrail.db` lies; elsewhere it takes `--store` or HANDRAIL_STORE."""
    typed = [sys.executable, "-m", "handrail", *command]
    return subprocess.run(typed, cwd=place, check=True, capture_output=True, text=True, encoding="utf-8").stdout


async def main(place: str, wire: str) -> None:
    store = f"sqlite:///{Path(place, 'handrail.db')}"
    answer = '{"order_id": "A-2", "refunded": 180}'
    with ScriptedServer([call("refund", order_id="A-2", amount=180), answer], wire=wire) as server:
        async with hr.Runtime([refund], store=store) as today:
            run = await today.run("Refund A-2.", model=server.model, output=Outcome, run_id="case-7")
        print(server.model.partition("@")[0], "|", run.status, "|", run.reason)

        (question,) = json.loads(handrail(place, "approvals", "list", "--json"))["questions"]
        print(handrail(place, "approvals", "approve", question["id"], "--by", "anna"), end="")

        async with hr.Runtime([refund], store=store) as tomorrow:  # in any process
            run = await tomorrow.resume("case-7", output=Outcome)
        print(repr(run.output))


for wire in ("anthropic", "hermes"):
    with TemporaryDirectory() as place:
        asyncio.run(main(place, wire))
