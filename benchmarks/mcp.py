"""What handrail costs over the Model Context Protocol: a call as server and one as client, against the SDK alone."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from itertools import count
from typing import Any

import handrail as hr
from benchmarks.measuring import Figure, interleaved

REVISIONS = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}
NUMBERS = count()

GOALS = {"in memory": 2.0, "with SQLite and its audit log": 2.0}
"""At most so many times a call without any check, by what is kept of it."""


async def get_order(order_id: str) -> dict[str, Any]:
    """Get an order by its id."""
    return {"order_id": order_id, "total": 20}


async def served(quick: bool) -> list[Figure]:
    """Return the figures of both revisions."""
    if find_spec("mcp") is None:
        return []
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for revision, mode in REVISIONS.items():
            figures += await _compare(revision, mode, folder, 5 if quick else 15)
    return figures


async def _compare(revision: str, mode: str, folder: str, rounds: int) -> list[Figure]:
    from mcp import Client
    from mcp.server.mcpserver import MCPServer

    plain = MCPServer("plain", log_level="WARNING")
    plain.tool()(get_order)
    async with AsyncExitStack() as stack:
        servers = {
            "plain": plain,
            "in memory": await _server(stack, "memory:"),
            "with SQLite and its audit log": await _server(
                stack, f"sqlite:///{folder}/orders.db"
            ),
        }
        clients: Mapping[str, Any] = {
            name: await stack.enter_async_context(Client(server, mode=mode))
            for name, server in servers.items()
        }

        async def call(client: Any) -> None:
            await client.call_tool("get_order", {"order_id": f"A-{next(NUMBERS)}"})

        best = await interleaved(
            {
                name: lambda client=client: call(client)
                for name, client in clients.items()
            },
            rounds=rounds,
            times=100,
        )
    return [
        Figure(
            f"MCP server {revision}, {name}, over the SDK's own",
            best[name] / best["plain"],
            "times",
            goal=GOALS[name],
            usual=GOALS[name],
            note=f"{best[name] * 1e6:.0f} us a call, client included",
        )
        for name in GOALS
    ]


async def _server(stack: AsyncExitStack, store: str) -> Any:
    tool = hr.FunctionTool(get_order, effect="read", limits=hr.Limits(poll=True))
    runtime = hr.Runtime([tool], store=store)
    return hr.mcp.server(await stack.enter_async_context(runtime), "orders")


# ---------------------------------------------------------------------- the client

CLIENT_GOAL = 1.15
"""At most so many times a call of the SDK's client over standard streams."""

PROGRAM = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("plain", log_level="WARNING")


@server.tool()
async def get_order(order_id: str) -> dict[str, object]:
    return {"order_id": order_id, "total": 20}


server.run("stdio")
"""


async def called(quick: bool) -> list[Figure]:
    """Return what a runtime's call of a server's tool takes, over a call of the SDK's client to another such server."""
    if find_spec("mcp") is None:
        return []
    from mcp import Client, StdioServerParameters

    command = [sys.executable, "-c", PROGRAM]
    overrides = {"get_order": {"effect": "read", "limits": {"poll": True}}}
    found: list[Figure] = []
    for revision, mode in REVISIONS.items():
        parameters = StdioServerParameters(command=command[0], args=command[1:])
        async with (
            Client(parameters, mode=mode) as client,
            await hr.mcp.connect(
                command, name="plain", mode=mode, overrides=overrides
            ) as tools,
        ):
            runtime = hr.Runtime(tools)
            await client.list_tools()

            async def call_plainly(client: Any = client) -> None:
                await client.call_tool("get_order", {"order_id": f"A-{next(NUMBERS)}"})

            async def call(runtime: Any = runtime) -> None:
                await runtime.call(
                    "plain_get_order", {"order_id": f"A-{next(NUMBERS)}"}
                )

            best = await interleaved(
                {"plain": call_plainly, "handrail": call},
                rounds=5 if quick else 15,
                times=100,
            )
            await runtime.close()
        found.append(
            Figure(
                f"MCP client {revision}, over the SDK's own",
                best["handrail"] / best["plain"],
                "times",
                goal=CLIENT_GOAL,
                usual=1.35,
                note=f"{best['handrail'] * 1e6:.0f} us a call over standard streams, the server included",
            )
        )
    return found


def figures(quick: bool) -> list[Figure]:
    """Measure on an event loop of its own."""
    return [*asyncio.run(served(quick)), *asyncio.run(called(quick))]
