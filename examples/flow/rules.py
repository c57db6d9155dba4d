"""Calls that must be made, and that must not, at a step: search first, look at an order before refunding it."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedModel, call


@hr.tool(effect="read")
def search_policy(words: str) -> str:
    """Search the refund policy."""
    return "Refunds within 30 days, at most what was paid."


@hr.tool(effect="read")
def get_order(order_id: str) -> dict[str, object]:
    """Look an order up."""
    return {"order_id": order_id, "paid": 49.0}


@hr.tool(effect="write", key="refund:{order_id}")
def refund(order_id: str, amount: float) -> str:
    """Pay an order back."""
    return f"refunded {amount:g}"


async def main() -> None:
    hasty = call("refund", order_id="A-1", amount=490)
    script = [hasty, call("search_policy", words="refund"), hasty, call("get_order", order_id="A-1")]
    model = ScriptedModel([*script, call("refund", order_id="A-1", amount=49), "Refunded 49 euros."])
    rules = [hr.Require("search_policy", turn=1), hr.Forbid("refund", until="get_order")]
    async with hr.Runtime([search_policy, get_order, refund]) as runtime:
        run = await runtime.run("Refund A-1.", model=model, flow=rules)
    print(run.transcript(debug=True))
    print([request.options.tool_choice for request in model.requests])  # what went over the wire, turn by turn


asyncio.run(main())
