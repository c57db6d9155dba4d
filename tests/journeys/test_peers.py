"""What eleven other frameworks were seen to do with these calls, row by row, and what happens here.

The rows are those of a comparison made with scripted models in November 2026; the sentence of each test is what was
wanted. Each runs on asyncio and in the calling thread.
"""

import asyncio
import json
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


@pytest.mark.parametrize("how", ["async", "sync"])
def test_two_updates_of_one_account_in_one_turn_lose_nothing(drive, how):
    account = {"balance": 0}

    async def deposit_async(amount: int) -> int:
        """Pay in."""
        balance = account["balance"]
        await asyncio.sleep(0)
        account["balance"] = balance + amount
        return account["balance"]

    def deposit_sync(amount: int) -> int:
        """Pay in."""
        balance = account["balance"]
        time.sleep(0.001)  # lets the other thread in, if there is one
        account["balance"] = balance + amount
        return account["balance"]

    fn = deposit_async if how == "async" else deposit_sync
    deposit = hr.FunctionTool(fn, name="deposit", effect="write", resource="account:7")
    ran(
        drive, [deposit], [call("deposit", amount=1), call("deposit", amount=2)], "done"
    )
    assert account["balance"] == 3


def test_the_same_write_twice_in_a_turn_and_once_in_the_next_happens_once(drive):
    tickets = []

    @hr.tool(effect="write")
    def create_ticket(title: str) -> int:
        """Open a ticket."""
        tickets.append(title)
        return len(tickets)

    again = call("create_ticket", title="slow")
    _, told = ran(
        drive,
        [create_ticket],
        [again, hr.ToolCall("call_2", again.name, again.arguments)],
        again,
        "done",
    )
    assert tickets == ["slow"]
    assert [(result.value, result.replayed) for result in told] == [
        (1, False),
        (1, True),
        (1, True),
    ]


def test_two_calls_of_one_id_in_one_turn_both_get_their_own_result(drive):
    @hr.tool(effect="read")
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    calls = [
        hr.ToolCall("call_1", "double", json.dumps({"number": number}))
        for number in (1, 2)
    ]
    _, told = ran(drive, [double], calls, "done")
    assert [result.value for result in told] == [2, 4]


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


def weather(seen):
    @hr.tool(effect="read")
    def get_weather(city: str, days: int = 1) -> str:
        """Look at the weather."""
        seen.append((city, days))
        return f"fine in {city}"

    return get_weather


def test_an_unknown_tool_is_told_with_the_nearest_name_and_the_run_goes_on(drive):
    seen = []
    run, told = ran(
        drive,
        [weather(seen)],
        call("get_wether", city="Bern"),
        call("get_weather", city="Bern"),
        "Fine.",
    )
    assert told[0].failure.code == hr.Code.UNKNOWN_TOOL
    assert "get_weather" in told[0].text
    assert (run.text, seen) == ("Fine.", [("Bern", 1)])


def test_the_text_of_an_exception_reaches_no_model_and_ends_no_run(drive):
    @hr.tool(effect="read")
    def query() -> str:
        """Ask the database."""
        raise RuntimeError("cannot connect: db password=hunter2")

    model = ScriptedModel([call("query"), "It failed."])
    run = drive([query]).run("Go.", model=model)
    assert run.text == "It failed."
    (told,) = results(run)
    assert told.failure.code == hr.Code.INTERNAL_ERROR
    assert all("hunter2" not in repr(request.messages) for request in model.requests)


def test_three_million_characters_become_sixteen_kibibytes_and_a_handle(drive):
    @hr.tool(effect="read")
    def dump() -> str:
        """Dump the table."""
        return "\n".join(f"row {number:08}" for number in range(231_000))

    def read_on(messages):
        handle = messages[-1].result.handle
        return call("read_result", handle=handle, pattern="row 00230999")

    _, (cut, rest) = ran(drive, [dump], call("dump"), read_on, "done")
    assert len(cut.value) > 3_000_000 - 10_000
    # and the sentence that names the handle
    assert len(cut.text.encode()) <= 16 * 1024 + 300
    assert "row 00230999" in rest.text


def test_the_same_call_for_ever_is_told_once_and_then_ends_the_run(drive):
    seen = []
    # the last line is said for ever
    run, told = ran(drive, [weather(seen)], call("get_weather", city="Bern"))
    assert run.status != "done"
    assert len(seen) <= 4
    assert told[-1].failure.code == hr.Code.REPEATED_CALL


@pytest.mark.parametrize("text", [
    '{"city": "Bern", "days": 2,}',                 # a trailing comma
    "{'city': 'Bern', 'days': 2}",                  # single quotes
    '```json\n{"city": "Bern", "days": 2}\n```',    # a fence
])  # fmt: skip
def test_malformed_arguments_are_mended_to_what_was_meant(drive, text):
    seen = []
    _, (told,) = ran(
        drive, [weather(seen)], hr.ToolCall("c", "get_weather", text), "done"
    )
    assert seen == [("Bern", 2)]
    assert told.repairs


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


@pytest.mark.parametrize(("arguments", "words"), [
    ({"ciy": "Bern"}, ["`ciy`", "`city`"]),          # a typo: the nearest name
    ({"city": "Bern", "days": "two"}, ["`days`"]),   # another type: which field
    ({}, ["`city`", "required"]),                    # nothing at all: what is missing
])  # fmt: skip
def test_wrong_arguments_are_told_field_by_field_and_run_nothing(
    drive, arguments, words
):
    seen = []
    _, (told,) = ran(drive, [weather(seen)], call("get_weather", **arguments), "done")
    assert told.failure.code == hr.Code.INVALID_ARGUMENTS
    assert [word for word in words if word not in told.text] == []
    assert seen == []
