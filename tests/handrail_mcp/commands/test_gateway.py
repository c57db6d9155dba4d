"""`handrail gateway`: from a client's file to a server behind the gateway, and back."""

import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from mcp import types

from handrail.cli.exits import Exit
from handrail.errors import describe_install
from handrail.records import AuditEntry, AuditRecord
from handrail.stores.sqlite import SqliteStore
from handrail_mcp.commands.gateway.today import read_since
from handrail_mcp.pins import Pins
from tests.support.terminals import PATIENCE_S

ROOT = Path(__file__).parents[3]


@pytest.fixture
def gateway(cli, tmp_path):
    """Run a command of the gateway whose file is in `tmp_path`."""

    def run(*words, **how):
        config = str(tmp_path / "gateway.toml")
        return cli("gateway", "--config", config, *map(str, words), **how)

    return run


@pytest.fixture
def client_file(tmp_path):
    entry = {
        "command": sys.executable,
        "args": ["-m", "tests.handrail_mcp.many", "stdio"],
        "cwd": str(ROOT),
        "env": {"MANY_NAME": "one", "MANY_EFFECTS": str(tmp_path / "effects")},
    }
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"mcpServers": {"one": entry}}))
    return file


@pytest.mark.slow
def test_a_client_s_servers_are_moved_read_agreed_to_judged_and_put_back(
    gateway, client_file, tmp_path
):
    before = client_file.read_bytes()
    assert "moved to" in gateway("import", client_file).output
    assert (tmp_path / "gateway.toml").stat().st_mode & 0o777 == 0o600
    listed = json.loads(gateway("list", "--json").stdout)["tools"]
    assert {each["state"] for each in listed} == {"unknown"}
    shown = gateway("pins", "diff")
    assert shown.exit_code == Exit.ERROR
    assert "+description: Send a message." in shown.stdout
    assert "Agree to this?" in gateway("pins", "agree", "one", stdin="n\n").output
    assert gateway("pins", "diff").exit_code == Exit.ERROR
    assert "agreed:" in gateway("pins", "agree", "one", "--yes").output
    assert gateway("pins", "diff").exit_code == Exit.OK
    told = gateway("explain", "one_send", '{"to": "Ann"}')
    assert told.stdout == "ask: one_send has high risk\n"
    assert gateway("explain", "no_such").exit_code == Exit.DENIED
    drafted = gateway("classify", "one").stdout
    assert '[mcp.servers.one.tools.look]\neffect = "read"' in drafted
    with (tmp_path / "gateway.toml").open("a") as file:
        file.write('\n[[gateway.rules]]\ntool = "two_*"\nthen = "deny"\n')
    checked = gateway("validate", "--strict")
    assert checked.exit_code == Exit.ERROR
    assert "no tool has such a name" in checked.output
    assert "is as it was" in gateway("restore", client_file).output
    assert client_file.read_bytes() == before
    assert not (tmp_path / "effects").exists()


def test_what_was_done_today_is_told_from_the_log(gateway, tmp_path):
    (tmp_path / "gateway.toml").write_text('[mcp.servers.one]\ncommand = "one"\n')
    entries = [
        AuditEntry("r", "CallFinished", {"tool": "one_send", "code": code})
        for code in ("", "", "IN_DOUBT")
    ]
    with SqliteStore(tmp_path / "gateway.db") as store:
        store.append_audit(entries).result(10)
    told = gateway("today").stdout.splitlines()
    assert told[1].split() == ["one_send", "IN_DOUBT", "1"]
    assert told[2].split() == ["one_send", "done", "2"]
    assert time.strftime("%Y-%m-%d") in told[-1]


def test_a_call_that_a_person_approved_at_the_client_is_not_told_as_one_that_failed(
    gateway, tmp_path
):
    (tmp_path / "gateway.toml").write_text('[mcp.servers.one]\ncommand = "one"\n')
    pending = "APPROVAL_PENDING"
    ends = [("a", pending), ("a", ""), ("b", pending), ("a", pending), ("c", "")]
    entries = [
        AuditEntry(run, "CallFinished", {"tool": "one_send", "code": code})
        for run, code in ends
    ]
    with SqliteStore(tmp_path / "gateway.db") as store:
        store.append_audit(entries).result(10)
    told = json.loads(gateway("today", "--json").stdout)["calls"]
    assert {each["end"]: each["calls"] for each in told} == {pending: 2, "done": 2}


def test_nobody_agrees_where_nobody_is_at_the_terminal(gateway, tmp_path):
    (tmp_path / "gateway.toml").write_text('[mcp.servers.one]\ncommand = "one"\n')
    pins = Pins(tmp_path / "gateway-pins.json")
    schema = {"type": "object"}
    pins.look(
        "one", [types.Tool(name="look", description="Look.", input_schema=schema)]
    )
    refused = gateway("pins", "agree", "one", stdin="")
    assert refused.exit_code == Exit.USAGE
    assert "nobody is at the terminal: add --yes, once you have read it" in (
        refused.stderr
    )
    assert gateway("pins", "agree", "one", stdin="n\n").exit_code == Exit.INTERRUPTED


