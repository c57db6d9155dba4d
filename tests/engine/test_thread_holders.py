"""Tools that hold threads keep no other tool from running: those that wait for tools, and those that hang."""

from __future__ import annotations

import asyncio
import threading

import pytest

import handrail as hr
from handrail.testing import ScriptedModel, call
from handrail.workers import threads
from handrail.workers.threads import DEFAULT_THREADS, ThreadPool
from tests.support.drivers import BOUND_S, KINDS, Driver, Gate

CROWD = DEFAULT_THREADS + 16


@hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
def inner(i: int) -> str:
    """Answer."""
    return f"inner {i}"


def script(i):
    return ScriptedModel([call("inner", i=i), f"end {i}"])


@hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
def run_within(i: int, context: hr.Context) -> str:
    """Start a run in a sync tool."""
    return context.run_blocking(f"question {i}", model=script(i)).text


def crowd_of(runtime, name):
    async def all_at_once():
        async with runtime:
            calls = (runtime.call(name, {"i": i}) for i in range(CROWD))
            return await asyncio.wait_for(asyncio.gather(*calls), BOUND_S)

    return [result.value for result in asyncio.run(all_at_once())]


def test_a_crowd_of_sync_tools_that_start_runs_gets_threads_for_their_tools():
    runtime = hr.Runtime([inner, run_within], budget=hr.Budget(calls=None))
    assert crowd_of(runtime, "run_within") == [f"end {i}" for i in range(CROWD)]


def test_a_crowd_of_sync_tools_that_call_the_blocking_runtime_gets_threads():
    @hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
    def call_within(i: int) -> str:
        """Call a tool in a sync tool."""
        return runtime.blocking.call("inner", {"i": i}).value

    runtime = hr.Runtime([inner, call_within])
    assert crowd_of(runtime, "call_within") == [f"inner {i}" for i in range(CROWD)]


def test_a_crowd_of_async_tools_that_run_on_a_sync_runtime_nests():
    other = hr.SyncRuntime([inner])

    @hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
    async def run_elsewhere(i: int, context: hr.Context) -> str:
        """Start a run on another runtime."""
        run = await context.run(f"question {i}", model=script(i), runtime=other)
        return run.text

    @hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
    async def run_deeper(i: int, context: hr.Context) -> str:
        """Start a run there whose tool starts one too."""
        model = ScriptedModel([call("run_elsewhere", i=i), f"deep {i}"])
        run = await context.run(f"question {i}", model=model, runtime=middle)
        return run.text

    middle = hr.SyncRuntime([run_elsewhere])
    with other, middle:
        runtime = hr.Runtime([run_deeper])
        assert crowd_of(runtime, "run_deeper") == [f"deep {i}" for i in range(CROWD)]


@pytest.mark.parametrize("kind", KINDS)
def test_sync_tools_that_hang_beyond_their_time_keep_no_other_from_starting(kind):
    gate = Gate()

    @hr.tool(effect="read", timeout_s=0.3, limits=hr.Limits(max_attempts=1, breaker=0))
    def hang() -> None:
        """Hang."""
        gate.pass_through()

    driver = Driver(kind, [hang, inner], {})
    driver.runtime._engine.services.threads = ThreadPool(most=3)
    try:
        for _ in range(3):
            results = driver.calls_at_once(*[("hang",)] * 3)
            assert {result.failure.code for result in results} == {"TIMEOUT"}
            assert driver.call("inner", {"i": 1}).value == "inner 1"
        assert gate.entered == 9
    finally:
        gate.open()
        driver.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_got_no_thread_is_told_who_holds_them(kind, caplog):
    gate = Gate()

    @hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
    def stand() -> None:
        """Stand there."""
        gate.pass_through()

    @hr.tool(effect="read", timeout_s=0.1, limits=hr.Limits(max_attempts=1))
    def look() -> None:
        """Look."""

    driver = Driver(kind, [stand, look], {})
    driver.runtime._engine.services.threads = ThreadPool(most=2)
    try:
        standing = [driver.start("call", "stand") for _ in range(2)]
        gate.wait_for(2)
        refusal = driver.call("look").failure
        told = "All 2 threads are held: `stand` 2 (for up to "
        assert refusal.code == "TIMEOUT"
        assert told in refusal.message
        assert told in caplog.text
        gate.open()
        assert all(each.result(BOUND_S).ok for each in standing)
    finally:
        gate.open()
        driver.close()


def test_only_so_many_threads_do_not_count(monkeypatch):
    monkeypatch.setattr(threads, "MOST_ASIDE", 2)
    pool, opened = ThreadPool(most=1), threading.Event()
    entered = threading.Semaphore(0)

    def stand():
        entered.release()
        assert opened.wait(BOUND_S)

    tasks = []
    for _ in range(3):
        tasks.append(pool.submit(stand, lambda _: None, "stand"))
        assert entered.acquire(timeout=BOUND_S)
        assert not pool.withdraw(tasks[-1])  # nobody waits for it any more
    waiting = pool.submit(stand, lambda _: None)
    assert "3 of 1, 0 idle, 1 waiting" in repr(pool)
    # of the three, those two are no part of the pool
    assert pool.describe_holders().startswith("All 1 threads are held: `stand` 1 (")
    assert pool.withdraw(waiting)
    opened.set()
    pool.close()
