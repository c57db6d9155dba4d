"""A query that does not end in time: in a thread, in a process that is killed, and as a write."""

import asyncio
import logging
import tempfile
import time
from pathlib import Path

import handrail as hr

PAPER = Path(tempfile.gettempdir(), "handrail-how-to-hung.txt")


def count_rows(table: str) -> str:
    """Count the rows of a table, and note it down; it takes too long."""
    time.sleep(1.5)
    PAPER.write_text(f"counted {table}")
    return "42 rows"


TOOLS = [
    hr.FunctionTool(count_rows, name="in_a_thread", effect="read", timeout_s=1),
    hr.FunctionTool(count_rows, name="in_a_process", effect="read", timeout_s=1, isolation="process"),
    hr.FunctionTool(count_rows, name="as_a_write", effect="write", key="count:{table}", timeout_s=1),
]


async def main() -> None:
    async with hr.Runtime(TOOLS) as runtime:
        for tool in TOOLS:
            PAPER.write_text("nothing")
            began = time.monotonic()
            result = await runtime.call(tool.name, {"table": "orders"})
            print(
                f"{tool.name}: after {time.monotonic() - began:.0f} s, {result.failure.code}: {result.failure.message}"
            )
            await asyncio.sleep(0.8)
            print("  what it did later:", PAPER.read_text())
        result = await runtime.call("as_a_write", {"table": "orders"})
        print(f"as_a_write, asked for again: {result.value}, attempts: {result.attempts}")


if __name__ == "__main__":  # a process of its own imports this file, to find the function in it
    logging.disable()  # what came late is logged; this page shows what is returned
    asyncio.run(main())
    PAPER.unlink()
