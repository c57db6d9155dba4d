"""The store in Postgres: the contract, and what can befall a server."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from msgspec.json import encode
from msgspec.structs import replace

import handrail as hr
from handrail.audit.chain import verify
from handrail.effects import ClaimState, Settle
from handrail.errors import ConfigError, Fenced, StoreUnavailable
from handrail.records import (
    ApprovalRequest,
    AuditEntry,
    JournalEntry,
    JournalStep,
    RunRecord,
)
from handrail.stores.database import RetryGroup
from handrail.testing.contracts.claims import A_REFUND
from tests.support.drivers import until

psycopg = pytest.importorskip(
    "psycopg", reason="no psycopg: install handrail[postgres]"
)

from handrail.stores import maintenance, postgres, retention  # noqa: E402
from handrail.stores.postgres import VERSION, PostgresStore  # noqa: E402
from handrail.stores.retention import Retention  # noqa: E402
from handrail.stores.sqlite import SqliteStore  # noqa: E402
from handrail.testing.contracts.runs import RunContract  # noqa: E402
from tests.stores.durable_contract import DurableContract  # noqa: E402
from tests.stores.servers import started  # noqa: E402


@pytest.fixture(scope="module")
def dsn():
    """An empty database of our own."""
    given = os.environ.get("HANDRAIL_TEST_POSTGRES")
    if given is None:
        server = started()
        yield server.dsn
        server.remove()
        return
    name = f"handrail_test_{os.getpid()}"
    with psycopg.connect(given, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield psycopg.conninfo.make_conninfo(given, dbname=name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def emptied(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        if admin.execute("SELECT to_regclass('handrail.effects')").fetchone() != (
            None,
        ):
            admin.execute(
                "TRUNCATE handrail.effects, handrail.kept, handrail.runs, handrail.steps, handrail.approvals, "
                "handrail.restored, "
                "handrail.audit, handrail.locks, handrail.acts, handrail.grants, handrail.audit_pending, "
                "handrail.audit_writers, handrail.audit_chained, handrail.submitted"
            )


class TestPostgresStore(DurableContract):
    @pytest.fixture(autouse=True)
    def _server(self, dsn):
        self.dsn = dsn

    def open(self):
        emptied(self.dsn)
        return PostgresStore(self.dsn)

    def place(self):
        return f"postgres:{self.dsn.removeprefix('postgresql:')}"

    def again(self):
        return PostgresStore(self.dsn)

    def pass_time(self, seconds):
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            past = "UPDATE handrail.effects SET lease_until = lease_until - %s, begun = begun - %s"
            admin.execute(past, (seconds, seconds))
            admin.execute("UPDATE handrail.acts SET at = at - %s", (seconds,))
            admin.execute("UPDATE handrail.kept SET expires = expires - %s", (seconds,))
            admin.execute(
                "UPDATE handrail.locks SET until = until - %s, ticks = ticks - %s",
                (seconds, seconds),
            )
            admin.execute(
                "UPDATE handrail.approvals SET expires = expires - %s", (seconds,)
            )


class TestPostgresRuns(RunContract):
    @pytest.fixture
    def store(self, dsn):
        emptied(dsn)
        with PostgresStore(dsn) as store:
            yield store


# -- opening ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", ["//user:pass word@host:port/db", "nonsense", "host=x secret=geheim"]
)
def test_what_is_no_connection_string_is_refused_without_being_shown(place):
    with pytest.raises(ConfigError, match="no connection string") as refused:
        PostgresStore(place)
    assert place not in str(refused.value)


def test_a_server_that_is_not_there_is_a_store_that_does_not_answer(tmp_path):
    with pytest.raises(StoreUnavailable, match="no connection to postgres:") as silent:
        PostgresStore(f"postgresql://handrail:geheim@/db?host={tmp_path}")
    assert "geheim" not in str(silent.value)


@pytest.mark.parametrize("kind", ["postgresql", "postgres"])
def test_a_runtime_opens_a_store_by_its_url(dsn, kind):
    runtime = hr.Runtime([], store=f"{kind}:{dsn.removeprefix('postgresql:')}")
    assert isinstance(runtime.store, PostgresStore)
    runtime.store.close()


def test_many_processes_may_make_the_tables_at_once(dsn):
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("DROP SCHEMA IF EXISTS handrail CASCADE")
    with ThreadPoolExecutor(8) as threads:
        for store in threads.map(lambda _: PostgresStore(dsn), range(8)):
            store.close()
    with psycopg.connect(dsn) as admin:
        made = admin.execute(
            "SELECT version FROM handrail.schema_version ORDER BY version"
        ).fetchall()
    assert made == [(VERSION,)]


def test_whoever_opens_a_store_waits_longer_for_its_tables_than_for_a_lock(
    dsn, monkeypatch
):
    short = postgres._SQL["settings"].replace("3500ms", "50ms")
    monkeypatch.setitem(postgres._SQL, "settings", short)
    waiting = (
        "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%advisory%' AND wait_event_type = 'Lock' "
        "AND query_start < clock_timestamp() - interval '0.2 s'"
    )
    with psycopg.connect(dsn) as migrating, ThreadPoolExecutor(1) as pool:
        migrating.execute("SELECT pg_advisory_xact_lock(%s)", (postgres._LOCK,))
        opening = pool.submit(PostgresStore, dsn)
        until(lambda: opening.done() or changed(dsn, waiting) == 1)
        migrating.rollback()
        opening.result(30).close()


def test_an_entry_of_a_run_writes_no_index(dsn):
    """Postgres writes all indexes of a table for a row where a column of one of them changes."""
    PostgresStore(dsn).close()
    with psycopg.connect(dsn) as admin:
        indexes = admin.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'handrail' AND tablename = 'runs'"
        ).fetchall()
    assert len(indexes) > 3
    for (index,) in indexes:
        assert not {"updated", "entered", "result"} & {*re.findall(r"\w+", index)}


def test_the_tables_of_another_version_are_not_touched(dsn):
    PostgresStore(dsn).close()
    with psycopg.connect(dsn, autocommit=True) as newer:
        newer.execute(
            "INSERT INTO handrail.schema_version VALUES (%s, 0)", (VERSION + 1,)
        )
        try:
            with pytest.raises(
                ConfigError,
                match=f"version {VERSION + 1} and this handrail knows {VERSION}",
            ):
                PostgresStore(dsn)
        finally:
            newer.execute(
                "DELETE FROM handrail.schema_version WHERE version = %s", (VERSION + 1,)
            )


def test_commits_wait_for_the_disk_also_where_the_server_would_not(dsn):
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
    try:
        with PostgresStore(dsn) as store:
            assert store.use_connection(
                lambda base: base._db.execute("SHOW synchronous_commit").fetchone()
            ) == ("on",)
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")


def test_whoever_waits_for_a_frozen_process_outlasts_it(dsn):
    """The server ends the transaction of a process that says nothing; then those behind its locks go on."""

    def read_limits(database):
        return database.run(
            "SELECT name, setting::bigint FROM pg_settings "
            "WHERE name IN ('lock_timeout', 'idle_in_transaction_session_timeout')"
        )

    with PostgresStore(dsn) as store:
        limits = dict(store.use_connection(read_limits))
    idle_ms = limits["idle_in_transaction_session_timeout"]
    assert 0 < idle_ms < limits["lock_timeout"] - 400  # which is waited for three times


def test_each_statement_sees_what_was_committed_before_it_wherever_the_server_says(dsn):
    with psycopg.connect(dsn, autocommit=True) as admin:
        isolation = "ALTER ROLE CURRENT_USER SET default_transaction_isolation"
        admin.execute(f"{isolation} = 'repeatable read'")
    try:
        with PostgresStore(dsn) as store:
            assert store.use_connection(
                lambda base: base._db.execute("SHOW transaction_isolation").fetchone()
            ) == ("read committed",)
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("ALTER ROLE CURRENT_USER RESET default_transaction_isolation")


def test_who_may_not_make_the_tables_is_told_so(dsn):
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("DROP SCHEMA IF EXISTS handrail CASCADE")
        admin.execute("DROP ROLE IF EXISTS handrail_guest")
        admin.execute("CREATE ROLE handrail_guest LOGIN")
    try:
        with pytest.raises(ConfigError, match="cannot be made: permission denied"):
            PostgresStore(psycopg.conninfo.make_conninfo(dsn, user="handrail_guest"))
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("DROP ROLE handrail_guest")


# -- while it is open -------------------------------------------------------------------------------------------------


def claimed(store, **other):
    return store.claim(replace(A_REFUND, guard=False, **other)).result(30)


@pytest.fixture
def server():
    """A server of the test's own, to be stopped and killed."""
    server = started()
    yield server
    server.remove()


