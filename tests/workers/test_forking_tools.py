"""Tools whose process forks: each call gets its own answer, whoever else comes out of the tool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import handrail as hr
from handrail.workers.processes import ProcessEnded, ProcessPool, WorkerCall
from tests.support.boxes import isolated
from tests.support.drivers import BOUND_S, KINDS, Driver, until
from tests.workers.forking_tools import (
    die_beside_a_child,
    fork,
    fork_here,
    fork_in_a_box,
    fork_in_first_step,
    fork_in_later_step,
    fork_in_place,
    fork_later,
    let_out,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    os.mkfifo(path)
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tool", "how"), [
    (fork, "return"), (fork, "raise"), (fork, "exit"), (fork, "double"), (fork, "raw"), (fork, "pty"),
    (fork, "thread"), (fork, "multiprocessing"), (fork, "generator"), (fork, "pickle"),
    (fork_later, "return"), (fork_later, "raise"),
])  # fmt: skip
def test_a_child_that_comes_out_of_a_tool_answers_no_call(
    kind, tool, how, gate, tmp_path
):
    store = f"sqlite:///{tmp_path}/store.db"
    driver = Driver(kind, [tool, let_out], {"store": store})
    try:
        assert driver.call(tool.name, {"gate": gate, "how": how}).value in (
            "mine",
            ["mine"],
        )
        # of another tenant, and in the same worker
        first = driver.call("let_out", {"number": 1, "gate": gate}, scope="b")
        second = driver.call("let_out", {"number": 2, "gate": os.devnull}, scope="b")
        again = driver.call("let_out", {"number": 1, "gate": gate}, scope="b")
        assert (first.value, second.value, again.value) == (1, 2, 1)
    finally:
        driver.close()


def test_an_answer_of_another_process_is_dropped_and_its_worker_killed(gate):
    pool = ProcessPool(1)
    call = WorkerCall(pool, fork, {"gate": gate, "how": "return"})
    worker = pool.take(call)
    worker._calls += 1  # an answer that belongs to the call before
    pool.give_back(call, worker)
    with pytest.raises(ProcessEnded, match="signal 9"):
        call()
    assert not worker.is_alive()
    pool.close()


def test_a_process_that_ends_is_seen_to_while_a_child_of_it_lives_on():
    with hr.SyncRuntime([die_beside_a_child]) as runtime:
        result = runtime.call("die_beside_a_child")
    assert result.failure.code == "INTERNAL_ERROR"  # and not TIMEOUT


ENDS = {"return": 0, "raise": 1, "exit": 3, "double": 0, "generator": 0, "wait": 0}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tool", "how"), [
    *((fork_here, how) for how in ENDS if how != "wait"),
    *((fork_in_place, how) for how in ("return", "raise")),
    *((fork_in_first_step, how) for how in ENDS if how != "wait"),
    *((fork_in_later_step, how) for how in ENDS if how != "generator"),
])  # fmt: skip
def test_a_child_that_comes_out_of_a_tool_in_this_process_runs_nothing_of_ours(
    kind, tool, how, tmp_path
):
    noted = tmp_path / "noted"

    def note(event):
        with noted.open("a") as file:
            file.write(f"{os.getpid()}\n")

    store = f"sqlite:///{tmp_path}/store.db"
    driver = Driver(kind, [tool], {"store": store, "observers": [note]})
    try:
        result = driver.call(tool.name, {"how": how})
        again = driver.call(tool.name, {"how": how})
    finally:
        driver.close()
    mine = f"mine {ENDS[how]}"
    assert (result.value, again.value) in [(mine, mine), ([mine], [mine])]
    assert set(noted.read_text().split()) == {str(os.getpid())}


@isolated
@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 1), ("exit", 3)])
def test_a_child_that_comes_out_of_a_tool_in_a_box_answers_nothing(how, code):
    with hr.SyncRuntime([fork_in_a_box]) as runtime:
        assert runtime.call("fork_in_a_box", {"how": how}).value == f"mine {code}"


FORKING_PROGRAM = """
import os, sys
import handrail as hr

@hr.tool(effect="read", isolation="process")
def where() -> int:
    return os.getpid()

if __name__ == "__main__":
    runtime = hr.SyncRuntime([where])
    print(runtime.call("where").value, flush=True)
    if os.fork():
        os._exit(0)
    sys.stdin.read()
    os._exit(0)
"""


def test_a_worker_ends_with_its_program_though_a_fork_of_that_lives_on(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(FORKING_PROGRAM, encoding="utf-8")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(program)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        worker = int(parent.stdout.readline())
        assert parent.wait(BOUND_S) == 0
        until(lambda: is_gone(worker))
        parent.stdin.close()  # and the fork ends


def is_gone(pid):
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        )
    except FileNotFoundError:
        return True
