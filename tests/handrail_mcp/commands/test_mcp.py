"""Tools of MCP servers on the command line, and `handrail mcp inspect`."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEPOT = shlex.join([sys.executable, str(ROOT / "tests/handrail_mcp/depot.py"), "stdio"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEPOT_EFFECTS", os.devnull)
    return tmp_path


def write_settings(folder, text):
    (folder / "handrail.toml").write_text(text)


SETTINGS = f"""
[mcp.servers.depot]
command = {sys.executable!r}
args = ['{ROOT / "tests/handrail_mcp/depot.py"}', 'stdio']
env = {{ DEPOT_EFFECTS = "${{DEPOT_EFFECTS}}" }}
trust = "hints"

[mcp.servers.depot.tools.order]
effect = "write"
approve = "amount > 10"
"""


def test_a_command_line_is_a_place_of_tools(cli, folder):
    result = cli("tools", "list", "--tools", f"mcp:{DEPOT}", "--json")
    tools = json.loads(result.stdout)["tools"]
    assert tools[0]["name"] == "depot_count_stock"
    assert {tool["effect"] for tool in tools} == {"write"}


def test_a_server_of_the_settings_is_called_by_its_name(cli, folder):
    write_settings(folder, SETTINGS)
    words = ("depot_count_stock", '{"item": "bolts"}', "--tools", "mcp:depot")
    result = cli("call", *words, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["value"] == {"result": 5}


def test_a_server_that_cannot_be_used_ends_in_one_sentence(cli, folder):
    result = cli("tools", "list", "--tools", "mcp:no-such-program --stdio")
    assert result.exit_code == 2
    assert "the MCP server 'no-such-program'" in result.stderr
    assert "cannot be started: No such file or directory" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ('[mcp.servers.depot]\ncommnd = "x"', "did you mean 'command'?"),
        ('[mcp.servers.depot]\ntrust = "hints"', "neither `command` nor `url`"),
        ('[mcp.servers.depot]\ncommand = "x"\ntrust = "all"', "'none' or 'hints'"),
        ('[mcp]\npin = "x"', "did you mean 'pins'?"),
        (
            '[mcp.servers.depot]\ncommand = "x"\nenv = { A = "${NOT_SET_ANYWHERE}" }',
            "NOT_SET_ANYWHERE, which is not set",
        ),
    ],
)
def test_settings_that_say_nothing_are_refused(cli, folder, settings, sentence):
    write_settings(folder, settings)
    result = cli("tools", "list", "--tools", "mcp:depot")
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_pins_of_the_settings_keep_a_server_in_quarantine(cli, folder):
    write_settings(folder, '[mcp]\npins = "pins.json"\n' + SETTINGS)
    words = ("depot_count_stock", '{"item": "bolts"}', "--tools", "mcp:depot")
    result = cli("call", *words)
    assert result.exit_code != 0
    assert "'count_stock' of 'depot' is new: nobody has agreed to it" in result.stderr


def test_inspect_shows_what_a_server_lists(cli, folder):
    document = json.loads(cli("mcp", "inspect", DEPOT, "--json").stdout)
    assert document["calls_itself"].startswith("depot")
    assert document["instructions"] == "Ask for what is in stock."
    listed = {tool["name"]: tool["hints"] for tool in document["tools"]}
    assert listed["count_stock"] == {"readOnlyHint": True, "openWorldHint": False}
    text = cli("mcp", "inspect", DEPOT).stdout
    assert "count_stock" in text
    assert "reads, closed world" in text


def test_inspect_calls_a_tool_and_shows_the_wire(cli, folder):
    words = ("mcp", "inspect", DEPOT, "--call", "count_stock", '{"item": "ab"}')
    result = cli(*words, "--wire")
    assert result.exit_code == 0
    assert 'structured: {"result": 2}' in result.stdout
    assert '--> {"jsonrpc": "2.0"' in result.stderr
    assert '<-- {"jsonrpc": "2.0"' in result.stderr
    answer = json.loads(cli(*words, "--json").stdout)["result"]
    assert answer["structuredContent"] == {"result": 2}


def test_inspect_says_when_a_call_failed(cli, folder):
    result = cli("mcp", "inspect", DEPOT, "--call", "fail")
    assert result.exit_code == 1
    assert "the roof leaks" in result.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--env", "NOT_SET_ANYWHERE"), "no such variable is set here"),
        (("--header", "no colon"), "Name: value"),
        (("--call", "count_stock", "[1]"), "is a JSON object"),
        (("--call", "count_stock", "{"), "is not JSON"),
    ],
)
def test_inspect_refuses_what_it_cannot_read(cli, folder, words, sentence):
    result = cli("mcp", "inspect", DEPOT, *words)
    assert result.exit_code == 2
    assert sentence in result.stderr
