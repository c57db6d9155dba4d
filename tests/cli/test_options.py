"""Options that commands share: above all which store is meant when none is named."""

import json

import pytest

from handrail.testing import ScriptedServer, call

WAITS = [call("delete_order", order_id="A-1"), "It waits."]

LOOKS = [
    ("runs", "list"),
    ("approvals", "list"),
    ("approvals", "standing"),
    ("ledger", "list"),
    ("audit", "tail"),
    ("store", "info"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, in which the commands are typed."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def asked(cli, shop, here):
    """Ask a scripted model in that folder."""

    def ask(*words, script=WAITS):
        with ScriptedServer(script) as server:
            return cli(
                "run", "Delete A-1.", "--tools", shop, "--model", server.model, *words
            )

    return ask


@pytest.mark.parametrize("words", LOOKS)
def test_a_look_where_nothing_is_kept_says_how_to_keep_it(cli, here, words):
    result = cli(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "sqlite:///handrail.db" in result.stderr
    assert not list(here.iterdir())


def test_a_run_that_waits_and_is_kept_nowhere_is_said_to_be_lost(asked, here):
    result = asked()
    assert result.exit_code == 3
    assert "nobody can approve it later" in result.stderr
    assert "--store sqlite:///handrail.db" in result.stderr
    assert not list(here.iterdir())


def test_a_store_in_the_folder_is_the_one_of_every_command(cli, asked, shop):
    assert asked("--store", "sqlite:///handrail.db").exit_code == 3
    for words in LOOKS:
        assert cli(*words).exit_code == 0, words
    assert "approvals show" in asked().stderr  # without a word about the store
    assert cli("call", "note", '{"order_id": "A-1"}', "--tools", shop).exit_code == 0
    assert len(json.loads(cli("runs", "list", "--json").stdout)["runs"]) == 2
    assert "note" in cli("ledger", "list").stdout


def test_the_store_of_the_environment_goes_before_the_one_in_the_folder(
    cli, asked, here, monkeypatch
):
    asked("--store", "sqlite:///handrail.db")
    monkeypatch.setenv("HANDRAIL_STORE", "sqlite:///other.db")
    assert asked().exit_code == 3
    for place, runs in (("other.db", 1), ("handrail.db", 1)):
        assert (
            len(
                json.loads(
                    cli(
                        "runs", "list", "--json", "--store", f"sqlite:///{place}"
                    ).stdout
                )["runs"]
            )
            == runs
        )
    assert f"{here}/other.db" in cli("store", "info").stdout


@pytest.mark.parametrize(("file", "text"), [
    ("handrail.toml", "[tools]\nplaces = ['orders.py']\n"),
    ("handrail.toml", "model = 'openai:x'\n"),
    ("handrail.toml", "[stroe]\nplace = 'sqlite:///x.db'\n"),
    ("pyproject.toml", "[tool.handrail.tools]\nplaces = ['orders.py']\n"),
])  # fmt: skip
def test_a_setting_that_there_is_not_is_told(cli, here, file, text):
    (here / file).write_text(text)
    result = cli("runs", "list")
    assert result.exit_code == 2
    assert f"error: {file} has " in result.stderr
    assert "which is not a setting of handrail; " in result.stderr


def test_what_other_tools_keep_in_a_pyproject_is_left_alone(cli, here):
    (here / "pyproject.toml").write_text(
        "[project]\nname = 'shop'\n[tool.ruff]\nline-length = 100\n"
    )
    assert "no setting" not in cli("runs", "list").stderr


def test_a_store_can_be_looked_after_without_being_named(cli, asked):
    asked("--store", "sqlite:///handrail.db")
    assert (
        json.loads(cli("store", "keep", "--runs", "1d", "--json").stdout)["rows"][
            "runs"
        ]
        == 0
    )
