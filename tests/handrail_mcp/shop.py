"""A shop that is served by stdio or HTTP, for the tests of the server. What is done in it are lines of files.

python -m tests.handrail_mcp.shop FOLDER [PORT [TOKENS]]
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import handrail as hr

FOLDER = Path()
SECRET = "hunter2-hunter2"


def write_line(file: str, line: str) -> None:
    with (FOLDER / file).open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")


def written(file: str) -> list[str]:
    path = FOLDER / file
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@hr.tool(effect="read")
def get_order(order_id: str) -> dict[str, object]:
    """Get an order by its id."""
    print("a tool that prints")
    return {"order_id": order_id, "total": 20}


@hr.tool(effect="write")
def add_note(text: str) -> str:
    """Add a note."""
    write_line("notes", text)
    return f"noted {text}"


@hr.tool(effect="write", risk="high")
def refund(order_id: str, amount: int) -> str:
    """Refund an order."""
    write_line("refunds", f"{order_id} {amount}")
    return f"refunded {amount}"


@hr.tool(effect="write", write=hr.Write(required_approvals=2))
def close_shop(reason: str) -> str:
    """Close the shop for ever."""
    write_line("closed", reason)
    return "closed"


@hr.tool(effect="write", timeout_s=2, isolation="process")
def hang(name: str) -> str:
    """Write, but much too late."""
    time.sleep(8)
    write_line("hung", name)
    return "done"


@hr.tool(effect="write", timeout_s=60)
async def slow_note(text: str) -> str:
    """Add a note, and think about it for long."""
    write_line("notes", text)
    await asyncio.sleep(60)
    return "done"


async def look_for(arguments: dict[str, Any], _: Any) -> hr.Found | hr.NotFound:
    is_there = arguments["text"] in written("notes")
    return hr.Found("it is there") if is_there else hr.NotFound()


@hr.tool(effect="write", timeout_s=60, verify=look_for)
async def slow_checked_note(text: str) -> str:
    """Add a note that can be looked for, and think about it for long."""
    write_line("notes", text)
    await asyncio.sleep(60)
    return "done"


@hr.tool(effect="read", timeout_s=60)
async def count(upto: int, name: str, context: hr.Context[Any]) -> int:
    """Count slowly."""
    try:
        for number in range(upto):
            context.progress(number, upto, f"at {number}")
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        write_line("cancelled", name)
        raise
    return upto


@hr.tool(effect="read")
def list_rows(rows: int) -> list[str]:
    """List many rows."""
    return [f"row {number} " + "x" * 80 for number in range(rows)]


@hr.tool(effect="read")
def fail(password: Annotated[str, hr.Injected]) -> str:
    """Raise with a secret in the text."""
    raise RuntimeError(f"the password is {password}")


@hr.tool(effect="write")
async def cut(context: hr.Context[Any]) -> str:
    """Say everything with a text that was cut in an emoji."""
    half = "cut \ud83d"
    context.log("warning", half)
    context.progress(1, 2, half)
    raise hr.ToolError(half, suggestion=half)


@hr.tool(effect="read")
async def greet(context: hr.Context[Any]) -> str:
    """Ask for a name and a town, then greet."""
    context.log("warning", "about to ask")
    text = {"type": "string", "maxLength": 20}
    name = await context.ask("What is your name?", an_object(name=text))
    town = await context.ask("Where are you?", an_object(town=text))
    if name is None or town is None:
        return "Good day."
    return f"Good day, {name['name']} of {town['town']}."


@hr.tool(effect="write", risk="high", write=hr.Write(interrupts="before"), timeout_s=60)
async def send_gift(order_id: str, context: hr.Context[Any]) -> str:
    """Send a gift, once somebody has said what."""
    answer = await context.ask("What gift?", an_object(gift={"type": "string"}))
    if answer is None:
        raise hr.NoEffect("NO_GIFT", "Nobody said what to send.")
    write_line("gifts", f"{order_id} {answer['gift']}")
    return f"sent {answer['gift']}"


def an_object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


TOOLS = [each for each in list(globals().values()) if isinstance(each, hr.BaseTool)]


def make_server(folder: Path, tokens: str | None = None) -> hr.mcp.ToolServer:
    global FOLDER
    FOLDER = folder
    own = hr.Policy(own_approval=True)
    runtime = hr.Runtime(TOOLS, store=f"sqlite:///{folder}/shop.db", policy=own)
    server = hr.mcp.server(
        runtime,
        "shop",
        instructions="Be kind.",
        options=lambda _: {"inject": {"password": SECRET}},
        tokens=tokens,
    )

    @server.resource("shop://terms")
    def terms() -> str:
        return "No returns."

    @server.prompt()
    def complain(order_id: str) -> str:
        """Complain about an order."""
        return f"Complain about {order_id}."

    return server


def main(folder: str, port: str = "", tokens: str | None = None) -> None:
    server = make_server(Path(folder), tokens)
    if port:
        server.run("streamable-http", port=int(port))
    else:
        server.run("stdio")


if __name__ == "__main__":
    main(*sys.argv[1:])
