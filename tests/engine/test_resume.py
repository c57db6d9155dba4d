"""Runs that outlive their driver: interrupted anywhere, gone on with by another one on the same store.

The store is in memory, so that a test can stop a driver between any two of its steps by raising there; what a process
that is killed does to a store on a disk stands in `tests/journeys/test_crashes.py`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
import weakref

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.errors import (
    ConfigError,
    Fenced,
    JournalMismatch,
    RunNameTaken,
    StoreUnavailable,
)
from handrail.events import CallFinished
from handrail.futures import result_now
from handrail.process_identity import owner
from handrail.records import JournalEntry, RunRecord
from handrail.stores.memory import MemoryStore
from handrail.stores.memory_runs import FullMemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.drivers import BOUND_S, KINDS


class Died(BaseException):
    """What a killed process does not have time to handle."""


class MortalStore(FullMemoryStore):
    """Keeps runs in memory, and dies before or after its n-th answer, when told to."""

    def __init__(self):
        self.later_s = 0.0  # how much later it is by its clock
        super().__init__(now=lambda: time.monotonic() + self.later_s)
        self.count, self.dies_at, self.after = 0, None, False
        self.asked = []

    def _step(self, name, work):
        self.count += 1
        self.asked.append(name)
        dies = self.dies_at == self.count
        if dies and not self.after:
            raise Died(name)
        answer = work()
        if dies:
            raise Died(name)
        return answer

    def claim(self, claim):
        return self._step("claim", lambda: super(MortalStore, self).claim(claim))

    def settle(self, settle):
        return self._step("settle", lambda: super(MortalStore, self).settle(settle))

    def begin_run(self, record, **how):
        return self._step(
            "begin", lambda: super(MortalStore, self).begin_run(record, **how)
        )

    def append_entry(self, entry):
        return self._step(
            "append_entry", lambda: super(MortalStore, self).append_entry(entry)
        )


class World:
    """What the tools change, and how often they did."""

    def __init__(self):
        self.tickets, self.looks = [], []
        self.tools = [
            hr.FunctionTool(self.look, effect="read", blocking=False),
            hr.FunctionTool(
                self.create_ticket, effect="write", replay="key", blocking=False
            ),
            hr.FunctionTool(
                self.refund,
                effect="write",
                replay="key",
                approve="amount > 100",
                blocking=False,
            ),
        ]

    def look(self, city: str) -> str:
        """Look at the weather of a city."""
        self.looks.append(city)
        return f"fine in {city}"

    def create_ticket(self, title: str, context: hr.Context[None]) -> dict:
        """Create a ticket. The far side knows a key again."""
        if context.idempotency_key not in [key for key, _ in self.tickets]:
            self.tickets.append((context.idempotency_key, title))
        return {"ticket": len(self.tickets)}

    def refund(self, order: str, amount: float) -> dict:
        """Refund an order."""
        self.tickets.append((order, amount))
        return {"refunded": amount}


SCRIPT = [
    [call("look", city="Bern"), call("create_ticket", title="slow")],
    [call("create_ticket", title="slower"), call("look", city="Köln")],
    "Two tickets.",
]


@pytest.fixture(params=KINDS)
def on(request):
    """A function that opens a driver on a store, runs a verb, and closes it."""

    def drive(store, tools, verb, *args, **how):
        made = how.pop("made", {})
        if request.param == "sync":
            with hr.SyncRuntime(tools, store=store, **made) as runtime:
                return getattr(runtime, verb)(*args, **how)

        async def main():
            async with hr.Runtime(tools, store=store, **made) as runtime:
                return await asyncio.wait_for(
                    getattr(runtime, verb)(*args, **how), BOUND_S
                )

        return asyncio.run(main())

    return drive


def begin(on, store, world, model=None):
    """Start the run `r_1` of the script."""
    model = model or ScriptedModel(SCRIPT)
    return on(store, world.tools, "run", "Two tickets.", model=model, run_id="r_1")


def count_of_steps(on):
    store, world = MortalStore(), World()
    run = begin(on, store, world)
    assert run.ok
    return store.count, run


def test_a_run_that_dies_before_or_after_any_step_is_gone_on_with_and_writes_once(on):
    steps, whole = count_of_steps(on)
    # begin, two turns with an entry before, claim, settle and an entry after, the end
    assert steps >= 8
    hit = set()
    for at in range(1, steps + 1):
        for after in (False, True):
            store, world = MortalStore(), World()
            store.dies_at, store.after = at, after
            with pytest.raises(Died):
                begin(on, store, world)
            store.dies_at = None
            hit.add((store.asked[-1], after))
            if store.load_run("r_1") is None:
                # nothing was begun, and nothing is known
                assert (at, after) == (1, False)
                continue
            run = on(store, world.tools, "resume", "r_1", model=ScriptedModel(SCRIPT))
            assert run.ok, (at, after, run)
            assert run.text == "Two tickets."
            assert [title for _, title in world.tickets] == ["slow", "slower"]
            assert [type(each) for each in run.messages] == [
                type(each) for each in whole.messages
            ]
    assert hit == {
        (name, after)
        for name in ("begin", "append_entry", "claim", "settle")
        for after in (False, True)
    }


def test_what_the_model_has_said_is_not_asked_for_again(on):
    store, world, model = MortalStore(), World(), ScriptedModel(SCRIPT)
    on(store, world.tools, "run", "Two tickets.", model=model, run_id="r_1")
    again = ScriptedModel(["never asked"])
    run = on(store, world.tools, "resume", "r_1", model=again)
    assert run.text == "Two tickets."
    assert again.requests == []
    assert world.looks == ["Bern", "Köln"]


def test_a_call_that_ended_before_is_told_again_as_recalled_and_counts_once_in_the_audit_log(
    on, tmp_path
):
    store, world, told = SqliteStore(str(tmp_path / "handrail.db")), World(), []
    script = [
        call("create_ticket", title="slow"),
        call("refund", order="A-1", amount=180),
        "Done.",
    ]
    waiting = on(store, world.tools, "run", "Refund A-1.", model=ScriptedModel(script))
    assert (waiting.status, len(world.tickets)) == ("waiting", 1)
    made = {"observers": [told.append], "approver": lambda asked: True}
    assert on(
        store, world.tools, "resume", waiting.id, model=ScriptedModel(script), made=made
    ).ok
    ends = [each for each in told if isinstance(each, CallFinished)]
    assert [(each.call.name, each.recalled) for each in ends] == [
        ("create_ticket", True),
        ("refund", False),
    ]
    log = [
        each.body
        for each in result_now(store.log())
        if each.event == "CallFinished" and each.body["ok"]
    ]
    assert [each["tool"] for each in log] == [
        "create_ticket",
        "create_ticket",
        "refund",
    ]
    assert [each["tool"] for each in log if not each.get("recalled")] == [
        "create_ticket",
        "refund",
    ]
    store.close()


def test_a_run_that_has_its_answer_gives_it_again_and_nobody_takes_it_over(on):
    store, world = MortalStore(), World()
    begin(on, store, world)
    before, asked = store.load_run("r_1"), len(store.asked)
    never = ScriptedModel([call("create_ticket", title="never")])
    assert on(store, world.tools, "resume", "r_1", model=never).text == "Two tickets."
    assert (store.load_run("r_1"), len(store.asked), never.requests) == (
        before,
        asked,
        [],
    )


def test_a_replay_does_nothing_and_tells_the_same(on):
    store, world = MortalStore(), World()
    first = begin(on, store, world)
    asked = list(store.asked)
    run = on(store, world.tools, "replay", "r_1", model=ScriptedModel(["never asked"]))
    assert (run.status, run.text) == (first.status, first.text)
    assert run.transcript(debug=True) == first.transcript(debug=True)
    assert store.asked == asked
    assert len(world.tickets) == 2


def test_a_replay_leaves_nothing_in_the_audit_log_and_is_still_seen(on, tmp_path):
    store, seen = SqliteStore(str(tmp_path / "handrail.db")), []
    begin(on, store, World())
    before = result_now(store.log())
    on(
        store,
        World().tools,
        "replay",
        "r_1",
        model=ScriptedModel([]),
        observers=[seen.append],
    )
    assert before == result_now(store.log())
    assert sum(isinstance(event, CallFinished) for event in seen) == 4
    store.close()


def test_a_replay_of_what_was_not_finished_is_an_error_and_runs_nothing(on):
    store, world = MortalStore(), World()
    store.dies_at = 4
    with pytest.raises(Died):
        begin(on, store, world)
    store.dies_at = None
    before = list(world.tickets)
    with pytest.raises(JournalMismatch, match="ends before step"):
        on(store, world.tools, "replay", "r_1", model=ScriptedModel(SCRIPT))
    assert world.tickets == before


def test_a_fork_has_the_first_turns_and_asks_before_it_writes_again_what_its_parent_wrote(
    on,
):
    store, world = MortalStore(), World()
    begin(on, store, world)
    other = [
        SCRIPT[0],
        [call("create_ticket", title="slower"), call("create_ticket", title="new")],
        "Forked.",
    ]
    run = on(store, world.tools, "fork", "r_1", at_turn=2, model=ScriptedModel(other))
    assert run.id != "r_1"
    assert run.status == "waiting"
    assert [title for _, title in world.tickets] == ["slow", "slower", "new"]
    assert world.looks == ["Bern", "Köln"]
    (asked,) = store.list_approvals()
    assert "forked" in asked.reason
    store.decide(asked.id, granted=False, by="maria", reason="it is there")
    run = on(store, world.tools, "resume", run.id, model=ScriptedModel(other))
    assert run.text == "Forked."
    assert len(world.tickets) == 3
    assert store.load_run(run.id).record.forked_from == "r_1"


def look_for(world):
    """Return a `verify` that finds a ticket in the world."""

    # on the loop: what dies in a thread's report ends no driver
    async def verify(arguments, context):
        return hr.Found("opened") if arguments["title"] in world else hr.NotFound()

    return verify


@pytest.mark.parametrize("replay", ["none", "verify", "key"])
@pytest.mark.parametrize(
    "after", [False, True], ids=["before the settlement", "after the settlement"]
)
def test_a_fork_asks_before_it_writes_again_what_its_parent_wrote_before_it_died(
    on, replay, after
):
    world = []
    declared = {
        "none": {},
        "verify": {"verify": look_for(world)},
        "key": {"replay": "key"},
    }[replay]

    def open_ticket(title: str) -> str:
        """Open a ticket; the far side knows a title again."""
        world.extend({title} - set(world))
        return "opened"

    tools = [
        hr.FunctionTool(
            open_ticket, effect="write", blocking=False, timeout_s=0.3, **declared
        )
    ]
    script = [call("open_ticket", title="slow")]
    store, model = MortalStore(), lambda: ScriptedModel([script, "Opened."])
    store.dies_at, store.after = 4, after  # begin, enter the answer, claim, settle
    with pytest.raises(Died):
        on(store, tools, "run", "A ticket.", model=model(), run_id="r_1")
    assert (store.asked[-1], world) == ("settle", ["slow"])
    # a store in memory knows no process: the lease of whoever died is over by its time
    store.later_s = 60.0
    resumed = on(store, tools, "resume", "r_1", model=model())
    assert resumed.messages[2].result.attempts == (
        1 if replay == "key" and not after else 0
    )
    world.clear()  # what follows would be seen, whoever tells duplicates apart
    fork = on(store, tools, "fork", "r_1", at_turn=1, model=model())
    assert (fork.status, world) == ("waiting", [])


@pytest.mark.parametrize("turn", [0, 4, 99])
def test_a_run_is_forked_at_one_of_its_turns_only(on, turn):
    store, world = MortalStore(), World()
    begin(on, store, world)
    with pytest.raises(ConfigError, match="3 turns"):
        on(store, world.tools, "fork", "r_1", at_turn=turn, model=ScriptedModel(SCRIPT))


ASKING = [
    [call("look", city="Bern"), call("refund", order="7", amount=500.0)],
    "Refunded.",
]


def test_a_run_that_waits_for_a_person_goes_on_in_another_process_once_it_is_approved(
    on,
):
    store, world = MortalStore(), World()
    run = on(
        store, world.tools, "run", "Refund.", model=ScriptedModel(ASKING), run_id="r_1"
    )
    assert run.status == "waiting"
    assert store.load_run("r_1").record.status == "waiting"
    (asked,) = store.list_approvals()
    assert (asked.tool, asked.arguments, asked.run_id) == (
        "refund",
        {"order": "7", "amount": 500.0},
        "r_1",
    )

    run = on(store, world.tools, "resume", "r_1", model=ScriptedModel(ASKING))
    assert run.status == "waiting"  # nobody has answered yet
    assert len(store.list_approvals()) == 1

    store.decide(asked.id, granted=True, by="maria")
    run = on(store, world.tools, "resume", "r_1", model=ScriptedModel(ASKING))
    assert run.text == "Refunded."
    assert world.tickets == [("7", 500.0)]
    assert world.looks == ["Bern"]  # its sibling kept its result
    assert store.list_approvals(state="used")[0].by == "maria"


def test_an_approval_is_bound_to_the_tool_as_it_describes_itself(on):
    store, world = MortalStore(), World()
    on(store, world.tools, "run", "Refund.", model=ScriptedModel(ASKING), run_id="r_1")
    store.decide(store.list_approvals()[0].id, granted=True, by="maria")
    changed = World()
    changed.tools[2].description = "Refund an order, and tell the whole world."
    run = on(store, changed.tools, "resume", "r_1", model=ScriptedModel(ASKING))
    assert run.status == "waiting"
    assert changed.tickets == []
    assert len(store.list_approvals()) == 1


def test_an_owner_who_was_replaced_leaves_quietly_and_adds_nothing(on):
    store, world = MortalStore(), World()

    class TakenOver(ScriptedModel):
        async def ask(self, request, listener=None):
            FullMemoryStore.begin_run(store, RunRecord("r_1", {}))
            return await super().ask(request, listener)

    run = begin(on, store, world, TakenOver(SCRIPT))
    assert run.status == "moved"
    assert world.tickets == []  # its journal was refused before its write could run
    with pytest.raises(Fenced):
        store.append_entry(JournalEntry("r_1", 1))


def test_a_run_is_cancelled_from_elsewhere_at_its_next_step(on):
    store, world = MortalStore(), World()

    class Cancelling(ScriptedModel):
        async def ask(self, request, listener=None):
            assert store.request_cancel("r_1")
            return await super().ask(request, listener)

    run = begin(on, store, world, Cancelling(SCRIPT))
    assert run.status == "cancelled"
    assert store.load_run("r_1").record.status == "cancelled"


def test_a_run_whose_owner_died_after_its_end_was_asked_for_is_ended_by_whoever_goes_on_with_it(
    on,
):
    store, world = MortalStore(), World()

    class Dying(ScriptedModel):
        async def ask(self, request, listener=None):
            assert store.request_cancel("r_1")
            raise Died

    with pytest.raises(Died):
        begin(on, store, world, Dying(SCRIPT))
    model = ScriptedModel(SCRIPT)
    assert on(store, world.tools, "resume", "r_1", model=model).status == "cancelled"
    assert (model.requests, world.tickets) == ([], [])
    # it is meant: who goes on with it knows
    assert on(store, world.tools, "resume", "r_1", model=model).ok


@pytest.mark.parametrize("kind", [hr.Runtime, hr.SyncRuntime])
def test_a_run_that_its_own_process_was_told_to_end_is_ended_by_whoever_goes_on_with_it(
    on, kind
):
    store, world = MortalStore(), World()
    runtime = kind(world.tools, store=store)

    class Cancelling(ScriptedModel):
        async def ask(self, request, listener=None):
            assert runtime.cancel("r_1")
            store.dies_at = store.count + 1  # before the end is entered
            return await super().ask(request, listener)

    with pytest.raises(Died):
        begun = runtime.run("Two tickets.", model=Cancelling(SCRIPT), run_id="r_1")
        asyncio.run(begun)
    store.dies_at, model = None, ScriptedModel(SCRIPT)
    assert on(store, world.tools, "resume", "r_1", model=model).status == "cancelled"
    assert (model.requests, world.tickets) == ([], [])


def test_a_poisoned_run_can_be_forked_and_cancelled(on):
    store, world = MortalStore(), World()
    begin(on, store, world)
    store._runs["r_1"] = replace(store._runs["r_1"], status="poisoned", takeovers=5)
    assert (
        on(
            store, world.tools, "fork", "r_1", at_turn=2, model=ScriptedModel(SCRIPT)
        ).status
        == "waiting"
    )
    assert store.request_cancel("r_1")
    assert on(store, world.tools, "resume", "r_1", model=ScriptedModel(SCRIPT)).ok


def test_without_its_journal_no_write_runs(on):
    world = World()

    class Full(MortalStore):
        def append_entry(self, entry):
            raise StoreUnavailable("the disk is full")

    run = on(Full(), world.tools, "run", "Two tickets.", model=ScriptedModel(SCRIPT))
    assert run.status == "failed"
    assert "the disk is full" in run.reason
    assert world.tickets == []


def test_a_kept_name_is_not_used_twice(on):
    store, world = MortalStore(), World()
    begin(on, store, world)
    with pytest.raises(ConfigError, match="stored already"):
        on(
            store,
            world.tools,
            "run",
            "Others.",
            model=ScriptedModel(SCRIPT),
            run_id="r_1",
        )


@pytest.mark.parametrize("status", ["running", "waiting", "poisoned", "done"])
def test_a_run_whose_name_somebody_wants_to_use_again_is_left_as_it_stands(on, status):
    store = MortalStore()
    epoch = store.begin_run(
        RunRecord("r_1", {}, owner="whoever drives it")
    ).record.epoch
    store.append_entry(JournalEntry("r_1", epoch, status=status))
    before = store.load_run("r_1").record
    with pytest.raises(ConfigError, match="stored already"):
        on(
            store,
            World().tools,
            "run",
            "Others.",
            model=ScriptedModel(SCRIPT),
            run_id="r_1",
        )
    assert store.load_run("r_1").record == before


@pytest.mark.slow
def test_a_job_that_is_delivered_to_two_workers_at_once_is_done_by_one_and_the_other_learns_it(
    tmp_path,
):
    place, jobs = f"sqlite:///{tmp_path}/store.db", 500

    async def deliver():
        def do(job: int) -> int:
            """Do the job."""
            done.append(job)
            return job

        done: list[int] = []
        tools = [hr.FunctionTool(do, effect="write", key="job:{job}", blocking=False)]
        async with (
            hr.Runtime(tools, store=place) as one,
            hr.Runtime(tools, store=place) as other,
        ):
            told = []
            for job in range(jobs):
                ways = [
                    (worker, ScriptedModel([call("do", job=job), "Done."]))
                    for worker in (one, other)
                ]
                runs = [
                    worker.run("Go.", model=model, run_id=f"job-{job}")
                    for worker, model in ways
                ]
                told.append(await asyncio.gather(*runs, return_exceptions=True))
            return done, told

    done, told = asyncio.run(deliver())
    assert done == list(range(jobs))
    for answers in told:
        [refused] = [each for each in answers if isinstance(each, RunNameTaken)]
        [run] = [each for each in answers if each is not refused]
        assert run.status == "done"
        assert "is stored already" in str(refused)


def test_who_gives_a_new_run_the_name_of_one_under_way_learns_who_carries_it_out(
    tmp_path,
):
    with SqliteStore(tmp_path / "store.db") as store:
        result_now(store.begin_run(RunRecord("r_1", {}, owner=owner()), new=True))
        with pytest.raises(
            RunNameTaken,
            match=f"is being carried out by the process .*:{os.getpid()}: wait",
        ):
            result_now(store.begin_run(RunRecord("r_1", {}), new=True))


def test_a_store_that_keeps_no_runs_says_so(on):
    with pytest.raises(ConfigError, match="does not keep runs"):
        on(MemoryStore(), World().tools, "resume", "r_1")


def test_an_unknown_run_is_named(on):
    with pytest.raises(ConfigError, match="no run 'r_none'"):
        on(MortalStore(), World().tools, "resume", "r_none")


def test_a_journal_of_a_newer_version_is_refused(on):
    store, world = MortalStore(), World()
    begin(on, store, world)
    from msgspec.structs import replace

    store._runs["r_1"] = replace(store._runs["r_1"], journal_v=99)
    with pytest.raises(JournalMismatch, match="newer handrail"):
        on(store, world.tools, "resume", "r_1", model=ScriptedModel(SCRIPT))


def test_what_a_run_has_worked_counts_when_it_goes_on(on):
    store, world = MortalStore(), World()
    budget = hr.Budget(turns=1)
    run = on(
        store,
        world.tools,
        "run",
        "Two tickets.",
        model=ScriptedModel(SCRIPT),
        run_id="r_1",
        budget=budget,
    )
    assert run.status == "budget"
    assert (
        on(store, world.tools, "resume", "r_1", model=ScriptedModel(SCRIPT)).status
        == "budget"
    )
    run = on(
        store,
        world.tools,
        "resume",
        "r_1",
        model=ScriptedModel(SCRIPT),
        budget=hr.Budget(turns=9),
    )
    assert run.text == "Two tickets."
    assert len(world.tickets) == 2


# ---------------------------------------------------------------------- taking back


class Shop:
    """Orders that can be cancelled again."""

    def __init__(self):
        self.orders, self.cancelled = [], []
        self.tools = [
            hr.FunctionTool(
                self.order,
                effect="write",
                write=hr.Write(compensate=self.cancel),
                blocking=False,
            ),
            hr.FunctionTool(self.mail, effect="write", blocking=False),
        ]

    def order(self, item: str, count: int = 1) -> dict:
        """Order something."""
        self.orders.append((item, count))
        return {"order": len(self.orders)}

    def cancel(self, item: str, count: int, result: dict) -> str:
        """Cancel an order again."""
        self.cancelled.append((item, count, result["order"]))
        return f"cancelled {result['order']}"

    def mail(self, to: str) -> str:
        """Send a mail, which nobody can take back."""
        return f"sent to {to}"


ORDERS = [
    [call("order", item="lamp"), call("mail", to="a@b.c")],
    [call("order", item="desk", count=2), call("order", item="lamp")],
    "Ordered.",
]


def test_what_can_be_taken_back_is_offered_newest_first_and_taken_back_once(on):
    store, shop = MortalStore(), Shop()
    on(store, shop.tools, "run", "Order.", model=ScriptedModel(ORDERS), run_id="r_1")
    offered = on(store, shop.tools, "undoable", "r_1")
    # The second lamp was not ordered: the same act in one run is answered by the first one's result.
    assert [(each.step, each.tool, each.arguments["item"]) for each in offered] == [
        ("2.0", "order", "desk"), ("1.0", "order", "lamp")
    ]  # fmt: skip
    undone = on(store, shop.tools, "undo", "r_1")
    assert [each.text for each in undone] == ["cancelled 2", "cancelled 1"]
    assert shop.cancelled == [("desk", 2, 2), ("lamp", 1, 1)]
    assert on(store, shop.tools, "undo", "r_1") == []
    assert len(shop.cancelled) == 2


def test_one_step_is_taken_back_alone(on):
    store, shop = MortalStore(), Shop()
    on(store, shop.tools, "run", "Order.", model=ScriptedModel(ORDERS), run_id="r_1")
    on(store, shop.tools, "undo", "r_1", ["1.0"])
    assert shop.cancelled == [("lamp", 1, 1)]
    with pytest.raises(ConfigError, match="what can is"):
        on(store, shop.tools, "undo", "r_1", ["1.1"])


@pytest.mark.parametrize("resumed", [False, True])
def test_what_a_run_wrote_before_it_died_can_be_taken_back(on, resumed):
    store, shop = MortalStore(), Shop()
    script = [call("order", item="lamp")], "Ordered."
    # begin, enter the answer, claim, settle: the journal has no result
    store.dies_at, store.after = 4, True
    with pytest.raises(Died):
        on(
            store,
            shop.tools,
            "run",
            "Order.",
            model=ScriptedModel(script),
            run_id="r_1",
        )
    if resumed:
        on(store, shop.tools, "resume", "r_1", model=ScriptedModel(script))
    (offered,) = on(store, shop.tools, "undoable", "r_1")
    assert (offered.step, offered.value) == ("1.0", {"order": 1})
    on(store, shop.tools, "undo", "r_1")
    assert shop.cancelled == [("lamp", 1, 1)]


def test_a_write_that_was_in_doubt_is_offered_once_a_person_has_said_that_it_happened(
    on,
):
    store, shop = MortalStore(), Shop()
    script = [call("order", item="lamp")], "Ordered."
    store.dies_at, store.after = 4, False
    with pytest.raises(Died):
        on(
            store,
            shop.tools,
            "run",
            "Order.",
            model=ScriptedModel(script),
            run_id="r_1",
        )
    resumed = on(store, shop.tools, "resume", "r_1", model=ScriptedModel(script))
    assert resumed.messages[2].result.failure.code == "IN_DOUBT"
    assert on(store, shop.tools, "undoable", "r_1") == []
    store.resolve("", "r_1/1/0", state="done", by="maria", value={"order": 1})
    assert [each.value for each in on(store, shop.tools, "undoable", "r_1")] == [
        {"order": 1}
    ]


class Shelves:
    """Where things are put under a name of theirs, and taken from again."""

    def __init__(self):
        self.held = {}
        self.tools = [
            hr.FunctionTool(
                self.put,
                effect="write",
                key="put:{name}",
                write=hr.Write(compensate=self.take),
                blocking=False,
            )
        ]

    def put(self, name: str, count: int = 1) -> dict:
        """Put something there."""
        self.held[name] = self.held.get(name, 0) + count
        return {"held": self.held[name]}

    async def take(self, name: str, count: int, result: dict) -> str:
        """Take it away again."""
        self.held[name] -= count
        return f"took {name}"


def test_what_was_taken_back_can_be_done_again_by_any_run_and_is_then_that_run_s(on):
    store, shelves = MortalStore(), Shelves()
    script = [call("put", name="lamp")], "Put."
    for run_id in ("r_1", "r_2", "r_3"):
        run = on(
            store,
            shelves.tools,
            "run",
            "Put.",
            model=ScriptedModel(script),
            run_id=run_id,
        )
        assert (run.messages[2].result.replayed, shelves.held) == (
            run_id == "r_3",
            {"lamp": 1},
        )
        if run_id == "r_1":
            (undone,) = on(store, shelves.tools, "undo", "r_1")
            assert (undone.text, shelves.held) == ("took lamp", {"lamp": 0})
    assert on(store, shelves.tools, "undo", "r_1") == []
    assert on(store, shelves.tools, "undo", "r_3") == []
    assert [each.ok for each in on(store, shelves.tools, "undo", "r_2")] == [True]
    assert shelves.held == {"lamp": 0}


def test_an_undo_that_dies_before_the_key_is_free_is_gone_on_with_and_takes_back_once(
    on,
):
    store, shelves = MortalStore(), Shelves()
    on(
        store,
        shelves.tools,
        "run",
        "Put.",
        model=ScriptedModel([[call("put", name="lamp")], "Put."]),
        run_id="r_1",
    )
    store.dies_at, store.after = store.count + 2, True  # claim, settle
    with pytest.raises(Died):
        on(store, shelves.tools, "undo", "r_1")
    assert (store.asked[-1], shelves.held) == ("settle", {"lamp": 0})
    assert [each.replayed for each in on(store, shelves.tools, "undo", "r_1")] == [True]
    assert on(store, shelves.tools, "undoable", "r_1") == []
    assert shelves.held == {"lamp": 0}


def test_what_a_person_changed_is_taken_back_as_it_was_carried_out(on):
    store, shelves = MortalStore(), Shelves()
    script, asks = (
        [[call("put", name="lamp", count=5)], "Put."],
        {"policy": hr.Policy(ask_from="medium")},
    )
    on(
        store,
        shelves.tools,
        "run",
        "Put.",
        model=ScriptedModel(script),
        run_id="r_1",
        made=asks,
    )
    store.decide(
        store.list_approvals()[0].id,
        granted=True,
        by="maria",
        edited={"name": "desk", "count": 2},
    )
    on(store, shelves.tools, "resume", "r_1", model=ScriptedModel(script), made=asks)
    assert shelves.held == {"desk": 2}
    on(store, shelves.tools, "undo", "r_1")
    assert shelves.held == {"desk": 0}


def test_a_fork_does_not_take_back_what_its_parent_wrote(on):
    store, shop = MortalStore(), Shop()
    on(store, shop.tools, "run", "Order.", model=ScriptedModel(ORDERS), run_id="r_1")
    fork = on(
        store,
        shop.tools,
        "fork",
        "r_1",
        at_turn=2,
        model=ScriptedModel([ORDERS[0], "Enough."]),
    )
    assert on(store, shop.tools, "undoable", fork.id) == []


def test_a_call_of_no_run_and_no_key_that_nobody_can_approve_says_why_and_waits_for_nobody(
    on,
):
    store, world = MortalStore(), World()
    result = on(store, world.tools, "call", "refund", {"order": "7", "amount": 500.0})
    assert (result.failure.code, result.question) == ("NOT_APPROVED", None)
    assert "of no run, and its tool declares no key" in result.failure.message
    assert store.list_approvals() == []


def test_a_run_is_cancelled_here_whatever_its_store_raises(tmp_path):
    class Broken(SqliteStore):
        def request_cancel(self, run_id):
            raise RuntimeError("a driver's own")

    heard = []

    @hr.tool(effect="read")
    def stop() -> str:
        """Cancel the run from within."""
        heard.append(runtime.cancel("r_1"))
        return "asked"

    with (
        Broken(tmp_path / "kept.db") as store,
        hr.SyncRuntime([stop], store=store) as runtime,
    ):
        run = runtime.run(
            "?", model=ScriptedModel([hr.testing.call("stop"), "ok"]), run_id="r_1"
        )
    assert (heard, run.status) == ([True], "cancelled")


def test_a_kept_run_that_has_ended_is_let_go_of_at_once(on, tmp_path):
    class Deps:
        """Something that a run holds."""

    deps = Deps()
    held = weakref.ref(deps)
    gc.disable()  # else it might come by just in time
    try:
        with SqliteStore(tmp_path / "kept.db") as store:
            assert on(
                store, World().tools, "run", "?", model=ScriptedModel(SCRIPT), deps=deps
            ).ok
        del deps
        assert held() is None
    finally:
        gc.enable()


def test_a_run_is_kept_with_the_digest_of_the_tools_of_the_moment_at_which_it_began(
    tmp_path,
):
    first, second = World().tools[:2]
    tools = hr.Toolset([first])
    with (
        SqliteStore(tmp_path / "kept.db") as store,
        hr.SyncRuntime(tools, store=store) as runtime,
    ):
        for run_id in ("r_1", "r_2"):
            runtime.run("?", model=ScriptedModel(["ok"]), run_id=run_id)
        tools.add(second)
        runtime.run("?", model=ScriptedModel(["ok"]), run_id="r_3")
        digests = [
            store.load_run(run_id).result(BOUND_S).record.toolset
            for run_id in ("r_1", "r_2", "r_3")
        ]
    assert digests[0] == digests[1] != digests[2]
