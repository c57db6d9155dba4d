"""Servers that people have, from npm, under the client; skipped where npm cannot be had."""

import json
import subprocess
from pathlib import Path

import pytest
from mcp import Client

import handrail as hr
from handrail_mcp.gateways.client_configs import read_client_config
from handrail_mcp.gateways.settings import add_servers
from stand_ins.tavily import Tavily
from tests.handrail_mcp.conformance.suite import HOME, NotInstalled, find_node

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


HOOK = Path(__file__).with_name("redirect.cjs")


async def test_a_search_of_tavily_s_own_server_reaches_our_stand_in(start):
    node, program = start("tavily-mcp")
    with Tavily() as web:
        env = {
            "TAVILY_API_KEY": web.key,
            "REDIRECT_HOST": "api.tavily.com",
            "REDIRECT_TO": web.url,
        }
        command = [node, "--require", str(HOOK), program]
        declared = {"tavily_search": {"effect": "read"}}
        async with await hr.mcp.connect(
            command, name="tavily", prefix="", env=env, overrides=declared
        ) as tools:
            runtime = hr.Runtime(tools)
            found = await runtime.call("tavily_search", {"query": "Kipchoge pace"})
            await runtime.close()
    assert found.ok, found.text
    assert "https://running.example/kipchoge-pace" in found.text


async def test_the_servers_of_an_editor_behind_the_gateway(start, tmp_path):
    """As a client's file names them: imported, agreed to, and called by the client of the SDK."""
    (tmp_path / "note.txt").write_text("remember the milk")
    commands = {
        "all": start("@modelcontextprotocol/server-everything", "stdio"),
        "files": start("@modelcontextprotocol/server-filesystem", str(tmp_path)),
        "tavily": start("tavily-mcp"),
    }
    entries = {
        name: {"command": command[0], "args": command[1:]}
        for name, command in commands.items()
    }
    entries["tavily"]["env"] = {"TAVILY_API_KEY": "tvly-a-key-for-tests"}
    document = read_client_config(
        json.dumps({"mcpServers": entries}), ["handrail", "gateway"], "mcp.json"
    )
    config = tmp_path / "gateway.toml"
    add_servers(
        config,
        {
            name: {**server, "trust": "hints"}
            for name, server in document.servers.items()
        },
    )
    first = hr.mcp.gateway(config)
    await first.start()
    await first.aclose()
    assert first.problems == {}
    for name in entries:
        first.pins.agree(name)
    gateway = hr.mcp.gateway(config)
    path = str(tmp_path / "note.txt")
    async with Client(gateway, mode="legacy") as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        summed = await client.call_tool("all_get-sum", {"a": 2, "b": 3})
        image = await client.call_tool("all_get-tiny-image", {})
        read = await client.call_tool("files_read_text_file", {"path": path})
        written = await client.call_tool(
            "files_write_file", {"path": path, "content": "gone"}
        )
        resources = (await client.list_resources()).resources
        prompts = (await client.list_prompts()).prompts
    await gateway.aclose()
    assert {"all_echo", "files_read_text_file", "tavily_tavily_search"} <= listed
    assert "5" in summed.content[0].text
    assert any(each.type == "image" for each in image.content)
    assert "remember the milk" in read.content[0].text
    assert written.is_error
    assert (tmp_path / "note.txt").read_text() == "remember the milk"
    assert resources
    assert {each.name for each in prompts} >= {"all_simple-prompt"}
