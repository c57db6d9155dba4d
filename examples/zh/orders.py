"""至多执行一次的写操作：同一订单上的操作依次执行；金额较大时须由人批准。

handrail call get_order '{"order_id": "A-1"}' --tools examples/zh/orders.py
handrail call refund '{"order_id": "A-1", "amount": 20}' --tools examples/zh/orders.py
handrail call refund '{"order_id": "A-2", "amount": 180}' --tools examples/zh/orders.py       # 会询问您
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

import handrail as hr


@dataclass
class Order:
    """商店里的一张订单，金额以欧元计。"""

    id: str
    paid: float
    refunded: float = 0.0


ORDERS = {"A-1": Order("A-1", paid=49.0), "A-2": Order("A-2", paid=480.0)}


@hr.tool(effect="read", resource="order:{order_id}", timeout_s=5)
def get_order(order_id: str) -> Order:
    """查询订单。

    参数:
        order_id: 例如 "A-1"。
    """
    if order_id not in ORDERS:
        raise hr.ToolError("ORDER_NOT_FOUND", f"没有订单 {order_id!r}。", suggestion="请向用户询问订单号。")
    return ORDERS[order_id]


def refundable(order_id: str, amount: float) -> str | None:
    """在询问任何人、占用键之前，说明退款有什么问题。"""
    order = ORDERS.get(order_id)
    if order is None:
        return f"没有订单 {order_id!r}。"
    left = order.paid - order.refunded
    return f"订单 {order_id!r} 最多可退 {left:g}。" if amount > left else None


# 键指明的是哪一件事：每张订单只退一次款，无论在哪次运行、哪个进程、第几次重试中提出。
@hr.tool(
    effect="write",
    key="refund:{order_id}",
    resource="order:{order_id}",
    check=refundable,
    approve="amount > 100",
    timeout_s=10,
)
def refund(order_id: str, amount: Annotated[float, Field(gt=0)]) -> Order:
    """退还订单的部分款项，只退一次。

    参数:
        order_id: 例如 "A-1"。
        amount: 以欧元计，不超过已付金额。
    """
    order = ORDERS[order_id]
    order.refunded += amount
    return order
