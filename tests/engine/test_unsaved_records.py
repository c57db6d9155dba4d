"""What could not be recorded, in a process that lives: it is recorded once the store answers, and known until then."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.effects import Claim, ClaimState, Settle
from handrail.engine import unsaved_records
from handrail.engine.unsaved_records import UnsavedRecords
from handrail.errors import StoreUnavailable
from handrail.events import LateResult
from handrail.futures import result_now
from handrail.records import JournalEntry, JournalStep, RunRecord
from handrail.stores.memory import MemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.drivers import KINDS, Driver, Gate, until

CLAIM = Claim("", "refund:881", b"fp", "r_1", "none", 600.0)


class ShakyStore(SqliteStore):
    """A store in a file that takes nothing of how calls end while it is `away`."""

    away = False

    def settle(self, settle):
        self._check()
        return super().settle(settle)

    def append_entry(self, entry):
        if entry.status is not None or any(step.kind == "call" for step in entry.steps):
            self._check()
        return super().append_entry(entry)

    def _check(self):
        if self.away:
            raise StoreUnavailable("the disk is full")


class World:
    """A ticket desk, which may be asked whether it has a ticket."""

    def __init__(self, replay, store=None):
        self.tickets, self.store = [], store
        how = (
            {"verify": self.found}
            if replay == "verify"
            else {"replay": "key"}
            if replay == "key"
            else {}
        )
        self.tools = [
            hr.FunctionTool(
                self.ticket,
                effect="write",
                key="t:{title}",
                timeout_s=1,
                blocking=False,
                **how,
            )
        ]

    def ticket(self, title: str) -> str:
        """Open a ticket."""
        self.tickets.append(title)
        if self.store is not None:
            self.store.away = True
        return f"opened {title}"

    def found(self, arguments, context):
        return (
            hr.Found("verified")
            if arguments["title"] in self.tickets
            else hr.NotFound()
        )


@pytest.fixture
def store(tmp_path):
    with ShakyStore(tmp_path / "store.db") as store:
        yield store


@contextmanager
def driven(kind, tools, store, **how):
    driver = Driver(kind, tools, {"store": store, **how})
    try:
        yield driver
    finally:
        driver.close()


def stands(store, run_id):
    return result_now(store.load_run(run_id)).record.status


SCRIPT = [call("ticket", title="a"), "Done."]


@pytest.mark.parametrize("replay", ["none", "verify", "key"])
@pytest.mark.parametrize("kind", KINDS)
def test_who_asks_again_gets_the_result_that_could_not_be_recorded(kind, replay, store):
    world = World(replay, store)
    with driven(kind, world.tools, store) as driver:
        first = driver.call("ticket", {"title": "a"})
        again = driver.call("ticket", {"title": "a"})
        assert store.away
    assert (first.value, again.value, again.replayed) == ("opened a", "opened a", True)
    assert world.tickets == ["a"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_could_not_be_recorded_is_recorded_once_the_store_answers(kind, store):
    world = World("none", store)
    with driven(kind, world.tools, store) as driver:
        driver.call("ticket", {"title": "a"})
        assert result_now(store.list_writes())[0].state == "claimed"
        store.away = False
        until(
            lambda: result_now(store.list_writes())[0].state == "done",
            "it was recorded",
        )
    assert result_now(store.list_writes())[0].value == "opened a"
    assert driver.told(LateResult) == []


@pytest.mark.parametrize("replay", ["none", "verify", "key"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_has_the_result_that_could_not_be_recorded(kind, replay, store):
    world = World(replay, store)
    with driven(kind, world.tools, store) as driver:
        run = driver.run("Go.", model=ScriptedModel(SCRIPT), run_id="r_1")
        assert (run.status, "the disk is full" in run.reason) == ("failed", True)
        store.away = False
        run = driver.start("resume", "r_1", model=ScriptedModel(SCRIPT)).result(20)
    assert run.ok
    [result] = [
        message.result
        for message in run.messages
        if isinstance(message, hr.ToolMessage)
    ]
    assert result.value == "opened a"
    assert world.tickets == ["a"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_whose_store_was_away_for_a_moment_is_left_for_anybody_with_all_that_happened(
    kind, store
):
    world = World("none", store)
    with driven(kind, world.tools, store) as driver:
        assert (
            driver.run("Go.", model=ScriptedModel(SCRIPT), run_id="r_1").status
            == "failed"
        )
        store.away = False
        until(lambda: stands(store, "r_1") == "queued", "the run was left")
        assert [step.key for step in result_now(store.load_run("r_1")).steps] == [
            "1.m",
            "1.0",
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_run_that_could_not_be_recorded_is_recorded_once_the_store_answers(
    kind, store
):
    class Away(ScriptedModel):
        async def ask(self, request, listener=None):
            store.away = True
            return await super().ask(request, listener)

    with driven(kind, [], store) as driver:
        assert driver.run("Go.", model=Away(["Done."]), run_id="r_1").status == "failed"
        assert stands(store, "r_1") == "running"
        store.away = False
        until(lambda: stands(store, "r_1") == "done", "its end was recorded")
    assert result_now(store.load_run("r_1")).record.result["text"] == "Done."


def test_a_run_whose_task_was_cancelled_is_left_for_anybody(store):
    """As when the client of a web server hangs up: the process lives on, and with it its name on the run."""

    async def hung_up():
        asked = asyncio.Event()

        class Slow(ScriptedModel):
            async def ask(self, request, listener=None):
                if len(request.messages) > 1:
                    asked.set()
                    await asyncio.Event().wait()
                return await super().ask(request, listener)

        async with hr.Runtime(world.tools, store=store) as runtime:
            task = asyncio.ensure_future(
                runtime.run("Go.", model=Slow(SCRIPT), run_id="r_1")
            )
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert stands(store, "r_1") == "queued"
            return await runtime.resume("r_1", model=ScriptedModel(SCRIPT))

    world = World("none")
    run = asyncio.run(hung_up())
    assert (run.ok, world.tickets, stands(store, "r_1")) == (True, ["a"], "done")


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_end_that_could_not_be_recorded_is_recorded_once_the_store_answers(
    kind, store
):
    gate = Gate()

    def ticket(title: str) -> str:
        """Open a ticket, late."""
        gate.pass_through()
        store.away = True
        return f"opened {title}"

    tool = hr.FunctionTool(ticket, effect="write", key="{title}", timeout_s=0.05)
    with driven(kind, [tool], store) as driver:
        assert driver.call("ticket", {"title": "a"}).failure.code == "IN_DOUBT"
        assert result_now(store.list_writes())[0].state == "in_doubt"
        gate.open()
        until(lambda: len(driver.runtime._engine.unsaved), "it has ended")
        store.away = False
        until(
            lambda: result_now(store.list_writes())[0].state == "done",
            "it was recorded",
        )


# -- what is kept, by itself ------------------------------------------------------------------------------------------


class Silent(MemoryStore):
    """A store that answers no settlement while it is `silent`."""

    silent = True

    def settle(self, settle):
        if self.silent:
            raise StoreUnavailable("away")
        return super().settle(settle)


def hold_in(store, state="done", value="first", refused=lambda: None):
    """Return what holds the end of a write that this store has not taken."""
    unsaved = UnsavedRecords(store, None)
    assert unsaved.claim(CLAIM).state is ClaimState.FRESH
    unsaved.settle(Settle("", "refund:881", 1, state, value), CLAIM, refused)
    return unsaved


@pytest.mark.parametrize(("claim", "state", "repeated"), [
    (CLAIM, ClaimState.DONE, False),
    (replace(CLAIM, run_id="another"), ClaimState.DONE, False),
    # the same act in one run
    (replace(CLAIM, key="another"), ClaimState.DONE, True),
    (replace(CLAIM, key="another", run_id="another"), ClaimState.FRESH, False),
    (replace(CLAIM, key="another", guard=False), ClaimState.FRESH, False),
    (replace(CLAIM, key="another", fingerprint=b"another"), ClaimState.FRESH, False),
    (replace(CLAIM, scope="another"), ClaimState.FRESH, False),
    (replace(CLAIM, fingerprint=b"another"), ClaimState.CONFLICT, False),
])  # fmt: skip
def test_a_claim_is_answered_with_the_end_that_is_known_here(claim, state, repeated):
    unsaved = hold_in(Silent())
    claimed = unsaved.claim(claim)
    assert (claimed.state, claimed.repeated) == (state, repeated)
    unsaved.close()


def test_a_write_that_certainly_did_not_happen_is_free_as_soon_as_the_store_answers():
    store = Silent()
    unsaved = hold_in(store, "failed", None)
    assert unsaved.claim(CLAIM).state is ClaimState.BUSY
    store.silent = False
    assert unsaved.claim(CLAIM).state is ClaimState.FRESH
    unsaved.close()


def test_closing_offers_once_more_what_is_kept():
    store = Silent()
    unsaved = hold_in(store)
    store.silent = False
    unsaved.close()
    assert store.claim(CLAIM).value == "first"


def test_of_a_write_that_somebody_has_taken_over_it_is_told_that_its_end_was_refused(
    store,
):
    told = []
    store.away = True
    unsaved = UnsavedRecords(store, store)
    claim = replace(CLAIM, replay="key", lease_s=-1.0)
    assert result_now(unsaved.claim(claim)).fence == 1
    unsaved.settle(
        Settle("", "refund:881", 1, "done", "first"),
        claim,
        lambda: told.append("refused"),
    )
    assert result_now(store.claim(claim)).fence == 2  # another process
    store.away = False
    until(lambda: told, "it was told")
    assert result_now(store.load_write("", "refund:881")).state == "claimed"
    unsaved.close()


def test_what_is_kept_of_a_run_that_goes_on_elsewhere_is_dropped(store):
    result_now(store.begin_run(RunRecord("r_1", {})))
    store.away = True
    unsaved = UnsavedRecords(store, store)
    unsaved.enter(JournalEntry("r_1", 1, [JournalStep("1.0", "call", {})], "queued"))
    result_now(store.begin_run(RunRecord("r_1", {})))
    store.away = False
    until(lambda: not unsaved, "it was dropped")
    assert (stands(store, "r_1"), result_now(store.load_run("r_1")).steps) == (
        "running",
        (),
    )


# that is what is tested
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_keeps_nothing_of_its_parent():
    unsaved = hold_in(Silent())
    if (child := os.fork()) == 0:
        os._exit(len(unsaved))
    assert os.waitpid(child, 0)[1] == 0
    assert len(unsaved) == 1
    unsaved.close()


def test_only_so_much_is_kept(monkeypatch):
    monkeypatch.setattr("handrail.engine.unsaved_records.MOST_UNSAVED", 3)
    unsaved = UnsavedRecords(Silent(), None)
    for fence in range(5):
        unsaved.settle(
            Settle("", "refund:881", fence, "done", fence), CLAIM, lambda: None
        )
    assert len(unsaved) == 3
    unsaved.close()


def test_a_record_waits_for_the_next_one_where_no_thread_can_be_started(
    store, monkeypatch
):
    world = World("none", store)

    def refuse(_records):
        raise RuntimeError("can't start new thread")

    with driven("sync", world.tools, store) as driver:
        with monkeypatch.context() as patched:
            patched.setattr(unsaved_records, "spawn", refuse)
            assert driver.call("ticket", {"title": "a"}).value == "opened a"
        assert driver.call("ticket", {"title": "b"}).value == "opened b"
        store.away = False
        until(
            lambda: {each.state for each in result_now(store.list_writes())} == {"done"}
        )
