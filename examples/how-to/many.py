"""Eight results that all fit, and together fill the model's window. The old ones make room."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedModel, call


@hr.tool(effect="read", timeout_s=5)
async def read_page(number: int) -> str:
    """Read a page of the handbook."""
    return f"Page {number}. " + "As it is written, so it is done. " * 300


def describe_result(message: hr.ToolMessage) -> str:
    """Return what the model reads of a result, on one line, shortened here."""
    text = message.result.text.replace("\n", " ")
    return text if len(text) < 500 else f"{text[:40]}... ({len(text):,} characters)"


async def main() -> None:
    script = [hr.Turn(calls=[call("read_page", number=number)], finish="calls") for number in range(1, 9)]
    async with hr.Runtime([read_page]) as runtime:
        for budget in (hr.Budget(), hr.Budget(context_tokens=10_000)):
            model = ScriptedModel([*script, hr.Turn("Read.")])
            run = await runtime.run("Read the handbook.", model=model, budget=budget)
            last = [each for each in model.requests[-1].messages if isinstance(each, hr.ToolMessage)]
            size = sum(len(each.result.text) for each in last)
            print(f"context_tokens={budget.context_tokens}: {run.status}, {size:,} characters of results at last")
        print(*map(describe_result, last), sep="\n")


asyncio.run(main())
