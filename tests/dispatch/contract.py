"""What every dispatcher must hold to. A suite inherits `DispatcherContract` and says how to open a dispatcher.

What promises survival is tested by dying: the other worker is a process that is killed with SIGKILL or stopped with
SIGSTOP, never asked to end.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from handrail.dispatch import table_dispatcher
from handrail.dispatch.port import HandBack, Segment, Timing
from handrail.errors import ConfigError, HandrailError, StoreUnavailable
from tests.dispatch.workers import (
    MORTAL,
    PATIENCE_S,
    PROMPT,
    OtherProcess,
    Worker,
    open_store,
    until,
)
from tests.support.effort import examples, volume

HOSTILE = {
    "nul": "a\0b",
    "long": "x" * 10_000,
    "emoji": "🧨" * 50,
    "surrogate": "\ud800",
    "quotes": "'; DROP TABLE segments; --",
    "markers": "100 % of ? and %s {}",
    "escape": "\x100000",
    "lines": "a\nb\r\n",
}


class DispatcherContract:
    """The laws."""

    kind = ""

    def place(self) -> str:
        """Return what `Runtime(store=...)` takes, for an empty store; the same one within a test."""
        raise NotImplementedError

    def make(self, store, timing: Timing = PROMPT):
        """Return a dispatcher for a store."""
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
    def dispatchers(self, stores):
        """Open a dispatcher with a store of its own on the same rows."""
        opened = []

        def open_one(timing: Timing = PROMPT):
            opened.append(self.make(stores(), timing))
            return opened[-1]

        yield open_one
        for dispatcher in opened:
            dispatcher.close()

    @pytest.fixture
    def dispatcher(self, dispatchers):
        return dispatchers()

    @pytest.fixture
    def others(self, tmp_path):
        """Start workers as processes of their own."""
        started = []

        def start(timing: Timing = MORTAL):
            started.append(OtherProcess(self.place(), self.kind, tmp_path, timing))
            return started[-1]

        yield start
        for other in started:
            other.kill()

    # ------------------------------------------------------------------ once

    def test_each_segment_is_performed_once_when_nothing_fails(self, dispatchers):
        segments = [
            Segment(f"r{number}", scope=f"s{number % 7}") for number in range(60)
        ]

        async def scenario():
            workers = [Worker(dispatchers(), concurrency=4) for _ in range(3)]
            enqueuing = dispatchers()
            async with workers[0].at_work(), workers[1].at_work(), workers[2].at_work():
                for segment in segments:
                    enqueuing.enqueue(segment)
                await until(lambda: sum(len(w.finished) for w in workers) >= 60)
            started = [each for worker in workers for each in worker.started]
            assert sorted(started, key=repr) == sorted(segments, key=repr)
            stats = enqueuing.stats().result(PATIENCE_S)
            assert (stats.waiting, stats.running, stats.workers) == (0, 0, 0)

        asyncio.run(scenario())

    def test_a_segment_that_waits_or_runs_is_not_enqueued_again(self, dispatcher):
        async def scenario():
            worker = Worker(dispatcher)
            worker.gate.clear()
            assert dispatcher.enqueue(Segment("r")).result(PATIENCE_S)
            assert not dispatcher.enqueue(Segment("r")).result(PATIENCE_S)
            async with worker.at_work():
                await until(lambda: worker.running)
                assert not dispatcher.enqueue(Segment("r")).result(PATIENCE_S)
                worker.gate.set()
            assert worker.runs == ["r"]
            # forgotten once it is done
            assert dispatcher.enqueue(Segment("r")).result(PATIENCE_S)

        asyncio.run(scenario())

    def test_of_many_who_enqueue_a_segment_at_once_one_does(self, dispatchers):
        each_by = [dispatchers() for _ in range(4)]
        with ThreadPoolExecutor(4) as threads:
            for number in range(5):
                segment = Segment("r", number + 1)
                answers = threads.map(
                    lambda one, segment=segment: one.enqueue(segment).result(
                        PATIENCE_S
                    ),
                    each_by,
                )
                assert sorted(answers) == [False, False, False, True]

    def test_the_segments_of_a_run_are_performed_in_order_and_never_at_once(
        self, dispatchers
    ):
        async def scenario():
            workers = [Worker(dispatchers(), concurrency=2) for _ in range(2)]
            for number in (3, 1, 2):
                workers[0].dispatcher.enqueue(Segment("r", number))
            order = []

            async def perform(segment, running):
                order.append(("begin", segment.number))
                await asyncio.sleep(0.02)
                order.append(("end", segment.number))

            for worker in workers:
                worker.perform = perform
            async with workers[0].at_work(), workers[1].at_work():
                await until(lambda: len(order) == 6)
            expected = [
                (what, number) for number in (1, 2, 3) for what in ("begin", "end")
            ]
            assert order == expected

        asyncio.run(scenario())

    # ------------------------------------------------------------------ our transaction

    def test_a_segment_is_there_with_the_transaction_in_which_it_was_enqueued(
        self, dispatcher, stores
    ):
        store = stores()
        enqueued = []

        def commit(database, now):
            enqueued.append(dispatcher.enqueue(Segment("kept"), connection=database))
            enqueued.append(dispatcher.enqueue(Segment("kept"), connection=database))

        def roll_back(database, now):
            enqueued.append(dispatcher.enqueue(Segment("undone"), connection=database))
            raise HandrailError("on second thoughts")

        store._submit(commit).result(PATIENCE_S)
        with pytest.raises(StoreUnavailable, match="on second thoughts"):
            store._submit(roll_back).result(PATIENCE_S)
        assert enqueued == [True, False, True]

        async def scenario():
            worker = Worker(dispatcher)
            async with worker.at_work():
                await until(lambda: worker.finished)
            assert worker.runs == ["kept"]

        asyncio.run(scenario())
        assert dispatcher.stats().result(PATIENCE_S).waiting == 0

    # ------------------------------------------------------------------ death

    def test_what_a_killed_worker_had_goes_on_elsewhere(self, dispatchers, others):
        async def scenario():
            dispatcher = dispatchers(MORTAL)
            killed = others()
            for run in "abc":
                dispatcher.enqueue(Segment(run))
            await until(lambda: len(killed.said()) == 3)
            killed.kill()
            worker = Worker(dispatcher, concurrency=4)
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 3)
            assert sorted(worker.runs) == ["a", "b", "c"]
            assert worker.attempts == [2, 2, 2]
            assert dispatcher.stats().result(PATIENCE_S).workers == 0

        asyncio.run(scenario())

    @volume
    def test_by_default_that_takes_twenty_five_seconds_at_most(
        self, dispatchers, others
    ):
        async def scenario():
            dispatcher = dispatchers(Timing())
            killed = others(Timing())
            worker = Worker(dispatcher)
            dispatcher.enqueue(Segment("r"))
            await until(killed.said)
            async with worker.at_work():
                killed.kill()
                died = time.monotonic()
                await until(lambda: worker.finished)
                # a beat may have been sent just before, and the loop polls
                assert 14 < time.monotonic() - died < 26

        asyncio.run(scenario())

    def test_a_worker_that_was_frozen_does_not_touch_what_others_have_taken_over(
        self, dispatchers, others
    ):
        async def scenario():
            dispatcher = dispatchers(MORTAL)
            frozen = others()
            dispatcher.enqueue(Segment("r"))
            await until(lambda: frozen.said() == ["began r 1"])
            frozen.freeze()
            stopped = time.monotonic()
            worker = Worker(dispatcher)
            worker.gate.clear()
            async with worker.at_work():
                await until(lambda: worker.running)
                await until(lambda: time.monotonic() - stopped > 2 * MORTAL.dead_s)
                frozen.let_go()
                frozen.thaw()
                # it ends what it did, learns that it lost it, and finishes nothing
                await until(lambda: "lost r" in frozen.said())
                await until(lambda: dispatcher.stats().result(PATIENCE_S).workers == 2)
                assert dispatcher.stats().result(PATIENCE_S).running == 1
                assert not worker.running["r"].lost.is_set()
                worker.gate.set()
                await until(lambda: worker.finished)
            assert worker.attempts == [2]
            assert frozen.said() == ["began r 1", "ended r", "lost r"]
            # and works again
            frozen.folder.joinpath("go").unlink()
            dispatcher.enqueue(Segment("next"))
            await until(lambda: "began next 1" in frozen.said())

        asyncio.run(scenario())

    def test_a_frozen_worker_that_takes_its_own_segment_again_is_two_owners(
        self, dispatcher
    ):
        """The first attempt must not finish the second, though both are of one worker."""

        async def scenario():
            ends = [asyncio.Event(), asyncio.Event()]
            running = []

            async def perform(_, each):
                running.append(each)
                await ends[each.attempt - 1].wait()

            dispatcher.enqueue(Segment("r"))
            shift = asyncio.ensure_future(dispatcher.work(perform, concurrency=2))
            await until(lambda: running)
            self.take_away(dispatcher)
            await until(lambda: len(running) == 2)
            assert running[0].lost.is_set()
            ends[0].set()
            await asyncio.sleep(0.3)
            stats = await asyncio.wrap_future(dispatcher.stats())
            assert stats.running == 1
            assert not running[1].lost.is_set()
            ends[1].set()
            await dispatcher.stop(grace_s=PATIENCE_S)
            await shift
            assert dispatcher.stats().result(PATIENCE_S).running == 0

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("beats", "judges"),
        [
            # by itself it gives everybody 80 s to say that they live
            ([], False),
            # one that lives has reached the database for as long
            ([(-100, -1)], True),
            ([(-70, -1)], False),
            # so have two that have died since, one after the other
            ([(-100, -45), (-50, -20)], True),
            # a gap between them in which the database may have been gone
            ([(-130, -90), (-40, -5)], False),
            # nobody has reached it lately
            ([(-300, -50)], False),
        ],
        ids=["nobody", "one lives", "not for long", "one by one", "gap", "long ago"],
    )
    def test_a_worker_that_has_just_started_judges_by_the_beats_that_others_left(
        self, dispatchers, beats, judges
    ):
        """Two beats are 80 s here, and the longest gap is 40 s."""

        def leave_behind(database, now):
            rows = dispatcher._rows
            rows.beat(database, now - 200, "dead", since=now - 200, gap_s=0.0)
            assert rows.claim(
                database, worker="dead", queue="default", most=1, aside=()
            )
            for number, (since, at) in enumerate(beats):
                for moment in (since, at):
                    rows.beat(
                        database,
                        now + moment,
                        f"w{number}",
                        since=now + since,
                        gap_s=40.0,
                    )

        async def scenario():
            dispatcher.enqueue(Segment("r")).result(PATIENCE_S)
            dispatcher.transact(leave_behind).result(PATIENCE_S)
            worker = Worker(dispatcher)
            async with worker.at_work():
                dispatcher.enqueue(Segment("later")).result(PATIENCE_S)
                await until(lambda: "later" in worker.runs)
            assert ("r" in worker.runs) == judges

        dispatcher = dispatchers(Timing(poll_s=0.05, beat_s=40, dead_s=150, sweep_s=40))
        asyncio.run(scenario())

    def test_a_dead_worker_is_found_when_its_time_is_over_and_not_at_the_next_sweep(
        self, dispatchers, others
    ):
        async def scenario():
            timing = Timing(poll_s=0.05, beat_s=0.25, dead_s=2.0, sweep_s=1e6)
            worker = Worker(dispatchers(timing))
            killed = others()
            worker.dispatcher.enqueue(Segment("r"))
            await until(killed.said)
            async with worker.at_work():
                await until(
                    lambda: worker.dispatcher.stats().result(PATIENCE_S).workers == 2
                )
                killed.kill()
                await until(lambda: worker.finished)

        asyncio.run(scenario())

    def test_a_worker_is_sure_of_a_segment_until_it_may_count_as_dead_and_no_longer(
        self, dispatchers, monkeypatch
    ):
        """The round takes 15 s from its beat to its claim, and a worker counts as dead after 20."""
        clock = SimpleNamespace(now=1000.0)
        monkeypatch.setattr(table_dispatcher, "monotonic", lambda: clock.now)
        sure_until = []

        async def perform(_, running):
            sure_until.append(running.sure_until)

        async def scenario():
            dispatcher = dispatchers(Timing())
            look = dispatcher.read

            def look_slowly(job):
                clock.now = 1015.0
                return look(job)

            dispatcher.read = look_slowly
            dispatcher.enqueue(Segment("r"))
            shift = asyncio.ensure_future(dispatcher.work(perform, concurrency=1))
            await until(lambda: sure_until)
            await dispatcher.stop(grace_s=PATIENCE_S)
            await shift

        asyncio.run(scenario())
        assert sure_until == [1020.0]

    def test_a_worker_performs_though_it_counts_as_dead_after_two_beats(
        self, dispatchers
    ):
        async def scenario():
            worker = Worker(dispatchers(Timing(beat_s=60, dead_s=120)))
            worker.dispatcher.enqueue(Segment("r"))
            async with worker.at_work():
                await until(lambda: worker.finished)
            assert worker.attempts == [1]

        asyncio.run(scenario())

    @pytest.mark.parametrize("set_by_s", [1000.0, -1000.0])
    def test_a_clock_that_is_set_makes_nobody_dead_and_the_dead_are_looked_for_again(
        self, dispatchers, set_by_s
    ):
        async def scenario():
            ahead_s = 0.0
            found_dead = []

            def under_a_set_clock(dispatcher):
                transact = dispatcher.transact
                requeue_dead = dispatcher._rows.requeue_dead

                def requeue(database, now, dead_s):
                    found_dead.append((ahead_s, requeue_dead(database, now, dead_s)))
                    return found_dead[-1][1]

                dispatcher._rows.requeue_dead = requeue
                dispatcher.transact = lambda do: transact(
                    lambda database, now: do(database, now + ahead_s)
                )
                return Worker(dispatcher)

            timing = Timing(poll_s=0.05, beat_s=0.5, dead_s=10.0, sweep_s=0.1)
            workers = [under_a_set_clock(dispatchers(timing)) for _ in range(2)]
            for worker in workers:
                worker.gate.clear()
                worker.dispatcher.enqueue(Segment(f"r{id(worker)}"))
            async with workers[0].at_work(), workers[1].at_work():
                await until(lambda: all(worker.running for worker in workers))
                await until(lambda: found_dead)
                ahead_s = set_by_s
                await until(lambda: found_dead[-1][0] == ahead_s)
                for worker in workers:
                    worker.gate.set()
                await until(lambda: all(worker.finished for worker in workers))
            assert not any(dead for _, dead in found_dead)
            assert [worker.attempts for worker in workers] == [[1], [1]]

        asyncio.run(scenario())

    def test_a_segment_says_whether_its_worker_was_found_dead_or_handed_it_over(
        self, dispatchers
    ):
        async def scenario():
            after_death = []

            async def perform(_, running):
                after_death.append(running.after_death)
                if running.attempt in (1, 2):
                    raise HandBack
                if running.attempt == 3:
                    await running.lost.wait()

            dispatcher = dispatchers()
            dispatcher.enqueue(Segment("r"))
            shift = asyncio.ensure_future(dispatcher.work(perform, concurrency=2))
            await until(lambda: len(after_death) == 3)
            self.take_away(dispatcher)
            await until(lambda: len(after_death) == 4)
            await dispatcher.stop(grace_s=PATIENCE_S)
            await shift
            assert after_death == [False, False, False, True]

        asyncio.run(scenario())

    def take_away(self, dispatcher) -> None:
        """Let every segment wait that is performed, as if its worker had been found dead."""
        requeued = dispatcher.transact(
            lambda database, now: dispatcher._rows.requeue_dead(database, now, -60.0)
        ).result(PATIENCE_S)
        assert [each.run_id for each in requeued] == ["r"]

    def test_live_workers_keep_what_they_have(self, dispatchers):
        async def scenario():
            worker = Worker(dispatchers(MORTAL), concurrency=3)
            worker.gate.clear()
            other = dispatchers(MORTAL)
            for run in "abc":
                other.enqueue(Segment(run))
            async with worker.at_work():
                await until(lambda: len(worker.running) == 3)
                assert other.requeue_dead().result(PATIENCE_S) == 0
                worker.gate.set()

        asyncio.run(scenario())

    # ------------------------------------------------------------------ cancelling

    def test_whoever_performs_a_cancelled_segment_learns_it(self, dispatchers, others):
        async def scenario():
            dispatcher = dispatchers()
            worker = Worker(dispatchers())
            worker.gate.clear()
            dispatcher.enqueue(Segment("here"))
            async with worker.at_work():
                await until(lambda: worker.running)
                other = others()
                dispatcher.enqueue(Segment("there"))
                await until(lambda: other.said() == ["began there 1"])
                for run in ("here", "there"):
                    assert dispatcher.cancel(run).result(PATIENCE_S)
                running = worker.running["here"]
                await asyncio.wait_for(running.cancelled.wait(), PATIENCE_S)
                await until(lambda: "cancelled there" in other.said())
                worker.gate.set()
            assert not running.lost.is_set()

        asyncio.run(scenario())

    def test_a_segment_that_waits_and_is_cancelled_is_never_performed(self, dispatcher):
        async def scenario():
            dispatcher.enqueue(Segment("cancelled"))
            dispatcher.enqueue(Segment("cancelled", 2))
            dispatcher.enqueue(Segment("other"))
            assert dispatcher.cancel("cancelled").result(PATIENCE_S)
            assert not dispatcher.cancel("cancelled").result(PATIENCE_S)
            worker = Worker(dispatcher)
            async with worker.at_work():
                await until(lambda: worker.finished)
            assert worker.runs == ["other"]

        asyncio.run(scenario())

    def test_a_cancelled_segment_whose_worker_dies_stays_cancelled(self, dispatcher):
        async def scenario():
            seen = []
            ends = asyncio.Event()

            async def perform(_, running):
                seen.append((running.attempt, running.cancelled.is_set()))
                if running.attempt == 1:
                    await ends.wait()

            dispatcher.enqueue(Segment("r"))
            shift = asyncio.ensure_future(dispatcher.work(perform, concurrency=2))
            await until(lambda: seen)
            dispatcher.cancel("r").result(PATIENCE_S)
            self.take_away(dispatcher)
            await until(lambda: len(seen) == 2)
            ends.set()
            await dispatcher.stop(grace_s=PATIENCE_S)
            await shift
            assert seen == [(1, False), (2, True)]

        asyncio.run(scenario())

    # ------------------------------------------------------------------ fair shares

    def test_scopes_take_turns_however_many_segments_one_has_waiting(
        self, dispatcher, stores
    ):
        many = examples(in_each_run=200, long=10_000)

        def enqueue_many(database, now):
            for number in range(many):
                segment = Segment(f"many:{number}", scope="many", priority=number % 3)
                dispatcher.enqueue(segment, connection=database)

        stores()._submit(enqueue_many).result(PATIENCE_S)

        async def scenario():
            worker = Worker(dispatcher, concurrency=4)
            async with worker.at_work():
                await until(lambda: len(worker.started) >= 20)
                before = len(worker.started)
                for number in range(10):
                    dispatcher.enqueue(Segment(f"few:{number}", scope="few"))
                await until(lambda: sum(run[0] == "f" for run in worker.runs) == 10)
                last = max(
                    place for place, run in enumerate(worker.runs) if run[0] == "f"
                )
                first = min(
                    place for place, run in enumerate(worker.runs) if run[0] == "f"
                )
                # every other one, from the first on; four are claimed at once
                assert last - first <= 2 * 10 + 4
                assert first >= before - 4

        asyncio.run(scenario())

    def test_a_high_priority_goes_before_the_scope_s_own_only(self, dispatcher):
        async def scenario():
            for number in range(3):
                dispatcher.enqueue(Segment(f"a{number}", scope="a"))
            for number in range(3):
                dispatcher.enqueue(Segment(f"b{number}", scope="b"))
            dispatcher.enqueue(Segment("urgent", scope="b", priority=9))
            dispatcher.enqueue(Segment("late", scope="b", priority=-1))
            dispatcher.enqueue(Segment("soon", scope="b", priority=5)).result(
                PATIENCE_S
            )
            worker = Worker(dispatcher)
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 9)
            assert worker.runs == [
                "a0", "urgent", "a1", "soon", "a2", "b0", "b1", "b2", "late",
            ]  # fmt: skip

        asyncio.run(scenario())

    def test_a_scope_that_comes_back_has_saved_no_turns_up(self, dispatcher):
        async def scenario():
            worker = Worker(dispatcher)
            for number in range(20):
                dispatcher.enqueue(Segment(f"a{number}", scope="a"))
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 20)
                worker.gate.clear()
                dispatcher.enqueue(Segment("held", scope="a"))
                await until(lambda: worker.running)
                for number in range(3):
                    dispatcher.enqueue(Segment(f"a2{number}", scope="a"))
                for number in range(3):
                    dispatcher.enqueue(Segment(f"b{number}", scope="b"))
                await asyncio.wrap_future(dispatcher.stats())
                worker.gate.set()
                await until(lambda: len(worker.finished) == 27)
            assert worker.runs[21:] == ["a20", "b0", "a21", "b1", "a22", "b2"]

        asyncio.run(scenario())

    def test_a_worker_takes_from_the_queues_that_it_names(self, dispatcher):
        async def scenario():
            for queue in ("left", "mine", "also mine"):
                dispatcher.enqueue(Segment(f"in {queue}", queue=queue))
            worker = Worker(dispatcher, queues=["mine", "also mine"])
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 2)
            assert sorted(worker.runs) == ["in also mine", "in mine"]
            queues = dispatcher.stats().result(PATIENCE_S).queues
            assert [*queues] == ["left"]
            assert queues["left"].waiting == 1
            assert queues["left"].oldest_wait_s >= 0

        asyncio.run(scenario())

    # ------------------------------------------------------------------ handing on

    def test_a_segment_that_is_handed_back_goes_to_another_worker(self, dispatchers):
        async def scenario():
            unable = Worker(dispatchers(PROMPT))
            unable.refuses.add("r")
            able = Worker(dispatchers())
            async with unable.at_work():
                unable.dispatcher.enqueue(Segment("r"))
                await until(lambda: unable.runs)
                # others go on meanwhile
                unable.dispatcher.enqueue(Segment("other"))
                await until(lambda: unable.finished)
                async with able.at_work():
                    await until(lambda: able.finished)
            assert able.runs == ["r"]

        asyncio.run(scenario())

    def test_a_segment_that_raised_is_performed_again(self, dispatcher):
        async def scenario():
            worker = Worker(dispatcher)
            worker.fails.add("r")
            async with worker.at_work():
                dispatcher.enqueue(Segment("r"))
                await until(lambda: worker.finished)
            assert worker.attempts == [1, 2]

        asyncio.run(scenario())

    def test_a_worker_that_stops_finishes_what_runs_and_takes_no_more(self, dispatcher):
        async def scenario():
            worker = Worker(dispatcher)
            worker.gate.clear()
            for run in ("running", "waiting"):
                dispatcher.enqueue(Segment(run)).result(PATIENCE_S)
            async with worker.at_work():
                await until(lambda: worker.running)
                asyncio.get_running_loop().call_later(0.2, worker.gate.set)
            assert [each.run_id for each in worker.finished] == ["running"]

        asyncio.run(scenario())
        stats = dispatcher.stats().result(PATIENCE_S)
        assert (stats.waiting, stats.running, stats.workers) == (1, 0, 0)

    def test_a_worker_that_may_not_wait_hands_over_what_runs(self, dispatchers):
        async def scenario():
            stopping, next_one = Worker(dispatchers()), Worker(dispatchers())
            stopping.gate.clear()
            stopping.dispatcher.enqueue(Segment("r"))
            async with stopping.at_work(grace_s=0.0):
                await until(lambda: stopping.running)
            assert stopping.finished == []
            async with next_one.at_work():
                await until(lambda: next_one.finished)
            assert next_one.attempts == [2]

        asyncio.run(scenario())

    def test_a_worker_stops_though_what_runs_does_not_end(
        self, dispatchers, monkeypatch
    ):
        monkeypatch.setattr("handrail.dispatch.table_dispatcher._CANCEL_S", 0.1)

        async def scenario():
            stopping, next_one = dispatchers(), Worker(dispatchers())
            began, ends = asyncio.Event(), asyncio.Event()

            async def perform(segment, running):
                began.set()
                while not ends.is_set():
                    try:
                        await ends.wait()
                    except asyncio.CancelledError:
                        pass

            stopping.enqueue(Segment("r"))
            shift = asyncio.ensure_future(stopping.work(perform, concurrency=1))
            await began.wait()
            await stopping.stop(grace_s=0.0)
            await shift
            async with next_one.at_work():
                await until(lambda: next_one.finished)
            ends.set()
            await asyncio.sleep(0)

        asyncio.run(scenario())

    # ------------------------------------------------------------------ what is asked wrongly

    @pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
    def test_any_text_is_a_name(self, dispatcher, name):
        segments = [
            Segment(name, scope=name, queue=name),
            Segment(f"{name}.", scope=f"{name}.", queue=f"{name}."),
        ]

        async def scenario():
            for segment in segments:
                assert dispatcher.enqueue(segment).result(PATIENCE_S)
                assert not dispatcher.enqueue(segment).result(PATIENCE_S)
            worker = Worker(dispatcher, queues=[name, f"{name}."])
            async with worker.at_work():
                await until(lambda: len(worker.finished) == 2)
            assert sorted(worker.started, key=repr) == sorted(segments, key=repr)
            dispatcher.enqueue(segments[0])
            assert dispatcher.cancel(name).result(PATIENCE_S)
            assert not dispatcher.cancel(name).result(PATIENCE_S)

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "segment",
        [
            Segment("r", 0),
            Segment("r", -1),
            Segment("r", 2**70),
            Segment("r", priority=2**40),
            Segment("r", priority=-(2**70)),
        ],
        ids=repr,
    )
    def test_numbers_out_of_range_are_refused(self, dispatcher, segment):
        with pytest.raises(ConfigError, match=r"between -?[\d,]+ and 2,147,483,647"):
            dispatcher.enqueue(segment)

    @pytest.mark.parametrize(
        "segment",
        [Segment("r", 1.5), Segment("r", priority=float("nan")), Segment("r", True)],
        ids=repr,
    )
    def test_numbers_that_are_not_whole_are_refused(self, dispatcher, segment):
        with pytest.raises(ConfigError, match="whole numbers"):
            dispatcher.enqueue(segment)

    def test_a_dispatcher_works_once_at_a_time_and_at_least_at_one_segment(
        self, dispatcher
    ):
        async def scenario():
            worker = Worker(dispatcher)
            async with worker.at_work():
                await asyncio.sleep(0)
                with pytest.raises(ConfigError, match="works already"):
                    await dispatcher.work(worker.perform, concurrency=1)
            with pytest.raises(ConfigError, match="at least one"):
                await dispatcher.work(worker.perform, concurrency=0)

        asyncio.run(scenario())

    def test_a_closed_dispatcher_says_so(self, dispatchers):
        dispatcher = dispatchers()
        dispatcher.close()
        with pytest.raises(StoreUnavailable, match="is closed"):
            dispatcher.enqueue(Segment("r"))

    def test_a_worker_that_does_not_reach_its_store_waits_before_it_tries_again(
        self, dispatchers
    ):
        async def scenario():
            dispatcher = dispatchers(Timing(poll_s=10 * PATIENCE_S))
            transact = dispatcher.transact
            asked = []

            def count(operation):
                asked.append(operation)
                return transact(operation)

            dispatcher.transact = count
            dispatcher.close()
            worker = Worker(dispatcher)
            shift = asyncio.ensure_future(
                dispatcher.work(worker.perform, concurrency=1)
            )
            for _ in range(200):
                await asyncio.sleep(0)
            assert len(asked) == 1
            await dispatcher.stop(grace_s=0)
            await shift

        asyncio.run(scenario())

    def test_a_time_of_death_too_short_for_the_heartbeat_is_refused(self, stores):
        with pytest.raises(ConfigError, match="at least twice beat_s"):
            self.make(stores(), Timing(beat_s=5, dead_s=6))
