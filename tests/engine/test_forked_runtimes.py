"""A runtime that was made before its process was forked works in the fork, or raises SetupError to the program."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from threading import Event, Thread

import pytest

import handrail as hr
from handrail import process_identity
from handrail.stores import sqlite_forks
from handrail.stores.sqlite import SqliteStore
from tests.support.drivers import BOUND_S, Gate
from tests.support.forks import in_fork

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@hr.tool(effect="write", key="pay:{order}")
def pay(order: str) -> str:
    """Pay an order."""
    return f"paid {order}"


@hr.tool(effect="write", key="pay:{order}")
async def pay_later(order: str) -> str:
    """Pay an order in a coroutine."""
    return f"paid {order}"


def call(runtime, tool, order):
    """Call a tool of a runtime of either kind; return its value, or the code of its failure."""
    result = runtime.call(tool.name, {"order": order})
    if not isinstance(runtime, hr.SyncRuntime):
        result = asyncio.run(result)
    return result.value if result.ok else str(result.failure.code)


@pytest.fixture(params=["memory", "sqlite"])
def place(request, tmp_path):
    return "memory" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.mark.parametrize("kind", [hr.Runtime, hr.SyncRuntime])
@pytest.mark.parametrize("tool", [pay, pay_later], ids=lambda tool: tool.name)
@pytest.mark.parametrize("is_used", [True, False])
def test_a_runtime_made_before_a_fork_writes_in_it(kind, tool, is_used, place):
    runtime = kind([tool], store=place)
    if is_used:
        assert call(runtime, tool, "0") == "paid 0"
    assert in_fork(lambda: [call(runtime, tool, each) for each in "121"]) == [
        "paid 1",
        "paid 2",
        "paid 1",
    ]
    assert call(runtime, tool, "3") == "paid 3"
    # also a fork of a fork
    assert in_fork(lambda: in_fork(lambda: call(runtime, tool, "4"))) == "paid 4"


def test_a_write_of_a_fork_is_that_of_its_own_process(tmp_path):
    with hr.SyncRuntime([pay], store=f"sqlite:///{tmp_path}/store.db") as runtime:
        call(runtime, pay, "1")

        def use():
            call(runtime, pay, "2")
            return process_identity.owner()

        fork = in_fork(use)
        store = runtime._engine.store_of_all
        owners = store.use_connection(lambda db: db.run("SELECT owner FROM effects"))
    assert fork != process_identity.owner()
    assert {owner for (owner,) in owners} == {fork, process_identity.owner()}


def test_what_a_call_of_the_parent_holds_does_not_keep_a_fork_waiting():
    gate = Gate()

    @hr.tool(effect="read", resource="till")
    def count_money() -> str:
        """Count."""
        if os.getpid() == parent:
            gate.pass_through()
        return "counted"

    parent = os.getpid()
    with hr.SyncRuntime([count_money]) as runtime:
        thread = Thread(target=runtime.call, args=("count_money",))
        thread.start()
        gate.wait_for(1)
        try:
            assert in_fork(lambda: runtime.call("count_money").text) == "counted"
        finally:
            gate.open()
            thread.join(BOUND_S)


def test_a_fork_amid_long_work_on_its_file_raises_to_the_program(tmp_path, monkeypatch):
    """The copy of that connection takes the file for locked, and every other one in the fork would believe it."""
    monkeypatch.setattr(sqlite_forks, "MOST_WAIT_S", 0.0)
    place = f"sqlite:///{tmp_path}/store.db"
    begun, over = Event(), Event()

    def hold(connection):
        connection.begin()
        begun.set()
        over.wait(BOUND_S)
        connection.rollback()

    with hr.SyncRuntime([pay], store=place) as runtime:
        store = runtime._engine.store_of_all
        thread = Thread(target=store.use_connection, args=(hold,))
        thread.start()
        assert begun.wait(BOUND_S)
        try:
            with pytest.raises(
                AssertionError, match="SetupError: this process was forked"
            ):
                in_fork(lambda: call(runtime, pay, "1"))
            with pytest.raises(
                AssertionError, match="SetupError: this process was forked"
            ):
                in_fork(lambda: SqliteStore(tmp_path / "store.db").place)
        finally:
            over.set()
            thread.join(BOUND_S)
        assert in_fork(lambda: call(runtime, pay, "1")) == "paid 1"


def test_a_store_that_was_replaced_since_the_fork_takes_no_write(tmp_path):
    file = tmp_path / "store.db"
    with hr.SyncRuntime([pay], store=f"sqlite:///{file}") as runtime:

        def use():
            for each in tmp_path.iterdir():
                each.unlink()
            with closing(SqliteStore(file)):
                pass
            return call(runtime, pay, "1")

        assert "UNAVAILABLE" in in_fork(use)


PREFORK = """
import json, os, sys, threading
import handrail as hr

@hr.tool(effect="write", key="pay:{order}")
def pay(order: str) -> str:
    with open(os.environ["WORLD"], "a") as world:
        world.write(order + "\\n")
    return "paid"

runtime = hr.SyncRuntime([pay], store=os.environ["STORE"])  # as `gunicorn --preload` imports it
if os.environ["USED"]:
    runtime.call("pay", {"order": "warm"})

def serve(number):
    "One worker: some requests of its own, and some that every worker gets."
    threads = [
        threading.Thread(target=answer, args=(order,))
        for order in [f"{number}.{each}" for each in range(8)] + ["shared"] * 2
    ]
    for each in threads: each.start()
    for each in threads: each.join()

answers = []
def answer(order):
    for _ in range(100):
        result = runtime.call("pay", {"order": order})
        if result.ok or result.failure.code != "IN_PROGRESS":
            break
    answers.append(result.value)

workers = []
for number in range(3):
    if (child := os.fork()) == 0:
        serve(number)
        sys.exit(0 if set(answers) == {"paid"} else f"{answers}")  # as an interpreter ends
    workers.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in workers]
runtime.call("pay", {"order": "after"})
sys.exit(max(codes))
"""


@pytest.mark.parametrize("used", ["", "yes"])
def test_workers_that_were_forked_behind_a_runtime_pay_each_order_once(tmp_path, used):
    (tmp_path / "app.py").write_text(PREFORK, encoding="utf-8")
    environment = os.environ | {
        "WORLD": str(tmp_path / "world"),
        "STORE": f"sqlite:///{tmp_path}/store.db",
        "USED": used,
    }
    subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "app.py")],
        env=environment,
        check=True,
        timeout=3 * BOUND_S,
    )
    orders = (tmp_path / "world").read_text(encoding="ascii").split()
    own = [f"{number}.{each}" for number in range(3) for each in range(8)]
    assert sorted(orders) == sorted([*own, "shared", "after", *(["warm"] * bool(used))])
