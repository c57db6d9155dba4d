"""Segments as jobs of procrastinate: workers that die, freeze and lose their server."""

import asyncio
import inspect
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

psycopg = pytest.importorskip(
    "psycopg", reason="no psycopg: install handrail[postgres]"
)
pytest.importorskip("procrastinate", reason="install handrail[workers]")

from procrastinate.manager import JobManager  # noqa: E402

from handrail.dispatch import job_tables, submitting  # noqa: E402
from handrail.dispatch.choice import open_dispatcher  # noqa: E402
from handrail.dispatch.job_tables import make_tables  # noqa: E402
from handrail.dispatch.port import Timing  # noqa: E402
from handrail.dispatch.procrastinate import OwnedJobs, app_for  # noqa: E402
from handrail.errors import ConfigError, describe_install  # noqa: E402
from handrail.futures import result_now  # noqa: E402
from handrail.records import RunRecord, Submission  # noqa: E402
from handrail.stores.postgres import PostgresStore  # noqa: E402
from tests.dispatch.contract import WorkerContract  # noqa: E402
from tests.dispatch.on_postgres import dsn, emptied, end_connections  # noqa: E402, F401
from tests.dispatch.workers import (  # noqa: E402
    MORTAL,
    PATIENCE_S,
    count_segments,
    enqueue,
    until,
)
from tests.stores.servers import started  # noqa: E402, F401
from tests.support.effort import examples, volume  # noqa: E402

JOBS = "handrail_jobs.procrastinate_jobs"


