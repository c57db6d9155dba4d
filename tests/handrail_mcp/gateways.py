"""How the tests run a gateway as a program of its own, over HTTP, and look at the children it leaves."""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

from handrail_mcp.pins import Pins
from tests.handrail_mcp.reaching import ROOT, wait_until
from tests.handrail_mcp.test_client import is_alive

MANY = [sys.executable, "-m", "tests.handrail_mcp.many", "stdio"]


def write_config(folder, servers, head=""):
    """Write a gateway's file that allows every call: nothing that the servers return makes it ask.

    Args:
        servers: The words of a command or an address, by name.
    """
    lines = ["[gateway]", head, "[[gateway.rules]]", 'then = "allow"']
    for name, where in servers.items():
        lines.append(f"[mcp.servers.{name}]")
        if isinstance(where, str):
            lines.append(f"url = {json.dumps(where)}")
        else:
            lines.append(f"command = {json.dumps(where[0])}")
            lines.append(f"args = {json.dumps(where[1:])}")
            lines.append(f"cwd = {json.dumps(str(ROOT))}")
            effects = json.dumps(str(folder / "effects"))
            lines.append(f'env = {{MANY_NAME = "{name}", MANY_EFFECTS = {effects}}}')
        lines += ['trust = "hints"', 'results = "trusted"', "connect_s = 15"]
    file = folder / "gateway.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def gateway_command(config, *words):
    return [sys.executable, "-W", "ignore", "-m", "handrail", "gateway", "--config", str(config), *words]  # fmt: skip


def agree(config):
    """Look at all servers of a file, and agree to what they say of themselves."""
    subprocess.run(gateway_command(config, "list"), cwd=ROOT, check=True, capture_output=True)  # fmt: skip
    pins = Pins(config.parent / "gateway-pins.json")
    for server in {pin.server for pin in pins.get().values()}:
        pins.agree(server)


@contextlib.contextmanager
def serve_gateway(config, *words):
    """Run a gateway on a free port; yield its address and its process."""
    log = config.parent / "gateway.log"
    with log.open("w") as stderr:
        command = gateway_command(config, "run", "--http", "127.0.0.1:0", *words)
        process = subprocess.Popen(command, cwd=ROOT, stderr=stderr, stdout=stderr)
        try:
            wait_until(lambda: "serving " in log.read_text() or process.poll())
            yield re.search(r"serving .*on (\S+);", log.read_text())[1], process
        finally:
            process.terminate()
            process.wait(20)


def find_processes(word):
    """Return the ids of the living processes that have a word in their command line or their environment."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            texts = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if word.encode() in texts and is_alive(int(entry.name)):
                found.add(int(entry.name))
    return found


def find_children(config):
    """Return the ids of the servers behind the gateway of a file."""
    return {
        pid
        for pid in find_processes(f"MANY_EFFECTS={config.parent}")
        if b"handrail" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    }
