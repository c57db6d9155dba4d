"""What eleven other frameworks were seen to do with these calls, row by row, and what happens here.

The rows are those of a comparison made with scripted models in November 2026; the sentence of each test is what was
wanted. Each runs on asyncio and in the calling thread.
"""

import asyncio
import os
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import handrail as hr
from handrail.testing import ScriptedModel, call
from handrail.testing.crashes import Child
from tests.support.drivers import until

# A tool that runs in a process of its own must be found there, so it stands here and its world in a folder.
WORLD = "HANDRAIL_TEST_WORLD"


@hr.tool(effect="read", isolation="process")
def warm() -> int:
    """Be there."""
    return os.getpid()


@hr.tool(effect="write", timeout_s=0.5, isolation="process")
def transfer(amount: int) -> str:
    """Transfer, very slowly."""
    world = Path(os.environ[WORLD])
    (world / "begun").touch()
    while not (world / "go").exists():
        time.sleep(0.01)
    (world / "transferred").touch()
    return "transferred"


def results(run):
    return [
        message.result
        for message in run.messages
        if isinstance(message, hr.ToolMessage)
    ]


def ran(drive, tools, *script, **how):
    """A run of a script; return it with the results of its calls."""
    run = drive(tools, **how.pop("made", {})).run(
        "Go.", model=ScriptedModel(script), **how
    )
    return run, results(run)


# ---------------------------------------------------------------------- time


def test_a_sync_tool_that_hangs_is_stopped_at_its_deadline_and_does_nothing_later(
    drive, tmp_path, monkeypatch
):
    monkeypatch.setenv(WORLD, str(tmp_path))
    driver = drive([warm, transfer])
    pid = driver.call("warm").value  # a process takes longer to begin than the deadline
    result = driver.call("transfer", {"amount": 5})
    # what it did until then nobody knows
    assert result.failure.code == hr.Code.IN_DOUBT
    assert (tmp_path / "begun").exists()
    until(
        lambda: not Path(f"/proc/{pid}").exists() if sys.platform == "linux" else True,
        "it still runs",
    )
    (tmp_path / "go").touch()
    driver.close()  # whatever is left of it has ended now
    assert not (tmp_path / "transferred").exists()


# ---------------------------------------------------------------------- writes


def test_a_write_in_flight_ends_and_is_recorded_while_its_sibling_fails(drive):
    paid = []

    @hr.tool(effect="write", key="pay:{order}")
    async def pay(order: str) -> str:
        """Pay."""
        await failed.wait()
        paid.append(order)
        return "paid"

    @hr.tool(effect="read")
    async def fail() -> str:
        """Fail."""
        failed.set()
        raise RuntimeError("boom")

    failed = asyncio.Event()
    driver = drive([pay, fail])
    run = driver.run(
        "Go.", model=ScriptedModel([[call("pay", order="7"), call("fail")], "done"])
    )
    assert [result.ok for result in results(run)] == [True, False]
    assert driver.call("pay", {"order": "7"}).replayed
    assert paid == ["7"]


CALLERS, PROCESSES = 64, 4


def deposits(store, file, _):
    """Pay 1 into an account in a file, from many callers at once, in a process of its own."""

    def deposit(number: int) -> int:
        """Read, add, write: whoever is inside at the same time is lost."""
        balance = int(file.read_text())
        time.sleep(0.001)
        file.write_text(str(balance + 1))
        return balance + 1

    async def main():
        tool = hr.FunctionTool(
            deposit, effect="write", resource="account:7", timeout_s=120
        )
        async with hr.Runtime([tool], store=store) as runtime:
            told = await asyncio.gather(
                *(runtime.call("deposit", {"number": n}) for n in range(CALLERS))
            )
        return [result.value for result in told]

    return asyncio.run(main())


def test_sixty_four_callers_in_each_of_four_processes_lose_no_update(store, tmp_path):
    file = tmp_path / "balance"
    file.write_text("0")
    processes = [Child(partial(deposits, store, file)) for _ in range(PROCESSES)]
    try:
        told = [balance for process in processes for balance in process.result()]
    finally:
        for process in processes:
            process.end()
    assert sorted(told) == list(range(1, CALLERS * PROCESSES + 1))
    assert file.read_text() == str(CALLERS * PROCESSES)


# ---------------------------------------------------------------------- what the model is told


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("finish", ["calls", "length"])
def test_truncated_arguments_never_run(drive, effect, finish):
    ran_with = []
    tool = hr.FunctionTool(
        lambda **arguments: ran_with.append(arguments), name="delete_files", effect=effect,
        parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    )  # fmt: skip
    cut = hr.Turn(
        calls=[hr.ToolCall("c", "delete_files", '{"path": "/home/us')], finish=finish
    )
    _, told = ran(drive, [tool], cut, "done")
    assert ran_with == []
    assert told[0].failure.code in (hr.Code.TRUNCATED_CALL, hr.Code.BAD_JSON)
