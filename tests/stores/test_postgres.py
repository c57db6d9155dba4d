"""The store in Postgres: the contract, and what can befall a server."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.effects import ClaimState, Settle
from handrail.errors import ConfigError, StoreUnavailable
from handrail.records import ApprovalRequest
from tests.stores.contract import A_REFUND

psycopg = pytest.importorskip(
    "psycopg", reason="no psycopg: install handrail[postgres]"
)

from handrail.stores import maintenance, postgres  # noqa: E402
from handrail.stores.postgres import VERSION, PostgresStore  # noqa: E402
from handrail.stores.sqlite import SqliteStore  # noqa: E402
from tests.stores.durable_contract import DurableContract  # noqa: E402
from tests.stores.run_contract import RunContract  # noqa: E402
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
                "handrail.audit, handrail.locks, handrail.acts, handrail.grants, handrail.submitted"
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
    assert made == [(n + 1,) for n in range(VERSION)]


def test_the_tables_of_a_newer_handrail_are_not_touched(dsn):
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
        assert store.settle(Settle("refund", "refund:881", fence, "done", 20)).result(
            30
        )


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
            self._db.execute(statement, *rest, **named)
        self._db.close()
        raise psycopg.OperationalError("the connection is lost")

    def __getattr__(self, name):
        return getattr(self._db, name)


@pytest.mark.parametrize(
    "after", [False, True], ids=["before it was done", "after it was done"]
)
def test_what_became_of_a_commit_whose_answer_was_lost_is_asked_of_the_server(
    dsn, after
):
    with PostgresStore(dsn) as store:
        emptied(dsn)
        store.use_connection(
            lambda base: setattr(base, "_db", Cut(base._db, "COMMIT", after=after))
        )
        assert claimed(store).state is ClaimState.FRESH
        assert claimed(store).state is ClaimState.BUSY
        with psycopg.connect(dsn) as admin:
            assert admin.execute("SELECT fence FROM handrail.effects").fetchall() == [
                (1,)
            ]


class Lingering(Cut):
    """A connection that is lost here, while the server has not seen it yet."""

    closed = True

    def execute(self, statement, *rest, **named):
        if statement == self._statement:
            raise psycopg.OperationalError("the connection is lost")
        return self._db.execute(statement, *rest, **named)

    def close(self):
        pass


def test_a_server_that_still_has_the_lost_commit_under_way_is_asked_until_it_knows(
    dsn, monkeypatch
):
    with PostgresStore(dsn) as store:
        emptied(dsn)
        lost = store.use_connection(lambda base: base._db)
        store.use_connection(
            lambda base: setattr(base, "_db", Lingering(lost, "COMMIT", after=False))
        )
        # it sees it while we wait
        monkeypatch.setattr(postgres.time, "sleep", lambda _: lost.close())
        assert claimed(store).state is ClaimState.FRESH
        assert lost.closed


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


# -- maintenance ------------------------------------------------------------------------------------------------------


def test_what_lay_in_a_file_is_known_on_the_server_after_a_copy(dsn, tmp_path):
    PostgresStore(dsn).close()
    emptied(dsn)
    odd = "\0\ud800 退款"
    with SqliteStore(tmp_path / "x.db") as old, PostgresStore(dsn) as new:
        fence = claimed(old, key=odd).fence
        assert old.settle(Settle("refund", odd, fence, "done", odd)).result(10)
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


def test_a_server_is_counted_and_vacuumed_as_a_file_is(dsn):
    with PostgresStore(dsn) as store:
        emptied(dsn)
        for number, state in enumerate(["done", "failed", "in_doubt"]):
            fence = claimed(store, key=f"{number}").fence
            assert store.settle(Settle("refund", f"{number}", fence, state)).result(10)
        found = maintenance.count_contents(store)
        assert (found.version, found.writes) == (
            VERSION,
            {"done": 1, "failed": 1, "in_doubt": 1},
        )
        assert found.size_bytes > 0
        assert maintenance.delete_old(store, older_than_s=3600)["effects"] == 0
        assert maintenance.delete_old(store, older_than_s=-3600)["effects"] == 2
        assert claimed(store, key="2").state is ClaimState.IN_DOUBT


def test_a_place_where_no_store_is_stays_without_one_unless_it_is_wanted(server):
    with pytest.raises(ConfigError, match="there is no store"):
        PostgresStore(server.dsn, create=False)
