"""A small server on the SDK alone, which the tests of the client use.

python -m tests.handrail_mcp.depot stdio, or http PORT
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel

depot = MCPServer(
    "depot", log_level="WARNING", instructions="Ask for what is in stock."
)
rooms = []
READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def note(line: str) -> None:
    """Leave a trace in the world."""
    with Path(os.environ["DEPOT_EFFECTS"]).open("a") as file:
        file.write(f"{line}\n")


@depot.tool(annotations=READ)
def count_stock(item: str) -> int:
    """Count what is in stock."""
    return len(item)


@depot.tool()
def order(item: str, amount: int = 1) -> str:
    """Order an item."""
    note(f"order {item} {amount}")
    return f"ordered {amount} of {item}"


@depot.tool(annotations=READ)
async def walk_through(steps: int, context: Context) -> str:
    """Walk through the depot, slowly."""
    for number in range(steps):
        await context.report_progress(number + 1, steps, f"aisle {number + 1}")
        await asyncio.sleep(0.05)
    return "done"


@depot.tool(annotations=READ)
async def sleep(seconds: float) -> str:
    """Sleep."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("sleep cancelled")
        raise
    return "slept"


@depot.tool(annotations=READ)
def fail() -> str:
    """Fail."""
    raise ToolError("the roof leaks")


class Address(BaseModel):
    street: str
    number: int = 7


@depot.tool(annotations=READ)
async def ask_address(context: Context) -> str:
    """Ask the user where to deliver."""
    answer = await context.elicit("Where to?", Address)
    if answer.action != "accept":
        return answer.action
    return f"{answer.data.street} {answer.data.number}"


@depot.tool()
def result() -> str:
    """Have a name that is handrail's own under the prefix `read_`."""
    return "no result"


@depot.tool(annotations=READ)
def read_environment() -> list[str]:
    """List the names of the environment."""
    return sorted(os.environ)


@depot.tool(annotations=READ)
async def rebuild(context: Context) -> str:
    """Replace the annex: it was not there, or it gets another description."""
    with suppress(ToolError):
        depot.remove_tool("annex")
    rooms.append("room")
    depot.add_tool(lambda: "empty", name="annex", description=f"{len(rooms)} rooms.")
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "rebuilt"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        depot.run("stdio")
    else:
        depot.run("streamable-http", port=int(sys.argv[2]))
