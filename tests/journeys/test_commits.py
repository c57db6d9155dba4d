"""What is on the disk when, and what is left where a process, its store or its machine ends between two commits.

A write turn waits for one commit, that of its claims with the answer that asked for them; results, settlements and the
log follow while the model is asked again.
"""

import asyncio
import os
import shutil
import signal
import sqlite3
from contextlib import closing, suppress

import pytest

import handrail as hr
from handrail.errors import Code, HandrailError, StoreUnavailable
from handrail.stores import durable, sql_runs
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.effort import IS_LONG

RUN = "r_commits"
SCRIPT = [
    [call("look"), call("pay", order="a"), call("pay", order="b")],
    [call("look")],
    call("pay", order="c"),
    "Paid.",
]


class World:
    """What the payments have done: a line in a file for each, which outlives the process."""

    def __init__(self, place):
        self.path = place / "paid"
        self.path.touch()
        self.look_around = lambda order: None

    def tools(self):
        @hr.tool(effect="read", timeout_s=20)
        async def look() -> str:
            """Look."""
            return "seen"

        @hr.tool(effect="write", timeout_s=20)
        async def pay(order: str) -> str:
            """Pay an order."""
            self.look_around(order)
            with self.path.open("a") as file:
                file.write(f"{order}\n")
            await asyncio.sleep(0)
            return f"paid {order}"

        return [look, pay]

    @property
    def paid(self):
        return self.path.read_text().split()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def start(world, store):
    return asyncio.run(
        hr.Runtime(world.tools(), store=store).run(
            "Pay.", model=ScriptedModel(SCRIPT), run_id=RUN
        )
    )


def go_on(world, store):
    """Go on with the run as another process would, or begin it where nothing of it is there."""
    runtime = hr.Runtime(world.tools(), store=store)
    if store.load_run(RUN).result(10) is None:
        return start(world, store)
    return asyncio.run(runtime.resume(RUN, model=ScriptedModel(SCRIPT)))


def assert_nothing_twice_and_the_truth(world, store, run):
    """Each payment was made at most once; one that is not known to be made is in doubt, and the model was told so."""
    assert sorted(set(world.paid)) == sorted(world.paid)
    states = {
        write.key: write.state for write in store.list_writes(run_id=RUN).result(10)
    }
    results = {}
    for message in run.messages:
        if isinstance(message, hr.ToolMessage) and message.result.name == "pay":
            results[len(results)] = message.result
    orders = dict(enumerate("abc"))
    assert len(results) == len(orders), run
    for position, result in results.items():
        made = orders[position] in world.paid
        if result.ok:
            assert made
        else:
            assert result.failure.code == Code.IN_DOUBT
    doubtful = sum(not result.ok for result in results.values())
    assert sum(state == "in_doubt" for state in states.values()) == doubtful
    assert sum(state == "done" for state in states.values()) == len(orders) - doubtful


def count_commits(store):
    """Count the commits of a store from now on."""
    commits = []
    connection = store._writer._connection
    commit = connection.commit
    connection.commit = lambda: (commit(), commits.append(1))[0]
    return commits


class Dead(StoreUnavailable):
    """The store has died."""


def let_die(store, nth, when):
    """Let a store die before or after its n-th commit."""
    connection = store._writer._connection
    commit, begin = connection.commit, connection.begin
    left = [nth]

    def die(*_):
        raise Dead("the store has died")

    def commit_or_die():
        left[0] -= 1
        if left[0] == 0:
            connection.begin = die
            if when == "after":
                commit()
            die()
        commit()

    connection.commit = commit_or_die
    connection.begin = begin


def test_no_payment_starts_before_its_claim_and_the_answer_that_asked_for_it_are_committed(
    world, tmp_path
):
    file = tmp_path / "store.db"
    found = {}

    def look_into_the_file(order):
        with closing(sqlite3.connect(file)) as other:
            steps = [body for (body,) in other.execute("SELECT body FROM steps")]
            found[order] = (
                any(f'\\"order\\": \\"{order}\\"' in body for body in steps),
                other.execute("SELECT count(*) FROM effects").fetchone()[0],
                [
                    state
                    for (state,) in other.execute(
                        "SELECT state FROM effects ORDER BY number"
                    )
                ][:2],
            )

    world.look_around = look_into_the_file
    with SqliteStore(file) as store:
        assert start(world, store).ok
    # of two claims of one turn both are there before either starts; both are settled before the next is claimed
    assert found["a"][:2] == found["b"][:2] == (True, 2)
    assert found["c"] == (True, 3, ["done", "done"])


def test_a_store_that_dies_before_or_after_any_commit_costs_no_second_payment(
    world, tmp_path
):
    with SqliteStore(tmp_path / "whole.db") as store:
        commits = count_commits(store)
        assert start(world, store).ok
    assert len(commits) > 6
    for nth in range(1, len(commits) + 1):
        for when in ("before", "after"):
            place = tmp_path / f"{when}-{nth}"
            place.mkdir()
            there = World(place)
            with SqliteStore(place / "store.db") as store:
                let_die(store, nth, when)
                with suppress(HandrailError):
                    start(there, store)
            with SqliteStore(place / "store.db") as store:
                run = go_on(there, store)
                assert_nothing_twice_and_the_truth(there, store, run)


