"""Servers behind a gateway that are down, hang or come back, and the end of the gateway itself."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.handrail_mcp.gateways import (
    MANY,
    agree,
    find_children,
    find_processes,
    gateway_command,
    serve_gateway,
    write_config,
)
from tests.handrail_mcp.reaching import NEW, OLD, ROOT, text_of, wait_until
from tests.handrail_mcp.test_gateway_clients import client_of
from tests.support.effort import volume

pytestmark = [pytest.mark.slow, volume]

SILENT = [sys.executable, "-m", "tests.handrail_mcp.rogue", "silent"]


async def names_of(client):
    return {tool.name for tool in (await client.list_tools()).tools}


async def wait_for_tool(client, name):
    limit = time.monotonic() + 60
    while name not in await names_of(client):
        assert time.monotonic() < limit, f"{name} never came"
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("mode", [OLD, NEW])
def test_a_server_that_was_down_at_the_start_comes_back_without_a_restart(tmp_path, mode):  # fmt: skip
    gate = tmp_path / "open"
    gate.touch()
    # a program that only starts while a file is there
    late = ["/bin/sh", "-c", f'test -e "{gate}" && exec "$0" "$@"', *MANY]
    config = write_config(tmp_path, {"one": MANY, "late": late})
    agree(config)
    gate.unlink()

    async def main():
        with serve_gateway(config) as (url, _):
            async with client_of(url, mode) as client:
                names = await names_of(client)
                assert "one_speak" in names
                assert "late_speak" not in names
                gate.touch()
                await wait_for_tool(client, "late_speak")
                answer = await client.call_tool("late_speak", {"text": "here"})
                assert text_of(answer) == "here"

    asyncio.run(main())


def test_a_server_that_hangs_keeps_nobody_from_the_others(tmp_path):
    config = write_config(tmp_path, {"one": MANY})
    agree(config)
    config = write_config(tmp_path, {"one": MANY, "silent": SILENT})

    async def main():
        with serve_gateway(config) as (url, _):
            async with client_of(url, OLD) as client:
                before = time.monotonic()
                names = await names_of(client)
                # the silent one has 15 s
                assert time.monotonic() - before < 14
                assert "one_speak" in names
                answer = await client.call_tool("one_speak", {"text": "here"})
                assert text_of(answer) == "here"

    asyncio.run(main())


def test_a_server_that_dies_in_a_call_is_there_for_the_next(tmp_path):
    config = write_config(tmp_path, {"one": MANY, "two": MANY})
    agree(config)

    async def main():
        with serve_gateway(config) as (url, _):
            async with client_of(url, OLD) as client:
                # its connection is open then
                await client.call_tool("one_speak", {"text": "here"})
                call = asyncio.ensure_future(client.call_tool("one_slow", {"to": "X", "seconds": 30.0}))  # fmt: skip
                await asyncio.sleep(1)
                for pid in find_processes("MANY_NAME=one") & find_children(config):
                    with suppress(
                        ProcessLookupError
                    ):  # a launcher takes its server along
                        os.kill(pid, signal.SIGKILL)
                answer = await call
                assert answer.is_error, text_of(answer)
                assert answer.structured_content["error_code"] == "IN_DOUBT"
                for name in ("two_speak", "one_speak"):
                    answer = await client.call_tool(name, {"text": "here"})
                    assert text_of(answer) == "here"

    asyncio.run(main())


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "SIGKILL", "stdin"])
@pytest.mark.parametrize("agreed", [True, False])
def test_no_child_is_left_when_the_gateway_ends(tmp_path, end, agreed):
    config = write_config(tmp_path, {"one": MANY, "two": MANY})
    if agreed:
        agree(config)

    async def main():
        params = StdioServerParameters(command=sys.executable, args=gateway_command(config)[1:], cwd=ROOT)  # fmt: skip
        async with Client(stdio_client(params), mode=OLD) as client:
            await client.list_tools()
            if agreed:
                await client.call_tool("one_speak", {"text": "x"})
            assert len(find_children(config)) >= 2
            if end != "stdin":
                for pid in find_processes(str(config)) - find_children(config):
                    os.kill(pid, getattr(signal, end))
                wait_until(lambda: not find_children(config), 20)

    try:
        asyncio.run(asyncio.wait_for(main(), 90))
    except (Exception, ExceptionGroup) as error:  # the client's, whose server has ended
        assert end != "stdin", error
    wait_until(lambda: not find_children(config), 20)


def test_no_child_is_left_when_a_gateway_over_http_ends(tmp_path):
    config = write_config(tmp_path, {"one": MANY})
    agree(config)

    async def main(url):
        async with client_of(url, OLD) as client:
            await client.call_tool("one_speak", {"text": "x"})
            assert find_children(config)

    with serve_gateway(config) as (url, process):
        asyncio.run(main(url))
        process.terminate()
        process.wait(30)
        wait_until(lambda: not find_children(config), 20)


def test_a_server_cannot_take_a_name_of_another_that_is_down(tmp_path):
    """The server `a` has a tool `b_x`, and the server `a_b` is down: `a_b_x` is nobody's."""
    down = [sys.executable, "-c", "raise SystemExit(1)"]
    rogue = [sys.executable, "-m", "tests.handrail_mcp.rogue", "shadow"]
    config = write_config(tmp_path, {"a": rogue, "a_b": down})
    agree(config)
    listed = subprocess.run(gateway_command(config, "list"), cwd=ROOT, capture_output=True, text=True)  # fmt: skip
    assert "'a_b_x' of 'a' is not listed" in listed.stderr

    async def main():
        with serve_gateway(config) as (url, _):
            async with client_of(url, OLD) as client:
                assert "a_b_x" not in await names_of(client)
                assert (await client.call_tool("a_b_x", {})).is_error

    asyncio.run(main())
