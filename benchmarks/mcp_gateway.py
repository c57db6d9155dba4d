"""What the gateway adds to its two hops, what it lists, and what it holds when nothing happens."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import handrail as hr
from benchmarks.measuring import Figure

NUMBERS = count()
CALLS = 50
"""In each round."""

SERVER = """
import sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("plain", log_level="ERROR")
@server.tool()
async def get_order(order_id: str) -> str:
    return order_id
for number in range(int(sys.argv[1])):
    server.add_tool(get_order, name=f"tool_{number}", description=f"Get the order {number} by its id, or say why not.")
if sys.argv[2] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[2]))
"""

FORWARDER = """
import asyncio
import sys
from mcp import Client, types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

mode, address, *rest = sys.argv[1:]

async def list_tools(context, params):
    return server.listed

async def call_tool(context, params):
    return await server.client.session.call_tool(params.name, params.arguments)

server = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)

async def serve():
    target = address
    if not address.startswith("http"):
        target = stdio_client(StdioServerParameters(command=address, args=rest[:-1]))
    async with Client(target, mode=mode) as server.client:
        server.listed = await server.client.list_tools()
        if rest[-1] == "stdio":
            async with stdio_server() as streams:
                await server.run(*streams, server.create_initialization_options())
        else:
            import uvicorn
            app = server.streamable_http_app()
            config = uvicorn.Config(app, port=int(rest[-1]), log_level="error")
            await uvicorn.Server(config).serve()

asyncio.run(serve())
"""
"""What the SDK alone takes to pass a call on: no check, no promise, no record."""


async def measured(quick: bool) -> list[Figure]:
    """Return all figures."""
    if find_spec("mcp") is None:
        return []
    rounds = 5 if quick else 15
    with tempfile.TemporaryDirectory() as folder:
        figures = [
            *await _one_call(Path(folder), "stdio", 3.0, rounds),
            *await _one_call(Path(folder), "HTTP", 3.0, rounds),
            await _many_tools(2_000 if quick else 10_000),
        ]
        if sys.platform == "linux":
            figures.append(await _idle(Path(folder), 5 if quick else 20))
    return figures


# ---------------------------------------------------------------------- one call


async def _one_call(
    folder: Path, transport: str, goal: float, rounds: int
) -> list[Figure]:
    """Return milliseconds that a call takes beyond two calls of the server, by the gateway and by a bare forwarder."""
    from mcp import Client

    mode = "legacy" if transport == "stdio" else "2026-07-28"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(_serve(transport))
        config = _write_config(folder, {"plain": server})
        command = [sys.executable, "-m", "handrail", "gateway", "--config", str(config), "run"]  # fmt: skip
        gateway = await stack.enter_async_context(_run(command, transport))
        forwarder = await stack.enter_async_context(_forward(server, mode, transport))
        targets = {
            "direct": (server, "get_order"),
            "through": (gateway, "plain_get_order"),
            "bare": (forwarder, "get_order"),
        }
        contestants = {}
        for which, (target, name) in targets.items():
            connecting = Client(_target(target), mode=mode)
            client = await stack.enter_async_context(connecting)
            await client.list_tools()
            contestants[which] = (client, name)

        best = dict.fromkeys(contestants, float("inf"))
        cpu = dict.fromkeys(contestants, float("inf"))
        for _ in range(rounds):
            for which, (client, name) in contestants.items():
                # by the clock: the work is done in other processes
                began, cpu_began = time.perf_counter(), _cpu_of_all_s()
                for _ in range(CALLS):
                    await client.call_tool(name, {"order_id": f"A-{next(NUMBERS)}"})
                taken = (time.perf_counter() - began) / CALLS
                best[which] = min(best[which], taken)
                worked = (_cpu_of_all_s() - cpu_began) / CALLS
                cpu[which] = min(cpu[which], worked)
    return [*_by_clock(transport, goal, best), *_by_cpu(transport, goal, cpu)]


def _cpu_of_all_s() -> float:
    """Return the CPU seconds of this process and of all that it has started; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0.0
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.name))
    total_ns = 0
    left = [os.getpid()]
    while left:
        pid = left.pop()
        left += children.get(pid, [])
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def _by_cpu(transport: str, goal: float, cpu: dict[str, float]) -> list[Figure]:
    """Return the same by CPU of all processes together, which a busy machine disturbs less."""
    if not cpu["direct"]:
        return []
    ms = {which: taken * 1e3 for which, taken in cpu.items()}
    return [
        Figure(
            f"gateway, {transport}: CPU of a call beyond its two hops",
            ms["through"] - 2 * ms["direct"],
            "ms",
            goal,
            note=f"direct {ms['direct']:.2f} ms, through {ms['through']:.2f} ms, "
            f"by a bare forwarder {ms['bare']:.2f} ms",
        )
    ]


def _by_clock(transport: str, goal: float, best: dict[str, float]) -> list[Figure]:
    """Return what a call takes beyond two calls of the server, by the gateway and by a bare forwarder."""
    ms = {which: taken * 1e3 for which, taken in best.items()}
    floor = ms["bare"] - 2 * ms["direct"]
    return [
        Figure(
            f"gateway, {transport}: a call beyond its two hops",
            ms["through"] - 2 * ms["direct"],
            "ms",
            goal,
            note=f"direct {ms['direct']:.2f} ms, through {ms['through']:.2f} ms",
        ),
        Figure(
            f"gateway, {transport}: a bare forwarder of the SDK beyond its two hops",
            floor,
            "ms",
            note=f"{ms['bare']:.2f} ms; the gateway adds {ms['through'] - ms['bare']:.2f} ms",
        ),
    ]


