"""Rates and breakers, in memory and for all processes of a store."""

import pytest

import handrail as hr
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ManualClock
from handrail.tools.shared_limits import LOOK_S
from tests.stores.limit_contract import (
    SharedLimitContract,
    TestLimitsInMemory,  # noqa: F401
    settled,
)

psycopg = pytest.importorskip(
    "psycopg", reason="no psycopg: install handrail[postgres]"
)

from handrail.stores.postgres import PostgresStore  # noqa: E402
from tests.dispatch.on_postgres import dsn  # noqa: E402, F401


class TestLimitsOnSqlite(SharedLimitContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path):
        self.file = tmp_path / "runs.db"

    def open(self):
        return SqliteStore(self.file)

    def place(self):
        return f"sqlite:///{self.file}"

    def test_calls_of_two_runtimes_stay_within_a_rate(self):
        @hr.tool(
            effect="write",
            limits=hr.Limits(rate="3/h"),
            timeout_s=5,
            write=hr.Write(repeatable=True),
        )
        def remind(user: str) -> str:
            """Remind somebody."""
            return user

        with (
            hr.SyncRuntime([remind], store=self.place()) as a,
            hr.SyncRuntime([remind], store=self.place()) as b,
        ):
            results = [each.call("remind", {"user": "ann"}) for each in (a, b, a, b)]
        assert [each.ok for each in results] == [True, True, True, False]
        assert results[3].failure.code == "RATE_LIMITED"

    def test_a_service_that_one_runtime_cannot_reach_is_left_alone_by_the_other(self):
        asked = []

        @hr.tool(effect="read", limits=hr.Limits(max_attempts=1, breaker=2))
        def ask() -> str:
            """Ask the service."""
            asked.append(1)
            raise ConnectionRefusedError("no")

        clock = ManualClock(100.0)
        with (
            hr.SyncRuntime([ask], store=self.place(), now=clock) as a,
            hr.SyncRuntime([ask], store=self.place(), now=clock) as b,
        ):
            for each in (a, b):
                assert each.call("ask").failure.code == "UNAVAILABLE"
                settled(each.store)
            clock.advance(LOOK_S)
            assert b.call("ask").failure.message.startswith("`ask` could not reach")
            a.call(
                "ask"
            )  # it has a look beside it, since it has not heard of the other's failure
            settled(a.store)
            assert a.call("ask").failure.message.startswith("`ask` could not reach")
        assert len(asked) <= 3


@pytest.mark.server
class TestLimitsOnPostgres(SharedLimitContract):
    @pytest.fixture(autouse=True)
    def _server(self, dsn):
        self.dsn = dsn
        with PostgresStore(dsn) as store:
            store.use_connection(
                lambda database: database.run("TRUNCATE rates, breakers")
            )

    def open(self):
        return PostgresStore(self.dsn)

    def place(self):
        return f"postgres:{self.dsn.removeprefix('postgresql:')}"
