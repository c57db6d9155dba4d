"""Step 1: a function that changes the world becomes a tool."""

from tempfile import TemporaryDirectory

from bank import Bank

import handrail as hr

with TemporaryDirectory() as folder:
    bank = Bank(folder)

    @hr.tool(effect="write", timeout_s=5)
    def pay_invoice(invoice: str, amount: int) -> str:
        """Pay an invoice.

        Args:
            invoice: Such as "INV-7".
            amount: In euros.
        """
        return bank.pay(amount, invoice)

    with hr.SyncRuntime([pay_invoice]) as runtime:
        result = runtime.call("pay_invoice", {"invoice": "INV-7", "amount": 120})
        print("a good call: ", result.value)
        result = runtime.call("pay_invoice", {"invoice": "INV-7", "amount": "a lot"})
        print("a bad call:  ", result.failure.code, "-", result.failure.message)

    print("payments:    ", bank.payments())