def start_and_be_killed(world, file, nth):
    """Fork a process that carries the run out and is killed as soon as its n-th commit is made."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return status
    try:
        with SqliteStore(file) as store:
            connection = store._writer._connection
            commit = connection.commit
            left = [nth]

            def commit_and_die():
                commit()
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            connection.commit = commit_and_die
            start(world, store)
    finally:
        os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("nth", range(1, 13) if IS_LONG else (2, 3, 4, 6))
def test_a_process_that_is_killed_after_any_commit_costs_no_second_payment(
    world, tmp_path, nth
):
    file = tmp_path / "store.db"
    SqliteStore(file).close()
    start_and_be_killed(world, file, nth)
    with SqliteStore(file) as store:
        assert_nothing_twice_and_the_truth(world, store, go_on(world, store))


def test_a_power_cut_at_any_moment_loses_no_claim_of_a_payment_that_was_started(
    world, tmp_path
):
    """The file of the log is cut to what was flushed by the last commit, the rest of it being lost with the power."""
    file = tmp_path / "store.db"
    cuts = []
    with SqliteStore(file) as store:
        connection = store._writer._connection
        commit = connection.commit
        log = file.with_name(f"{file.name}-wal")

        def cut_power(reason):
            number = len(cuts)
            place = tmp_path / f"cut-{number}-{reason}"
            place.mkdir()
            shutil.copy(file, place / "store.db")
            flushed = log.read_bytes()[: sizes[-1]]
            (place / "store.db-wal").write_bytes(flushed)
            shutil.copy(world.path, place / "paid")
            cuts.append(place)

        def commit_and_note():
            commit()
            sizes.append(log.stat().st_size)
            cut_power("commit")

        sizes = [log.stat().st_size]
        connection.commit = commit_and_note
        world.look_around = lambda order: cut_power(f"before-{order}")
        assert start(world, store).ok
    assert len(cuts) > 8
    for place in cuts:
        there = World(place)
        if "before" in place.name:  # the payment that was about to start has started
            with there.path.open("a") as paid:
                paid.write(f"{place.name[-1]}\n")
        with SqliteStore(place / "store.db") as store:
            assert_nothing_twice_and_the_truth(there, store, go_on(there, store))


def test_what_was_sent_by_a_run_that_was_taken_over_claims_nothing(world, tmp_path):
    """A process that was frozen sends its answer and its claims in one go; somebody else has the run by then."""
    with SqliteStore(tmp_path / "store.db") as store:
        taken = []

        def take_over(order):
            if not taken:
                taken.append(order)
                record = store.load_run(RUN).result(10).record
                store.begin_run(record).result(10)

        world.look_around = take_over
        run = start(world, store)
        assert run.status == "moved"
        assert sorted(world.paid) == ["a", "b"]
        keys = [write.key for write in store.list_writes(run_id=RUN).result(10)]
        assert len(keys) == 2


@pytest.mark.parametrize("payments", [1, 4])
def test_a_turn_with_writes_makes_two_commits(world, tmp_path, monkeypatch, payments):
    """One before its effects, one after: settlements, records and results are held back for one another."""
    monkeypatch.setattr(durable, "GATHER_S", 60.0)
    monkeypatch.setattr(sql_runs, "GATHER_S", 60.0)
    turns = [
        [call("pay", order=f"{turn}/{number}") for number in range(payments)]
        for turn in range(5)
    ]
    with SqliteStore(tmp_path / "store.db") as store:
        commits = count_commits(store)
        runtime = hr.Runtime(world.tools(), store=store)
        model = ScriptedModel([*turns, "Paid."])
        assert asyncio.run(runtime.run("Pay.", model=model)).ok
        begun_and_ended = 2
        assert len(commits) == begun_and_ended + 2 * len(turns)


def test_the_records_of_a_turn_are_one_row_with_one_hash_and_a_number_each(
    world, tmp_path
):
    from handrail.audit.chain import verify

    file = tmp_path / "store.db"
    with SqliteStore(file) as store:
        assert start(world, store).ok
        records = store.log(most=1000).result(10)
        assert [each.seq for each in records] == list(range(1, len(records) + 1))
        events = [each.event for each in records]
        assert events[:2] == ["RunStarted", "ModelAnswered"]
        assert events.count("CallAdmitted") == events.count("CallFinished") - 2 == 3
        assert verify(records) == (len(records), None)
        # page by page, wherever a page ends
        paged = []
        while page := store.log(after=len(paged), most=2).result(10):
            paged += page
        assert paged == list(records)
    with closing(sqlite3.connect(file)) as other, other:
        [rows] = other.execute("SELECT count(*) FROM audit").fetchone()
        assert rows < len(records)
        seq, body = other.execute(
            "SELECT seq, body FROM audit WHERE event = 'Records' ORDER BY seq LIMIT 1"
        ).fetchone()
        changed = body.replace('"turn":1', '"turn":9')
        assert changed != body
        other.execute("UPDATE audit SET body = ? WHERE seq = ?", (changed, seq))
    with SqliteStore(file) as store:
        intact, broken = verify(store.log(most=1000).result(10))
        assert (intact, broken.seq) == (1, 2)
        assert f"records 2 to {seq}" in broken.why
