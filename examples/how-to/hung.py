"""A query that does not end in time: in a thread, in a process that is killed, and as a write in a thread."""

import asyncio
import logging
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr


def count_rows(table: str, note_in: Path) -> str:
    """Count the rows of a table and note it down; it takes too long."""
    time.sleep(2)
    note_in.write_text(f"counted {table}")
    return "42 rows"


WAYS = {
    "in a thread": hr.FunctionTool(count_rows, name="count_1", effect="read", timeout_s=1),
    "in a process": hr.FunctionTool(count_rows, name="count_2", effect="read", timeout_s=1, isolation="process"),
    "as a write": hr.FunctionTool(count_rows, name="count_3", effect="write", key="{table}", timeout_s=1),
}


async def main(place: Path) -> None:
    async with hr.Runtime(WAYS.values()) as runtime:
        asked = {tool.name: {"table": "orders", "note_in": str(place / tool.name)} for tool in WAYS.values()}
        began = time.monotonic()
        results = await asyncio.gather(*(runtime.call(name, arguments) for name, arguments in asked.items()))
        print(f"three answers after {time.monotonic() - began:.0f} s")
        await asyncio.sleep(1.5)
        for (way, tool), result in zip(WAYS.items(), results, strict=True):
            later = place / tool.name
            print(f"\n{way}: {result.failure.code}: {result.failure.message}")
            print("  what it did later:", later.read_text() if later.exists() else "nothing")
        again = await runtime.call("count_3", asked["count_3"])
        print(f"\nthe write, asked for again: {again.value}, attempts: {again.attempts}")


if __name__ == "__main__":  # a process of its own imports this file, to find the function in it
    logging.disable()  # what came late is logged; this page shows what is returned
    with TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
