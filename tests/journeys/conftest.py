"""Stores that survive, for journeys through several processes."""

import os

import pytest


@pytest.fixture(scope="session")
def postgres():
    """The name of a store in Postgres: a server of our own, or the one that is named."""
    pytest.importorskip("psycopg", reason="no psycopg: install handrail[postgres]")
    if given := os.environ.get("HANDRAIL_TEST_POSTGRES"):
        yield given
        return
    from tests.stores.servers import started

    server = started()
    yield server.dsn
    server.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    """The name of a store that survives. One in Postgres is shared: every test has run ids of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/crash.db"
    return request.getfixturevalue("postgres")
