"""Official clients of npm, installed into `build/`, and programs that use them."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

LEAST_NODE = 20


@dataclass(frozen=True)
class Package:
    """A package of npm and its version, and the folder of `build/` that it is installed into."""

    name: str
    version: str
    folder: str

    @property
    def home(self) -> Path:
        """Where it is installed."""
        return Path(__file__).parents[3] / "build" / self.folder

    @property
    def is_installed(self) -> bool:
        """Whether it is there."""
        return (self.home / "node_modules" / self.name / "package.json").is_file()


AG_UI = Package("@ag-ui/client", "1.0.0", "ag-ui")
AI_SDK = Package("ai", "6.0.326", "ai-sdk")


def run_program(package: Package, source: str, url: str) -> list[dict]:
    """Run a program of JavaScript that uses a package and finds `url`; return what it tells, one line each."""
    node = find_node(package)
    program = package.home / "program.mjs"
    program.write_text(
        f"const url = {json.dumps(url)};\n"
        "const tell = (value) => console.log(JSON.stringify(value));\n"
        f"{source}"
    )
    done = subprocess.run(
        [node, str(program)],
        cwd=package.home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_node(package: Package) -> str:
    """Return Node, with the package installed; skip the test where they cannot be had."""
    node = shutil.which("node")
    npm = shutil.which("npm")
    if node is None or npm is None or _version_of(node) < LEAST_NODE:
        pytest.skip(f"no Node {LEAST_NODE} with npm is here")
    if not package.is_installed:
        wanted = f"{package.name}@{package.version}"
        package.home.mkdir(parents=True, exist_ok=True)
        (package.home / "package.json").write_text('{"private": true}\n')
        try:
            subprocess.run(
                [npm, "install", "--no-fund", "--no-audit", wanted],
                cwd=package.home,
                capture_output=True,
                text=True,
                check=True,
                timeout=300,
            )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"{wanted} cannot be installed here: {error}")
    return node


def _version_of(node: str) -> int:
    done = subprocess.run([node, "--version"], capture_output=True, text=True)
    match = re.match(r"v(\d+)", done.stdout)
    return int(match[1]) if match else 0
