"""A shop's tools over the Model Context Protocol: what a client lists, a question to its person, a call sent twice."""

import asyncio

from mcp import Client
from mcp.types import ElicitResult

import handrail as hr


@hr.tool(effect="write", approve="amount > 100")
def refund(order: str, amount: int) -> str:
    """Pay a part of an order back."""
    return f"paid {amount} back"


server = hr.mcp.server(hr.Runtime([refund]), "shop")


@server.resource("shop://terms")
def terms() -> str:
    return "Refunds within 30 days."


async def ask(context: object, form: object) -> ElicitResult:  # the window that an editor would open
    print("asks:", form.message.splitlines()[0])
    return ElicitResult(action="accept", content={"approve": True})


async def main() -> None:
    async with Client(server, elicitation_callback=ask) as client:
        print([tool.name for tool in (await client.list_tools()).tools])
        for attempt in (1, 2):  # the answer of the first was lost on its way
            key = {"handrail/idempotency-key": "refund-881"}
            result = await client.call_tool("refund", {"order": "A-1", "amount": 120}, meta=key)
            print(attempt, result.content[0].text)
        print((await client.read_resource("shop://terms")).contents[0].text)


asyncio.run(main())  # server.run("stdio") serves an editor, server.run("streamable-http", port=8000) the network
