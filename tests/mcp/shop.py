"""A shop, served by stdio or HTTP: what the tests of the server call. Effects are lines of a file.

python -m tests.mcp.shop FOLDER [http PORT]
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated

import handrail as hr

FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()


def add_line(name: str, line: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(line + "\n")


@hr.tool(effect="read")
def get_order(order_id: str) -> dict[str, object]:
    """Get an order by its id."""
    print("a tool that prints")
    return {"order_id": order_id, "total": 20}


@hr.tool(effect="write")
def add_note(text: str) -> str:
    """Add a note."""
    add_line("notes", text)
    return f"noted {text}"


@hr.tool(effect="write", risk="high")
def refund(order_id: str, amount: int) -> str:
    """Refund an order."""
    add_line("refunds", f"{order_id} {amount}")
    return f"refunded {amount} for {order_id}"


@hr.tool(effect="write", risk="high", required_approvals=2)
def close_shop() -> str:
    """Close the shop for ever."""
    add_line("closed", "closed")
    return "closed"


@hr.tool(effect="write", timeout_s=0.5, isolation="process")
def hang(name: str) -> str:
    """Write, but much too late."""
    time.sleep(3)
    add_line("hung", name)
    return "done"


@hr.tool(effect="write", timeout_s=60)
async def slow_note(text: str, context: hr.Context) -> str:
    """Add a note, and think about it for long."""
    add_line("notes", text)
    context.progress(1, 2, "written")
    await asyncio.sleep(30)
    return "done"


@hr.tool(effect="read", timeout_s=60)
async def count(upto: int, context: hr.Context) -> int:
    """Count slowly."""
    try:
        for number in range(upto):
            context.progress(number, upto, f"at {number}")
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        add_line("cancelled", "cancelled")
        raise
    return upto


@hr.tool(effect="read")
def big(rows: int) -> list[str]:
    """List many rows."""
    return [f"row {number} " + "x" * 80 for number in range(rows)]


@hr.tool(effect="read")
def broken(secret: Annotated[str, hr.Injected]) -> str:
    """Raise with a secret in the text."""
    raise RuntimeError(f"the password is {secret}")


@hr.tool(effect="read")
def check_token(token: str) -> str:
    """Refuse, in the tool's own words."""
    raise hr.ToolError(
        "NO_SUCH_TOKEN", f"There is no token {token}.", suggestion="Ask."
    )


TOOLS = [
    get_order,
    add_note,
    refund,
    close_shop,
    hang,
    slow_note,
    count,
    big,
    broken,
    check_token,
]


def main() -> None:
    runtime = hr.Runtime(TOOLS, store=f"sqlite:///{FOLDER}/shop.db")
    server = hr.mcp.server(
        runtime, "shop", options=lambda _: {"inject": {"secret": "hunter2-hunter2"}}
    )

    @server.resource("shop://terms")
    def terms() -> str:
        return "No returns."

    @server.prompt()
    def complain(order_id: str) -> str:
        """Complain about an order."""
        return f"Complain about {order_id}."

    if sys.argv[2:3] == ["http"]:
        server.run("streamable-http", port=int(sys.argv[3]))
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
