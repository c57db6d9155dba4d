"""`handrail examples`: what there is, and that an installed package has it too."""

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from handrail.errors import describe_install
from tests.cli.test_main import handrail

ROOT = Path(__file__).parents[2]
APPS = sorted((ROOT / "examples/apps").glob("*.py"))


def test_every_app_is_listed_with_one_line(cli):
    listed = json.loads(cli("examples", "list", "--json").stdout)
    assert listed["v"] == 1
    assert [each["name"] for each in listed["examples"]] == [file.stem for file in APPS]
    assert all(each["says"] and "\n" not in each["says"] for each in listed["examples"])


def test_the_list_can_be_read(cli):
    assert re.search(
        r"^ops +Ops assistant: ", cli("examples", "list").stdout, re.MULTILINE
    )


def test_the_list_says_which_app_needs_an_extra(cli):
    needs = {
        each["name"]: each["needs"]
        for each in json.loads(cli("examples", "list", "--json").stdout)["examples"]
    }
    assert {name: extra for name, extra in needs.items() if extra} == {
        "sql_analyst": "handrail[sql]"
    }
    shown = cli("examples", "list").stdout
    assert f"({describe_install('sql')})" in shown


@pytest.mark.parametrize("file", APPS, ids=lambda file: file.stem)
def test_an_app_is_one_short_file_that_says_how_it_is_run(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert f"examples/apps/{file.name}" in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize("file", APPS, ids=lambda file: file.stem)
def test_an_app_has_its_section_and_its_test(file):
    assert f"\n## {file.stem}\n" in (ROOT / "examples/apps/README.md").read_text(
        encoding="utf-8"
    )
    assert (ROOT / f"tests/apps/test_{file.stem}.py").is_file()


@pytest.mark.others
def test_an_app_is_run_with_what_stands_behind_its_name():
    told = handrail("examples", "run", "ops", "Is it slow?")
    assert told.returncode == 0
    assert (
        "> Is it slow?" in told.stdout and "restarted: shop/api-gateway" in told.stdout
    )


@pytest.mark.others
def test_the_help_of_an_app_is_its_own():
    told = handrail("examples", "run", "ops", "--help")
    assert (told.returncode, told.stdout.startswith("usage: ops.py ")) == (0, True)


@pytest.mark.others
def test_a_mistake_in_an_apps_options_is_its_own_exit_code():
    assert handrail("examples", "run", "ops", "--context", "staging").returncode == 2


@pytest.mark.parametrize(
    ("name", "advice"), [("opps", "'ops'"), ("zzzzzz", "ops"), ("../ops", ""), ("", "")]
)
def test_an_app_that_there_is_not_is_a_usage_error_with_a_suggestion(cli, name, advice):
    result = cli("examples", "run", name)
    assert (result.exit_code, advice in result.stderr) == (2, True)


@pytest.mark.others
def test_an_installed_package_has_the_apps_and_runs_them(tmp_path):
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(tmp_path),
    ]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        files.extractall(tmp_path / "site")
    assert {f"handrail/examples/{file.name}" for file in APPS} <= names
    assert "handrail/cli/project/tools.py.txt" in names
    assert not [name for name in names if name.endswith((".pyc", ".db"))]
    # before the checkout on the path
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    listed, told = (
        subprocess.run([sys.executable, "-m", "handrail", "examples", *words], env=environment, cwd=tmp_path,
                       capture_output=True, text=True, check=True, timeout=120).stdout
        for words in (("list", "--json"), ("run", "ops"))
    )  # fmt: skip
    assert all(
        str(tmp_path / "site") in each["file"]
        for each in json.loads(listed)["examples"]
    )
    assert "restarted: shop/api-gateway" in told
