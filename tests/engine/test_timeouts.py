"""Timers that nearly always are cancelled: those of one length share one timer of the loop."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from sys import getrefcount

import pytest

from handrail.engine.timeouts import MAX_CANCELLED, RareTimer, RareTimers, rare_timers


class Loop:
    """An event loop whose clock is moved by hand."""

    def __init__(self):
        self._now = 0.0
        self._timers = []
        self._number = count()

    def time(self):
        return self._now

    def call_at(self, at, then, *args, context):
        heapq.heappush(self._timers, (at, next(self._number), context, then, args))

    def call_soon(self, then, *args):
        self.call_at(self._now, then, *args, context=None)

    def pass_until(self, now):
        """Ring what is due by then, and return what was raised."""
        errors = []
        while self._timers and self._timers[0][0] <= now:
            self._now, _, _, then, args = heapq.heappop(self._timers)
            try:
                then(*args)
            except Exception as error:
                errors.append(error)
        self._now = now
        return errors

    @property
    def waiting(self):
        return len(self._timers)


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def timers(loop):
    return RareTimers(loop)


def test_timers_of_one_length_ring_in_order_except_those_that_were_cancelled(
    loop, timers
):
    rung = []
    numbered = [timers.call_later(20, rung.append, (number,)) for number in range(6)]
    for cancelled in (0, 1, 4):
        numbered[cancelled].cancel()
    loop.pass_until(19)
    assert rung == []
    loop.pass_until(20)
    assert rung == [2, 3, 5]


def test_the_loop_has_one_timer_for_each_length(loop, timers):
    for seconds in (20, 60, 20, 60, 20):
        timers.call_later(seconds, print, ())
    assert loop.waiting == 2


def test_one_that_raises_keeps_no_other_from_ringing(loop, timers):
    rung = []
    timers.call_later(20, lambda: 1 / 0, ())
    timers.call_later(20, rung.append, ("next",))
    assert [type(each) for each in loop.pass_until(20)] == [ZeroDivisionError]
    assert rung == ["next"]


def test_each_rings_at_its_own_time_though_others_of_its_length_have_rung(loop, timers):
    rung = []
    timers.call_later(20, rung.append, ("first",))
    loop.pass_until(5)
    timers.call_later(20, rung.append, ("second",))
    timers.call_later(1, rung.append, ("shorter",))
    loop.pass_until(24)
    assert rung == ["shorter", "first"]
    loop.pass_until(25)
    assert rung == ["shorter", "first", "second"]
    # the loop has no timer left for this length, and sets one again
    timers.call_later(20, rung.append, ("third",))
    loop.pass_until(45)
    assert rung[-1] == "third"


def test_a_cancelled_timer_lets_go_of_what_it_would_have_called(timers):
    held = timers.call_later(20, print, ("x",))
    held.cancel()
    assert (held.then, held.args) == (None, ())
    held.ring()


def test_cancelled_timers_do_not_pile_up_behind_one_that_waits(timers):
    waits = timers.call_later(20, print, ())
    cancelled = []
    for _ in range(10 * MAX_CANCELLED):
        cancelled.append(timers.call_later(20, print, ()))
        cancelled[-1].cancel()
    ours = getrefcount(RareTimer(0.0, None, ()))
    references = [getrefcount(cancelled.pop()) for _ in range(10 * MAX_CANCELLED)]
    assert getrefcount(waits) > ours
    assert sum(count > ours for count in references) <= MAX_CANCELLED + 1


def test_timers_that_wait_stay_in_order_when_cancelled_ones_are_dropped(loop, timers):
    rung = []
    for number in range(3 * MAX_CANCELLED):
        timer = timers.call_later(20, rung.append, (number,))
        if number % 3 == 1:
            timer.cancel()
    loop.pass_until(20)
    assert rung == [n for n in range(3 * MAX_CANCELLED) if n % 3 != 1]


def test_a_loop_has_the_same_timers_whoever_asks_and_another_loop_has_others():
    async def ask():
        loop = asyncio.get_running_loop()
        timers = rare_timers(loop)
        assert rare_timers(loop) is timers
        rung = asyncio.Event()
        timers.call_later(0.001, rung.set, ())
        await asyncio.wait_for(rung.wait(), 30)
        return timers

    assert asyncio.run(ask()) is not asyncio.run(ask())
