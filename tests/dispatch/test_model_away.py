"""Runs of workers whose model is away: they wait in the store, go on once it answers, and do nothing twice."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

import handrail as hr
from handrail import admin
from handrail.core.retries import Backoff
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.worker import Worker
from handrail.engine import model_calls
from handrail.errors import ConfigError, RunUnderWay
from handrail.futures import result_now
from handrail.journal.codec import model_key
from handrail.records import MOST_TAKEOVERS, JournalEntry, JournalStep
from handrail.testing import Fault, ScriptedServer, call
from handrail.testing.crashes import opener
from tests.dispatch.test_worker import (
    client,  # noqa: F401  # fixtures
    place,  # noqa: F401
    postgres,  # noqa: F401
    postpone,
    result,
    rows,
    submission,
    until,
    waiting,
    working,
)
from tests.dispatch.workers import drop_segments

AWAY = Fault(503, '{"error": {"message": "overloaded"}}')
BUSY = Fault(429, '{"error": {"message": "slow down"}}', headers={"retry-after": "90"})
SILENT = Fault(body=None)
SCRIPT = [call("pay", order="7"), "Done."]


class Payments:
    """A write, and how often it was done."""

    def __init__(self):
        self.paid = []

    def tools(self):
        def pay(order: str) -> str:
            self.paid.append(order)
            return "paid"

        return [hr.FunctionTool(pay, effect="write")]


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    """Let each run ask again at once that has waited: here no time passes between two tries."""
    for waits in ("RESTS", "MODEL_WAITS"):
        monkeypatch.setattr(model_calls, waits, Backoff(0.0, 0.0))


@pytest.fixture
def payments():
    return Payments()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with ScriptedServer(SCRIPT) as server:
        yield server


def submit_before_outage(client, server):
    """Submit a run whose model answers once and is away from then on."""
    client.submit("Go.", run_id="r", model=server.model)
    server.faults = [None]
    server.outage = AWAY


def pass_wait(client):
    """Move all stored times back, as if every run had waited long enough."""
    moved = "swept = swept - 90000, wake_at = wake_at - 90000"
    rows(client, f"UPDATE submitted SET {moved} WHERE wake_at IS NOT NULL RETURNING 1")


def record(client, run_id="r"):
    return result_now(client.store.load_run(run_id)).record


async def put_back(client, worker, tries, run_id="r"):
    """Wait until a run has been put back so many times, and its worker is done with it."""
    await until(lambda: submission(client, run_id).model_wait.tries >= tries)
    await until(lambda: not (worker.runs_here or waiting(client)))


async def wake(client, worker):
    """Let the runs go on that wait."""
    pass_wait(client)
    await worker._sweep()


@pytest.mark.parametrize("fault", [AWAY, BUSY, SILENT])
def test_a_run_waits_in_the_store_while_its_model_is_away(
    place, client, server, payments, fault
):
    client.submit("Go.", run_id="r", model=server.model)
    server.outage = fault

    async def outlast():
        async with working(place, payments.tools(), "Hello.", concurrency=1) as worker:
            waiter = asyncio.create_task(result(client, "r"))
            for tries in (1, 2):
                await put_back(client, worker, tries)
                assert record(client).status == "queued"
                await wake(client, worker)
            await put_back(client, worker, 3)
            # its place is free
            client.submit("Go.", run_id="other")
            assert (await result(client, "other")).text == "Hello."
            assert not waiter.done()
            server.outage = None
            await wake(client, worker)
            return await waiter

    run = asyncio.run(outlast())
    assert (run.text, payments.paid) == ("Done.", ["7"])
    assert rows(client, "SELECT count(*) FROM submitted") == [(0,)]


def test_what_was_done_before_the_outage_is_not_done_again(
    place, client, server, payments
):
    submit_before_outage(client, server)

    async def outlast():
        async with working(place, payments.tools()) as worker:
            await put_back(client, worker, 1)
            assert submission(client, "r").model_wait.turn == 2
            await wake(client, worker)
            await put_back(client, worker, 2)
            server.outage = None
            await wake(client, worker)
            return await result(client, "r")

    run = asyncio.run(outlast())
    assert (run.text, run.spent.calls, payments.paid) == ("Done.", 1, ["7"])
    # each time with the same messages
    asked = [body["messages"] for body in server.requests]
    assert all(each == asked[-1] for each in asked[1:])


def test_another_outage_is_counted_from_its_own_beginning(
    place, client, server, payments
):
    client.submit("Go.", run_id="r", model=server.model)
    server.outage = AWAY

    async def outlast():
        async with working(place, payments.tools()) as worker:
            await put_back(client, worker, 1)
            await wake(client, worker)
            await put_back(client, worker, 2)
            # one answer, and the provider is away again
            server.faults = [*[AWAY] * len(server.requests), None]
            await wake(client, worker)
            await until(lambda: submission(client, "r").model_wait.turn == 2)
            await put_back(client, worker, 1)
            server.outage = None
            await wake(client, worker)
            return await result(client, "r")

    assert asyncio.run(outlast()).text == "Done."
    assert payments.paid == ["7"]


def test_a_run_fails_once_it_has_waited_long_enough(place, client, server):
    client.submit("Go.", run_id="r", model=server.model)
    server.outage = AWAY

    async def give_up():
        async with working(place, [], await_model_s=6.0) as worker:
            waiter = asyncio.create_task(result(client, "r"))
            while not waiter.done():
                await wake(client, worker)
                await asyncio.sleep(0.02)
            return await waiter

    run = asyncio.run(give_up())
    assert run.status == "failed"
    assert "503" in run.reason
    # after 2.5 to 5 s, and at the end of the 6 s
    assert "(waited twice, 6 s in all)" in run.reason
    assert rows(client, "SELECT count(*) FROM submitted") == [(0,)]


MALFORMED = '{"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}'


@pytest.mark.parametrize(
    ("provider", "fault", "seconds"),
    [
        ("openai", Fault(401, '{"error": {"message": "no such key"}}'), 60.0),
        ("openai", Fault(400, '{"error": {"message": "bad request"}}'), 60.0),
        (
            "openai",
            Fault(429, '{"error": {"code": "insufficient_quota"}}'),
            60.0,
        ),
        ("gemini", Fault(200, MALFORMED), 60.0),  # it has answered
        ("openai", BUSY, 60.0),  # it wants to be left alone for longer
        ("openai", AWAY, 0.0),
    ],
)
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_run_fails_at_once_where_waiting_does_not_help(
    place, client, monkeypatch, provider, fault, seconds
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("GEMINI_API_KEY", "none")

    async def fail():
        async with working(place, [], await_model_s=seconds):
            return await result(client, "r")

    with ScriptedServer(SCRIPT) as server:
        model = f"{provider}:scripted@{server.base_url}"
        client.submit("Go.", run_id="r", model=model)
        server.outage = fault
        run = asyncio.run(fail())
    assert run.status == "failed"
    assert "tried" not in run.reason


def test_a_run_that_waits_for_its_model_is_cancelled_at_once(place, client, server):
    client.submit("Go.", run_id="r", model=server.model)
    server.outage = AWAY

    async def cancel():
        async with working(place, []) as worker:
            await put_back(client, worker, 1)
            asked = len(server.requests)
            admin.cancel(client.store, "r", by="anna")
            run = await result(client, "r")
            await wake(client, worker)
            assert rows(client, "SELECT count(*) FROM submitted") == [(0,)]
            return run, len(server.requests) - asked

    run, asked = asyncio.run(cancel())
    assert (run.status, asked) == ("cancelled", 0)


def leave(client, run_id, **how):
    """Leave a run's segment as a worker does; its dispatcher still has it."""
    number = submission(client, run_id).segment
    result_now(client.store.take_segment(run_id, number, after_death=False))
    return result_now(client.store.finish_segment(run_id, number, **how))


