"""Clients' files: moved behind a gateway and put back byte for byte."""

import json
import subprocess
import sys

import pytest

from handrail.errors import ConfigError
from handrail_mcp.gateways.client_configs import (
    move_servers,
    read_client_config,
    restore,
)
from handrail_mcp.gateways.settings import add_servers, read_gateway

COMMAND = ["handrail", "gateway", "run", "--config", "gateway.toml"]

THREE = {
    "files": {"command": "npx", "args": ["-y", "server-files", "/data"], "env": {"A": "1"}},
    "web": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
    "notes": {"command": "notes", "disabled": False},
}  # fmt: skip

VS_CODE = """// my servers
{
  "servers": { /* one */
    "a": {"command": "a", "args": ["http://x//y", "\\" // no comment"],},
    "b": {"command": "b", "env": {"K": "${input:key}"}},
  },
  "inputs": [{"id": "key"}],
}
"""


def moved(document, tmp_path, name="mcp.json"):
    text = document if isinstance(document, str) else json.dumps(document)
    file = tmp_path / name
    file.write_bytes(text.encode())
    return file, move_servers(file, COMMAND)


@pytest.mark.parametrize(
    ("document", "servers", "left"),
    [
        ({"mcpServers": THREE, "theme": "dark"}, {"files", "web", "notes"}, set()),
        ({"servers": THREE}, {"files", "web", "notes"}, set()),
        ({"editor": 1, "mcp": {"servers": THREE}}, {"files", "web", "notes"}, set()),
        (VS_CODE, {"a"}, {"b"}),
        ("\ufeff" + json.dumps({"mcpServers": THREE}), {"files", "web", "notes"}, set()),
    ],
    ids=["mcpServers", "servers", "settings", "comments", "byte-order mark"],
)  # fmt: skip
def test_servers_are_moved_and_put_back(document, servers, left, tmp_path):
    file, imported = moved(document, tmp_path)
    before = (file.parent / "mcp.json.before-handrail").read_bytes()
    now = json.loads(file.read_text())
    assert imported.servers.keys() == servers
    assert imported.left.keys() == left
    place = now.get("mcpServers") or now.get("servers") or now["mcp"]["servers"]
    assert place.keys() == {"handrail", *left}
    assert place["handrail"] == {"command": "handrail", "args": COMMAND[1:]}
    restore(file)
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.json"]


def test_what_is_moved_is_as_the_client_had_it(tmp_path):
    _, imported = moved({"mcpServers": THREE}, tmp_path)
    assert imported.servers == {
        "files": THREE["files"],
        "web": {
            "url": "https://example.org/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
        },
        "notes": {"command": "notes"},
    }
    _, with_comments = moved(VS_CODE, tmp_path, "code.json")
    assert with_comments.servers["a"]["args"] == ["http://x//y", '" // no comment']


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"command": "a", "args": ["${workspaceFolder}/x"]}, "only its client knows"),
        ({"command": "a", "env": {"K": "${input:k}"}}, "its client asks for"),
        ({"command": "a", "url": "http://x"}, "neither a command nor an address"),
        ({}, "neither a command nor an address"),
        ({"url": "http://x/sse", "type": "sse"}, "HTTP+SSE"),
        ({"command": "a", "disabled": True}, "disabled"),
        ({"command": "a", "sandbox": {"on": True}}, "not known here: sandbox"),
        ("npx", "no table"),
    ],
)
def test_a_server_that_the_gateway_could_not_start_alike_stays(entry, why, tmp_path):
    file, imported = moved({"mcpServers": {"x": entry, "y": {"command": "y"}}}, tmp_path)  # fmt: skip
    assert why in imported.left["x"]
    assert json.loads(file.read_text())["mcpServers"]["x"] == entry


def test_a_file_changed_after_the_import_is_not_put_back(tmp_path):
    file, _ = moved({"mcpServers": THREE}, tmp_path)
    with pytest.raises(ConfigError, match="was imported before"):
        move_servers(file, COMMAND)
    document = json.loads(file.read_text())
    document["mcpServers"]["new"] = {"command": "new"}
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="was changed after the import"):
        restore(file)
    assert "new" in file.read_text()
    restore(file, force=True)
    assert json.loads(file.read_text()) == {"mcpServers": THREE}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "has no MCP servers"),
        ('{"mcpServers": {"x": 1}}', "no server that can be moved"),
        ("[" * 100_000, "is not JSON"),
        ('{"mcpServers": "/*"}', "has no MCP servers"),
    ],
)
def test_a_file_without_servers_is_said_in_a_sentence_and_left(
    text, sentence, tmp_path
):
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        move_servers(file, COMMAND)
    assert file.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.json"]
    with pytest.raises(ConfigError, match="was not imported"):
        restore(file)


