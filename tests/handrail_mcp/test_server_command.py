"""`handrail serve`, as a person and an editor start it."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from handrail.cli import main
from tests.handrail_mcp.reaching import NEW, OLD, code_of, text_of, wait_until

WEATHER = "examples/weather.py"
ORDERS = "examples/orders.py"
HANDRAIL = [sys.executable, "-m", "handrail"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name where the tools are"),
        (["--tools", WEATHER, "--json"], "--json is for HTTP"),
        (["--tools", WEATHER, "--tokens", "t.toml"], "--tokens is for HTTP"),
        (["--tools", WEATHER, "--origin", "https://a"], "--origin is for HTTP"),
        (["--tools", WEATHER, "--http", "shop"], "write a port such as 8000"),
        (["--tools", WEATHER, "--http", "99999"], "write a port such as 8000"),
        (["--tools", WEATHER, "--http", "0.0.0.0:80"], "give --tokens FILE"),
        (["--tools", WEATHER, "--http", ":::80"], "give --tokens FILE"),
        (["--tools", WEATHER, "--http", "1", "--tokens", "no.toml"], "no.toml"),
        (["--tools", "no.py"], "no.py"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(arguments, sentence):
    done = CliRunner().invoke(main, ["serve", "mcp", *arguments])
    assert done.exit_code == 2
    assert sentence in done.output
    assert "Traceback" not in done.output


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(
            main, ["serve", "mcp", "--tools", WEATHER, "--http", str(port)]
        )
    assert done.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.output


def test_a_token_goes_to_stderr_and_its_hash_to_the_file():
    done = CliRunner().invoke(main, ["serve", "token", "anna", "--tenant", "acme"])
    assert done.exit_code == 0
    token = done.stderr.strip()
    assert token.startswith("hr_")
    assert token not in done.stdout
    assert 'principal = "anna"' in done.stdout
    assert 'scope = "acme"' in done.stdout


@pytest.mark.anyio
@pytest.mark.parametrize("mode", [OLD, NEW])
async def test_an_editor_starts_it_and_calls_tools(tmp_path, mode):
    store = f"sqlite:///{tmp_path}/shop.db"
    command = [*HANDRAIL[1:], "serve", "mcp", "--tools", ORDERS, "--store", store]
    target = StdioServerParameters(
        command=sys.executable, args=command, cwd=Path.cwd(), env=dict(os.environ)
    )
    with (tmp_path / "stderr").open("w") as log:
        async with Client(stdio_client(target, errlog=log), mode=mode) as client:
            result = await client.call_tool(
                "refund", {"order_id": "A-2", "amount": 110}
            )
            assert code_of(result) == "APPROVAL_PENDING"
            question = result.structured_content["question"]
            approved = subprocess.run(
                [*HANDRAIL, "approvals", "approve", question, "--store", store],
                capture_output=True,
                text=True,
                check=False,
            )
            assert approved.returncode == 0, approved.stderr
            result = await client.call_tool(
                "refund", {"order_id": "A-2", "amount": 110}
            )
    assert not result.is_error, text_of(result)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("address", ["", "0"])
def test_it_ends_when_it_is_told_to(tmp_path, number, address):
    arguments = ["serve", "mcp", "--tools", WEATHER]
    if address:
        arguments += ["--http", address, "--json"]
    program = subprocess.Popen(
        [*HANDRAIL, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        if address:
            url = json.loads(program.stdout.readline())["url"]
            wait_until(lambda: answers(url))
        else:
            program.stdin.write(INITIALIZE + "\n")
            program.stdin.flush()
            assert '"serverInfo"' in program.stdout.readline()
        program.send_signal(number)
        program.wait(20)
    assert program.returncode == (130 if number == signal.SIGINT else 143)


def answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code > 0
    except httpx2.TransportError:
        return False


INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "tests", "version": "1"},
        },
    }
)
