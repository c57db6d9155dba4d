"""The tools of an MCP server under handrail. The server is this file, too: `python 40_mcp_tools.py serve`."""

import asyncio
import sys

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

import handrail as hr

server = MCPServer("shop", log_level="ERROR")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def find_order(order_id: str) -> dict[str, object]:
    """Find an order by its id."""
    return {"order_id": order_id, "total": 49}


@server.tool()
def refund(order_id: str, amount: int) -> str:
    """Refund a part of an order."""
    return f"refunded {amount} for {order_id}"


def ask(question: hr.AskHuman) -> hr.Approval:
    """Stand in for a person."""
    print("asks:", question.call.name, dict(question.arguments), "because", question.reason)
    return hr.Approval(True, by="anna")


async def main() -> None:
    async with await hr.mcp.connect(
        [sys.executable, __file__, "serve"],
        name="shop",
        overrides={"find_order": {"effect": "read"}},
    ) as tools:
        runtime = hr.Runtime(tools, approver=ask)
        print(runtime.tools.summary())
        print(await runtime.call("shop_find_order", {"order_id": "A-1"}))
        print((await runtime.call("shop_find_order", {"id": "A-1"})).failure.message)
        print((await runtime.call("shop_refund", {"order_id": "A-1", "amount": 20})).text)
        await runtime.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        server.run("stdio")
    else:
        asyncio.run(main())