@pytest.mark.parametrize("part", ["/* ", '"\\"', ",", '"a', "//"])
def test_a_hostile_file_takes_linear_time(part):
    text = '{"mcpServers": {"a": {"command": "a"}}}' + part * 200_000
    try:
        read_client_config(text, COMMAND, "mcp.json")
    except ConfigError as error:
        assert "is not JSON" in str(error)


def test_the_owner_s_rights_stay_and_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "mcp.json"
    real.write_text(json.dumps({"mcpServers": THREE}))
    real.chmod(0o600)
    link = tmp_path / "mcp.json"
    link.symlink_to(real)
    move_servers(link, COMMAND)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    restore(link)
    assert json.loads(real.read_text()) == {"mcpServers": THREE}


def test_what_is_odd_is_renamed_or_stays_with_the_client(tmp_path):
    odd = {
        "Figma Dev Mode MCP": {"url": "http://127.0.0.1:3845/mcp"},
        "nulls": {"command": "x", "env": None, "cwd": None, "args": None},
        "numbers": {"command": "x", "env": {"PORT": 3000, "DEBUG": True}},
        "words": {"command": "x", "args": [1]},
        "empty": {"command": ""},
        "half": {"command": "x", "args": ["\ud800"]},
        "???": {"command": "x"},
        "a b": {"command": "x"},
        "a_b": {"command": "y"},
    }
    file, imported = moved({"mcpServers": odd, "other": "\ud800"}, tmp_path)
    assert imported.left.keys() == {"words", "empty", "half", "???", "a_b"}
    assert imported.servers["nulls"] == {"command": "x"}
    assert imported.servers["numbers"]["env"] == {"PORT": "3000", "DEBUG": "true"}
    config = tmp_path / "gateway.toml"
    add_servers(config, imported.servers)
    names = ["Figma_Dev_Mode_MCP", "nulls", "numbers", "a_b"]
    assert list(read_gateway(config).servers) == names
    restore(file)
    assert json.loads(file.read_text())["mcpServers"] == odd


def test_what_somebody_wrote_into_the_gateways_file_stays(tmp_path):
    config = tmp_path / "gateway.toml"
    config.write_text('# mine\n[gateway]\nname = "x"  # a name\n')
    add_servers(config, {"a": {"command": "a"}})
    add_servers(config, {"a": {"command": "a"}, "b": {"command": "b"}})
    assert config.read_text().startswith('# mine\n[gateway]\nname = "x"  # a name\n')
    assert list(read_gateway(config).servers) == ["a", "b"]
    closed = tmp_path / "closed.toml"
    closed.write_text('mcp = { servers = { z = { command = "z" } } }\n')
    add_servers(closed, {"a": {"command": "a"}})
    assert list(read_gateway(closed).servers) == ["z", "a"]


@pytest.mark.parametrize(
    "text", ['{"mcpServers": ' + '{"a":' * n + "1" + "}" * (n + 1) for n in (300, 9000)]
)
def test_a_file_that_is_nested_without_end_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"nested|not JSON"):
        moved(text, tmp_path)


@pytest.mark.slow
@pytest.mark.proof
def test_imports_at_one_moment_lose_no_server_and_no_file(tmp_path):
    files = [tmp_path / f"{number}.json" for number in range(4)]
    for number, file in enumerate(files):
        file.write_text(json.dumps({"mcpServers": {f"s{number}": {"command": "x"}}}))
    before = [file.read_bytes() for file in files]
    config = tmp_path / "gateway.toml"
    command = [sys.executable, "-m", "handrail", "gateway", "--config", str(config), "import"]  # fmt: skip
    programs = [
        subprocess.Popen([*command, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for file in files * 2
    ]  # fmt: skip
    ends = [program.wait(120) for program in programs]
    assert ends.count(0) == len(files)
    assert read_gateway(config).servers.keys() == {"s0", "s1", "s2", "s3"}
    for file, text in zip(files, before, strict=True):
        restore(file)
        assert file.read_bytes() == text
