"""A tool that ends the run: what it returns is the answer, and the model is not asked to say it again."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedModel, call


@hr.tool(effect="read", limits=hr.Limits(ends_run=True))
def sales_report(month: str) -> dict[str, object]:
    """Make the sales report of a month, such as "2026-10"."""
    return {"month": month, "euros": 48_200.0, "orders": 311}


async def main() -> None:
    model = ScriptedModel([call("sales_report", month="2026-10"), "never asked for"])
    async with hr.Runtime([sales_report]) as runtime:
        run = await runtime.run("The report of October, please.", model=model)
    print(run.status, run.output, f"{run.spent.turns} turn")


asyncio.run(main())
