"""Tools in processes of their own, driven through the runtime: they end when they are told to, and leave nothing.

What goes in and comes out is the same at every level, and tested in `test_boxes`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import handrail as hr
from handrail.errors import ToolDefinitionError
from handrail.workers.processes import ProcessPool, locate_function
from tests.support.drivers import BOUND_S
from tests.workers.process_tools import (
    add,
    fail,
    hold,
    leave_mark,
    meet,
    rights,
    scatter,
    what,
    where,
    with_context,
    write_late,
)

TOOLS = [add, where, fail, write_late, with_context, what, rights]


@pytest.fixture(params=["asyncio", "sync"])
def call(request):
    """Call a tool on either driver, each with workers that are kept for the whole test."""
    if request.param == "sync":
        with hr.SyncRuntime(TOOLS) as runtime:
            yield runtime.call
        return
    with asyncio.Runner() as runner:
        runtime = hr.Runtime(TOOLS)

        def called(*what, **how):
            return runner.run(asyncio.wait_for(runtime.call(*what, **how), BOUND_S))

        yield called
        runner.run(runtime.close())


def test_a_tool_runs_in_another_process_which_stays_for_the_next_call(call):
    first, second = call("where").value, call("where").value
    assert first == second != os.getpid()


def test_a_long_text_and_a_value_without_a_pickle_come_back(call):
    assert len(call("what", {"kind": "text"}).value) == 3_000_000
    assert "lambda" in call("what", {"kind": "function"}).text


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="capabilities are Linux's"
)
@pytest.mark.parametrize("how", ["itself", "a program"])
def test_a_tool_in_a_process_is_our_user_and_has_none_of_root_s_rights(call, how):
    told = call("rights", {"how": how}).value
    # so the files of a user, and of a root-only folder, stay within reach
    assert told["uid"] == os.getuid()
    assert (told["CapPrm"], told["CapEff"], told["NoNewPrivs"], told["Seccomp"]) == (
        "0" * 16,
        "0" * 16,
        "1",
        "2",
    )
    # nobody else may change the bound, nor needs to: no program gains a right
    if os.geteuid() == 0:
        assert told["CapBnd"] == "0" * 16


@pytest.mark.parametrize(("how", "code"), [
    ("tool", "NO_SUCH_ORDER"),
    ("value", "INTERNAL_ERROR"),
    ("odd", "INTERNAL_ERROR"),
    ("sys.exit", "INTERNAL_ERROR"),
    ("exit", "INTERNAL_ERROR"),
])  # fmt: skip
def test_a_failure_there_is_a_failure_here_and_the_next_call_finds_a_worker(
    call, how, code
):
    result = call("fail", {"how": how})
    assert result.failure.code == code
    assert "secret" not in result.text
    assert call("add", {"x": 1, "y": 1}).value == 2


def test_a_call_that_is_over_its_time_leaves_no_late_effect(call, tmp_path):
    path = tmp_path / "late"
    call("where")  # a worker is warm: the time is the tool's alone
    result = call("write_late", {"path": str(path)})
    assert Path(f"{path}.begun").exists()
    assert result.failure.code == "IN_DOUBT"
    # longer than the tool and its child would have taken: the one way to see that nothing comes
    time.sleep(1.5)
    assert not path.exists()
    assert not Path(f"{path}.child").exists()
    assert call("add", {"x": 1, "y": 1}).value == 2


@pytest.mark.anyio
async def test_calls_run_side_by_side_in_processes_of_their_own(tmp_path):
    async with hr.Runtime([meet]) as runtime:
        box = {"box": str(tmp_path)}
        results = await asyncio.gather(
            *(runtime.call("meet", box | {"who": who}) for who in ("a", "b"))
        )
    assert [result.value for result in results] == [2, 2]


@pytest.mark.anyio
async def test_a_cancelled_run_ends_its_reads_at_once(tmp_path):
    async with hr.Runtime([meet]) as runtime:
        task = asyncio.create_task(
            runtime.call("meet", {"box": str(tmp_path), "who": "alone"})
        )
        while not (tmp_path / "alone").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task], timeout=BOUND_S)
        assert task.cancelled()
        # the process is dead, not left alone
        assert not runtime._engine.services.given_up


# of the interpreter, as a library in C may while it writes
holding_the_lock = pytest.param(
    "ctypes.PyDLL(None).sleep(60)",
    marks=pytest.mark.skipif(
        sys.platform != "linux", reason="only its kernel sends a signal of our choice"
    ),
)


@pytest.mark.parametrize("at_work", ["time.sleep(60)", holding_the_lock])
def test_a_worker_ends_with_its_parent_in_the_middle_of_a_call(tmp_path, at_work):
    program = tmp_path / "program.py"
    program.write_text(f"""
import ctypes, os, time
import handrail as hr

@hr.tool(effect="read", isolation="process")
def sleep() -> str:
    open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
    {at_work}

if __name__ == "__main__":
    with hr.SyncRuntime([sleep]) as runtime:
        runtime.call("sleep")
