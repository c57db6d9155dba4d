"""`handrail new`: a project that runs at once, and nothing that is overwritten."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WRITTEN = {"tools.py", "test_tools.py", "handrail.toml", "README.md", ".gitignore"}
REQUEST = '{"request_id": "881", "title": "printer on fire"}'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Begin projects in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def python(*words):
    """Run a program in the project, as its owner would."""
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HANDRAIL_", "PYTEST_"))
    }
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd="shop",
        env=known,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_tests_of_a_new_project_pass(cli):
    assert cli("new", "shop").exit_code == 0
    told = python("pytest", "-q", "-p", "no:cacheprovider")
    # five boundaries, and two more
    assert (told.returncode, "7 passed" in told.stdout) == (0, True), told.stdout


def test_the_tools_of_a_new_project_can_be_called_twice_and_open_one_ticket(cli):
    cli("new", "shop")
    opened = ("handrail", "call", "open_ticket", REQUEST, "--tools", "tools.py")
    first, again, forgotten, found = (
        python(*opened),
        python(*opened),
        python(*opened, "--store", "memory:"),
        python("handrail", "call", "find_tickets", "--tools", "tools.py"),
    )
    assert first.stdout == "opened\n"
    # the store of the settings keeps its key
    assert "this was already done" in again.stdout
    # nobody does, but the tool finds the ticket
    assert "verified that this happened" in forgotten.stdout
    assert found.stdout == '[{"request_id":"881","title":"printer on fire"}]\n'


def test_the_tools_of_a_new_project_are_clean_for_lint(cli):
    cli("new", "shop")
    result = cli("lint", "shop/tools.py", "--strict")
    assert (result.exit_code, "0 errors, 0 warnings, 0 notes" in result.stdout) == (
        0,
        True,
    )


def test_a_new_project_has_what_its_readme_says_and_no_template_is_left_in_it(
    cli, folder
):
    cli("new", "my-shop")
    assert {file.name for file in Path("my-shop").iterdir()} == WRITTEN
    for name in WRITTEN:
        text = Path("my-shop", name).read_text(encoding="utf-8")
        assert "$" not in text
        assert name in Path("my-shop/README.md").read_text() or name in (
            "README.md",
            ".gitignore",
        )


def test_a_dry_run_writes_nothing(cli, folder):
    result = cli("new", "shop", "--dry-run")
    assert (
        result.exit_code,
        "would write shop/tools.py" in result.stdout,
        list(folder.iterdir()),
    ) == (0, True, [])


def test_nothing_is_overwritten(cli):
    Path("shop").mkdir()
    mine = Path("shop/tools.py")
    mine.write_text("mine")
    result = cli("new", "shop")
    assert (result.exit_code, mine.read_text(), len(list(Path("shop").iterdir()))) == (
        2,
        "mine",
        1,
    )


@pytest.mark.parametrize("make", [
    lambda: Path("shop").write_text("a file"),
    lambda: Path("shop").symlink_to("elsewhere"),
])  # fmt: skip
def test_what_is_no_empty_folder_is_left_alone(cli, folder, make):
    make()
    assert cli("new", "shop").exit_code == 2
    assert not Path("elsewhere").exists()


def test_an_empty_folder_may_be_there(cli):
    Path("shop").mkdir()
    assert cli("new", "shop").exit_code == 0


@pytest.mark.parametrize(
    "name",
    [
        "../shop",
        "/tmp/shop",
        "Shop",
        "",
        ".",
        "-x",
        "a" * 51,
        "shop\n",
        "sh$op",
        "商店",
    ],
)
def test_a_name_that_cannot_be_one_is_refused(cli, folder, name):
    assert (cli("new", "--", name).exit_code, list(folder.iterdir())) == (2, [])


def test_a_folder_that_cannot_be_made_is_one_sentence(cli, folder):
    folder.rmdir()  # ours to stand in, and gone
    result = cli("new", "shop")
    assert (result.exit_code, "shop cannot be written" in result.stderr) == (2, True)