class TestProcrastinate(WorkerContract):
    @pytest.fixture(autouse=True)
    def _server(self, dsn):
        self.dsn = dsn
        emptied(dsn)

    def place(self):
        return f"postgres:{self.dsn.removeprefix('postgresql:')}"

    def ask(self, statement):
        with psycopg.connect(self.dsn) as admin:
            return admin.execute(statement).fetchall()

    # ------------------------------------------------------------------ death

    @volume
    def test_by_default_a_take_over_takes_twenty_six_seconds_at_most(
        self, store, workers, others
    ):
        async def scenario():
            killed = others(Timing())
            worker = workers(Timing())
            enqueue(store, "r")
            await until(killed.said)
            async with worker.at_work():
                killed.kill()
                died = time.monotonic()
                await until(lambda: worker.finished)
                # a beat may have been sent just before; then a sweep and a poll
                assert 14 < time.monotonic() - died < 26

        asyncio.run(scenario())

    def test_a_worker_that_was_frozen_does_not_touch_what_others_have_taken_over(
        self, store, workers, others
    ):
        async def scenario():
            frozen = others()
            enqueue(store, "r")
            await until(lambda: frozen.said() == ["began r 1"])
            frozen.freeze()
            worker = workers(MORTAL)
            worker.gate.clear()
            async with worker.at_work():
                await until(lambda: worker.running)
                frozen.thaw()
                # it learns that it has lost the segment, ends what it did, and finishes nothing
                await until(lambda: "lost r" in frozen.said())
                await asyncio.sleep(0.5)
                assert count_segments(store) == (0, 1)
                worker.gate.set()
                await until(lambda: worker.finished)
            assert (worker.attempts, worker.after_death) == ([2], [True])
            # and works again
            enqueue(store, "next")
            await until(lambda: "began next 1" in frozen.said())

        asyncio.run(scenario())

    def test_the_first_attempt_of_a_worker_finishes_nothing_of_its_second(
        self, store, workers
    ):
        async def scenario():
            ends = [asyncio.Event(), asyncio.Event()]
            running = []

            async def perform(_, each):
                running.append(each)
                await ends[each.attempt - 1].wait()

            worker = workers(MORTAL, concurrency=2)
            worker.perform = perform
            enqueue(store, "r")
            async with worker.at_work():
                await until(lambda: running)
                assert await running[0].is_ours()
                self.let_wait_again()
                await until(lambda: len(running) == 2)
                assert not await running[0].is_ours()
                await until(running[0].lost.is_set)
                ends[0].set()
                await asyncio.sleep(0.3)
                assert count_segments(store) == (0, 1)
                assert not running[1].lost.is_set()
                ends[1].set()

        asyncio.run(scenario())
        assert count_segments(store) == (0, 0)

    def let_wait_again(self):
        """Let every segment wait that is performed, as if its worker had been found dead."""
        self.ask(
            f"SELECT handrail_jobs.procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL) FROM {JOBS}"
        )

    def test_a_fetch_whose_answer_is_lost_is_made_again(
        self, store, workers, monkeypatch
    ):
        async def scenario():
            async def lose_answer(manager, queues, worker_id):
                monkeypatch.undo()
                assert await JobManager.fetch_job(manager, queues, worker_id)

            worker = workers(MORTAL)
            enqueue(store, "r")
            monkeypatch.setattr(OwnedJobs, "fetch_job", lose_answer)
            async with worker.at_work():
                await until(lambda: worker.finished)
            assert worker.attempts == [2]

        asyncio.run(scenario())

    def test_a_worker_that_stops_slowly_beats_on(self, store, workers):
        """procrastinate's own heartbeat ends before the last jobs do, and others would take them over."""
        beat = "SELECT max(last_heartbeat) FROM handrail_jobs.procrastinate_workers"

        async def scenario():
            worker = workers(MORTAL)
            worker.gate.clear()
            enqueue(store, "r")
            async with worker.at_work():
                await until(lambda: worker.running)
                stopping = asyncio.create_task(
                    worker.dispatcher.stop(grace_s=PATIENCE_S)
                )
                for _ in range(3):
                    before = self.ask(beat)
                    await until(lambda before=before: self.ask(beat) > before)
                worker.gate.set()
                await stopping
            assert worker.attempts == [1]

        asyncio.run(scenario())

    def test_a_worker_survives_the_loss_of_all_its_connections(self, store, workers):
        async def scenario():
            worker = workers()
            worker.gate.clear()
            enqueue(store, "during")
            async with worker.at_work():
                await until(lambda: worker.running)
                assert end_connections(self.dsn) >= 3
                worker.gate.set()
                await until(lambda: worker.finished)
                await until(lambda: end_connections(self.dsn) >= 1)
                assert enqueue(store, "after")
                await until(lambda: len(worker.finished) == 2)
            assert worker.runs == ["during", "after"]
            assert worker.attempts == [1, 1]

        asyncio.run(scenario())
        assert count_segments(store) == (0, 0)

    def test_a_worker_is_woken_by_the_enqueuing_of_another_process(
        self, store, workers
    ):
        """With so slow a poll only the notification brings it in time."""

        async def scenario():
            slow = Timing(poll_s=10 * PATIENCE_S, beat_s=PATIENCE_S, dead_s=1e6)
            worker = workers(slow)
            listens = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            async with worker.at_work():
                await until(lambda: self.ask(listens))
                enqueue(store, "r")
                await until(lambda: worker.finished)

        asyncio.run(scenario())

    def test_a_time_of_death_too_short_for_the_heartbeat_is_refused(self, stores):
        with pytest.raises(ConfigError, match="at least twice beat_s"):
            open_dispatcher(stores(), timing=Timing(beat_s=5, dead_s=6))

    # ------------------------------------------------------------------ beside others

    def test_a_job_has_its_run_as_lock_and_no_time_and_leaves_no_row(
        self, store, workers
    ):
        async def scenario():
            enqueue(store, "r", 3)
            job = f"SELECT lock, scheduled_at, task_name FROM {JOBS}"
            assert self.ask(job) == [("r", None, "handrail.segment")]
            worker = workers()
            async with worker.at_work():
                await until(lambda: worker.finished)

        asyncio.run(scenario())
        for table in ("jobs", "events", "workers"):
            assert self.ask(f"SELECT * FROM handrail_jobs.procrastinate_{table}") == []

    def test_the_shell_of_procrastinate_lists_segments_and_cancels_them(
        self, store, stores, workers
    ):
        async def scenario():
            app = app_for(stores())
            worker = workers()
            worker.gate.clear()
            async with app.open_async(), worker.at_work():
                enqueue(store, "running")
                await until(lambda: worker.running)
                enqueue(store, "waiting")
                jobs = {
                    job.lock: job for job in await app.job_manager.list_jobs_async()
                }
                assert jobs["running"].status == "doing"
                assert jobs["waiting"].status == "todo"
                for job in jobs.values():
                    await app.job_manager.cancel_job_by_id_async(job.id, abort=True)
                await until(worker.running["running"].cancelled.is_set)
                worker.gate.set()
            assert worker.runs == ["running"]
            assert len(worker.finished) == 1

        asyncio.run(scenario())

    def test_an_application_s_own_procrastinate_is_not_touched(self, store, workers):
        """Two apps in one process, in two schemas of one database."""
        import procrastinate as theirs

        app = theirs.App(connector=theirs.PsycopgConnector(conninfo=self.dsn))
        done = []

        @app.task(name="handrail.segment")  # even of the same name
        async def their_task(**words):
            done.append(words)

        async def scenario():
            async with app.open_async():
                await app.schema_manager.apply_schema_async()
                await their_task.defer_async(of="theirs")
                enqueue(store, "ours")
                worker = workers()
                async with worker.at_work():
                    await until(lambda: worker.finished)
                    await app.run_worker_async(
                        wait=False, install_signal_handlers=False, listen_notify=False
                    )
                assert worker.runs == ["ours"]
                assert done == [{"of": "theirs"}]

        asyncio.run(scenario())

    # ------------------------------------------------------------------ many wait

    def test_neither_enqueuing_nor_fetching_reads_all_that_waits(self, store):
        """What many waiting segments cost in pages: 100,000 in the long run."""

        def fill(first, last):
            enqueue = "handrail_jobs.handrail_enqueue('@t/' || n, 1, 'q', 'q', '@t' || n % 100)"
            self.ask(
                f"SELECT count({enqueue}) FROM generate_series({first}, {last}) AS n"
            )

        def pages(call):
            plan = self.ask(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT TEXT) SELECT {call}")
            found = re.search(r"Buffers: shared hit=(\d+)", str(plan))
            assert found, plan
            return int(found[1])

        calls = [
            "handrail_jobs.handrail_enqueue('@t1/new', 1, 'q', 'q', '@t1')",
            "handrail_jobs.handrail_enqueue('@new/r', 1, 'q', 'q', '@new')",
            "handrail_jobs.procrastinate_fetch_job_v2(NULL, NULL)",
        ]
        fill(1, 200)
        few = [pages(call) for call in calls]
        fill(201, examples(in_each_run=10_000, long=100_000))
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute(f"VACUUM ANALYZE {JOBS}")
        many = [pages(call) for call in calls]
        assert all(
            now < 2 * before + 100 for now, before in zip(many, few, strict=True)
        )

    # ------------------------------------------------------------------ tables

    def test_migrations_that_came_since_are_applied(self, store):
        last = [*job_tables._migrations()][-1]
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute(
                "DELETE FROM handrail_jobs.handrail_migrations WHERE name = %s", (last,)
            )
        make_tables(store)
        assert (last,) in self.ask(job_tables.SQL["applied"])
        assert self.ask(job_tables.SQL["functions"]) == []

    def test_many_processes_may_make_the_tables_at_once(self, stores):
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute("DROP SCHEMA IF EXISTS handrail_jobs CASCADE")
        store = stores()
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(lambda _: make_tables(store), range(6)))

    def test_a_run_that_is_submitted_before_the_tables_are_there_is_found_by_a_worker(
        self, stores
    ):
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute("DROP SCHEMA IF EXISTS handrail_jobs CASCADE")
        store = stores()
        result_now(store.submit_run(RunRecord("r", {}), Submission()))
        make_tables(store)
        assert result_now(store.sweep_submitted()) == 1
        assert count_segments(store) == (1, 0)


