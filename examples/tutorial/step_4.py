"""Step 4: handrail does not guess, but it can look. `verify` finds out how the payment ended."""

import os
import signal
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import Any

from bank import Bank

import handrail as hr


def pay(folder: str, *, dies: str = "") -> hr.ToolResult:
    """Pay one invoice; perhaps the process dies before the bank has paid, or after."""
    bank = Bank(folder)

    def look(arguments: dict[str, Any], context: hr.Context[None]) -> hr.Found | hr.NotFound:
        payments = bank.find(arguments["invoice"])
        return hr.Found(f"paid {payments[0]}") if payments else hr.NotFound()

    @hr.tool(effect="write", key="invoice:{invoice}", verify=look, timeout_s=0.5)
    def pay_invoice(invoice: str, amount: int) -> str:
        """Pay an invoice."""
        if dies == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = bank.pay(amount, invoice)
        if dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    with hr.SyncRuntime([pay_invoice], store=f"sqlite:///{folder}/handrail.db") as runtime:
        return runtime.call("pay_invoice", {"invoice": "INV-7", "amount": 120})


if sys.argv[1:]:  # the process that dies
    pay(sys.argv[1], dies=sys.argv[2])

for moment in ("before", "after"):
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, folder, moment])
        print(f"killed {moment} the bank paid; payments: {Bank(folder).payments()}")
        print("  asked again:", pay(folder).value)
        print("  payments:   ", Bank(folder).payments())
