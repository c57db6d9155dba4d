"""The one worker process of a SQLite file."""

import asyncio
import re
import sqlite3
from contextlib import closing

import pytest

from handrail.dispatch import file_worker, shift
from handrail.dispatch.choice import open_dispatcher
from handrail.errors import ConfigError
from handrail.stores.memory import MemoryStore
from handrail.stores.sql_values import statements
from handrail.stores.sqlite import SqliteStore
from tests.dispatch.contract import WorkerContract
from tests.dispatch.workers import count_segments, enqueue, until


class TestFileWorker(WorkerContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def place(self):
        return f"sqlite:///{self.folder}/runs.db"

    def test_a_second_worker_stands_by_until_the_first_one_dies(
        self, store, workers, others
    ):
        async def scenario():
            first = others()
            enqueue(store, "a")
            await until(first.said)
            worker = workers()
            async with worker.at_work():
                await until(worker.dispatcher.why_waiting)
                assert f":{first.process.pid}" in worker.dispatcher.why_waiting()
                enqueue(store, "b")
                await until(lambda: "began b 1" in first.said())
                assert worker.started == []
                first.kill()
                await until(lambda: len(worker.finished) == 2)
                assert worker.dispatcher.why_waiting() == ""

        asyncio.run(scenario())

    def test_a_frozen_worker_keeps_the_file_and_loses_nothing(
        self, store, workers, others
    ):
        async def scenario():
            frozen = others()
            enqueue(store, "r")
            await until(frozen.said)
            frozen.freeze()
            worker = workers()
            async with worker.at_work():
                await until(worker.dispatcher.why_waiting)
                frozen.let_go()
                frozen.thaw()
                await until(lambda: "ended r" in frozen.said())
                await until(lambda: count_segments(store) == (0, 0))
            assert worker.started == []
            assert frozen.said() == ["began r 1", "ended r"]

        asyncio.run(scenario())

    def test_the_workers_of_one_process_stand_by_for_each_other(self, store, workers):
        async def scenario():
            first, second = workers(), workers()
            async with second.at_work():
                async with first.at_work():
                    await until(
                        lambda: "of this process" in first.dispatcher.why_waiting()
                    )
                enqueue(store, "r")
                await until(lambda: second.finished)

        asyncio.run(scenario())

    def test_a_claim_whose_answer_is_lost_is_made_again(
        self, store, workers, monkeypatch
    ):
        async def scenario():
            worker = workers()
            claim = worker.dispatcher._claim

            async def lose_answer(*given):
                monkeypatch.undo()
                await claim(*given)
                raise file_worker.StoreUnavailable("the answer is lost")

            enqueue(store, "r")
            monkeypatch.setattr(worker.dispatcher, "_claim", lose_answer)
            async with worker.at_work():
                await until(lambda: worker.finished)
            assert worker.attempts == [2]

        asyncio.run(scenario())

    def test_a_worker_ends_though_its_database_hangs(self, store, workers, monkeypatch):
        monkeypatch.setattr(shift, "CANCEL_S", 0.1)
        monkeypatch.setattr(shift, "LEAVE_S", 0.1)

        async def scenario():
            worker = workers()
            worker.gate.clear()
            enqueue(store, "r")
            async with worker.at_work(grace_s=0.0):
                await until(lambda: worker.running)
                hanging.execute("BEGIN IMMEDIATE")
            hanging.rollback()

        with closing(sqlite3.connect(self.folder / "runs.db")) as hanging:
            asyncio.run(scenario())


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (statements("sqlite.sql")["enqueue"], ("r", 1, "q", "s")),
        (file_worker._SQL["claim"], (0.0, "[]", '["q"]', '["q"]')),
        (file_worker._SQL["finish"], ("r", 1)),
        (file_worker._SQL["release"], (0.0, "r", 1)),
        (file_worker._SQL["release_unheld"], ("[]",)),
    ],
    ids=["enqueue", "claim", "finish", "release", "release_unheld"],
)
def test_no_statement_reads_or_sorts_all_that_waits(tmp_path, statement, values):
    with (
        SqliteStore(tmp_path / "runs.db"),
        closing(sqlite3.connect(tmp_path / "runs.db")) as database,
    ):
        explained = database.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        steps = [step for *_, step in explained]
    looks = [step for step in steps if re.match("(SCAN|SEARCH) (s|segments)\\b", step)]
    # the claim and the turn that comes next read the first rows of an index in its order
    allowed = r"SEARCH|SCAN (s|segments) USING (COVERING )?INDEX segments_(turn|begun)$"
    assert all(re.match(allowed, look) for look in looks), steps
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps


def test_a_store_in_memory_has_no_workers():
    with pytest.raises(ConfigError, match="segments need a durable store"):
        open_dispatcher(MemoryStore())
