"""What a run may spend, and how it ends when that is spent."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedModel, call


@hr.tool(effect="read", timeout_s=5)
async def search(text: str) -> list[str]:
    """Search the handbook."""
    return []


async def main() -> None:
    insists = ScriptedModel([call("search", text=f"try {number}") for number in range(9)])
    async with hr.Runtime([search], budget=hr.Budget(time_s=60, turns=20)) as runtime:  # for every run
        run = await runtime.run("Find it.", model=insists, budget=hr.Budget(turns=4, per_tool={"search": 2}))
    print(run.status, "|", run.reason)
    print([result["error_code"] if not result["ok"] else "ok" for result in run.as_json()["results"]])


asyncio.run(main())
