"""The program around the commands: what it imports, how it helps, how it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import plugins
from handrail.cli import list_commands, main
from handrail.cli.exits import Exit

FULL = Path("/dev/full")


def handrail(*words, stdin=None, **environment):
    """Run `python -m handrail` as a program of its own."""
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HANDRAIL_", "OPENAI_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "handrail", *words], input=stdin, capture_output=True, text=True, encoding="utf-8",
        timeout=60, check=False, env={**known, **environment},
    )  # fmt: skip


def test_the_version_is_told_without_loading_the_machinery():
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "handrail", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"handrail \d+\.\d+\.\d+\n", told.stdout)
    for heavy in ("pydantic", "httpx2", "rich", "asyncio"):
        assert not re.search(rf"\| +{heavy}\n", told.stderr), heavy


def test_help_lists_the_commands_without_importing_them(cli):
    before = set(sys.modules)
    result = cli("--help")
    assert {
        name for name in sys.modules if name.startswith("handrail.cli.commands.")
    } <= before
    assert all(
        re.search(rf"^  {name} ", result.stdout, re.MULTILINE)
        for name in list_commands()
    )


def test_help_tells_every_exit_code(cli):
    told = dict(re.findall(r"^  (\d+) +(.+)$", cli("--help").stdout, re.MULTILINE))
    assert told == {str(int(code)): code.meaning for code in Exit if code.is_documented}
    assert set(told) == {"0", "1", "2", "3", "4", "5", "6", "130"}


@pytest.mark.parametrize("name", list_commands())
def test_a_commands_first_line_of_help_is_the_one_in_the_list(cli, name):
    command = main.get_command(None, name)
    assert command.help.split("\n")[0] == list_commands()[name]


@pytest.mark.parametrize("name", plugins.list_added("help"))
def test_so_is_that_of_a_command_which_another_package_adds(name):
    command = plugins.load("commands", name)
    assert command.help.split("\n")[0] == plugins.list_added("help")[name]


@pytest.mark.parametrize(
    "words",
    [
        *((name,) for name in list_commands()),
        ("tools", "list"),
        ("tools", "show"),
        ("tools", "schema"),
    ],
)
def test_every_command_teaches_by_example(cli, words):
    result = cli(*words, "--help")
    assert result.exit_code == 0
    assert re.search(r"Examples?:\n +(handrail|echo|HANDRAIL_MODEL)", result.stdout)


@pytest.mark.parametrize(
    "name",
    ["runs", "ledger", "approvals", "audit", "store", "tools", "eval", "examples"],
)
def test_the_commands_of_a_group_are_listed_with_their_whole_first_sentence(cli, name):
    _, listed = cli(name, "--help").stdout.split("Commands:\n")
    sentences = re.split(r"\n  (?=\S)", listed.rstrip())
    assert all(each.endswith(".") and not each.endswith("...") for each in sentences)


def test_a_misspelled_command_is_a_usage_error_with_a_suggestion(cli):
    result = cli("chst")
    assert result.exit_code == 2
    assert "Did you mean 'chat'?" in result.stderr


def test_an_error_is_one_sentence_on_stderr(cli):
    result = cli("call", "x", "--tools", "nowhere.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: there is no file nowhere.py\n"


@pytest.mark.parametrize(("words", "environment"), [
    (["--debug"], {}),
    ([], {"HANDRAIL_DEBUG": "1"}),
])  # fmt: skip
def test_debugging_shows_the_traceback(words, environment):
    result = handrail("call", "x", "--tools", "nowhere.py", *words, **environment)
    assert result.returncode == 2
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: there is no file nowhere.py\n")


@pytest.mark.parametrize(("words", "environment", "shown"), [
    (["--debug"], {}, True),
    ([], {"HANDRAIL_DEBUG": "1"}, True),
    ([], {}, False),  # the text of an exception may hold a secret
])  # fmt: skip
def test_debugging_shows_what_a_tool_raised(tmp_path, words, environment, shown):
    tools = tmp_path / "tools.py"
    tools.write_text(
        "import handrail as hr\n\n@hr.tool(effect='read')\ndef ask():\n    raise KeyError('the door')\n"
    )
    result = handrail("call", "ask", "--tools", str(tools), *words, **environment)
    assert result.returncode == 1
    assert "KeyError in ask" in result.stderr
    assert ("KeyError: 'the door'" in result.stderr) == shown


def test_a_reader_that_goes_away_is_no_error_to_talk_about(shop):
    listing = [sys.executable, "-m", "handrail", "tools", "list", "--tools", shop]
    with subprocess.Popen(
        listing, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == Exit.NOBODY_READS


@pytest.mark.skipif(not FULL.exists(), reason="has no device that is always full")
@pytest.mark.parametrize(
    "words",
    [
        ("tools", "list"),
        ("call", "get_order", '{"order_id": "A-1"}'),
        ("tools", "schema"),
    ],
)
def test_a_full_disk_behind_stdout_is_told_in_one_sentence(shop, words):
    listing = [sys.executable, "-m", "handrail", *words, "--tools", shop]
    with FULL.open("w") as full:
        result = subprocess.run(
            listing, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.stderr == "error: cannot write the result: No space left on device\n"
    assert result.returncode == Exit.ERROR


@pytest.mark.skipif(not FULL.exists(), reason="has no device that is always full")
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("runs", "--help")])
def test_so_is_one_behind_the_help(words):
    with FULL.open("w") as full:
        asked = [sys.executable, "-m", "handrail", *words]
        result = subprocess.run(
            asked, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (result.returncode, result.stderr.count("\n")) == (Exit.ERROR, 1)
    assert "No space left on device" in result.stderr


@pytest.mark.parametrize(
    "words", [("call", "get_order", "-"), ("run", "-", "--model", "ollama:none")]
)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_what_is_no_text_on_stdin_is_refused_before_anything_begins(
    shop, words, locale
):
    told = subprocess.run(
        [sys.executable, "-m", "handrail", *words, "--tools", shop], input=b"\xff\xfe", capture_output=True,
        check=False, env={**os.environ, "LC_ALL": locale},
    )  # fmt: skip
    assert told.stderr.startswith(b"error: stdin is not utf-8 text: ")
    assert told.returncode == Exit.USAGE


def test_a_locale_that_cannot_spell_a_mark_escapes_it():
    result = handrail("doctor", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("\\u2713")


@pytest.mark.parametrize(("closed", "words", "code"), [
    ("<&-", "repair", 2),               # `-` has nothing to read
    (">&-", "completion bash", 0),      # nobody wants the result
    ("2>&-", "call x --tools none.py", 2),
])  # fmt: skip
def test_a_closed_stream_is_no_crash(closed, words, code):
    result = subprocess.run(
        f"{sys.executable} -m handrail {words} {closed}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("words", "meant"), [
    (["serve", "--port", "8000"], "--http"),
    (["runs", "list", "--db", "x.db"], "--store"),
    (["runs", "list", "--limit", "3"], "-n"),
])  # fmt: skip
def test_an_option_of_another_name_is_answered_with_the_one_that_means_it(
    cli, words, meant
):
    result = cli(*words)
    assert (result.exit_code, f"Did you mean '{meant}'?" in result.stderr) == (2, True)
