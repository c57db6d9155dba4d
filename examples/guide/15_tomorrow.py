"""A run waits for a person in a store; the word is given on the command line; another runtime goes on with it."""

import json
import subprocess
from pathlib import Path
from sys import executable
from tempfile import TemporaryDirectory

from pydantic import BaseModel

import handrail as hr
from handrail.testing import ScriptedServer, call


class Outcome(BaseModel):
    order_id: str
    refunded: float


@hr.tool(effect="write", key="refund:{order_id}", approve="amount > 100", timeout_s=5)
def refund(order_id: str, amount: float) -> str:
    """Pay a part of an order back, once."""
    return f"{amount:g} paid back"


script = [call("refund", order_id="A-2", amount=180), '{"order_id": "A-2", "refunded": 180}']
with TemporaryDirectory() as place, ScriptedServer(script, wire="hermes") as server:
    store = f"sqlite:///{Path(place, 'handrail.db')}"
    approvals = [executable, "-m", "handrail", "approvals"]  # what anna types: handrail approvals ...
    with hr.SyncRuntime([refund], store=store) as today:
        run = today.run("Refund A-2.", model=server.model, output=Outcome)
        print(run.status, "|", run.reason)
    listed = subprocess.check_output([*approvals, "list", "--json", "--store", store])
    (question,) = json.loads(listed)["questions"]
    text = subprocess.check_output([*approvals, "approve", question["id"], "--by", "anna", "--store", store], text=True)
    print(text.splitlines()[0])
    with hr.SyncRuntime([refund], store=store) as tomorrow:  # in any process
        print(repr(tomorrow.resume(run.id, output=Outcome).output))