# sent away, or crashed
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_starts_again_is_reconnected_to_and_has_lost_nothing(server, how):
    with PostgresStore(server.dsn) as store:
        fence = claimed(store).fence
        server.stop(how)
        waiting = store.claim(replace(A_REFUND, key="refund:882", guard=False))
        server.start()
        assert waiting.result(30).state is ClaimState.FRESH
        assert claimed(store).state is ClaimState.BUSY
        assert store.settle(Settle("", "refund:881", fence, "done", 20)).result(30)


def test_a_server_that_stays_away_takes_no_claim_and_is_asked_again_later(
    server, monkeypatch
):
    monkeypatch.setattr(postgres, "RECONNECT_S", 0.2)
    with PostgresStore(server.dsn) as store:
        server.stop()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="has been gone for"):
                claimed(store)
        server.start()
        assert claimed(store).state is ClaimState.FRESH


def sent_away(dsn):
    """End every connection of a store."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'handrail' AND datname = current_database()"
        )


class Cut:
    """A connection that ends before or after a statement, as a network may do."""

    def __init__(self, db, statement, *, after):
        self._db, self._statement, self._after = db, statement, after

    def execute(self, statement, *rest, **named):
        if statement != self._statement:
            return self._db.execute(statement, *rest, **named)
        if self._after:
            self._carry_out(statement, *rest, **named)
        self._db.close()
        raise psycopg.OperationalError("the connection is lost")

    def _carry_out(self, statement, *given, **named):
        run = self._db.call_server if statement == WHOLE_GROUP else self._db.execute
        run(statement, *given, **named)

    def call_server(self, statement, given):
        if statement != self._statement:
            return self._db.call_server(statement, given)
        return self.execute(statement, given)

    def __getattr__(self, name):
        return getattr(self._db, name)


class Stuck(Cut):
    """A connection that libpq gives up without having closed it, as where a server shuts down amid a pipeline."""

    def execute(self, statement, *rest, **named):
        if statement != self._statement:
            return self._db.execute(statement, *rest, **named)
        if self._after:
            self._carry_out(statement, *rest, **named)
        raise psycopg.OperationalError("cannot exit pipeline mode while busy")


WHOLE_GROUP = postgres._SQL["commit_group"]


@pytest.mark.parametrize(
    "after", [False, True], ids=["before it was done", "after it was done"]
)
@pytest.mark.parametrize("statement", ["COMMIT", WHOLE_GROUP], ids=["COMMIT", "group"])
@pytest.mark.parametrize("ending", [Cut, Stuck])
def test_what_became_of_a_commit_whose_answer_was_lost_is_asked_of_the_server(
    dsn, after, statement, ending
):
    with PostgresStore(dsn) as store:
        emptied(dsn)
        if statement == WHOLE_GROUP:
            claimed(store, key="before")  # from the second group on they are foreseen
        base = store.use_connection(lambda base: base._db)
        ended = ending(base, statement, after=after)
        store.use_connection(lambda base: setattr(base, "_db", ended))
        assert claimed(store).state is ClaimState.FRESH
        assert store.use_connection(lambda base: base._db) is not ended
        assert claimed(store).state is ClaimState.BUSY
        with psycopg.connect(dsn) as admin:
            assert admin.execute(
                "SELECT fence FROM handrail.effects WHERE key = 'refund:881'"
            ).fetchall() == [(1,)]


def test_what_a_lost_transaction_was_to_write_is_not_written_with_the_question(dsn):
    with PostgresStore(dsn) as store, PostgresStore(dsn) as other:
        emptied(dsn)
        count = postgres._SQL["count_group"]
        ended = Cut(store.use_connection(lambda base: base._db), count, after=False)
        lose = ended.execute

        def lose_after_another(statement, *rest, **named):
            if statement == count:
                ended._db.close()
                assert claimed(other).state is ClaimState.FRESH
            return lose(statement, *rest, **named)

        ended.execute = lose_after_another
        store.use_connection(lambda base: setattr(base, "_db", ended))
        assert claimed(store).state is ClaimState.BUSY
        assert changed(dsn, "SELECT 1 FROM handrail.effects") == 1


class Lingering(Cut):
    """A connection that is lost here, while the server has not seen it yet."""

    closed = True

    def execute(self, statement, *rest, **named):
        if statement == self._statement:
            raise psycopg.OperationalError("the connection is lost")
        return self._db.execute(statement, *rest, **named)

    def close(self):
        pass


def test_a_server_that_still_has_the_lost_commit_under_way_is_waited_for(dsn):
    with PostgresStore(dsn) as store, ThreadPoolExecutor(1) as thread:
        emptied(dsn)
        lost = store.use_connection(lambda base: base._db)
        store.use_connection(
            lambda base: setattr(base, "_db", Lingering(lost, "COMMIT", after=False))
        )
        claiming = thread.submit(claimed, store)
        waiting = (
            "SELECT 1 FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO group_writers%'"
        )
        until(lambda: changed(dsn, waiting) == 1)
        assert not claiming.done()
        lost.close()
        assert claiming.result(30).state is ClaimState.FRESH


def test_a_connection_that_is_ended_in_the_middle_is_made_again(dsn):
    with PostgresStore(dsn) as store:
        emptied(dsn)
        for number in range(3):
            sent_away(dsn)
            assert claimed(store, key=f"refund:{number}").state is ClaimState.FRESH


def test_a_row_that_somebody_holds_is_waited_for_in_bounds_and_hinders_no_other(dsn):
    with PostgresStore(dsn) as store, psycopg.connect(dsn) as other:
        emptied(dsn)
        claimed(store)
        store.use_connection(lambda base: base._db.execute("SET lock_timeout = '50ms'"))
        other.execute("SELECT * FROM handrail.effects FOR UPDATE")
        store.save_result("r1", "x" * 1_000_000)  # so that the two below are one group
        held, free = (
            store.claim(replace(A_REFUND, key=f"refund:{n}", guard=False))
            for n in (881, 882)
        )
        assert free.result(30).state is ClaimState.FRESH
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            held.result(30)


@contextmanager
def hasty_store(dsn):
    """Yield a store with one write, which waits for a lock only briefly and finds others frozen after 50 ms."""
    with pytest.MonkeyPatch.context() as patch, PostgresStore(dsn) as store:
        patch.setattr(postgres, "FROZEN_S", 0.05)
        emptied(dsn)
        claimed(store)
        store.use_connection(
            lambda base: base._db.execute("SET lock_timeout = '200ms'")
        )
        yield store


@pytest.mark.parametrize("state", ["active", "idle in transaction"])
def test_a_process_that_was_frozen_in_a_pipeline_is_sent_away_by_who_waits(dsn, state):
    """Its transaction counts as active, or as idle where a request to flush has come: then the server has no limit."""
    with hasty_store(dsn) as store, PostgresStore(dsn) as frozen:
        lost = frozen.use_connection(lambda base: base._db)
        lost.execute("SET idle_in_transaction_session_timeout = '2s'")
        beyond_the_limit = (
            f"SELECT 1 FROM pg_stat_activity WHERE state = '{state}' AND wait_event = 'ClientRead' "
            "AND query LIKE '%FOR UPDATE' AND state_change < clock_timestamp() - interval '2.5 s'"
        )
        with pytest.raises(psycopg.OperationalError), lost.pipeline() as pipeline:
            lost.execute("BEGIN")
            lost.execute("SELECT * FROM handrail.effects FOR UPDATE")
            if state != "active":
                pipeline.sync()
                lost.pgconn.send_flush_request()
                lost.pgconn.flush()
            until(lambda: changed(dsn, beyond_the_limit) == 1)
            assert claimed(store).state is ClaimState.BUSY
            pipeline.sync()
        assert claimed(frozen, key="refund:882").state is ClaimState.FRESH


def test_who_only_reads_is_not_taken_for_a_frozen_process(dsn):
    ours = psycopg.conninfo.make_conninfo(dsn, application_name="handrail")
    with hasty_store(dsn) as store, psycopg.connect(ours) as reading:
        reading.execute("SELECT * FROM handrail.effects")
        with writes_held_for_two_waits(dsn, store):
            assert claimed(store).state is ClaimState.BUSY
        assert reading.execute("SELECT 1").fetchall() == [(1,)]


def test_another_program_of_our_role_and_name_is_not_taken_for_a_frozen_process(dsn):
    ours = psycopg.conninfo.make_conninfo(dsn, application_name="shop")
    with hasty_store(ours) as store, psycopg.connect(ours) as shop:
        shop.execute("CREATE TEMPORARY TABLE orders(number bigint)")
        with shop.cursor().copy("COPY orders FROM STDIN") as orders:
            orders.write_row((1,))
            with writes_held_for_two_waits(dsn, store):
                assert claimed(store).state is ClaimState.BUSY
        assert shop.execute("SELECT number FROM orders").fetchall() == [(1,)]


@contextmanager
def writes_held_for_two_waits(dsn, store):
    """Hold all writes until the store has waited for them twice."""
    connection = store._writer._connection
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT * FROM handrail.effects FOR UPDATE")

        def release():
            try:
                until(lambda: connection._waits == 1)
                until(lambda: connection._waits == 2)
            finally:
                other.rollback()

        releasing = pool.submit(release)
        yield
        releasing.result()


def test_a_lock_is_waited_for_three_times_by_each_group_and_each_job(dsn):
    def touch(database):
        return database.run("UPDATE effects SET updated = updated RETURNING 1")

    with PostgresStore(dsn) as store, psycopg.connect(dsn) as other:
        emptied(dsn)
        claimed(store)
        store.use_connection(
            lambda base: base._db.execute("SET lock_timeout = '200ms'")
        )
        for _ in range(2):
            with writes_held_for_two_waits(dsn, store):
                assert claimed(store).state is ClaimState.BUSY
        for _ in range(2):
            with writes_held_for_two_waits(dsn, store):
                assert store.use_connection(touch) == [(1,)]
        other.execute("SELECT * FROM handrail.effects FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="nothing was recorded"):
            claimed(store)
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            store.use_connection(touch)
        other.rollback()
        assert claimed(store, key="refund:882").state is ClaimState.FRESH


# -- maintenance ------------------------------------------------------------------------------------------------------


def test_what_lay_in_a_file_is_known_on_the_server_after_a_copy(dsn, tmp_path):
    PostgresStore(dsn).close()
    emptied(dsn)
    odd = "\0\ud800 退款"
    with SqliteStore(tmp_path / "x.db") as old, PostgresStore(dsn) as new:
        fence = claimed(old, key=odd).fence
        assert old.settle(Settle("", odd, fence, "done", odd)).result(10)
        claimed(old, key="under way")
        question = ApprovalRequest(
            "q",
            "r1",
            "c",
            "refund",
            "d",
            {},
            "high",
            odd,
            required_approvals=3,
            principal=odd,
        )
        for store in (old, new):
            store.ask(question, within_s=60).result(10)
        old.decide("q", granted=True, by="anna").result(10)
        handle = old.save_result("r1", odd).result(10)
        for _ in range(2):
            assert maintenance.copy_store(old, new)["effects"] == 2
            (question,) = new.list_approvals().result(10)
            # of which the old store never knows
            new.decide("q", granted=True, by="ben").result(10)
        assert question.agreed == ("anna", "ben")  # and a second copy took nothing back
        assert question.principal == odd
        assert claimed(new, key=odd).value == odd
        assert claimed(new, key="under way").state is ClaimState.BUSY
        assert new.load_result("r1", handle).result(10) == odd


def test_a_server_is_counted_and_kept_as_a_file_is(dsn):
    with PostgresStore(dsn) as store:
        emptied(dsn)
        for number, state in enumerate(["done", "failed", "in_doubt"]):
            fence = claimed(store, key=f"{number}").fence
            assert store.settle(Settle("", f"{number}", fence, state)).result(10)
        found = maintenance.count_contents(store)
        assert (found.version, found.writes) == (
            VERSION,
            {"done": 1, "failed": 1, "in_doubt": 1},
        )
        assert found.size_bytes > 0
        assert retention.keep(store, Retention(writes_s=3600.0)).effects == 0
        assert (
            retention.keep(store, Retention(writes_s=0.001, runs_s=0.001)).effects == 2
        )
        assert claimed(store, key="2").state is ClaimState.IN_DOUBT


def test_a_keeper_leaves_the_room_to_another_one_that_returns_it_already(dsn):
    with PostgresStore(dsn) as store, psycopg.connect(dsn) as other:
        emptied(dsn)
        claimed(store)
        store.resolve("", "refund:881", state="failed", by="anna").result(10)
        changed(dsn, "UPDATE handrail.effects SET state = 'done'")
        other.execute("LOCK handrail.effects IN SHARE UPDATE EXCLUSIVE MODE")
        assert retention.keep(store, Retention(writes_s=0.001)).effects == 1


def test_who_returns_the_room_to_the_disk_waits_for_transactions_to_end(dsn):
    waiting = (
        "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'VACUUM (FULL%' AND wait_event_type = 'Lock' "
        "AND query_start < clock_timestamp() - interval '0.1 s'"
    )
    with (
        PostgresStore(dsn) as store,
        psycopg.connect(dsn) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        emptied(dsn)
        other.execute("SELECT * FROM handrail.effects FOR UPDATE")
        keeping = pool.submit(
            retention.keep, store, Retention(writes_s=3600.0), rewrite=True
        )
        until(lambda: keeping.done() or changed(dsn, waiting) == 1)
        other.rollback()
        assert keeping.result(30).effects == 0


def test_a_place_where_no_store_is_stays_without_one_unless_it_is_wanted(server):
    with pytest.raises(ConfigError, match="there is no store"):
        PostgresStore(server.dsn, create=False)


# -- a group in one message -------------------------------------------------------------------------------------------


def whole_groups(store):
    """Return how many groups a store has committed, and have those counted that go as one message from now on."""

    def count(base):
        sent = []
        send = base._commit_whole_group

        def counting(parts):
            answer = send(parts)
            sent.append(answer)
            return answer

        base._commit_whole_group = counting
        return sent

    return store.use_connection(count)


@pytest.fixture
def ready(dsn):
    """A store that has committed a group and a record, and the groups that it commits in one message from now on."""
    with PostgresStore(dsn) as store:
        emptied(dsn)
        claimed(store, key="before")
        added(
            store, -2, -1
        )  # the key of an empty log is looked at with its second record
        yield store, whole_groups(store)


def test_the_usual_groups_of_a_run_go_in_one_message_each(dsn, ready):
    store, sent = ready
    before = store.use_connection(lambda base: base._number)
    begun = store.begin_run(RunRecord("r1", {"question": "?"}, toolset="t"), new=True)
    assert begun.result(10).record.epoch == 1
    for step in range(2):
        key = f"refund:{step}"
        entry = JournalEntry("r1", 1, [JournalStep(f"s{step}", "answer", {"n": step})])
        entered = store.append_entry(entry)
        act = replace(A_REFUND, key=key, run_id="r1", fingerprint=key.encode())
        fence = store.claim(act).result(10).fence
        assert entered.result(10) is False
        assert store.settle(Settle("", key, fence, "done", step)).result(10)
        added(store, step + 1)
    store.save_result("r1", "a long \ud800 text").result(10)
    assert store.use_connection(lambda base: base._number) == before + len(sent)
    assert {answer.is_chained for answer in sent} == {None, True}
    loaded = store.load_run("r1").result(10)
    assert [step.key for step in loaded.steps] == ["s0", "s1"]
    assert claimed(store, key="refund:1", fingerprint=b"refund:1").value == 1
    assert verify(store.log().result(10)) == (4, None)


def test_a_group_is_prepared_again_where_the_server_has_forgotten_it(ready):
    store, sent = ready
    claimed(store, key="first")
    store.use_connection(lambda base: base._db.execute("DEALLOCATE ALL"))
    assert claimed(store, key="second").state is ClaimState.FRESH
    assert len(sent) == 2


def test_names_beyond_ascii_are_kept_whatever_the_clients_encoding(dsn, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with PostgresStore(dsn) as store:
        emptied(dsn)
        claimed(store, key="before")
        claimed(store, key="退款")
    monkeypatch.delenv("PGCLIENTENCODING")
    assert changed(dsn, "SELECT 1 FROM handrail.effects WHERE key = '退款'") == 1


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("UPDATE handrail.effects SET fence = fence + 1", False),
        ("UPDATE handrail.effects SET state = 'done', value = '5'", False),
        ("UPDATE handrail.effects SET state = 'in_doubt'", True),
        ("UPDATE handrail.effects SET lease_until = 0", True),
        ("DELETE FROM handrail.effects", False),
    ],
)
def test_a_write_that_another_process_has_changed_is_settled_as_it_stands(
    dsn, ready, change, state
):
    store, sent = ready
    fence = claimed(store).fence
    sent.clear()
    changed(dsn, change)
    settled = store.settle(Settle("", "refund:881", fence, "done", 7))
    assert settled.result(10) is state
    assert sent == []


def test_a_key_or_an_act_that_another_process_has_claimed_is_found(dsn, ready):
    store, sent = ready
    with PostgresStore(dsn) as other:
        claimed(other, run_id="r1")
        other.claim(replace(A_REFUND, key="theirs", run_id="r2")).result(10)
    assert claimed(store, run_id="r1").state is ClaimState.BUSY
    again = store.claim(replace(A_REFUND, key="ours", run_id="r2")).result(10)
    assert (again.state, again.repeated) == (ClaimState.BUSY, True)
    assert store.look_up(replace(A_REFUND, key="ours", run_id="r2")).result(10)
    assert (
        store.look_up(replace(A_REFUND, key="nobody's", run_id="r9")).result(10) is None
    )
    assert sent == []


def test_a_run_that_was_taken_over_or_is_to_be_cancelled_is_found(dsn, ready):
    store, sent = ready
    for run_id in ("r1", "r2", "r3"):
        store.begin_run(RunRecord(run_id, {}, toolset="t"), new=True).result(10)
    with PostgresStore(dsn) as other:
        taken = other.load_run("r1").result(10).record
        assert other.begin_run(taken).result(10).record.epoch == 2
        assert other.request_cancel("r2").result(10)
    sent.clear()
    entries = [
        JournalEntry(id, 1, [JournalStep("s", "answer", 1)]) for id in ("r1", "r2")
    ]
    fenced = store.append_entry(entries[0])
    claim = store.claim(replace(A_REFUND, run_id="r1", epoch=1, guard=False))
    with pytest.raises(Fenced):
        fenced.result(10)
    assert store.append_entry(entries[1]).result(10) is True
    assert sent == []
    claim.exception(10)  # refused where both were one group
    assert (
        store.append_entry(
            JournalEntry("r3", 1, [JournalStep("s", "answer", 1)])
        ).result(10)
        is False
    )
    assert len(sent) == 1


def test_a_clock_of_the_server_that_was_set_is_read_again(ready):
    store, sent = ready
    store.use_connection(lambda base: base._recollection.note_clock(base.now() - 60.0))
    assert claimed(store).state is ClaimState.FRESH
    assert sent == []
    write = store.load_write("", "refund:881").result(10)
    assert abs(write.begun - store.use_connection(lambda base: base.now())) < 30
    assert claimed(store, key="refund:882").state is ClaimState.FRESH
    assert len(sent) == 1


def test_a_group_that_was_given_up_is_not_committed_when_it_comes_after_all(dsn, ready):
    store, _ = ready
    claimed(store)
    lost = []
    send = store.use_connection(lambda base: base._commit_whole_group)

    def lose(base):
        def fail(parts):
            lost.append((base._writer, base._number + 1, *parts))
            base._number += 1
            try:
                base._raise_unless_committed(RetryGroup())
            finally:
                base._commit_whole_group = send

        base._commit_whole_group = fail

    store.use_connection(lose)
    assert claimed(store, key="late").state is ClaimState.FRESH
    with (
        psycopg.connect(dsn, options="-c search_path=handrail") as admin,
        pytest.raises(psycopg.errors.SerializationFailure, match="given this group up"),
    ):
        admin.execute(
            WHOLE_GROUP, (postgres._LOCK, "somebody", encode(lost[0]).decode())
        )
    assert changed(dsn, "SELECT 1 FROM handrail.effects WHERE key = 'late'") == 1


def test_a_lost_commit_is_not_taken_for_that_of_another_process_after_a_backend_crashed(
    server,
):
    """A server that lost a transaction gives its number to another one, and its start time stays."""
    with PostgresStore(server.dsn) as store, PostgresStore(server.dsn) as other:
        claimed(store, key="before")
        ended = Cut(
            store.use_connection(lambda base: base._db), WHOLE_GROUP, after=False
        )
        pid = store.use_connection(lambda base: base._db.info.backend_pid)

        def crash(*_, **__):
            os.kill(pid, signal.SIGKILL)
            until(lambda: answers(server.dsn))
            for number in range(20):
                claimed(other, key=f"other:{number}")
            ended._db.close()
            raise psycopg.OperationalError("the connection is lost")

        ended.execute = crash
        store.use_connection(lambda base: setattr(base, "_db", ended))
        assert claimed(store).state is ClaimState.FRESH
        assert claimed(store).state is ClaimState.BUSY
        assert (
            changed(server.dsn, "SELECT 1 FROM handrail.effects WHERE fence = 1") == 22
        )


def answers(dsn):
    try:
        psycopg.connect(dsn).close()
    except psycopg.Error:
        return False
    return True


# -- one log, many writers --------------------------------------------------------------------------------------------


@pytest.fixture
def taken_log(dsn):
    """A store on an empty database, and a connection that has the end of the audit log, as another process may."""
    with PostgresStore(dsn) as store, psycopg.connect(dsn) as other:
        emptied(dsn)
        added(store, 0)
        other.execute("SELECT pg_advisory_xact_lock(%s, 1024)", (postgres._LOCK,))
        yield store, other


def added(store, *numbers):
    for number in numbers:
        store.append_audit([AuditEntry("r_1", "RunEnded", {"n": number})]).result(10)


def changed(dsn, statement, *given):
    with psycopg.connect(dsn, autocommit=True) as admin:
        return admin.execute(statement, given or None).rowcount


def numbers_in(records):
    return [record.body.get("n") for record in records]


def test_nobody_waits_for_the_end_of_the_log_and_all_records_come_into_one_chain(
    dsn, taken_log
):
    store, other = taken_log
    added(store, 1, 2)  # while the end is taken
    with PostgresStore(dsn) as second:
        added(second, 3)
        other.rollback()
        added(second, 4)
        added(store, 5)
        records = second.log().result(10)
    assert verify(records) == (6, None)
    found = numbers_in(records)
    assert sorted(found) == list(range(6))
    assert [n for n in found if n in (1, 2, 5)] == [1, 2, 5]
    assert [n for n in found if n in (3, 4)] == [3, 4]
    assert changed(dsn, "SELECT 1 FROM handrail.audit_pending") == 0


def test_pending_records_are_chained_without_another_group_and_before_the_store_closes(
    dsn, taken_log
):
    store, other = taken_log
    added(store, 1)
    other.rollback()
    until(lambda: changed(dsn, "SELECT 1 FROM handrail.audit_pending") == 0)
    other.execute("SELECT pg_advisory_xact_lock(%s, 1024)", (postgres._LOCK,))
    added(store, 2)
    with ThreadPoolExecutor(1) as thread:
        closing = thread.submit(store.close)  # waits for the end of the log
        other.rollback()
        closing.result(30)
    assert changed(dsn, "SELECT 1 FROM handrail.audit WHERE seq <= 3") == 3
    assert changed(dsn, "SELECT 1 FROM handrail.audit_writers") == 0


def test_records_of_a_killed_writer_are_chained_by_the_next_one(dsn, taken_log):
    _, other = taken_log
    if (child := os.fork()) == 0:
        added(PostgresStore(dsn), 1, 2)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    other.rollback()
    with PostgresStore(dsn) as next_one:
        added(next_one, 3)
        records = next_one.log().result(10)
    assert sorted(numbers_in(records)) == [0, 1, 2, 3]
    assert verify(records) == (4, None)


@pytest.mark.parametrize(
    ("tampering", "why"),
    [
        ("UPDATE handrail.audit_pending SET body = '{}' WHERE number = 2", "2 was changed"),
        ("DELETE FROM handrail.audit_pending WHERE number = 1", "after 0 comes 2"),
        ("DELETE FROM handrail.audit_pending WHERE number = 2", "after 1 comes 3"),
        (
            "UPDATE handrail.audit_pending SET number = 9 - number WHERE number IN (2, 3)",
            "after 1 comes 7",
        ),
        (
            "INSERT INTO handrail.audit_chained SELECT writer, number, hash, '', 0 "
            "FROM handrail.audit_pending WHERE number = 1; DELETE FROM handrail.audit_pending WHERE number = 1",
            "forged",
        ),
    ],
    ids=["edited", "first deleted", "deleted", "reordered", "forged"],
)  # fmt: skip
def test_what_is_done_to_pending_records_is_found_and_named(
    dsn, taken_log, tampering, why
):
    store, other = taken_log
    added(store, 1, 2, 3)
    for statement in tampering.split("; "):
        changed(dsn, statement)
    other.rollback()
    added(store, 4)
    count, broken = verify(store.log().result(10))
    assert broken is not None and why in broken.why
    assert count == broken.seq


def test_no_record_stays_pending_under_a_key_that_is_replaced(dsn, taken_log):
    store, other = taken_log
    added(store, 1, 2)
    other.rollback()
    store.replace_audit_key(b"the new key of the log", by="anna").result(10)
    added(store, 3)
    records = store.log().result(10)
    assert verify(records, keys=[b"the new key of the log"]) == (6, None)
    assert numbers_in(records) == [0, 1, 2, None, None, 3]


def test_a_writer_whose_records_were_chained_under_the_old_key_goes_on_under_the_new_one(
    dsn, taken_log
):
    store, other = taken_log
    added(store, 1)  # pending
    other.rollback()
    key = b"the new key of the log"
    store.replace_audit_key(key, by="anna").result(10)
    other.execute("SELECT pg_advisory_xact_lock(%s, 1024)", (postgres._LOCK,))
    added(store, 2)  # pending
    other.rollback()
    assert verify(store.log().result(10), keys=[key]) == (5, None)


@pytest.mark.parametrize("has_pended", [False, True])
def test_a_key_that_another_process_has_replaced_is_noticed_while_the_end_is_taken(
    dsn, taken_log, has_pended
):
    store, other = taken_log
    if has_pended:
        added(store, 1)
    other.rollback()
    with PostgresStore(dsn) as second:
        second.replace_audit_key(b"the new key of the log", by="anna").result(10)
    other.execute("SELECT pg_advisory_xact_lock(%s, 1024)", (postgres._LOCK,))
    with pytest.raises(StoreUnavailable, match="audit log"):
        added(store, 2)
    other.rollback()
    assert changed(dsn, "SELECT 1 FROM handrail.audit_pending") == 0


def test_who_has_another_key_is_refused_also_while_the_end_is_taken(dsn, taken_log):
    _, other = taken_log
    with PostgresStore(dsn) as stranger:
        stranger.audit_key = b"another key"
        with pytest.raises(StoreUnavailable, match="audit log"):
            added(stranger, 1)
    other.rollback()
    assert changed(dsn, "SELECT 1 FROM handrail.audit_pending") == 0


def add_until_killed(dsn, line):
    """Add records and a claim each, and say which were committed."""
    with PostgresStore(dsn) as store:
        for number in range(10_000):
            name = f"{os.getpid()}/{number}"
            claim = store.claim(replace(A_REFUND, key=name, guard=False))
            entry = store.append_audit([AuditEntry(name, "RunEnded", {})])
            try:
                assert claim.result(60).state is ClaimState.FRESH
                entry.result(60)
            except StoreUnavailable:  # the server does not say how a commit ended
                continue
            os.write(line, f"{name}\n".encode())


def test_four_writers_that_are_killed_while_the_server_crashes_lose_no_record(server):
    PostgresStore(server.dsn).close()
    reading, writing = os.pipe()
    children = []
    for _ in range(4):
        if (child := os.fork()) == 0:
            add_until_killed(server.dsn, writing)
        children.append(child)
    os.close(writing)
    committed = b""
    for count in (200, 400):
        while committed.count(b"\n") < count:
            committed += os.read(reading, 1 << 16)
        if count == 200:
            server.stop(signal.SIGQUIT)
            server.start()
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    while rest := os.read(reading, 1 << 16):
        committed += rest
    os.close(reading)
    with PostgresStore(server.dsn) as store:
        records = []
        while page := store.log(after=len(records), most=10_000).result(30):
            records += page
    assert verify(records) == (len(records), None)
    names = [record.run_id for record in records]
    assert len(set(names)) == len(names)
    whole_lines = committed.decode().rpartition("\n")[0].split("\n")
    assert set(whole_lines) <= set(names)
    of_each = {name.partition("/")[0] for name in names}
    assert len(of_each) == 4
    for child in of_each:
        mine = [
            int(name.partition("/")[2])
            for name in names
            if name.startswith(f"{child}/")
        ]
        assert mine == sorted(mine)
