"""Words and results from outside, with `kill -9` between what is given and its use: nothing lost, nothing twice."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("delivered.py")

pytestmark = pytest.mark.slow


def start(folder, *arguments):
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answer(folder, step):
    done = start(folder, step)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def effects(folder):
    return (folder / "effects").read_text().splitlines()


def kill(folder, *arguments):
    assert start(folder, *arguments).returncode == -signal.SIGKILL


def test_what_was_delivered_and_approved_is_used_once_however_often_processes_die(
    tmp_path,
):
    status, _, [_] = answer(tmp_path, "begin")
    assert status == "waiting"
    # resumed before anything came, it orders nothing again
    assert answer(tmp_path, "resume")[0] == "waiting"
    kill(tmp_path, "deliver", "after-store")
    status, _, [_] = answer(tmp_path, "resume")
    assert status == "waiting"
    kill(tmp_path, "approve", "after-store")
    kill(tmp_path, "resume", "in-tool")
    for _ in range(2):
        status, text, _ = answer(tmp_path, "resume")
        assert status == "done"
        assert "IN_DOUBT" in text
    assert effects(tmp_path) == ["ordered a lamp", "paid p-1"]


def test_a_run_ends_as_if_nobody_had_died(tmp_path):
    answer(tmp_path, "begin")
    kill(tmp_path, "deliver", "after-store")
    answer(tmp_path, "resume")
    kill(tmp_path, "approve", "after-store")
    status, text, _ = answer(tmp_path, "resume")
    assert (status, text) == ("done", "Done: paid")
    assert effects(tmp_path) == ["ordered a lamp", "paid p-1"]
