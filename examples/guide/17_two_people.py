"""A large refund needs two people, and neither may be the one who asked for it."""

import json
import subprocess
from pathlib import Path
from sys import executable
from tempfile import TemporaryDirectory

import handrail as hr


@hr.tool(
    effect="write", key="refund:{order_id}", approve="amount > 100", write=hr.Write(required_approvals=2), timeout_s=5
)
def refund(order_id: str, amount: float) -> str:
    """Pay a part of an order back, once."""
    return f"{amount:g} paid back"


def approvals(*words: str) -> str:
    """Say `handrail approvals ...`, and return the first line of what it answers."""
    answer = subprocess.run([executable, "-m", "handrail", "approvals", *words], capture_output=True, text=True)
    return (answer.stdout or answer.stderr).splitlines()[0]


with TemporaryDirectory() as place:
    store = f"sqlite:///{Path(place, 'handrail.db')}"
    with hr.SyncRuntime([refund], store=store, principal="anna") as runtime:
        ask = {"order_id": "A-2", "amount": 180}
        print(runtime.call("refund", ask, run="desk-1").failure.message)
        (question,) = json.loads(approvals("list", "--json", "--store", store))["questions"]
        for name in ("anna", "ben", "Ben", "cleo"):
            answer = approvals("approve", question["id"], "--by", name, "--store", store)
            print(f"{name}: {answer}")
        print(runtime.call("refund", ask, run="desk-1").text)