MISSING = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
from handrail.cli import main
main()
"""
"""The command line where some packages are not installed."""


@pytest.mark.parametrize("missing", ["mcp,tomli_w", "mcp", "tomli_w"])
@pytest.mark.parametrize(
    "words", ["gateway list", "gateway", "serve mcp --tools tools.py"]
)
def test_without_the_extra_one_sentence_says_what_to_install(tmp_path, missing, words):
    (tmp_path / "gateway.toml").write_text('[mcp.servers.one]\ncommand = "one"\n')
    (tmp_path / "tools.py").write_text("raise SystemExit('the tools were loaded')\n")
    if words.startswith("serve") and missing == "tomli_w":
        pytest.skip("a server of tools does not need it")
    ended = subprocess.run(
        [sys.executable, "-c", MISSING, missing, *words.split()],
        cwd=tmp_path,
        env={**os.environ, "HANDRAIL_GATEWAY": "gateway.toml", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (
        Exit.USAGE,
        "error: the Model Context Protocol needs the extra `mcp`: "
        f"{describe_install('mcp')}\n",
    )


@pytest.mark.parametrize("words", ["gateway", "gateway import", "serve mcp", "mcp"])
def test_help_needs_no_extra(tmp_path, words):
    command = [sys.executable, "-c", MISSING, "mcp,tomli_w", *words.split(), "--help"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (Exit.OK, b"")


class Log:
    """An audit log of calls that ended at given times; it counts the pages that were read."""

    def __init__(self, times):
        self.records = [
            AuditRecord(number, at, "r", "CallFinished", {}, "", "")
            for number, at in enumerate(times, 1)
        ]
        self.pages = 0

    def log(self, *, after=0, run_id="", most=1000):
        self.pages += 1
        return self.records[after : after + most]


@pytest.mark.parametrize("old", [0, 1, 2, 3, 7, 1000, 5000])
@pytest.mark.parametrize("new", [0, 1, 5])
def test_the_days_before_are_not_read(old, new):
    log = Log([10.0] * old + [20.0] * new)
    assert [each.seq for each in read_since(log, 15.0)] == list(
        range(old + 1, old + new + 1)
    )
    assert log.pages < 35


@pytest.mark.slow
def test_hostile_names_and_descriptions_are_shown_and_steer_no_terminal(
    gateway, tmp_path
):
    (tmp_path / "gateway.toml").write_text(
        f"[mcp.servers.h]\ncommand = {json.dumps(sys.executable)}\n"
        f'args = ["-m", "tests.handrail_mcp.rogue", "hostile"]\ncwd = {json.dumps(str(ROOT))}\n'
    )
    for words in (
        ["list"],
        ["list", "--json"],
        ["pins", "list"],
        ["pins", "diff", "h"],
        ["classify", "h"],
        ["validate", "--strict"],
        ["pins", "agree", "h", "--yes"],
        ["list"],
    ):
        shown = gateway(*words).output
        assert shown
        for sign in "\x1b\x07\x9b\u202e\u200b":
            assert sign not in shown, words
        if "list" in words and "--json" not in words:
            assert max(map(len, shown.splitlines())) < 200
    drafted = tomllib.loads(gateway("classify", "h").stdout)
    names = {"act", "x\x1b[2J", "y" * 10_000, "z\u200b", "a\nb"}
    assert drafted["mcp"]["servers"]["h"]["tools"].keys() == names


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is no table [mcp.servers.NAME]"),
        ("[gateway]\nstoer = 'x'\n", "did you mean 'store'?"),
        ("[mcp.servers.a]\n", "neither `command` nor `url`"),
        ("[mcp.servers.a]\ncommand = 'x'\nurl = 'http://x'\n", "or both"),
        ("[mcp.servers.a]\ncommnad = 'x'\n", "did you mean 'command'?"),
        ("[mcp.servers.a]\ncommand = '${NOT_SET}'\n", "NOT_SET, which is not set"),
        ("[mcp.servers.a]\nurl = 'x'\nheaders = {A = 1}\n", "cannot be {'A': 1}"),
        ("[mcp.servers.'a b']\ncommand = 'x'\n", "no name of a server"),
        ("[mcp.servers.a]\ncommand = 'x'\ntrust = 'all'\n", "'none' or 'hints'"),
        (
            "[mcp.servers.a]\ncommand = 'x'\n[[gateway.rules]]\narguments = {p = '('}\n",
            "cannot be used",
        ),
        ("[gateway", "cannot be read"),
    ],
)
def test_a_file_that_makes_no_sense_ends_in_one_sentence(
    gateway, tmp_path, text, sentence
):
    (tmp_path / "gateway.toml").write_text(text)
    ended = gateway("list")
    assert ended.exit_code == Exit.USAGE
    assert sentence in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.output


def test_without_a_file_the_way_to_one_is_told(gateway):
    ended = gateway("list")
    assert ended.exit_code == Exit.USAGE
    assert "handrail gateway import FILE" in ended.stderr
