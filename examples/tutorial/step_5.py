"""Step 5: a whole conversation dies with its process, and another one goes on with it."""

import os
import signal
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import Any

from bank import Bank

import handrail as hr
from handrail.testing import ScriptedModel, call

QUESTION = "Please pay invoice INV-7, 120 euros."
MODEL = ScriptedModel([call("pay_invoice", invoice="INV-7", amount=120), "INV-7 is paid."])  # or "anthropic:NAME"


def runtime_in(folder: str, *, kills: bool) -> hr.SyncRuntime:
    """Open what both processes have: the tool, and the store in a file."""
    bank = Bank(folder)

    def look(arguments: dict[str, Any], context: hr.Context[None]) -> hr.Found | hr.NotFound:
        payments = bank.find(arguments["invoice"])
        return hr.Found(f"paid {payments[0]}") if payments else hr.NotFound()

    @hr.tool(effect="write", key="invoice:{invoice}", verify=look, timeout_s=5)
    def pay_invoice(invoice: str, amount: int) -> str:
        """Pay an invoice."""
        answer = bank.pay(amount, invoice)
        if kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return hr.SyncRuntime([pay_invoice], store=f"sqlite:///{folder}/handrail.db")


if sys.argv[1:]:  # the process that dies
    with runtime_in(sys.argv[1], kills=True) as runtime:
        runtime.run(QUESTION, model=MODEL, run_id="invoice-7")

with TemporaryDirectory() as folder:
    print("the first process ended with", subprocess.run([sys.executable, __file__, folder]).returncode)
    with runtime_in(folder, kills=False) as runtime:
        run = runtime.resume("invoice-7", model=MODEL)
    print(run.transcript())
    print(run.status, "| payments:", Bank(folder).payments())
