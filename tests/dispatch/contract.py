"""What a user of workers relies on, whichever engine has the segments. A suite says where its store is.

What promises survival is tested by dying: the other worker is a process that is killed with SIGKILL, never asked to
end. What differs between the engines, such as a worker that is frozen, is in their own suites.
"""

import asyncio

import pytest

from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.port import HandBack, Segment, Timing
from handrail.errors import ConfigError, StoreUnavailable
from tests.dispatch.workers import (
    MORTAL,
    PROMPT,
    OtherProcess,
    Worker,
    count_segments,
    enqueue,
    open_store,
    until,
)
from tests.support.effort import examples

HOSTILE = {
    "nul": "a\0b",
    "long": "x" * 270,
    "emoji": "🧨" * 50,
    "surrogate": "\ud800",
    "quotes": "'; DROP TABLE segments; --",
    "markers": "100 % of ? and %s {}",
    "escape": "\x100000",
    "lines": "a\nb\r\n",
}


class WorkerContract:
    """The laws."""

    def place(self) -> str:
        """Return what `Runtime(store=...)` takes, for an empty store; the same one within a test."""
        raise NotImplementedError

    @pytest.fixture
    def stores(self):
        opened = []

        def open_one():
            opened.append(open_store(self.place()))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()

    @pytest.fixture
    def workers(self, stores):
        """Make a worker with a store of its own on the same rows."""

        def make(timing: Timing = PROMPT, **shape):
            return Worker(open_dispatcher(stores(), timing=timing), **shape)

        return make

    @pytest.fixture
    def store(self, stores, workers):
        """The store of a process that only enqueues; the tables are there."""
        workers()
        return stores()

    @pytest.fixture
    def others(self, tmp_path):
        """Start workers as processes of their own."""
        started = []

        def start(timing: Timing = MORTAL):
            started.append(OtherProcess(self.place(), tmp_path, timing))
            return started[-1]

        yield start
        for other in started:
            other.kill()

    # ------------------------------------------------------------------ once

    def test_each_segment_is_performed_once_when_nothing_fails(self, store, workers):
        names = [f"@s{number % 7}/r{number}" for number in range(60)]

        async def scenario():
            three = [workers(concurrency=4) for _ in range(3)]
            async with three[0].at_work(), three[1].at_work(), three[2].at_work():
                for name in names:
                    assert enqueue(store, name)
                await until(lambda: sum(len(each.finished) for each in three) >= 60)
            runs = [run for worker in three for run in worker.runs]
            assert sorted(runs) == sorted(names)

        asyncio.run(scenario())
        assert count_segments(store) == (0, 0)

    def test_a_segment_that_waits_or_runs_is_not_enqueued_again(self, store, workers):
        async def scenario():
            worker = workers()
            worker.gate.clear()
            assert enqueue(store, "r")
            assert not enqueue(store, "r")
            async with worker.at_work():
                await until(lambda: worker.running)
                assert not enqueue(store, "r")
                worker.gate.set()
            assert worker.runs == ["r"]
            # forgotten once it is done
            assert enqueue(store, "r")

        asyncio.run(scenario())

    def test_the_next_segment_of_a_run_waits_for_the_end_of_the_one_before(
        self, store, workers
    ):
        async def scenario():
            worker = workers(concurrency=2)
            worker.gate.clear()
            enqueue(store, "r", 1)
            async with worker.at_work():
                await until(lambda: worker.running)
                assert enqueue(store, "r", 2)
                enqueue(store, "other")
                await until(lambda: len(worker.started) == 2)
                assert worker.runs == ["r", "other"]
                worker.gate.set()
                await until(lambda: len(worker.finished) == 3)
            assert [each for each in worker.started if each.run_id == "r"] == [
                Segment("r", 1),
                Segment("r", 2),
            ]

        asyncio.run(scenario())
        assert count_segments(store) == (0, 0)

    def test_a_segment_is_there_with_the_transaction_in_which_it_was_enqueued(
        self, store, workers
    ):
        with pytest.raises(StoreUnavailable, match="on second thoughts"):
            enqueue(store, "undone", undo=True)
        assert count_segments(store) == (0, 0)
        enqueue(store, "kept")

        async def scenario():
            worker = workers()
            async with worker.at_work():
                await until(lambda: worker.finished)
            assert worker.runs == ["kept"]

        asyncio.run(scenario())

    # ------------------------------------------------------------------ death

    def test_what_a_killed_worker_had_goes_on_elsewhere(self, store, workers, others):
        async def scenario():
            killed = others()
            for run in "abc":
                enqueue(store, run)
            await until(lambda: len(killed.said()) == 3)
            killed.kill()
            worker = workers(MORTAL, concurrency=4)
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 3)
            assert sorted(worker.runs) == ["a", "b", "c"]
            assert worker.attempts == [2, 2, 2]
            assert worker.after_death == [True, True, True]

        asyncio.run(scenario())
        assert count_segments(store) == (0, 0)

    def test_a_worker_that_hands_a_segment_over_has_not_died_in_it(
        self, store, workers, others
    ):
        async def scenario():
            after_death = []

            async def perform(_, running):
                after_death.append(running.after_death)
                if len(after_death) < 3:
                    raise HandBack

            killed = others()
            enqueue(store, "r")
            await until(killed.said)
            killed.kill()
            worker = workers(MORTAL)
            worker.perform = perform
            async with worker.at_work():
                await until(lambda: len(after_death) == 3)
            assert after_death == [True, False, False]

        asyncio.run(scenario())

    # ------------------------------------------------------------------ fair shares

    def test_scopes_take_turns_however_many_segments_one_has_waiting(
        self, store, workers
    ):
        for number in range(examples(in_each_run=100, long=5_000)):
            enqueue(store, f"@many/{number}", priority=number % 2)

        async def scenario():
            worker = workers(concurrency=4)
            async with worker.at_work():
                await until(lambda: len(worker.started) >= 20)
                before = len(worker.started)
                for number in range(10):
                    enqueue(store, f"@few/{number}")
                await until(lambda: sum("few" in run for run in worker.runs) == 10)
            places = [at for at, run in enumerate(worker.runs) if "few" in run]
            # one of each lane at a time, the urgent ones of the other scope too; four are taken at once
            assert places[-1] - places[0] <= 3 * 10 + 4
            assert places[0] >= before - 4

        asyncio.run(scenario())

    def test_an_urgent_segment_waits_neither_behind_its_scope_nor_before_others(
        self, store, workers
    ):
        for number in range(3):
            enqueue(store, f"@a/{number}")
        for number in range(3):
            enqueue(store, f"@b/{number}")
        for number in range(2):
            enqueue(store, f"@b/urgent{number}", priority=9)

        async def scenario():
            worker = workers()
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 8)
            assert worker.runs == [
                "@a/0", "@b/0", "@b/urgent0", "@a/1", "@b/1", "@b/urgent1", "@a/2", "@b/2",
            ]  # fmt: skip

        asyncio.run(scenario())

    def test_a_scope_that_comes_back_has_saved_no_turns_up(self, store, workers):
        async def scenario():
            worker = workers()
            for number in range(20):
                enqueue(store, f"@a/{number}")
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 20)
                worker.gate.clear()
                enqueue(store, "@a/held")
                await until(lambda: worker.running)
                for number in range(3):
                    enqueue(store, f"@a/again{number}")
                for number in range(3):
                    enqueue(store, f"@b/{number}")
                worker.gate.set()
                await until(lambda: len(worker.finished) == 27)
            assert worker.runs[21:] == [
                "@a/again0", "@b/0", "@a/again1", "@b/1", "@a/again2", "@b/2",
            ]  # fmt: skip

        asyncio.run(scenario())

    def test_a_worker_takes_from_the_queues_that_it_names(self, store, workers):
        async def scenario():
            for queue in ("left", "mine", "also mine"):
                enqueue(store, f"in {queue}", queue=queue)
            worker = workers(queues=["mine", "also mine"])
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 2)
            assert worker.started == [
                Segment("in mine", queue="mine"),
                Segment("in also mine", queue="also mine"),
            ]

        asyncio.run(scenario())
        assert count_segments(store) == (1, 0)

    # ------------------------------------------------------------------ handing on

    def test_what_is_handed_back_or_fails_waits_again_and_holds_up_no_other(
        self, store, workers
    ):
        async def scenario():
            worker = workers()
            worker.refuses.add("refused")
            worker.fails.add("failed")
            for run in ("refused", "failed", "other"):
                enqueue(store, run)
            async with worker.at_work():
                await until(lambda: Segment("other") in worker.finished)
                worker.refuses.clear()
                await until(lambda: len(worker.finished) == 3)
            assert worker.runs.count("failed") == 2

        asyncio.run(scenario())

    def test_a_worker_that_stops_finishes_what_runs_and_takes_no_more(
        self, store, workers
    ):
        async def scenario():
            worker = workers()
            worker.gate.clear()
            for run in ("running", "waiting"):
                enqueue(store, run)
            async with worker.at_work():
                await until(lambda: worker.running)
                asyncio.get_running_loop().call_later(0.2, worker.gate.set)
            assert [each.run_id for each in worker.finished] == ["running"]

        asyncio.run(scenario())
        assert count_segments(store) == (1, 0)

    def test_a_worker_that_may_not_wait_hands_over_what_runs(self, store, workers):
        async def scenario():
            stopping, next_one = workers(), workers()
            stopping.gate.clear()
            enqueue(store, "r")
            async with stopping.at_work(grace_s=0.0):
                await until(lambda: stopping.running)
            assert stopping.finished == []
            async with next_one.at_work():
                await until(lambda: next_one.finished)
            assert (next_one.attempts, next_one.after_death) == ([2], [False])

        asyncio.run(scenario())

    def test_a_worker_stops_though_what_runs_does_not_end(
        self, store, workers, monkeypatch
    ):
        monkeypatch.setattr("handrail.dispatch.shift.CANCEL_S", 0.1)

        async def scenario():
            stopping, next_one = workers(), workers()
            began, ends = asyncio.Event(), asyncio.Event()

            async def perform(segment, running):
                began.set()
                while not ends.is_set():
                    try:
                        await ends.wait()
                    except asyncio.CancelledError:
                        pass

            stopping.perform = perform
            enqueue(store, "r")
            async with stopping.at_work(grace_s=0.0):
                await began.wait()
            async with next_one.at_work():
                await until(lambda: next_one.finished)
            ends.set()
            await asyncio.sleep(0)

        asyncio.run(scenario())

    # ------------------------------------------------------------------ what is asked wrongly

    @pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
    def test_any_text_is_a_name(self, store, workers, name):
        segments = [Segment(name, queue=name), Segment(f"{name}.", queue=f"{name}.")]

        async def scenario():
            for each in segments:
                assert enqueue(store, each.run_id, queue=each.queue)
                assert not enqueue(store, each.run_id, queue=each.queue)
            worker = workers(queues=[name, f"{name}."])
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 2)
            assert worker.started == segments

        asyncio.run(scenario())

    def test_a_dispatcher_works_once_at_a_time_and_at_least_at_one_segment(
        self, workers
    ):
        async def scenario():
            worker = workers()
            async with worker.at_work():
                await asyncio.sleep(0)
                with pytest.raises(ConfigError, match="works already"):
                    await worker.dispatcher.work(worker.perform, concurrency=1)
            with pytest.raises(ConfigError, match="at least one"):
                await worker.dispatcher.work(worker.perform, concurrency=0)

        asyncio.run(scenario())
