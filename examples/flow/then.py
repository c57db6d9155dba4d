"""A fixed step after a tool: whenever an order is placed, its receipt is sent. The model has no say in it."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedModel, call

sent: list[tuple[str, float]] = []


@hr.tool(effect="write")
def send_receipt(order_id: str, total: float) -> str:
    """Send the receipt of an order to its customer."""
    sent.append((order_id, total))
    return "sent"


@hr.tool(
    effect="write",
    key="order:{order_id}",
    then=hr.Then(send_receipt, {"order_id": "{order_id}", "total": "{result.total}"}),
)
def place_order(order_id: str) -> dict[str, float]:
    """Place an order."""
    return {"total": 12.5}


async def main() -> None:
    model = ScriptedModel([call("place_order", order_id="A-7"), "Ordered, and the receipt is on its way."])
    async with hr.Runtime([place_order]) as runtime:  # the model is not even shown `send_receipt`
        run = await runtime.run("Order A-7.", model=model)
    print(run.transcript(debug=True))
    print(sent)


asyncio.run(main())
