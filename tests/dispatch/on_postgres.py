"""A Postgres for the tests of dispatchers, emptied for each."""

import os

import pytest

psycopg = pytest.importorskip("psycopg")

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
    name = f"handrail_dispatch_{os.getpid()}"
    with psycopg.connect(given, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield psycopg.conninfo.make_conninfo(given, dbname=name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def emptied(dsn: str) -> None:
    """Delete every segment and every worker."""
    tables = ("procrastinate_jobs", "procrastinate_workers")
    with psycopg.connect(dsn, autocommit=True) as admin:
        for name in tables:
            table = f"handrail_jobs.{name}"
            if admin.execute("SELECT to_regclass(%s)", (table,)).fetchone() != (None,):
                admin.execute(f"TRUNCATE {table} CASCADE")


def end_connections(dsn: str) -> int:
    """End every connection of ours to the server; return how many."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        ended = admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = 'handrail' AND pid <> pg_backend_pid()"
        ).fetchone()
    return ended[0]
