"""Threads for tools that block: how many there are, what they report, what can be taken back."""

import asyncio
import contextvars
import threading
import types
import weakref
from queue import Queue

import pytest

from handrail.effects import Raised, Returned
from handrail.engine.thread_scheduler import LoopThread
from handrail.sandboxes.levels import LevelSearch
from handrail.workers.threads import ThreadPool, run_tool
from tests.support.drivers import BOUND_S, until


@pytest.fixture
def threads():
    pool = ThreadPool(most=3)
    yield pool
    pool.close()


@pytest.fixture
def gate():
    """Work stands at it until it is opened; opened at the end, so that no thread outlives its test."""
    opened = threading.Event()
    yield opened
    opened.set()


def run(threads: ThreadPool, work):
    """Run work to its end, and return what was reported."""
    reports = Queue()
    threads.submit(work, reports.put)
    return reports.get(timeout=BOUND_S)


def occupy(threads: ThreadPool, gate, count: int) -> Queue:
    """Let so many threads stand at the gate; return where they report."""
    entered, reports = threading.Semaphore(0), Queue()

    def stand():
        entered.release()
        assert gate.wait(BOUND_S)
        return threading.current_thread().name

    for _ in range(count):
        threads.submit(stand, reports.put)
    for _ in range(count):
        assert entered.acquire(timeout=BOUND_S)
    return reports


# ---------------------------------------------------------------------- what is reported


def test_a_result_is_reported_from_another_thread(threads):
    here = threading.current_thread()
    assert run(threads, threading.current_thread).value is not here


def test_an_exception_is_reported_as_it_is(threads):
    error = ValueError("no")
    assert run(threads, lambda: raise_(error)).error is error


def raise_(error: BaseException):
    raise error


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()],
)
def test_what_would_end_a_program_ends_the_tool_only_and_is_reported(threads, error):
    outcome = run(threads, lambda: raise_(error))
    assert isinstance(outcome, Raised)
    assert type(error).__name__ in str(outcome.error)
    assert run(threads, lambda: "still there") == Returned("still there", plain=True)


def test_an_interrupt_from_the_keyboard_passes_in_the_main_thread():
    with pytest.raises(KeyboardInterrupt):
        run_tool(lambda: raise_(KeyboardInterrupt()))


def test_work_sees_the_context_in_which_it_was_submitted(threads):
    tenant = contextvars.ContextVar("tenant")
    tenant.set("acme")
    assert run(threads, tenant.get) == Returned("acme", plain=True)


def test_what_work_sets_in_its_context_stays_there(threads):
    tenant = contextvars.ContextVar("tenant", default="nobody")
    run(threads, lambda: tenant.set("acme"))
    assert (tenant.get(), run(threads, tenant.get)) == (
        "nobody",
        Returned("nobody", plain=True),
    )


# ---------------------------------------------------------------------- how many there are


def test_a_thread_that_cannot_be_started_is_missed_once_only_and_its_task_never_runs(
    threads, gate, monkeypatch
):
    begun = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.submit(lambda: begun.append("refused"), lambda _: None)
    occupy(threads, gate, 3)
    assert "3 of 3, 0 idle, 0 waiting" in repr(threads)
    assert begun == []


def search_levels(search):
    assert search.start().result(BOUND_S) is not None


def use_loop(loop_thread):
    assert loop_thread.result(asyncio.sleep(0, "done")) == "done"
    loop_thread.close()


@pytest.mark.parametrize(
    ("needs_thread", "use"), [(LevelSearch, search_levels), (LoopThread, use_loop)]
)
def test_a_thread_that_could_not_be_started_is_started_the_next_time(
    needs_thread, use, monkeypatch
):
    one = needs_thread()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            use(one)
    use(one)


def refuse(_thread):
    raise RuntimeError("can't start new thread")


def test_an_idle_thread_is_used_again(threads):
    names = set()
    for _ in range(10):
        names.add(run(threads, lambda: threading.current_thread().name).value)
        until(lambda: "1 idle" in repr(threads))
    assert len(names) == 1


def test_threads_are_added_while_all_are_busy(threads, gate):
    reports = occupy(threads, gate, 3)
    gate.set()
    assert len({reports.get(timeout=BOUND_S).value for _ in range(3)}) == 3


