"""A table without end, row by row. The model reads a page, and goes on where it ended."""

import asyncio
from collections.abc import Iterator

import handrail as hr
from handrail.testing import ScriptedModel, call


@hr.tool(effect="read", timeout_s=5, limits=hr.Limits(result_bytes=700))
def list_orders(year: int) -> Iterator[dict[str, object]]:
    """List the orders of a year."""
    try:
        for number in range(1_000_000_000):
            yield {"order": f"A-{number}", "paid": number % 7 * 10}
    finally:
        print(f"closed after {number + 1} rows")


async def main() -> None:
    model = ScriptedModel([
        call("list_orders", year=2025),
        lambda messages: call("list_orders", year=2025, offset=messages[-1].result.value.next),
        "These are the first orders.",
    ])  # fmt: skip
    async with hr.Runtime([list_orders]) as runtime:
        run = await runtime.run("What was ordered?", model=model)
    print(run.transcript(debug=True))


asyncio.run(main())
