"""A tool returns three megabytes. The model reads what fits, and looks for the rest where it is stored."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedModel, call


@hr.tool(effect="read", timeout_s=5, limits=hr.Limits(result_bytes=1_000))
async def list_orders(year: int) -> list[dict[str, object]]:
    """List the orders of a year."""
    return [{"order": f"A-{number}", "paid": number % 7 * 10} for number in range(90_000)]


def look_for(words: str) -> object:
    """Do what the note of the last result says."""
    return lambda messages: call("read_result", handle=messages[-1].result.handle, pattern=words)


async def main() -> None:
    async with hr.Runtime([list_orders]) as runtime:
        model = ScriptedModel([call("list_orders", year=2025), look_for("A-88888"), "It is there: 20 were paid."])
        run = await runtime.run("What was paid for A-88888?", model=model)
    for message in run.messages:
        if isinstance(message, hr.ToolMessage):
            returned, read = len(str(message.result.value)), message.result.text
            print(
                f"{message.result.name} returned {returned:,} characters, and the model reads {len(read):,}:\n{read}\n"
            )
    print("tools at first:", [tool.name for tool in model.requests[0].tools])
    print("tools at last: ", [tool.name for tool in model.requests[-1].tools])


asyncio.run(main())