def test_a_request_to_end_a_run_is_heeded_that_comes_while_it_is_put_back(
    place, client
):
    """Its worker looks no longer whether somebody asks, and the store does not know yet that the run waits."""
    client.submit("Go.", run_id="r")
    rows(client, "UPDATE runs SET cancel_requested = 1 RETURNING 1")
    before = submission(client, "r")
    assert leave(client, "r", wait_s=300.0, why="away", model_turn=1).cancel_requested
    after = submission(client, "r")
    assert (after.segment, after.note) == (before.segment + 1, "")
    assert waiting(client) >= 1  # the first one does nothing any more

    async def carry_out():
        async with working(place, [], "Never."):
            return await result(client, "r")

    assert asyncio.run(carry_out()).status == "cancelled"


def test_deaths_before_an_outage_do_not_poison_a_run_that_waits_for_its_model(client):
    client.submit("Go.", run_id="r")
    rows(client, f"UPDATE submitted SET deaths = {MOST_TAKEOVERS} RETURNING 1")
    leave(client, "r", wait_s=5.0, why="its model is away", model_turn=1)
    told = submission(client, "r")
    assert (told.deaths, told.segment, told.model_wait.tries) == (0, 2, 1)
    assert "UTC: its model is away" in told.note


def test_a_run_that_waits_for_its_model_is_woken_and_goes_on(
    place, client, server, payments
):
    submit_before_outage(client, server)

    async def outlast():
        async with working(place, payments.tools()) as worker:
            await put_back(client, worker, 1)
            server.outage = None
            admin.wake(client.store, "r")
            return await result(client, "r")

    assert asyncio.run(outlast()).text == "Done."
    assert payments.paid == ["7"]


