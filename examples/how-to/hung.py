"""A query that does not end in time: in a thread, in a process that is killed, and as a write in a thread."""

import asyncio
import logging
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.events import FinishedLate


def count_rows(table: str, note_in: Path) -> str:
    """Count the rows of a table and note it down; as long as the table is locked, wait."""
    while (note_in.parent / "locked").exists():
        time.sleep(0.05)
    note_in.write_text(f"counted {table}")
    return "42 rows"


FIRST = hr.FunctionTool(count_rows, name="count", effect="read", isolation="process")
WAYS = {
    "in a thread": hr.FunctionTool(count_rows, name="count_1", effect="read", timeout_s=2),
    "in a process": hr.FunctionTool(count_rows, name="count_2", effect="read", timeout_s=2, isolation="process"),
    "as a write": hr.FunctionTool(count_rows, name="count_3", effect="write", key="{table}", timeout_s=2),
}


async def main(place: Path) -> None:
    late: list[FinishedLate] = []
    observe = [lambda event: late.append(event) if isinstance(event, FinishedLate) else None]
    async with hr.Runtime([FIRST, *WAYS.values()], observers=observe) as runtime:
        free = await runtime.call("count", {"table": "customers", "note_in": str(place / "free")})
        print("a table that is free:", free.value)
        locked = place / "locked"
        locked.touch()
        asked = {tool.name: {"table": "orders", "note_in": str(place / tool.name)} for tool in WAYS.values()}
        results = await asyncio.gather(*(runtime.call(name, arguments) for name, arguments in asked.items()))
        locked.unlink()
        while len(late) < 2:
            await asyncio.sleep(0.05)
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
