"""A write that happens at most once, in turn with others on its order; when it is large, a person must agree.

handrail call get_order '{"order_id": "A-1"}' --tools examples/orders.py
handrail call refund '{"order_id": "A-1", "amount": 20}' --tools examples/orders.py
handrail call refund '{"order_id": "A-2", "amount": 180}' --tools examples/orders.py       # asks you
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

import handrail as hr


@dataclass
class Order:
    """An order as the shop keeps it, amounts in euros."""

    id: str
    paid: float
    refunded: float = 0.0


ORDERS = {"A-1": Order("A-1", paid=49.0), "A-2": Order("A-2", paid=480.0)}


@hr.tool(effect="read", resource="order:{order_id}", timeout_s=5)
def get_order(order_id: str) -> Order:
    """Look an order up.

    Args:
        order_id: Such as "A-1".
    """
    if order_id not in ORDERS:
        raise hr.ToolError(
            "ORDER_NOT_FOUND", f"There is no order {order_id!r}.", suggestion="Ask the user for the number."
        )
    return ORDERS[order_id]


def refundable(order_id: str, amount: float) -> str | None:
    """Say what is wrong with a refund, before anybody is asked and before the key is taken."""
    order = ORDERS.get(order_id)
    if order is None:
        return f"There is no order {order_id!r}."
    left = order.paid - order.refunded
    return f"Of order {order_id!r} at most {left:g} can be refunded." if amount > left else None


# The key names the act: one refund per order, in whatever run, process or retry it is asked for.
@hr.tool(
    effect="write",
    key="refund:{order_id}",
    resource="order:{order_id}",
    check=refundable,
    approve="amount > 100",
    timeout_s=10,
)
def refund(order_id: str, amount: Annotated[float, Field(gt=0)]) -> Order:
    """Pay a part of an order back, once.

    Args:
        order_id: Such as "A-1".
        amount: In euros, at most what was paid.
    """
    order = ORDERS[order_id]
    order.refunded += amount
    return order
