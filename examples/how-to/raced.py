"""Two calls of one answer change one account at once. Without a resource one change is lost."""

import asyncio

import handrail as hr
from handrail.testing import Overlap, ScriptedModel, call

BALANCE = {"A-1": 0, "A-2": 0}
inside = Overlap()


async def add(account: str, amount: int) -> int:
    """Add an amount to an account: read, think, write, as every service does."""
    async with inside:
        balance = BALANCE[account]
        await asyncio.sleep(0.05)
        BALANCE[account] = balance + amount
    return BALANCE[account]


async def main() -> None:
    answer = [call("add", account="A-1", amount=1), call("add", account="A-1", amount=2)]
    answer += [call("add", account="A-2", amount=4)]
    for declared in ({}, {"resource": "account:{account}"}, {"limits": hr.Limits(max_concurrency=1)}):
        BALANCE.update({"A-1": 0, "A-2": 0})
        inside.most_inside = 0
        tool = hr.FunctionTool(add, effect="write", timeout_s=5, **declared)
        async with hr.Runtime([tool]) as runtime:
            await runtime.run("Add 1 and 2 to A-1, and 4 to A-2.", model=ScriptedModel([answer, "Done."]))
        print(f"{declared or 'nothing declared'}: {BALANCE}, at once: {inside.most_inside}")


asyncio.run(main())
