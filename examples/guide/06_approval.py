"""Rules from a file, and a function that is asked where they say so."""

import asyncio
from pathlib import Path

import handrail as hr

POLICY = hr.Policy.from_toml(Path(__file__).with_name("policy.toml"))


@hr.tool(effect="write", key="refund:{order_id}", timeout_s=5)
async def refund(order_id: str, amount: float) -> str:
    """Pay back a part of an order."""
    return f"{amount:g} for {order_id}"


@hr.tool(effect="destructive", timeout_s=5)
async def drop_orders() -> None:
    """Delete all orders."""


async def approver(asked: hr.AskHuman) -> hr.Approval:
    """Answer as a person would; True and False will do, and None means that nobody is there."""
    print(f"asked: {asked.call.name} {dict(asked.arguments)}, because {asked.reason}")
    return hr.Approval(granted=True, by="shift lead", arguments={**asked.arguments, "amount": 150})


async def main() -> None:
    async with hr.Runtime([refund, drop_orders], policy=POLICY, approver=approver) as runtime:
        print((await runtime.call("refund", {"order_id": "A-1", "amount": 20})).text)
        print((await runtime.call("refund", {"order_id": "A-2", "amount": 180})).text)
        print((await runtime.call("drop_orders")).failure.message)
    async with hr.Runtime([refund], policy=POLICY) as nobody_there:
        print((await nobody_there.call("refund", {"order_id": "A-3", "amount": 180})).failure.code)


asyncio.run(main())
