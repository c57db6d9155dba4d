"""Submitted runs, and the workers that carry them out, in one process; `test_worker_processes` has those that die."""

import asyncio
import os
import sys
import threading
from contextlib import asynccontextmanager

import pytest

import handrail as hr
from handrail import admin
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.port import HandBack, Running, Segment, Timing
from handrail.dispatch.worker import Worker
from handrail.errors import ConfigError, Fenced, RunNameTaken, RunUnderWay
from handrail.futures import result_now, wait_for
from handrail.history.run_history import read_history
from handrail.records import MOST_TAKEOVERS, ApprovalRequest, JournalEntry, RunRecord
from handrail.stores.submitted import AGAIN_S, STALE_S
from handrail.testing import ScriptedModel, call
from handrail.testing.crashes import opener

pytest.importorskip("psycopg", reason="no psycopg: install handrail[postgres]")
pytest.importorskip("procrastinate")

import psycopg

from tests.dispatch.dying_worker import SCRIPT, TIMEOUT_S, die_in_write, make_pay
from tests.dispatch.workers import count_segments, drop_segments
from tests.stores.servers import started

QUICK = Timing(poll_s=0.05, beat_s=0.2, dead_s=1.0, sweep_s=0.2, again_s=0.2)
SOON_S = 30
FORM = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture(scope="module")
def postgres():
    server = started()
    yield server.dsn
    server.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where a store that holds nothing is."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/handrail.db"
    dsn = request.getfixturevalue("postgres")
    name = f"worker_{os.getpid()}_{threading.get_native_id()}_{tmp_path.name}".lower()
    with psycopg.connect(dsn, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    return dsn.replace("@/postgres", f"@/{name}")


class Shop:
    """Tools that write down what happens, and a gate at which one of them waits."""

    def __init__(self):
        self.happened = []
        self.gate = asyncio.Event()
        self.inside = asyncio.Event()

    def tools(self, *names, note="an order"):
        async def hold() -> str:
            self.inside.set()
            await self.gate.wait()
            return "held"

        def delete(order: str) -> str:
            self.happened.append(f"delete {order}")
            return "deleted"

        def look() -> str:
            return "fine"

        return [
            {
                "hold": hr.FunctionTool(hold, effect="read", timeout_s=SOON_S),
                "look": hr.FunctionTool(look, effect="read"),
                "delete": hr.FunctionTool(
                    delete, effect="destructive", description=f"Delete {note}."
                ),
            }[name]
            for name in names or ("hold", "look", "delete")
        ]


@asynccontextmanager
async def working(place, tools, *script, grace_s=5.0, **how):
    """Let a worker with these tools carry out the runs of a store."""
    async with hr.Runtime(tools, store=opener(place)()) as runtime:
        dispatcher = open_dispatcher(runtime.store, timing=QUICK)
        settings = {"model": ScriptedModel(script), **how}
        worker = Worker(runtime, dispatcher, **settings)
        task = asyncio.create_task(worker.work())
        try:
            yield worker
        finally:
            await worker.stop(grace_s=grace_s)
            await task
            runtime.store.close()


@pytest.fixture
def client(place):
    """A process that submits and has no tools: it knows nothing of workers but the store."""
    with hr.SyncRuntime([], store=place) as runtime:
        yield runtime


def waiting(client) -> int:
    """How many segments wait for a worker."""
    return count_segments(client.store)[0]


async def result(client, run_id, **how):
    return await asyncio.to_thread(client.result, run_id, within_s=SOON_S, **how)


def rows(client, statement):
    return client.store.use_connection(lambda database: database.run(statement))


# -- submitting -------------------------------------------------------------------------------------------------------


def test_a_submitted_run_is_stored_and_carried_out_by_a_worker(place, client):
    run_id = client.submit("Go.", output=FORM)
    [record] = result_now(client.store.list_runs())
    assert (record.run_id, record.status, waiting(client)) == (run_id, "queued", 1)

    async def carry_out():
        async with working(place, Shop().tools(), call("look"), '{"a": 1}'):
            return await result(client, run_id)

    run = asyncio.run(carry_out())
    assert (run.status, run.output, run.spent.calls) == ("done", {"a": 1}, 1)
    assert waiting(client) == 0
    assert rows(client, "SELECT count(*) FROM submitted") == [(0,)]
    stored = result_now(client.store.load_run(run_id))
    assert read_history(stored).model == "scripted"  # the worker's


def test_a_run_without_a_model_waits_for_a_worker_that_has_one(place, client):
    run_id = client.submit("Go.", run_id="r1")

    def note():
        return result_now(client.store.list_submitted([run_id]))[run_id].note

    async def carry_out():
        async with working(place, Shop().tools(), model=None):
            while not note():
                await asyncio.sleep(0.02)
        assert note() == (
            "run 'r1' names no model and the worker that took it has none: "
            "start it with --model, or submit with --model"
        )
        async with working(place, Shop().tools(), "Done."):
            return await result(client, run_id)

    assert asyncio.run(carry_out()).text == "Done."


def test_a_name_is_submitted_once(client):
    client.submit("Go.", run_id="r", idempotent=True)
    assert client.submit("Go.", run_id="r", idempotent=True) == "r"
    with pytest.raises(RunNameTaken):
        client.submit("Go.", run_id="r")
    with pytest.raises(RunNameTaken):
        client.submit("Something else.", run_id="r", idempotent=True)
    assert waiting(client) == 1


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"deps": object()}, "`deps` cannot be stored"),
        ({"inject": {"user": "anna"}}, "`inject` cannot be stored"),
        ({"observers": [print]}, "`observers` cannot be stored"),
        ({"approver": lambda asked: True}, "`approver` cannot be stored"),
        ({"model": ScriptedModel(["Done."])}, "finds its model by name"),
        ({"model": "gpt"}, "is no name"),
        ({"queue": ""}, "queue is ''"),
        ({"queue": "mail\u200b"}, "queue is 'mail.u200b'; a name cannot contain"),
        ({"run_id": ""}, "run_id is ''; it takes a name"),
        ({"run_id": "a\nb"}, "run_id is 'a.nb'; a name cannot contain"),
        ({"scope": "a\x1bb"}, "scope is 'a.x1bb'; a name cannot contain"),
        ({"priority": 1.5}, "priority is 1.5"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_one_sentence(tmp_path, option, reason):
    with hr.SyncRuntime([], store=f"sqlite:///{tmp_path}/handrail.db") as client:
        with pytest.raises(ConfigError, match=reason):
            client.submit("Go.", **option)
        assert result_now(client.store.list_runs()) == []


def test_a_store_in_memory_hands_no_runs_over():
    with hr.SyncRuntime([]) as runtime, pytest.raises(ConfigError, match="sqlite:///"):
        runtime.submit("Go.")


def test_a_secret_of_the_submitter_is_not_in_the_store(place):
    with hr.SyncRuntime([], store=place, secrets=["tr0ub4dor"]) as client:
        client.submit("The password is tr0ub4dor.", run_id="r")
        [[stored]] = rows(client, "SELECT input FROM runs")
    assert "tr0ub4dor" not in stored
    assert "password" in stored


def test_a_run_that_has_not_ended_in_time_is_said_to_be_under_way(client):
    run_id = client.submit("Go.")
    with pytest.raises(RunUnderWay, match="it is queued"):
        client.result(run_id, within_s=0.05)


@pytest.mark.parametrize("within_s", [float("nan"), "5"])
def test_a_time_that_would_never_be_over_is_refused(tmp_path, within_s):
    with hr.SyncRuntime([], store=f"sqlite:///{tmp_path}/handrail.db") as client:
        run_id = client.submit("Go.")
        with pytest.raises(ConfigError, match="takes a number of seconds"):
            client.result(run_id, within_s=within_s)


def test_those_who_wait_for_results_take_no_thread_each(tmp_path):
    async def wait_and_hang_up():
        async with hr.Runtime([], store=f"sqlite:///{tmp_path}/handrail.db") as client:
            run_id = await client.submit("Go.")
            before = threading.active_count()
            waiters = [
                asyncio.create_task(client.result(run_id, within_s=SOON_S))
                for _ in range(100)
            ]
            await asyncio.wait(waiters, timeout=0.5)
            beside = threading.active_count() - before
            for waiter in waiters:
                waiter.cancel()
            ends = await asyncio.gather(*waiters, return_exceptions=True)
            return beside, {type(end) for end in ends}

    beside, ends = asyncio.run(wait_and_hang_up())
    assert beside < 10  # those of the store
    assert ends == {asyncio.CancelledError}


# -- waiting for people -----------------------------------------------------------------------------------------------


def test_an_answer_enqueues_the_next_segment_in_the_same_transaction(place, client):
    shop = Shop()
    script = (call("delete", order="7"), "Done.")

    async def ask():
        async with working(place, shop.tools(), *script):
            return await result(client, client.submit("Go.", run_id="r"))

    assert asyncio.run(ask()).status == "waiting"
    assert (shop.happened, waiting(client)) == ([], 0)
    with opener(place)() as elsewhere:
        [question] = result_now(elsewhere.list_approvals())
        admin.approve(elsewhere, question.id, by="anna")
    [record] = result_now(client.store.list_runs())
    assert (record.status, waiting(client)) == ("queued", 1)

    async def go_on():
        async with working(place, shop.tools(), *script):
            return await result(client, "r")

    assert asyncio.run(go_on()).text == "Done."
    assert shop.happened == ["delete 7"]


def test_whoever_submits_a_run_is_not_one_of_the_people_who_agree_to_its_call(
    place, client
):
    paid = []

    @hr.tool(effect="destructive", write=hr.Write(required_approvals=2))
    def pay(order: str) -> str:
        """Pay."""
        paid.append(order)
        return "paid"

    async def carry_out():
        async with working(place, [pay], call("pay", order="7"), "Done."):
            return await result(client, "r")

    client.submit("Go.", run_id="r", principal="alice")
    assert asyncio.run(carry_out()).status == "waiting"
    [question] = result_now(client.store.list_approvals())
    assert question.principal == "alice"
    with pytest.raises(ConfigError, match="alice is whom the run acts for"):
        admin.approve(client.store, question.id, by="alice")
    for name in ("bob", "cleo"):
        admin.approve(client.store, question.id, by=name)
    assert asyncio.run(carry_out()).text == "Done."
    assert paid == ["7"]


def test_an_answer_that_comes_while_the_segment_runs_is_not_lost(place, client):
    shop = Shop()

    async def answer_early():
        both = [call("delete", order="7"), call("hold")]
        async with working(place, shop.tools(), both, "Done."):
            run_id = client.submit("Go.")
            await asyncio.wait_for(shop.inside.wait(), SOON_S)
            while not (asked := result_now(client.store.list_approvals())):
                await asyncio.sleep(0.02)
            admin.approve(client.store, asked[0].id, by="anna")
            shop.gate.set()
            while (run := await result(client, run_id)).status == "waiting":
                await asyncio.sleep(0.02)
            return run

    assert asyncio.run(answer_early()).text == "Done."
    assert shop.happened == ["delete 7"]


def test_a_question_that_expires_lets_its_run_go_on(place, client):
    shop = Shop()

    async def let_expire():
        async with working(
            place, shop.tools(), call("delete", order="7"), "I may not."
        ) as worker:
            assert (await result(client, client.submit("Go.", run_id="r"))).status == (
                "waiting"
            )
            rows(client, "UPDATE approvals SET expires = 1 RETURNING 1")
            rows(client, "UPDATE submitted SET wake_at = 1 RETURNING 1")
            await worker._sweep()
            while (run := await result(client, "r")).status == "waiting":
                await asyncio.sleep(0.02)
            return run

    assert asyncio.run(let_expire()).text == "I may not."
    assert shop.happened == []


def test_a_tool_that_describes_itself_otherwise_is_asked_about_again(place, client):
    shop = Shop()
    script = (call("delete", order="7"), "Done.")

    async def deploy():
        async with working(place, shop.tools(), *script):
            await result(client, client.submit("Go.", run_id="r"))
        [question] = result_now(client.store.list_approvals())
        admin.approve(client.store, question.id, by="anna")
        async with working(place, shop.tools(note="it for ever"), *script):
            return await result(client, "r")

    assert asyncio.run(deploy()).status == "waiting"
    assert shop.happened == []
    assert_rests_until_it_is_answered(client)


def test_a_run_with_a_delivered_result_rests_while_it_waits_for_another_answer(
    place, client
):
    @hr.tool(deferred=True)
    def survey(question: str) -> str:
        """Ask the customer."""
        return "sent"

    tools = [survey, *Shop().tools("delete")]
    script = (call("survey", question="Sure?"), call("delete", order="7"), "Done.")

    async def answer():
        async with working(place, tools, *script):
            await result(client, client.submit("Go.", run_id="r"))
            [question] = result_now(client.store.list_approvals())
            await asyncio.to_thread(client.deliver, question.id, "Yes.")
            return await result(client, "r")

    assert asyncio.run(answer()).reason == "waiting for approval of delete"
    assert_rests_until_it_is_answered(client)


def assert_rests_until_it_is_answered(client):
    """See that no sweep resumes a waiting run, however long it waits, and that an answer does."""
    pass_time(client, STALE_S + 1.0)
    assert result_now(client.store.sweep_submitted()) == 0
    assert waiting(client) == 0
    [question] = result_now(client.store.list_approvals())
    admin.approve(client.store, question.id, by="anna")
    assert waiting(client) == 1


# -- which worker -----------------------------------------------------------------------------------------------------


def test_a_worker_without_a_tool_of_the_run_hands_it_back_and_says_so(place, client):
    shop = Shop()
    with hr.SyncRuntime(shop.tools("look"), store=place) as newer:
        newer.submit("Go.", run_id="r")

    async def deploy():
        async with working(place, shop.tools("hold"), "Never."):
            while "has no tool look" not in submission(client, "r").note:
                await asyncio.sleep(0.02)
            assert result_now(client.store.list_runs())[0].status == "queued"
        async with working(place, shop.tools("look"), call("look"), "Done."):
            return await result(client, "r")

    assert asyncio.run(deploy()).text == "Done."


def test_a_run_of_a_provider_that_a_worker_lacks_waits_for_another_and_says_so(
    place, client, caplog
):
    caplog.set_level("DEBUG", "handrail.worker")
    client.submit("Go.", run_id="r", model="opnai:gpt")

    def hand_backs():
        return [each for each in caplog.records if "handed back" in each.getMessage()]

    async def hand_back():
        async with working(place, [], "Never."):
            await until(lambda: len(hand_backs()) >= 3)

    asyncio.run(hand_back())
    lacking = (
        "the worker that took it has no provider 'opnai' (did you mean openai:gpt?)"
    )
    assert submission(client, "r").note == lacking
    assert result_now(client.store.list_runs())[0].status == "queued"
    # it comes back again and again, and is a line of the log once
    told = hand_backs()
    assert [each.levelname for each in told[:3]] == ["INFO", "DEBUG", "DEBUG"]
    assert lacking in told[0].getMessage()


def test_a_worker_takes_runs_of_its_queues_only(place, client):
    client.submit("Go.", run_id="mail", queue="mail")
    client.submit("Go.", run_id="other")

    async def carry_out():
        async with working(place, [], "Done.", queues=["mail"]):
            return await result(client, "mail")

    assert asyncio.run(carry_out()).ok
    [record] = list(result_now(client.store.list_runs(status="queued")))
    assert record.run_id == "other"


def test_runs_of_several_tenants_go_to_one_worker(place, client):
    for scope in ("acme", "zeta", ""):
        client.submit("Go.", run_id="r", scope=scope)

    async def carry_out():
        async with working(place, [], "Done."):
            return [await result(client, "r", scope=each) for each in ("acme", "zeta")]

    assert [each.id for each in asyncio.run(carry_out())] == ["r", "r"]


@pytest.mark.parametrize(
    ("queues", "reason"), [([""], "queue is ''"), ("mail", "takes a list of names")]
)
def test_a_worker_that_would_find_no_run_is_refused(tmp_path, queues, reason):
    with opener(f"sqlite:///{tmp_path}/handrail.db")() as store:
        runtime = hr.Runtime([], store=store)
        dispatcher = open_dispatcher(store)
        with pytest.raises(ConfigError, match=reason):
            Worker(runtime, dispatcher, queues=queues)


def test_an_idle_worker_whose_store_does_not_answer_is_not_ready(place, monkeypatch):
    monkeypatch.setattr("handrail.dispatch.worker.MOST_SILENT_S", 1.0)
    monkeypatch.setattr("handrail.dispatch.worker.SWEEP_S", 0.2)

    async def close_store():
        async with working(place, []) as worker:
            while worker.why_not_ready():
                await asyncio.sleep(0.02)
            worker._runtime.store.close()
            async with asyncio.timeout(SOON_S):
                while not worker.why_not_ready():
                    await asyncio.sleep(0.02)
            return worker.why_not_ready()

    assert asyncio.run(close_store()) == "the store has not answered for 1 s"


# -- cancelling -------------------------------------------------------------------------------------------------------


def test_a_run_that_is_cancelled_elsewhere_ends_in_its_worker(place, client):
    shop = Shop()

    async def cancel():
        async with working(place, shop.tools(), call("hold"), "Done."):
            run_id = client.submit("Go.")
            await asyncio.wait_for(shop.inside.wait(), SOON_S)
            with opener(place)() as elsewhere:
                admin.cancel(elsewhere, run_id, by="anna")
            return await result(client, run_id)

    assert asyncio.run(cancel()).status == "cancelled"
    assert waiting(client) == 0


def test_a_queued_run_that_is_cancelled_is_never_begun(place, client):
    client.submit("Go.", run_id="r")
    admin.cancel(client.store, "r", by="anna")
    model = ScriptedModel(["Done."])

    async def look():
        async with working(place, []) as worker:
            worker._model = model
            while rows(client, "SELECT 1 FROM submitted"):
                await asyncio.sleep(0.02)

    asyncio.run(look())
    assert (client.result("r").status, model.requests) == ("cancelled", [])


def cancel_by_hand(store, run_id):
    admin.cancel(store, run_id, by="anna")


def end_as_its_driver(store, run_id):
    """End a run as the process does that drove it and seemed to be gone, once it learns that its end is wanted."""
    epoch = result_now(store.load_run(run_id)).record.epoch
    ended = JournalEntry(run_id, epoch, status="cancelled", result={})
    result_now(store.append_entry(ended))


class CancelledMeanwhile:
    """A runtime whose first resume comes after somebody has cancelled the run."""

    def __init__(self, runtime, cancel):
        self._runtime = runtime
        self._cancel = cancel
        self.said = ""

    def __getattr__(self, name):
        return getattr(self._runtime, name)

    async def resume(self, run_id, **options):
        if not self.said:
            store = self._runtime.store
            await asyncio.to_thread(self._cancel, store, run_id)
            self.said = (await wait_for(store.load_run(run_id))).record.status
        return await self._runtime.resume(run_id, **options)


@pytest.mark.parametrize("cancel", [cancel_by_hand, end_as_its_driver])
def test_a_queued_run_that_is_cancelled_while_a_worker_takes_it_is_never_begun(
    place, client, cancel
):
    client.submit("Go.", run_id="r")
    model = ScriptedModel(["Done."])

    async def carry_out():
        async with hr.Runtime([], store=opener(place)()) as runtime:
            meanwhile = CancelledMeanwhile(runtime, cancel)
            dispatcher = open_dispatcher(runtime.store, timing=QUICK)
            worker = Worker(meanwhile, dispatcher, model=model)
            task = asyncio.create_task(worker.work())
            while rows(client, "SELECT 1 FROM submitted"):
                await asyncio.sleep(0.02)
            await worker.stop(grace_s=5.0)
            await task
            runtime.store.close()
            return meanwhile.said

    assert asyncio.run(carry_out()) == "cancelled"
    assert (client.result("r").status, model.requests) == ("cancelled", [])
    assert waiting(client) == 0


def test_a_write_in_doubt_is_a_warning_in_the_log_of_the_worker(place, client, caplog):
    def pay(order: str) -> str:
        """Pay an order."""
        raise ConnectionResetError

    tool = hr.FunctionTool(pay, effect="write", key="pay:{order}")
    script = (call("pay", order="7"), call("pay", order="8"), "Who knows?")

    async def carry_out():
        async with working(place, [tool], *script):
            return await result(client, client.submit("Go.", run_id="r"))

    assert asyncio.run(carry_out()).text == "Who knows?"
    warnings = [
        each.getMessage()
        for each in caplog.records
        if (each.name, each.levelname) == ("handrail.worker", "WARNING")
    ]
    assert warnings == [
        "run r: pay may or may not have happened; a person must look: "
        "handrail ledger list --state in_doubt --run r"
    ]


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_segment_that_is_nowhere_is_enqueued_by_a_sweep(place, client):
    client.submit("Go.", run_id="r")
    drop_segments(client.store, "r")
    rows(client, "UPDATE submitted SET swept = 1 RETURNING 1")
    assert result_now(client.store.sweep_submitted()) == 1
    assert result_now(client.store.sweep_submitted()) == 0
    assert waiting(client) == 1


def test_a_question_that_has_expired_wakes_its_run_once(client):
    client.submit("Go.", run_id="r")
    store = client.store
    for id, within_s in (("old", 0.0), ("new", 1000.0)):
        question = ApprovalRequest(id, "r", "c", "delete", id, {}, "high", "lasting")
        result_now(store.ask(question, within_s=within_s))
    woken = []
    for number in (1, 2):
        assert result_now(store.take_segment("r", number, after_death=False))
        rows(client, "UPDATE runs SET status = 'waiting' RETURNING 1")
        # a worker does not ask about the old question any more, say because a deploy has changed its tool
        result_now(store.finish_segment("r", number))
        woken.append(result_now(store.sweep_submitted()))
    assert woken == [1, 0]
    states = [each.state for each in result_now(store.list_approvals(state=""))]
    assert states == ["expired", "open"]


def test_a_question_of_a_run_that_a_call_has_started_wakes_the_outer_one(client):
    for run_id in ("r", "r2"):
        client.submit("Go.", run_id=run_id)
    rows(client, "UPDATE runs SET status = 'waiting' RETURNING 1")
    for run_id in ("r", "r2"):
        drop_segments(client.store, run_id)
    question = ApprovalRequest("q", "r.1.0", "c", "delete", "d", {}, "high", "lasting")
    result_now(client.store.ask(question, within_s=0.0))
    rows(client, "UPDATE submitted SET swept = 1 RETURNING 1")
    assert result_now(client.store.sweep_submitted()) == 0
    # the question has expired by now
    assert result_now(client.store.sweep_submitted()) == 1
    assert result_now(client.store.load_run("r")).record.status == "queued"
    assert result_now(client.store.load_run("r2")).record.status == "waiting"


def test_cancelling_a_run_that_a_call_has_started_wakes_the_outer_one(client):
    for run_id in ("r", "r2"):
        client.submit("Go.", run_id=run_id)
    result_now(client.store.begin_run(RunRecord("r.1.0", {})))
    rows(client, "UPDATE runs SET status = 'waiting' RETURNING 1")
    for run_id in ("r", "r2"):
        drop_segments(client.store, run_id)
    assert result_now(client.store.request_cancel("r.1.0"))
    assert result_now(client.store.load_run("r")).record.status == "queued"
    assert result_now(client.store.load_run("r2")).record.status == "waiting"
    assert waiting(client) == 1


def test_a_segment_of_the_past_does_nothing(place, client):
    client.submit("Go.", run_id="r")
    rows(client, "UPDATE submitted SET segment = 2 RETURNING 1")
    assert result_now(client.store.take_segment("r", 1, after_death=False)) is None
    assert result_now(client.store.take_segment("r", 2, after_death=False)) is not None
    assert result_now(client.store.take_segment("none", 1, after_death=False)) is None


def test_a_run_that_kills_its_workers_is_poisoned(place, client):
    client.submit("Go.", run_id="r")
    rows(client, "UPDATE runs SET status = 'running', owner = 'gone:1:' RETURNING 1")
    rows(client, f"UPDATE submitted SET deaths = {MOST_TAKEOVERS} RETURNING 1")
    asyncio.run(perform(place, Running(Segment("r"), 5, after_death=True)))
    run = client.result("r", within_s=SOON_S)
    assert run.status == "failed"
    assert "poisoned" in run.reason


async def perform(place, running):
    """Let a worker that takes nothing else perform a segment."""
    async with hr.Runtime([], store=opener(place)()) as runtime:
        dispatcher = open_dispatcher(runtime.store, timing=QUICK)
        worker = Worker(runtime, dispatcher, model=ScriptedModel(["Never."]))
        try:
            await worker._perform(running.segment, running)
        finally:
            runtime.store.close()


def test_a_process_without_procrastinate_submits_runs(place, client, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "procrastinate", None)
        with hr.SyncRuntime(store=opener(place)()) as elsewhere:
            elsewhere.submit("Go.", run_id="r")
            elsewhere.store.close()

    async def carry_out():
        async with working(place, [], "Done."):
            return await result(client, "r")

    assert asyncio.run(carry_out()).text == "Done."


def test_a_worker_that_is_told_to_end_hands_its_run_over(place, client):
    shop = Shop()

    async def hand_over():
        async with working(place, shop.tools(), call("hold"), "Done.", grace_s=0.0):
            client.submit("Go.", run_id="r")
            await asyncio.wait_for(shop.inside.wait(), SOON_S)
        assert waiting(client) == 1
        # as if it had been handed over before: the next attempt is one more
        assert result_now(client.store.take_segment("r", 1, after_death=True))
        [(deaths,)] = rows(client, "SELECT deaths FROM submitted")
        assert deaths == 0
        shop.gate.set()
        async with working(place, shop.tools(), call("hold"), "Done."):
            return await result(client, "r")

    assert asyncio.run(hand_over()).text == "Done."


def test_a_worker_that_dies_after_another_has_handed_the_run_over_is_counted(client):
    client.submit("Go.", run_id="r")
    rows(client, "UPDATE runs SET status = 'running' RETURNING 1")
    deaths = []
    for note in ("handed over", "", ""):
        if note:
            result_now(client.store.note_segment("r", note))
        taken = result_now(client.store.take_segment("r", 1, after_death=True))
        deaths.append(taken.submission.deaths)
    assert deaths == [0, 1, 2]


def test_a_worker_that_was_frozen_after_its_claim_takes_no_run_over(place, client):
    """It does not know yet whether somebody else has the segment by now."""
    client.submit("Go.", run_id="r")

    async def is_lost():
        return False

    with pytest.raises(HandBack, match="was frozen"):
        asyncio.run(perform(place, Running(Segment("r"), is_ours=is_lost)))
    stored = result_now(client.store.load_run("r"))
    assert (stored.record.status, stored.record.epoch) == ("queued", 1)
    assert waiting(client) == 1


class Overtaken:
    """A runtime whose first resume comes after somebody else has taken the run over, and left it again."""

    def __init__(self, runtime, client):
        self._runtime = runtime
        self._client = client
        self.resumed = 0

    def __getattr__(self, name):
        return getattr(self._runtime, name)

    async def resume(self, run_id, **options):
        self.resumed += 1
        if self.resumed == 1:
            rows(self._client, "UPDATE runs SET epoch = epoch + 1 RETURNING 1")
        return await self._runtime.resume(run_id, **options)


def test_a_run_that_was_taken_over_meanwhile_is_handed_back_and_not_left(place, client):
    client.submit("Go.", run_id="r")

    async def carry_out():
        async with hr.Runtime([], store=opener(place)()) as runtime:
            overtaken = Overtaken(runtime, client)
            dispatcher = open_dispatcher(runtime.store, timing=QUICK)
            worker = Worker(overtaken, dispatcher, model=ScriptedModel(["Done."]))
            task = asyncio.create_task(worker.work())
            run = await result(client, "r")
            await worker.stop(grace_s=5.0)
            await task
            runtime.store.close()
            return run, overtaken.resumed

    run, resumed = asyncio.run(carry_out())
    assert (run.text, resumed) == ("Done.", 2)


def test_a_run_is_resumed_at_the_epoch_that_was_read_only(client):
    client.submit("Go.", run_id="r")
    rows(
        client,
        "UPDATE runs SET epoch = 7, status = 'running', owner = 'gone:1:' RETURNING 1",
    )
    model = ScriptedModel(["Done."])
    with pytest.raises(Fenced):
        client.resume("r", anyway=True, epoch=6, model=model)
    assert client.resume("r", anyway=True, epoch=7, model=model).text == "Done."


# -- waiting for the lease of a dead process --------------------------------------------------------------------------


class Bank:
    """The far side of a write whose worker died: what was paid here, and what `verify` answers."""

    def __init__(self):
        self.paid = []
        self.asked = 0
        self.happened = hr.NotFound()

    def tools(self):
        def pay(order: str) -> str:
            self.paid.append(order)
            return "paid"

        def verify(arguments, context):
            self.asked += 1
            return self.happened

        return [make_pay(pay, verify)]


def submission(client, run_id):
    return result_now(client.store.list_submitted([run_id]))[run_id]


async def until(condition):
    async with asyncio.timeout(SOON_S):
        while not condition():
            await asyncio.sleep(0.02)


async def postponed(client, run_id):
    await until(lambda: submission(client, run_id).note)


def let_lease_end(client):
    """Move all stored times back, as if the tool's timeout, and the 30 s that a lease adds to it, had passed."""
    passed_s = TIMEOUT_S + 60
    moved = f"begun = begun - {passed_s}, lease_until = lease_until - {passed_s}"
    rows(client, f"UPDATE effects SET {moved} RETURNING 1")
    swept = f"swept = swept - {passed_s}, wake_at = wake_at - {passed_s}"
    rows(client, f"UPDATE submitted SET {swept} RETURNING 1")


def test_a_run_waits_in_the_store_for_the_lease_of_a_dead_worker(place, client):
    client.submit("Go.", run_id="r")
    bank = Bank()

    async def go_on():
        async with working(place, bank.tools(), *SCRIPT, concurrency=1) as worker:
            await postponed(client, "r")
            await until(lambda: not (worker.runs_here or waiting(client)))
            assert (bank.asked, bank.paid) == (1, [])
            # its place is free
            client.submit("Go.", run_id="other")
            worker._model = ScriptedModel(["Hello."])
            assert (await result(client, "other")).text == "Hello."
            worker._model = ScriptedModel(SCRIPT)
            await worker._sweep()
            told = submission(client, "r")
            assert (told.deaths, told.segment, waiting(client)) == (1, 1, 0)
            assert "UTC: an earlier process may still be carrying out pay" in told.note
            assert result_now(client.store.load_run("r")).record.status == "queued"
            let_lease_end(client)
            await worker._sweep()
            assert submission(client, "r").deaths == 1
            return await result(client, "r")

    die_in_write(place)
    assert asyncio.run(go_on()).text == "Done."
    assert (bank.asked, bank.paid) == (2, ["7"])


def test_a_write_that_outlasts_the_grace_is_verified_by_the_next_worker(place, client):
    client.submit("Go.", run_id="r")
    bank = Bank()
    inside = asyncio.Event()

    async def pay(order: str) -> str:
        inside.set()
        await asyncio.Event().wait()

    async def hand_over():
        tools = [make_pay(pay)]
        async with working(place, tools, *SCRIPT, grace_s=0.0):
            await asyncio.wait_for(inside.wait(), SOON_S)
        async with working(place, bank.tools(), *SCRIPT) as worker:
            await until(lambda: "not before" in submission(client, "r").note)
            assert (bank.asked, bank.paid) == (0, [])
            let_lease_end(client)
            await worker._sweep()
            return await result(client, "r")

    assert asyncio.run(hand_over()).text == "Done."
    assert (bank.asked, bank.paid) == (1, ["7"])


def postpone(client, run_id, wait_s):
    """Leave a run as its worker does that waits for a lease."""
    store = client.store
    result_now(store.take_segment(run_id, 1, after_death=False))
    result_now(store.finish_segment(run_id, 1, wait_s=wait_s, why="a lease"))
    drop_segments(store, run_id)


def test_a_run_whose_wait_ends_while_its_worker_still_holds_its_segment_goes_on_soon(
    client,
):
    client.submit("Go.", run_id="r")
    store = client.store
    result_now(store.take_segment("r", 1, after_death=False))
    result_now(store.finish_segment("r", 1, wait_s=30.0, why="a lease"))
    # the worker is slow, or frozen: the dispatcher has the segment until it has settled it
    pass_time(client, 31.0)
    assert result_now(store.sweep_submitted()) == 0
    assert waiting(client) == 1
    drop_segments(store, "r")
    assert waiting(client) == 0
    pass_time(client, AGAIN_S + 1.0)
    assert result_now(store.sweep_submitted()) == 1
    assert waiting(client) == 1
    # and that was all
    pass_time(client, AGAIN_S + 1.0)
    assert result_now(store.sweep_submitted()) == 0


def pass_time(client, seconds):
    rows(
        client,
        f"UPDATE submitted SET wake_at = wake_at - {seconds}, swept = swept - {seconds} RETURNING 1",
    )


def test_a_run_whose_wait_is_over_goes_on_however_many_others_wait(client):
    for number in range(160):
        client.submit("Go.", run_id=f"import-{number}", scope="big")
    rows(client, "UPDATE submitted SET swept = swept - 1000 RETURNING 1")
    client.submit("Go.", run_id="r")
    postpone(client, "r", wait_s=30.0)
    assert result_now(client.store.sweep_submitted()) == 0
    rows(client, "UPDATE submitted SET wake_at = wake_at - 31.0 RETURNING 1")
    assert result_now(client.store.sweep_submitted()) == 1
    assert result_now(client.store.sweep_submitted()) == 0
    assert waiting(client) == 161


def test_a_run_that_was_cancelled_while_it_waited_is_forgotten_once_it_is_due(client):
    client.submit("Go.", run_id="r")
    postpone(client, "r", wait_s=30.0)
    admin.cancel(client.store, "r", by="anna")
    rows(client, "UPDATE submitted SET wake_at = wake_at - 31.0 RETURNING 1")
    assert result_now(client.store.sweep_submitted()) == 0
    assert rows(client, "SELECT 1 FROM submitted") == []
    assert waiting(client) == 0


def test_a_write_of_a_dead_worker_that_has_happened_is_not_waited_for(place, client):
    client.submit("Go.", run_id="r")
    bank = Bank()
    bank.happened = hr.Found("paid before")

    async def go_on():
        async with working(place, bank.tools(), *SCRIPT):
            return await result(client, "r")

    die_in_write(place)
    assert asyncio.run(go_on()).text == "Done."
    assert (bank.asked, bank.paid) == (1, [])


def test_the_lease_of_a_process_on_another_machine_is_waited_for_in_the_store(
    place, client
):
    client.submit("Go.", run_id="r")
    bank = Bank()

    async def go_on():
        async with working(place, bank.tools(), *SCRIPT) as worker:
            await postponed(client, "r")
            assert (bank.asked, bank.paid) == (0, [])
            let_lease_end(client)
            await worker._sweep()
            return await result(client, "r")

    die_in_write(place)
    # nobody here can tell whether that one lives
    rows(client, "UPDATE effects SET owner = 'elsewhere:1:' RETURNING 1")
    assert asyncio.run(go_on()).text == "Done."
    assert (bank.asked, bank.paid) == (1, ["7"])


def test_a_run_that_waits_for_a_lease_can_be_cancelled(place, client):
    client.submit("Go.", run_id="r")
    bank = Bank()

    async def cancel():
        async with working(place, bank.tools(), *SCRIPT):
            await postponed(client, "r")
            admin.cancel(client.store, "r", by="anna")
            return await result(client, "r")

    die_in_write(place)
    assert asyncio.run(cancel()).status == "cancelled"
    assert bank.paid == []


def test_without_workers_a_lease_is_waited_for_where_the_run_is(place, client):
    client.submit("Go.", run_id="r")
    bank = Bank()

    async def resume():
        store = opener(place)()
        async with hr.Runtime(bank.tools(), store=store) as runtime:
            model = ScriptedModel(SCRIPT)
            resuming = asyncio.create_task(
                runtime.resume("r", anyway=True, model=model)
            )
            await until(lambda: bank.asked)
            assert not submission(client, "r").note
            assert result_now(client.store.load_run("r")).record.status == "running"
            runtime.cancel("r")
            run = await resuming
            store.close()
            return run

    die_in_write(place)
    assert asyncio.run(resume()).status == "cancelled"
    assert bank.paid == []


@pytest.mark.parametrize("name", ["a b", "日本 ✓", "r.1.0", "a'; DROP--"])
def test_a_name_of_any_text_goes_through(place, client, name):
    client.submit("Go.", run_id=name, queue=name, scope="t\u00fc")

    async def carry_out():
        async with working(place, [], "Done."):
            return await result(client, name, scope="t\u00fc")

    assert asyncio.run(carry_out()).ok
