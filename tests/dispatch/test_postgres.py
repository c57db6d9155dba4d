"""The dispatchers on Postgres: our own tables, and procrastinate's."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

psycopg = pytest.importorskip(
    "psycopg", reason="no psycopg: install handrail[postgres]"
)
pytest.importorskip("procrastinate", reason="install handrail[workers]")

from handrail.dispatch import lease, procrastinate  # noqa: E402
from handrail.dispatch.choice import enqueue_chosen, open_dispatcher  # noqa: E402
from handrail.dispatch.lease import LeaseDispatcher  # noqa: E402
from handrail.dispatch.port import Segment, Timing  # noqa: E402
from handrail.dispatch.procrastinate import (  # noqa: E402
    ProcrastinateDispatcher,
    app_for,
)
from handrail.errors import ConfigError  # noqa: E402
from handrail.stores.postgres import PostgresStore  # noqa: E402
from handrail.stores.sqlite import SqliteStore  # noqa: E402
from tests.dispatch.contract import DispatcherContract  # noqa: E402
from tests.dispatch.on_postgres import dsn, emptied, end_connections  # noqa: E402, F401
from tests.dispatch.workers import (  # noqa: E402
    MORTAL,
    PATIENCE_S,
    PROMPT,
    Worker,
    until,
)
from tests.stores.servers import started  # noqa: E402, F401


class PostgresContract(DispatcherContract):
    """What only a server does."""

    @pytest.fixture(autouse=True)
    def _server(self, dsn):
        self.dsn = dsn
        emptied(dsn)

    def place(self):
        return f"postgres:{self.dsn.removeprefix('postgresql:')}"

    def test_a_worker_survives_the_loss_of_all_its_connections(self, dispatchers):
        async def scenario():
            worker = Worker(dispatchers())
            worker.gate.clear()
            enqueuing = dispatchers()
            enqueuing.enqueue(Segment("during")).result(PATIENCE_S)
            async with worker.at_work():
                await until(lambda: worker.running)
                assert end_connections(self.dsn) >= 3
                worker.gate.set()
                await until(lambda: worker.finished)
                await until(lambda: end_connections(self.dsn) >= 1)
                assert enqueuing.enqueue(Segment("after")).result(PATIENCE_S)
                await until(lambda: len(worker.finished) == 2)
            assert worker.runs == ["during", "after"]
            assert worker.attempts == [1, 1]
            assert enqueuing.stats().result(PATIENCE_S).running == 0

        asyncio.run(scenario())

    def test_a_worker_is_woken_by_the_enqueuing_of_another_process(self, dispatchers):
        """With so slow a poll only the notification brings it in time."""

        async def scenario():
            slow = Timing(poll_s=10 * PATIENCE_S, beat_s=PATIENCE_S, dead_s=1e6)
            worker = Worker(dispatchers(slow))
            enqueuing = dispatchers()
            async with worker.at_work():
                await asyncio.sleep(0.5)  # its listener has connected
                enqueuing.enqueue(Segment("r")).result(PATIENCE_S)
                await until(lambda: worker.finished)

        asyncio.run(scenario())

    @pytest.mark.parametrize("are_workers_locked", [True, False])
    def test_a_row_that_a_frozen_process_has_locked_holds_up_no_other(
        self, dispatchers, others, are_workers_locked
    ):
        """A sweep that waited for it would run into the server's limit, and so would each one after it."""

        async def scenario():
            dispatcher = dispatchers(MORTAL)
            killed = others(), others()
            for run_id in ("locked", "free"):
                dispatcher.enqueue(Segment(run_id)).result(PATIENCE_S)
            await until(lambda: len(killed[0].said() + killed[1].said()) == 2)
            worker = Worker(dispatcher)
            with psycopg.connect(self.dsn) as frozen:
                assert frozen.execute(self.lock_segment).fetchall()
                if are_workers_locked:
                    assert frozen.execute(self.lock_workers).fetchall()
                for each in killed:
                    each.kill()
                async with worker.at_work():
                    await until(lambda: worker.runs == ["free"])
                    frozen.rollback()
                    await until(lambda: worker.runs == ["free", "locked"])
            await until(lambda: dispatcher.stats().result(PATIENCE_S).workers == 0)

        asyncio.run(scenario())


