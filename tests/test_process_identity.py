"""Which process drives a run, and whether it is still there."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.process_identity import has_died_here, is_gone, owner

NAMED = "import handrail.process_identity as owners; print(owners.owner())"


def test_a_process_that_lives_is_not_gone():
    assert not is_gone(owner())


def test_a_process_that_has_ended_is_gone():
    ended = subprocess.run(
        [sys.executable, "-c", NAMED], capture_output=True, text=True, check=True
    )
    assert is_gone(ended.stdout.strip())


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(),
    reason="this system does not tell when a process began",
)
def test_a_process_whose_number_another_one_has_now_is_gone():
    host, number, _ = owner().rsplit(":", 2)
    assert is_gone(f"{host}:{number}:another-boot-17")


@pytest.mark.parametrize(
    "unknown",
    [
        "",
        "nobody",
        "elsewhere:1:x",
        "elsewhere:99999999:",
        "::",
        "a:b:c",
        "a:1",
        ":1:-",
        "\ud800:7:x-y-z",
    ],
)
def test_of_another_machine_and_of_garbage_nothing_is_known(unknown):
    assert not is_gone(unknown)
    assert not has_died_here(unknown)


linux = pytest.mark.skipif(
    not Path("/proc/self/ns/pid").exists(),
    reason="this system tells nothing of processes",
)


def named(**other: str) -> str:
    """This process's name, or one that differs in something."""
    host, number, beginning = owner().rsplit(":", 2)
    parts = (
        dict(zip(("boot", "room", "ticks"), beginning.split("-"), strict=True))
        | {"number": number}
        | other
    )
    return f"{host}:{parts['number']}:{parts['boot']}-{parts['room']}-{parts['ticks']}"


@linux
@pytest.mark.parametrize(("other", "gone", "died"), [
    ({}, False, False),
    ({"ticks": "17"}, True, True),             # its number is another one's now
    # beyond the largest number: there is none
    ({"number": "4194305"}, True, True),
    # the machine was started again; or is another of this name
    ({"boot": "another0", "ticks": "17"}, True, False),
    # in another container on this machine, where numbers are others
    ({"room": "17"}, False, False),
    ({"room": "17", "number": "4194305"}, False, False),
])  # fmt: skip
def test_only_a_process_of_this_boot_and_container_has_certainly_died(
    other, gone, died
):
    assert (is_gone(named(**other)), has_died_here(named(**other))) == (gone, died)


def by_another_clock(program: str) -> list[str]:
    return [
        "unshare",
        "--time",
        "--boottime",
        "100000",
        "--fork",
        sys.executable,
        "-c",
        program,
    ]


@linux
@pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.run(by_another_clock(""), capture_output=True, check=False).returncode
    != 0,
    reason="no time namespace can be made here",
)
def test_a_process_that_lives_has_not_died_for_one_whose_clock_began_at_another_time():
    asked = (
        f"from handrail.process_identity import is_gone, has_died_here as died; "
        f"print(is_gone({owner()!r}), died({owner()!r}))"
    )
    told = subprocess.run(
        by_another_clock(asked), capture_output=True, text=True, check=True
    )
    assert told.stdout == "False False\n"


@linux
def test_a_process_that_was_stopped_is_not_gone_and_one_that_nobody_has_buried_is():
    words = [sys.executable, "-c", f"{NAMED}; import sys; sys.stdout.flush(); input()"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        name = child.stdout.readline().strip()
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert not has_died_here(name)
        child.kill()
        # ended, and still there by its number
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert has_died_here(name)
