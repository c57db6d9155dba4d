"""Calls that a framework hands over again after `kill -9`: their ids tell that they are the same."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("handed_over.py")

pytestmark = pytest.mark.slow


def start(folder, kind, dies, *call_id):
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), kind, dies, *call_id],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def effects(folder):
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(("kind", "answer"), [
    ("none", "IN_DOUBT"),
    ("repeatable", "IN_DOUBT"),
    ("verify", "verified"),
])  # fmt: skip
def test_a_write_without_a_key_happens_once_however_often_it_is_handed_over(
    tmp_path, kind, answer
):
    assert start(tmp_path, kind, "after").returncode == -signal.SIGKILL
    for _ in range(2):
        assert json.loads(start(tmp_path, kind, "no").stdout) == answer
        assert effects(tmp_path) == ["a"]


def test_a_write_that_certainly_has_not_happened_is_done_when_it_is_handed_over_again(
    tmp_path,
):
    assert start(tmp_path, "verify", "before").returncode == -signal.SIGKILL
    assert effects(tmp_path) == []
    assert json.loads(start(tmp_path, "verify", "no").stdout) == "noted"
    assert json.loads(start(tmp_path, "verify", "no").stdout) == "noted"
    assert effects(tmp_path) == ["a"]


@pytest.mark.parametrize(("kind", "answer"), [
    ("none", "IN_DOUBT"),
    ("verify", "verified"),
    ("asked", "verified"),
])  # fmt: skip
def test_a_model_that_is_asked_again_finds_its_own_write_under_another_id(
    tmp_path, kind, answer
):
    assert start(tmp_path, kind, "after").returncode == -signal.SIGKILL
    for call_id in ("call_2", "call_3"):
        assert json.loads(start(tmp_path, kind, "no", call_id).stdout) == answer
        assert effects(tmp_path) == ["a"]


def test_a_write_that_has_not_happened_is_done_once_under_another_id(tmp_path):
    assert start(tmp_path, "verify", "before").returncode == -signal.SIGKILL
    assert json.loads(start(tmp_path, "verify", "no", "call_2").stdout) == "noted"
    assert json.loads(start(tmp_path, "verify", "no", "call_3").stdout) == "noted"
    assert effects(tmp_path) == ["a"]