class TestLeaseOnPostgres(PostgresContract):
    kind = "lease"
    lock_segment = "SELECT 1 FROM handrail.segments WHERE run_id = 'locked' FOR UPDATE"
    lock_workers = "SELECT 1 FROM handrail.workers FOR UPDATE"

    def make(self, store, timing=PROMPT):
        return LeaseDispatcher(store, timing=timing)


class TestProcrastinate(PostgresContract):
    kind = "procrastinate"
    lock_segment = "SELECT 1 FROM handrail_jobs.procrastinate_jobs WHERE lock = 'locked' FOR UPDATE"
    lock_workers = "SELECT 1 FROM handrail_jobs.procrastinate_workers FOR UPDATE"

    def make(self, store, timing=PROMPT):
        return ProcrastinateDispatcher(store, timing=timing)

    def test_a_job_has_its_run_as_lock_and_no_time_and_leaves_no_row(self, dispatcher):
        async def scenario():
            dispatcher.enqueue(Segment("r", 3, scope="s")).result(PATIENCE_S)
            with psycopg.connect(self.dsn) as admin:
                row = admin.execute(
                    "SELECT lock, scheduled_at, task_name FROM handrail_jobs.procrastinate_jobs"
                ).fetchall()
            assert row == [("r", None, "handrail.segment")]
            worker = Worker(dispatcher)
            async with worker.at_work():
                await until(lambda: worker.finished)
            with psycopg.connect(self.dsn) as admin:
                for table in ("jobs", "events", "workers"):
                    assert (
                        admin.execute(
                            f"SELECT * FROM handrail_jobs.procrastinate_{table}"
                        ).fetchall()
                        == []
                    )

        asyncio.run(scenario())

    def test_the_shell_of_procrastinate_lists_segments_and_cancels_them(
        self, dispatcher, stores
    ):
        async def scenario():
            app = app_for(stores())
            worker = Worker(dispatcher)
            worker.gate.clear()
            async with app.open_async(), worker.at_work():
                dispatcher.enqueue(Segment("running"))
                await until(lambda: worker.running)
                dispatcher.enqueue(Segment("waiting")).result(PATIENCE_S)
                jobs = {
                    job.lock: job for job in await app.job_manager.list_jobs_async()
                }
                assert jobs["running"].status == "doing"
                assert jobs["waiting"].status == "todo"
                for job in jobs.values():
                    await app.job_manager.cancel_job_by_id_async(job.id, abort=True)
                await until(worker.running["running"].cancelled.is_set)
                worker.gate.set()
            # the row that was cancelled by hand goes with the next sweep
            dispatcher.requeue_dead().result(PATIENCE_S)
            assert await asyncio.wrap_future(dispatcher.stats())
            with psycopg.connect(self.dsn) as admin:
                left = admin.execute(
                    "SELECT count(*) FROM handrail_jobs.procrastinate_jobs"
                ).fetchone()
            assert left == (0,)
            assert worker.runs == ["running"]

        asyncio.run(scenario())

    def test_an_application_s_own_procrastinate_is_not_touched(self, dispatcher):
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
                dispatcher.enqueue(Segment("ours"))
                worker = Worker(dispatcher)
                async with worker.at_work():
                    await until(lambda: worker.finished)
                    await app.run_worker_async(
                        wait=False, install_signal_handlers=False, listen_notify=False
                    )
                assert worker.runs == ["ours"]
                assert done == [{"of": "theirs"}]

        asyncio.run(scenario())

    def test_migrations_that_came_since_are_applied(self, stores):
        store = stores()
        ProcrastinateDispatcher(store).close()
        last = [*procrastinate._migrations()][-1]
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute(
                "DELETE FROM handrail_jobs.handrail_migrations WHERE name = %s", (last,)
            )
        ProcrastinateDispatcher(store).close()
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            applied = {name for (name,) in admin.execute(procrastinate._SQL["applied"])}
            functions = admin.execute(procrastinate._SQL["functions"]).fetchall()
        assert last in applied
        assert functions == []

    def test_many_processes_may_make_the_tables_at_once(self, stores):
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute("DROP SCHEMA IF EXISTS handrail_jobs CASCADE")
        store = stores()
        with ThreadPoolExecutor(6) as threads:
            for made in threads.map(lambda _: ProcrastinateDispatcher(store), range(6)):
                made.close()


# -- which one --------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(dsn):
    with PostgresStore(dsn) as store:
        emptied(dsn)
        yield store


