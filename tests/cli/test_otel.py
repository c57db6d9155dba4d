"""`[otel]` in handrail.toml switches traces on for the commands, and the environment decides first."""

import os

import pytest

from handrail.cli import settings
from handrail.errors import ConfigError

VARIABLES = ("HANDRAIL_OTEL", "HANDRAIL_CAPTURE_CONTENT")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # restored at the end, whatever a test sets
        monkeypatch.delenv(name)
    return tmp_path


def applied(folder, monkeypatch, text):
    (folder / "handrail.toml").write_text(text)
    environment: dict[str, str] = {}
    monkeypatch.setattr(settings, "environ", environment)
    settings.apply_otel()
    return environment


def test_the_table_stands_for_the_variables(folder, monkeypatch):
    text = "[otel]\nenabled = true\ncontent = false\n"
    assert applied(folder, monkeypatch, text) == {
        "HANDRAIL_OTEL": "true",
        "HANDRAIL_CAPTURE_CONTENT": "false",
    }


def test_without_the_table_nothing_is_set(folder, monkeypatch):
    assert applied(folder, monkeypatch, "[store]\nplace = 'x'\n") == {}


@pytest.mark.parametrize("line", ["enable = true", "enabled = 'yes'", "content = 1"])
def test_another_key_or_value_is_refused_with_one_sentence(folder, monkeypatch, line):
    with pytest.raises(ConfigError, match=r"^\[otel\] has .* each true or false$"):
        applied(folder, monkeypatch, f"[otel]\n{line}\n")


def test_the_environment_comes_first(folder, monkeypatch):
    monkeypatch.setenv("HANDRAIL_OTEL", "false")
    (folder / "handrail.toml").write_text("[otel]\nenabled = true\n")
    settings.apply_otel()

    assert os.environ["HANDRAIL_OTEL"] == "false"