@pytest.fixture
def store(dsn):
    with PostgresStore(dsn) as store:
        yield store


def test_who_may_not_make_procrastinate_s_tables_is_told(dsn, store):
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("DROP SCHEMA IF EXISTS handrail_jobs CASCADE")
        admin.execute("CREATE ROLE handrail_clerk LOGIN")
        admin.execute("GRANT USAGE ON SCHEMA handrail TO handrail_clerk")
        admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA handrail TO handrail_clerk")
    try:
        clerk = psycopg.conninfo.make_conninfo(dsn, user="handrail_clerk")
        with (
            PostgresStore(clerk) as store,
            pytest.raises(ConfigError, match="permission denied"),
        ):
            open_dispatcher(store)
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("DROP OWNED BY handrail_clerk")
            admin.execute("DROP ROLE handrail_clerk")


def test_without_procrastinate_a_process_submits_and_starts_no_worker(
    store, monkeypatch
):
    monkeypatch.setitem(sys.modules, "procrastinate", None)
    submitting._prepare(store)
    monkeypatch.delitem(sys.modules, "handrail.dispatch.procrastinate")
    with pytest.raises(ConfigError, match=re.escape(describe_install("workers"))):
        open_dispatcher(store)


@pytest.mark.parametrize(
    "method",
    [name for name in vars(OwnedJobs) if hasattr(JobManager, name) and name[0] != "_"],
)
def test_what_is_overridden_has_the_parameters_that_procrastinate_gives(method):
    ours, theirs = (
        inspect.signature(getattr(owner, method)).parameters
        for owner in (OwnedJobs, JobManager)
    )
    assert [(each.name, each.kind, each.default) for each in ours.values()] == [
        (each.name, each.kind, each.default) for each in theirs.values()
    ]
