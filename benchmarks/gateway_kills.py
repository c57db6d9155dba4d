"""Kill the gateway in the middle of writes through it, again and again, and count what was sent twice.

    python -m benchmarks.gateway_kills [WRITES] [KILLS]

Each write has a key of its own and is sent by the client in each round until it knows how it ended. After each kill
the client starts the gateway again. A write that is in doubt is named and not sent again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from mcp import Client, types
from mcp.client.stdio import StdioServerParameters, stdio_client

from handrail_mcp.pins import Pins

ROOT = Path(__file__).parents[1]
AT_ONCE = 16


class Gateway:
    """A gateway's file in a folder, with one server that leaves a trace of each write."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "gateway.toml"
        self.effects = folder / "effects"
        self.pid_file = folder / "pid"
        environment = {"MANY_NAME": "one", "MANY_EFFECTS": str(self.effects)}
        table = ", ".join(
            f"{key} = {json.dumps(each)}" for key, each in environment.items()
        )
        self.config.write_text(
            '[gateway]\n[[gateway.rules]]\nthen = "allow"\n[mcp.servers.one]\n'
            f"command = {json.dumps(sys.executable)}\n"
            'args = ["-m", "tests.handrail_mcp.many", "stdio"]\n'
            f"cwd = {json.dumps(str(ROOT))}\nenv = {{ {table} }}\n"
            'trust = "hints"\n'
        )

    def program(self, *words: str) -> StdioServerParameters:
        """Return what starts it, in a shell that leaves its id."""
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "handrail",
            "gateway",
            "--config",
            str(self.config),
            *words,
        ]
        script = f'echo $$ > "{self.pid_file}"; exec "$@"'
        return StdioServerParameters(
            command="/bin/sh",
            args=["-c", script, "sh", *command],
            env={**os.environ},
            cwd=ROOT,
        )

    async def agree(self) -> None:
        """Let it see its server once, and agree to its tools."""
        async with Client(stdio_client(self.program("run")), mode="legacy") as client:
            await client.list_tools()
        Pins(self.config.parent / "gateway-pins.json").agree("one")

    def kill(self) -> None:
        """Kill it as the system would."""
        os.kill(int(self.pid_file.read_text()), 9)


async def write_all(
    gateway: Gateway, ends: dict[str, str], names: list[str], kill_after: int
) -> None:
    """Send the writes whose end nobody knows, and kill the gateway after some of them."""
    limit = asyncio.Semaphore(AT_ONCE)
    before = len(ends)
    async with Client(stdio_client(gateway.program("run")), mode="legacy") as client:

        async def write(name: str) -> None:
            async with limit:
                answer = await client.call_tool(
                    "one_slow",
                    {"to": name, "seconds": 0.005},
                    meta={"handrail/idempotency-key": f"key-{name}"},
                )
                ends[name] = read_end(answer)
                if kill_after and len(ends) == before + kill_after:
                    gateway.kill()

        open_ones = [name for name in names if name not in ends]
        await asyncio.gather(*map(write, open_ones))


def read_end(answer: types.CallToolResult) -> str:
    """Return how a call ended: `done`, or the code of its failure."""
    if not answer.is_error:
        return "done"
    return str((answer.structured_content or {}).get("error_code"))


async def main(writes: int, kills: int) -> int:
    """Print what happened; return 1 if a write was sent twice, or lost without a word."""
    names = [f"w{number}" for number in range(writes)]
    ends: dict[str, str] = {}
    dice = random.Random(17)
    with TemporaryDirectory() as folder:
        gateway = Gateway(Path(folder))
        await gateway.agree()
        for _ in range(kills):
            with suppress(Exception, BaseExceptionGroup):
                await write_all(
                    gateway, ends, names, dice.randint(1, max(1, writes // (kills + 1)))
                )
        await write_all(gateway, ends, names, 0)
        effects = Counter(
            line.split()[1] for line in gateway.effects.read_text().splitlines()
        )
    twice = [name for name, count in effects.items() if count > 1]
    lost = [name for name in names if ends[name] == "done" and not effects[name]]
    silent = [name for name in names if ends[name] not in ("done", "IN_DOUBT")]
    print(f"writes: {writes}, kills: {kills}, ends: {dict(Counter(ends.values()))}")
    print(
        f"sent twice: {len(twice)}, said to be done and not done: {len(lost)}, without a true end: {len(silent)}"
    )
    in_doubt = [name for name in names if ends[name] == "IN_DOUBT"]
    happened = sum(effects[name] for name in in_doubt)
    print(
        f"in doubt: {len(in_doubt)}, of which {happened} had happened: {' '.join(in_doubt)}"
    )
    return 1 if twice or lost or silent else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(asyncio.run(main(*[*numbers, *[1000, 10][len(numbers) :]])))
