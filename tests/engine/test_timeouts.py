"""Timers that nearly always are cancelled: those of one length share one timer of the loop."""

from __future__ import annotations

import asyncio

from handrail.engine.timeouts import RareTimers, rare_timers


def on_a_loop(check):
    asyncio.run(asyncio.wait_for(check(), 30))


def test_timers_of_one_length_ring_in_order_except_those_that_were_cancelled():
    async def check():
        loop = asyncio.get_running_loop()
        timers = RareTimers(loop)
        rung = []
        done = asyncio.Event()
        set_before = [
            timers.call_later(0.01, rung.append, (number,)) for number in range(6)
        ]
        for each in set_before[:2] + set_before[4:5]:
            each.cancel()
        timers.call_later(0.01, done.set, ())
        await done.wait()
        assert rung == [2, 3, 5]

    on_a_loop(check)


def test_one_that_raises_keeps_no_other_from_ringing():
    async def check():
        loop = asyncio.get_running_loop()
        errors = []
        loop.set_exception_handler(lambda _, told: errors.append(told["exception"]))
        timers = RareTimers(loop)
        done = asyncio.Event()
        timers.call_later(0.01, lambda: 1 / 0, ())
        timers.call_later(0.01, done.set, ())
        await done.wait()
        assert [type(each) for each in errors] == [ZeroDivisionError]

    on_a_loop(check)


def test_one_that_is_set_after_others_have_rung_rings_too_and_lengths_are_kept_apart():
    async def check():
        timers = rare_timers(asyncio.get_running_loop())
        assert rare_timers(asyncio.get_running_loop()) is timers
        rung = []
        for _ in range(2):
            done = asyncio.Event()
            timers.call_later(0.02, rung.append, ("later",))
            timers.call_later(0.02, done.set, ())
            timers.call_later(0.001, rung.append, ("sooner",))
            timers.call_later(3600.0, rung.append, ("never",))
            await done.wait()
        assert rung == ["sooner", "later"] * 2

    on_a_loop(check)


def test_a_cancelled_timer_lets_go_of_what_it_would_have_called():
    async def check():
        timers = RareTimers(asyncio.get_running_loop())
        held = timers.call_later(3600.0, print, ("x",))
        held.cancel()
        assert (held.then, held.args) == (None, ())
        held.ring()

    on_a_loop(check)
