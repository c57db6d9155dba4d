"""`handrail bench frameworks`: what it plays, what it says where a framework is not there, and its exit code."""

import json
import sys

import pytest

from handrail.cli.exits import Exit

pytestmark = pytest.mark.slow


@pytest.fixture
def frameworks(cli):
    return lambda *arguments: cli("bench", "frameworks", *arguments)


def test_a_scenario_is_played_plain_and_with_handrail(frameworks):
    pytest.importorskip("pydantic_ai")
    result = frameworks("--only", "pydantic-ai", "--only", "repeated", "--json")
    document = json.loads(result.stdout)
    [line] = document["lines"]
    assert line["plain"] == {"text": "3 payments", "is_wanted": False}
    assert line["handrail"]["text"].startswith("1 payment")
    assert line["handrail"]["is_wanted"]
    assert document["frameworks"]["pydantic-ai"]["pydantic-ai-slim"]
    assert result.exit_code == Exit.OK


def make_interpreter(tmp_path, cells):
    """Return a program that answers as an interpreter does that has one of the frameworks."""
    file = tmp_path / "python"
    versions = json.dumps(
        {"pydantic-ai": {"pydantic-ai-slim": "2.0"}, "langgraph": None}
    )
    file.write_text(f"""#!{sys.executable}
import sys
print({versions!r} if len(sys.argv) == 3 else {json.dumps(cells)!r})
""")
    file.chmod(0o755)
    return str(file)


PLAIN = {"text": "3 payments", "is_wanted": False}


@pytest.mark.parametrize(("is_wanted", "code"), [(True, Exit.OK), (False, Exit.ERROR)])
def test_the_exit_code_tells_whether_handrail_did_as_wanted(
    frameworks, tmp_path, is_wanted, code
):
    cells = {"plain": PLAIN, "handrail": {"text": "1 payment", "is_wanted": is_wanted}}
    python = make_interpreter(tmp_path, cells)
    assert frameworks("--python", python, "--only", "repeated").exit_code == code


def test_a_framework_that_is_not_installed_is_named(frameworks, tmp_path):
    python = make_interpreter(tmp_path, {"plain": PLAIN, "handrail": PLAIN})
    result = frameworks("--python", python, "--only", "langgraph")
    assert "langgraph  not installed" in result.stdout
    assert result.exit_code == Exit.OK


@pytest.mark.parametrize(("arguments", "says"), [
    (("--only", "langgraf"), "there is no framework or scenario 'langgraf'"),
    (("--python", "/nowhere/python"), "/nowhere/python cannot be started"),
    (("--python", "/bin/true"), "It needs handrail and the framework"),
])  # fmt: skip
def test_what_cannot_be_played_is_said_in_a_sentence(frameworks, arguments, says):
    result = frameworks(*arguments)
    assert says in result.stderr
    assert result.exit_code == Exit.USAGE
