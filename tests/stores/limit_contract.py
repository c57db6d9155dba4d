"""What rates and breakers hold to, whoever counts them: one process in memory, or a store for all its processes."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from handrail.errors import Failure
from handrail.futures import result_now
from handrail.testing import ManualClock
from handrail.tools.rate_limits import REST_S, Limits, Rate
from handrail.tools.shared_limits import LOOK_S, SHARE_S, SharedLimits

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


class Process:
    """What one process does with the limits."""

    def __init__(self, limits, clock, wait=lambda: None):
        self.limits = limits
        self.clock = clock
        self.wait = wait
        """Waits until the store has answered what it was asked."""

    def start(self, rate, *, tool="search", key=("", ""), most_s=0.0):
        """Return how long the next start has to wait, or the failure."""
        now = self.clock()
        return result_now(self.limits.wait_s(tool, key, rate, now=now, most_s=most_s))

    def starts(self, count, rate, **how):
        """Try so often to start; return how often it could at once."""
        return sum(self.start(rate, **how) == 0.0 for _ in range(count))

    def fail(self, most=3):
        self.limits.note_failed("search", most, self.clock())
        self.wait()

    def reach(self):
        self.limits.note_reached("search")
        self.wait()

    def look(self):
        """Learn what the others have noted."""
        self.clock.advance(LOOK_S)
        self.limits.look()
        self.wait()

    @property
    def rests(self):
        """Whether the tool is left alone."""
        return result_now(self.limits.rests("search", self.clock())) is not None


def settled(store):
    """Wait until a store has answered what it was asked."""
    store.use_connection(lambda _: None)


class LimitContract:
    """The laws. `processes(n)` are so many of one deployment, `pass_time` lets time go by for all of them."""

    def test_processes_stay_within_a_rate_together(self):
        a, b, c = self.processes(3)
        rate = Rate(10, 3600.0)
        given = [each.start(rate) for _ in range(5) for each in (a, b, c)]
        assert given[:10] == [0.0] * 10
        assert all(isinstance(each, Failure) for each in given[10:])
        assert given[10].code == "RATE_LIMITED"
        assert "10 times in 3600 s" in given[10].message
        assert "in 360 s" in given[10].suggestion

    def test_those_who_wait_go_one_after_another_whatever_their_process(self):
        a, b = self.processes(2)
        rate = Rate(2, 60.0)
        waits = [each.start(rate, most_s=100.0) for each in (a, b, a, b)]
        assert waits == pytest.approx([0.0, 0.0, 30.0, 60.0], abs=2.0)

    def test_a_start_comes_back_in_its_time(self):
        a, b = self.processes(2)
        rate = Rate(2, 3600.0)
        assert a.starts(3, rate) == 2
        self.pass_time(1801.0)
        assert b.starts(3, rate) == 1

    def test_tenants_and_keys_are_counted_apart(self):
        a, b = self.processes(2)
        rate = Rate(1, 3600.0)
        for key in (("", ""), ("acme", ""), ("", "acme"), ("", "\ud800\x00")):
            assert [a.start(rate, key=key), b.starts(1, rate, key=key)] == [0.0, 0]
        assert a.starts(2, rate, tool="other") == 1

    def test_processes_that_take_several_starts_at_once_stay_within_the_rate(self):
        trio = self.processes(3)
        rate = Rate(100, 3600.0)
        given = sum(each.starts(1, rate) for _ in range(60) for each in trio)
        # what is left over belongs to a share that another process has taken
        assert 90 <= given <= 100

    def test_failures_of_all_processes_open_a_breaker_for_all(self):
        a, b, c = self.processes(3)
        a.fail()
        b.fail()
        a.look()
        assert not a.rests
        a.fail()
        for each in (a, b, c):
            each.look()
            assert each.rests

    def test_after_the_rest_one_call_may_try_and_its_end_decides_for_all(self):
        a, b = self.processes(2)
        a.fail(most=1)
        b.look()
        self.pass_time(REST_S + 1)
        assert [a.rests, b.rests, a.rests] == [False, True, True]
        a.fail(most=1)
        b.look()
        assert b.rests
        self.pass_time(REST_S + 1)
        assert [b.rests, a.rests] == [False, True]
        b.reach()
        a.look()
        assert [a.rests, b.rests] == [False, False]

    def test_a_try_that_never_reports_gives_way_to_another_one(self):
        a, b = self.processes(2)
        a.fail(most=1)
        b.look()
        self.pass_time(REST_S + 1)
        assert not a.rests
        assert b.rests
        self.pass_time(REST_S + 1)
        assert not b.rests

    def test_what_one_process_reaches_ends_the_count_of_the_others(self):
        a, b = self.processes(2)
        a.fail(most=2)
        b.look()
        b.reach()
        a.fail(most=2)
        a.look()
        assert not a.rests


class TestLimitsInMemory(LimitContract):
    """One process: all see the same object."""

    def processes(self, count):
        self.clock = ManualClock(1000.0)
        limits = Limits()
        return [Process(limits, self.clock) for _ in range(count)]

    def pass_time(self, seconds):
        self.clock.advance(seconds)


class SharedLimitContract(LimitContract):
    """What only several processes of one store can do. `open` returns the store, each time with a new connection."""

    @pytest.fixture(autouse=True)
    def _stores(self):
        with ExitStack() as self.stack:
            yield

    def processes(self, count):
        self.clock = ManualClock(1000.0)
        self.stores = [self.stack.enter_context(self.open()) for _ in range(count)]
        return [
            Process(
                SharedLimits(store, self.clock), self.clock, partial(settled, store)
            )
            for store in self.stores
        ]

    def pass_time(self, seconds):
        def move(database):
            database.run("UPDATE rates SET due = due - ?, at = at - ?", (seconds,) * 2)
            database.run(
                "UPDATE breakers SET until = until - ?, tried = tried - ?",
                (seconds,) * 2,
            )

        self.stores[0].use_connection(move)
        self.clock.advance(seconds)

    def due_s(self):
        """In how many seconds the only bucket is full."""

        def read(database):
            rows = database.run("SELECT due FROM rates")
            return rows[0][0] - database.now() if rows else 0.0

        return self.stores[0].use_connection(read)

    def test_a_busy_process_asks_the_store_for_a_few_starts_at_once(self):
        (a,) = self.processes(1)
        rate = Rate(2000, 3600.0)
        asked = 0
        for _ in range(500):
            before = self.due_s()
            assert a.start(rate) == 0.0
            asked += self.due_s() > before
        # shares of 1, 2, 4, ..., 64, which are 127 starts, and then a twentieth of the rate each time
        assert asked == 7 + 4

    def test_a_process_that_was_frozen_does_not_use_what_it_had_taken(self):
        (a,) = self.processes(1)
        rate = Rate(2000, 3600.0)
        assert a.starts(4, rate) == 4  # 1 + 2 + the first of 4
        taken_s = self.due_s()
        self.clock.advance(SHARE_S + 0.1)
        assert a.start(rate) == 0.0
        assert self.due_s() > taken_s

    def test_a_clock_that_is_set_back_holds_no_start_up_and_grants_none(self):
        (a,) = self.processes(1)
        rate = Rate(2, 60.0)
        assert a.starts(3, rate) == 2
        self.pass_time(-3600.0)
        assert a.start(rate, most_s=100.0) == pytest.approx(30.0, abs=2.0)
        assert isinstance(a.start(rate), Failure)

    def set_clock_back(self, seconds):
        """Set the database's clock back; time goes on for each process."""
        self.pass_time(-seconds)
        self.clock.advance(seconds)

    def test_a_breaker_does_not_rest_for_longer_because_the_clock_was_set_back(self):
        a, b = self.processes(2)
        a.fail(most=1)
        self.set_clock_back(3600.0)
        a.look()
        b.look()
        # how much of the rest is left is not known: one call tries the tool, and its end decides
        assert [b.rests, a.rests, b.rests] == [False, True, True]
        a.look()
        assert a.rests
        a.fail(most=1)
        b.look()
        assert [a.rests, b.rests] == [True, True]
        self.pass_time(REST_S + 1)
        assert [a.rests, b.rests] == [False, True]

    def test_a_call_that_tries_a_tool_holds_no_other_up_for_longer_because_the_clock_was_set_back(
        self,
    ):
        a, b = self.processes(2)
        a.fail(most=1)
        b.look()
        self.pass_time(REST_S + 1)
        assert [a.rests, b.rests] == [False, True]
        self.set_clock_back(3600.0)
        b.look()
        assert not b.rests

    def test_a_clock_that_is_set_back_a_little_ends_no_rest(self):
        a, b = self.processes(2)
        a.fail(most=1)
        self.set_clock_back(5.0)
        for each in (a, b):
            each.look()
            assert each.rests

    def test_a_process_with_few_calls_takes_few_starts(self):
        (a,) = self.processes(1)
        rate = Rate(2000, 3600.0)
        assert a.starts(4, rate) == 4
        for _ in range(3):
            self.clock.advance(SHARE_S + 0.1)
            before = self.due_s()
            assert a.start(rate) == 0.0
        assert self.due_s() - before == pytest.approx(1.8, abs=1.0)

    def test_buckets_that_are_full_again_are_deleted(self):
        (a,) = self.processes(1)
        for number in range(99):
            a.start(Rate(1, 3600.0), key=("", str(number)))
        self.pass_time(3601.0)
        a.start(Rate(1, 3600.0), key=("", "last"))
        [[count]] = self.stores[0].use_connection(
            lambda database: database.run("SELECT count(*) FROM rates")
        )
        assert count == 1

    def test_where_the_store_does_not_answer_no_start_is_counted_and_what_was_seen_decides(
        self,
    ):
        (a,) = self.processes(1)
        self.stores[0].close()
        told = a.start(Rate(1, 3600.0))
        assert (told.code, told.retryable) == ("UNAVAILABLE", True)
        a.limits.note_failed("search", 1, self.clock())
        a.limits.look()
        assert a.rests
        self.clock.advance(REST_S + 1)
        assert not a.rests

    def test_two_processes_at_one_moment_share_a_rate(self):
        self.processes(1)
        words = [
            sys.executable,
            "-m",
            "handrail.testing.contracts.other_process",
            self.place(),
            "race_for_starts",
            "100",
            "4",
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        others = [
            self.stack.enter_context(subprocess.Popen(words, cwd=ROOT, **pipes))
            for _ in range(2)
        ]
        for each in others:
            assert each.stdout.readline() == "ready\n"
        for each in others:
            each.stdin.write("\n")
            each.stdin.flush()
        counts = [
            json.loads(each.communicate(timeout=PATIENCE_S)[0]) for each in others
        ]
        assert sum(counts) == 100
