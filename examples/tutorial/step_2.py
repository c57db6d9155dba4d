"""Step 2: the same invoice comes twice. A key says that it is one act."""

from tempfile import TemporaryDirectory

from bank import Bank

import handrail as hr


def pay_twice(key: str | None) -> int:
    """Ask for one payment in two conversations; return how many there are."""
    with TemporaryDirectory() as folder:
        bank = Bank(folder)

        @hr.tool(effect="write", key=key, timeout_s=5)
        def pay_invoice(invoice: str, amount: int) -> str:
            """Pay an invoice."""
            return bank.pay(amount, invoice)

        with hr.SyncRuntime([pay_invoice]) as runtime:
            for conversation in ("monday", "tuesday"):
                result = runtime.call("pay_invoice", {"invoice": "INV-7", "amount": 120}, run=conversation)
                print(f"  {conversation}: {result.value}{' (the first result again)' if result.replayed else ''}")
        return bank.payments()


print("without a key")
print("  payments:", pay_twice(key=None))
print("with a key")
print("  payments:", pay_twice(key="invoice:{invoice}"))