def test_beyond_the_most_work_waits_its_turn(threads, gate):
    occupy(threads, gate, 3)
    order, reports = [], Queue()
    for number in range(4):
        threads.submit(lambda number=number: order.append(number), reports.put)
    assert repr(threads) == "<ThreadPool: 3 of 3, 0 idle, 4 waiting>"
    gate.set()
    for _ in range(4):
        reports.get(timeout=BOUND_S)
    assert sorted(order) == [0, 1, 2, 3]


def test_what_waits_for_one_thread_begins_in_order(gate):
    threads, order, reports = ThreadPool(most=1), [], Queue()
    occupy(threads, gate, 1)
    for number in range(20):
        threads.submit(lambda number=number: order.append(number), reports.put)
    gate.set()
    for _ in range(20):
        reports.get(timeout=BOUND_S)
    threads.close()
    assert order == list(range(20))


def test_a_thread_does_not_hold_the_end_of_the_program(threads):
    assert run(threads, lambda: threading.current_thread().daemon) == Returned(
        True, plain=True
    )


@pytest.mark.slow
def test_an_idle_thread_keeps_nothing_of_its_last_call_alive(threads):
    class Large:
        def look(self):
            return None

    large = Large()
    gone = weakref.ref(large)
    run(threads, large.look)
    del large
    until(lambda: gone() is None, "the idle thread holds it")


# ---------------------------------------------------------------------- taken back, and closed


def test_what_has_not_begun_can_be_withdrawn_and_never_runs(threads, gate):
    reports = occupy(threads, gate, 3)
    ran = []
    job = threads.submit(lambda: ran.append("withdrawn"), reports.put)
    assert threads.withdraw(job)
    gate.set()
    assert run(threads, lambda: "after it") == Returned("after it", plain=True)
    assert ran == []


def test_what_is_withdrawn_stands_in_line_no_longer_though_every_thread_hangs(
    threads, gate
):
    reports = occupy(threads, gate, 3)
    for _ in range(100):
        assert threads.withdraw(threads.submit(lambda: None, reports.put))
    assert repr(threads) == "<ThreadPool: 3 of 3, 0 idle, 0 waiting>"


def test_what_has_begun_cannot_be_withdrawn(threads, gate):
    entered = threading.Event()
    reports = Queue()
    job = threads.submit(lambda: entered.set() or gate.wait(BOUND_S), reports.put)
    assert entered.wait(BOUND_S)
    assert not threads.withdraw(job)
    gate.set()
    assert reports.get(timeout=BOUND_S) == Returned(True, plain=True)
    assert not threads.withdraw(job)


def test_of_many_who_withdraw_while_threads_begin_each_either_runs_or_does_not():
    threads, reports, withdrawn = ThreadPool(most=4), Queue(), 0
    for number in range(500):
        job = threads.submit(lambda number=number: number, reports.put)
        withdrawn += threads.withdraw(job)
    ran = [reports.get(timeout=BOUND_S).value for _ in range(500 - withdrawn)]
    threads.close()
    assert len(set(ran)) == 500 - withdrawn
    assert reports.empty()


def test_closing_lets_idle_threads_end(threads):
    run(threads, lambda: None)
    threads.close()
    until(lambda: repr(threads).startswith("<ThreadPool: 0 of 3"))


def test_a_thread_without_work_ends_after_a_while_though_nobody_closes_the_pool():
    threads = ThreadPool(idle_s=0)
    run(threads, lambda: None)
    until(lambda: repr(threads).startswith("<ThreadPool: 0 of 64"))
    assert run(threads, lambda: "again") == Returned("again", plain=True)


def test_no_work_is_lost_to_threads_that_are_about_to_end():
    threads, reports = ThreadPool(most=4, idle_s=0), Queue()
    for number in range(1_000):
        threads.submit(lambda: None, lambda outcome, number=number: reports.put(number))
    assert {reports.get(timeout=BOUND_S) for _ in range(1_000)} == {*range(1_000)}


def test_a_closed_pool_ends_what_it_has_begun_and_what_waits(threads, gate):
    reports = occupy(threads, gate, 3)
    threads.submit(lambda: "waited", reports.put)
    threads.close()
    gate.set()
    assert "waited" in {reports.get(timeout=BOUND_S).value for _ in range(4)}


def test_a_closed_pool_still_runs_what_comes_late(threads):
    threads.close()
    for _ in range(10):
        assert run(threads, lambda: "late") == Returned("late", plain=True)


def test_a_generator_that_is_a_coroutine_is_awaited_and_not_read():
    @types.coroutine
    def asked():
        yield

    assert run_tool(asked).pending
    assert run_tool(lambda: iter([1, 2])).value == [1, 2]
