"""The tools of an MCP server under handrail. The server is this file, too: `python 40_mcp_tools.py serve`."""

import asyncio
import sys

from mcp.server.mcpserver import MCPServer

import handrail as hr

server = MCPServer("shop", log_level="ERROR")


@server.tool()
def find_order(order_id: str) -> dict[str, object]:
    """Find an order by its id."""
    return {"order_id": order_id, "total": 49}


@server.tool()
def refund(order_id: str, amount: int) -> str:
    """Refund a part of an order."""
    return f"refunded {amount} for {order_id}"


def ask(question: hr.AskHuman) -> bool:
    print("asks:", question.call.name, dict(question.arguments), "because", question.reason)
    return True


async def main() -> None:
    command, declared = [sys.executable, __file__, "serve"], {"find_order": {"effect": "read"}}
    async with (
        await hr.mcp.connect(command, name="shop", overrides=declared) as tools,
        hr.Runtime(tools, approver=ask) as runtime,
    ):
        print(await runtime.call("shop_find_order", {"order_id": "A-1"}))
        print((await runtime.call("shop_refund", {"order_id": "A-1", "amount": 20})).text)


server.run("stdio") if sys.argv[1:] else asyncio.run(main())
