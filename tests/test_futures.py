"""What threads bring to a loop: everything arrives, in order, with few wake-ups."""

from __future__ import annotations

import asyncio
import gc
import os
from concurrent.futures import (
    CancelledError,
    Future,
    InvalidStateError,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from threading import Thread

import pytest

from handrail.futures import StoreFuture, mailbox, wait_for


def in_a_thread(work):
    thread = Thread(target=work)
    thread.start()
    thread.join()


async def told(box, letters):
    """Post letters, then one that ends the wait for them."""
    last = asyncio.Event()
    in_a_thread(lambda: [box.post(letter) for letter in (*letters, last.set)])
    await asyncio.wait_for(last.wait(), 10)


def test_many_answers_wake_the_loop_once():
    async def main():
        loop, box, heard, woken = asyncio.get_running_loop(), mailbox(), [], []
        wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *given: (woken.append(given), wake(*given))[
            1
        ]
        await told(box, [lambda n=n: heard.append(n) for n in range(200)])
        return heard, len(woken)

    assert asyncio.run(main()) == (list(range(200)), 1)


def test_what_raises_costs_the_letters_behind_it_nothing():
    async def main():
        heard, errors = [], []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, what: errors.append(repr(what["exception"]))
        )
        await told(mailbox(), [lambda: 1 / 0, lambda: heard.append(1)])
        return heard, errors

    assert asyncio.run(main()) == ([1], ["ZeroDivisionError('division by zero')"])


def test_letters_from_many_threads_all_arrive():
    async def main():
        box, heard, all_of_them = mailbox(), [], asyncio.Event()

        def hear(n):
            heard.append(n)
            if len(heard) == 2000:
                all_of_them.set()

        with ThreadPoolExecutor(8) as threads:
            for n in range(2000):
                threads.submit(box.post, hear, n)
            await asyncio.wait_for(all_of_them.wait(), 30)
        return heard

    assert sorted(asyncio.run(main())) == list(range(2000))


def test_a_closed_loop_takes_no_letters():
    async def main():
        return mailbox()

    box = asyncio.run(main())
    with pytest.raises(RuntimeError, match="closed"):
        box.post(print)


def test_each_loop_has_a_mailbox_of_its_own():
    async def main():
        answer = Future()
        asyncio.get_running_loop().call_soon(in_a_thread, lambda: answer.set_result(7))
        return await asyncio.wait_for(wait_for(answer), 10)

    assert [asyncio.run(main()) for _ in range(3)] == [7, 7, 7]


def test_who_is_cancelled_while_waiting_takes_the_question_back():
    async def main():
        answer = Future()
        waiting = asyncio.ensure_future(wait_for(answer))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        return waiting.cancelled(), answer.cancelled()

    assert asyncio.run(main()) == (True, True)


def test_an_answer_that_raises_raises_where_it_is_waited_for():
    async def main():
        answer = Future()
        answer.set_exception(ZeroDivisionError("from there"))
        await wait_for(answer)

    with pytest.raises(ZeroDivisionError, match="from there"):
        asyncio.run(main())


@pytest.mark.parametrize("kind", [Future, StoreFuture])
def test_a_future_of_a_store_behaves_as_any_other(kind):
    done, failed, cancelled, open_ = (kind() for _ in range(4))
    heard = []
    done.add_done_callback(lambda each: heard.append(each.result()))
    done.set_running_or_notify_cancel()
    assert done.running() and not done.cancel()
    done.set_result(7)
    failed.set_exception(ZeroDivisionError("from there"))
    assert cancelled.cancel() and cancelled.cancelled()
    assert not cancelled.set_running_or_notify_cancel()
    assert (done.result(), done.exception(), heard) == (7, None, [7])
    assert isinstance(failed.exception(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match="from there"):
        failed.result()
    for ask in (cancelled.result, cancelled.exception):
        with pytest.raises(CancelledError):
            ask()
    for ask in (open_.result, open_.exception):
        with pytest.raises(TimeoutError):
            ask(0.001)
    with pytest.raises(InvalidStateError):
        done.set_result(8)
    assert set(wait([done, failed, cancelled, open_], 0).not_done) == {open_}


def test_threads_that_wait_for_futures_of_a_store_each_get_their_own():
    answers = [StoreFuture() for _ in range(50)]
    with ThreadPoolExecutor(50) as threads:
        waiting = [threads.submit(answer.result, 30) for answer in answers]
        for number, answer in enumerate(answers):
            answer.set_result(number)
        assert [each.result(30) for each in waiting] == list(range(50))
        late = [StoreFuture() for _ in range(20)]
        seen = threads.submit(lambda: {each.result() for each in as_completed(late)})
        for number, answer in enumerate(late):
            answer.set_result(number)
        assert seen.result(30) == set(range(20))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_uses_futures_though_another_thread_held_their_lock():
    with StoreFuture._condition:
        child = os.fork()
        if not child:
            answer = StoreFuture()
            in_a_thread(lambda: answer.set_result(7))
            os._exit(answer.result(30))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_future_of_a_store_is_few_objects_for_the_garbage_collector():
    def count(kind):
        gc.collect()
        before = len(gc.get_objects())
        kept = [kind() for _ in range(100)]
        return (len(gc.get_objects()) - before) / len(kept)

    assert count(StoreFuture) < 4 < count(Future)


def test_an_answer_that_came_before_anybody_waited_for_it_can_still_be_kept():
    answered, refused = StoreFuture(), StoreFuture()
    answered.set_result(5)
    refused.set_exception(OSError("gone"))
    assert answered.start()
    assert refused.start()
    assert answered.result() == 5
    cancelled = StoreFuture()
    cancelled.cancel()
    assert not cancelled.start()
