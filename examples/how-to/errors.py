"""Five calls that fail, each in its own way; what the model reads of each; and a run that goes on."""

import asyncio
import logging
from typing import Annotated, Literal

from pydantic import Field

import handrail as hr
from handrail.testing import ScriptedModel, call

ORDERS = {"A-1": 49.0, "A-2": 480.0}


@hr.tool(effect="read", timeout_s=5)
async def get_order(order_id: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
    """Say what was paid for an order."""
    if order_id == "A-0":
        raise RuntimeError("password=hunter2 was refused by db-3.internal")  # a fault of ours, which nobody worded
    if order_id not in ORDERS:
        known = ", ".join(sorted(ORDERS))
        raise hr.ToolError("ORDER_NOT_FOUND", f"There is no order {order_id!r}.", suggestion=f"There are {known}.")
    return ORDERS[order_id]


@hr.tool(effect="read", timeout_s=5)
async def list_orders(limit: Annotated[int, Field(ge=1, le=100)] = 10) -> list[str]:
    """List the numbers of the orders."""
    return sorted(ORDERS)[:limit]


CALLS = [
    hr.ToolCall("c1", "get_orders", '{"order_id": "A-1"}'),  # no such tool
    hr.ToolCall("c2", "get_order", '{"id": "A-1", "currency": "yen"}'),  # a wrong name and a wrong value
    hr.ToolCall("c3", "list_orders", '{"limit": 5000}'),
    hr.ToolCall("c4", "get_order", '{"order_id": "A-9"}'),  # the tool saw it coming
    hr.ToolCall("c5", "get_order", '{"order_id": "A-0"}'),  # nobody did
]


async def main() -> None:
    async with hr.Runtime([get_order, list_orders]) as runtime:
        model = ScriptedModel([CALLS, call("get_order", order_id="A-1"), "49 euros were paid for A-1."])
        run = await runtime.run("What was paid for A-1?", model=model)
    for message in run.messages:
        if isinstance(message, hr.ToolMessage):
            print(message.result.text, "\n")
    print(run.text)


logging.disable()  # the fifth failure's text and traceback go to the log, at level DEBUG, under its reference
asyncio.run(main())
