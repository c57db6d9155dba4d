"""A secret comes from where it is kept, and nothing shows it."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Annotated

import pytest

import handrail as hr
from handrail import plugins

VALUE = "hunter2-hunter2"


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "key"
    file.write_text(f"{VALUE}\n")
    file.chmod(0o600)
    return file


def keyring(name):
    return {"shop/stripe": VALUE}.get(name, "")


class Point:
    """An entry point of a plug-in."""

    name = "keyring"

    def load(self):
        return keyring


def test_a_secret_is_read_from_the_environment_a_file_or_a_plug_in(file, monkeypatch):
    monkeypatch.setenv("STRIPE_KEY", VALUE)
    monkeypatch.setattr(
        plugins,
        "metadata",
        SimpleNamespace(
            entry_points=lambda group: (
                [Point()] if group == "handrail.credentials" else []
            )
        ),
    )
    places = ["env:STRIPE_KEY", f"file:{file}", "keyring:shop/stripe"]
    secrets = [hr.Secret(place) for place in places]
    assert [each.reveal() for each in secrets] == [VALUE] * 3
    assert len({*secrets, hr.Secret.of(VALUE)}) == 1


def test_no_form_of_it_shows_the_value():
    secret = hr.Secret.of(VALUE, "stripe")
    shown = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret:>20}",
        f"{[secret]}",
    ]
    assert not any("hunter2" in each for each in shown)
    assert repr(secret) == "<Secret stripe>"
    with pytest.raises(TypeError):
        json.dumps(secret)
    assert copy.deepcopy(secret) is secret
    assert pickle.loads(pickle.dumps(secret)).reveal() == VALUE  # to a tool's process


@pytest.mark.parametrize(("place", "why"), [
    ("env:NOT_SET_ANYWHERE", "NOT_SET_ANYWHERE"), ("file:/nowhere/key", "cannot be read"), ("vault:x", "no credential"),
    (VALUE, "named by its place"), ("env:", "named by its place"), ("", "named by its place"),
])  # fmt: skip
def test_a_secret_that_is_not_there_is_an_error_without_its_value(place, why):
    with pytest.raises(hr.ConfigError, match=why) as raised:
        hr.Secret(place)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("value", ["", None, b"bytes"])
def test_nothing_is_no_secret(value):
    with pytest.raises(hr.ConfigError, match="is empty, or no text"):
        hr.Secret.of(value)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
def test_a_file_that_everybody_reads_and_a_short_value_are_warned_of(file, caplog):
    hr.Secret(f"file:{file}")
    assert caplog.text == ""
    file.chmod(0o644)
    hr.Secret(f"file:{file}")
    assert "every user of this machine can read" in caplog.text
    hr.Secret.of("1234")
    assert "too short to be found" in caplog.text
    assert "1234" not in caplog.text


def test_a_tool_gets_the_text_or_the_secret_as_it_declares(drive):
    got = []

    @hr.tool(effect="read")
    def fetch(
        text: Annotated[str, hr.Injected],
        secret: Annotated[hr.Secret, hr.Injected],
        maybe: Annotated[hr.Secret | None, hr.Injected],
    ) -> str:
        """Fetch."""
        got.extend([text, secret, maybe])
        return f"fetched with {text}"

    value = hr.Secret.of(VALUE)
    inject = {"text": value, "secret": value, "maybe": value}
    result = drive([fetch]).call("fetch", {}, inject=inject)
    assert got == [VALUE, value, value]
    assert result.value == "fetched with ***"


@pytest.mark.parametrize("secrets", ["hunter2-hunter2", [5], [None], {"a": "b"}, 7])
def test_what_is_no_list_of_secrets_is_refused(secrets):
    with pytest.raises(hr.ConfigError, match="takes a list"):
        hr.SyncRuntime([], secrets=secrets)
    hr.SyncRuntime([], secrets=(each for each in [hr.Secret.of(VALUE), VALUE])).close()


def test_a_secret_is_hidden_although_its_parameter_is_open(drive):
    @hr.tool(effect="read")
    def fetch(key: Annotated[str, hr.Injected(secret=False)]) -> str:
        """Fetch."""
        return f"with {key}"

    driver = drive([fetch])
    assert driver.call("fetch", {}, inject={"key": hr.Secret.of(VALUE)}).value == "with ***"  # fmt: skip
    assert driver.call("fetch", {}, inject={"key": "open-text"}).value == "with open-text"  # fmt: skip


def test_rules_get_its_text_and_keys_its_digest(drive):
    seen = []

    @hr.tool(
        effect="write", key="pay:{account}", check=lambda account: seen.append(account)
    )
    def pay(account: Annotated[str, hr.Injected]) -> str:
        """Pay."""
        return "paid"

    driver = drive([pay])
    driver.call("pay", {}, inject={"account": hr.Secret.of(VALUE)})
    assert seen == [VALUE]
    [admitted] = driver.told(hr.events.CallAdmitted)
    assert admitted.key.startswith("pay:secret_")


def test_a_tool_in_a_process_of_its_own_gets_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import handrail as hr\n"
        "from typing import Annotated\n"
        "@hr.tool(effect='read', isolation='process', timeout_s=20)\n"
        "def fetch(key: Annotated[hr.Secret, hr.Injected]) -> int:\n"
        "    'Fetch.'\n"
        "    return len(key.reveal())\n"
        "if __name__ == '__main__':\n"
        "    with hr.SyncRuntime([fetch]) as runtime:\n"
        f"        print(runtime.call('fetch', {{}}, inject={{'key': hr.Secret.of({VALUE!r})}}).value)\n"
    )
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert ended.stdout == f"{len(VALUE)}\n", ended.stderr


def test_a_program_that_crashes_does_not_print_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, handrail as hr\n"
        "secret = hr.Secret('env:CANARY_KEY')\n"
        "with hr.SyncRuntime([], secrets=[secret]) as runtime:\n"
        "    raise RuntimeError(f'no connection with {secret}: {[secret]} {runtime!r}')\n"
    )
    ended = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        env={"CANARY_KEY": VALUE, "PATH": ""},
    )
    assert "no connection with ***: [<Secret env:CANARY_KEY>]" in ended.stderr
    assert "hunter2" not in ended.stdout + ended.stderr
