"""A program that the model writes calls tools: the calls that it may make run, the others are refused."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedModel


@hr.tool(effect="read", limits=hr.Limits(callers=("direct", "program")))
def get_stock(item: str) -> dict[str, int]:
    """Look up how many of an item are in stock."""
    return {"count": {"tea": 3, "salt": 0}[item]}


@hr.tool(effect="write", key="order:{item}")
def order(item: str) -> str:
    """Order an item."""
    return f"ordered {item}"


def asks(name: str, item: str) -> hr.Turn:
    """Return an answer as a provider decodes it while a program runs."""
    call = hr.ToolCall(f"call_{name}_{item}", name, f'{{"item": "{item}"}}', program="prog_1")
    return hr.Turn(calls=[call], finish="calls")


async def main() -> None:
    model = ScriptedModel([asks("get_stock", "tea"), asks("get_stock", "salt"), asks("order", "salt"), "Salt is out."])
    async with hr.Runtime([get_stock, order]) as runtime:
        run = await runtime.run("What is missing?", model=model)
    print(run.transcript(debug=True))
    print(f"{run.spent.turns} turns")


asyncio.run(main())
