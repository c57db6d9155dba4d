"""What handrail costs as a server of the Model Context Protocol: one call in process, against the SDK's own server."""

from __future__ import annotations

import asyncio
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

GOALS = {"in memory": 2.0, "with SQLite and its audit log": 2.5}
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
    servers = {
        "plain": plain,
        "in memory": _server("memory:"),
        "with SQLite and its audit log": _server(f"sqlite:///{folder}/orders.db"),
    }
    async with AsyncExitStack() as stack:
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


def _server(store: str) -> Any:
    tool = hr.FunctionTool(get_order, effect="read", poll=True)
    return hr.mcp.server(hr.Runtime([tool], store=store), "orders")


def figures(quick: bool) -> list[Figure]:
    """Measure on an event loop of its own."""
    return asyncio.run(served(quick))
