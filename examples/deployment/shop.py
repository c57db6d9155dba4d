"""The tools of the example: replace them with yours."""

import handrail as hr


@hr.tool(effect="read")
def get_order(order_id: str) -> str:
    """Look an order up."""
    return f"{order_id} was paid"


@hr.tool(effect="write", key="refund:{order_id}", approve="amount > 100")
def refund(order_id: str, amount: float) -> str:
    """Pay a part of an order back, once."""
    return f"{amount:g} paid back"
