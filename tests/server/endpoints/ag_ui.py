"""The official client of AG-UI, installed into `build/ag-ui`, and programs that use it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CLIENT = "@ag-ui/client@1.0.0"
LEAST_NODE = 20
HOME = Path(__file__).parents[3] / "build" / "ag-ui"


def run_program(source: str, url: str) -> list[dict]:
    """Run a program of JavaScript that finds `HttpAgent` and the address; return what it tells, one line each."""
    node = find_node()
    program = HOME / "program.mjs"
    program.write_text(
        'import { HttpAgent } from "@ag-ui/client";\n'
        f"const url = {json.dumps(url + '/agui')};\n"
        "const tell = (value) => console.log(JSON.stringify(value));\n"
        f"{source}"
    )
    done = subprocess.run(
        [node, str(program)],
        cwd=HOME,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_node() -> str:
    """Return Node, with the client installed; skip the test where they cannot be had."""
    node = shutil.which("node")
    npm = shutil.which("npm")
    if node is None or npm is None or _version_of(node) < LEAST_NODE:
        pytest.skip(f"no Node {LEAST_NODE} with npm is here")
    package = HOME / "node_modules" / "@ag-ui" / "client" / "package.json"
    if not package.is_file():
        HOME.mkdir(parents=True, exist_ok=True)
        (HOME / "package.json").write_text('{"private": true}\n')
        try:
            subprocess.run(
                [npm, "install", "--no-fund", "--no-audit", CLIENT],
                cwd=HOME,
                capture_output=True,
                text=True,
                check=True,
                timeout=300,
            )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"{CLIENT} cannot be installed here: {error}")
    return node


def _version_of(node: str) -> int:
    done = subprocess.run([node, "--version"], capture_output=True, text=True)
    match = re.match(r"v(\d+)", done.stdout)
    return int(match[1]) if match else 0
