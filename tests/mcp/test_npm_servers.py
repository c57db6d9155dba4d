"""Servers that people have, from npm, under the client; skipped where npm cannot be had."""

import json
import subprocess

import pytest

import handrail as hr
from tests.mcp.conformance.suite import HOME, NotInstalled, find_node

PACKAGES = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "tavily-mcp": "0.2.22",
}
FOLDER = HOME.parent / "npm-servers"

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope="module")
def start():
    """Return what makes the command of a package's server; installs the packages into `build/` once."""
    try:
        node, npm = find_node()
        install_packages(npm)
    except (NotInstalled, OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no servers from npm here: {str(error)[:200]}")

    def make_command(package, *arguments):
        home = FOLDER / "node_modules" / package
        described = json.loads((home / "package.json").read_text())
        program = next(iter(described["bin"].values()))
        return [node, str(home / program), *arguments]

    return make_command


def install_packages(npm):
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text('{"private": true}\n')
    wanted = [
        f"{name}@{version}"
        for name, version in PACKAGES.items()
        if installed_version(name) != version
    ]
    if wanted:
        command = [
            *npm,
            "install",
            "--no-fund",
            "--no-audit",
            "--fetch-retries=0",
            *wanted,
        ]
        subprocess.run(
            command, cwd=FOLDER, check=True, capture_output=True, timeout=300
        )


def installed_version(package):
    try:
        text = (FOLDER / "node_modules" / package / "package.json").read_text()
    except OSError:
        return ""
    return json.loads(text)["version"]


async def test_server_everything(start):
    command = start("@modelcontextprotocol/server-everything", "stdio")
    async with await hr.mcp.connect(command, name="all", trust="hints") as tools:
        runtime = hr.Runtime(tools)
        echo = await runtime.call("all_echo", {"message": "hello"})
        image = await runtime.call("all_get-tiny-image")
        wrong = await runtime.call("all_echo", {"text": "hello"})
        await runtime.close()
    assert tools.problems == []
    assert len(tools) >= 10
    assert "hello" in echo.text
    assert image.media[0].media_type == "image/png"
    assert wrong.failure.code == "INVALID_ARGUMENTS"


async def test_server_filesystem(start, tmp_path):
    (tmp_path / "note.txt").write_text("remember the milk")
    command = start("@modelcontextprotocol/server-filesystem", str(tmp_path))
    async with await hr.mcp.connect(command, name="files", trust="hints") as tools:
        runtime = hr.Runtime(tools)
        path = str(tmp_path / "note.txt")
        read = await runtime.call("files_read_text_file", {"path": path})
        outside = await runtime.call("files_read_text_file", {"path": "/etc/passwd"})
        write = await runtime.call(
            "files_write_file", {"path": path, "content": "gone"}
        )
        await runtime.close()
    assert "remember the milk" in read.text
    assert outside.failure.code == "TOOL_FAILED"
    assert write.failure.code in ("APPROVAL_PENDING", "NOT_PERMITTED")
    assert (tmp_path / "note.txt").read_text() == "remember the milk"


async def test_tavily_lists_without_a_network(start):
    command = start("tavily-mcp")
    env = {"TAVILY_API_KEY": "tvly-test"}
    async with await hr.mcp.connect(command, name="tavily", env=env) as tools:
        listed = set(tools.by_name)
    assert any("search" in name for name in listed)
    assert {tool.effective_risk for tool in tools} == {"high"}
