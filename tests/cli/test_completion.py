"""`handrail completion`: the scripts, and what a shell completes with them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_main import handrail
from tests.support.terminals import PATIENCE_S


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(cli, shell):
    result = cli("completion", shell)
    assert result.exit_code == 0
    assert "_HANDRAIL_COMPLETE" in result.stdout


def test_an_unknown_shell_is_a_usage_error(cli):
    assert cli("completion", "tcsh").exit_code == 2


def test_commands_are_completed():
    asked = handrail(
        _HANDRAIL_COMPLETE="bash_complete", COMP_WORDS="handrail cha", COMP_CWORD="1"
    )
    assert asked.stdout == "plain,chat\n"


@pytest.fixture
def tab(cli, tmp_path, monkeypatch):
    """Press Tab in a real bash, whose folder is `tmp_path`; return what it offers.

    Bash itself completes files: it is asked by a macro that types the line, completes it, and runs what came of it with
    a program that prints its words.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "handrail"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "if '_HANDRAIL_COMPLETE' in os.environ:\n    from handrail.cli import main\n    main(prog_name='handrail')\n"
        "print('typed', json.dumps(sys.argv[1:]))\n"
    )
    program.chmod(0o755)
    (tmp_path / "inputrc").write_text(
        "set bell-style none\nset completion-query-items 0\n"
    )
    script = tmp_path / "completion.bash"
    script.write_text(cli("completion", "bash").stdout)

    def press(line):
        known = {
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "TERM": "dumb",
            "PS1": "$ ",
        }
        bash = subprocess.run(
            ["bash", "--noprofile", "--norc", "-i"], input=f"source {script.name}\n{line}\t\nexit\n", text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path, timeout=PATIENCE_S,
            env=known | {"INPUTRC": str(tmp_path / "inputrc")}, start_new_session=True,
        )  # fmt: skip
        typed = [each for each in bash.stdout.splitlines() if each.startswith("typed ")]
        assert typed, bash.stdout
        return json.loads(typed[-1].removeprefix("typed "))[-1]

    return press


TOOLS = """
import handrail as hr
print("a line that no completion may show")

@hr.tool(effect="read")
def get_order(order_id: str) -> str:
    \"\"\"Look an order up.\"\"\"
    return order_id

@hr.tool(effect="write")
def refund(order_id: str) -> str:
    \"\"\"Refund an order.\"\"\"
    return order_id
"""


@pytest.mark.parametrize(("line", "completed"), [
    ("handrail cha", "chat"),
    ("handrail tools list --tools ord", "orders.py"),          # a file of tools
    ("handrail parse ans", "answer.txt"),                      # a file to read
    ("handrail run hello --policy pol", "policy.toml"),
    ("handrail lint ord", "orders.py"),
    # free text: what bash does for any program
    ("handrail run hello --system ans", "answer.txt"),
    pytest.param(
        "handrail parse answer.txt --dialect hermes-2", "hermes-2-pro", marks=pytest.mark.others
    ),
    ("handrail decode answer.txt --wire openai-r", "openai-responses"),
    ("handrail tools schema --tools orders.py --format gem", "gemini"),
    ("handrail examples run support", "support_desk"),
    ("handrail call --tools orders.py ref", "refund"),
    ("handrail tools schema --tools orders.py get_order ref", "refund"),
])  # fmt: skip
def test_bash_completes_files_and_names(tab, tmp_path, line, completed):
    for name in ("orders.py", "answer.txt", "policy.toml"):
        Path(tmp_path, name).write_text(TOOLS)
    assert tab(line) == completed


@pytest.mark.parametrize(("words", "id_of"), [
    (["runs", "show"], lambda made, run: run),
    (["audit", "export", "--run"], lambda made, run: run),
    (["approvals", "show"], lambda made, run: made.question()["id"]),
])  # fmt: skip
def test_ids_of_what_is_kept_are_completed(deployed, words, id_of):
    made = deployed()
    run, _ = made.begin()
    wanted = id_of(made, run)
    typed = " ".join(["handrail", *words, wanted[:4]])
    asked = handrail(
        _HANDRAIL_COMPLETE="bash_complete",
        COMP_WORDS=typed,
        COMP_CWORD=str(len(words) + 1),
        HANDRAIL_STORE=made.place,
    )
    assert asked.stdout == f"plain,{wanted}\n"


@pytest.mark.parametrize(
    "words",
    ["runs show r_", "approvals revoke g_", "call --tools nowhere.py re", "call re"],
)
def test_what_cannot_be_looked_up_completes_nothing_and_says_nothing(words, tmp_path):
    number = str(len(words.split()))
    asked = handrail(
        _HANDRAIL_COMPLETE="bash_complete", COMP_WORDS=f"handrail {words}", COMP_CWORD=number,
        HANDRAIL_STORE=f"sqlite:{tmp_path}/none.db",
    )  # fmt: skip
    assert (asked.stdout.strip(), asked.stderr) == ("", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shell", "told"), [("zsh", "file\nord\n_\n"), ("fish", "file,ord\n")]
)
def test_other_shells_are_told_where_files_are_completed(shell, told):
    typed = "handrail tools list --tools ord"
    # fish gives the word, the others its place
    word = "ord" if shell == "fish" else "4"
    asked = handrail(
        _HANDRAIL_COMPLETE=f"{shell}_complete", COMP_WORDS=typed, COMP_CWORD=word
    )
    assert asked.stdout == told
