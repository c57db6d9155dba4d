"""A server that is a program ends with everything that it started, also with what has left its group (Linux)."""

import signal
import subprocess
import sys

import pytest

from handrail_mcp.targets import ServerProgram
from handrail_mcp.transports.child import ServerProcess
from tests.handrail_mcp.gateways import agree, serve_gateway, write_config
from tests.handrail_mcp.reaching import OLD, ROOT
from tests.handrail_mcp.test_client import wait_until
from tests.handrail_mcp.test_gateway_clients import client_of
from tests.handrail_mcp.test_misbehaving import children

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers"),
]

PROGRAM = """
import os, signal, subprocess, sys, time
from pathlib import Path
how, ready, *again = sys.argv[1:]

def live_on():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)

def leave_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if how == "closed":
                os.closerange(0, 64)
            live_on()
        os._exit(0)
    os.wait()

def leave_grandchild():
    if os.fork() == 0:
        if os.fork() == 0:
            live_on()
        os.wait()

def leave_forking_daemon():
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork():
                os._exit(0)
            time.sleep(0.001)

if how == "forking":
    leave_forking_daemon()
elif how == "grandchild":
    leave_grandchild()
else:
    leave_daemon()
if not again:
    if how == "restarted":
        subprocess.Popen([*sys.orig_argv, "again"])
        sys.exit(0)
    if how == "replaced":
        os.execv(sys.executable, [*sys.orig_argv, "again"])
if how == "session":
    os.setsid()
    live_on()
Path(ready).touch()
if how == "failed":
    sys.exit(9)
if how == "killed":
    os.kill(os.getpid(), signal.SIGSEGV)
sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path):
    async def start(how):
        ready = tmp_path / "ready"
        command = [sys.executable, "-c", PROGRAM, how, str(ready)]
        server = await ServerProcess.start(ServerProgram(command))
        await wait_until(ready.exists)
        return server

    return start


@pytest.mark.parametrize("how", ["open", "closed", "grandchild", "forking", "restarted", "replaced"])  # fmt: skip
async def test_nothing_that_a_server_started_outlives_its_connection(
    how, start, tmp_path
):
    server = await start(how)
    assert children(tmp_path)
    await server.stop()
    assert children(tmp_path) == set()


async def test_a_server_that_has_left_its_group_ends_with_its_connection(tmp_path):
    command = [sys.executable, "-c", PROGRAM, "session", str(tmp_path)]
    server = await ServerProcess.start(ServerProgram(command))
    await wait_until(lambda: len(children(tmp_path)) >= 3)  # launcher, server, daemon
    await server.stop()
    assert children(tmp_path) == set()


@pytest.mark.parametrize(("how", "code"), [("failed", 9), ("killed", -signal.SIGSEGV)])
async def test_a_server_that_fails_leaves_its_exit_code_and_no_daemon(
    how, code, start, tmp_path
):
    server = await start(how)
    await wait_until(lambda: server.process.returncode is not None)
    assert (server.process.returncode, children(tmp_path)) == (code, set())
    await server.stop()


CLIENT = """
import sys, time
import handrail as hr
tools = hr.mcp.tools(sys.argv[1:], name="rogue")
print("connected", flush=True)
time.sleep(600)
"""


async def test_a_daemon_of_a_server_ends_with_a_client_that_is_killed(tmp_path):
    server = [sys.executable, "-m", "tests.handrail_mcp.rogue", "daemon", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, *server], cwd=ROOT, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout.readline() == b"connected\n"
        assert len(children(tmp_path)) >= 4  # the client, launcher, server, daemon
        client.kill()
    await wait_until(lambda: not children(tmp_path))


async def test_a_daemon_of_a_server_ends_with_its_gateway(tmp_path):
    folder = tmp_path / "effects"
    server = [sys.executable, "-m", "tests.handrail_mcp.rogue", "daemon", str(folder)]
    config = write_config(tmp_path, {"rogue": server})
    agree(config)
    assert children(folder) == set()
    with serve_gateway(config) as (url, process):
        async with client_of(url, OLD) as client:
            await client.call_tool("rogue_act", {})
            assert len(children(folder)) >= 3  # launcher, server, daemon
        process.terminate()
        process.wait(30)
        await wait_until(lambda: not children(folder))