def wait_for_model(client, run_id="r", *, tries=3):
    """Leave a run as workers do whose model was away for so many of its segments in a row."""
    for _ in range(tries):
        leave(client, run_id, wait_s=300.0, why="its model is away", model_turn=1)
    drop_segments(client.store, run_id)


def test_a_run_is_woken_once_however_many_ask_for_it(place, client):
    client.submit("Go.", run_id="r")
    wait_for_model(client)
    assert waiting(client) == 0
    start = threading.Barrier(4)

    def wake_at_once(_):
        with opener(place)() as store:
            start.wait(30)
            return result_now(store.wake_run("r"))

    with ThreadPoolExecutor(4) as threads:
        woken = list(threads.map(wake_at_once, range(4)))
    assert sorted(woken) == [False, False, False, True]
    told = submission(client, "r")
    assert (told.segment, told.wake_at, told.note, waiting(client)) == (4, 0.0, "", 1)
    # if the model is away still, the next waits are short; those until now count for the longest
    assert (told.model_wait.tries, told.model_wait.waited_s) == (1, 900.0)
    with pytest.raises(ConfigError, match="it is queued in default already"):
        admin.wake(client.store, "r")


def test_a_run_that_waits_for_something_else_is_left_as_it_is(place, client):
    for name in ("lease", "cancelled", "queued"):
        client.submit("Go.", run_id=name)
    postpone(client, "lease", 300.0)
    wait_for_model(client, "cancelled")
    admin.cancel(client.store, "cancelled", by="anna")
    before = submission(client, "lease"), waiting(client)
    for name, why in {
        "lease": "UTC: a lease",
        "cancelled": r"it is over \(cancelled\)",
        "queued": "it is queued in default already",
        "unknown": "there is no run 'unknown'",
    }.items():
        with pytest.raises(ConfigError, match=why):
            admin.wake(client.store, name)
    assert (submission(client, "lease"), waiting(client)) == before
    assert record(client, "cancelled").status == "cancelled"


def test_a_run_waits_for_a_lease_whose_model_was_away_before_and_has_answered(client):
    client.submit("Go.", run_id="r")
    wait_for_model(client)
    admin.wake(client.store, "r")
    answer = JournalStep(model_key(1), "model", {"calls": []})
    result_now(client.store.append_entry(JournalEntry("r", 1, steps=[answer])))
    leave(client, "r", wait_s=300.0, why="a lease")
    with pytest.raises(ConfigError, match="UTC: a lease"):
        admin.wake(client.store, "r")


def test_a_run_that_waits_for_a_person_is_not_woken(place, client):
    def pay(order: str) -> str:
        return "paid"

    client.submit("Go.", run_id="r")

    async def ask():
        tools = [hr.FunctionTool(pay, effect="write", approve=True)]
        async with working(place, tools, *SCRIPT):
            return await result(client, "r")

    assert asyncio.run(ask()).status == "waiting"
    with pytest.raises(ConfigError, match="it waits for a person"):
        admin.wake(client.store, "r")
    assert record(client).status == "waiting"


def test_a_worker_that_comes_late_changes_nothing_of_a_wait(client):
    client.submit("Go.", run_id="r")
    leave(client, "r", wait_s=5.0, why="its model is away", model_turn=1)
    before = submission(client, "r")
    store = client.store
    late = {"wait_s": 300.0, "why": "late", "model_turn": 1}
    assert result_now(store.finish_segment("r", 1, **late)).status == "queued"
    assert result_now(store.take_segment("r", 1, after_death=True)) is None
    assert submission(client, "r") == before


def test_an_agent_whose_model_is_away_fails_its_call_and_not_the_run(
    place, client, server
):
    """It waits in a tool, whose call has its own time."""
    client.submit("Go.", run_id="r")
    server.outage = AWAY

    async def carry_out():
        async with hr.Runtime([]) as agents:
            agent = hr.agent_tool(agents, "ask", "Ask.", model=server.model)
            script = [call("ask", task="Look."), "Done."]
            async with working(place, [agent], *script):
                return await result(client, "r")

    run = asyncio.run(carry_out())
    assert run.text == "Done."
    [failed] = [m.result for m in run.messages if hasattr(m, "result")]
    assert "`ask` ended without an answer (failed)" in failed.failure.message


