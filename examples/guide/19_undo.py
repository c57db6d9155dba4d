"""A write is taken back by whoever decides to, and can then be done again."""

import asyncio
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.testing import ScriptedModel, call

BANK: list[str] = []


def charge(order_id: str, amount: float, result: str) -> str:
    """Take a refund back: called with what the refund was called with, and with its result."""
    BANK.append(f"charged {amount:g} for {order_id}")
    return "charged"


@hr.tool(effect="write", key="refund:{order_id}", write=hr.Write(compensate=charge), timeout_s=5)
def refund(order_id: str, amount: float) -> str:
    """Pay a part of an order back, once."""
    BANK.append(f"refunded {amount:g} for {order_id}")
    return "paid"


async def main(store: str) -> None:
    model = ScriptedModel([call("refund", order_id="A-1", amount=20), "It is paid back."])
    async with hr.Runtime([refund], store=store) as runtime:
        run = await runtime.run("Refund 20 of A-1.", model=model)
        for step in await runtime.undoable(run.id):
            print("can be taken back:", step.step, step.tool, dict(step.arguments))
        for result in await runtime.undo(run.id):  # all of them; some: undo(run.id, ["1.0"])
            print(result.name, result.text)
        await runtime.call("refund", {"order_id": "A-1", "amount": 15})
    print(*BANK, sep="\n")


with TemporaryDirectory() as place:
    asyncio.run(main(f"sqlite:///{place}/handrail.db"))
