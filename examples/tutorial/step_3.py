"""Step 3: `kill -9` in the middle of a payment. A store remembers that it was started."""

import os
import signal
import subprocess
import sys
from tempfile import TemporaryDirectory

from bank import Bank

import handrail as hr


def pay(folder: str, *, kills: bool) -> hr.ToolResult:
    """Pay one invoice; perhaps the process dies after the bank has paid, before anybody hears of it."""
    bank = Bank(folder)

    @hr.tool(effect="write", key="invoice:{invoice}", timeout_s=0.5)
    def pay_invoice(invoice: str, amount: int) -> str:
        """Pay an invoice."""
        answer = bank.pay(amount, invoice)
        if kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    with hr.SyncRuntime([pay_invoice], store=f"sqlite:///{folder}/handrail.db") as runtime:
        return runtime.call("pay_invoice", {"invoice": "INV-7", "amount": 120})


if sys.argv[1:]:  # the process that dies
    pay(sys.argv[1], kills=True)

with TemporaryDirectory() as folder:
    died = subprocess.run([sys.executable, __file__, folder])
    print("the first process ended with", died.returncode)
    failure = pay(folder, kills=False).failure
    print("the second one reads:", failure.code)
    print(" ", failure.message)
    print(" ", failure.suggestion)
    print("payments:", Bank(folder).payments())