""")
    parent = subprocess.Popen([sys.executable, str(program)])
    pid = int(
        _once(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    )
    parent.kill()
    parent.wait()
    _once(lambda: not _runs(pid))


def _once(holds):
    deadline = time.monotonic() + BOUND_S
    while not (told := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return told


def _runs(pid):
    try:
        os.kill(pid, 0)
        return (
            not Path("/proc").exists()
            or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            != "Z"
        )
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_function_without_a_place_goes_by_value_or_is_refused_by_name(monkeypatch):
    base = 40

    def inner(x: int) -> int:
        """Add to what stands around."""
        return base + x

    tool = hr.FunctionTool(inner, effect="read", isolation="process")
    if isinstance(locate_function(tool), bytes):
        with hr.SyncRuntime([tool]) as runtime:
            assert runtime.call("inner", {"x": 2}).value == 42
    monkeypatch.setitem(sys.modules, "cloudpickle", None)

    def other(x: int) -> int:
        return base + x

    refused = hr.FunctionTool(other, effect="read", isolation="process")
    refusal = pytest.raises(
        ToolDefinitionError, match="defined inside another function"
    )
    with hr.SyncRuntime([refused]) as runtime, refusal:
        runtime.call("other", {"x": 2})


def test_what_cannot_leave_the_process_is_told_to_the_engineer():
    with (
        hr.SyncRuntime(TOOLS) as runtime,
        pytest.raises(ToolDefinitionError, match="cannot be sent there"),
    ):
        runtime.call(
            "with_context",
            {"order": "7"},
            deps={"lock": __import__("threading").Lock()},
            inject={"tenant": "a"},
        )


def test_closing_ends_the_workers():
    runtime = hr.SyncRuntime(TOOLS)
    pid = runtime.call("where").value
    runtime.close()
    _once(lambda: not _runs(pid))


def test_a_write_that_waits_for_a_worker_until_its_time_is_over_was_not_started(
    tmp_path,
):
    calls = [
        ("c1", "hold", "{}"),
        ("c2", "leave_mark", json.dumps({"path": str(tmp_path / "mark")})),
    ]
    message = {"role": "assistant", "tool_calls": [
        {"id": id, "type": "function", "function": {"name": name, "arguments": text}} for id, name, text in calls
    ]}  # fmt: skip
    with hr.SyncRuntime([hold, leave_mark]) as runtime:
        runtime._engine.services.processes = ProcessPool(most=1)
        told = [json.loads(each["content"]) for each in runtime.handle(message)]
    assert [each["error_code"] for each in told] == ["TIMEOUT", "TIMEOUT"]
    assert "not started" in told[1]["error_message"]
    assert not (tmp_path / "mark").exists()


def test_a_worker_that_was_killed_while_it_was_idle_is_replaced(call):
    pid = call("where").value
    os.kill(pid, signal.SIGKILL)
    # A process with threads takes a moment to be gone; until then a call may still be given to it, and fails.
    _once(lambda: call("where").value not in (None, pid))


def test_a_runtime_with_a_warm_worker_has_another_one_on_the_other_side_of_a_fork(
    tmp_path,
):
    (tmp_path / "forks.py").write_text("""
import os
import handrail as hr

@hr.tool(effect="read", isolation="process")
def where() -> int:
    return os.getpid()

if __name__ == "__main__":
    runtime = hr.SyncRuntime([where])
    print(runtime.call("where").value, flush=True)
    if (child := os.fork()) == 0:
        print(runtime.call("where").value, flush=True)
        runtime.close()
        os._exit(0)
    os.waitpid(child, 0)
    print(runtime.call("where").value, flush=True)
    runtime.close()
""")
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        tmp_path / "forks.py",
    ]
    before, beyond, after = subprocess.check_output(
        command, text=True, timeout=BOUND_S
    ).split()
    assert before == after != beyond


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="walkers are found by way of /proc"
)
def test_no_crowd_that_forks_on_outruns_its_end(tmp_path):
    os.mkfifo(line := tmp_path / "line")
    reader = os.open(line, os.O_RDONLY | os.O_NONBLOCK)
    with hr.SyncRuntime([scatter, where]) as runtime:
        runtime.call("where")  # a worker is warm: the time is the tool's alone
        assert runtime.call("scatter", {"line": str(line)}).failure.code == "IN_DOUBT"
    os.set_blocking(reader, True)
    # the end of the line: none holds it any more, and none came to its last step
    assert os.read(reader, 100) == b""
    os.close(reader)


SCRIPT = """
import os
import handrail as hr

@hr.tool(effect="write")
def pay(number: int) -> str:
    "Pay."
    with open(os.environ["WORLD"], "a") as world:
        world.write("p")
    return "paid"

@hr.tool(effect="write", isolation="process")
def report(number: int) -> str:
    "Report."
    return "told"

runtime = hr.SyncRuntime([pay, report])
for name in ("pay", "report", "report"):
    print(runtime.call(name, {"number": 1}).text)
"""


def test_a_script_that_calls_at_its_top_level_makes_no_call_again_where_its_tool_is_imported(
    tmp_path,
):
    script, world = tmp_path / "script.py", tmp_path / "world"
    script.write_text(SCRIPT, encoding="utf-8")
    where = {**os.environ, "WORLD": str(world)}
    told = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=where,
    )
    paid, *reported = told.stdout.splitlines()
    assert (paid, world.read_text(encoding="utf-8")) == ("paid", "p")
    # and not IN_DOUBT
    assert [json.loads(each)["error_code"] for each in reported] == [
        "INTERNAL_ERROR"
    ] * 2
    assert told.stderr.count('put them under `if __name__ == "__main__":`') == 2
