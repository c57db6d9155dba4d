"""The dispatcher of our own on SQLite."""

import asyncio
import re
import sqlite3
from contextlib import closing

import pytest

from handrail.dispatch import table_dispatcher
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.lease import _SQL, LeaseDispatcher
from handrail.dispatch.port import Segment
from handrail.errors import ConfigError
from handrail.stores.memory import MemoryStore
from handrail.stores.sqlite import SqliteStore
from tests.dispatch.contract import DispatcherContract
from tests.dispatch.workers import PATIENCE_S, PROMPT, Worker, until


class TestLeaseOnSqlite(DispatcherContract):
    kind = "lease"

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def place(self):
        return f"sqlite:///{self.folder}/runs.db"

    def make(self, store, timing=PROMPT):
        return LeaseDispatcher(store, timing=timing)

    def test_a_worker_ends_though_its_database_hangs(self, dispatchers, monkeypatch):
        monkeypatch.setattr(table_dispatcher, "_CANCEL_S", 0.1)
        monkeypatch.setattr(table_dispatcher, "_LEAVE_S", 0.1)

        async def scenario():
            worker = Worker(dispatchers())
            worker.gate.clear()
            worker.dispatcher.enqueue(Segment("r")).result(PATIENCE_S)
            shift = asyncio.ensure_future(
                worker.dispatcher.work(worker.perform, concurrency=1)
            )
            await until(lambda: worker.running)
            hanging.execute("BEGIN IMMEDIATE")
            await worker.dispatcher.stop(grace_s=0.0)
            await shift
            hanging.rollback()

        with closing(sqlite3.connect(self.folder / "runs.db")) as hanging:
            asyncio.run(scenario())


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("enqueue", ("r", 1, "q", "s", 0, "[]", 0.0)),
        ("claim_sqlite", ("w", "q", "[]")),
        ("waiting_queues", ()),
        ("held", ("w",)),
        ("finish", (1, "w", 1)),
        ("release", (0.0, 1, "w", 1)),
        ("dead", (0.0,)),
        ("requeue_dead", (0.0, 0.0)),
    ],
)
def test_no_statement_reads_or_sorts_all_that_waits(tmp_path, statement, values):
    with SqliteStore(tmp_path / "runs.db"):
        database = sqlite3.connect(tmp_path / "runs.db")
        explained = database.execute(f"EXPLAIN QUERY PLAN {_SQL[statement]}", values)
        steps = [step for *_, step in explained]
        database.close()
    looks = [
        step for step in steps if re.match("(SCAN|SEARCH) (s|o|segments)\\b", step)
    ]
    assert looks
    allowed = r"SCAN (s|segments) USING INDEX segments_held"  # those that are performed
    assert all(look.startswith("SEARCH") or re.match(allowed, look) for look in looks)
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps


def test_a_store_in_memory_has_no_dispatcher():
    with pytest.raises(ConfigError, match="segments need a durable store"):
        open_dispatcher(MemoryStore())
    with pytest.raises(ConfigError, match="segments need a durable store"):
        LeaseDispatcher(MemoryStore())