def test_a_store_remembers_its_dispatcher(store, monkeypatch):
    with pytest.MonkeyPatch.context() as without:
        without.setattr("handrail.dispatch.choice.find_spec", lambda _: None)
        first = open_dispatcher(store)
    assert isinstance(first, LeaseDispatcher)
    second = open_dispatcher(store)
    assert isinstance(second, LeaseDispatcher)
    first.enqueue(Segment("r")).result(PATIENCE_S)
    with pytest.raises(ConfigError, match="'lease' has 1 segments of this store"):
        open_dispatcher(store, "procrastinate")
    first.cancel("r").result(PATIENCE_S)
    third = open_dispatcher(store, "procrastinate")
    assert isinstance(third, ProcrastinateDispatcher)
    assert isinstance(open_dispatcher(store), ProcrastinateDispatcher)
    for each in (first, second, third):
        each.close()


def test_on_postgres_procrastinate_is_the_default(store):
    dispatcher = open_dispatcher(store)
    assert isinstance(dispatcher, ProcrastinateDispatcher)
    dispatcher.close()


def enqueue(store, run_id):
    """Enqueue as the store does for a run that goes on: in its transaction, without a dispatcher."""
    segment = {"run_id": run_id, "number": 1, "queue": "default", "priority": 0}
    return store._submit(
        lambda database, now: enqueue_chosen(store, database, now, **segment)
    ).result(PATIENCE_S)


@pytest.mark.parametrize("kind", ["lease", "procrastinate", ""])
def test_a_store_enqueues_for_the_dispatcher_that_it_has(store, dsn, kind):
    if kind:
        open_dispatcher(store, kind).close()
    else:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("DROP SCHEMA IF EXISTS handrail_jobs CASCADE")
    assert enqueue(store, "@acme/r")
    assert not enqueue(store, "@acme/r")

    async def scenario():
        dispatcher = open_dispatcher(store)
        worker = Worker(dispatcher)
        async with worker.at_work():
            await until(lambda: worker.finished)
        dispatcher.close()
        assert worker.started == [Segment("@acme/r", scope="acme")]

    asyncio.run(scenario())


def test_who_may_not_make_procrastinate_s_tables_has_the_store_s_own(dsn):
    PostgresStore(dsn).close()
    with psycopg.connect(dsn, autocommit=True) as admin:
        emptied(dsn)
        admin.execute("DROP SCHEMA IF EXISTS handrail_jobs CASCADE")
        admin.execute("CREATE ROLE handrail_clerk LOGIN")
        admin.execute("GRANT USAGE ON SCHEMA handrail TO handrail_clerk")
        admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA handrail TO handrail_clerk")
    try:
        clerk = psycopg.conninfo.make_conninfo(dsn, user="handrail_clerk")
        with PostgresStore(clerk) as store:
            assert enqueue(store, "r")
            dispatcher = open_dispatcher(store)
            assert isinstance(dispatcher, LeaseDispatcher)
            dispatcher.close()
            with pytest.raises(ConfigError, match="permission denied"):
                open_dispatcher(store, "procrastinate")
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("DROP OWNED BY handrail_clerk")
            admin.execute("DROP ROLE handrail_clerk")


def test_procrastinate_asks_for_postgres_and_for_its_extra(
    store, tmp_path, monkeypatch
):
    with SqliteStore(tmp_path / "runs.db") as file:
        with pytest.raises(ConfigError, match="needs a store in Postgres"):
            open_dispatcher(file, "procrastinate")
        assert isinstance(open_dispatcher(file), LeaseDispatcher)
    monkeypatch.setitem(sys.modules, "procrastinate", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[workers\]'"):
        ProcrastinateDispatcher(store)


# -- how many wait ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "indexes"),
    [
        (lease._SQL["claim_postgres"], {"segments_turn", "segments_urgent"}),
        (procrastinate._SQL["claim"], {"handrail_turn", "handrail_urgent"}),
    ],
    ids=["lease", "procrastinate"],
)
def test_a_fetch_follows_the_indexes(store, statement, indexes):
    ProcrastinateDispatcher(store).close()

    def explain(database):
        plan = database.run(f"EXPLAIN {statement}", ("w", "q", "[]", 4))
        return "\n".join(line for (line,) in plan)

    plan = store.use_connection(explain)
    for index in indexes:
        assert f"using {index}" in plan.replace("Scan on", "using"), plan
    assert "Seq Scan on segments" not in plan
    assert "Seq Scan on procrastinate_jobs" not in plan