def test_whoever_waits_for_a_result_learns_what_it_waits_for(place, client, server):
    client.submit("Go.", run_id="r", model=server.model, scope="acme")
    server.outage = AWAY

    async def look():
        async with working(place, []) as worker:
            await put_back(client, worker, 1, "@acme/r")
        with pytest.raises(RunUnderWay) as told:
            client.result("r", scope="acme", within_s=0.0)
        return str(told.value)

    told = asyncio.run(look())
    assert "the run '@acme/r' has not ended within 0 s" in told
    assert "it is queued (not before 2" in told
    assert "UTC: its model is away: scripted at http://127.0" in told
    assert "overloaded" in told


def test_no_secret_that_a_provider_quotes_is_in_the_store(place, client, server):
    client.submit("Go.", run_id="r", model=server.model)
    server.outage = Fault(503, '{"error": {"message": "busy with tr0ub4dor"}}')

    async def put_aside():
        async with hr.Runtime([], store=place, secrets=["tr0ub4dor"]) as runtime:
            dispatcher = open_dispatcher(runtime._engine.store_of_all)
            worker = Worker(runtime, dispatcher)
            task = asyncio.create_task(worker.work())
            await put_back(client, worker, 1)
            await worker.stop(grace_s=5.0)
            await task

    asyncio.run(put_aside())
    assert "busy with ***" in submission(client, "r").note


def test_one_run_tries_a_model_that_is_away_and_the_others_are_put_back(
    place, client, server, monkeypatch
):
    monkeypatch.setattr(model_calls, "RESTS", Backoff(600.0, 600.0))
    server.outage = AWAY
    names = [f"r{number}" for number in range(4)]

    async def outlast():
        async with working(place, Payments().tools(), concurrency=1) as worker:
            client.submit("Go.", run_id=names[0], model=server.model)
            await put_back(client, worker, 1, names[0])
            for name in names[1:]:
                client.submit("Go.", run_id=name, model=server.model)
                # it may be one request that fails
                await put_back(client, worker, 1, name)
            asked = len(server.requests)
            recorded = rows(client, "SELECT count(*) FROM audit")
            for tries in (2, 3):
                await wake(client, worker)
                for name in names:
                    await put_back(client, worker, tries, name)
            # nothing was begun
            assert len(server.requests) == asked
            assert rows(client, "SELECT count(*) FROM audit") == recorded
            note = submission(client, "r3").note
            assert "was not asked, since it has not answered another run (503)" in note
            # whoever gets an answer ends this for all
            server.outage = None
            client.submit("Go.", run_id="new", model=server.model)
            assert (await result(client, "new")).ok
            await wake(client, worker)
            return [await result(client, name) for name in names]

    assert {run.text for run in asyncio.run(outlast())} == {"Done."}


def test_a_look_of_a_worker_finds_all_runs_that_are_due(place, client):
    for number in range(120):
        client.submit("Go.", run_id=f"r{number}")
        leave(client, f"r{number}", wait_s=5.0, why="away", model_turn=1)
        drop_segments(client.store, f"r{number}")

    async def look():
        async with working(place, [], "Done.", queues=["none"]) as worker:
            before = waiting(client)
            pass_wait(client)
            await worker._sweep_all()
            return waiting(client) - before

    assert asyncio.run(look()) == 120


@asynccontextmanager
async def door_to(server, port):
    """Let a port that refused connections lead to a server."""
    carrying = []

    async def carry(source, target):
        while piece := await source.read(65536):
            target.write(piece)
            await target.drain()
        target.close()
        await target.wait_closed()

    async def let_in(reader, writer):
        carrying.append(asyncio.current_task())
        inside = await asyncio.open_connection(server.host, server.port)
        await asyncio.gather(carry(reader, inside[1]), carry(inside[0], writer))

    async with await asyncio.start_server(let_in, "127.0.0.1", port):
        yield
        await asyncio.gather(*carrying)


def test_a_server_that_refuses_connections_is_waited_for(place, client, server):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # and nobody listens
        port = unheard.getsockname()[1]
        model = f"openai:scripted@http://127.0.0.1:{port}/v1"
        client.submit("Go.", run_id="r", model=model)

        async def be_refused():
            async with working(place, Payments().tools()) as worker:
                await put_back(client, worker, 1)

        asyncio.run(be_refused())
    assert "is the server running?" in submission(client, "r").note

    async def go_on():
        async with (
            door_to(server, port),
            working(place, Payments().tools()) as worker,
        ):
            await wake(client, worker)
            return await result(client, "r")

    assert asyncio.run(go_on()).text == "Done."


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), "5"])
def test_a_wait_that_is_no_time_is_refused(tmp_path, seconds):
    async def work():
        async with working(f"sqlite:///{tmp_path}/r.db", [], await_model_s=seconds):
            pass

    with pytest.raises(ConfigError, match="`await_model_s` is"):
        asyncio.run(work())