def _write_config(folder: Path, servers: dict[str, dict[str, Any]]) -> Path:
    """Write a gateway's settings, and agree to all tools: reads that run unasked."""
    import tomli_w

    entries = {
        name: {
            **server,
            "tools": {"get_order": {"effect": "read", "limits": {"poll": True}}},
        }
        for name, server in servers.items()
    }
    config = folder / "gateway.toml"
    config.write_text(tomli_w.dumps({"mcp": {"servers": entries}}))
    gateway = hr.mcp.gateway(config)

    async def agree() -> None:
        await gateway.start()
        await gateway.aclose()

    from threading import Thread

    starting = Thread(target=lambda: asyncio.run(agree()))
    starting.start()
    starting.join()
    for name in servers:
        gateway.pins.agree(name)
    return config


def _target(server: dict[str, Any]) -> Any:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    if "url" in server:
        return server["url"]
    parameters = StdioServerParameters(
        command=server["command"], args=server["args"], env={**os.environ}
    )
    return stdio_client(parameters)


@asynccontextmanager
async def _serve(transport: str) -> AsyncIterator[dict[str, Any]]:
    command = [sys.executable, "-c", SERVER, "0"]
    async with _run(command, transport) as server:
        yield server


@asynccontextmanager
async def _forward(
    server: dict[str, Any], mode: str, transport: str
) -> AsyncIterator[dict[str, Any]]:
    if "url" in server:
        target = [server["url"]]
    else:
        target = [server["command"], *server["args"]]
    command = [sys.executable, "-c", FORWARDER, mode, *target]
    async with _run(command, transport) as forwarder:
        yield forwarder


@asynccontextmanager
async def _run(command: list[str], transport: str) -> AsyncIterator[dict[str, Any]]:
    """Yield what a client connects to: a command, or the address of a running one."""
    is_gateway = command[-1] == "run"
    if transport == "stdio":
        words = command if is_gateway else [*command, "stdio"]
        yield {"command": words[0], "args": words[1:]}
        return
    port = 8700 + next(NUMBERS) % 200
    words = [
        *command,
        *(["--http", f"127.0.0.1:{port}"] if is_gateway else [str(port)]),
    ]
    process = await asyncio.create_subprocess_exec(
        *words, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                break
        yield {"url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        process.terminate()
        await process.wait()


# ---------------------------------------------------------------------- many tools


async def _many_tools(count_of_tools: int) -> Figure:
    """Return seconds for the second list of many tools: the first one asks all servers."""
    from mcp import Client, types

    from handrail_mcp.connection import McpConnection
    from handrail_mcp.gateways.gateway import Gateway
    from handrail_mcp.gateways.settings import GatewaySettings
    from handrail_mcp.server_settings import ServerSettings

    servers = 100

    class Listed(McpConnection):
        async def list_tools(self) -> list[types.Tool]:
            return definitions

    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}}
    definitions = [
        types.Tool(
            name=f"tool_{number}", description=f"Get {number}.", input_schema=schema
        )
        for number in range(count_of_tools // servers)
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings = GatewaySettings(
            servers={
                f"s{number}": ServerSettings(name=f"s{number}", command="none")
                for number in range(servers)
            },
            policy=hr.Policy(),
            store="memory:",
            pins=Path(folder) / "pins.json",
            definition_tokens=0,
        )
        gateway = Gateway(settings)
        for upstream in gateway.upstreams.values():
            upstream.connection.__class__ = Listed
            upstream.pins = None
        async with Client(gateway, mode="2026-07-28") as client:
            began = time.perf_counter()
            listed = await client.list_tools()
            first_s = time.perf_counter() - began
            began = time.perf_counter()
            await client.list_tools()
            again_s = time.perf_counter() - began
    return Figure(
        f"gateway: {len(listed.tools):,} tools of {servers} servers listed",
        again_s,
        "s",
        1.0,
        note=f"{first_s:.1f} s the first time, when each is read and its schema compiled",
    )


# ---------------------------------------------------------------------- memory


async def _idle(folder: Path, servers: int) -> Figure:
    """Return the memory of an idle gateway beside its children, in MB."""
    from mcp import Client

    named = {
        f"s{number}": {"command": sys.executable, "args": ["-c", SERVER, "10", "stdio"]}
        for number in range(servers)
    }
    config = _write_config(folder, named)
    command = {
        "command": sys.executable,
        "args": ["-m", "handrail", "gateway", "--config", str(config), "run"],
    }
    async with Client(_target(command), mode="legacy") as client:
        await client.list_tools()
        (pid,) = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal() and _is_run_by(entry, config)
        ]
        status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return Figure(
        f"gateway: memory when idle, {servers} servers, beside its children",
        int(resident.split()[1]) / 1024,
        "MB",
        120.0,
    )


def _is_run_by(entry: Path, config: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return str(config).encode() in words and b"gateway" in words


def figures(quick: bool) -> list[Figure]:
    """Measure on an event loop of its own."""
    return asyncio.run(measured(quick))
