"""The tools of the example: replace them with yours."""

import handrail as hr


@hr.tool(effect="read")
def get_order(order_id: str) -> str:
    """Look an order up.

    Args:
        order_id: The number on its invoice, such as 881.
    """
    return f"{order_id} was paid"


@hr.tool(
    effect="write",
    key="refund:{order_id}",
    resource="order:{order_id}",
    approve="amount > 100",
)
def refund(order_id: str, amount: float) -> str:
    """Pay a part of an order back, once.

    Args:
        order_id: The number on its invoice, such as 881.
        amount: What to pay back, in euros, such as 12.5.
    """
    return f"{amount:g} paid back"
