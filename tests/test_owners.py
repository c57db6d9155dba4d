"""Which process drives a run, and whether it is still there."""

import subprocess
import sys
from pathlib import Path

import pytest

from handrail.owners import is_gone, owner

NAMED = "import handrail.owners as owners; print(owners.owner())"


def test_a_process_that_lives_is_not_gone():
    assert not is_gone(owner())


def test_a_process_that_has_ended_is_gone():
    ended = subprocess.run([sys.executable, "-c", NAMED], capture_output=True, text=True, check=True)
    assert is_gone(ended.stdout.strip())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not tell when a process began")
def test_a_process_whose_number_another_one_has_now_is_gone():
    host, number, _ = owner().rsplit(":", 2)
    assert is_gone(f"{host}:{number}:another-boot-17")


@pytest.mark.parametrize("unknown", ["", "nobody", "elsewhere:1:x", "elsewhere:99999999:", "::", "a:b:c"])
def test_of_another_machine_and_of_garbage_nothing_is_known(unknown):
    assert not is_gone(unknown)
