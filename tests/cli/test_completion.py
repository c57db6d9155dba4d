"""`handrail completion`: the scripts, and what they ask for."""

import pytest

from tests.cli.test_main import handrail


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(cli, shell):
    result = cli("completion", shell)
    assert result.exit_code == 0
    assert "_HANDRAIL_COMPLETE" in result.stdout


def test_an_unknown_shell_is_a_usage_error(cli):
    assert cli("completion", "tcsh").exit_code == 2


def test_commands_are_completed():
    asked = handrail(_HANDRAIL_COMPLETE="bash_complete", COMP_WORDS="handrail cha", COMP_CWORD="1")
    assert asked.stdout == "plain,chat\n"
